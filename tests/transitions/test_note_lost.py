"""note_lost: a worker that died before its first sign of life is among those that ended lately, once."""

from __future__ import annotations

from worlds import World

from limpyd_jobs import WorkerPresence
from limpyd_jobs.query import ended_workers
from limpyd_jobs.records import presences
from limpyd_jobs.records.presences import ENDED

OWNER = "web1:7:0123456789ab"
FIELDS = {"name": OWNER, "kind": "worker", "host": "web1", "pid": "7", "details": "{}"}


def test_one_of_which_only_its_claims_are_known_was_silent(world: World) -> None:
    for _ in range(2):
        presences.note_lost(WorkerPresence, OWNER, ["mails"], 2)
    (worker,) = ended_workers()
    assert (worker.name, worker.how, worker.host, worker.pid) == (OWNER, "silent", "web1", 7)
    assert (worker.queues, worker.running, worker.last_seen, worker.since) == (["mails"], 2, None, None)
    assert 0 < world.client.ttl(ENDED) <= 86400


def test_one_that_is_there_or_whose_end_is_noted_is_not_noted_again(world: World) -> None:
    pk = presences.pk_of_worker(OWNER)
    presences.keep(WorkerPresence, pk, FIELDS, 60, world.client, takes_orders="1")
    with world.unchanged():
        presences.note_lost(WorkerPresence, OWNER, ["mails"], 1)
    presences.leave(world.client, WorkerPresence, pk)
    with world.unchanged():
        presences.note_lost(WorkerPresence, OWNER, ["mails"], 1)
    world.client.set(ENDED, "of others")
    with world.unchanged():
        presences.note_lost(WorkerPresence, OWNER, ["mails"], 1)
