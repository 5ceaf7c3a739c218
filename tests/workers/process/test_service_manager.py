"""What workers tell the service manager that started them, as systemd does."""

from __future__ import annotations

import os
import re
import select
import signal
import socket
import sys
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from cases import each
from parents import QUEUE, add, all_succeeded, runners
from servers import TIMEOUT, wait_until

from limpyd_jobs import Queue
from limpyd_jobs.workers.process.system import NOTIFY_TIMEOUT, notify, watchdog_interval

pytestmark = pytest.mark.usefixtures("jobs_database")


@pytest.fixture
def manager(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[tuple[socket.socket, str]]:
    """A service manager that listens, and its address as a service sees it."""
    address = str(tmp_path / "notify")
    if getattr(request, "param", "path") == "abstract":
        if sys.platform != "linux":
            pytest.skip("only Linux has abstract addresses")
        address = f"@limpyd-jobs-tests-{os.getpid()}"
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as listener:
        listener.bind(address.replace("@", "\0"))
        listener.settimeout(TIMEOUT)
        yield listener, address


def assert_silent(listener: socket.socket) -> None:
    assert select.select([listener], [], [], 0)[0] == []


BOTH = pytest.mark.parametrize("manager", ["path", "abstract"], indirect=True)  # kinds of addresses


def fill(address: str) -> None:
    """Send to a manager, who does not read, until no more fits in."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as client, suppress(BlockingIOError):
        client.setblocking(False)
        while True:
            client.sendto(b"READY=1", address.replace("@", "\0"))


def test_several_processes_are_ready_once_all_of_them_are(start, manager, redis_client):
    listener, address = manager
    Queue.get_queue(QUEUE)
    parent = start("--processes=2", "--worker-config=shop.SlowConfig", NOTIFY_SOCKET=address)
    wait_until(lambda: "Run started." in parent.log)
    (ready,) = re.findall(r"\[(\d+)\].*Run started\.", parent.log)
    os.kill(int(ready), signal.SIGKILL)
    parent.wait_for(f"process {ready} died")
    assert_silent(listener)
    redis_client.rpush("prepare", 1)
    assert listener.recv(100) == b"READY=1"
    parent.send(signal.SIGTERM)
    assert listener.recv(100) == b"STOPPING=1"
    assert parent.wait() == 0
    assert_silent(listener)


def test_children_tell_it_nothing_themselves(start, manager, redis_client):
    listener, address = manager
    parent = start("--processes=2", "--worker-config=shop.ConfigThatTells", NOTIFY_SOCKET=address)
    assert listener.recv(100) == b"READY=1"
    assert redis_client.lrange("service managers", 0, -1)[1:] == ["none", "none"]  # after that of the parent
    assert parent.end() == 0


def test_one_process_is_ready_when_it_can_work_though_there_is_no_queue_yet(start, manager):
    listener, address = manager
    parent = start(NOTIFY_SOCKET=address)
    assert listener.recv(100) == b"READY=1"
    assert parent.end() == 0
    assert listener.recv(100) == b"STOPPING=1"


@BOTH
def test_one_process_tells_when_it_ends_by_itself(start, manager):
    listener, address = manager
    add(1)
    parent = start("--callback=shop.ship", "--max-loops=1", NOTIFY_SOCKET=address)
    assert [listener.recv(100) for _ in range(2)] == [b"READY=1", b"STOPPING=1"]
    assert parent.wait() == 0


@pytest.mark.parametrize("number", [1, 2])
def test_the_watchdog_is_fed_while_jobs_run(start, manager, redis_client, number):
    listener, address = manager
    add(number)
    options = (f"--processes={number}", "--callback=shop.ship_slowly")
    parent = start(*options, NOTIFY_SOCKET=address, WATCHDOG_USEC="100000")
    wait_until(lambda: len(runners(redis_client)) == number)
    received: list[bytes] = []
    wait_until(lambda: received.append(listener.recv(100)) or received.count(b"WATCHDOG=1") > 2)
    redis_client.rpush("open", 1, 2)
    assert parent.end() == 0


@pytest.mark.parametrize("number", [1, 2])
def test_a_manager_that_does_not_read_holds_nothing_up(start, manager, number):
    _, address = manager
    fill(address)
    jobs = add(number)
    parent = start(f"--processes={number}", "--callback=shop.ship", NOTIFY_SOCKET=address, WATCHDOG_USEC="100000")
    wait_until(lambda: all_succeeded(jobs))
    assert parent.end() == 0


@BOTH
def test_waiting_for_a_manager_that_does_not_read_keeps_no_core_busy(monkeypatch, manager):
    _, address = manager
    fill(address)
    monkeypatch.setenv("NOTIFY_SOCKET", address)
    before = time.process_time()
    notify("READY=1")
    assert time.process_time() - before < NOTIFY_TIMEOUT / 2


def test_a_manager_that_is_gone_is_no_failure(monkeypatch, tmp_path):
    monkeypatch.setenv("NOTIFY_SOCKET", str(tmp_path / "nobody"))
    notify("READY=1")


@each(
    ("environment", "interval"),
    [
        ({}, None),
        ({"WATCHDOG_USEC": "3000000"}, 1.5),
        ({"WATCHDOG_USEC": "3000000", "WATCHDOG_PID": str(os.getpid())}, 1.5),
        ({"WATCHDOG_USEC": "3000000", "WATCHDOG_PID": "1"}, None),
        ({"WATCHDOG_USEC": "soon"}, None),
        ({"WATCHDOG_USEC": "0"}, None),
    ],
)
def test_the_watchdog_is_fed_twice_as_often_as_it_must_be(monkeypatch, environment: Any, interval: Any):
    for name in ("WATCHDOG_USEC", "WATCHDOG_PID"):
        monkeypatch.delenv(name, raising=False)
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    assert watchdog_interval() == interval
