"""delay: a job that asked for it while it ran goes to the delayed set."""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime

import pytest
from worlds import LATER, TOKEN, Moment, World, pk_of, until

from limpyd_jobs import transitions
from limpyd_jobs.dates import datetime_to_score
from limpyd_jobs.transitions import Ending

After = Callable[[float], Moment]


def test_the_whole_effect(world: World, after: After) -> None:
    job = world.job_that_is("running set to delayed", "job:1")
    assert world.delay(job, delay=until(LATER)) == Ending("done", "", str(LATER), None)
    assert world.contents() == {
        "jobs:job:max_pk": "1",
        "jobs:job:collection": {"1"},
        "jobs:job:1:hash": {
            "identifier": "job:1",
            "status": "d",
            "priority": "0",
            "added": after(0),
            "_queue_key": "jobs:queue:1",
            "start": after(0),
            "tries": "1",
            "delayed_until": str(LATER),
            "queued": "1",
            "_last_claim": TOKEN,
        },
        "jobs:job:identifier:job:1": {"1"},
        "jobs:job:status:d": {"1"},
        "jobs:job:priority:0": {"1"},
        "jobs:job:queued:1": {"1"},
        "jobs:queue:max_pk": "1",
        "jobs:queue:collection": {"1"},
        "jobs:queue:1:hash": {"name": "q", "priority": "0"},
        "jobs:queue:name:q": {"1"},
        "jobs:queue:priority:0": {"1"},
        "jobs:queue:1:delayed": {job.ident: datetime_to_score(LATER)},
    }


@pytest.mark.parametrize("state", ["running", "running set to canceled", "running set to delayed", "held"])
def test_a_claimed_job_is_delayed_whatever_its_status(any_world: World, after: After, state: str) -> None:
    job = any_world.job_that_is(state)
    ending = any_world.delay(job, delay="+500000000")
    assert (ending.outcome, ending.delayed_until) == ("done", after(500))
    assert [place for place in any_world.places(job) if "errors" not in place] == ["q/0 delayed"]
    stored = any_world.state(job)
    assert (stored["status"], stored["queued"], stored["tries"]) == ("d", "1", "1")
    assert "_claim_token" not in stored


@pytest.mark.parametrize("delay", [until(datetime(2001, 1, 1)), "+0", "+-1000000", ""])
def test_a_past_date_makes_it_wait_at_the_end_of_its_list(any_world: World, delay: str) -> None:
    job = any_world.job_that_is("running set to delayed")
    other = any_world.add("b")[1]
    assert any_world.delay(job, delay=delay) == Ending("done", "", "", None)
    assert any_world.waiting() == [pk_of(other), pk_of(job)]
    assert "delayed_until" not in any_world.hash(job)


@pytest.mark.parametrize("priority", ["7", "-7", "0"])
@pytest.mark.parametrize("queue", ["q", "new"])
def test_it_goes_to_the_queue_of_its_own_priority_now(any_world: World, queue: str, priority: str) -> None:
    job = any_world.job_that_is("running")
    job.set_fields(priority=priority, status="d")
    any_world.delay(job, queue=queue, delay=until(LATER))
    assert any_world.places(job) == [f"{queue}/{priority} delayed"]
    assert any_world.hash(job)["priority"] == priority


def test_a_job_that_was_found_delayed_in_a_waiting_list_goes_where_it_belongs(any_world: World) -> None:
    """As version 2 makes of one, by setting its status; nobody claimed it."""
    job = any_world.job_that_is("waiting")
    job.status.hset("d")
    fetched = any_world.claim()
    assert fetched is not None
    assert fetched.outcome == "found"
    assert any_world.delay(job, transitions.UNCLAIMED, delay=until(LATER)).delayed_until == str(LATER)
    assert any_world.places(job) == ["q/0 delayed"]
    assert any_world.state(job)["queued"] == "1"


class TestATryThatDoesNotCount:
    """As the code of the job raised `Requeue`."""

    def test_is_counted_apart(self, any_world: World) -> None:
        job = any_world.job_that_is("running")
        assert any_world.delay(job, delay=until(LATER), uncounted=True).outcome == "done"
        stored = any_world.hash(job)
        assert (stored["tries"], stored["_uncounted_tries"]) == ("1", "1")
        assert any_world.places(job) == ["q/0 delayed"]

    def test_adds_to_those_before(self, any_world: World) -> None:
        job = any_world.job_that_is("running")
        job.uncounted_tries.hset(7)
        any_world.delay(job, uncounted=True)
        assert any_world.hash(job)["_uncounted_tries"] == "8"

    def test_is_counted_once_if_the_reply_was_lost(self, any_world: World) -> None:
        job = any_world.job_that_is("running")
        first = any_world.delay(job, delay=until(LATER), uncounted=True)
        assert any_world.delay(job, delay=until(LATER), uncounted=True) == first
        assert any_world.hash(job)["_uncounted_tries"] == "1"

    def test_of_a_canceled_job_changes_nothing(self, any_world: World) -> None:
        job = any_world.job_that_is("running set to canceled")
        before = any_world.contents()
        assert any_world.delay(job, uncounted=True) == Ending("canceled")
        assert any_world.contents() == before
        transitions.finish_canceled(job, any_world.queue(), TOKEN)

    @pytest.mark.parametrize("priority", ["7", "-7"])
    @pytest.mark.parametrize("delay", ["", until(LATER)])
    def test_may_come_with_another_priority(self, any_world: World, priority: str, delay: str) -> None:
        job = any_world.job_that_is("running")
        any_world.delay(job, delay=delay, priority=priority, uncounted=True)
        assert any_world.places(job) == [f"q/{priority} {'delayed' if delay else 'waiting'}"]
        assert any_world.hash(job)["priority"] == priority
