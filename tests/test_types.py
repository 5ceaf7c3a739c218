"""What mypy, in the hands of an application, knows of what the models return."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

import limpyd_jobs

APPLICATION = """
from __future__ import annotations

from typing import Any

from limpyd import fields

from limpyd_jobs import Error, Job, Queue


class SendMail(Job):
    queue_name = "mails"
    to = fields.InstanceHashField()

    @classmethod
    def for_customer(cls, number: int) -> SendMail:
        return cls.add_job(f"welcome:{number}")


class Translated(SendMail):
    @classmethod
    def add_job(cls, *args: Any, **kwargs: Any) -> Translated:
        return super().add_job(*args, **kwargs)


class MailQueue(Queue):
    pass


class MailError(Error):
    pass


job = SendMail.add_job("a")
reveal_type(job)
reveal_type(SendMail.add_jobs(["a"])[0])
reveal_type(SendMail.prepare("a").add())
reveal_type(SendMail.for_customer(1))
reveal_type(Job.get_from_ident("myapp.SendMail:1"))
reveal_type(MailQueue.get_queue("mails"))
reveal_type(MailQueue.get_all("mails")[0])
reveal_type(MailQueue.get_all_by_priority("mails")[0])
reveal_type(MailError.add_error("mails", job, KeyError("to")))
reveal_type(MailError.add_error("mails", job, KeyError))
"""

SETTINGS = """
[mypy]
strict = true
disallow_subclassing_any = false

[mypy-limpyd.*]
ignore_missing_imports = true

[mypy-limpyd_jobs.*]
follow_imports = silent
"""

KNOWN = [
    "SendMail",
    "SendMail",
    "SendMail",
    "SendMail",
    "Job",
    "MailQueue",
    "MailQueue",
    "MailQueue",
    "MailError",
    "MailError",
]


FUNCTIONS = """
from __future__ import annotations

from datetime import date

from limpyd_jobs import Job, current_job, job


@job
def plain(to: str, size: int = 3) -> int:
    return size


@job(queue="mails", priority=2, retry="times=3", unique="to", keep_result=True)
def with_options(to: str, *, when: date | None = None) -> list[str]:
    return [to]


@job(queue="mails")
async def in_a_loop(to: str) -> int:
    return await in_a_loop("bob")


async def add() -> None:
    reveal_type(await plain.aadd("ann"))
    reveal_type(await plain.add("ann").aresult())
    reveal_type((await in_a_loop.configure(priority=5).aadd("ann")).result())


reveal_type(in_a_loop.add("ann").result())
reveal_type(plain("ann"))
reveal_type(with_options("ann"))
reveal_type(plain.add("ann").result())
reveal_type(with_options.configure(priority=5, delayed_for=60, identifier="a").add("ann").result())
reveal_type(plain.add("ann").added)
reveal_type(plain.prepare("ann").add(queue="slow").result())
reveal_type(with_options.configure(priority=5).prepare("ann").add().result())
reveal_type(current_job())
reveal_type(current_job(None))
"""

KNOWN_OF_FUNCTIONS = ["AddedJob[int]", "int", "int", "int", "int", "list[str]", "int", "list[str]", "bool"]
KNOWN_OF_FUNCTIONS += ["int", "list[str]", "Job", "Job | None"]

# Each line is refused, and no other one.
WRONG_CALLS = """
plain()
plain.add()
plain.add(5)
plain.add("ann", "bob")
plain.add("ann", siez=3)
plain.aadd(5)
plain.prepare(5)
with_options.configure(priority=5).prepare()
in_a_loop.aadd()
plain.configure(priority="high").add("ann")
plain.configure(priority=5).add(5)
plain.configure(prioriti=5)
with_options.add("ann", date(2020, 1, 1))
with_options.add("ann", when="tomorrow")
with_options.add("ann").result(timeout="soon")
job(que="mails")
job(queue=5)
job(base=str)
"""


def lines_of_errors(output: str) -> set[int]:
    return {int(number) for number in re.findall(r"\bfunctions\.py:(\d+).*\berror\b", output)}


def wrong_lines() -> set[int]:
    first = FUNCTIONS.count("\n") + 2
    return {*range(first, first + WRONG_CALLS.strip().count("\n") + 1)}


@pytest.fixture(scope="module")
def of_mypy(tmp_path_factory: pytest.TempPathFactory) -> str:
    """What mypy says, which takes long to start."""
    directory = tmp_path_factory.mktemp("mypy")
    (directory / "myapp.py").write_text(APPLICATION)
    (directory / "functions.py").write_text(FUNCTIONS + WRONG_CALLS)
    (directory / "mypy.ini").write_text(SETTINGS)
    return run_checker(directory, "mypy", "--cache-dir=/dev/null", "--config-file=mypy.ini", "myapp.py", "functions.py")


def revealed(output: str, name: str) -> list[str]:
    return re.findall(rf'^{name}:.* Revealed type is "([^"]*)"', output, re.MULTILINE)


@pytest.mark.proof
class TestMypy:
    def test_knows_that_what_is_made_by_a_class_is_of_that_class(self, of_mypy: str) -> None:
        assert [each.rpartition(".")[2] for each in revealed(of_mypy, "myapp.py")] == KNOWN, of_mypy
        assert not re.search(r"^myapp.py.*error:", of_mypy, re.MULTILINE), of_mypy

    def test_knows_functions_that_are_jobs_and_refuses_wrong_calls(self, of_mypy: str) -> None:
        assert [re.sub(r"\w+\.", "", each) for each in revealed(of_mypy, "functions.py")] == KNOWN_OF_FUNCTIONS, of_mypy
        assert lines_of_errors(of_mypy) == wrong_lines(), of_mypy


@pytest.mark.proof
@pytest.mark.skipif(not shutil.which("node"), reason="pyright needs node")
def test_pyright_knows_functions_that_are_jobs_too(tmp_path: Path) -> None:
    (tmp_path / "functions.py").write_text(FUNCTIONS + WRONG_CALLS)
    root = str(Path(limpyd_jobs.__file__).parent.parent)
    settings = {"extraPaths": [root], "pythonVersion": "3.11", "reportMissingModuleSource": False}
    (tmp_path / "pyrightconfig.json").write_text(json.dumps(settings))
    output = run_checker(tmp_path, "pyright", "functions.py", f"--pythonpath={sys.executable}")
    assert re.findall(r'information: Type of ".*" is "([^"]*)"', output) == KNOWN_OF_FUNCTIONS, output
    assert lines_of_errors(output) == wrong_lines(), output


def run_checker(directory: Path, *words: str) -> str:
    done = subprocess.run(
        [sys.executable, "-m", *words],
        cwd=directory,
        env={**os.environ, "MYPYPATH": str(Path(limpyd_jobs.__file__).parent.parent)},
        capture_output=True,
        text=True,
        timeout=300,
    )
    return done.stdout + done.stderr
