"""How a command line is read, and refused in one line; what each option takes, and that the help has them all."""

from __future__ import annotations

import logging
import re
from optparse import Option
from typing import Any

import pytest
import redis
from cases import each

from limpyd_jobs import Exponential, Retry
from limpyd_jobs.commandline.options import WorkerOption
from limpyd_jobs.commandline.parameters import OPTIONS
from limpyd_jobs.commandline.parser import LaxOptionParser, WorkerOptionParser


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


@each("option", OPTIONS)
def test_the_help_explains_each_option_in_all_its_spellings(parser, option):
    text = parser.format_help()
    assert option.help
    assert all(f" {flag}" in text for flag in option._long_opts)


def test_each_example_in_the_help_is_one_of_its_own_option():
    for option in OPTIONS:
        examples = [word for word in option.help.split() if word.startswith("--") and "=" in word]
        assert {example.partition("=")[0] for example in examples} <= set(option._long_opts)


def test_each_option_that_a_help_names_is_there():
    named = {name for option in OPTIONS for name in re.findall(r"--[a-z-]+", option.help)}
    assert named <= {name for option in OPTIONS for name in option._long_opts}


def test_nothing_is_set_that_was_not_given_so_that_the_worker_class_decides(parser):
    options, _ = parser.parse_args([])
    assert {name: value for name, value in vars(options).items() if value is not None} == {"update_title": True}


@each(
    ("argument", "name", "value"),
    [
        ("--queues=a,b", "queues", "a,b"),
        ("--max-loops=0", "max_loops", 0),
        ("--max-loops=100", "max_loops", 100),
        ("--max-duration=3600", "max_duration", 3600),
        ("--processes=4", "processes", 4),
        ("--timeout=0", "timeout", 0),
        ("--wait-for-redis=0", "wait_for_redis", 0),
        ("--timeout=0.5", "timeout", 0.5),
        ("--fetch-priorities-delay=20", "fetch_priorities_delay", 20),
        ("--fetch-delayed-delay=.25", "fetch_delayed_delay", 0.25),
        ("--requeue-times=5", "requeue_times", 5),
        ("--requeue-priority-delta=-2", "requeue_priority_delta", -2),
        ("--requeue-delay-delta=0", "requeue_delay_delta", 0),
        ("--requeue-delay-delta=1.5", "requeue_delay_delta", 1.5),
        ("--retry-policy=delays=1:10:60", "retry_policy", Retry(delay=[1, 10, 60])),
        (
            "--retry-policy=times=5,base=1,cap=10m,never_on=ValueError:redis.ConnectionError,max_age=1d",
            "retry_policy",
            Retry(5, Exponential(1, 600), never_on=[ValueError, redis.ConnectionError], max_age=86400),
        ),
        ("--logger-level=INFO", "logger_level", logging.INFO),
        ("--logger-level=warning", "logger_level", logging.WARNING),
        ("--logger-level=15", "logger_level", 15),
        ("--logger-level=0", "logger_level", logging.NOTSET),
        ("--no-save-errors", "save_errors", False),
        ("--no-save-tracebacks", "save_tracebacks", False),
        ("--no-title", "update_title", False),
        ("--no-terminate-gracefuly", "terminate_gracefuly", False),
        ("--no-terminate-gracefully", "terminate_gracefuly", False),
    ],
)
def test_a_value_is_read_as_what_the_worker_wants(parser, argument, name, value):
    options = read(parser, argument)
    assert options == {name: value}
    assert type(options[name]) is type(value)


@each("flag", ["--max-loops", "--requeue-times"])
@each("text", ["x", "", "1.5", "-1", "1e3", "nan"])
def test_a_number_of_jobs_or_times_refuses_all_but_integers_of_0_or_more(parser, capsys, flag, text):
    assert refusal(parser, capsys, f"{flag}={text}").startswith(f"option {flag}: ")


@each("text", ["x", "", "1.5", "-1", "0", "501"])
def test_a_number_of_processes_refuses_all_but_integers_from_1_to_500(parser, capsys, text):
    assert refusal(parser, capsys, f"--processes={text}").startswith("option --processes: ")


@each(
    "flag",
    [
        "--max-duration",
        "--timeout",
        "--requeue-delay-delta",
        "--fetch-priorities-delay",
        "--fetch-delayed-delay",
        "--prefetch-time",
    ],
)
@each("text", ["x", "", "-1", "-0.5", "nan", "inf", "1e12"])
def test_seconds_refuse_text_negative_and_absurd_numbers(parser, capsys, flag, text):
    assert refusal(parser, capsys, f"{flag}={text}").startswith(f"option {flag}: ")


@pytest.mark.parametrize("text", ["atuo", "AUTO", "", "1.5", "-1", "0", "1001", "nan"])
def test_a_number_of_jobs_to_claim_at_once_is_auto_or_from_1_to_1000(parser, capsys, text):
    expected = f"The prefetch argument ({text}) must be auto, or a number from 1 to 1000"
    assert refusal(parser, capsys, f"--prefetch={text}") == f"option --prefetch: {expected}"


@pytest.mark.parametrize("flag", ["--fetch-priorities-delay", "--fetch-delayed-delay"])
def test_the_delay_between_two_looks_cannot_be_0(parser, capsys, flag):
    expected = f"The {flag[2:]} argument (0) must be a positive integer, or one with a fraction"
    assert refusal(parser, capsys, f"{flag}=0") == f"option {flag}: {expected}"


def test_a_time_of_0_for_jobs_that_are_claimed_at_once_says_what_to_use_instead(parser, capsys):
    expected = "The prefetch-time argument (0) must be more than 0; to claim jobs one by one, use --prefetch=1"
    assert refusal(parser, capsys, "--prefetch-time=0") == f"option --prefetch-time: {expected}"


@each("text", ["x", "", "1.5", str(2**63), str(-(2**64))])
def test_a_difference_of_priorities_refuses_all_but_64_bit_integers(parser, capsys, text):
    assert refusal(parser, capsys, f"--requeue-priority-delta={text}").startswith("option --requeue-priority-delta: ")


@each(
    ("text", "named"),
    {
        "": "is not one of times=",
        "5": "'5'",
        "times=x": "times=x",
        "delays=1,10": "'10'",
        "delays=1:-1": "is not a duration",
        "base=1": "give up",
        "times=5,base=20,cap=10": "cap",
        "times=5,max_age=1w": "max_age=1w",
        "times=5,only_on=Nonsense": "'Nonsense'",
        "times=5,only_on=no.such.Error": "cannot import 'no.such.Error': ModuleNotFoundError",
        "times=5,only_on=redis.NoError": "cannot import 'redis.NoError': AttributeError",
        "times=5,never_on=redis.Redis": "must be classes of exceptions",
    }.items(),
)
def test_a_wrong_retry_policy_is_refused_with_what_is_wrong(parser, capsys, text, named):
    message = refusal(parser, capsys, f"--retry-policy={text}")
    assert message.startswith("option --retry-policy: ")
    assert named in message


@each("text", ["loud", "", "-3", "1e2", "levels"])
def test_an_unknown_level_is_refused(parser, capsys, text):
    assert refusal(parser, capsys, f"--logger-level={text}").startswith("option --logger-level: ")


def test_queues_that_are_not_utf_8_are_refused(parser, capsys):
    assert refusal(parser, capsys, "--queues=a,\udcff").startswith("option --queues: ")


@pytest.mark.parametrize("text", ["", ",", " , ", " "])
def test_queues_that_name_no_queue_are_refused(parser, capsys, text):
    assert refusal(parser, capsys, f"--queues={text}") == f"option --queues: no queue is named by {text!r}"


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
