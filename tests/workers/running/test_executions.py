"""What the code of a job may do to the job while it runs, and how a failed job is requeued."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Any

import pytest
import redis
from hooking import (
    FAR,
    Task,
    is_mine,
    set_status,
    state,
    with_hook,
)
from running import Collector, delayed_and_due, fail, messages, succeed, work

from limpyd_jobs import STATUSES, Error, Job, Queue, Worker
from limpyd_jobs.dates import datetime_to_score, utcnow

pytestmark = pytest.mark.usefixtures("redis_client")


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

    def test_another_process_may_delete_the_job(self, redis_client: redis.Redis, consistent: None) -> None:
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
