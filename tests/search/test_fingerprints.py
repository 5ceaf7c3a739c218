"""The fingerprints of errors: what has the same cause has the same, on all versions of Python."""

from __future__ import annotations

import importlib
import json
import shutil
import sys
import traceback
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from cases import each

from limpyd_jobs.exceptions import JobTimeout
from limpyd_jobs.search import fingerprints
from limpyd_jobs.search.fingerprints import LENGTH, Cause, cause_of


def cause(function: Callable[..., Any], *args: Any, job_class: str = "shop.jobs.SendMail") -> Cause:
    """Return the cause of what a function raises, which is the same with the exception and with its text."""
    with pytest.raises(BaseException) as caught:  # noqa: PT011
        function(*args)
    error = caught.value
    lines = "".join(traceback.format_exception(error))
    found = cause_of(type(error).__name__, str(error), error, job_class)
    assert cause_of(type(error).__name__, str(error), lines, job_class) == found
    return found


def of(function: Callable[..., Any], *args: Any) -> str:
    return cause(function, *args).fingerprint


def at(*frames: tuple[str, str], job_class: str = "shop.jobs.SendMail", line: str = "code") -> str:
    """Return the fingerprint of an error with such frames: files and functions, the outermost first."""
    lines = "".join(f'  File "{file}", line 3, in {function}\n    {line}\n' for file, function in frames)
    text = f"Traceback (most recent call last):\n{lines}ValueError: no\n"
    return cause_of("ValueError", "no", text, job_class).fingerprint


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


def find_in_lines(*numbers: object) -> list[int]:
    return [
        int(each)
        for each in numbers
    ]  # fmt: skip


def fail(text: str) -> None:
    raise LookupError(text)


def time_out(where: bool) -> None:
    if where:
        raise JobTimeout("It ran for more than 1 seconds")
    time_out(True)


def test_the_type_and_the_place_make_it_not_the_message() -> None:
    assert of(find_page, 1, "bible") == of(find_page, "one", "it's")
    assert of(fail, "no address") == of(fail, "no file /data/3f/a9")
    assert of(find_page, 1, "bible") != of(fail, "no page 1 of 'bible'")
    assert at(("/srv/shop/jobs.py", "run")) != at(("/srv/shop/jobs.py", "send"))
    assert at(("/srv/shop/jobs.py", "run")) != at(("/srv/shop/mail.py", "run"))
    assert at(("/srv/shop/jobs.py", "run")) != at(("/srv/shop/jobs.py", "run"), line="other")


def test_the_place_is_the_module_the_function_and_the_line() -> None:
    assert cause(fail, "no").place == f"{__name__}, in fail: raise LookupError(text)"
    assert cause(find_in_comprehension).place == (
        f'{__name__}, in find_in_comprehension: return [int(each) for each in ["1", "two"]]'
    )
    assert cause(find_in_lines, "x").place == f"{__name__}, in find_in_lines: int(each)"
    assert cause(load, "{").place == f"{__name__}, in load: json.loads(text)"
    assert cause(wrap).place == f'{__name__}, in wrap: raise ValueError("no book") from error'


