"""Saying what was not found, or not looked at: names that may be misspelt, classes that are not known."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from limpyd_jobs.query import QueueState, queue_states
from limpyd_jobs.redis.database import JobsDatabase
from limpyd_jobs.search.classes import models_of, unread_text
from limpyd_jobs.views.hints import some_of
from limpyd_jobs.views.hints import unknown_models as unknown_models
from limpyd_jobs.views.hints import unknown_names as unknown_names

# How many classes a line names.
MAX_PATHS = 3


def unknown_classes(states: Iterable[QueueState] | None = None, database: JobsDatabase | None = None) -> Iterator[str]:
    """Yield a line about the classes that are not known, as of version 2, and have jobs in these queues, or in any; and
    one about keys that may not be read."""
    if names := models_of(database).unread:
        yield f"not looked at: {unread_text(names, MAX_PATHS)}"
    if states is None:
        states = queue_states(database=database)
        yield from () if states else unknown_models(database)
    paths = sorted({path for state in states for path in state.unknown_classes})
    if paths:
        those = f"{some_of(paths, MAX_PATHS)}, and maybe others, also in queues of other models"
        yield f"not looked at: jobs of {those}. Make the class known: --job-modules=MODULE"
