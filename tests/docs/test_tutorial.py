"""The tutorials do what they say: all its files, commands and outputs, in their order, in one shell."""

from __future__ import annotations

import os
import re
import shlex
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
from docutils import nodes
from pages import TUTORIALS, numbers_aside, read_page
from postgresql import PostgreSQL
from servers import free_port

END_OF_BLOCK = "--- end of a block ---"
SETS_UP = ("python -m venv ", ". ~/", "pip install ", "cd ~/")  # the environment of the tests stands for it
SERVES = "until (: </dev/tcp/127.0.0.1/{port}) 2>/dev/null; do sleep 0.01; done"
ENDLESS = "limpyd-jobs-worker --queues=pages --processes=4 --keep-success=1000 --keep-errors=30d"


@pytest.fixture
def directory() -> Iterator[Path]:
    with TemporaryDirectory(prefix="tutorial") as path:  # short, as the path of a socket has to be
        yield Path(path)


def lines_of(command: str, port: int) -> Iterator[str]:
    """What the shell is given for a line of the tutorial."""
    if command.startswith(SETS_UP):
        return
    yield f"{command} --dry-run" if command == ENDLESS else command
    if "http.server" in command or "runserver" in command:
        yield SERVES.format(port=port)
    if command.startswith("kill"):
        yield "wait"


def script_of(blocks: list[nodes.literal_block], port: int) -> Iterator[str]:
    for block in blocks:
        text = block.astext()
        if block["classes"][-1] == "python":
            name = text.partition("\n")[0].removeprefix("# ")
            yield f"echo {shlex.quote(text)} > {name}"
        elif block["classes"][-1] == "bash":
            for command in text.splitlines():
                yield from lines_of(command, port)
            yield f"echo '{END_OF_BLOCK}'"


def shown_after_commands(blocks: list[nodes.literal_block]) -> Iterator[str | None]:
    """What the tutorial shows after each block of commands, if it shows it."""
    for block, following in zip(blocks, [*blocks[1:], None], strict=True):
        if block["classes"][-1] == "bash":
            is_shown = following is not None and following["classes"][-1] == "text"
            yield following.astext() if is_shown and following is not None else None


@pytest.mark.parametrize("tutorial", TUTORIALS)
def test_each_step_does_what_the_tutorial_says(directory: Path, tutorial: str):
    follow(tutorial, directory)


@pytest.mark.proof
def test_each_step_for_django_does_so_with_postgresql_too(directory: Path, postgresql: PostgreSQL):
    pytest.importorskip("psycopg")
    place = {"NAME": "postgres", "USER": "postgres", "HOST": str(postgresql.directory)}
    settings = {"default": {"ENGINE": "django.db.backends.postgresql", **place}}
    follow(TUTORIALS[1], directory, ("LIMPYD_JOBS = {", f"DATABASES = {settings}\nLIMPYD_JOBS = {{"))


def follow(tutorial: str, directory: Path, change: tuple[str, str] = ("", "")) -> None:
    """Do what a tutorial says, with a change of its text."""
    port = free_port()
    blocks = [*read_page(tutorial).findall(nodes.literal_block)]
    script = "\n".join(["set -em", *script_of(blocks, port)]).replace("8000", str(port))
    assert change[0] in script
    script = script.replace(*change, 1)
    done = subprocess.run(
        ["bash", "-c", script],
        cwd=directory,
        env={**os.environ, "PATH": os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]])},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=120,
    )
    assert done.returncode == 0, done.stdout

    outputs = done.stdout.split(END_OF_BLOCK + "\n")[:-1]
    for output, shown in zip(outputs, shown_after_commands(blocks), strict=True):
        if shown is not None:
            assert comparable(output) == comparable(shown)
    assert not re.search("Traceback|rror:", outputs[-1])


def comparable(text: str) -> list[str]:
    return re.sub(r"limpyd-jobs-worker#\d+", "", numbers_aside(text)).strip().splitlines()
