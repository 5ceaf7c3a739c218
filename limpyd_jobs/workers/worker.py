"""The worker: its run, the loop that fetches jobs and runs them, and its rounds."""

from __future__ import annotations

import logging
import random
import signal
import traceback
from collections.abc import Callable, Iterable
from contextlib import nullcontext, suppress
from datetime import datetime, timedelta
from functools import partial
from time import monotonic
from types import FrameType
from typing import Any, TypeVar

from limpyd.exceptions import DoesNotExist
from redis.exceptions import RedisError, ResponseError

from limpyd_jobs.exceptions import GracePeriodOver, LimpydJobsException, WorkerLost
from limpyd_jobs.heartbeat import Heartbeat
from limpyd_jobs.models import Job, Queue, attached_queue, job_classes, promote_some
from limpyd_jobs.schedules.model import Schedule
from limpyd_jobs.statuses import STATUSES
from limpyd_jobs.store import records
from limpyd_jobs.store.database import database_name, default_settings
from limpyd_jobs.store.lazy_fields import pk_of
from limpyd_jobs.transitions import Delivery
from limpyd_jobs.utils import MESSAGE, described, get_delta, one_line, overrides, utcnow
from limpyd_jobs.workers.backoff import Backoff, is_connection_cut, is_denied, is_transient
from limpyd_jobs.workers.claim import Claim
from limpyd_jobs.workers.events import JobEvents
from limpyd_jobs.workers.maintenance.pruner import Pruner
from limpyd_jobs.workers.maintenance.reconciler import PATIENCE, Reconciler
from limpyd_jobs.workers.maintenance.rescuer import Rescuer
from limpyd_jobs.workers.maintenance.scheduler import Scheduler
from limpyd_jobs.workers.parameters import LOGGER_NAME
from limpyd_jobs.workers.queue_selector import Place, QueueSelector
from limpyd_jobs.workers.report import report_of
from limpyd_jobs.workers.running import Running
from limpyd_jobs.workers.signals import DUMP, HANG_UP, INTERRUPT, QUIET, TERMINATE, Handlers, has_terminal
from limpyd_jobs.workers.wakeup_timer import WakeupTimer

T = TypeVar("T")

logger = logging.getLogger(LOGGER_NAME)

# How often a worker that begins asks Redis, as long as its connections are cut.
START_TRIES = 4

# The longest a worker that cannot ask Redis waits without looking whether it has to stop, in seconds.
WAIT_SLICE = 1.0

# The longest wait for a job without asking for one, in seconds.
LONGEST_WAIT = 30.0

# The shortest wait, in seconds, however often something else is to be done. Redis 6.2 takes less than a millisecond
# for a wait without end.
SHORTEST_WAIT = 0.05

# For how many seconds one round moves delayed jobs that are due, at the most. Then jobs are run for as long.
LONGEST_PROMOTION = 0.1

# What a worker does beside its jobs: the method, and the attribute that says how many seconds to let pass in between.
ROUNDS = {
    "update_keys": "fetch_priorities_delay",
    "requeue_delayed_jobs": "fetch_delayed_delay",
    "_rescue_jobs": "_heartbeat_interval",
    "_reconcile_jobs": "_heartbeat_interval",
    "_prune_jobs": "_prune_interval",
    "_enqueue_due_schedules": "fetch_delayed_delay",
}


