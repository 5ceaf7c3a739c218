"""``limpyd-jobs completion``: what a shell completes with it."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import preloaded
import pytest

from limpyd_jobs.scripts.jobs import COMMANDS

COMMAND = str(Path(sys.executable).with_name("limpyd-jobs"))


def run(*arguments: str) -> tuple[int, str, str]:
    done = preloaded.run([COMMAND, "completion", *arguments], env={**os.environ})
    return done.returncode, done.stdout, done.stderr


def completed_by_bash(*words: str) -> list[str]:
    """What bash proposes for the last of some words."""
    bash = shutil.which("bash")
    if not bash:
        pytest.skip("there is no bash")
    status, script, err = run("bash")
    assert (status, err) == (0, "")
    quoted = " ".join(f"'{word}'" for word in words)
    function = f"_{words[0].replace(chr(45), chr(95))}"
    asked = (
        f'{script}\nCOMP_WORDS=({quoted}); COMP_CWORD={len(words) - 1}; {function}; printf "%s\\n" "${{COMPREPLY[@]}}"'
    )
    done = subprocess.run([bash, "--norc", "-c", asked], capture_output=True, text=True, check=True, timeout=60)
    assert done.stderr == ""
    return done.stdout.split()


def test_commands_are_completed() -> None:
    assert completed_by_bash("limpyd-jobs", "sch") == ["schedules"]
    assert set(completed_by_bash("limpyd-jobs", "")) == {*COMMANDS, "--help", "--version"}


def test_verbs_are_completed() -> None:
    assert completed_by_bash("limpyd-jobs", "queues", "cl") == ["clear"]
    assert {"list", "export", "requeue"} <= set(completed_by_bash("limpyd-jobs", "jobs", ""))
    assert completed_by_bash("limpyd-jobs", "jobs", "list", "sta") == []
    assert completed_by_bash("limpyd-jobs", "completion", "") == ["bash", "zsh", "fish"]
    assert completed_by_bash("limpyd-jobs", "hosts", "ta") == ["taskflow"]


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


@pytest.mark.parametrize("words", [[], ["csh"], ["bash", "zsh"]])
def test_what_is_wrong_is_said(words: list[str]) -> None:
    status, out, err = run(*words)
    assert (status, out) == (2, "")
    assert "say for which shell: bash, zsh, fish" in err
