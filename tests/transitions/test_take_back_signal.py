"""take_back_signal: a signal is forgotten that no job has asked for."""

from __future__ import annotations

import pytest
import redis
from flow_kinds import Asking, Page

from limpyd_jobs import JobGone, LimpydJobsException, chain, send_signal, take_back_signal


def test_what_is_not_there_is_said(redis_client: redis.Redis) -> None:
    job, flow = Asking.add_job(), chain(Page.prepare())
    for to in (job, flow):
        with pytest.raises(LimpydJobsException, match="There is no signal 'approval' of "):
            take_back_signal(to, "approval")
    flow.cancel()
    redis_client.delete(f"limpyd-jobs:flow:{flow.id}")
    with pytest.raises(LimpydJobsException, match="or no longer"):
        take_back_signal(flow, "approval")
    Asking.get(job.pk.get()).delete()
    with pytest.raises(JobGone):
        take_back_signal(job.ident, "approval")


@pytest.mark.usefixtures("redis_client")
def test_one_that_a_job_was_placed_for_cannot_be_taken_back() -> None:
    job = Asking.add_job()
    with job.claim("me"):
        job.run(None)
    assert send_signal(job, "approval", "yes") == "received"
    assert not take_back_signal(job, "approval")
    with job.claim("me"):
        assert job.run(None) == "yes"
    job.delete()
