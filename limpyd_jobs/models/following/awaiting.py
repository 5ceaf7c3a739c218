"""Ends and results of jobs under asyncio.

All tasks of a loop that wait for jobs of a model share a listener.
"""

from __future__ import annotations

import asyncio
import logging
import weakref
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress
from math import inf
from time import monotonic
from typing import Any

from limpyd.model import RedisModel
from redis.exceptions import RedisError

from limpyd_jobs.models.following.awaited_changes import AwaitedChanges
from limpyd_jobs.models.following.changes import (
    CHANGES_WAIT,
    FIRST_RETRY,
    MAX_RETRY,
    check_notifies,
    checked_timeout,
    is_transient,
)
from limpyd_jobs.models.following.results import checked_wait, not_ended, not_known, outcome, read
from limpyd_jobs.models.following.waiting import FINAL, deadline_of, ended_of, has_ended
from limpyd_jobs.records.lazy_fields import pk_of
from limpyd_jobs.records.records import redis_of
from limpyd_jobs.redis.awaiting import finished
from limpyd_jobs.redis.lines import running_loop
from limpyd_jobs.texts import described

log = logging.getLogger("limpyd-jobs.changes")


class _Listener:
    """Reads the changes of the jobs of a model, in a task of its own, as long as any task of its loop waits."""

    def __init__(self, model: type[RedisModel], forget: Callable[[], object]) -> None:
        self._model, self._forget = model, forget
        self._waiting: dict[str, list[asyncio.Future[bool]]] = {}
        self._changes: AwaitedChanges | None = None
        self.listens = asyncio.Event()  # set once each change that comes is read
        self._task = asyncio.create_task(self._run(), name=f"limpyd-jobs-listener-{model.__name__}")

    @property
    def reaches_redis(self) -> bool:
        """Whether Redis answered the last time."""
        return self._changes is not None and self._changes.failure is None

    @asynccontextmanager
    async def waiting(self, pk: str) -> AsyncIterator[asyncio.Future[bool]]:
        """Wait for the end of a job inside the block: the future is done then."""
        woken: asyncio.Future[bool] = asyncio.get_running_loop().create_future()
        self._waiting.setdefault(pk, []).append(woken)
        try:
            yield woken
        finally:
            if not woken.cancel() and not woken.cancelled():
                woken.exception()  # the task may have been canceled meanwhile
            with suppress(KeyError, ValueError):  # it was woken
                self._waiting[pk].remove(woken)
                if not self._waiting[pk]:
                    del self._waiting[pk]
            if not self._waiting:
                self._forget()
                self._task.cancel()

    async def _run(self) -> None:
        pause = FIRST_RETRY
        while True:
            try:
                await self._listen()
            except Exception as error:
                if not is_transient(error):
                    self._fail(error)
                    return
                self._changes = None
                log.warning("Changes cannot be read, trying again: %s", described(error))
                await asyncio.sleep(pause)
                pause = min(2 * pause, MAX_RETRY)

    async def _listen(self) -> None:
        async with AwaitedChanges([self._model], wants=self._is_awaited) as changes:
            await self._wake_ended()
            self._changes, looked_at = changes, monotonic()
            self.listens.set()
            while True:
                for change in await changes.read(CHANGES_WAIT):
                    self._wake(change.pk)
                if monotonic() - looked_at > CHANGES_WAIT:  # a worker of version 2 tells nothing
                    await self._wake_ended()
                    looked_at = monotonic()

    def _is_awaited(self, change: Any) -> bool:
        return change.pk in self._waiting and (change.what == "deleted" or change.status in FINAL)

    async def _wake_ended(self) -> None:
        for pk in await finished(ended_of(self._model, list(self._waiting))):
            self._wake(pk)

    def _wake(self, pk: str) -> None:
        for woken in self._waiting.pop(pk, ()):
            if not woken.done():
                woken.set_result(True)

    def _fail(self, error: Exception) -> None:
        self._forget()
        waiting, self._waiting = self._waiting, {}
        for woken in (each for some in waiting.values() for each in some):
            if not woken.done():
                woken.set_exception(error)
        self.listens.set()


# The listeners of each loop, by the model and the pool of its database: which may be moved.
_listeners: weakref.WeakKeyDictionary[asyncio.AbstractEventLoop, dict[Any, _Listener]] = weakref.WeakKeyDictionary()


def _listener_of(model: type[RedisModel]) -> _Listener:
    listeners = _listeners.setdefault(running_loop(), {})
    key = (model, redis_of(model).connection_pool)
    if key not in listeners:
        listeners[key] = listener = _Listener(model, lambda: _forget(listeners, key, listener))
    return listeners[key]


def _forget(listeners: dict[Any, _Listener], key: Any, listener: _Listener) -> None:
    if listeners.get(key) is listener:
        del listeners[key]


async def wait_for_end(job: RedisModel, timeout: float | None = None) -> bool | None:
    """Do what `Job.wait` says; return None instead of False if Redis does not answer when the time is over."""
    model, pk, timeout = type(job), pk_of(job), checked_timeout(timeout)
    check_notifies(model)
    if timeout == 0:
        return await finished(has_ended(model, pk))
    listener = _listener_of(model)
    async with listener.waiting(pk) as woken:
        asked = asyncio.create_task(_ask_once(listener, model, pk, woken))
        try:
            await asyncio.wait([woken], timeout=None if timeout is None or timeout == inf else timeout)
        finally:
            asked.cancel()
        if woken.done():
            return woken.result()
        return False if listener.reaches_redis else None


async def _ask_once(listener: _Listener, model: type[RedisModel], pk: str, woken: asyncio.Future[bool]) -> None:
    """Ask whether the job has ended already, once each later change is read."""
    await listener.listens.wait()
    try:
        if not woken.done() and await finished(has_ended(model, pk)) and not woken.done():
            woken.set_result(True)
    except Exception as error:
        if not is_transient(error) and not woken.done():  # else the listener asks again
            woken.set_exception(error)


async def result_of(job: Any, timeout: float | None, error_model: Any) -> Any:
    """Do what `Job.result` says."""
    timeout = checked_wait(job, timeout)
    if timeout == 0:
        return outcome(job, await finished(read(job, error_model)))
    deadline = deadline_of(timeout)
    if await wait_for_end(job, timeout) is False:
        raise not_ended(job, timeout)
    pause = FIRST_RETRY
    while True:
        try:
            return outcome(job, await finished(read(job, error_model)))
        except RedisError as error:
            if not is_transient(error):
                raise
            if monotonic() >= deadline:
                raise not_known(job, timeout, error) from error
        await asyncio.sleep(max(0, min(pause, deadline - monotonic())))
        pause = min(2 * pause, MAX_RETRY)
