"""What each signal does to a worker: real processes, real signals, and a terminal where there has to be one."""

from __future__ import annotations

import os
import pty
import re
import signal
import sys
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import preloaded
import pytest
import redis
from invariants import violations
from running import Collector, work, worker_of
from servers import TIMEOUT, RedisServer, wait_until

from limpyd_jobs import STATUSES, Error, Job, Queue, Worker
from limpyd_jobs.workers import stopping
from limpyd_jobs.workers.timers import JobTimer

pytestmark = pytest.mark.usefixtures("jobs_database")

QUEUE = "orders"
SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGUSR1, signal.SIGUSR2)

PROGRAM = """
import logging, os, sys
import redis
from limpyd_jobs import Worker
from limpyd_jobs.workers import WorkerPool

logging.basicConfig(level="INFO", format="%(levelname)s %(message)s")
gates = redis.Redis(unix_socket_path=os.environ["GATES"])


def ship_slowly(job, queue):
    gates.rpush("by", os.getpid())
    for _ in range(60):  # not one wait in C, which a signal does not end if another thread gets it
        if gates.blpop("open", 1):
            break


def make():
    return Worker("orders", callback=ship_slowly, **eval(sys.argv[1]))


if len(sys.argv) == 2:
    make().run()
else:
    sys.exit(WorkerPool(int(sys.argv[2]), make).run())
"""


class Program:
    """A program that runs a worker, or several, without a terminal."""

    def __init__(self, path: Path, server: RedisServer, *arguments: str) -> None:
        self.path = path
        command = [sys.executable, str(path / "program.py"), *arguments]
        (path / "program.py").write_text(PROGRAM)
        self.pid = self._start(command, {**os.environ, "GATES": server.socket, "LIMPYD_JOBS_DATABASE": server.url})

    def _start(self, command: list[str], environment: dict[str, str]) -> int:
        with open(self.path / "log", "wb") as log:
            self._process = preloaded.Process(command, env=environment, output=log.fileno())
        return self._process.pid

    @property
    def log(self) -> str:
        return (self.path / "log").read_text()

    def send(self, number: int) -> None:
        os.kill(self.pid, number)

    def wait(self) -> int:
        """Return its exit status, once it has ended."""
        return self._process.wait(TIMEOUT)

    def kill(self) -> None:
        self._process.send_signal(signal.SIGKILL)
        self._process.wait()


class ProgramInTerminal(Program):
    """The same in a terminal, of which it is the process in the foreground."""

    def _start(self, command: list[str], environment: dict[str, str]) -> int:
        pid, self._terminal = pty.fork()
        if pid == 0:
            os.execve(command[0], command, environment)
        os.set_blocking(self._terminal, False)
        self._shown = b""
        return pid

    @property
    def log(self) -> str:
        with suppress(OSError):  # all is read; or it has ended
            while chunk := os.read(self._terminal, 65536):
                self._shown += chunk
        return self._shown.decode()

    def type(self, keys: bytes) -> None:
        os.write(self._terminal, keys)

    def hang_up(self) -> None:
        os.close(self._terminal)
        self._terminal = -1

    def wait(self) -> int:
        ended: list[int] = []

        def has_ended() -> bool:
            assert self.log is not None  # who writes to a terminal that is full waits
            pid, status = os.waitpid(self.pid, os.WNOHANG)
            ended.append(status)
            return bool(pid)

        wait_until(has_ended)
        self.pid = 0
        return os.waitstatus_to_exitcode(ended[-1])

    def kill(self) -> None:
        if self.pid:
            os.killpg(self.pid, signal.SIGKILL)
            os.waitpid(self.pid, 0)
        with suppress(OSError):
            os.close(self._terminal)


CTRL_C = b"\x03"


@pytest.fixture
def start(tmp_path: Path, redis_server: RedisServer) -> Iterator[Callable[..., Any]]:
    programs: list[Program] = []

    def start(kind: type[Program] = Program, options: str = "{}", *arguments: str) -> Program:
        programs.append(kind(tmp_path, redis_server, options, *arguments))
        return programs[-1]

    yield start
    for program in programs:
        program.kill()


