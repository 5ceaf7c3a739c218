"""set_schedule: a schedule is made or changed, with its place among those that are due, in one step."""

from __future__ import annotations

import pytest
import redis
from limpyd.exceptions import DoesNotExist, UniquenessError
from worlds import World

from limpyd_jobs import Schedule
from limpyd_jobs.records import records

KEY = "jobs:schedule:due"
SIGNAL = "jobs:queue:_signal:q"


def test_the_whole_effect(world: World) -> None:
    assert records.set_schedule(Schedule, "", "12.500000", {"name": "a", "next_run": "x", "paused": "1"}) == "1"
    assert world.contents() == {
        "jobs:schedule:max_pk": "1",
        "jobs:schedule:collection": {"1"},
        "jobs:schedule:1:hash": {"name": "a", "next_run": "x", "paused": "1", "priority": "0"},
        "jobs:schedule:name:a": {"1"},
        "jobs:schedule:paused:1": {"1"},
        KEY: {"1": 12.5},
    }


@pytest.mark.parametrize(("due", "expected"), [("", {}), ("keep", {"1": 5.0}), ("7", {"1": 7.0})])
def test_a_change_sets_and_unsets_fields_and_the_place(world: World, due: str, expected: dict[str, float]) -> None:
    records.set_schedule(Schedule, "", "5", {"name": "a", "paused": "1"})
    records.set_schedule(Schedule, "1", due, {"paused": "", "grace": "3"})
    stored = world.contents()
    assert stored["jobs:schedule:1:hash"] == {"name": "a", "grace": "3", "priority": "0"}
    assert "jobs:schedule:paused:1" not in stored
    assert stored.get(KEY, {}) == expected


class TestTheSignal:
    @pytest.fixture(autouse=True)
    def _a_process_waits(self, world: World) -> None:
        world.client.zadd("jobs:queue:idle_workers", {"a worker": 1})

    def is_given(self, world: World, due: str, pk: str = "", signal: str = SIGNAL) -> bool:
        records.set_schedule(Schedule, pk, due, {} if pk else {"name": due}, signal)
        return bool(world.client.delete(SIGNAL))

    def test_is_given_if_no_other_one_is_due_before(self, world: World) -> None:
        dues = ["4070908800", "4070908900", "4070908700", "4070908700.1"]
        assert [self.is_given(world, due) for due in dues] == [True, False, True, False]
        assert self.is_given(world, "4070908000", pk="2")
        assert self.is_given(world, "4070908001", pk="2")
        assert not self.is_given(world, "4070908999", pk="2")

    def test_is_given_beside_one_that_cannot_be_fired(self, world: World) -> None:
        records.set_schedule(Schedule, "", "5", {"name": "a"})
        assert self.is_given(world, "4070908800")

    def test_is_given_if_it_is_due_already(self, world: World) -> None:
        records.set_schedule(Schedule, "", "4070908800", {"name": "a"})
        assert self.is_given(world, "7")

    @pytest.mark.parametrize("due", ["", "keep"])
    def test_is_not_given_if_it_is_not_to_be_looked_at(self, world: World, due: str) -> None:
        records.set_schedule(Schedule, "", "4070908800", {"name": "a"})
        assert not self.is_given(world, due, pk="1")

    def test_is_not_given_to_no_process(self, world: World) -> None:
        assert not self.is_given(world, "4070908800", signal="")


def test_a_name_is_given_once(world: World) -> None:
    records.set_schedule(Schedule, "", "5", {"name": "a"})
    records.set_schedule(Schedule, "", "5", {"name": "b"})
    records.set_schedule(Schedule, "1", "keep", {"name": "a"})
    for pk in ("", "2"):
        with world.unchanged(), pytest.raises(UniquenessError):
            records.set_schedule(Schedule, pk, "6", {"name": "a"})


def test_one_that_was_deleted_is_not_made_again(world: World) -> None:
    with world.unchanged(), pytest.raises(DoesNotExist):
        records.set_schedule(Schedule, "5", "6", {"name": "a"})


def test_a_place_of_a_wrong_type_changes_nothing(world: World) -> None:
    world.client.set(KEY, "x")
    with world.unchanged(), pytest.raises(redis.ResponseError):
        records.set_schedule(Schedule, "", "6", {"name": "a"})


def test_a_schedule_that_another_process_changed_meanwhile_is_left_alone(redis_client: redis.Redis) -> None:
    records.set_schedule(Schedule, "", "5", {"name": "a", "trigger": "x"})
    assert records.set_schedule(Schedule, "1", "6", {"trigger": "y"}, seen={"trigger": "x", "paused": ""}) == "1"
    for seen in ({"trigger": "x"}, {"trigger": "y", "paused": "1"}):
        assert records.set_schedule(Schedule, "1", "7", {"trigger": "z"}, seen=seen) == ""
    assert redis_client.zrange("jobs:schedule:due", 0, -1, withscores=True) == [("1", 6)]
    assert redis_client.hget("jobs:schedule:1:hash", "trigger") == "y"
