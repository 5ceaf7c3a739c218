"""The live part of the overview: one look at the database, drawn once, for all who watch."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable
from contextlib import aclosing, suppress
from dataclasses import replace
from functools import partial
from typing import Any, Generic, NamedTuple, TypeVar

from starlette.responses import HTMLResponse, Response, StreamingResponse

from limpyd_jobs.contrib.web.kept import Recent
from limpyd_jobs.contrib.web.pages.overview import OverviewShown, Trouble
from limpyd_jobs.contrib.web.pictures.looks import HOUR
from limpyd_jobs.contrib.web.refusals import Refusal, refusal_of
from limpyd_jobs.contrib.web.rendering import render
from limpyd_jobs.query import SPANS

log = logging.getLogger("limpyd-jobs.web")

T = TypeVar("T")

# How many seconds lie between two looks, how many may watch, and for how many seconds one stream goes on: then the
# browser asks anew, and shows again who it is.
EVERY, MAX_WATCHERS, STREAM_LASTS = 2.0, 500, 600.0

# How old what pages show of the state of the database may be, in seconds.
TROUBLE_FOR = 10.0

# For how many seconds the lanes of other times than the last hour are shown again.
LANES_FOR = 60.0

# The overview; or a sentence that says why there is none.
Sample = OverviewShown | str

# Proxies must not hold a stream back.
HEADERS = {"X-Accel-Buffering": "no"}

InThread = Callable[[Callable[[], Any]], Awaitable[Any]]


class To(NamedTuple):
    """For whom it is drawn: where the dashboard is mounted, whether the user may act, of which time the lanes are."""

    root: str
    acts: bool
    span: str


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


class Live:
    """Sends the live part, again and again or once.

    Parameters
    ----------
    look: callable
        Looks at the database.
    in_thread: coroutine function
        Calls a function in a thread.
    """

    def __init__(self, look: Callable[..., OverviewShown], in_thread: InThread) -> None:
        self._look, self._in_thread = look, in_thread
        self._recent = Recent(self._sample, EVERY / 2)
        self._sampler: Sampler[Sample] = Sampler(partial(in_thread, self._recent))
        self._lanes = {span: Recent(partial(self._sample, span), LANES_FOR) for span in SPANS if span != HOUR}
        self._drawn: tuple[Sample, dict[To, str]] | None = None

    async def once(self, to: To) -> Response:
        """Answer whoever asks every few seconds."""
        return HTMLResponse(await self._fragment(await self._in_thread(self._recent), to))

    async def trouble(self) -> Trouble:
        """Return what every page shows of the state, as it was some seconds ago at most; nothing if it is not known."""
        sample = await self._in_thread(partial(self._recent, TROUBLE_FOR))
        return Trouble() if isinstance(sample, str) else sample.trouble

    async def stream(self, to: To) -> Response:
        """Answer with a stream of server-sent events."""
        samples = self._sampler.watch()
        first = await anext(samples)
        return StreamingResponse(self._events(first, samples, to), headers=HEADERS, media_type="text/event-stream")

    def end(self) -> None:
        """End all streams."""
        self._sampler.end()

    async def _events(self, first: Sample, samples: AsyncGenerator[Sample, None], to: To) -> AsyncIterator[str]:
        async with aclosing(samples):
            yield await self._event(first, to)
            async for sample in samples:
                yield await self._event(sample, to)

    async def _event(self, sample: Sample, to: To) -> str:
        return "".join(f"data: {line}\n" for line in (await self._fragment(sample, to)).splitlines()) + "\n"

    async def _fragment(self, sample: Sample, to: To) -> str:
        """Return a sample as HTML, which is made once for all who watch."""
        if self._drawn is None or self._drawn[0] is not sample:
            self._drawn = (sample, {})
        drawn = self._drawn[1]
        if to not in drawn:
            shown = sample
            if not isinstance(sample, str) and to.span != HOUR:
                other = await self._in_thread(self._lanes[to.span])
                shown = other if isinstance(other, str) else replace(sample, strip=other.strip)
            template = "problem.html" if isinstance(shown, str) else "live.html"
            drawn[to] = render(template, to.root, it=shown, acts=to.acts)
        return drawn[to]

    def _sample(self, span: str = HOUR) -> Sample:
        """Look at the database; return a sentence if that cannot be done."""
        try:
            return self._look(span)
        except Exception as error:
            refusal = refusal_of(error)
            if refusal.status == 500:
                log.exception("The overview failed")
            return refusal.text
