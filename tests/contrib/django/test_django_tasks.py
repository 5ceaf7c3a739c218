"""Tasks of Django, as jobs: what the tests of Django itself do not say."""

from __future__ import annotations

import json
from datetime import timedelta, timezone
from typing import Any

import pytest
import redis
from bookshop import tasks
from bookshop.models import Book
from django.core.checks import run_checks
from django.db import transaction
from django.test import TestCase, override_settings
from django.utils.timezone import now

from limpyd_jobs import STATUSES, Worker
from limpyd_jobs.contrib.django.tasks import TaskJob, task
from limpyd_jobs.contrib.django.tasks.framework import (
    InvalidTask,
    TaskResultDoesNotExist,
    TaskResultStatus,
    task_enqueued,
    task_finished,
    task_started,
)
from limpyd_jobs.contrib.django.tasks.resolving import UnknownTask, task_at
from limpyd_jobs.contrib.django.tasks.results import path_of_error
from limpyd_jobs.query import JobFilter, explain_job
from limpyd_jobs.testing import drain


def only_job() -> Any:
    (pk,) = TaskJob.collection()
    return TaskJob.get(pk)


class TestATaskIsAJob:
    def test_that_waits_in_the_queue_and_with_the_priority_of_the_task(self) -> None:
        result = tasks.noop_task.using(queue_name="mails", priority=-100).enqueue(1, two=[3])
        job = only_job()
        assert (job.identifier.hget(), job.status.hget(), job.priority.hget()) == (result.id, STATUSES.WAITING, "-100")
        assert job.ident == "limpyd_jobs.contrib.django.tasks.TaskJob:1"
        assert job.arguments.parameters == [[1], {"two": [3]}]
        assert explain_job(job.ident)
        assert JobFilter("queue=mails", task="bookshop.tasks.noop_task").count().number == 1

    def test_that_runs_by_priority(self) -> None:
        for title, priority in (("low", -5), ("high", 100), ("none", 0)):
            tasks.restock.using(priority=priority, unique=False).enqueue(title)
        drain("default")
        assert tasks.ran == ["high", "none", "low"]

    def test_that_is_requeued_after_a_failure_as_any(self) -> None:
        result = tasks.failing_task_value_error.enqueue()
        drain("default", raise_errors=False)
        assert JobFilter("status=error").requeue_all().done == 1
        result.refresh()
        assert (result.status, len(result.errors), result.attempts) == (TaskResultStatus.READY, 1, 1)
        drain("default", raise_errors=False)
        result.refresh()
        assert (result.status, len(result.errors), result.attempts) == (TaskResultStatus.FAILED, 2, 2)

    def test_that_is_canceled_is_one_that_failed(self) -> None:
        result = tasks.noop_task.enqueue()
        only_job().cancel()
        result.refresh()
        assert (result.status, result.errors) == (TaskResultStatus.FAILED, [])

    def test_that_is_delayed_until_a_time(self) -> None:
        moment = now() + timedelta(hours=1)
        tasks.noop_task.using(run_after=moment).enqueue()
        assert only_job().delayed_until.hget() == str(moment.astimezone(timezone.utc).replace(tzinfo=None))

    def test_that_is_delayed_until_a_local_time_if_times_are_naive(self) -> None:
        with override_settings(USE_TZ=False):
            moment = now().replace(year=2100, month=1, day=5, hour=12)
            tasks.noop_task.using(run_after=moment).enqueue()
        assert only_job().delayed_until.hget().startswith("2100-01-05 11:")  # in Paris


class TestATaskThatFails:
    def test_is_tried_again_as_it_says(self) -> None:
        result = tasks.print_invoice.enqueue(7)
        drain("default", with_delayed=True)
        result.refresh()
        assert tasks.ran == [(7, 1), (7, 2), (7, 3)]
        assert (result.status, result.return_value) == (TaskResultStatus.SUCCESSFUL, {"printed": 7})
        assert result.attempts == 3
        assert {error.exception_class for error in result.errors} == {tasks.NoPaper}
        assert result.started_at <= result.last_attempted_at <= result.finished_at

    def test_tells_its_errors_with_their_tracebacks_the_oldest_first(self) -> None:
        result = tasks.print_invoice.using(max_attempts=2).enqueue(7)
        drain("default", with_delayed=True, raise_errors=False)
        result.refresh()
        assert result.status == TaskResultStatus.FAILED
        assert ["raise NoPaper" in error.traceback for error in result.errors] == [True, True]

    @pytest.mark.parametrize(
        ("given", "message"),
        [
            ({"max_attempts": 0}, "max_attempts must be an integer of 1 or more, not 0"),
            ({"backoff": 5}, "A backoff needs max_attempts"),
            ({"max_attempts": 2, "backoff": "soon"}, "max_attempts and backoff do not go"),
            ({"unique": "yes"}, "unique must be True or False"),
            ({"queue_name": "a,b"}, "The name of a queue"),
        ],
    )
    def test_may_not_say_so_wrongly(self, given: dict[str, Any], message: str) -> None:
        with pytest.raises(InvalidTask, match=message):
            tasks.noop_task.using(**given)

    def test_that_its_worker_does_not_survive_is_tried_by_another(self, redis_client: redis.Redis) -> None:
        result = tasks.check_context.enqueue(2)
        dead = Worker("default", lease=30, terminate_gracefuly=False)
        dead.update_keys()
        dead.wait_for_job()
        first = only_job().claim_owner()
        for key in redis_client.keys("jobs:queue:*:_running"):
            redis_client.zadd(key, {only_job().ident: 1})  # its lease lapsed long ago
        Worker("default", terminate_gracefuly=False, max_loops=1, timeout=1).run()
        result.refresh()
        assert result.status == TaskResultStatus.SUCCESSFUL, result.errors
        assert result.attempts == 2
        assert result.worker_ids[0] == first != result.worker_ids[1]


