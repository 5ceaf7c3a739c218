"""Connections of the server of ``limpyd-jobs web``: one on which no request comes, or no answer is read, is closed."""

from __future__ import annotations

from asyncio import TimerHandle
from typing import Any

from uvicorn.protocols.http.auto import AutoHTTPProtocol

# In about how many seconds a request has to arrive, and how many connections may wait for one at once.
ARRIVES_WITHIN, MAX_SILENT = 10.0, 500

# For how many seconds an answer may wait for whoever asked to read on. A stream that is not read would keep its place.
READS_WITHIN = 60.0

_Base: Any = AutoHTTPProtocol


class Connection(_Base):  # type: ignore[misc]
    """Closes itself if no whole request arrives in time, or its answer is not read; or if too many others wait for a
    request: then the oldest gives way. So it does if a request is answered before all of it is there."""

    silent: dict[Connection, None] = {}  # in the order of their beginning
    _unread: TimerHandle | None = None

    def connection_made(self, transport: Any) -> None:
        super().connection_made(transport)
        self.silent[self] = None
        if len(self.silent) > MAX_SILENT:
            next(iter(self.silent))._give_way()
        self._look_later()

    def data_received(self, data: bytes) -> None:
        super().data_received(data)
        if self.cycle:
            self.silent.pop(self, None)

    def connection_lost(self, exc: Exception | None) -> None:
        self.silent.pop(self, None)
        self._timer.cancel()
        self._is_read()
        super().connection_lost(exc)

    def on_response_complete(self) -> None:
        """End the connection if the rest of the request is still to come: it would keep its place until then."""
        is_unread = self.cycle is not None and self.cycle.more_body
        super().on_response_complete()
        if is_unread:
            self._give_way()

    def pause_writing(self) -> None:
        super().pause_writing()
        self._unread = self.loop.call_later(READS_WITHIN, self.transport.abort)

    def resume_writing(self) -> None:
        self._is_read()
        super().resume_writing()

    def _is_read(self) -> None:
        if self._unread:
            self._unread.cancel()

    def _look_later(self) -> None:
        self._timer = self.loop.call_later(ARRIVES_WITHIN, self._look, self.cycle)

    def _look(self, before: Any) -> None:
        """Close it if it waits for the same request as before."""
        is_waiting = before is None or before.response_complete or before.more_body
        if self.cycle is before and is_waiting:
            self._give_way()
        else:
            self._look_later()

    def _give_way(self) -> None:
        self.silent.pop(self, None)
        self.transport.close()
