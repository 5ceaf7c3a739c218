"""Redis fails in every way it can, for a while: workers live, say little, go on afterwards, and no job is lost.

Each state is met by three workers at once: one that waits, one whose job then succeeds, and one whose job then fails.
Workers wait less before they try again than they do elsewhere, but for one outage of 20 seconds.
"""

from __future__ import annotations

import logging
import re
import signal
import subprocess
import sys
import threading
import time
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from functools import partial
from itertools import pairwise
from typing import Any

import pytest
import redis
from invariants import violations
from parts import with_part
from running import worker_of
from servers import RedisServer, SentinelServer, free_port, wait_until

from limpyd_jobs import STATUSES, Error, Job, Queue, Worker
from limpyd_jobs.models import BaseJobsModel
from limpyd_jobs.workers import backoff
from limpyd_jobs.workers.claiming.stock import Stock

OUTAGE = 1  # seconds
AS_ADMIN = {"username": "admin", "password": "any"}
WITH_ADMIN = ("--user", "admin", "on", "nopass", "~*", "&*", "+@all")
KEPT = ("--appendonly", "yes", "--appendfsync", "always")
SLOW_TO_LOAD = ("--key-load-delay", "1000", "--loading-process-events-interval-bytes", "1024")  # Redis 7
FILLERS = 3000  # keys: with the delay, three seconds of loading
FAILURES = ("Unable to get job", "Unable to find the queues", "Unable to record how a job went")
# what a test waits for at the longest
END = 60
# An error whose reply was lost is made once more, and the first is not found by its date: no job is the worse for it.
LEFTOVERS = ("I2 jobs:error:date_time:",)


class Task(Job):
    namespace = "redis-states"
    queue_name = "queue"


class Journal(logging.Handler):
    """What workers log, by their ids."""

    def __init__(self) -> None:
        super().__init__()
        self.lines: defaultdict[str, list[tuple[float, int, str]]] = defaultdict(list)

    def emit(self, record: logging.LogRecord) -> None:
        name, _, message = record.getMessage().partition("] ")
        self.lines[name[1:]].append((time.monotonic(), record.levelno, message))

    def of(self, worker: Worker) -> list[tuple[float, str]]:
        """The moments and texts of the warnings and errors of a worker, but those that are about a job that fails."""
        return [
            (moment, text)
            for moment, level, text in self.lines[worker.id]
            if level > logging.INFO and "error: ValueError: it fails" not in text
        ]

    def has_met_it(self, worker: Worker) -> bool:
        return any(text.startswith(FAILURES) for _, text in self.of(worker))


