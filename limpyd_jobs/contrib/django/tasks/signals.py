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
from limpyd_jobs.contrib.django.tasks.results import result_of, running_result
from limpyd_jobs.integration import events


def send_signals(event: events.Event) -> None:
    """Send the signal for an event of a task: that it begins, or has ended for good."""
    if not (isinstance(event, events.JobEvent) and isinstance(event.job, TaskJob)):
        return
    has_ended = isinstance(event, events.JobSucceeded) or (isinstance(event, events.JobFailed) and not event.requeued)
    if not (has_ended or isinstance(event, events.JobStarted)):
        return
    try:
        task = task_at(event.job.arguments.task)
    except UnknownTask:
        return
    if has_ended:
        task_finished.send(_sender(event.job), task_result=result_of(event.job))
    else:
        task_started.send(_sender(event.job), task_result=running_result(event.job, task))


def _sender(job: TaskJob) -> Any:
    return type(task_backends[job.arguments.backend])
