"""What the pages of Django's admin show: values of the dashboard, as rows and filters."""

from __future__ import annotations

import json
import shlex
from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import timezone as timezones
from typing import Any, NamedTuple
from urllib.parse import urlencode

from django.urls import NoReverseMatch, reverse
from django.utils import formats, timezone

from limpyd_jobs.contrib.django.dashboard.site import Request, ask
from limpyd_jobs.contrib.web import User
from limpyd_jobs.contrib.web.rendering import address, visible
from limpyd_jobs.integration import parse_datetime

UTC = timezones.utc

# How many characters of a text are shown in a cell, and of a value to choose.
MAX_CELL, MAX_CHOICE = 200, 60

Row = Mapping[str, Any]


class Column(NamedTuple):
    """A column: what stands in it, and the page of the dashboard that it leads to, if any."""

    label: str
    text: Callable[[Row], object]
    link: Callable[[Row], str] | None = None


class Cell(NamedTuple):
    """A text, and an address, which is empty if it leads nowhere."""

    text: str
    link: str


class Choice(NamedTuple):
    """A value that a list can be narrowed to: the query that does so, and whether it is so."""

    label: str
    query: str
    is_chosen: bool


class Filter(NamedTuple):
    """The values of a field that a list can be narrowed to."""

    title: str
    choices: Sequence[Choice]


class NotShown(Exception):
    """The dashboard refuses to show it, and says why."""


def read(user: User, path: str, query: Mapping[str, str]) -> Any:
    """Return the value that a page of the dashboard shows; raise `NotShown` if it refuses."""
    headers = [("host", "localhost"), ("accept", "application/json")]
    answer = ask(user, Request(path, encoded(query).encode(), headers=headers))
    value = json.loads(answer.content)
    if answer.status != 200:
        raise NotShown(visible(value["error"]))
    return value


def encoded(query: Mapping[str, str]) -> str:
    """Return a query as it stands in an address."""
    return urlencode(query, errors="surrogateescape")


def root() -> str | None:
    """Return where the dashboard is; None if ``urls.py`` does not have it."""
    try:
        return reverse("limpyd_jobs:dashboard").rstrip("/")
    except NoReverseMatch:
        return None


def cells(columns: Sequence[Column], rows: Iterable[Row]) -> list[list[Cell]]:
    """Return what stands in a table."""
    where = root()

    def cell(column: Column, row: Row) -> Cell:
        value = column.text(row)
        text = "" if value is None else visible(value, MAX_CELL)
        return Cell(text, f"{where}{column.link(row)}" if column.link and text and where is not None else "")

    return [[cell(column, row) for column in columns] for row in rows]


def narrow(query: Mapping[str, str], name: str, values: Iterable[str]) -> Filter:
    """Return the filter of a parameter of the query."""
    others = {each: value for each, value in query.items() if each not in (name, "after")}
    chosen = query.get(name, "")
    choices = [Choice("All", encoded(others), not chosen)]
    choices += [Choice(visible(each, MAX_CHOICE), encoded({**others, name: each}), each == chosen) for each in values]
    return Filter(name, choices)


def narrow_words(words: Sequence[str], field: str, values: Mapping[str, int | None]) -> Filter:
    """Return the filter of a field, which adds a condition to the words of a filter of jobs or errors."""
    others = [word for word in words if not word.startswith(f"{field}=")]

    def choice(label: str, word: Sequence[str], number: int | None) -> Choice:
        label = visible(label, MAX_CHOICE) if number is None else f"{visible(label, MAX_CHOICE)} ({number:,})"
        return Choice(label, encoded({"q": shlex.join([*others, *word])}), {*word} <= {*words} and len(word) > 0)

    choices = [choice(value, [f"{field}={value}"], number) for value, number in values.items()]
    is_any = not any(each.is_chosen for each in choices)
    return Filter(field, [choice("All", [], None)._replace(is_chosen=is_any), *choices])


def when(value: str | None) -> str:
    """Return a stored date as the admin shows dates: in the time zone and the form of the project."""
    moment = parse_datetime(value)
    if moment is None:
        return value or ""
    return str(formats.date_format(timezone.localtime(moment.replace(tzinfo=UTC)), "SHORT_DATETIME_FORMAT"))


def page_of(path: str, **query: str) -> Callable[[Row], str]:
    """Return what makes addresses of the dashboard of rows: the values of the query are names of fields."""
    return lambda row: address(path, **{name: row[field] for name, field in query.items()})
