"""What is said of what was not found, or not looked at: names that may be misspelt, classes that are not known."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from difflib import get_close_matches

from limpyd_jobs.query import JobFilter, QueueState, Tally, queue_names, unknown_queue_models
from limpyd_jobs.query.queues import unknown_classes_by_queue
from limpyd_jobs.redis.database import JobsDatabase
from limpyd_jobs.search.classes import classes_of, models_of, unread_text
from limpyd_jobs.search.conditions import ANY, Condition
from limpyd_jobs.statuses import STATUSES
from limpyd_jobs.texts import count_of, one_line

# How many names a line has, of classes or of models.
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


def unknown_classes(states: Iterable[QueueState] | None = None, database: JobsDatabase | None = None) -> Iterator[str]:
    """Yield a line about the classes that are not known, as of version 2, and have jobs in these queues, or in any; and
    one about keys that may not be read."""
    if names := models_of(database).unread:
        yield f"not looked at: {unread_text(names, MAX_NAMES)}"
    if states is None:
        found = unknown_classes_by_queue(database)
        yield from () if found else unknown_models(database)
    else:
        found = [state.unknown_classes for state in states]
    paths = sorted({path for each in found for path in each})
    if paths:
        those = f"{some_of(paths, MAX_NAMES)}, and maybe others, also in queues of other models"
        yield f"not looked at: jobs of {those}. Make the class known: --job-modules=MODULE"


def not_found(filters: Iterable[JobFilter], tally: Tally) -> Iterator[str]:
    """Yield the lines about what a verb on all jobs of some filters may have missed, given its outcomes."""
    yield from unknown_classes()
    if not any(tally):
        yield from (line for each in filters for line in unknown_names(each.conditions))


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
