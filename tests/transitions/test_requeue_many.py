"""requeue_many: those that failed go back to their queues."""

from __future__ import annotations

import pytest
from several import each_state, leaves_the_same, own_queues
from worlds import LATER, World, until

from limpyd_jobs import transitions
from limpyd_jobs.query import JobFilter


@each_state
def test_it_does_as_requeue_and_leaves_alone_what_is_claimed(
    world: World, state: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    one = (lambda job: transitions.requeue(job, world.queue_class, "q")) if state == "error" else None
    leaves_the_same(world, state, lambda asked: asked.requeue_all(), one, monkeypatch)


def test_they_may_go_elsewhere(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    leaves_the_same(
        world,
        "error",
        lambda asked: asked.requeue_all("p", 3, delayed_until=LATER),
        lambda job: transitions.requeue(job, world.queue_class, "p", "3", delay=until(LATER)),
        monkeypatch,
    )


def test_an_identifier_is_queued_once(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    failed = [world.job_that_is("error", identifier) for identifier in ("a", "a", "b")]
    with own_queues(world, monkeypatch):
        asked = JobFilter(world.job_class, "status=error")
        assert asked.requeue_all() == (2, 0, 1, {"already queued": 1})
    assert [job.status.hget() for job in failed] == ["w", "e", "w"]
