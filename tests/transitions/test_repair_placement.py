"""repair_placement: a job stands where its hash says, and nowhere else. What it finds, and how, is in tests/check."""

from __future__ import annotations

from typing import Any

import pytest
import redis
from worlds import Till, World, pk_of

from limpyd_jobs import transitions
from limpyd_jobs.check import scripts
from limpyd_jobs.check.places import SEEN


def seen(world: World, job: Any) -> str:
    return "\0".join(value or "" for value in world.client.hmget(f"{world.jobs}:{pk_of(job)}:hash", *SEEN))


def repair_placement(world: World, job: Any, repair: bool = True, **options: Any) -> Any:
    given = {"lease": 60, "token": "new", "seen": seen(world, job), **options}
    if "due" not in given:
        given.update(delayed_until="2099-12-31 23:59:59.999999", due="4102444799.999999")
    ident = f"{world.path}:{pk_of(job)}"
    return scripts.repair_placement(world.client, world.job_class, ident, [world.queue_key()], repair=repair, **given)


@pytest.mark.parametrize(("state", "place"), [("waiting", "waiting"), ("delayed", "delayed")])
def test_of_queues_of_several_models_one_of_the_model_of_its_class_is_kept(
    world: World, state: str, place: str
) -> None:
    job, other = world.job_that_is(state), Till.get_queue("q", 0)
    copy = f"{other._name}:{other.pk.get()}"
    world.client.copy(f"{world.queue_key()}:{place}", f"{copy}:{place}")
    world.client.hset(f"{world.jobs}:{pk_of(job)}:hash", "_queue_key", copy)
    assert repair_placement(world, job)[0][0] in ("in several places", "in several sets")
    assert world.places(job) == [f"q/0 {state}"]
    assert not world.client.exists(f"{copy}:{place}")


def test_a_job_in_a_queue_of_a_model_that_the_caller_does_not_know_is_left_alone(world: World) -> None:
    _, pk = transitions.add(world.job_class, "a", Till, "q", "0")
    assert repair_placement(world, world.job(pk)) == []


def lose_home(world: World, job: Any) -> None:
    """Let a job name no queue, while there are two of its priority."""
    world.client.hdel(f"{world.jobs}:{pk_of(job)}:hash", "_queue_key")
    world.queue("another", 0)


@pytest.mark.leaves("I3", "I7", "I8")
@pytest.mark.parametrize(
    "state", ["waiting", "delayed", "running", "held", "success", "error", "canceled", "custom", "deleted"]
)
def test_a_sound_job_is_left_alone(any_world: World, state: str) -> None:
    any_world.queue()
    job = any_world.job_that_is(state)
    with any_world.unchanged():
        assert repair_placement(any_world, job) == []


@pytest.mark.parametrize(
    ("state", "place", "problem"),
    [
        ("waiting", "waiting", "in no list"),
        ("delayed", "delayed", "in no delayed set"),
        ("running", "_running", "no lease"),
    ],
)
def test_a_job_that_lost_its_place_gets_it_back(any_world: World, state: str, place: str, problem: str) -> None:
    job = any_world.job_that_is(state)
    any_world.client.delete(f"{any_world.queue_key()}:{place}")
    before = any_world.contents()
    assert [found[0] for found in repair_placement(any_world, job, repair=False)] == [problem]
    assert any_world.contents() == before
    assert [found[0] for found in repair_placement(any_world, job)] == [problem]
    assert any_world.places(job) == [f"q/0 {state}"]


@pytest.mark.leaves("I5")
def test_a_job_whose_hash_changed_since_it_was_seen_is_left_alone(any_world: World) -> None:
    job = any_world.job_that_is("waiting")
    before = seen(any_world, job)
    any_world.claim()
    any_world.client.delete(f"{any_world.queue_key()}:_running")
    with any_world.unchanged():
        assert repair_placement(any_world, job, seen=before) == []
    repair_placement(any_world, job)


