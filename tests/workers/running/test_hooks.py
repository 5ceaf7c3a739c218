"""What applications may override of a worker and define on jobs: when it is called, what it finds, what remains."""

from __future__ import annotations

import logging
import traceback
from datetime import timedelta
from typing import Any

import pytest
import redis
from hooking import (
    FAR,
    Case,
    Oops,
    RunningTask,
    Task,
    each_case,
    is_mine,
    set_status,
    state,
    with_hook,
)
from invariants import violations
from running import Collector, fail, messages, work, worker_of

from limpyd_jobs import STATUSES, Error, Job, Queue, Worker
from limpyd_jobs.dates import datetime_to_score, utcnow

pytestmark = pytest.mark.usefixtures("redis_client")


class TestHooksWithSuper:
    @each_case
    def test_a_hook_finds_the_state_before_and_after(self, consistent: None, case: Case) -> None:
        def hook(self: Any, job: Job, queue: Queue, *args: Any, **kwargs: Any) -> None:
            seen.append(state(job))
            getattr(Worker, case.hook)(self, job, queue, *args, **kwargs)
            seen.append(state(job))

        seen: list[Any] = []
        job = case.add_job()
        case.work(with_hook(case.hook, hook))
        assert seen[0] == case.before
        assert seen[1] == (("r", "1") if case.hook == "job_started" else case.after)
        assert state(job) == case.after

    @each_case
    def test_a_hook_that_only_calls_super_changes_nothing(
        self, log: pytest.LogCaptureFixture, consistent: None, case: Case
    ) -> None:
        def hook(self: Any, *args: Any, **kwargs: Any) -> Any:
            return getattr(Worker, case.hook)(self, *args, **kwargs)

        texts = []
        for worker_class in (Worker, with_hook(case.hook, hook)):
            log.clear()
            job = case.add_job()
            case.work(worker_class)
            assert state(job) == case.after
            texts.append([text.split(" in 0:")[0].split(" until ")[0] for text in messages(log)[1:-1]])
            job.delete()
            Task.add_job("a", priority=1).delete()
            Queue.get_queue("queue", 2).delete()
            Queue.get_queue("queue", 1).delete()
        plain, hooked = texts
        assert [text.replace("|1|a", "|_|a") for text in plain] == [
            text.replace(f"|{job.__dict__.get('_pk', 3)}|a", "|_|a").replace("|3|a", "|_|a") for text in hooked
        ]

    @each_case
    def test_a_hook_may_read_the_identifier_status_and_queue_without_asking_redis(self, case: Case) -> None:
        def hook(self: Any, job: Any, queue: Any, *args: Any, **kwargs: Any) -> None:
            seen.append((job._cached_identifier, job._cached_status, queue._cached_name))
            getattr(Worker, case.hook)(self, job, queue, *args, **kwargs)

        seen: list[Any] = []
        case.add_job()
        case.work(with_hook(case.hook, hook))
        assert seen == [("a", case.cached_status, "queue")]

    @each_case
    def test_the_method_of_the_job_may_read_them_too(self, monkeypatch: pytest.MonkeyPatch, case: Case) -> None:
        def method(job: Any, queue: Any, *args: Any) -> None:
            seen.append((job._cached_identifier, job._cached_status, queue._cached_name))

        seen: list[Any] = []
        monkeypatch.setattr(Task, case.event, method, raising=False)
        case.add_job()
        case.work()
        assert seen == [("a", case.cached_status, "queue")]

    @each_case
    def test_the_message_may_read_them_too(self, case: Case) -> None:
        def message(self: Any, job: Any, queue: Any, *args: Any, **kwargs: Any) -> str:
            seen.append((job._cached_identifier, job._cached_status, queue._cached_name))
            return "a message"

        seen: list[Any] = []
        case.add_job()
        case.work(with_hook(case.message, message))
        assert seen == [("a", case.cached_status, "queue")]

    @each_case
    def test_the_method_of_the_job_finds_the_state_afterwards(
        self, monkeypatch: pytest.MonkeyPatch, consistent: None, case: Case
    ) -> None:
        def method(job: Job, queue: Queue, *args: Any) -> None:
            seen.append(state(job))

        seen: list[Any] = []
        monkeypatch.setattr(Task, case.event, method, raising=False)
        job = case.add_job()
        case.work()
        expected = {
            "on_started": ("r", "1"),
            "on_error": ("e", "1" if case.requeue_times else None),
        }
        assert seen == [expected.get(case.event, case.after)]
        assert state(job) == case.after

    @each_case
    def test_the_hook_logs_its_message_then_calls_the_method_of_the_job(
        self, monkeypatch: pytest.MonkeyPatch, case: Case
    ) -> None:
        class Telling(Worker):
            def log(self, message: str, level: str = "info") -> None:
                told.append(message)

        def message(self: Any, *args: Any, **kwargs: Any) -> str:
            told.append("message")
            return "the message"

        told: list[str] = []
        setattr(Telling, case.message, message)
        monkeypatch.setattr(Task, case.event, lambda *args: told.append("method"), raising=False)
        case.add_job()
        case.work(Telling)
        mine = [word for word in told if word in ("message", "the message", "method")]
        first_the_method = ["method", "message", "the message"]
        assert mine == (first_the_method if case.hook == "requeue_job" else ["message", "the message", "method"])

    @each_case
    def test_the_loop_goes_on(self, collector: Collector, consistent: None, case: Case) -> None:
        def hook(self: Any, *args: Any, **kwargs: Any) -> None:
            getattr(Worker, case.hook)(self, *args, **kwargs)

        def callback(job: Job, queue: Queue) -> Any:
            return case.callback(job, queue) if is_mine(job) else collector(job, queue)

        case.add_job()
        Task.add_job("b")
        assert case.work(with_hook(case.hook, hook), callback=callback, max_loops=2).num_loops == 2
        assert collector.identifiers == ["b"]


