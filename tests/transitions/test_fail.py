"""fail: a job that raised is in error, or goes back to a queue while its tries allow it."""

from __future__ import annotations

from collections.abc import Callable
from time import monotonic
from typing import Any

import pytest
from worlds import TOKEN, Moment, World, pk_of

from limpyd_jobs import transitions
from limpyd_jobs.exceptions import ClaimLost, NotRecorded
from limpyd_jobs.transitions import Ending

After = Callable[[float], Moment]


def test_the_whole_effect_of_the_last_failure(world: World, after: After) -> None:
    job = world.job_that_is("running", "job:1")
    assert world.fail(job) == Ending("error", after(0), "", None)
    assert world.contents() == {
        "jobs:job:max_pk": "1",
        "jobs:job:collection": {"1"},
        "jobs:job:1:hash": {
            "identifier": "job:1",
            "status": "e",
            "priority": "0",
            "added": after(0),
            "_queue_key": "jobs:queue:1",
            "start": after(0),
            "end": after(0),
            "tries": "1",
            "_last_claim": TOKEN,
        },
        "jobs:job:identifier:job:1": {"1"},
        "jobs:job:status:e": {"1"},
        "jobs:job:priority:0": {"1"},
        "jobs:queue:max_pk": "1",
        "jobs:queue:collection": {"1"},
        "jobs:queue:1:hash": {"name": "q", "priority": "0"},
        "jobs:queue:name:q": {"1"},
        "jobs:queue:priority:0": {"1"},
        "jobs:queue:1:errors": [job.ident],
    }


def test_the_whole_effect_of_a_failure_after_which_it_runs_again(world: World, after: After) -> None:
    job = world.job_that_is("running", "job:1")
    ending = world.fail(job, times=1, priority="-1", delay="+30000000")
    assert ending == Ending("requeued", "", after(30), None)
    assert world.contents() == {
        "jobs:job:max_pk": "1",
        "jobs:job:collection": {"1"},
        "jobs:job:1:hash": {
            "identifier": "job:1",
            "status": "d",
            "priority": "-1",
            "added": after(0),
            "_queue_key": "jobs:queue:2",
            "tries": "1",
            "delayed_until": after(30),
            "queued": "1",
            "_last_claim": TOKEN,
        },
        "jobs:job:identifier:job:1": {"1"},
        "jobs:job:status:d": {"1"},
        "jobs:job:priority:-1": {"1"},
        "jobs:job:queued:1": {"1"},
        "jobs:queue:max_pk": "2",
        "jobs:queue:collection": {"1", "2"},
        "jobs:queue:1:hash": {"name": "q", "priority": "0"},
        "jobs:queue:2:hash": {"name": "q", "priority": "-1"},
        "jobs:queue:name:q": {"1", "2"},
        "jobs:queue:priority:0": {"1"},
        "jobs:queue:priority:-1": {"2"},
        "jobs:queue:1:errors": [job.ident],
        "jobs:queue:2:delayed": {job.ident: after(30)},
    }


@pytest.mark.parametrize(
    ("tries", "times", "runs_again"),
    [
        (1, 0, False),
        (1, 1, True),
        (2, 1, False),
        (2, 2, True),
        (1, 1000, True),
        (1001, 1000, False),
        (None, 1, True),
        (None, 0, False),
        ("many", 1, True),
        (1, -1, False),
    ],
)
@pytest.mark.parametrize("hold", [False, True])
@pytest.mark.leaves("I3", "I7", "I8")
def test_it_runs_again_as_often_as_allowed(
    any_world: World, tries: int | str | None, times: int, runs_again: bool, hold: bool
) -> None:
    job = any_world.job_that_is("running")
    if tries is None:
        job.tries.delete()
    else:
        job.tries.hset(tries)
    expected = ("held" if hold else "requeued") if runs_again else "error"
    assert any_world.fail(job, times=times, hold=hold).outcome == expected


