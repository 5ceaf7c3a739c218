"""The worker: what applications use, and what they may override."""

from __future__ import annotations

import logging
import random
from collections.abc import Callable
from datetime import datetime, timedelta
from types import FrameType, SimpleNamespace
from typing import Any

from redis import Redis

from limpyd_jobs.commandline.parameters import LOGGER_NAME, Parameters
from limpyd_jobs.dates import utcnow
from limpyd_jobs.exceptions import ConfigurationException
from limpyd_jobs.functions import overrides
from limpyd_jobs.models import Job, Queue
from limpyd_jobs.records.lazy_fields import pk_of
from limpyd_jobs.retrying import Requeue
from limpyd_jobs.schedules.model import Schedule
from limpyd_jobs.statuses import STATUSES
from limpyd_jobs.texts import described_with_notes, one_line
from limpyd_jobs.workers.claiming.waiter import Share
from limpyd_jobs.workers.context import RunState
from limpyd_jobs.workers.log import name_of
from limpyd_jobs.workers.loop import Loop
from limpyd_jobs.workers.process.signals import INTERRUPT, TERMINATE
from limpyd_jobs.workers.running.announcer import STARTED, SUCCEEDED, duration_of, write

logger = logging.getLogger(LOGGER_NAME)


class Worker(Parameters):
    """Runs the jobs of some queues, one after the other.

    Every parameter is also an attribute that a subclass may set, and every method without an underscore may be
    overridden. For the parameters see `Parameters`.

    A hook, such as `job_success`, is called at a turn in the life of a job. It records the turn, logs its message, and
    calls the method of the job for it, such as ``on_success``, if there is one. All three may be overridden.

    Attributes
    ----------
    last_update_keys, last_requeue_delayed: datetime
        When `update_keys` and `requeue_delayed_jobs` were last called, naive UTC; None before the first call.
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

        if self._settings.concurrency > 1:
            self._check_concurrency()

        self._id = f"{random.randrange(10**6):06d}"
        self._run_state = RunState()
        self._loop = Loop(self, OURS, self._run_state)
        if self.terminate_gracefuly:
            self.handle_end_signal()

    def _check_concurrency(self) -> None:
        for name in ("execute", "wait_for_job"):
            if overrides(self, Worker, name):
                raise ConfigurationException(
                    f"{type(self).__name__} has its own {name} method, which runs one job after the other: "
                    f"concurrency={self._settings.concurrency} is not possible with it"
                )

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
        """How long the run has lasted so far, or lasted; None before it."""
        return (self.end_date or utcnow()) - self.start_date if self.start_date else None

    def set_logger(self) -> None:
        """Prepare the logger of the worker.

        It is enabled, as those below ``limpyd-jobs``: ``logging.config``, and so the setting ``LOGGING`` of Django,
        disables each logger that is there already and is not named, unless ``disable_existing_loggers`` is false. No
        line would say that a job failed.
        """
        self.logger = logging.getLogger(self.logger_name)
        self.logger.setLevel(self.logger_level)
        self.logger.disabled = False
        for name, each in list(logging.root.manager.loggerDict.items()):
            if f"{name}.".startswith(f"{LOGGER_NAME}.") and isinstance(each, logging.Logger):
                each.disabled = False

    def log(self, message: str, level: str = "info") -> None:
        """Log a message, after the id of the worker. What would confuse a terminal is escaped."""
        write(self.logger, f"[{self.id}] {message}", level)

    def set_status(self, status: str) -> None:
        """Set the status of the worker."""
        self.status = status
        self._loop.context.notify_status()

    def _add_update_status_callback(self, callback: Callable[[Worker], None]) -> None:
        """Call a function with the worker after each change of its status, and when it is asked to end."""
        self._run_state.on_status.append(callback)

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
            If `run` was called before.
        ConfigurationException
            If ``max_connections`` of the database is too few for the threads of the worker, and of its jobs.
        redis.exceptions.RedisError
            If Redis cannot be reached at the start, nor within the seconds of `wait_for_redis`.
        """
        self._loop.run()

    def _main_loop(self) -> None:
        self._loop.loop()

    def _check_connection(self, wait: float = 0) -> None:
        self._loop.start.check_connection(wait)

    def run_started(self) -> None:
        """Hook: the run begins."""
        self.log("Run started.")

    def run_ended(self) -> None:
        """Hook: the run is over."""
        reason = self._loop.stopping.reason
        self.log(f"Run terminated, with {self.num_loops} loops (duration={self.elapsed}): {reason}")

    def must_stop(self) -> bool:
        """Return whether the worker has to end, because it was asked to, or a limit is reached."""
        return self._loop.context.is_at_an_end

    def handle_end_signal(self) -> None:
        """Let SIGINT and SIGTERM call `catch_end_signal`. Python allows it in the main thread only."""
        self._loop.stopping.handlers.take(self.catch_end_signal, INTERRUPT, TERMINATE)

    def stop_handling_end_signal(self) -> None:
        """Give the signals back to their earlier handlers. Python allows it in the main thread only."""
        self._loop.stopping.handlers.restore()

    def catch_end_signal(self, signum: int, frame: FrameType | None) -> None:
        """Ask the worker to end once the running job is finished.

        A second signal changes nothing, except a second SIGINT from a terminal: it releases the running job.
        """
        self._loop.stopping.catch_end_signal(signum)

    # -- Its queues

    def update_keys(self) -> None:
        """Find the waiting lists of its queues, and keep their keys, highest priority first, in `keys`."""
        self.last_update_keys = utcnow()
        if self._settings.queue_strategy == "strict":
            self.keys = self.queue_model.get_waiting_keys(self.queues)
            return
        queues = self.queue_model.get_all_by_priority(self.queues)
        self.keys = [queue.waiting.key for queue in queues]
        places = {
            queue.waiting.key: Share(queue._cached_priority, self._weights.get(queue._cached_name, 1))
            for queue in queues
        }
        self._loop.waiter.queue_selector.update(places)

    def requeue_delayed_jobs(self) -> None:
        """Move the delayed jobs of its queues that are due to their waiting lists."""
        self.last_requeue_delayed = utcnow()
        self._loop.promoter.promote()

    # -- Getting and running a job

    def wait_for_job(self) -> tuple[Queue, Job] | None:
        """Wait for a job to run.

        Returns
        -------
        tuple of Queue and Job
            None if there was none for `timeout` seconds. In a run, also if something else has to be done first.
        """
        return self._loop.wait()

    def get_queue(self, queue_redis_key: str) -> Queue:
        """Return the queue of a waiting list.

        Raises
        ------
        DoesNotExist
            If the key is not the waiting list of a queue.
        """
        return self._loop.offers.get_queue(queue_redis_key)

    def get_job(self, job_ident: str) -> Job:
        """Return the job of an ident. For the exceptions see `Job.get_from_ident`."""
        return self._loop.offers.get_job(job_ident)

    def execute(self, job: Job, queue: Queue) -> Any:
        """Run a job. It is called if there is no callback."""
        return job.run(queue)

    # -- Hooks: the turns in the life of a job

    def job_started(self, job: Job, queue: Queue) -> None:
        """Hook: a job was claimed, is recorded as running, and is about to be executed."""
        self._loop.hooks.job_started(job, queue)

    def job_success(self, job: Job, queue: Queue, job_result: Any) -> None:
        """Hook: a job was executed without an exception. It is recorded as a success, and listed in its queue."""
        self._loop.hooks.job_success(job, queue, job_result)

    def job_skipped(self, job: Job, queue: Queue) -> None:
        """Hook: a job did not wait, or was canceled while it ran. It is no longer queued."""
        self._loop.hooks.job_skipped(job, queue)

    def job_delayed(self, job: Job, queue: Queue) -> None:
        """Hook: a job was delayed while it ran, or before.

        It goes to the delayed set until its `delayed_until`, or for 60 seconds without one.
        """
        self._loop.hooks.job_delayed(job, queue)

    def job_error(self, job: Job, queue: Queue, exception: BaseException, trace: str | None = None) -> None:
        """Hook: the run of a job raised an exception.

        The job is recorded as an error and listed in its queue. Then it is put back in a queue if it may run again.
        """
        self._loop.hooks.job_error(job, queue, exception, trace)

    def additional_error_fields(
        self, job: Job, queue: Queue, exception: BaseException, trace: str | None = None
    ) -> dict[str, Any]:
        """Return the values of the additional fields of a subclass of `Error`."""
        return {}

    def requeue_job(self, job: Job, queue: Queue, priority: int, delayed_for: float | timedelta | None = None) -> None:
        """Put a job that failed back in a queue."""
        self._loop.hooks.requeue_job(job, queue, priority, delayed_for)

    def job_requeued(self, job: Job, queue: Queue, request: Requeue) -> None:
        """Hook: the code of a job raised `Requeue`. It is put back in its queue, unless it was canceled meanwhile.

        It is not an error, and the retry policy does not count the try.
        """
        self._loop.hooks.job_requeued(job, queue, request)

    def job_released(self, job: Job, queue: Queue) -> None:
        """Hook: a job was interrupted, because its worker has to end, and is back at the front of its waiting list.

        The try is not counted.
        """
        self._loop.hooks.job_released(job, queue)

    def job_rescued(self, job: Job, queue: Queue) -> None:
        """Hook: a job whose worker died was put back at the front of its waiting list."""
        self._loop.hooks.job_rescued(job, queue)

    def job_scheduled(self, job: Job, schedule: Schedule, time: datetime) -> None:
        """Hook: this worker added a job, because a schedule was due at that time, naive UTC."""
        self._loop.hooks.job_scheduled(job, schedule, time)

    def schedule_missed(self, schedule: Schedule, time: datetime) -> None:
        """Hook: this worker skipped a time, naive UTC, of a schedule: it is later than its grace time allows."""
        self._loop.hooks.schedule_missed(schedule, time)

    # -- Messages: what the hooks log

    def job_started_message(self, job: Job, queue: Queue) -> str:
        """Return what to log when a job starts."""
        return STARTED % name_of(job, queue)

    def job_success_message(self, job: Job, queue: Queue, job_result: Any) -> str:
        """Return what to log when a job is a success."""
        return SUCCEEDED % (name_of(job, queue), duration_of(job))

    def job_skipped_message(self, job: Job, queue: Queue) -> str:
        """Return what to log when a job is skipped."""
        status = getattr(job, "_cached_status", None) or job.status.hget()
        name = STATUSES.by_value(status, "UNKNOWN")
        reason = getattr(job, "_cached_reason", "")
        return f"{name_of(job, queue)} job skipped (current status: {name}){reason and f': {reason}'}"

    def job_delayed_message(self, job: Job, queue: Queue) -> str:
        """Return what to log when a job is delayed."""
        delayed_until = getattr(job, "_cached_delayed_until", None)
        if delayed_until is None:
            delayed_until = job.delayed_until.hget()
        what = f"job delayed until {one_line(delayed_until)}" if delayed_until != "" else "job put back in its queue"
        return f"{name_of(job, queue)} {what}"

    def job_error_message(
        self, job: Job, queue: Queue, to_be_requeued: bool, exception: BaseException, trace: str | None = None
    ) -> str:
        """Return what to log when a job failed."""
        requeued = "requeued" if to_be_requeued else "NOT requeued"
        return f"{name_of(job, queue)} error: {described_with_notes(exception)} [{requeued}]"

    def job_requeue_message(self, job: Job, queue: Queue) -> str:
        """Return what to log when a job that failed was put back in a queue."""
        priority = getattr(job, "_cached_priority", None)
        delayed_until = getattr(job, "_cached_delayed_until", None)
        if priority is None:
            priority, delayed_until = job.hmget("priority", "delayed_until")
        delayed = f", delayed until {one_line(delayed_until)}" if delayed_until else ""
        return f"{name_of(job, queue)} requeued with priority {one_line(priority)}{delayed}"

    def job_released_message(self, job: Job, queue: Queue) -> str:
        """Return what to log when a job is released."""
        reason = getattr(job, "_cached_reason", "")
        return f"{name_of(job, queue)} released, because {reason or 'its worker has to end'}"

    def job_rescued_message(self, job: Job, queue: Queue) -> str:
        """Return what to log when a job is rescued."""
        return f"{name_of(job, queue)} rescued, because its worker died"

    def job_scheduled_message(self, job: Job, schedule: Schedule, time: datetime) -> str:
        """Return what to log when a job is added by a schedule."""
        name, identifier = schedule.name.hget() or "", job.identifier.hget() or ""
        return f"[{one_line(name)}] due at {time}: job {pk_of(job)} added, {one_line(identifier)}"

    def schedule_missed_message(self, schedule: Schedule, time: datetime) -> str:
        """Return what to log when a schedule missed a time."""
        return f"[{one_line(schedule.name.hget() or '')}] schedule missed its time, {time}"


# Our own version of each attribute, also when an application puts another one in the class.
OURS: Any = SimpleNamespace(**vars(Worker))
