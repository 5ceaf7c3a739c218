"""unset_fields: fields of a record go, with their indexes. What callers of the fields see: test_atomic_fields.py."""

from __future__ import annotations

from worlds import World

from limpyd_jobs.records import records


def test_the_whole_effect(world: World) -> None:
    job = world.job_that_is("custom")
    assert records.unset_fields(job, ["priority", "priority", "tries"]) == 1
    assert world.contents() == {
        "jobs:job:max_pk": "1",
        "jobs:job:collection": {"1"},
        "jobs:job:1:hash": {"identifier": "a"},
        "jobs:job:identifier:a": {"1"},
    }


def test_of_a_deleted_record_there_is_nothing_to_unset(any_world: World) -> None:
    job = any_world.job_that_is("deleted")
    with any_world.unchanged():
        assert records.unset_fields(job, ["identifier", "queued"]) == 0