@pytest.fixture(autouse=True)
def _whole(redis_client: redis.Redis) -> Iterator[None]:
    handlers = {number: signal.getsignal(number) for number in SIGNALS}
    yield
    for number, handler in handlers.items():
        signal.signal(number, handler)
    assert violations(redis_client, Job, Queue, Error) == []


def add(*names: str) -> list[Job]:
    return [Job.add_job(name, QUEUE) for name in names]


def wait_for_runs(client: redis.Redis, number: int = 1) -> None:
    wait_until(lambda: client.llen("by") == number, f"{number} jobs that run")


def wait_for_idle(client: redis.Redis, number: int = 1) -> None:
    wait_until(lambda: client.info("clients")["blocked_clients"] == number, "an idle worker")


def states(*jobs: Job) -> list[list[str | None]]:
    return [job.hmget("status", "tries") for job in jobs]


class TestHangUp:
    def test_the_running_job_is_finished_then_the_worker_ends(self, start: Any, redis_client: redis.Redis) -> None:
        jobs = add("a", "b")
        program = start()
        wait_for_runs(redis_client)
        program.send(signal.SIGHUP)
        wait_until(lambda: "INFO" in program.log and "SIGHUP caught: ending, after the running job" in program.log)
        redis_client.rpush("open", 1)
        assert program.wait() == 0
        assert states(*jobs) == [["s", "1"], ["w", None]]
        assert program.log.endswith(": SIGHUP caught\n")

    @pytest.mark.proof
    def test_so_it_is_when_the_terminal_is_closed(self, start: Any, redis_client: redis.Redis) -> None:
        (job,) = add("a")
        program = start(ProgramInTerminal)
        wait_for_runs(redis_client)
        program.hang_up()
        redis_client.rpush("open", 1)
        assert program.wait() in (0, 120)  # which Python answers if the terminal took not all that was written
        assert states(job) == [["s", "1"]]

    def test_without_grace_it_is_left_alone(self, start: Any, redis_client: redis.Redis) -> None:
        add("a")
        program = start(Program, "{'terminate_gracefuly': False, 'lease': 0.5}")
        wait_for_runs(redis_client)
        program.send(signal.SIGHUP)
        assert program.wait() == -signal.SIGHUP
        work(QUEUE)  # until another worker ran the job


class TestReport:
    def test_what_runs_is_logged_with_the_stack_of_each_thread(self, start: Any, redis_client: redis.Redis) -> None:
        (job,) = add("a")
        program = start()
        wait_for_runs(redis_client)
        program.send(signal.SIGUSR1)
        wait_until(lambda: "thread limpyd-jobs-heartbeat:" in program.log)
        token = re.escape(job._claim_token.hget() or "")
        assert re.search(
            r"WARNING \[\d{6}\] SIGUSR1 caught: running, queues=orders, loop=1/1000, duration=0:00:\d\d\.\d+\n"
            rf"has the claim {token} on \[orders\|1\|a\] limpyd_jobs\.models\.Job:1, try 1, since \d+\.\d seconds\n"
            r"thread MainThread:\n",
            program.log,
        )
        (main,) = re.findall(r"^thread MainThread:\n((?:  .*\n)+)", program.log, re.MULTILINE)
        assert "in ship_slowly" in main
        assert "report_of" not in main
        redis_client.rpush("open", 1)
        wait_until(lambda: job.status.hget() == STATUSES.SUCCESS)
        program.send(signal.SIGTERM)
        assert program.wait() == 0

    def test_an_idle_worker_says_so_and_goes_on(self, start: Any, redis_client: redis.Redis) -> None:
        Queue.get_queue(QUEUE)
        program = start()
        wait_for_idle(redis_client)
        for number in (1, 2):
            program.send(signal.SIGUSR1)
            wait_until(lambda number=number: program.log.count("\nidle\n") == number)
        add("a")
        wait_for_runs(redis_client)
        redis_client.rpush("open", 1)
        program.send(signal.SIGTERM)
        assert program.wait() == 0

    def test_what_is_claimed_in_advance_is_named(self, start: Any, redis_client: redis.Redis) -> None:
        add(*"abcdefgh")
        program = start(Program, "{'prefetch': 10}")
        wait_for_runs(redis_client)
        redis_client.rpush("open", 1)
        wait_for_runs(redis_client, 2)
        program.send(signal.SIGUSR1)
        wait_until(lambda: "thread MainThread" in program.log)
        assert "\n6 jobs to be run next: [orders|3|c] limpyd_jobs.models.Job:3, try 1; [orders|4|d] " in program.log
        redis_client.rpush("open", *[1] * 7)
        wait_until(lambda: Queue.get_queue(QUEUE).success.llen() == 8)


