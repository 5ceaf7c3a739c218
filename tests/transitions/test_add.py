"""add: a new job waits or is delayed, or the queued one of its identifier is found, and moved up."""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime, timedelta
from threading import Thread
from typing import Any

import pytest
import redis
from cases import each
from invariants import Contents
from limpyd.exceptions import UniquenessError
from worlds import (
    EVERYTHING,
    HARD_TEXT,
    IDENTIFIERS,
    LATER,
    TOKEN,
    Bench,
    Moment,
    Order,
    Probe,
    Till,
    World,
    layout,
    pk_of,
    until,
    without_counters,
)

from limpyd_jobs import Job, Queue, transitions
from limpyd_jobs.dates import datetime_to_score
from limpyd_jobs.records import records

After = Callable[[float], Moment]

BEFORE_1970 = until(datetime(1969, 12, 31, 23, 59, 59, 999_999))
IN_THE_PAST = until(datetime(2001, 1, 1))
IDENT = "limpyd_jobs.models.Job:1"


# limpyd fills hash fields with it.
hmset_is_deprecated = pytest.mark.filterwarnings("ignore:.*hmset:DeprecationWarning")


def of_jobs(stored: Contents) -> Contents:
    """What is stored of jobs; a new queue is no loss either."""
    return {key: value for key, value in without_counters(stored).items() if not key.startswith("jobs:queue:")}


