"""step_flow: a step that is too long for one goes on in others, of which any process may do the next one."""

from __future__ import annotations

import logging
from collections.abc import Iterator

import pytest
import redis
from cases import each
from flow_kinds import MODELS, Page, Report
from invariants import violations
from parts import run_task
from running import worker_of

from limpyd_jobs import STATUSES, Flow, Queue, chain
from limpyd_jobs.redis import calls

NUMBER = 120  # more than two steps


@pytest.fixture(autouse=True)
def _whole(redis_client: redis.Redis) -> Iterator[None]:
    yield
    assert violations(redis_client, *MODELS) == []


@pytest.fixture
def dead_caller(monkeypatch: pytest.MonkeyPatch) -> None:
    """Who ends a job is killed before it can go on."""
    monkeypatch.setattr(calls, "go_on_with", lambda sender, flows: None)


def fan() -> Flow:
    with Flow() as flow:
        first = flow.add(Page.prepare())
        for _ in range(NUMBER):
            flow.add(Page.prepare(), after=first)
    return flow


def look_after_flows() -> None:
    """What a worker does when it looks for lapsed leases."""
    worker = worker_of("pages,reports")
    worker.update_keys()
    run_task(worker, "rescuer")
    run_task(worker, "flow_keeper")


def test_all_that_come_after_a_job_begin(redis_client: redis.Redis) -> None:
    flow = fan()
    flow._nodes[0].job.claim("me").succeed()
    assert Queue.count_waiting_jobs("pages") == NUMBER
    assert redis_client.exists(f"limpyd-jobs:flow:{flow.id}:todo", "limpyd-jobs:flows:todo") == 0


@pytest.mark.usefixtures("dead_caller")
def test_what_a_process_left_when_it_died_is_done_by_a_worker(redis_client: redis.Redis) -> None:
    flow = fan()
    flow._nodes[0].job.claim("me").succeed()
    assert Queue.count_waiting_jobs("pages") == 50
    look_after_flows()
    assert Queue.count_waiting_jobs("pages") == NUMBER
    assert flow.state()[:2] == ("running", NUMBER)


@pytest.mark.usefixtures("dead_caller")
def test_a_flow_has_not_ended_while_something_is_left_to_do(redis_client: redis.Redis) -> None:
    flow = chain(*(Page.prepare() for _ in range(NUMBER)))
    flow._nodes[0].job.cancel()
    assert flow.state().state == "running"
    look_after_flows()
    assert flow.state() == ("ended", 0, NUMBER, NUMBER, "")
    assert {node.state for node in flow.nodes()} == {"canceled"}
    assert flow.nodes()[-1].reason == f"Page {NUMBER - 1} was canceled"


def test_what_failed_in_a_long_chain_is_revived_one_after_the_other(redis_client: redis.Redis) -> None:
    flow = chain(*(Page.prepare() for _ in range(3)), Report.prepare())
    first, *others = (node.job for node in flow._nodes)
    first.claim("me").fail(ValueError("no paper"))
    assert [node.state for node in flow.nodes()] == ["error", "canceled", "canceled", "canceled"]
    first.requeue()
    assert flow.state()[:3] == ("running", 1, 3)
    first.claim("me").succeed()
    for job in others:
        job.claim("me").succeed()
    assert flow.state()[:3] == ("ended", 0, 0)


def flow_that_missed_an_end(client: redis.Redis) -> Flow:
    client.flushall()
    flow = chain(Page.prepare(), Report.prepare())
    client.hdel(flow._nodes[0].job.key, "_flow")
    flow._nodes[0].job.cancel()
    return flow


@each("wrong, listed", [("", "building"), (":nodes", "building"), ("", "live"), (":open", "live"), (":todo", "todo")])
def test_a_key_of_a_wrong_type_keeps_no_other_flow_waiting(wrong: str, listed: str, redis_client: redis.Redis) -> None:
    flow = flow_that_missed_an_end(redis_client)
    redis_client.set(f"limpyd-jobs:flow:aaa{wrong}", "x")
    redis_client.zadd(f"limpyd-jobs:flows:{listed}", {"aaa": 0})
    look_after_flows()
    assert flow._nodes[1].job.status.hget() == STATUSES.CANCELED


@each("key", ["limpyd-jobs:flows:todo", "limpyd-jobs:flows:building"])
def test_a_list_of_flows_of_a_wrong_type_keeps_no_flow_waiting(key: str, redis_client: redis.Redis) -> None:
    flow = flow_that_missed_an_end(redis_client)
    redis_client.set(key, "x")
    look_after_flows()
    assert flow._nodes[1].job.status.hget() == STATUSES.CANCELED


@each("listed, key", [("building", ""), ("live", ""), ("live", ":open")])
def test_the_id_of_a_flow_forges_no_line_of_the_log(
    listed: str, key: str, redis_client: redis.Redis, caplog: pytest.LogCaptureFixture
) -> None:
    flow_that_missed_an_end(redis_client)
    redis_client.zadd(f"limpyd-jobs:flows:{listed}", {"aaa\n[1] INFO forged\x1b[31m": 0})
    redis_client.set(f"limpyd-jobs:flow:aaa\n[1] INFO forged\x1b[31m{key}", "x")
    with caplog.at_level(logging.INFO, "limpyd-jobs"):
        look_after_flows()
    assert any("aaa" in message for message in caplog.messages)
    assert not [message for message in caplog.messages if "\n" in message or "\x1b" in message]
