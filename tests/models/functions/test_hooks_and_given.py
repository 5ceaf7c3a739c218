"""What functions that are jobs can do without a class: be given their job and queue, and have hooks."""

from __future__ import annotations

from typing import Any

import pytest
import redis
from limpyd import fields
from running import work

from limpyd_jobs import GIVEN, ConfigurationException, Job, Queue, job
from limpyd_jobs.testing import run_job

pytestmark = pytest.mark.usefixtures("redis_client")

seen: list[Any] = []


class Tracked(Job):
    abstract = True
    note = fields.InstanceHashField()

    def on_started(self, queue: Queue) -> None:
        seen.append("started")


@job(queue="given", base=Tracked)
def with_job(this: Tracked, path: str, where: Queue = GIVEN, *, size: int = 3, same: Job | None = None) -> None:
    this.note.hset(f"{path} {size}")
    seen.append((path, size, where.name.hget(), this.ident, same is this))


@job(queue="given")
async def later(path: str, this: Job = GIVEN) -> None:
    seen.append((path, this.ident))


@job(queue="given", keep_result=True)
def halve(number: int) -> int:
    if number % 2:
        raise ValueError(f"{number} is odd")
    return number // 2


@halve.on_started
def _began(this: Job, queue: Queue) -> None:
    seen.append(("began", this.arguments.number, queue.name.hget()))


@halve.on_success
def _halved(this: Job, queue: Queue, result: int) -> None:
    seen.append(("halved", this.arguments.number, result))


@halve.on_error
def _failed(this: Job, queue: Queue, error: Exception, trace: str | None) -> None:
    seen.append(("failed", str(error), "ValueError" in str(trace)))


@pytest.fixture(autouse=True)
def _forget() -> None:
    seen.clear()


def run(number: int = 1) -> None:
    work("given", callback=None, max_loops=number)


def test_a_parameter_that_is_annotated_as_a_job_or_a_queue_is_given_it() -> None:
    added = with_job.add("cat.png", size=5)
    run()
    assert seen == ["started", ("cat.png", 5, "given", added.ident, True)]
    assert added.job.note.hget() == "cat.png 5"


def test_so_is_one_of_a_coroutine() -> None:
    added = later.add("cat.png")
    run()
    assert seen == [("cat.png", added.ident)]


def test_no_call_gives_it(redis_client: redis.Redis) -> None:
    with pytest.raises(TypeError, match="this"):
        with_job.add("cat.png", this=None)
    assert with_job.arguments_of("cat.png") == {"path": "cat.png"}
    assert not {"this", "where", "same"} & {*with_job.job_class._fields}


def test_whoever_calls_the_function_itself_gives_it() -> None:
    with pytest.raises(AttributeError, match="no worker called the function"):
        with_job(with_job.add("cat.png").job, "cat.png")


def test_a_job_of_another_class_than_its_base_is_refused() -> None:
    def wrong(this: Tracked) -> None: ...

    wrong.__qualname__ = "wrong"
    with pytest.raises(ConfigurationException, match=r"@job\(base=Tracked\)"):
        job(wrong)


def test_hooks_of_a_function_are_decorators() -> None:
    halve.add(4)
    halve.add(5)
    run(2)
    assert seen == [("began", 4, "given"), ("halved", 4, 2), ("began", 5, "given"), ("failed", "5 is odd", True)]


def test_they_are_called_where_a_test_runs_the_job() -> None:
    run_job(halve, number=4)
    assert ("halved", 4, 2) in seen


def test_a_second_hook_of_a_kind_is_refused() -> None:
    with pytest.raises(ConfigurationException, match="has on_error already"):
        halve.on_error(_failed)
    with pytest.raises(ConfigurationException, match="decorator of a function"):
        halve.on_requeued(5)  # type: ignore[type-var]
