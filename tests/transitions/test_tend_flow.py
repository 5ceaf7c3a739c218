"""tend_flow: what an older worker ended, or another program deleted, is noticed."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest
import redis
from cases import each
from flow_kinds import MODELS, Page, Report, Spawning
from invariants import violations
from running import work

from limpyd_jobs import STATUSES, Flow, chain, transitions
from limpyd_jobs.redis.calls import go_on_with, send


@pytest.fixture(autouse=True)
def _whole(redis_client: redis.Redis) -> Iterator[None]:
    yield
    assert violations(redis_client, *MODELS) == []


def tend(client: redis.Redis, flow: Flow) -> list[str]:
    cursor, found = send(transitions.tend_flow(client, flow.id))
    assert cursor == "0"
    return found


def as_version_2_ends(page: Page) -> None:
    """Success, step by step."""
    page.get_connection().lrem(f"{page.queue_key.hget()}:waiting", 0, page.ident)
    page.status.hset(STATUSES.SUCCESS)
    page.get_connection().srem(f"{Page._name}:queued:1", page.pk.get())
    page.get_connection().hdel(page.key, "queued")


def as_limpyd_deletes(page: Page) -> None:
    page.get_connection().lrem(f"{page.queue_key.hget()}:waiting", 0, page.ident)
    for name in ("identifier", "status", "priority", "queued"):
        page.get_connection().srem(f"{Page._name}:{name}:{page.get_field(name).hget()}", page.pk.get())
    page.get_connection().delete(page.key)
    page.get_connection().srem(f"{Page._name}:collection", page.pk.get())


ENDS: dict[str, tuple[Callable[[Page], None], str, list[str]]] = {
    "ended by version 2": (as_version_2_ends, "waiting", ["1"]),
    "deleted by another program": (as_limpyd_deletes, "canceled", ["1", "2"]),
}


@each("end", ENDS)
def test_an_end_that_came_without_notice_is_followed(end: str, redis_client: redis.Redis) -> None:
    step, state, found = ENDS[end]
    with Flow() as flow:
        page = flow.add(Page.prepare())
        report = flow.add(Report.prepare(), after=page)
    step(page.job)
    assert flow.nodes()[1].state == "waiting for others"
    assert tend(redis_client, flow) == found
    assert flow.nodes()[1].state == state
    assert tend(redis_client, flow) == []
    if state == "waiting":
        report.job.claim("me").succeed()
    assert flow.state()[:2] == ("ended", 0)


@each("policy", {"fail": "canceled", "run": "waiting"})
def test_nodes_whose_hashes_are_gone_are_followed_in_one_look_at_the_flow(
    policy: str, redis_client: redis.Redis
) -> None:
    number = 130
    with Flow() as flow:
        pages = [flow.add(Page.prepare()) for _ in range(number)]
        report = flow.add(Report.prepare(), after=pages, on_error=policy)
    for page in pages:
        as_limpyd_deletes(page.job)
    redis_client.config_resetstat()
    send(transitions.tend_flow(redis_client, flow.id))
    scans = redis_client.info("commandstats")["cmdstat_zscan"]["calls"]
    assert scans <= number // 50 + 2
    assert report.job.status.hget() == {"fail": STATUSES.CANCELED, "run": STATUSES.WAITING}[policy]
    assert flow.state()[1:3] == ({"fail": 0, "run": 1}[policy], number + (policy == "fail"))


def test_a_job_that_waits_for_nothing_is_let_go(redis_client: redis.Redis) -> None:
    with Flow() as flow:
        page = flow.add(Page.prepare())
        flow.add(Report.prepare(), after=page)
    redis_client.delete(f"limpyd-jobs:flow:{flow.id}:after")
    assert tend(redis_client, flow) == ["2"]
    assert [node.state for node in flow.nodes()] == ["waiting", "waiting"]
    assert flow.state()[:2] == ("running", 2)


STATES_AFTER = {"fail": "canceled", "cancel": "canceled", "run": "waiting"}


@each("policy", STATES_AFTER)
def test_a_job_that_waits_for_one_that_has_failed_waits_no_longer(policy: str, redis_client: redis.Redis) -> None:
    with Flow() as flow:
        page = flow.add(Page.prepare())
        flow.add(Report.prepare(), after=page, on_error=policy)
        flow.add(Page.prepare())
    key = f"limpyd-jobs:flow:{flow.id}"
    page.job.hdel("_flow")
    page.job.cancel()
    redis_client.srem(f"{key}:open", "1")
    redis_client.hset(f"{key}:failed", "1", STATUSES.CANCELED)
    assert tend(redis_client, flow) == ["2"]
    go_on_with(redis_client, [flow.id])
    assert [node.state for node in flow.nodes()][1] == STATES_AFTER[policy]
    assert tend(redis_client, flow) == []


def test_jobs_that_wait_for_a_flow_that_is_gone_do_so_no_longer(redis_client: redis.Redis) -> None:
    flow, spawning = chain(Page.prepare(), Report.prepare(), Page.prepare()), Spawning.add_job(pages=1)
    work("spawning", callback=None)
    ids = redis_client.zrange("limpyd-jobs:flows:live", 0, -1)
    redis_client.delete(*(f"limpyd-jobs:flow:{some}" for some in ids))
    for some in ids:
        send(transitions.tend_flow(redis_client, some))
    jobs = [node.job for node in flow._nodes]
    assert [job.status.hget() for job in jobs] == [STATUSES.WAITING, STATUSES.CANCELED, STATUSES.CANCELED]
    assert [job.cancel_reason.hget() for job in jobs[1:]] == ["its flow is gone"] * 2
    assert spawning.status.hget() == STATUSES.WAITING
    assert not redis_client.exists("limpyd-jobs:flows:live", "limpyd-jobs:flows:spawners")
    work("spawning", callback=None, logger_level=60)
    assert spawning.status.hget() == STATUSES.ERROR
    redis_client.delete(*redis_client.keys("limpyd-jobs:flow:*"))
