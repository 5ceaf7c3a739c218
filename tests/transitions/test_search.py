"""search: some jobs of a class are looked at, and nothing is changed."""

from __future__ import annotations

from collections import Counter
from typing import Any

import pytest
from worlds import EVERYTHING, HARD_TEXT, LATER, World

from limpyd_jobs.arguments import delay_argument
from limpyd_jobs.records.known_classes import KnownClass
from limpyd_jobs.records.records import redis_of
from limpyd_jobs.redis.calls import finish, listed
from limpyd_jobs.search import walk
from limpyd_jobs.search.conditions import Condition
from limpyd_jobs.search.walk import Source
from limpyd_jobs.transitions.many import Found


def source_of(world: World, *words: str) -> Source:
    conditions = [Condition.parse(word) for word in words]
    tests = [condition.as_test() for condition in conditions]
    source = Source(redis_of(world.job_class), KnownClass.of(world.job_class), conditions, tests)
    finish(walk.Walk().measure(world.client, [source]))
    return source


def looks(source: Source, **options: Any) -> list[Found]:
    return list(walk.Walk().look(source, **options))


def found(world: World, *words: str, **options: Any) -> list[int]:
    """The pks of the jobs that are found; nothing is changed."""
    with world.unchanged():
        steps = looks(source_of(world, *words), names=listed(["identifier"]), **options)
    return [pk for step in steps for pk, _ in step.records]


@pytest.fixture(params=["read", "asked"], autouse=True)
def way(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Sets are read as a whole, or asked about one range of pks after another."""
    monkeypatch.setattr(walk, "PER_STEP", 3)
    if request.param == "asked":
        monkeypatch.setattr(walk, "SMALL_SET", 0)
        monkeypatch.setattr(walk, "MEDIUM_SET", 0)


def test_all_jobs_are_found_in_the_order_in_which_they_were_added(world: World) -> None:
    pks = [int(world.add(f"{number}")[1].pk.get()) for number in range(10)]
    assert found(world) == pks[::-1]
    assert found(world, is_upwards=True) == pks
    assert found(world, most=2) == pks[::-1]
    assert found(world, start=pks[4]) == pks[3::-1]
    assert found(world, start=pks[4], is_upwards=True) == pks[5:]


@pytest.mark.matrix(15)
@pytest.mark.parametrize(
    ("word", "numbers"),
    [
        ("identifier=3", [3]),
        ("identifier!=3", [0, 1, 2, 4, 5]),
        ("status=running", [0]),
        ("status=waiting", [1, 2, 3]),
        ("status=delayed", [4, 5]),
        ("priority>=4", [4, 5]),
        ("priority>4", [5]),
        ("priority<1", [0]),
        ("priority<=1", [0, 1]),
        ("priority=+1", [1]),
        ("tries=", [1, 2, 3, 4, 5]),
        ("tries!=", [0]),
        ("added<+1s", [0, 1, 2, 3, 4, 5]),
        ("added<-1h", []),
        ("delayed_until>2099-01-01", [4, 5]),
        ("delayed_until>now", [4, 5]),
        ("delayed_until<now", []),
        ("queue=q", [0, 1, 2, 3, 4, 5]),
        ("queue!=q", []),
        ("owner=me here", [0]),
        ("owner!=me here", [1, 2, 3, 4, 5]),
        ("owner=me", []),
    ],
)
def test_each_comparison_finds_what_it_says(world: World, word: str, numbers: list[int]) -> None:
    jobs = [world.add(f"{number}", priority=number)[1] for number in range(4)]
    jobs += [world.add(f"{number}", priority=number, delay=delay_argument(delayed_until=LATER))[1] for number in (4, 5)]
    claim = jobs[0].claim("me here", queue_model=world.queue_class)
    claim.__enter__()
    assert found(world, word, is_upwards=True) == [int(jobs[number].pk.get()) for number in numbers]
    claim.release()


@pytest.mark.leaves(*EVERYTHING)
def test_what_is_broken_or_foreign_is_passed_over(world: World) -> None:
    jobs = [world.add(f"{number}")[1] for number in range(4)]
    world.client.set(f"{world.jobs}:{jobs[1].pk.get()}:hash", "foreign")
    world.client.delete(f"{world.jobs}:{jobs[2].pk.get()}:hash")
    world.client.sadd(f"{world.jobs}:collection", "x", "", "99999", "9" * 5000, "\u0661")
    world.client.hset(f"{world.jobs}:{jobs[3].pk.get()}:hash", "_queue_key", "no:key")
    assert found(world) == [int(jobs[3].pk.get()), int(jobs[0].pk.get())]
    assert found(world, "queue=q") == [int(jobs[0].pk.get())]
    world.client.delete(f"{world.jobs}:collection")
    world.client.set(f"{world.jobs}:collection", "foreign")
    assert found(world) == []


@pytest.mark.leaves(*EVERYTHING)
def test_a_counter_that_is_none_does_not_matter(world: World) -> None:
    job = world.add("a")[1]
    for counter in ("x", "9" * 5000, None):
        world.client.set(f"{world.jobs}:max_pk", counter) if counter else world.client.delete(f"{world.jobs}:max_pk")
        assert found(world) == [int(job.pk.get())]


@pytest.mark.leaves(*EVERYTHING)
def test_any_text_comes_back(world: World) -> None:
    _, job = world.add(HARD_TEXT)
    world.client.hset(f"{world.jobs}:{job.pk.get()}:hash", "status", b"\xff\xfe")
    source = source_of(world, f"identifier={HARD_TEXT}")
    (step,) = looks(source, names=listed(["identifier", "status", "none", "queue"]), by="status")
    assert step.records == [(int(job.pk.get()), [HARD_TEXT, "\udcff\udcfe", None, "q"])]
    assert step.counts == {"\udcff\udcfe": 1}


def test_jobs_are_counted_by_the_values_of_a_field(world: World) -> None:
    for number in range(4):
        world.add(f"{number}", priority=number % 2, queue="q" if number else "p")
    steps = looks(source_of(world), by="priority")
    assert sum(step.number for step in steps) == 4
    assert sum((Counter(step.counts) for step in steps), Counter()) == {"0": 2, "1": 2}
    steps = looks(source_of(world), by="queue")
    assert sum((Counter(step.counts) for step in steps), Counter()) == {"q": 3, "p": 1}


@pytest.mark.leaves(*EVERYTHING)
def test_long_values_that_are_counted_are_cut_between_two_characters(world: World) -> None:
    _, job = world.add("long")
    world.client.hset(f"{world.jobs}:{job.pk.get()}:hash", "identifier", "x" * 999 + "é" * 1000)
    (step,) = looks(source_of(world), by="identifier")
    assert step.counts == {"x" * 999 + "…": 1}
