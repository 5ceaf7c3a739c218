"""A requeue is followed: what became of its jobs is counted, it stops if too many fail again, and obeys."""

from __future__ import annotations

from collections.abc import Callable
from threading import Thread
from typing import Any

import pytest
from servers import wait_until

from limpyd_jobs import Job, Worker
from limpyd_jobs.commands.audit import Audit
from limpyd_jobs.commands.jobs import Jobs
from limpyd_jobs.query import JobFilter, audit_entries
from limpyd_jobs.views import following as views
from limpyd_jobs.views.following import Following, order_requeue, requeue_of, requeues
from limpyd_jobs.views.verbs import Change

pytestmark = pytest.mark.usefixtures("redis_client")

broken: set[str] = set()


class Payout(Job):
    namespace = "following"
    queue_name = "payouts"

    def run(self, queue: Any) -> None:
        if self.identifier.hget() in broken:
            raise ValueError("still broken")


def fail(number: int) -> None:
    for each in range(number):
        with Payout.add_job(f"{each}").claim(owner="web1:12") as claim:
            claim.fail(ValueError("no"))


def requeue(following: Following) -> Any:
    return Change("requeue", [JobFilter("status=error", "class=Payout")], told=True).follow(following)


def work(number: int) -> None:
    Worker("payouts", max_loops=number, logger_level=60).run()


@pytest.fixture
def beside() -> Any:
    """Run something beside the test, to its end."""
    threads: list[Thread] = []

    def begin(act: Callable[..., Any], *arguments: Any) -> Thread:
        threads.append(Thread(target=act, args=arguments))
        threads[-1].start()
        return threads[-1]

    yield begin
    for each in threads:
        each.join(30)
        assert not each.is_alive()


def test_what_became_of_the_jobs_is_counted_and_in_the_audit(beside: Any) -> None:
    fail(6)
    broken.clear()
    broken.add("3")
    beside(work, 6)
    following = Following(stop_above=None)
    tally = requeue(following)
    assert tally.done == 6
    assert (following.outcomes.succeeded, following.outcomes.failed, following.outcomes.open) == (5, 1, 0)
    [entry] = audit_entries(1)
    assert (entry.verb, entry.done, entry.outcome, entry.token) == ("requeue", 6, "complete", following.token)
    found = requeue_of(following.token)
    assert found
    assert (found.state, found.done, f"{found.outcomes}") == ("over", 6, "5 succeeded, 1 failed again")


def test_it_stops_by_itself_if_too_many_fail_again(beside: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """Those that were not put back yet stay in error."""
    monkeypatch.setattr(views, "FIRST_OPEN", 10)
    monkeypatch.setattr(views, "CHANGES_PER_STEP", 10)
    fail(40)
    broken.clear()
    broken.update(f"{each}" for each in range(0, 40, 2))
    beside(work, 10)
    following = Following(stop_above=0.2)
    tally = requeue(following)
    assert tally.done == 10
    assert following.outcomes.failing == 0.5
    assert JobFilter("class=Payout", status="error").count().number == 35
    found = requeue_of(following.token)
    assert found
    assert found.state == "stopped"
    assert found.outcome == "stopped by itself: 50% failed again, more than 20%"


def test_it_can_be_paused_and_stopped_from_elsewhere(beside: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(views, "FIRST_OPEN", 10)
    monkeypatch.setattr(views, "CHANGES_PER_STEP", 10)
    monkeypatch.setattr(views, "ORDERS_AFTER", 0.05)
    fail(30)
    broken.clear()
    following = Following(stop_above=0.2)
    token = following.token
    beside(requeue, following)
    wait_until(lambda: (found := requeue_of(token)) and found.outcomes.open == 10, "the first jobs")
    order_requeue(token, "pause", "ann")
    wait_until(lambda: following._order == "pause", "the order")
    work(10)
    wait_until(lambda: (found := requeue_of(token)) and found.outcomes.succeeded == 10, "the outcomes")
    found = requeue_of(token)
    assert found
    assert (found.state, found.done, found.to_come) == ("paused", 10, 20)
    order_requeue(token, "stop", "ann")
    wait_until(lambda: (found := requeue_of(token)) and found.state == "stopped", "the end")
    assert requeues()[0].outcome == "stopped by ann"
    assert (requeues()[0].to_come, requeues()[0].left) == (0, 20)
    assert JobFilter("class=Payout", status="error").count().number == 20
    with pytest.raises(LookupError, match="does not run any more"):
        order_requeue(token, "go on")


def test_a_requeue_that_is_not_followed_keeps_nothing() -> None:
    fail(2)
    Change("requeue", [JobFilter("status=error", "class=Payout")]).do()
    assert audit_entries(1)[0].token == ""
    assert requeues() == []


def test_the_command_says_what_became_of_the_jobs(beside: Any, capsys: pytest.CaptureFixture[str]) -> None:
    fail(12)
    broken.clear()
    broken.update({"1", "2", "3"})
    beside(work, 12)
    status = Jobs(
        "limpyd-jobs jobs", ["requeue", "status=error", "class=Payout", "--stop-if-failing=50%", "--yes"]
    ).execute()
    told = capsys.readouterr()
    assert status == 0
    assert "12    requeued" in told.out
    assert "9 succeeded, 3 failed again" in told.out
    assert "/requeues/" in told.err
    Audit("limpyd-jobs audit", ["--limit=1"]).execute()
    assert "complete: 9 succeeded, 3 failed again" in capsys.readouterr().out
    with pytest.raises(SystemExit):
        Jobs("limpyd-jobs jobs", ["requeue", "status=error", "--stop-if-failing=most", "--yes"]).execute()
    assert "'most' is not a part of the jobs: write it as 20%" in capsys.readouterr().err
