"""edit: a job that waits or is delayed gets other values, another priority or another delay, in one step."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from limpyd.exceptions import UniquenessError
from worlds import LATER, Bench, Mishap, Moment, Probe, World, until

from limpyd_jobs import JobGone, NotEditable, transitions
from limpyd_jobs.dates import datetime_to_score
from limpyd_jobs.records.audit import entry_request

After = Callable[[float], Moment]


def edit(world: World, job: Any, fields: Any = None, **options: Any) -> list[tuple[str, Any, Any]]:
    return transitions.edit(job, world.queue_class, fields or {}, **options)


def test_the_whole_effect_on_a_waiting_job(world: World, after: After) -> None:
    job = world.job_that_is("waiting")
    found = edit(world, job, {"cancel_on_error": "1"}, priority="5", delay=until(LATER))
    assert found == [
        ("cancel_on_error", None, "1"),
        ("delayed_until", None, str(LATER)),
        ("priority", "0", "5"),
        ("status", "w", "d"),
    ]
    assert world.contents() == {
        "jobs:job:max_pk": "1",
        "jobs:job:collection": {"1"},
        "jobs:job:1:hash": {
            "identifier": "a",
            "status": "d",
            "priority": "5",
            "added": after(0),
            "_queue_key": "jobs:queue:2",
            "delayed_until": str(LATER),
            "queued": "1",
            "cancel_on_error": "1",
        },
        "jobs:job:identifier:a": {"1"},
        "jobs:job:status:d": {"1"},
        "jobs:job:priority:5": {"1"},
        "jobs:job:queued:1": {"1"},
        "jobs:queue:max_pk": "2",
        "jobs:queue:collection": {"1", "2"},
        "jobs:queue:1:hash": {"name": "q", "priority": "0"},
        "jobs:queue:2:hash": {"name": "q", "priority": "5"},
        "jobs:queue:name:q": {"1", "2"},
        "jobs:queue:priority:0": {"1"},
        "jobs:queue:priority:5": {"2"},
        "jobs:queue:2:delayed": {job.ident: datetime_to_score(LATER)},
    }


def test_a_job_whose_place_does_not_change_keeps_it(any_world: World) -> None:
    first, job, last = (any_world.add(name)[1] for name in "abc")
    assert edit(any_world, job, {"cancel_on_error": "1"}, priority="0", delay="") == [("cancel_on_error", None, "1")]
    assert any_world.waiting() == [each.pk.get() for each in (first, job, last)]
    edit(any_world, first, delay="+60000000")
    edit(any_world, first, delay="")
    assert any_world.waiting() == [each.pk.get() for each in (job, last, first)]


@pytest.mark.parametrize(("delay", "priority"), [("", ""), ("", "3"), (until(LATER), "3"), (None, "3")])
@pytest.mark.parametrize("state", ["waiting", "delayed"])
def test_lists_and_sets_and_indexes_follow(any_world: World, state: str, delay: str | None, priority: str) -> None:
    job = any_world.job_that_is(state)
    edit(any_world, job, priority=priority, delay=delay)
    is_delayed = delay or (delay is None and state == "delayed")
    assert any_world.places(job) == [f"q/{priority or 0} {'delayed' if is_delayed else 'waiting'}"]
    assert any_world.hash(job).get("delayed_until") == (str(LATER) if is_delayed else None)
    assert job.pk.get() in any_world.job_class.collection(priority=priority or "0", status="d" if is_delayed else "w")
    with any_world.unchanged():
        assert edit(any_world, job, priority=priority, delay=delay) == []


@pytest.mark.leaves("I3", "I5", "I6", "I7", "I8")
@pytest.mark.parametrize(
    "state", ["running", "running set to canceled", "running set to delayed", "held", "error", "canceled", "custom"]
)
def test_no_other_job_is_edited(world: World, state: str) -> None:
    job = world.job_that_is(state)
    is_claimed = state.startswith(("running", "held"))
    told = "runs it" if is_claimed else "neither waits nor is delayed"
    with world.unchanged(), pytest.raises(NotEditable, match=told):
        edit(world, job, {"cancel_on_error": "1"}, priority="5")


@pytest.mark.leaves("I3", "I7", "I8")
def test_a_job_that_does_not_count_as_queued_is_left_alone(world: World) -> None:
    job = world.job_that_is("waiting")
    job.queued.delete()
    with world.unchanged(), pytest.raises(NotEditable, match="neither waits nor is delayed"):
        edit(world, job, priority="5")


def test_a_deleted_job_is_gone(world: World) -> None:
    with pytest.raises(JobGone):
        edit(world, world.job_that_is("deleted"), {"cancel_on_error": "1"})


@pytest.mark.parametrize("seen", [{"priority": "1"}, {"cancel_on_error": "1"}, {"status": "w", "delayed_until": "x"}])
def test_what_changed_since_it_was_seen_is_left_alone(world: World, seen: dict[str, str]) -> None:
    job = world.job_that_is("waiting")
    with world.unchanged(), pytest.raises(NotEditable, match=r"its (priority|cancel_on_error|delayed_until) changed"):
        edit(world, job, {"cancel_on_error": "1"}, priority="5", seen=seen)
    as_seen = {"priority": "0", "cancel_on_error": "", "status": "w"}
    edit(world, job, priority="5", seen=as_seen)
    assert world.places(job) == ["q/5 waiting"]
    assert edit(world, job, priority="5", seen=as_seen) == []  # as if the call were sent once more


def test_a_dry_run_tells_and_changes_nothing(any_world: World) -> None:
    job = any_world.job_that_is("delayed")
    with any_world.unchanged():
        found = edit(any_world, job, {"cancel_on_error": "1"}, priority="5", delay="", dry=True)
    assert [name for name, *_ in found] == ["cancel_on_error", "delayed_until", "priority", "status"]
    assert found == edit(any_world, job, {"cancel_on_error": "1"}, priority="5", delay="")


def test_special_and_unique_fields_are_as_limpyd_has_them(world_of_probes: World) -> None:
    one, other = (world_of_probes.add(name)[1] for name in "ab")
    edit(world_of_probes, one, {"serial": "7", "end": "soon", "weight": "2.5"})
    assert list(Probe.collection(end__gte="so", weight__gt=2, serial="7")) == [one.pk.get()]
    edit(world_of_probes, one, {"serial": "8", "end": None, "weight": None})
    assert list(Probe.collection(serial="8")) == [one.pk.get()]
    assert not list(Probe.collection(end__gte="so"))
    with world_of_probes.unchanged(), pytest.raises(UniquenessError):
        edit(world_of_probes, other, {"serial": "8"})


@pytest.fixture
def world_of_probes(redis_client: Any) -> World:
    return World(redis_client, Probe, Bench, Mishap)


def test_a_job_of_version_2_stays_in_the_queue_where_it_stands(world: World) -> None:
    job = world.add("a", "p")[1]
    world.client.hdel(f"{world.jobs}:1:hash", "_queue_key")
    with world.unchanged(), pytest.raises(NotEditable, match="does not say in which queue"):
        edit(world, job, priority="5")
    edit(world, job, priority="5", default_name="q")
    assert world.places(job) == ["p/5 waiting"]


@pytest.mark.leaves("I2", "I5")
@pytest.mark.parametrize(
    "key", ["jobs:queue:2:waiting", "jobs:queue:1:waiting", "jobs:job:priority:5", "jobs:queue:1:_running"]
)
def test_nothing_is_done_by_halves(world: World, key: str) -> None:
    job = world.job_that_is("waiting")
    world.queue("q", 5)
    world.client.delete(key)
    world.client.set(key, "of another program")
    with world.unchanged(), pytest.raises(Exception, match="WRONGTYPE"):
        edit(world, job, {"cancel_on_error": "1"}, priority="5", audit=entry_request(verb="edit"))
    assert not world.client.exists("limpyd-jobs:audit")
