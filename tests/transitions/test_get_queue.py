"""get_queue: the queue of a name and a priority, made if there is none."""

from __future__ import annotations

from threading import Thread
from typing import Any

import pytest
import redis
from cases import each
from limpyd.exceptions import UniquenessError
from worlds import EVERYTHING, QUEUE_NAMES, Bench, Job, Till, World, without_counters

from limpyd_jobs import Queue
from limpyd_jobs.records import records


def get_queue(world: World, name: str = "q", priority: str = "0", **fields: Any) -> str:
    return records.get_queue(world.queue_class, name, priority, fields)


def test_the_whole_effect(world: World) -> None:
    assert get_queue(world, "q:1", "-3") == "1"
    assert world.contents() == {
        "jobs:queue:max_pk": "1",
        "jobs:queue:collection": {"1"},
        "jobs:queue:1:hash": {"name": "q:1", "priority": "-3"},
        "jobs:queue:name:q:1": {"1"},
        "jobs:queue:priority:-3": {"1"},
    }


def test_it_is_made_once(any_world: World) -> None:
    pk = get_queue(any_world)
    with any_world.unchanged():
        assert get_queue(any_world) == pk


def test_it_is_made_once_though_many_ask_at_the_same_time(any_world: World) -> None:
    found = []

    def ask() -> None:
        found.extend((priority, get_queue(any_world, "q", str(priority))) for priority in range(20))

    threads = [Thread(target=ask) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(set(found)) == 20


@each("name", QUEUE_NAMES.values())
def test_any_name_is_kept(any_world: World, name: str) -> None:
    pk = get_queue(any_world, name)
    assert any_world.client.hget(f"{any_world.queues}:{pk}:hash", "name") == name
    assert list(any_world.queue_class.collection(name=name)) == [pk]
    assert get_queue(any_world, name) == pk
    assert get_queue(any_world, f"{name}!") != pk


def test_the_same_name_or_priority_alone_is_another_queue(any_world: World) -> None:
    pairs = [("q", "0"), ("q", "1"), ("p", "0"), ("q", "-0"), ("q:0", "0")]
    assert len({get_queue(any_world, *pair) for pair in pairs}) == len(pairs)


class TestTheFieldsOfANewQueue:
    def test_get_their_defaults(self, redis_client: redis.Redis) -> None:
        pk = get_queue(World(redis_client, Job, Till))
        assert redis_client.hgetall(f"shop:till:{pk}:hash") == {"name": "q", "priority": "0", "floor": "0"}
        assert Till.get(pk).label.get() == "open"

    def test_are_those_given_of_any_type(self, redis_client: redis.Redis) -> None:
        pk = get_queue(World(redis_client, Job, Till), floor=7, label="closed", notes=["x", "y"])
        assert redis_client.hgetall(f"shop:till:{pk}:hash") == {"name": "q", "priority": "0", "floor": "7"}
        assert (Till.get(pk).label.get(), Till.get(pk).notes.lmembers()) == ("closed", ["x", "y"])
        assert list(Till.collection(floor=7)) == [pk]

    def test_with_indexes_of_all_kinds_are_found_by_them(self, redis_client: redis.Redis) -> None:
        pk = get_queue(World(redis_client, Job, Bench), "q", "5", since="2026-11-21 09:44:00", room="cellar")
        filters: list[dict[str, Any]] = [
            {"name__startswith": "q"},
            {"priority__gt": 4},
            {"since__date": "2026-11-21"},
            {"room": "cellar"},
        ]
        assert [list(Bench.collection(**each)) for each in filters] == 4 * [[pk]]

    def test_are_not_touched_on_a_queue_that_exists(self, redis_client: redis.Redis) -> None:
        world = World(redis_client, Job, Till)
        pk = get_queue(world, floor=7)
        with world.unchanged():
            assert get_queue(world, floor=8, label="closed", notes=["x"]) == pk

    def test_that_are_unique_stay_so_and_nothing_is_left_of_the_refused_queue(self, redis_client: redis.Redis) -> None:
        world = World(redis_client, Job, Bench)
        get_queue(world, room="cellar")
        before = world.contents()
        with pytest.raises(UniquenessError, match=r'"cellar".*room'):
            get_queue(world, "other", room="cellar")
        assert without_counters(world.contents()) == without_counters(before)

    def test_that_fail_leave_nothing_behind(self, redis_client: redis.Redis) -> None:
        world = World(redis_client, Job, Till)
        redis_client.set("shop:till:1:notes", "of a wrong type")
        before = world.contents()
        with pytest.raises(redis.ResponseError):
            get_queue(world, label="closed", notes=["x"])
        stored = without_counters(world.contents())
        stored.pop("shop:till:1:notes", None)
        before.pop("shop:till:1:notes")
        assert stored == before
        redis_client.delete("shop:till:1:notes")


class TestHalfStates:
    @pytest.mark.leaves("I9")
    def test_of_several_queues_of_a_name_and_priority_the_oldest_is_taken(self, any_world: World) -> None:
        for _ in range(11):
            any_world.queue_class(name="q", priority=0)
        assert get_queue(any_world) == "1"

    @pytest.mark.leaves("I1", "I2")
    def test_one_that_was_only_half_made_is_not_taken(self, world: World) -> None:
        world.client.set("jobs:queue:max_pk", 1)
        for name in ("collection", "name:q", "priority:0"):
            world.client.sadd(f"jobs:queue:{name}", "1")
        pk = get_queue(world)
        assert world.client.hgetall(f"jobs:queue:{pk}:hash") == {"name": "q", "priority": "0"}

    def test_one_that_was_deleted_is_made_again(self, any_world: World) -> None:
        any_world.queue().delete()
        assert get_queue(any_world) == "2"

    @pytest.mark.leaves("I10")
    def test_a_lost_counter_overwrites_no_queue(self, any_world: World) -> None:
        for priority in range(3):
            get_queue(any_world, "q", str(priority))
        any_world.client.delete(f"{any_world.queues}:max_pk")
        assert get_queue(any_world, "new") == "4"

    @pytest.mark.parametrize(
        "key",
        [
            "jobs:queue:max_pk",
            "jobs:queue:collection",
            "jobs:queue:name:q",
            "jobs:queue:priority:0",
        ],
    )
    @pytest.mark.leaves(*EVERYTHING)
    def test_a_key_of_a_wrong_type_leaves_no_half_queue(self, world: World, key: str) -> None:
        world.client.hset(key, "of", "a wrong type")
        before = world.contents()
        with pytest.raises(redis.ResponseError):
            get_queue(world)
        assert without_counters(world.contents()) == without_counters(before)


def test_queues_of_two_models_are_two(redis_client: redis.Redis) -> None:
    for queue_class in (Queue, Till, Bench):
        assert get_queue(World(redis_client, Job, queue_class)) == "1"
    assert redis_client.exists("jobs:queue:1:hash", "shop:till:1:hash", "lab:bench:1:hash") == 3
