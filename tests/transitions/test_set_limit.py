"""set_limit: other numbers than the class says hold from the next claim on."""

from __future__ import annotations

from math import inf

import pytest
import redis
from limpyd import fields
from test_parking import Ask, Both, Call, Tenant, add, begin, of
from worlds import World, pk_of

from limpyd_jobs import ConfigurationException, Limit
from limpyd_jobs.query import audit_entries, limits_of, rest_limit, resume_limit, set_limit


@pytest.fixture
def world(redis_client: redis.Redis) -> World:
    return World(redis_client, Call)


def test_a_raised_limit_lets_as_many_begin_at_once(world: World) -> None:
    add(world, *"aaaaa")
    assert [begin(world, token) for token in "12"] == ["1", None]
    assert set_limit(Call, "account", "a", concurrency=3) == {"concurrency": "3"}
    assert [begin(world, token) for token in "234"] == ["2", "3", None]
    (entry,) = audit_entries()
    assert (entry.verb, entry.filter.endswith("Call account=a set concurrency=3")) == ("limit set", True)


def test_all_lanes_of_a_queue_look_again_in_steps_that_are_short(world: World) -> None:
    set_limit(Call, "account", concurrency=0)
    number = 450
    for i in range(number):
        world.add(f"{i}", fields={"account": f"a{i}"})
    assert begin(world) is None
    world.client.config_resetstat()
    set_limit(Call, "account", concurrency=1)
    assert world.client.info("commandstats")["cmdstat_evalsha"]["calls"] > number // 200
    assert world.client.zcard(f"{world.queue_key()}:_turns") == number
    assert world.client.zcard(f"{world.queue_key()}:_later") == 0


def test_a_lowered_limit_lets_none_begin_until_there_is_room(world: World) -> None:
    jobs = add(world, *"aaaa")
    set_limit(Call, "account", concurrency=3)
    assert [begin(world, token) for token in "123"] == ["1", "2", "3"]
    set_limit(Call, "account", "a", concurrency=1)
    for token, job in zip("123", jobs, strict=False):
        assert begin(world, "none") is None
        world.succeed(job, token)
    assert begin(world, "4") == "4"
    set_limit(Call, "account", "a", concurrency=None)
    assert limits_of(Call)[0].allowed == 3


def test_a_key_that_is_paused_waits_until_it_is_resumed(world: World) -> None:
    add(world, "a", "b")
    rest_limit(Call, "account", "a")
    assert [begin(world, token) for token in "12"] == ["2", None]
    (paused, other) = limits_of(Call)
    assert (paused.label, paused.parked, paused.rests_for) == ("account=a", 1, inf)
    assert (other.label, other.taken, other.allowed) == ("account=b", 1, 1)
    resume_limit(Call, "account", "a")
    assert begin(world, "3") == "1"
    rest_limit(Call, "account", seconds=1000)
    add(world, "c")
    assert begin(world, "none") is None
    resume_limit(Call, "account")
    assert begin(world, "4") == "3"


def test_zero_is_for_none(world: World) -> None:
    add(world, "a")
    set_limit(Call, "account", concurrency=0)
    assert begin(world) is None
    set_limit(Call, "account", concurrency=None)
    assert begin(world) == "1"


def test_a_rate_may_be_set(world: World) -> None:
    asking = of(world, Ask)
    for number in range(3):
        asking.add(f"{number}", fields={"model": "m", "tokens": "10"})
    assert [begin(asking, token) for token in "12"] == ["1", None]
    set_limit(Ask, "model", rate="1000000/s", burst=100)
    assert [begin(asking, token) for token in "23"] == ["2", "3"]
    of_all, of_key = sorted(limits_of(Ask), key=lambda each: each.label)
    assert of_all.set == {"rate": "1e+06/s", "burst": "100"}
    assert (of_key.label, of_key.free_in) == ("model=m", 0)


def test_a_value_with_a_larger_share_has_more_turns(world: World) -> None:
    tenants = of(world, Tenant)
    add(tenants, *["a"] * 5, *["b"] * 5)
    set_limit(Tenant, "tenant", "b", share=3)
    begun = [tenants.job(str(begin(tenants, str(number)))).tenant.hget() for number in range(6)]
    assert begun.count("b") >= 4


def test_what_is_no_number_or_no_limit_is_refused(world: World) -> None:
    for wrong in ({"concurrency": -1}, {"concurrency": "x"}, {"rate": "ten/s"}, {"burst": 0}, {"share": "much"}):
        with world.unchanged(), pytest.raises(ConfigurationException):
            set_limit(Call, "account", **wrong)
    with pytest.raises(ConfigurationException, match="Call has no limit named 'acount': its limits are account"):
        set_limit(Call, "acount", concurrency=1)


def test_a_shared_limit_is_one_of_the_queues(world: World) -> None:
    pairs = of(world, Both)
    pairs.add("1", fields={"account": "a", "region": "x"})
    begin(pairs)
    found = {each.label: (each.owner, each.taken, each.holders) for each in limits_of(Both)}
    ident = pairs.job("1").ident
    assert found == {
        "account=a": (pairs.jobs, 1, [ident]),
        "region=x": (pairs.queues, 1, [ident]),
    }
    assert pk_of(pairs.job("1")) == "1"


def test_the_audit_hides_the_values_of_secret_fields(world: World) -> None:
    class Api(Call):
        api_key, pin = fields.InstanceHashField(), fields.InstanceHashField()
        masked_fields = ("pin",)
        limits = [Limit("api_key", concurrency=1), Limit("pin", concurrency=1)]

    for name in ("api_key", "pin"):
        set_limit(Api, name, "hush", concurrency=2)
    assert [entry.filter.partition(" ")[2] for entry in audit_entries()] == [
        "pin=(masked) set concurrency=2",
        "api_key=(masked) set concurrency=2",
    ]
