"""What the tests of the worker share."""

from __future__ import annotations

import logging
from collections.abc import Iterator

import pytest
import redis
from hooking import DetailedError, Special, Task
from invariants import violations

from limpyd_jobs import Error, Queue
from limpyd_jobs.commandline.parameters import OPTIONS
from limpyd_jobs.commandline.parser import WorkerOptionParser


@pytest.fixture
def log(caplog: pytest.LogCaptureFixture) -> pytest.LogCaptureFixture:
    """What is logged, from the level INFO on."""
    caplog.set_level(logging.INFO, "limpyd-jobs")
    return caplog


@pytest.fixture
def consistent(redis_client: redis.Redis) -> Iterator[None]:
    """Check at the end that no claim, lease or stale entry remains, and that no identifier is blocked."""
    yield
    assert violations(redis_client, Task, Special, Queue, Error, DetailedError) == []


@pytest.fixture
def parser() -> WorkerOptionParser:
    """That of the command, with all its options."""
    parser = WorkerOptionParser(prog="limpyd-jobs-worker")
    parser.add_grouped_options(OPTIONS)
    return parser
