"""What is in Redis and no job, or a broken one: it keeps no worker from the good jobs beside it."""

from __future__ import annotations

import logging
import os
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import redis
from cases import each
from invariants import violations
from limpyd.contrib.database import PipelineDatabase
from running import Collector, delayed_and_due, messages, waiting_idly, work, worker_of, working
from servers import RedisServer, wait_until

from limpyd_jobs import STATUSES, ConfigurationException, Error, Job, Queue
from limpyd_jobs.models import BaseJobsModel, job_classes
from limpyd_jobs.transitions import MAX_DEFERRALS

pytestmark = pytest.mark.usefixtures("redis_client")


class Task(Job):
    namespace = "stored-data"
    queue_name = "queue"


class Other(Job):
    namespace = "stored-data"
    queue_name = "new"


class Failure(Error):
    namespace = "stored-data"


class NotAJob:
    """Has the look of a job class in an ident."""

    calls: list[Any] = []

    def __init__(self, *args: Any) -> None:
        self.calls.append(args)


@pytest.fixture(autouse=True)
def jobs_of_any_module() -> Iterator[None]:
    yield
    job_classes.allow(None)


BAD_IDENTS = {
    "garbage": "garbage",
    "empty": "",
    "no pk": "test_stored_data.Task:",
    "no class path": ":1",
    "no module": "Task:1",
    "too many colons": "test_stored_data.Task:1:2",
    "newlines": "a.b\n:\n1",
    "binary": "\x00\x01.\x02:\x03",
    "long": "x" * 10_000 + ".y:1",
    "pattern": "*.?[a]:1",
    "no such job": "test_stored_data.Task:99",
    "no such class": "test_stored_data.Missing:1",
    "no such module": "nowhere_at_all.Task:1",
    "no such module in a package": "limpyd_jobs.nowhere.Task:1",
    "not a job class": "test_stored_data.NotAJob:1",
    "an abstract class": "limpyd_jobs.models.BaseJobsModel:1",
    "a queue": "limpyd_jobs.models.Queue:1",
    "a function": "os.system:1",
    "a function of ours": "test_stored_data.called:1",
    "relative": "..os.system:1",
}

CALLS: list[Any] = []


def called(*args: Any) -> None:
    CALLS.append(args)


def is_told(message: str) -> bool:
    """Whether a message is one on the ident of no job, or of one whose class cannot be had."""
    return message.startswith("Unable to get job") or "deferred, because this worker cannot import its class" in message


