"""Saying that a queue or a class that is asked for does not exist: its name may be misspelt."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from limpyd_jobs.commands.tables import names_near
from limpyd_jobs.models import BaseJobsModel
from limpyd_jobs.query import queue_names
from limpyd_jobs.query.classes import classes_of
from limpyd_jobs.utils import one_line


def unknown_names(conditions: Iterable[tuple[str, str, str]]) -> Iterator[str]:
    """Yield a line about each queue and class that is asked for and does not exist, with the names that are similar.

    Parameters
    ----------
    conditions: iterable of tuples
        Each is a field, a comparison and a value.
    """
    for field, comparison, name in conditions:
        if (field, comparison) == ("queue", "="):
            known, what = queue_names(), "no queue is named"
        elif (field, comparison) == ("class", "=") and not {"*", "?"} & {*name}:
            paths = classes_of(BaseJobsModel.database)
            known, what = {path if "." in name else path.rpartition(".")[2] for path in paths}, "no job class is"
        else:
            continue
        if known and name not in known:
            yield f"{what} {one_line(name)}{names_near(name, known)}"
