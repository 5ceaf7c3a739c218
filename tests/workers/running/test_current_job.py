"""`current_job`: the job whose code runs here."""

from __future__ import annotations

import asyncio
import threading
from contextvars import copy_context
from typing import Any

import pytest
from running import work

from limpyd_jobs import Job, Queue, current_job, job
from limpyd_jobs.testing import drain, jobs_at_once, run_job

pytestmark = pytest.mark.usefixtures("redis_client")

found: list[Any] = []


@pytest.fixture(autouse=True)
def _none_before_and_after() -> Any:
    found.clear()
    assert current_job(None) is None
    yield
    assert current_job(None) is None


def helper() -> str:
    """What a job calls."""
    return current_job().ident


@job(queue="queue")
def resize(paths: list[str], step: int = 1, progress: float = 0.5, log: str = "a line") -> str:
    this = current_job()
    with this.step("begin") as begin:
        assert begin.is_new
    for path in this.iterate(paths):
        found.append(path)
        this.log(f"{log} about {path}")
    this.progress(progress, "half of it")
    assert not this.is_cancelled()
    return helper()


@job(queue="queue")
async def fetch(names: list[str]) -> list[str]:
    this = current_job()
    await this.alog("begun")
    async for name in this.iterate(names):
        found.append(name)
    in_task = await asyncio.create_task(in_a_coroutine())
    return [in_task, await asyncio.to_thread(helper), helper()]


async def in_a_coroutine() -> str:
    await asyncio.sleep(0)
    return helper()


@job(queue="queue")
def in_threads() -> None:
    def note() -> None:
        found.append(current_job(None))

    for thread in (threading.Thread(target=copy_context().run, args=(note,)), threading.Thread(target=note)):
        thread.start()
        thread.join()


class Nested(Job):
    namespace = "current"
    queue_name = "queue"

    def on_started(self, queue: Queue) -> None:
        found.append(current_job())

    def run(self, queue: Queue) -> None:
        found.append(current_job())
        if self.identifier.hget() == "outer":
            Nested.add_job("inner")
            found.append(current_job())


def callback(each: Job, queue: Queue) -> None:
    assert current_job() is each
    found.append(helper())


@pytest.mark.parametrize("options", [{}, {"concurrency": 2}], ids=["alone", "with others"])
class TestInAWorker:
    def test_a_function_has_all_verbs_of_its_job(self, options: dict[str, Any]) -> None:
        added = resize.add(["a", "b"], step=3)
        work(callback=None, **options)
        told = added.job.read_progress()
        assert (found, added.job.status.hget()) == (["a", "b"], "s")
        assert told is not None
        assert (told.fraction, told.text) == (0.5, "half of it")
        assert [line.partition(" a line ")[2] for line in added.job.read_log()] == ["about a", "about b"]

    def test_so_has_a_coroutine_with_its_tasks_and_threads(self, options: dict[str, Any]) -> None:
        added = fetch.add(["a", "b"])
        work(callback=None, **options)
        assert (found, added.job.status.hget()) == (["a", "b"], "s")

    def test_and_a_callback(self, options: dict[str, Any]) -> None:
        jobs = [Job.add_job(name, "queue") for name in "abc"]
        work(callback=callback, max_loops=3, **options)
        assert sorted(found) == sorted(each.ident for each in jobs)

    def test_a_thread_of_the_job_in_a_copy_of_its_context(self, options: dict[str, Any]) -> None:
        added = in_threads.add()
        work(callback=None, **options)
        assert found[0].ident == added.ident
        assert found[1] is None or found[1].ident == added.ident  # Python may copy the context by itself


def test_it_is_known_where_tests_run_jobs() -> None:
    assert run_job(resize, paths=["a"]).result.startswith(f"{__name__}.resize:")
    assert set(run_job(fetch, names=["a"]).result) == {f"{__name__}.fetch:1"}
    fetch.add(["b"])
    drain()
    assert found == ["a", "a", "b"]


def test_a_job_that_runs_inside_of_another_one_is_the_current_one_until_it_ends() -> None:
    with jobs_at_once():
        Nested.add_job("outer")
    names = [each.identifier.hget() for each in found]
    assert names == ["outer", "outer", "outer", "inner", "inner"]


def test_outside_of_a_job_there_is_none() -> None:
    with pytest.raises(RuntimeError, match=r"outside of a job.*current_job\(None\).*copy_context"):
        current_job()
    with pytest.raises(RuntimeError):
        resize(["a"])
    assert current_job("x") == "x"


def test_parameters_hide_no_verb() -> None:
    job_class = resize.job_class
    assert {"arg_step", "arg_progress", "arg_log"} <= set(job_class._fields)
    assert job_class.progress is Job.progress