class TestQuiet:
    def test_no_other_job_is_begun_until_the_worker_is_ended(self, start: Any, redis_client: redis.Redis) -> None:
        jobs = add("a", "b")
        program = start()
        wait_for_runs(redis_client)
        program.send(signal.SIGUSR2)
        wait_until(lambda: "SIGUSR2 caught: quiet, no other job is begun" in program.log)
        redis_client.rpush("open", 1)
        wait_until(lambda: jobs[0].status.hget() == STATUSES.SUCCESS)
        wait_until(lambda: program.send(signal.SIGUSR1) or "caught: waiting, quiet, queues=orders" in program.log)
        assert states(jobs[1]) == [["w", None]]
        program.send(signal.SIGTERM)
        assert program.wait() == 0
        assert redis_client.llen("by") == 1

    def test_an_idle_one_leaves_new_jobs_to_others(
        self, start: Any, redis_client: redis.Redis, collector: Collector
    ) -> None:
        Queue.get_queue(QUEUE)
        program = start()
        wait_for_idle(redis_client)
        program.send(signal.SIGUSR2)
        wait_for_idle(redis_client, 0)
        add("a")
        work(QUEUE, callback=collector)
        assert collector.identifiers == ["a"]
        assert redis_client.llen("by") == 0
        program.send(signal.SIGTERM)
        assert program.wait() == 0

    def test_what_is_claimed_in_advance_is_given_back(self, start: Any, redis_client: redis.Redis) -> None:
        jobs = add("a", "b", "c", "d")
        program = start(Program, "{'prefetch': 10}")
        wait_for_runs(redis_client)
        redis_client.rpush("open", 1)
        wait_for_runs(redis_client, 2)
        program.send(signal.SIGUSR2)
        wait_until(lambda: "quiet" in program.log)
        redis_client.rpush("open", *[1] * 2)
        wait_until(lambda: jobs[3].status.hget() == STATUSES.WAITING)
        waiting = Queue.get_queue(QUEUE).waiting
        done = [job for job in jobs if job.status.hget() == STATUSES.SUCCESS]
        wait_until(lambda: waiting.lmembers() == [job.ident for job in jobs[len(done) :]])
        assert redis_client.llen("by") == len(done)
        program.send(signal.SIGTERM)
        assert program.wait() == 0


