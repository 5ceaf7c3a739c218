"""The conditions of a filter: a field, a comparison and a value. Written as a word, ``added>-1h``, or as in Python,
``added__gt="-1h"``."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import datetime, timedelta
from fnmatch import fnmatchcase
from math import isnan
from typing import Any, NamedTuple

from limpyd_jobs.arguments import PRIORITY_RANGE, read_priority
from limpyd_jobs.dates import as_naive_utc, datetime_to_score, parse_datetime, utcnow
from limpyd_jobs.statuses import STATUSES
from limpyd_jobs.texts import is_meant, one_line
from limpyd_jobs.transitions import mark_of

# The comparisons, by what ends the name of a field: in Python, and on a command line where nothing is to be quoted.
SUFFIXES = {"": "=", "eq": "=", "ne": "!=", "gt": ">", "gte": ">=", "lt": "<", "lte": "<=", "in": "in"}
COMPARISONS = (">", ">=", "<", "<=")
# One of several names, with commas between them: ``queue__in=mails,pages``.
ONE_OF = "in"

TIMES = ("added", "start", "end", "delayed_until")
NUMBERS = ("priority", "tries")
NAMES_OF_STATUSES = {letter: name.lower() for name, letter in STATUSES.items()}
# Stands for the field of a word without one: the ident, the identifier, or an indexed argument.
ANY = ""

EQUAL_ONLY = (
    *("class", "error", "fingerprint", "identifier", "last_app_version", "last_fingerprint"),
    *("owner", "pk", "queue", "status"),
)

_WORD = re.compile(r"(?P<field>[A-Za-z]\w*?)(?:__(?P<suffix>[a-z]+))?(?P<sign>!=|>=|<=|=|>|<)(?P<value>.*)", re.DOTALL)
_AGO = re.compile(r"([+-])(\d{1,9}(?:\.\d{1,9})?)([smhdw])")
_UNITS = {"s": "seconds", "m": "minutes", "h": "hours", "d": "days", "w": "weeks"}

MAX_NAME = 1000  # of a class
MAX_CONDITIONS = 1000  # of a filter: each one is looked at for each job

HOW_TO_WRITE = "write it as field=value, field!=value, field>value or field__gt=value"


class Condition(NamedTuple):
    """A condition that a job has to meet; its value is as it is stored: the letter of a status, a date in UTC."""

    field: str
    comparison: str
    value: str

    @classmethod
    def parse(cls, word: str) -> Condition:
        match = _WORD.fullmatch(word)
        if not match:
            raise ValueError(f"{one_line(word)!r} is not a condition: {HOW_TO_WRITE}")
        field, suffix, sign = match["field"], match["suffix"], match["sign"]
        if suffix and suffix not in SUFFIXES:
            field, suffix = f"{field}__{suffix}", ""
        if suffix and sign != "=":
            raise ValueError(f"{one_line(word)!r} compares twice: {HOW_TO_WRITE}")
        return cls.of(field, SUFFIXES[suffix] if suffix else sign, match["value"])

    @classmethod
    def of_jobs(cls, word: str) -> Condition:
        """Read a word of a filter of jobs: a condition, or what an ident, an identifier or an indexed argument is."""
        return cls(ANY, "=", word) if word and {*"=<>"}.isdisjoint(word) else cls.parse(word)

    @classmethod
    def named(cls, name: str, value: Any) -> Condition:
        """Read a condition as it is written in Python: ``added__gt="-1h"``."""
        field, _, suffix = name.rpartition("__")
        if not field or suffix not in SUFFIXES:
            field, suffix = name, ""
        return cls.of(field, SUFFIXES[suffix], value)

    @classmethod
    def of(cls, field: str, comparison: str, value: Any) -> Condition:
        """Return a condition with its value checked, in the form in which it is stored."""
        if comparison in COMPARISONS and field in EQUAL_ONLY:
            raise ValueError(f"{field} cannot be compared by {comparison}: only by = and !=")
        if comparison == ONE_OF and field != "queue":
            raise ValueError(f"{field}__in: only queue takes several names, as in queue__in=mails,pages")
        stored = _STORED.get(field, _text_of)(field, value)
        if comparison in COMPARISONS and stored == "":
            raise ValueError(f"{field}{comparison} needs a value to compare with")
        if field == "class" and len(stored) > MAX_NAME:
            raise ValueError(f"The name of a class has at most {MAX_NAME:,} characters")
        return cls(field, comparison, stored)

    def __str__(self) -> str:
        if self.field == ANY:
            return self.value
        if self.comparison == ONE_OF:
            return f"{self.field}__in={self.value}"
        value = NAMES_OF_STATUSES.get(self.value) if self.field == "status" else None
        return f"{self.field}{self.comparison}{value or self.value}"

    @property
    def is_negated(self) -> bool:
        return self.comparison == "!="

    @property
    def is_equality(self) -> bool:
        """Whether it asks for one value that is not empty."""
        return self.comparison == "=" and self.value != ""

    def bounds(self, *, is_date: bool) -> tuple[str, str] | None:
        """Return the lowest and highest score of records that meet it, in an index of numbers or dates."""
        number = self._moment() if is_date else self._number() if self.comparison in COMPARISONS else None
        if number is None or isnan(number) or self.is_negated:
            return None
        bound = f"{number!r}" if self.comparison.endswith("=") else f"({number!r}"
        if self.comparison == "=":
            return bound, bound
        return (bound, "+inf") if self.comparison[0] == ">" else ("-inf", bound)

    def fitting_index(self, *, is_date: bool) -> str | None:
        """Return the name of the class of an index that finds the jobs that meet it at once; None if there is no such
        index."""
        if self.is_negated or self.comparison == ONE_OF or self.value == "":
            return None
        if is_date or (self.field in TIMES and self.comparison in COMPARISONS):
            return "DateTimeRangeIndex"
        if self.comparison == "=":
            return "EqualIndex"
        return None if self._number() is None else "NumberRangeIndex"

    def is_met_by_class(self, path: str) -> bool:
        """Whether jobs of a class can meet it. Only a condition on the class excludes some."""
        if self.field != "class":
            return True
        name = path if "." in self.value else path.rpartition(".")[2]
        return fnmatchcase(name, self.value.replace("[", "[[]")) != self.is_negated

    def as_test(self, *, is_date: bool = False) -> dict[str, Any]:
        """Return it as ``search.lua`` takes it, for a field that holds dates, or other values."""
        test = self._test_of_date() if is_date and self.value and self.field not in TIMES else self._test()
        return {**test, **({"is_negated": True} if self.is_negated else {})}

    def _test_of_date(self) -> dict[str, Any]:
        names = {"=": "equal", "!": "equal", ">": "more", "<": "less"}
        how = {"test": names[self.comparison[0]], "or_equal": self.comparison in (">=", "<=")}
        return {**how, "field": self.field, "value": self._moment(), "is_date": True}

    def _mark(self) -> str:
        try:
            return mark_of(self.value)[1:]
        except UnicodeEncodeError:
            raise ValueError(f"owner: {one_line(self.value)} is not UTF-8, as the name of each owner is") from None

    def _test(self) -> dict[str, Any]:
        if self.comparison == ONE_OF:
            test = "queue" if self.field == "queue" else "is"  # the field of an error has another name
            return {"test": test, "field": self.field, "values": self.value.split(",")}
        if self.field == "queue":
            return {"test": "queue", "field": "queue", "value": self.value}
        if self.field == "pk":
            return {"test": "pk", "value": self.value}
        if self.field == "owner":
            return {"test": "owner", "field": "_claim_token", "value": self._mark()}
        number = self._number()
        if self.comparison in COMPARISONS:
            test = "more" if self.comparison[0] == ">" else "less"
            value = self.value if number is None else number
            compared = {"test": test, "field": self.field, "value": value, "is_number": number is not None}
            return {**compared, "or_equal": self.comparison.endswith("=")}
        if number is not None and self.field in NUMBERS:
            return {"test": "equal", "field": self.field, "value": number, "is_number": True}
        return {"test": "is", "field": self.field, "value": self.value}

    def _moment(self) -> float | None:
        return datetime_to_score(parse_moment(self.field, self.value)) if self.value else None

    def _number(self) -> float | None:
        try:
            return None if self.field in TIMES else float(self.value)
        except ValueError:
            return None


def limited(conditions: Sequence[Condition]) -> tuple[Condition, ...]:
    """Return the conditions of a filter; raise `ValueError` if there are too many."""
    if len(conditions) > MAX_CONDITIONS:
        raise ValueError(f"A filter has at most {MAX_CONDITIONS:,} conditions, not {len(conditions):,}")
    return tuple(conditions)


def check_fields(refusal: str, names: Iterable[str], fields: Iterable[str]) -> None:
    """Raise `ValueError` if one of the names is not a field; it says which fields there are, and which may be meant."""
    unknown = min({*names} - {*fields}, default=None)
    if unknown is not None:
        own = sorted(name for name in fields if not name.startswith("_"))
        near = is_meant(unknown, own)
        raise ValueError(f"{refusal} {unknown!r}{f'{near} There' if near else '; there'} are: {', '.join(own)}")


def _text_of(field: str, value: Any) -> str:
    if isinstance(value, bool):
        return "1" if value else "0"  # as an argument is stored
    if isinstance(value, (int, float)):
        return str(value)
    if isinstance(value, (datetime, timedelta)):
        return time_of(field, value)
    if not isinstance(value, str):
        raise TypeError(f"{field} is compared with a text, a number or a time, not with {value!r}")
    return value


def _status_of(field: str, value: Any) -> str:
    text = _text_of(field, value)
    if text in STATUSES.values():
        return text
    try:
        return STATUSES[text.upper()]
    except KeyError:
        names = ", ".join(NAMES_OF_STATUSES.values())
        raise ValueError(f"{one_line(text)!r} is not a status: {names}") from None


def _integer_of(field: str, value: Any) -> str:
    text = _text_of(field, value)
    if text == "":
        return text
    number = read_priority(text)
    if number is None or number not in PRIORITY_RANGE:
        raise ValueError(f"{field} is an integer, not {one_line(text)!r}")
    return str(number)


def _pk_of(field: str, value: Any) -> str:
    text = _text_of(field, value)
    if not re.fullmatch(r"\d{1,18}", text, re.ASCII):
        raise ValueError(f"{field} is the number of a job, not {one_line(text)!r}")
    return str(int(text))


def time_of(field: str, value: Any) -> str:
    """Return a moment as it is stored: a datetime, naive in UTC or aware; a time span from now; or the text of one."""
    if isinstance(value, timedelta):
        return str(utcnow() + value)
    if isinstance(value, datetime):
        return str(as_naive_utc(value))
    text = _text_of(field, value)
    return str(parse_moment(field, text)) if text else ""


def parse_moment(what: str, text: str) -> datetime:
    """Return the moment of a text, in UTC: a date, ``now``, or a time span from now, such as ``-1h``."""
    ago = _AGO.fullmatch(text)
    try:
        span = timedelta(**{_UNITS[ago[3]]: float(ago[2])}) if ago else timedelta(0)
        if ago or text == "now":
            return utcnow() - span if ago and ago[1] == "-" else utcnow() + span
    except OverflowError:
        text = f"{text}, so far away,"
    moment = parse_datetime(text)
    if moment is None:
        raise ValueError(
            f"{what}: {one_line(text)!r} is not a time: write 2026-11-20, 2026-11-20T10:30 (UTC), -1h, -30m or +2d"
        )
    return moment


def _class_of(field: str, value: Any) -> str:
    return _text_of(field, value.get_model_repr() if hasattr(value, "get_model_repr") else value)


_STORED: Mapping[str, Callable[[str, Any], str]] = {
    "class": _class_of,
    "pk": _pk_of,
    "status": _status_of,
    **dict.fromkeys(NUMBERS, _integer_of),
    **dict.fromkeys(TIMES, time_of),
}
