"""What tests of commands share."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator

import pytest
from servers import wait_until

from limpyd_jobs import Worker, WorkerPresence


@pytest.fixture
def busy() -> Iterator[Callable[[], str]]:
    """A function that lets a worker run a job until the end of the test, and returns its name."""
    keep = threading.Event()
    worker = Worker("tickets", callback=lambda job, queue: keep.wait(30), max_loops=1, logger_level=60)
    thread = threading.Thread(target=worker.run)
    worker.stop_handling_end_signal()

    def start() -> str:
        thread.start()
        wait_until(lambda: WorkerPresence.alive())
        return WorkerPresence.alive()[0].name

    yield start
    keep.set()
    thread.join()