class TestInterrupt:
    @pytest.mark.proof
    def test_the_second_one_from_a_terminal_releases_the_job(self, start: Any, redis_client: redis.Redis) -> None:
        first, second = add("a", "b")
        program = start(ProgramInTerminal)
        wait_for_runs(redis_client)
        program.type(CTRL_C)
        wait_until(lambda: "after the running job if there is one, which a second one releases" in program.log)
        program.type(CTRL_C)
        assert program.wait() == 0
        assert states(first, second) == [["w", None]] * 2
        assert Queue.get_queue(QUEUE).waiting.lmembers() == [first.ident, second.ident]
        assert "[orders|1|a] released, because its worker has to end" in program.log

    def test_that_comes_while_a_line_is_written_counts(self, monkeypatch: pytest.MonkeyPatch) -> None:
        def log(message: str, level: str = "info") -> None:
            raise RuntimeError("reentrant call inside <_io.BufferedWriter name='<stderr>'>")

        set_timers: list[str] = []
        worker = Worker(QUEUE)
        monkeypatch.setattr(worker, "log", log)
        monkeypatch.setattr(stopping, "has_terminal", lambda: True)
        monkeypatch.setattr(JobTimer, "set", lambda _, name, *args: set_timers.append(name))
        worker.catch_end_signal(signal.SIGINT, None)
        assert (worker.end_forced, set_timers) == (True, [])
        worker.catch_end_signal(signal.SIGINT, None)
        assert set_timers == ["grace period"]

    def test_the_first_one_lets_it_finish(self, start: Any, redis_client: redis.Redis) -> None:
        (job,) = add("a")
        program = start(ProgramInTerminal)
        wait_for_runs(redis_client)
        program.type(CTRL_C)
        wait_until(lambda: "SIGINT caught" in program.log)
        program.send(signal.SIGTERM)
        program.send(signal.SIGTERM)
        redis_client.rpush("open", 1)
        assert program.wait() == 0
        assert states(job) == [["s", "1"]]

    def test_without_a_terminal_a_second_one_changes_nothing(self, start: Any, redis_client: redis.Redis) -> None:
        (job,) = add("a")
        program = start()
        wait_for_runs(redis_client)
        program.send(signal.SIGINT)
        wait_until(lambda: "SIGINT caught" in program.log)
        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGUSR1):
            program.send(number)
        wait_until(lambda: "SIGUSR1 caught" in program.log)  # the last to be handled
        redis_client.rpush("open", 1)
        assert program.wait() == 0
        assert states(job) == [["s", "1"]]
        assert program.log.count("caught: ending") == 1

    @pytest.mark.proof
    def test_of_several_processes_the_second_one_releases_the_jobs(self, start: Any, redis_client: redis.Redis) -> None:
        jobs = add("a", "b", "c")
        program = start(ProgramInTerminal, "{}", "2")
        wait_for_runs(redis_client, 2)
        program.type(CTRL_C)
        wait_until(lambda: program.log.count("caught: ending, after the running job") == 2)
        wait_until(lambda: "[parent] SIGINT caught" in program.log)
        assert sorted(job.status.hget() or "" for job in jobs) == ["r", "r", "w"]
        program.type(CTRL_C)
        assert program.wait() == 0
        assert [job.status.hget() for job in jobs] == [STATUSES.WAITING] * 3
        assert program.log.count("released, because its worker has to end") == 2

    @pytest.mark.proof
    def test_of_several_processes_the_first_one_releases_none(self, start: Any, redis_client: redis.Redis) -> None:
        jobs = add("a", "b")
        program = start(ProgramInTerminal, "{}", "2")
        wait_for_runs(redis_client, 2)
        program.type(CTRL_C)
        wait_until(lambda: program.log.count("caught: ending, after the running job") == 2)
        wait_until(lambda: "[parent] SIGINT caught" in program.log)
        redis_client.rpush("open", 1, 2)
        assert program.wait() == 0
        assert states(*jobs) == [["s", "1"]] * 2


class TestWhoseSignals:
    def handlers(self) -> list[Any]:
        return [signal.getsignal(number) for number in SIGNALS]

    def test_those_that_would_end_the_process_are_handled_during_the_run(self) -> None:
        before = self.handlers()
        during: list[Any] = []
        add("a")
        work(QUEUE, callback=lambda *_: during.extend(self.handlers()), terminate_gracefuly=True)
        assert signal.SIG_DFL not in during
        assert self.handlers() == before

    @pytest.mark.parametrize("handler", [signal.SIG_IGN, lambda *_: None], ids=["ignored", "of its own"])
    def test_those_that_the_application_handles_are_its_own(self, handler: Any) -> None:
        for number in SIGNALS[2:]:
            signal.signal(number, handler)
        during: list[Any] = []
        add("a")
        work(QUEUE, callback=lambda *_: during.extend(self.handlers()), terminate_gracefuly=True)
        assert during[2:] == [handler] * 3
        assert self.handlers()[2:] == [handler] * 3

    def test_a_worker_may_end_on_more_signals(self) -> None:
        class Listening(Worker):
            def handle_end_signal(self) -> None:
                super().handle_end_signal()
                signal.signal(signal.SIGUSR2, self.catch_end_signal)

        add("a", "b")
        worker = worker_of(
            QUEUE,
            worker_class=Listening,
            callback=lambda *_: signal.raise_signal(signal.SIGUSR2),
            terminate_gracefuly=True,
            max_loops=2,
        )
        worker.run()
        assert (worker.num_loops, worker.end_signal_caught) == (1, True)
