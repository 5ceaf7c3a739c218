"""The requests that each job needs are lists of words, in the order in which the header of the script names them."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from worlds import LEASE, TOKEN, World

from limpyd_jobs import transitions
from limpyd_jobs.records.layout import classes_argument, layout_of
from limpyd_jobs.redis.calls import Call
from limpyd_jobs.transitions import UNCLAIMED, KeptResult, Room


def named(call: Any) -> dict[str, Any]:
    """The values of a request that are not empty, by their names in the header."""
    assert isinstance(call, Call)
    words = dict(zip(call.script.positions, call.words(), strict=False))
    return {name: word for name, word in words.items() if word != ""}


@pytest.mark.parametrize("once", ["", "the key of a token"])
def test_to_add_a_job(world: World, once: str) -> None:
    call = transitions.add.steps(
        *(world.job_class, "a", world.queue_class, "q", "5"), prepend=True, delay="+9", place=False, once=once
    )
    request = named(call)
    request.pop("registry", None)
    assert request == {
        "job_model": layout_of(world.job_class).json,
        "identifier": "a",
        "queue_model": layout_of(world.queue_class).json,
        "queue_name": "q",
        "priority": "5",
        "delay": "+9",
        "prepend": "1",
        "custom": "1",
    }


def test_to_claim_a_job(world: World) -> None:
    request = replace(world.request(token="mine"), is_again=True, room=Room(), registry="[]")
    assert named(transitions.claim.call(world.queue_class, request, "an ident", "me", 1.5, "due", "{}")) == {
        "lists": "\n".join(request.keys),
        "token": "mine",
        "lease": LEASE,
        "classes": classes_argument(request.classes),
        "registry": "[]",
        "is_concurrent": "1",
        "suspects": 0,
        "ident": "an ident",
        "is_again": "1",
        "worker": "me",
        "wait": 1.5,
        "schedules": "due",
        "known": "{}",
    }


def test_to_end_a_job_in_success_and_claim_the_next_one(world: World) -> None:
    world.add("a")
    job, queue, next_claim = world.job("1"), world.queue(), world.request(token="next")
    call = transitions.succeed.call(job, queue, TOKEN, next_claim, "again", KeptResult("text", 12))
    assert named(call) == {
        "job_model": layout_of(world.job_class).json,
        "ident": job.ident,
        "queue_key": world.queue_key(),
        "token": TOKEN,
        "erase": "again",
        "result": "text",
        "kept_for": 12,
        "lists": "\n".join(next_claim.keys),
        "next_token": "next",
        "lease": LEASE,
        "classes": classes_argument(next_claim.classes),
    }
    unclaimed = named(transitions.succeed.call(job, queue, UNCLAIMED))
    assert unclaimed.keys() == {"job_model", "ident", "queue_key", "unclaimed"}


def test_to_end_several_jobs_and_claim_several(world: World) -> None:
    request = replace(world.request(token="next"), is_again=True, room=Room(3, 12), registry="[]")
    assert named(transitions.succeed_many.call(world.client, [], request, 7)) == {
        "successes": "[]",
        "limit": 7,
        "lists": "\n".join(request.keys),
        "lease": LEASE,
        "token": "next",
        "is_concurrent": "1",
        "suspects": 3,
        "most_suspects": 12,
        "is_again": "1",
        "classes": classes_argument(request.classes),
        "registry": "[]",
    }