class TestANewJob:
    def test_waits_with_every_index_as_it_is_stored_by_version_2(self, world: World, after: After) -> None:
        assert world.add("job:1", "q", 3)[0] == "added"
        assert world.contents() == {
            "jobs:job:max_pk": "1",
            "jobs:job:collection": {"1"},
            "jobs:job:1:hash": {
                "identifier": "job:1",
                "status": "w",
                "priority": "3",
                "added": after(0),
                "_queue_key": "jobs:queue:1",
                "queued": "1",
            },
            "jobs:job:identifier:job:1": {"1"},
            "jobs:job:status:w": {"1"},
            "jobs:job:priority:3": {"1"},
            "jobs:job:queued:1": {"1"},
            "jobs:queue:max_pk": "1",
            "jobs:queue:collection": {"1"},
            "jobs:queue:1:hash": {"name": "q", "priority": "3"},
            "jobs:queue:name:q": {"1"},
            "jobs:queue:priority:3": {"1"},
            "jobs:queue:1:waiting": [IDENT],
        }

    def test_is_delayed_with_every_index_as_it_is_stored_by_version_2(self, world: World, after: After) -> None:
        assert world.add("a", delay=until(LATER))[0] == "added"
        assert world.contents() == {
            "jobs:job:max_pk": "1",
            "jobs:job:collection": {"1"},
            "jobs:job:1:hash": {
                "identifier": "a",
                "status": "d",
                "priority": "0",
                "added": after(0),
                "_queue_key": "jobs:queue:1",
                "delayed_until": str(LATER),
                "queued": "1",
            },
            "jobs:job:identifier:a": {"1"},
            "jobs:job:status:d": {"1"},
            "jobs:job:priority:0": {"1"},
            "jobs:job:queued:1": {"1"},
            "jobs:queue:max_pk": "1",
            "jobs:queue:collection": {"1"},
            "jobs:queue:1:hash": {"name": "q", "priority": "0"},
            "jobs:queue:name:q": {"1"},
            "jobs:queue:priority:0": {"1"},
            "jobs:queue:1:delayed": {IDENT: datetime_to_score(LATER)},
        }

    def test_stands_at_the_end_of_the_list_or_at_its_front(self, any_world: World) -> None:
        for identifier in "ab":
            any_world.add(identifier)
        any_world.add("c", prepend=True)
        assert any_world.waiting() == ["3", "1", "2"]

    @pytest.mark.parametrize("delay", ["+60000000", "+1", "+0", "+-5000000", IN_THE_PAST, BEFORE_1970, ""])
    def test_is_delayed_only_if_its_date_is_to_come(self, any_world: World, after: After, delay: str) -> None:
        job = any_world.add(delay=delay)[1]
        state = any_world.state(job)
        if delay in ("+60000000", "+1"):
            assert state == {
                "status": "d",
                "priority": "0",
                "queued": "1",
                "delayed_until": after(60 if delay == "+60000000" else 0),
            }
            assert any_world.places(job) == ["q/0 delayed"]
        else:
            assert state == {"status": "w", "priority": "0", "queued": "1"}
            assert any_world.places(job) == ["q/0 waiting"]

    def test_prepended_and_delayed_is_delayed(self, world: World) -> None:
        assert world.places(world.add(prepend=True, delay=until(LATER))[1]) == ["q/0 delayed"]

    @pytest.mark.parametrize("priority", [0, -1, 1, -(2**63), 2**63 - 1, 2**53 + 1])
    def test_has_the_queue_of_its_name_and_any_priority(self, any_world: World, priority: int) -> None:
        first, second = (any_world.add(identifier, "q", priority)[1] for identifier in "ab")
        assert any_world.places(first) == any_world.places(second) == [f"q/{priority} waiting"]
        assert any_world.client.scard(f"{any_world.queues}:collection") == 1

    def test_of_each_name_and_priority_has_a_queue_of_its_own(self, any_world: World) -> None:
        places = [("q", 0), ("q", 1), ("p", 0), ("q", -1), ("q:0", 0), ("q", 10)]
        jobs = [any_world.add(str(number), *place)[1] for number, place in enumerate(places)]
        assert [any_world.places(job) for job in jobs] == [[f"{name}/{priority} waiting"] for name, priority in places]

    @each("identifier", IDENTIFIERS.values())
    def test_keeps_any_identifier(self, any_world: World, identifier: str) -> None:
        job = any_world.add(identifier)[1]
        assert any_world.hash(job)["identifier"] == identifier
        assert list(any_world.job_class.collection(identifier=identifier)) == [pk_of(job)]
        assert any_world.add(identifier)[0] == "existing"
        assert any_world.add(identifier + "!")[0] == "added"

    @pytest.mark.parametrize("name", [*(name for name in IDENTIFIERS.values() if name == name.strip()), "w", "1"])
    def test_finds_a_queue_of_any_name(self, any_world: World, name: str) -> None:
        jobs = [any_world.add(identifier, name)[1] for identifier in "ab"]
        assert [any_world.places(job) for job in jobs] == 2 * [[f"{name}/0 waiting"]]

    @pytest.mark.parametrize("case", ["Job", "job"])
    def test_is_found_by_all_its_indexes_through_limpyd(self, redis_client: redis.Redis, case: str) -> None:
        job = World(redis_client, Probe, Bench).add("a", "q", 7, fields={"weight": 2.5, "serial": "s", "slot": "t"})[1]
        filters = [
            {"identifier": "a"},
            {"identifier__startswith": "a"},
            {"status": "w"},
            {"status__gte": "w"},
            {"priority": 7},
            {"priority__gt": 6},
            {"queued": "1"},
            {"weight__lt": 2.6},
            {"serial": "s"},
            {"slot": "t"},
        ]
        assert [list(Probe.collection(**each)) for each in filters] == len(filters) * [[pk_of(job)]]


