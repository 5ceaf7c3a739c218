"""What the tests of integrations share."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from threading import Event
from typing import TYPE_CHECKING, Any

import pytest
from servers import RedisServer

if TYPE_CHECKING:
    from apscheduler.schedulers.background import BackgroundScheduler
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


@pytest.fixture
def scheduler(request: pytest.FixtureRequest) -> Iterator[Callable[..., BackgroundScheduler]]:
    """Make a scheduler with a store of ours, whose rounds are made by the test."""
    from appointments import ran
    from apscheduler.executors.debug import DebugExecutor
    from apscheduler.schedulers.background import BackgroundScheduler
    from apscheduler.schedulers.base import STATE_RUNNING

    from limpyd_jobs.contrib.apscheduler import LimpydJobStore

    ran.clear()
    made: list[BackgroundScheduler] = []

    def make(store: Any = None, **options: Any) -> BackgroundScheduler:
        found = BackgroundScheduler(timezone="UTC", job_defaults={"misfire_grace_time": None, **options})
        found.add_jobstore(store or LimpydJobStore(allowed=[request.module.__name__, "appointments"]))
        found.add_executor(DebugExecutor())
        found.state, found._event = STATE_RUNNING, Event()  # without the thread
        for each in found._jobstores.values():
            each.start(found, "default")
        for each in found._executors.values():
            each.start(found, "default")
        made.append(found)
        return found

    yield make
    for each in made:
        for store in each._jobstores.values():
            store.shutdown()
