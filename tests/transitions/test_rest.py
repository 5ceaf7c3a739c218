"""rest: no job of a key begins for a while, and the one that says so goes back to its place."""

from __future__ import annotations

import pytest
import redis
from test_parking import Ask, Call, add, begin, of
from worlds import TOKEN, World, pk_of

from limpyd_jobs import transitions
from limpyd_jobs.query import limits_of, rest_limit, resume_limit


@pytest.fixture
def world(redis_client: redis.Redis) -> World:
    return World(redis_client, Call)


def test_no_job_of_the_key_begins_until_the_rest_is_over(world: World) -> None:
    job, other, of_another_key = add(world, "a", "a", "b")
    begin(world)
    assert transitions.rest(job, TOKEN, "account", 1000) == "done"
    transitions.release(Call, job.ident, TOKEN, world.queue_key())
    assert [begin(world, token) for token in "12"] == [pk_of(of_another_key), None]
    world.client.hset(f"{world.queues}:_limits", f"{world.jobs}:_limit:account:a", "rest=1")
    world.client.zadd(f"{world.queue_key()}:_later", {f"{world.jobs}:_limit:account:a": 1})
    assert begin(world, "3") == pk_of(job)
    assert world.hash(job)["tries"] == "1"
    assert begin(world, "none") is None
    assert pk_of(other) == "2"


def test_a_pause_of_its_key_or_of_all_keys_holds_beside_it(world: World) -> None:
    (job,) = add(world, "a")
    begin(world)
    rest_limit(Call, "account", "a")
    assert transitions.rest(job, TOKEN, "account", 1) == "done"
    assert [key.state for key in limits_of(Call) if key.value] == ["paused"]
    resume_limit(Call, "account", "a")
    rest_limit(Call, "account")
    assert transitions.rest(job, TOKEN, "account", 0) == "done"
    transitions.release(Call, job.ident, TOKEN, world.queue_key())
    assert [key.state for key in limits_of(Call)] == ["paused", "paused"]
    assert begin(world, "none") is None


def test_those_that_are_over_are_forgotten(world: World) -> None:
    set_words = f"{world.queues}:_limits"
    world.client.hset(set_words, mapping={f"{world.jobs}:_limit:account:{n}": "rest=1" for n in range(20)})
    world.client.hset(set_words, f"{world.jobs}:_limit:account:set", "concurrency=1 rest=1")
    elder = f"9 0 1 0 queue\n{world.jobs}:_limit:account:rest=1"
    world.client.hset(set_words, "\nelder", elder)  # a key of that name is no rest
    (job,) = add(world, "a")
    begin(world)
    for _ in range(200):
        transitions.rest(job, TOKEN, "account", 10)
        if sum(text.endswith("rest=1") for text in world.client.hvals(set_words)) == 1:
            break
    assert world.client.hget(set_words, "\nelder") == elder
    assert {key.value: dict(key.set) for key in limits_of(Call)} == {"a": {}, "set": {"concurrency": "1"}}


def test_what_it_used_of_the_rate_is_given_back(world: World) -> None:
    asking = of(world, Ask)
    job = asking.add("a", fields={"model": "m", "tokens": "5"})[1]
    begin(asking)
    assert transitions.rest(job, TOKEN, "model", 1000) == "done"
    assert not world.client.exists(f"{asking.jobs}:_limit:model:m:rate")


def test_only_the_holder_of_the_claim_may(world: World) -> None:
    (job,) = add(world, "a")
    begin(world)
    with world.unchanged():
        assert transitions.rest(job, "other", "account", 10) == "refused"
        assert transitions.rest(job, TOKEN, "another", 10) == "no limit"
    copy = world.job(pk_of(job))
    world.succeed(job)
    copy.delete()
    assert transitions.rest(world.job("1"), TOKEN, "account", 10) == "gone"
