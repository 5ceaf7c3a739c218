"""Tables fit the terminal, and say what they leave out; what is no terminal gets all."""

from __future__ import annotations

import json
import sys
from io import StringIO
from typing import Any

import pytest

from limpyd_jobs import Job, Queue, Worker
from limpyd_jobs.commands.shared.command import Command
from limpyd_jobs.commands.shared.tables import cut, fitted, indented, print_json, print_json_lines
from limpyd_jobs.query import JobFilter
from limpyd_jobs.scripts.jobs import COMMANDS
from limpyd_jobs.texts import table_lines

TABLE = [("job", "message", "size", "at"), ("a" * 10, "b" * 50, "12", "2026-01-01")]


class LetterOfAnApplication(Job):
    namespace = "tables"
    queue_name = "letters-of-an-application"

    def run(self, queue: Any) -> None:
        raise ValueError(f"there is no address to which {self.identifier.hget()} could be sent by this application")


class Terminal(StringIO):
    def isatty(self) -> bool:
        return True


@pytest.fixture
def _full(redis_client: Any) -> None:
    LetterOfAnApplication.add_jobs([f"the letter number {number:,}" for number in range(999, 1003)])
    Worker(LetterOfAnApplication.queue_name, max_loops=2, logger_level=60).run()
    Queue.pause(LetterOfAnApplication.queue_name)
    JobFilter(LetterOfAnApplication, "status=waiting", "identifier!=nobody at all of this name").cancel_all()


def test_numbers_that_json_has_not_are_texts(capsys: pytest.CaptureFixture[str]) -> None:
    value = {"score": float("-inf"), "others": [1.5, float("nan")]}
    print_json(value)
    print_json_lines([value])
    expected = {"score": "-Infinity", "others": [1.5, "NaN"]}
    pretty, line = capsys.readouterr().out.rsplit("}\n{")
    assert [json.loads(pretty + "}"), json.loads("{" + line)] == [expected, expected]


def test_prose_is_shortened_first() -> None:
    rows, left_out = fitted(TABLE, 60, ["size"])
    assert max(map(len, table_lines(rows))) == 60
    assert (left_out, rows[0]) == ([], TABLE[0])


def test_then_columns_are_left_out_and_named() -> None:
    rows, left_out = fitted(TABLE, 45, ["size", "at"])
    assert (left_out, rows[0]) == (["size"], ("job", "message", "at"))
    assert fitted(TABLE, 20, ["size", "at"])[1] == ["size", "at", "message"]  # the others go from the right
    assert cut("abcdef", 4) == "abc…"


def test_prose_is_broken_at_words_and_never_in_a_command(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "40")
    command = "limpyd-jobs queues show letters"
    text = f"2 jobs wait before it, in the queue letters: {command}. Not-broken-in-a-word-at-hyphens either."
    assert indented(text, command) == f"  {text}"
    monkeypatch.setattr(sys, "stdout", Terminal())
    lines = indented(text, command).splitlines()
    assert [line.startswith("  ") and len(line) <= 40 for line in lines] == [True] * 5
    assert (f"  {command}." in lines, " ".join(line.strip() for line in lines)) == (True, text)


@pytest.mark.usefixtures("_full")
@pytest.mark.parametrize(
    "words",
    [
        *("info", "jobs list", "jobs count --by=identifier", "errors groups", "errors list", "queues list", "audit"),
        *("queues show letters-of-an-application", "stats", "workers list", "schedules list", "quarantine list"),
    ],
)
def test_no_line_is_wider_than_the_terminal(monkeypatch: pytest.MonkeyPatch, words: str) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    name, *argv = words.split()
    narrow, whole = Terminal(), StringIO()
    for output in (narrow, whole):
        monkeypatch.setattr(sys, "stdout", output)
        command: Command = COMMANDS[name](f"limpyd-jobs {name}", argv)
        assert command.execute() == 0
    assert max(map(len, narrow.getvalue().splitlines())) <= 80
    assert "no room for" not in whole.getvalue()
