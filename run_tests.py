"""Run the checks and the tests: ``python run_tests.py``, and ``python run_tests.py --docs --proofs`` for the rest.

There are four parts:

--lint     ruff and mypy; and the manual, which Sphinx must build without a warning
--tests    all tests but the others
--docs     the tests of the README and the manual, in tests/docs: each block of code in them is run
--proofs   the proofs of what the library guarantees, in tests/proofs; and the tests of transitions with all kinds of
           models, where the tests take each case with one

Without arguments, lint and tests are run, both at once; with these options, only the parts they name. Other arguments
are those of pytest, for the parts that are named: ``python run_tests.py --proofs -k races``. If none is named, pytest
with these arguments is all that is run: ``python run_tests.py tests/workers -k title``.

The exit status is not 0 if anything fails.
"""

from __future__ import annotations

import os
import subprocess
import sys
import time

PROCESSES = 4 * (os.cpu_count() or 1)  # tests wait more than they compute
PYTEST = ("pytest", "-q", "-n", str(PROCESSES))
MANUAL = ("sphinx", "--quiet", "--fresh-env", "--fail-on-warning", "--nitpicky", "docs", "docs/_build")
PARTS = {
    "--lint": (("ruff", "check", "."), ("ruff", "format", "--check", "."), ("mypy",), MANUAL),
    "--tests": ((*PYTEST, "--ignore=tests/docs", "--ignore=tests/proofs"),),
    "--docs": ((*PYTEST, "tests/docs"),),
    "--proofs": ((*PYTEST, "--long", "tests/proofs", "tests/transitions"),),
}

# Tests start hundreds of processes, for which nothing should have to be compiled again.
ENVIRONMENT = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}


def main(arguments: list[str]) -> int:
    if {"-h", "--help"} & {*arguments}:
        print(__doc__)
        return 0
    parts = [part for part in PARTS if part in arguments]
    others = [argument for argument in arguments if argument not in PARTS]
    if others and not parts:
        return run("pytest", *others)
    return run_parts(parts or ["--lint", "--tests"], others)


def run_parts(parts: list[str], arguments: list[str]) -> int:
    """Run some parts; lint runs beside the others, and says what it has to say when they have ended."""
    if parts == ["--lint"]:
        return run_part("--lint")
    lint = start_lint() if "--lint" in parts else None
    statuses = [run_part(part, *arguments) for part in parts if part != "--lint"]
    if lint is not None:
        print(lint.communicate()[0], end="")
        statuses.append(lint.returncode)
    return max(map(abs, statuses))


def start_lint() -> subprocess.Popen[str]:
    command = [sys.executable, __file__, "--lint"]
    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)


def run_part(part: str, *arguments: str) -> int:
    """Run the commands of a part, say how long they took, and return the worst of their exit statuses."""
    began = time.monotonic()
    statuses = [run(*command, *arguments) for command in PARTS[part]]
    print(f"=== {part.strip('-')}: {time.monotonic() - began:.0f} s", flush=True)
    return max(map(abs, statuses))


def run(*command: str) -> int:
    """Run a command of this Python, and return its exit status."""
    print("$", *command, flush=True)
    return subprocess.run([sys.executable, "-m", *command], env=ENVIRONMENT).returncode


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
