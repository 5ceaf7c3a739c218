"""add_flow: the jobs of a flow, in one step or in several."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from datetime import datetime, timedelta
from itertools import pairwise
from typing import Any

import pytest
import redis
from cases import each
from flow_kinds import MODELS, Numbered, Page, Report, add
from invariants import contents, violations

from limpyd_jobs import STATUSES, Flow, LimpydJobsException, Queue, chain
from limpyd_jobs.models.calls.building import EDGES_AT_ONCE, PART_SIZE, STEP_SIZE, Plan, _calls
from limpyd_jobs.redis.calls import send

END_OF_ALL_DATES = datetime(9999, 12, 31, 23, 59, 59)


@pytest.fixture(autouse=True)
def _whole(redis_client: redis.Redis) -> Iterator[None]:
    yield
    assert violations(redis_client, *MODELS) == []


def keys_of_flows(client: redis.Redis) -> set[str]:
    return {key.partition(":")[2] for key in client.keys("limpyd-jobs:flow*")}


def test_the_whole_effect(redis_client: redis.Redis) -> None:
    with Flow("report:7", on_error="run") as flow:
        pages = [flow.add(Page.prepare(number=number)) for number in (1, 2)]
        report = flow.add(Report.prepare(), after=pages, name="the report")
    first, last = pages[0].job, report.job
    stored = redis_client.hgetall(last.key)
    assert redis_client.hmget(first.key, "status", "_flow", "_after", "_waits") == [
        *("w", f"{flow.id} 1 run 3", None, None)
    ]
    assert {name: stored[name] for name in ("status", "queued", "_flow", "_after", "_waits")} == {
        "status": "d",
        "queued": "1",
        "_flow": f"{flow.id} 3 run ",
        "_after": "1-2",
        "_waits": f"{END_OF_ALL_DATES}\nafter\n",
    }
    assert Queue.get_queue("reports").delayed.zscore(last.ident) == 253402300799
    key = f"limpyd-jobs:flow:{flow.id}"
    assert redis_client.hgetall(f"{key}:nodes") == {
        "1": f"{first._name}:1 Page",
        "2": f"{first._name}:2 Page 2",
        "3": f"{last._name}:1 the report",
    }
    assert redis_client.smembers(f"{key}:open") == {"1", "2", "3"}
    assert redis_client.zrange(f"{key}:after", 0, -1) == ["3:1", "3:2"]
    found = redis_client.hgetall(key)
    assert {**found, "added": ""} == {
        "name": "report:7",
        "state": "running",
        "size": "3",
        "final": "3",
        "added": "",
    }
    assert redis_client.get("limpyd-jobs:flows:name:report:7") == flow.id
    assert redis_client.zrange("limpyd-jobs:flows:live", 0, -1) == [flow.id]
    assert {name for name in keys_of_flows(redis_client) if not name.startswith("flow:")} == {
        *("flows:name:report:7", "flows:live", "flows:classes"),
    }


def test_a_job_keeps_its_own_delay_and_waits_for_a_time_only(redis_client: redis.Redis) -> None:
    with Flow(wait_at_most=3600) as flow:
        page = flow.add(Page.prepare(delayed_for=60))
        late = flow.add(Page.prepare(delayed_for=timedelta(days=1)), after=page)
        flow.add(Page.prepare(), after=page, wait_at_most=10)
    now = datetime.fromisoformat(page.job.added.hget())
    dues = [datetime.fromisoformat(node.job.delayed_until.hget()) - now for node in flow._nodes]
    assert dues == [timedelta(seconds=60), timedelta(hours=1), timedelta(seconds=10)]
    page.job.enqueue_or_delay("pages", 0)
    page.job.claim("me").succeed()
    assert datetime.fromisoformat(late.job.delayed_until.hget()) - now == timedelta(days=1)
    assert [node.state for node in flow.nodes()] == ["success", "delayed", "waiting"]


@pytest.mark.parametrize("number", [STEP_SIZE, STEP_SIZE + 1, 2 * STEP_SIZE + 1])
def test_a_large_flow_is_made_in_steps(number: int, redis_client: redis.Redis) -> None:
    with Flow() as flow:
        pages = [flow.add(Page.prepare(number=number)) for number in range(number - 1)]
        flow.add(Report.prepare(), after=pages)
    assert flow.state() == ("running", number, 0, number, "")
    assert Queue.count_waiting_jobs("pages") == number - 1
    assert [node.state for node in flow.nodes()][-1] == "waiting for others"
    assert "flows:todo" not in keys_of_flows(redis_client)


def test_no_job_of_a_large_flow_begins_before_its_last_step(redis_client: redis.Redis) -> None:
    flow = Flow()
    pages = [flow.add(Page.prepare(number=number)) for number in range(STEP_SIZE + 5)]
    *others, last = _calls(Plan(flow.id, "", pages))
    for call in others:
        send(call)
    assert Queue.count_waiting_jobs("pages") == 0
    assert Queue.count_delayed_jobs("pages") == STEP_SIZE
    send(last)
    assert Queue.count_waiting_jobs("pages") == STEP_SIZE + 5


def test_what_comes_after_a_job_that_is_canceled_meanwhile_does_not_begin_before_the_last_step(
    redis_client: redis.Redis,
) -> None:
    flow = Flow(on_error="run")
    first = flow.add(Page.prepare())
    flow.add(Report.prepare(), after=first)
    pages = [flow.add(Page.prepare(number=number)) for number in range(STEP_SIZE)]
    *others, last = _calls(Plan(flow.id, "", flow._nodes))
    pks = [pk for call in others for pk in send(call)]
    Page.get(pks[0]).cancel()
    assert Queue.count_waiting_jobs("reports") == 0
    send(last)
    assert Queue.count_waiting_jobs("pages") == len(pages)
    assert Queue.count_waiting_jobs("reports") == 1


ENDS: dict[str, Callable[[Page], object]] = {
    "canceled": lambda page: page.cancel(),
    "deleted": lambda page: page.delete(),
    "run by hand": lambda page: (page.enqueue_or_delay("pages", 0), page.claim("me").succeed()),
}

# The state of what comes after it, and how many of the other jobs are canceled.
FOLLOWS = {"fail": ("canceled", 0), "run": ("waiting", 0), "cancel": ("canceled", STEP_SIZE)}


@pytest.mark.parametrize("policy", FOLLOWS)
@each("end", ENDS)
def test_the_end_of_a_job_counts_for_those_that_are_made_later(
    end: str, policy: Any, redis_client: redis.Redis
) -> None:
    redis_client.flushall()
    flow = Flow(on_error=policy)
    first = flow.add(Page.prepare())
    early = flow.add(Report.prepare(), after=first)
    for _ in range(STEP_SIZE):
        flow.add(Page.prepare())
    late = flow.add(Report.prepare(), after=first)
    begin, *others = _calls(Plan(flow.id, "", flow._nodes))
    ENDS[end](Page.get(send(begin)[0].rpartition(":")[2]))
    for call in others:
        send(call)
    state, canceled = ("waiting", 0) if end == "run by hand" else FOLLOWS[policy]
    made = Flow.find(flow.id)
    states = {node.number: node.state for node in made.nodes()}
    assert {states[early.number], states[late.number]} == {state}
    if canceled:
        assert made.state()[:3] == ("ended", 0, STEP_SIZE + 3)
    else:
        assert Queue.count_waiting_jobs("pages") == STEP_SIZE


def test_a_step_that_is_sent_again_is_done_once(redis_client: redis.Redis) -> None:
    flow = Flow("twice")
    pages = [flow.add(Page.prepare(number=number)) for number in range(3)]
    (call,) = _calls(Plan(flow.id, "twice", pages))
    assert send(call) == send(call) == ["1", "2", "3"]
    assert Queue.count_waiting_jobs("pages") == 3


def dense_flow(**options: Any) -> Flow:
    """A flow of few jobs of which many come after many others, so that it is not made in one step."""
    flow = Flow(**options)
    pages = [flow.add(Page.prepare(number=number)) for number in range(STEP_SIZE - 45)]
    for _ in range(45):
        flow.add(Report.prepare(), after=pages)
    return flow


def noted(client: redis.Redis, flow: Flow) -> list[str]:
    """What comes after what, as far as that is noted; but for the beginning of a flow."""
    entries: list[str] = client.zrange(f"limpyd-jobs:flow:{flow.id}:after", 0, -1)
    return [each for each in entries if not each.endswith(":0")]


def test_no_step_notes_more_than_so_much_of_what_jobs_come_after(redis_client: redis.Redis) -> None:
    flow = dense_flow()
    expected = sorted(f"{node.number}:{before}" for node in flow._nodes for before in node.after)
    numbers = [0]
    for call in _calls(Plan(flow.id, "", flow._nodes)):
        assert Queue.count_waiting_jobs("pages") == 0
        send(call)
        numbers.append(len(noted(redis_client, flow)))
    assert max(after - before for before, after in pairwise(numbers)) == EDGES_AT_ONCE
    assert sorted(noted(redis_client, flow)) == expected
    assert len(numbers) == 1 + STEP_SIZE // PART_SIZE + len(expected) // EDGES_AT_ONCE
    assert Queue.count_waiting_jobs("pages") == STEP_SIZE - 45
    assert {node.state for node in Flow.find(flow.id).nodes()[-45:]} == {"waiting for others"}


def test_each_step_of_one_may_be_sent_again(redis_client: redis.Redis) -> None:
    flow = dense_flow()
    pks = [pk for call in _calls(Plan(flow.id, "", flow._nodes)) for pk in (send(call), send(call))[1]]
    assert len(pks) == STEP_SIZE
    assert Flow.find(flow.id).state() == ("running", STEP_SIZE, 0, STEP_SIZE, "")
    assert Queue.count_waiting_jobs("pages") == STEP_SIZE - 45


@pytest.mark.parametrize("policy", ["fail", "run"])
@each("end", ENDS)
def test_an_end_counts_that_comes_before_it_is_noted_what_comes_after_it(
    end: str, policy: Any, redis_client: redis.Redis
) -> None:
    redis_client.flushall()
    flow = dense_flow(on_error=policy)
    *others, last = _calls(Plan(flow.id, "", flow._nodes))
    pks = [pk for call in others for pk in send(call)]
    ENDS[end](Page.get(pks[STEP_SIZE - 46]))
    send(last)
    state = "canceled" if policy == "fail" and end != "run by hand" else "waiting for others"
    made = Flow.find(flow.id)
    assert {node.state for node in made.nodes()[-45:]} == {state}
    for pk in pks[: STEP_SIZE - 46]:
        Page.get(pk).claim("me").succeed()
    state = "canceled" if state == "canceled" else "waiting"
    assert {node.state for node in made.nodes()[-45:]} == {state}


REFUSED = {
    "name taken": "A flow of the name 'taken' runs already",
    "already queued": r"because of its job 'Page 2': \S+\.Page:1, of the same identifier, is queued already",
    "throttled": r"because of its job 'Page 2': \S+\.Page:1, of the same identifier, ended too short a while ago",
    "not unique": r"because of its job 'Numbered': \S+\.Numbered:1 has the value 7 of the unique field serial",
}


def make_one_that_is_refused(why: str) -> None:
    if why == "name taken":
        chain(Page.prepare(), name="taken")
    elif why == "already queued":
        Page.add_job("mine")
    elif why == "throttled":
        Page.add_job("mine", unique_for=60).claim("me").succeed()
    elif why == "not unique":
        Numbered.add_job(serial=7)


@each("why", REFUSED)
def test_a_flow_that_is_refused_leaves_nothing(why: str, redis_client: redis.Redis) -> None:
    redis_client.flushall()
    make_one_that_is_refused(why)
    before = contents(redis_client), keys_of_flows(redis_client)
    flow = Flow("taken" if why == "name taken" else None)
    flow.add(Page.prepare())
    flow.add(Page.prepare(identifier="mine", unique_for=60))
    if why == "not unique":
        flow.add(Numbered.prepare(serial=7))
    with pytest.raises(LimpydJobsException, match=REFUSED[why]):
        flow.make()
    assert (contents(redis_client), keys_of_flows(redis_client)) == before


def test_a_large_flow_that_is_refused_in_its_last_step_leaves_nothing(redis_client: redis.Redis) -> None:
    Page.add_job("mine")
    flow = Flow("big")
    for _ in range(STEP_SIZE):
        flow.add(Page.prepare())
    flow.add(Page.prepare(identifier="mine"))
    with pytest.raises(LimpydJobsException, match="is queued already"):
        flow.make()
    assert len(Page.collection()) == 1
    assert keys_of_flows(redis_client) == {"flows:classes"}
    chain(Page.prepare(), name="big")


def test_a_name_is_free_again_once_the_flow_has_ended(redis_client: redis.Redis) -> None:
    one = chain(add.prepare(1, 2), name="report:7")
    one.nodes()
    Flow.find("report:7").cancel()
    other = chain(add.prepare(1, 2), name="report:7")
    assert Flow.find("report:7").id == other.id != one.id
    assert add.job_class.get(1).status.hget() == STATUSES.CANCELED
