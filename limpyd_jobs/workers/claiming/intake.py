"""How a worker gets its next job: it waits, runs its maintenance tasks, and makes the objects."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import suppress
from time import monotonic
from typing import TYPE_CHECKING

from limpyd.exceptions import DoesNotExist
from redis.exceptions import RedisError

from limpyd_jobs.arguments import delay_argument
from limpyd_jobs.idents import QueueKey, read_pk
from limpyd_jobs.models import Job, JobClaim, Queue, job_classes
from limpyd_jobs.models.claims.job_claim import DEFAULT_DELAY, queue_of
from limpyd_jobs.records import records
from limpyd_jobs.redis.calls import is_of_wrong_type
from limpyd_jobs.texts import MESSAGE, kind_of, one_line, traceback_of
from limpyd_jobs.transitions import NOTHING, Delivery
from limpyd_jobs.workers.claiming.queue_selector import QueueSelector
from limpyd_jobs.workers.maintenance.runner import Task
from limpyd_jobs.workers.naming import ident_of
from limpyd_jobs.workers.redis_retry import nap
from limpyd_jobs.workers.running.timers import WakeupTimer

if TYPE_CHECKING:
    from limpyd_jobs.workers.engine import Engine

# The longest wait before the worker asks for a job, in seconds.
LONGEST_WAIT = 30.0

# The shortest wait, in seconds, even if something else has to be done sooner. Redis 6.2 takes less than a millisecond
# for a wait without end.
SHORTEST_WAIT = 0.05


class Intake:
    """Gets one job after the other.

    Attributes
    ----------
    handed: JobClaim
        A job that came out of its list, and that the application will get; None if there is no such job.
    has_waited: bool
        Whether the last job did not come at once.
    """

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self._worker = engine.worker
        self._fetcher = engine.fetcher
        self.handed: JobClaim | None = None
        self.has_waited = False
        self.queue_selector = QueueSelector()
        self.wakeup_timer = WakeupTimer(self.end_wait)
        is_strict = engine.settings.queue_strategy == "strict"
        self._order: Callable[[Sequence[str]], Sequence[str]] = _as_they_are if is_strict else self.queue_selector.order
        self._known_queues: str | None = None
        self._next_due: float | None = None
        self._looked_until: dict[Task, float] = {}

    @property
    def keys_in_turn(self) -> Sequence[str]:
        """The waiting lists in the order in which to serve them."""
        return self._order(self._worker.keys)

    @property
    def may_claim(self) -> bool:
        """Whether to claim another job now, because nothing else has to be done before."""
        engine = self._engine
        is_time = monotonic() < engine.maintenance.next_due
        is_free = not (engine.stopping.is_quiet or self._fetcher.leaving)
        return is_time and is_free and not self._worker.must_stop()

    # -- Getting a job

    def next(self) -> tuple[Queue, Job] | None:
        """Run the tasks that are due, then get a job; None if there is none, or something failed."""
        self.handed, self.has_waited = None, False
        self._engine.repeats.sum_up_if_due()
        try:
            self._run_maintenance()
            if self._engine.stopping.is_quiet:
                self._stay_quiet()
                return None
            found = self._worker.wait_for_job()
            if found is None and not self._engine.overrides.waits_as_we_do:
                self._engine.stopping.ends_burst()
        except RedisError as error:
            self._looked_until.clear()
            with suppress(RedisError):
                if is_of_wrong_type(error):
                    self._engine.stopping.ends_burst(is_stuck=True)
            self._engine.redis_retry.wait("Unable to get job", error)
        except Exception as error:
            self._tell_unable(error)
        else:
            self._engine.redis_retry.backoff.reset()
            if found:
                return found
        self.put_back_unseen()
        return None

    def _run_maintenance(self) -> None:
        engine = self._engine
        if self._may_be_new_queues():
            engine.maintenance.postpone(engine.queue_refresh)
        if engine.unresolved.may_be_fewer and engine.unresolved.retry_deferred(engine.queue_keys):
            engine.maintenance.postpone(engine.promoter)
        engine.maintenance.run_due()
        self._known_queues = self._fetcher.queues or self._known_queues
        self.handed = None

    def _stay_quiet(self) -> None:
        """Give back the jobs that are claimed already, and wait until something else has to be done."""
        self._engine.give_back()
        nap(max(self._engine.maintenance.next_due - monotonic(), SHORTEST_WAIT))

    def _tell_unable(self, error: Exception) -> None:
        """Log why there is no job: with a traceback, unless the entry of the list was wrong."""
        if error is self._engine.unresolved.last:
            return
        message = f"Unable to get job: {one_line(error, MESSAGE)}"
        if error is not self._fetcher.unfit:
            message += f"\n{traceback_of(error)}"
        self._engine.repeats.log(f"Unable to get job ({kind_of(error)})", message)

    def _may_be_new_queues(self) -> bool:
        """Whether Redis named another last queue than the one it named when the queues were looked for."""
        if self._known_queues is None:
            pks = [key.pk for key in self._engine.queue_keys]
            self._known_queues = str(max((read_pk(pk) or 0 for pk in pks), default=0))
        return self._fetcher.queues not in ("", self._known_queues)

    # -- Waiting for a job

    def wait(self) -> tuple[Queue, Job] | None:
        """Wait for a job; what `Worker.wait_for_job` does."""
        maintenance = self._engine.maintenance
        self._fetcher.hands_over = not self._engine.overrides.waits_as_we_do
        delivery = self._fetcher.next_at_hand() or self._fetcher.next(self.keys_in_turn, may_wait=True)
        until = monotonic() + min(self._worker.timeout or LONGEST_WAIT, LONGEST_WAIT)
        while delivery is None and self._may_wait():
            delivery = self._wait(max(min(until, maintenance.next_due) - monotonic(), SHORTEST_WAIT))
            if monotonic() >= min(until, maintenance.next_due):
                break
        if delivery is None:
            return None
        self.queue_selector.served(delivery.key)
        return self._unresolved_objects_of(delivery) if delivery.error else self.objects_of(delivery)

    def _may_wait(self) -> bool:
        """Look at what Redis said when it had no job; return False if something else has to be done before a wait."""
        engine, wakeups, self._next_due = self._engine, self._fetcher.next_wakeups, None
        if engine.stopping.begins_no_more or engine.stopping.is_over_time:
            return False
        if not self._worker.keys:
            return not engine.stopping.ends_burst()
        if self._may_be_new_queues():
            return False
        is_late = self._is_late(engine.promoter, wakeups.overdue, wakeups.due)
        is_late = self._is_late(engine.scheduler, wakeups.missed, wakeups.scheduled) or is_late
        return not is_late and not engine.stopping.ends_burst()

    def _is_late(self, task: Task, overdue: float | None, due: float | None) -> bool:
        """Let a task run when it has something to do; return whether that is overdue, and the task did not see it."""
        moment = self._fetcher.next_wakeups.moment
        if overdue is not None and overdue > self._looked_until.get(task, 0.0):
            self._looked_until[task] = moment
            self._engine.maintenance.postpone(task)
            return True
        if due is not None:
            at = monotonic() + due - moment
            self._engine.maintenance.hasten(task, at)
            self._next_due = at if self._next_due is None else min(at, self._next_due)
        return False

    def _wait(self, seconds: float) -> Delivery | None:
        """Wait for a job, or until there may be one, or until something else has to be done."""
        if not self._worker.keys:
            nap(seconds)
            self._engine.maintenance.postpone(self._engine.queue_refresh)
            return None
        self.has_waited = True
        self._engine.repeats.sum_up()
        self.wakeup_timer.set(self._next_due)
        delivery = self._fetcher.wait(self.keys_in_turn, seconds)
        self.wakeup_timer.set(None)
        if delivery and delivery.token and self._engine.stopping.begins_no_more:
            self._fetcher.prefetched.append(delivery)  # to be given back
            return None
        return delivery

    def end_wait(self) -> None:
        """End the wait for a job. Called by another thread, so with a connection that threads share."""
        with suppress(Exception):  # a closed connection raises any error; Redis ends it a tenth of a second later
            self._fetcher.end_wait(self._engine.connection)

    # -- Making the objects

    def objects_of(self, delivery: Delivery) -> tuple[Queue, Job]:
        """Let the application make the objects of the entry that came out of a list."""
        self.handed = JobClaim(delivery)
        return self._worker.get_queue(delivery.key), self._worker.get_job(delivery.ident)

    def _unresolved_objects_of(self, delivery: Delivery) -> tuple[Queue, Job] | None:
        """Get a job whose class cannot be resolved, and that is still in its list: the application may know it."""
        try:
            found = self.objects_of(delivery)
        except Exception as error:
            self._fetcher.defer(delivery, error)
            raise
        is_taken = self._worker.connection.lrem(delivery.key, 1, delivery.ident)
        return found if is_taken else None

    def get_queue(self, key: str) -> Queue:
        """Return the queue of a waiting list; what `Worker.get_queue` does."""
        queue_model = self._worker.queue_model
        delivery = self.handed.delivery if self.handed else NOTHING
        if delivery.key == key and delivery.queue_name:
            return queue_of(queue_model, delivery)
        queue_key = QueueKey.of_list(key)
        if queue_key == key or not queue_key.pk or queue_key != f"{queue_model._name}:{queue_key.pk}":
            raise DoesNotExist(f"Unable to get the queue from the key {key}")
        return queue_model.get(queue_key.pk)

    def get_job(self, ident: str) -> Job:
        """Return the job of an ident; what `Worker.get_job` does."""
        delivery = self.handed.delivery if self.handed else NOTHING
        if delivery.ident == ident:
            self._fetcher.check(delivery)
            return records.attached(job_classes.resolve(delivery.path), delivery.pk)
        return Job.get_from_ident(ident)

    def hand_over(self, job: Job, queue: Queue) -> JobClaim:
        """Return the claim on the job that the application chose to run. It may be another job than the given one."""
        if self.handed and self.handed.delivery.ident != ident_of(job):
            self.put_back_unseen()
        claim, self.handed = self.handed or JobClaim(), None
        claim.job, claim.queue = job, queue
        return claim

    # -- Jobs that the application does not want

    def put_back_unseen(self) -> None:
        """Give back, for later, a claimed job of which `get_queue` or `get_job` made no object."""
        claim, self.handed = self.handed, None
        if claim is None or not claim.token:
            return
        if claim.is_in_hand:
            self.leave(claim.delivery)
            return
        try:
            claim.release(delay_argument(delayed_for=DEFAULT_DELAY))
        except Exception as error:
            self.tell_still_claimed(claim.delivery, error)

    def leave(self, delivery: Delivery) -> None:
        """Leave a job that the application does not want where the application put it; else put it back for later."""
        try:
            job = records.attached(job_classes.resolve(delivery.path), delivery.pk)
            claim = JobClaim(delivery, job, queue_of(self._worker.queue_model, delivery))
            if not claim.abandon(delay_argument(delayed_for=DEFAULT_DELAY), self._worker.keys):
                claim.delay(claim.stored_delay())
        except Exception as error:
            self.tell_still_claimed(delivery, error)

    def tell_still_claimed(self, delivery: Delivery, error: Exception) -> None:
        """Log that the claim on a job could not be ended."""
        self._worker.log(f"[{one_line(delivery.ident)}] is still claimed: {one_line(error, MESSAGE)}", "error")


def _as_they_are(keys: Sequence[str]) -> Sequence[str]:
    return keys
