"""The results of tasks: what is stored of their jobs, in Django's words."""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import datetime, timezone
from typing import Any

from django.conf import settings
from django.utils.timezone import make_naive

from limpyd_jobs import Job
from limpyd_jobs.contrib.django.tasks.framework import TaskError, TaskResult, TaskResultDoesNotExist, TaskResultStatus
from limpyd_jobs.contrib.django.tasks.resolving import UnknownTask, task_at
from limpyd_jobs.integration import Running, held_by, parse_datetime
from limpyd_jobs.query import JobDetails, job_details

# A job that was canceled has not done its work, and Django has no other word for that.
STATUSES = {
    "waiting": TaskResultStatus.READY,
    "delayed": TaskResultStatus.READY,
    "running": TaskResultStatus.RUNNING,
    "success": TaskResultStatus.SUCCESSFUL,
    "error": TaskResultStatus.FAILED,
    "canceled": TaskResultStatus.FAILED,
}


# Where the result is kept of a task that this process runs: among the notes of its try.
RESULT = "limpyd_jobs.contrib.django.tasks"


@dataclass(frozen=True, slots=True, kw_only=True)
class StoredTaskError(TaskError):
    """An error of a task. Its class is looked up among what is imported: no stored name makes this process import."""

    @property
    def exception_class(self) -> type[BaseException]:
        """The class of the exception.

        Raises
        ------
        ValueError
            If it is not imported here.
        """
        module, _, name = self.exception_class_path.rpartition(".")
        found = vars(sys.modules[module]).get(name) if module in sys.modules else None
        if not (isinstance(found, type) and issubclass(found, BaseException)):
            raise ValueError(f"{self.exception_class_path!r} is not an exception that this process has imported.")
        return found


def new_result(task: Any, result_id: str, args: Sequence[Any], kwargs: Mapping[str, Any], **known: Any) -> Any:
    """Return the result of a task that has not begun."""
    fields: dict[str, Any] = {
        "status": TaskResultStatus.READY,
        "enqueued_at": None,
        "started_at": None,
        "last_attempted_at": None,
        "finished_at": None,
        "backend": task.backend,
        "errors": [],
        "worker_ids": [],
    }
    return TaskResult(task=task, id=result_id, args=args, kwargs=kwargs, **{**fields, **known})


def update(result: Any, **fields: Any) -> None:
    """Change a result, which Django froze."""
    for name, value in fields.items():
        object.__setattr__(result, name, value)


def end_result(result: Any, value: Any = None, error: BaseException | None = None, trace: str | None = None) -> None:
    """Let a task that this process ran have ended, with a return value or an error."""
    update(result, finished_at=as_of_django(datetime.now(timezone.utc)))
    if error is None:
        update(result, status=TaskResultStatus.SUCCESSFUL, _return_value=value)
    else:
        update(result, status=TaskResultStatus.FAILED)
        path = f"{type(error).__module__}.{type(error).__qualname__}"
        result.errors.append(StoredTaskError(exception_class_path=path, traceback=trace or ""))


def as_of_django(moment: datetime | None) -> datetime | None:
    """Return a moment, naive UTC or aware, as ``django.utils.timezone.now`` would."""
    if moment is None:
        return None
    aware = moment if moment.tzinfo else moment.replace(tzinfo=timezone.utc)
    return aware if settings.USE_TZ else make_naive(aware)


def running_result(job: Any, task: Any) -> Any:
    """Return the result of a task that this process runs: one for each try. A first one needs no question to Redis."""
    running = Running.of(job)
    if running is None:
        return result_of(job)
    if RESULT not in running.notes:
        running.notes[RESULT] = _first_result(job, task, running) if running.attempt == 1 else result_of(job)
    return running.notes[RESULT]


