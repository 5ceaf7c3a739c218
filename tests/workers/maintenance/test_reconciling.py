"""Jobs that were lost while Redis handed them over are found, and put back in their queues."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import pytest
import redis
from invariants import violations
from running import Collector, messages, succeed, waiting_idly, work, worker_of

from limpyd_jobs import STATUSES, Job, Queue, transitions
from limpyd_jobs.records import records
from limpyd_jobs.workers.claiming.claimer import Claimer
from limpyd_jobs.workers.maintenance import rescue
from limpyd_jobs.workers.maintenance.rescue import Reconciler

pytestmark = pytest.mark.usefixtures("jobs_database")

BLOCKED, NET = "jobs:queue:idle_workers", "jobs:queue:reconcile_lock"


class Task(Job):
    namespace = "reconcile"
    queue_name = "queue"


class Other(Task):
    namespace = "reconcile:other"


class Tray(Queue):
    namespace = "reconcile"

    def enqueue_job(self, job: Job, prepend: bool = False) -> None:
        super().enqueue_job(job, prepend)


class Photo(Task):
    queue_model = Tray


@pytest.fixture
def _no_patience(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rescue, "ORPHAN_SEEN_FOR", 0.0)


def lose(job: Job) -> Job:
    """The reply that hands a job to a worker is lost: it is in no list."""
    Queue.get_queue("queue", job.priority.hget()).waiting.lrem(0, job.ident)
    return job


def looks(number: int = 2, queue_model: type[Queue] = Queue) -> list[str]:
    """Reconcile that often, in a row; return the idents of the jobs that were put back."""
    one = Reconciler(queue_model, 60)
    one.begin()
    return [job.ident for _ in range(number) for job in one.reconcile()[0]]


class TestRegistration:
    def test_a_worker_is_registered_while_it_waits_and_no_longer(self, redis_client: redis.Redis) -> None:
        Queue.get_queue("queue")
        worker = worker_of(timeout=20)
        with waiting_idly(worker, redis_client):
            (name,) = redis_client.zrange(BLOCKED, 0, -1)
            assert time.time() < redis_client.zscore(BLOCKED, name) <= time.time() + 10
            Task.add_job("a")
        assert not redis_client.exists(BLOCKED)

    def test_it_ends_with_the_run(self, redis_client: redis.Redis) -> None:
        Queue.get_queue("queue")
        worker = worker_of()
        with waiting_idly(worker, redis_client):
            worker.end_forced = True
        assert not redis_client.exists(BLOCKED)

    def test_those_of_dead_workers_are_dropped_by_the_next_one(self, redis_client: redis.Redis) -> None:
        Queue.get_queue("queue")
        redis_client.zadd(BLOCKED, {"dead": 1, "alive": time.time() + 60})
        worker = worker_of()
        with waiting_idly(worker, redis_client):
            worker.end_forced = True
        assert redis_client.zrange(BLOCKED, 0, -1) == ["alive"]

    def test_a_key_of_a_wrong_type_stops_no_process(self, redis_client: redis.Redis) -> None:
        redis_client.set(BLOCKED, "no set")
        job = Task.add_job("a")
        work()
        assert job.status.hget() == STATUSES.SUCCESS


def test_of_all_workers_one_has_to_look_every_five_minutes(redis_client: redis.Redis) -> None:
    queue = records.queue_key_of(Queue.get_queue("queue"))

    def has_to(is_starting: bool = False) -> bool:
        return transitions.rescue(Queue, [queue], 3, Claimer(Queue, 60).request(), is_starting).has_to_reconcile

    assert [has_to(), has_to(), has_to(is_starting=True)] == [True, False, False]
    assert 290 < redis_client.ttl(NET) <= 300
    redis_client.expire(NET, 280)
    assert [has_to(), has_to(is_starting=True), has_to(is_starting=True)] == [False, True, False]
    redis_client.set(NET, "of a stranger, for ever")
    assert has_to()


@pytest.mark.usefixtures("_no_patience")
class TestOrphans:
    def test_are_put_back_when_they_were_seen_twice(self, redis_client: redis.Redis) -> None:
        job, other = lose(Task.add_job("a")), Task.add_job("b")
        assert looks(1) == []
        assert looks(2) == [job.ident]
        assert Queue.get_queue("queue").waiting.lmembers() == [job.ident, other.ident]
        assert violations(redis_client, Task, Queue) == []

    def test_not_when_they_are_back_by_then(self, redis_client: redis.Redis) -> None:
        one = Reconciler(Queue, 60)
        one.begin()
        job = lose(Task.add_job("a"))
        assert one.reconcile() == ([], [])
        Queue.get_queue("queue").waiting.rpush(job.ident)
        assert one.reconcile() == ([], [])
        assert not one.is_busy
        assert Queue.get_queue("queue").waiting.lmembers() == [job.ident]

    def test_are_run(self, redis_client: redis.Redis, log: pytest.LogCaptureFixture) -> None:
        job, _ = lose(Task.add_job("a")), Task.add_job("b")
        collector = Collector()
        work(callback=collector, max_loops=2, lease=0.2)
        assert sorted(collector.identifiers) == ["a", "b"]
        assert f"[{job.ident}] was WAITING, but in no queue: put in jobs:queue:1" in messages(log)

    def test_of_several_classes_and_priorities(self) -> None:
        jobs = [lose(job_class.add_job(f"at {p}", priority=p)) for p in (0, 5) for job_class in (Task, Other)]
        assert sorted(looks()) == sorted(job.ident for job in jobs)

    def test_beside_a_class_whose_index_is_none(self, redis_client: redis.Redis) -> None:
        job = lose(Task.add_job("a"))
        redis_client.set("reconcile:other:other:queued:1", "x")
        assert looks() == [job.ident]

    def test_among_many(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(rescue, "CHUNK", 3)
        jobs = [Task.add_job(str(number)) for number in range(20)]
        lost = [lose(job) for job in jobs[::4]]
        assert sorted(looks()) == sorted(job.ident for job in lost)

    def test_more_than_one_call_puts_back(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(transitions, "RECONCILE_LIMIT", 2)
        lost = [lose(Task.add_job(str(number))) for number in range(5)]
        assert sorted(looks()) == sorted(job.ident for job in lost)

    def test_none_among_jobs_that_are_where_they_should(self, redis_client: redis.Redis) -> None:
        Task.add_job("waiting")
        Task.add_job("delayed", delayed_for=60)
        assert looks() == []

    def test_of_version_2_without_a_queue_are_told_of_once(
        self, redis_client: redis.Redis, log: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        job = lose(Task.add_job("a", "queue"))
        monkeypatch.setattr(Task, "queue_name", None)
        redis_client.hdel(f"{Task._name}:1:hash", "_queue_key")
        Queue.get_queue("another")
        one = Reconciler(Queue, 60)
        found = []
        for _ in range(4):
            one.begin()
            found += one.reconcile()[1]
        assert found == [job.ident]

    def test_are_looked_for_only_if_some_job_is_missing(self, commands: Callable[[], Any]) -> None:
        Task.add_job("a")
        with commands() as sent:
            assert looks() == []
        assert "LRANGE" not in sent.names


@pytest.mark.usefixtures("_no_patience")
class TestJobsOfAnotherQueueModel:
    """They name no queue, because the application placed them, or version 2."""

    def test_are_left_where_they_are(self, commands: Callable[[], Any], redis_client: redis.Redis) -> None:
        Photo.add_job("waits")
        Photo.add_job("delayed", delayed_for=60)
        Task.add_job("by version 2", queue_model=Tray)
        with commands() as sent:
            assert looks() == []
        assert "LRANGE" not in sent.names
        lost = lose(Task.add_job("lost"))
        assert looks() == [lost.ident]
        assert violations(redis_client, Task, Photo, Queue, Tray) == []

    def test_are_put_back_by_their_own_workers_only(self, redis_client: redis.Redis) -> None:
        waiting, running = Photo.add_job("waits"), Photo.add_job("runs")
        running.status.hset(STATUSES.RUNNING)
        redis_client.delete("reconcile:tray:1:waiting")
        assert looks() == []
        assert sorted(looks(queue_model=Tray)) == [waiting.ident, running.ident]
        assert redis_client.lrange("reconcile:tray:1:waiting", 0, -1) == [waiting.ident]
        assert redis_client.zrange("reconcile:tray:1:_running", 0, -1) == [running.ident]


class TestALostReply:
    def test_to_a_claim_is_asked_for_again(self, redis_client: redis.Redis, monkeypatch: pytest.MonkeyPatch) -> None:
        job, keys = Task.add_job("a"), Queue.get_waiting_keys("queue")
        claimer = Claimer(Queue, 60)
        claim = transitions.claim

        def lost(*args: Any, **options: Any) -> Any:
            claim(*args, **options)
            raise redis.ConnectionError("the reply is lost")

        monkeypatch.setattr(transitions, "claim", lost)
        with pytest.raises(redis.ConnectionError):
            claimer.next(keys)
        monkeypatch.setattr(transitions, "claim", claim)
        delivery = claimer.next(keys)
        assert delivery is not None
        assert (delivery.ident, delivery.token) == (job.ident, job.claim_token.hget())
        assert job.hmget("status", "tries") == ["r", "1"]
        assert claimer.next(keys) is None


def test_a_job_that_was_set_to_running_by_hand_is_put_back_after_ten_leases(redis_client: redis.Redis) -> None:
    job = Task.add_job("a")
    job.status.hset(STATUSES.RUNNING)
    work(callback=succeed, lease=0.2)
    assert job.hmget("status", "queued") == [STATUSES.RUNNING, "1"]
    work(callback=succeed, lease=0.2)
    assert job.hmget("status", "queued", "tries") == [STATUSES.SUCCESS, None, "1"]
    assert violations(redis_client, Task, Queue) == []