class TestAUniqueTask:
    def test_is_not_added_while_it_is_queued_with_the_same_arguments(self) -> None:
        one, same, other = (tasks.restock.enqueue(title) for title in ("Emma", "Emma", "Persuasion"))
        assert one.id == same.id != other.id
        drain("default")
        assert tasks.ran == ["Emma", "Persuasion"]

    def test_has_the_result_of_its_last_run(self) -> None:
        for _ in range(2):
            result = tasks.restock.enqueue("Emma")
            drain("default")
        result.refresh()
        assert result.return_value == 2


def test_a_return_value_need_not_be_kept() -> None:
    result = tasks.secret.enqueue()
    drain("default")
    result.refresh()
    assert (result.status, result.return_value) == (TaskResultStatus.SUCCESSFUL, None)
    assert "secret" not in str(TaskJob.get_connection().get("django:taskjob:1:result"))


def test_the_signals_come_with_what_is_known(redis_client: redis.Redis) -> None:
    told: list[Any] = []

    def note(sender: Any, task_result: Any, **others: Any) -> None:
        told.append((sender.__name__, task_result.status, task_result.id, len(task_result.worker_ids)))

    for signal in (task_enqueued, task_started, task_finished):
        signal.connect(note)
    try:
        result = tasks.noop_task.enqueue()
        drain("default")
    finally:
        for signal in (task_enqueued, task_started, task_finished):
            signal.disconnect(note)
    assert told == [
        ("LimpydBackend", TaskResultStatus.READY, result.id, 0),
        ("LimpydBackend", TaskResultStatus.RUNNING, result.id, 1),
        ("LimpydBackend", TaskResultStatus.SUCCESSFUL, result.id, 1),
    ]


class TestWhatARecordNames:
    @pytest.mark.parametrize(
        "path",
        [
            "bookshop.tasks.not_a_task",
            "bookshop.tasks.renamed",
            "bookshop.tasks.Book",
            "bookshop.tasks",
            "os.system",
            "antigravity.geohash",
            "",
            "bookshop.tasks.noop_task\nERROR forged",
        ],
    )
    def test_is_run_only_if_it_is_a_task_that_is_imported(self, path: str) -> None:
        with pytest.raises(UnknownTask) as caught:
            task_at(path)
        assert str(caught.value).isprintable()

    def test_may_be_narrowed_by_job_modules(self, monkeypatch: pytest.MonkeyPatch) -> None:
        assert task_at("bookshop.tasks.noop_task") is tasks.noop_task
        monkeypatch.setattr("limpyd_jobs.contrib.django.tasks.resolving.job_modules", lambda: ("elsewhere",))
        with pytest.raises(UnknownTask):
            task_at("bookshop.tasks.noop_task")

    def test_that_a_worker_does_not_have_is_put_back_for_another_and_fails_in_the_end(
        self, caplog: pytest.LogCaptureFixture
    ) -> None:
        add = {"parameters": [[], {}], "backend": "default", "enqueued_at": now()}
        job = TaskJob.add_job("one", "default", task="bookshop.tasks.not_a_task", **add)
        assert drain("default").requeued == 1
        assert job.status.hget() == STATUSES.DELAYED
        why = "bookshop.tasks.not_a_task is not a task that this process has imported: define it in tasks.py of an "
        assert f"[one] {why}" in caplog.text
        assert any(why in reason.text for reason in job.explain().reasons)
        assert drain("default", with_delayed=True, raise_errors=False).error == 1
        assert job.tries.hget() == "11"
        assert caplog.text.count(f"[one] {why}") == 1
        with pytest.raises(TaskResultDoesNotExist):
            tasks.noop_task.get_result("one")

    def test_may_be_broken_without_breaking_what_reads_it(self, redis_client: redis.Redis) -> None:
        result = tasks.noop_task.enqueue()
        broken = {"parameters": "[", "priority": "high", "start": "soon", "tries": "many", "enqueued_at": "x"}
        redis_client.hset("django:taskjob:1:hash", mapping={**broken, "parameters": json.dumps([[], {}])})
        assert tasks.noop_task.get_result(result.id).worker_ids == []
        redis_client.hset("django:taskjob:1:hash", mapping=broken)
        with pytest.raises(TaskResultDoesNotExist):
            tasks.noop_task.get_result(result.id)

    def test_may_be_an_error_whose_class_is_not_imported(self) -> None:
        error = pytest.importorskip("limpyd_jobs.contrib.django.tasks.results").StoredTaskError
        assert error(exception_class_path="builtins.KeyError", traceback="").exception_class is KeyError
        for path in ("antigravity.Error", "builtins.print", "builtins.int", ""):
            with pytest.raises(ValueError, match="is not an exception that this process has imported"):
                error(exception_class_path=path, traceback="").exception_class  # noqa: B018


