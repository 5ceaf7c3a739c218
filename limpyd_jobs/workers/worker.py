"""The worker: its parameters, its run, and the loop that fetches jobs and runs them."""

from __future__ import annotations

import logging
import random
import signal
import threading
import traceback
from collections.abc import Callable, Iterable
from dataclasses import replace
from datetime import datetime, timedelta
from functools import partial
from time import monotonic
from types import FrameType
from typing import Any

from limpyd.exceptions import DoesNotExist
from redis import Redis
from redis.exceptions import ConnectionError as RedisConnectionError
from redis.exceptions import RedisError
from redis.exceptions import TimeoutError as RedisTimeoutError

from limpyd_jobs import transitions
from limpyd_jobs.arguments import delay_argument
from limpyd_jobs.exceptions import ClaimLost, ConfigurationException, LimpydJobsException, NotRecorded, WorkerLost
from limpyd_jobs.models import BaseJobsModel, Error, Job, Queue, job_classes, wake
from limpyd_jobs.statuses import STATUSES
from limpyd_jobs.transitions import NOTHING, ClaimRequest, Ending, Fetched
from limpyd_jobs.utils import one_line, overrides, parse_datetime, printable, utcnow
from limpyd_jobs.workers.events import DEFAULT_DELAY, JobEvents
from limpyd_jobs.workers.fetcher import Fetcher
from limpyd_jobs.workers.heartbeat import Heartbeat
from limpyd_jobs.workers.rescuer import Rescuer

LOGGER_NAME = "limpyd-jobs"
logger = logging.getLogger(LOGGER_NAME)

# The longest a worker waits without looking whether it has to stop, in seconds.
WAIT_SLICE = 1.0

# The shortest wait, in seconds, however often something else is to be done. Redis 6.2 takes less than a millisecond
# for a wait without end.
SHORTEST_WAIT = 0.05

# What a worker does beside its jobs: the method, and the attribute that says how many seconds to let pass in between.
ROUNDS = {
    "update_keys": "fetch_priorities_delay",
    "requeue_delayed_jobs": "fetch_delayed_delay",
    "rescue_jobs": "_heartbeat_interval",
}

SIGNALS = (signal.SIGINT, signal.SIGTERM)


