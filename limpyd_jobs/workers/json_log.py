"""Log records as lines of JSON, with the job that they are about."""

from __future__ import annotations

import json
import logging
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from datetime import datetime, timezone
from typing import Any

from limpyd_jobs import events
from limpyd_jobs.models import queue_name
from limpyd_jobs.observing import instruments
from limpyd_jobs.observing.instruments import Instrument, Running
from limpyd_jobs.texts import LOGGED, TRACEBACK, one_line, shortened, traceback_of
from limpyd_jobs.workers.running import announcer

_running: ContextVar[Running | None] = ContextVar("running", default=None)


class JobFields(Instrument):
    """Lets the log know which job runs. Because it can be called, each event is made, so the log knows that, too."""

    def __call__(self, event: events.Event) -> None: ...

    @contextmanager
    def running(self, running: Running) -> Iterator[None]:
        token = _running.set(running)
        try:
            yield
        finally:
            _running.reset(token)


_fields = JobFields()


class JsonFormatter(logging.Formatter):
    """Writes each record as one line of JSON, in ASCII: `time` (UTC), `level`, `logger`, `pid`, `worker`, `message`,
    and the `exception`, with its traceback.

    A line about a job, and each line that its code logs, also has its ident as `job`, its `class`, `queue` and
    `attempt`; with traces, `trace_id` and `span_id`. What is not known is absent. All values are bounded.

    >>> handler.setFormatter(JsonFormatter())
    """

    def __init__(self) -> None:
        super().__init__()
        events.subscribe(_fields)

    def format(self, record: logging.LogRecord) -> str:
        moment = datetime.fromtimestamp(record.created, timezone.utc)
        told: dict[str, Any] = {
            "time": moment.isoformat(timespec="milliseconds").replace("+00:00", "Z"),
            "level": record.levelname.lower(),
            "logger": one_line(record.name),
            "pid": record.process,
            **_fields_of_job(),
        }
        text = record.getMessage()
        if record.pathname == announcer.__file__:  # a line of a worker
            told["worker"], _, text = text.removeprefix("[").partition("] ")
        told["message"] = shortened(text, LOGGED)
        error = record.exc_info[1] if record.exc_info else None
        if error:
            told["exception"] = traceback_of(error)
        if record.stack_info:
            told["stack"] = shortened(record.stack_info, TRACEBACK)
        return json.dumps(told)


def _fields_of_job() -> Mapping[str, Any]:
    """Return what is known of the job of the line: of the event that is logged, else of the one that runs here."""
    event = events.logged.get()
    job = getattr(event, "job", None)
    running = Running.of(job) if job is not None else _running.get() if event is None else None
    told: dict[str, Any] = {}
    if running:
        told = {"worker": one_line(running.worker), "job": running.ident, "queue": running.queue_name}
        told |= {"class": type(running.job).get_model_repr(), "attempt": running.attempt}
    elif job is not None:
        told = {"job": f"{job.get_model_repr()}:{vars(job).get('_pk')}", "class": job.get_model_repr()}
        if isinstance(event, events.JobEvent):
            told["queue"] = queue_name(event.queue)
    for instrument in instruments.installed:
        told |= instruments.fields_of(instrument, running)
    return {name: value if type(value) is int else one_line(value) for name, value in told.items()}