class Scene:
    """Three workers in threads, their jobs, and how often each job was run."""

    def __init__(self, server: RedisServer, journal: Journal) -> None:
        self.server = server
        self.journal = journal
        self.admin = server.client(**AS_ADMIN)
        self.runs: Counter[str] = Counter()
        self.acknowledged: list[Job] = []
        self.gate = threading.Event()
        self.lease = 20.0
        self.workers: list[Worker] = []
        self.prefetched: list[Stock] = []

    def callback(self, job: Job, queue: Queue) -> None:
        identifier = job._cached_identifier
        self.runs[identifier] += 1
        if identifier.startswith("held"):
            assert self.gate.wait(END)
        if identifier.endswith("fails"):
            raise ValueError("it fails")

    def add(self, identifier: str) -> None:
        self.acknowledged.append(Task.add_job(identifier))

    def add_soon(self, identifier: str) -> None:
        """Add it though some connections of the application are still to a server that is gone."""

        def is_added() -> bool:
            with suppress(redis.ConnectionError):
                self.add(identifier)
                return True
            return False

        wait_until(is_added, "a connection that is whole")

    @contextmanager
    def working(self, number: int = 3, **given: Any) -> Iterator[None]:
        options = {**given, "timeout": 30, "max_loops": 1000, "max_duration": 2 * END, "callback": self.callback}
        made = [with_part(Stock, partial(worker_of, lease=self.lease, **options)) for _ in range(number)]
        self.workers, self.prefetched = [worker for worker, _ in made], [prefetched for _, prefetched in made]
        threads = [threading.Thread(target=worker.run) for worker in self.workers]
        try:
            for thread in threads:
                thread.start()
            yield
        finally:
            self.gate.set()
            for worker in self.workers:
                worker.end_forced = True
            for thread in threads:
                thread.join()
        assert [worker.status for worker in self.workers] == ["terminated"] * number

    def begin(self) -> None:
        """Let two workers be busy, and one wait."""
        self.add("before")
        self.wait_for_ends()
        self.add("held")
        self.add("held, then fails")
        wait_until(lambda: sum(self.runs.values()) == 3, "two running jobs")
        wait_until(lambda: self.admin.info("clients")["blocked_clients"] == 1, "an idle worker")
        self.journal.lines.clear()

    def wait_for_failures(self, number: int) -> None:
        wait_until(lambda: sum(map(self.journal.has_met_it, self.workers)) >= number, "workers that met it")

    def wait_for_ends(self) -> None:
        def all_are_final() -> bool:
            pipe = self.admin.pipeline(transaction=False)
            for job in self.acknowledged:
                pipe.hget(job.key, "status")
            return set(pipe.execute()) <= {STATUSES.SUCCESS, STATUSES.ERROR}

        wait_until(all_are_final, "the end of all jobs")

    def check(self, may_leave: tuple[str, ...] = ()) -> None:
        """All acknowledged jobs ran once, and what is stored of them is right."""
        for job in self.acknowledged:
            identifier, status = self.admin.hmget(job.key, "identifier", "status")
            assert (identifier, self.runs[identifier]) == (identifier, 1)
            assert status == (STATUSES.ERROR if identifier.endswith("fails") else STATUSES.SUCCESS)
        assert max(self.runs.values()) == 1
        found = violations(self.admin, Task, Job, Queue, Error)
        assert [problem for problem in found if not problem.startswith(may_leave or "none")] == []
        if not may_leave:
            assert len(self.admin.keys("jobs:error:*:hash")) == sum("fails" in name for name in self.runs)

    def check_log(self) -> None:
        """Each worker said what was wrong, without a traceback, and at most once in a second."""
        for worker in self.workers:
            lines = self.journal.of(worker)
            assert not [text for _, text in lines if "Traceback" in text]
            moments = [moment for moment, _ in lines]
            assert all(next_one - one > 0.9 for one, next_one in pairwise(moments)), lines


@pytest.fixture(autouse=True)
def _quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(backoff, "FIRST_PAUSE", 0.2)
    monkeypatch.setattr(backoff, "MAX_PAUSE", 1.0)


@pytest.fixture
def journal() -> Iterator[Journal]:
    logger, journal = logging.getLogger("limpyd-jobs"), Journal()
    logger.addHandler(journal)
    yield journal
    logger.removeHandler(journal)


@contextmanager
def models_on(**settings: Any) -> Iterator[None]:
    database = BaseJobsModel.database
    database.connect(**settings)
    try:
        yield
    finally:
        database.connection.close()
        database.reset()


@pytest.fixture
def play(redis_binary: str, journal: Journal) -> Iterator[Callable[..., Scene]]:
    """Start a server, and the models on it."""
    started: list[Any] = []

    def begin(*arguments: str, **settings: Any) -> Scene:
        if arguments == SLOW_TO_LOAD and is_older_than_7(redis_binary):
            pytest.skip("Redis 6.2 cannot be told to answer often while it loads")
        server = RedisServer(redis_binary, *arguments, *WITH_ADMIN).__enter__()
        started.append(server)
        models = models_on(unix_socket_path=server.socket, **settings)
        models.__enter__()
        started.append(models)
        return Scene(server, journal)

    yield begin
    for one in reversed(started):
        one.__exit__(None, None, None)


