"""The keys of limits that are in use: who holds their slots, and how many jobs wait for them."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from functools import partial

from limpyd_jobs.contrib.web.masking import HIDDEN, Mask
from limpyd_jobs.contrib.web.protocol import Asked, Page
from limpyd_jobs.query import LimitKey
from limpyd_jobs.views import LimitRow, limit_rows, rows_of

PER_PAGE = 200


@dataclass(frozen=True)
class LimitsShown:
    """Some keys of limits in which a text occurs, or in their classes; those with most parked jobs first.

    `number` is how many there are of these, `parked` for how many jobs wait for them; one that waits for two of them
    counts twice.
    """

    text: str
    rows: Sequence[LimitRow]
    number: int
    parked: int


def show(asked: Asked) -> LimitsShown:
    text = asked.query.get("q")
    low = text.lower()
    found = [each for each in _rows(asked) if low in f"{each.key.label} {each.job_class or each.key.owner}".lower()]
    return LimitsShown(text, found[:PER_PAGE], len(found), sum(each.key.parked for each in found))


def shown_limits(asked: Asked, paths: Collection[str]) -> list[LimitRow]:
    """Return the keys of the limits of some classes that are in use."""
    return rows_of(_rows(asked), paths) if paths else []


def _rows(asked: Asked) -> list[LimitRow]:
    found = asked.find("limits", partial(limit_rows, asked.database))
    return [row._replace(key=_masked(row.key, asked.masking.any)) for row in found]


def _masked(key: LimitKey, secrets: Mask) -> LimitKey:
    """Return a key without a value that is secret, or may be: as of a field that is not known."""
    if key.value is None:
        return key
    return key._replace(value=secrets.field(key.field, key.value) if key.field else HIDDEN)


PAGE = Page("/limits", "Limits", show, "limits.html", "Limits", "limits", "l", lane="records")
