"""`unique_for`: for some time after a job ended, no other one of its identifier is added."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from datetime import datetime, timedelta
from itertools import pairwise
from typing import Any

import pytest
import redis
from invariants import contents, violations
from parts import run_task
from running import messages, work, worker_of
from servers import wait_until

from limpyd_jobs import ConfigurationException, Error, Job, Queue, Retry, Schedule, Worker, job
from limpyd_jobs.check import check
from limpyd_jobs.models import datetime_to_score
from limpyd_jobs.query import run_schedule_now
from limpyd_jobs.testing import clock, jobs_at_once

DAY = 86400


class Report(Job):
    namespace = "seldom"
    queue_name = "queue"
    unique_for = timedelta(days=1)

    def run(self, queue: Queue) -> None:
        if self.identifier.hget().startswith("fails"):
            raise ValueError("no")


class Plain(Job):
    namespace = "seldom"
    queue_name = "queue"

    def run(self, queue: Queue) -> None:
        pass


class Placing(Job):
    namespace = "seldom"
    queue_name = "queue"
    unique_for = DAY
    placed = 0

    def enqueue_or_delay(self, *args: Any, **kwargs: Any) -> None:
        type(self).placed += 1
        super().enqueue_or_delay(*args, **kwargs)

    def run(self, queue: Queue) -> None:
        pass


@job(queue="queue", unique="to", unique_for=DAY)
def send(to: str, unique_for: int = 3) -> None: ...


class WithHooks(Worker):
    """Ends its jobs step by step, as version 2 does."""

    def job_success(self, *args: Any, **kwargs: Any) -> None:
        super().job_success(*args, **kwargs)

    def job_error(self, *args: Any, **kwargs: Any) -> None:
        super().job_error(*args, **kwargs)


@pytest.fixture(autouse=True)
def _whole(redis_client: redis.Redis) -> Iterator[None]:
    """All invariants hold after each test, and nothing is wrong or left over."""
    yield
    clock.reset()
    assert violations(redis_client, Report, Plain, Placing, send.job_class, Queue, Error) == []
    assert [finding.problem for finding in check(pause=0).findings] == []


def run(number: int = 1, **options: Any) -> None:
    work(callback=None, max_loops=number, **options)


def cancel(found: Any) -> None:
    assert found.cancel()


def cancel_as_it_runs(found: Any) -> None:
    with found.claim() as claim:
        claim.job.cancel()


def succeed_by_a_claim(found: Any) -> None:
    found.claim(lease=60).succeed()


def let_it_be_too_late(found: Any) -> None:
    found.get_field("_start_within").hset("0.000001")
    run()
    assert found.status.hget() == "c"


def end_as_version_2(found: Any) -> None:
    """A worker of version 2 knows nothing of this."""
    client = found.get_connection()
    client.lrem("jobs:queue:1:waiting", 0, found.ident)
    client.hset(found.key, mapping={"status": "s"})
    client.smove(f"{found._name}:status:w", f"{found._name}:status:s", found.pk.get())
    client.hdel(found.key, "queued")
    client.srem(f"{found._name}:queued:1", found.pk.get())


def run_and_erase(found: Any) -> None:
    run(keep_success=0)
    assert not type(found).exists(pk=found.pk.get())


ENDS: dict[str, tuple[str, Callable[[Any], object], bool]] = {
    "success": ("a", lambda _: run(), True),
    "success by hooks": ("a", lambda _: run(worker_class=WithHooks), True),
    "success of which nothing is kept": ("a", run_and_erase, True),
    "success by a claim": ("a", succeed_by_a_claim, True),
    "error": ("fails", lambda _: run(), True),
    "error by hooks": ("fails", lambda _: run(worker_class=WithHooks), True),
    "canceled as it waits": ("a", cancel, False),
    "canceled as it runs": ("a", cancel_as_it_runs, False),
    "canceled by its deadline": ("a", let_it_be_too_late, False),
    "deleted": ("a", lambda _: Report.collection(queued="1").delete_all(), False),
    "ended by version 2": ("a", end_as_version_2, False),
}


@pytest.mark.parametrize(("identifier", "end", "is_throttled"), ENDS.values(), ids=ENDS)
def test_what_ran_to_its_end_is_not_added_again_for_that_time(
    redis_client: redis.Redis, identifier: str, end: Callable[[Any], object], is_throttled: bool
) -> None:
    first = Report.add_job(identifier)
    assert (first.add_outcome, Report.add_job(identifier).add_outcome) == ("added", "existing")
    end(first)
    again = Report.add_job(identifier, priority=5, delayed_for=5)
    assert (again.add_outcome, again.pk.get() == "1") == (("throttled", True) if is_throttled else ("added", False))
    assert redis_client.exists(f"seldom:report:_throttle:{identifier}") == is_throttled


def test_the_time_begins_with_the_last_end_and_not_with_an_error_that_is_tried_again() -> None:
    found = Report.add_job("fails", retry_policy=Retry(times=1, delay=0, priority_delta=0))
    run()
    assert (found.status.hget(), Report.add_job("fails").add_outcome) == ("w", "existing")
    run()
    assert (found.status.hget(), Report.add_job("fails").add_outcome) == ("e", "throttled")
    found.requeue()
    assert Report.add_job("fails").add_outcome == "existing"


def test_a_class_with_its_own_way_to_a_queue_is_not_asked_to_put_the_ended_job_there() -> None:
    found = Placing.add_job("a")
    run()
    assert (Placing.add_job("a").add_outcome, Placing.add_jobs(["a"])[0].add_outcome) == ("throttled", "throttled")
    assert (Placing.placed, found.status.hget()) == (1, "s")


def test_it_is_over_in_time(redis_client: redis.Redis) -> None:
    found = Report.add_job("a", unique_for=0.05)
    run()
    assert 0 <= redis_client.pttl("seldom:report:_throttle:a") <= 50 or not redis_client.keys("*:_throttle:*")
    wait_until(lambda: Report.add_job("a").add_outcome == "added")
    assert found.status.hget() == "s"


def test_it_follows_a_clock_that_tests_move() -> None:
    Report.add_job("a")
    run()
    clock.move(hours=23)
    assert Report.add_job("a").add_outcome == "throttled"
    clock.move(hours=2)
    assert Report.add_job("a").add_outcome == "added"


def test_a_call_has_its_own_time_and_may_pass_over_it() -> None:
    Plain.add_job("a", unique_for=DAY)
    run()
    assert Plain.add_job("a", unique_for=timedelta(days=2)).add_outcome == "throttled"
    assert Plain.add_job("b", unique_for=DAY).add_outcome == "added"
    assert Plain.add_job("a").add_outcome == "added"  # this one does not ask
    Report.add_job("a", unique_for=0)
    run(3)
    assert Report.add_job("a").add_outcome == "added"


def test_the_job_that_is_returned_may_be_deleted() -> None:
    found = Report.add_job("a")
    run()
    found.delete()
    again = Report.add_job("a")
    assert (again.add_outcome, again.pk.get(), Report.exists(pk="1")) == ("throttled", "1", False)


def test_many_and_those_that_are_awaited() -> None:
    Report.add_jobs(["a", "b", "c"], unique_for=DAY)
    run(3, prefetch=3)
    assert [each.add_outcome for each in Report.add_jobs(["a", "d", "c"])] == ["throttled", "added", "throttled"]

    async def again() -> list[Any]:
        return [await Report.aadd_job("b"), *await Report.aadd_jobs(["b", "e"])]

    assert [each.add_outcome for each in asyncio.run(again())] == ["throttled", "throttled", "added"]


def test_functions() -> None:
    first = send.add("ann", unique_for=7)
    assert first.job.arguments.arg_unique_for == 7
    run()
    again = send.add("ann")
    assert (again.outcome, again.added, again.ident) == ("throttled", False, first.ident)
    assert repr(again) == f"<{first.ident}, throttled>"
    assert send.configure(unique_for=0).add("ann").added


def test_a_schedule_goes_on_and_says_why_it_added_none(
    redis_client: redis.Redis, caplog: pytest.LogCaptureFixture
) -> None:
    schedule = Schedule.add("often", Report, interval=3600, identifier="same")
    Report.add_job("same")
    run()
    past = datetime(2020, 1, 1)
    schedule.next_run.hset(str(past))
    redis_client.zadd(f"{Schedule._name}:due", {schedule.pk.get(): datetime_to_score(past)})
    caplog.set_level("INFO")
    run_task(worker_of(), "scheduler")
    assert schedule.next_run.hget() > "2020-01-02"
    assert len(list(Report.collection())) == 1
    told = "job 1 of that identifier ended too short a while ago (unique_for)"
    assert any(told in line for line in messages(caplog))
    Report.collection().instances()[0].delete()
    assert run_schedule_now("often") == (f"{__name__}.Report:1", False, "throttled")


def test_jobs_that_tests_run_at_once() -> None:
    with jobs_at_once():
        assert [Report.add_job("a").add_outcome for _ in range(2)] == ["added", "throttled"]


def test_a_broken_key_holds_nothing_up(redis_client: redis.Redis) -> None:
    for value in ("x", "1 y", " "):
        redis_client.set("seldom:report:_throttle:a", value)
        assert Report.add_job("a").add_outcome == "added"
        run()
        redis_client.delete("seldom:report:_throttle:a")
    redis_client.rpush("seldom:report:_throttle:b", "x")
    assert Report.add_job("b").add_outcome == "added"
    run()
    assert Report.add_job("b").add_outcome == "throttled"


def commands(client: redis.Redis) -> int:
    entries = client.info("commandstats").items()
    return sum(entry["calls"] for name, entry in entries if name not in ("cmdstat_info", "cmdstat_evalsha"))


def test_it_costs_a_command_of_each_job_that_is_added_and_two_of_each_end(redis_client: redis.Redis) -> None:
    costs: dict[type[Job], list[int]] = {Plain: [], Report: []}
    for name in ("the first one, so that all is known", "measured"):
        for job_class, cost in costs.items():
            counts = [commands(redis_client)]
            found = job_class.add_job(name)
            counts.append(commands(redis_client))
            claim = found.claim(lease=60)
            counts.append(commands(redis_client))
            claim.succeed()
            counts.append(commands(redis_client))
            cost[:] = [after - before for before, after in pairwise(counts)]
    assert [many - few for few, many in zip(*costs.values(), strict=True)] == [1, 0, 2]
    assert "_unique_for" not in redis_client.hgetall("seldom:plain:1:hash")
    assert redis_client.keys("seldom:plain:_throttle*") == []


@pytest.mark.parametrize(("value", "error"), [("soon", TypeError), (-1, ValueError), (True, TypeError)])
def test_a_time_that_is_none_is_refused(redis_client: redis.Redis, value: Any, error: type[Exception]) -> None:
    with pytest.raises(error, match="unique_for must be"):
        Plain.add_job("a", unique_for=value)
    if value == -1:
        with pytest.raises(ConfigurationException, match=r"Wrong.unique_for must be"):
            type("Wrong", (Job,), {"__module__": __name__, "namespace": "wrong", "unique_for": -1}).add_job("a", "q")
    if value == "soon":
        with pytest.raises(ConfigurationException, match="unique_for must be"):
            job(unique_for=value)(cancel)
    assert contents(redis_client) == {}