class TestWhatHooksAreGiven:
    def test_job_success_gets_the_result(self) -> None:
        given: list[Any] = []

        class Taking(Worker):
            def job_success(self, job: Job, queue: Queue, job_result: Any) -> None:
                given.append(job_result)
                super().job_success(job, queue, job_result)

            def job_success_message(self, job: Job, queue: Queue, job_result: Any) -> str:
                given.append(job_result)
                return super().job_success_message(job, queue, job_result)

        result = object()
        Task.add_job("a")
        work(worker_class=Taking, callback=lambda job, queue: result)
        assert given == [result, result]

    def test_on_success_gets_the_result(self, monkeypatch: pytest.MonkeyPatch) -> None:
        given: list[Any] = []
        monkeypatch.setattr(Task, "on_success", lambda *args: given.append(args), raising=False)
        job = Task.add_job("a")
        work(callback=lambda job, queue: {"any": "thing"})
        assert given == [(job, Queue.get_queue("queue"), {"any": "thing"})]

    @pytest.mark.parametrize("save_tracebacks", [True, False])
    def test_job_error_gets_the_exception_and_its_traceback(
        self, monkeypatch: pytest.MonkeyPatch, save_tracebacks: bool
    ) -> None:
        given: list[Any] = []

        class Taking(Worker):
            def job_error(self, job: Job, queue: Queue, exception: Any, trace: str | None = None) -> None:
                given.append((exception, trace))
                super().job_error(job, queue, exception, trace)

            def job_error_message(
                self, job: Job, queue: Queue, to_be_requeued: bool, exception: Any, trace: str | None = None
            ) -> str:
                assert to_be_requeued == 0
                given.append((exception, trace))
                return super().job_error_message(job, queue, to_be_requeued, exception, trace)

        monkeypatch.setattr(Task, "on_error", lambda job, queue, *args: given.append(args), raising=False)
        Task.add_job("a")
        work(worker_class=Taking, callback=fail, save_tracebacks=save_tracebacks)
        exception, trace = given[0]
        assert given == [(exception, trace)] * 3
        assert repr(exception) == "ValueError('it failed')"
        if save_tracebacks:
            assert trace.startswith("Traceback (most recent call last):")
            assert trace.endswith("ValueError: it failed\n")
            assert 'raise ValueError("it failed")' in trace
        else:
            assert trace is None
        (error,) = Error.collection().instances()
        assert error.traceback.hget() == trace

    def test_requeue_job_gets_the_new_priority_and_the_delay(self) -> None:
        given: list[Any] = []

        class Taking(Worker):
            def requeue_job(self, job: Job, queue: Queue, priority: int, delayed_for: Any = None) -> None:
                given.append((priority, delayed_for))
                super().requeue_job(job, queue, priority, delayed_for)

        Task.add_job("a", priority=2)
        work(worker_class=Taking, callback=fail, requeue_times=1)
        assert given == [(1, 30)]

    def test_requeue_job_may_say_otherwise(self, consistent: None) -> None:
        class Deciding(Worker):
            def requeue_job(self, job: Job, queue: Queue, priority: int, delayed_for: Any = None) -> None:
                super().requeue_job(job, queue, priority=7, delayed_for=timedelta(hours=1))

        job = Task.add_job("a", priority=2)
        work(worker_class=Deciding, callback=fail, requeue_times=1)
        assert job.hmget("status", "priority") == ["d", "7"]
        assert Queue.get_queue("queue", 7).delayed.zscore(job.ident) > datetime_to_score(utcnow())

    def test_the_messages_of_the_documents(self, log: pytest.LogCaptureFixture) -> None:
        def callback(job: Job, queue: Queue) -> None:
            name = job.identifier.hget()
            if name.startswith("fails"):
                raise ValueError("it failed")
            if name != "succeeds":
                set_status(STATUSES.CANCELED if name == "cancels" else STATUSES.DELAYED, delayed_until=FAR)(job, queue)

        for name in ("succeeds", "fails", "fails for good", "cancels", "delays"):
            Task.add_job(name, priority=2, **({"cancel_on_error": "1"} if name == "fails for good" else {}))
        work(callback=callback, max_loops=5, requeue_times=1)
        texts = [(record.levelname, text) for record, text in zip(log.records, messages(log), strict=True)]
        until = Task.get(2).delayed_until.hget()
        assert texts[1:-1] == [
            ("INFO", "[queue|1|succeeds] starting"),
            ("INFO", f"[queue|1|succeeds] success, in {Task.get(1).duration}"),
            ("INFO", "[queue|2|fails] starting"),
            ("ERROR", "[queue|2|fails] error: ValueError: it failed [requeued]"),
            ("INFO", f"[queue|2|fails] requeued with priority 1, delayed until {until}"),
            ("INFO", "[queue|3|fails for good] starting"),
            ("ERROR", "[queue|3|fails for good] error: ValueError: it failed [NOT requeued]"),
            ("INFO", "[queue|4|cancels] starting"),
            ("WARNING", "[queue|4|cancels] job skipped (current status: CANCELED)"),
            ("INFO", "[queue|5|delays] starting"),
            ("WARNING", f"[queue|5|delays] job delayed until {FAR}"),
        ]

    @each_case
    def test_a_message_may_add_to_that_of_super(self, log: pytest.LogCaptureFixture, case: Case) -> None:
        def message(self: Any, *args: Any, **kwargs: Any) -> str:
            return f"{getattr(Worker, case.message)(self, *args, **kwargs)}, by the way"

        case.add_job()
        case.work(with_hook(case.message, message))
        (text,) = [text for text in messages(log) if text.endswith(", by the way")]
        assert text.startswith("[queue|1|a] ")


