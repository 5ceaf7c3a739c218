"""What applications may override of a worker and define on jobs: when it is called, what it finds, what remains."""

from __future__ import annotations

import logging
import traceback
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

import pytest
import redis
from invariants import violations
from limpyd import fields
from running import Collector, delayed_and_due, fail, messages, succeed, work, worker_of

from limpyd_jobs import STATUSES, Error, Job, Queue, Worker
from limpyd_jobs.dates import datetime_to_score, utcnow

pytestmark = pytest.mark.usefixtures("redis_client")

FAR = datetime(2099, 1, 2, 3, 4, 5, 678)


class Task(Job):
    namespace = "hooks"
    queue_name = "queue"


class Special(Job):
    namespace = "hooks"
    queue_name = "queue"
    note = fields.InstanceHashField()


class SpecialQueue(Queue):
    namespace = "hooks"


class DetailedError(Error):
    namespace = "hooks"
    severity = fields.InstanceHashField(indexable=True)
    hints = fields.ListField()


def set_status(status: str, **values: Any) -> Callable[[Job, Queue], None]:
    """Return a callback that changes the status, and maybe other fields, of its job."""

    def callback(job: Job, queue: Queue) -> None:
        for name, value in values.items():
            job.get_field(name).hset(str(value))
        job.status.hset(status)

    return callback


@dataclass(frozen=True)
class Case:
    """A way to a hook of the worker, and what becomes of the job.

    Attributes
    ----------
    hook, event: str
        The names of the hook, and of the method of the job for the same event.
    status_before: str
        The status that somebody else gives the job while it waits.
    before: tuple
        The status, and `queued`, when the hook begins.
    cached_status: str
        The status that the hook may read without asking Redis.
    after: tuple
        The same as `before`, when the hook is done.
    """

    hook: str
    event: str
    callback: Callable[[Job, Queue], Any]
    before: tuple[str, str | None]
    cached_status: str
    after: tuple[str, str | None]
    status_before: str | None = None
    requeue_times: int = 0

    @property
    def message(self) -> str:
        return {"requeue_job": "job_requeue"}.get(self.hook, self.hook) + "_message"

    def add_job(self) -> Task:
        """Add the job, the only one of the identifier ``a``."""
        job = Task.add_job("a", priority=2)
        if self.status_before:
            job.status.hset(self.status_before)
        return job

    def work(self, worker_class: type[Worker] = Worker, **options: Any) -> Worker:
        return work(
            worker_class=worker_class, **{"callback": self.callback, "requeue_times": self.requeue_times, **options}
        )


CASES = {
    "started": Case("job_started", "on_started", succeed, ("r", "1"), "w", ("s", None)),
    "success": Case("job_success", "on_success", succeed, ("r", "1"), "r", ("s", None)),
    "error": Case("job_error", "on_error", fail, ("r", "1"), "w", ("e", None)),
    "error, then requeued": Case("job_error", "on_error", fail, ("r", "1"), "w", ("d", "1"), requeue_times=1),
    "requeued": Case("requeue_job", "on_requeued", fail, ("e", "1"), "w", ("d", "1"), requeue_times=1),
    "canceled while waiting": Case(
        "job_skipped", "on_skipped", succeed, ("c", "1"), "c", ("c", None), status_before=STATUSES.CANCELED
    ),
    "canceled while running": Case(
        "job_skipped", "on_skipped", set_status(STATUSES.CANCELED), ("c", "1"), "c", ("c", None)
    ),
    "delayed while waiting": Case(
        "job_delayed", "on_delayed", succeed, ("d", "1"), "d", ("d", "1"), status_before=STATUSES.DELAYED
    ),
    "delayed while running": Case(
        "job_delayed", "on_delayed", set_status(STATUSES.DELAYED), ("d", "1"), "d", ("d", "1")
    ),
}

each_case = pytest.mark.parametrize("case", CASES.values(), ids=CASES.keys())


def with_hook(name: str, hook: Callable[..., Any]) -> type[Worker]:
    """Return a worker class that has another version of one method."""
    return type("WorkerWithHook", (Worker,), {name: hook})


def state(job: Job) -> tuple[str, str | None]:
    status, queued = job.hmget("status", "queued")
    return status, queued


def is_mine(job: Job) -> bool:
    """Whether a job is the one that the case is about, and not the next one."""
    return bool(job.identifier.hget() == "a")


@pytest.fixture
def consistent(redis_client: redis.Redis) -> Iterator[None]:
    """Check at the end that no claim, lease or stale entry remains, and that no identifier is blocked."""
    yield
    assert violations(redis_client, Task, Special, Queue, Error, DetailedError) == []


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


class Oops(Exception):
    """Raised in hooks."""


POINTS = ["before super", "after super", "in the message", "in the method of the job"]


