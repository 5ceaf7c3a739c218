"""A failure that is refused, because the job went on or ended without its worker, leaves no error."""

from __future__ import annotations

from typing import Any

import pytest
import redis
from limpyd import fields
from running import work

from limpyd_jobs import STATUSES, Error, Job, Queue, Worker

pytestmark = pytest.mark.usefixtures("redis_client")


class Letter(Job):
    namespace = "refused"
    queue_name = "letters"


class Told(Letter):
    def on_error(self, *args: Any) -> None:
        pass


class OwnError(Error):
    """Records failures in its own way."""

    namespace = "refused"

    @classmethod
    def add_error(cls, *args: Any, **kwargs: Any) -> Any:
        return super().add_error(*args, **kwargs)


class UniqueError(Error):
    namespace = "refused"
    ticket = fields.InstanceHashField(unique=True, indexable=True)


class WithFields(Worker):
    def additional_error_fields(self, *args: Any, **kwargs: Any) -> Any:
        return {}


class WithError(Worker):
    def job_error(self, job: Job, queue: Queue, exception: BaseException, trace: str | None = None) -> None:
        super().job_error(job, queue, exception, trace)


def another_worker_succeeds(job: Job, queue: Queue) -> None:
    queue.running.zadd(dict.fromkeys(queue.running.zmembers(), 1))  # the lease lapses
    type(job).get(job.pk.get()).claim("another").succeed()
    raise ValueError("too late")


def it_succeeded_before(job: Job, queue: Queue) -> None:
    job._run_in_worker.succeed()
    raise ValueError("too late")


@pytest.mark.parametrize("ends", [another_worker_succeeds, it_succeeded_before])
@pytest.mark.parametrize(
    ("job_class", "worker_class", "error_model"),
    [
        (Letter, Worker, Error),
        (Letter, WithError, Error),
        (Letter, WithFields, Error),
        (Told, Worker, Error),
        (Letter, Worker, OwnError),
        (Letter, Worker, UniqueError),
    ],
)
def test_a_job_that_succeeded_has_no_error_of_the_run_that_lost_it(
    job_class: type[Job], worker_class: type[Worker], error_model: type[Error], ends: Any
) -> None:
    job = job_class.add_job("a")
    work("letters", worker_class, callback=ends, error_model=error_model, requeue_times=1)
    assert job.status.hget() == STATUSES.SUCCESS
    assert len(error_model.collection()) == 0
    assert Queue.get_queue("letters").success.lmembers() == [job.ident]


def test_a_job_that_was_deleted_has_no_error() -> None:
    job = Letter.add_job("a")
    work("letters", callback=lambda job, _: Letter.get(job.pk.get()).delete() or 1 / 0)
    assert not job.exists(pk=job._pk)
    assert len(Error.collection()) == 0


@pytest.mark.parametrize("error_model", [Error, UniqueError])
def test_a_failure_has_one_error_with_all_indexes(error_model: type[Error], redis_client: redis.Redis) -> None:
    job = Letter.add_job("a")
    work("letters", callback=lambda *_: 1 / 0, error_model=error_model, requeue_times=1, requeue_delay_delta=0)
    (error,) = error_model.collection_for_job(job).instances()
    assert error.hmget("type", "message", "queue_name") == ["ZeroDivisionError", "division by zero", "letters"]
    assert len(error_model.collection(date_time__gte="2000", date=error.date.hget())) == 1
    assert redis_client.hexists("limpyd-jobs:classes", f"errors {error_model._name}")