# The states: each a context, in which Redis does not do what workers need


@contextmanager
def configured(admin: redis.Redis, **settings: str) -> Iterator[None]:
    before = {name: admin.config_get(name)[name] for name in settings}
    for name, value in settings.items():
        admin.config_set(name, value)
    yield
    for name, value in before.items():
        admin.config_set(name, value)


@contextmanager
def out_of_memory(scene: Scene) -> Iterator[None]:
    with configured(scene.admin, maxmemory="1"):
        yield


@contextmanager
def read_only(scene: Scene) -> Iterator[None]:
    """As after a failover; the worker that waits is told UNBLOCKED."""
    scene.admin.replicaof("127.0.0.1", str(free_port()))
    yield
    scene.admin.replicaof("NO", "ONE")


@contextmanager
def without_a_primary(scene: Scene) -> Iterator[None]:
    with configured(scene.admin, **{"replica-serve-stale-data": "no"}), read_only(scene):
        yield


@contextmanager
def without_enough_replicas(scene: Scene) -> Iterator[None]:
    with configured(scene.admin, **{"min-replicas-to-write": "1"}):
        yield


@contextmanager
def unable_to_save(scene: Scene) -> Iterator[None]:
    """MISCONF: the snapshot cannot be written, as a directory is in its place."""
    obstacle = scene.server.directory / "dump.rdb"
    obstacle.mkdir()
    with configured(scene.admin, save="3600 1"):
        scene.admin.bgsave()
        wait_until(lambda: scene.admin.info("persistence")["rdb_last_bgsave_status"] == "err")
        yield
        obstacle.rmdir()
        scene.admin.bgsave()
        wait_until(lambda: scene.admin.info("persistence")["rdb_last_bgsave_status"] == "ok")


def forbidding(*commands: str) -> Callable[[Scene], Any]:
    @contextmanager
    def state(scene: Scene) -> Iterator[None]:
        scene.admin.execute_command("ACL", "SETUSER", "default", *(f"-{command}" for command in commands))
        yield
        scene.admin.execute_command("ACL", "SETUSER", "default", "+@all")

    return state


@contextmanager
def with_a_password(scene: Scene) -> Iterator[None]:
    scene.admin.execute_command("ACL", "SETUSER", "default", "resetpass", ">secret")
    scene.admin.execute_command("CLIENT", "KILL", "USER", "default")
    yield
    scene.admin.execute_command("ACL", "SETUSER", "default", "nopass")


@contextmanager
def gone(scene: Scene, seconds: float = OUTAGE) -> Iterator[None]:
    scene.server.kill()
    began = time.monotonic()
    yield
    wait_until(lambda: time.monotonic() - began > seconds)
    scene.server.start()


@contextmanager
def frozen(scene: Scene) -> Iterator[None]:
    """The server takes commands, and answers none."""
    process = scene.server.process
    assert process is not None
    process.send_signal(signal.SIGSTOP)
    try:
        yield
    finally:
        process.send_signal(signal.SIGCONT)


@contextmanager
def paused(scene: Scene) -> Iterator[None]:
    scene.admin.execute_command("CLIENT", "PAUSE", 60_000, "WRITE")
    yield
    scene.admin.execute_command("CLIENT", "UNPAUSE")


@contextmanager
def loading(scene: Scene) -> Iterator[None]:
    """The server was started anew, and reads its data."""
    pipe = scene.admin.pipeline(transaction=False)
    for number in range(FILLERS):
        pipe.set(f"filler:{number}", "x" * 1000)
    pipe.save()
    pipe.execute()
    scene.server.kill()
    start = threading.Thread(target=scene.server.start)
    start.start()
    wait_until(lambda: is_loading(scene.server), "a server that is loading")
    yield
    start.join()


def is_older_than_7(binary: str) -> bool:
    version = subprocess.run([binary, "--version"], capture_output=True, text=True, check=True).stdout
    return int(re.findall(r"v=(\d+)", version)[0]) < 7


