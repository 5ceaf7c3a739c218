"""Flows of which one runs at a time."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import redis
from cases import each
from flow_kinds import Asking, Page, Report
from running import work

from limpyd_jobs import Flow, LimpydJobsException, chain, send_signal, transitions
from limpyd_jobs.flows import flows_of
from limpyd_jobs.models.calls.building import STEP_SIZE
from limpyd_jobs.redis.calls import send

pytestmark = pytest.mark.usefixtures("redis_client")

TURN = "limpyd-jobs:flows:turn:customer:7"


def a_flow(turn: str = "customer:7", does: str = "succeed", **options: Any) -> Flow:
    return chain(Page.prepare(number=1, does=does), Report.prepare(), one_at_a_time=turn, **options)


def run(number: int, queues: str = "pages,reports") -> None:
    work(queues, max_loops=number, callback=None, logger_level=60)


def states(*flows: Flow) -> list[str]:
    return [flow.state().state for flow in flows]


def nodes(flow: Flow) -> list[str]:
    return [node.state for node in flow.nodes()]


def tend(client: redis.Redis, flow: Flow) -> None:
    send(transitions.tend_flow(client, flow.id))


class TestTurns:
    def test_the_next_one_begins_with_the_end_of_the_one_before_in_their_sequence(
        self, redis_client: redis.Redis
    ) -> None:
        first, second, third = (a_flow() for _ in range(3))
        other = a_flow("customer:8")
        assert states(first, second, third, other) == ["running", "held", "held", "running"]
        assert nodes(second) == ["waiting for others"] * 2
        assert not second.wait(0)
        other.cancel()
        run(2)
        assert states(first, second, third) == ["ended", "running", "held"]
        assert nodes(second) == ["waiting", "waiting for others"]
        run(4)
        assert third.result(0) == {"Page": 1}
        assert not redis_client.exists(TURN)

    ENDS: dict[str, Callable[[Flow], Any]] = {
        "canceled": lambda flow: flow.cancel(),
        "failed": lambda flow: flow._nodes[0].job.claim().fail(ValueError("no paper")),
        "deleted": lambda flow: [node.job.delete() for node in flow._nodes],
    }

    @each("how", ENDS)
    def test_any_end_lets_the_next_one_begin(self, how: str) -> None:
        first, second = a_flow(), a_flow()
        self.ENDS[how](first)
        assert states(first, second) == ["ended", "running"]
        second.cancel()

    def test_one_that_is_canceled_while_it_is_held_never_begins(self) -> None:
        first, second, third = (a_flow() for _ in range(3))
        assert second.cancel()
        assert states(first, second, third) == ["running", "ended", "held"]
        first.cancel()
        assert states(third) == ["running"]

    def test_what_ended_of_one_that_is_held_is_followed_once_it_begins(self) -> None:
        _, second = a_flow(), a_flow(on_error="run")
        second._nodes[0].job.cancel()
        assert nodes(second) == ["canceled", "waiting for others"]
        run(3)
        assert nodes(second) == ["canceled", "success"]

    def test_a_large_one_is_held_as_well(self) -> None:
        first = a_flow()
        with Flow(one_at_a_time="customer:7") as second:
            for _ in range(STEP_SIZE + 1):
                second.add(Page.prepare())
        assert {*nodes(second)} == {"waiting for others"}
        first.cancel()
        assert {*nodes(second)} == {"waiting"}

    def test_a_signal_comes_to_one_that_is_held(self) -> None:
        first = a_flow()
        second = chain(Asking.prepare(), one_at_a_time="customer:7")
        assert send_signal(second, "approval", "yes") == "kept"
        first.cancel()
        run(1, "asking")
        assert second.result(0) == "yes"


class TestRequeue:
    def test_one_that_is_put_back_waits_for_its_turn_again(self) -> None:
        first, second = a_flow(does="fail"), a_flow()
        run(1)
        first._nodes[0].job.does.hset("succeed")
        first.requeue()
        assert (states(first, second), nodes(first)) == (["held", "running"], ["error", "canceled"])
        run(2)
        assert (states(first), nodes(first)) == (["running"], ["waiting", "waiting for others"])
        run(2)
        assert nodes(first) == ["success", "success"]

    def test_one_that_is_put_back_while_none_runs_runs_at_once(self, redis_client: redis.Redis) -> None:
        first = a_flow(does="fail")
        run(1)
        first.requeue()
        assert nodes(first) == ["waiting", "waiting for others"]
        second = a_flow()
        assert states(second) == ["held"]
        first.cancel()
        assert states(second) == ["running"]
        second.cancel()
        assert not redis_client.exists(TURN)

    def test_one_that_is_put_back_and_canceled_again_is_over(self) -> None:
        first, second = a_flow(does="fail"), a_flow()
        run(1)
        first.requeue()
        first.requeue()
        assert first.cancel()
        assert states(first, second) == ["ended", "running"]
        second.cancel()

    @pytest.mark.parametrize("by_hand", [False, True])
    def test_one_that_was_canceled_while_it_was_held_runs_when_it_is_put_back(self, by_hand: bool) -> None:
        first = a_flow()
        with Flow(one_at_a_time="customer:7") as second:
            pages = [second.add(Page.prepare(number=number)) for number in range(2)]
        assert second.cancel()
        first.cancel()
        if by_hand:
            pages[0].job.enqueue_or_delay()
        second.requeue()
        third = a_flow()
        assert (states(second, third), nodes(second)) == (["running", "held"], ["waiting", "waiting"])
        second.cancel()
        assert states(third) == ["running"]

    def test_one_that_was_put_back_and_canceled_before_its_turn_can_be_put_back_once_more(self) -> None:
        first, second = a_flow(does="fail"), a_flow()
        run(1)
        first.requeue()
        assert first.cancel()
        second.cancel()
        first.requeue()
        assert (states(first), nodes(first)) == (["running"], ["waiting", "waiting for others"])

    def test_a_job_that_is_put_back_by_hand_runs_at_once_and_the_next_flow_waits_for_it(self) -> None:
        first, second, third = a_flow(does="fail"), a_flow(), a_flow()
        run(1)
        first._nodes[0].job.requeue()
        assert states(first, second, third) == ["running", "running", "held"]
        second.cancel()
        assert states(third) == ["held"]
        first.cancel()
        assert states(third) == ["running"]


class TestCare:
    def test_what_other_programs_delete_is_made_up_for(self, redis_client: redis.Redis) -> None:
        first, second, third = (a_flow() for _ in range(3))
        redis_client.delete(f"limpyd-jobs:flow:{first.id}")
        tend(redis_client, second)
        assert states(second, third) == ["running", "held"]
        redis_client.delete(TURN)
        for flow in (second, third):
            tend(redis_client, flow)
        assert states(second, third) == ["running", "held"]
        second.cancel()
        assert states(third) == ["running"]
        for node in first._nodes:
            node.job.delete()
        redis_client.delete(*redis_client.keys(f"limpyd-jobs:flow:{first.id}*"))
        redis_client.zrem("limpyd-jobs:flows:live", first.id)

    def test_a_list_of_another_type_refuses_new_ones_and_keeps_no_flow_from_ending(
        self, redis_client: redis.Redis
    ) -> None:
        first, second = a_flow(), a_flow()
        redis_client.delete(TURN)
        redis_client.set(TURN, "x")
        with pytest.raises(redis.ResponseError):
            a_flow(name="refused")
        first.cancel()
        assert states(first, second) == ["ended", "held"]
        redis_client.delete(TURN)
        tend(redis_client, second)
        assert states(second) == ["running"]
        with pytest.raises(LimpydJobsException):
            Flow.find("refused")


def test_it_is_explained_and_listed() -> None:
    first, second, third = a_flow(name="first"), a_flow(), a_flow()
    for node in third._nodes:  # also those that come after others of it
        text = node.job.explain().reasons[0].text
        assert "which is held until first and 1 more, of 'customer:7', has ended" in text
    assert {(each.id, each.state, each.turn) for each in flows_of()} == {
        (first.id, "running", "customer:7"),
        (second.id, "held", "customer:7"),
        (third.id, "held", "customer:7"),
    }


def test_it_takes_a_printable_text_and_no_wait() -> None:
    for wrong, error in ((7, TypeError), ("", ValueError), ("a\n", ValueError)):
        with pytest.raises(error, match="one_at_a_time"):
            Flow(one_at_a_time=wrong)  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="wait_at_most counts from when"):
        Flow(one_at_a_time="a", wait_at_most=60)
    with pytest.raises(ValueError, match="wait_at_most counts from when"):
        Flow(one_at_a_time="a").add(Page.prepare(), wait_at_most=60)
