"""A worker that ends as soon as there is nothing to do."""

from __future__ import annotations

from datetime import timedelta
from math import inf
from typing import Any

import pytest
import redis
from cases import each
from invariants import violations
from limpyd import fields
from running import Collector, delayed_and_due, messages, work, worker_of, working
from servers import wait_until

from limpyd_jobs import STATUSES, Error, Job, Limit, Queue, Schedule, Worker
from limpyd_jobs.check import check
from limpyd_jobs.commandline.parameters import Parameters
from limpyd_jobs.dates import utcnow
from limpyd_jobs.exceptions import ConfigurationException
from limpyd_jobs.query import rest_limit, set_limit
from limpyd_jobs.workers.maintenance import rescue
from limpyd_jobs.workers.process.system import WorkerTitle

pytestmark = pytest.mark.usefixtures("redis_client")


class Parcel(Job):
    namespace = "burst"
    queue_name = "queue"


@pytest.fixture(autouse=True)
def _whole(redis_client: redis.Redis) -> Any:
    yield
    assert violations(redis_client, Parcel, Queue, Error) == []


def burst(queues: Any = "queue", *, burst: bool | str = True, **options: Any) -> Worker:
    """Run a worker that has to end by `burst`: nothing else ends it."""
    worker = work(queues, **{"max_loops": 1000, "max_duration": None, **options}, burst=burst)
    assert worker._run_state.is_done
    return worker


@pytest.mark.parametrize("prefetch", [1, 5, "auto"])
def test_all_that_waits_is_run(log: pytest.LogCaptureFixture, collector: Collector, prefetch: int | str) -> None:
    for number in range(12):
        Parcel.add_job(f"{number}", priority=number % 2)
    worker = burst(callback=collector, prefetch=prefetch)
    assert len(collector.identifiers) == worker.num_loops == 12
    assert messages(log)[-1] == f"Run terminated, with 12 loops (duration={worker.elapsed}): no job waits"


