"""Pages of several shards as one."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TypeVar

from limpyd_jobs.query import Page

T = TypeVar("T")


def page_of_all(
    pages: Mapping[int, Page[T]], most: int, date: Callable[[T], str | None], *, newest_first: bool = True
) -> tuple[Page[T], list[int]]:
    """Return the first records by their dates, and the number of the shard of each. After those of several shards no
    page follows: `following` only tells that there are more."""
    if len(pages) == 1:
        [(number, page)] = pages.items()
        return page, [number] * len(page.found)
    rows = [(each, number) for number, page in pages.items() for each in page.found]
    rows.sort(key=lambda row: date(row[0]) or "", reverse=newest_first)
    is_more = len(rows) > most or any(page.following for page in pages.values())
    is_complete = all(page.is_complete for page in pages.values())
    found = [each for each, _ in rows[:most]]
    return Page(found, "more" if is_more else None, is_complete), [number for _, number in rows[:most]]
