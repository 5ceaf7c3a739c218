"""move_many: those that wait or are delayed go to another queue, priority or date."""

from __future__ import annotations

import pytest
from several import each_state, leaves_the_same
from worlds import LATER, World, until

from limpyd_jobs import transitions


@each_state
def test_it_does_as_move_and_keeps_the_delay(world: World, state: str, monkeypatch: pytest.MonkeyPatch) -> None:
    delay = until(LATER) if state == "delayed" else ""
    moves = state in ("waiting", "delayed")
    one = (lambda job: transitions.move(job, world.queue_class, "p", "3", delay=delay)) if moves else None
    leaves_the_same(world, state, lambda asked: asked.move_all("p", 3), one, monkeypatch)


@each_state
def test_what_is_left_out_stays_as_it_is(world: World, state: str, monkeypatch: pytest.MonkeyPatch) -> None:
    delay = until(LATER) if state == "delayed" else ""
    moves = state in ("waiting", "delayed")
    one = (lambda job: transitions.move(job, world.queue_class, "q", "3", delay=delay)) if moves else None
    leaves_the_same(world, state, lambda asked: asked.move_all(priority=3), one, monkeypatch)


@each_state
def test_jobs_are_delayed(world: World, state: str, monkeypatch: pytest.MonkeyPatch) -> None:
    moves = state in ("waiting", "delayed")
    one = (lambda job: transitions.move(job, world.queue_class, "q", delay=until(LATER))) if moves else None
    leaves_the_same(world, state, lambda asked: asked.delay_all(delayed_until=LATER), one, monkeypatch)


@each_state
def test_what_is_delayed_is_promoted(world: World, state: str, monkeypatch: pytest.MonkeyPatch) -> None:
    one = (lambda job: transitions.move(job, world.queue_class, "q")) if state == "delayed" else None
    leaves_the_same(world, state, lambda asked: asked.promote_all(), one, monkeypatch)
