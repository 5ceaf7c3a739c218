"""Reports of failed jobs to Sentry, grouped as this library groups errors.

>>> from limpyd_jobs import events
>>> from limpyd_jobs.contrib.sentry import Sentry
>>> events.subscribe(Sentry())
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import sentry_sdk
from sentry_sdk.integrations.logging import ignore_logger
from sentry_sdk.scope import Scope, use_isolation_scope

from limpyd_jobs.integration import Adding, Instrument, Running, events, fingerprint_of, one_line

CATEGORY = "limpyd_jobs"

FLUSH_TIMEOUT = 2.0  # seconds

# How many characters are reported of the text of an exception, and of the variables of a frame: Sentry drops a report
# of more than 1 MB.
MAX_TEXT, MAX_VARIABLES = 8_192, 16_384


class Sentry(Instrument):
    """Reports each failure of a job that a worker runs: ``events.subscribe(Sentry())``, after ``sentry_sdk.init(…)``.

    A report has the fingerprint of the cause, so Sentry groups errors as ``limpyd-jobs errors groups`` does; tags for
    the class of the job, its queue, the worker and the try; and as breadcrumbs what happened before, within this try. A
    failure after which the job is tried again is a warning, the last one an error. Log lines of workers are neither
    reports nor breadcrumbs, because that would report everything twice.

    Parameters
    ----------
    report_retried: bool
        False to report a failure only if the job is not tried again.
    """

    def __init__(self, *, report_retried: bool = True) -> None:
        self.report_retried = report_retried
        ignore_logger("limpyd-jobs")

    @contextmanager
    def adding(self, adding: Adding) -> Iterator[None]:
        """Leave a breadcrumb."""
        yield
        which = adding.idents[0] if len(adding.idents) == 1 else f"{len(adding.idents)} jobs"
        message = f"{adding.outcome or 'added'} in {one_line(adding.queue_name)}: {one_line(which)}"
        sentry_sdk.add_breadcrumb(category=CATEGORY, message=message)

    @contextmanager
    def running(self, running: Running) -> Iterator[None]:
        """Keep what the code of a job tells Sentry apart from that of other jobs."""
        job_class = type(running.job).get_model_repr()
        with sentry_sdk.isolation_scope() as scope:
            scope.clear_breadcrumbs()
            scope.set_transaction_name(job_class, source="task")
            scope.set_tag("job_class", job_class)
            scope.set_tag("queue", one_line(running.queue_name))
            scope.set_tag("worker", one_line(running.worker))
            scope.set_tag("attempt", str(running.attempt))
            scope.set_context("job", {"ident": one_line(running.ident)})
            running.notes[self] = scope
            yield

    def __call__(self, event: events.Event) -> None:
        """Leave a breadcrumb, and report a failure."""
        if isinstance(event, events.WorkerStarted):
            ignore_logger(event.worker.logger.name)
        elif isinstance(event, events.WorkerEnded):
            sentry_sdk.flush(FLUSH_TIMEOUT)
        elif isinstance(event, events.JobEvent):
            running = Running.of(event.job)
            scope = running and running.notes.get(self)
            if not running or not isinstance(scope, Scope):
                return
            if isinstance(event, events.JobFailed):
                self._report(event, running, scope)
            scope.add_breadcrumb(category=CATEGORY, message=event.message or type(event).__name__, level=event.level)

    def _report(self, event: events.JobFailed, running: Running, scope: Scope) -> None:
        if event.requeued and not self.report_retried:
            return
        with use_isolation_scope(scope), sentry_sdk.new_scope() as of_report:
            of_report.fingerprint = [fingerprint_of(event.exception, type(event.job), running.identifier)]
            of_report.set_level("warning" if event.requeued else "error")
            of_report.set_tag("requeued", "yes" if event.requeued else "no")
            of_report.add_event_processor(_bounded)
            of_report.capture_exception(event.exception)


def _bounded(report: Any, hint: Any) -> Any:
    """Cut what would make a report so large that it is dropped."""
    for exception in report.get("exception", {}).get("values", ()):
        text = exception.get("value")
        if isinstance(text, str) and len(text) > MAX_TEXT:
            exception["value"] = f"{text[:MAX_TEXT]}… ({len(text):,} characters)"
        for frame in (exception.get("stacktrace") or {}).get("frames", ()):
            size = len(str(frame.get("vars") or ""))
            if size > MAX_VARIABLES:
                frame["vars"] = {"left out": f"{size:,} characters"}
    return report
