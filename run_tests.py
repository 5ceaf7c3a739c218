"""Run the checks and the tests: ``python run_tests.py``, or ``python run_tests.py tests/workers -k title``.

Without arguments everything is run: ruff, mypy, then pytest, in two processes for each core. Arguments are those of
pytest, which then is all that is run. The exit status is not 0 if anything fails.
"""

from __future__ import annotations

import os
import subprocess
import sys

CHECKS = (
    ("ruff", "check", "."),
    ("ruff", "format", "--check", "."),
    ("mypy",),
)
PROCESSES = 2 * (os.cpu_count() or 1)  # tests wait more than they compute
PYTEST = ("pytest", "-q", "-n", str(PROCESSES), "--dist", "loadgroup")


def run(*command: str) -> int:
    """Run a command of this Python, and return its exit status."""
    print("$", *command, flush=True)
    return subprocess.run([sys.executable, "-m", *command]).returncode


def main(arguments: list[str]) -> int:
    if arguments:
        return run("pytest", *arguments)
    statuses = [run(*command) for command in (*CHECKS, PYTEST)]
    return max(statuses, key=abs)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
