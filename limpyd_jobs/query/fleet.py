"""What all workers together have done, and what waits for them: as figures, for monitoring."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

from limpyd_jobs.models.presence import AliveWorker, WorkerPresence
from limpyd_jobs.query.limits.keys import LimitSums, limit_sums
from limpyd_jobs.query.queues import QueueState, some_queue_states
from limpyd_jobs.query.schedules import lateness
from limpyd_jobs.records.metrics import Metrics, read_totals
from limpyd_jobs.redis.database import JobsDatabase
from limpyd_jobs.search.classes import asking_once, connection_to, on

# How many queues are looked at, at most: 100 in each step.
MAX_QUEUES = 20_000

# After how many seconds a job has waited too long for an idle worker.
STALLED_AFTER = 60


class Fleet(NamedTuple):
    """A database and its workers, as they were when they were read.

    Attributes
    ----------
    totals: mapping of (str, str) to Metrics
        What became of jobs since metrics are written, by the name of a queue and the path of a class; two empty texts
        stand for all beyond some hundreds. They begin anew if these keys of Redis are deleted.
    queues: list of QueueState
        Those of the workers and of `totals` first, if there are more than 20,000.
    queues_left_out: int
        How many queues there are beside these.
    workers: list of AliveWorker
    schedule_lateness: float
        For how many seconds the schedule has been due that is due for longest; 0 if none is.
    limits: sequence of LimitSums
        Of the limits in use.
    """

    totals: Mapping[tuple[str, str], Metrics]
    queues: list[QueueState]
    queues_left_out: int
    workers: list[AliveWorker]
    schedule_lateness: float
    limits: Sequence[LimitSums] = ()

    @property
    def stalled(self) -> list[AliveWorker]:
        """The workers that have been idle since their sign of life before the last one, though the first job of one of
        their queues, which is not paused, has waited for more than a minute."""
        waiting = {
            (queue.model, queue.name)
            for queue in self.queues
            if queue.waiting and not queue.is_paused and (queue.latency or 0) > STALLED_AFTER
        }
        idle = (each for each in self.workers if each.status == "idle" and each.idle_for)
        return [each for each in idle if any((each.queue_model, name) in waiting for name in each.queues)]


def look_at_fleet(database: JobsDatabase | None = None) -> Fleet:
    """Look at a database and its workers. The number of jobs does not matter; 100 queues take a round trip."""
    with asking_once():
        totals = read_totals(connection_to(database))
        workers = on(WorkerPresence, database).alive()
        names = {name for worker in workers for name in worker.queues} | {name for name, _ in totals if name}
        queues, left_out = some_queue_states(names, MAX_QUEUES, database)
        return Fleet(totals, queues, left_out, workers, lateness(database)[0], limit_sums(queues, database))
