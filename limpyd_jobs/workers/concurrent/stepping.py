"""The steps of coroutines, from one ``await`` to the next."""

from __future__ import annotations

from asyncio import AbstractEventLoop, Task
from collections.abc import Callable, Coroutine, Generator, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any

from limpyd_jobs.redis.forks import end_child, this_process

# The job whose code runs. The tasks that it makes have it, too.
running_job: ContextVar[Any] = ContextVar("limpyd_jobs_running_job", default=None)


@contextmanager
def code_of(job: Any) -> Iterator[None]:
    """Coroutines that begin to run inside the block are code of a job."""
    token = running_job.set(job)
    try:
        yield
    finally:
        running_job.reset(token)


class Stepped(Coroutine[Any, Any, Any]):
    """A coroutine that ends the process after a step in which its code forked it: the child has a copy of the loop,
    of its timers and of the other jobs, and only the parent may go on with them."""

    __slots__ = ("_coroutine", "_pid", "job")

    def __init__(self, coroutine: Coroutine[Any, Any, Any]) -> None:
        self._coroutine = coroutine
        self._pid = this_process.pid
        self.job = running_job.get()

    def send(self, value: Any) -> Any:
        return self._step(self._coroutine.send, value)

    def throw(self, *error: Any) -> Any:
        try:
            return self._step(self._coroutine.throw, *error)
        finally:
            del error  # it is kept by no frame of its own traceback, as that would be a cycle

    def close(self) -> None:
        self._coroutine.close()

    def __await__(self) -> Generator[Any, Any, Any]:
        return self._coroutine.__await__()

    def __getattr__(self, name: str) -> Any:
        """Return what tasks show of a coroutine: its name, its frame, its code."""
        return getattr(self._coroutine, name)

    def _step(self, step: Callable[..., Any], *values: Any) -> Any:
        try:
            awaited = step(*values)
        except StopIteration:  # its end; it is not kept in a variable, which would be part of a cycle
            del values  # the same: an error that was thrown into it
            if this_process.pid == self._pid:
                raise
        except BaseException:
            if this_process.pid != self._pid:
                end_child()
            del values  # the same
            raise
        else:
            if this_process.pid == self._pid:
                return awaited
        return end_child()


def stepped_task(loop: AbstractEventLoop, coroutine: Any, **options: Any) -> Task[Any]:
    """Make a task of a coroutine; a loop calls it for all its tasks."""
    return Task(Stepped(coroutine), loop=loop, **options)