def test_a_line_that_is_moved_makes_no_difference(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(tmp_path)

    def write(name: str, text: str) -> str:
        (tmp_path / f"{name}.py").write_text(text)
        found = cause(importlib.import_module(name).run)
        assert found.place == f"{name}, in run: raise LookupError(1)"
        return found.fingerprint

    first = write("moved", "def run():\n    raise LookupError(1)\n")
    sys.modules.pop("moved")
    shutil.rmtree(tmp_path / "__pycache__", ignore_errors=True)
    assert (
        write("moved", "import os\n\n\ndef run():\n    os\n    raise  LookupError(1)\n".replace("  L", " L")) == first
    )


def test_a_module_that_is_run_is_called_as_if_it_was_imported() -> None:
    def name_of(name: object, spec: object = None, file: str = "/srv/shop/run.py") -> str:
        return fingerprints._name_of({"__name__": name, "__spec__": spec}, file)

    assert name_of("shop.run") == name_of("__main__", SimpleNamespace(name="shop.run")) == "shop.run"
    assert name_of("__main__") == "run"
    assert name_of(None) == ""


def test_what_may_be_raised_anywhere_has_the_place_where_the_job_begins() -> None:
    assert cause(time_out, True).place == f"{__name__}, in cause"  # the first function of this module
    assert cause(time_out, True) == cause(time_out, False)


def test_without_a_place_the_pattern_of_the_message_makes_it() -> None:
    def of_job(identifier: str, type_name: str = "ValueError") -> Cause:
        return cause_of(type_name, f"cannot send {identifier} again", None, "", identifier)

    assert of_job("ann") == of_job("welcome:bob")
    assert of_job("667") == of_job("9999")
    assert of_job("ann").fingerprint != of_job("ann", "KeyError").fingerprint
    assert of_job("ann").fingerprint != cause_of("ValueError", "cannot read ann again", None, "", "ann").fingerprint
    assert (of_job("ann").place, of_job("ann").pattern) == ("", "cannot send <identifier> again")


def test_a_group_of_exceptions_has_the_place_of_the_first() -> None:
    def caught(function: Callable[..., Any], *args: Any) -> BaseException:
        with pytest.raises(Exception) as found:  # noqa: PT011
            function(*args)
        return found.value

    def grouped(*errors: BaseException) -> Cause:
        return cause_of("BaseExceptionGroup", "unhandled", BaseExceptionGroup("", [BaseExceptionGroup("", errors)]), "")

    first, other = caught(fail, "no"), caught(find_page, 1, "bible")
    assert grouped(first, other) == grouped(caught(fail, "not here"))
    assert grouped(first).place == f"{__name__}, in fail: raise LookupError(text)"
    assert grouped(first).fingerprint != grouped(other).fingerprint

    def fail_at_once() -> None:
        raise BaseExceptionGroup("", [ValueError("never raised")])

    cause = cause_of("BaseExceptionGroup", "unhandled", caught(fail_at_once), "")
    assert cause.place.startswith(f"{__name__}, in fail_at_once: raise ")


def test_where_the_application_is_installed_makes_none() -> None:
    assert at(("/srv/releases/20261123/shop/jobs.py", "run")) == at((r"C:\app\shop\jobs.py", "run"))
    assert at(("/srv/releases/20261123/jobs.py", "run")) == at(("/srv/releases/20261124/jobs.py", "run"))


@each(
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


@each("folder", ["/data/lib/python/", "/srv/Lib/", "/home/lib/python-shop/"])
def test_any_folder_may_hold_it(folder: str) -> None:
    assert at((f"{folder}shop/jobs.py", "run")) == at(("/srv/shop/jobs.py", "run"))


def test_an_application_may_be_installed_as_a_library_is() -> None:
    path = "/srv/venv/lib/python3.13/site-packages/shop/jobs.py"
    assert at((path, "run")) == at(("/srv/shop/jobs.py", "run"))
    assert at((path, "run"), job_class="other.jobs.SendMail") == at(job_class="shop.jobs.SendMail")
    assert at((path, "run"), job_class="limpyd_jobs.models.Job") == at((path, "run"))  # a function that a worker calls


def test_this_library_is_no_application() -> None:
    ours = "/srv/venv/lib/python3.13/site-packages/limpyd_jobs/workers/executor.py"
    for job_class in ("shop.jobs.SendMail", "limpyd_jobs.models.Job"):
        assert at((cause_of.__code__.co_filename, "run"), (ours, "_call"), job_class=job_class) == at()


def test_fingerprints_are_the_same_on_all_versions_of_python() -> None:
    assert of(find_page, 1, "bible") == "6068fc095169c84e"
    assert of(find_in_comprehension) == "92e566aaba4d0340"
    assert of(find_in_lines, "x") == "db2c44805f5336c4"
    assert of(use_before_assignment) == "c6aeea72df88de6c"
    assert of(load, "{") == "2c4f8c95f284b706"
    assert of(wrap) == "973a51a52e35b423"


def test_a_text_of_any_kind_has_one() -> None:
    raised = "File" * 10_000
    found = cause_of("É" * 10_000, "\udc80" * 10_000 + "'" * 10_000, raised, "a" * 10_000, "b" * 10_000)
    assert len(found.fingerprint) == LENGTH
