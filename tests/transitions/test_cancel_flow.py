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


def test_what_is_gone_cannot_be_canceled(redis_client: redis.Redis) -> None:
    with Flow() as flow:
        page = flow.add(Page.prepare())
    redis_client.delete(f"limpyd-jobs:flow:{flow.id}")
    with pytest.raises(LimpydJobsException, match=f"There is no <flow {flow.id}> any more"):
        flow.cancel()
    page.job.claim("me").succeed()
