"""set_fields: fields of a record change with their indexes. What callers of the fields see: test_atomic_fields.py."""

from __future__ import annotations

from typing import Any

import pytest
from limpyd.exceptions import DoesNotExist, UniquenessError
from worlds import HARD_TEXT, Probe, World

from limpyd_jobs.records import records


def test_the_whole_effect(world: World) -> None:
    job = world.job_that_is("custom")
    job.hdel("priority")
    assert records.set_fields(job, {"identifier": HARD_TEXT, "priority": 5, "tries": 1.5}) == 2
    assert world.contents() == {
        "jobs:job:max_pk": "1",
        "jobs:job:collection": {"1"},
        "jobs:job:1:hash": {"identifier": HARD_TEXT, "priority": "5", "tries": "1.5"},
        f"jobs:job:identifier:{HARD_TEXT}": {"1"},
        "jobs:job:priority:5": {"1"},
    }


def test_only_new_leaves_a_value_alone(world: World) -> None:
    job = world.job_that_is("custom")
    assert records.set_fields(job, {"tries": 1}, only_new=True) == 1
    with world.unchanged():
        assert records.set_fields(job, {"tries": 2}, only_new=True) == 0


def test_the_same_again_changes_nothing(any_world: World) -> None:
    job = any_world.job_that_is("waiting")
    records.set_fields(job, {"queued": "1"})
    with any_world.unchanged():
        assert records.set_fields(job, {"queued": "1"}) == 0


def test_a_deleted_record_is_not_made_again(any_world: World) -> None:
    job = any_world.job_that_is("deleted")
    with any_world.unchanged(), pytest.raises(DoesNotExist):
        records.set_fields(job, {"queued": "1"})


def test_a_value_that_another_record_has_is_refused(redis_client: Any) -> None:
    world = World(redis_client, Probe)
    first, second = Probe(serial="1"), Probe(serial="2")
    with world.unchanged(), pytest.raises(UniquenessError):
        records.set_fields(second, {"serial": "1", "queued": "1"})
    with world.unchanged():
        assert records.set_fields(first, {"serial": "1"}) == 0
