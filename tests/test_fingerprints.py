"""The fingerprints of errors: what has the same cause has the same, on all versions of Python."""

from __future__ import annotations

import json
import traceback
from collections.abc import Callable
from types import TracebackType
from typing import Any

import pytest

from limpyd_jobs.fingerprints import LENGTH, fingerprint, normalised, summary


def of(function: Callable[..., Any], *args: Any, job_class: str = "shop.jobs.SendMail") -> str:
    """Return the fingerprint of what a function raises, which is the same with the traceback and with its text."""
    with pytest.raises(Exception) as caught:  # noqa: PT011
        function(*args)
    error = caught.value
    lines = "".join(traceback.format_exception(error))
    found = fingerprint(type(error).__name__, str(error), error.__traceback__, job_class)
    assert fingerprint(type(error).__name__, str(error), lines, job_class) == found
    return found


def at(*frames: tuple[str, str], job_class: str = "shop.jobs.SendMail") -> str:
    """Return the fingerprint of an error with such frames: files and functions, the outermost first."""
    lines = "".join(f'  File "{file}", line 3, in {function}\n    code\n' for file, function in frames)
    return fingerprint("ValueError", "no", f"Traceback (most recent call last):\n{lines}ValueError: no\n", job_class)


def find_page(number: object, book: str) -> None:
    raise LookupError(f"no page {number} of {book!r}")


def find_in_comprehension() -> list[int]:
    return [int(each) for each in ["1", "two"]]


def use_before_assignment() -> str:
    if not __name__:
        page = ""
    return page


def load(text: str) -> None:
    json.loads(text)


def wrap() -> None:
    try:
        find_page(1, "bible")
    except LookupError as error:
        raise ValueError("no book") from error


@pytest.mark.parametrize(
    ("message", "expected"),
    [
        ("page 12 of 30", "page <number> of <number>"),
        ("took -1.5s, 1,204 rows, 3e-7", "took <number>s, <number> rows, <number>"),
        ("at 2026-11-23T10:30:00.123", "at <number>T<number>"),
        ("no file 'a b.pdf'", "no file <text>"),
        ('no "it\'s" here', "no <text> here"),
        (r"no b'\x00\'' here", "no <text> here"),
        ("don't, it isn't", "don't, it isn't"),
        ("<Page object at 0x7f3a5c0e>", "<Page object at <id>>"),
        ("order 123e4567-e89b-12d3-a456-426614174000 is gone", "order <id> is gone"),
        ("commit deadbeef12 is gone", "commit <id> is gone"),
        ("facade decade", "facade decade"),
        ("ann.b+c@mail.example.com bounced", "<address> bounced"),
        ("two\n   lines", "two lines"),
        ("", ""),
    ],
)
def test_what_differs_from_job_to_job_is_left_out_of_a_message(message: str, expected: str) -> None:
    assert normalised(message) == expected


@pytest.mark.parametrize(
    ("message", "expected"),
    [
        ("no page 12", "no page <number>"),
        ("'ann'", "'ann'"),
        ("(12, 'a\n b')", "(12, 'a b')"),
        ("", ""),
        ("a" * 9, "a" * 9),
    ],
)
def test_a_message_of_nothing_else_is_shown_as_it_is(message: str, expected: str) -> None:
    assert summary(message) == expected


def test_numbers_and_names_make_no_difference() -> None:
    assert of(find_page, 1, "bible") == of(find_page, 2000, "it's")
    assert of(find_page, 1, "bible") != of(find_page, "one", "bible")


def test_the_identifier_of_the_job_makes_no_difference_unless_it_is_short() -> None:
    def of_job(identifier: str) -> str:
        return fingerprint("ValueError", f"cannot send {identifier} again", None, "", identifier)

    assert of_job("welcome:ann") == of_job("welcome:bob")
    assert of_job("ann") != of_job("bob")
    assert normalised("no file for photo:beach", "photo:beach") == "no file for <identifier>"


def test_the_place_makes_one_and_so_does_the_type() -> None:
    assert at(("/srv/shop/jobs.py", "run")) != at(("/srv/shop/jobs.py", "send"))
    assert at(("/srv/shop/jobs.py", "run")) != at(("/srv/shop/mail.py", "run"))
    assert fingerprint("KeyError", "no", None, "") != fingerprint("ValueError", "no", None, "")


def test_where_the_application_is_installed_makes_none() -> None:
    assert at(("/srv/releases/20261123/shop/jobs.py", "run")) == at((r"C:\app\shop\jobs.py", "run"))
    assert at(("/srv/releases/20261123/jobs.py", "run")) == at(("/srv/releases/20261124/jobs.py", "run"))


@pytest.mark.parametrize(
    "library",
    [
        "/usr/lib/python3.11/json/decoder.py",
        "/srv/venv/lib/python3.13/site-packages/requests/api.py",
        "/usr/lib/python3/dist-packages/requests/api.py",
        r"C:\Python311\Lib\json\decoder.py",
        "<frozen importlib._bootstrap>",
        "<string>",
    ],
)
def test_the_last_place_in_the_application_counts_not_one_in_a_library(library: str) -> None:
    alone = at(("/srv/shop/jobs.py", "run"))
    assert at(("/srv/shop/jobs.py", "run"), (library, "get"), (library, "send")) == alone
    assert at((library, "get"), ("/srv/shop/jobs.py", "run")) == alone


def test_an_application_may_be_installed_as_a_library_is() -> None:
    path = "/srv/venv/lib/python3.13/site-packages/shop/jobs.py"
    assert at((path, "run")) == at(("/srv/shop/jobs.py", "run"))
    assert at((path, "run"), job_class="other.jobs.SendMail") == at(job_class="shop.jobs.SendMail")


def test_this_library_is_no_application() -> None:
    assert at((fingerprint.__code__.co_filename, "fingerprint")) == at()


def test_fingerprints_are_the_same_on_all_versions_of_python() -> None:
    assert of(find_page, 1, "bible") == "c00a21e66d6240c5"
    assert of(find_in_comprehension) == "5d4de2068ac0410b"
    assert of(use_before_assignment) == "092a536025c4c7c9"
    assert of(load, "{") == "12cedafc3b31f938"
    assert of(wrap) == "887df0eef10c9091"


def test_an_error_without_a_traceback_has_one() -> None:
    nothing: TracebackType | None = None
    assert fingerprint("ValueError", "no", nothing, "") == fingerprint("ValueError", "no", "", "shop.jobs.SendMail")


def test_a_text_of_any_kind_has_one() -> None:
    assert len(fingerprint("É" * 10_000, "\udc80" * 10_000 + "'" * 10_000, "File" * 10_000, "a" * 10_000)) == LENGTH
