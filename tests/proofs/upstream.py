"""The tests of other projects, from their source distributions, run with what we plug in."""

from __future__ import annotations

import re
import subprocess
import sys
import tarfile
from importlib.metadata import version
from pathlib import Path

import pytest


def source_of(package: str, into: Path) -> Path:
    """Return the unpacked source distribution of an installed package; without a package index, the test is skipped."""
    wanted = f"{package}=={version(package)}"
    command = [
        sys.executable,
        "-m",
        "pip",
        "download",
        "-q",
        "--no-deps",
        "--no-binary",
        package,
        "-d",
        str(into),
        wanted,
    ]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120)
    archives = [*into.glob("*.tar.gz")]
    if done.returncode or not archives:
        pytest.skip(f"the source of {wanted} is not to be had: {done.stderr[-500:]}")
    with tarfile.open(archives[0]) as archive:
        archive.extractall(into, filter="data")
    return next(path for path in into.iterdir() if path.is_dir())


def run_tests(folder: Path, *arguments: str, **environment: str) -> tuple[list[str], int]:
    """Run the tests of a folder; return the names of those that failed, and how many passed."""
    options = ["-q", "-rfE", "-p", "no:cacheprovider", "-p", "no:valkey", "-p", "no:randomly", "-o", "addopts="]
    done = subprocess.run(
        [sys.executable, "-m", "pytest", *options, *arguments],
        cwd=folder,
        env={"PATH": "/usr/bin:/bin", "PYTHONPATH": ".", **environment},
        capture_output=True,
        text=True,
        timeout=240,
    )
    failed = re.findall(r"^(?:FAILED|ERROR) (\S+)", done.stdout, re.MULTILINE)
    passed = re.search(r"(\d+) passed", done.stdout)
    assert passed, done.stdout + done.stderr
    return failed, int(passed[1])
