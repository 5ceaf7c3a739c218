"""Jobs that do not say in which queue they are, as version 2 adds them: they are found where they stand."""

from __future__ import annotations

import pytest
import redis

from limpyd_jobs import STATUSES, Job
from limpyd_jobs.query import JobFilter, explain_job, job_details

pytestmark = pytest.mark.usefixtures("redis_client")


class Note(Job):
    """It has no queue of its own: what version 2 adds names none anywhere."""


def noted(identifier: str, queue: str = "notes", **options: object) -> Note:
    job = Note.add_job(identifier, queue, **options)
    job.get_field("_queue_key").delete()
    return job


@pytest.fixture
def notes() -> list[Note]:
    return [noted("a"), noted("b", priority=5), noted("c", delayed_for=600), noted("d", "other"), noted("e", "other")]


def test_a_filter_finds_them_by_their_queue(notes: list[Note]) -> None:
    Note.add_job("of version 3", "notes")
    assert JobFilter("queue=notes").count().number == 4
    assert JobFilter("queue!=notes").count().number == 2
    assert JobFilter("queue=notes", status="delayed").count().number == 1
    assert JobFilter().facets("queue").counts == {"notes": 4, "other": 2}
    assert {job.queue for job in JobFilter(queue="notes")} == {"notes"}
    assert [job["queue"] for job in JobFilter(identifier="d").records()] == ["other"]


def test_verbs_change_them_there(notes: list[Note], redis_client: redis.Redis) -> None:
    assert JobFilter(Note, queue="other", status="waiting").cancel_all() == (2, 0, 0, {})
    assert JobFilter(Note, queue="notes").move_all(priority=3, dry_run=True).done == 3
    assert JobFilter(Note, queue="notes").move_all(priority=3).done == 3
    queues = Note.queue_model.get_all("notes")
    assert sorted(queue.waiting.llen() + queue.delayed.zcard() for queue in queues) == [0, 0, 3]
    assert JobFilter(Note, queue="notes").delete_all() == (3, 0, 0, {})
    assert redis_client.keys("*:waiting") + redis_client.keys("*:delayed") == []


def test_they_are_shown_and_explained_with_it(notes: list[Note]) -> None:
    assert [job_details(job.ident).queue for job in notes[:4]] == ["notes", "notes", "notes", "other"]
    reasons = [[reason.code for reason in explain_job(job.ident).reasons] for job in notes[:3]]
    assert reasons == [["jobs_before", "no_worker"], ["next", "no_worker"], ["delayed"]]


def test_one_that_stands_nowhere_is_not_said_to_be_in_no_queue(redis_client: redis.Redis) -> None:
    job = noted("a")
    redis_client.delete("jobs:queue:1:waiting")
    [reason] = explain_job(job.ident).reasons
    assert reason.code == "no_queue"
    assert "none of the queues that are known" in reason.text


def test_what_would_be_requeued_is_what_is_requeued(notes: list[Note]) -> None:
    notes[0].status.hset(STATUSES.ERROR)
    assert JobFilter(Note).requeue_all(dry_run=True) == JobFilter(Note).requeue_all()
