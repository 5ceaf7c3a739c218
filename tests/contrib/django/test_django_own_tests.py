"""Django's own tests of a backend that runs tasks at once, and of tasks (its directory tests/tasks), adapted. They run
with each Django: 5.2, whose package django-tasks brings no tests, 6.0 and 6.1.

============================  ============  ============  ================================================
file                          of 6.0        of 6.1        left out
============================  ============  ============  ================================================
test_immediate_backend.py     16 of 20      16 of 20      4, see below
test_tasks.py                 12 of 34      12 of 39      tasks and settings, whatever the backend
test_dummy_backend.py         0 of 17       0 of 17       that backend; 10 are above by the same name
test_custom_backend.py        0 of 5        0 of 9        backends of others, which lack or add something
============================  ============  ============  ================================================

Of the first file: `test_cannot_get_result`, `test_cannot_refresh_result` and `test_cannot_pass_run_after`, because ours
can, and `test_doesnt_wait_until_transaction_commit_by_default`, because ours waits. Of the second: priorities, queues,
names, modules, pickles and calls of tasks, unknown backends and errors of unknown classes. All that are here pass.
"""

# ruff: noqa: PT009, PT027

from __future__ import annotations

import asyncio
from datetime import timedelta

import pytest
from bookshop import tasks
from django.db import connections
from django.test import SimpleTestCase, override_settings
from django.utils import timezone

from limpyd_jobs.contrib.django.tasks import InProcessBackend
from limpyd_jobs.contrib.django.tasks import task as decorated
from limpyd_jobs.contrib.django.tasks.framework import (
    PACKAGE,
    InvalidTask,
    TaskResultDoesNotExist,
    TaskResultStatus,
    _found,
    task_backends,
)

LOGGER = "django.tasks" if PACKAGE == "django.tasks" else "django_tasks"
TaskResultMismatch = _found("exceptions.TaskResultMismatch")
default_task_backend = _found("default_task_backend")
IN_PROCESS = "limpyd_jobs.contrib.django.tasks.InProcessBackend"
TASKS = {"default": {"BACKEND": IN_PROCESS, "QUEUES": [], "OPTIONS": {"ENQUEUE_ON_COMMIT": False}}}


@pytest.fixture(autouse=True)
def _no_connection_stays_open():
    yield
    connections.close_all() if not connections["default"].in_atomic_block else None


def in_loop(make):
    """Await what a function returns, in a loop of its own."""

    async def main():
        return await make()

    return asyncio.run(main())


@override_settings(TASKS=TASKS)
class ImmediateBackendTestCase(SimpleTestCase):
    databases = "__all__"

    def check_success(self, result, task, args, kwargs):
        self.assertEqual(result.status, TaskResultStatus.SUCCESSFUL)
        self.assertIs(result.is_finished, True)
        self.assertIsNotNone(result.started_at)
        self.assertIsNotNone(result.last_attempted_at)
        self.assertIsNotNone(result.finished_at)
        self.assertGreaterEqual(result.started_at, result.enqueued_at)
        self.assertGreaterEqual(result.finished_at, result.started_at)
        self.assertIsNone(result.return_value)
        self.assertEqual(result.task, task)
        self.assertEqual(result.args, args)
        self.assertEqual(result.kwargs, kwargs)
        self.assertEqual(result.attempts, 1)

    def test_using_correct_backend(self):
        self.assertEqual(default_task_backend, task_backends["default"])
        self.assertIsInstance(task_backends["default"], InProcessBackend)
        self.assertEqual(default_task_backend.alias, "default")

    def test_enqueue_task(self):
        for task in [tasks.noop_task, tasks.noop_task_async]:
            with self.subTest(task):
                self.check_success(task.enqueue(1, two=3), task, [1], {"two": 3})

    def test_enqueue_task_async(self):
        for task in [tasks.noop_task, tasks.noop_task_async]:
            with self.subTest(task):
                self.check_success(in_loop(task.aenqueue), task, [], {})

    def test_catches_exception(self):
        for task, exception in [
            (tasks.failing_task_value_error, ValueError),
            (tasks.failing_task_system_exit, SystemExit),
        ]:
            message = f"This Task failed due to {exception.__name__}"
            with self.subTest(task), self.assertLogs(LOGGER, level="ERROR") as captured_logs:
                result = task.enqueue()
                self.assertEqual(len(captured_logs.output), 1)
                self.assertEqual(result.status, TaskResultStatus.FAILED)
                with self.assertRaisesMessage(ValueError, "Task failed"):
                    result.return_value  # noqa: B018
                self.assertIs(result.is_finished, True)
                self.assertGreaterEqual(result.started_at, result.enqueued_at)
                self.assertGreaterEqual(result.finished_at, result.started_at)
                self.assertEqual(result.errors[0].exception_class, exception)
                self.assertTrue(result.errors[0].traceback.rstrip().endswith(f"{exception.__name__}: {message}"))
                self.assertEqual(result.task, task)

    def test_throws_keyboard_interrupt(self):
        with self.assertRaises(KeyboardInterrupt), self.assertNoLogs(LOGGER, level="ERROR"):
            default_task_backend.enqueue(tasks.failing_task_keyboard_interrupt, [], {})

    def test_complex_exception(self):
        with self.assertLogs(LOGGER, level="ERROR"):
            result = tasks.complex_exception.enqueue()
        self.assertEqual(result.status, TaskResultStatus.FAILED)
        self.assertIsNone(result._return_value)
        self.assertEqual(result.errors[0].exception_class, ValueError)
        self.assertIn('ValueError(ValueError("This task failed"))', result.errors[0].traceback)

    def test_complex_return_value(self):
        with self.assertLogs(LOGGER, level="ERROR"):
            result = tasks.complex_return_value.enqueue()
        self.assertEqual(result.status, TaskResultStatus.FAILED)
        self.assertIsNone(result._return_value)
        self.assertEqual(result.errors[0].exception_class, TypeError)
        self.assertIn("Unsupported type", result.errors[0].traceback)

    def test_result(self):
        result = default_task_backend.enqueue(tasks.calculate_meaning_of_life, [], {})
        self.assertEqual(result.status, TaskResultStatus.SUCCESSFUL)
        self.assertEqual(result.return_value, 42)

    def test_result_async(self):
        result = in_loop(lambda: default_task_backend.aenqueue(tasks.calculate_meaning_of_life, [], {}))
        self.assertEqual(result.return_value, 42)

    def test_enqueue_logs(self):
        with self.assertLogs(LOGGER, level="DEBUG") as captured_logs:
            result = tasks.noop_task.enqueue()
        self.assertEqual(len(captured_logs.output), 3)
        for expected, line in zip(["enqueued", "state=RUNNING", "state=SUCCESSFUL"], captured_logs.output, strict=True):
            self.assertIn(expected, line)
            self.assertIn(result.id, line)

    def test_failed_logs(self):
        with self.assertLogs(LOGGER, level="DEBUG") as captured_logs:
            result = tasks.failing_task_value_error.enqueue()
        self.assertEqual(len(captured_logs.output), 3)
        self.assertIn("state=RUNNING", captured_logs.output[1])
        self.assertIn("state=FAILED", captured_logs.output[2])
        self.assertIn(result.id, captured_logs.output[2])

    def test_successful_task_no_none_in_logs(self):
        with self.assertLogs(LOGGER, level="DEBUG") as captured_logs:
            tasks.noop_task.enqueue()
        for log_output in captured_logs.output:
            self.assertNotIn("None", log_output)

    def test_takes_context(self):
        result = tasks.get_task_id.enqueue()
        self.assertEqual(result.return_value, result.id)

    def test_context(self):
        self.assertEqual(tasks.check_context.enqueue(1).status, TaskResultStatus.SUCCESSFUL)

    def test_validate_on_enqueue(self):
        task = tasks.noop_task.using(queue_name="unknown_queue")
        with (
            override_settings(TASKS={"default": {"BACKEND": IN_PROCESS, "QUEUES": ["queue-1"]}}),
            self.assertRaisesMessage(InvalidTask, "Queue 'unknown_queue' is not valid for backend"),
        ):
            task.enqueue()

    def test_validate_on_aenqueue(self):
        task = tasks.noop_task.using(queue_name="unknown_queue")
        with (
            override_settings(TASKS={"default": {"BACKEND": IN_PROCESS, "QUEUES": ["queue-1"]}}),
            self.assertRaisesMessage(InvalidTask, "Queue 'unknown_queue' is not valid for backend"),
        ):
            in_loop(task.aenqueue)


