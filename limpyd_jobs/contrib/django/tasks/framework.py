"""The framework of tasks: that of Django from 6.0 on, before that the package ``django-tasks``, which has the same
names but for those of some exceptions."""

from __future__ import annotations

from typing import Any

from django.core.exceptions import ImproperlyConfigured
from django.utils.module_loading import import_string


def _package() -> str:
    for name in ("django.tasks", "django_tasks"):
        try:
            import_string(f"{name}.task_backends")
        except ModuleNotFoundError as error:
            if error.name not in ("django.tasks", "django_tasks"):
                raise
        except ImportError:  # there is no such name in django
            continue
        else:
            return name
    raise ImproperlyConfigured("Before Django 6.0, tasks need the package django-tasks: pip install django-tasks")


PACKAGE = _package()


def _found(*places: str) -> Any:
    """Return the first of some objects of the framework that it has."""
    for place in places[:-1]:
        try:
            return import_string(f"{PACKAGE}.{place}")
        except ImportError:
            continue
    return import_string(f"{PACKAGE}.{places[-1]}")


task_backends = _found("task_backends")
Task = _found("base.Task")
TaskContext = _found("base.TaskContext")
TaskError = _found("base.TaskError")
TaskResult = _found("base.TaskResult")
TaskResultStatus = _found("base.TaskResultStatus")
TASK_REFRESH_ATTRS = _found("base.TASK_REFRESH_ATTRS")
BaseTaskBackend = _found("backends.base.BaseTaskBackend")
InvalidTask = _found("exceptions.InvalidTask", "exceptions.InvalidTaskError")
TaskResultDoesNotExist = _found("exceptions.TaskResultDoesNotExist", "exceptions.ResultDoesNotExist")
normalize_json = _found("base.normalize_json")
task_enqueued = _found("signals.task_enqueued")
task_started = _found("signals.task_started")
task_finished = _found("signals.task_finished")
