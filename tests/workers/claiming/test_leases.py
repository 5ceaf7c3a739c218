"""A worker renews all its leases in few steps, and claims no more if it cannot keep up."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from typing import Any

import pytest
import redis
from all_scripts import ALL_SCRIPTS
from parts import calls_of, parts_of, with_part
from running import messages, worker_of, working
from servers import RedisServer, wait_until

from limpyd_jobs import Job, Queue, transitions
from limpyd_jobs.models import job_classes
from limpyd_jobs.models.claims.job_claim import job_class_of, queue_of
from limpyd_jobs.models.continuing.cursors import Entry, cursors_of
from limpyd_jobs.records import records
from limpyd_jobs.workers.claiming.leases import Leases
from limpyd_jobs.workers.run import Run

Recorder = Callable[[], AbstractContextManager[Any]]

SCRIPTS = {script.sha: script.name for script in ALL_SCRIPTS}
LATEST = 1e12  # a score that no lease has


class Loop(Job):
    namespace = "leases"
    queue_name = "queue"

    def run(self, queue: Queue) -> None: ...


class Unheard(redis.Redis):
    """A client that loses the reply to each command."""

    def execute_command(self, *args: Any, **options: Any) -> Any:
        super().execute_command(*args, **options)
        raise redis.ConnectionError("the reply is lost")


class Meanwhile(redis.Redis):
    """A client during whose first command something else happens."""

    then: Callable[[], None] | None = None

    def execute_command(self, *args: Any, **options: Any) -> Any:
        happens, self.then = self.then, None
        if happens:
            happens()
        return super().execute_command(*args, **options)


class Claimed:
    """A worker that has claimed some jobs, of which nothing runs."""

    def __init__(self, number: int, **options: Any) -> None:
        Loop.add_jobs([str(each) for each in range(number)])
        job_classes.resolve(f"{__name__}.Loop")
        self.worker = worker_of(**{"lease": 60, **options})
        self.parts = parts_of(self.worker)
        self.client = records.redis_of(Queue)
        self.key = Queue.get_queue("queue").running.key
        request = self.parts.claimer.request(Queue.get_waiting_keys("queue"))
        _, deliveries = transitions.succeed_many(self.client, [], request, number)
        self.runs = [self.run(delivery) for delivery in deliveries]

    def run(self, delivery: Any) -> Run:
        job = records.attached(job_class_of(delivery), delivery.pk)
        run = Run(delivery, job, queue_of(Queue, delivery))
        run.remember(_run_in_worker=run)
        self.parts.runs.running[run] = run
        return run

    def move(self, runs: Sequence[Run] | None = None) -> None:
        """Let the loops of some jobs, or of all, be further."""
        for run in self.runs if runs is None else runs:
            cursors = cursors_of(run.job)
            cursors.move("iterate", Entry("index", cursors._moves + 1))

    def renew(self) -> None:
        self.parts.leases.renew(self.client)

    def lapse(self) -> None:
        self.client.zadd(self.key, {run.delivery.ident: 1 for run in self.runs}, xx=True)

    def renewed(self) -> int:
        """How many leases begin anew, since they lapsed."""
        return int(self.client.zcount(self.key, 2, LATEST))

    def kept(self) -> list[str | None]:
        jobs = [run.job for run in self.runs]
        return [self.client.hget(job.key, "_cursor") for job in jobs]


def names(sent: Sequence[str]) -> list[str]:
    return [SCRIPTS.get(command.split()[1], command) for command in sent]


class TestRenewals:
    @pytest.mark.parametrize("number", [1, 250, 251, 600])
    def test_of_jobs_that_tell_how_far_they_are_are_one_round_trip_for_250(
        self, redis_client: redis.Redis, commands: Recorder, number: int
    ) -> None:
        claimed = Claimed(number)
        claimed.renew()  # the server may not know the script
        claimed.move()
        claimed.lapse()
        with commands() as sent:
            claimed.renew()
        assert names(sent) == ["renew_many"] * -(-number // 250)
        assert claimed.renewed() == number
        assert claimed.kept() == ['{"iterate":{"index":1}}'] * number

    def test_send_only_what_changed(self, redis_client: redis.Redis, commands: Recorder) -> None:
        claimed = Claimed(600)
        claimed.move()
        claimed.renew()
        claimed.move(claimed.runs[:3])
        claimed.lapse()
        with commands() as sent:
            claimed.renew()
        assert (names(sent), "".join(sent).count("iterate"), claimed.renewed()) == (["renew_many"], 3, 600)

    def test_of_long_texts_are_short_steps(self, redis_client: redis.Redis, commands: Recorder) -> None:
        claimed = Claimed(10)
        claimed.renew()
        for run in claimed.runs:
            cursors = cursors_of(run.job)
            for number in range(16):
                cursors.move(f"{number}", Entry("key", "x" * 4000, 1))
        with commands() as sent:
            claimed.renew()
        assert names(sent) == ["renew_many"] * 2
        assert all(claimed.kept())

    def test_send_again_what_redis_may_not_have_kept(
        self, redis_server: RedisServer, redis_client: redis.Redis
    ) -> None:
        claimed = Claimed(3)
        claimed.move()
        claimed.parts.leases.renew(Unheard(unix_socket_path=redis_server.socket))
        for is_sent in (True, False):
            for run in claimed.runs:
                redis_client.hdel(run.job.key, "_cursor")
            claimed.renew()
            assert [bool(text) for text in claimed.kept()] == [is_sent] * 3

    def test_do_not_wait_for_a_job_that_keeps_its_cursor_at_this_moment(self, redis_client: redis.Redis) -> None:
        claimed = Claimed(2)
        claimed.move()
        claimed.lapse()
        with cursors_of(claimed.runs[0].job).keeping():
            claimed.renew()
        assert (claimed.renewed(), [bool(text) for text in claimed.kept()]) == (2, [False, True])

    def test_begin_with_the_leases_that_end_first(self, redis_client: redis.Redis, commands: Recorder) -> None:
        claimed = Claimed(500)
        claimed.move()
        claimed.renew()
        late = claimed.runs[400:]
        for run in late:
            run.renewed -= 10
        claimed.move()
        with commands() as sent:
            claimed.renew()
        assert all(run.delivery.ident in sent[0] for run in late)

    def test_miss_none_that_begins_or_ends_meanwhile(
        self, redis_server: RedisServer, redis_client: redis.Redis
    ) -> None:
        claimed = Claimed(4)
        runs, following = claimed.parts.runs, claimed.parts.claimer.stock.deliveries
        for run in claimed.runs[:2]:  # those that have not begun
            del runs.running[run]
            following.append(run.delivery)
        client = Meanwhile(unix_socket_path=redis_server.socket, decode_responses=True)

        def go_on() -> None:
            following.popleft()
            runs.running[claimed.runs[0]] = None
            runs.unrecorded.append(claimed.runs[2])
            del runs.running[claimed.runs[2]]

        claimed.lapse()
        client.then = go_on
        claimed.parts.leases.renew(client)
        assert claimed.renewed() == 4

    def test_leave_alone_what_has_ended(self, redis_client: redis.Redis) -> None:
        """The thread that renews leases noted it before it ended."""
        claimed = Claimed(2)
        claimed.move()
        ended = claimed.runs[0]
        assert ended.succeed().outcome == "done"
        claimed.renew()
        assert [bool(text) for text in claimed.kept()] == [False, True]
        assert redis_client.zcard(claimed.key) == 1


class TestAWorkerThatCannotKeepUp:
    def test_says_so_once_and_when_it_has_caught_up(
        self, redis_client: redis.Redis, caplog: pytest.LogCaptureFixture
    ) -> None:
        claimed = Claimed(3, lease=1)
        state = claimed.parts.context.state
        for _ in range(2):
            redis_client.client_pause(600)
            claimed.renew()
            assert state.is_behind
        wait_until(lambda: claimed.renew() or not state.is_behind)
        (slow,) = (text for text in messages(caplog) if "not renewed in time" in text)
        assert slow.startswith("3 leases of 1 s are not renewed in time (it took 0.")
        assert slow.endswith(" s): no more jobs are claimed")
        assert messages(caplog).count("Leases are renewed in time again: jobs are claimed") == 1

    def test_knows_a_lease_that_had_lapsed(self, redis_client: redis.Redis, caplog: pytest.LogCaptureFixture) -> None:
        claimed = Claimed(2)
        claimed.runs[1].renewed -= 61
        claimed.renew()
        assert claimed.parts.context.state.is_behind
        assert messages(caplog) == [
            "2 leases of 60 s are not renewed in time (that of [1] had lapsed): no more jobs are claimed"
        ]
        claimed.renew()
        assert not claimed.parts.context.state.is_behind

    def test_does_not_blame_itself_if_redis_was_away(
        self, redis_server: RedisServer, redis_client: redis.Redis
    ) -> None:
        claimed = Claimed(2)
        claimed.parts.leases.renew(Unheard(unix_socket_path=redis_server.socket))
        claimed.runs[1].renewed -= 61
        claimed.renew()
        assert not claimed.parts.context.state.is_behind

    @pytest.mark.parametrize("concurrency", [1, 2])
    def test_claims_no_more_jobs_until_it_has(
        self, redis_client: redis.Redis, monkeypatch: pytest.MonkeyPatch, concurrency: int
    ) -> None:
        monkeypatch.setattr("limpyd_jobs.workers.loop.LONGEST_PAUSE_BEHIND", 0.05)
        Queue.get_queue("queue")
        worker, leases = with_part(Leases, lambda: worker_of(concurrency=concurrency, callback=None, max_loops=3))
        state = leases.context.state
        leases.renew = lambda _: None  # type: ignore[method-assign]
        looks = calls_of(worker._loop.waiter, "pause")
        state.is_behind = True
        with working(worker):
            wait_until(lambda: looks)
            Loop.add_jobs([*"abc"])
            before = len(looks)
            wait_until(lambda: len(looks) > before + 1)
            assert Queue.count_waiting_jobs("queue") == 3
            state.is_behind = False
            wait_until(lambda: len(Loop.collection(status="s")) == 3)
