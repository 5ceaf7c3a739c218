"""The keys of limits that are in use: who holds their slots, and how many jobs wait for them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from limpyd_jobs.contrib.web.masking import HIDDEN, Mask
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
    return LimitsShown([_masked(each, asked.masking.any) for each in found[:PER_PAGE]], len(found))


def _masked(key: LimitKey, secrets: Mask) -> LimitKey:
    """Return a key without a value that is secret, or may be: as of a field that is not known."""
    if key.value is None:
        return key
    return key._replace(value=secrets.field(key.field, key.value) if key.field else HIDDEN)


PAGE = Page("/limits", "Limits", show, "limits.html", lane="records")
