"""The threads in which the coroutines of jobs let something run, with ``asyncio.to_thread``."""

from __future__ import annotations

from collections.abc import Callable, Collection
from concurrent.futures import Future
from functools import partial
from time import monotonic
from typing import Any

from limpyd_jobs.redis.forks import end_child, this_process
from limpyd_jobs.threads import DaemonThreads
from limpyd_jobs.workers.concurrent.stepping import running_job


class ThreadsOfJobs(DaemonThreads):
    """Knows of which jobs the calls are that hold the threads, and since when."""

    def __init__(self, most: int, name: str) -> None:
        super().__init__(most, name)
        self.most = most
        self._calls: dict[object, Any] = {}  # the jobs whose calls run; any thread may read it
        self._changed = 0.0  # when a call last began or ended

    def submit(self, function: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Future[Any]:
        return super().submit(self._call, running_job.get(), partial(function, *args, **kwargs))

    def _call(self, job: Any, function: Callable[[], Any]) -> Any:
        pid, call = this_process.pid, object()
        self._calls[call], self._changed = job, monotonic()
        try:
            return function()
        finally:
            if this_process.pid != pid:
                end_child()
            self._changed = monotonic()
            self._calls.pop(call, None)

    @property
    def held(self) -> int:
        """How many of them are held by calls."""
        return len(self._calls)

    @property
    def full_for(self) -> float:
        """For how many seconds all have been held by the same calls; 0 if one is free."""
        return monotonic() - self._changed if self.held >= self.most else 0.0

    def held_by_others(self, jobs: Collection[Any]) -> set[object]:
        """Return the calls of other jobs than these."""
        known = {id(job) for job in jobs}
        return {call for call, job in self._calls.copy().items() if job is not None and id(job) not in known}
