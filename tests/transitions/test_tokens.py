"""A token that is missing is an error, of every script that takes one: it never means a job without a claim."""

from __future__ import annotations

from typing import Any

import pytest
import redis
from all_scripts import ALL_SCRIPTS
from worlds import LEASE, TOKEN, Ran, World

from limpyd_jobs import transitions
from limpyd_jobs.records.layout import classes_argument, layout_of
from limpyd_jobs.redis.calls import Call, send
from limpyd_jobs.redis.scripting import Script
from limpyd_jobs.transitions import Delivery, Renewal

MISSING = "the token is missing"

# What each script that takes a token does without one. A new script has to be entered here.
REFUSES = "refuses"  # whatever else is in the request
UNCLAIMED = "unclaimed"  # the same, unless the request says `unclaimed`
WHEN_NEEDED = "when needed"  # only if it has to make a claim, or a job spawns others, which other tests show

WITHOUT = {
    "abandon": REFUSES,
    "add_flow": WHEN_NEEDED,
    "append_output": REFUSES,
    "ask_children": REFUSES,
    "ask_signal": REFUSES,
    "claim": REFUSES,
    "claim_job": REFUSES,
    "delay": UNCLAIMED,
    "fail": UNCLAIMED,
    "finish_canceled": UNCLAIMED,
    "force_release": UNCLAIMED,
    "release": REFUSES,
    "renew": REFUSES,
    "repair_placement": WHEN_NEEDED,
    "rescue": REFUSES,
    "rest": REFUSES,
    "settle": REFUSES,
    "succeed": UNCLAIMED,
    "succeed_many": REFUSES,
}
TAKE_ONE = {script.name: script for script in ALL_SCRIPTS if "token" in script.positions}


@pytest.fixture
def world(world: World) -> World:
    """One that has its queue already."""
    world.queue()
    return world


def request_of(world: World, script: Script, ident: str) -> dict[str, Any]:
    """A request that would be accepted with a token: names mean the same everywhere."""
    known = {
        "job_model": layout_of(world.job_class).json,
        "queue_model": layout_of(world.queue_class).json,
        "queue_name": "q",
        "queue_key": world.queue_key(),
        "ident": ident,
        "lists": world.waiting_key(),
        "lease": LEASE,
        "classes": classes_argument({world.path: world.job_class}),
        "successes": "[]",
        "limit": 1,
        "requeue_times": 0,
        "max_rescues": 3,
        "mode": "place",
    }
    return {name: value for name, value in known.items() if name in script.positions}


def call(world: World, script: Script, **request: Any) -> Any:
    keys = [world.queue_key()] if script.name == "rescue" else []
    sent = Call(world.client, script, request, lambda reply: reply["outcome"], keys=keys)
    return send(sent)


def test_every_script_that_takes_a_token_says_what_it_does_without_one() -> None:
    assert WITHOUT.keys() == TAKE_ONE.keys()
    says_unclaimed = {name for name, script in TAKE_ONE.items() if "unclaimed" in script.positions}
    assert {name for name, what in WITHOUT.items() if what == UNCLAIMED} == says_unclaimed


@pytest.mark.parametrize("state", ["running", "waiting", "success"])
def test_without_a_token_nothing_is_done(world: World, state: str) -> None:
    ident = world.job_that_is(state).ident
    for name in [name for name, what in WITHOUT.items() if what != WHEN_NEEDED]:
        print(name)  # pytest shows the last one if anything is done
        for token in ({}, {"token": ""}):
            with world.unchanged(), pytest.raises(redis.ResponseError, match=MISSING):
                call(world, TAKE_ONE[name], **request_of(world, TAKE_ONE[name], ident), **token)


def test_who_says_that_the_job_is_not_claimed_does_not_end_a_claim(world: World) -> None:
    ident = world.job_that_is("running").ident
    for name in [name for name, what in WITHOUT.items() if what == UNCLAIMED]:
        print(name)
        with world.unchanged():
            assert call(world, TAKE_ONE[name], **request_of(world, TAKE_ONE[name], ident), unclaimed=True) == "refused"


