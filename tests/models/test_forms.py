"""Arguments of the types that annotations name: what is stored of a value, and that the same value comes back."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import InitVar, dataclass, field
from datetime import date, datetime, time, timedelta, timezone
from decimal import Decimal
from enum import Enum, IntFlag
from pathlib import Path
from typing import Annotated, Any, Literal, NewType, Optional, TypeVar
from uuid import UUID

import pytest
from cases import each

from limpyd_jobs.fields.codecs import codec_of


class Colour(Enum):
    RED = 1
    BLUE = 2


class Flags(IntFlag):
    A = 1
    B = 2


@dataclass
class Node:
    name: str
    price: Decimal | None = None
    kids: list[Node] = field(default_factory=list)


@dataclass
class Forgetful:
    name: InitVar[str]


class Unknown:
    pass


Number = NewType("Number", int)
THEN = datetime(2020, 1, 2, 3, 4, 5, 6, tzinfo=timezone.utc)

STORED: list[tuple[Any, Any, str]] = [
    (list[int], [1, 2], "[1,2]"),
    (list, ["é", None], '["é",null]'),
    (Sequence[bool], [True], "[true]"),
    (set[str], {"b", "a"}, '["a","b"]'),
    (frozenset[int], frozenset({1}), "[1]"),
    (tuple[int, str], (1, "a"), '[1,"a"]'),
    (tuple[int, ...], (1, 2, 3), "[1,2,3]"),
    (tuple[()], (), "[]"),
    (dict[str, list[int]], {"a": [1]}, '{"a":[1]}'),
    (Mapping[int, str], {1: "a"}, '{"1":"a"}'),
    (dict[Colour, int], {Colour.RED: 2}, '{"RED":2}'),
    (dict, {"$bytes": "QQ=="}, '{"$bytes":"QQ=="}'),
    (Optional[str], None, "null"),  # noqa: UP045
    (str | None, "", '""'),
    (str | int, 5, "5"),
    (int | float, 1, "1"),
    (int | float, 1.0, "1.0"),
    (float | None, float("inf"), "Infinity"),
    (datetime | None, THEN, '"2020-01-02T03:04:05.000006+00:00"'),
    (list[bytes], [b"a"], '["YQ=="]'),
    (date, date(2020, 1, 2), "2020-01-02"),
    (time, time(1, 2), "01:02:00"),
    (timedelta, timedelta(1, 2, 3), "86402.000003"),
    (Decimal, Decimal("1.50"), "1.50"),
    (UUID, UUID(int=7), "00000000-0000-0000-0000-000000000007"),
    (Path, Path("a/b"), "a/b"),
    (Colour, Colour.BLUE, "BLUE"),
    (Flags, Flags.A | Flags.B, "3"),
    (Literal["a", 1], 1, "1"),
    (Any, {"a": [1, None]}, '{"a":[1,null]}'),
    (Number, 5, "5"),
    (Annotated[int, "x"], 3, "3"),
    (
        Node,
        Node("a", Decimal("1.5"), [Node("b")]),
        '{"name":"a","price":"1.5","kids":[{"name":"b","price":null,"kids":[]}]}',
    ),
]


@each(("kind", "value", "text"), STORED)
def test_a_value_is_stored_and_comes_back(kind: Any, value: Any, text: str) -> None:
    codec = codec_of(kind)
    stored = codec.stored("It", value)
    assert stored == text
    assert codec.load(stored) == value
    assert type(codec.load(stored)) is type(value)


OTHERS: list[tuple[Any, Any, str]] = [
    (list[int], ["a"], r"It cannot be stored as list\[int\]: 'a' is not int"),
    (list[int], [True], "True is not int"),
    (list[int], (1,), r"\(1,\) is not list"),
    (str | None, 5, "5 is not str"),
    (Colour, "RED", "'RED' is not Colour"),
    (float | None, float("nan"), "nan is not float"),
    (Node, {"name": "a"}, "is not Node"),
    (Node, Node(5), "5 is not str"),  # type: ignore[arg-type]
    (tuple[int, str], (1,), "has not 2 values"),
    (Literal["a"], "b", "'b' is not one of 'a'"),
    (Any, (1,), r"would come back as \[1\]"),
    (Any, {1: 2}, "would come back as"),
    (Any, float("nan"), "would come back as"),
    (list[str], ["\ud800"], "surrogates not allowed"),
    (date, THEN, "is not date"),
    (int | str | None, 2.5, r"2\.5 is not int \| str \| None"),
    (timedelta, timedelta(days=999_999_999, microseconds=1), "too long to be kept exactly"),
]


@each(("kind", "value", "why"), OTHERS)
def test_another_value_is_refused(kind: Any, value: Any, why: str) -> None:
    with pytest.raises(TypeError, match=why):
        codec_of(kind).stored("It", value)


KINDS: list[tuple[Any, str]] = [
    (Unknown, "values of Unknown cannot travel: give what it is made of or found by"),
    (list[Unknown], "values of Unknown cannot travel"),
    (datetime | str, r"values of datetime \| str cannot travel: two of its types look the same"),
    (Node | dict, "two of its types look the same"),
    (Callable[[], int], "cannot travel"),
    (Iterator[int], "cannot travel"),
    (TypeVar("T"), "cannot travel"),
    (dict[float, int], r"the keys of dict\[float, int\] cannot travel"),
    (Literal[b"a"], "give the values that JSON has"),
    (Forgetful, "Forgetful cannot (travel|be read): .*InitVar"),
    (5, "values of 5 cannot travel"),
]


@each(("kind", "why"), KINDS)
def test_types_whose_values_cannot_be_kept_are_refused(kind: Any, why: str) -> None:
    with pytest.raises(TypeError, match=why):
        codec_of(kind)


HOSTILE = [
    (Node, '{"name":1}'),
    (Node, '{"nam":"a"}'),
    (Node, "[]"),
    (Node, "x"),
    (Colour, "GREEN"),
    (Colour, "__class__"),
    (Decimal, "x"),
    (int | None, "2.5"),
    (tuple[int, str], "[1]"),
    (date, "2020-13-01"),
    (list[int], "[" * 100_000),
]


@each(("kind", "text"), HOSTILE)
def test_a_text_that_another_program_wrote_is_refused(kind: Any, text: str) -> None:
    with pytest.raises((TypeError, ValueError, RecursionError)):
        codec_of(kind).load(text)


def test_a_number_of_an_older_version_is_read_as_a_float() -> None:
    assert codec_of(float | None).load(json.dumps(3)) == 3.0
