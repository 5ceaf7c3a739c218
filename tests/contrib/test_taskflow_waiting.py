"""Waiting for postings, and conductors that die."""

from __future__ import annotations

import signal
import subprocess
import sys
from collections.abc import Iterator
from threading import Event, Thread
from typing import Any

import pytest
from servers import RedisServer, wait_until

pytest.importorskip("taskflow")
from boards import Make, names, post_flow
from taskflow import exceptions, states
from taskflow.conductors import backends as conductors
from taskflow.jobs import base
from taskflow.persistence import backends as stores

from limpyd_jobs.contrib.taskflow import LimpydJobBoard

pytestmark = pytest.mark.usefixtures("redis_client")


class TestWaiting:
    def test_for_a_posting_ends_with_it(self, board: LimpydJobBoard, make: Make) -> None:
        other = make()
        thread = Thread(target=lambda: board.post("x"))
        with pytest.raises(exceptions.NotFound):
            other.wait(0.05)
        thread.start()
        assert names(other.wait(30)) == ["x"]
        thread.join()

    @pytest.mark.parametrize(
        ("timeout", "error"), [(float("nan"), ValueError), (-1, ValueError), ("x", TypeError), (True, TypeError)]
    )
    def test_needs_a_time(self, board: LimpydJobBoard, timeout: Any, error: Any) -> None:
        for wait in (board.wait, board.post("x").wait):
            with pytest.raises(error, match="timeout must be"):
                wait(timeout)

    @pytest.mark.parametrize("seconds", [0, -1, float("nan"), float("inf"), "x", True])
    def test_of_a_conductor_needs_a_time(self, board: LimpydJobBoard, seconds: Any) -> None:
        with pytest.raises(ValueError, match="timeout must be a number of seconds"):
            board.timeout(seconds)

    def test_without_an_end(self, board: LimpydJobBoard, make: Make) -> None:
        thread = Thread(target=lambda: board.post("x"))
        thread.start()
        assert names(make().wait(float("inf"))) == ["x"]
        thread.join()

    def test_for_the_end_of_a_job(self, board: LimpydJobBoard, make: Make) -> None:
        job = board.post("x")
        assert not job.wait(0.05)
        board.claim(job, "ann")
        thread = Thread(target=lambda: board.consume(job, "ann"))
        thread.start()
        assert job.wait(30)
        thread.join()

    def test_of_a_conductor_ends_with_a_posting_or_a_stop(self, board: LimpydJobBoard, make: Make) -> None:
        timeout = make().timeout(60)
        timeout.wait()  # the first one only begins to listen
        for end in (lambda: board.post("x"), timeout.interrupt):
            thread = Thread(target=timeout.wait)
            thread.start()
            end()
            thread.join(20)
            assert not thread.is_alive()

    def test_of_a_conductor_that_runs_as_many_as_it_may_ends_with_one_of_them(self, redis_server: RedisServer) -> None:
        persistence = stores.fetch({"connection": "memory"})
        board = LimpydJobBoard("flows", {"unix_socket_path": redis_server.socket}, persistence=persistence)
        board.connect()
        jobs = [post_flow(board) for _ in range(3)]
        conductor = conductors.fetch(
            *("nonblocking", "one", board),
            persistence=persistence,
            wait_timeout=board.timeout(600),
            max_simultaneous_jobs=1,
        )
        thread = Thread(target=conductor.run)
        thread.start()
        assert [job.wait(60) for job in jobs] == [True, True, True]
        conductor.stop()
        thread.join(60)
        board.close()

    @pytest.mark.parametrize(("lease", "seconds"), [(30, 7.5), (8, 2), (0.4, 0.5)])
    def test_of_a_conductor_is_no_longer_than_a_part_of_the_lease(
        self, make: Make, lease: float, seconds: float
    ) -> None:
        assert make(lease=lease).timeout().value == seconds

    def test_of_a_conductor_goes_on_if_redis_fails(self, redis_binary: str) -> None:
        with RedisServer(redis_binary) as server:
            board = LimpydJobBoard("flows", {"unix_socket_path": server.socket})
            board.connect()
            timeout = board.timeout(0.01)
            server.stop()
            timeout.wait()
            server.start()
            timeout.wait()
            assert not board.listen()  # as it listens by now
            board.close()

    def test_who_is_registered_is_told(self, board: LimpydJobBoard, make: Make) -> None:
        told: list[Any] = []
        listener = make()
        for event in (base.POSTED, base.REMOVAL):
            listener.notifier.register(event, lambda event, details: told.append((event, details["job"].name)))
        job = board.post("x")
        wait_until(lambda: told == [("POSTED", "x")])
        board.claim(job, "ann")
        board.consume(job, "ann")
        wait_until(lambda: told == [("POSTED", "x"), ("REMOVAL", "x")])

    @pytest.mark.parametrize("is_early", [True, False])
    def test_who_is_registered_is_told_that_what_was_posted_before_is_gone(
        self, board: LimpydJobBoard, redis_server: RedisServer, is_early: bool
    ) -> None:
        told: list[Any] = []
        job = board.post("x")
        listener = LimpydJobBoard("flows", {"unix_socket_path": redis_server.socket})
        if is_early:
            listener.notifier.register(base.REMOVAL, lambda event, details: told.append(details["job"].name))
        listener.connect()
        if not is_early:
            listener.notifier.register(base.REMOVAL, lambda event, details: told.append(details["job"].name))
        board.claim(job, "ann")
        board.consume(job, "ann")
        wait_until(lambda: told == ["x"])
        listener.close()

    def test_who_is_registered_is_told_of_what_is_trashed_and_posted_again(
        self, board: LimpydJobBoard, make: Make
    ) -> None:
        told: list[Any] = []
        listener = make()
        for event in (base.POSTED, base.REMOVAL):
            listener.notifier.register(event, lambda event, details: told.append(event))
        job = board.post("x")
        board.claim(job, "ann")
        board.trash(job, "ann")
        wait_until(lambda: told[:1] == ["POSTED"])
        job.posting.requeue("flows")
        board.claim(job, "ann")
        wait_until(lambda: told == ["POSTED", "REMOVAL", "POSTED"])
        board.consume(job, "ann")
        wait_until(lambda: told == ["POSTED", "REMOVAL", "POSTED", "REMOVAL"])

    def test_is_told_of_what_is_consumed_before_any_process_could_look(self, make: Make) -> None:
        board, told = make(), []
        for event in (base.POSTED, base.REMOVAL):
            board.notifier.register(event, lambda event, details: told.append((details["job"].name, event)))
        names = [f"{number:02}" for number in range(50)]
        for name in names:
            job = board.post(name)
            board.claim(job, "ann")
            board.consume(job, "ann")
        wait_until(lambda: len(told) == 100)
        assert sorted(told) == sorted((name, event) for name in names for event in (base.POSTED, base.REMOVAL))
        assert board._events._posted == board._events._own == {}


