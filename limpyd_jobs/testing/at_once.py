"""Queues that run their jobs at once: `add_job` returns when the job has run."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from limpyd_jobs.models import Job, queue_name
from limpyd_jobs.testing.running import LIMIT, is_busy, queue_of, run_added, status_of
from limpyd_jobs.workers import Worker

ORIGINALS: dict[str, Any] = {name: vars(Job)[name] for name in ("add_job", "add_jobs")}


@contextmanager
def jobs_at_once(
    raise_errors: bool = True, limit: int = LIMIT, worker_class: type[Worker] = Worker, **options: Any
) -> Iterator[None]:
    """Inside the block, let `add_job` and `add_jobs` run what they add, in this process, before they return.

    If a running job adds a job, that job is run when the running one has ended, still before the first call returns.
    Each job is run once: a job that is put back in a queue waits there. Delayed jobs, and jobs in paused queues, are
    left alone. Of two such blocks inside each other, the inner one counts.

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
        Parameters of the worker, as ``retry_policy``.

    Raises
    ------
    AssertionError
        If a call leads to more jobs than the limit. It is raised by the call.
    """
    adding = _Adding(raise_errors, limit, worker_class, options)
    before = {name: vars(Job)[name] for name in ORIGINALS}

    def add_job(cls: type[Job], *args: Any, **kwargs: Any) -> Job:
        job: Job = ORIGINALS["add_job"].__func__(cls, *args, **kwargs)
        adding.added([job])
        return job

    def add_jobs(cls: type[Job], *args: Any, **kwargs: Any) -> list[Job]:
        with adding.together():
            jobs: list[Job] = ORIGINALS["add_jobs"].__func__(cls, *args, **kwargs)
        adding.added(jobs)
        return jobs

    try:
        _replace({"add_job": classmethod(add_job), "add_jobs": classmethod(add_jobs)})
        yield
    finally:
        _replace(before)


def _replace(methods: dict[str, Any]) -> None:
    for name, method in methods.items():
        setattr(Job, name, method)


class _Adding:
    """Runs jobs one after the other, however they are added."""

    def __init__(self, raise_errors: bool, limit: int, worker_class: type[Worker], options: dict[str, Any]) -> None:
        self._raise_errors, self._limit = raise_errors, limit
        self._worker_class, self._options = worker_class, options
        self._waiting: deque[Job] = deque()
        self._is_busy = False

    @contextmanager
    def together(self) -> Iterator[None]:
        """Run nothing inside the block."""
        before, self._is_busy = self._is_busy, True
        try:
            yield
        finally:
            self._is_busy = before

    def added(self, jobs: list[Job]) -> None:
        """Run jobs that were added, and those that they add; or leave that to the call that is doing so already."""
        if self._is_busy or not is_busy():
            self._waiting.extend(jobs)
        if self._is_busy or is_busy():
            return
        failures: list[BaseException] = []
        with self.together():
            for number in range(self._limit + 1):
                job = self._next()
                if job is None:
                    break
                assert number < self._limit, f"More than {self._limit} jobs were added by one call: give a higher limit"
                outcome = run_added(job, False, self._worker_class, **self._options)
                if outcome.exception is not None:
                    failures.append(outcome.exception)
        if failures and self._raise_errors:
            raise failures[0]

    def _next(self) -> Job | None:
        """Return the next job that waits in a queue that is not paused."""
        while self._waiting:
            job = self._waiting.popleft()
            queue = queue_of(job)
            if status_of(job) == "WAITING" and queue_name(queue) not in type(queue).get_paused_names():
                return job
        return None
