"""For the tests of the scripts that change several jobs: what they leave, beside what their verbs for one job leave."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest
from worlds import EVERYTHING, STATES, World

from limpyd_jobs.query import JobFilter, Tally

A_DATE = re.compile(r"\b\d{4}-\d\d-\d\d \d\d:\d\d:\d\d(?:\.\d+)?|\b\d{10}\.\d+\b")


def stored(world: World) -> str:
    """All that is stored; moments of today are all the same."""
    return A_DATE.sub(
        lambda match: match[0] if match[0] > "2090" else "now",
        json.dumps(world.contents(), default=sorted, sort_keys=True),
    )


@contextmanager
def own_queues(world: World, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    with monkeypatch.context() as patch:
        patch.setattr(world.job_class, "queue_model", world.queue_class)
        yield


def leaves_the_same(
    world: World,
    state: str,
    many: Callable[[JobFilter], Tally],
    one: Callable[[Any], object] | None,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Check that a verb on a filter does with a job what one on the job does; nothing, if that is None."""
    job = world.job_that_is(state)
    if one:
        one(job)
    expected = stored(world)
    world.client.flushall()
    job = world.job_that_is(state)
    with own_queues(world, monkeypatch):
        asked = JobFilter(world.job_class)
        with world.unchanged():
            told = many(JobFilter(world.job_class, "identifier=nobody"))
        assert told == (0, 0, 0, {})
        tally = many(asked)
    world.client.delete("limpyd-jobs:audit")
    assert stored(world) == expected
    is_there = state != "deleted"
    assert tally.done == (1 if one else 0)
    assert tally.done + tally.skipped + tally.refused == (1 if is_there else 0)


def each_state(test: Any) -> Any:
    """Run a test with a job in each state; some are such that invariants do not hold."""
    return pytest.mark.leaves(*EVERYTHING)(pytest.mark.parametrize("state", STATES)(test))
