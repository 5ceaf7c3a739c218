"""What a shell may complete with, as it is stored: queues, classes, statuses, causes, workers, schedules."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable

from limpyd_jobs.models import WorkerPresence
from limpyd_jobs.query import fingerprints, paused_queues, queue_names, words_of_errors, words_of_jobs
from limpyd_jobs.schedules import Schedule
from limpyd_jobs.search.classes import classes_of

# A shell expands what it is given: what could mean more than itself, or be taken for an option, is left out.
_HARMLESS = re.compile(r"(?!-)[\w.:=@%+,/-]+", re.ASCII)


def candidates(command: str, verb: str) -> list[str]:
    """Return the words that may follow a command, and its verb."""
    find = _BY_VERB.get((command, verb)) or _BY_COMMAND.get(command)
    return sorted({word for word in find() if _HARMLESS.fullmatch(word)}) if find else []


_BY_VERB: dict[tuple[str, str], Callable[[], Iterable[str]]] = {
    ("errors", "show"): fingerprints,
    ("errors", "requeue"): fingerprints,
    ("jobs", "add"): lambda: classes_of(None),
}
_BY_COMMAND: dict[str, Callable[[], Iterable[str]]] = {
    "errors": words_of_errors,
    "jobs": words_of_jobs,
    "pause": queue_names,
    "queues": queue_names,
    "resume": lambda: (name for _, name in paused_queues()),
    "schedules": lambda: filter(None, Schedule.collection().values_list("name", flat=True)),
    "workers": lambda: (worker.name for worker in WorkerPresence.alive()),
}

# The commands after which there are such words.
OFFERING = frozenset(_BY_COMMAND)
