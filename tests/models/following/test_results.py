"""What the code of a job returned: kept, waited for, gone again."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import timedelta
from typing import Any

import pytest
import redis
from cases import each

from limpyd_jobs import (
    STATUSES,
    ConfigurationException,
    Job,
    JobCanceled,
    JobFailed,
    JobGone,
    NoResult,
    ResultTimeout,
    Worker,
)
from limpyd_jobs.models import Error, Queue
from limpyd_jobs.query import JobFilter
from limpyd_jobs.records.layout import kept_for

pytestmark = pytest.mark.usefixtures("redis_client")

RESULTS: dict[str, Any] = {
    "nothing": None,
    "number": 5,
    "text": "é\0",
    "bytes": b"\xff",
    "list": [1, {"a": None}],
    "nested": {"rows": [[1, 2]], "raw": b"\x00"},
}

UNREADABLE = {"not a number": [float("nan")], "infinite": {"of": float("inf")}, "half a character": {"text": "\ud800"}}


class Sum(Job):
    namespace = "results"
    queue_name = "sums"
    keep_result = True

    def run(self, queue: Any) -> Any:
        name = self.identifier.hget() or ""
        if name == "fails":
            raise KeyError("no such number")
        if name == "strange":
            return object()
        if name in UNREADABLE:
            return UNREADABLE[name]
        if name == "long":
            return "x" * 600_000
        return RESULTS.get(name)


class Short(Sum):
    keep_result = 0.05


class Unkept(Sum):
    keep_result = False


def work(jobs: int = 1, **options: Any) -> None:
    Worker("sums", max_loops=jobs, logger_level=60, **options).run()


@each("name", RESULTS)
@each("prefetch", [1, 10])
def test_a_result_is_kept_as_json(name: str, prefetch: int) -> None:
    job = Sum.add_job(name)
    work(prefetch=prefetch)
    assert job.result() == RESULTS[name]
    assert job.result(timeout=0) == RESULTS[name]


def test_several_recorded_together_have_each_its_own() -> None:
    jobs = {name: Sum.add_job(name) for name in RESULTS}
    work(len(RESULTS), prefetch=10)
    assert {name: job.result() for name, job in jobs.items()} == RESULTS


def test_it_expires(redis_client: redis.Redis) -> None:
    job = Sum.add_job("number")
    work()
    (key,) = redis_client.keys("*:_result")  # type: ignore[misc]
    assert 86_000 < redis_client.ttl(key) <= 86_400  # type: ignore[operator]
    redis_client.delete(key)
    with pytest.raises(NoResult, match="expired"):
        job.result()


def test_it_goes_with_its_job(redis_client: redis.Redis) -> None:
    for delete in (lambda job: job.delete(), lambda job: JobFilter(Sum).delete_all()):
        job = Sum.add_job("number")
        work()
        pk = job.pk.get()
        delete(job)
        assert redis_client.keys("*:_result") == []
        with pytest.raises(JobGone):
            Sum.lazy_connect(pk).result()


def test_it_goes_when_its_job_is_pruned(redis_client: redis.Redis) -> None:
    Sum.add_job("number")
    work()
    assert Queue.get_queue("sums").prune(keep_success=0) == 1
    assert redis_client.keys("*:_result") == []


def test_that_of_another_class_is_not_kept(redis_client: redis.Redis) -> None:
    job = Unkept.add_job("number")
    work()
    assert redis_client.keys("*:_result") == []
    with pytest.raises(ConfigurationException, match="keeps no results: set keep_result = True"):
        job.result()


@pytest.mark.parametrize(
    ("name", "told"),
    [(name, "JSON cannot hold it") for name in ("strange", *UNREADABLE)] + [("long", "at most 524,288 bytes")],
)
def test_one_that_cannot_be_kept_is_told_and_the_job_succeeds(
    name: str, told: str, caplog: pytest.LogCaptureFixture
) -> None:
    job = Sum.add_job(name)
    Worker("sums", max_loops=1).run()
    assert job.status.hget() == STATUSES.SUCCESS
    assert told in caplog.text
    with pytest.raises(NoResult, match="could not be kept"):
        job.result()


class ErrorOfAnApplication(Error):
    namespace = "results"


@pytest.mark.parametrize("error_model", [Error, ErrorOfAnApplication])
def test_a_failure_is_raised_with_what_is_recorded(error_model: type[Error]) -> None:
    job = Sum.add_job("fails")
    work(error_model=error_model)
    with pytest.raises(JobFailed) as caught:
        job.result()
    assert (caught.value.ident, caught.value.type) == (job.ident, "KeyError")
    assert caught.value.message == "'no such number'"
    assert "raise KeyError" in caught.value.traceback
    job.requeue()
    work()
    with pytest.raises(JobFailed):
        job.result()
    if error_model is not Error:
        Error.delete_many(Error.collection())
        with pytest.raises(JobFailed, match="no error of it is recorded"):
            job.result(error_model=Error)


def test_a_failure_without_an_error_is_one_too() -> None:
    job = Sum.add_job("fails")
    work(save_errors=False)
    with pytest.raises(JobFailed, match="no error of it is recorded"):
        job.result()


def test_a_canceled_job_has_none() -> None:
    job = Sum.add_job("number")
    job.cancel()
    with pytest.raises(JobCanceled):
        job.result()


def test_one_that_has_not_ended_is_waited_for() -> None:
    job = Sum.add_job("number")
    with pytest.raises(ResultTimeout, match="has not ended"):
        job.result(timeout=0)
    with pytest.raises(TimeoutError):
        job.result(timeout=0.01)
    found: list[Any] = []
    with in_a_thread(lambda: found.append(job.result(timeout=60))):
        work()
    assert found == [5]


def test_what_another_process_wrote_is_no_result(redis_client: redis.Redis) -> None:
    job = Sum.add_job("number")
    work()
    (key,) = redis_client.keys("*:_result")  # type: ignore[misc]
    redis_client.set(key, "[" * 100_000)
    with pytest.raises(NoResult, match="is not JSON"):
        job.result()


def test_no_command_more_is_sent(redis_client: redis.Redis, commands: Any) -> None:
    numbers = []
    for job_class in (Sum, Unkept, Sum, Unkept):  # the first workers look for lost jobs, too
        for number in range(5):
            job_class.add_job(f"{number}")
        with commands() as sent:
            work(5)
        numbers.append(len(sent))
    assert numbers[2] == numbers[3]


@each(
    ("value", "seconds"),
    [
        (True, 86400),
        (False, None),
        (None, None),
        (0, None),
        (60, 60),
        (0.5, 0.5),
        (timedelta(minutes=1), 60),
        (timedelta(0), None),
        ("text", None),
        (-5, None),
        (float("inf"), None),
    ],
)
def test_what_the_attribute_may_say(value: Any, seconds: float | None) -> None:
    assert kept_for(type("Any", (), {"keep_result": value})) == seconds  # type: ignore[arg-type]


class WithItsOwn(Job):
    """As an application of version 2 may have it."""

    namespace = "results"
    queue_name = "sums"
    keep_result = "for ever"  # type: ignore[assignment]
    result = "what it is called there"  # type: ignore[assignment]

    def run(self, queue: Any) -> Any:
        return object()


def test_the_names_may_be_those_of_an_application() -> None:
    job = WithItsOwn.add_job("number")
    work()
    assert (job.result, job.status.hget()) == ("what it is called there", STATUSES.SUCCESS)


@contextmanager
def in_a_thread(step: Any) -> Iterator[None]:
    thread = threading.Thread(target=step)
    thread.start()
    yield
    thread.join(60)
