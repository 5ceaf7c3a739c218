"""Whatever is killed, and when: a job of the outbox is added if and only if its transaction is committed, and once."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest
from postgresql import PostgreSQL
from servers import RedisServer

Story = Callable[[str], list[dict[str, Any]]]
HERE = Path(__file__).parent


@pytest.fixture(params=["sqlite", "postgresql"])
def story(request: pytest.FixtureRequest, tmp_path: Path, redis_server: RedisServer, redis_client: object) -> Story:
    """Run a story of killed.py, with a database of its own."""
    if request.param == "sqlite":
        database = {"ENGINE": "django.db.backends.sqlite3", "NAME": str(tmp_path / "shop.sqlite3")}
    else:
        if find_spec("psycopg") is None:
            pytest.skip("psycopg is not installed")
        server: PostgreSQL = request.getfixturevalue("postgresql")
        name = f"shop{os.getpid()}_{abs(hash(str(tmp_path)))}"
        subprocess.run(["createdb", "-h", server.directory, "-U", "postgres", name], check=True)
        place = {"NAME": name, "USER": "postgres", "HOST": str(server.directory)}
        database = {"ENGINE": "django.db.backends.postgresql", **place}
    settings = json.dumps(
        {
            "DATABASES": {"default": database},
            "LIMPYD_JOBS": {"DATABASE": redis_server.url, "MODULES": ["bookshop.errands"]},
        }
    )

    def run(name: str) -> list[dict[str, Any]]:
        environment = {**os.environ, "PYTHONPATH": str(HERE)}
        words = [sys.executable, str(HERE / "killed.py"), name, settings]
        done = subprocess.run(
            words, env=environment, cwd=HERE, capture_output=True, text=True, timeout=240, check=False
        )
        assert done.returncode == 0, done.stderr
        return [json.loads(line) for line in done.stdout.splitlines()]

    run("migrate")
    return run


def as_it_should_be(found: dict[str, Any]) -> bool:
    return found["ran"] == found["written"] and found["left"] == 0


@pytest.mark.proof
def test_a_process_that_writes_may_be_killed_before_each_of_its_steps(story: Story) -> None:
    found = story("writing")
    assert [each for each in found if not as_it_should_be(each)] == []
    assert [each["status"] for each in found] == [-signal.SIGKILL] * (len(found) - 1) + [0]
    are_written = [len(each["written"]) for each in found]
    assert are_written == sorted(are_written)  # from the commit on
    assert 2 < sum(are_written) < len(found) - 2


@pytest.mark.proof
def test_a_process_that_relays_may_be_killed_before_each_of_its_steps(story: Story) -> None:
    found = story("relaying")
    assert [each for each in found if not as_it_should_be(each)] == []
    assert {len(each["written"]) for each in found} == {3}
    assert [each["status"] for each in found] == [-signal.SIGKILL] * (len(found) - 1) + [0]
    assert len(found) > 8


@pytest.mark.proof
def test_any_worker_of_the_project_relays_what_was_left(story: Story) -> None:
    (found,) = story("by a worker")
    assert found["written"] == ["worker 1"]
    assert as_it_should_be(found)


@pytest.mark.proof
def test_several_that_relay_the_same_and_are_killed_add_each_job_once(story: Story) -> None:
    (found,) = story("together")
    assert as_it_should_be(found)
    assert len(found["written"]) == 40
    assert found["status"] == 0
