"""The pages of several shards: an overview of all, and for each other page the choice of a shard."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial

from limpyd_jobs.contrib.web.pages import PAGES, overview
from limpyd_jobs.contrib.web.protocol import Asked, Page
from limpyd_jobs.contrib.web.users import Role


@dataclass(frozen=True)
class ShardsShown:
    """The names of the shards, each of which has a page of the same path, with the same query."""

    shards: Sequence[str]
    path: str
    query: Sequence[tuple[str, str]]


def show(path: str, asked: Asked) -> ShardsShown:
    shards = asked.settings.shards
    names = [shards.name_of(number) for number in range(len(shards))] if shards else []
    return ShardsShown(names, path, asked.query.pairs)


# Those that the navigation and the overview lead to.
PAGES_OF_ALL: tuple[Page, ...] = (
    overview.PAGE,
    *(
        replace(page, show=partial(show, page.path), template="shards.html", role=Role.VIEW, acts=(), lane="")
        for page in PAGES
        if page.template and "{" not in page.path and page is not overview.PAGE
    ),
)
