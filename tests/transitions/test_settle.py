"""settle: what a job used of a rate is corrected once that is known."""

from __future__ import annotations

import pytest
import redis
from test_parking import Ask, begin, of
from worlds import TOKEN, World, pk_of

from limpyd_jobs import transitions


@pytest.fixture
def world(redis_client: redis.Redis) -> World:
    return of(World(redis_client), Ask)


def ahead(world: World) -> float:
    """Up to how many units of the rate of one in an hour are used."""
    until = int((world.client.get(f"{world.jobs}:_limit:model:m:rate") or "0").split()[0]) / 1e6
    return round(max(until - world.client.time()[0], 0) / 3600, 1)


def ask(world: World, tokens: str = "5", token: str = TOKEN) -> str | None:
    world.add(f"{tokens} {token}", fields={"model": "m", "tokens": tokens})
    return begin(world, token)


def test_less_is_given_back_and_more_is_a_debt_whatever_was_said_before(world: World) -> None:
    job = world.job(str(ask(world)))
    assert ahead(world) == 5.0
    for amount, expected in ((2, 2.0), (2, 2.0), (40, 40.0), (0, 0.0), (7.5, 7.5)):
        assert transitions.settle(job, TOKEN, "model", amount) == "done"
        assert ahead(world) == expected


def test_a_debt_is_no_longer_than_a_hundred_years(world: World) -> None:
    job = world.job(str(ask(world)))
    for amount in (1e300, 10**30):
        assert transitions.settle(job, TOKEN, "model", amount) == "done"
        assert ahead(world) == pytest.approx(100 * 365.25 * 24, rel=0.01)
        transitions.settle(job, TOKEN, "model", 0)
        assert ahead(world) == 0


def test_what_is_given_back_lets_the_next_one_begin(world: World) -> None:
    job = world.job(str(ask(world, "30")))
    assert ask(world, "1", "next") is None
    transitions.settle(job, TOKEN, "model", 1)
    assert begin(world, "next") == "2"


def test_only_the_holder_of_the_claim_may(world: World) -> None:
    job = world.job(str(ask(world)))
    with world.unchanged():
        assert transitions.settle(job, "other", "model", 1) == "refused"
        assert transitions.settle(job, TOKEN, "another", 1) == "no rate"
    copy = world.job(pk_of(job))
    world.succeed(job)
    assert transitions.settle(copy, TOKEN, "model", 1) == "refused"
    copy.delete()
    assert transitions.settle(world.job("1"), TOKEN, "model", 1) == "gone"


def test_the_next_try_uses_the_rate_anew(world: World) -> None:
    job = world.job(str(ask(world)))
    transitions.settle(job, TOKEN, "model", 1)
    world.fail(job, times=3, priority="0")
    assert begin(world, "again") == pk_of(job)
    assert ahead(world) == 6.0
