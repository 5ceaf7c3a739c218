"""A job class that moved to another module has each job once, though it is known by its former path too."""

from __future__ import annotations

import pytest
import redis

from limpyd_jobs import Error, Job, Queue
from limpyd_jobs.check import check
from limpyd_jobs.query import JobFilter, explain_job, overview
from limpyd_jobs.records.known_classes import KEY, KnownClass

FORMER = "former.module.Parcel"


class Parcel(Job):
    namespace = "moved"
    queue_name = "parcels"

    def run(self, queue: Queue) -> None:
        pass


@pytest.fixture
def job(redis_client: redis.Redis) -> Job:
    job: Job = Parcel.add_job("a")
    redis_client.hset(KEY, FORMER, KnownClass.of(Parcel)._replace(path=FORMER).as_json())
    return job


def test_it_has_each_job_once(job: Job) -> None:
    assert [each.ident for each in JobFilter().page(9).found] == [job.ident]
    assert overview().totals.jobs == JobFilter().count().number == 1
    assert JobFilter(f"class={FORMER}").count().number == 1


def test_its_jobs_keep_the_errors_that_name_the_former_path(job: Job) -> None:
    error = Error.add_error("parcels", job, ValueError("x"))
    error.job_model_repr.hset(FORMER)
    assert [each.ident for each in JobFilter("error=ValueError").page(9).found] == [job.ident]
    assert JobFilter("error!=ValueError").count().number == 0


def test_a_repair_puts_no_second_entry_in_the_list(job: Job, redis_client: redis.Redis) -> None:
    (key,) = redis_client.keys("*:waiting")
    redis_client.lset(key, 0, f"{FORMER}:{job.pk.get()}")
    check(repair=True, pause=0)
    assert redis_client.lrange(key, 0, -1) == [f"{FORMER}:{job.pk.get()}"]


def test_it_is_explained_where_it_stands_by_its_former_path(job: Job, redis_client: redis.Redis) -> None:
    (key,) = redis_client.keys("*:waiting")
    redis_client.lset(key, 0, f"{FORMER}:{job.pk.get()}")
    reasons = explain_job(job.ident).reasons
    assert [reason.code for reason in reasons] == ["next", "no_worker", "former_path"]
    assert f"as {FORMER}:1" in reasons[-1].text
