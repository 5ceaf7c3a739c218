"""ask_signal: the code of a running job asks for a signal, and its deadline begins."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
import redis
from flow_kinds import MODELS, Asking
from invariants import violations

from limpyd_jobs import ClaimLost, SignalTimeout, send_signal, transitions
from limpyd_jobs.arguments import delay_argument
from limpyd_jobs.exceptions import JobInterrupted, LimpydJobsException
from limpyd_jobs.redis.calls import send


@pytest.fixture(autouse=True)
def _whole(redis_client: redis.Redis) -> Iterator[None]:
    yield
    assert violations(redis_client, *MODELS) == []


def test_who_lost_the_claim_gets_nothing_and_changes_nothing(redis_client: redis.Redis) -> None:
    job = Asking.add_job()
    send_signal(job, "approval", 1)
    claim = job.claim("me")
    before = redis_client.hgetall(job.key)
    for token, outcome in (("other@me", "refused"), ("", None)):
        if outcome:
            assert transitions.ask_signal(job, token, "approval", "")[0] == outcome
        else:
            with pytest.raises(redis.ResponseError, match="the token is missing"):
                transitions.ask_signal(job, token, "approval", "")
    assert redis_client.hgetall(job.key) == before
    vars(job)["_held_token"] = "lapsed@me"
    with pytest.raises(ClaimLost):
        job.wait_for("approval")
    claim.release()
    other = Asking.lazy_connect(job.pk.get())
    job.delete()
    assert transitions.ask_signal(other, "token", "approval", "")[0] == "gone"


def test_the_code_of_a_job_may_ask_again_but_for_nothing_else_before_it_waits() -> None:
    job = Asking.add_job()
    with job.claim("me"):
        for name, kind in (("approval", JobInterrupted), ("other", LimpydJobsException), ("approval", JobInterrupted)):
            with pytest.raises(kind, match=name):
                job.wait_for(name, timeout=100)
        raise JobInterrupted("it waits", waits="signal approval")
    assert job.hmget("status", "delayed_until")[0] == "d"
    assert send_signal(job, "other", 1) == "kept"
    assert send_signal(job, "approval", 2) == "received"


def test_a_deadline_that_is_over_is_remembered(redis_client: redis.Redis) -> None:
    job = Asking.add_job()
    with job.claim("me") as claim:
        assert (
            transitions.ask_signal(job, vars(job)["_held_token"], "approval", "0 1970-01-01 00:00:00")[0] == "in vain"
        )
        with pytest.raises(SignalTimeout, match="The signal 'approval' did not come in time"):
            job.wait_for("approval")
        assert send_signal(job, "approval") == "late"
        claim.release()


@pytest.mark.parametrize("deadline", ["", delay_argument(100, None)])
def test_a_job_that_waits_keeps_little_and_may_be_released_once_more(deadline: str, redis_client: redis.Redis) -> None:
    job = Asking.add_job()
    claim = job.claim("me")
    token, key = vars(job)["_held_token"], job._queue_key.hget()
    assert transitions.ask_signal(job, token, "approval", deadline)[0] == "waits"
    release = transitions.release.call(Asking, job.ident, token, key, waits="signal approval")
    before = send(release)
    stored = redis_client.hgetall(job.key)
    assert (before["outcome"], stored["status"]) == ("done", "d")
    assert stored.keys().isdisjoint({"_last_claim", "_claim_token", "start", "tries"})
    assert stored["_waits"].partition("\n")[0] == (stored["delayed_until"] if deadline else "")
    assert send(release) == before  # the reply was lost
    assert redis_client.hgetall(job.key) == stored
    claim.renew()  # it was sent before
    other = transitions.release.call(Asking, job.ident, f"other{token}", key, waits="signal approval")
    with pytest.raises(ClaimLost):
        send(other)
    assert redis_client.hgetall(job.key) == stored
    assert send_signal(job, "approval", 1) == "received"
    assert (job.status.hget(), job._waits.hget()) == ("w", None)
