"""The jobboard of TaskFlow: what is promised beyond the tests of TaskFlow itself."""

from __future__ import annotations

import logging
import os
import signal
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from threading import Event, Thread
from typing import Any

import pytest
import redis
from cases import each
from servers import RedisServer, wait_until

pytest.importorskip("taskflow")

from boards import Make, is_renewed, lease_end, names, queue_of
from taskflow import exceptions, states
from taskflow.jobs import backends, base
from taskflow.types.entity import Entity

from limpyd_jobs import STATUSES, Error, Job, Queue
from limpyd_jobs import check as checking
from limpyd_jobs.contrib.taskflow import Board, LimpydJobBoard, Posting, PostingError
from limpyd_jobs.contrib.taskflow.settings import LOG
from limpyd_jobs.models.following import changes

pytestmark = pytest.mark.usefixtures("redis_client")

HIGH, LOW = base.JobPriority.HIGH, base.JobPriority.LOW


class TestPosting:
    def test_is_a_job_of_a_queue(self, board: LimpydJobBoard) -> None:
        job = board.post("resize", details={"size": 5, "raw": [1, None, "é"]}, priority=HIGH)
        (posting,) = Posting.bound_to(board.model.database).collection().instances()
        assert posting.identifier.hget() == job.uuid
        assert (posting.arguments.title, posting.arguments.details) == ("resize", {"size": 5, "raw": [1, None, "é"]})
        assert (job.board, job.priority, job.book, job.state) == (board, HIGH, None, states.UNCLAIMED)
        assert job.created_on is not None
        assert job.last_modified is None
        (found,) = board.iterjobs()
        assert (found.uuid, found.name, found.details) == (job.uuid, "resize", job.details)
        assert found.created_on == job.created_on

    def test_is_listed_by_priority_then_the_oldest_first(self, board: LimpydJobBoard) -> None:
        for number in range(3):
            board.post(f"low {number}", priority="low")
            board.post(f"high {number}", priority="HIGH")
            board.post(f"normal {number}")
        expected = [f"{priority} {number}" for priority in ("high", "normal", "low") for number in range(3)]
        assert names(board.iterjobs()) == expected
        assert names(sorted(board.iterjobs(), reverse=True)) == expected[::-1]
        assert board.job_count == 9

    def test_is_listed_by_its_age_whether_it_is_claimed_or_not(self, board: LimpydJobBoard, make: Make) -> None:
        jobs = [board.post(str(number)) for number in range(20)]
        for number in (2, 9, 10):
            board.claim(jobs[number], "ann", expiry=0.01 if number == 9 else 500)
        for number in (4, 12):
            board.claim(jobs[number], "ann")
            board.abandon(jobs[number], "ann")
        board.claim(jobs[7], "ann")
        board.trash(jobs[7], "ann")
        jobs[7].posting.requeue("flows")
        wait_until(lambda: jobs[9].state == states.UNCLAIMED)
        everything = [str(number) for number in range(20)]
        assert names(board.iterjobs()) == everything
        assert names(board.iterjobs(only_unclaimed=True)) == [each for each in everything if each not in ("2", "10")]

    def test_is_read_a_page_at_a_time(self, board: LimpydJobBoard, commands: Any) -> None:
        for number in range(450):
            board.post(str(number))
        with commands() as sent:
            first = next(board.iterjobs())
        assert (first.name, len(sent.names) < 16) == ("0", True)
        with commands() as sent:
            assert names(board.iterjobs()) == [str(number) for number in range(450)]
        assert len(sent.names) < 25

    @pytest.mark.proof
    def test_is_found_although_those_before_it_are_claimed_meanwhile(self, board: LimpydJobBoard) -> None:
        for number in range(450):
            board.post(str(number))
        found = []
        for job in board.iterjobs(only_unclaimed=True):
            board.claim(job, "ann")
            board.consume(job, "ann")
            found.append(job.name)
        assert found == [str(number) for number in range(450)]

    def test_that_is_claimed_while_others_are_read_is_not_told_as_unclaimed(
        self, board: LimpydJobBoard, make: Make
    ) -> None:
        jobs = [board.post(str(number)) for number in range(250)]
        found = board.iterjobs(only_unclaimed=True)
        next(found)
        make().claim(jobs[-1], "bob")
        assert names(found) == [str(number) for number in range(1, 249)]

    @pytest.mark.parametrize("priority", ["urgent", None, 5])
    def test_needs_a_priority(self, board: LimpydJobBoard, priority: Any) -> None:
        with pytest.raises(ValueError, match="priority"):
            board.post("x", priority=priority)

    @pytest.mark.parametrize("details", [{"x": object()}, {1: 2}, {"x": (1,)}, {"x": [{1: 2}]}])
    def test_needs_details_that_can_be_stored(self, board: LimpydJobBoard, details: Any) -> None:
        with pytest.raises(exceptions.JobFailure, match="details"):
            board.post("x", details=details)
        assert board.job_count == 0

    def test_of_one_board_is_not_seen_on_another(self, board: LimpydJobBoard, make: Make) -> None:
        board.post("x")
        assert list(make("others").iterjobs()) == []
        assert names(make("other name", namespace="flows").iterjobs()) == ["x"]

    def test_whose_record_is_gone_is_not_counted(self, board: LimpydJobBoard, redis_client: redis.Redis) -> None:
        jobs = [board.post(str(number)) for number in range(3)]
        board.claim(jobs[0], "ann")
        redis_client.delete(f"taskflow:posting:{jobs[1].posting.pk.get()}:hash")
        assert board.job_count == 2
        for number in (0, 2):
            redis_client.delete(f"taskflow:posting:{jobs[number].posting.pk.get()}:hash")
        assert board.job_count == 0
        with pytest.raises(exceptions.NotFound):
            board.wait(0)

    def test_that_is_broken_is_set_aside_and_the_others_are_served(
        self, board: LimpydJobBoard, redis_client: redis.Redis, caplog: Any
    ) -> None:
        jobs = [board.post(str(number)) for number in range(3)]
        redis_client.hset(f"taskflow:posting:{jobs[1].posting.pk.get()}:hash", "details", "{")
        redis_client.rpush(f"{jobs[0].posting.queue_key.hget()}:waiting", "foreign", "a:b")
        for _ in range(2):
            assert names(board.iterjobs()) == ["0", "2"]
        assert [record.levelname for record in caplog.records].count("ERROR") == 1
        assert queue_of(board).quarantine.lmembers() == [jobs[1].posting.ident]


