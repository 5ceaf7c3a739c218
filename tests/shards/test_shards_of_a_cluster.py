"""Shards on a Redis Cluster: three real primaries, each with a replica."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from typing import Any

import pytest
from running import worker_of
from servers import Cluster

from limpyd_jobs import Error, Job
from limpyd_jobs.check import check
from limpyd_jobs.models import BaseJobsModel
from limpyd_jobs.redis.cluster.tags import slot_of
from limpyd_jobs.shards import Shards
from limpyd_jobs.workers.claiming import claimer, visits

pytestmark = pytest.mark.proof


class Crate(Job):
    namespace = "crates"
    queue_name = "crates"

    def run(self, queue: Any) -> None:
        if self.identifier.hget() == "bad":
            raise OSError("it is broken")


@pytest.fixture
def shards(cluster: Cluster, monkeypatch: pytest.MonkeyPatch) -> Iterator[Shards]:
    monkeypatch.setattr(visits, "ROUND", 0.1)
    monkeypatch.setattr(claimer, "MAX_WAIT", 0.05)
    hosts = cluster.url("").removeprefix("redis+cluster://").rstrip("/")
    yield Shards.of_cluster(hosts, "crates", number=4)
    BaseJobsModel.database.reset()


def test_one_worker_runs_the_jobs_of_all_also_while_a_slot_moves(cluster: Cluster, shards: Shards) -> None:
    owners = {cluster.owner(slot_of(f"crates-{number}")).address for number in range(4)}
    assert len(owners) > 1
    added = shards.add_jobs(Crate, [*map(str, range(200)), "bad"])
    moving = threading.Thread(target=lambda: [cluster.move(slot_of(f"crates-{number}")) for number in (0, 2)])
    moving.start()
    worker_of("crates", callback=None, max_loops=201, shards=shards, home=1).run()
    moving.join()
    assert [job.status.hget() for job in added] == ["s"] * 200 + ["e"]
    assert {job.tries.hget() for job in added} == {"1"}
    place = shards.place_of("bad")
    assert [len(shards.on(Error, number).collection()) for number in range(4)] == [int(n == place) for n in range(4)]
    assert shards.filter(Crate, status="error").requeue_all().value.done == 1
    found = shards.each(lambda database: check(database=database, pause=0))
    assert [report.findings for report in found.value.values()] == [[]] * 4
