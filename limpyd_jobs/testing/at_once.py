"""Queues that run their jobs at once: `add_job` returns when the job has run."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, nullcontext
from contextvars import ContextVar
from functools import partial, wraps
from threading import Lock
from typing import Any

from limpyd_jobs.classes.awaitable import awaitable, in_thread
from limpyd_jobs.models import Job, queue_name
from limpyd_jobs.testing.running import LIMIT, check_options, is_busy, queue_of, run_added, status_of
from limpyd_jobs.workers import Worker

ORIGINALS: dict[str, Any] = {name: vars(Job)[name] for name in ("add_job", "add_jobs", "aadd_job", "aadd_jobs")}


@contextmanager
def jobs_at_once(
    raise_errors: bool = True, limit: int = LIMIT, worker_class: type[Worker] = Worker, **options: Any
) -> Iterator[None]:
    """Inside the block, let `add_job` and `add_jobs` run what they add, in this process, before they return; and so
    their awaitable forms, in a thread.

    If a running job adds a job, that job is run when the running one has ended, still before the first call returns.
    Each job is run once: a job that is put back in a queue waits there. Delayed jobs, and jobs in paused queues, are
    left alone. Of several such blocks, the one that began last counts. Each thread runs the jobs that it adds; one that
    another thread runs already is left to that thread.

    >>> with jobs_at_once():
    ...     job = SendMail.add_job("welcome:42", to="ann@example.com")

    Parameters
    ----------
    raise_errors: bool
        Whether the call raises the exception of the first job that raised one, even if that job will be tried again.
        All other jobs are run before that.
    limit: int
        How many jobs may be run by one call.
    worker_class: type of Worker
    **options
        Parameters of the worker, such as ``retry_policy``.

    Raises
    ------
    AssertionError
        If a call leads to more jobs than the limit. It is raised by the call.
    TypeError
        If there is no such parameter.
    """
    check_options(worker_class, options, ("raise_errors", "limit"))
    adding = _Adding(raise_errors, limit, worker_class, options)
    _blocks.begin(adding)
    try:
        yield
    finally:
        _blocks.end(adding)


class _Blocks:
    """The blocks that have begun and not ended. They may end in any order."""

    def __init__(self) -> None:
        self._all: list[_Adding] = []
        self._before: dict[str, Any] = {}
        self._lock = Lock()

    def begin(self, adding: _Adding) -> None:
        with self._lock:
            if not self._all:
                self._before = {name: vars(Job)[name] for name in ORIGINALS}
                replaced: dict[str, Any] = {
                    "add_job": _add_job,
                    "add_jobs": _add_jobs,
                    "aadd_job": aadd_job,
                    "aadd_jobs": aadd_jobs,
                }
                self._replace({name: classmethod(method) for name, method in replaced.items()})
            self._all.append(adding)

    def end(self, adding: _Adding) -> None:
        with self._lock:
            self._all.remove(adding)
            if not self._all:
                self._replace(self._before)

    def last(self) -> _Adding | None:
        return self._all[-1] if self._all else None

    @staticmethod
    def _replace(methods: dict[str, Any]) -> None:
        for name, method in methods.items():
            setattr(Job, name, method)


_blocks = _Blocks()


@wraps(ORIGINALS["add_job"].__func__)  # whose signature others ask for
def _add_job(cls: type[Job], *args: Any, **kwargs: Any) -> Job:
    adding = _blocks.last()
    job: Job = ORIGINALS["add_job"].__func__(cls, *args, **kwargs)
    if adding:
        adding.added([job])
    return job


@wraps(ORIGINALS["add_jobs"].__func__)
def _add_jobs(cls: type[Job], *args: Any, **kwargs: Any) -> list[Job]:
    adding = _blocks.last()
    with adding.together() if adding else nullcontext(deque[Job]()) as others:
        jobs: list[Job] = ORIGINALS["add_jobs"].__func__(cls, *args, **kwargs)
    if adding:
        adding.added([*others, *jobs])
    return jobs


@awaitable
async def aadd_job(cls: type[Job], *args: Any, **kwargs: Any) -> Job:
    """Do as `add_job` in such a block."""
    return await in_thread(partial(_add_job, cls, *args, **kwargs))


@awaitable
async def aadd_jobs(cls: type[Job], *args: Any, **kwargs: Any) -> list[Job]:
    """Do as `add_jobs` in such a block."""
    return await in_thread(partial(_add_jobs, cls, *args, **kwargs))


class _Adding:
    """Runs the jobs that a call adds one after the other, however it adds them. Each thread does so for itself; the
    coroutines of the jobs that it runs belong to it."""

    def __init__(self, raise_errors: bool, limit: int, worker_class: type[Worker], options: dict[str, Any]) -> None:
        self._raise_errors, self._limit = raise_errors, limit
        self._worker_class, self._options = worker_class, options
        # The jobs that the call under way, if there is one, still has to run.
        self._waiting: ContextVar[deque[Job] | None] = ContextVar("limpyd_jobs_testing_waiting", default=None)

    @contextmanager
    def together(self) -> Iterator[deque[Job]]:
        """Collect the jobs that are added inside the block."""
        waiting = self._waiting.get()
        waiting = deque() if waiting is None else waiting
        token = self._waiting.set(waiting)
        try:
            yield waiting
        finally:
            self._waiting.reset(token)

    def added(self, jobs: Iterable[Job]) -> None:
        """Run jobs that were added, and those that they add; or leave that to the call that is doing so already."""
        waiting = self._waiting.get()
        if waiting is not None:
            waiting.extend(jobs)
        if waiting is not None or is_busy():
            return
        failures: list[BaseException] = []
        with self.together() as waiting:
            waiting.extend(jobs)
            for number in range(self._limit + 1):
                job = self._next(waiting)
                if job is None:
                    break
                assert number < self._limit, f"More than {self._limit} jobs were added by one call: give a higher limit"
                outcome = run_added(job, False, self._worker_class, **self._options)
                if outcome.exception is not None:
                    failures.append(outcome.exception)
        if failures and self._raise_errors:
            raise failures[0]

    @staticmethod
    def _next(waiting: deque[Job]) -> Job | None:
        """Return the next job that waits in a queue that is not paused."""
        while waiting:
            job = waiting.popleft()
            queue = queue_of(job)
            if status_of(job) == "WAITING" and queue_name(queue) not in type(queue).get_paused_names():
                return job
        return None