class TestHooksThatRaise:
    """It is logged; the job is in errors, claimed by nobody and not queued, unless it is recorded otherwise already."""

    @pytest.fixture(params=POINTS)
    def raising(
        self, request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch
    ) -> Callable[[Case], type[Worker]]:
        """Return a function that prepares an exception for a case, and returns the worker class for it."""

        def raise_for_mine(job: Job) -> None:
            if is_mine(job):
                raise Oops(request.param)

        def hook(case: Case) -> Callable[..., None]:
            def method(self: Any, job: Job, queue: Queue, *args: Any, **kwargs: Any) -> None:
                if request.param == "before super":
                    raise_for_mine(job)
                getattr(Worker, case.hook)(self, job, queue, *args, **kwargs)
                if request.param == "after super":
                    raise_for_mine(job)

            return method

        def message(case: Case) -> Callable[..., str]:
            def method(self: Any, job: Job, queue: Queue, *args: Any, **kwargs: Any) -> str:
                raise_for_mine(job)
                return str(getattr(Worker, case.message)(self, job, queue, *args, **kwargs))

            return method

        def prepare(case: Case) -> type[Worker]:
            if request.param == "in the message":
                return with_hook(case.message, message(case))
            if request.param == "in the method of the job":
                monkeypatch.setattr(Task, case.event, lambda job, *args: raise_for_mine(job), raising=False)
                return Worker
            return with_hook(case.hook, hook(case))

        return prepare

    @each_case
    def test_nothing_of_the_job_remains_and_the_loop_goes_on(
        self,
        log: pytest.LogCaptureFixture,
        collector: Collector,
        consistent: None,
        raising: Callable[[Case], type[Worker]],
        case: Case,
    ) -> None:
        def callback(job: Job, queue: Queue) -> Any:
            return case.callback(job, queue) if is_mine(job) else collector(job, queue)

        worker_class = raising(case)
        job = case.add_job()
        Task.add_job("b")
        worker = case.work(worker_class, callback=callback, max_loops=2)
        assert (worker.num_loops, worker.status) == (2, "terminated")
        assert collector.identifiers == ["b"]
        assert job.claim_token.hget() is None
        assert Queue.get_queue("queue", 2).running.zmembers() == []

    @each_case
    def test_the_identifier_is_not_blocked(
        self, raising: Callable[[Case], type[Worker]], consistent: None, case: Case
    ) -> None:
        worker_class = raising(case)
        first = case.add_job()
        case.work(worker_class)
        again = Task.add_job("a", priority=9, prepend=True)
        assert (again.pk.get() == first.pk.get()) == (again.queued.hget() == "1" and first.queued.hget() == "1")
        work()
        assert again.status.hget() in (STATUSES.SUCCESS, STATUSES.ERROR)

    @each_case
    def test_it_is_recorded(
        self, log: pytest.LogCaptureFixture, raising: Callable[[Case], type[Worker]], case: Case
    ) -> None:
        worker_class = raising(case)
        job = case.add_job()
        case.work(worker_class)
        assert any(point in log.text for point in POINTS)
        assert job.ident in Queue.get_queue("queue", 2).errors.lmembers()
        assert job.status.hget() in (STATUSES.ERROR, case.after[0])
        if case.hook == "job_started":
            (error,) = Error.collection().instances()
            assert error.type.hget() == "Oops"
        else:
            (text,) = [text for text in messages(log) if "unexpected error" in text]
            assert text.startswith("[a] unexpected error: ")
            assert "\nTraceback (most recent call last):\n" in text

    def test_on_started_that_raises_is_a_failed_run(
        self, monkeypatch: pytest.MonkeyPatch, collector: Collector, consistent: None
    ) -> None:
        def on_started(job: Job, queue: Queue) -> None:
            raise Oops

        monkeypatch.setattr(Task, "on_started", on_started, raising=False)
        job = Task.add_job("a", priority=2)
        work(callback=collector, requeue_times=1)
        assert collector.identifiers == []
        assert job.hmget("status", "queued", "tries", "priority") == ["d", "1", "1", "1"]

    def test_an_exception_without_a_text_does_no_more_harm(
        self, log: pytest.LogCaptureFixture, consistent: None
    ) -> None:
        class Unspeakable(Exception):
            def __str__(self) -> str:
                raise RuntimeError

        def callback(job: Job, queue: Queue) -> None:
            raise Unspeakable

        def job_success(self: Any, *args: Any) -> None:
            raise Unspeakable

        first, second = Task.add_job("a"), Task.add_job("b")
        assert work(callback=callback).num_loops == 1
        assert work(worker_class=with_hook("job_success", job_success)).num_loops == 1
        assert [first.status.hget(), second.status.hget()] == ["e", "e"]

    @pytest.mark.parametrize("requeue_times", [0, 1])
    @pytest.mark.parametrize("where", ["additional_error_fields", "add_error", "must_be_cancelled_on_error"])
    def test_what_an_error_asks_for_may_raise_too(
        self,
        monkeypatch: pytest.MonkeyPatch,
        log: pytest.LogCaptureFixture,
        consistent: None,
        where: str,
        requeue_times: int,
    ) -> None:
        def raising(*args: Any, **kwargs: Any) -> Any:
            raise Oops

        worker_class = with_hook(where, raising) if where == "additional_error_fields" else Worker
        if where == "must_be_cancelled_on_error":
            monkeypatch.setattr(Task, where, property(raising))
        options: dict[str, Any] = {}
        if where == "add_error":
            options["error_model"] = type(
                f"RaisingError{requeue_times}", (Error,), {"namespace": "hooks", "add_error": classmethod(raising)}
            )
        job = Task.add_job("a")
        Task.add_job("b")
        assert (
            work(
                worker_class=worker_class, callback=fail, max_loops=2, requeue_times=requeue_times, **options
            ).num_loops
            == 2
        )
        assert state(job) == ("e", None)
        assert "Oops" in log.text


