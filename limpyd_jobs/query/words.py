"""The words that a filter may be made of, for people who type one: fields, statuses, queues, classes and causes."""

from __future__ import annotations

from collections.abc import Iterable

from limpyd_jobs.query.queues import queue_names
from limpyd_jobs.redis.database import JobsDatabase
from limpyd_jobs.search.classes import classes_of
from limpyd_jobs.search.conditions import TIMES
from limpyd_jobs.search.errors import ErrorFilter
from limpyd_jobs.search.look import OTHER_NAMES
from limpyd_jobs.statuses import STATUSES

# How many causes are looked for, and for how many seconds.
MAX_CAUSES, CAUSES_TIMEOUT = 50, 0.5

AGES = ("-5m", "-1h", "-1d", "-7d")


def words_of_errors(database: JobsDatabase | None = None) -> list[str]:
    """Return words for a filter of errors: each queue, each class, and the most frequent causes."""
    return [
        *(f"queue={name}" for name in sorted(queue_names(database))),
        *(f"class={path}" for path in sorted(classes_of(database))),
        *(f"fingerprint={each}" for each in fingerprints(database)),
    ]


def words_of_jobs(database: JobsDatabase | None = None) -> list[str]:
    """Return words for a filter of jobs: each status, and those of `words_of_errors`."""
    return [*(f"status={name.lower()}" for name in STATUSES), *words_of_errors(database)]


def fingerprints(database: JobsDatabase | None = None) -> list[str]:
    """Return the fingerprints of the most frequent causes of errors, as far as there is time to look."""
    found = ErrorFilter(database=database).groups(MAX_CAUSES, CAUSES_TIMEOUT)
    return [group.fingerprint for group in found.groups]


def completions(word: str, database: JobsDatabase | None = None, most: int = 12) -> list[str]:
    """Return words for a filter of jobs that begin so, or have the text in them: names of fields, with a comparison
    behind, until there is one; then words with a value."""
    name, sign, _ = word.partition("=")
    if sign and name in _VALUES:
        found: Iterable[str] = (each for each in words_of_jobs(database) if each.startswith(f"{name}="))
    elif word[:1].isalpha() and any(word.startswith(each) for each in TIMES):
        field = next(each for each in TIMES if word.startswith(each))
        found = (f"{field}{comparison}{age}" for comparison in (">", "<") for age in AGES)
    elif sign:
        return []
    else:
        fields = {name for known in classes_of(database).values() for name in known.fields if not name.startswith("_")}
        found = (f"{field}=" for field in sorted(OTHER_NAMES | fields))
    meant = [each for each in found if word.lower() in each.lower()]
    return sorted(meant, key=lambda each: not each.startswith(word))[:most]


_VALUES = ("status", "queue", "class", "fingerprint")
