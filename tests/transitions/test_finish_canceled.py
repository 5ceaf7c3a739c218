"""finish_canceled: a job was canceled while it ran."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from worlds import TOKEN, Moment, World, pk_of

from limpyd_jobs import transitions
from limpyd_jobs.transitions import Ending

After = Callable[[float], Moment]


def test_the_whole_effect(world: World, after: After) -> None:
    job = world.job_that_is("running set to canceled", "job:1")
    assert world.finish_canceled(job) == Ending("done", "", "", None)
    assert world.contents() == {
        "jobs:job:max_pk": "1",
        "jobs:job:collection": {"1"},
        "jobs:job:1:hash": {
            "identifier": "job:1",
            "status": "c",
            "priority": "0",
            "added": after(0),
            "_queue_key": "jobs:queue:1",
            "start": after(0),
            "tries": "1",
            "_last_claim": TOKEN,
        },
        "jobs:job:identifier:job:1": {"1"},
        "jobs:job:status:c": {"1"},
        "jobs:job:priority:0": {"1"},
        "jobs:queue:max_pk": "1",
        "jobs:queue:collection": {"1"},
        "jobs:queue:1:hash": {"name": "q", "priority": "0"},
        "jobs:queue:name:q": {"1"},
        "jobs:queue:priority:0": {"1"},
    }


@pytest.mark.parametrize("state", ["running", "running set to canceled", "running set to delayed", "held"])
def test_a_claimed_job_is_canceled_whatever_its_status(any_world: World, state: str) -> None:
    job = any_world.job_that_is(state)
    assert any_world.finish_canceled(job).outcome == "done"
    stored = any_world.state(job)
    assert stored["status"] == "c"
    assert not stored.keys() & {"queued", "_claim_token", "_rescues"}
    assert any_world.places(job) == (["q/0 errors"] if state == "held" else [])


@pytest.mark.parametrize("state", ["success", "error", "canceled", "custom"])
def test_a_job_that_is_not_claimed_may_be_canceled_by_hand(any_world: World, state: str) -> None:
    job = any_world.job_that_is(state)
    assert any_world.finish_canceled(job, transitions.UNCLAIMED).outcome == "done"
    assert any_world.state(job)["status"] == "c"


def test_its_identifier_is_free_again(any_world: World) -> None:
    job = any_world.job_that_is("canceled")
    outcome, other = any_world.add("a")
    assert (outcome, pk_of(other) != pk_of(job)) == ("added", True)