class TaskTestCase(SimpleTestCase):
    """Of the backend that only adds."""

    databases = "__all__"

    def test_using_creates_new_instance(self):
        new_task = tasks.noop_task.using()
        self.assertEqual(new_task, tasks.noop_task)
        self.assertIsNot(new_task, tasks.noop_task)

    def test_chained_using(self):
        now = timezone.now()
        run_after_task = tasks.noop_task.using(run_after=now)
        self.assertEqual(run_after_task.run_after, now)
        priority_task = run_after_task.using(priority=10)
        self.assertEqual(priority_task.priority, 10)
        self.assertEqual(priority_task.run_after, now)
        self.assertEqual(run_after_task.priority, 0)

    def test_refresh_result(self):
        result = tasks.noop_task.enqueue()
        for refresh in (result.refresh, lambda: in_loop(result.arefresh)):
            refresh()
            self.assertEqual(result.status, TaskResultStatus.READY)

    def test_naive_datetime(self):
        with self.assertRaisesMessage(InvalidTask, "run_after must be an aware datetime."):
            tasks.noop_task.using(run_after=timezone.make_naive(timezone.now() + timedelta(hours=1)))

    def test_invalid_priority(self):
        for priority in (-101, 101, 3.1):
            with self.assertRaisesMessage(InvalidTask, "priority must be a whole number between -100 and 100."):
                tasks.noop_task.using(priority=priority)
        for priority in (100, -100, 0):
            tasks.noop_task.using(priority=priority)

    def test_get_result(self):
        result = default_task_backend.enqueue(tasks.noop_task, (), {})
        self.assertEqual(tasks.noop_task.get_result(result.id), result)
        self.assertEqual(in_loop(lambda: tasks.noop_task.aget_result(result.id)), result)

    def test_get_missing_result(self):
        with self.assertRaises(TaskResultDoesNotExist):
            default_task_backend.get_result("123")
        with self.assertRaises(TaskResultDoesNotExist):
            in_loop(lambda: default_task_backend.aget_result("123"))

    def test_get_incorrect_result(self):
        result = default_task_backend.enqueue(tasks.noop_task_async, (), {})
        with self.assertRaisesMessage(TaskResultMismatch, "Task does not match"):
            tasks.noop_task.get_result(result.id)

    def test_invalid_function(self):
        for invalid_function in (any, self.test_invalid_function):
            with self.assertRaisesMessage(InvalidTask, "Task function must be defined at a module level."):
                decorated(invalid_function)
        with self.assertRaisesMessage(InvalidTask, "Task takes context but does not have a first argument"):
            decorated(tasks.calculate_meaning_of_life.func, takes_context=True)

    def test_call(self):
        self.assertEqual(tasks.calculate_meaning_of_life.call(), 42)
        self.assertEqual(in_loop(tasks.calculate_meaning_of_life.acall), 42)
        self.assertIsNone(tasks.noop_task_async.call())