class TestErrorFields:
    def test_the_fields_of_an_error_may_be_given_with_the_trace(self) -> None:
        class Detailing(Worker):
            error_model = DetailedError

            def additional_error_fields(
                self, job: Job, queue: Queue, exception: BaseException, trace: str | None = None
            ) -> dict[str, Any]:
                more = super().additional_error_fields(job, queue, exception, trace)
                return {**more, "severity": "high", "hints": ["look", str(exception)]}

        Task.add_job("a")
        work(worker_class=Detailing, callback=fail)
        (error,) = DetailedError.collection(severity="high").instances()
        assert error.hints.lmembers() == ["look", "it failed"]

    def test_they_may_be_given_without_it(self) -> None:
        class Detailing(Worker):
            error_model = DetailedError

            def additional_error_fields(self, job: Job, queue: Queue, exception: BaseException) -> dict[str, Any]:  # type: ignore[override]
                return {"severity": "low"}

        Task.add_job("a")
        work(worker_class=Detailing, callback=fail)
        assert len(DetailedError.collection(severity="low")) == 1

    @pytest.mark.parametrize("nothing", [None, {}])
    def test_there_may_be_none(self, nothing: Any) -> None:
        Task.add_job("a")
        work(worker_class=with_hook("additional_error_fields", lambda *args, **kwargs: nothing), callback=fail)
        assert len(Error.collection()) == 1

    def test_the_job_is_in_error_when_they_are_asked_for(self, consistent: None) -> None:
        class Looking(Worker):
            def additional_error_fields(
                self, job: Job, queue: Queue, exception: BaseException, trace: str | None = None
            ) -> dict[str, Any]:
                seen.append((*state(job), job.end.hget() is not None))
                return {}

        seen: list[Any] = []
        Task.add_job("a", priority=1)
        Task.add_job("b")
        work(worker_class=Looking, callback=fail, requeue_times=1)
        work(worker_class=Looking, callback=fail)
        assert seen == [("e", "1", True), ("e", None, True)]

    def test_a_field_that_the_model_lacks_is_an_unexpected_error(
        self, log: pytest.LogCaptureFixture, consistent: None
    ) -> None:
        job = Task.add_job("a")
        work(worker_class=with_hook("additional_error_fields", lambda *args: {"flavour": "sweet"}), callback=fail)
        assert state(job) == ("e", None)
        assert "flavour" in log.text
        assert len(Error.collection()) == 0

    def test_they_may_force_the_end_of_the_worker(self, consistent: None) -> None:
        class Stopping(Worker):
            def additional_error_fields(
                self, job: Job, queue: Queue, exception: BaseException, trace: str | None = None
            ) -> dict[str, Any]:
                self.end_forced = True
                return {}

        Task.add_job("a")
        Task.add_job("b")
        assert work(worker_class=Stopping, callback=fail, max_loops=2).num_loops == 1
        assert Task.get(2).hmget("status", "tries") == ["w", None]

    def test_no_error_is_saved_if_none_is_wanted(self) -> None:
        asked: list[Any] = []
        worker_class = with_hook("additional_error_fields", lambda *args, **kwargs: asked.append(args))
        job = Task.add_job("a")
        work(worker_class=worker_class, callback=fail, save_errors=False)
        assert (asked, len(Error.collection())) == ([], 0)
        assert state(job) == ("e", None)

    def test_an_error_says_all_of_its_job(self) -> None:
        class Coded(Exception):
            code = 404

        def callback(job: Job, queue: Queue) -> None:
            raise Coded("not found")

        job = Task.add_job("a", "elsewhere")
        work("elsewhere", callback=callback)
        (error,) = Error.collection_for_job(job).instances()
        assert error.hmget("job_model_repr", "job_pk", "identifier", "queue_name", "type", "code", "message") == [
            "test_hooks.Task",
            "1",
            "a",
            "elsewhere",
            "Coded",
            "404",
            "not found",
        ]
        assert len(Error.collection(code=404, type="Coded", queue_name="elsewhere", job_pk=1)) == 1


