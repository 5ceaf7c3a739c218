"""Shards on a Redis Cluster: three real primaries, each with a replica."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from typing import Any

import pytest
from reading import limpyd_jobs
from running import worker_of
from servers import Cluster

from limpyd_jobs import Error, Job, Queue, WorkerPresence
from limpyd_jobs.check import check
from limpyd_jobs.models import BaseJobsModel
from limpyd_jobs.query import attention, glance
from limpyd_jobs.records import presences
from limpyd_jobs.redis.cluster.tags import slot_of
from limpyd_jobs.redis.database import JobsDatabase
from limpyd_jobs.search.classes import is_board
from limpyd_jobs.shards import Shards
from limpyd_jobs.views import glance_of_all
from limpyd_jobs.workers.claiming import claimer, visits

pytestmark = pytest.mark.proof


class Crate(Job):
    namespace = "crates"
    queue_name = "crates"

    def run(self, queue: Any) -> None:
        if self.identifier.hget() == "bad":
            raise OSError("it is broken")


def delete_all(database: JobsDatabase) -> None:
    for key in database.connection.scan_iter(f"{database.prefix}*"):
        database.connection.delete(key)


@pytest.fixture
def shards(cluster: Cluster, monkeypatch: pytest.MonkeyPatch) -> Iterator[Shards]:
    monkeypatch.setattr(visits, "ROUND", 0.1)
    monkeypatch.setattr(claimer, "MAX_WAIT", 0.05)
    hosts = cluster.url("").removeprefix("redis+cluster://").rstrip("/")
    found = Shards.of_cluster(hosts, "crates", number=4)
    yield found
    found.each(delete_all)
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


def test_its_shards_are_shown_as_one(shards: Shards) -> None:
    shards.add_jobs(Crate, map(str, range(20)))
    details = {"queues": ["crates"], "queue_model": "{crates-0}:jobs:queue", "lease": 60, "status": "idle"}
    fields = {"kind": "worker", "name": "web1:1", "host": "h", "pid": "1", "details": json.dumps(details)}
    presences.keep(shards.on(WorkerPresence, 0), "worker-0", fields, 60, takes_orders="1")
    glanced = glance_of_all(shards.each(glance).value)
    seen = glanced.overview
    assert [(queue.model, queue.name, queue.waiting) for queue in seen.queues] == [("jobs:queue", "crates", 20)]
    found = attention(glanced)
    assert [(each.code, each.text.partition(": ")[0]) for each in found] == [
        ("no_home", "No worker of crates is at home in shards 1, 2, 3")
    ]
    assert is_board("{crates-0}:taskflow:board")


def test_a_model_of_queues_is_named_without_a_tag(cluster: Cluster, shards: Shards) -> None:
    class Pallets(Queue):
        namespace = "pallets"

    class Pallet(Job):
        namespace = "pallets"
        queue_name = "pallets"
        queue_model = Pallets

    shards.add_jobs(Crate, map(str, range(20)))
    shards.add_jobs(Pallet, map(str, range(30)))
    url = f"--shards={cluster.url('crates')}?shards=4"
    found = json.loads(limpyd_jobs("shards", url, "queues", "list", "--json")[1])
    assert [(each["model"], each["waiting"]) for each in found] == [("jobs:queue", 20), ("pallets:pallets", 30)]
    for model, number in (("jobs:queue", 20), ("pallets:pallets", 30)):
        status, out, error = limpyd_jobs("shards", url, "info", f"--queue-model={model}", "--json")
        assert (status, error) == (0, "")
        assert [queue["waiting"] for queue in json.loads(out)["queues"]] == [number]
