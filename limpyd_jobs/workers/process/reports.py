"""What the children of a pool report to their parent, through one pipe."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import suppress
from struct import Struct
from typing import NamedTuple

# How a report is written: at once, so those of several children do not mix.
_FORM = Struct("=qq????200s")

Health = tuple[bool, bool, str]  # whether a worker is alive and ready, and why not


class Report(NamedTuple):
    """What a child reports: that it is ready, or that it ends; or how healthy it is."""

    pid: int
    jobs: int = 0  # how many it has run, if it ends
    is_done: bool = False  # whether it ends as no job is left, or was asked to stop: no other process follows
    health: Health | None = None


class Reports:
    """The pipe from the children of a pool to their parent. A child waits if the parent takes no reports for long."""

    def __init__(self) -> None:
        self.inbox, self._outbox = os.pipe()
        os.set_blocking(self.inbox, False)

    def take(self) -> Iterator[Report]:
        """Yield the reports that are there."""
        with suppress(BlockingIOError):
            while True:
                for pid, jobs, is_done, *health, reason in _FORM.iter_unpack(os.read(self.inbox, _FORM.size * 100)):
                    is_of_health, is_live, is_ready = health
                    text = reason.rstrip(b"\0").decode(errors="ignore")
                    yield Report(pid, jobs, is_done, (is_live, is_ready, text) if is_of_health else None)

    def close(self) -> None:
        """Close both ends."""
        self.leave_parent()
        os.close(self._outbox)

    # -- In a child

    def leave_parent(self) -> None:
        """Close the end of the parent."""
        os.close(self.inbox)

    def send(self, jobs: int = 0, is_done: bool = False, health: Health | None = None) -> None:
        """Report something, unless the parent has ended."""
        is_live, is_ready, reason = health or (False, False, "")
        values = jobs, is_done, health is not None, is_live, is_ready, reason.encode()[:200]
        with suppress(BrokenPipeError):
            os.write(self._outbox, _FORM.pack(os.getpid(), *values))

    def send_health(self, health: Health) -> None:
        """Report how healthy the worker is."""
        self.send(health=health)
