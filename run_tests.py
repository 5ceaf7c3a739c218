"""Run the checks and the tests: ``python run_tests.py``; the rest: ``python run_tests.py --docs --proofs --web``.

There are five parts:

--lint     ruff and mypy; words that are gone (scripts/words.py); the manual, which Sphinx must read without a warning
--tests    all tests but the others
--docs     the tests of the README and the manual, in tests/docs: each block of code in them is run
--proofs   the proofs of what the library guarantees, in tests/proofs, and tests elsewhere that cost much and are marked
           as proofs
           ``--proofs --long`` runs all tests and proofs in their long forms, for an hour and a half: each case of a
           transition with all kinds of models, 5,000 random stories, minutes of chaos
--web      the tests with a real browser and a real Prometheus, in tests/web
           ``--web --pictures`` writes the pictures of the dashboard in docs/images anew

Without arguments, lint and tests are run, both at once; with these options, only the parts they name. Other arguments
are those of pytest, for the parts that are named: ``python run_tests.py --proofs -k races``. If none is named, pytest
with these arguments is all that is run: ``python run_tests.py tests/workers -k title``. ``--tenth=any`` runs what
depends on the Python, on redis-py or on the server, and a tenth of the other files, with a third of the cases of each
test; ``--tenth=SEED`` the same again.

The exit status is not 0 if anything fails.
"""

from __future__ import annotations

import hashlib
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parent
PROCESSES = 3 * (os.cpu_count() or 1)  # tests wait more than they compute; more would collect longer than they gain
PYTEST = ("pytest", "-q", "-n", str(PROCESSES))
# Its pages are not written, which would take a third of the time and finds nothing more.
MANUAL = ("sphinx", "-qEWn", "-b", "dummy", "docs", "docs/_build")  # quiet, anew, and a warning is an error
PARTS = {
    "--lint": (("ruff", "check", "."), ("ruff", "format", "--check", "."), ("scripts/words.py",), ("mypy",), MANUAL),
    "--tests": ((*PYTEST, "-m", "not proof", "--ignore=tests/docs", "--ignore=tests/proofs", "--ignore=tests/web"),),
    "--docs": ((*PYTEST, "tests/docs"),),
    "--proofs": ((*PYTEST, "-m", "proof", "--ignore=tests/docs", "--ignore=tests/web"),),
    "--web": (("pytest", "-q", "-n2", "tests/web"),),
}
LONG_PROOFS = (
    (*PYTEST, "--long", "--ignore=tests/docs", "--ignore=tests/web"),
    ("tests/proofs/chaos.py", "--minutes=30"),
    ("tests/proofs/chaos.py", "--minutes=10", "--cluster"),
    ("tests/proofs/chaos.py", "--minutes=5", "--jobs=loops", "--concurrency=50", "--lease=1", "--network-delay=0.005"),
    ("tests/proofs/chaos.py", "--minutes=5", "--jobs=hostile", "--concurrency=50"),
    ("tests/proofs/schedulers.py", "--minutes=5"),
    ("tests/proofs/conductors.py", "--minutes=5"),
)

# What the manual is made of. If all that is as it was when the manual was built last, it is not built again.
SOURCES = ("*.rst", "*.py", "setup.cfg", "docs/**/*", "limpyd_jobs/**/*", "scripts/**/*", "benchmarks/**/*")
MANUAL_OF = ROOT / "docs" / "_build" / ".built_of"

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
    paths = [argument for argument in others if argument.startswith("tests/")]
    if paths:
        print(f"{parts[0]} runs all tests of that part, also with {paths[0]}: to run that alone, leave out {parts[0]}")
        return 2
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
    if part == "--tests" and not any(ROOT.glob(f"tests/**/*.{sys.implementation.cache_tag}-pytest*.pyc")):
        compile_tests(*arguments)
    if part == "--proofs" and "--long" in arguments:
        statuses = run_long_proofs([argument for argument in arguments if argument != "--long"])
    else:
        statuses = [build_manual() if command is MANUAL else run(*command, *arguments) for command in PARTS[part]]
    print(f"=== {part.strip('-')}: {time.monotonic() - began:.0f} s", flush=True)
    return max(map(abs, statuses))


def compile_tests(*arguments: str) -> None:
    """Have one process compile, for this Python, the tests of a fresh clone and what they import, instead of each.

    Lint needs the other processor meanwhile.
    """
    command = [sys.executable, "-m", *PARTS["--tests"][0], "-n0", "--collect-only", "-qq", *arguments]
    subprocess.run(command, env=ENVIRONMENT, stdout=subprocess.DEVNULL)


def run_long_proofs(arguments: list[str]) -> list[int]:
    ENVIRONMENT.setdefault("LIMPYD_JOBS_STORIES", "5000")
    tests, *programs = LONG_PROOFS
    return [run(*tests, *arguments), *(run(*program) for program in programs if not arguments)]


def build_manual() -> int:
    """Build the manual from scratch, since what was built before would hide its warnings; or not at all."""
    sources = digest_of_sources()
    if MANUAL_OF.exists() and MANUAL_OF.read_text() == sources:
        print("$", *MANUAL, "# not again: nothing of it has changed", flush=True)
        return 0
    status = run(*MANUAL)
    if status == 0:
        MANUAL_OF.write_text(sources)
    return status


def digest_of_sources() -> str:
    digest = hashlib.sha256(sys.version.encode())
    for path in sorted(files_of_the_manual()):
        digest.update(str(path).encode() + b"\0" + hashlib.sha256(path.read_bytes()).digest())
    return digest.hexdigest()


def files_of_the_manual() -> Iterator[Path]:
    for pattern in SOURCES:
        for path in ROOT.glob(pattern):
            if path.is_file() and not {"_build", "__pycache__"} & {*path.parts}:
                yield path


def run(*command: str) -> int:
    """Run a command of this Python, and return its exit status."""
    print("$", *command, flush=True)
    module = [] if command[0].endswith(".py") else ["-m"]
    return subprocess.run([sys.executable, *module, *command], env=ENVIRONMENT).returncode


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
