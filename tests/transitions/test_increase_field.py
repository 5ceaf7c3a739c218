"""increase_field: a number grows, with its index. What callers of the fields see: test_atomic_fields.py."""

from __future__ import annotations

from typing import Any

import pytest
from cases import each
from limpyd.exceptions import DoesNotExist
from worlds import World

from limpyd_jobs.records import records


def test_the_whole_effect(world: World) -> None:
    job = world.job_that_is("custom")
    assert records.increase_field(job, "priority", 5, "HINCRBY") == 5
    assert records.increase_field(job, "tries", 1.5, "HINCRBYFLOAT") == "1.5"
    assert world.contents() == {
        "jobs:job:max_pk": "1",
        "jobs:job:collection": {"1"},
        "jobs:job:1:hash": {"identifier": "a", "priority": "5", "tries": "1.5"},
        "jobs:job:identifier:a": {"1"},
        "jobs:job:priority:5": {"1"},
    }


@each("value", [2**53 - 1, 2**53, 2**53 + 1, 2**63 - 1, 1 - 2**53, -(2**53) - 1, -(2**63)])
def test_no_digit_is_lost(world: World, value: int) -> None:
    job = world.job_that_is("custom")
    sign = 1 if value > 0 else -1
    job.priority.hset(value - sign)
    reply: Any = records.increase_field(job, "priority", sign, "HINCRBY")
    assert (int(reply), job.priority.hget()) == (value, str(value))


def test_a_deleted_record_is_not_made_again(any_world: World) -> None:
    job = any_world.job_that_is("deleted")
    with any_world.unchanged(), pytest.raises(DoesNotExist):
        records.increase_field(job, "tries", 1, "HINCRBY")
