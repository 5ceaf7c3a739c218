"""requeue_flow: what failed or was canceled in a flow runs again, in its order."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
import redis
from flow_kinds import MODELS, Page, Report
from invariants import violations

from limpyd_jobs import Flow, LimpydJobsException, Queue


@pytest.fixture(autouse=True)
def _whole(redis_client: redis.Redis) -> Iterator[None]:
    yield
    assert violations(redis_client, *MODELS) == []


def flow_of(number: int) -> Flow:
    with Flow("report:7") as flow:
        pages = [flow.add(Page.prepare()) for _ in range(number)]
        flow.add(Report.prepare(), after=pages)
    return flow


@pytest.mark.parametrize("number", [3, 120])
def test_only_what_failed_runs_again_and_what_comes_after_it(number: int, redis_client: redis.Redis) -> None:
    flow = flow_of(number)
    *pages, report = (node.job for node in flow._nodes)
    for page in pages[:-1]:
        page.claim("me").succeed()
    pages[-1].claim("me").fail(ValueError("no paper"))
    assert [node.state for node in flow.nodes()] == [*["success"] * (number - 1), "error", "canceled"]
    flow.requeue()
    assert [node.state for node in flow.nodes()] == [*["success"] * (number - 1), "waiting", "waiting for others"]
    pages[-1].claim("me").succeed()
    report.claim("me").succeed()
    assert flow.state()[:3] == ("ended", 0, 0)


def test_a_flow_that_was_canceled_begins_where_it_was(redis_client: redis.Redis) -> None:
    flow = flow_of(3)
    *pages, report = (node.job for node in flow._nodes)
    pages[0].claim("me").succeed()
    flow.cancel()
    flow.requeue()
    assert [node.state for node in flow.nodes()] == ["success", "waiting", "waiting", "waiting for others"]
    assert Queue.count_waiting_jobs("pages") == 2
    for page in pages[1:]:
        page.claim("me").succeed()
    report.claim("me").succeed()
    assert flow.state() == ("ended", 0, 0, 4, "")


def test_requeue_all_does_not_run_what_waits_for_a_failed_job(redis_client: redis.Redis) -> None:
    flow = flow_of(1)
    page, report = (node.job for node in flow._nodes)
    page.claim("me").fail(ValueError("no paper"))
    assert Report.collection().requeue_all().done == 0
    assert Page.collection().requeue_all().done == 1
    page.claim("me").succeed()
    assert [node.state for node in flow.nodes()] == ["success", "waiting"]
    report.claim("me").succeed()


def test_a_job_of_an_identifier_that_is_queued_by_now_is_not_put_back(redis_client: redis.Redis) -> None:
    with Flow() as flow:
        page = flow.add(Page.prepare())
        mine = flow.add(Page.prepare(identifier="mine"), after=page)
    page.job.claim("me").fail(ValueError("no paper"))
    Page.add_job("mine")
    flow.requeue()
    page.job.claim("me").succeed()
    assert [node.state for node in flow.nodes()] == ["success", "canceled"]
    assert mine.job.cancel_reason.hget() == "Page failed"


def test_what_is_gone_cannot_be_put_back(redis_client: redis.Redis) -> None:
    flow = flow_of(1)
    flow.cancel()
    redis_client.delete(f"limpyd-jobs:flow:{flow.id}")
    with pytest.raises(LimpydJobsException, match="any more"):
        flow.requeue()
