"""Taking jobs of other shards while a worker has none of its own."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from math import inf
from time import monotonic

from redis.exceptions import RedisError

from limpyd_jobs.classes.binding import bound_like
from limpyd_jobs.models import Error, JobClaim, Queue
from limpyd_jobs.models.claims.job_claim import job_class_of, queue_of
from limpyd_jobs.records import records
from limpyd_jobs.shards.placing import check_answers
from limpyd_jobs.texts import MESSAGE, one_line
from limpyd_jobs.transitions import Delivery, Room
from limpyd_jobs.workers.claiming.claimer import Claimer
from limpyd_jobs.workers.context import Context, Face
from limpyd_jobs.workers.overrides import Overrides
from limpyd_jobs.workers.run import Runs

# In how many seconds an idle worker asks each of the other shards once; somewhat more, as it does so between two waits.
ROUND = 9.0

# After how many seconds it looks for new queues there; and asks a shard again whose Redis cannot be used.
REFRESH, RETRY = 30.0, 60.0


class Visit:
    """What a worker needs in one other shard."""

    def __init__(
        self, queue_model: type[Queue], error_model: type[Error], lease: float, room: Callable[[], Room] | None
    ) -> None:
        self._queue_model = queue_model
        self.claimer = Claimer(queue_model, lease, error_model=bound_like(error_model, queue_model), room=room)
        self._keys: Sequence[str] = ()
        self._last_queue = ""
        self._looked_at = -inf

    def next(self, names: Sequence[str]) -> Delivery | None:
        """Claim the first job of the queues of these names; raise an exception about an entry that cannot be run."""
        claimer = self.claimer
        if not self._keys or monotonic() >= self._looked_at + REFRESH:
            self._keys, self._looked_at = self._queue_model.get_waiting_keys(names), monotonic()
        delivery = claimer.next(self._keys)
        if claimer.last_queue != self._last_queue:  # there is a new one
            self._last_queue, self._looked_at = claimer.last_queue, -inf
        if delivery is None:
            return None
        delivery.database = self._queue_model.database
        if delivery.error:
            claimer.defer(delivery, delivery.error)
        claimer.check(delivery)
        return delivery

    def release(self, delivery: Delivery) -> None:
        """Put a job back that is not to be run now."""
        job = records.attached(job_class_of(delivery), delivery.pk)
        JobClaim(delivery, job, queue_of(self._queue_model, delivery)).release()


class Visits:
    """Asks one other shard after the other for a job while the worker is idle; the same again if it had one.

    The worker's own shard comes first: it is asked between two such jobs. Each of them is recorded by itself.
    """

    def __init__(
        self, worker: Face, context: Context, runs: Runs, room: Callable[[], Room] | None, overrides: Overrides
    ) -> None:
        self._worker, self._context, self._runs, self._room = worker, context, runs, room
        self._overrides = overrides
        self._shards, home = context.settings.shards, context.settings.home
        # Those that it asks, the next one first: workers of each shard begin with another one.
        self._numbers = deque([*range(home + 1, len(self._shards)), *range(home)])
        self._visits: dict[int, Visit] = {}
        self._interval = ROUND / len(self._numbers)
        self._due = monotonic() + self._interval  # when to ask next

    @property
    def is_away(self) -> bool:
        """Whether a job of another shard runs: then nothing is claimed in the step that ends it."""
        return any(each.delivery.database for each in self._runs.now_running())

    @property
    def claimers(self) -> list[Claimer]:
        """Those of the shards whose jobs run."""
        databases = {each.delivery.database for each in self._runs.now_running()}
        return [each.claimer for each in self._visits.values() if each.claimer.queue_model.database in databases]

    def next(self) -> Delivery | None:
        """Return a job of another shard, if it is time to ask one, and it has one."""
        if monotonic() < self._due or self._context.begins_no_more or not self._overrides.may_visit:
            return None
        number = self._numbers[0]
        delivery = self._ask(number)
        if delivery is None:
            self._numbers.rotate(-1)
            self._due = monotonic() + self._interval
        elif self._context.begins_no_more and delivery.token:
            self._visits[number].release(delivery)
            return None
        return delivery

    def _ask(self, number: int) -> Delivery | None:
        database, unusable = self._shards.databases[number], self._context.state.unusable
        if monotonic() < unusable.get(database, 0.0):
            return None
        try:
            if database in unusable:
                check_answers(database)
                del unusable[database]
            visit = self._visit(number)
            return visit.next(self._worker.queues)
        except RedisError as error:
            unusable[database] = monotonic() + RETRY
            self._log(number, f"cannot be used, and is asked again in {RETRY:.0f} s: {one_line(error, MESSAGE)}")
        except Exception as error:  # of an entry that is not a job, for example
            self._log(number, one_line(error, MESSAGE))
        return None

    def _visit(self, number: int) -> Visit:
        if number not in self._visits:
            queue_model = self._shards.on(self._worker.queue_model, number)
            lease = self._context.settings.lease
            self._visits[number] = Visit(queue_model, self._worker.error_model, lease, self._room)
        return self._visits[number]

    def _log(self, number: int, text: str) -> None:
        self._context.log_repeated(f"Shard {number}", f"Shard {number} ({self._shards.name_of(number)}): {text}")
