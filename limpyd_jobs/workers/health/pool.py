"""Whether all workers of a pool are healthy: each child reports to the parent, which answers for all."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from contextlib import suppress
from struct import Struct
from time import monotonic

from limpyd_jobs.observing.responder import Responder
from limpyd_jobs.workers.health.monitor import LOOK_EVERY
from limpyd_jobs.workers.health.verdict import HealthFile, Verdict, Verdicts, answering, of_all

# What a child tells the parent: its process id, whether it is alive and ready, and why not.
REPORT = Struct("=q??200s")


Place = tuple[int | None, float]  # the pid of the process, None for none, and when it was started


class PoolHealth:
    """Takes the reports of children, and tells whether all are healthy. The parent's loop lets it `serve`; no thread.

    Parameters
    ----------
    places: callable
        Returns the pid, None for none, and the start of each process that there should be.
    stalled_after: float
        For how many seconds a child may report nothing.
    log: callable
        Logs a line.
    port, host, path: int, str, str
        Where to answer probes, and what to write: as the parameters ``health_…`` of a worker.

    Raises
    ------
    ConfigurationException
        If it cannot listen, or write.
    """

    def __init__(
        self,
        places: Callable[[], Sequence[Place]],
        stalled_after: float,
        log: Callable[[str], None],
        port: int | None,
        host: str,
        path: str | None,
    ) -> None:
        self._places, self._stalled_after = places, stalled_after
        self._interval = min(LOOK_EVERY, stalled_after / 4)
        self._reported: dict[int, tuple[float, Verdict]] = {}
        self._file = HealthFile(path) if path else None
        self._responder = None if port is None else Responder(host, port, answering(self.verdicts))
        self._inbox, self._outbox = os.pipe()
        for pipe in (self._inbox, self._outbox):
            os.set_blocking(pipe, False)
        self.due = 0.0  # when to `serve` at the latest
        if self._responder:
            log(f"Health: {self._responder.address}/health")

    # -- In the parent

    @property
    def files(self) -> list[int]:
        """The numbers of the files that are readable when there is something to serve."""
        return [self._inbox, *([self._responder.fileno()] if self._responder else [])]

    def serve(self) -> None:
        """Take reports, answer probes, write the file. It does not wait."""
        with suppress(BlockingIOError):
            while True:
                for pid, is_live, is_ready, reason in REPORT.iter_unpack(os.read(self._inbox, REPORT.size * 100)):
                    told = reason.rstrip(b"\0").decode(errors="ignore")
                    self._reported[pid] = monotonic(), Verdict(is_live, is_ready, told)
        if self._responder:
            self._responder.serve()
        if monotonic() >= self.due:
            self.due = monotonic() + self._interval
            if self._file:
                self._file(of_all(self.verdicts()))

    def verdicts(self) -> Verdicts:
        """Return what is known of each child."""
        places = self._places()
        pids = {pid for pid, _ in places}
        self._reported = {pid: report for pid, report in self._reported.items() if pid in pids}
        return {pid or 0: self._verdict(pid, started) for pid, started in places}

    def _verdict(self, pid: int | None, started: float) -> Verdict:
        if pid is None:
            return Verdict(True, False, "a process is about to be started")
        at, verdict = self._reported.get(pid, (started, Verdict(True, False, "starting")))
        silent = monotonic() - at
        if silent > self._stalled_after:
            return Verdict(False, False, f"it has reported nothing for {silent:.0f} seconds")
        return verdict

    def close(self) -> None:
        """Tell nothing any more."""
        self._close(self._inbox, self._outbox)
        if self._file:
            self._file.close()

    # -- In a child

    def leave_parent(self) -> None:
        """Close what only the parent needs."""
        self._close(self._inbox)

    def report(self, verdict: Verdict) -> None:
        """Tell the parent. A report is lost if the parent takes none for long, or has ended."""
        with suppress(BlockingIOError, BrokenPipeError):
            reason = verdict.reason.encode()[:200]
            os.write(self._outbox, REPORT.pack(os.getpid(), verdict.is_live, verdict.is_ready, reason))

    def _close(self, *pipes: int) -> None:
        for pipe in pipes:
            os.close(pipe)
        if self._responder:
            self._responder.close()
