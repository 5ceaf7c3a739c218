"""Running jobs in the process of a test, by a worker that works as in production."""

from __future__ import annotations

import uuid
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from contextvars import ContextVar
from dataclasses import dataclass, field
from typing import Any, Generic, TypeVar, overload

from limpyd.exceptions import DoesNotExist

from limpyd_jobs import events
from limpyd_jobs.classes.job_classes import job_class_of
from limpyd_jobs.commandline.parameters import SPELLINGS
from limpyd_jobs.functions import overrides
from limpyd_jobs.idents import QueueKey
from limpyd_jobs.models import BaseJobsModel, Job, Queue, job_classes, queue_name
from limpyd_jobs.models.functions.function import JobFunction
from limpyd_jobs.records.flows import read_wait
from limpyd_jobs.statuses import STATUSES
from limpyd_jobs.texts import is_meant
from limpyd_jobs.workers import Worker

AJob = TypeVar("AJob", bound=Job)

# How many jobs are run at most, so that a job that adds itself again and again does not stop the tests.
LIMIT = 1000

# The queue of a job that is run for a test, if neither the test nor its class names one.
QUEUE_NAME = "testing"

# How many calls of this module run jobs, or add one for it, inside each other. Coroutines that they run know it, too.
_depth: ContextVar[int] = ContextVar("limpyd_jobs_testing_depth", default=0)


@dataclass
class Drained:
    """The outcomes of the jobs that were run. Each run counts once.

    Attributes
    ----------
    success, error, cancelled: int
        How many ended so.
    requeued: int
        How many failed, or raised `Requeue`, and are back in a queue, now or later.
    delayed: int
        How many were delayed by their own code.
    skipped: int
        How many did not wait any more when they came out of their lists, so they were not run.
    exceptions: list of Exception
        The exceptions that jobs raised, in their order, including jobs that are requeued.
    """

    success: int = 0
    error: int = 0
    cancelled: int = 0
    requeued: int = 0
    delayed: int = 0
    skipped: int = 0
    exceptions: list[BaseException] = field(default_factory=list)

    @property
    def total(self) -> int:
        """How many runs there were."""
        return self.success + self.error + self.cancelled + self.requeued + self.delayed


@dataclass(frozen=True)
class Outcome(Generic[AJob]):
    """The outcome of a job that was run.

    Attributes
    ----------
    job: Job
    status: str
        The name of its status now, such as ``"SUCCESS"``.
    result: object
        What its code returned; None if it raised.
    exception: Exception
        What its code raised; None if it did not.
    """

    job: AJob
    status: str
    result: Any = None
    exception: BaseException | None = None


def drain(
    *queues: str,
    job_class: type[Job] | JobFunction[..., Any, Any] | None = None,
    with_delayed: bool = False,
    raise_errors: bool = True,
    limit: int = LIMIT,
    worker_class: type[Worker] = Worker,
    **options: Any,
) -> Drained:
    """Run all jobs that wait, and those that they add, in this process; return their outcomes.

    Schedules that are due are enqueued before. Paused queues are left alone.

    Parameters
    ----------
    *queues: str
        The names of the queues; by default the queue of the `job_class`, or else all queues.
    job_class: type of Job, or JobFunction
        The class whose queue model to use; by default the queue models of all known job classes. Jobs of other classes
        in these queues are run, too.
    with_delayed: bool
        Whether to run delayed jobs as well, and all tries to come, without waiting until they are due.
    raise_errors: bool
        Whether to raise the exception of the first job that ends in error. The jobs after it are not run then. The
        exception of a job that will be tried again is never raised.
    limit: int
        How many jobs may be run.
    worker_class: type of Worker
    **options
        Parameters of the worker, such as ``retry_policy``.

    Raises
    ------
    AssertionError
        If there are more jobs than the limit; or there is no such queue, but one of a similar name.
    TypeError
        If there is no such parameter, or the limit is not an integer.
    Exception
        The exception of a job: see `raise_errors`.
    """
    check_options(worker_class, options, ("job_class", "with_delayed", "raise_errors", "limit"))
    run, seen, found = _Run(raise_errors, limit), None, job_class_of(job_class)
    while seen != (seen := (run.loops, _targets(queues, found, worker_class))):
        for queue_model, names in seen[1]:
            if with_delayed:
                _promote_all(queue_model, names)
            run.work(worker_class, names, queue_model=queue_model, burst=True, **options)
            run.check_limit()
    return run.drained


@overload
def run_job(
    job_class: type[AJob],
    identifier: str | None = None,
    queue_name: str | None = None,
    priority: int = 0,
    raise_errors: bool = True,
    worker_class: type[Worker] = Worker,
    options: dict[str, Any] | None = None,
    **fields: Any,
) -> Outcome[AJob]: ...


