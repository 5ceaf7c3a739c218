"""Tables fit the terminal, and say what they leave out; what is no terminal gets all."""

from __future__ import annotations

import json
import re
import sys
from io import StringIO
from typing import Any

import pytest
from cases import each

from limpyd_jobs import Job, Queue, Schedule, Worker, WorkerPresence
from limpyd_jobs.commands.shared.command import Command
from limpyd_jobs.commands.shared.printing import cut, fitted, print_json, print_json_lines, wrapped
from limpyd_jobs.query import ErrorFilter, JobFilter
from limpyd_jobs.records import presences
from limpyd_jobs.scripts.jobs import COMMANDS, create_parser
from limpyd_jobs.texts import table_lines

TABLE = [("job", "message", "size", "at"), ("a" * 10, "b" * 50, "12", "2026-01-01")]


class LetterOfAnApplication(Job):
    namespace = "tables"
    queue_name = "letters-of-an-application"

    def run(self, queue: Any) -> None:
        raise ValueError(f"there is no address to which {self.identifier.hget()} could be sent by this application")


IDENT = LetterOfAnApplication.get_model_repr()


class Terminal(StringIO):
    def isatty(self) -> bool:
        return True


@pytest.fixture
def _full(redis_client: Any) -> None:
    LetterOfAnApplication.add_jobs([f"the letter number {number:,}" for number in range(999, 1003)])
    Worker(LetterOfAnApplication.queue_name, max_loops=2, logger_level=60).run()
    Queue.pause(LetterOfAnApplication.queue_name)
    JobFilter(LetterOfAnApplication, "status=waiting", "identifier!=nobody at all of this name").cancel_all()
    for name in ("the letters of an application, every minute", "nightly"):
        schedule = Schedule.add(name, LetterOfAnApplication, interval=60)
        redis_client.hset(f"jobs:schedule:{schedule.pk.get()}:hash", "next_run", "2026-01-01 00:00:00")
    running, now = [[f"{IDENT}:1", "the letter of the worker", "2026-01-01 00:00:00"]], redis_client.time()[0]
    details = {"queues": ["letters-of-an-application", "others"], "queue_model": "jobs:queue", "running": running}
    worker = {"kind": "worker", "name": "web1:17:aaaaaaaaaaaa", "host": "web1", "pid": "17"}
    presences.keep(WorkerPresence, "1", {**worker, "details": json.dumps(details)}, 60, takes_orders="1")
    redis_client.zadd("jobs:workerpresence:leases", {"1": now + 35})
    redis_client.rpush(
        "jobs:queue:1:waiting", "an_application.that_cannot_be_imported.here.LetterOfAnotherApplication:1"
    )


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


def test_identifiers_that_were_made_are_left_out_before_messages_are_shortened() -> None:
    def table(identifier: str) -> list[tuple[object, ...]]:
        row = ("shop.Mail:1", identifier, "the mailbox is full, and will be for an hour")
        return [("ident", "identifier", "message"), row, ("shop.Mail:2", f"{identifier[:-1]}1", "no such mailbox")]

    made = table("01a22646-e948-79ef-aea3-2aa26b7c0180")
    rows, left_out = fitted(made, 80)
    assert (rows[0], left_out) == (("ident", "message"), ["identifier (a UUID in all rows)"])
    assert rows[1][1] == made[1][2]
    assert fitted(made, 120) == (made, [])
    assert fitted(table("welcome:42"), 60)[0][0] == ("ident", "identifier", "message")


def test_then_columns_are_left_out_and_named() -> None:
    rows, left_out = fitted(TABLE, 45, ["size", "at"])
    assert (left_out, rows[0]) == (["size"], ("job", "message", "at"))
    assert fitted(TABLE, 20, ["size", "at"])[1] == ["size", "at", "message"]  # the others go from the right
    assert cut("abcdef", 4) == "abc…"


def test_prose_is_broken_at_words_and_never_in_a_command(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "40")
    command = "limpyd-jobs queues show letters"
    text = f"2 jobs wait before it, in the queue letters: {command}. Not-broken-in-a-word-at-hyphens either."
    assert wrapped(text, command, "  ") == f"  {text}"
    monkeypatch.setattr(sys, "stdout", Terminal())
    lines = wrapped(text, command, "  ").splitlines()
    assert [line.startswith("  ") and len(line) <= 40 for line in lines] == [True] * 5
    assert (f"  {command}." in lines, " ".join(line.strip() for line in lines)) == (True, text)


