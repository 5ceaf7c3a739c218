"""The jobs of a queue are found at once, where the queue lists them."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest
import redis

from limpyd_jobs import Job, Queue, Worker
from limpyd_jobs.query import FoundJob, JobFilter
from limpyd_jobs.search import look, walk

pytestmark = pytest.mark.usefixtures("redis_client")


class Note(Job):
    namespace = "listed"
    queue_name = "notes"


class Memo(Note):
    """Another class, with jobs in the same queue."""


def found(*words: str, most: int = 100) -> list[str | None] | None:
    narrower = JobFilter(*words).listed(most)
    return None if narrower is None else [job.identifier for job in narrower.page().found]


def fail(job: Any, queue: Any) -> None:
    raise KeyError(job.identifier.hget())


def one_of_each_status() -> None:
    Note.add_job("success")
    Worker("notes", callback=lambda job, queue: None, max_loops=1, logger_level=60).run()
    Memo.add_job("error")
    Worker("notes", callback=fail, max_loops=1, logger_level=60).run()
    Note.add_job("running").claim(owner="me")
    Note.add_job("canceled").cancel()
    Memo.add_job("delayed", delayed_for=timedelta(hours=1), priority=5)
    Note.add_job("waiting")
    Note.add_job("elsewhere", queue_name="others")
    Note.add_job("running elsewhere", queue_name="others").claim(owner="me")


def test_all_jobs_of_a_queue_are_found_of_all_classes_and_in_each_status() -> None:
    one_of_each_status()
    names = {"success", "error", "running", "canceled", "delayed", "waiting"}
    assert {*(found("queue=notes") or ())} == names == {job.identifier for job in JobFilter("queue=notes")}
    for status in names:
        assert found("queue=notes", f"status={status}") == [status]
    assert found("queue=notes", "class=Memo", "added>-1h") == ["delayed", "error"]
    assert found("queue=notes", "error=KeyError") == ["error"]
    assert found("queue=nonesuch") == []


def test_pages_of_them_follow_each_other() -> None:
    for number in range(5):
        Note.add_job(f"{number}")
    listed = JobFilter("queue=notes").listed()
    assert listed
    first = listed.page(3)
    rest = listed.page(3, first.following)
    assert [job.identifier for page in (first, rest) for job in page.found] == ["4", "3", "2", "1", "0"]
    assert (rest.following, listed.count().number) == (None, 5)
    assert listed.facets("status").counts == {"waiting": 5}


def test_without_a_queue_or_with_too_many_canceled_jobs_there_is_none() -> None:
    one_of_each_status()
    assert found("status=error") is None
    assert found("queue!=notes") is None
    assert found("queue=notes", "status=canceled", most=0) is None


def test_of_long_lists_one_end_is_looked_at_and_it_says_how_much_is_left_out() -> None:
    one_of_each_status()
    for number in range(9):
        Note.add_job(f"{number}")
    newest, first = (JobFilter("queue=notes").listed(10, newest_first=newest_first) for newest_first in (True, False))
    assert newest
    assert first
    short = {"success", "error", "running", "delayed"}  # whole, as they leave their part to the long one
    page = newest.page()
    assert {job.identifier for job in page.found} == {"3", "4", "5", "6", "7", "8", "canceled"} | short
    assert {job.identifier for job in first} == {"waiting", "0", "1", "2", "3", "4", "canceled"} | short
    assert (newest.left_out, page.is_complete, newest.count().is_exact) == (4, False, False)
    assert not newest.facets("queue").is_exact
    assert not newest.cancel_all(dry_run=True).is_exact
    assert found("queue=notes", "status=waiting", most=2) == ["8", "7"]


def test_what_runs_or_is_canceled_is_left_out_if_it_is_too_much() -> None:
    one_of_each_status()
    for number in range(3):
        Note.add_job(f"{number}").cancel()
    assert {*(found("queue=notes", most=7) or ())} == {"success", "error", "running", "delayed", "waiting"}
    Memo.add_job("delayed too", delayed_for=timedelta(hours=2))
    assert {*(found("queue=notes", "status=delayed", most=1) or ())} == {"delayed"}  # the one that is due first


def test_a_job_that_is_in_no_list_is_found_by_looking_at_all(redis_client: redis.Redis) -> None:
    one_of_each_status()
    [queue] = Queue.get_all("notes")[:1]
    queue.success.delete()
    assert found("queue=notes", "status=success") == []
    assert [job.identifier for job in JobFilter("queue=notes", "status=success")] == ["success"]


def test_whatever_lists_hold_harms_nothing(redis_client: redis.Redis, monkeypatch: pytest.MonkeyPatch) -> None:
    Note.add_job("waiting")
    [queue] = Queue.get_all("notes")
    redis_client.rpush(queue.waiting.key, "", ":", "a.B:", "nonsense", b"\xff\xfe:1", f"{Note.get_model_repr()}:x")
    redis_client.set(queue.success.key, "of a wrong type")
    redis_client.set("listed:note:status:r", "of a wrong type")
    assert found("queue=notes") == ["waiting"]
    monkeypatch.setattr(look, "MAX_CHARACTERS", 1000)
    monkeypatch.setattr(look, "ENTRIES_PER_STEP", 1)
    redis_client.rpush(queue.waiting.key, "x" * 1001)
    assert found("queue=notes") == []


def test_long_lists_are_read_in_steps(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(look, "ENTRIES_PER_STEP", 2)
    for number in range(4):
        Note.add_job(f"{number}")
    jobs: list[FoundJob] = [*(JobFilter("queue=notes").listed() or ())]
    assert [job.identifier for job in jobs] == ["3", "2", "1", "0"]


def test_a_page_that_is_full_is_complete_though_there_was_no_time_left(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(walk, "PER_STEP", 1)
    for number in range(3):
        Note.add_job(f"{number}")
    notes = JobFilter(Note)
    assert [job.identifier for job in notes.page(1, timeout=0).found] == ["2"]
    assert (notes.page(1, timeout=0).is_complete, notes.page(2, timeout=0).is_complete) == (True, False)
    Memo.add_job("memo")
    assert not JobFilter("queue=notes").page(1, timeout=0).is_complete