class TestRequeueing:
    @pytest.mark.parametrize("requeue_times", [0, None, 1, 3])
    def test_requeue_times_is_how_many_more_runs_there_are(
        self, collector: Collector, consistent: None, requeue_times: int | None
    ) -> None:
        def callback(job: Job, queue: Queue) -> None:
            collector(job, queue)
            raise ValueError

        runs = 1 + (requeue_times or 0)
        job = Task.add_job("a")
        options = {"requeue_times": requeue_times, "requeue_delay_delta": 0, "requeue_priority_delta": 0}
        work(callback=callback, max_loops=runs, **options)
        assert collector.identifiers == ["a"] * runs
        assert job.hmget("status", "queued", "tries") == ["e", None, str(runs)]
        assert Queue.get_queue("queue").errors.lmembers() == [job.ident] * runs

    @pytest.mark.parametrize(("delta", "priority"), [(-1, 1), (0, 2), (3, 5), (-4, -2)])
    def test_requeue_priority_delta_is_added_to_the_priority(self, consistent: None, delta: int, priority: int) -> None:
        job = Task.add_job("a", priority=2)
        work(callback=fail, requeue_times=1, requeue_priority_delta=delta, requeue_delay_delta=0)
        assert job.hmget("status", "priority") == ["w", str(priority)]
        assert Queue.get_queue("queue", priority).waiting.lmembers() == [job.ident]

    @pytest.mark.parametrize("steps", ["at once", "step by step"])
    @pytest.mark.parametrize("delta", [0, None, -5, timedelta(0)])
    def test_no_requeue_delay_delta_lets_the_job_wait_at_once(
        self, monkeypatch: pytest.MonkeyPatch, consistent: None, delta: Any, steps: str
    ) -> None:
        if steps == "step by step":
            monkeypatch.setattr(Task, "on_requeued", lambda *args: None, raising=False)
        job = Task.add_job("a")
        work(callback=fail, requeue_times=1, requeue_delay_delta=delta)
        assert job.hmget("status", "delayed_until", "start", "end", "tries") == ["w", None, None, None, "1"]

    @pytest.mark.parametrize("steps", ["at once", "step by step"])
    @pytest.mark.parametrize("delta", [100, 99.5, timedelta(minutes=2)])
    def test_requeue_delay_delta_delays_the_job(
        self, monkeypatch: pytest.MonkeyPatch, consistent: None, delta: Any, steps: str
    ) -> None:
        if steps == "step by step":
            monkeypatch.setattr(Task, "on_requeued", lambda *args: None, raising=False)
        job = Task.add_job("a")
        before = utcnow()
        work(callback=fail, requeue_times=1, requeue_delay_delta=delta)
        seconds = delta if isinstance(delta, timedelta) else timedelta(seconds=delta)
        assert job.status.hget() == STATUSES.DELAYED
        assert before + seconds <= datetime.fromisoformat(job.delayed_until.hget()) <= utcnow() + seconds
        assert Queue.get_queue("queue", -1).delayed.zcard() == 1

    def test_the_priority_is_counted_from_the_queue_the_job_came_from(self, consistent: None) -> None:
        def callback(job: Job, queue: Queue) -> None:
            job.priority.hset(9)
            raise ValueError

        job = Task.add_job("a", priority=2)
        work(callback=callback, requeue_times=1, requeue_delay_delta=0)
        assert job.priority.hget() == "1"

    def test_a_job_that_never_is_to_be_requeued(self, monkeypatch: pytest.MonkeyPatch, consistent: None) -> None:
        monkeypatch.setattr(Task, "always_cancel_on_error", True)
        job = Task.add_job("a")
        work(callback=fail, requeue_times=3)
        assert state(job) == ("e", None)

    @pytest.mark.parametrize(("value", "status"), [("1", "e"), ("0", "e"), ("False", "e"), ("", "d"), (None, "d")])
    @pytest.mark.parametrize("steps", ["at once", "step by step"])
    def test_cancel_on_error_is_any_text(
        self, monkeypatch: pytest.MonkeyPatch, consistent: None, value: str | None, status: str, steps: str
    ) -> None:
        if steps == "step by step":
            monkeypatch.setattr(Task, "on_error", lambda *args: None, raising=False)
        job = Task.add_job("a")
        if value is not None:
            job.cancel_on_error.hset(value)
        work(callback=fail, requeue_times=1)
        assert job.status.hget() == status

    def test_cancel_on_error_may_be_set_by_the_job_itself(self, consistent: None) -> None:
        def callback(job: Job, queue: Queue) -> None:
            job.cancel_on_error.hset("1")
            raise ValueError

        job = Task.add_job("a")
        work(callback=callback, requeue_times=1)
        assert state(job) == ("e", None)

    @pytest.mark.parametrize("field", [None, "1"])
    @pytest.mark.parametrize(("answer", "status"), [(True, "e"), (False, "d"), ("1", "e"), ("", "d"), (None, "d")])
    def test_must_be_cancelled_on_error_has_the_last_word(
        self, monkeypatch: pytest.MonkeyPatch, consistent: None, field: str | None, answer: Any, status: str
    ) -> None:
        monkeypatch.setattr(Task, "must_be_cancelled_on_error", property(lambda job: answer))
        job = Task.add_job("a")
        if field:
            job.cancel_on_error.hset(field)
        work(callback=fail, requeue_times=1)
        assert job.status.hget() == status

    def test_must_be_cancelled_on_error_may_depend_on_the_tries(
        self, monkeypatch: pytest.MonkeyPatch, consistent: None
    ) -> None:
        monkeypatch.setattr(Task, "must_be_cancelled_on_error", property(lambda job: int(job.tries.hget()) >= 2))
        job = Task.add_job("a")
        work(callback=fail, requeue_times=9, requeue_delay_delta=0, requeue_priority_delta=0, max_loops=2)
        assert job.hmget("status", "tries") == ["e", "2"]


