"""What stands in queues and has to be run, and how many workers that needs: for autoscalers."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from datetime import timedelta
from math import ceil, floor
from typing import Any, NamedTuple

from limpyd_jobs.arguments import stored_queue_name
from limpyd_jobs.dates import utcnow
from limpyd_jobs.models.queue import Queue
from limpyd_jobs.query.metrics import Period, read_metrics, summed
from limpyd_jobs.query.queues import QueueState, queue_states
from limpyd_jobs.query.series import lately
from limpyd_jobs.records.metrics import Metrics
from limpyd_jobs.records.records import due_key
from limpyd_jobs.redis.database import JobsDatabase
from limpyd_jobs.schedules.model import Schedule
from limpyd_jobs.search.classes import connection_to, is_board, on, replies_to

# Of what time the runs are looked at, to know how long a job takes.
MEAN_OF = timedelta(hours=1)

# How many schedules that are due are looked at.
MAX_SCHEDULES = 1000


class QueueBacklog(NamedTuple):
    """What stands in the queues of one name, of all priorities."""

    is_paused: bool
    waiting: int
    due: int  # delayed jobs whose date has come, and schedules whose time has: a worker has to put them in the queue
    delayed: int  # the others
    running: int
    latency: float | None  # in seconds; 0 if no job waits, None if it is not known
    run_seconds: float | None  # how long a job ran on average, in the last hour; None if none ended
    load: float  # how many workers its jobs kept busy on average, in the last minutes

    @property
    def to_run(self) -> int:
        """How many jobs can be begun now."""
        return 0 if self.is_paused else self.waiting + self.due

    def taken_within(self, seconds: float) -> float:
        """Return how many workers the jobs that run take for that time: all of them, if it is not known how long."""
        return self.running * (1.0 if self.run_seconds is None else min(self.run_seconds / seconds, 1.0))

    def more_within(self, seconds: float) -> float:
        """Return how many workers begin in that time all that can be begun: one, if it is not known how long."""
        return min(self.to_run, 1) if self.run_seconds is None else self.to_run * self.run_seconds / seconds


class Backlog(NamedTuple):
    """What stands in some queues, and how many workers that needs."""

    queues: Mapping[str, QueueBacklog]
    wanted_workers: int

    def as_dict(self) -> dict[str, Any]:
        """Return it as JSON can hold it: the sums, without what paused queues hold back, and each queue."""
        served = [each for each in self.queues.values() if not each.is_paused]
        latencies = [each.latency for each in served]
        return {
            "wanted_workers": self.wanted_workers,
            **{name: sum(getattr(each, name) for each in served) for name in ("waiting", "due", "delayed")},
            "running": sum(each.running for each in self.queues.values()),
            "latency": None if None in latencies else max(filter(None, latencies), default=0),
            "queues": {name: each._asdict() for name, each in self.queues.items()},
        }


class Load(NamedTuple):
    """That of which a backlog is calculated."""

    names: Sequence[str]  # of the queues that are asked for
    states: Sequence[QueueState]
    due: Mapping[str, int]
    periods: Sequence[Period]


def backlog(
    names: str | Iterable[str] | None = None,
    within: timedelta = timedelta(minutes=1),
    database: JobsDatabase | None = None,
    queue_model: type[Queue] | None = None,
) -> Backlog:
    """Look at some queues, or at all, and estimate how many workers they need.

    If each job takes as long as those of its queue did on average in the last hour, they begin within a time all that
    can be begun now. To them come as many as were busy in the last five minutes, or are busy now with jobs that take
    longer than that time. A queue of which no job ended in that hour needs one, and one for each job that runs. There
    are no fewer than jobs run, and no more than jobs run or can be begun, unless more were busy.

    Parameters
    ----------
    names: str or iterable of str
        The names of the queues. One that does not exist counts as empty.
    within: timedelta
        In what time the jobs that can be begun now should have been begun.
    database, queue_model
        As of `queue_states`.

    Raises
    ------
    ValueError
        If the time is not more than 0.
    """
    seconds = within.total_seconds()
    if seconds <= 0:
        raise ValueError(f"within must be more than 0, not {within}")
    return backlog_of(read_load(names, database, queue_model), seconds)


def read_load(
    names: str | Iterable[str] | None = None,
    database: JobsDatabase | None = None,
    queue_model: type[Queue] | None = None,
) -> Load:
    """Read that of which a backlog is calculated. For the parameters see `backlog`."""
    stored = None if names is None else [*map(stored_queue_name, [names] if isinstance(names, str) else names)]
    states = [each for each in queue_states(stored, database, queue_model) if not is_board(each.model)]
    due = _due_by_name(states, stored, database)
    return Load(stored or (), states, due, read_metrics(MEAN_OF, database=database))


def backlog_of(load: Load, within: float) -> Backlog:
    """Calculate a backlog, of what should have been begun within some seconds."""
    of_last_hour, loads = summed(load.periods, lambda queue, path: queue), _loads(load.periods)
    found = {
        name: _of_queue(
            [each for each in load.states if each.name == name],
            load.due.get(name, 0),
            of_last_hour.get(name),
            loads.get(name, 0.0),
        )
        for name in sorted({*load.names, *load.due, *(each.name for each in load.states)})
    }
    return Backlog(found, _wanted([*found.values()], within))


def _of_queue(states: Sequence[QueueState], due: int, metrics: Metrics | None, load: float) -> QueueBacklog:
    waiting, delayed = sum(each.waiting for each in states), sum(each.delayed for each in states)
    latencies = [each.latency for each in states if each.waiting]
    return QueueBacklog(
        is_paused=any(each.is_paused for each in states),
        waiting=waiting,
        due=due,
        delayed=max(delayed - due, 0),
        running=sum(each.running for each in states),
        latency=None if None in latencies else max(filter(None, latencies), default=0.0),
        run_seconds=metrics.ran.mean if metrics else None,
        load=round(load, 3),
    )


def _wanted(queues: Sequence[QueueBacklog], within: float) -> int:
    running, to_run = sum(each.running for each in queues), sum(each.to_run for each in queues)
    load = sum(each.load for each in queues)
    if not (running or to_run):
        return floor(load)
    taken = sum(each.taken_within(within) for each in queues)
    more = sum(each.more_within(within) for each in queues)
    return max(running, min(ceil(max(load, taken) + more), max(running + to_run, ceil(load))))


def _loads(periods: Sequence[Period]) -> dict[str, float]:
    """Return how many workers the jobs of each queue kept busy in the last minutes. A long job counts for one."""
    last = lately(periods, utcnow())
    return {
        name: min(metrics.ran.microseconds / 1e6 / (60 * last.minutes), sum(metrics.ran.counts))
        for name, metrics in last.by_queue.items()
    }


def _due_by_name(
    states: Iterable[QueueState], names: Sequence[str] | None, database: JobsDatabase | None
) -> dict[str, int]:
    """Return how many delayed jobs, and schedules, of each queue are due. Without any worker, nothing moves them."""
    connection = connection_to(database)
    seconds, microseconds = connection.time()
    now = seconds + microseconds / 1e6
    late = [each for each in states if each.next_due is not None and each.next_due <= now]
    numbers = replies_to(connection, [("ZCOUNT", f"{each.model}:{each.pk}:delayed", "-inf", now) for each in late])
    found: dict[str, int] = {}
    for state, number in zip(late, numbers, strict=True):
        found[state.name] = found.get(state.name, 0) + (number or 0)
    schedules = on(Schedule, database)
    [pks] = replies_to(connection, [("ZRANGEBYSCORE", due_key(schedules), "-inf", now, "LIMIT", 0, MAX_SCHEDULES)])
    fields = [("HGET", f"{schedules._name}:{pk}:hash", "queue_name") for pk in pks or ()]
    for name in replies_to(connection, fields):
        if isinstance(name, str) and (names is None or name in names):
            found[name] = found.get(name, 0) + 1
    return found
