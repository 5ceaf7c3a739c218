"""What the parts of one worker may know of it: its face, its settings, the state of its run."""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from math import inf
from time import monotonic
from types import FrameType, SimpleNamespace
from typing import Any, NamedTuple, Protocol

from redis import Redis

from limpyd_jobs import events
from limpyd_jobs.dates import utcnow
from limpyd_jobs.idents import QueueKey
from limpyd_jobs.models import Error, Job, Queue
from limpyd_jobs.workers.log import Repeats


class Face(Protocol):
    """The worker as applications see it: documented attributes that may change, and methods that may be overridden."""

    logger: logging.Logger
    queues: Any
    queue_model: type[Queue]
    error_model: type[Error]
    callback: Any
    keys: list[str]
    status: str | None
    num_loops: int
    max_loops: Any
    max_duration: Any
    timeout: Any
    terminate_gracefuly: bool
    end_forced: bool
    end_signal_caught: bool
    start_date: datetime | None
    end_date: datetime | None
    wanted_end_date: datetime | None
    save_errors: bool
    save_tracebacks: bool
    requeue_times: Any
    requeue_priority_delta: Any
    requeue_delay_delta: Any
    fetch_priorities_delay: Any
    fetch_delayed_delay: Any
    _settings: SimpleNamespace
    _names_of_others: list[str]

    @property
    def id(self) -> str: ...
    @property
    def connection(self) -> Redis: ...
    @property
    def elapsed(self) -> timedelta | None: ...
    def log(self, message: str, level: str = "info") -> None: ...
    def set_status(self, status: str) -> None: ...
    def run_started(self) -> None: ...
    def run_ended(self) -> None: ...
    def _main_loop(self) -> None: ...
    def must_stop(self) -> bool: ...
    def catch_end_signal(self, signum: int, frame: FrameType | None) -> None: ...
    def stop_handling_end_signal(self) -> None: ...
    def update_keys(self) -> None: ...
    def requeue_delayed_jobs(self) -> None: ...
    def wait_for_job(self) -> tuple[Queue, Job] | None: ...
    def get_queue(self, queue_redis_key: str) -> Queue: ...
    def get_job(self, job_ident: str) -> Job: ...
    def execute(self, job: Job, queue: Queue) -> Any: ...
    def job_started(self, job: Job, queue: Queue) -> None: ...
    def job_success(self, job: Job, queue: Queue, job_result: Any) -> None: ...
    def job_skipped(self, job: Job, queue: Queue) -> None: ...
    def job_delayed(self, job: Job, queue: Queue) -> None: ...
    def job_error(self, job: Job, queue: Queue, exception: BaseException, trace: str | None = None) -> None: ...
    def requeue_job(self, job: Job, queue: Queue, priority: int, delayed_for: Any = None) -> None: ...
    def job_started_message(self, job: Job, queue: Queue) -> str: ...
    def job_success_message(self, job: Job, queue: Queue, job_result: Any) -> str: ...
    def job_skipped_message(self, job: Job, queue: Queue) -> str: ...
    def job_delayed_message(self, job: Job, queue: Queue) -> str: ...
    def job_requeue_message(self, job: Job, queue: Queue) -> str: ...
    def job_error_message(
        self, job: Job, queue: Queue, to_be_requeued: bool, exception: BaseException, trace: str | None = None
    ) -> str: ...
    @property
    def additional_error_fields(self) -> Callable[..., dict[str, Any]]: ...


class Verdict(NamedTuple):
    """Whether a worker is alive and ready; if it is not, why."""

    is_live: bool
    is_ready: bool
    reason: str = ""


