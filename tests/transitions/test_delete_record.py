"""delete_record: nothing of a record remains in its hash, its indexes, its collection."""

from __future__ import annotations

import pytest
from worlds import World

from limpyd_jobs.records import records


def test_the_whole_effect(world: World) -> None:
    job = world.job_that_is("custom")
    records.delete_record(job)
    assert world.contents() == {"jobs:job:max_pk": "1"}


@pytest.mark.parametrize("state", ["success", "error", "canceled", "custom"])
def test_a_job_leaves_nothing_but_its_entries_in_lists(any_world: World, state: str) -> None:
    job = any_world.job_that_is(state)
    ident = job.ident
    job.delete()
    left = [key for key in any_world.contents() if key.startswith(f"{any_world.jobs}:")]
    assert left == [f"{any_world.jobs}:max_pk"]
    assert any_world.places(ident) == {"success": ["q/0 success"], "error": ["q/0 errors"]}.get(state, [])


def test_one_that_is_deleted_is_no_error(any_world: World) -> None:
    job = any_world.job_that_is("deleted")
    with any_world.unchanged():
        records.delete_record(job)
