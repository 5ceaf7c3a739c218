"""The keys of limits that are in use: who holds their slots, and how many jobs wait for them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from limpyd_jobs.contrib.web.protocol import Asked, Page
from limpyd_jobs.query import LimitKey, limit_keys

PER_PAGE = 200


@dataclass(frozen=True)
class LimitsShown:
    """Some keys of limits, of all that are in use; those with most parked jobs first."""

    keys: Sequence[LimitKey]
    number: int


def show(asked: Asked) -> LimitsShown:
    found = limit_keys(asked.database)
    mask = asked.masking.any.text
    shown = [each._replace(value=None if each.value is None else mask(each.value)) for each in found[:PER_PAGE]]
    return LimitsShown(shown, len(found))


PAGE = Page("/limits", "Limits", show, "limits.html", lane="records")
