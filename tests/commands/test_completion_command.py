"""``limpyd-jobs completion``: what a shell completes with it."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import preloaded
import pytest
import redis
from cases import each
from servers import RedisServer

from limpyd_jobs import STATUSES, Error, Job, Queue
from limpyd_jobs.commands.completion import candidates
from limpyd_jobs.query import ErrorFilter
from limpyd_jobs.scripts.jobs import COMMANDS

COMMAND = str(Path(sys.executable).with_name("limpyd-jobs"))


def run(*arguments: str) -> tuple[int, str, str]:
    done = preloaded.run([COMMAND, "completion", *arguments], env={**os.environ})
    return done.returncode, done.stdout, done.stderr


def completed_by_bash(*words: str, database: str = "localhost:1", line: str = "") -> list[str]:
    """What bash proposes for the last of some words, which are those of a line."""
    bash = shutil.which("bash")
    if not bash:
        pytest.skip("there is no bash")
    status, script, err = run("bash")
    assert (status, err) == (0, "")
    quoted = " ".join(f"'{word}'" for word in words)
    function = f"_{words[0].replace(chr(45), chr(95))}"
    asked = (
        f"{script}\nCOMP_WORDS=({quoted}); COMP_CWORD={len(words) - 1}; COMP_LINE='{line}'; COMP_POINT={len(line)}; "
        f'{function}; printf "%s\\n" "${{COMPREPLY[@]}}"'
    )
    path = f"{Path(COMMAND).parent}{os.pathsep}{os.environ['PATH']}"
    environment = {**os.environ, "LIMPYD_JOBS_DATABASE": database, "PATH": path}
    done = subprocess.run(
        [bash, "--norc", "-c", asked], capture_output=True, text=True, check=True, timeout=60, env=environment
    )
    assert done.stderr == ""
    return done.stdout.split()


def test_commands_are_completed() -> None:
    assert completed_by_bash("limpyd-jobs", "sch") == ["schedules"]
    assert set(completed_by_bash("limpyd-jobs", "")) == {*COMMANDS, "--help", "--version"}


@pytest.mark.proof
def test_verbs_are_completed() -> None:
    assert completed_by_bash("limpyd-jobs", "queues", "cl") == ["clear"]
    assert {"list", "export", "requeue"} <= set(completed_by_bash("limpyd-jobs", "jobs", ""))
    assert completed_by_bash("limpyd-jobs", "jobs", "list", "sta") == []
    assert completed_by_bash("limpyd-jobs", "completion", "") == ["bash", "zsh", "fish"]
    assert completed_by_bash("limpyd-jobs", "integrations", "ta") == ["taskflow"]


class Letter(Job):
    namespace = "completion"
    queue_name = "letters"


@pytest.mark.proof
def test_what_is_stored_is_completed(redis_server: RedisServer, redis_client: redis.Redis) -> None:
    Letter.add_job("1")
    for name in ("$(touch hacked)", "`id`", "a b", "lists", "x;y", "--all", "-l"):
        Queue.get_queue(name)
    Queue.pause("lists")
    Error.add_error("letters", Letter.get("1"), KeyError("x"))
    url, jobs = redis_server.url, ("limpyd-jobs", "jobs", "list")
    assert completed_by_bash("limpyd-jobs", "queues", "pause", "l", database=url) == ["letters", "lists"]
    assert candidates("queues", "pause") == candidates("pause", "") == ["letters", "lists"]
    assert candidates("resume", "") == ["lists"]
    assert candidates("errors", "show") == [group.fingerprint for group in ErrorFilter().groups().groups]
    # as bash divides it
    found = completed_by_bash(*jobs, "status", "=", database=url, line="limpyd-jobs jobs list status=")
    assert sorted(found) == sorted(name.lower() for name in STATUSES)
    assert completed_by_bash(*jobs, "--queue", "=", line="limpyd-jobs jobs list --queue=") == []
    line = "limpyd-jobs jobs list queue=le"
    assert completed_by_bash(*jobs, "queue", "=", "le", database=url, line=line) == ["letters"]
    worker = ("limpyd-jobs-worker", "--queues", "=")
    found = completed_by_bash(*worker, "le", database=url, line="limpyd-jobs-worker --queues=le")
    assert found == ["letters"]
    found = completed_by_bash(*worker, "lists,l", database=url, line="limpyd-jobs-worker --queues=lists,l")
    assert found == ["lists,letters", "lists,lists"]
    found = completed_by_bash(*jobs, "", database=url)
    assert {f"class={Letter.get_model_repr()}", "queue=letters", "status=error"} <= {*found}
    assert not [word for word in found if {*word} & {*"$`;( "}]


def test_other_shells_complete_so_too(redis_server: RedisServer, redis_client: redis.Redis) -> None:
    Letter.add_job("1")
    line = "limpyd-jobs queues pause l"
    asked = {
        "zsh": f"setopt ksharrays; COMP_WORDS=({line}); COMP_CWORD=3; COMP_LINE='{line}'; COMP_POINT={len(line)}; "
        "_limpyd_jobs; print -l $COMPREPLY",
        "fish": f"complete -C '{line}'; complete -C 'limpyd-jobs info '; complete -C 'limpyd-jobs quarantine drop '",
    }
    path = f"{Path(COMMAND).parent}{os.pathsep}{os.environ['PATH']}"
    environment = {**os.environ, "LIMPYD_JOBS_DATABASE": redis_server.url, "PATH": path}
    for shell in filter(shutil.which, asked):
        words = [shell, "-f" if shell == "zsh" else "--no-config", "-c", f"{run(shell)[1]}\n{asked[shell]}"]
        done = subprocess.run(words, capture_output=True, text=True, timeout=60, env=environment)
        assert (done.stdout.split(), done.stderr) == (["letters"], ""), shell


def test_options_are_completed() -> None:
    assert completed_by_bash("limpyd-jobs", "jobs", "list", "--li") == ["--limit="]
    assert completed_by_bash("limpyd-jobs", "audit", "--js") == ["--json", "--jsonl"]
    assert completed_by_bash("limpyd-jobs-worker", "--prefetch-") == ["--prefetch-time="]


def test_other_shells_get_theirs() -> None:
    for shell in ("zsh", "fish"):
        status, out, err = run(shell)
        assert (status, err) == (0, "")
        assert all(name in out for name in COMMANDS)
    fish = run("fish")[1].splitlines()
    assert all(line.startswith("complete -c limpyd-jobs") for line in fish)
    assert all(line.replace("\\'", "").count("'") % 2 == 0 for line in fish)
    # a verb such as pause is no command, though there is one of that name
    (offered,) = [line for line in fish if "words pause" in line]
    assert "-n 'contains -- pause (commandline -opc)[2]'" in offered


@each("words", [[], ["csh"], ["bash", "zsh"]])
def test_what_is_wrong_is_said(words: list[str]) -> None:
    status, out, err = run(*words)
    assert (status, out) == (2, "")
    assert "say for which shell: bash, zsh, fish" in err
