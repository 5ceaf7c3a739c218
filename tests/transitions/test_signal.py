"""signal: ends the wait of an idle worker, and leaves nothing behind if there is none."""

from __future__ import annotations

import pytest
from worlds import LATER, World, until

from limpyd_jobs import records
from limpyd_jobs.transitions import claim


def key(world: World, name: str = "q") -> str:
    return records.signal_key(world.queue_class, name)


def register(world: World) -> None:
    """Let some worker wait."""
    world.client.zadd(f"{world.queues}:blocked", {"a worker": 1})


def is_signalled(world: World, name: str = "q") -> bool:
    """Whether there is a signal; take it."""
    return bool(world.client.delete(key(world, name)))


def test_there_is_one_token_at_the_most_which_expires(any_world: World) -> None:
    register(any_world)
    for _ in range(3):
        records.signal(any_world.client, key(any_world))
    assert any_world.client.llen(key(any_world)) == 1
    assert 0 < any_world.client.pttl(key(any_world)) <= 10_000


def test_nobody_is_told_if_nobody_waits(any_world: World) -> None:
    any_world.add(delay=until(LATER))
    records.signal(any_world.client, key(any_world))
    assert not is_signalled(any_world)


def test_a_new_queue_is_told(any_world: World) -> None:
    register(any_world)
    any_world.add()
    assert is_signalled(any_world)
    any_world.add("another")
    assert not is_signalled(any_world)
    any_world.add("third", priority=1)
    assert is_signalled(any_world)
    any_world.queue("p")
    assert (is_signalled(any_world), is_signalled(any_world, "p")) == (False, True)
    any_world.queue("p")
    assert not is_signalled(any_world, "p")


def test_the_first_delayed_job_is_told(any_world: World) -> None:
    any_world.queue()
    register(any_world)
    any_world.add("a", delay="+5000000000")
    assert is_signalled(any_world)
    any_world.add("b", delay="+9000000000")
    assert not is_signalled(any_world)
    any_world.add("c", delay="+1000000000")
    assert is_signalled(any_world)


class TestNews:
    @pytest.fixture(autouse=True)
    def _waits(self, any_world: World) -> None:
        any_world.queue()
        register(any_world)

    def look(self, world: World, heard: str = "", news: str = "") -> str:
        _, outlook = claim(world.queue_class, world.request(), heard=heard, news=news, schedules="schedules")
        return outlook.news

    def test_is_passed_on_by_who_did_not_know_it(self, any_world: World) -> None:
        old = self.look(any_world)
        any_world.add(delay=until(LATER))
        is_signalled(any_world)
        new = self.look(any_world, key(any_world), old)
        assert new != old
        assert is_signalled(any_world)
        assert self.look(any_world, key(any_world), new) == new
        assert not is_signalled(any_world)

    def test_of_schedules_is_passed_on_too(self, any_world: World) -> None:
        old = self.look(any_world)
        any_world.client.zadd("schedules", {"1": 4070908800})
        new = self.look(any_world, key(any_world), old)
        assert new != old
        assert is_signalled(any_world)
        any_world.client.delete("schedules")

    def test_is_told_again_by_who_takes_a_job(self, any_world: World) -> None:
        old = self.look(any_world)
        any_world.add("a")
        any_world.add("b", delay=until(LATER))
        is_signalled(any_world)
        self.look(any_world, key(any_world), old)
        assert is_signalled(any_world)

    def test_is_of_no_interest_to_who_was_not_told(self, any_world: World) -> None:
        old = self.look(any_world)
        any_world.add(delay=until(LATER))
        is_signalled(any_world)
        self.look(any_world, "", old)
        assert not is_signalled(any_world)


@pytest.mark.leaves("I10")
def test_a_list_of_a_wrong_type_keeps_no_job_back(world: World) -> None:
    world.queue()
    register(world)
    world.client.set(key(world), "of a wrong type")
    assert world.add(delay=until(LATER))[0] == "added"
    world.client.set(f"{world.queues}:blocked", "of a wrong type")
    assert world.add("b", priority=1)[0] == "added"
