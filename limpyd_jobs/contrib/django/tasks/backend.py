"""The backend."""

from __future__ import annotations

import threading
import uuid
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from datetime import datetime, timezone
from functools import partial
from typing import Any

from django.apps import apps
from django.core import checks
from django.core.exceptions import ImproperlyConfigured
from django.db import DEFAULT_DB_ALIAS, transaction
from django.utils.timezone import is_aware, make_aware

from limpyd_jobs import Job, Queue, Worker
from limpyd_jobs.contrib.django import settings
from limpyd_jobs.contrib.django.outbox.entries import relayed_later
from limpyd_jobs.contrib.django.tasks.framework import (
    TASK_REFRESH_ATTRS,
    BaseTaskBackend,
    InvalidTask,
    TaskResultDoesNotExist,
    normalize_json,
    task_backends,
    task_enqueued,
    task_finished,
    task_started,
)
from limpyd_jobs.contrib.django.tasks.job import TaskJob, unique_id
from limpyd_jobs.contrib.django.tasks.resolving import UnknownTask, task_at
from limpyd_jobs.contrib.django.tasks.results import (
    as_of_django,
    end_result,
    new_result,
    result_of,
    running_result,
    stored_result,
    update,
)
from limpyd_jobs.contrib.django.tasks.task import OUTBOX, LimpydTask
from limpyd_jobs.contrib.django.transactions import add_job_through_outbox, is_in_transaction
from limpyd_jobs.integration import GracePeriodOver, events, stored_queue_name

APPLICATION = "limpyd_jobs.contrib.django"

OPTIONS = {"ENQUEUE_ON_COMMIT": bool, "DATABASE": str}
OUTBOX_APPLICATION = "limpyd_jobs.contrib.django.outbox"


