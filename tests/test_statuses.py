"""The six statuses, their letters, and what is said of unknown ones."""

from __future__ import annotations

import copy
import pickle
from collections.abc import Callable

import pytest
from cases import each

from limpyd_jobs.statuses import STATUSES

LETTERS = {
    "WAITING": "w",
    "DELAYED": "d",
    "RUNNING": "r",
    "SUCCESS": "s",
    "ERROR": "e",
    "CANCELED": "c",
}


def test_there_are_six_statuses_and_no_seventh() -> None:
    assert dict(STATUSES) == LETTERS


@each(("name", "letter"), LETTERS.items())
def test_a_status_is_an_attribute_and_an_item(name: str, letter: str) -> None:
    assert getattr(STATUSES, name) == letter
    assert STATUSES[name] == letter


@each("name", ["FOO", "waiting", "w", ""])
def test_an_unknown_name_raises_keyerror_as_attribute_and_as_item(name: str) -> None:
    with pytest.raises(KeyError, match=repr(name)):
        getattr(STATUSES, name)
    with pytest.raises(KeyError, match=repr(name)):
        STATUSES[name]


@each(("name", "letter"), LETTERS.items())
def test_by_value_gives_the_name_of_a_letter(name: str, letter: str) -> None:
    assert STATUSES.by_value(letter) == name
    assert STATUSES.by_value(letter, "other") == name


@each("value", ["z", "SUCCESS", "S", "", None])
def test_by_value_raises_valueerror_for_what_is_no_status(value: str | None) -> None:
    with pytest.raises(ValueError, match=repr(value)):
        STATUSES.by_value(value)
    with pytest.raises(ValueError, match=repr(value)):
        STATUSES.by_value(value, None)


@each("default", ["unknown", ""])
def test_by_value_gives_the_default_for_what_is_no_status(default: str) -> None:
    assert STATUSES.by_value("z", default) == default
    assert STATUSES.by_value(None, default=default) == default


def pickled(value: object) -> object:
    return pickle.loads(pickle.dumps(value))


@each("duplicate", [copy.copy, copy.deepcopy, pickled])
def test_the_statuses_can_be_copied_and_pickled(duplicate: Callable[[object], object]) -> None:
    assert duplicate(STATUSES) == STATUSES
