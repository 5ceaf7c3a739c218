"""One look at Redis, again and again, for all who watch: whether one or fifty, it costs Redis the same."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import suppress
from threading import Lock
from time import monotonic
from typing import Generic, TypeVar

from limpyd_jobs.contrib.web.refusals import Refusal

T = TypeVar("T")

# How many seconds lie between two looks, how many may watch, and for how many seconds one stream goes on: then the
# browser asks anew, and shows again who it is.
EVERY, MAX_WATCHERS, STREAM_LASTS = 2.0, 500, 600.0


class Recent(Generic[T]):
    """Calls a function, and returns the same again for some seconds. Threads that ask meanwhile wait for it."""

    def __init__(self, look: Callable[[], T], seconds: float) -> None:
        self._look, self._seconds = look, seconds
        self._lock = Lock()
        self._last: tuple[float, T] | None = None

    def __call__(self) -> T:
        with self._lock:
            if self._last is None or monotonic() - self._last[0] >= self._seconds:
                found = self._look()
                self._last = (monotonic(), found)  # from its end on: a look may take longer than that
            return self._last[1]


class Sampler(Generic[T]):
    """Calls a coroutine function every few seconds while a browser watches, and gives each what it returned last."""

    def __init__(self, look: Callable[[], Awaitable[T]], every: float = EVERY) -> None:
        self._look, self._every = look, every
        self._watchers: set[asyncio.Queue[T | None]] = set()
        self._task: asyncio.Task[None] | None = None

    @property
    def is_looking(self) -> bool:
        return self._task is not None and not self._task.done()

    async def watch(self) -> AsyncGenerator[T, None]:
        """Yield each sample, from now on. Who is slow misses some; nothing is kept for them."""
        if len(self._watchers) >= MAX_WATCHERS:
            raise Refusal(503, f"{MAX_WATCHERS} browsers watch already: load the page again later")
        queue: asyncio.Queue[T | None] = asyncio.Queue(1)
        self._watchers.add(queue)
        try:
            if not self.is_looking:
                self._task = asyncio.create_task(self._run())
            until = asyncio.get_running_loop().time() + STREAM_LASTS
            while (sample := await queue.get()) is not None:
                yield sample
                if asyncio.get_running_loop().time() >= until:
                    return
        finally:
            self._watchers.discard(queue)
            if not self._watchers:
                self._stop()

    def end(self) -> None:
        """End the streams of all who watch."""
        self._give(None)

    def _give(self, sample: T | None) -> None:
        for queue in self._watchers:
            with suppress(asyncio.QueueEmpty):
                queue.get_nowait()
            queue.put_nowait(sample)

    def _stop(self) -> None:
        """Look no more."""
        if self._task is not None:
            self._task.cancel()
            self._task = None

    async def _run(self) -> None:
        while self._watchers:
            self._give(await self._look())
            await asyncio.sleep(self._every)
