"""The check knows the keys of flows, and repairs what is left of them."""

from __future__ import annotations

import pytest
import redis
from flow_kinds import Asking, Page, Report, Spawning
from looking import check
from running import work

from limpyd_jobs import STATUSES, Flow, chain, send_signal
from limpyd_jobs.models.calls.building import STEP_SIZE, Plan, _calls
from limpyd_jobs.redis import calls
from limpyd_jobs.redis.calls import send


def problems() -> dict[str, str]:
    return {finding.subject: finding.problem for finding in check(pause=0).findings}


def repair() -> None:
    assert check(pause=0, repair=True).left == []
    assert check(pause=0).findings == []


@pytest.mark.usefixtures("redis_client")
def test_nothing_is_wrong_with_flows_that_run_or_have_ended() -> None:
    chain(Page.prepare(), Report.prepare(), name="runs")
    chain(Page.prepare(), Report.prepare(), name="ended").cancel()
    assert problems() == {}


def test_a_flow_that_was_not_made_to_its_end_is_dropped(redis_client: redis.Redis) -> None:
    flow = Flow()
    pages = [flow.add(Page.prepare()) for _ in range(STEP_SIZE + 1)]
    send(next(_calls(Plan(flow.id, "", pages))))
    assert problems() == {}
    redis_client.zincrby("limpyd-jobs:flows:building", -61, flow.id)
    assert problems() == {f"limpyd-jobs:flow:{flow.id}": "is a flow that its maker did not make to its end"}
    repair()
    assert len(Page.collection()) == 0


def test_a_step_that_no_worker_goes_on_with_is_done(redis_client: redis.Redis, monkeypatch: pytest.MonkeyPatch) -> None:
    with Flow() as flow:
        first = flow.add(Page.prepare())
        for _ in range(60):
            flow.add(Page.prepare(), after=first)
    with monkeypatch.context() as patch:
        patch.setattr(calls, "go_on_with", lambda sender, flows: None)
        first.job.claim("me").succeed()
    redis_client.zincrby("limpyd-jobs:flows:todo", -61, flow.id)
    assert [*problems()] == [f"limpyd-jobs:flow:{flow.id}"]
    repair()
    assert {node.state for node in flow.nodes()} == {"success", "waiting"}


def test_an_end_without_notice_is_noticed(redis_client: redis.Redis) -> None:
    flow = chain(Page.prepare(), Report.prepare())
    page = flow._nodes[0].job
    key = page.queue_key.hget()
    redis_client.lrem(f"{key}:waiting", 0, page.ident)
    page.status.hset("s")
    redis_client.srem(f"{Page._name}:queued:1", page.pk.get())
    redis_client.hdel(page.key, "queued")
    assert problems() == {
        f"limpyd-jobs:flow:{flow.id}": "is a flow that takes 1 jobs for open ones that have ended",
    }
    repair()
    assert [node.state for node in flow.nodes()] == ["success", "waiting"]


def test_keys_and_jobs_of_a_flow_that_is_gone_are_found(redis_client: redis.Redis) -> None:
    flow = chain(Page.prepare(), Report.prepare())
    redis_client.delete(f"limpyd-jobs:flow:{flow.id}")
    report = flow._nodes[1].job
    found = problems()
    assert found.pop(report.pk.get()).startswith(f"waits for other jobs of the flow {flow.id}, which does not exist")
    assert {*found} == {f"limpyd-jobs:flow:{flow.id}:{part}" for part in ("nodes", "open", "after")}
    repair()
    assert report.status.hget() == STATUSES.CANCELED


def test_a_flow_that_runs_and_is_of_a_wrong_type_is_said(redis_client: redis.Redis) -> None:
    flow = chain(Page.prepare(), Report.prepare())
    redis_client.delete(f"limpyd-jobs:flow:{flow.id}")
    redis_client.set(f"limpyd-jobs:flow:{flow.id}", "x")
    assert problems()[f"limpyd-jobs:flow:{flow.id}"].startswith("is a string: what the flow knew is lost")
    redis_client.delete(f"limpyd-jobs:flow:{flow.id}")
    repair()


def test_signals_of_a_flow_and_of_jobs_are_known_and_what_is_left_of_them_is_deleted(redis_client: redis.Redis) -> None:
    flow = chain(Asking.prepare(), name="signed")
    other = Asking.add_job()
    work("asking", max_loops=2, callback=None)
    send_signal(flow, "other", 1)
    send_signal(other, "other", 1)
    assert problems() == {}
    redis_client.delete(f"limpyd-jobs:flow:{flow.id}")
    parts = ("nodes", "open", "signals", "waiters")
    assert {*problems()} == {f"limpyd-jobs:flow:{flow.id}:{part}" for part in parts}
    repair()
    assert send_signal(flow._nodes[0].job, "approval", 1) == "received"  # it needs no flow


def test_a_job_whose_spawned_jobs_are_gone_waits_for_them_no_longer(redis_client: redis.Redis) -> None:
    job = Spawning.add_job(pages=1)
    work("spawning", max_loops=1, callback=None)
    redis_client.delete(*redis_client.keys("limpyd-jobs:flow:*"))
    [found] = check(pause=0).findings
    assert found.kind == "waits for spawned jobs that are gone"
    repair()
    work("spawning", max_loops=1, callback=None)
    assert job.status.hget() == STATUSES.ERROR


def test_a_flow_whose_nodes_are_of_a_wrong_type_does_not_end_the_check(redis_client: redis.Redis) -> None:
    flow = chain(Page.prepare())
    redis_client.delete(f"limpyd-jobs:flow:{flow.id}:nodes")
    redis_client.set(f"limpyd-jobs:flow:{flow.id}:nodes", "x")
    assert f"limpyd-jobs:flow:{flow.id}" in problems()


def test_a_flow_of_a_wrong_type_that_was_not_made_does_not_end_the_check(redis_client: redis.Redis) -> None:
    redis_client.set("limpyd-jobs:flow:aaa", "x")
    redis_client.zadd("limpyd-jobs:flows:building", {"aaa": 0})
    assert [*problems()] == ["limpyd-jobs:flow:aaa"]
    repair()


def test_a_flow_that_is_held_though_none_runs_before_it_is_begun(redis_client: redis.Redis) -> None:
    first, second = (chain(Page.prepare(), one_at_a_time="customer:7") for _ in range(2))
    assert problems() == {}
    redis_client.delete("limpyd-jobs:flows:turn:customer:7")
    first.cancel()
    assert problems() == {
        f"limpyd-jobs:flow:{second.id}": "is a flow that is held, though none of 'customer:7' runs that it waits for",
    }
    repair()
    assert second.state().state == "running"
    second.cancel()
    redis_client.rpush("limpyd-jobs:flows:turn:customer:8", "aaa")
    assert [*problems()] == ["limpyd-jobs:flows:turn:customer:8"]
    repair()
