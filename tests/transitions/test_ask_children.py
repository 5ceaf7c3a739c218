"""ask_children: the code of a running job asks for what it spawned."""

from __future__ import annotations

import pytest
import redis
from flow_kinds import Page, Spawning

from limpyd_jobs import ClaimLost, LimpydJobsException, transitions
from limpyd_jobs.exceptions import JobInterrupted


def test_who_lost_the_claim_changes_nothing(redis_client: redis.Redis) -> None:
    job = Spawning.add_job()
    with job.claim("me") as claim:
        job.spawn(Page.prepare())
        before = redis_client.hgetall(job.key)
        assert transitions.ask_children(job, "other@me", "spawn")[0] == "refused"
        assert redis_client.hgetall(job.key) == before
        token, vars(job)["_held_token"] = vars(job)["_held_token"], "lapsed@me"
        with pytest.raises(ClaimLost):
            job.children_results()
        vars(job)["_held_token"] = token
        with pytest.raises(JobInterrupted):
            job.children_results()
        claim.cancel()


def test_children_that_another_program_deleted_are_missed(redis_client: redis.Redis) -> None:
    job = Spawning.add_job()
    with job.claim("me") as claim:
        job.spawn(Page.prepare())
        redis_client.delete(*redis_client.keys("limpyd-jobs:flow:*"))
        with pytest.raises(LimpydJobsException, match="is not kept any more"):
            job.children_results()
        claim.cancel()