class TestClaiming:
    def test_is_for_one(self, board: LimpydJobBoard, make: Make) -> None:
        job = board.post("x")
        board.claim(job, "ann")
        with pytest.raises(exceptions.UnclaimableJob, match="'ann'"):
            make().claim(job, "bob")
        assert (board.find_owner(job), job.state) == ("ann", states.CLAIMED)
        assert job.last_modified is not None
        assert names(board.iterjobs()) == ["x"]
        assert names(board.iterjobs(only_unclaimed=True)) == []
        assert board.job_count == 1

    def test_again_by_the_same_renews_it_and_is_refused(self, board: LimpydJobBoard) -> None:
        job = board.post("x")
        board.claim(job, "ann", expiry=20)
        with pytest.raises(exceptions.UnclaimableJob):
            board.claim(job, "ann", expiry=500)
        assert 400 < (job.expires_in() or 0) <= 500

    @pytest.mark.parametrize("expiry", [None, 500])
    def test_again_by_the_same_without_an_expiry_leaves_it_alone(self, make: Make, expiry: float | None) -> None:
        board = make(lease=100)
        job = board.post("x")
        board.claim(job, "ann", expiry=expiry)
        (before,) = queue_of(board).running.zrange(0, -1, withscores=True)
        with pytest.raises(exceptions.UnclaimableJob):
            board.claim(job, "ann")
        assert queue_of(board).running.zrange(0, -1, withscores=True) == [before]
        assert is_renewed(board) == (expiry is None)

    def test_with_an_expiry_lapses(self, board: LimpydJobBoard, make: Make) -> None:
        job = board.post("x")
        board.claim(job, "ann", expiry=0.2)
        wait_until(lambda: job.state == states.UNCLAIMED)
        assert names(board.iterjobs(only_unclaimed=True)) == ["x"]
        assert board.find_owner(job) is job.expires_in() is None
        with pytest.raises(exceptions.NotFound):
            board.consume(job, "ann")
        other = make()
        other.claim(job, "ann")
        with pytest.raises(exceptions.JobFailure, match=r"lapsed, or it has none\. Another claim of 'ann' may hold it"):
            board.consume(job, "ann")
        other.consume(job, "ann")
        assert job.state == states.COMPLETE

    def test_can_be_extended_by_who_holds_it(self, board: LimpydJobBoard, make: Make) -> None:
        job = board.post("x")
        assert not job.extend_expiry(5)
        board.claim(job, "ann", expiry=5)
        assert job.extend_expiry(500)
        assert (job.expires_in() or 0) > 400
        (same,) = make().iterjobs()
        assert not same.extend_expiry(5)

    def test_without_an_expiry_is_renewed_while_the_board_is_open(self, make: Make) -> None:
        board = make(lease=0.3)
        job = board.post("x")
        board.claim(job, "ann")
        lapses = lease_end(board)
        wait_until(lambda: lease_end(board) > lapses + 0.6)
        other = make()
        board.close()
        assert names(other.iterjobs(only_unclaimed=True)) == ["x"]

    @pytest.mark.parametrize(
        ("who", "expiry", "error"),
        [(5, None, TypeError), ("", None, ValueError), *(("ann", each, ValueError) for each in (0, -1, True, "x"))],
    )
    def test_needs_a_name_and_a_time(self, board: LimpydJobBoard, who: Any, expiry: Any, error: Any) -> None:
        with pytest.raises(error):
            board.claim(board.post("x"), who, expiry=expiry)

    def test_has_one_winner(self, make: Make) -> None:
        boards = [make() for _ in range(8)]
        jobs = [boards[0].post(str(number)) for number in range(50)]
        won: list[str] = []

        def run(board: LimpydJobBoard, who: str) -> None:
            for job in jobs:
                try:
                    board.claim(job, who)
                except exceptions.UnclaimableJob:
                    continue
                won.append(job.uuid)

        threads = [Thread(target=run, args=(board, str(number))) for number, board in enumerate(boards)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert sorted(won) == sorted(job.uuid for job in jobs)

    def test_what_is_gone_is_told(self, board: LimpydJobBoard) -> None:
        job = board.post("x")
        board.claim(job, "ann")
        board.consume(job, "ann")
        with pytest.raises(exceptions.NotFound):
            board.claim(job, "ann")


class TestTheEnd:
    def test_nothing_is_left_of_what_is_consumed(self, board: LimpydJobBoard, redis_client: redis.Redis) -> None:
        job = board.post("x")
        board.claim(job, "ann")
        board.consume(job, "ann")
        assert job.state == states.COMPLETE
        assert board.job_count == 0
        assert redis_client.keys("taskflow:posting:[0-9]*") == []
        assert redis_client.keys("taskflow:board:*:success") == []

    def test_what_is_abandoned_is_claimed_again_first(self, board: LimpydJobBoard) -> None:
        first, _ = board.post("x"), board.post("y")
        board.claim(first, "ann")
        board.abandon(first, "ann")
        assert names(board.iterjobs(only_unclaimed=True)) == ["x", "y"]

    def test_what_is_trashed_can_be_posted_again(self, board: LimpydJobBoard) -> None:
        job = board.post("x")
        board.claim(job, "ann")
        board.trash(job, "ann")
        assert job.state == states.COMPLETE
        assert list(board.iterjobs()) == []
        assert queue_of(board).errors.lmembers() == [job.posting.ident]
        job.posting.requeue(board.queue_name)
        assert names(board.iterjobs()) == ["x"]

    def test_what_is_trashed_goes_back_to_its_board_or_to_another_one(self, board: LimpydJobBoard, make: Make) -> None:
        for options, place in (({}, board), ({"queue_name": "others"}, make("others"))):
            job = board.post("x", priority=HIGH)
            board.claim(job, "ann")
            board.trash(job, "ann")
            (posting,) = board.model.collection(status=STATUSES.ERROR).instances()
            posting.requeue(**options)
            assert [(found.name, found.priority) for found in place.iterjobs()] == [("x", HIGH)]

    def test_what_is_trashed_is_claimed_by_no_process_who_is_told_why(self, board: LimpydJobBoard) -> None:
        job = board.post("x")
        board.claim(job, "ann")
        board.trash(job, "ann")
        with pytest.raises(exceptions.NotFound, match="is not on the board any more: it was trashed"):
            board.claim(job, "ann")
        with pytest.raises(ValueError, match="cannot be delayed"):
            job.posting.requeue(delayed_for=60)
        Job.requeue(job.posting, "flows", delayed_for=60)
        with pytest.raises(exceptions.NotFound, match="is not on the board yet: it is delayed"):
            board.claim(job, "ann")

    def test_the_reason_why_it_was_trashed_is_an_error(self, board: LimpydJobBoard) -> None:
        job = board.post("x")
        board.claim(job, "ann")
        board.trash(job, "ann")
        (error,) = board.errors.collection_for_job(job.posting).instances()
        assert isinstance(error, PostingError)
        assert error.hmget("message", "queue_name") == ["trashed by ann", "flows"]

    @pytest.mark.parametrize("verb", ["consume", "abandon", "trash"])
    def test_is_for_the_owner(self, board: LimpydJobBoard, verb: str) -> None:
        job = board.post("x")
        with pytest.raises(exceptions.NotFound):
            getattr(board, verb)(job, "ann")
        board.claim(job, "ann")
        with pytest.raises(exceptions.JobFailure, match="'ann'"):
            getattr(board, verb)(job, "bob")
        with pytest.raises(TypeError):
            getattr(board, verb)(job, None)
        getattr(board, verb)(job, "ann")

    def test_that_is_refused_for_a_silence_lets_the_claim_lapse(self, make: Make, monkeypatch: Any) -> None:
        board = make(lease=600)
        job = board.post("a")
        board.claim(job, "ann")
        with monkeypatch.context() as silence:
            silence.setattr("limpyd_jobs.models.claims.claim.monotonic", lambda: time.monotonic() + 601)
            with pytest.raises(exceptions.JobFailure, match="the claim of this board lapsed"):
                board.consume(job, "ann")
        assert not is_renewed(board)

    def test_that_could_not_be_recorded_lets_the_claim_lapse(self, make: Make, redis_server: RedisServer) -> None:
        board = make(lease=600)
        job = board.post("a")
        board.claim(job, "ann")
        board.model.database.connect(unix_socket_path="/no/such/socket")
        with pytest.raises(exceptions.JobFailure, match="Redis failed"):
            board.consume(job, "ann")
        board.model.database.connect(unix_socket_path=redis_server.socket)
        assert not is_renewed(board)
        board.consume(job, "ann")
        assert board.job_count == 0

    def test_leaves_the_database_whole(self, board: LimpydJobBoard) -> None:
        jobs = [board.post(str(number)) for number in range(5)]
        for job, verb in zip(jobs, (board.consume, board.abandon, board.trash), strict=False):
            board.claim(job, "ann")
            verb(job, "ann")
        board.claim(jobs[3], "ann")
        assert checking.check(pause=0, queue_models=[Queue, Board], error_models=[Error]).findings == []


def warnings_in(caplog: Any) -> list[logging.LogRecord]:
    """What a board logged of its settings: threads of other tests may log other things."""
    return [record for record in caplog.records if record.name == LOG.name]


class TestTheBoard:
    def test_may_be_named_by_its_entry_point(self, redis_server: RedisServer) -> None:
        board = backends.fetch("flows", {"board": "limpyd", "url": redis_server.url, "namespace": "n", "db": "2"})
        assert isinstance(board, LimpydJobBoard)
        assert board.queue_name == "n"
        assert board.model.database.connection_settings["db"] == 2

    def test_that_is_closed_is_of_no_use(self, board: LimpydJobBoard) -> None:
        job = board.post("x")
        board.close()
        board.close()
        for call in (
            lambda: board.post("y"),
            lambda: board.claim(job, "ann"),
            lambda: list(board.iterjobs()),
            lambda: board.wait(0),
            lambda: board.job_count,
            lambda: job.state,
            lambda: job.wait(0),
            lambda: board.find_owner(job),
        ):
            with pytest.raises(exceptions.JobFailure, match="not connected"):
                call()
        board.connect()
        assert names(board.iterjobs()) == ["x"]

    def test_tells_as_taskflow_does_that_redis_fails(self, redis_binary: str) -> None:
        with RedisServer(redis_binary) as server:
            board = LimpydJobBoard("flows", {"unix_socket_path": server.socket})
            board.connect()
            job = board.post("x")
            server.stop()
            for call in (lambda: board.post("y"), lambda: board.claim(job, "ann"), lambda: list(board.iterjobs())):
                with pytest.raises(exceptions.JobFailure, match="Redis failed"):
                    call()
            board.close()

    def test_that_cannot_be_opened_is_not_open(self, redis_binary: str) -> None:
        with RedisServer(redis_binary) as server:
            board = LimpydJobBoard("flows", {"unix_socket_path": server.socket})
            server.stop()
            with pytest.raises(exceptions.JobFailure, match="Redis failed"):
                board.connect()
            assert not board.connected
            board.close()
            server.start()
            board.connect()
            assert board.job_count == 0
            board.close()

    def test_goes_on_after_redis_lost_all_data(
        self, board: LimpydJobBoard, make: Make, redis_client: redis.Redis
    ) -> None:
        other = make()
        for priority in ("low", "high"):
            board.post("before", priority=priority)
        redis_client.flushall()
        for priority in ("high", "low"):
            other.post(priority, priority=priority)
        assert names(board.iterjobs()) == names(other.iterjobs()) == ["high", "low"]
        (first, _) = board.iterjobs()
        other.claim(first, "ann")
        assert (board.find_owner(first), first.state) == ("ann", states.CLAIMED)

    def test_that_is_closed_leaves_no_connection(self, make: Make, redis_client: redis.Redis) -> None:
        before = len(redis_client.client_list())
        for _ in range(3):
            board = make()
            board.notifier.register(base.POSTED, print)
            board.post("x")
            board.close()
        wait_until(lambda: len(redis_client.client_list()) <= before)

    def test_tells_on_whatever_stands_in_the_stream(
        self, board: LimpydJobBoard, redis_client: redis.Redis, caplog: Any
    ) -> None:
        told: list[str] = []
        board.notifier.register(base.POSTED, lambda event, details: told.append(details["job"].name))
        changes._may_log.clear()
        for _ in range(3):
            redis_client.xadd("taskflow:posting:changes", {"pk": "1"})
        redis_client.xadd(
            "taskflow:posting:changes", {"pk": "1", "what": "made", "status": "w", "before": "", "queue": "x"}
        )
        board.post("x")
        wait_until(lambda: told == ["x"])
        assert caplog.text.count("is not a change, and is passed over") == 1

    def test_tells_on_after_redis_was_away(self, redis_binary: str) -> None:
        told: list[str] = []
        goes_on = Event()

        def tell(event: str, details: Any) -> None:
            told.append(details["job"].name)
            assert goes_on.wait(60)  # when it asks what else was posted, Redis is away

        with RedisServer(redis_binary) as server:
            board = LimpydJobBoard("flows", {"unix_socket_path": server.socket})
            board.connect()
            board.notifier.register(base.POSTED, tell)
            for name in ("first", "lost"):
                board.post(name)
            wait_until(lambda: told == ["first"])
            server.stop()
            goes_on.set()
            server.start()
            wait_until(lambda: "last" in told or board.post("last") is None)
            board.close()

    def test_tells_what_it_could_not_tell_while_redis_was_away(self, redis_binary: str, caplog: Any) -> None:
        told: list[str] = []
        goes_on = {"first": Event(), "second": Event(), "third": Event()}

        def tell(event: str, details: Any) -> None:
            told.append(details["job"].name)
            assert goes_on[told[-1]].wait(60)

        with RedisServer(redis_binary, "--appendonly", "yes") as server:
            board = LimpydJobBoard("flows", {"unix_socket_path": server.socket})
            board.connect()
            board.notifier.register(base.POSTED, tell)
            other = LimpydJobBoard("flows", {"unix_socket_path": server.socket})  # it has to read what others post
            other.connect()
            other.post("first")
            wait_until(lambda: told == ["first"])
            for name in ("second", "third"):  # it hears of both at once
                other.post(name)
            other.close()
            goes_on["first"].set()
            wait_until(lambda: told == ["first", "second"])
            server.stop()
            goes_on["second"].set()
            wait_until(lambda: "which is notified of changes, failed" in caplog.text)
            server.start()
            wait_until(lambda: told == ["first", "second", "third"])
            goes_on["third"].set()
            board.close()

    def test_listens_no_more_as_soon_as_it_is_being_closed(self, redis_binary: str) -> None:
        with RedisServer(redis_binary) as server:
            board = LimpydJobBoard("closing", {"unix_socket_path": server.socket})
            board.connect()
            told = Event()
            board.notifier.register(base.POSTED, lambda event, details: told.set())
            board.claim(board.post("x"), "ann")
            assert told.wait(60)
            (listener,) = (each for each in threading.enumerate() if each.name == "board closing")
            assert server.process is not None
            server.process.send_signal(signal.SIGSTOP)  # so that closing takes long
            closing = Thread(target=board.close)
            closing.start()
            listener.join(60)
            is_closing = closing.is_alive()
            server.process.send_signal(signal.SIGCONT)
            closing.join(60)
            assert is_closing

    @pytest.mark.parametrize("timeout", [None, 60])
    @pytest.mark.parametrize("what", ["postings", "the end of a job"])
    def test_that_is_closed_ends_all_waits(self, board: LimpydJobBoard, what: str, timeout: float | None) -> None:
        job = board.post("x")
        if what == "postings":
            board.claim(job, "ann")
            board.consume(job, "ann")
        wait = board.wait if what == "postings" else job.wait
        with ThreadPoolExecutor(1) as pool:
            waiting = pool.submit(wait, timeout)
            wait_until(lambda: board.wakes or what != "postings")
            board.close()
            with pytest.raises(exceptions.JobFailure, match="not connected"):
                waiting.result(60)

    def test_tells_what_is_posted_though_redis_failed_when_it_began(self, redis_binary: str) -> None:
        told: list[str] = []

        def note(_: str, details: Any) -> None:
            told.append(details["job"].name)

        with RedisServer(redis_binary) as server:
            board = LimpydJobBoard("flows", {"unix_socket_path": server.socket})
            board.connect()
            server.stop()
            with pytest.raises(exceptions.JobFailure):
                board.notifier.register(base.POSTED, note)
            server.start()
            board.notifier.register(base.POSTED, note)
            board.post("x")
            wait_until(lambda: told == ["x"])
            board.close()

    def test_tells_the_removal_of_what_was_posted_while_no_process_was_told(self, board: LimpydJobBoard) -> None:
        told: list[str] = []

        def note(_: str, details: Any) -> None:
            told.append(details["job"].name)

        board.notifier.register(base.REMOVAL, note)
        board.notifier.deregister(base.REMOVAL, note)
        job = board.post("x")
        board.notifier.register(base.REMOVAL, note)
        board.claim(job, "ann")
        board.consume(job, "ann")
        wait_until(lambda: told == ["x"])

    def test_waits_for_the_end_of_a_job_though_redis_is_away_for_a_while(
        self, redis_binary: str, monkeypatch: Any
    ) -> None:
        monkeypatch.setattr("limpyd_jobs.contrib.taskflow.board.END_WAIT", 0.05)
        with RedisServer(redis_binary) as server, ThreadPoolExecutor(1) as pool:
            board = LimpydJobBoard("flows", {"unix_socket_path": server.socket})
            board.connect()
            job = board.post("x")
            waiting = pool.submit(job.wait, 60)
            wait_until(lambda: "xread" in [each["cmd"] for each in server.client().client_list()])
            server.stop()
            with pytest.raises(exceptions.JobFailure):
                job.wait(0)
            assert not job.wait(0.1)
            assert not waiting.done()
            server.start()  # without the job
            assert waiting.result(60)
            board.close()

    def test_passes_over_a_pk_that_is_no_number(self, board: LimpydJobBoard) -> None:
        board.post("x")
        (queue,) = board.model.queue_model.get_all("flows")
        queue.waiting.lpush(f"{board.model.get_model_repr()}:{'9' * 5000}")
        assert names(board.iterjobs()) == ["x"]

    def test_serves_the_others_beside_details_that_are_too_deep(
        self, board: LimpydJobBoard, redis_client: redis.Redis
    ) -> None:
        deep, _ = board.post("deep"), board.post("x")
        redis_client.hset(f"taskflow:posting:{deep.posting.pk.get()}:hash", "details", "[" * 200_000)
        assert names(board.iterjobs()) == ["x"]

    def test_passes_over_a_queue_of_another_priority(self, board: LimpydJobBoard) -> None:
        board.model.add_job("a", "flows", 7, title="x", details={}, book=None)
        assert list(board.iterjobs()) == []
        (queue,) = board.model.queue_model.get_all("flows")
        assert (queue.waiting.llen(), queue.quarantine.llen()) == (1, 0)

    def test_registers_conductors_as_long_as_it_is_open(self, board: LimpydJobBoard, make: Make) -> None:
        board.register_entity(Entity("conductor", "c", {"x": 1}))
        (alive,) = make().presences.alive("conductor")
        assert (alive.name, alive.details) == ("c", {"board": "flows", "metadata": {"x": 1}})
        with pytest.raises(NotImplementedError):
            board.register_entity(Entity("worker", "c", {}))
        wrong: Any = "c"
        with pytest.raises(TypeError, match="must be an Entity of TaskFlow, of a conductor, not 'c'"):
            board.register_entity(wrong)
        with pytest.raises(exceptions.JobFailure, match="'d' cannot be registered"):
            board.register_entity(Entity("conductor", "d", {"x": object()}))
        board.close()
        assert make().presences.alive() == []

    @pytest.mark.parametrize("conf", [{"lease": 0}, {"lease": "x"}, {"lease": True}, {"port": "x"}])
    def test_needs_a_configuration(self, conf: Any) -> None:
        with pytest.raises(ValueError, match=r"lease|setting port is wrong"):
            LimpydJobBoard("flows", conf)

    @each(
        ("conf", "said"),
        [
            ({"namespace": None}, "namespace"),
            ({"namespace": ""}, "namespace"),
            ({"namespace": b""}, "namespace"),
            ({"namespace": "a,b"}, "comma"),
            ({"db": None}, "setting db must not be None"),
            ({"password": None}, "setting password must not be None"),
            ({"port": [1]}, "setting port"),
            ({"url": 5}, "'5' is not the name of a database"),
        ],
    )
    def test_refuses_what_is_no_setting(self, conf: Any, said: str) -> None:
        with pytest.raises(ValueError, match=said):
            LimpydJobBoard("flows", conf)

    def test_needs_a_name(self) -> None:
        with pytest.raises(ValueError, match="name, must not be empty"):
            LimpydJobBoard("", {})

    @pytest.mark.parametrize(
        ("url", "settings"),
        [
            ("limpyd://redis.example:6399/?lease=5", {"host": "redis.example", "port": 6399}),
            ("limpyd://redis.example", {"host": "redis.example"}),
            ("limpyd://[::1]:6399/?db=2", {"host": "::1", "port": 6399, "db": 2}),
            ("limpyd://redis.example?host=other", {"host": "other"}),
            ("limpyd://ann:secret@redis.example", {"username": "ann", "password": "secret", "host": "redis.example"}),
        ],
    )
    def test_is_where_a_url_says(self, url: str, settings: Any, caplog: Any) -> None:
        found = backends.fetch("flows", url).model.database.connection_settings
        assert {name: found.get(name) for name in settings} == settings
        assert not warnings_in(caplog)

    def test_says_what_is_no_job_and_no_book(self, board: LimpydJobBoard) -> None:
        none: Any = None
        calls = [partial(call, who="ann") for call in (board.claim, board.consume, board.abandon, board.trash)]
        for call in (*calls, board.find_owner):
            with pytest.raises(TypeError, match="The job must be one of this board, not None"):
                call(none)
        with pytest.raises(TypeError, match="its book must be a LogBook, not 'x'"):
            board.post("a", book="x")
        assert board.job_count == 0

    def test_names_what_it_does_not_know_in_its_configuration(self, caplog: Any) -> None:
        LimpydJobBoard("flows", {"board": "limpyd", "port": "6379", "health_check_interval": 5, "sentinel_kwargs": {}})
        assert not warnings_in(caplog)
        LimpydJobBoard("flows", {"leese": 5, "hosts": "zoo:2181"})
        (record,) = warnings_in(caplog)
        assert "ignores what it does not know in its configuration: 'leese', 'hosts'" in record.getMessage()
        assert "argument" not in record.getMessage()

    def test_says_what_is_an_argument_and_no_setting(self, caplog: Any) -> None:
        LimpydJobBoard("flows", {"client": None, "persistence": None})
        (record,) = warnings_in(caplog)
        for name in ("client", "persistence"):
            assert f"{name} is not a setting, but an argument: fetch(name, conf, {name}=…)" in record.getMessage()

    def test_takes_the_settings_of_the_redis_board(self) -> None:
        board = LimpydJobBoard("flows", {"host": "localhost", "ssl": "true", "ssl_ca_certs": "/etc/redis.pem"})
        settings = board.model.database.connection_settings
        assert (settings["ssl"], settings["ssl_ca_certs"]) == (True, "/etc/redis.pem")
        with pytest.raises(ValueError, match=r"redis\+sentinel://"):
            LimpydJobBoard("flows", {"host": "localhost", "port": 26379, "sentinel": "mymaster"})

    def test_posts_no_details_that_it_could_not_read(self, board: LimpydJobBoard) -> None:
        with pytest.raises(exceptions.JobFailure, match=r"its details must be a mapping, not \[1\]"):
            board.post("x", details=[1])
        assert board.job_count == 0

    def test_holds_no_claims_after_a_fork(self, board: LimpydJobBoard) -> None:
        job = board.post("x")
        board.claim(job, "ann")
        pid = os.fork()
        if pid == 0:
            try:
                board.consume(job, "ann")
            except exceptions.JobFailure:
                os._exit(0)
            os._exit(1)
        assert os.waitpid(pid, 0)[1] == 0
        board.consume(job, "ann")

    def test_that_a_child_closes_keeps_the_claims_of_its_parent(self, board: LimpydJobBoard) -> None:
        job = board.post("x")
        board.claim(job, "ann")
        pid = os.fork()
        if pid == 0:
            board.close()
            os._exit(0)
        assert os.waitpid(pid, 0)[1] == 0
        assert job.state == states.CLAIMED
        board.consume(job, "ann")

    def test_renews_what_a_child_claims(self, make: Make) -> None:
        board = make(lease=0.5)
        job = board.post("x")
        end, signal_of_end = os.pipe()
        pid = os.fork()
        if pid == 0:
            board.claim(job, "child")
            os.read(end, 1)
            board.consume(job, "child")
            os._exit(0)
        wait_until(lambda: job.state == states.CLAIMED)
        lapses = lease_end(board)
        wait_until(lambda: lease_end(board) > lapses)
        os.write(signal_of_end, b"x")
        assert os.waitpid(pid, 0)[1] == 0
        assert job.state == states.COMPLETE
