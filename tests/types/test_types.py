"""What mypy and pyright, in the hands of an application, know of jobs: each line of the files beside this one
is right, and they know the types that it names, unless it is marked as wrong: then both refuse it."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

import limpyd_jobs

HERE = Path(__file__).parent
FILES = ("classes.py", "flows.py", "functions.py")
ROOT = str(Path(limpyd_jobs.__file__).parent.parent)

MYPY = """
[mypy]
strict = true
follow_imports = silent

[mypy-limpyd.*]
ignore_missing_imports = true
"""

PYRIGHT = {"extraPaths": [ROOT], "pythonVersion": "3.11", "reportMissingModuleSource": False}


# What the manual shows as typed: it is right, too, also for pyright at its strictest.
MANUAL = Path(limpyd_jobs.__file__).parent.parent / "docs" / "howto" / "typing.rst"


def shown_in_the_manual() -> str:
    _, _, block = MANUAL.read_text().partition("    # myapp/parcels.py\n")
    lines = block.splitlines()
    end = next(number for number, line in enumerate(lines) if line and not line.startswith(" "))
    return "# pyright: strict\n" + textwrap.dedent("\n".join(lines[:end])) + "\n"


def marked_as_wrong() -> set[str]:
    lines = {f"{name}:{number}": line for name in FILES for number, line in enumerate_lines(name)}
    return {place for place, line in lines.items() if "# wrong" in line}


def enumerate_lines(name: str) -> list[tuple[int, str]]:
    return [*enumerate((HERE / name).read_text().splitlines(), 1)]


def refused(directory: Path, *words: str) -> tuple[set[str], str]:
    """Return the lines that a checker refuses, and all that it says."""
    for name in FILES:
        shutil.copy(HERE / name, directory)
    (directory / "manual.py").write_text(shown_in_the_manual())
    done = subprocess.run(
        [sys.executable, "-m", *words, *FILES, "manual.py"],
        cwd=directory,
        env={**os.environ, "MYPYPATH": ROOT},
        capture_output=True,
        text=True,
        timeout=300,
    )
    said = done.stdout + done.stderr
    return {":".join(place) for place in re.findall(r"\b(\w+\.py):(\d+).*\berror\b", said)}, said


def test_there_are_sixty_right_and_sixty_wrong_calls_at_least() -> None:
    known = sum(line.count("assert_type(") for name in FILES for _, line in enumerate_lines(name))
    assert min(known, len(marked_as_wrong())) >= 60


@pytest.mark.proof
def test_mypy_knows_what_is_right_and_refuses_what_is_wrong(tmp_path: Path) -> None:
    (tmp_path / "mypy.ini").write_text(MYPY)
    found, said = refused(tmp_path, "mypy", "--cache-dir=/dev/null", "--config-file=mypy.ini")
    assert found == marked_as_wrong(), said


@pytest.mark.proof
@pytest.mark.skipif(not shutil.which("node"), reason="pyright needs node")
def test_pyright_does_so_too(tmp_path: Path) -> None:
    (tmp_path / "pyrightconfig.json").write_text(json.dumps(PYRIGHT))
    found, said = refused(tmp_path, "pyright", f"--pythonpath={sys.executable}")
    assert found == marked_as_wrong(), said
