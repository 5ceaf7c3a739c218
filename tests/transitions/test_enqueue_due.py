"""enqueue_due: the job of a schedule that is due is added once, and its next time is set in the same step."""

from __future__ import annotations

from datetime import datetime
from threading import Barrier, Thread
from typing import Any

import pytest
import redis
from invariants import violations
from limpyd.exceptions import UniquenessError
from worlds import World, without_counters

from limpyd_jobs import Schedule, transitions
from limpyd_jobs.records import records

DUE, NEXT, LATER = "2020-01-01 00:00:00", "2020-01-02 00:00:00", "2020-01-03 00:00:00"
SEEN = [DUE, '{"cron": "@daily"}', "UTC"]
KEY = "jobs:schedule:due"


def epoch(text: str) -> str:
    return str(int((datetime.fromisoformat(text) - datetime(1970, 1, 1)).total_seconds()))


def schedule(name: str = "nightly", **fields: str) -> str:
    values = {"name": name, "next_run": DUE, "trigger": SEEN[1], "timezone": "UTC", **fields}
    return records.set_schedule(Schedule, "", epoch(DUE), values)


def enqueue_due(world: World, pk: str = "1", run: str = DUE, following: str = NEXT, **options: Any) -> tuple[str, str]:
    occurrence = {
        "seen": options.get("seen", SEEN),
        "run": run,
        "following": following,
        "score": epoch(following) if following else "",
    }
    return transitions.enqueue_due(
        *(Schedule, pk, occurrence, world.job_class, options.get("identifier", "nightly"), world.queue_class, "q", "0"),
        options.get("fields", {}),
    )


@pytest.fixture(autouse=True)
def _the_schedules_are_sound(redis_client: redis.Redis) -> Any:
    yield
    assert violations(redis_client, Schedule) == []


def stored(pk: str = "1") -> tuple[str | None, str | None]:
    next_run, last_run = Schedule.get(pk).hmget("next_run", "last_run")
    return next_run, last_run


def test_the_job_is_added_and_the_next_time_is_set(any_world: World) -> None:
    schedule()
    outcome, pk = enqueue_due(any_world)
    assert outcome == "added"
    assert any_world.places(any_world.job(pk)) == ["q/0 waiting"]
    assert stored() == (NEXT, DUE)
    assert any_world.client.zrange(KEY, 0, -1, withscores=True) == [("1", float(epoch(NEXT)))]


def test_it_is_as_if_the_job_was_added_by_hand(world: World) -> None:
    schedule()
    enqueue_due(world)
    by_schedule = world.hash(world.job("1"))
    is_custom = world.hash(world.add("other")[1])
    differing = ("identifier", "added")
    assert {name: value for name, value in by_schedule.items() if name not in differing} == {
        name: value for name, value in is_custom.items() if name not in differing
    }


def test_a_time_is_fired_once(any_world: World) -> None:
    schedule()
    enqueue_due(any_world)
    with any_world.unchanged():
        assert enqueue_due(any_world, identifier="another") == ("not due", "")


def test_a_job_that_is_queued_still_is_not_added_again(any_world: World) -> None:
    schedule()
    _, pk = enqueue_due(any_world)
    assert enqueue_due(any_world, seen=[NEXT, *SEEN[1:]], run=NEXT, following=LATER) == ("existing", pk)
    assert stored() == (LATER, NEXT)
    assert any_world.waiting() == [pk]


def test_a_time_that_is_passed_over_adds_nothing(any_world: World) -> None:
    schedule()
    assert enqueue_due(any_world, run="") == ("passed over", "")
    assert stored() == (NEXT, None)
    assert any_world.waiting() == []


def test_after_the_last_time_it_is_due_no_more(any_world: World) -> None:
    schedule()
    assert enqueue_due(any_world, following="")[0] == "added"
    assert stored() == (None, DUE)
    assert not any_world.client.exists(KEY)


@pytest.mark.parametrize("changed", [0, 1, 2])
def test_one_that_was_changed_since_it_was_read_is_left_alone(any_world: World, changed: int) -> None:
    schedule()
    any_world.queue()
    seen = [*SEEN]
    seen[changed] += " "
    with any_world.unchanged():
        assert enqueue_due(any_world, seen=seen) == ("not due", "")


def test_one_that_is_paused_or_gone_loses_its_place(any_world: World) -> None:
    schedule(paused="1")
    assert enqueue_due(any_world) == ("not due", "")
    any_world.client.zadd(KEY, {"77": 1})
    assert enqueue_due(any_world, "77") == ("not due", "")
    assert not any_world.client.exists(KEY)
    assert any_world.waiting() == []


def test_the_fields_of_the_job_are_written(any_world: World) -> None:
    """Even those that only limpyd can write."""
    by_kind = {"Order": {"customer": "ann", "label": "x"}, "Probe": {"weight": "7", "slot": "s"}}
    fields = by_kind.get(any_world.job_class.__name__, {"cancel_on_error": "1"})
    schedule()
    outcome, pk = enqueue_due(any_world, fields=fields)
    job = any_world.job_class.get(pk)
    assert outcome == "added"
    assert {name: job.get_field(name).proxy_get() for name in fields} == fields


def test_a_job_that_cannot_be_added_leaves_the_schedule_due(any_world: World) -> None:
    if any_world.job_class.__name__ != "Probe":
        return
    any_world.job_class.add_job("first", "q", queue_model=any_world.queue_class, serial="5")
    schedule()
    with any_world.unchanged(), pytest.raises(UniquenessError):
        enqueue_due(any_world, fields={"serial": "5"})


@pytest.mark.leaves("I9", "I10")
def test_a_key_of_a_wrong_type_changes_nothing(world: World) -> None:
    schedule()
    world.client.set(world.waiting_key(), "x")
    before = without_counters(world.contents())
    with pytest.raises(redis.ResponseError):
        enqueue_due(world)
    assert without_counters(world.contents()) == before
    world.client.delete(world.waiting_key())


def test_eight_at_the_same_moment_add_one_job(world: World) -> None:
    schedule()
    found, start = [], Barrier(8)

    def race(number: int) -> None:
        start.wait()
        found.append(enqueue_due(world, identifier=f"of racer {number}")[0])

    racers = [Thread(target=race, args=(number,)) for number in range(8)]
    for racer in racers:
        racer.start()
    for racer in racers:
        racer.join()
    assert sorted(found) == ["added", *["not due"] * 7]
    assert len(world.waiting()) == 1
