"""How a command line is read, and refused in one line."""

from __future__ import annotations

from optparse import Option
from typing import Any

import pytest
from cases import each

from limpyd_jobs.commandline.options import WorkerOption
from limpyd_jobs.commandline.parameters import OPTIONS
from limpyd_jobs.commandline.parser import LaxOptionParser, WorkerOptionParser


@pytest.fixture
def parser() -> WorkerOptionParser:
    parser = WorkerOptionParser(prog="limpyd-jobs-worker")
    parser.add_grouped_options(OPTIONS)
    return parser


def read(parser: WorkerOptionParser, *arguments: str) -> dict[str, Any]:
    """Return the options that differ from those of an empty command line."""
    options, _ = parser.parse_args(list(arguments))
    defaults = parser.get_default_values()
    return {name: value for name, value in vars(options).items() if value != getattr(defaults, name)}


def refusal(parser: WorkerOptionParser, capsys: pytest.CaptureFixture[str], *arguments: str) -> str:
    """Return the line on standard error that refuses the arguments, without the name of the program."""
    with pytest.raises(SystemExit) as exit_:
        parser.parse_args(list(arguments))
    output = capsys.readouterr()
    assert (exit_.value.code, output.out, output.err.count("\n")) == (2, "", 1)
    program, _, message = output.err.rstrip().partition(": error: ")
    assert program == "limpyd-jobs-worker"
    return message


@pytest.mark.parametrize("flag", ["--terminate-gracefuly", "--terminate-gracefully", "--terminate", "--term"])
def test_both_spellings_of_graceful_and_their_abbreviations_are_one_option(parser, flag):
    options, _ = parser.parse_args([flag])
    assert options.terminate_gracefuly is True


def test_an_option_and_its_value_are_joined_by_a_sign_or_a_space(parser):
    assert read(parser, "--timeout", "5", "--requeue-priority-delta", "-3") == {
        "timeout": 5,
        "requeue_priority_delta": -3,
    }


@each(
    ("arguments", "message"),
    [
        (["--nope"], "no such option: --nope"),
        (["--databse=x"], "no such option: --databse: is --database meant?"),
        (["-x"], "no such option: -x"),
        (["--no\x1b[2J\u202e"], r"no such option: --no\x1b[2J\u202e"),
        (["--save"], "ambiguous option: --save (--save-errors, --save-tracebacks?)"),
        (["--timeout"], "--timeout option requires 1 argument"),
        (["--dry-run=1"], "--dry-run option does not take a value"),
    ],
)
def test_an_option_that_is_unknown_ambiguous_or_half_is_refused(parser, capsys, arguments, message):
    assert refusal(parser, capsys, *arguments) == message


def test_a_message_of_several_lines_is_put_in_one(parser, capsys):
    with pytest.raises(SystemExit):
        parser.error("first\n\n  second")
    assert capsys.readouterr().err == "limpyd-jobs-worker: error: first second\n"


def test_options_without_a_group_of_any_class_can_be_added(parser):
    parser.add_grouped_options([Option("--plain"), WorkerOption("--even", type="int", check=lambda number: number * 2)])
    assert read(parser, "--plain=x", "--even=2") == {"plain": "x", "even": 4}


def early(*arguments: str) -> dict[str, Any]:
    options, _ = LaxOptionParser().parse_args(list(arguments))
    return vars(options)


@each(
    "others",
    [
        [],
        ["--queues=a", "--foo", "bar", "-x", "-vv", "--help", "--version", "more"],
        ["--timeout=text", "--requeue-priority-delta", "-2"],
        ["--foo=--worker-config=other.Config", "--callback"],
    ],
)
def test_the_first_reading_takes_its_options_from_among_any_others(others):
    own = ["--pythonpath=/a", "--worker-config", "my.Config", "--pythonpath", "/b:/c"]
    for arguments in ([*own, *others], [*others, *own]):
        assert early(*arguments) == {"pythonpath": ["/a", "/b:/c"], "worker_config": "my.Config"}


@each(
    ("arguments", "paths"),
    [
        (["--pythonpath=/a", "/b", "--queues=a"], ["/a", "/b"]),
        (["--pythonpath", "/a", "/b", "", "-x", "/c"], ["/a", "/b"]),
        (["--worker-config", "my.Config", "--pythonpath", "/a", "--pythonpath=/b", "/c"], ["/a", "/b", "/c"]),
        (["--pythonpath=/a:/b"], ["/a", "/b"]),
        (["--queues=a", "/a"], []),
        ([], []),
    ],
)
def test_several_directories_may_follow_one_flag(arguments, paths):
    assert LaxOptionParser().parse_python_paths(arguments) == paths


def test_a_pattern_of_directories_is_expanded(tmp_path):
    for name in ("b", "a"):
        (tmp_path / name).mkdir()
    assert LaxOptionParser().parse_python_paths([f"--pythonpath={tmp_path}/*"]) == [f"{tmp_path}/a", f"{tmp_path}/b"]


def test_a_directory_that_is_not_there_is_told(tmp_path, capsys):
    parser = LaxOptionParser(prog="limpyd-jobs-worker")
    assert parser.parse_python_paths([f"--pythonpath={tmp_path}:/no/where"]) == [str(tmp_path), "/no/where"]
    text = "limpyd-jobs-worker: warning: nothing is found there: --pythonpath=/no/where\n"
    assert capsys.readouterr() == ("", text)


def test_the_first_reading_refuses_and_helps_under_the_names_of_version_2(capsys):
    parser = LaxOptionParser(prog="limpyd-jobs-worker")
    parser.print_lax_help()
    assert "--worker-config" in capsys.readouterr().out
    with pytest.raises(SystemExit) as exit_:
        parser.lax_error("no such thing")
    assert (exit_.value.code, capsys.readouterr().err) == (2, "limpyd-jobs-worker: error: no such thing\n")


def test_the_first_reading_finds_nothing_where_nothing_is():
    assert early("--queues=a") == {"pythonpath": None, "worker_config": None}
