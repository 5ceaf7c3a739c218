"""Telling whether a worker is healthy: over HTTP, in a file, or to the parent of its pool."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing, contextmanager
from threading import Thread
from types import SimpleNamespace

from limpyd_jobs.observing.responder import Responder
from limpyd_jobs.threads import Heartbeat
from limpyd_jobs.workers.health.monitor import Monitor
from limpyd_jobs.workers.health.verdict import HealthFile, Verdict, answering

# How many seconds pass between two looks until the worker is ready: whoever starts it waits for that.
FIRST_LOOKS = 1.0

Tell = Callable[[Verdict], None]


@contextmanager
def telling(
    monitor: Monitor, settings: SimpleNamespace, parent: Tell | None, log: Callable[[str], None]
) -> Iterator[None]:
    """Tell whether a worker is healthy while the context is entered. In a pool, only the parent is told."""
    with ExitStack() as stack:
        stack.callback(monitor.close)
        outlets = [parent] if parent else []
        if settings.health_file and not parent:
            outlets.append(stack.enter_context(closing(HealthFile(settings.health_file))))
        if settings.health_port is not None and not parent:
            stack.enter_context(_serving(monitor, settings, log))

        def look() -> None:
            verdict = monitor.look()
            for tell in outlets:
                tell(verdict)
            if verdict.is_ready:
                heartbeat.begin_anew(monitor.interval)

        heartbeat = Heartbeat(min(FIRST_LOOKS, monitor.interval), look, first=0.0)
        stack.enter_context(heartbeat)
        yield


@contextmanager
def _serving(monitor: Monitor, settings: SimpleNamespace, log: Callable[[str], None]) -> Iterator[None]:
    """Answer in a thread of its own, so that no answer waits for Redis, or for a job."""
    pid = os.getpid()
    responder = Responder(settings.health_host, settings.health_port, answering(lambda: {pid: monitor.verdict()}))
    thread = Thread(target=responder.serve_until_ended, name="limpyd-jobs-health", daemon=True)
    thread.start()
    log(f"Health: {responder.address}/health")
    try:
        yield
    finally:
        responder.end()
        thread.join()
        responder.close()