class TestHooksWithoutSuper:
    """What they would have recorded is left to them; the worker only lets go of the job."""

    @each_case
    def test_no_claim_remains_and_the_loop_goes_on(
        self, redis_client: redis.Redis, collector: Collector, case: Case
    ) -> None:
        def hook(self: Any, job: Job, queue: Queue, *args: Any, **kwargs: Any) -> None:
            if not is_mine(job):
                getattr(Worker, case.hook)(self, job, queue, *args, **kwargs)

        def callback(job: Job, queue: Queue) -> Any:
            return case.callback(job, queue) if is_mine(job) else collector(job, queue)

        job = case.add_job()
        Task.add_job("b")
        assert case.work(with_hook(case.hook, hook), callback=callback, max_loops=2).num_loops == 2
        assert collector.identifiers == ["b"]
        assert job.claim_token.hget() is None
        assert redis_client.keys("jobs:queue:*:_running") == []

    def test_job_success_leaves_the_job_running(self) -> None:
        job = Task.add_job("a")
        work(worker_class=with_hook("job_success", lambda *args: None))
        assert state(job) == ("r", "1")
        assert job.end.hget() is None
        assert Queue.get_queue("queue").success.lmembers() == []

    def test_job_success_may_record_the_end_by_itself(self, consistent: None) -> None:
        class OwnWay(Worker):
            def job_success(self, job: Job, queue: Queue, job_result: Any) -> None:
                job.end.hset(str(utcnow()))
                job.status.hset(STATUSES.SUCCESS)
                job.queued.delete()
                queue.success.rpush(job.ident)

        job = Task.add_job("a")
        work(worker_class=OwnWay)
        assert state(job) == ("s", None)
        assert job.duration is not None

    def test_job_success_may_delete_the_job(self, log: pytest.LogCaptureFixture, consistent: None) -> None:
        class Deleting(Worker):
            def job_success(self, job: Job, queue: Queue, job_result: Any) -> None:
                job.delete()

        Task.add_job("a")
        Task.add_job("b")
        assert work(worker_class=Deleting, max_loops=2).num_loops == 2
        assert list(Task.collection()) == []
        assert not [record for record in log.records if record.levelname == "ERROR"]

    def test_job_success_may_add_the_job_again_at_once(self, collector: Collector, consistent: None) -> None:
        class Repeating(Worker):
            def job_success(self, job: Job, queue: Queue, job_result: Any) -> None:
                job.enqueue_or_delay(queue_name="queue")

        Task.add_job("a")
        work(worker_class=Repeating, callback=collector, max_loops=3)
        assert collector.identifiers == ["a", "a", "a"]
        assert Task.get(1).hmget("status", "tries") == ["w", "3"]

    def test_job_started_still_lets_the_job_run(self, collector: Collector, consistent: None) -> None:
        job = Task.add_job("a")
        work(worker_class=with_hook("job_started", lambda *args: None), callback=collector)
        assert collector.identifiers == ["a"]
        assert state(job) == ("s", None)

    def test_job_error_may_count_the_error_as_a_success(self, consistent: None) -> None:
        class Forgiving(Worker):
            def job_error(self, job: Job, queue: Queue, exception: Any, trace: str | None = None) -> None:
                self.job_success(job, queue, None)

        job = Task.add_job("a")
        work(worker_class=Forgiving, callback=fail)
        assert state(job) == ("s", None)
        assert Error.collection().instances() == []

    def test_job_success_may_count_the_success_as_an_error(self, consistent: None) -> None:
        class Strict(Worker):
            def job_success(self, job: Job, queue: Queue, job_result: Any) -> None:
                self.job_error(job, queue, ValueError(f"{job_result} is not enough"))

        job = Task.add_job("a")
        work(worker_class=Strict, requeue_times=1, requeue_delay_delta=0, requeue_priority_delta=0, max_loops=2)
        assert state(job) == ("e", None)
        assert [error.message.hget() for error in Error.collection().instances()] == ["done is not enough"] * 2

    def test_requeue_job_that_gives_up_leaves_the_job_in_error(self, consistent: None) -> None:
        job = Task.add_job("a")
        work(worker_class=with_hook("requeue_job", lambda *args, **kwargs: None), callback=fail, requeue_times=1)
        assert state(job) == ("e", None)
        assert Queue.get_queue("queue").errors.lmembers() == [job.ident]

    @pytest.mark.parametrize("queue_name", ["queue", "elsewhere"])
    def test_requeue_job_may_requeue_by_itself(self, consistent: None, queue_name: str) -> None:
        class OwnWay(Worker):
            def requeue_job(self, job: Job, queue: Queue, priority: int, delayed_for: Any = None) -> None:
                job.requeue(queue_name=queue_name, priority=9)

        job = Task.add_job("a")
        work(worker_class=OwnWay, callback=fail, requeue_times=1)
        assert state(job) == ("w", "1")
        assert Queue.get_queue(queue_name, 9).waiting.lmembers() == [job.ident]

    @pytest.mark.parametrize("status", [STATUSES.CANCELED, STATUSES.SUCCESS])
    def test_a_hook_may_give_a_final_status_by_itself(self, consistent: None, status: str) -> None:
        class OwnWay(Worker):
            def job_error(self, job: Job, queue: Queue, exception: Any, trace: str | None = None) -> None:
                job.status.hset(status)

        job = Task.add_job("a")
        work(worker_class=OwnWay, callback=fail)
        assert state(job) == (status, None)
        assert Task.add_job("a").pk.get() != job.pk.get()