def test_a_row_of_several_without_a_token_fails(world: World) -> None:
    """Also on a job that is not claimed any more."""
    job = world.job_that_is("success")
    delivery = Delivery("claimed", world.waiting_key(), job.ident)
    with world.unchanged():
        assert transitions.renew_all(world.client, [Renewal(world.job_class, delivery, {"cursor": "{}"})], 60) == [
            "failed"
        ]
        success = Ran(job, delivery, 0.0, 1.0)
        (ending,), _ = transitions.succeed_many(world.client, [success], world.request())
    assert (ending.outcome, MISSING in ending.end) == ("failed", True)


def test_no_function_takes_an_empty_token(world: World) -> None:
    job = world.job_that_is("success")
    held = world.job_class, job.ident, "", world.queue_key()
    calls = [
        lambda: world.succeed(job, ""),
        lambda: world.fail(job, ""),
        lambda: world.delay(job, ""),
        lambda: world.finish_canceled(job, ""),
        lambda: transitions.renew(world.client, *held, 60),
        lambda: transitions.release(*held),
        lambda: transitions.abandon(*held),
        lambda: transitions.force_release(*held, {}),
    ]
    for each in calls:
        with world.unchanged(), pytest.raises(ValueError, match=f"The token of the claim on {job.ident} is missing"):
            each()


class TestHowFarAJobIs:
    KEPT = {"cursor": '{"iterate":{"index":3}}'}

    def keep(self, world: World, ident: str, token: str = TOKEN, *, several: bool) -> None:
        """By the renewal of one lease, or of several."""
        if several:
            delivery = Delivery("claimed", world.waiting_key(), ident, token=token)
            transitions.renew_all(world.client, [Renewal(world.job_class, delivery, self.KEPT)], 60)
        else:
            transitions.renew(world.client, world.job_class, ident, token, world.queue_key(), 60, self.KEPT)

    @pytest.mark.parametrize("several", [False, True])
    def test_is_kept_for_the_holder_of_the_claim(self, world: World, several: bool) -> None:
        job = world.job_that_is("running")
        self.keep(world, job.ident, several=several)
        assert world.hash(job)["_cursor"] == self.KEPT["cursor"]

    @pytest.mark.parametrize("several", [False, True])
    @pytest.mark.parametrize("state", ["success", "error", "canceled"])
    def test_is_not_written_once_the_claim_is_ended(self, world: World, state: str, several: bool) -> None:
        job = world.job_that_is(state)
        with world.unchanged():
            self.keep(world, job.ident, several=several)

    @pytest.mark.leaves("I3", "I7", "I8")
    @pytest.mark.parametrize("several", [False, True])
    def test_is_not_written_while_a_failure_is_held(self, world: World, several: bool) -> None:
        """Its class may have it begin anew, and then nothing must come back."""
        job = world.job_that_is("held")
        self.keep(world, job.ident, several=several)
        assert "_cursor" not in world.hash(job)

    def test_is_forgotten_if_a_hook_made_the_job_a_success(self, world: World) -> None:
        job = world.job_that_is("running")
        self.keep(world, job.ident, several=False)
        job.status.hset("s")
        transitions.abandon(world.job_class, job.ident, TOKEN, world.queue_key(), kept=self.KEPT)
        assert "_cursor" not in world.hash(job)

    @pytest.mark.leaves("I5")
    def test_is_forgotten_if_a_success_is_put_in_a_queue_again(self, world: World) -> None:
        """Version 2 may have run it to its end: it knows of no cursors."""
        job = world.job_that_is("success")
        job._cursor.hset(self.KEPT["cursor"])
        job.enqueue_or_delay("q", queue_model=world.queue_class)
        assert "_cursor" not in world.hash(job)
