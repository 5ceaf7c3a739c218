"""What a job leaves in the process of its worker: later jobs do not find it, or the log says so."""

from __future__ import annotations

import decimal
import os
import signal
import socket
from collections.abc import Callable, Iterator
from contextvars import ContextVar

import pytest
from running import worker_of

from limpyd_jobs import Job, Queue
from limpyd_jobs.workers.process import leftovers

pytestmark = pytest.mark.usefixtures("redis_client")

tenant: ContextVar[str] = ContextVar("tenant", default="nobody")


class Careless(Job):
    namespace = "careless"
    queue_name = "queue"


@pytest.fixture(autouse=True)
def _as_before(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Let workers look at all after each job, and put back what jobs change."""
    monkeypatch.setattr(leftovers, "INTERVAL", 0.0)
    umask, directory = os.umask(0o022), os.getcwd()
    with decimal.localcontext():
        yield
    os.umask(umask)
    os.chdir(directory)
    socket.setdefaulttimeout(None)


def run(*steps: Callable[[], object], **options: object) -> None:
    """Let a worker run a job for each step."""
    left = list(steps)

    def callback(job: Job, queue: Queue) -> None:
        left.pop(0)()

    Careless.add_jobs([f"{number}" for number in range(len(steps))])
    worker_of(callback=callback, max_loops=len(steps), **options).run()


@pytest.mark.parametrize("concurrency", [1, 2])
def test_a_job_does_not_find_the_context_of_another(concurrency: int) -> None:
    found: list[str] = []

    def begin() -> None:
        found.append(tenant.get())
        tenant.set("ann")

    run(begin, begin, concurrency=concurrency)
    assert found == ["nobody", "nobody"]
    assert tenant.get() == "nobody"


def test_a_worker_can_be_ended_after_a_job_that_handled_signals(caplog: pytest.LogCaptureFixture) -> None:
    def handle() -> None:
        for number in (signal.SIGTERM, signal.SIGUSR1):
            signal.signal(number, lambda *_: None)

    ran: list[int] = []
    run(
        handle,
        lambda: os.kill(os.getpid(), signal.SIGTERM),
        lambda: ran.append(1),
        terminate_gracefuly=True,
    )
    assert not ran
    assert "[0] or a job before it left a handler of SIGTERM, which is taken away" in caplog.text
    assert "left a handler of SIGUSR1" in caplog.text
    assert "SIGTERM caught: ending" in caplog.text


@pytest.mark.parametrize("concurrency", [1, 2])
def test_the_log_names_once_what_a_job_changed_for_all(concurrency: int, caplog: pytest.LogCaptureFixture) -> None:
    def change() -> None:
        os.chdir("/")
        os.umask(0o077)
        socket.setdefaulttimeout(300)
        decimal.getcontext().prec = 9

    run(change, change, str, concurrency=concurrency)
    assert "the precision of decimals changed to 9 from 28" in caplog.text
    for what in ("the working directory changed to / from", "the umask changed to 0077 from 0022", "sockets changed"):
        assert caplog.text.count(what) == 1


def test_a_job_that_changes_nothing_is_not_named(caplog: pytest.LogCaptureFixture) -> None:
    run(str, str)
    assert " left " not in caplog.text
