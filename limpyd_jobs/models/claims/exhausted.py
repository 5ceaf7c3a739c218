"""What a class does about the last failure of a job: a job of its own, which is added in the step that records it. This
module is imported only where a class has a method `on_exhausted`."""

from __future__ import annotations

import json
import logging
from typing import Any, NamedTuple
from uuid import uuid4

from limpyd.exceptions import DoesNotExist

from limpyd_jobs.classes.awaitable import in_thread
from limpyd_jobs.classes.binding import bound_like
from limpyd_jobs.classes.job_classes import job_classes, path_of
from limpyd_jobs.exceptions import JobFailed
from limpyd_jobs.fields.argument import Argument, know_all_arguments
from limpyd_jobs.functions import is_async, memoized, takes
from limpyd_jobs.idents import Ident
from limpyd_jobs.models.adding import checked_for_new
from limpyd_jobs.models.following.results import failure_of
from limpyd_jobs.models.job import Job
from limpyd_jobs.records.known_classes import masked_fields_of, unwritten
from limpyd_jobs.records.layout import layout_of
from limpyd_jobs.texts import MESSAGE, one_line, printable

logger = logging.getLogger("limpyd-jobs")

# How many bytes of the type and the message are kept with the job that handles the failure; the record of the error has
# all of it.
MAX_TYPE = 200


@memoized
def _warn_of(job_class: type[Job]) -> None:
    """Say once that a method is not called, as it may be the application's own, or a mistake."""
    logger.warning(f"{path_of(job_class)}.on_exhausted is not called: it must take an error, and nothing else")


class Handler(NamedTuple):
    """The job that handles a failure, as the script that records that takes it."""

    job_class: Any
    fields: str
    registry: str

    def request(self) -> dict[str, Any]:
        """Return the names of a request."""
        layout = layout_of(self.job_class)
        return {"handler_model": layout.json, "handler": self.fields, "handler_registry": self.registry}


class OnExhausted(Job):
    """A job that calls ``on_exhausted`` of a job whose last try failed, with the error.

    It stands in the queue of that job, and is a job like any other: it is claimed, rescued, tried again and listed. Its
    identifier begins with the ident of the job that failed.
    """

    __module__ = "limpyd_jobs.models"  # as `OWN_CLASSES` says

    failed_job = Argument(str)
    error_type = Argument(str, default="")
    error_message = Argument(str, default="")

    @classmethod
    def handler_of(cls, job: Any, error: BaseException) -> Handler | None:
        """Return what handles the last failure of a job; None if the class uses the name ``on_exhausted`` otherwise."""
        job_class, hook = type(job), type(job).on_exhausted
        if not takes(hook, None, None):
            _warn_of(job_class)
            return None
        handler: Any = bound_like(OnExhaustedAsync if is_async(hook) else OnExhausted, job_class)
        given = {"failed_job": job.ident, "error_type": type(error).__name__[:MAX_TYPE]}
        if "message" not in masked_fields_of(job_class):
            given["error_message"] = one_line(error, MESSAGE)
        identifier, fields = checked_for_new(handler, f"{job.ident} {uuid4().hex[:12]}", given)
        fields = {"identifier": identifier, **{name: printable(str(value)) for name, value in fields.items()}}
        return Handler(handler, json.dumps(fields, ensure_ascii=False), unwritten((handler,)))

    def run(self, queue: Any) -> Any:
        """Call the method of the job that failed, unless that was deleted."""
        hook, error = self._hook()
        return hook(error) if hook else None

    def _hook(self) -> tuple[Any, JobFailed]:
        """Return the method of the job that failed, and the error: as it is recorded, else as it was."""
        ident = self.failed_job.value()
        error = JobFailed(ident, self.error_type.value(), self.error_message.value(), "")
        path, pk = Ident.of(ident)
        try:
            job = job_classes.like(type(self)).resolve(path).get(pk)
        except DoesNotExist:
            self.log("the job is deleted, so there is nothing to do")
            return None, error
        kind, message, trace = failure_of(type(self).database, ident)
        if kind == error.type and error.message in ("", one_line(message, MESSAGE)):  # else it is not recorded yet
            error = JobFailed(ident, kind, message, trace)
        know_all_arguments(job)  # a coroutine must have them at hand
        return getattr(job, "on_exhausted", None), error


class OnExhaustedAsync(OnExhausted):
    """The same for an ``on_exhausted`` that is a coroutine function."""

    __module__ = "limpyd_jobs.models"

    async def run(self, queue: Any) -> Any:
        """Await the method of the job that failed, unless that was deleted."""
        hook, error = await in_thread(self._hook)
        return await hook(error) if hook else None
