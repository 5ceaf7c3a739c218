"""Whether a worker, or all workers of a pool, are healthy: what is answered over HTTP, and written in a file."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Mapping
from contextlib import suppress
from threading import Lock
from time import monotonic

from limpyd_jobs.exceptions import ConfigurationException
from limpyd_jobs.observing.responder import JSON, NOT_FOUND, Answer, Responder
from limpyd_jobs.workers.context import Verdict

# How many seconds pass at most between two looks.
LOOK_EVERY = 5.0

# How many processes are told of one by one.
MAX_TOLD = 100

HEALTHY = Verdict(True, True)

Verdicts = Mapping[int, Verdict]  # by the pid of the process; 0 for one that is about to be started


def of_all(verdicts: Verdicts) -> Verdict:
    """Return the worst one: that of a process that is not alive, else of one that is not ready."""
    pid, worst = min(verdicts.items(), key=lambda item: item[1][:2], default=(0, HEALTHY))
    reason = f"process {pid}: {worst.reason}" if worst.reason and pid and len(verdicts) > 1 else worst.reason
    return worst._replace(reason=reason)


def answering(verdicts: Callable[[], Verdicts]) -> Callable[[str], Answer]:
    """Return a function that answers requests for ``/health/live``, ``/health/ready`` and ``/health``."""

    def answer(path: str) -> Answer:
        found = verdicts()
        whole = of_all(found)
        match path.partition("?")[0]:
            case "/health/live":
                return _text(whole.is_live, whole)
            case "/health/ready":
                return _text(whole.is_ready, whole)
            case "/health":
                return Answer(200 if whole.is_ready else 503, _as_json(whole, found), JSON)
        return NOT_FOUND

    return answer


def _text(is_well: bool, verdict: Verdict) -> Answer:
    return Answer(200, "ok\n") if is_well else Answer(503, f"{verdict.reason}\n")


def _as_json(whole: Verdict, verdicts: Verdicts) -> str:
    worst_first = sorted(verdicts.items(), key=lambda item: item[1][:2])[:MAX_TOLD]
    processes = [{"pid": pid or None, **_fields(each)} for pid, each in worst_first]
    return json.dumps({**_fields(whole), "processes": processes}) + "\n"


def _fields(verdict: Verdict) -> dict[str, bool | str]:
    return {"live": verdict.is_live, "ready": verdict.is_ready, "reason": verdict.reason}


class HealthFile:
    """A file that is written again and again while a worker is alive, with ``ok``, or why it is not ready.

    Raises
    ------
    ConfigurationException
        If it cannot be written.
    """

    def __init__(self, path: str) -> None:
        self._path, self._new = path, f"{path}.{os.getpid()}"
        self._lock, self._is_closed = Lock(), False
        try:
            self._write("not ready: starting")
        except OSError as error:
            raise ConfigurationException(f"health_file {path} cannot be written: {error.strerror}") from None

    def __call__(self, verdict: Verdict) -> None:
        """Write it, unless the worker is not alive. If that fails, the file gets old, as if it was not alive."""
        with self._lock, suppress(OSError):
            if verdict.is_live and not self._is_closed:
                self._write("ok" if verdict.is_ready else f"not ready: {verdict.reason}")

    def close(self) -> None:
        """Remove it: there is no worker any more. A look that is still under way does not write it again."""
        with self._lock, suppress(OSError):
            self._is_closed = True
            os.unlink(self._path)

    def _write(self, text: str) -> None:
        with suppress(FileNotFoundError):
            os.unlink(self._new)  # of an earlier process with this pid
        with open(self._new, "x", encoding="utf-8") as file:
            file.write(f"{text}\n")
        os.replace(self._new, self._path)  # so that it is never half written


class PoolHealth:
    """Answers for the health of all children of a pool, as they reported it. The parent's loop lets it `serve`.

    It raises `ConfigurationException` if it cannot listen, or write.
    """

    due = 0.0  # when to `serve` at the latest, by the clock of `monotonic`

    def __init__(
        self, verdicts: Callable[[], Verdicts], interval: float, port: int | None, host: str, path: str | None
    ) -> None:
        self._verdicts = verdicts
        self._interval = min(LOOK_EVERY, interval)
        self._file = HealthFile(path) if path else None
        self._responder = None if port is None else Responder(host, port, answering(verdicts))

    @property
    def address(self) -> str:
        """Where probes are answered; empty for nowhere."""
        return self._responder.address if self._responder else ""

    @property
    def files(self) -> list[int]:
        """The numbers of the files that are readable when there is something to serve."""
        return [self._responder.fileno()] if self._responder else []

    def serve(self) -> None:
        """Answer probes, write the file. It does not wait."""
        if self._responder:
            self._responder.serve()
        if monotonic() >= self.due:
            self.due = monotonic() + self._interval
            if self._file:
                self._file(of_all(self._verdicts()))

    def leave_parent(self) -> None:
        """Close, in a child, what only the parent needs."""
        if self._responder:
            self._responder.close()

    def close(self) -> None:
        """Answer no more, and remove the file."""
        self.leave_parent()
        if self._file:
            self._file.close()