@pytest.mark.matrix(5)
@pytest.mark.usefixtures("_full")
@pytest.mark.parametrize(
    "words",
    [
        *("info", "jobs list", "jobs count --by=identifier", "errors groups", "errors list", "queues list", "audit"),
        *("queues show letters-of-an-application", "stats", "workers list", "schedules list", "quarantine list"),
        *("workers show --all", f"jobs show {IDENT}:1", f"jobs explain {IDENT}:4", "errors show CAUSE", "check"),
    ],
)
def test_no_line_is_wider_than_the_terminal(monkeypatch: pytest.MonkeyPatch, words: str) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    name, *argv = words.replace("CAUSE", ErrorFilter().groups().groups[0].fingerprint).split()
    narrow, whole = Terminal(), StringIO()
    for output in (narrow, whole):
        monkeypatch.setattr(sys, "stdout", output)
        command: Command = COMMANDS[name](f"limpyd-jobs {name}", argv)
        assert command.execute() == int(name == "check")
    plain = re.sub(r"\x1b\[[\d;]*m", "", narrow.getvalue())
    lines = [line for line in plain.splitlines() if not line.startswith(("    V", "     "))]  # of a traceback
    assert [line for line in lines if len(line) > 80 and " " in line.strip()] == []
    assert "no room for" not in whole.getvalue()


@pytest.mark.usefixtures("_full")
def test_a_terminal_has_colours_for_states_unless_it_is_asked_not_to(monkeypatch: pytest.MonkeyPatch) -> None:
    def shown(output: StringIO, *argv: str) -> str:
        monkeypatch.setattr(sys, "stdout", output)
        COMMANDS[argv[0]](f"limpyd-jobs {argv[0]}", argv[1:]).execute()
        return output.getvalue()

    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setenv("COLUMNS", "200")
    failed = shown(Terminal(), "jobs", "list", "status=error")
    assert "\x1b[31merror" in failed
    assert "ValueError: " in failed
    assert "ValueError" not in shown(StringIO(), "jobs", "list", "status=error")
    first, *_ = shown(Terminal(), "info").splitlines()
    assert re.fullmatch(r"\x1b\[3[13]m\d problems: .+ are well\.\x1b\[0m", first)
    for name, value in (("NO_COLOR", "1"), ("TERM", "dumb")):
        with monkeypatch.context() as patch:
            patch.setenv(name, value)
            assert "\x1b" not in shown(Terminal(), "jobs", "list", "status=error")
    assert "\x1b" not in shown(StringIO(), "info")


def test_what_is_the_same_in_all_rows_is_left_out_first() -> None:
    rows = [
        ("job", "queue", "place", "at"),
        *((f"{number}", "mails", f"{number}" * 30, f"{number}") for number in range(3)),
    ]
    heading, *_ = fitted(rows, 40, ["place"])[0]
    assert (heading, fitted(rows, 40, ["place"])[1]) == (("job", "place", "at"), ["queue (mails in all rows)"])


@pytest.mark.usefixtures("_full")
def test_to_stop_a_worker_is_asked_about_at_a_terminal_only(monkeypatch: pytest.MonkeyPatch) -> None:
    def stop(answers: StringIO) -> tuple[int, str]:
        error = Terminal()
        monkeypatch.setattr(sys, "stdin", answers)
        monkeypatch.setattr(sys, "stderr", error)
        status = COMMANDS["workers"]("limpyd-jobs workers", ["stop", "web1:17"]).execute()
        return status, error.getvalue()

    monkeypatch.setenv("COLUMNS", "60")
    status, said = stop(Terminal("n\n"))
    assert (status, "stop 1 worker, web1:17:aaaaaaaaaaaa? [y/N]" in said) == (1, True)
    assert [status for status, _ in (stop(Terminal("y\n")), stop(StringIO()))] == [0, 0]
    assert max(map(len, stop(StringIO())[1].splitlines())) <= 60  # it may not obey, as it is silent


@each("name", ["", *COMMANDS])
def test_no_line_of_a_help_is_wider_than_the_terminal(monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    parser = COMMANDS[name](f"limpyd-jobs {name}", []).parser if name else create_parser()
    lines = parser.format_help().splitlines()
    assert [line for line in lines if len(line) > 80 or line.endswith("-")] == []