def is_loading(server: RedisServer) -> bool:
    try:
        with server.client(**AS_ADMIN) as client:
            return bool(client.info("persistence")["loading"])
    except redis.ConnectionError:
        return False


@contextmanager
def disconnecting(scene: Scene) -> Iterator[None]:
    """Every connection is cut, again and again."""
    stopped = threading.Event()

    def cut() -> None:
        with scene.server.client(**AS_ADMIN) as client:
            while not stopped.wait(0.001):
                client.execute_command("CLIENT", "KILL", "USER", "default")

    thread = threading.Thread(target=cut)
    thread.start()
    yield
    stopped.set()
    thread.join()


# the state, the arguments of the server, and how many workers notice it at the least
STATES = {
    "OOM": (out_of_memory, (), 1),
    "READONLY": (read_only, (), 3),
    "MASTERDOWN": (without_a_primary, (), 3),
    "NOREPLICAS": (without_enough_replicas, (), 3),
    "MISCONF": (unable_to_save, (), 3),
    "NOPERM for scripts": (forbidding("evalsha", "eval"), (), 3),
    "NOPERM for what scripts call": (forbidding("hmget", "hget", "sinter"), (), 2),
    "NOAUTH": (with_a_password, (), 3),
    "gone": (gone, KEPT, 3),
    "LOADING": (loading, SLOW_TO_LOAD, 3),
}


@pytest.mark.parametrize(("state", "arguments", "noticing"), STATES.values(), ids=STATES.keys())
def test_workers_live_through_it_and_lose_nothing(
    play: Callable[..., Scene], state: Any, arguments: tuple[str, ...], noticing: int
) -> None:
    scene = play(*arguments)
    with scene.working():
        scene.begin()
        with state(scene):
            with pytest.raises(redis.RedisError):
                Task.add_job("during")
            scene.gate.set()
            scene.wait_for_failures(noticing)
        scene.add("after")
        scene.add("after, fails")
        scene.wait_for_ends()
    scene.check()
    assert scene.runs["during"] == 0
    scene.check_log()


@pytest.mark.parametrize("name", ["OOM", "READONLY", "NOPERM for what scripts call", "gone"])
def test_jobs_in_the_hand_of_a_worker_live_through_it(play: Callable[..., Scene], name: str) -> None:
    """They are given back while it lasts, or once it is over."""
    state, arguments, _ = STATES[name]
    scene = play(*arguments)
    names = [f"{number:02d}" for number in range(30)]
    names[9] = "held"  # with six more behind it, as batches double
    scene.acknowledged += Task.add_jobs(names)
    with scene.working(1, prefetch="auto", prefetch_time=0.5):
        wait_until(lambda: scene.runs["held"], "the job that takes long")
        with state(scene):
            wait_until(lambda: not scene.prefetched[0].deliveries, "the time to give the others back")
            scene.gate.set()
            scene.wait_for_failures(1)
        scene.wait_for_ends()
    scene.check()
    assert list(scene.runs) == names
    scene.check_log()


