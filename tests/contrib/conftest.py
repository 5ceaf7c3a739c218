"""What the tests of integrations share."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import pytest
from servers import RedisServer

if TYPE_CHECKING:
    from boards import Make

    from limpyd_jobs.contrib.taskflow import LimpydJobBoard


@pytest.fixture
def make(redis_server: RedisServer) -> Iterator[Make]:
    """Make boards, and close them at the end."""
    from limpyd_jobs.contrib.taskflow import LimpydJobBoard

    made: list[LimpydJobBoard] = []

    def board(name: str = "flows", **conf: Any) -> LimpydJobBoard:
        made.append(LimpydJobBoard(name, {"unix_socket_path": redis_server.socket, **conf}))
        made[-1].connect()
        return made[-1]

    yield board
    for each in made:
        each.close()


@pytest.fixture
def board(make: Make) -> LimpydJobBoard:
    return make()
