"""The output of a job, as server-sent events: what its code emits, as it comes."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable
from functools import partial
from typing import Any

from starlette.responses import Response, StreamingResponse

from limpyd_jobs.contrib.web.masking import HIDDEN, Mask
from limpyd_jobs.contrib.web.protocol import Asked
from limpyd_jobs.contrib.web.refusals import Refusal
from limpyd_jobs.integration import Ident
from limpyd_jobs.query import ajob_output, job_output

# How many may follow at once; for how many seconds one stream goes on: then the browser asks anew, and shows again who
# it is; and after how many seconds without a chunk it is told that the stream is there.
MAX_FOLLOWERS, STREAM_LASTS, KEEP_ALIVE = 500, 600.0, 15.0

# After how many milliseconds a browser asks anew if the stream is cut off, or cannot go on.
RETRY = "retry: 2000\n\n"

KIND = "text/event-stream"

# Proxies must not hold a stream back, or keep it.
HEADERS = {"X-Accel-Buffering": "no", "Cache-Control": "no-store"}

InThread = Callable[[Callable[[], Any]], Awaitable[Any]]


class OutputOfJobs:
    """Sends the output of jobs.

    Parameters
    ----------
    in_thread: coroutine function
        Calls a function in a thread.
    """

    def __init__(self, in_thread: InThread) -> None:
        self._in_thread = in_thread
        self._followed: set[Any] = set()
        self._ending: list[asyncio.Future[None]] = []

    async def answer(self, asked: Asked, after: str, *, is_short: bool) -> Response:
        """Answer with the chunks after one, and those that come; or only with those that there are.

        Each event has the id of the chunk, and, as JSON, its ``value`` and ``run``. The event ``end`` says that the job
        has ended. Whoever asks again then gets 204, so that browsers ask no more.
        """
        ident = asked.path["ident"]
        mask: Mask = await self._in_thread(partial(asked.masking.of, Ident.of(ident).path))
        follow = partial(job_output if is_short else ajob_output, ident, asked.database, after or None)
        if is_short:
            return await self._in_thread(partial(_all_now, follow, mask, bool(after)))
        if len(self._followed) >= MAX_FOLLOWERS:
            raise Refusal(503, f"{MAX_FOLLOWERS} browsers follow already: try again later")
        output = await self._in_thread(follow)
        first = await output.read(0)
        if after and not first and output.has_ended:
            return Response(status_code=204)
        return StreamingResponse(self._events(output, first, mask), headers=HEADERS, media_type=KIND)

    def end(self) -> None:
        """End all streams."""
        self._ending = [asyncio.ensure_future(output.aclose()) for output in self._followed]

    async def _events(self, output: Any, chunks: Iterable[Any], mask: Mask) -> AsyncIterator[str]:
        self._followed.add(output)
        until = asyncio.get_running_loop().time() + STREAM_LASTS
        try:
            yield RETRY
            while not output.is_closed and asyncio.get_running_loop().time() < until:
                yield "".join(_event(chunk, mask) for chunk in chunks) or ": still here\n\n"
                if output.has_ended:
                    yield _END
                    return
                chunks = await output.read(KEEP_ALIVE)
        finally:
            self._followed.discard(output)
            await output.aclose()


_END = "event: end\ndata: {}\n\n"


def _all_now(follow: Callable[[], Any], mask: Mask, is_again: bool) -> Response:
    """Return what there is."""
    output = follow()
    text = ""
    with output:
        while chunks := output.read(0):
            text += "".join(_event(chunk, mask) for chunk in chunks)
    if is_again and not text and output.has_ended:
        return Response(status_code=204)
    return Response(RETRY + text + (_END if output.has_ended else ""), headers=HEADERS, media_type=KIND)


def _event(chunk: Any, mask: Mask) -> str:
    value = HIDDEN if mask.is_secret("output") else mask.value(chunk.value)
    return f"id: {chunk.id}\ndata: {_json({'value': value, 'run': chunk.run})}\n\n"


def _json(data: dict[str, Any]) -> str:
    """Return data as JSON that browsers read, in ASCII. Other programs may have written numbers that JSON has not, and
    halves of characters."""
    try:
        return json.dumps(data, allow_nan=False)
    except ValueError:
        return json.dumps({**data, "value": str(data["value"])})