@pytest.mark.long
def test_workers_live_through_an_outage_of_twenty_seconds(
    play: Callable[..., Scene], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.undo()
    scene = play(*KEPT)
    scene.lease = 60
    with scene.working():
        scene.begin()
        with gone(scene, seconds=20):
            scene.gate.set()
        scene.add("after")
        scene.add("after, fails")
        scene.wait_for_ends()
    scene.check()
    scene.check_log()
    assert max(len(scene.journal.of(worker)) for worker in scene.workers) <= 15


@pytest.mark.parametrize("state", [frozen, paused])
def test_commands_that_are_not_answered_may_have_been_done(play: Callable[..., Scene], state: Any) -> None:
    scene = play(socket_timeout=2)
    with scene.working():
        scene.begin()
        with state(scene):
            with pytest.raises(redis.TimeoutError):
                Task.add_job("during")
            scene.gate.set()
            scene.wait_for_failures(3)
        scene.add("after")
        scene.add("after, fails")
        scene.wait_for_ends()
        wait_until(lambda: not scene.admin.keys("redis-states:task:queued:1"), "the end of what was added unanswered")
    scene.check(may_leave=LEFTOVERS)
    scene.check_log()


def test_scripts_that_are_flushed_are_sent_anew(play: Callable[..., Scene]) -> None:
    scene = play()
    with scene.working():
        scene.begin()
        scene.admin.script_flush()
        scene.add("during")
        scene.admin.script_flush()
        scene.gate.set()
        scene.add("after, fails")
        scene.wait_for_ends()
    scene.check()
    assert [scene.journal.of(worker) for worker in scene.workers] == [[], [], []]


# Failover


@contextmanager
def service(binary: str) -> Iterator[tuple[SentinelServer, RedisServer, RedisServer]]:
    """A sentinel, a primary, and a replica that follows it; the primary becomes its replica if it comes back."""
    primary_port, replica_port = free_port(), free_port()
    fast = ("--repl-diskless-sync-delay", "0", *WITH_ADMIN)
    with (
        RedisServer(binary, *fast, port=primary_port) as primary,
        RedisServer(binary, *fast, "--replicaof", "127.0.0.1", str(primary_port), port=replica_port) as replica,
    ):
        wait_until(lambda: follows(replica), "the replica follows")
        with SentinelServer(binary, primary_port, "failover-timeout jobs 5000") as sentinel:
            wait_until(lambda: knows_replica(sentinel), "the sentinel knows the replica")
            yield sentinel, primary, replica


def follows(replica: RedisServer) -> bool:
    with replica.client(**AS_ADMIN) as client:
        return bool(client.info("replication").get("master_link_status") == "up")


def knows_replica(sentinel: SentinelServer) -> bool:
    with sentinel.client() as client:
        return any(
            one["flags"] == "slave" and one["master-link-status"] == "ok" for one in client.sentinel_slaves("jobs")
        )


def is_primary(server: RedisServer) -> bool:
    """Whether it says so; it drops connections when it becomes a replica."""
    with server.client(**AS_ADMIN) as client, suppress(redis.ConnectionError):
        return bool(client.role()[0] == "master")
    return True


@pytest.mark.parametrize("failover", ["after a crash", "on demand"])
def test_workers_follow_a_failover(redis_binary: str, journal: Journal, failover: str) -> None:
    with service(redis_binary) as (sentinel, primary, replica):
        settings = {"sentinels": [("127.0.0.1", sentinel.port)], "service_name": "jobs"}
        with models_on(**settings):
            scene = Scene(primary, journal)
            with scene.working():
                scene.begin()
                assert scene.admin.wait(1, 10_000) == 1
                if failover == "after a crash":
                    primary.kill()
                    scene.gate.set()
                else:
                    with sentinel.client() as client:
                        client.execute_command("SENTINEL", "FAILOVER", "jobs")
                    # what a primary acknowledges after its replica took over is lost: that is not promised
                    wait_until(lambda: not is_primary(primary), "the end of the old primary")
                    scene.gate.set()
                scene.admin = replica.client(**AS_ADMIN)
                wait_until(lambda: models_are_on(replica), "a new primary")
                scene.add_soon("after")
                scene.add_soon("after, fails")
                scene.wait_for_ends()
            scene.check()
            scene.check_log()


def models_are_on(server: RedisServer) -> bool:
    with suppress(redis.RedisError):
        connection = BaseJobsModel.database.connection
        return bool(connection.info("server")["tcp_port"] == server.port and connection.role()[0] == "master")
    return False


# Workers that are told to end meanwhile, or begin


WORKER = """
import sys, time
from limpyd_jobs import Job, Worker
from limpyd_jobs.models import BaseJobsModel

def callback(job, queue):
    print("runs", flush=True)
    time.sleep(float(sys.argv[2]))

BaseJobsModel.database.connect(unix_socket_path=sys.argv[1])
Worker("queue", callback=callback, lease=1, timeout=30).run()
"""


@contextmanager
def worker_of_its_own(server: RedisServer, seconds_per_job: float) -> Iterator[subprocess.Popen[str]]:
    command = [sys.executable, "-c", WORKER, server.socket, str(seconds_per_job)]
    process = subprocess.Popen(command, text=True, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    try:
        yield process
    finally:
        process.kill()
        process.communicate()


@pytest.mark.parametrize("is_busy", [False, True], ids=["idle", "busy"])
def test_a_signal_ends_a_worker_while_redis_is_gone(play: Callable[..., Scene], is_busy: bool) -> None:
    scene = play(*KEPT)
    with worker_of_its_own(scene.server, seconds_per_job=0.5) as process:
        if is_busy:
            job = Job.add_job("busy", "queue")
            assert process.stdout is not None
            assert process.stdout.readline() == "runs\n"
        else:
            Queue.get_queue("queue")
            wait_until(lambda: scene.admin.info("clients")["blocked_clients"] == 1, "an idle worker")
        scene.server.kill()
        process.send_signal(signal.SIGTERM)
        assert process.wait(END) == 0
    scene.server.start()
    if is_busy:
        assert job.hmget("status", "queued") == [STATUSES.RUNNING, "1"]
        scene.acknowledged.append(job)
        with scene.working(1):
            scene.wait_for_ends()
        scene.check()


def test_workers_that_start_while_redis_is_loading_wait_for_it(play: Callable[..., Scene]) -> None:
    scene = play(*SLOW_TO_LOAD)
    scene.add("before")
    with loading(scene), scene.working(2):
        wait_until(lambda: all(map(scene.journal.has_met_it, scene.workers)), "workers that met it")
        wait_until(lambda: not is_loading(scene.server), "a server that has loaded")
        scene.wait_for_ends()
    scene.check()
    scene.check_log()


def test_a_worker_without_queues_lives_through_an_outage(play: Callable[..., Scene]) -> None:
    scene = play(*KEPT)
    with scene.working(1):
        wait_until(lambda: any("No queues yet" in text for _, text in scene.journal.of(scene.workers[0])))
        with gone(scene):
            wait_until(lambda: scene.journal.has_met_it(scene.workers[0]), "the worker met it")
        scene.add("after")
        scene.wait_for_ends()
    scene.check()


@pytest.mark.parametrize("policy", ["allkeys-lru", "volatile-ttl", "noeviction"])
@pytest.mark.parametrize("maxmemory", ["100mb", "0"])
def test_a_worker_warns_of_eviction_at_its_start(play: Callable[..., Scene], policy: str, maxmemory: str) -> None:
    scene = play("--maxmemory", maxmemory, "--maxmemory-policy", policy)
    scene.add("a")
    with scene.working(1):
        scene.wait_for_ends()
    warnings = [text for _, text in scene.journal.of(scene.workers[0])]
    if maxmemory != "0" and policy != "noeviction":
        (warning,) = warnings
        assert "Redis may DELETE JOBS" in warning
        assert re.search(rf"not {policy}$", warning)
    else:
        assert warnings == []


def test_a_worker_that_may_not_ask_for_the_policy_begins_all_the_same(play: Callable[..., Scene]) -> None:
    scene = play()
    with forbidding("info")(scene):
        scene.add("a")
        with scene.working(1):
            scene.wait_for_ends()
    assert scene.journal.of(scene.workers[0]) == []


def test_connections_that_are_cut_again_and_again_lose_nothing(play: Callable[..., Scene]) -> None:
    scene = play()
    with scene.working():
        scene.begin()
        with disconnecting(scene):
            scene.gate.set()
            scene.wait_for_failures(3)
        scene.add("after")
        scene.add("after, fails")
        scene.wait_for_ends()
    scene.check(may_leave=LEFTOVERS)
