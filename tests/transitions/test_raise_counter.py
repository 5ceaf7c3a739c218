"""raise_counter: new records get new pks."""

from __future__ import annotations

import pytest
from worlds import World

from limpyd_jobs.check import scripts


@pytest.mark.parametrize(
    ("counter", "answer"),
    [("3", "3"), ("x", "x"), ("-5", "-5"), ("999999999999999999", "999999999999999999"), (None, "none")],
)
def test_a_counter_that_is_too_low_is_raised(any_world: World, counter: str | None, answer: str) -> None:
    key = f"{any_world.jobs}:max_pk"
    if counter:
        any_world.client.set(key, counter)
    with any_world.unchanged():
        assert scripts.raise_counter(any_world.client, any_world.job_class, 5) == answer
    assert scripts.raise_counter(any_world.client, any_world.job_class, 5, repair=True) == answer
    assert any_world.client.get(key) == "5"


@pytest.mark.parametrize("counter", ["5", "6"])
def test_one_that_is_high_enough_is_left_alone(any_world: World, counter: str) -> None:
    any_world.client.set(f"{any_world.jobs}:max_pk", counter)
    with any_world.unchanged():
        assert scripts.raise_counter(any_world.client, any_world.job_class, 5, repair=True) is None


def test_without_records_no_counter_is_needed(any_world: World) -> None:
    assert scripts.raise_counter(any_world.client, any_world.queue_class, 0, repair=True) is None


def test_one_of_a_wrong_type_is_replaced(any_world: World) -> None:
    any_world.client.rpush(f"{any_world.jobs}:max_pk", 1)
    assert scripts.raise_counter(any_world.client, any_world.job_class, 5, repair=True) == "none"
    assert any_world.client.get(f"{any_world.jobs}:max_pk") == "5"
