"""Jobs whose class a worker cannot import: one warning, which says what to do, and no time lost afterwards."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest
import redis
from running import Collector, work, worker_of, working
from servers import wait_until

from limpyd_jobs import STATUSES, Job, Queue
from limpyd_jobs.models import job_classes
from limpyd_jobs.transitions import MAX_DEFERRALS

pytestmark = pytest.mark.usefixtures("redis_client")


class KnownJob(Job):
    namespace = "unresolved"
    queue_name = "queue"


PATH = KnownJob.get_model_repr()


@pytest.fixture(autouse=True)
def _any_module() -> Any:
    yield
    job_classes.allow(None)


def push(*idents: str) -> Queue:
    queue = Queue.get_queue("queue")
    queue.waiting.rpush(*idents)
    return queue


def warnings_in(log: pytest.LogCaptureFixture) -> list[str]:
    return [record.getMessage().split("] ", 1)[1] for record in log.records if record.levelname == "WARNING"]


class TestTheWarning:
    def test_is_one_for_all_jobs_of_a_class(self, log: pytest.LogCaptureFixture, collector: Collector) -> None:
        push(*(f"nowhere.Task:{pk}" for pk in range(5)), "nowhere.Other:1")
        KnownJob.add_job("a")
        work(callback=collector)
        assert collector.identifiers == ["a"]
        told = warnings_in(log)
        assert [message.split("] ")[0] for message in told] == ["[nowhere.Task:0", "[nowhere.Other:1"]
        assert not any(record.levelname == "ERROR" or "Traceback" in record.getMessage() for record in log.records)

    @pytest.mark.parametrize("is_due", [True, False])
    def test_says_what_is_wrong_what_becomes_of_the_job_and_what_to_do(
        self, log: pytest.LogCaptureFixture, is_due: bool
    ) -> None:
        queue = Queue.get_queue("queue")
        queue.delayed.zadd({"nowhere.jobs.Task:1": 1}) if is_due else push("nowhere.jobs.Task:1")
        KnownJob.add_job("a")
        work()
        assert warnings_in(log) == [
            "[nowhere.jobs.Task:1] deferred, because this worker cannot import its class: ModuleNotFoundError: No "
            "module named 'nowhere'. Name the directory that its package is in with --pythonpath, or start from "
            f"there, not from {os.getcwd()}. All jobs of the class are tried again every 60 seconds, or once a "
            "worker that knows it starts; after 60 times each is an error. Logged once per class."
        ]

    @pytest.mark.parametrize(
        ("source", "ident", "reason", "remedy"),
        [
            ("", "task_file.Task:1", "AttributeError: task_file is not imported", "restart the worker"),
            ("import nowhere\n", "task_file.Task:1", "AttributeError: task_file is not", "restart the worker"),
            (
                "from limpyd_jobs import Job\nimport nowhere\nclass Task(Job): pass",
                "task_file.Task:1",
                "ModuleNotFoundError: No module named 'nowhere' ({file}, line 2)",
                "Try `python -c 'import task_file'`",
            ),
            (
                "from limpyd_jobs import Job\nclass Task(Job): pass\n{}['to']",
                "task_file.Task:1",
                "KeyError: 'to' ({file}, line 3)",
                "Try `python -c 'import task_file'`",
            ),
            ("", "task_file.below.Task:1", "No module named 'task_file.below'", "--pythonpath"),
            (
                "from limpyd_jobs import Job\nclass Task(Job): pass",
                "folder.task_file.Task:1",
                "folder is a folder without an __init__.py",
                "name folder.task_file in --job-modules",
            ),
            ("", "folder.Task:1", "folder has no source to read", "name folder in --job-modules"),
            ("", "__main__.Task:1", "AttributeError", "Move the class from the program to a module"),
        ],
    )
    def test_is_made_for_the_reason(
        self,
        log: pytest.LogCaptureFixture,
        tmp_path: Path,
        monkeypatch: pytest.MonkeyPatch,
        source: str,
        ident: str,
        reason: str,
        remedy: str,
    ) -> None:
        monkeypatch.syspath_prepend(tmp_path)
        file = tmp_path / "task_file.py"
        file.write_text(source)
        (tmp_path / "folder").mkdir()
        (tmp_path / "folder" / "task_file.py").write_text(source)
        push(ident)
        KnownJob.add_job("a")
        work()
        (message,) = warnings_in(log)
        assert reason.format(file=file) in message
        assert remedy in message

    def test_names_the_option_if_the_class_is_of_another_module_than_is_allowed(
        self, log: pytest.LogCaptureFixture
    ) -> None:
        push("nowhere.jobs.Task:1")
        KnownJob.add_job("a")
        work(job_modules=__name__)
        (message,) = warnings_in(log)
        assert (
            f"is in none of the modules that jobs may come from: {__name__}. If its jobs are yours, name "
            "nowhere.jobs in --job-modules" in message
        )

    def test_names_no_option_for_a_class_of_a_program(self, log: pytest.LogCaptureFixture) -> None:
        push("__main__.Task:1")
        KnownJob.add_job("a")
        work(job_modules=__name__)
        (message,) = warnings_in(log)
        assert "Move the class from the program to a module" in message
        assert "Add __main__" not in message

    def test_comes_at_the_start_of_a_worker_if_jobs_are_deferred_already(self, log: pytest.LogCaptureFixture) -> None:
        push("nowhere.Task:1")
        KnownJob.add_job("a")
        work()
        log.clear()
        work(burst=True)
        assert [message.split("] ")[0] for message in warnings_in(log)] == ["[nowhere.Task:1"]

    def test_is_followed_by_an_error_for_each_job_that_is_dead_lettered(self, log: pytest.LogCaptureFixture) -> None:
        queue = push("nowhere.Task:1")
        queue.deferrals.hset("nowhere.Task:1", MAX_DEFERRALS)
        KnownJob.add_job("a")
        work()
        (error,) = [record for record in log.records if record.levelname == "ERROR"]
        assert error.getMessage().endswith("nowhere.Task:1 is dead-lettered, after 60 tries: No module named 'nowhere'")


def deferred_job(identifier: str = "a") -> Job:
    """Return a job that is deferred, by a worker of other modules."""
    job = KnownJob.add_job(identifier)
    worker_of(job_modules="colorsys", burst=True).run()
    job_classes.allow(None)
    assert Queue.get_queue("queue").deferrals.hgetall() == {job.ident: "1"}
    return job


class TestOnceTheClassIsKnown:
    def test_a_worker_that_starts_runs_the_deferred_jobs_at_once(self, collector: Collector) -> None:
        job = deferred_job()
        worker = work(callback=collector)
        assert (worker.num_loops, collector.identifiers) == (1, ["a"])
        assert job.status.hget() == STATUSES.SUCCESS
        assert Queue.get_queue("queue").deferrals.hlen() == 0

    def test_a_worker_that_imports_it_for_another_job_runs_them_at_once(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, collector: Collector, redis_client: redis.Redis
    ) -> None:
        """As the module appears while the worker runs."""
        monkeypatch.syspath_prepend(tmp_path)
        monkeypatch.setattr("limpyd_jobs.workers.claiming.claimer.LOOK_EVERY", 0.1)  # what is pushed has no signal
        queue = Queue.get_queue("queue")
        worker = worker_of(callback=collector, max_loops=2)
        with working(worker):
            for number in (1, 2):
                KnownJob.add_job(str(number), queue_name="other")
            for key in redis_client.keys("unresolved:knownjob:*"):
                redis_client.rename(key, key.replace("knownjob", "late"))
            push("late_module.Late:1")
            wait_until(queue.deferrals.hlen, "that it is deferred")
            (tmp_path / "late_module.py").write_text(f"from {__name__} import KnownJob\n\nclass Late(KnownJob): pass")
            push("late_module.Late:2")
        assert collector.identifiers == ["2", "1"]

    def test_jobs_that_are_delayed_for_another_reason_stay_so(self, collector: Collector) -> None:
        job = deferred_job()
        later = KnownJob.add_job("later", delayed_for=3600)
        Queue.get_queue("queue").deferrals.hset(later.ident, 1)
        work(callback=collector)
        assert collector.identifiers == ["a"]
        assert [job.status.hget(), later.status.hget()] == [STATUSES.SUCCESS, STATUSES.DELAYED]

    def test_counts_of_a_wrong_type_do_no_harm(self, collector: Collector, redis_client: redis.Redis) -> None:
        KnownJob.add_job("a")
        redis_client.set("jobs:queue:1:_deferrals", "of a wrong type")
        work(callback=collector)
        assert collector.identifiers == ["a"]
