"""What the tests of processes share."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import redis
from parents import COMMAND, QUEUE, SHOP, Parent
from servers import RedisServer


@pytest.fixture
def start(
    tmp_path: Path, redis_server: RedisServer, redis_client: redis.Redis, request: pytest.FixtureRequest
) -> Iterator[Callable[..., Parent]]:
    """Start the command on the server of the tests, with an application; at the end none of its processes is left."""
    (tmp_path / "shop.py").write_text(SHOP)
    parents: list[Parent] = []

    def start(*arguments: str, program: list[str] | None = None, is_forked: bool = True, **environment: str) -> Parent:
        options = [f"--pythonpath={tmp_path}", f"--queues={QUEUE}", *arguments]
        variables = {
            "GATES": redis_server.socket,
            "LIMPYD_JOBS_DATABASE": redis_server.url,
            "PYTHONWARNINGS": "error:This process",  # has threads, and forks
            **environment,
        }
        log = tmp_path / f"log{len(parents)}"
        parents.append(Parent(program or [COMMAND, *options], log, variables, is_forked))
        return parents[-1]

    yield start
    assert [left for parent in parents for left in parent.kill_all()] == []
