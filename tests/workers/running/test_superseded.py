"""A job that runs is canceled for a newer one, where the limit of its class says so."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
import redis
from limpyd import fields
from running import wait_until, work, worker_of, working

from limpyd_jobs import Job, Limit

seen: list[str] = []


class Preview(Job):
    namespace = "superseded"
    queue_name = "queue"
    page, edit = fields.InstanceHashField(), fields.InstanceHashField()
    limits = [Limit("page", concurrency=1, on_limit="replace")]

    async def run(self, queue: Any) -> None:
        edit = await self.aget("edit")
        seen.append(edit)
        if edit != "last":
            await asyncio.Event().wait()


@pytest.mark.usefixtures("redis_client")
def test_the_last_edit_takes_the_place_of_the_one_that_runs() -> None:
    seen.clear()
    worker = worker_of("queue", callback=None, concurrency=3, max_loops=2, timeout=10)
    first = Preview.add_job(page="a", edit="first")
    with working(worker):
        wait_until(lambda: seen == ["first"], "the first one runs")
        last = Preview.add_job(page="a", edit="last")
    assert seen == ["first", "last"]
    assert (first.status.hget(), last.status.hget()) == ("c", "s")
    assert str(first.explain()).count("a newer job waits for its limit page") == 1


def test_a_job_without_a_worker_that_looks_is_not_superseded(redis_client: redis.Redis) -> None:
    jobs = [Preview.add_job(page="a", edit="last") for _ in range(2)]
    work(callback=None)
    assert [job.status.hget() for job in jobs] == ["s", "w"]