def test_the_class_of_an_error_is_read_from_its_traceback() -> None:
    trace = 'Traceback:\n  File "a.py", line 1\n    raise it\nshop.errors.Gone: a\nbuiltins.Gone: b'
    assert path_of_error("Gone", trace) == "shop.errors.Gone"
    assert path_of_error("KeyError", "") == "builtins.KeyError"


class OnCommit(TestCase):
    """A task is added once the transaction is committed that adds it."""

    SETTINGS = {"default": {"BACKEND": "limpyd_jobs.contrib.django.tasks.LimpydBackend"}}

    def test_it_is_added_then_with_the_id_that_was_known_before(self) -> None:
        with override_settings(TASKS=self.SETTINGS), self.captureOnCommitCallbacks(execute=True):
            result = tasks.noop_task.enqueue()
            assert result.enqueued_at is None
            with pytest.raises(TaskResultDoesNotExist):
                result.refresh()
        result.refresh()
        assert result.status == TaskResultStatus.READY
        assert result.enqueued_at is not None

    def test_it_is_never_added_if_that_is_rolled_back(self) -> None:
        with override_settings(TASKS=self.SETTINGS), self.captureOnCommitCallbacks(execute=True), transaction.atomic():
            tasks.noop_task.enqueue()
            transaction.set_rollback(True)
        assert not TaskJob.collection()

    def test_a_task_may_say_otherwise(self) -> None:
        with override_settings(TASKS=self.SETTINGS), self.captureOnCommitCallbacks() as callbacks:
            tasks.at_once.enqueue()
            tasks.noop_task.using(enqueue_on_commit=False).enqueue()
        assert len(TaskJob.collection()) == 2
        assert callbacks == []

    def test_a_test_runs_it_at_once_by_real_scripts(self) -> None:
        settings = {"default": {"BACKEND": "limpyd_jobs.contrib.django.tasks.InProcessBackend"}}
        with override_settings(TASKS=settings), self.captureOnCommitCallbacks(execute=True):
            Book.objects.create(title="Emma")
            result = tasks.order.enqueue("Emma")
            assert tasks.ran == []
        assert tasks.ran == ["Emma"]
        assert result.status == TaskResultStatus.SUCCESSFUL

    def test_what_a_task_enqueues_in_a_test_runs_after_it(self) -> None:
        options = {"ENQUEUE_ON_COMMIT": False}
        settings = {"default": {"BACKEND": "limpyd_jobs.contrib.django.tasks.InProcessBackend", "OPTIONS": options}}
        with override_settings(TASKS=settings):
            tasks.order_two.enqueue()
        assert tasks.ran == ["first", "second"]
        statuses = {TaskJob.get(pk).status.hget() for pk in TaskJob.collection()}
        assert statuses == {STATUSES.SUCCESS}


class TestTheChecks:
    def found(self, **settings: Any) -> list[str]:
        backend = {"BACKEND": "limpyd_jobs.contrib.django.tasks.LimpydBackend", **settings}
        with override_settings(TASKS={"default": backend}, DEBUG=True):
            return [f"{each.id}: {each.msg}" for each in run_checks() if (each.id or "").startswith("limpyd_jobs.")]

    def test_find_nothing_wrong(self) -> None:
        assert self.found(OPTIONS={"ENQUEUE_ON_COMMIT": True, "DATABASE": "default"}) == []

    def test_find_an_option_that_does_not_exist(self) -> None:
        (text,) = self.found(OPTIONS={"ON_COMMIT": True})
        assert text.startswith("limpyd_jobs.E011: TASKS['default']['OPTIONS'] has 'ON_COMMIT': True")

    def test_find_a_queue_that_no_worker_can_serve(self) -> None:
        (text,) = self.found(QUEUES=["a,b"])
        assert text.startswith("limpyd_jobs.E012: TASKS['default']['QUEUES']: The name of a queue must")


def test_the_decorator_makes_a_function_a_task_with_our_options() -> None:
    made = task(max_attempts=5, backoff=[1, 60], priority=3)(tasks.noop_task.func)
    assert (made.max_attempts, made.backoff, made.priority) == (5, [1, 60], 3)
    assert str(made.retry()) == "delays=1:60,times=4"
    with pytest.raises(TypeError):
        task(unknown=1)(tasks.noop_task.func)
