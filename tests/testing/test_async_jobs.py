"""Async jobs in tests: run to their end, and what they add."""

from __future__ import annotations

import asyncio

import pytest

from limpyd_jobs import Job, Queue
from limpyd_jobs.testing import drain, jobs_at_once, run_job

pytestmark = pytest.mark.usefixtures("jobs_database")


class Leaf(Job):
    namespace = "async-testing"
    queue_name = "queue"
    seen: list[str] = []

    async def run(self, queue: Queue) -> str:
        await asyncio.sleep(0)
        self.seen.append(await self.aget("identifier"))
        return "done"


class Tree(Leaf):
    async def run(self, queue: Queue) -> str:
        await Leaf.aadd_job("leaf")
        await asyncio.to_thread(Leaf.add_job, "other leaf")
        self.seen.append("tree")
        return "done"


@pytest.fixture(autouse=True)
def _nothing_seen() -> None:
    Leaf.seen.clear()


def test_one_is_run_by_run_job_and_drain() -> None:
    assert run_job(Leaf).result == "done"
    Leaf.add_job("a")
    assert drain("queue").success == 1


def test_jobs_that_one_adds_are_run_when_it_has_ended() -> None:
    with jobs_at_once():
        Tree.add_job("a")
    assert Leaf.seen == ["tree", "leaf", "other leaf"]
