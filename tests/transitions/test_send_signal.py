"""send_signal: a job that waits for a signal is put in its queue in the step that sends it; else it is kept."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest
import redis
from cases import each
from flow_kinds import MODELS, Asking, Page
from invariants import violations
from running import work

from limpyd_jobs import STATUSES, chain, send_signal


@pytest.fixture(autouse=True)
def _whole(redis_client: redis.Redis) -> Iterator[None]:
    yield
    assert violations(redis_client, *MODELS) == []


def waiting(job: Asking) -> None:
    with job.claim("me"):
        job.run(None)


def lost(job: Asking) -> None:
    job.claim("me")


STATES: dict[str, tuple[Callable[[Asking], Any], str, str]] = {
    "it waits in its queue": (lambda job: None, "kept", STATUSES.WAITING),
    "it is delayed": (lambda job: job.enqueue_or_delay(delayed_until="2099-01-01 00:00:00"), "kept", STATUSES.DELAYED),
    "it runs": (lambda job: job.claim("me"), "kept", STATUSES.RUNNING),
    "it waits for the signal": (waiting, "received", STATUSES.WAITING),
    "it failed": (lambda job: job.claim("me").fail(ValueError("no")), "kept", STATUSES.ERROR),
    "it succeeded": (lambda job: job.claim("me").succeed(), "ended", STATUSES.SUCCESS),
    "it was canceled": (lambda job: job.cancel(), "ended", STATUSES.CANCELED),
}


@each("state", STATES)
def test_what_becomes_of_it_in_each_state(state: str, redis_client: redis.Redis) -> None:
    act, outcome, status = STATES[state]
    job = Asking.add_job()
    act(job)
    assert send_signal(job, "approval", 1) == outcome
    assert job.status.hget() == status
    job.delete()


def test_a_job_that_was_canceled_because_another_failed_keeps_it_for_when_it_is_revived() -> None:
    flow = chain(Page.prepare(does="fail"), Asking.prepare())
    work("pages", callback=None)
    page, asking = (each.ident for each in flow.nodes())
    assert send_signal(asking, "approval", "yes") == "kept"
    Page.get_from_ident(page).does.hset("succeed")
    flow.requeue()
    work("pages,asking", max_loops=2, callback=None)
    assert flow.result(0) == "yes"


def test_a_list_of_another_type_refuses_it_and_it_may_be_sent_again(redis_client: redis.Redis) -> None:
    job = Asking.add_job()
    waiting(job)
    redis_client.set(f"{job.queue_key.hget()}:waiting", "text")
    with pytest.raises(redis.ResponseError, match="WRONGTYPE"):
        send_signal(job, "approval", 1)
    assert job.signals.hget() is None
    redis_client.delete(f"{job.queue_key.hget()}:waiting")
    assert send_signal(job, "approval", 1) == "received"


@each("waits", ["x", "x\nsignal approval\n", ""])
def test_a_job_whose_wait_cannot_be_read_is_placed_to_ask_again(waits: str) -> None:
    job = Asking.add_job()
    waiting(job)
    job.waits.hset(waits)
    assert send_signal(job, "approval", 1) == "received"