class TestHooksCalledByHand:
    """As the unit tests of applications do, on a worker that never ran."""

    @pytest.fixture
    def worker(self) -> Worker:
        return worker_of(requeue_times=1)

    @pytest.fixture
    def job(self) -> Task:
        job = Task.add_job("a", priority=2)
        Queue.get_queue("queue", 2).waiting.lpop()
        return job

    @pytest.fixture
    def queue(self) -> Queue:
        return Queue.get_queue("queue", 2)

    def test_job_started(self, worker: Worker, job: Task, queue: Queue) -> None:
        worker.job_started(job, queue)
        assert job.hmget("status", "queued", "tries") == ["r", "1", "1"]
        assert job.start.hget() is not None

    def test_job_success(self, worker: Worker, job: Task, queue: Queue, consistent: None) -> None:
        job.status.hset(STATUSES.RUNNING)
        worker.job_success(job, queue, None)
        assert state(job) == ("s", None)
        assert job.end.hget() is not None
        assert queue.success.lmembers() == [job.ident]

    def test_job_error(self, worker: Worker, job: Task, queue: Queue, consistent: None) -> None:
        job.status.hset(STATUSES.RUNNING)
        job.tries.hset(1)
        worker.job_error(job, queue, ValueError("by hand"))
        assert job.hmget("status", "queued", "priority") == ["d", "1", "1"]
        assert queue.errors.lmembers() == [job.ident]
        assert [error.message.hget() for error in Error.collection().instances()] == ["by hand"]

    def test_job_error_with_a_trace(self, worker: Worker, job: Task, queue: Queue, consistent: None) -> None:
        job.status.hset(STATUSES.RUNNING)
        job.tries.hset(2)
        try:
            raise ValueError("by hand")
        except ValueError as error:
            worker.job_error(job, queue, error, traceback.format_exc())
        assert state(job) == ("e", None)
        (error,) = Error.collection().instances()
        assert "by hand" in error.traceback.hget()

    @pytest.mark.parametrize("status", [STATUSES.CANCELED, STATUSES.SUCCESS, STATUSES.ERROR])
    def test_job_skipped(self, worker: Worker, job: Task, queue: Queue, consistent: None, status: str) -> None:
        job.status.hset(status)
        worker.job_skipped(job, queue)
        assert state(job) == (status, None)

    def test_job_delayed(self, worker: Worker, job: Task, queue: Queue, consistent: None) -> None:
        job.delayed_until.hset(str(FAR))
        job.status.hset(STATUSES.DELAYED)
        worker.job_delayed(job, queue)
        assert state(job) == ("d", "1")
        assert queue.delayed.zmembers() == [job.ident]

    @pytest.mark.parametrize("delayed_for", [None, 60])
    def test_requeue_job(
        self, worker: Worker, job: Task, queue: Queue, consistent: None, delayed_for: int | None
    ) -> None:
        job.status.hset(STATUSES.ERROR)
        worker.requeue_job(job, queue, 5, delayed_for)
        assert job.hmget("status", "priority") == ["d" if delayed_for else "w", "5"]

    def test_a_whole_life(self, worker: Worker, job: Task, queue: Queue, consistent: None) -> None:
        worker.job_started(job, queue)
        result = worker.execute(RunningTask.add_job("c"), queue)
        worker.job_success(job, queue, result)
        assert state(job) == ("s", None)
        assert job.tries.hget() == "1"
        assert job.duration is not None
        Queue.get_queue("queue").waiting.delete()
        RunningTask.get(1).delete()

    def test_messages(self, worker: Worker, job: Task, queue: Queue) -> None:
        job.start.hset("2030-01-01 00:00:00")
        job.end.hset("2030-01-01 00:00:01.500000")
        error = ValueError("by hand")
        assert worker.job_started_message(job, queue) == "[queue|1|a] starting"
        assert worker.job_success_message(job, queue, None) == "[queue|1|a] success, in 0:00:01.500000"
        assert worker.job_skipped_message(job, queue) == "[queue|1|a] job skipped (current status: WAITING)"
        assert worker.job_delayed_message(job, queue) == "[queue|1|a] job delayed until None"
        text = "[queue|1|a] error: ValueError: by hand"
        assert worker.job_error_message(job, queue, True, error) == f"{text} [requeued]"
        assert worker.job_error_message(job, queue, False, error, "") == f"{text} [NOT requeued]"
        assert worker.job_requeue_message(job, queue) == "[queue|1|a] requeued with priority 2"
        assert worker.additional_error_fields(job, queue, error) == {}
        assert worker.additional_error_fields(job, queue, error, trace="") == {}

    def test_getting_jobs_and_queues(self, worker: Worker, job: Task, queue: Queue) -> None:
        assert worker.get_job(job.ident) == job
        assert worker.get_queue(queue.waiting.key) == queue

    def test_one_worker_for_many_jobs(self, worker: Worker, queue: Queue, consistent: None) -> None:
        jobs = [Task.add_job(name, priority=2) for name in "bcd"]
        queue.waiting.delete()
        for job in jobs:
            worker.job_started(job, queue)
        for job in jobs:
            worker.job_success(job, queue, None)
        assert [state(job) for job in jobs] == [("s", None)] * 3

    def test_a_method_that_was_set_on_the_worker_a_moment_ago(self, worker: Worker, job: Task, queue: Queue) -> None:
        called: list[Any] = []
        worker.job_started(job, queue)
        worker.requeue_job = lambda *args, **kwargs: called.append(args)  # type: ignore[method-assign]
        worker.job_error(job, queue, ValueError("it failed"))
        assert called == [(job, queue, 1)]