def _first_result(job: Any, task: Any, running: Running) -> Any:
    now = as_of_django(datetime.now(timezone.utc))
    args, kwargs = job.arguments.parameters
    return new_result(
        with_place(task, job.arguments.backend, running.queue_name),
        running.identifier,
        args,
        kwargs,
        status=TaskResultStatus.RUNNING,
        enqueued_at=as_of_django(job.arguments.enqueued_at),
        started_at=now,
        last_attempted_at=now,
        backend=job.arguments.backend,
        worker_ids=[held_by(job) or running.worker],
    )


def with_place(task: Any, backend: str, queue_name: str | None, priority: int | None = None) -> Any:
    """Return a task as it was added: on a backend, a queue, and with a priority, if it can be there."""
    with suppress(Exception):  # the settings say otherwise by now
        return task.using(backend=backend, queue_name=queue_name, priority=priority)
    return task


def result_of(job: Any) -> Any:
    """Return the result of a job, as it is stored."""
    return stored_result(type(job), job.identifier.hget(), job.pk.get())


def stored_result(job_class: type[Job], result_id: str, pk: str | None = None) -> Any:
    """Return the result of an id; of several jobs, as unique tasks have, of the last one.

    Raises
    ------
    TaskResultDoesNotExist
        If there is none, or its task is not known here.
    """
    pks = [pk] if pk else sorted(job_class.collection(identifier=result_id), key=int)
    try:
        details = job_details(f"{job_class.get_model_repr()}:{pks[-1]}")
        fields = details.fields
        task = task_at(fields.get("task", ""))
        args, kwargs = json.loads(fields.get("parameters", ""))
    except (IndexError, LookupError, ValueError, TypeError) as error:
        text = f"{result_id}: {error}" if isinstance(error, UnknownTask) else result_id
        raise TaskResultDoesNotExist(text) from error
    priority = int(fields["priority"]) if re.fullmatch("-?[0-9]{1,3}", fields.get("priority", "")) else None
    backend = fields.get("backend", "")
    result = new_result(
        with_place(task, backend, details.queue, priority),
        result_id,
        args,
        kwargs,
        status=STATUSES.get(details.status.lower(), TaskResultStatus.FAILED),
        backend=backend,
        errors=[_error_of(each) for each in reversed(details.errors)],
        **_times_of(details),
    )
    if details.result is not None and result.status == TaskResultStatus.SUCCESSFUL:
        with suppress(ValueError):
            update(result, _return_value=json.loads(details.result))
    return result


def _times_of(details: JobDetails) -> dict[str, Any]:
    """Return when a task was tried, and by which workers."""
    fields = details.fields
    runs = [each for each in details.history if each.status == "RUNNING"]
    tries = int(fields["tries"]) if re.fullmatch("[0-9]{1,9}", fields.get("tries", "")) else len(runs)
    last = parse_datetime(fields.get("start"))
    return {
        "enqueued_at": as_of_django(_enqueued_at(fields)),
        "started_at": as_of_django(runs[0].at if runs else last),
        "last_attempted_at": as_of_django(last),
        "finished_at": as_of_django(parse_datetime(fields.get("end"))) if _has_ended(details) else None,
        "worker_ids": [each.owner or "" for each in runs][-tries:] if tries else [],
    }


def _enqueued_at(fields: Mapping[str, str]) -> datetime | None:
    with suppress(KeyError, ValueError):
        return datetime.fromisoformat(fields["enqueued_at"])
    return parse_datetime(fields.get("added"))


def _has_ended(details: JobDetails) -> bool:
    return details.status.lower() in ("success", "error", "canceled")


def _error_of(fields: Mapping[str, str]) -> StoredTaskError:
    name, trace = fields.get("type", ""), fields.get("traceback", "")
    return StoredTaskError(exception_class_path=path_of_error(name, trace), traceback=trace)


def path_of_error(name: str, trace: str) -> str:
    """Return the path of the class of an exception, given its name and its traceback, which ends with the former."""
    last = trace.rpartition("\n  File ")[2]
    found = re.search(rf"^([\w.]+\.)?{re.escape(name)}(?=:|$)", last, re.MULTILINE)
    return f"{found[1] or 'builtins.'}{name}" if found else f"builtins.{name}"
