"""Probes are told the truth about a worker: whether it is alive, whether it is ready, and why it is not."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import stat
import sys
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from http.client import HTTPConnection
from pathlib import Path
from typing import Any, NamedTuple
from urllib.parse import urlsplit

import pytest
import redis
from cases import each
from parts import calls_of, with_part
from running import Collector, messages, worker_of, working
from servers import RedisServer, wait_until

from limpyd_jobs import ConfigurationException, Job, Queue, Worker
from limpyd_jobs.exceptions import WorkerFailed
from limpyd_jobs.models import BaseJobsModel
from limpyd_jobs.workers import backoff
from limpyd_jobs.workers.claiming.leases import Leases
from limpyd_jobs.workers.context import Verdict
from limpyd_jobs.workers.fleet import monitor
from limpyd_jobs.workers.fleet.health import HealthFile
from limpyd_jobs.workers.fleet.monitor import Monitor

pytestmark = pytest.mark.usefixtures("redis_client")

# So that a look comes often, and a heartbeat, too.
OPTIONS: dict[str, Any] = {"stalled_after": 0.4, "lease": 0.8, "health_port": 0, "max_loops": 1000, "timeout": 0.1}


class Task(Job):
    namespace = "health"
    queue_name = "queue"


class Health(NamedTuple):
    live: tuple[int, str]
    ready: tuple[int, str]

    @property
    def statuses(self) -> tuple[int, int]:
        return self.live[0], self.ready[0]


def get(address: str, path: str) -> tuple[int, str]:
    connection = HTTPConnection(urlsplit(address).netloc, timeout=60)
    connection.request("GET", path)
    response = connection.getresponse()
    body = response.read().decode()
    connection.close()
    return response.status, body


class Probe:
    """Asks a worker that logs where it answers."""

    def __init__(self, log: pytest.LogCaptureFixture) -> None:
        self._log = log

    @property
    def address(self) -> str:
        wait_until(lambda: "Health: " in self._log.text, "the address")
        return next(line for line in messages(self._log) if line.startswith("Health: ")).split()[1]

    def ask(self) -> Health:
        address = self.address.removesuffix("/health")
        return Health(get(address, "/health/live"), get(address, "/health/ready"))

    def wait_for(self, live: int, ready: int) -> Health:
        found: list[Health] = []

        def is_so() -> bool:
            found[:] = [self.ask()]
            return found[0].statuses == (live, ready)

        wait_until(is_so, f"{live} and {ready}")
        return found[0]


@pytest.fixture
def probe(log: pytest.LogCaptureFixture) -> Probe:
    return Probe(log)


@pytest.fixture
def looks(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """The looks that monitors have taken, ten in `stalled_after`."""
    taken: list[Any] = []
    look = Monitor.look
    monkeypatch.setattr(Monitor, "look", lambda self: (look(self), taken.append(self))[0])
    monkeypatch.setattr(monitor, "LOOK_EVERY", OPTIONS["stalled_after"] / 10)
    return taken


@contextmanager
def probed(worker_class: type[Worker] = Worker, **options: Any) -> Iterator[Worker]:
    worker = worker_of(worker_class=worker_class, **{**OPTIONS, **options})
    with working(worker):
        try:
            yield worker
        finally:
            worker.end_forced = True


class TestOfAHealthyWorker:
    def test_is_ready_once_it_has_a_queue(self, probe: Probe) -> None:
        with probed():
            assert probe.wait_for(200, 503).ready[1] in ("starting\n", "none of its queues exists\n")
            Queue.get_queue("queue")
            assert probe.wait_for(200, 200) == Health((200, "ok\n"), (200, "ok\n"))
            status, text = get(probe.address.removesuffix("/health"), "/health")
        process = {"pid": os.getpid(), "live": True, "ready": True, "reason": ""}
        assert (status, json.loads(text)) == (
            200,
            {"live": True, "ready": True, "reason": "", "processes": [process]},
        )

    def test_is_ready_without_a_queue_if_other_shards_may_have_some(
        self, probe: Probe, redis_client: redis.Redis
    ) -> None:
        path = redis_client.connection_pool.connection_kwargs["path"]
        before = BaseJobsModel.database.connection_settings
        try:
            with probed(shards=f"unix://{path}?db=4 unix://{path}?db=5", home=0):
                probe.wait_for(200, 200)
        finally:
            BaseJobsModel.database.reset(**before)
            redis.Redis(unix_socket_path=path, db=4).flushdb()

    def test_stays_so_while_a_job_is_long_and_its_lease_is_renewed(self, probe: Probe) -> None:
        gate = threading.Event()
        Task.add_jobs(["long", "next"])
        worker, leases = with_part(Leases, lambda: worker_of(**OPTIONS, callback=lambda *_: gate.wait(60)))
        beats = calls_of(leases, "renew")
        with working(worker):
            probe.wait_for(200, 200)
            wait_until(lambda: len(beats) > 6, "a job that runs for longer than a lease, and than stalled_after")
            assert probe.ask().statuses == (200, 200)
            worker.end_forced = True
            assert probe.ask() == Health((200, "ok\n"), (503, "ending\n"))
            gate.set()

    def test_is_not_stalled_by_paused_queues_nor_when_it_is_quiet(self, probe: Probe, looks: list[Any]) -> None:
        Queue.pause("queue")
        Task.add_job("a")
        with probed() as worker:
            probe.wait_for(200, 200)
            wait_until(lambda: len(looks) > 20)
            assert probe.ask().statuses == (200, 200)
            worker._loop.stopping.be_quiet("the test")
            Queue.resume("queue")
            wait_until(lambda: len(looks) > 40)
            assert probe.ask().statuses == (200, 200)
            assert Queue.count_waiting_jobs("queue") == 1


class Deaf(Worker):
    """Looks as if it waited, but takes no job."""

    def wait_for_job(self) -> None:
        threading.Event().wait(0.01)


class Hanging(Worker):
    """Has code of its own that never ends, outside of any job."""

    gate = threading.Event()

    def wait_for_job(self) -> None:
        self.gate.wait(60)


class TestOfAWorkerThatIsNotHealthy:
    def test_is_told_if_leases_are_not_renewed_in_time(self, probe: Probe) -> None:
        Queue.get_queue("queue")
        with probed() as worker:
            probe.wait_for(200, 200)
            leases = worker._loop.leases
            leases.renew = lambda _: None  # nor does it catch up
            leases.context.state.is_behind = True
            _, ready = probe.wait_for(200, 503)
            assert ready[1] == "its leases are not renewed in time, so it claims no more jobs\n"
            leases.context.state.is_behind = False
            probe.wait_for(200, 200)

    def test_claims_that_stall_are_told(self, probe: Probe, log: pytest.LogCaptureFixture) -> None:
        Queue.get_queue("queue")
        with probed(Deaf):
            probe.wait_for(200, 200)
            Task.add_job("a")
            _, ready = probe.wait_for(200, 503)
            assert ready[1].startswith("claims stall: jobs have waited for ")
            wait_until(lambda: "Not healthy: claims stall" in log.text)
            Queue.get_queue("queue").waiting.delete()
            probe.wait_for(200, 200)
            wait_until(lambda: "Healthy again" in log.text)

    def test_a_loop_that_does_not_turn_is_not_alive(self, probe: Probe) -> None:
        Queue.get_queue("queue")
        with probed(Hanging):
            live, ready = probe.wait_for(503, 503)
            assert live[1] == ready[1]
            assert live[1].startswith("the loop has not turned for ")
            Hanging.gate.set()

    def test_nor_is_a_job_whose_lease_is_not_renewed(self, probe: Probe) -> None:
        gate = threading.Event()
        Task.add_job("a")
        worker, leases = with_part(Leases, lambda: worker_of(**OPTIONS, callback=lambda *_: gate.wait(60)))
        leases.renew = lambda connection: gate.wait(60)  # type: ignore[method-assign]
        with working(worker):
            assert probe.wait_for(503, 503).live[1].startswith("no heartbeat for ")
            worker.end_forced = True
            gate.set()

    def test_nor_is_one_of_whose_threads_one_died(self, probe: Probe) -> None:
        Queue.get_queue("queue")
        Hanging.gate.clear()
        worker, leases = with_part(Leases, lambda: worker_of(worker_class=Hanging, **OPTIONS))
        leases.renew = lambda connection: sys.exit()  # type: ignore[method-assign]

        def ask() -> None:
            try:
                wait_until(lambda: probe.ask().live[1].startswith("The thread limpyd-jobs-heartbeat died"))
            finally:
                Hanging.gate.set()

        with ThreadPoolExecutor() as threads:
            asked = threads.submit(ask)
            with pytest.raises(WorkerFailed):
                worker.run()
            asked.result()

    def test_one_whose_jobs_hold_all_threads_of_coroutines_is_not_ready(self, probe: Probe) -> None:
        gate, threads = threading.Event(), min(32, (os.cpu_count() or 1) + 4)

        async def callback(job: Job, queue: Queue) -> None:
            await asyncio.to_thread(gate.wait, 60)

        Task.add_jobs(map(str, range(threads)))
        with probed(callback=callback, concurrency=threads + 1):
            probe.wait_for(200, 503)
            wait_until(lambda: f"held all {threads} threads of asyncio.to_thread" in probe.ask().ready[1])
            gate.set()
            probe.wait_for(200, 200)

    @pytest.mark.parametrize("concurrency", [1, 2])
    def test_nor_is_one_whose_event_loop_a_job_holds(self, concurrency: int, probe: Probe) -> None:
        gate = threading.Event()

        async def callback(job: Job, queue: Queue) -> None:
            gate.wait(60)

        Task.add_job("a")
        with probed(callback=callback, concurrency=concurrency):
            wait_until(lambda: probe.ask().ready[1].startswith("a job has held the event loop for"))
            gate.set()
            probe.wait_for(200, 200)


@pytest.fixture
def own_server(redis_binary: str, monkeypatch: pytest.MonkeyPatch) -> Iterator[RedisServer]:
    """A server whose answers the worker awaits for ever, and probes for a moment."""
    monkeypatch.setattr(backoff, "FIRST_PAUSE", 0.01)
    monkeypatch.setattr(backoff, "MAX_PAUSE", 0.05)
    monkeypatch.setattr(monitor, "ANSWER_TIMEOUT", 0.2)
    with RedisServer(redis_binary) as server:
        BaseJobsModel.database.connect(unix_socket_path=server.socket, socket_timeout=None)
        yield server
        BaseJobsModel.database.connection.close()


class TestWithoutRedis:
    def test_a_worker_is_alive_and_ready_again_when_redis_is_back(
        self, probe: Probe, own_server: RedisServer, collector: Collector, looks: list[Any]
    ) -> None:
        Task.add_job("before")
        with probed(callback=collector):
            wait_until(lambda: collector.identifiers == ["before"])
            probe.wait_for(200, 200)
            own_server.kill()
            assert probe.wait_for(200, 503).ready[1].startswith("Redis cannot be used: ConnectionError")
            before = len(looks)
            wait_until(lambda: len(looks) > before + 20)
            assert probe.ask().statuses == (200, 503)
            own_server.start()
            Task.add_job("after")
            probe.wait_for(200, 200)
            wait_until(lambda: collector.identifiers == ["before", "after"])

    def test_a_worker_whose_wait_hangs_is_not_alive(
        self, probe: Probe, own_server: RedisServer, collector: Collector
    ) -> None:
        Queue.get_queue("queue")
        with probed(callback=collector):
            probe.wait_for(200, 200)
            assert own_server.process is not None
            own_server.process.send_signal(signal.SIGSTOP)
            live, _ = probe.wait_for(503, 503)
            assert live[1].startswith("the loop has not turned for ")
            own_server.process.send_signal(signal.SIGCONT)
            probe.wait_for(200, 200)


class TestFile:
    def test_says_ok_while_the_worker_is_ready_and_is_gone_at_its_end(self, tmp_path: Path) -> None:
        path = tmp_path / "healthy"
        Queue.get_queue("queue")
        with probed(health_port=None, health_file=str(path)):
            wait_until(lambda: path.exists() and path.read_text() == "ok\n")
            first = path.stat()
            wait_until(lambda: path.stat().st_mtime_ns > first.st_mtime_ns)
            assert stat.S_ISREG(first.st_mode)
        assert [*tmp_path.iterdir()] == []

    def test_is_not_written_again_by_a_look_that_was_under_way_at_the_end(self, tmp_path: Path) -> None:
        file = HealthFile(str(tmp_path / "healthy"))
        file.close()
        file(Verdict(is_live=True, is_ready=True))
        assert [*tmp_path.iterdir()] == []

    def test_gets_old_while_the_worker_is_not_alive(self, tmp_path: Path, looks: list[Any]) -> None:
        path = tmp_path / "healthy"
        Queue.get_queue("queue")
        Hanging.gate.clear()
        with probed(Hanging, health_port=None, health_file=str(path)):
            wait_until(lambda: looks and not looks[0].verdict().is_live)
            first, before = path.stat(), len(looks)
            wait_until(lambda: len(looks) > before + 2)
            assert path.stat().st_mtime_ns == first.st_mtime_ns
            Hanging.gate.set()

    def test_must_be_one_that_can_be_written(self, tmp_path: Path) -> None:
        worker = worker_of(health_file=str(tmp_path / "missing" / "healthy"))
        with pytest.raises(
            ConfigurationException, match=r"health_file .* cannot be written: No such file or directory"
        ):
            worker.run()


class TestOptions:
    def test_it_does_not_listen_on_other_addresses_unless_asked_to(self, probe: Probe) -> None:
        with probed():
            assert urlsplit(probe.address).hostname == "127.0.0.1"

    def test_another_address_may_be_given(self, probe: Probe) -> None:
        with probed(health_host="::1"):
            assert urlsplit(probe.address).hostname == "::1"

    def test_a_port_that_is_in_use_is_refused(self, probe: Probe) -> None:
        with probed():
            port = urlsplit(probe.address).port
            with pytest.raises(
                ConfigurationException, match=rf"Cannot listen on 127.0.0.1:{port}: Address already in use"
            ):
                worker_of(health_port=port).run()

    @each(
        ("name", "value"),
        [
            ("health_port", 65536),
            ("health_port", -1),
            ("health_port", "http"),
            ("health_host", ""),
            ("health_host", 8),
            ("health_file", ""),
            ("health_file", 8),
            ("stalled_after", 0),
            ("stalled_after", "soon"),
        ],
    )
    def test_wrong_ones_are_refused(self, name: str, value: Any) -> None:
        with pytest.raises(ConfigurationException, match=f"{name} must be "):
            worker_of(**{name: value})

    def test_a_worker_that_is_not_asked_starts_no_thread_for_it(self) -> None:
        threads: set[str] = set()
        Task.add_job("a")
        worker_of(callback=lambda *_: threads.update(each.name for each in threading.enumerate())).run()
        assert "limpyd-jobs-health" not in threads
        assert len([name for name in threads if name == "limpyd-jobs-heartbeat"]) == 1