@pytest.mark.parametrize("value", ["1", "0", "no", " "])
@pytest.mark.parametrize("hold", [False, True])
def test_it_does_not_run_again_if_it_has_cancel_on_error(any_world: World, value: str, hold: bool) -> None:
    job = any_world.job_that_is("running")
    job.cancel_on_error.hset(value)
    assert any_world.fail(job, times=5, hold=hold).outcome == "error"
    assert any_world.places(job) == ["q/0 errors"]


@pytest.mark.leaves("I3", "I7", "I8")
def test_it_is_held_whatever_that_field_says_if_its_class_decides_otherwise(any_world: World) -> None:
    job = any_world.job_that_is("running")
    job.cancel_on_error.hset("1")
    assert any_world.fail(job, times=1, hold=True, heed_field=False).outcome == "held"


def test_an_empty_cancel_on_error_is_none(any_world: World) -> None:
    job = any_world.job_that_is("running")
    job.cancel_on_error.hset("")
    assert any_world.fail(job, times=5).outcome == "requeued"


@pytest.mark.parametrize("state", ["running", "running set to canceled", "running set to delayed"])
def test_it_is_an_error_whatever_status_it_was_given_while_it_ran(any_world: World, after: After, state: str) -> None:
    job = any_world.job_that_is(state)
    assert any_world.fail(job) == Ending("error", after(0), "", None)
    stored = any_world.state(job)
    assert (stored["status"], stored["end"]) == ("e", after(0))
    assert not stored.keys() & {"queued", "_claim_token", "_rescues"}
    assert any_world.places(job) == ["q/0 errors"]


@pytest.mark.parametrize("state", ["running", "running set to canceled", "running set to delayed"])
@pytest.mark.parametrize("delay", ["", "+30000000"])
def test_it_goes_back_whatever_status_it_was_given_while_it_ran(
    any_world: World, after: After, state: str, delay: str
) -> None:
    job = any_world.job_that_is(state)
    ending = any_world.fail(job, times=1, queue_name="other", priority="5", delay=delay)
    assert (ending.outcome, ending.delayed_until) == ("requeued", after(30) if delay else "")
    stored = any_world.state(job)
    assert stored.items() >= {"status": "d" if delay else "w", "priority": "5", "queued": "1", "tries": "1"}.items()
    assert not stored.keys() & {"start", "end", "_claim_token", "_rescues"}
    assert any_world.places(job) == sorted(["q/0 errors", f"other/5 {'delayed' if delay else 'waiting'}"])


@pytest.mark.parametrize("delay", ["+0", "+-30000000", ""])
def test_no_delay_is_left_of_a_former_one(any_world: World, delay: str) -> None:
    job = any_world.job_that_is("running")
    job.delayed_until.hset("2026-11-21 09:44:00")
    any_world.fail(job, times=1, delay=delay)
    assert "delayed_until" not in any_world.hash(job)
    assert any_world.places(job) == ["q/-1 waiting", "q/0 errors"]


@pytest.mark.leaves("I3", "I7", "I8")
class TestAHeldJob:
    def test_is_an_error_that_is_still_claimed_and_queued(self, any_world: World, after: After) -> None:
        job = any_world.job_that_is("running")
        other = any_world.add("b")[1]
        ending = any_world.fail(job, times=1, hold=True, next_claim=any_world.request(token="next"))
        assert ending == Ending("held", after(0), "", None)
        assert any_world.state(job) == {
            "status": "e",
            "priority": "0",
            "queued": "1",
            "start": after(0),
            "end": after(0),
            "tries": "1",
            "_claim_token": TOKEN,
        }
        assert any_world.places(job) == ["q/0 errors", "q/0 running"]
        assert any_world.places(other) == ["q/0 waiting"]

    def test_keeps_its_identifier(self, any_world: World) -> None:
        job = any_world.job_that_is("held")
        outcome, found = any_world.add("a", "q", 9, prepend=True)
        assert (outcome, pk_of(found)) == ("existing", pk_of(job))

    def test_is_put_back_by_requeue(self, any_world: World) -> None:
        job = any_world.job_that_is("held")
        job.requeue(queue_name="q", queue_model=any_world.queue_class)
        assert any_world.places(job) == ["q/0 errors", "q/0 waiting"]
        assert any_world.claim(token="second") is not None

    def test_is_in_error_for_good_once_it_is_abandoned(self, any_world: World) -> None:
        job = any_world.job_that_is("held")
        transitions.abandon(any_world.job_class, job.ident, TOKEN, any_world.queue_key())
        assert not any_world.state(job).keys() & {"queued", "_claim_token"}
        assert any_world.places(job) == ["q/0 errors"]


