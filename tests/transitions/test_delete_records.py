"""delete_records: many records go, a page in one round trip."""

from __future__ import annotations

from typing import Any

from reminders import Reminder
from worlds import Probe, World

from limpyd_jobs import Job


def test_nothing_is_left_of_them(world: World, commands: Any) -> None:
    for number in range(250):
        Reminder.make(str(number), {"at": number, "text": "x", "code": number})
    Reminder.lease_due("ann")
    with commands() as sent:
        assert Reminder.delete_many([*Reminder.collection(), "x"]) == 250
    assert sum(name == "delete_records" or name.startswith("EVAL") for name in sent.names) <= 4
    assert world.contents() == {}


def test_the_others_stay(world: World) -> None:
    for number in range(3):
        Reminder.make(str(number), {"at": number})
    assert Reminder.delete_many(["1"]) == 1
    assert sorted(Reminder.collection(at__gte=0)) == ["0", "2"]


def test_records_that_only_limpyd_can_delete_are_deleted_by_it(world: World) -> None:
    jobs = [Probe.add_job(str(number), queue_name="q", slot=number) for number in range(3)]
    assert Probe.delete_many(job.pk.get() for job in jobs) == 3
    assert [key for key in world.contents() if key.startswith("lab:probe:") and not key.endswith("max_pk")] == []


def test_jobs_are_deleted_as_by_their_own_method(world: World) -> None:
    jobs = Job.add_jobs(["a", "b"], queue_name="q")
    assert Job.delete_many([job.pk.get() for job in jobs] * 2) == 2
    assert list(Job.collection()) == []
