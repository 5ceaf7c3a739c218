"""The values that a search returns. They do not need the classes of the jobs."""

from __future__ import annotations

import json
from base64 import urlsafe_b64decode, urlsafe_b64encode
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Generic, NamedTuple, TypeVar

from limpyd_jobs.arguments import number_or_text
from limpyd_jobs.exceptions import naming
from limpyd_jobs.records.known_classes import KnownClass
from limpyd_jobs.statuses import STATUSES

T = TypeVar("T")

# The fields that are read of each job that is found.
FIELDS = ("identifier", "status", "queue", "priority", "tries", "added", "start", "end")


class FoundJob(NamedTuple):
    """A job, as it was when it was found.

    Attributes
    ----------
    ident: str
        As `Job.get_from_ident` takes it.
    identifier: str
    status: str
        The name of the status, such as ``error``; the stored text, if it is not a status.
    queue: str
        The name of the queue; None if the job does not say.
    priority, tries: int
    added, start, end: str
        Dates in UTC; None for a date that is not set.
    """

    ident: str
    identifier: str | None
    status: str
    queue: str | None
    priority: int | str
    tries: int | str
    added: str | None
    start: str | None
    end: str | None

    @classmethod
    def of(cls, known: KnownClass, pk: int, values: Sequence[str | None]) -> FoundJob:
        identifier, status, queue, priority, tries, *times = values
        numbers = (number_or_text(priority or "0"), number_or_text(tries or "0"))
        return cls(f"{known.path}:{pk}", identifier, name_of_status(status), queue, *numbers, *times)


def name_of_status(letter: str | None) -> str:
    """Return the name of a stored status in small letters; another text as it is."""
    return STATUSES.by_value(letter, letter or "").lower()


class Count(NamedTuple):
    """How many records there are; a lower bound, if there was no time to look at all."""

    number: int
    is_exact: bool

    def __str__(self) -> str:
        if not (self.is_exact or self.number):
            return "0 so far"  # at least none says nothing
        return f"{'' if self.is_exact else '≥ '}{self.number:,}"

    @classmethod
    def sum(cls, counts: Iterable[Count]) -> Count:
        """Return the sum of several counts."""
        found = [*counts]
        return cls(sum(each.number for each in found), all(each.is_exact for each in found))


class Facets(NamedTuple):
    """How many jobs there are of each value of a field, the most frequent value first.

    Attributes
    ----------
    counts: mapping of str to int
        The most frequent values. All others are counted in `others`.
    others: int
    is_exact: bool
        False if there was no time to look at all jobs.
    """

    counts: Mapping[str, int]
    others: int
    is_exact: bool

    @classmethod
    def sum(cls, facets: Iterable[Facets], most: int) -> Facets:
        """Return the sum of several facets, of the most frequent values."""
        found, counts = [*facets], Counter[str]()
        if len(found) == 1:
            return found[0]
        for each in found:
            counts.update(each.counts)
        shown = dict(counts.most_common(most))
        others = counts.total() - sum(shown.values()) + sum(each.others for each in found)
        # those of one that names not all may have more of a value
        return cls(shown, others, all(each.is_exact and not each.others for each in found))


@dataclass(frozen=True)
class Page(Generic[T]):
    """Some records, in order.

    Attributes
    ----------
    found: list of FoundJob or FoundError
    following: str
        The value of `after` for the next page; None if there is no next page.
    is_complete: bool
        False if there was no time to find as many as were asked for: go on with `following`.
    looked, size: int
        At how many records it looked, and how many at most there are to look at.
    """

    found: list[T]
    following: str | None
    is_complete: bool
    looked: int = 0
    size: int = 0


def cursor_of(positions: Mapping[str, int]) -> str:
    """Return where to go on, as a word: the last pk of each class."""
    return urlsafe_b64encode(json.dumps(positions, separators=(",", ":")).encode()).decode().rstrip("=")


def positions_of(cursor: str) -> dict[str, int]:
    """Read a word that `cursor_of` made; raise `ValueError` for another text."""
    try:
        found: Any = json.loads(urlsafe_b64decode(cursor.encode() + b"=" * (-len(cursor) % 4)))
        return {str(path): int(pk) for path, pk in found.items()}
    except (AttributeError, OverflowError, RecursionError, TypeError, ValueError):
        raise naming(
            ValueError, f"{cursor[:40]!r} is not where a page ended: give ", ("after", "the `following` of one")
        ) from None
