"""cancel_flow: all that is left of a flow is canceled, also what runs."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from typing import Any

import pytest
import redis
from flow_kinds import MODELS, Page, Report
from invariants import violations

from limpyd_jobs import STATUSES, Flow, LimpydJobsException, Queue, transitions
from limpyd_jobs.redis.calls import run, send
from limpyd_jobs.redis.scripting import Script


@pytest.fixture(autouse=True)
def _whole(redis_client: redis.Redis) -> Iterator[None]:
    yield
    assert violations(redis_client, *MODELS) == []


@pytest.mark.parametrize("number", [3, 120])
def test_all_that_has_not_ended_is_canceled(number: int, redis_client: redis.Redis) -> None:
    with Flow(on_error="run") as flow:
        pages = [flow.add(Page.prepare()) for _ in range(number)]
        report = flow.add(Report.prepare(), after=pages)
    pages[0].job.claim("me").succeed()
    running = pages[1].job.claim("me")
    assert flow.cancel()
    assert [node.state for node in flow.nodes()][2:] == ["canceled"] * (number - 1)
    assert flow.state()[:2] == ("running", 1)
    assert pages[1].job.status.hget() == STATUSES.CANCELED
    running.cancel()
    assert report.job.status.hget() == STATUSES.CANCELED
    assert report.job.cancel_reason.hget() == "its flow was canceled"
    assert flow.state() == ("ended", 0, number, number + 1, "its flow was canceled")
    assert not flow.cancel()


def test_its_jobs_leave_a_long_list_in_several_steps(redis_client: redis.Redis) -> None:
    with Flow() as flow:
        pages = [flow.add(Page.prepare()) for _ in range(3)]
    key = f"{Queue.get_queue('pages').key.removesuffix(':hash')}:waiting"
    others = ["of another flow"] * 25_000
    redis_client.rpush(key, *others)
    twice = pages[0].job.ident
    redis_client.lpush(key, twice)  # what is left of it is passed over
    assert flow.cancel()
    assert flow.state()[:2] == ("ended", 0)
    assert redis_client.lrange(key, 0, -1) == [twice, *others]
    redis_client.delete(key)


def test_a_requeue_that_goes_on_is_given_up(
    redis_client: redis.Redis, commands: Callable[[], AbstractContextManager[Any]]
) -> None:
    with Flow() as flow:
        pages = [flow.add(Page.prepare()) for _ in range(120)]
    flow.cancel()
    requeue = transitions.requeue_flow(redis_client, flow.id)
    for script, words in ((requeue.script, requeue.words()), (Script("flows/step_flow"), [flow.id])):
        run(script, redis_client, (), words)
    assert [page.job.status.hget() == STATUSES.WAITING for page in pages] == [True] * 50 + [False] * 70
    with commands() as sent:
        send(transitions.cancel_flow(redis_client, flow.id, "enough"))
    assert sent.names == ["EVALSHA"] * 5  # three steps for its jobs, and one that gives up
    assert flow.state() == ("ended", 0, 120, 120, "enough")


@pytest.mark.parametrize("runs_on", [False, True])
def test_a_job_that_was_put_back_since_is_canceled_too(runs_on: bool, redis_client: redis.Redis) -> None:
    with Flow() as flow:
        failed, other = (flow.add(Page.prepare()) for _ in range(2))
    failed.job.claim("me").fail(ValueError("no"))
    held = other.job.claim("me") if runs_on else None
    assert flow.cancel()
    failed.job.requeue()
    assert flow.state()[:2] == ("running", 1 + runs_on)
    assert flow.cancel()
    assert failed.job.status.hget() == STATUSES.CANCELED
    if held:
        held.cancel()
    assert flow.state() == ("ended", 0, 2, 2, "its flow was canceled")


def test_a_cancel_whose_process_died_is_made_to_its_end_by_the_next_one(redis_client: redis.Redis) -> None:
    with Flow() as flow:
        pages = [flow.add(Page.prepare()) for _ in range(120)]
    cancel = transitions.cancel_flow(redis_client, flow.id, "enough")
    for script, words in ((cancel.script, cancel.words()), (Script("flows/step_flow"), [flow.id])):
        run(script, redis_client, (), words)
    assert flow.cancel()
    assert {page.job.status.hget() for page in pages} == {STATUSES.CANCELED}
    assert flow.state() == ("ended", 0, 120, 120, "enough")


@pytest.mark.parametrize("on_error", ["fail", "cancel"])
def test_what_comes_after_a_job_that_is_put_back_is_revived(on_error: str, redis_client: redis.Redis) -> None:
    with Flow() as flow:
        page, other = (flow.add(Page.prepare()) for _ in range(2))
        report = flow.add(Report.prepare(), after=page, on_error=on_error)
    page.job.claim("me").fail(ValueError("no"))
    flow.cancel()
    assert report.job.status.hget() == other.job.status.hget() == STATUSES.CANCELED
    page.job.requeue()
    page.job.claim("me").succeed()
    assert report.job.status.hget() == STATUSES.WAITING
    assert flow.state() == ("running", 1, 1, 3, "")
    report.job.claim("me").succeed()


def test_a_requeue_of_one_that_has_ended_puts_nothing_back_after_that() -> None:
    with Flow() as flow:
        page = flow.add(Page.prepare())
    flow.cancel()
    requeue = transitions.requeue_flow(flow._client, flow.id)
    run(requeue.script, flow._client, (), requeue.words())
    assert flow.cancel()
    assert page.job.status.hget() == STATUSES.CANCELED
    assert flow.state()[:2] == ("ended", 0)
    flow.requeue()
    assert page.job.status.hget() == STATUSES.WAITING
    flow.cancel()


def test_what_is_gone_cannot_be_canceled(redis_client: redis.Redis) -> None:
    with Flow() as flow:
        page = flow.add(Page.prepare())
    redis_client.delete(f"limpyd-jobs:flow:{flow.id}")
    with pytest.raises(LimpydJobsException, match=f"There is no <flow {flow.id}> any more"):
        flow.cancel()
    page.job.claim("me").succeed()