@overload
def run_job(
    job_class: JobFunction[..., Any, Any],
    identifier: str | None = None,
    queue_name: str | None = None,
    priority: int = 0,
    raise_errors: bool = True,
    worker_class: type[Worker] = Worker,
    options: dict[str, Any] | None = None,
    **fields: Any,
) -> Outcome[Job]: ...


def run_job(
    job_class: Any,
    identifier: str | None = None,
    queue_name: str | None = None,
    priority: int = 0,
    raise_errors: bool = True,
    worker_class: type[Worker] = Worker,
    options: dict[str, Any] | None = None,
    **fields: Any,
) -> Outcome[Any]:
    """Add a job, and run it once, in this process, as a worker would; return its outcome.

    A job that is added with a delay is run all the same, at once. Other jobs that wait are left alone, and so are jobs
    that it adds: see `drain`.

    Parameters
    ----------
    job_class: type of Job, or JobFunction
    identifier: str
        By default an identifier that no other job has.
    queue_name: str
        By default the one of the class; or else ``"testing"``.
    priority: int
    raise_errors: bool
        Whether to raise the exception of the job, even if the job will be tried again.
    worker_class: type of Worker
    options: dict
        Parameters of the worker, such as ``{"retry_policy": "times=3"}``.
    **fields
        Fields of the job, and other arguments of `add_job`.

    Raises
    ------
    AssertionError
        If a job of the identifier is queued already, or a worker cannot run the job.
    TypeError
        If a worker has no such parameter.
    Exception
        The exception of the job, if `raise_errors`; and the exceptions of `add_job`.
    """
    check_options(worker_class, options or {})
    job_class = job_class_of(job_class)
    identifier = f"testing:{uuid.uuid4().hex}" if identifier is None else identifier
    is_queued = bool(job_class.collection(identifier=identifier, queued="1"))
    assert not is_queued, f"A {job_class.__name__} with the identifier {identifier!r} is queued already: drain it"
    with _busy():
        job = job_class.add_job(identifier, queue_name or job_class.queue_name or QUEUE_NAME, priority, **fields)
        _end_delay_of(job)
    return run_added(job, raise_errors, worker_class, **(options or {}))


def check_options(worker_class: type[Worker], options: Iterable[str], others: Iterable[str] = ()) -> None:
    """Raise `TypeError` for a name that is not a parameter of a worker, if the class has no ``__init__`` of its own."""
    if overrides(worker_class, Worker, "__init__"):
        return
    known = {*worker_class.parameters, *SPELLINGS}
    for name in options:
        if name not in known and not hasattr(worker_class, name):
            raise TypeError(f"There is no parameter {name!r}{is_meant(name, [*others, *known])}")


def _end_delay_of(job: Job) -> None:
    if status_of(job) == "DELAYED":
        queue = queue_of(job)
        job.enqueue_or_delay(queue_name(queue), queue_model=type(queue))
    status = status_of(job)
    assert status == "WAITING", f"{job.ident} cannot be run: its status is {status}"


def run_added(job: AJob, raise_errors: bool, worker_class: type[Worker] = Worker, **options: Any) -> Outcome[AJob]:
    """Run a job that waits, once; return its outcome. For the parameters see `run_job`."""
    queue = queue_of(job)
    run = _Run(raise_errors=False, limit=1)
    run.work(_worker_of(worker_class, job, queue), [queue_name(queue)], queue_model=type(queue), **options)
    exception = run.drained.exceptions[0] if run.drained.exceptions else None
    if exception is not None and raise_errors:
        raise exception
    status = status_of(job)
    is_run = run.drained.total or run.drained.skipped or status not in ("WAITING", "DELAYED") or _waits(job)
    assert is_run, f"{job.ident} was not run: what the worker logged says why"
    return Outcome(job, status, run.result, exception)


def status_of(job: Job) -> str:
    """Return the name of the status that a job has now; ``"DELETED"`` if the job is gone."""
    return str(STATUSES.by_value(job.status.hget(), "DELETED"))


def queue_of(job: Job) -> Queue:
    key = job.get_field("_queue_key").hget() or ""
    for queue_model in _queue_models(job):
        if key.startswith(f"{queue_model._name}:"):
            return queue_model.get(QueueKey(key).pk)
    return job.queue_model.get_queue(job.queue_name or QUEUE_NAME, job.priority.hget())


def _queue_models(first: type[Worker] | Job) -> list[type[Queue]]:
    """Return the queue models of this database that are known, each once."""
    models = [first.queue_model, *(job_class.queue_model for job_class in job_classes.all())]
    return [model for model in dict.fromkeys(models) if model.database is BaseJobsModel.database]