class Worker(JobEvents):
    """Runs the jobs of some queues, one after the other.

    Every parameter is also an attribute that a subclass may set, and every method without an underscore may be
    overridden.

    Parameters
    ----------
    queues: str, or list or tuple of str
        The names of the queues, in one string separated by commas, or one by one.
    callback: callable
        What to run for a job, called with the job and the queue; by default `execute`.
    queue_model: type of Queue
    error_model: type of Error
    logger_name: str
    logger_level: int
    save_errors: bool
        Whether to record failures as errors.
    save_tracebacks: bool
        Whether to record the traceback with an error.
    max_loops: int
        How many jobs to fetch before the worker ends.
    max_duration: float
        After how many seconds the worker ends; None or 0 for no limit.
    terminate_gracefuly: bool
        Whether SIGINT and SIGTERM let the running job finish. Also spelt ``terminate_gracefully``.
    timeout: float
        How many seconds one `wait_for_job` waits at the most; 0 for no limit.
    fetch_priorities_delay: float
        How many seconds at the most until queues of a new priority are noticed.
    fetch_delayed_delay: float
        How many seconds at the most until delayed jobs that are due are noticed.
    requeue_times: int
        How often a job that failed is put back in a queue.
    requeue_priority_delta: int
        What is added to its priority then.
    requeue_delay_delta: float
        By how many seconds it is delayed then.
    lease: float
        For how many seconds a running job is this worker's without a sign of life. The worker gives four during each
        lease; a job without one is put back in its queue by any other worker.
    max_rescues: int
        How often a job may lose its worker before it is an error, of type `WorkerLost`.

    Raises
    ------
    ConfigurationException
        If there is no queue, or a parameter is not what it has to be.
    """

    queues: Any = None
    callback: Callable[[Any, Any], Any] | None = None
    queue_model: type[Queue] = Queue
    error_model: type[Error] = Error
    logger_name = LOGGER_NAME
    logger_level: int = logging.INFO
    save_errors = True
    save_tracebacks = True
    max_loops = 1000
    max_duration: float | None = None
    terminate_gracefuly = True
    terminate_gracefully = True
    timeout: float = 30
    fetch_priorities_delay: float = 25
    fetch_delayed_delay: float = 25
    requeue_times = 0
    requeue_priority_delta = -1
    requeue_delay_delta: float | None = 30

    lease: float = 60
    max_rescues = 3

    parameters: tuple[str, ...] = (
        "queues",
        "callback",
        "queue_model",
        "error_model",
        "logger_name",
        "logger_level",
        "save_errors",
        "save_tracebacks",
        "max_loops",
        "max_duration",
        "terminate_gracefuly",
        "timeout",
        "fetch_priorities_delay",
        "fetch_delayed_delay",
        "requeue_times",
        "requeue_priority_delta",
        "requeue_delay_delta",
        "lease",
        "max_rescues",
    )

    def __init__(self, queues: Any = None, **kwargs: Any) -> None:
        self._set_parameters(kwargs if queues is None else {"queues": queues, **kwargs})
        self._check_parameters()
        if self.callback is None:
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

        self._id = f"{random.randrange(10**6):06d}"
        self._update_status_callbacks: list[Callable[[Worker], None]] = []
        self._previous_handlers: dict[int, Any] = {}
        self._fetcher = Fetcher(self.queue_model, self.lease)
        self._rescuer = Rescuer(self._fetcher, self.max_rescues)
        self._fetched = NOTHING
        self._held_in_error = False
        self._round_is_due = dict.fromkeys(ROUNDS, 0.0)

        if self.terminate_gracefuly:
            self.handle_end_signal()

    # -- Parameters

    def _set_parameters(self, given: dict[str, Any]) -> None:
        given.setdefault("terminate_gracefuly", given.get("terminate_gracefully", self._graceful_by_class()))
        for name in self.parameters:
            if name in given:
                setattr(self, name, given[name])
        self.terminate_gracefully = self.terminate_gracefuly

    @classmethod
    def _graceful_by_class(cls) -> bool:
        """The nearest of the two spellings among the attributes of the class and its bases."""
        for base in cls.__mro__:
            for name in ("terminate_gracefuly", "terminate_gracefully"):
                if name in vars(base):
                    return bool(vars(base)[name])
        return True

    def _check_parameters(self) -> None:
        self.queues = self._parse_queues(self.queues)
        self._check_model("queue", self.queue_model, Queue)
        self._check_model("error", self.error_model, Error)
        if self.callback is not None and not callable(self.callback):
            raise ConfigurationException(f"The callback must be callable, unlike {self.callback!r}")
        for name in (
            "max_loops",
            "max_duration",
            "timeout",
            "fetch_priorities_delay",
            "fetch_delayed_delay",
            "max_rescues",
        ):
            self._check_amount(name)
        self._check_amount("lease", more_than=0)

    @staticmethod
    def _parse_queues(queues: Any) -> list[str]:
        if not queues:
            raise ConfigurationException("The queue(s) to use are not defined")
        names = queues.split(",") if isinstance(queues, str) else queues
        if not isinstance(names, (list, tuple)) or not all(isinstance(name, str) for name in names):
            raise ConfigurationException(f"Invalid format for queues names: {queues!r}")
        names = list(dict.fromkeys(name.strip() for name in names if name.strip()))
        if not names:
            raise ConfigurationException("The queue(s) to use are not defined")
        return names

    @staticmethod
    def _check_model(kind: str, model: Any, base: type[BaseJobsModel]) -> None:
        if not (isinstance(model, type) and issubclass(model, base)):
            raise ConfigurationException(f"The {kind} model must be a subclass of {base.__name__}")

    def _check_amount(self, name: str, more_than: float | None = None) -> None:
        value = getattr(self, name)
        if value is None and name == "max_duration":
            return
        is_number = isinstance(value, (int, float)) and not isinstance(value, bool)
        if not is_number or not 0 <= value < float("inf") or value == more_than:
            least = "0 or more" if more_than is None else f"more than {more_than}"
            raise ConfigurationException(f"{name} must be a number, {least}, not {value!r}")

    # -- Signals

    def handle_end_signal(self) -> None:
        """Let SIGINT and SIGTERM call `catch_end_signal`. Python allows it in the main thread only."""
        if threading.current_thread() is threading.main_thread():
            for number in SIGNALS:
                self._previous_handlers[number] = signal.signal(number, self.catch_end_signal)

    def stop_handling_end_signal(self) -> None:
        """Give SIGINT and SIGTERM back to whoever handled them before."""
        while self._previous_handlers:
            number, handler = self._previous_handlers.popitem()
            if signal.getsignal(number) == self.catch_end_signal:
                signal.signal(number, signal.SIG_DFL if handler is None else handler)

    def catch_end_signal(self, signum: int, frame: FrameType | None) -> None:
        """Ask the worker to end once the running job is finished. A second signal changes nothing."""
        if not self.end_signal_caught:
            self.end_signal_caught = self.end_forced = True
            self.log(f"{signal.Signals(signum).name} caught: ending, after the running job if there is one", "critical")
            self._tell_status()

    # -- What the worker is

    @property
    def id(self) -> str:
        """Six digits that tell the log lines of this worker from those of others."""
        return self._id

    @property
    def connection(self) -> Redis:
        """The connection to Redis."""
        return self.queue_model.get_connection()

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

    def _tell_status(self) -> None:
        for callback in self._update_status_callbacks:
            callback(self)

    def _add_update_status_callback(self, callback: Callable[[Worker], None]) -> None:
        """Call a function with the worker after each change of its status, and when it is asked to end."""
        self._update_status_callbacks.append(callback)

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
            self._run()
        finally:
            self.stop_handling_end_signal()

    def _run(self) -> None:
        self.set_status("starting")
        self.start_date = utcnow()
        if self.max_duration:
            self.wanted_end_date = self.start_date + timedelta(seconds=self.max_duration)

        self._find_queues()
        if not self.must_stop():
            self._make_round("requeue_delayed_jobs")
            self.run_started()
            with Heartbeat(self._heartbeat_interval, partial(self._beat, self.connection)):
                self._main_loop()

        self.set_status("terminated")
        self.end_date = utcnow()
        self.run_ended()

    def _find_queues(self) -> None:
        """Wait until there is a queue."""
        warned = False
        while not self.must_stop():
            self._make_round("update_keys")
            if self.keys:
                return
            if not warned:
                self.log("No queues yet", "warning")
                warned = True
            self._sleep(WAIT_SLICE)

    def _main_loop(self) -> None:
        try:
            while not self.must_stop():
                self.set_status("waiting")
                fetched = self._fetch()
                if fetched:
                    self.num_loops += 1
                    self.set_status("running")
                    self._run_job(*fetched)
        finally:
            self._give_back_upcoming()

    def _give_back_upcoming(self) -> None:
        try:
            self._fetcher.give_back()
        except Exception as error:
            self.log(f"Unable to give a job back: {printable(error)}", "error")

    def must_stop(self) -> bool:
        """Return whether the worker has to end: it was asked to, or a limit is reached."""
        return self.end_forced or self.num_loops >= self.max_loops or self._is_over_time()

    def _is_over_time(self) -> bool:
        return self.wanted_end_date is not None and utcnow() >= self.wanted_end_date

    def run_started(self) -> None:
        """Hook: the run begins."""
        self.log("Run started.")

    def run_ended(self) -> None:
        """Hook: the run is over."""
        self.log(f"Run terminated, with {self.num_loops} loops (duration={self.elapsed})")

    def update_keys(self) -> None:
        """Find the waiting lists of its queues, and keep their keys, highest priority first, in `keys`."""
        self.keys = self.queue_model.get_waiting_keys(self.queues)

    def requeue_delayed_jobs(self) -> None:
        """Move the delayed jobs of its queues that are due to their waiting lists."""
        for ident, reason in self._wake_delayed_jobs():
            self.log(f"[{ident}] delayed job could not be put back in its waiting list: {reason}", "error")

    def _wake_delayed_jobs(self) -> Iterable[tuple[str, str]]:
        if overrides(self.queue_model, Queue, "requeue_delayed_jobs"):
            return [
                failure
                for queue in self.queue_model.get_all(self.queues)
                for failure in queue.requeue_delayed_jobs() or ()
            ]
        return wake(self.queue_model, self._queue_keys())

    @property
    def _heartbeat_interval(self) -> float:
        return self.lease / 4

    def _beat(self, connection: Redis) -> None:
        """Renew the lease of the running job. Called by another thread, so with a connection that threads share."""
        fetched = self._fetched
        if not fetched.token:
            return
        try:
            job_class = job_classes.meet(fetched.path)
            renewed = transitions.renew(
                connection, job_class, fetched.ident, fetched.token, fetched.queue_key, self.lease
            )
            if not renewed and self._fetched is fetched:
                self.log(f"[{one_line(fetched.identifier)}] lost its claim: another worker may run it", "error")
        except Exception as error:
            self.log(f"[{one_line(fetched.identifier)}] lease not renewed: {one_line(error)}", "error")

    def rescue_jobs(self) -> None:
        """Put the jobs of its queues whose worker died back in their waiting lists."""
        for fetched in self._rescuer.rescue(self._queue_keys()):
            self._fetched = fetched
            queue, job = self.get_queue(fetched.key), self.get_job(fetched.ident)
            self._remember(job, queue)
            if fetched.token:
                lost = WorkerLost(f"Its workers died, {self.max_rescues + 1} times in a row")
                self._guard(job, queue, partial(self.job_error, job, queue, lost))
            else:
                self._guard(job, queue, partial(self.job_rescued, job, queue))

    def _queue_keys(self) -> list[str]:
        return [key.removesuffix(":waiting") for key in self.keys]

    def _next_round(self) -> float:
        return min(self._round_is_due.values())

    def _make_rounds(self) -> None:
        for name in ROUNDS:
            if monotonic() >= self._round_is_due[name]:
                try:
                    self._make_round(name)
                except (RedisConnectionError, RedisTimeoutError):
                    raise
                except Exception as error:
                    self.log(f"{name} failed: {printable(error)}\n{traceback.format_exc()}", "error")

    def _make_round(self, name: str) -> None:
        self._round_is_due[name] = monotonic() + getattr(self, ROUNDS[name])
        getattr(self, name)()

    # -- Fetching

    def _fetch(self) -> tuple[Queue, Job] | None:
        self._fetched = NOTHING
        self._held_in_error = False
        try:
            self._make_rounds()
            self._fetched = NOTHING
            return self.wait_for_job()
        except RedisError as error:
            self.log(f"Unable to get job, trying again in a second: {one_line(error)}", "error")
            self._sleep(WAIT_SLICE)
        except Exception as error:
            self.log(f"Unable to get job: {printable(error)}\n{traceback.format_exc()}", "error")
        self._put_back_unseen()
        return None

    def _put_back_unseen(self) -> None:
        """Give back, for later, a job that was claimed, but that `get_queue` or `get_job` made no object of."""
        fetched, self._fetched = self._fetched, NOTHING
        if fetched.token:
            delay = delay_argument(delayed_for=DEFAULT_DELAY)
            try:
                job_class = job_classes.meet(fetched.path)
                transitions.release(job_class, fetched.ident, fetched.token, fetched.queue_key, delay)
            except Exception as error:
                self.log(f"[{one_line(fetched.ident)}] is still claimed: {printable(error)}", "error")

    def wait_for_job(self) -> tuple[Queue, Job] | None:
        """Wait for a job to run.

        Returns
        -------
        tuple of Queue and Job
            None if there was none for `timeout` seconds, or if something else has to be done first.
        """
        fetched = self._fetcher.next(self.keys) or self._wait()
        if fetched is None:
            return None
        self._fetched = fetched
        self.set_status("running")
        return self.get_queue(self._fetched.key), self.get_job(self._fetched.ident)

    def _wait(self) -> Fetched | None:
        """Wait in slices, to notice in between that something else is to be done."""
        patience = monotonic() + self.timeout if self.timeout else float("inf")
        fetched = None
        while fetched is None and not (self.end_forced or self._is_over_time()):
            seconds = min(WAIT_SLICE, min(patience, self._next_round()) - monotonic())
            if self.keys:
                fetched = self._fetcher.wait(self.keys, max(seconds, SHORTEST_WAIT))
            else:
                self._sleep(max(seconds, SHORTEST_WAIT))
            if monotonic() >= min(patience, self._next_round()):
                break
        return fetched

    def _sleep(self, seconds: float) -> None:
        threading.Event().wait(seconds)

    def get_queue(self, queue_redis_key: str) -> Queue:
        """Return the queue of a waiting list.

        Raises
        ------
        DoesNotExist
            If the key is not that of the waiting list of a queue.
        """
        fetched = self._fetched
        if fetched.key == queue_redis_key and fetched.queue_name:
            return self.queue_model._attached(fetched.queue_pk, fetched.queue_name, fetched.queue_priority)
        prefix, _, rest = queue_redis_key.rpartition(":waiting")
        name, _, pk = prefix.rpartition(":")
        if rest or name != self.queue_model._name or not pk:
            raise DoesNotExist(f"Unable to get the queue from the key {queue_redis_key}")
        return self.queue_model.get(pk)

    def get_job(self, job_ident: str) -> Job:
        """Return the job of an ident. For the exceptions see `Job.get_from_ident`."""
        fetched = self._fetched
        if fetched.ident == job_ident:
            return transitions.attached(job_classes.meet(fetched.path), fetched.pk)
        return Job.get_from_ident(job_ident)

    # -- Running one job

    def _run_job(self, queue: Queue, job: Job) -> None:
        self._guard(job, queue, partial(self._start, job, queue))

    def _guard(self, job: Job, queue: Queue, action: Callable[[], None]) -> None:
        """Do something that ends the claim on a job. No failure of the application, or of ours, ends the worker."""
        claimed = self._fetched
        try:
            action()
        except ClaimLost as error:
            self.log(f"{_label(job)} {error}", "error")
            return
        except NotRecorded as error:
            self.log(f"{_label(job)} {one_line(error)}", "error")
            return
        except Exception as error:
            self._unexpected(job, queue, error)
        self._let_go(job, queue)
        if (queue._name, vars(queue).get("_pk")) != (self.queue_model._name, claimed.queue_pk):
            # `get_queue` returned another one than that where the lease is, or it is deleted
            self._fetched = claimed
            self._let_go(job, queue)

    def _start(self, job: Job, queue: Queue) -> None:
        self._take(job, queue)
        if job._cached_status == STATUSES.DELAYED:
            self.job_delayed(job, queue)
        elif not self._token(job):
            self.job_skipped(job, queue)
        else:
            self._execute(job, queue)

    def _take(self, job: Job, queue: Queue) -> None:
        """Claim the job unless `wait_for_job` did so."""
        if self._fetched.ident != job.ident:
            self._put_back_unseen()
            self._fetched = self._fetcher.take(queue.waiting.key, job.ident)
        self._remember(job, queue)

    def _claim_by_hand(self, job: Job, queue: Queue) -> None:
        """Claim a job whose hooks are called outside of the loop, as tests of applications do."""
        job._token_by_hand = self._fetcher.take(queue.waiting.key, job.ident).token

    def _remember(self, job: Job, queue: Queue) -> None:
        """Keep on the objects what their hooks may read."""
        job._cached_identifier = self._fetched.identifier
        job._cached_status = self._fetched.status
        job._cached_start = self._fetched.start
        queue._cached_name = self._fetched.queue_name

    def _execute(self, job: Job, queue: Queue) -> None:
        try:
            self.job_started(job, queue)
            result = (self.callback or self.execute)(job, queue)
        except Exception as error:
            trace = traceback.format_exc() if self.save_tracebacks else None
            self.job_error(job, self._still(queue), error, trace)
        else:
            self._executed(job, self._still(queue), result)

    def _still(self, queue: Queue) -> Queue:
        """The queue, even if the job deleted it: it is where the claim is."""
        if "_pk" in vars(queue):
            return queue
        fetched = self._fetched
        return self.queue_model._attached(fetched.queue_pk, fetched.queue_name, fetched.queue_priority)

    def execute(self, job: Job, queue: Queue) -> Any:
        """Run a job; what is called if there is no callback."""
        return job.run(queue)

    def _executed(self, job: Job, queue: Queue, result: Any) -> None:
        """Call the hook for the status the job has now. Our own `job_success` finds out by itself."""
        job._cached_status = STATUSES.RUNNING
        if overrides(self, JobEvents, "job_success"):
            job._cached_status = job.status.hget()
        if job._cached_status == STATUSES.CANCELED:
            self.job_skipped(job, queue)
        elif job._cached_status == STATUSES.DELAYED:
            self.job_delayed(job, queue)
        else:
            self.job_success(job, queue, result)

    def _unexpected(self, job: Job, queue: Queue, error: Exception) -> None:
        """A hook failed: the job is in error, unless something is recorded already, and listed as such anyway."""
        self.log(f"{_label(job)} unexpected error: {printable(error)}\n{traceback.format_exc()}", "error")
        try:
            if self._token(job) and not self._held_in_error:
                self._ended(transitions.fail(job, queue, self._token(job)))
            else:
                self._put_in_order(job, queue)
                queue.errors.rpush(job.ident)
        except Exception as another:
            self.log(f"{_label(job)} could not be put in errors: {printable(another)}", "error")

    def _put_in_order(self, job: Job, queue: Queue) -> None:
        """Record what the hook for a job that did not wait may not have come to."""
        if self._fetched.outcome == "found" and job._cached_status == STATUSES.DELAYED:
            self._delay(job, queue, parse_datetime(job.delayed_until.hget()))
        elif self._fetched.outcome == "found":
            transitions.skip(job)

    def _let_go(self, job: Job, queue: Queue) -> None:
        """End the claim if the hooks did not: they were overridden, and took care of the state of the job."""
        fetched = self._fetched
        if fetched.token:
            try:
                if not transitions.disown(type(job), fetched.ident, fetched.token, fetched.queue_key):
                    self._delay(job, queue, parse_datetime(job.delayed_until.hget()))
            except Exception as error:
                self.log(f"[{one_line(fetched.ident)}] is still claimed: {printable(error)}", "error")
            self._fetched = replace(fetched, token="")

    def _upcoming_request(self, job: Job, hook: str, event: str) -> ClaimRequest | None:
        """What to claim in the step that ends a job: nothing if the application has a say in between."""
        if (
            overrides(self, Worker, "must_stop", "wait_for_job")
            or overrides(self, JobEvents, hook)
            or hasattr(job, event)
            or self.status != "running"
            or self._fetcher.upcoming
            or monotonic() >= self._next_round()
            or self.must_stop()
        ):
            return None
        return self._fetcher.request(self.keys)

    def _ended(self, ending: Ending) -> None:
        """Keep what a transition left: the claim, if the job is only held, and the next job, if it claimed one."""
        self._held_in_error = ending.outcome == "held"
        if not self._held_in_error:
            self._fetched = replace(self._fetched, token="", outcome="ended")
        self._fetcher.keep(ending.upcoming)


def _label(job: Job) -> str:
    """Name a job at the beginning of a message, without asking Redis."""
    ident = f"{job.get_model_repr()}:{vars(job).get('_pk')}"
    return f"[{one_line(getattr(job, '_cached_identifier', None) or ident)}]"
