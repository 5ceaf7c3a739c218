"""What is said of a filter that finds nothing, or that cannot be read: which names may be meant instead."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from difflib import get_close_matches

from limpyd_jobs.query import queue_names, unknown_queue_models
from limpyd_jobs.redis.database import JobsDatabase
from limpyd_jobs.search.classes import classes_of
from limpyd_jobs.search.conditions import ANY, Condition
from limpyd_jobs.statuses import STATUSES
from limpyd_jobs.texts import count_of, one_line

# How many names a line has.
MAX_NAMES = 3


def unknown_names(conditions: Iterable[tuple[str, str, str]], database: JobsDatabase | None = None) -> Iterator[str]:
    """Yield a line about each queue and class that is asked for and does not exist, with similar names; and about each
    word alone, what it is looked for as."""
    for field, comparison, name in conditions:
        if (field, comparison) == ("queue", "="):
            known, what = queue_names(database), "no queue is named"
        elif (field, comparison) == ("class", "=") and not {"*", "?"} & {*name}:
            paths = classes_of(database)
            known, what = {path if "." in name else path.rpartition(".")[2] for path in paths}, "no job class is"
        elif field == ANY:
            yield _word_alone(name, database)
            continue
        else:
            continue
        if known and name not in known:
            yield f"{what} {one_line(name)}{names_near(name, known)}"
            yield from unknown_models(database) if field == "queue" else ()


def unknown_models(database: JobsDatabase | None = None) -> Iterator[str]:
    """Yield a line about keys of queues whose model is not known, as those of version 2."""
    if names := unknown_queue_models(database):
        what = f"keys of queues of other models are there: {some_of(names, MAX_NAMES)}"
        yield f"{what}. What is in them is not shown before you name the module of the model: --job-modules=MODULE"


def _word_alone(word: str, database: JobsDatabase | None) -> str:
    meant = meant_by(word, database)
    hint = f": is {' or '.join(map(one_line, meant))} meant?" if meant else ""
    return f"no job has {one_line(word)} as its ident, its identifier or an indexed argument{hint}"


def meant_by(word: str, database: JobsDatabase | None = None) -> list[str]:
    """Return the conditions that a word alone may stand for: those on a status, a queue or a class of that name."""
    paths = classes_of(database)
    is_class = word in paths or word in {path.rpartition(".")[2] for path in paths}
    found: Mapping[str, bool] = {
        "status": word.upper() in STATUSES,
        "queue": word in queue_names(database),
        "class": is_class,
    }
    return [f"{Condition.of(field, '=', word)}" for field, is_meant in found.items() if is_meant]


def names_near(name: str, others: Iterable[str | None]) -> str:
    """Return the end of a message: which other names may be meant; empty if no name is similar."""
    near = get_close_matches(name, {other for other in others if other})
    return f", but there is: {', '.join(map(one_line, near))}" if near else ""


def some_of(names: Sequence[str], most: int) -> str:
    """Return the first names, and how many others there are: ``a, b and 3 others``."""
    more = f" and {count_of(len(names) - most, 'other')}" if len(names) > most else ""
    return f"{', '.join(map(one_line, names[:most]))}{more}"