def _targets(
    queues: tuple[str, ...], job_class: type[Job] | None, worker_class: type[Worker]
) -> list[tuple[type[Queue], list[str]]]:
    """Return the queue models to be drained, each with the names of its queues."""
    if not queues and job_class is not None and job_class.queue_name:
        queues = (job_class.queue_name,)
    models = [job_class.queue_model] if job_class is not None else _queue_models(worker_class)
    known = {model: _names_of(model) for model in models}
    used = [model for model in models if known[model]] or models[:1]
    names = {name for each in known.values() for name in each}
    for name in queues:
        hint = "" if name in names else is_meant(name, names)
        assert not hint, f"There is no queue {name!r}{hint}"
    return [(model, [*queues] or known[model] or [QUEUE_NAME]) for model in used]


def _names_of(queue_model: type[Queue]) -> list[str]:
    return sorted({fields["name"] for _, fields in queue_model.read_many(queue_model.collection(), "name")})


def _promote_all(queue_model: type[Queue], names: list[str]) -> None:
    """Put all delayed jobs of some queues in their waiting lists, the earliest first. Those that wait for something
    else than a date stay."""
    queues = [queue for name in {*names} - queue_model.get_paused_names() for queue in queue_model.get_all(name)]
    delayed = sorted((score, ident, queue_name(queue)) for queue in queues for ident, score in _delayed_in(queue))
    for _, ident, name in delayed:
        with suppress(DoesNotExist):
            job = Job.get_from_ident(ident)
            if not _waits(job):
                job.enqueue_or_delay(name, queue_model=queue_model)


def _waits(job: Job) -> bool:
    """Whether a job waits: for others of its flow, for a signal, or for what it spawned."""
    waits, delayed_until = job.hmget("_waits", "delayed_until")
    return bool(waits) and read_wait(waits).date == delayed_until


def _delayed_in(queue: Queue) -> list[tuple[str, float]]:
    delayed: list[tuple[str, float]] = queue.delayed.zrange(0, -1, withscores=True)
    return delayed


def _worker_of(worker_class: type[Worker], job: Job, queue: Queue) -> type[Worker]:
    """Return a class of workers that take only this job."""

    class WorkerOfOneJob(worker_class):  # type: ignore[misc, valid-type]
        def wait_for_job(self) -> tuple[Queue, Job]:
            queue.waiting.lrem(1, job.ident)
            return queue, job

    return WorkerOfOneJob


class _Run:
    def __init__(self, raise_errors: bool, limit: int) -> None:
        if type(limit) is not int:
            raise TypeError(f"The limit is a number of jobs, not {limit!r}")
        self.drained, self.loops, self.result = Drained(), 0, None
        self._raise_errors, self._limit = raise_errors, limit
        self._worker: Worker
        self._started = ""
        self._failure: BaseException | None = None

    def work(self, worker_class: type[Worker], names: list[str], **options: Any) -> None:
        """Let a worker run jobs; raise the exception of one of them, if that is wanted."""
        ours = {"terminate_gracefuly": False, "prefetch": 1, "max_loops": self._limit - self.loops}
        job_classes.look_again()
        self._worker = worker_class(names, **{**ours, **options})
        with _busy(), _observed(self._observe):
            self._worker.run()
        self.loops += self._worker.num_loops
        if self._failure is not None:
            raise self._failure

    def check_limit(self) -> None:
        """Raise an error if jobs wait that must not be run any more."""
        waiting = self._worker.count_waiting_jobs() if self.loops >= self._limit else 0
        assert not waiting, (
            f"{self.loops} jobs were run, and there are {waiting} more: if they come to an end, give a higher limit"
        )

    def _observe(self, event: events.Event) -> None:
        if event.worker is not self._worker:
            return
        drained = self.drained
        match event:
            case events.JobStarted():
                self._started = event.job.ident
            case events.JobSucceeded():
                drained.success += 1
                self.result = event.result
            case events.JobFailed():
                drained.exceptions.append(event.exception)
                drained.error += not event.requeued
                if self._raise_errors and not event.requeued:
                    self._failure, event.worker.end_forced = event.exception, True
            case events.JobRequeued():
                drained.requeued += 1
            case events.JobDelayed():
                drained.delayed += 1
            case events.JobSkipped():
                is_cancelled = event.job.ident == self._started
                drained.cancelled += is_cancelled
                drained.skipped += not is_cancelled


def is_busy() -> bool:
    """Whether this is called by a job that is run. Then jobs that are added now are not run at once."""
    return _depth.get() > 0


@contextmanager
def _busy() -> Iterator[None]:
    token = _depth.set(_depth.get() + 1)
    try:
        yield
    finally:
        _depth.reset(token)


@contextmanager
def _observed(observer: events.Observer) -> Iterator[None]:
    events.subscribe(observer)
    try:
        yield
    finally:
        events.unsubscribe(observer)