class TestTheFieldsOfANewJob:
    def test_get_their_defaults(self, redis_client: redis.Redis, after: After) -> None:
        world = World(redis_client, Order, Till)
        job = world.add()[1]
        assert world.hash(job) == {
            "identifier": "a",
            "status": "w",
            "priority": "0",
            "added": after(0),
            "_queue_key": "shop:till:1",
            "queued": "1",
            "colour": "blue",
            "amount": "5",
            "note": HARD_TEXT,
        }
        assert job.label.get() == "none"
        assert Till.get(1).hmget("name", "priority", "floor") == ["q", "0", "0"]
        assert Till.get(1).label.get() == "open"

    @hmset_is_deprecated
    def test_of_any_type_are_stored_as_limpyd_would(self, redis_client: redis.Redis) -> None:
        given = {
            "customer": "eve:1",
            "colour": "",
            "amount": 1.5,
            "note": "b",
            "tries": 2,
            "cancel_on_error": "1",
            "label": "given",
            "lines": ["x", "y", "x"],
            "tags": {"s", "t"},
            "ranks": {"first": 1, "second": 2.5},
            "options": {"one": "1", "two:": ""},
        }
        world = World(redis_client, Order, Till)
        job = world.add(fields=given)[1]
        stored = world.contents()
        hash_fields = ("customer", "colour", "amount", "note", "tries", "cancel_on_error")
        assert {name: stored["shop:order:1:hash"][name] for name in hash_fields} == {
            "customer": "eve:1",
            "colour": "",
            "amount": "1.5",
            "note": "b",
            "tries": "2",
            "cancel_on_error": "1",
        }
        assert stored["shop:order:1:label"] == "given"
        assert stored["shop:order:1:lines"] == ["x", "y", "x"]
        assert stored["shop:order:1:tags"] == {"s", "t"}
        assert stored["shop:order:1:ranks"] == {"first": 1.0, "second": 2.5}
        assert stored["shop:order:1:options"] == {"one": "1", "two:": ""}
        assert [set(Order.collection(**each)) for each in ({"tags": "t"}, {"lines": "y"}, {"customer": "eve:1"})] == [
            {pk_of(job)},
            {pk_of(job)},
            {pk_of(job)},
        ]

    def test_are_not_touched_on_a_job_that_exists(self, redis_client: redis.Redis) -> None:
        world = World(redis_client, Order, Till)
        world.add(fields={"customer": "eve", "tags": {"s"}})
        with world.unchanged():
            assert world.add(fields={"customer": "bob", "tags": {"t"}, "lines": ["x"]})[0] == "existing"

    @pytest.mark.parametrize("field", ["serial", "slot"])
    def test_that_are_unique_stay_so_and_nothing_is_left_of_the_refused_job(
        self, redis_client: redis.Redis, field: str
    ) -> None:
        world = World(redis_client, Probe, Bench)
        world.add("a", fields={field: "s"})
        before = world.contents()
        with pytest.raises(UniquenessError, match=f'"s".*{field}.*1'):
            world.add("b", fields={field: "s", "weight": 3})
        assert without_counters(world.contents()) == without_counters(before)
        assert world.add("b", fields={field: "t"})[0] == "added"

    def test_that_are_unique_may_be_repeated_by_an_add_that_finds_its_job(self, redis_client: redis.Redis) -> None:
        world = World(redis_client, Probe, Bench)
        world.add("a", fields={"serial": "s", "slot": "t"})
        with world.unchanged():
            assert world.add("a", fields={"serial": "s", "slot": "t"})[0] == "existing"

    @hmset_is_deprecated
    def test_that_fail_leave_nothing_behind(self, redis_client: redis.Redis) -> None:
        world = World(redis_client, Order, Till)
        world.queue()
        before = world.contents()
        with pytest.raises(redis.RedisError):
            world.add(fields={"tags": {"s"}, "options": {"k": "v"}, "ranks": {"a": "no score"}})
        assert without_counters(world.contents()) == without_counters(before)


