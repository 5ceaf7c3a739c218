"""What a shell may complete with, as it is stored: queues, classes, statuses, causes, workers, schedules."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Sequence

from limpyd_jobs.models import WorkerPresence
from limpyd_jobs.query import ErrorFilter, paused_queues, queue_names
from limpyd_jobs.schedules import Schedule
from limpyd_jobs.search.classes import classes_of
from limpyd_jobs.statuses import STATUSES

# A shell expands what it is given: what could mean more than itself, or be taken for an option, is left out.
_HARMLESS = re.compile(r"(?!-)[\w.:=@%+,/-]+", re.ASCII)

# How many causes are looked for, and for how many seconds.
MAX_CAUSES, CAUSES_TIMEOUT = 50, 0.5


def candidates(command: str, verb: str) -> list[str]:
    """Return the words that may follow a command, and its verb."""
    find = _BY_VERB.get((command, verb)) or _BY_COMMAND.get(command)
    return sorted({word for word in find() if _HARMLESS.fullmatch(word)}) if find else []


def _fingerprints() -> Iterable[str]:
    return (group.fingerprint for group in ErrorFilter().groups(MAX_CAUSES, CAUSES_TIMEOUT).groups)


def _of_errors() -> Sequence[str]:
    return [
        *(f"queue={name}" for name in queue_names()),
        *(f"class={path}" for path in classes_of(None)),
        *(f"fingerprint={each}" for each in _fingerprints()),
    ]


def _of_jobs() -> Sequence[str]:
    return [*(f"status={name.lower()}" for name in STATUSES), *_of_errors()]


_BY_VERB: dict[tuple[str, str], Callable[[], Iterable[str]]] = {
    ("errors", "show"): _fingerprints,
    ("errors", "requeue"): _fingerprints,
    ("jobs", "add"): lambda: classes_of(None),
}
_BY_COMMAND: dict[str, Callable[[], Iterable[str]]] = {
    "errors": _of_errors,
    "jobs": _of_jobs,
    "pause": queue_names,
    "queues": queue_names,
    "resume": lambda: (name for _, name in paused_queues()),
    "schedules": lambda: filter(None, Schedule.collection().values_list("name", flat=True)),
    "workers": lambda: (worker.name for worker in WorkerPresence.alive()),
}

# The commands after which there are such words.
OFFERING = frozenset(_BY_COMMAND)