CONDUCTOR = """
import sys
from limpyd_jobs.contrib.taskflow import LimpydJobBoard

board = LimpydJobBoard("flows", {"unix_socket_path": sys.argv[1], "lease": 1})
board.connect()
(job,) = board.iterjobs()
board.claim(job, "conductor")
print("claimed", flush=True)
sys.stdin.readline()
try:
    board.consume(job, "conductor")
except Exception as error:
    print(type(error).__name__, flush=True)
"""


@pytest.mark.proof
class TestAConductorThatDies:
    @pytest.fixture
    def conductor(self, board: LimpydJobBoard, redis_server: RedisServer) -> Iterator[subprocess.Popen[str]]:
        board.post("x")
        command = [sys.executable, "-c", CONDUCTOR, redis_server.socket]
        with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
            assert process.stdout is not None
            assert process.stdout.readline() == "claimed\n"
            yield process
            process.kill()

    def test_loses_its_claim(self, board: LimpydJobBoard, conductor: subprocess.Popen[str]) -> None:
        conductor.kill()
        (job,) = board.iterjobs()
        wait_until(lambda: job.state == states.UNCLAIMED)
        board.claim(job, "conductor")
        board.consume(job, "conductor")

    @pytest.mark.proof
    def test_is_followed_by_one_that_waits(self, make: Make, conductor: subprocess.Popen[str]) -> None:
        board, other = make(lease=1), make()
        timeout = board.timeout()
        conductor.kill()
        claimed = Event()

        def conduct() -> None:
            while not claimed.is_set():
                for job in board.iterjobs(only_unclaimed=True):
                    board.claim(job, "another")
                    claimed.set()
                timeout.wait()

        thread = Thread(target=conduct)
        thread.start()
        thread.join(60)
        (job,) = other.iterjobs()
        assert (claimed.is_set(), other.find_owner(job)) == (True, "another")

    @pytest.mark.proof
    def test_or_was_silent_is_refused(self, board: LimpydJobBoard, conductor: subprocess.Popen[str]) -> None:
        conductor.send_signal(signal.SIGSTOP)
        (job,) = board.iterjobs()
        wait_until(lambda: job.state == states.UNCLAIMED)
        board.claim(job, "conductor")
        conductor.send_signal(signal.SIGCONT)
        told, _ = conductor.communicate("go on\n", timeout=30)
        assert told == "JobFailure\n"
        board.consume(job, "conductor")