def test_its_identifier_is_free_again_after_an_error(any_world: World) -> None:
    any_world.job_that_is("error")
    assert any_world.add("a")[0] == "added"


@pytest.mark.parametrize("state", ["success", "error", "canceled", "custom"])
def test_a_job_that_is_not_claimed_may_be_made_an_error_by_hand(any_world: World, after: After, state: str) -> None:
    job = any_world.job_that_is(state)
    assert any_world.fail(job, transitions.UNCLAIMED) == Ending("error", after(0), "", None)
    assert any_world.state(job)["status"] == "e"
    assert "q/0 errors" in any_world.places(job)


@pytest.mark.parametrize(
    ("times", "key"),
    [
        (0, "jobs:queue:1:errors"),
        (0, "jobs:job:status:e"),
        (0, "jobs:queue:1:_running"),
        (1, "jobs:queue:1:errors"),
        (1, "jobs:queue:2:waiting"),
        (1, "jobs:job:status:w"),
        (1, "jobs:job:priority:-1"),
    ],
)
@pytest.mark.leaves("I2", "I7", "I10")
def test_a_key_of_a_wrong_type_leaves_the_job_as_it_was(world: World, times: int, key: str) -> None:
    job = world.job_that_is("running")
    world.queue("q", -1)
    world.client.delete(key)
    world.client.set(key, "of a wrong type")
    with world.unchanged(), pytest.raises(NotRecorded):
        world.fail(job, times=times)


@pytest.mark.parametrize("hold", [False, True])
def test_a_job_is_put_back_whatever_its_tries_are_if_its_worker_decided_so(any_world: World, hold: bool) -> None:
    job = any_world.job_that_is("running")
    job.tries.hset(1000)
    assert any_world.fail(job, times=None, hold=hold).outcome == ("held" if hold else "requeued")
    if hold:
        transitions.abandon(any_world.job_class, job.ident, TOKEN, any_world.queue_key())


def test_a_job_to_be_canceled_on_error_is_not_put_back_whatever_its_worker_decided(any_world: World) -> None:
    job = any_world.job_that_is("running")
    job.cancel_on_error.hset(1)
    assert any_world.fail(job, times=None).outcome == "error"


def test_a_job_that_another_worker_claimed_is_not_put_back_whatever_its_worker_decided(any_world: World) -> None:
    job = any_world.job_that_is("running")
    with pytest.raises(ClaimLost):
        any_world.fail(job, "late", times=None)
    assert any_world.places(job) == ["q/0 running"]


@pytest.mark.parametrize("options", [{}, {"times": 1, "hold": True}])
@pytest.mark.leaves("I3", "I7", "I8")
def test_a_job_that_waited_in_the_hand_of_its_worker_began_later_than_it_was_claimed(
    any_world: World, after: After, options: dict[str, Any]
) -> None:
    job = any_world.job_that_is("running")
    job.start.hset("2000-01-01 00:00:00")
    any_world.fail(job, began=monotonic() - 5, **options)
    stored = any_world.state(job)
    assert (stored["status"], stored["start"], stored["end"]) == ("e", after(-5), after(0))
