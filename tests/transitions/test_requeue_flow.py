"""requeue_flow: what failed or was canceled in a flow runs again, in its order."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from typing import Any

import pytest
import redis
from cases import each
from flow_kinds import MODELS, Page, Report
from invariants import violations

from limpyd_jobs import Flow, LimpydJobsException, Queue, chain


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


def fail_and_be_deleted(page: Page) -> None:
    page.claim("me").fail(ValueError("no paper"))
    page.delete()


def fail_and_be_added_again(page: Page) -> None:
    page.claim("me").fail(ValueError("no paper"))
    Page.add_job("mine")


def be_canceled_and_added_again(page: Page) -> None:
    page.cancel()
    Page.add_job("mine")


NOT_PUT_BACK: dict[str, Callable[[Page], None]] = {
    "failed and deleted": fail_and_be_deleted,
    "failed and added again": fail_and_be_added_again,
    "canceled and added again": be_canceled_and_added_again,
}


@each("way", NOT_PUT_BACK)
def test_what_comes_after_a_job_that_cannot_be_put_back_stays_canceled(way: str, redis_client: redis.Redis) -> None:
    redis_client.flushall()
    flow = chain(Page.prepare(identifier="mine"), Report.prepare(), Report.prepare())
    NOT_PUT_BACK[way](flow._nodes[0].job)
    before = flow.state()
    flow.requeue()
    assert [node.state for node in flow.nodes()][1:] == ["canceled", "canceled"]
    assert flow.state() == before == ("ended", 0, 3, 3, "")


@pytest.mark.parametrize("is_other_queued", [False, True])
def test_one_after_many_that_failed_waits_for_them_if_all_are_put_back(
    is_other_queued: bool, redis_client: redis.Redis
) -> None:
    with Flow() as flow:
        pages = [flow.add(Page.prepare(identifier=f"{number}")) for number in range(220)]
        flow.add(Report.prepare(), after=pages)
    flow.cancel()
    if is_other_queued:
        Page.add_job("210")
    flow.requeue()
    states = [node.state for node in flow.nodes()]
    assert states[-1] == ("canceled" if is_other_queued else "waiting for others")
    assert states.count("waiting") == 220 - is_other_queued


def end_by_cancel(flow: Flow) -> None:
    flow.cancel()


def end_by_failures(flow: Flow) -> None:
    for node in flow._nodes[:-1]:
        node.job.claim("me").fail(ValueError("no paper"))


def end_by_failures_and_cancel(flow: Flow) -> None:
    end_by_failures(flow)
    flow.cancel()


def end_by_failures_of_all(flow: Flow) -> None:
    end_by_failures(flow)
    flow._nodes[-1].job.claim("me").fail(ValueError("no pages"))


ENDINGS = {
    "canceled": end_by_cancel,
    "canceled once it may run": end_by_failures_and_cancel,
    "failed": end_by_failures_of_all,
}


@each("ending", ENDINGS)
@pytest.mark.parametrize("turn", [None, "customer:7"])
def test_one_that_runs_whatever_became_of_others_waits_for_them_again(
    turn: str | None, ending: str, redis_client: redis.Redis
) -> None:
    redis_client.flushall()
    with Flow(one_at_a_time=turn) as flow:
        pages = [flow.add(Page.prepare()) for _ in range(3)]
        report = flow.add(Report.prepare(), after=pages, on_error="run")
    for _ in range(2):
        ENDINGS[ending](flow)
        assert flow.state()[0] == "ended"
        flow.requeue()
        assert [node.state for node in flow.nodes()] == [*["waiting"] * 3, "waiting for others"]
    pages[0].job.claim("me").fail(ValueError("no paper"))
    pages[1].job.delete()
    assert flow.nodes()[3].state == "waiting for others"
    pages[2].job.claim("me").succeed()
    assert flow.nodes()[3].state == "waiting"
    report.job.claim("me").succeed()
    assert flow.state()[:3] == ("ended", 0, 2)


@each("ending", ENDINGS)
def test_one_that_runs_whatever_became_of_others_does_not_wait_for_what_is_not_put_back(
    ending: str, redis_client: redis.Redis
) -> None:
    redis_client.flushall()
    with Flow() as flow:
        page = flow.add(Page.prepare(identifier="mine"))
        report = flow.add(Report.prepare(), after=page, on_error="run")
    ENDINGS[ending](flow)
    Page.add_job("mine")
    flow.requeue()
    assert flow.nodes()[1].state == "waiting"
    report.job.claim("me").succeed()


def test_it_waits_for_many_again_in_steps(
    redis_client: redis.Redis, commands: Callable[[], AbstractContextManager[Any]]
) -> None:
    with Flow() as flow:
        pages = [flow.add(Page.prepare()) for _ in range(1500)]
        for _ in range(2):
            flow.add(Report.prepare(), after=pages, on_error="run")
    flow.cancel()
    chain(Page.prepare()).requeue()  # Redis knows the scripts from now on
    with commands() as sent:
        flow.requeue()
    steps = 31 + 2  # 50 jobs each; and one more for each thousand that is waited for
    assert sent.names == ["EVALSHA"] * (2 + steps)
    assert [node.state for node in flow.nodes()][-2:] == ["waiting for others"] * 2
    assert redis_client.zcard(f"limpyd-jobs:flow:{flow.id}:after") == 3000
    flow.cancel()


@each("text", ["1-99999999", "2,3,4", "x", "-", "1,1,1"])
def test_what_another_program_wrote_lets_it_wait_for_nothing_else(text: str, redis_client: redis.Redis) -> None:
    redis_client.flushall()
    with Flow() as flow:
        page = flow.add(Page.prepare())
        report = flow.add(Report.prepare(), after=page, on_error="run")
    flow.cancel()
    redis_client.hset(report.job.key, "_after", text)
    flow.requeue()
    page.job.claim("me").succeed()
    assert flow.nodes()[1].state == "waiting"
    report.job.claim("me").succeed()


def test_what_is_gone_cannot_be_put_back(redis_client: redis.Redis) -> None:
    flow = flow_of(1)
    flow.cancel()
    redis_client.delete(f"limpyd-jobs:flow:{flow.id}")
    with pytest.raises(LimpydJobsException, match="any more"):
        flow.requeue()