class TestWhatTheExecutionMayDo:
    @pytest.mark.parametrize("hooked", [False, True], ids=["plain worker", "own job_success"])
    @pytest.mark.parametrize("by", ["callback", "execute"])
    @pytest.mark.parametrize(
        ("status", "expected"),
        [
            (STATUSES.CANCELED, ("c", None)),
            (STATUSES.DELAYED, ("d", "1")),
            (STATUSES.SUCCESS, ("s", None)),
            (STATUSES.ERROR, ("s", None)),
            (STATUSES.WAITING, ("s", None)),
        ],
    )
    def test_it_may_set_the_status(
        self, consistent: None, hooked: bool, by: str, status: str, expected: tuple[str, str | None]
    ) -> None:
        def execute(self: Any, job: Job, queue: Queue) -> None:
            job.status.hset(status)

        def job_success(self: Any, job: Job, queue: Queue, result: Any) -> None:
            assert status not in (STATUSES.CANCELED, STATUSES.DELAYED)
            Worker.job_success(self, job, queue, result)

        methods = {"execute": execute, **({"job_success": job_success} if hooked else {})}
        job = Task.add_job("a")
        Task.add_job("b")
        callback = set_status(status) if by == "callback" else None
        worker = work(worker_class=type("Own", (Worker,), methods), callback=callback, max_loops=2)
        assert worker.num_loops == 2
        assert state(job) == expected

    @pytest.mark.parametrize(
        ("until", "stored"),
        [
            (FAR, "2099-01-02 03:04:05.000678"),
            ("2099-01-01", "2099-01-01 00:00:00"),
            ("2099-01-01T02:03:04", "2099-01-01 02:03:04"),
            ("2099-01-01 02:03:04+02:00", "2099-01-01 00:03:04"),
            ("2099-01-01T02:03:04Z", "2099-01-01 02:03:04"),
        ],
    )
    def test_it_may_delay_the_job_until_a_date(self, consistent: None, until: Any, stored: str) -> None:
        job = Task.add_job("a")
        work(callback=set_status(STATUSES.DELAYED, delayed_until=until))
        assert job.hmget("status", "queued", "delayed_until", "end") == ["d", "1", stored, None]
        assert Queue.get_queue("queue").first_delayed == (job.ident, datetime_to_score(datetime.fromisoformat(stored)))

    @pytest.mark.parametrize("until", [None, "", "garbage", "99999-01-01"])
    def test_a_job_that_says_not_until_when_is_delayed_by_a_minute(self, consistent: None, until: str | None) -> None:
        job = Task.add_job("a")
        before = utcnow()
        work(callback=set_status(STATUSES.DELAYED, **({} if until is None else {"delayed_until": until})))
        minute = timedelta(seconds=60)
        assert before + minute <= datetime.fromisoformat(job.delayed_until.hget()) <= utcnow() + minute

    def test_a_job_that_is_delayed_until_a_past_date_waits_at_once(
        self, log: pytest.LogCaptureFixture, consistent: None
    ) -> None:
        job = Task.add_job("a")
        work(callback=set_status(STATUSES.DELAYED, delayed_until="2001-01-01 00:00:00"))
        assert job.hmget("status", "queued", "delayed_until") == ["w", "1", None]
        assert Queue.get_queue("queue").waiting.lmembers() == [job.ident]
        assert "[queue|1|a] job put back in its queue" in messages(log)

    def test_a_job_that_was_delayed_before_must_say_until_when_again(self, consistent: None) -> None:
        job = delayed_and_due(Task, "a")
        work(callback=set_status(STATUSES.DELAYED))
        assert job.hmget("status", "delayed_until") == ["w", None]

    def test_it_may_set_the_tries_back(self, consistent: None) -> None:
        job = Task.add_job("a")
        for _ in range(3):
            work(callback=set_status(STATUSES.DELAYED, tries=0, delayed_until="2001-01-01 00:00:00"))
        assert job.hmget("status", "tries") == ["w", "0"]
        work()
        assert job.hmget("status", "tries") == ["s", "1"]

    def test_tries_that_are_set_decide_on_another_run(self, consistent: None) -> None:
        def callback(job: Job, queue: Queue) -> None:
            job.tries.hset(5)
            raise ValueError

        job = Task.add_job("a")
        work(callback=callback, requeue_times=4)
        assert state(job) == ("e", None)

    def test_its_priority_decides_where_it_is_delayed(self, consistent: None) -> None:
        job = Task.add_job("a", priority=2)
        work(callback=set_status(STATUSES.DELAYED, priority=7, delayed_until=FAR))
        assert Queue.get_queue("queue", 7).delayed.zmembers() == [job.ident]

    def test_a_failed_job_is_in_error_whatever_status_it_set(self, consistent: None) -> None:
        def callback(job: Job, queue: Queue) -> None:
            job.status.hset(statuses.pop())
            raise ValueError

        statuses = [STATUSES.CANCELED, STATUSES.DELAYED, STATUSES.SUCCESS]
        jobs = [Task.add_job(name) for name in "abc"]
        work(callback=callback, max_loops=3)
        assert [state(job) for job in jobs] == [("e", None)] * 3

    def test_execute_may_catch_exceptions(self, consistent: None) -> None:
        class Patient(Worker):
            def execute(self, job: Job, queue: Queue) -> Any:
                try:
                    return super().execute(job, queue)
                except NotImplementedError:
                    job.delayed_until.hset(str(FAR))
                    job.status.hset(STATUSES.DELAYED)

        job = Task.add_job("a")
        work(worker_class=Patient, callback=None)
        assert job.hmget("status", "delayed_until") == ["d", str(FAR)]

    def test_it_may_be_any_callable(self) -> None:
        class Caller:
            def __call__(self, job: Job, queue: Queue) -> str:
                return "called"

            def method(self, job: Job, queue: Queue) -> str:
                return "called"

        results: list[Any] = []

        class Taking(Worker):
            def job_success(self, job: Job, queue: Queue, job_result: Any) -> None:
                results.append(job_result)
                super().job_success(job, queue, job_result)

        for callback in (Caller(), Caller().method, lambda job, queue: "called"):
            Task.add_job("a")
            work(worker_class=Taking, callback=callback)
        assert results == ["called"] * 3

    def test_a_job_without_a_run_method_fails(self) -> None:
        job = Task.add_job("a")
        work(callback=None)
        (error,) = Error.collection_for_job(job).instances()
        assert error.type.hget() == "NotImplementedError"

    @pytest.mark.parametrize("ending", ["succeeds", "fails", "is requeued"])
    @pytest.mark.parametrize("hooked", [False, True], ids=["plain job", "own on_success and on_error"])
    def test_it_may_delete_the_job(
        self,
        monkeypatch: pytest.MonkeyPatch,
        log: pytest.LogCaptureFixture,
        redis_client: redis.Redis,
        consistent: None,
        ending: str,
        hooked: bool,
    ) -> None:
        def callback(job: Job, queue: Queue) -> None:
            if job._cached_identifier == "a":
                job.delete()
                if ending != "succeeds":
                    raise ValueError

        if hooked:
            monkeypatch.setattr(Task, "on_success", lambda *args: None, raising=False)
            monkeypatch.setattr(Task, "on_error", lambda *args: None, raising=False)
        Task.add_job("a")
        Task.add_job("b")
        worker = work(callback=callback, max_loops=2, requeue_times=int(ending == "is requeued"))
        assert worker.num_loops == 2
        assert list(Task.collection()) == ["2"]
        assert Task.get(2).status.hget() == STATUSES.SUCCESS
        assert redis_client.keys("jobs:queue:*:_running") == []
        assert any(text.startswith("[a] ") and "exist" in text for text in messages(log))

    def test_somebody_else_may_delete_the_job(self, redis_client: redis.Redis, consistent: None) -> None:
        def callback(job: Job, queue: Queue) -> None:
            if is_mine(job):
                Task.get(job.pk.get()).delete()

        Task.add_job("a")
        Task.add_job("b")
        assert work(callback=callback, max_loops=2).num_loops == 2
        assert list(Task.collection()) == ["2"]
        assert redis_client.keys("jobs:queue:*:_running") == []

    def test_it_may_delete_its_queue(self, log: pytest.LogCaptureFixture) -> None:
        def callback(job: Job, queue: Queue) -> None:
            if is_mine(job):
                queue.delete()

        job = Task.add_job("a", priority=2)
        Task.add_job("b")
        assert work(callback=callback, max_loops=2).num_loops == 2
        assert Task.get(2).status.hget() == STATUSES.SUCCESS
        assert job.claim_token.hget() is None

    def test_it_may_add_itself_which_is_itself(self, consistent: None) -> None:
        def callback(job: Job, queue: Queue) -> None:
            assert Task.add_job("a", priority=9, prepend=True).pk.get() == job.pk.get()
            assert state(job) == ("r", "1")

        job = Task.add_job("a")
        work(callback=callback)
        assert state(job) == ("s", None)
        assert job.priority.hget() == "0"

    @pytest.mark.parametrize("event", ["on_success", "on_error", "on_skipped"])
    def test_a_copy_may_be_added_once_it_has_ended(
        self, monkeypatch: pytest.MonkeyPatch, consistent: None, event: str
    ) -> None:
        def method(job: Job, queue: Queue, *args: Any) -> None:
            copies.append(Task.add_job(job.identifier.hget()))

        copies: list[Task] = []
        monkeypatch.setattr(Task, event, method, raising=False)
        callbacks = {"on_success": succeed, "on_error": fail, "on_skipped": set_status(STATUSES.CANCELED)}
        job = Task.add_job("a")
        work(callback=callbacks[event], max_loops=3)
        assert [copy.pk.get() for copy in copies] == ["2", "3", "4"]
        assert state(copies[-1]) == ("w", "1")
        assert job.queued.hget() is None

    @pytest.mark.parametrize("event", ["on_started", "on_error", "on_requeued", "on_delayed"])
    def test_no_copy_can_be_added_before(self, monkeypatch: pytest.MonkeyPatch, consistent: None, event: str) -> None:
        def method(job: Job, queue: Queue, *args: Any) -> None:
            copies.append(Task.add_job(job.identifier.hget()))

        copies: list[Task] = []
        monkeypatch.setattr(Task, event, method, raising=False)
        callback = set_status(STATUSES.DELAYED) if event == "on_delayed" else fail
        job = Task.add_job("a")
        work(callback=callback, requeue_times=1)
        assert [copy.pk.get() for copy in copies] == [job.pk.get()]

    def test_it_may_put_the_job_back_by_itself_for_later(self, log: pytest.LogCaptureFixture, consistent: None) -> None:
        def callback(job: Job, queue: Queue) -> None:
            job.enqueue_or_delay(queue_name="queue", delayed_until=FAR)

        job = Task.add_job("a")
        work(callback=callback)
        assert job.hmget("status", "queued", "delayed_until") == ["d", "1", str(FAR)]
        assert f"[queue|1|a] job delayed until {FAR}" in messages(log)

    @pytest.mark.parametrize("hooked", [False, True], ids=["plain worker", "own job_success"])
    def test_it_may_put_the_job_back_by_itself_at_once(self, consistent: None, hooked: bool) -> None:
        def callback(job: Job, queue: Queue) -> None:
            if is_mine(job):
                job.enqueue_or_delay(queue_name="elsewhere", priority=3)

        def job_success(self: Any, job: Job, queue: Queue, result: Any) -> None:
            Worker.job_success(self, job, queue, result)

        job = Task.add_job("a")
        Task.add_job("b")
        worker_class = with_hook("job_success", job_success) if hooked else Worker
        assert work(worker_class=worker_class, callback=callback, max_loops=2).num_loops == 2
        assert state(job) in [("w", "1"), ("s", None)]
        assert Task.get(2).status.hget() == STATUSES.SUCCESS

    def test_it_cannot_requeue_the_job_while_it_runs(self, consistent: None) -> None:
        def callback(job: Job, queue: Queue) -> None:
            job.requeue()

        job = Task.add_job("a")
        work(callback=callback)
        (error,) = Error.collection_for_job(job).instances()
        assert error.type.hget() == "LimpydJobsException"

    @pytest.mark.parametrize("requeue_times", [0, 1])
    def test_on_error_may_requeue_the_job(
        self, monkeypatch: pytest.MonkeyPatch, consistent: None, requeue_times: int
    ) -> None:
        def on_error(job: Job, queue: Queue, exception: BaseException, trace: str | None) -> None:
            job.requeue(priority=7, delayed_until=FAR)

        monkeypatch.setattr(Task, "on_error", on_error, raising=False)
        job = Task.add_job("a")
        work(callback=fail, requeue_times=requeue_times)
        assert job.hmget("status", "queued", "priority", "delayed_until", "end") == ["d", "1", "7", str(FAR), None]

    def test_it_may_change_the_identifier(self, consistent: None) -> None:
        def callback(job: Job, queue: Queue) -> None:
            job.identifier.hset("b")

        job = Task.add_job("a")
        work(callback=callback)
        assert list(Task.collection(identifier="b", status="s")) == [job.pk.get()]
        assert list(Task.collection(identifier="a")) == []

    def test_it_may_run_a_worker_of_its_own(self, consistent: None) -> None:
        def callback(job: Job, queue: Queue) -> None:
            work("inner")

        outer, inner = Task.add_job("a"), Task.add_job("b", "inner")
        work(callback=callback)
        assert [outer.status.hget(), inner.status.hget()] == ["s", "s"]

    def test_it_may_move_jobs_by_hand(self, collector: Collector, consistent: None) -> None:
        def callback(job: Job, queue: Queue) -> None:
            collector(job, queue)
            if is_mine(job):
                queue.waiting.lpop()
                Task.get(2).delete()

        for name in "abc":
            Task.add_job(name)
        work(callback=callback, max_loops=2)
        assert collector.identifiers == ["a", "c"]


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