def test_jobs_that_wait_in_no_list_are_put_back_first(
    redis_client: redis.Redis, collector: Collector, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(rescue, "ORPHAN_SEEN_FOR", 0.2)
    Parcel.add_job("lost")
    redis_client.lpop("jobs:queue:1:waiting")
    burst(callback=collector)
    assert collector.identifiers == ["lost"]


def test_jobs_that_no_worker_can_claim_do_not_keep_it_and_the_log_names_the_key(
    redis_client: redis.Redis, log: pytest.LogCaptureFixture, collector: Collector
) -> None:
    stuck = [Parcel.add_job("of a broken queue", "broken"), Parcel.add_job("stuck", "other")]
    Job.add_job("a", "queue")
    redis_client.set("jobs:queue:1:_running", "x")
    redis_client.set("burst:parcel:status:r", "x")
    burst("broken,other,queue", callback=collector)
    named = [line for line in messages(log) if "WRONGTYPE" in line]
    keys = "jobs:queue:1:_running is a string, burst:parcel:status:r is a string"
    remedy = f": {keys}, which another program wrote: limpyd-jobs check --repair puts it right"
    assert named == [line for line in named if line.endswith(remedy)] != []
    assert messages(log)[-1].endswith(": no job that waits can be claimed")
    redis_client.delete("burst:parcel:status:r")
    burst("broken,other,queue", callback=collector)
    assert messages(log)[-1].endswith(": no job that waits can be claimed")
    check(repair=True, pause=0)
    burst("broken", callback=collector)
    assert (collector.identifiers, {job.status.hget() for job in stuck}) == (["a", "stuck", "of a broken queue"], {"s"})


def test_what_is_added_meanwhile_is_run_too(collector: Collector) -> None:
    def callback(job: Job, queue: Queue) -> None:
        collector(job, queue)
        if len(collector.identifiers) < 3:
            Parcel.add_job(f"{len(collector.identifiers)}", priority=len(collector.identifiers))

    Parcel.add_job("0")
    burst(callback=callback)
    assert collector.identifiers == ["0", "1", "2"]


@pytest.mark.parametrize("kind", [True, "delayed"])
def test_without_any_queue_the_end_comes_at_once(log: pytest.LogCaptureFixture, kind: Any) -> None:
    assert burst(burst=kind).status == "terminated"
    told = [record for record in log.records if "No queues yet (there is none named queue in " in record.getMessage()]
    assert [record.levelname for record in told] == ["INFO"]


def test_a_schedule_that_is_due_counts_even_without_any_queue(collector: Collector) -> None:
    moment = utcnow() + timedelta(seconds=0.2)
    Schedule.add("soon", Parcel, date=moment)
    wait_until(lambda: utcnow() > moment)
    burst(callback=collector)
    assert collector.identifiers == ["soon"]


def test_a_job_that_is_due_counts_as_one_that_waits(collector: Collector) -> None:
    delayed_and_due(Parcel, "due")
    later = Parcel.add_job("later", delayed_for=3600)
    burst(callback=collector)
    assert collector.identifiers == ["due"]
    assert later.status.hget() == STATUSES.DELAYED


def test_delayed_jobs_are_waited_for_if_asked(log: pytest.LogCaptureFixture, collector: Collector) -> None:
    Parcel.add_job("first")
    Parcel.add_job("later", delayed_for=0.3)
    burst(callback=collector, burst="delayed")
    assert collector.identifiers == ["first", "later"]
    assert messages(log)[-1].endswith(": no job waits, or is delayed")


def test_a_job_that_failed_is_tried_again_before_the_end() -> None:
    def fail_once(job: Job, queue: Queue) -> None:
        if job.tries.hget() == "1":
            raise ValueError("it failed")

    job = Parcel.add_job("a")
    burst(callback=fail_once, burst="delayed", requeue_times=1, requeue_delay_delta=0.1)
    assert job.hmget("status", "tries") == [STATUSES.SUCCESS, "2"]


@pytest.mark.parametrize("kind", [True, "delayed"])
def test_paused_queues_do_not_count(log: pytest.LogCaptureFixture, collector: Collector, kind: Any) -> None:
    Parcel.add_job("a")
    Parcel.add_job("paused", "paused")
    Parcel.add_job("paused, later", "paused", delayed_for=3600)
    Queue.pause("paused")
    burst("paused,queue", burst=kind, callback=collector)
    assert collector.identifiers == ["a"]
    assert messages(log)[-1].endswith(", paused queues aside")


class Errand(Parcel):
    customer = fields.InstanceHashField()
    limits = [Limit("customer", concurrency=1)]


@pytest.mark.parametrize("stops", [rest_limit, lambda *key: set_limit(*key, concurrency=0)], ids=["paused", "0"])
def test_jobs_of_limits_that_let_none_begin_do_not_count(log: pytest.LogCaptureFixture, stops: Any) -> None:
    jobs = [Errand.add_job(customer=customer) for customer in ("stopped", "other")]
    stops(Errand, "customer", "stopped")
    burst()
    assert [job.status.hget() for job in jobs] == ["w", "s"]
    assert messages(log)[-1].endswith(", paused limits aside")


with pytest.warns(UserWarning, match="no job of it begins"):
    CLOSED = Limit("customer", concurrency=0)


class Closed(Parcel):
    customer = fields.InstanceHashField()
    limits = [CLOSED]


def test_nor_do_those_of_a_class_that_says_so(log: pytest.LogCaptureFixture) -> None:
    job = Closed.add_job(customer="any")
    burst()
    assert job.status.hget() == "w"
    assert messages(log)[-1].endswith(", paused limits aside")


def test_queues_that_are_not_served_do_not_count(collector: Collector) -> None:
    class OnePriority(Worker):
        def update_keys(self) -> None:
            self.keys = [Queue.get_queue("queue", 1).waiting.key]

    Parcel.add_job("other", priority=2)
    Parcel.add_job("a", priority=1)
    burst(worker_class=OnePriority, callback=collector)
    assert collector.identifiers == ["a"]


def test_an_own_wait_for_jobs_ends_it_too(collector: Collector) -> None:
    class Own(Worker):
        def wait_for_job(self) -> Any:
            ident = Queue.get_queue("queue").waiting.lpop()
            return (Queue.get_queue("queue"), Job.get_from_ident(ident)) if ident else None

    for name in "ab":
        Parcel.add_job(name)
    burst(worker_class=Own, callback=collector)
    assert collector.identifiers == ["a", "b"]


def test_a_limit_ends_it_before(collector: Collector) -> None:
    for name in "ab":
        Parcel.add_job(name)
    worker = worker_of(callback=collector, burst=True, max_loops=1)
    worker.run()
    assert (collector.identifiers, worker._run_state.is_done) == (["a"], False)


class Limited(Worker):
    max_loops = 1000


class LimitedBefore(Worker):
    def __init__(self, *args: Any, **kwargs: Any) -> None:
        self.max_loops = 7
        super().__init__(*args, **kwargs)


@each(
    ("worker_class", "options", "limit"),
    [
        (Worker, {}, inf),
        (Worker, {"burst": "delayed"}, inf),
        (type("Plain", (Worker,), {"burst": True}), {}, inf),
        (Worker, {"max_loops": 1000}, 1000),
        (Limited, {}, 1000),
        (type("Extended", (Limited,), {}), {}, 1000),
        (LimitedBefore, {}, 7),
        (Worker, {"burst": False}, 1000),
        (Worker, {"processes": 2}, 1000),  # each child is replaced, until no job waits
    ],
)
def test_only_a_limit_that_was_chosen_counts(worker_class: type[Worker], options: Any, limit: float) -> None:
    worker = worker_class("queue", **{"burst": True, "terminate_gracefuly": False, **options})
    assert worker.max_loops == limit


def test_more_jobs_are_run_than_other_workers_run(monkeypatch: pytest.MonkeyPatch, collector: Collector) -> None:
    monkeypatch.setattr(Parameters, "max_loops", 2)
    for name in "abc":
        Parcel.add_job(name)
    worker = Worker("queue", burst=True, callback=collector, terminate_gracefuly=False)
    assert str(WorkerTitle("worker", worker)).endswith("[init] queues=queue")
    worker.run()
    assert (collector.identifiers, worker._run_state.is_done) == (["a", "b", "c"], True)
    assert " loop=3 waiting=0 " in str(WorkerTitle("worker", worker))


def test_without_it_a_worker_waits_for_more() -> None:
    worker = worker_of()
    Queue.get_queue("queue")
    with working(worker):
        wait_until(lambda: worker.status == "waiting")
        job = Parcel.add_job("a")
    assert job.status.hget() == STATUSES.SUCCESS


@pytest.mark.parametrize("wrong", ["waiting", 2, "", "yes"])
def test_it_is_nothing_else(wrong: Any) -> None:
    with pytest.raises(ConfigurationException, match="burst"):
        Worker("queue", burst=wrong)