class TestIdents:
    """What is the ident of no job is logged, and counts no loop."""

    @pytest.fixture(autouse=True)
    def nothing_is_called(self, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
        monkeypatch.setattr(os, "system", called)
        yield
        assert CALLS == []
        assert NotAJob.calls == []

    @pytest.mark.matrix(6)
    @pytest.mark.parametrize("ident", BAD_IDENTS.values(), ids=BAD_IDENTS.keys())
    def test_an_ident_of_no_job_between_good_ones(
        self, log: pytest.LogCaptureFixture, redis_client: redis.Redis, collector: Collector, ident: str
    ) -> None:
        Task.add_job("a")
        Queue.get_queue("queue").waiting.rpush(ident)
        Task.add_job("b")
        worker = work(callback=collector, max_loops=2)
        assert collector.identifiers == ["a", "b"]
        assert worker.num_loops == 2
        assert sum(is_told(message) for message in messages(log)) == 1
        assert Queue.get_queue("queue").waiting.llen() == 0
        assert violations(redis_client, Task, Queue) == []

    def test_a_queue_that_no_process_can_find_beside_a_good_one(
        self, redis_client: redis.Redis, collector: Collector
    ) -> None:
        Task.add_job("lost", "other")
        Task.add_job("a")
        redis_client.delete("jobs:queue:name:other")
        redis_client.set("jobs:queue:name:other", "x")
        work("other,queue", callback=collector, max_loops=1)
        assert collector.identifiers == ["a"]

    @pytest.mark.parametrize("prefetch", [1, 10])
    @pytest.mark.parametrize("beside", ["other", "queue"])
    def test_a_class_whose_index_is_none_before_good_jobs(
        self, redis_client: redis.Redis, collector: Collector, prefetch: int, beside: str
    ) -> None:
        stuck = Task.add_job("stuck", beside)
        redis_client.set("stored-data:task:status:r", "x")
        good = [Job.add_job(name, "queue") for name in ("a", "b", "c")]
        work("other,queue", callback=collector, max_loops=3, prefetch=prefetch)
        assert collector.identifiers == ["a", "b", "c"]
        assert {job.status.hget() for job in good} == {STATUSES.SUCCESS}
        assert (stuck.status.hget(), Queue.get_queue(beside).waiting.lmembers()) == (STATUSES.WAITING, [stuck.ident])

    def test_a_failure_of_a_job_whose_names_are_not_text_is_recorded(self, redis_client: redis.Redis) -> None:
        job = Task.add_job("a")
        redis_client.hset("stored-data:task:1:hash", "identifier", b"\xff")
        redis_client.hset("jobs:queue:1:hash", "name", b"\xfe")
        error = Error.add_error("\udcfe", job, ValueError("no"))
        assert error.hmget("identifier", "queue_name", "message") == ["\\udcff", "\\udcfe", "no"]
        assert len(Error.collection_for_job(Task.get("1"))) == 1

    @pytest.mark.parametrize("hook", ["", "on_error"])
    def test_a_failure_of_which_no_error_can_be_recorded_is_tried_again(
        self, redis_client: redis.Redis, monkeypatch: pytest.MonkeyPatch, log: pytest.LogCaptureFixture, hook: str
    ) -> None:
        redis_client.set("jobs:error:identifier:a", "x")
        if hook:  # then it ends in several steps
            monkeypatch.setattr(Task, hook, lambda *_: None, raising=False)
        job = Task.add_job("a")
        work(callback=lambda *_: 1 / 0, requeue_times=1, requeue_delay_delta=0, max_loops=2)
        assert job.hmget("status", "tries", "queued") == ["e", "2", None]
        told = [message for message in messages(log) if "jobs:error:identifier:a" in message]
        assert len(told) == 2
        assert told[0].startswith("[a] its error is not recorded: ")
        assert "jobs:error:identifier:a is a string" in told[0]
        assert told[0].endswith("limpyd-jobs check --repair puts it right")
        assert "unexpected error" not in log.text

    def test_an_ident_that_is_not_text_with_a_plain_database_of_limpyd(
        self, redis_server: RedisServer, redis_client: redis.Redis, collector: Collector
    ) -> None:
        BaseJobsModel.use_database(PipelineDatabase(unix_socket_path=redis_server.socket, db=0))
        job = Task.add_job("a")
        redis_client.hset(f"stored-data:task:{job.pk.get()}:hash", "added", b"\xff")
        redis_client.lpush("jobs:queue:1:waiting", b"\xff", b"test_stored_data.Task:\xff")
        work(callback=collector, max_loops=1)
        assert collector.identifiers == ["a"]

    def test_a_lease_is_renewed_while_a_job_shares_a_pipeline_of_a_plain_database_with_all_threads(
        self, redis_server: RedisServer, redis_client: redis.Redis
    ) -> None:
        BaseJobsModel.use_database(PipelineDatabase(unix_socket_path=redis_server.socket, db=0))

        def callback(job: Job, queue: Queue) -> None:
            key, ident = queue.running.key, job.ident
            before = redis_client.zscore(key, ident)
            assert before
            with BaseJobsModel.database.pipeline(share_in_threads=True):
                wait_until(lambda: (redis_client.zscore(key, ident) or 0) > before)

        job = Task.add_job("a")
        work(callback=callback, lease=1)
        assert job.status.hget() == STATUSES.SUCCESS

    @pytest.mark.matrix(3)
    @pytest.mark.parametrize("ident", BAD_IDENTS.values(), ids=BAD_IDENTS.keys())
    def test_an_ident_of_no_job_that_an_idle_worker_gets(
        self, log: pytest.LogCaptureFixture, redis_client: redis.Redis, monkeypatch: pytest.MonkeyPatch, ident: str
    ) -> None:
        monkeypatch.setattr("limpyd_jobs.workers.claiming.claimer.LOOK_EVERY", 1)
        queue = Queue.get_queue("queue")
        with waiting_idly(worker_of(), redis_client):
            queue.waiting.rpush(ident)
            wait_until(lambda: any(map(is_told, messages(log))))
            job = Task.add_job("a")
        assert job.status.hget() == STATUSES.SUCCESS

    @pytest.mark.matrix(3)
    @pytest.mark.parametrize("ident", BAD_IDENTS.values(), ids=BAD_IDENTS.keys())
    def test_an_ident_of_no_job_that_is_due(
        self, log: pytest.LogCaptureFixture, redis_client: redis.Redis, collector: Collector, ident: str
    ) -> None:
        queue = Queue.get_queue("queue")
        queue.delayed.zadd({ident: 1})
        delayed_and_due(Task, "a")
        work(callback=collector)
        assert collector.identifiers == ["a"]
        assert sum(record.levelno > logging.INFO for record in log.records) == 1

    def test_one_of_a_class_that_is_not_there_yet_is_kept_for_later(self) -> None:
        queue = Queue.get_queue("queue")
        queue.waiting.rpush("nowhere_at_all.Task:1")
        Task.add_job("a")
        work()
        ident, moment = queue.first_delayed or ("", 0)
        assert ident == "nowhere_at_all.Task:1"
        assert moment > time.time()

    @pytest.mark.parametrize("is_due", [True, False])
    @pytest.mark.parametrize("save_errors", [True, False])
    def test_one_of_a_class_that_never_comes_is_an_error_in_the_end(
        self, log: pytest.LogCaptureFixture, collector: Collector, is_due: bool, save_errors: bool
    ) -> None:
        queue, ident = Queue.get_queue("queue"), "nowhere_at_all.Task:1"
        queue.delayed.zadd({ident: 1}) if is_due else queue.waiting.rpush(ident)
        queue.deferrals.hset(ident, MAX_DEFERRALS)
        Task.add_job("a")
        work(callback=collector, save_errors=save_errors, error_model=Failure)
        assert collector.identifiers == ["a"]
        assert queue.errors.lmembers() == [ident]
        assert [error.type.hget() for error in Failure.collection().instances()] == [
            "ModuleNotFoundError"
        ] * save_errors
        assert sum("is dead-lettered" in message.splitlines()[0] for message in messages(log)) == 1

    def test_only_jobs_of_the_modules_that_are_named_are_run(self, collector: Collector) -> None:
        job = Job.add_job("other", "queue")
        Task.add_job("a")
        work(callback=collector, job_modules=__name__)
        assert collector.identifiers == ["a"]
        assert Queue.get_queue("queue").first_delayed[0] == job.ident
        job_classes.allow(None)
        job.enqueue_or_delay("queue")
        work(callback=collector)
        assert collector.identifiers == ["a", "other"]

    def test_a_worker_of_modules_without_a_job_class_looks_for_lapsed_leases_only_once_in_a_round(
        self, redis_client: redis.Redis
    ) -> None:
        Queue.get_queue("queue")
        redis_client.config_resetstat()
        worker_of(job_modules="colorsys", timeout=1, max_duration=0.2).run()
        assert redis_client.info("commandstats")["cmdstat_evalsha"]["calls"] < 100

    @each("modules", ["", ",", [], 1, "a b"])
    def test_a_worker_that_is_told_of_no_module_is_refused(self, modules: Any) -> None:
        with pytest.raises(ConfigurationException):
            worker_of(job_modules=modules)

    @pytest.mark.parametrize(
        "source",
        ["raise ValueError", "import nowhere_at_all", "def broken(:", "raise SystemExit"],
    )
    def test_a_module_that_cannot_be_imported(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, collector: Collector, source: str
    ) -> None:
        (tmp_path / "module_of_trouble.py").write_text(f"class Task(object): pass\n{source}")
        monkeypatch.syspath_prepend(str(tmp_path))
        Queue.get_queue("queue").waiting.rpush("module_of_trouble.Task:1")
        Task.add_job("a")
        work(callback=collector)
        assert collector.identifiers == ["a"]

    def test_a_deleted_job(self, log: pytest.LogCaptureFixture, collector: Collector) -> None:
        deleted = Task.add_job("deleted")
        Task.add_job("a")
        deleted.delete()
        assert work(callback=collector).num_loops == 1
        assert collector.identifiers == ["a"]
        assert "No Task found with pk 1" in log.text

    def test_a_job_that_is_listed_many_times_is_run_once_and_said_few_times(
        self,
        redis_client: redis.Redis,
        collector: Collector,
        monkeypatch: pytest.MonkeyPatch,
        log: pytest.LogCaptureFixture,
    ) -> None:
        monkeypatch.setattr("limpyd_jobs.workers.log.PERIOD", 60)
        job = Task.add_job("a")
        Queue.get_queue("queue").waiting.rpush(*[job.ident] * 9)
        Task.add_job("b")
        assert work(callback=collector, max_loops=11).num_loops == 11
        assert collector.identifiers == ["a", "b"]
        told = [message for message in messages(log) if "skipped" in message]
        assert told == ["[queue|1|a] job skipped (current status: SUCCESS)"] * 3 + [f"{told[0]}: and 6 more like it"]
        assert violations(redis_client, Task, Queue) == []


BAD_RECORDS: dict[str, dict[str, Any]] = {
    "a status that is none": {"status": "z"},
    "no status": {"status": None},
    "no identifier": {"identifier": None},
    "tries that are no number": {"tries": "many"},
    "a priority that is no number": {"priority": "high"},
    "dates that are none": {"added": "x", "start": "x", "delayed_until": "x"},
    "text of many lines": {"identifier": "a\nb\x1b[0m"},
}


class TestRecords:
    @pytest.mark.matrix
    @pytest.mark.parametrize("fields", BAD_RECORDS.values(), ids=BAD_RECORDS.keys())
    @pytest.mark.parametrize("ending", ["succeeds", "fails", "is requeued"])
    def test_a_job_with_odd_fields(
        self, redis_client: redis.Redis, collector: Collector, fields: dict[str, Any], ending: str
    ) -> None:
        def callback(job: Job, queue: Queue) -> None:
            collector(job, queue)
            if ending != "succeeds":
                raise ValueError

        job = Task.add_job("odd")
        for name, value in fields.items():
            job.get_field(name).hset(value) if value is not None else job.get_field(name).delete()
        Task.add_job("a")
        work(callback=callback, max_loops=2, requeue_times=int(ending == "is requeued"))
        assert collector.identifiers[-1] == "a"
        assert job.claim_token.hget() is None
        assert redis_client.zcard("jobs:queue:1:_running") == 0

    def test_a_job_whose_hash_is_of_another_type(self, redis_client: redis.Redis, collector: Collector) -> None:
        Task.add_job("odd")
        Task.add_job("a")
        redis_client.delete("stored-data:task:1:hash")
        redis_client.set("stored-data:task:1:hash", "odd")
        work(callback=collector)
        assert collector.identifiers == ["a"]

    @pytest.mark.parametrize("priority", ["high", "1.5", "", None])
    def test_a_queue_with_an_odd_priority(self, collector: Collector, priority: str | None) -> None:
        Task.add_job("odd")
        queue = Queue.get_queue("queue")
        queue.priority.delete() if priority is None else queue.priority.hset(priority)
        Task.add_job("a", priority=3)
        work(callback=collector, max_loops=2)
        assert collector.identifiers == ["a", "odd"]

    def test_a_waiting_key_of_another_type(self, redis_client: redis.Redis, collector: Collector) -> None:
        redis_client.set(Queue.get_queue("queue", 5).waiting.key, "odd")
        Task.add_job("a")
        Task.add_job("b")
        work(callback=collector, max_loops=2)
        assert collector.identifiers == ["a", "b"]

    def test_a_waiting_key_of_another_type_of_an_idle_worker(
        self, redis_client: redis.Redis, log: pytest.LogCaptureFixture
    ) -> None:
        Queue.get_queue("queue")
        redis_client.set(Queue.get_queue("queue", 5).waiting.key, "odd")
        with working(worker_of()):
            wait_until(lambda: "WRONGTYPE" in log.text or redis_client.info("clients")["blocked_clients"])
            job = Task.add_job("a")
        assert job.status.hget() == STATUSES.SUCCESS

    def test_an_index_of_another_type_of_a_worker_that_is_to_find_new_queues(
        self, redis_client: redis.Redis, log: pytest.LogCaptureFixture
    ) -> None:
        Task.add_job("a")
        redis_client.set(f"{Task._name}:status:r", "odd")
        with working(worker_of(["queue", "new"], max_loops=2, fetch_priorities_delay=600)):
            wait_until(lambda: "WRONGTYPE" in log.text)
            job = Other.add_job("b")
            wait_until(lambda: job.status.hget() == STATUSES.SUCCESS)
            redis_client.delete(f"{Task._name}:status:r")

    def test_a_delayed_key_of_another_type(self, redis_client: redis.Redis, collector: Collector) -> None:
        redis_client.set(Queue.get_queue("queue", 5).delayed.key, "odd")
        Task.add_job("a")
        delayed_and_due(Task, "due")
        work(callback=collector, max_loops=2)
        assert collector.identifiers == ["a", "due"]