@pytest.mark.leaves("I5")
def test_a_key_of_a_wrong_type_leaves_nothing_half_done(any_world: World) -> None:
    job = any_world.job_that_is("waiting")
    any_world.client.delete(f"{any_world.queue_key()}:waiting")
    any_world.client.set(f"{any_world.queue_key()}:waiting", "x")
    with any_world.unchanged(), pytest.raises(redis.ResponseError, match="WRONGTYPE"):
        repair_placement(any_world, job)


@pytest.mark.leaves("I5")
def test_a_job_without_a_home_stays_lost(any_world: World) -> None:
    job = any_world.job_that_is("waiting")
    any_world.client.delete(f"{any_world.queue_key()}:waiting")
    lose_home(any_world, job)
    with any_world.unchanged():
        assert repair_placement(any_world, job) == [["in no list", "", ""]]


def test_a_fresh_claim_can_be_rescued(any_world: World) -> None:
    job = any_world.job_that_is("running")
    any_world.client.delete(f"{any_world.queue_key()}:_running")
    repair_placement(any_world, job, lease=0)
    rescue = transitions.rescue(any_world.queue_class, [any_world.queue_key()], 3, any_world.request())
    assert [fetched.ident for fetched in rescue.rescued] == [job.ident]


def test_what_is_no_ident_is_set_aside(world: World) -> None:
    key = world.queue_key()
    world.client.zadd(f"{key}:delayed", {"what": 1})
    problems = scripts.repair_placement(world.client, None, "what", [key], repair=True)
    assert problems == [["no ident", f"{key}:delayed", "1"]]
    assert world.places("what") == ["q/0 quarantine"]


@pytest.fixture
def unknown(any_world: World) -> Any:
    """A job that ended, and whose status is none since."""
    job = any_world.job_that_is("error")
    job.status.hset("x")
    return job


@pytest.mark.leaves("I3")
@pytest.mark.parametrize("choice", ["leave", ""])
def test_a_job_of_an_unknown_status_is_left_alone_unless_something_is_chosen(
    any_world: World, unknown: Any, choice: str
) -> None:
    with any_world.unchanged():
        assert repair_placement(any_world, unknown, unknown_status=choice) == [["unknown status", "x", "1"]]


def test_a_job_of_an_unknown_status_is_requeued(any_world: World, unknown: Any) -> None:
    _, other = any_world.add("other")
    assert repair_placement(any_world, unknown, repair=False, unknown_status="requeue") == [
        ["unknown status", "x", "1"]
    ]
    assert unknown.status.hget() == "x"
    repair_placement(any_world, unknown, unknown_status="requeue")
    assert any_world.client.lrange(f"{any_world.queue_key()}:waiting", 0, -1) == [other.ident, unknown.ident]
    assert unknown.hmget("status", "queued", "start", "end") == ["w", "1", None, None]
    stored = any_world.client.hgetall(f"{any_world.jobs}:{pk_of(unknown)}:hash")
    assert (stored["_queue_key"], "queue_key" in stored) == (any_world.queue_key(), False)


@pytest.mark.leaves("I3")
def test_a_job_of_an_unknown_status_is_not_requeued_without_a_home(any_world: World, unknown: Any) -> None:
    lose_home(any_world, unknown)
    with any_world.unchanged():
        assert repair_placement(any_world, unknown, unknown_status="requeue") == [["unknown status", "x", ""]]


def test_a_job_of_an_unknown_status_is_canceled_if_another_one_of_its_identifier_is_queued(
    any_world: World, unknown: Any
) -> None:
    _, other = any_world.add(unknown.identifier.hget())
    assert repair_placement(any_world, unknown, unknown_status="requeue")[0][0] == "second of its identifier"
    assert unknown.hmget("status", "queued") == ["c", None]
    assert any_world.places(other) == ["q/0 waiting"]


def test_a_job_of_an_unknown_status_that_is_to_be_deleted_is_canceled_first(any_world: World, unknown: Any) -> None:
    repair_placement(any_world, unknown, unknown_status="delete")
    assert unknown.status.hget() == "c"
