"""Where the code of jobs runs: in threads, and in the steps of coroutines; and waking the thread of the worker."""

from __future__ import annotations

import os
import select
from asyncio import AbstractEventLoop, Task
from collections.abc import Callable, Collection, Coroutine, Generator, Iterator
from concurrent.futures import Future
from contextlib import contextmanager, suppress
from functools import partial
from time import monotonic
from typing import Any

from limpyd_jobs.models.functions.current import running_job
from limpyd_jobs.redis.forks import end_child, this_process
from limpyd_jobs.threads import DaemonThreads

BROKEN = "The pipe that wakes the worker is closed (the code of a job may have closed its files)"


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


class BrokenBell(Exception):
    """No other thread can wake this one any more."""


class Bell:
    """Any thread, and a signal handler, may ring it; one thread waits for it, and for descriptors."""

    def __init__(self) -> None:
        self._read = self._write = -1
        self._has_rung = True  # as long as it is not there

    def open(self) -> None:
        """Make it ready, in the process that will wait for it."""
        self._read, self._write = os.pipe()
        os.set_blocking(self._write, False)
        self._file = os.fstat(self._read)
        self._has_rung = False

    def ring(self) -> None:
        """End the wait, or the next one."""
        if not self._has_rung:
            self._has_rung = True
            with suppress(OSError):
                os.write(self._write, b"\0")

    def wait(self, seconds: float, *others: Any) -> bool:
        """Wait until it rings, another descriptor can be read, or for some seconds; return whether it rang.

        Raises
        ------
        BrokenBell
        """
        ready = _ready((self._read, *others), seconds)
        if not ready:
            self._check()
        if self._read not in ready:
            return False
        try:
            heard = os.read(self._read, 4096)
        except OSError:
            heard = b""
        if heard.strip(b"\0") or not heard:
            raise BrokenBell(BROKEN)
        self._has_rung = False  # later than that: who rang before this line put its news before
        return True

    def _check(self) -> None:
        """Raise `BrokenBell` if its file is closed, or another one has its number now."""
        try:
            is_same = os.path.samestat(os.fstat(self._read), self._file)
        except OSError:
            is_same = False
        if not is_same:
            raise BrokenBell(BROKEN)

    def __del__(self) -> None:  # no thread can ring it any more
        if self._read >= 0:
            os.close(self._read)
            os.close(self._write)


def can_read(descriptor: Any) -> bool:
    """Whether there is something to read."""
    return bool(_ready((descriptor,), 0))


def _ready(descriptors: tuple[Any, ...], seconds: float) -> list[int]:
    numbers = [each if isinstance(each, int) else each.fileno() for each in descriptors]
    if not hasattr(select, "poll"):
        return select.select(numbers, (), (), seconds)[0]
    poll = select.poll()
    for number in numbers:
        poll.register(number, select.POLLIN)
    return [number for number, _ in poll.poll(seconds * 1000)]
