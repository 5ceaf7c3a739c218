"""Hooks that raise, and what an application adds to its errors."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from hooking import (
    Case,
    DetailedError,
    Oops,
    Task,
    each_case,
    is_mine,
    state,
    with_hook,
)
from running import Collector, fail, messages, work

from limpyd_jobs import STATUSES, Error, Job, Queue, Worker

pytestmark = pytest.mark.usefixtures("redis_client")


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

    @pytest.mark.matrix
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

    @pytest.mark.matrix
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

    @pytest.mark.matrix
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
            "hooking.Task",
            "1",
            "a",
            "elsewhere",
            "Coded",
            "404",
            "not found",
        ]
        assert len(Error.collection(code=404, type="Coded", queue_name="elsewhere", job_pk=1)) == 1
