"""Conductors of TaskFlow in processes of their own, with our board."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("taskflow")
pytest.importorskip("alembic")

PROGRAM = Path(__file__).with_name("conductors.py")


def run(redis_binary: str, *options: str) -> None:
    command = [sys.executable, str(PROGRAM), "--redis-server", redis_binary, *options]
    done = subprocess.run(command, capture_output=True, text=True, timeout=250)
    assert done.returncode == 0, done.stdout + done.stderr[-5000:]


@pytest.mark.long
@pytest.mark.parametrize("kill_every", ["0", "1"])
def test_each_flow_completes_whatever_conductor_is_killed_or_stopped(redis_binary: str, kill_every: str) -> None:
    run(redis_binary, "--minutes", "0.2", "--kill-every", kill_every)


@pytest.mark.long
def test_each_posting_has_one_claimer_of_many_processes(redis_binary: str) -> None:
    run(redis_binary, "--claims", "1000")