class TestAJobThatIsQueued:
    @pytest.mark.parametrize(
        ("state", "options"),
        [
            ("waiting", {"priority": 0}),
            ("waiting", {"priority": -1}),
            ("waiting", {"priority": 0, "delay": until(LATER)}),
            ("delayed", {"priority": 0}),
            ("running", {"priority": 5}),
            ("running", {"priority": 5, "prepend": True}),
            ("running", {"priority": 5, "delay": until(LATER)}),
            ("running set to delayed", {"priority": 5, "prepend": True}),
            ("held", {"priority": 5, "prepend": True}),
        ],
    )
    @pytest.mark.leaves("I3", "I6", "I7", "I8")
    def test_is_found_and_nothing_changes(self, any_world: World, state: str, options: dict[str, Any]) -> None:
        job = any_world.job_that_is(state)
        any_world.queue("q", options["priority"])
        with any_world.unchanged():
            outcome, found = any_world.add("a", **options)
        assert (outcome, pk_of(found)) == ("existing", pk_of(job))

    @pytest.mark.parametrize("delay", ["", until(LATER)])
    def test_is_followed_by_a_new_one_if_it_was_canceled_while_it_runs(self, any_world: World, delay: str) -> None:
        job = any_world.job_that_is("running set to canceled")
        outcome, new = any_world.add("a", delay=delay)
        assert (outcome, any_world.state(new)["status"]) == ("added", "d")
        assert any_world.places(new) == ["q/0 delayed"]
        assert any_world.add("a") == ("existing", new)
        transitions.finish_canceled(job, any_world.queue(), TOKEN)
        assert any_world.places(new) == ["q/0 delayed" if delay else "q/0 waiting"]
        assert any_world.state(new).get("delayed_until") == (str(LATER) if delay else None)

    @pytest.mark.parametrize("state", ["waiting", "delayed"])
    @pytest.mark.parametrize(("queue", "priority"), [("q", 1), ("p", 1), ("q", 2**53 + 1)])
    def test_moves_to_a_higher_priority(self, any_world: World, state: str, queue: str, priority: int) -> None:
        job = any_world.job_that_is(state)
        added, tries = job.hmget("added", "tries")
        assert any_world.add("a", queue, priority)[0] == "moved"
        assert any_world.places(job) == [f"{queue}/{priority} waiting"]
        assert any_world.state(job) == {"status": "w", "priority": str(priority), "queued": "1"}
        assert job.hmget("added", "tries") == [added, tries]

    @pytest.mark.parametrize("state", ["waiting", "delayed"])
    def test_moves_to_the_front_and_to_any_priority_if_prepended(self, any_world: World, state: str) -> None:
        any_world.add("b", "q", -1)
        job = any_world.job_that_is(state)
        assert any_world.add("a", "q", -1, prepend=True)[0] == "moved"
        assert any_world.places(job) == ["q/-1 waiting"]
        assert any_world.waiting("q", -1) == ["2", "1"]

    def test_moves_to_the_front_of_its_own_list_if_prepended(self, any_world: World) -> None:
        for identifier in "abc":
            any_world.add(identifier)
        assert any_world.add("c", prepend=True)[0] == "moved"
        assert any_world.waiting() == ["3", "1", "2"]

    @pytest.mark.parametrize("state", ["waiting", "delayed"])
    def test_that_moves_is_delayed_if_asked_for(self, any_world: World, state: str) -> None:
        job = any_world.job_that_is(state)
        sooner = LATER - timedelta(days=1)
        assert any_world.add("a", "q", 1, delay=until(sooner))[0] == "moved"
        assert any_world.places(job) == ["q/1 delayed"]
        assert any_world.state(job) == {"status": "d", "priority": "1", "queued": "1", "delayed_until": str(sooner)}

    def test_is_moved_by_no_process_but_the_caller_if_it_asked_so(self, any_world: World) -> None:
        any_world.job_that_is("waiting")
        any_world.queue("q", 1)
        with any_world.unchanged():
            assert any_world.add("a", "q", 1, place=False)[0] == "outranked"
            assert any_world.add("a", "q", 0, place=False)[0] == "existing"

    @pytest.mark.parametrize(
        ("stored", "given", "moves"),
        [
            ("9007199254740992", "9007199254740993", True),
            ("9007199254740993", "9007199254740992", False),
            ("-9007199254740993", "-9007199254740992", True),
            ("-9007199254740992", "-9007199254740993", False),
            ("9223372036854775806", "9223372036854775807", True),
            ("-9223372036854775808", "-9223372036854775807", True),
            ("9", "10", True),
            ("10", "9", False),
            ("-10", "-9", True),
            ("-1", "0", True),
            ("high", "-5", True),
            ("1.5", "1", False),
            ("1.5", "2", True),
        ],
    )
    def test_is_outranked_by_a_number_of_any_size(self, world: World, stored: str, given: str, moves: bool) -> None:
        job = world.add("a", "q", stored)[1]
        assert world.add("a", "q", given)[0] == ("moved" if moves else "existing")
        assert world.places(job) == [f"q/{given if moves else stored} waiting"]

    @pytest.mark.parametrize("state", ["success", "error", "canceled", "custom", "deleted"])
    def test_is_not_one_that_ended_or_was_deleted(self, any_world: World, state: str) -> None:
        job = any_world.job_that_is(state)
        outcome, other = any_world.add("a")
        assert outcome == "added"
        assert pk_of(other) != pk_of(job)

    def test_of_another_class_is_another_job(self, redis_client: redis.Redis) -> None:
        worlds = [World(redis_client, job_class, Till) for job_class in (Job, Order, Probe)]
        assert [world.add("a")[0] for world in worlds] == 3 * ["added"]
        assert redis_client.llen("shop:till:1:waiting") == 3

    def test_is_one_only_though_many_add_it_at_the_same_time(self, any_world: World) -> None:
        outcomes = []

        def add_all() -> None:
            outcomes.extend(any_world.add(str(number), "q", number % 2)[0] for number in range(20))

        threads = [Thread(target=add_all) for _ in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert sorted(outcomes) == 20 * ["added"] + 60 * ["existing"]


class TestHalfStates:
    @pytest.mark.leaves("I2")
    def test_an_index_entry_without_a_hash_is_no_job(self, world: World) -> None:
        for name in ("identifier:a", "status:w", "queued:1", "priority:0"):
            world.client.sadd(f"jobs:job:{name}", "7")
        assert world.add("a")[0] == "added"

    @pytest.mark.leaves("I2")
    def test_a_job_whose_hash_says_that_it_is_not_queued_is_none_that_is(self, world: World) -> None:
        world.job_that_is("success")
        world.client.sadd("jobs:job:queued:1", "1")
        assert world.add("a")[0] == "added"

    def test_an_entry_that_is_twice_in_its_list_goes_wholly(self, world: World) -> None:
        job = world.job_that_is("waiting")
        world.client.rpush(world.waiting_key(), job.ident)
        assert world.add("a", "q", 1)[0] == "moved"
        assert world.places(job) == ["q/1 waiting"]

    def test_a_job_that_stands_in_a_queue_of_another_name_is_taken_from_there(self, world: World) -> None:
        job = world.add("a", "other", 0)[1]
        assert world.add("a", "q", 1)[0] == "moved"
        assert world.places(job) == ["q/1 waiting"]

    @pytest.mark.parametrize("place", ["waiting", "delayed"])
    def test_a_job_that_stands_nowhere_is_put_where_it_is_moved_to(self, world: World, place: str) -> None:
        job = world.job_that_is(place)
        world.client.delete(f"jobs:queue:1:{place}")
        assert world.add("a", "q", 1)[0] == "moved"
        assert world.places(job) == ["q/1 waiting"]

    @pytest.mark.leaves("I1", "I2")
    def test_a_queue_that_was_only_half_made_is_not_used(self, world: World) -> None:
        world.client.set("jobs:queue:max_pk", 1)
        for name in ("collection", "name:q", "priority:0"):
            world.client.sadd(f"jobs:queue:{name}", "1")
        job = world.add("a")[1]
        assert world.places(job) == ["q/0 waiting"]
        assert [row[1:4] for row in records.list_queues(Queue, ["q"])] == [("q", "0", 1)]

    @pytest.mark.leaves("I9")
    def test_of_several_queues_of_a_name_and_priority_the_oldest_is_used(self, world: World) -> None:
        for _ in range(12):
            Queue(name="q", priority=0)
        for identifier in "ab":
            world.add(identifier)
        assert world.client.llen("jobs:queue:1:waiting") == 2


class TestANewPk:
    @pytest.mark.parametrize("kept", [["1", "2", "3"], ["3"], ["2", "3"], ["1", "9", "10"]])
    def test_overwrites_no_job_if_the_counter_was_lost(self, any_world: World, kept: list[str]) -> None:
        for number in range(1, 11):
            job = any_world.job_class(identifier=f"old {number}")
            if str(number) not in kept:
                job.delete()
        any_world.client.delete(f"{any_world.jobs}:max_pk")
        new = [pk_of(any_world.add(f"new {number}")[1]) for number in range(4)]
        assert len({*new, *kept}) == 4 + len(kept)
        assert [any_world.job_class(pk).identifier.hget() for pk in kept] == [f"old {pk}" for pk in kept]

    def test_overwrites_no_queue_if_the_counter_was_lost(self, any_world: World) -> None:
        for priority in range(3):
            any_world.add(str(priority), "q", priority)
        any_world.client.delete(f"{any_world.queues}:max_pk")
        job = any_world.add("a", "q", 9)[1]
        assert any_world.places(job) == ["q/9 waiting"]
        assert [row[0] for row in records.list_queues(any_world.queue_class, ["q"])].count("4") == 1

    @pytest.mark.leaves("I1", "I2", "I9", "I10")
    def test_overwrites_nothing_that_stands_in_its_way(self, any_world: World) -> None:
        """Be it of a wrong type, or a record that is not in its collection."""
        for name in (any_world.jobs, any_world.queues):
            any_world.client.set(f"{name}:1:hash", "of a wrong type")
            any_world.client.hset(f"{name}:2:hash", "some", "thing")
        before = any_world.contents()
        job = any_world.add()[1]
        assert pk_of(job) == "3"
        assert any_world.places(job) == ["q/0 waiting"]
        assert before.items() <= any_world.contents().items()

    @pytest.mark.parametrize("counter", ["-5", "999999999999999999", "9223372036854775807"])
    def test_has_at_most_18_digits_whatever_the_counter_says(self, world: World, counter: str) -> None:
        world.add("a")
        world.client.set("jobs:job:max_pk", counter)
        assert [pk_of(world.add(identifier)[1]) for identifier in "bc"] == ["2", "3"]

    def test_overwrites_no_job_if_the_counter_stands_behind(self, world: World) -> None:
        for identifier in "abc":
            world.add(identifier)
        world.client.set("jobs:job:max_pk", 1)
        assert pk_of(world.add("d")[1]) == "4"


@pytest.mark.parametrize(
    ("has_queue", "key"),
    [
        (True, "jobs:job:max_pk"),
        (True, "jobs:job:collection"),
        (True, "jobs:job:identifier:a"),
        (True, "jobs:job:status:w"),
        (True, "jobs:job:priority:0"),
        (True, "jobs:job:queued:1"),
        (True, "jobs:queue:name:q"),
        (True, "jobs:queue:priority:0"),
        (True, "jobs:queue:1:waiting"),
        (False, "jobs:job:status:w"),
        (False, "jobs:queue:max_pk"),
        (False, "jobs:queue:collection"),
        (False, "jobs:queue:name:q"),
        (False, "jobs:queue:priority:0"),
        (False, "jobs:queue:1:waiting"),
    ],
)
@pytest.mark.leaves(*EVERYTHING)
def test_a_key_of_a_wrong_type_leaves_no_half_job(world: World, has_queue: bool, key: str) -> None:
    if has_queue:
        world.queue()
    world.client.delete(key)
    world.client.hset(key, "of", "a wrong type")
    before = of_jobs(world.contents())
    with pytest.raises(redis.ResponseError):
        world.add("a")
    assert of_jobs(world.contents()) == before


def test_a_script_is_told_of_a_model_by_json_without_a_space() -> None:
    assert ": " not in layout(Probe)


def test_the_models_of_a_job_and_of_its_queue_must_be_on_one_database(world: World, redis_server: Any) -> None:
    from limpyd_jobs.exceptions import ConfigurationException
    from limpyd_jobs.redis.database import JobsDatabase

    class Elsewhere(Queue):
        namespace = "elsewhere"
        database = JobsDatabase(unix_socket_path=redis_server.socket, db=1)

    with world.unchanged(), pytest.raises(ConfigurationException, match=r"Job.*Elsewhere"):
        transitions.add(Job, "a", Elsewhere, "q", "0")