@dataclass
class RunState:
    """The state of a run, beside the public attributes of the worker."""

    why: str = ""  # who or what asked for the end; empty if that is not known
    is_quiet: bool = False  # whether to begin no other job, and to live on until the end is asked for
    is_behind: bool = False  # whether it cannot renew its leases in time
    is_done: bool = False  # whether it ended because `burst` says so
    is_for_good: bool = False  # whether it was asked to end, and no other worker should replace it
    lacks_queues: bool = False  # whether it looked, and none of its queues exists yet
    has_waited: bool = False  # whether the last job did not come at once
    gives_up_at: float = inf  # when it has to end at last, even if ends of jobs are not recorded
    failure: str = ""  # what broke that it cannot work without; empty if nothing did: see `Context.fail`
    # Other shards that could not be used, and until when not to ask them, by the clock of `monotonic`.
    unusable: dict[Any, float] = field(default_factory=dict)
    parent: int = 0  # the pid of the parent of its pool
    hard_limits: Any = None  # tells that parent until when jobs may run: a `HardLimits`
    killed: Sequence[Any] = ()  # the jobs because of which that parent killed the process before
    on_recorded: Callable[[], None] | None = None  # called once it is recorded what became of them
    tell_health: Callable[[Verdict], None] | None = None  # tells that parent whether the worker is healthy
    turned: float = 0.0  # when the loop was last seen to turn, by the clock of `monotonic`, if its health is watched
    beaten: float = 0.0  # when the heartbeat last came to its end
    # Called once it handles signals and has found its queues; and, with the worker, when its status changes.
    on_ready: list[Callable[[], None]] = field(default_factory=list)
    on_status: list[Callable[[Any], None]] = field(default_factory=list)
    on_failure: list[Callable[[], None]] = field(default_factory=list)  # called once it has failed, by any thread


class Context:
    """What most parts of a worker use."""

    def __init__(self, worker: Face, base: type[Face], state: RunState) -> None:
        self._worker = worker
        self._our_must_stop = base.must_stop
        self.settings = worker._settings  # the checked parameters that version 2 does not have
        self.state = state
        self.repeats = Repeats(worker.log)
        self.log_repeated = self.repeats.log  # logs what may happen thousands of times

    def log(self, message: str, level: str = "info") -> None:
        self._worker.log(message, level)

    def connect(self) -> None:
        """Take the connection for the threads of the worker. By the time they use it, a job may share a pipeline
        with all threads, as a plain `PipelineDatabase` of limpyd can."""
        self.connection: Redis = self._worker.connection

    def notify_status(self) -> None:
        """Notify others that the status changed, or that the worker is asked to end."""
        for callback in self.state.on_status:
            callback(self._worker)
        events.emit(events.WorkerStatusChanged, self._worker, "", self._worker.status)

    def fail(self, why: str) -> None:
        """Let the worker end at once, as if its process died: what it needs to keep its promises is broken. Any thread
        may do so.

        Its jobs are not released, but rescued: one of them may have broken it, and would do so again.
        """
        state = self.state
        if state.failure:
            return
        state.failure = state.why = why
        state.gives_up_at = -inf
        self._worker.end_forced = True
        self.log(f"{why}: ending at once, and the jobs that run are rescued when their leases have lapsed", "critical")
        for callback in state.on_failure:
            callback()

    @property
    def queue_keys(self) -> list[QueueKey]:
        """The beginnings of the keys of the queues of the worker."""
        return [QueueKey.of_list(key) for key in self._worker.keys]

    @property
    def begins_no_more(self) -> bool:
        """Whether it was asked to end, or to be quiet, or cannot renew its leases in time."""
        return self._worker.end_forced or self.state.is_quiet or self.state.is_behind

    @property
    def is_too_late(self) -> bool:
        """Whether it has to end at last, even if ends of jobs are not recorded."""
        return monotonic() > self.state.gives_up_at

    def must_stop(self) -> bool:
        """Whether the worker has to end, as it says itself; it is not asked if it has no `must_stop` of its own."""
        worker = self._worker
        if type(worker).must_stop is not self._our_must_stop or "must_stop" in vars(worker):
            return worker.must_stop()
        return self.is_at_an_end

    @property
    def is_at_an_end(self) -> bool:
        """Whether it was asked to end, or a limit is reached; what `Worker.must_stop` returns."""
        worker = self._worker
        if worker.num_loops >= worker.max_loops or worker.end_forced:
            return True
        return (worker.end_signal_caught or worker.wanted_end_date is not None) and self.ends_jobs()

    def ends_jobs(self) -> bool:
        """Whether it was asked to end, or its time is over, so that a job that can go on elsewhere gives way."""
        worker = self._worker
        if worker.end_forced or (worker.end_signal_caught and worker.terminate_gracefuly):
            return True
        return worker.wanted_end_date is not None and self.is_over_time

    @property
    def is_over_time(self) -> bool:
        """Whether it has run for as long as it may."""
        end = self._worker.wanted_end_date
        return end is not None and utcnow() >= end
