"""signal_flow: all jobs of a flow that wait for a signal are put in their queues."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
import redis
from flow_kinds import MODELS, Asking
from invariants import violations
from running import work

from limpyd_jobs import Flow, LimpydJobsException, send_signal, transitions
from limpyd_jobs.redis.calls import send


@pytest.fixture(autouse=True)
def _whole(redis_client: redis.Redis) -> Iterator[None]:
    yield
    assert violations(redis_client, *MODELS) == []


def a_flow(number: int) -> Flow:
    with Flow() as flow:
        for _ in range(number):
            flow.add(Asking.prepare())
    work("asking", max_loops=number, callback=None, prefetch=20)
    assert {node.state for node in flow.nodes()} == {"waiting for a signal"}
    return flow


def test_it_reaches_all_of_a_large_flow_in_several_steps(redis_client: redis.Redis) -> None:
    flow = a_flow(120)
    redis_client.config_resetstat()
    assert send_signal(flow, "approval", 1) == "received"
    assert redis_client.info("commandstats")["cmdstat_evalsha"]["calls"] >= 3
    assert {node.state for node in flow.nodes()} == {"waiting"}


def test_a_job_that_it_missed_is_found_by_the_maintenance_of_workers(redis_client: redis.Redis) -> None:
    flow = a_flow(2)
    redis_client.delete(f"limpyd-jobs:flow:{flow.id}:waiters")
    assert send_signal(flow, "approval", 1) == "kept"
    assert sorted(send(transitions.tend_flow(redis_client, flow.id))[1]) == ["1", "2"]
    assert {node.state for node in flow.nodes()} == {"waiting"}


def test_a_flow_that_ended_or_is_full_refuses_it(redis_client: redis.Redis) -> None:
    flow = a_flow(1)
    redis_client.hset(
        f"limpyd-jobs:flow:{flow.id}:signals", mapping={f"signal {number}": "1" for number in range(1000)}
    )
    with pytest.raises(LimpydJobsException, match="has too many"):
        send_signal(flow, "approval", 1)
    flow.cancel()
    assert send_signal(flow, "approval", 1) == "ended"
    redis_client.delete(*redis_client.keys(f"limpyd-jobs:flow:{flow.id}*"))
    with pytest.raises(LimpydJobsException, match="There is no"):
        send_signal(flow, "approval", 1)
