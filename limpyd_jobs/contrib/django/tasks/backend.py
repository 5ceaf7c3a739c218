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
from django.db import DEFAULT_DB_ALIAS, transaction
from django.utils.timezone import is_aware, make_aware

from limpyd_jobs import Worker
from limpyd_jobs.contrib.django.tasks.framework import (
    TASK_REFRESH_ATTRS,
    BaseTaskBackend,
    InvalidTask,
    normalize_json,
    task_enqueued,
)
from limpyd_jobs.contrib.django.tasks.job import TaskJob, unique_id
from limpyd_jobs.contrib.django.tasks.results import as_of_django, new_result, stored_result, update
from limpyd_jobs.contrib.django.tasks.signals import send_signals
from limpyd_jobs.contrib.django.tasks.task import LimpydTask
from limpyd_jobs.integration import events, stored_queue_name

APPLICATION = "limpyd_jobs.contrib.django"

OPTIONS = {"ENQUEUE_ON_COMMIT": bool, "DATABASE": str}


class LimpydBackend(BaseTaskBackend):  # type: ignore[misc, valid-type]
    """Runs the tasks of Django as jobs: each is a `TaskJob`, in the queue that it names.

    The options, of ``TASKS["default"]["OPTIONS"]``:

    ``ENQUEUE_ON_COMMIT``
        Whether a task is added once the transaction is committed that adds it: True, unless the task says otherwise.
        The id of its result is known before.
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
        connection = transaction.get_connection(self.database)
        if self._waits_for_commit(task) and connection.in_atomic_block:
            transaction.on_commit(partial(self._add, result), using=self.database)
        else:
            self._add(result)
        return result

    def _waits_for_commit(self, task: Any) -> bool:
        own = getattr(task, "enqueue_on_commit", None)
        return bool(self.enqueue_on_commit if own is None else own)

    def _add(self, result: Any) -> None:
        now, task = datetime.now(timezone.utc), result.task
        retry = task.retry() if isinstance(task, LimpydTask) else None
        more: dict[str, Any] = {} if retry is None else {"retry_policy": retry}
        TaskJob.add_job(
            result.id,
            task.queue_name,
            task.priority,
            delayed_until=_aware(task.run_after),
            task=task.module_path,
            parameters=[result.args, result.kwargs],
            backend=self.alias,
            enqueued_at=now,
            **more,
        )
        update(result, enqueued_at=as_of_django(now))
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
            if not isinstance(value, OPTIONS.get(name, ())):
                text = f"{where}['OPTIONS'] has {name!r}: {value!r}, which is not one of {', '.join(OPTIONS)}, or wrong"
                yield checks.Error(text, id="limpyd_jobs.E011")
        for name in sorted(self.queues):
            try:
                stored_queue_name(name)
            except (TypeError, ValueError) as error:
                yield checks.Error(f"{where}['QUEUES']: {error}", id="limpyd_jobs.E012")


class InProcessBackend(LimpydBackend):
    """For tests: runs each task at once, in this process, by a worker that works as in production, with real scripts.

    What is enqueued by a running task is run after it, before the first ``enqueue`` returns. What fails is not raised,
    but in the result. Tasks that are deferred, or put back to be tried later, are left in their queue.
    """

    _here = threading.local()

    def _add(self, result: Any) -> None:
        super()._add(result)
        queues: list[str] | None = getattr(self._here, "queues", None)
        if queues is not None:
            queues.append(result.task.queue_name)
            return
        self._here.queues = queues = [result.task.queue_name]
        try:
            while queues:
                with suppress(SystemExit):  # of the code of a task: its worker has recorded that
                    Worker([queues.pop(0)], burst=True, prefetch=1, terminate_gracefuly=False).run()
        finally:
            del self._here.queues
        stored = stored_result(TaskJob, result.id)
        update(result, **{name: getattr(stored, name) for name in TASK_REFRESH_ATTRS})


def _aware(moment: datetime | None) -> datetime | None:
    """Return a moment of Django, which is local if it is naive."""
    return moment if moment is None or is_aware(moment) else make_aware(moment)
