"""drop_flow: a flow that its maker did not make to its end is no more."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
import redis
from flow_kinds import MODELS, Page
from invariants import contents, violations

from limpyd_jobs import Flow, Queue, chain, transitions
from limpyd_jobs.models.calls.building import STEP_SIZE, Plan, _calls
from limpyd_jobs.redis.calls import send


@pytest.fixture(autouse=True)
def _whole(redis_client: redis.Redis) -> Iterator[None]:
    yield
    assert violations(redis_client, *MODELS) == []


def begun(number: int) -> tuple[Flow, list[object]]:
    """Return a flow of which the first step is made, and the calls of the others."""
    flow = Flow("half")
    pages = [flow.add(Page.prepare()) for _ in range(number)]
    first, *others = _calls(Plan(flow.id, "half", pages))
    send(first)
    return flow, others


def test_nothing_is_left_of_it(redis_client: redis.Redis) -> None:
    flow, _ = begun(2 * STEP_SIZE)
    while send(transitions.drop_flow(redis_client, flow.id)):
        pass
    assert {key for key in contents(redis_client) if key.startswith(Page._name)} == {f"{Page._name}:max_pk"}
    assert Queue.count_delayed_jobs("pages") == 0
    assert [*redis_client.scan_iter("limpyd-jobs:flow*")] == ["limpyd-jobs:flows:classes"]


def test_it_stays_while_its_maker_is_there(redis_client: redis.Redis) -> None:
    flow, others = begun(STEP_SIZE + 1)
    assert not send(transitions.drop_flow(redis_client, flow.id, silent_for=60))
    redis_client.zincrby("limpyd-jobs:flows:building", -61, flow.id)
    assert not send(transitions.drop_flow(redis_client, flow.id, silent_for=60))
    with pytest.raises(Exception, match="so it was dropped: make it again"):
        send(others[0])
    chain(Page.prepare(), name="half")


def test_one_that_is_made_stays(redis_client: redis.Redis) -> None:
    flow = chain(Page.prepare(), Page.prepare())
    assert not send(transitions.drop_flow(redis_client, flow.id))
    assert flow.state()[:2] == ("running", 2)
