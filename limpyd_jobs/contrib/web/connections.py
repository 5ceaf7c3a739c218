"""Connections of the server of ``limpyd-jobs web``: those on which no request comes are closed."""

from __future__ import annotations

from typing import Any

from uvicorn.protocols.http.auto import AutoHTTPProtocol

# In about how many seconds a request has to arrive, and how many connections may wait for one at once.
ARRIVES_WITHIN, MAX_SILENT = 10.0, 500

_Base: Any = AutoHTTPProtocol


class Connection(_Base):  # type: ignore[misc]
    """Closes itself if no whole request arrives in time, or too many others wait for one: then the oldest gives way."""

    silent: dict[Connection, None] = {}  # in the order of their beginning

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
        super().connection_lost(exc)

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