class LimpydBackend(BaseTaskBackend):  # type: ignore[misc, valid-type]
    """Runs the tasks of Django as jobs: each is a `TaskJob`, in the queue that it names.

    The options, of ``TASKS["default"]["OPTIONS"]``:

    ``ENQUEUE_ON_COMMIT``
        Whether a task is added once the transaction is committed that adds it: True, unless the task says otherwise.
        The id of its result is known before. With ``"outbox"``, it is written to the outbox in the transaction, so that
        it is added also if the process dies after the commit, or Redis does not answer then.
    ``DATABASE``
        The alias of the database whose transaction counts.
    """

    task_class = LimpydTask
    supports_defer = True
    supports_async_task = True
    supports_get_result = True
    supports_priority = True

    def __init__(self, alias: str, params: Mapping[str, Any]) -> None:
        super().__init__(alias, params)
        options = self.options
        self.enqueue_on_commit = options.get("ENQUEUE_ON_COMMIT", params.get("ENQUEUE_ON_COMMIT", True))
        self.database = options.get("DATABASE", DEFAULT_DB_ALIAS)
        events.subscribe(send_signals)

    def validate_task(self, task: Any) -> None:
        """Refuse a task that no worker could find, or no queue can hold."""
        super().validate_task(task)
        try:
            stored_queue_name(task.queue_name)
        except (TypeError, ValueError) as error:
            raise InvalidTask(str(error)) from error

    def enqueue(self, task: Any, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Any:
        """Add a task, now or once the transaction is committed; return its result."""
        self.validate_task(task)
        args, kwargs = normalize_json(args), normalize_json(kwargs)
        is_unique = getattr(task, "unique", False)
        result_id = unique_id(task.module_path, args, kwargs) if is_unique else uuid.uuid4().hex
        result = new_result(task, result_id, args, kwargs, backend=self.alias)
        way = self._way_of(task)
        if way == OUTBOX:
            self._add_through_outbox(result)
        elif way and is_in_transaction(self.database):
            transaction.on_commit(partial(self._add, result), using=self.database)
        else:
            self._add(result)
        return result

    def _way_of(self, task: Any) -> bool | str:
        own = getattr(task, "enqueue_on_commit", None)
        way: bool | str = self.enqueue_on_commit if own is None else own
        return way

    def _add(self, result: Any) -> None:
        arguments = self._arguments_of(result)
        TaskJob.add_job(**arguments)
        self._added(result, arguments["enqueued_at"])

    def _add_through_outbox(self, result: Any) -> None:
        arguments = self._arguments_of(result)
        later = add_job_through_outbox(TaskJob, using=self.database, **arguments)

        def added() -> None:
            if later.job is not None:  # else another process sends the signal
                self._added(result, arguments["enqueued_at"])

        transaction.on_commit(added, using=self.database)

    def _arguments_of(self, result: Any) -> dict[str, Any]:
        task = result.task
        retry = task.retry() if isinstance(task, LimpydTask) else None
        return {
            "identifier": result.id,
            "queue_name": task.queue_name,
            "priority": task.priority,
            "delayed_until": _aware(task.run_after),
            "task": task.module_path,
            "parameters": [result.args, result.kwargs],
            "backend": self.alias,
            "enqueued_at": datetime.now(timezone.utc),
            **({} if retry is None else {"retry_policy": retry}),
        }

    def _added(self, result: Any, moment: datetime) -> None:
        update(result, enqueued_at=as_of_django(moment))
        task_enqueued.send(type(self), task_result=result)

    def get_result(self, result_id: str) -> Any:
        """Return the result of an id.

        Raises
        ------
        TaskResultDoesNotExist
            If there is none: it was never added, or not yet, or was deleted.
        """
        return stored_result(TaskJob, str(result_id))

    def check(self, **kwargs: Any) -> Iterable[checks.CheckMessage]:
        """Check the settings of the backend."""
        yield from super().check(**kwargs)
        where = f"TASKS[{self.alias!r}]"
        if not apps.is_installed(APPLICATION):
            yield checks.Error(f"{where} needs {APPLICATION!r} in INSTALLED_APPS", id="limpyd_jobs.E010")
        for name, value in self.options.items():
            is_outbox = name == "ENQUEUE_ON_COMMIT" and value == OUTBOX
            if not (is_outbox or isinstance(value, OPTIONS.get(name, ()))):
                text = f"{where}['OPTIONS'] has {name!r}: {value!r}, which is not one of {', '.join(OPTIONS)}, or wrong"
                yield checks.Error(text, id="limpyd_jobs.E011")
        yield from self._problems_of_outbox(where)
        for name in sorted(self.queues):
            try:
                stored_queue_name(name)
            except (TypeError, ValueError) as error:
                yield checks.Error(f"{where}['QUEUES']: {error}", id="limpyd_jobs.E012")

    def _problems_of_outbox(self, where: str) -> Iterable[checks.CheckMessage]:
        if self.enqueue_on_commit != OUTBOX:
            return
        if not apps.is_installed(OUTBOX_APPLICATION):
            yield checks.Error(f"{where} needs {OUTBOX_APPLICATION!r} in INSTALLED_APPS", id="limpyd_jobs.E013")
        if self.database not in settings.outbox_databases():
            text = f"{where} needs {self.database!r} in {settings.NAME}['OUTBOX_DATABASES']"
            yield checks.Error(text, id="limpyd_jobs.E014")


def send_enqueued(job: Any, **more: Any) -> None:
    """Send the signal of a task that was in the outbox, and was added by another process than the one that wrote it."""
    if isinstance(job, TaskJob):
        with suppress(TaskResultDoesNotExist, ImproperlyConfigured):  # the settings have changed
            sender = type(task_backends[job.arguments.backend])
            task_enqueued.send(sender, task_result=result_of(job))


relayed_later.connect(send_enqueued)


class _InProcessWorker(Worker):
    """Ends when the code of a task raises `KeyboardInterrupt`, as the backend of Django does; the task stays in its
    queue."""

    interrupt: KeyboardInterrupt | None = None

    def execute(self, job: Job, queue: Queue) -> Any:
        try:
            return super().execute(job, queue)
        except KeyboardInterrupt as interrupt:
            self.interrupt, self.end_forced = interrupt, True
            raise GracePeriodOver from interrupt

    def run(self) -> None:
        super().run()
        if self.interrupt:
            raise self.interrupt


class InProcessBackend(LimpydBackend):
    """For tests: runs each task at once, in this process, by a worker that works as in production, with real scripts.

    What is enqueued by a running task is run after it, before the first ``enqueue`` returns. What fails is not raised,
    but in the result. Tasks that are deferred, or put back to be tried later, are left in their queue.
    """

    _here = threading.local()

    def _added(self, result: Any, moment: datetime) -> None:
        super()._added(result, moment)
        queues: list[str] | None = getattr(self._here, "queues", None)
        if queues is not None:
            queues.append(result.task.queue_name)
            return
        self._here.queues = queues = [result.task.queue_name]
        try:
            while queues:
                with suppress(SystemExit):  # of the code of a task: its worker has recorded that
                    _InProcessWorker([queues.pop(0)], burst=True, prefetch=1, terminate_gracefuly=False).run()
        finally:
            del self._here.queues
        stored = stored_result(TaskJob, result.id)
        update(result, **{name: getattr(stored, name) for name in TASK_REFRESH_ATTRS})


def _aware(moment: datetime | None) -> datetime | None:
    """Return a moment of Django, which is local if it is naive."""
    return moment if moment is None or is_aware(moment) else make_aware(moment)


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