class Worker(Running):
    """Runs the jobs of some queues, one after the other.

    Every parameter is also an attribute that a subclass may set, and every method without an underscore may be
    overridden. For the parameters see `Parameters`.

    Attributes
    ----------
    last_update_keys, last_requeue_delayed: datetime
        When `update_keys` and `requeue_delayed_jobs` were called last, naive UTC; None before.
    """

    last_update_keys: datetime | None = None
    last_requeue_delayed: datetime | None = None

    def __init__(self, queues: Any = None, **kwargs: Any) -> None:
        self._set_parameters(kwargs if queues is None else {"queues": queues, **kwargs})
        self._check_parameters()
        if not self.callback:
            self.callback = self.execute
        self.set_logger()

        self.keys: list[str] = []
        self.status: str | None = None
        self.num_loops = 0
        self.end_forced = False
        self.end_signal_caught = False
        self.start_date: datetime | None = None
        self.end_date: datetime | None = None
        self.wanted_end_date: datetime | None = None

        self._why_to_end = ""
        self._id = f"{random.randrange(10**6):06d}"
        self._update_status_callbacks: list[Callable[[Worker], None]] = []
        self._ready_callbacks: list[Callable[[], None]] = []
        self._signal_handlers = Handlers()
        self._interrupts = 0
        self._is_quiet = False
        self._is_done = False
        super().__init__()
        self._fetcher.listen(self.queues)
        self._queue_selector = QueueSelector()
        self._wakeup_timer = WakeupTimer(self._end_wait)
        self._known_queues: str | None = None
        self._next_due: float | None = None
        self._has_waited = False
        self._looked_until = dict.fromkeys(ROUNDS, 0.0)
        self._rescuer = Rescuer(self._fetcher, self._settings.max_rescues)
        self._reconciler = Reconciler(self.queue_model, self._settings.lease)
        keep = self._settings.keep_success, self._settings.keep_errors
        self._pruner = Pruner(self.queue_model, self.error_model, *keep)
        self._scheduler = Scheduler(self.queue_model, self.fetch_delayed_delay)
        if self._scheduler.is_here:
            self._fetcher.schedules = records.due_key(Schedule)
        self._backoff = Backoff()
        self._round_is_due = dict.fromkeys(ROUNDS, 0.0)

        if self.terminate_gracefuly:
            self.handle_end_signal()

    # -- Signals

    def handle_end_signal(self) -> None:
        """Let SIGINT and SIGTERM call `catch_end_signal`. Python allows it in the main thread only."""
        self._signal_handlers.take(self.catch_end_signal, INTERRUPT, TERMINATE)

    def _handle_other_signals(self) -> None:
        """Let no other signal that people send end the running job in its midst, unless the application handles it."""
        if self.terminate_gracefuly:
            self._signal_handlers.take_unhandled(self.catch_end_signal, HANG_UP)
        self._signal_handlers.take_unhandled(self._log_report, DUMP)
        self._signal_handlers.take_unhandled(self._be_quiet, QUIET)

    def stop_handling_end_signal(self) -> None:
        """Give the signals back to whoever handled them before. Python allows it in the main thread only."""
        self._signal_handlers.give_back()

    def catch_end_signal(self, signum: int, frame: FrameType | None) -> None:
        """Ask the worker to end once the running job is finished.

        A second signal changes nothing, but for a second SIGINT from a terminal: then the running job is released.
        """
        is_from_terminal = signum == INTERRUPT and has_terminal()
        self._interrupts += is_from_terminal
        if not self.end_signal_caught:
            self.end_signal_caught = self.end_forced = True
            self._why_to_end = f"{signal.Signals(signum).name} caught"
            hint = ", which a second one releases" if is_from_terminal else ""
            self.log(f"{self._why_to_end}: ending, after the running job if there is one{hint}")
            if self._settings.grace_period is not None:
                self._job_timer.set("grace period", self._settings.grace_period, GracePeriodOver())
            self._wakeup_timer.set(monotonic())
            self._tell_status()
        elif is_from_terminal and self._interrupts == 2:
            self.log("SIGINT caught again: ending, without the running job if there is one", "warning")
            self._job_timer.set("grace period", 0, GracePeriodOver())

    def _be_quiet(self, signum: int, frame: FrameType | None) -> None:
        """Begin no other job, and live on until the end is asked for."""
        if not self._is_quiet:
            self._is_quiet = True
            self.log(f"{signal.Signals(signum).name} caught: quiet, no other job is begun")
            self._wakeup_timer.set(monotonic())
            self._tell_status()

    def _log_report(self, signum: int, frame: FrameType | None) -> None:
        """Log what the worker does, and where each of its threads is."""
        self.log(f"{signal.Signals(signum).name} caught: {report_of(self, frame)}", "warning")

    # -- What the worker is

    @property
    def id(self) -> str:
        """Six digits that tell the log lines of this worker from those of others."""
        return self._id

    @property
    def elapsed(self) -> timedelta | None:
        """For how long it has been, or was, running; None before."""
        return (self.end_date or utcnow()) - self.start_date if self.start_date else None

    def set_logger(self) -> None:
        """Prepare the logger of the worker."""
        self.logger = logging.getLogger(self.logger_name)
        self.logger.setLevel(self.logger_level)

    def log(self, message: str, level: str = "info") -> None:
        """Log a message, after the id of the worker."""
        getattr(self.logger, level)(f"[{self.id}] {message}")

    def set_status(self, status: str) -> None:
        """Set the status of the worker."""
        self.status = status
        self._tell_status()

    def _follow_status(self, status: str) -> None:
        """Set the status, but not between the jobs of a batch: for a moment nobody sees, it is as costly as a job."""
        is_in_batch = self._is_prefetching and self.status == "running"
        if not (is_in_batch and (status == "running" or self._fetcher.prefetched)):
            self.set_status(status)

    @property
    def _is_between_jobs(self) -> bool:
        """Whether its status is one for a moment that nobody sees, as the next job is at hand already."""
        return self.status == "waiting" and bool(self._fetcher.prefetched)

    @property
    def _has_its_first_job(self) -> bool:
        """Whether it has the job that it waited for: that is to begin at once."""
        return self.status == "running" and self._has_waited

    @property
    def _begins_no_more(self) -> bool:
        """Whether it was asked to end, or to be quiet."""
        return self.end_forced or self._is_quiet

    def _tell_status(self) -> None:
        for callback in self._update_status_callbacks:
            callback(self)

    def _add_update_status_callback(self, callback: Callable[[Worker], None]) -> None:
        """Call a function with the worker after each change of its status, and when it is asked to end."""
        self._update_status_callbacks.append(callback)

    def _call_when_ready(self, callback: Callable[[], None]) -> None:
        """Call a function once, when the worker has found out in Redis which queues there are."""
        self._ready_callbacks.append(callback)

    def count_waiting_jobs(self) -> int:
        """Return how many jobs wait in its queues."""
        return self.queue_model.count_waiting_jobs(self.queues)

    def count_delayed_jobs(self) -> int:
        """Return how many jobs are delayed in its queues."""
        return self.queue_model.count_delayed_jobs(self.queues)

    # -- The run

    def run(self) -> None:
        """Run jobs until the worker has to stop.

        Raises
        ------
        LimpydJobsException
            If it was called before.
        redis.exceptions.RedisError
            If Redis cannot be reached at the start.
        """
        if self.status is not None:
            raise LimpydJobsException("This worker has run already: create another one")
        try:
            self._handle_other_signals()
            self._run()
        finally:
            self._fetcher.connection.close()
            self.stop_handling_end_signal()

    def _run(self) -> None:
        self.set_status("starting")
        self._shared_connection = self.connection
        self._is_prefetching = (
            self._settings.prefetch > 1 and self._fetches_as_we_do() and not overrides(self, JobEvents, "job_success")
        )
        self.start_date = utcnow()
        if self.max_duration:
            self.wanted_end_date = self.start_date + get_delta(self.max_duration)

        self._warn_of_names()
        self._warn_of_eviction()
        self._find_queues()
        if not self.must_stop():
            self._promote_at_the_start()
            self.run_started()
            heartbeat = Heartbeat(self._heartbeat_interval, partial(self._beat, self.connection))
            with heartbeat, self._wakeup_timer, self._ack_buffer if self._is_prefetching else nullcontext():
                self._main_loop()

        self.set_status("terminated")
        self.end_date = utcnow()
        self.run_ended()

    def _warn_of_names(self) -> None:
        """Say so if the class has the names of parameters for something else."""
        for name in self._names_of_others:
            self.log(
                f"{name} is no parameter of {type(self).__name__}, but something else: its default is used", "warning"
            )

    def _ask_first(self, ask: Callable[[], T]) -> T:
        """Ask Redis something at the start: again, a few times, if there is a connection that is cut."""
        for _ in range(START_TRIES - 1):
            try:
                return ask()
            except RedisError as error:
                if self.end_forced or not is_connection_cut(error):
                    raise
                self._wait_for_redis("Unable to begin", error)
        return ask()

    def _warn_of_eviction(self) -> None:
        """Say so if Redis may delete jobs to make room."""
        with suppress(ResponseError):  # not everybody may ask
            memory: Any = self._ask_first(partial(self.connection.info, "memory"))
            policy = memory.get("maxmemory_policy", "noeviction")
            if memory.get("maxmemory") and policy != "noeviction":
                self.log(
                    f"Redis may DELETE JOBS when its memory is full: set maxmemory-policy to noeviction, not {policy}",
                    "critical",
                )

    def _find_queues(self) -> None:
        """Wait until Redis is ready, and there is a queue. Once it answered, Redis may fail."""
        warned = False
        while not self.must_stop():
            try:
                self._make_round("update_keys")
                if not self.keys and monotonic() >= self._round_is_due["_enqueue_due_schedules"]:
                    self._make_round("_enqueue_due_schedules")
                if not self.keys and self._settings.burst:
                    self._make_round("update_keys")  # a schedule that was due may have made a queue
                    self._ends_burst()
            except RedisError as error:
                if not warned and not is_transient(error):
                    raise
                self._wait_for_redis("Unable to find the queues", error)
                continue
            while self._ready_callbacks:
                self._ready_callbacks.pop()()
            if not (self.keys or warned) and (self._is_done or not self.end_forced):
                warned = True
                self._tell_of_no_queues()
            if self.keys or self.end_forced:
                return
            self._sleep(WAIT_SLICE)

    def _tell_of_no_queues(self) -> None:
        """Say that there are no queues of these names; it may be the wrong database, or a slip in a name."""
        others: list[str] = []
        with suppress(RedisError):
            others = records.some_queue_names(self.queue_model)
        database = database_name(self.queue_model.database.connection_settings or default_settings())
        names = one_line(", ".join(others)) if others else "none"
        # A burst may well come before the first job, so there it is no warning
        what, level = ("there is none", "info") if self._is_done else ("waiting for one", "warning")
        self.log(
            f"No queues yet ({what} named {one_line(', '.join(self.queues))} in {database}, where there are: "
            f"{names}; are --queues and --database right?)",
            level,
        )

    def _promote_at_the_start(self) -> None:
        try:
            self._make_round("requeue_delayed_jobs")
        except RedisError as error:
            self._redis_failed("Unable to look for delayed jobs", error)
            self._round_is_due["requeue_delayed_jobs"] = 0.0
        except Exception as error:
            self._round_failed("requeue_delayed_jobs", error)

    def _main_loop(self) -> None:
        try:
            while not self.must_stop():
                self._follow_status("waiting")
                fetched = self._fetch()
                if fetched:
                    self.num_loops += 1
                    self._follow_status("running")
                    self._run_job(*fetched)
        finally:
            self._give_back()

    def _give_back(self) -> None:
        """Give the next jobs back, if some are claimed already, and no longer count as one that waits."""
        if self._ack_buffer:
            self._record_successes()
        try:
            for failure in self._fetcher.give_back():
                self._repeats.say(
                    "Unable to give a job back", f"Unable to give a job back: {one_line(failure, MESSAGE)}"
                )
            self._fetcher.unregister()
        except Exception as error:
            self.log(f"Unable to give a job back: {one_line(error, MESSAGE)}", "error")
        self._repeats.sum_up()

    def must_stop(self) -> bool:
        """Return whether the worker has to end: it was asked to, or a limit is reached."""
        is_asked = self.end_forced or (self.end_signal_caught and self.terminate_gracefuly)
        return bool(is_asked) or self.num_loops >= self.max_loops or self._is_over_time()

    def _is_over_time(self) -> bool:
        return self.wanted_end_date is not None and utcnow() >= self.wanted_end_date

    def run_started(self) -> None:
        """Hook: the run begins."""
        self.log("Run started.")

    def run_ended(self) -> None:
        """Hook: the run is over."""
        self.log(f"Run terminated, with {self.num_loops} loops (duration={self.elapsed}): {self._reason()}")

    def _reason(self) -> str:
        """Why it ended, in words."""
        if self._why_to_end:
            return self._why_to_end
        if self.end_signal_caught:
            return "a signal was caught"
        if self.end_forced:
            return "end_forced was set"
        if self.num_loops >= self.max_loops:
            return f"max_loops={self.max_loops} is reached"
        if self._is_over_time():
            return "max_duration is over" if self.max_duration else "wanted_end_date has passed"
        return "must_stop() is true"

    def update_keys(self) -> None:
        """Find the waiting lists of its queues, and keep their keys, highest priority first, in `keys`."""
        self.last_update_keys = utcnow()
        if self._settings.queue_strategy == "strict":
            self.keys = self.queue_model.get_waiting_keys(self.queues)
            return
        queues = self.queue_model.get_all_by_priority(self.queues)
        self.keys = [queue.waiting.key for queue in queues]
        self._queue_selector.update(
            {
                queue.waiting.key: Place(queue._cached_priority, self._weights.get(queue._cached_name, 1))
                for queue in queues
            }
        )

    def _keys_in_turn(self) -> list[str]:
        return self.keys if self._settings.queue_strategy == "strict" else self._queue_selector.order(self.keys)

    def requeue_delayed_jobs(self) -> None:
        """Move the delayed jobs of its queues that are due to their waiting lists."""
        self.last_requeue_delayed = utcnow()
        for ident, reason in self._wake_delayed_jobs():
            failed = "delayed job could not be put back in its waiting list"
            self._repeats.say(failed, f"[{one_line(ident)}] {failed}: {one_line(reason, MESSAGE)}")

    def _wake_delayed_jobs(self) -> Iterable[tuple[str, str]]:
        if overrides(self.queue_model, Queue, "requeue_delayed_jobs"):
            return [
                failure
                for queue in self.queue_model.get_all_by_priority(self.queues)
                for failure in queue.requeue_delayed_jobs() or ()
            ]
        failures: list[tuple[str, str]] = []
        more, until = bool(self.keys), monotonic() + LONGEST_PROMOTION
        while more:
            more, found = promote_some(self.queue_model, self._queue_keys(), self._unresolved.defer)
            failures += found
            if more and self.status is not None and monotonic() >= until:
                self._round_is_due["requeue_delayed_jobs"] = monotonic() + LONGEST_PROMOTION
                break
        return failures

    @property
    def _heartbeat_interval(self) -> float:
        return self._settings.lease / 4

    def _rescue_jobs(self) -> None:
        """Put the jobs of its queues whose worker died back in their waiting lists."""
        for fetched in self._rescuer.rescue(self._queue_keys()):
            self._claim = Claim(fetched)
            queue, job = self.get_queue(fetched.key), self.get_job(fetched.ident)
            self._remember(job, queue)
            if fetched.token:
                lost = WorkerLost(f"Its workers died, {self._settings.max_rescues + 1} times in a row")
                self._guard(job, queue, partial(self.job_error, job, queue, lost))
            else:
                self._guard(job, queue, partial(self._hook, "job_rescued", job, queue))
        for ident, reason in self._rescuer.take_broken():
            quarantined = "put in the quarantine of its queue"
            self._repeats.say(quarantined, f"[{one_line(ident)}] is {quarantined}: {one_line(reason, MESSAGE)}")

    def _postpone_rescue(self) -> None:
        """Let the others renew their leases first: while Redis was away, nobody could."""
        self._round_is_due["_rescue_jobs"] = monotonic() + self._settings.lease / 2

    def _reconcile_jobs(self) -> None:
        """Put live jobs that stand nowhere back in their queues, if a worker may have lost some."""
        if self._rescuer.take_turn_to_reconcile():
            self._reconciler.begin()
        repaired, unplaceable = self._reconciler.reconcile()
        for job in repaired:
            name, found = one_line(job.ident), f"was {STATUSES.by_value(job.status)}, but in no queue"
            self._repeats.say(found, f"[{name}] {found}: put in {one_line(job.queue_key)}", "warning")
        for ident in unplaceable:
            lost = "is in no queue, and nothing says in which it belongs: use enqueue_or_delay"
            self._repeats.say(lost, f"[{one_line(ident)}] {lost}")
        if self._reconciler.is_busy:
            self._round_is_due["_reconcile_jobs"] = monotonic() + PATIENCE

    @property
    def _prune_interval(self) -> float:
        return self._pruner.interval

    def _prune_jobs(self) -> None:
        """Delete finished jobs of its queues beyond what is to be kept."""
        number, failures = self._pruner.prune(self._queue_keys())
        if number:
            self.log(f"{number} finished jobs deleted")
        for ident, reason in list(failures.items())[:1]:
            failed = f"{len(failures)} finished jobs could not be deleted"
            self.log(f"{failed}, as {one_line(ident)}: {one_line(reason, MESSAGE)}", "error")
        self._round_is_due["_prune_jobs"] = monotonic() + self._prune_interval

    def _enqueue_due_schedules(self) -> None:
        """Add the jobs of the schedules that are due, of whatever queues. First make those that job classes declare."""
        for name, outcome, error in self._scheduler.declare():
            if error:
                self.log(f"[{one_line(name)}] schedule cannot be declared: {one_line(error, MESSAGE)}", "error")
            elif outcome != "same":
                self.log(f"[{one_line(name)}] schedule {outcome}, as declared")
        for schedule, name, time, outcome, job, error in self._scheduler.enqueue_due():
            if error or time is None:
                failed = "schedule cannot be enqueued"
                self._repeats.say(failed, f"[{one_line(name)}] {failed}: {one_line(error, MESSAGE)}")
            elif job is None:
                self._guard_schedule(name, partial(self._hook, "schedule_missed", schedule, time))
            elif outcome == "existing":
                self.log(f"[{one_line(name)}] due at {time}, but job {pk_of(job)} of that identifier is queued already")
            else:
                self._guard_schedule(name, partial(self._hook, "job_scheduled", job, schedule, time))
        self._round_is_due["_enqueue_due_schedules"] = monotonic() + self._scheduler.interval

    def _guard_schedule(self, name: str, hook: Callable[[], None]) -> None:
        """Call a hook, whose failure stops no other schedule."""
        try:
            hook()
        except RedisError:
            raise
        except Exception as error:
            self.log(f"[{one_line(name)}] unexpected error: {described(error)}\n{traceback.format_exc()}", "error")

    def _queue_keys(self) -> list[str]:
        return [key.removesuffix(":waiting") for key in self.keys]

    def _next_round(self) -> float:
        return min(self._round_is_due.values())

    def _make_rounds(self) -> None:
        if monotonic() < self._next_round():
            return
        for name in ROUNDS:
            if monotonic() >= self._round_is_due[name]:
                try:
                    self._make_round(name)
                except Exception as error:
                    if is_transient(error):
                        raise
                    if is_denied(error):
                        self._round_denied(name, error)
                        continue
                    self._round_failed(name, error)

    def _round_failed(self, name: str, error: Exception) -> None:
        self.log(f"{name.lstrip('_')} failed: {described(error)}\n{traceback.format_exc()}", "error")

    def _round_denied(self, name: str, error: Exception) -> None:
        if self._may_log_redis_error:
            self.log(f"{name.lstrip('_')} failed: {one_line(error, MESSAGE)}", "error")

    def _make_round(self, name: str) -> None:
        self._round_is_due[name] = monotonic() + getattr(self, ROUNDS[name])
        getattr(self, name)()

    # -- Fetching

    def _fetch(self) -> tuple[Queue, Job] | None:
        claim = self._claim = Claim()
        self._has_waited = False
        self._repeats.sum_up_if_due()
        try:
            if self._may_be_new_queues():
                self._round_is_due["update_keys"] = monotonic()
            if self._unresolved.may_be_fewer and self._unresolved.retry_deferred(self._queue_keys()):
                self._round_is_due["requeue_delayed_jobs"] = monotonic()
            self._make_rounds()
            self._known_queues = self._fetcher.queues or self._known_queues
            if self._claim is not claim:
                self._claim = Claim()
            if self._is_quiet:
                self._stay_quiet()
                return None
            found = self.wait_for_job()
            if found is None and overrides(self, Worker, "wait_for_job"):
                self._ends_burst()
        except RedisError as error:
            self._looked_until = dict.fromkeys(ROUNDS, 0.0)
            self._wait_for_redis("Unable to get job", error)
        except Exception as error:
            self._unable_to_get_job(error)
        else:
            self._backoff.reset()
            if found:
                return found
        self._put_back_unseen()
        return None

    def _unable_to_get_job(self, error: Exception) -> None:
        """Say so: with a traceback, unless it is what stood in the list that was wrong."""
        if error is self._unresolved.last:
            return
        message = f"Unable to get job: {one_line(error, MESSAGE)}"
        if error is not self._fetcher.unfit:
            message += f"\n{traceback.format_exc()}"
        self._repeats.say(f"Unable to get job ({type(error).__name__})", message)

    def _may_be_new_queues(self) -> bool:
        """Whether Redis named another last queue than the one it named when the queues were looked for."""
        if self._known_queues is None:
            pks = [key.rpartition(":")[2] for key in self._queue_keys()]
            self._known_queues = str(max((int(pk) for pk in pks if pk.isdecimal()), default=0))
        return self._fetcher.queues not in ("", self._known_queues)

    def _wait_for_redis(self, what: str, error: RedisError) -> None:
        """Say what failed, and wait before the next try, but no longer than until the worker has to end."""
        self._redis_failed(what, error)
        until = monotonic() + self._backoff.next()
        while monotonic() < until and not (self.end_forced or self._is_over_time()):
            self._sleep(min(WAIT_SLICE, max(until - monotonic(), 0)))

    def wait_for_job(self) -> tuple[Queue, Job] | None:
        """Wait for a job to run.

        Returns
        -------
        tuple of Queue and Job
            None if there was none for `timeout` seconds, or if something else has to be done first.
        """
        self._fetcher.hands_over = overrides(self, Worker, "wait_for_job")
        fetched = self._fetcher.next_at_hand() or self._fetcher.next(self._keys_in_turn(), may_wait=True)
        until = monotonic() + min(self.timeout or LONGEST_WAIT, LONGEST_WAIT)
        while fetched is None and self._may_wait():
            wait = max(min(until, self._next_round()) - monotonic(), SHORTEST_WAIT)
            fetched = self._wait(wait)
            if monotonic() >= min(until, self._next_round()):
                break
        if fetched is None:
            return None
        self._queue_selector.served(fetched.key)
        self._claim = Claim(fetched)
        if fetched.error:
            return self._get_unresolved(fetched)
        return self.get_queue(fetched.key), self.get_job(fetched.ident)

    def _get_unresolved(self, fetched: Delivery) -> tuple[Queue, Job] | None:
        """Get a job of a class that cannot be resolved, and is in its list still: the application may know better."""
        try:
            found = self.get_queue(fetched.key), self.get_job(fetched.ident)
        except Exception as error:
            self._fetcher.defer(fetched, error)
            raise
        is_taken = self.connection.lrem(fetched.key, 1, fetched.ident)
        return found if is_taken else None

    def _stay_quiet(self) -> None:
        """Give back what is claimed already, and wait until something else is to be done."""
        self._give_back()
        self._sleep(min(WAIT_SLICE, max(self._next_round() - monotonic(), SHORTEST_WAIT)))

    def _may_wait(self) -> bool:
        """Look at what Redis said as it had no job; return False if something else is to be done before a wait."""
        next_wakeups, self._next_due = self._fetcher.next_wakeups, None
        if self._begins_no_more or self._is_over_time():
            return False
        if not self.keys:
            return not self._ends_burst()
        if self._may_be_new_queues():
            return False
        is_late = self._is_late("requeue_delayed_jobs", next_wakeups.overdue, next_wakeups.due)
        is_late = self._is_late("_enqueue_due_schedules", next_wakeups.missed, next_wakeups.scheduled) or is_late
        return not is_late and not self._ends_burst()

    def _ends_burst(self) -> bool:
        """Ask for the end if that is what `burst` says, now that there is no job; return whether it does."""
        if not self._settings.burst:
            return False
        served, aside = set(self._queue_keys()), ""
        for pk, _, _, waiting, delayed, is_paused in records.list_queues(self.queue_model, self.queues):
            is_left = waiting or (delayed and self._settings.burst == "delayed")
            if is_left and not is_paused and f"{self.queue_model._name}:{pk}" in served:
                return False
            if is_left and is_paused:
                aside = ", paused queues aside"
        self._is_done = self.end_forced = True
        what = "no job waits, or is delayed" if self._settings.burst == "delayed" else "no job waits"
        self._why_to_end = what + aside
        self._tell_status()
        return True

    def _is_late(self, name: str, overdue: float | None, due: float | None) -> bool:
        """Let a round be made when the next one is due; return whether one is overdue that was not looked at."""
        moment = self._fetcher.next_wakeups.moment
        if overdue is not None and overdue > self._looked_until[name]:
            self._looked_until[name] = moment
            self._round_is_due[name] = monotonic()
            return True
        if due is not None:
            at = monotonic() + due - moment
            self._round_is_due[name] = min(self._round_is_due[name], at)
            self._next_due = at if self._next_due is None else min(at, self._next_due)
        return False

    def _end_wait(self) -> None:
        """End the wait for a job. Called by another thread, so with a connection that threads share."""
        with suppress(Exception):  # whatever a closed connection raises; Redis ends it a tenth of a second later
            self._fetcher.end_wait(self._shared_connection)

    def _wait(self, seconds: float) -> Delivery | None:
        """Wait for a job, or until there may be one, or something else is to be done."""
        if not self.keys:
            self._sleep(min(seconds, WAIT_SLICE))
            self._round_is_due["update_keys"] = monotonic()
            return None
        self._has_waited = True
        self._repeats.sum_up()
        self._wakeup_timer.set(self._next_due)
        fetched = self._fetcher.wait(self._keys_in_turn(), seconds)
        self._wakeup_timer.set(None)
        if fetched and fetched.token and self._begins_no_more:
            self._fetcher.prefetched.append(fetched)  # to be given back
            return None
        return fetched

    def get_queue(self, queue_redis_key: str) -> Queue:
        """Return the queue of a waiting list.

        Raises
        ------
        DoesNotExist
            If the key is not that of the waiting list of a queue.
        """
        fetched = self._claim.fetched
        if fetched.key == queue_redis_key and fetched.queue_name:
            return attached_queue(self.queue_model, fetched.queue_pk, fetched.queue_name, fetched.queue_priority)
        prefix, _, rest = queue_redis_key.rpartition(":waiting")
        name, _, pk = prefix.rpartition(":")
        if rest or name != self.queue_model._name or not pk:
            raise DoesNotExist(f"Unable to get the queue from the key {queue_redis_key}")
        return self.queue_model.get(pk)

    def get_job(self, job_ident: str) -> Job:
        """Return the job of an ident. For the exceptions see `Job.get_from_ident`."""
        fetched = self._claim.fetched
        if fetched.ident == job_ident:
            self._fetcher.check(fetched)
            return records.attached(job_classes.resolve(fetched.path), fetched.pk)
        return Job.get_from_ident(job_ident)

    def _fetches_as_we_do(self) -> bool:
        return not overrides(self, Worker, "must_stop", "wait_for_job")
