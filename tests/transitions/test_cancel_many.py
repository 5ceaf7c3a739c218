"""cancel_many: some jobs are not to be run."""

from __future__ import annotations

import pytest
from several import each_state, leaves_the_same
from worlds import World

from limpyd_jobs import transitions


@each_state
def test_it_does_as_cancel(world: World, state: str, monkeypatch: pytest.MonkeyPatch) -> None:
    ended = state in ("success", "error", "canceled", "deleted", "running set to canceled")
    one = None if ended else lambda job: transitions.cancel(job, world.queue_class, "q")
    leaves_the_same(world, state, lambda asked: asked.cancel_all(), one, monkeypatch)
