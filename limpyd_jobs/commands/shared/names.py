"""Saying what was not found, or not looked at: names that may be misspelt, classes that are not known."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from limpyd_jobs.commands.shared.tables import names_near, some_of
from limpyd_jobs.query import QueueState, queue_names, queue_states, unknown_queue_models
from limpyd_jobs.redis.database import JobsDatabase
from limpyd_jobs.search.classes import classes_of, unread_names, unread_text
from limpyd_jobs.texts import one_line

# How many classes a line names.
MAX_PATHS = 3


def unknown_classes(states: Iterable[QueueState] | None = None, database: JobsDatabase | None = None) -> Iterator[str]:
    """Yield a line about the classes that are not known, as of version 2, and have jobs in these queues, or in any; and
    one about keys that may not be read."""
    if names := unread_names(database):
        yield f"not looked at: {unread_text(names, MAX_PATHS)}"
    if states is None:
        states = queue_states(database=database)
        yield from () if states else unknown_models(database)
    paths = sorted({path for state in states for path in state.unknown_classes})
    if paths:
        those = f"{some_of(paths, MAX_PATHS)}, and maybe others, also in queues of other models"
        yield f"not looked at: jobs of {those}. Make the class known: --job-modules=MODULE"


def unknown_models(database: JobsDatabase | None = None) -> Iterator[str]:
    """Yield a line about keys of queues whose model is not known, as those of version 2."""
    if names := unknown_queue_models(database):
        what = f"keys of queues of other models are there: {some_of(names, MAX_PATHS)}"
        yield f"{what}. What is in them is not shown before you name the module of the model: --job-modules=MODULE"


def unknown_names(conditions: Iterable[tuple[str, str, str]], database: JobsDatabase | None = None) -> Iterator[str]:
    """Yield a line about each queue and class that is asked for and does not exist, with the names that are similar."""
    for field, comparison, name in conditions:
        if (field, comparison) == ("queue", "="):
            known, what = queue_names(database), "no queue is named"
        elif (field, comparison) == ("class", "=") and not {"*", "?"} & {*name}:
            paths = classes_of(database)
            known, what = {path if "." in name else path.rpartition(".")[2] for path in paths}, "no job class is"
        else:
            continue
        if known and name not in known:
            yield f"{what} {one_line(name)}{names_near(name, known)}"
            yield from unknown_models(database) if field == "queue" else ()