class TestOtherMethods:
    def test_update_keys_may_reorder_the_keys(self, collector: Collector, consistent: None) -> None:
        class Reversing(Worker):
            def update_keys(self) -> None:
                super().update_keys()
                self.keys = self.keys[::-1]

        for priority in (1, 3, 2):
            Task.add_job(f"{priority}", priority=priority)
        work(worker_class=Reversing, callback=collector, max_loops=3)
        assert collector.identifiers == ["1", "2", "3"]

    @pytest.mark.parametrize("with_super", [True, False])
    def test_must_stop_may_be_overridden(self, collector: Collector, consistent: None, with_super: bool) -> None:
        class Stopping(Worker):
            def must_stop(self) -> bool:
                return self.num_loops >= 2 or (with_super and super().must_stop())

        for name in "abc":
            Task.add_job(name)
        work(worker_class=Stopping, callback=collector, max_loops=10 if with_super else 1)
        assert collector.identifiers == ["a", "b"]
        assert Task.get(3).hmget("status", "tries") == ["w", None]

    def test_execute_may_work_around_super(self) -> None:
        class Around(Worker):
            def execute(self, job: Job, queue: Queue) -> Any:
                return f"<{super().execute(job, queue)}>"

        class Taking(Around):
            def job_success(self, job: Job, queue: Queue, job_result: Any) -> None:
                results.append(job_result)
                super().job_success(job, queue, job_result)

        results: list[Any] = []
        RunningTask.add_job("a", "q")
        work("q", worker_class=Taking, callback=None)
        assert results == ["<a in q>"]

    def test_set_status_without_super_is_no_harm(self, collector: Collector, consistent: None) -> None:
        class Silent(Worker):
            def set_status(self, status: str) -> None:
                statuses.append(status)

        statuses: list[str] = []
        for name in "ab":
            Task.add_job(name)
        worker = work(worker_class=Silent, callback=collector, max_loops=2)
        assert collector.identifiers == ["a", "b"]
        assert (statuses[0], statuses[-1], worker.status) == ("starting", "terminated", None)

    def test_log_without_super_gets_all_that_is_said(self, log: pytest.LogCaptureFixture) -> None:
        class Keeping(Worker):
            def log(self, message: str, level: str = "info") -> None:
                kept.append((level, message))

        kept: list[tuple[str, str]] = []
        Task.add_job("a")
        Task.add_job("b").status.hset(STATUSES.CANCELED)
        work(worker_class=Keeping, callback=fail, max_loops=2)
        assert [level for level, _ in kept] == ["info", "info", "error", "warning", "info"]
        assert log.records == []

    def test_log_that_raises_does_not_end_the_run(self, redis_client: redis.Redis) -> None:
        class Mute(Worker):
            def log(self, message: str, level: str = "info") -> None:
                if "success, in" in message and "Traceback" not in message:
                    raise Oops

        for name in "ab":
            Task.add_job(name)
        assert work(worker_class=Mute, max_loops=2).num_loops == 2
        assert violations(redis_client, Task, Queue) == []

    def test_log_takes_the_levels_of_logging(self, log: pytest.LogCaptureFixture) -> None:
        worker = worker_of()
        worker.log("a message")
        worker.log("another", level="warning")
        worker.log("the last", "error")
        assert [(record.levelname, record.getMessage()) for record in log.records] == [
            ("INFO", f"[{worker.id}] a message"),
            ("WARNING", f"[{worker.id}] another"),
            ("ERROR", f"[{worker.id}] the last"),
        ]

    def test_the_logger_is_the_one_that_is_named(self, caplog: pytest.LogCaptureFixture) -> None:
        worker = worker_of(logger_name="limpyd-jobs.hooks", logger_level=logging.WARNING)
        worker.log("not said")
        worker.log("said", "warning")
        assert [(record.name, record.levelname) for record in caplog.records] == [("limpyd-jobs.hooks", "WARNING")]
        assert worker.logger is logging.getLogger("limpyd-jobs.hooks")

    def test_set_logger_may_be_replaced(self) -> None:
        class Own(Worker):
            def set_logger(self) -> None:
                self.logger = logging.getLogger("somewhere.else")

        Task.add_job("a")
        assert work(worker_class=Own).logger.name == "somewhere.else"

    def test_run_started_and_run_ended_may_be_replaced(self, log: pytest.LogCaptureFixture) -> None:
        class Own(Worker):
            def run_started(self) -> None:
                told.append(("started", len(self.keys)))

            def run_ended(self) -> None:
                told.append(("ended", self.num_loops))

        told: list[Any] = []
        Task.add_job("a")
        work(worker_class=Own)
        assert told == [("started", 1), ("ended", 1)]
        assert [text for text in messages(log) if text.startswith("Run")] == []

    def test_the_constructor_may_take_more(self) -> None:
        class Own(Worker):
            queues = "queue"
            parameters = (*Worker.parameters, "flavour")
            flavour = "sour"

            def __init__(self, queues: Any = None, **kwargs: Any) -> None:
                super().__init__(queues, **kwargs)
                self.made = True

        worker = Own(flavour="sweet", terminate_gracefuly=False)
        assert (worker.flavour, worker.made, worker.queues) == ("sweet", True, ["queue"])
        assert Own(terminate_gracefuly=False).flavour == "sour"

    def test_a_method_set_on_one_worker_counts_too(self, consistent: None) -> None:
        """As `unittest.mock.patch.object` does."""
        worker = worker_of(callback=set_status(STATUSES.CANCELED))
        called: list[Any] = []
        worker.job_success = lambda *args: called.append(args)  # type: ignore[method-assign]
        job = Task.add_job("a")
        worker.run()
        assert called == []
        assert state(job) == ("c", None)

    def test_a_method_set_on_one_job_counts_too(self, consistent: None) -> None:
        class Setting(Worker):
            def get_job(self, job_ident: str) -> Any:
                job: Any = super().get_job(job_ident)
                job.on_success = lambda queue, result: called.append(result)
                return job

        called: list[Any] = []
        Task.add_job("a")
        work(worker_class=Setting)
        assert called == ["done"]
