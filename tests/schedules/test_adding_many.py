"""`Schedule.add_many`, the owner of schedules, and fields of jobs with the names of arguments."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
import redis
from invariants import violations
from limpyd import fields
from limpyd.exceptions import UniquenessError
from redis.connection import AbstractConnection
from scheduled import Report, make_due

from limpyd_jobs import Argument, Job, Queue, Schedule, job
from limpyd_jobs.query import schedules


class Dated(Job):
    """Its fields have names of arguments of `Schedule.add`."""

    namespace = "scheduled"
    queue_name = "dated"
    date = Argument(str)
    name = fields.InstanceHashField()
    interval = fields.InstanceHashField()
    owner = fields.InstanceHashField()


@job(queue="dated")
def remind(date: str, name: str) -> None:
    pass


@pytest.fixture(autouse=True)
def _everything_is_sound(redis_client: redis.Redis) -> Any:
    yield
    assert violations(redis_client, Schedule, Report, Dated, Queue) == []


def daily(name: str, **options: Any) -> dict[str, Any]:
    return {"name": name, "job_class": Report, "cron": "@daily", **options}


def names(**filters: Any) -> list[str]:
    return sorted(each.name.hget() for each in Schedule.collection(**filters).instances())


def test_many_are_made_in_their_order_as_by_add(redis_client: redis.Redis) -> None:
    made = Schedule.add_many(
        [
            daily("a", to="ann", priority=3),
            {"name": "b", "job_class": "scheduled.Report", "interval": 60, "jitter": 5, "queue_name": "others"},
            daily("c", paused=True),
        ],
        owner="shop",
    )
    assert [each.name.hget() for each in made] == ["a", "b", "c"]
    assert made[0].hmget("job_fields", "priority", "owner") == ['{"to": "ann"}', "3", "shop"]
    assert made[1].hmget("queue_name", "jitter", "identifier") == ["others", "5", "{name}"]
    assert made[2].hmget("paused", "next_run") == ["1", None]
    assert sorted(queue.name.hget() for queue in Queue.collection().instances()) == ["others", "reports", "reports"]
    single = Schedule.add("d", Report, cron="@daily", to="ann", priority=3, owner="shop")
    assert {**single.hgetall(), "name": "a"} == made[0].hgetall()


def test_a_hundred_need_the_round_trips_of_a_few(monkeypatch: pytest.MonkeyPatch, redis_client: redis.Redis) -> None:
    sent = 0
    send = AbstractConnection.send_packed_command

    def counted(*args: Any, **options: Any) -> None:
        nonlocal sent
        sent += 1
        send(*args, **options)

    monkeypatch.setattr(AbstractConnection, "send_packed_command", counted)
    numbers = []
    for kind in ("few", "more"):
        before = sent
        Schedule.add_many([daily(f"{kind} {number}") for number in range(3 if kind == "few" else 100)])
        numbers.append(sent - before)
    before = sent
    Schedule.add_many([daily(f"more {number}", to="ann") for number in range(100)], replace=True)
    assert max(numbers[1], sent - before) < 2 * numbers[0]


@pytest.mark.parametrize(
    ("wrong", "error", "why"),
    [
        (daily("b", cron="61 * * * *"), ValueError, "Schedule 2 of the list, 'b': Invalid cron"),
        (daily("b", unknown=1), AttributeError, "Schedule 2 of the list, 'b': .*unknown"),
        (daily("b", job_class="nothing.Here"), ImportError, "Schedule 2 of the list, 'b'"),
        (daily("b", owner="me"), TypeError, "Schedule 2 of the list, 'b': owner is an argument of add_many"),
        (daily("a"), ValueError, "Schedule 2 of the list, 'a': this name is given twice"),
        (daily("old"), UniquenessError, "Schedule 2 of the list, 'old': There is a schedule named 'old' already"),
        ({"name": "b"}, TypeError, "Schedule 2 of the list, 'b': it needs a job_class"),
        ("b", TypeError, "Schedule 2 of the list: it must be a mapping"),
    ],
)
def test_one_that_cannot_be_is_named_and_none_is_made(
    wrong: Any, error: type[Exception], why: str, redis_client: redis.Redis
) -> None:
    Schedule.add("old", Report, cron="@daily")
    with pytest.raises(error, match=why):
        Schedule.add_many([daily("a"), wrong, daily("c")])
    assert names() == ["old"]


def test_replacing_needs_a_trigger_as_adding_does(redis_client: redis.Redis) -> None:
    Schedule.add("a", Report, cron="@daily")
    with pytest.raises(ValueError, match="'a': A schedule needs exactly one of"):
        Schedule.add_many([{"name": "a", "job_class": Report}], replace=True)


def test_a_deployment_replaces_and_removes_what_it_owns(redis_client: redis.Redis) -> None:
    Schedule.add("of nobody", Report, cron="@daily")
    Schedule.add_many([daily("of others")], owner="billing")
    Schedule.add_many([daily("a"), daily("b", priority=5), daily("c")], owner="shop")
    kept, changed = Schedule.get_by_name("a"), Schedule.get_by_name("b")
    make_due(kept, hours=30)
    changed.pause()
    due = redis_client.zscore("jobs:schedule:due", kept.pk.get())

    Schedule.add_many([daily("a"), daily("b", cron="@hourly"), daily("d")], owner="shop", replace=True, prune=True)
    assert names(owner="shop") == ["a", "b", "d"]
    assert names() == ["a", "b", "d", "of nobody", "of others"]
    assert redis_client.zscore("jobs:schedule:due", kept.pk.get()) == due
    assert changed.hmget("trigger", "priority", "paused") == ['{"cron": "@hourly"}', "0", "1"]

    Schedule.add_many([], owner="shop", prune=True)
    assert names() == ["of nobody", "of others"]


def test_what_another_owner_declares_meanwhile_is_not_removed(
    redis_client: redis.Redis, monkeypatch: pytest.MonkeyPatch
) -> None:
    Schedule.add_many([daily("moves"), daily("goes"), daily("is deleted")], owner="shop")
    prune = Schedule._prune

    def after_the_others(pks: Any, owner: str) -> None:
        Schedule.add_many([daily("moves")], owner="billing", replace=True)
        Schedule.get_by_name("is deleted").delete()
        prune(pks, owner)

    monkeypatch.setattr(Schedule, "_prune", after_the_others)
    Schedule.add_many([], owner="shop", prune=True)
    assert names() == names(owner="billing") == ["moves"]
    assert redis_client.zcard("jobs:schedule:due") == 1


def test_without_pruning_none_is_removed_and_pruning_needs_an_owner(redis_client: redis.Redis) -> None:
    Schedule.add_many([daily("a")], owner="shop")
    Schedule.add_many([daily("b")], owner="shop", replace=True)
    with pytest.raises(ValueError, match="needs an owner"):
        Schedule.add_many([], prune=True)
    with pytest.raises(ValueError, match="owner of a schedule must not be empty"):
        Schedule.add_many([], owner="", prune=True)
    assert names() == ["a", "b"]


def test_an_owner_may_change_and_the_query_knows_it(redis_client: redis.Redis) -> None:
    schedule = Schedule.add("a", Report, cron="@daily", owner="shop")
    Schedule.add("b", Report, cron="@daily")
    assert [each.owner for each in schedules().found] == ["shop", None]
    schedule.edit(owner="mill", jitter=60)
    [found] = schedules(owner="mill").found
    assert (found.name, found.owner, found.jitter) == ("a", "mill", 60)
    Schedule.add("a", Report, cron="@daily", replace=True)
    assert schedule.hmget("owner", "jitter") == [None, None]


def test_several_processes_may_declare_the_same_at_once(
    monkeypatch: pytest.MonkeyPatch, redis_client: redis.Redis
) -> None:
    """Another one makes one, changes one and deletes one, between what is read and what is written."""
    Schedule.add_many([daily("changed"), daily("deleted")])
    write = Schedule._write_all

    def late(planned: Any, replace: bool) -> Any:
        Schedule.add("made", Report, cron="@hourly")
        Schedule.get_by_name("changed").edit(cron="@hourly")
        Schedule.get_by_name("deleted").delete()
        return write(planned, replace)

    monkeypatch.setattr(Schedule, "_write_all", late)
    Schedule.add_many([daily("made"), daily("changed"), daily("deleted")], replace=True)
    assert [each.trigger.hget() for each in Schedule.collection().instances()] == ['{"cron": "@daily"}'] * 3


def test_many_can_be_awaited(redis_client: redis.Redis) -> None:
    [schedule] = asyncio.run(Schedule.aadd_many([daily("a")], owner="shop"))
    assert schedule.owner.hget() == "shop"


@pytest.mark.parametrize("way", ["add", "add_many", "declare"])
def test_a_field_of_the_job_may_have_the_name_of_an_argument(way: str, redis_client: redis.Redis) -> None:
    given = {"date": "today", "name": "ann", "interval": "5", "owner": "eve"}
    if way == "add":
        Schedule.add("a", Dated, cron="@daily", fields=given)
    elif way == "add_many":
        Schedule.add_many([{"name": "a", "job_class": Dated, "cron": "@daily", "fields": given}])
    else:
        Schedule.declare("a", Dated, {"cron": "@daily", "fields": given})
    added = Schedule.get_by_name("a").run_now()
    assert isinstance(added, Dated)
    assert (added.arguments.date, *added.hmget("name", "interval", "owner")) == ("today", "ann", "5", "eve")


def test_so_may_a_parameter_of_a_function(redis_client: redis.Redis) -> None:
    added: Any = Schedule.add("a", remind, cron="@daily", fields={"date": "today", "name": "ann"}).run_now()
    assert (added.arguments.date, added.arguments.name) == ("today", "ann")
