"""The names of jobs and queues in messages, if possible without asking Redis."""

from __future__ import annotations

import math
from collections import defaultdict
from datetime import datetime, timedelta

from limpyd_jobs.models import Job, Queue, queue_name
from limpyd_jobs.records.lazy_fields import pk_of
from limpyd_jobs.texts import MESSAGE, one_line

# What is logged when a job starts, given its name, and when it is a success, given its name and how long it took.
STARTED, SUCCEEDED = "%s starting", "%s success, in %s"


def name_of(job: Job, queue: Queue) -> str:
    """Return the queue, pk and identifier at the beginning of a message on a job."""
    identifier = getattr(job, "_cached_identifier", None) or job.identifier.hget()
    return f"[{one_line(queue_name(queue))}|{pk_of(job)}|{one_line(identifier)}]"


def ident_of(job: Job) -> str:
    """Return the ident of a job, even if it was deleted."""
    return f"{job.get_model_repr()}:{vars(job).get('_pk')}"


def label_of(job: Job) -> str:
    """Name a job at the beginning of a message, without asking Redis."""
    return f"[{one_line(getattr(job, '_cached_identifier', None) or ident_of(job))}]"


def still_claimed(ident: str, error: Exception) -> str:
    """Say that the claim on a job could not be ended."""
    return f"[{one_line(ident)}] is still claimed: {one_line(error, MESSAGE)}"


def duration_of(job: Job) -> timedelta | None:
    """Return for how long a job ran, without asking Redis if it was run here."""
    if "_cached_duration" in vars(job):
        return job._cached_duration
    start, end = getattr(job, "_cached_start", None), getattr(job, "_cached_end", None)
    try:
        return datetime.fromisoformat(end) - datetime.fromisoformat(start)  # type: ignore[arg-type]
    except (TypeError, ValueError):  # one is not known, or another program wrote it
        return job.duration


def part_of(amount: object, most: object | None) -> str:
    """Return an amount and its limit, such as ``3/1000``; without a limit the amount alone."""
    return f"{amount}" if most in (None, math.inf) else f"{amount}/{most}"


class ClassNames:
    """The paths of the job classes that a worker met, by the name of the queue."""

    def __init__(self) -> None:
        self.are_several = False  # whether there are several in any queue, or one is made from a function
        self._known: defaultdict[str, set[str]] = defaultdict(set)
        self._functions: set[str] = set()

    def add(self, queue_name: str, path: str, job_class: type[Job] | None = None) -> None:
        """Note that there is a job of a class in a queue."""
        paths = self._known[queue_name]
        if path not in paths:
            paths.add(path)
            if hasattr(job_class, "_function"):  # its identifier says nothing, as that of a class may do
                self._functions.add(path)
            self.are_several |= len(paths) > 1 or path in self._functions

    def mark(self, queue_name: str, path: str) -> str:
        """Return the end of a message on a job: its class in brackets, nothing if there is no other class and it is
        not made from a function.

        It is the name of the class, or its whole path if another one has the same name.
        """
        paths = self._known.get(queue_name, ())
        if len(paths) < 2 and path not in self._functions:
            return ""
        name = path.rpartition(".")[2]
        is_clear = sum(other.rpartition(".")[2] == name for other in paths) < 2
        return f" ({name if is_clear else path})"
