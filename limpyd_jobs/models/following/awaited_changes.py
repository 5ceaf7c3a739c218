"""Changes of jobs and of other records under asyncio."""

from __future__ import annotations

import asyncio
import logging
import random
import weakref
from collections import deque
from collections.abc import Callable, Iterable
from contextlib import suppress
from itertools import count
from time import monotonic
from typing import Any, Generic, Self

from limpyd.model import RedisModel
from redis.exceptions import RedisError, ResponseError

from limpyd_jobs.models.following.changes import (
    FIRST_RETRY,
    MAX_RETRY,
    AChange,
    Position,
    checked_timeout,
    is_interruption,
    refusing_other_keys,
    slice_of,
)
from limpyd_jobs.models.following.waiting import deadline_of
from limpyd_jobs.redis.awaiting import finished
from limpyd_jobs.redis.lines import close_line, line_to, running_loop
from limpyd_jobs.texts import described

_numbers = count(1)

log = logging.getLogger("limpyd-jobs.changes")


class AwaitedChanges(Generic[AChange]):
    """An asynchronous iterator over changes, from the moment at which it is entered by ``async with``, or else at which
    the first one is asked for.

    It ends if no change comes for some time. You may iterate over it again: it goes on where it was, also if Redis
    failed meanwhile, or the task was canceled. Only one task may iterate at a time. It has a connection of its own,
    until the end of ``async with``, or `aclose`.

    Attributes
    ----------
    failure: Exception
        Why Redis could not be asked the last time; None if it answered.

    Parameters and exceptions: as `limpyd_jobs.models.following.changes.Changes` has them. The names of the keys are
    checked when they are first read.
    """

    def __init__(
        self,
        models: Iterable[type[RedisModel]],
        timeout: float | None = None,
        since: str | None = None,
        wants: Callable[[Any], bool] = lambda change: True,
    ) -> None:
        self._position = Position(models, since, wants)
        self._timeout = checked_timeout(timeout)
        self._slice = slice_of(self._position.client())
        self._waiting: deque[Any] = deque()
        self._delay = FIRST_RETRY
        self._purpose = f"changes {next(_numbers)}"
        self._finalize: Callable[[], object] | None = None
        self._is_closed = False
        self.failure: Exception | None = None

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> AChange:
        if not self._waiting:
            self._waiting.extend(await self.read())
        if not self._waiting:
            raise StopAsyncIteration
        return self._waiting.popleft()

    async def __aenter__(self) -> Self:
        await self._begin()
        return self

    async def __aexit__(self, *exc_info: object) -> None:
        await self.aclose()

    async def read(self, timeout: float | None = None) -> list[AChange]:
        """Wait for changes and return them. The result is empty if none came in time, or after `aclose`.

        Parameters
        ----------
        timeout: float
            For how many seconds to wait; None for the timeout with which it was made.
        """
        timeout = self._timeout if timeout is None else checked_timeout(timeout)
        end = deadline_of(timeout)
        while not self._is_closed:
            left = end - monotonic()
            found = await self._read_once(left)
            if found or left <= 0:
                return found
        return []

    async def aclose(self) -> None:
        """End the iteration, also of another task, and close the connection."""
        self._is_closed = True
        if self._finalize:
            self._finalize()
            await asyncio.sleep(0)

    async def _begin(self) -> None:
        for key in self._position.unknown:
            with refusing_other_keys("a stream", key):
                self._position.begin(key, await self._send("XREVRANGE", key, "+", "-", "COUNT", 1))

    async def _send(self, *command: Any) -> Any:
        client = self._position.client()
        line = line_to(client, self._purpose)
        if self._finalize is None:
            where = client.connection_pool, self._purpose
            self._finalize = weakref.finalize(self, _close_soon, running_loop(), *where)
        (reply,) = await line.execute(command)
        if isinstance(reply, ResponseError):
            raise reply
        return reply

    async def _read_once(self, seconds: float) -> list[Any]:
        try:
            await self._begin()
            with refusing_other_keys("a stream", *self._position.models):
                milliseconds = max(1, int(1000 * min(self._slice, seconds)))
                reply = await self._send(*self._position.question(milliseconds))
            found = await finished(self._position.wanted(reply))
        except RedisError as error:
            if self._is_closed:
                return []
            if not is_interruption(error):
                raise
            log.warning("Changes cannot be read, trying again: %s", described(error))
            self.failure = error
            await asyncio.sleep(max(0, min(self._delay * random.uniform(0.5, 1), seconds)))
            self._delay = min(2 * self._delay, MAX_RETRY)
            return []
        self._delay, self.failure = FIRST_RETRY, None
        return found


def _close_soon(loop: asyncio.AbstractEventLoop, pool: Any, purpose: str) -> None:
    with suppress(RuntimeError):  # the loop is closed
        loop.call_soon_threadsafe(close_line, pool, purpose)
