"""end_presence: a worker that leaves is not there any more, and is among those that ended lately, as others are."""

from __future__ import annotations

import json
from datetime import timedelta

from reading import limpyd_jobs
from worlds import World

from limpyd_jobs import WorkerPresence
from limpyd_jobs.query import ended_workers
from limpyd_jobs.records import presences
from limpyd_jobs.records.presences import ENDED

DETAILS = {
    "id": "038480",
    "queues": ["mails"],
    "queue_model": "jobs:queue",
    "running": [["a.Job:1", "ann@example.com", ""]],
    "done": 5,
    "versions": {"application": "1.2"},
    "options": {"lease": 60},
}
FIELDS = {"name": "web1:7:a", "kind": "worker", "host": "web1", "pid": "7", "details": json.dumps(DETAILS)}
LEASES = "jobs:workerpresence:leases"


def keep(world: World, pk: str = "a", **fields: str) -> None:
    presences.keep(WorkerPresence, pk, {**FIELDS, **fields}, 60, world.client, takes_orders="1")


def test_one_that_leaves_has_ended_in_order_and_nothing_else_of_it_stays(world: World) -> None:
    keep(world)
    presences.leave(world.client, WorkerPresence, "a")
    (worker,) = ended_workers()
    assert (worker.name, worker.how, worker.queues, worker.id) == ("web1:7:a", "ended", ["mails"], "038480")
    assert (worker.running, worker.done, worker.versions) == (1, 5, {"application": "1.2"})
    assert worker.last_seen is not None
    assert abs(worker.ended - worker.last_seen) < timedelta(seconds=30)
    assert 0 < world.client.ttl(ENDED) <= 86400
    status, out, _ = limpyd_jobs("workers", "list", "--ended")
    assert (status, out.splitlines()[1].split()[:3]) == (0, ["web1:7:a", "ended", "mails"])
    assert not world.client.keys("jobs:workerpresence:*")
    assert "ann@example.com" not in str(world.client.xrange(ENDED))
    with world.unchanged():
        presences.leave(world.client, WorkerPresence, "a")


def test_one_of_which_nothing_is_to_stay_is_not_noted(world: World) -> None:
    keep(world, "a")
    presences.leave(world.client, WorkerPresence, "a", is_noted=False)
    assert ended_workers() == []


def test_one_whose_lease_ended_was_silent_until_it_is_there_again(world: World) -> None:
    keep(world)
    world.client.zadd(LEASES, {"a": world.client.time()[0] - 10})
    assert presences.sweep(WorkerPresence) == 1
    (worker,) = ended_workers()
    assert (worker.how, worker.ended - worker.last_seen > timedelta(seconds=60)) == ("silent", True)  # type: ignore[operator]
    keep(world)
    assert ended_workers() == []


def test_the_last_ones_are_kept_and_what_others_wrote_is_passed_over(world: World) -> None:
    for number in range(205):
        keep(world, f"{number}", name=f"web1:{number}:a", details="[broken")
        presences.leave(world.client, WorkerPresence, f"{number}")
    found = ended_workers()
    assert (len(found), found[0].name, found[0].queues) == (200, "web1:204:a", [])
    world.client.xadd(ENDED, {"of": "others"})
    assert len(ended_workers()) == 200
    world.client.set(ENDED, "x")
    keep(world)
    presences.leave(world.client, WorkerPresence, "a")
    assert (ended_workers(), WorkerPresence.alive()) == ([], [])
