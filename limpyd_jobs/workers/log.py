"""What a worker logs: the names of jobs in messages, and saying only a few times what comes often."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Callable
from time import monotonic

from limpyd_jobs.models import Job, Queue, queue_name
from limpyd_jobs.models.identifying import is_made
from limpyd_jobs.records.lazy_fields import pk_of
from limpyd_jobs.texts import MESSAGE, one_line


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


def part_of(amount: object, most: object | None) -> str:
    """Return an amount and its limit, such as ``3/1000``; without a limit the amount alone."""
    return f"{amount}" if most in (None, math.inf) else f"{amount}/{most}"


class ClassNames:
    """The paths of the job classes that a worker met, by the name of the queue."""

    def __init__(self) -> None:
        self.are_several = False  # whether there are several in any queue, or the class is always named
        self.of_queue: defaultdict[str, set[str]] = defaultdict(set)
        self._always_named: set[str] = set()

    def add(self, queue_name: str, path: str, job_class: type[Job] | None = None, identifier: str | None = "") -> None:
        """Note that there is a job of a class in a queue: the first one, of an identifier. If that was made for it, or
        the class of a function, the identifiers say nothing, so the class is always named."""
        paths = self.of_queue[queue_name]
        if path not in paths:
            paths.add(path)
            if hasattr(job_class, "_function") or is_made(identifier or ""):
                self._always_named.add(path)
            self.are_several |= len(paths) > 1 or path in self._always_named

    def mark(self, queue_name: str, path: str) -> str:
        """Return the end of a message on a job: its class in brackets, nothing if there is no other class and it is
        not always named.

        It is the name of the class, or its whole path if another one has the same name.
        """
        paths = self.of_queue.get(queue_name, ())
        if len(paths) < 2 and path not in self._always_named:
            return ""
        name = path.rpartition(".")[2]
        is_clear = sum(other.rpartition(".")[2] == name for other in paths) < 2
        return f" ({name if is_clear else path})"


# How many messages of one kind are logged within a number of seconds.
FEW = 3
PERIOD = 1.0


class Repeats:
    """Logs the first messages of each kind, then logs once a second how many more there were."""

    def __init__(self, log: Callable[[str, str], None]) -> None:
        self._log = log  # takes a message and its level
        self.counts: dict[tuple[str, str], int] = {}
        self._until = 0.0

    def log(self, kind: str, message: str, level: str = "error") -> None:
        """Log a message, or count it if enough of its kind were logged less than a second ago."""
        if self.is_among_few(kind, level):
            self._log(message, level)

    def is_among_few(self, kind: str, level: str) -> bool:
        """Count a message; return whether it is to be logged."""
        self.sum_up_if_due()
        if not self.counts:
            self._until = monotonic() + PERIOD
        number = self.counts[kind, level] = self.counts.get((kind, level), 0) + 1
        return number <= FEW

    def sum_up_if_due(self) -> None:
        """Log how many more there were, once a second is over."""
        if self.counts and monotonic() >= self._until:
            self.sum_up()

    def sum_up(self) -> None:
        """Log how many more there were."""
        counts, self.counts = self.counts, {}
        for (kind, level), number in counts.items():
            if number > FEW:
                self._log(f"{kind}: and {number - FEW:,} more like it", level)
