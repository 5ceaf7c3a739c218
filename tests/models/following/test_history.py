"""Which statuses a job had, and when."""

from __future__ import annotations

from typing import Any

import pytest
import redis

from limpyd_jobs import Job, Queue, Worker
from limpyd_jobs.query import JobFilter, job_details

pytestmark = pytest.mark.usefixtures("redis_client")


class Parcel(Job):
    namespace = "history"
    queue_name = "parcels"
    keep_history = 5

    def run(self, queue: Queue) -> None:
        if self.identifier.hget() == "broken":
            raise ValueError("on purpose")


class Unnoted(Parcel):
    keep_history = 0


def statuses(job: Job) -> list[str]:
    return [change.status for change in job.read_history()]


def work(jobs: int = 1, **options: Any) -> None:
    Worker("parcels", max_loops=jobs, logger_level=60, **options).run()


@pytest.mark.parametrize("prefetch", [1, 10])
def test_each_status_is_noted_with_its_time_and_its_owner(prefetch: int) -> None:
    job = Parcel.add_job("a")
    Parcel.add_job("b")
    work(2, prefetch=prefetch)
    history = job.read_history()
    assert [change.status for change in history] == ["WAITING", "RUNNING", "SUCCESS"]
    assert [change.at for change in history] == sorted(change.at for change in history)
    assert history[0].owner is None
    assert history[1].owner == history[2].owner
    assert (history[1].owner or "").count(":") == 2


def test_of_a_delayed_job_that_is_canceled() -> None:
    job = Parcel.add_job("a", delayed_for=60)
    job.enqueue_or_delay("parcels")
    job.cancel()
    assert statuses(job) == ["DELAYED", "WAITING", "CANCELED"]


def test_only_the_last_ones_are_kept() -> None:
    job = Parcel.add_job("broken")
    for _ in range(3):
        work()
        job.requeue()
    assert statuses(job) == ["ERROR", "WAITING", "RUNNING", "ERROR", "WAITING"]


def test_those_that_were_added_together_and_those_that_verbs_change() -> None:
    jobs = Parcel.add_jobs(["a", "b"])
    JobFilter(Parcel).cancel_all()
    assert [statuses(job) for job in jobs] == [["WAITING", "CANCELED"]] * 2


def test_a_class_that_keeps_none_has_none(redis_client: redis.Redis) -> None:
    job = Unnoted.add_job("a")
    work()
    assert job.read_history() == []
    assert redis_client.keys("*:_history") == []


def test_it_goes_with_the_job(redis_client: redis.Redis) -> None:
    Parcel.add_job("a").delete()
    Parcel.add_job("b")
    JobFilter(Parcel).delete_all()
    assert redis_client.keys("*:_history") == []


def test_it_is_shown_with_the_job(redis_client: redis.Redis) -> None:
    job = Parcel.add_job("a")
    redis_client.rpush("history:parcel:1:_history", "rubbish", "\x00 \x00", "2026-11-23 12:00:00 ? x")
    assert [change.status for change in job_details(job.ident).history] == ["WAITING", "?"]


def test_that_it_cannot_be_noted_is_no_failure(redis_client: redis.Redis) -> None:
    redis_client.set("history:parcel:1:_history", "text")
    job = Parcel.add_job("a")
    work()
    assert job.status.hget() == "s"
    redis_client.delete("history:parcel:1:_history")


@pytest.mark.parametrize("value", ["text", True, -1, 2.5, None, [1]])
def test_an_attribute_of_an_application_changes_nothing(redis_client: redis.Redis, value: Any) -> None:
    kind = type("Of", (Job,), {"namespace": f"history-{value}", "queue_name": "parcels", "keep_history": value})
    kind.__module__ = __name__
    globals()["Of"] = kind
    job = kind.add_job("a")  # type: ignore[attr-defined]
    assert job.read_history() == []
    assert redis_client.keys("*:_history") == []