class RunningTask(Job):
    namespace = "hooks"
    queue_name = "queue"

    def run(self, queue: Queue) -> str:
        return f"{self.identifier.hget()} in {queue.name.hget()}"


class TestFetching:
    def test_wait_for_job_may_fetch_by_itself(self, collector: Collector, consistent: None) -> None:
        class Own(Worker):
            def wait_for_job(self) -> Any:
                popped = self.connection.blpop(self.keys, timeout=1)
                if popped is None:
                    self.end_forced = True
                    return None
                key, ident = popped
                return self.get_queue(key), self.get_job(ident)

        jobs = [Task.add_job(name, priority=priority) for name, priority in (("a", 1), ("b", 3), ("c", 1))]
        jobs[2].status.hset(STATUSES.CANCELED)
        worker = work(worker_class=Own, callback=collector, max_loops=4)
        assert collector.identifiers == ["b", "a"]
        assert worker.num_loops == 3
        assert [job.hmget("status", "tries") for job in jobs] == [["s", "1"], ["s", "1"], ["c", None]]

    def test_wait_for_job_may_make_the_objects_by_itself(self, log: pytest.LogCaptureFixture, consistent: None) -> None:
        class Own(Worker):
            def wait_for_job(self) -> Any:
                queue = Queue.get_queue("queue", 2)
                return queue, Job.get_from_ident(queue.waiting.lpop())

            def job_started(self, job: Any, queue: Any) -> None:
                seen.append((job._cached_identifier, job._cached_status, queue._cached_name))
                super().job_started(job, queue)

        seen: list[Any] = []
        job = Task.add_job("a", priority=2)
        work(worker_class=Own, callback=fail, requeue_times=1)
        assert seen == [("a", "w", "queue")]
        assert job.hmget("status", "priority", "tries") == ["d", "1", "1"]
        assert "[queue|1|a] error: ValueError: it failed [requeued]" in messages(log)

    def test_wait_for_job_may_work_around_super(self, collector: Collector, consistent: None) -> None:
        class Around(Worker):
            def wait_for_job(self) -> Any:
                found = super().wait_for_job()
                if found:
                    found[1].decorated = True
                return found

        def callback(job: Any, queue: Queue) -> None:
            assert job.decorated
            collector(job, queue)

        for name in "abc":
            Task.add_job(name)
        work(worker_class=Around, callback=callback, max_loops=3)
        assert collector.identifiers == ["a", "b", "c"]

    def test_wait_for_job_may_refuse_a_job_it_got(self, redis_client: redis.Redis, collector: Collector) -> None:
        class Picky(Worker):
            def wait_for_job(self) -> Any:
                found = super().wait_for_job()
                if found and found[1].identifier.hget() == "a":
                    return None
                return found

        job = Task.add_job("a")
        Task.add_job("b")
        work(worker_class=Picky, callback=collector)
        assert collector.identifiers == ["b"]
        assert violations(redis_client, Task, Queue) == []
        assert job.queued.hget() == "1"

    def test_wait_for_job_may_return_a_job_that_is_in_no_list(self, collector: Collector, consistent: None) -> None:
        class FromElsewhere(Worker):
            def wait_for_job(self) -> Any:
                job = Task(identifier="a", status=STATUSES.WAITING, queued="1")
                return Queue.get_queue("queue", 4), job

        Queue.get_queue("queue")
        work(worker_class=FromElsewhere, callback=collector)
        assert collector.identifiers == ["a"]
        assert Task.get(1).hmget("status", "tries") == ["s", "1"]
        assert Queue.get_queue("queue", 4).success.lmembers() == ["test_hooks.Task:1"]

    def test_get_job_may_decorate_the_job(self, consistent: None) -> None:
        class Decorating(Worker):
            def get_job(self, job_ident: str) -> Any:
                job: Any = super().get_job(job_ident)
                job.decorated_with = job_ident
                return job

        def callback(job: Any, queue: Queue) -> None:
            seen.append(job.decorated_with)

        seen: list[str] = []
        jobs = [Task.add_job(name) for name in "ab"]
        work(worker_class=Decorating, callback=callback, max_loops=2)
        assert seen == [job.ident for job in jobs]

    def test_get_job_may_be_replaced(self, consistent: None) -> None:
        class Own(Worker):
            def get_job(self, job_ident: str) -> Any:
                return Task(job_ident.split(":")[1])

        job = Task.add_job("a")
        work(worker_class=Own)
        assert state(job) == ("s", None)

    def test_get_job_may_return_another_job(
        self, redis_client: redis.Redis, collector: Collector, consistent: None
    ) -> None:
        class Another(Worker):
            def get_job(self, job_ident: str) -> Any:
                return other

        other, job = Task.add_job("other", "elsewhere"), Task.add_job("a")
        work(worker_class=Another, callback=collector)
        assert collector.identifiers == ["other"]
        assert other.hmget("status", "tries") == ["s", "1"]
        assert job.queued.hget() == "1"
        assert redis_client.keys("jobs:queue:*:_running") == []
        Queue.get_queue("elsewhere").waiting.delete()

    def test_get_job_may_return_a_job_of_another_class(self, redis_client: redis.Redis, collector: Collector) -> None:
        class Another(Worker):
            def get_job(self, job_ident: str) -> Any:
                return Special(identifier="special", status=STATUSES.WAITING, queued="1", note="mine")

        Task.add_job("a")
        work(worker_class=Another, callback=collector)
        assert collector.identifiers == ["special"]
        assert Special.get(1).hmget("status", "tries", "note") == ["s", "1", "mine"]
        assert violations(redis_client, Special, Queue) == []

    def test_get_queue_may_return_a_queue_with_attributes(self, consistent: None) -> None:
        class Decorating(Worker):
            def get_queue(self, queue_redis_key: str) -> Any:
                queue: Any = super().get_queue(queue_redis_key)
                queue.key_it_came_from = queue_redis_key
                return queue

        seen: list[str] = []
        Task.add_job("a", priority=3)
        work(worker_class=Decorating, callback=lambda job, queue: seen.append(queue.key_it_came_from))
        assert seen == [Queue.get_queue("queue", 3).waiting.key]

    def test_get_queue_may_be_replaced(self, consistent: None) -> None:
        class Own(Worker):
            def get_queue(self, queue_redis_key: str) -> Any:
                return Queue(queue_redis_key.split(":")[2])

        job = Task.add_job("a", priority=3)
        work(worker_class=Own, callback=fail, requeue_times=1)
        assert job.hmget("status", "priority") == ["d", "2"]

    @pytest.mark.parametrize("ending", ["succeeds", "fails", "is requeued", "is canceled", "is delayed"])
    @pytest.mark.parametrize("prefetch", [1, 10, "auto"])
    def test_get_queue_may_return_a_queue_of_another_model(
        self, redis_client: redis.Redis, ending: str, prefetch: int | str
    ) -> None:
        class Own(Worker):
            def get_queue(self, queue_redis_key: str) -> Any:
                queue = super().get_queue(queue_redis_key)
                return SpecialQueue.get_queue(*queue.hmget("name", "priority"))

        callbacks = {
            "succeeds": succeed,
            "is canceled": set_status(STATUSES.CANCELED),
            "is delayed": set_status(STATUSES.DELAYED),
        }
        job = Task.add_job("a", priority=3)
        requeue_times = int(ending == "is requeued")
        work(worker_class=Own, callback=callbacks.get(ending, fail), requeue_times=requeue_times, prefetch=prefetch)
        queue = SpecialQueue.get_queue("queue", 3)
        assert queue.success.llen() + queue.errors.llen() + queue.delayed.zcard() + (ending == "is canceled") >= 1
        assert job.claim_token.hget() is None
        assert redis_client.keys("*:_running") == []

    def test_a_queue_model_of_ones_own_is_used_throughout(self, redis_client: redis.Redis) -> None:
        seen: list[Any] = []
        Task.add_job("a", queue_model=SpecialQueue, priority=3)
        worker = work(queue_model=SpecialQueue, callback=lambda job, queue: seen.append(queue))
        assert seen == [SpecialQueue.get_queue("queue", 3)]
        assert worker.keys == SpecialQueue.get_waiting_keys("queue")
        assert violations(redis_client, Task, SpecialQueue) == []
        assert redis_client.keys("jobs:queue:*") == []


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
