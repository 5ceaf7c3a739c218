"""A command starts in a time that is mostly that of redis-py, because what takes long is not imported."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest
from servers import RedisServer

# What is not needed to show something, and takes long to import.
HEAVY = {
    *("pkg_resources", "setuptools", "distutils", "packaging", "more_itertools", "pyexpat", "plistlib", "platformdirs"),
    *(
        "pdb",
        "unittest",
        "sqlite3",
        "rich",
        "apscheduler",
        "taskflow",
        "hypothesis",
        "pytest",
        "pydoc",
        "concurrent.futures.process",
    ),
    *("limpyd_jobs.redis.awaiting", "limpyd_jobs.redis.multiplexed", "limpyd_jobs.models.following.awaiting"),
    *("http.server", "limpyd_jobs.observing.responder", "limpyd_jobs.workers.fleet.health"),
    *("limpyd_jobs.contrib.apscheduler", "limpyd_jobs.contrib.taskflow", "limpyd_jobs.testing", "tty", "termios"),
}

START = """
import atexit, sys
sys.argv[0] = "limpyd-jobs"
atexit.register(lambda: print("imported:", *sys.modules, file=sys.stderr))
from limpyd_jobs.scripts.{script} import main
main()
"""


@pytest.mark.matrix(1)
@pytest.mark.parametrize(
    "words", ["jobs --help", "jobs --version", "jobs info", "jobs jobs list", "jobs errors groups", "worker --help"]
)
def test_what_takes_long_is_not_imported(redis_server: RedisServer, words: str) -> None:
    script, *arguments = words.split()
    done = subprocess.run(
        [sys.executable, "-c", START.format(script=script), *arguments],
        env={**os.environ, "LIMPYD_JOBS_DATABASE": redis_server.url},
        capture_output=True,
        text=True,
        timeout=60,
        check=True,
    )
    imported = {*done.stderr.partition("imported: ")[2].split()}
    assert "limpyd_jobs.models" in imported
    assert imported & HEAVY == set()
    if arguments[:1] == ["info"]:
        assert imported & {f"limpyd_jobs.{each}" for each in ("check", "commands.check", "commands.jobs")} == set()


@pytest.mark.proof
def test_setuptools_stays_what_it_is_for_others() -> None:
    code = "import sys, limpyd_jobs, limpyd; assert 'pkg_resources' not in sys.modules; print(limpyd.EXACT_VERSION)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=True)
    assert done.stdout[0].isdigit()
    assert done.stderr == ""
