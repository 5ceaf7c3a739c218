"""Following the output of a job under asyncio."""

from __future__ import annotations

import asyncio
from math import inf
from time import monotonic
from typing import Self

from redis.exceptions import RedisError

from limpyd_jobs.models.following.changes import FIRST_RETRY, MAX_RETRY, checked_timeout, is_interruption
from limpyd_jobs.models.following.output import Chunk, Following, Place
from limpyd_jobs.models.following.waiting import deadline_of
from limpyd_jobs.redis.awaiting import finished, in_thread


class AwaitedOutput(Following):
    """Do as `Output`, by ``async for``, under asyncio: see :doc:`/howto/asyncio`. Only one task may iterate at a time.
    The task may be canceled: what came is there the next time. To leave before the end of the job, use ``async with``,
    or `aclose`."""

    def __init__(self, place: Place, after: str | None = None, timeout: float | None = None) -> None:
        super().__init__(place, after, timeout)
        self._event = asyncio.Event()

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> Chunk:
        if not self._waiting:
            self._waiting.extend(await self.read())
        if not self._waiting:
            raise StopAsyncIteration
        return self._waiting.popleft()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *exc_info: object) -> None:
        await self.aclose()

    async def read(self, timeout: float | None = None) -> list[Chunk]:
        """Wait for chunks and return them: see `Output.read`."""
        deadline, pause = deadline_of(self._timeout if timeout is None else checked_timeout(timeout)), FIRST_RETRY
        if self._is_cut_off(asyncio.get_running_loop().call_soon_threadsafe):
            self._event = asyncio.Event()
        while not (self.has_ended or self.is_closed):
            self._event.clear()
            found = self._taken() if self._follower else []
            if not found and (self._has_to_look or not self._follower):
                try:
                    found, self.has_ended = await finished(self._look())
                except RedisError as error:
                    if not is_interruption(error):
                        raise
                    if monotonic() >= deadline:
                        return []
                    await asyncio.sleep(max(0, min(pause, deadline - monotonic())))
                    pause = min(2 * pause, MAX_RETRY)
                    continue
            if self.has_ended:
                self._stop_following()
            if found or self.has_ended:
                return found
            if self._has_to_look:
                continue
            if not self._follower:
                if monotonic() >= deadline:
                    return []
                await self._begin()
            elif not await self._came(deadline):
                return []
        return []

    async def aclose(self) -> None:
        """End the iteration, also of another task."""
        self.is_closed = True
        self._stop_following()
        self._event.set()

    async def _begin(self) -> None:
        call = asyncio.get_running_loop().call_soon_threadsafe
        await in_thread(lambda: self._begin_following(self._event.set, call))
        self._has_to_look = True  # for what came meanwhile

    async def _came(self, deadline: float) -> bool:
        try:
            async with asyncio.timeout(None if deadline == inf else max(deadline - monotonic(), 0)):
                await self._event.wait()
        except TimeoutError:
            return False
        return True
