"""An idle worker runs a delayed job at its time, and jobs of a new queue at once, however seldom it looks by itself."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from datetime import datetime, timedelta, timezone
from typing import Any

import pytest
import redis
from invariants import violations
from parts import with_part
from running import Collector, work, worker_of, working
from servers import wait_until

from limpyd_jobs import STATUSES, Error, Job, Queue, Worker, transitions
from limpyd_jobs.dates import as_naive_utc, parse_datetime
from limpyd_jobs.records import records
from limpyd_jobs.redis.database import JobsDatabase
from limpyd_jobs.workers.claiming.claimer import Claimer
from limpyd_jobs.workers.claiming.waiter import Waiter

SELDOM = {"fetch_delayed_delay": 1000, "fetch_priorities_delay": 1000, "timeout": 0, "max_duration": 60}


BLOCKED = "jobs:queue:idle_workers"


class Bell(Job):
    namespace = "waking"
    queue_name = "queue"


@pytest.fixture(autouse=True)
def _whole(redis_client: redis.Redis) -> Any:
    yield
    assert violations(redis_client, Bell, Queue, Error) == []


@contextmanager
def idle(client: redis.Redis, *workers: Worker) -> Iterator[None]:
    """Run workers in threads, from the moment on when all of them wait; wait for their end."""
    if not workers:
        yield
        return
    with working(workers[0]), idle(client, *workers[1:]):
        wait_until(lambda: client.info("clients")["blocked_clients"] >= len(workers), "idle workers")
        yield


class TestDelayedJobs:
    def test_one_that_was_there_before_is_run(self, collector: Collector) -> None:
        Bell.add_job("a", delayed_for=0.5)
        work(callback=collector, **SELDOM)
        assert collector.identifiers == ["a"]

    def test_one_that_is_added_while_all_sleep_is_run(self, collector: Collector, redis_client: redis.Redis) -> None:
        Queue.get_queue("queue")
        with idle(redis_client, worker_of(callback=collector, **SELDOM)):
            Bell.add_job("a", delayed_for=0.3)
        assert collector.identifiers == ["a"]

    def test_an_earlier_one_than_all_others_is_run(self, collector: Collector, redis_client: redis.Redis) -> None:
        Bell.add_job("late", delayed_for=900)
        with idle(redis_client, worker_of(callback=collector, max_loops=3, **SELDOM)):
            for seconds in (0.9, 0.6, 0.3):
                Bell.add_job(str(seconds), delayed_for=seconds)
        assert collector.identifiers == ["0.3", "0.6", "0.9"]

    def test_it_is_run_by_another_worker_if_the_one_that_was_told_is_busy(
        self, collector: Collector, redis_client: redis.Redis
    ) -> None:
        Queue.get_queue("queue")

        def ring(job: Job, queue: Queue) -> None:
            collector(job, queue)
            if job.identifier.hget() == "long":
                wait_until(lambda: "delayed" in collector.identifiers)

        workers = [worker_of(callback=ring, **SELDOM) for _ in range(2)]
        with idle(redis_client, *workers):
            Bell.add_job("delayed", delayed_for=1)
            Bell.add_job("long")
        assert collector.identifiers == ["long", "delayed"]

    def test_each_of_many_is_run_and_none_before_its_time(self, redis_client: redis.Redis) -> None:
        """How soon afterwards is for benchmarks/lateness.py to tell."""
        Queue.get_queue("queue")
        with idle(redis_client, worker_of(max_loops=20, **SELDOM)):
            begin = datetime.now(timezone.utc) + timedelta(seconds=0.3)
            moments = [begin + timedelta(seconds=number * 0.07) for number in range(20)]
            jobs = [Bell.add_job(str(moment), delayed_until=moment) for moment in moments]
        starts = [parse_datetime(job.start.hget()) for job in jobs]
        assert all(start and start >= as_naive_utc(moment) for start, moment in zip(starts, moments, strict=True))

    def test_many_at_one_moment_do_not_keep_others_waiting(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr("limpyd_jobs.workers.maintenance.tasks.MAX_PROMOTION", 0)
        Bell.add_jobs(map(str, range(3500)), delayed_for=0.01)
        Bell.add_job("first", priority=1)
        left: list[int] = []

        def count(job: Job, queue: Queue) -> None:
            left.append(Queue.count_delayed_jobs("queue"))

        work(callback=count, max_loops=8, **SELDOM)
        assert left[0] > 0
        assert left == sorted(left, reverse=True)
        assert left[-1] == 0

    def test_one_that_cannot_be_moved_does_not_make_it_spin(
        self, redis_client: redis.Redis, commands: Callable[[], AbstractContextManager[Any]]
    ) -> None:
        job = Bell.add_job("a", delayed_for=0.01)
        base = Queue.get_queue("queue").waiting.key.removesuffix(":waiting")
        redis_client.set(f"{base}:requeue_all_delayed_ready_jobs", 1)
        with commands() as sent:
            work(**{**SELDOM, "max_duration": 3})
        assert len([name for name in sent.names if name in ("EVALSHA", "BLPOP")]) < 30
        redis_client.delete(f"{base}:requeue_all_delayed_ready_jobs")
        job.cancel()


class TestNewQueues:
    def test_one_of_a_new_priority_is_served_at_once(self, collector: Collector, redis_client: redis.Redis) -> None:
        Queue.get_queue("queue")
        with idle(redis_client, worker_of(callback=collector, max_loops=2, **SELDOM)):
            Bell.add_job("a", priority=5)
            Bell.add_job("b", priority=7)
        assert sorted(collector.identifiers) == ["a", "b"]

    def test_all_workers_come_to_know_it(self, collector: Collector, redis_client: redis.Redis) -> None:
        Queue.get_queue("queue")

        def ring(job: Job, queue: Queue) -> None:
            collector(job, queue)
            wait_until(lambda: len(collector.identifiers) == 3)

        with idle(redis_client, *(worker_of(callback=ring, **SELDOM) for _ in range(3))):
            for identifier in "abc":
                Bell.add_job(identifier, priority=5)
        assert sorted(collector.identifiers) == ["a", "b", "c"]

    def test_one_that_is_made_first_and_filled_by_others_is_served(
        self, collector: Collector, redis_client: redis.Redis
    ) -> None:
        Queue.get_queue("queue")
        worker = worker_of(callback=collector, **SELDOM)
        with idle(redis_client, worker):
            queue = Queue.get_queue("queue", priority=5)
            wait_until(lambda: queue.waiting.key in worker.keys)
            Bell.add_job("a", priority=5)
        assert collector.identifiers == ["a"]

    def test_the_delayed_jobs_in_it_are_run_at_their_time(
        self, collector: Collector, redis_client: redis.Redis
    ) -> None:
        Queue.get_queue("queue")
        with idle(redis_client, worker_of(callback=collector, **SELDOM)):
            Bell.add_job("a", priority=5, delayed_for=0.3)
        assert collector.identifiers == ["a"]


class TestABusyWorker:
    """One that never has to wait comes to know new queues by what it is told with each job."""

    def run(self, worker_class: type[Worker] = Worker, jobs: int = 10, **options: Any) -> list[str]:
        Bell.add_jobs(map(str, range(10)))
        collector = Collector()

        def ring(job: Job, queue: Queue) -> None:
            collector(job, queue)
            if job.identifier.hget() == "2":
                Bell.add_job("urgent", priority=5)
                Bell.add_job("more urgent", priority=7)

        work(worker_class=worker_class, callback=ring, max_loops=jobs, **{**SELDOM, **options})
        for job in Bell.collection(status=STATUSES.WAITING).instances():
            job.cancel()
        return collector.identifiers

    @pytest.mark.parametrize("strategy", ["strict", "round_robin"])
    def test_serves_one_of_a_new_priority_after_the_job_that_it_has(self, strategy: str) -> None:
        assert self.run(jobs=7, queue_strategy=strategy) == ["0", "1", "2", "3", "more urgent", "urgent", "4"]

    def test_does_so_too_if_it_takes_its_jobs_one_by_one(self) -> None:
        class Careful(Worker):
            def must_stop(self) -> bool:
                return super().must_stop()

        assert self.run(Careful, jobs=7) == ["0", "1", "2", "3", "more urgent", "urgent", "4"]

    def test_knows_one_that_was_made_while_it_began(self) -> None:
        class Interrupted(Worker):
            def update_keys(self) -> None:
                super().update_keys()
                Bell.add_job("meanwhile", priority=3)

        assert self.run(Interrupted, jobs=3) == ["0", "1", "meanwhile"]

    def test_looks_again_if_redis_failed_while_it_looked(self) -> None:
        class Unlucky(Worker):
            looks = 0

            def update_keys(self) -> None:
                self.looks += 1
                if self.looks == 2:
                    raise redis.ConnectionError("no luck")
                super().update_keys()

        assert self.run(Unlucky, jobs=7) == ["0", "1", "2", "3", "more urgent", "urgent", "4"]

    def test_looks_once_more_for_all_that_are_new(self) -> None:
        looks: list[Worker] = []

        class Counting(Worker):
            def update_keys(self) -> None:
                looks.append(self)
                super().update_keys()

        self.run(Counting, jobs=12)
        assert len(looks) == 2


@pytest.mark.parametrize("error", [redis.ConnectionError, OSError, ValueError])
def test_to_end_a_wait_raises_nothing_though_the_connection_is_closed_meanwhile(
    error: type[Exception], monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(connection: redis.Redis) -> None:
        raise error("closed")

    _worker, waiter = with_part(Waiter, worker_of)
    waiter.context.connect()
    monkeypatch.setattr(waiter.claimer, "end_wait", fail)
    waiter.end_wait()


class TestJobsThatNobodyTellsOf:
    """As those of version 2: somebody puts them in a list, no more."""

    def hide(self, client: redis.Redis, identifier: str) -> None:
        """Add a job, but no signal."""
        Bell.add_job(identifier)
        client.delete("jobs:queue:_signal:queue")

    def test_are_run_soon_and_the_next_ones_sooner(self, collector: Collector, redis_client: redis.Redis) -> None:
        Queue.get_queue("queue")
        worker = worker_of(callback=collector, max_loops=2, **SELDOM)
        slices: list[float] = []
        blpop = transitions.wait_and_claim

        def wait(queue_model: Any, signals: Any, seconds: float, *args: Any) -> Any:
            slices.append(seconds)
            if len(slices) in (1, 3):
                self.hide(redis_client, str(len(slices)))
            return blpop(queue_model, signals, seconds, *args)

        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(transitions, "wait_and_claim", wait)
            patch.setattr("limpyd_jobs.workers.claiming.claimer.MAX_WAIT", 0.5)
            worker.run()
        assert collector.identifiers == ["1", "3"]
        assert slices == [0.5, 0.1, 0.1]

    def test_those_that_are_put_in_a_queue_by_its_method_are_told_of(self, redis_client: redis.Redis) -> None:
        class ByHand(Queue):
            def enqueue_job(self, job: Job, prepend: bool = False) -> None:
                super().enqueue_job(job, prepend)

        worker, claimer = with_part(Claimer, lambda: worker_of(queue_model=ByHand, **SELDOM))
        ByHand.get_queue("queue")
        with idle(redis_client, worker):
            job = Bell.add_job("a", queue_model=ByHand)
        assert job.status.hget() == STATUSES.SUCCESS
        assert claimer._no_signals_until == 0

    def test_jobs_that_are_told_of_change_nothing(self, redis_client: redis.Redis) -> None:
        Queue.get_queue("queue")
        worker, claimer = with_part(Claimer, lambda: worker_of(max_loops=2, **SELDOM))
        with idle(redis_client, worker):
            Bell.add_job("a")
            wait_until(lambda: worker.num_loops == 1)
            wait_until(lambda: redis_client.exists("jobs:queue:idle_workers"))
            Bell.add_job("b")
        assert claimer._no_signals_until == 0


class TestLooksOfIdleWorkers:
    """They look into their lists only if there may be something."""

    @pytest.fixture(autouse=True)
    def _seldom(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr("limpyd_jobs.workers.claiming.claimer.LOOK_EVERY", 1000)

    @staticmethod
    def commands_of_a_look(client: redis.Redis, claimer: Claimer, keys: list[str]) -> int:
        """How many commands Redis runs, those that scripts call included."""
        before = client.info("commandstats")
        claimer.next(keys, may_wait=True)
        after = client.info("commandstats")
        return sum(each["calls"] for each in after.values()) - sum(each["calls"] for each in before.values())

    def test_cost_what_the_job_classes_ask_for_however_many_queues_there_are(self, redis_client: redis.Redis) -> None:
        costs = []
        worker, claimer = worker_of(), Claimer(Queue, 60)
        for number in (10, 500):
            for priority in range(number):
                Queue.get_queue("queue", priority)
            Bell.add_job(f"{number}", priority=number - 1, delayed_for=900)
            worker.update_keys()
            self.commands_of_a_look(redis_client, claimer, worker.keys)
            costs.append(self.commands_of_a_look(redis_client, claimer, worker.keys))
        assert costs[0] == costs[1]
        claimer.unregister()

    def test_are_thorough_where_there_are_other_queues_than_before(self) -> None:
        worker, claimer = worker_of(), Claimer(Queue, 60)
        looks = []
        for priority in (1, 1, 2, 2):
            Queue.get_queue("queue", priority)
            worker.update_keys()
            claimer.next(worker.keys, may_wait=True)
            looks.append(claimer.next_wakeups.is_quiet)
        assert looks == [False, True, False, True]
        claimer.unregister()

    def test_find_jobs_that_wait_though_no_process_tells_of_them(
        self, collector: Collector, redis_client: redis.Redis
    ) -> None:
        Queue.get_queue("queue")
        with idle(redis_client, worker_of(callback=collector, **SELDOM)):
            untold("a", redis_client)
        assert collector.identifiers == ["a"]

    @pytest.mark.parametrize("others", [0, 1])
    def test_find_jobs_that_are_delayed_though_no_process_tells_of_them(
        self, collector: Collector, redis_client: redis.Redis, others: int
    ) -> None:
        Queue.get_queue("queue")
        Bell.add_jobs((f"later {number}" for number in range(others)), delayed_for=900)
        with idle(redis_client, worker_of(callback=collector, **SELDOM)):
            untold("a", redis_client, delayed_for=0.3)
        assert collector.identifiers == ["a"]

    def test_find_what_no_index_tells_of_if_there_is_a_signal(self, redis_client: redis.Redis) -> None:
        queue = Queue.get_queue("queue")
        with idle(redis_client, worker_of(**SELDOM)):
            queue.waiting.rpush("garbage")
            records.notify_one(records.redis_of(queue), records.queue_key_of(queue))
            wait_until(lambda: queue.quarantine.llen() == 1, "what was pushed by hand")
            Bell.add_job("a")

    def test_find_it_after_a_while_if_there_is_none(
        self, redis_client: redis.Redis, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr("limpyd_jobs.workers.claiming.claimer.LOOK_EVERY", 2)
        queue = Queue.get_queue("queue")
        with idle(redis_client, worker_of(**SELDOM)):
            queue.waiting.rpush("garbage")
            wait_until(lambda: queue.quarantine.llen() == 1, "what was pushed by hand")
            Bell.add_job("a")


def untold(identifier: str, client: redis.Redis, **when: Any) -> None:
    """Add a job, but no signal, as version 2 does."""
    registered = client.zrange(BLOCKED, 0, -1, withscores=True)
    client.delete(BLOCKED)
    Bell.add_job(identifier, **when)
    client.zadd(BLOCKED, dict(registered))


class TestTheEnd:
    def test_a_signal_ends_the_wait_before_its_time(
        self, redis_client: redis.Redis, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr("limpyd_jobs.workers.claiming.claimer.MAX_WAIT", 5)
        heard: list[Any] = []
        wait = transitions.wait_and_claim

        def listen(*args: Any) -> Any:
            answer = wait(*args)
            heard.append(answer[0])
            return answer

        monkeypatch.setattr(transitions, "wait_and_claim", listen)
        Queue.get_queue("queue")
        worker, claimer = with_part(Claimer, lambda: worker_of(**{**SELDOM, "max_duration": None}))
        with idle(redis_client, worker):
            worker.catch_end_signal(15, None)
        assert heard == [claimer.signal_keys[-1]]

    def test_a_job_that_comes_with_the_signal_is_given_back(
        self, collector: Collector, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        queue = Queue.get_queue("queue")
        worker = worker_of(callback=collector, **SELDOM)
        wait = transitions.wait_and_claim
        claimed: list[Any] = []

        def be_told_of_both(*args: Any) -> Any:
            Bell.add_job("a")
            answer = wait(*args)
            claimed.append(answer[1].ident)
            worker.catch_end_signal(15, None)
            return answer

        monkeypatch.setattr(transitions, "wait_and_claim", be_told_of_both)
        worker.run()
        assert claimed == [Bell.get(1).ident]
        assert collector.identifiers == []
        job = Bell.get(1)
        assert job.hmget("status", "tries") == [STATUSES.WAITING, None]
        assert queue.waiting.lmembers() == [job.ident]
        job.cancel()

    def test_jobs_that_are_claimed_by_a_worker_that_has_just_become_quiet_are_given_back(
        self, collector: Collector, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        jobs = Bell.add_jobs([*"abc"])
        worker = worker_of(callback=collector, prefetch=2, **SELDOM)
        claim = transitions.claim
        claimed: list[Any] = []

        def become_quiet_meanwhile(*args: Any) -> Any:
            worker._run_state.is_quiet = True
            answer = claim(*args)
            claimed.append(answer[0].ident)
            return answer

        monkeypatch.setattr(transitions, "claim", become_quiet_meanwhile)
        waiting = Queue.get_queue("queue").waiting
        idents = [job.ident for job in jobs]
        with working(worker):
            wait_until(lambda: claimed and waiting.lmembers() == idents, "all are given back")
            worker.end_forced = True
        assert (claimed, collector.identifiers) == ([idents[0]], [])
        assert [job.hmget("status", "tries") for job in jobs] == [[STATUSES.WAITING, None]] * 3
        for job in jobs:
            job.cancel()


@pytest.mark.parametrize("kind", ["signal", "signal and registration"])
def test_keys_of_a_wrong_type_keep_no_process_from_waiting(
    kind: str, collector: Collector, redis_client: redis.Redis, log: pytest.LogCaptureFixture
) -> None:
    Queue.get_queue("queue")
    redis_client.set("jobs:queue:_signal:queue", "no list")
    if kind != "signal":
        redis_client.set("jobs:queue:idle_workers", "no set")
    with working(worker_of(callback=collector, **SELDOM)):
        Bell.add_job("a")
    assert collector.identifiers == ["a"]
    assert not [record for record in log.records if record.levelname == "ERROR"]
    redis_client.delete("jobs:queue:_signal:queue", "jobs:queue:idle_workers")


def test_a_resumed_queue_is_served_by_all_at_once(collector: Collector, redis_client: redis.Redis) -> None:
    Bell.add_jobs([*"ab"])
    Queue.pause("queue")

    def ring(job: Job, queue: Queue) -> None:
        collector(job, queue)
        wait_until(lambda: len(collector.identifiers) == 2)

    with idle(redis_client, *(worker_of(callback=ring, **SELDOM) for _ in range(2))):
        Queue.resume("queue")
    assert sorted(collector.identifiers) == ["a", "b"]


def test_a_wait_is_shorter_than_an_answer_may_take(jobs_database: JobsDatabase, log: pytest.LogCaptureFixture) -> None:
    Queue.get_queue("queue")
    jobs_database.connect(**jobs_database.connection_settings, socket_timeout=0.5)
    work(**{**SELDOM, "max_duration": 2})
    assert not [record for record in log.records if record.levelname == "ERROR"]


def test_an_idle_worker_costs_little(commands: Callable[[], AbstractContextManager[Any]]) -> None:
    Queue.get_queue("queue")
    Bell.add_job("a", delayed_for=900)
    with commands() as sent:
        work(**{**SELDOM, "max_duration": 5})
    assert len([name for name in sent.names if name in ("EVALSHA", "BLPOP")]) < 20
    Bell.get(1).cancel()


def test_nothing_remains_once_workers_are_gone(collector: Collector, redis_client: redis.Redis) -> None:
    Queue.get_queue("queue")
    with idle(redis_client, worker_of(callback=collector, max_loops=2, **SELDOM)):
        Bell.add_job("a", delayed_for=0.2)
        Bell.add_job("b", priority=2, delayed_for=0.1)
    assert all(redis_client.pttl(key) > 0 for key in redis_client.keys("*:_signal:*"))


def listening() -> Claimer:
    claimer = Claimer(Queue, 60)
    claimer.listen(["queue"])
    return claimer


class TestAWaitWhoseConnectionIsLost:
    """Redis may come to know that late, and run the claim that was sent with it."""

    def test_claims_nothing_once_the_worker_asked_anew(self, redis_client: redis.Redis) -> None:
        keys, claimer = [Queue.get_queue("queue").waiting.key], listening()
        assert claimer.next(keys, may_wait=True) is None
        (registration,) = redis_client.zrange("jobs:queue:idle_workers", 0, -1)
        late = claimer.request(keys)
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(transitions, "wait_and_claim", fail_to_connect)
            with pytest.raises(redis.ConnectionError):
                claimer.wait(keys, 1)
        assert claimer.next(keys, may_wait=True) is None
        job = Bell.add_job("a")
        assert registration not in redis_client.zrange("jobs:queue:idle_workers", 0, -1)
        answer = transitions.wait_and_claim(claimer.connection, claimer.signal_keys, 0.01, late, registration, 1)
        assert answer[1:] == (None, None)
        assert job.status.hget() == STATUSES.WAITING
        delivery = claimer.wait(keys, 1)
        assert delivery
        assert delivery.ident == job.ident
        transitions.release(Bell, delivery.ident, delivery.token, delivery.queue_key)
        job.cancel()

    def test_is_asked_for_again_if_no_process_knows_of_it(self, redis_client: redis.Redis) -> None:
        """Somebody deleted its registration."""
        keys, claimer = [Queue.get_queue("queue").waiting.key], listening()
        assert claimer.next(keys, may_wait=True) is None
        redis_client.delete("jobs:queue:idle_workers")
        assert claimer.wait(keys, 0.01) is None
        assert not redis_client.exists("jobs:queue:idle_workers")
        assert claimer.wait(keys, 0.01) is None
        assert redis_client.exists("jobs:queue:idle_workers")
        claimer.unregister()


def fail_to_connect(*args: Any) -> Any:
    raise redis.ConnectionError("it is lost")
