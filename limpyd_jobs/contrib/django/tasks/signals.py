"""Django's signals of tasks, sent by the process that runs them."""

from __future__ import annotations

from typing import Any

from limpyd_jobs.contrib.django.tasks.framework import (
    task_backends,
    task_finished,
    task_started,
)
from limpyd_jobs.contrib.django.tasks.job import TaskJob
from limpyd_jobs.contrib.django.tasks.resolving import UnknownTask, task_at
from limpyd_jobs.contrib.django.tasks.results import end_result, running_result
from limpyd_jobs.integration import events


def send_signals(event: events.Event) -> None:
    """Send the signal for an event of a task: that it begins, or has ended for good."""
    if not (isinstance(event, events.JobEvent) and isinstance(event.job, TaskJob)):
        return
    is_failure = isinstance(event, events.JobFailed) and not event.requeued
    if not (is_failure or isinstance(event, (events.JobStarted, events.JobSucceeded))):
        return
    try:
        result = running_result(event.job, task_at(event.job.arguments.task))
    except UnknownTask:
        return
    if isinstance(event, events.JobSucceeded):
        end_result(result, event.result)
    elif isinstance(event, events.JobFailed):
        end_result(result, None, event.exception, event.trace)
    signal = task_started if isinstance(event, events.JobStarted) else task_finished
    signal.send(_sender(event.job), task_result=result)


def _sender(job: TaskJob) -> Any:
    return type(task_backends[job.arguments.backend])
