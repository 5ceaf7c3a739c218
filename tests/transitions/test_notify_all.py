"""signal: ends the wait of an idle worker, and leaves nothing behind if there is none."""

from __future__ import annotations

import pytest
from worlds import LATER, World, until

from limpyd_jobs import transitions
from limpyd_jobs.records import records
from limpyd_jobs.records.lazy_fields import pk_of


def key(world: World, name: str = "q") -> str:
    return records.signal_key(world.queue_class, name)


def register(world: World, workers: int = 1) -> None:
    """Let some workers wait."""
    world.client.zadd(f"{world.queues}:idle_workers", {f"worker {number}": 1 for number in range(workers)})


def signals(world: World, name: str = "q") -> int:
    """How many workers are told; take the tokens."""
    number = world.client.llen(key(world, name))
    world.client.delete(key(world, name))
    return number


def test_all_who_wait_are_told_and_a_token_expires(any_world: World) -> None:
    register(any_world, 3)
    for _ in range(2):
        records.notify_all(any_world.client, key(any_world))
    assert 0 < any_world.client.pttl(key(any_world)) <= 10_000
    assert signals(any_world) == 3


def test_no_process_is_told_if_no_process_waits(any_world: World) -> None:
    any_world.add()
    any_world.add("b", delay=until(LATER))
    records.notify_all(any_world.client, key(any_world))
    assert signals(any_world) == 0


def test_each_job_is_told_to_one_who_waits(any_world: World) -> None:
    any_world.queue()
    any_world.queue(priority=1)
    register(any_world, 3)
    any_world.add("a")
    assert signals(any_world) == 1
    any_world.add("b")
    any_world.add("c", priority=1)
    assert signals(any_world) == 2
    for identifier in "defgh":
        any_world.add(identifier)
    assert signals(any_world) == 3


def test_a_job_that_comes_back_is_told(any_world: World) -> None:
    register(any_world)
    job = any_world.job_that_is("delayed")
    any_world.client.zadd(f"{any_world.queue_key()}:delayed", {f"{any_world.path}:{pk_of(job)}": 1})
    assert signals(any_world) == 1
    transitions.promote(any_world.queue_class, [any_world.queue_key()], any_world.request().classes)
    assert signals(any_world) == 1
    fetched = any_world.claim()
    assert fetched
    transitions.release(any_world.job_class, fetched.ident, fetched.token, fetched.queue_key)
    assert signals(any_world) == 1


def test_a_new_queue_is_told_to_all(any_world: World) -> None:
    any_world.queue()
    register(any_world, 2)
    any_world.queue("p")
    assert (signals(any_world), signals(any_world, "p")) == (0, 2)
    any_world.queue("p")
    assert signals(any_world, "p") == 0


def test_the_first_delayed_job_is_told_to_all(any_world: World) -> None:
    any_world.queue()
    register(any_world, 2)
    any_world.add("a", delay="+5000000000")
    assert signals(any_world) == 2
    any_world.add("b", delay="+9000000000")
    assert signals(any_world) == 0
    any_world.add("c", delay="+1000000000")
    assert signals(any_world) == 2


@pytest.mark.leaves("I10")
def test_a_list_of_a_wrong_type_keeps_no_job_back(world: World) -> None:
    world.queue()
    register(world)
    world.client.set(key(world), "of a wrong type")
    assert world.add(delay=until(LATER))[0] == "added"
    world.client.set(f"{world.queues}:idle_workers", "of a wrong type")
    assert world.add("b", priority=1)[0] == "added"
