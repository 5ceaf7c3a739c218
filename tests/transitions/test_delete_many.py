"""delete_many: some jobs are deleted, and are in no queue any more."""

from __future__ import annotations

import pytest
from several import each_state, leaves_the_same
from worlds import CLAIMED, World, pk_of

from limpyd_jobs import transitions


@each_state
def test_nothing_is_left_of_a_job_that_does_not_run(world: World, state: str, monkeypatch: pytest.MonkeyPatch) -> None:
    def delete(job: object) -> None:
        if state in ("waiting", "delayed"):
            transitions.cancel(job, world.queue_class)  # type: ignore[arg-type]
        world.job_class(pk_of(job)).delete()
        for key in [*world.client.scan_iter("*:success"), *world.client.scan_iter("*:errors")]:
            world.client.lrem(key, 0, job.ident)  # type: ignore[attr-defined]

    one = None if state in (*CLAIMED, "deleted") else delete
    leaves_the_same(world, state, lambda asked: asked.delete_all(), one, monkeypatch)
