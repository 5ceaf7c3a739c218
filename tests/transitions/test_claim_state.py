"""claim_state: who has a claim on a job, and for how long."""

from __future__ import annotations

import pytest
from worlds import CLAIMED, EVERYTHING, LEASE, STATES, World

from limpyd_jobs.transitions import ClaimState


@pytest.mark.leaves(*EVERYTHING)
@pytest.mark.parametrize("state", STATES)
def test_it_tells_the_status_and_whether_the_lease_holds(any_world: World, state: str) -> None:
    job = any_world.job_that_is(state)
    with any_world.unchanged():
        found = job.claim_state()
    assert found.status == (STATES[state] or ("" if state == "custom" else None))
    assert (found.left is not None) == (state in CLAIMED)
    assert found.left is None or 0 < found.left <= LEASE
    assert found.is_held == (state == "running")


def test_the_owner_is_told(any_world: World) -> None:
    job = any_world.job_that_is("waiting")
    assert job.claim_state() == ClaimState("w", None, None)
    with job.claim("me/1", queue_model=any_world.queue_class) as claim:
        found = job.claim_state()
        assert (found.owner, found.is_held) == ("me/1", True)
        claim.release()
    assert job.claim_state().owner is None


@pytest.mark.leaves(*EVERYTHING)
def test_a_lease_that_lapsed_holds_no_more(any_world: World) -> None:
    job = any_world.job_that_is("running")
    any_world.client.zadd(f"{any_world.queue_key()}:_running", {job.ident: 5})
    found = job.claim_state()
    assert found.left is not None
    assert (found.left < 0, found.is_held) == (True, False)
    any_world.client.delete(f"{any_world.queue_key()}:_running")
    any_world.client.set(f"{any_world.queue_key()}:_running", "foreign")
    assert job.claim_state().left is None
