"""Both versions of redis-limpyd-jobs at hand."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from servers import RedisServer
from versions import HERE, Process, Version, python_with_version_2

import limpyd_jobs


@pytest.fixture(scope="session")
def version_2() -> Version:
    return Version("version 2", python_with_version_2(), [HERE])


@pytest.fixture(scope="session")
def version_3() -> Version:
    return Version("version 3", sys.executable, [HERE, Path(limpyd_jobs.__file__).parent.parent])


@pytest.fixture(params=["version_2", "version_3"])
def version(request: pytest.FixtureRequest) -> Version:
    """Each of the two."""
    chosen: Version = request.getfixturevalue(request.param)
    return chosen


class Tellings:
    """Each story as told by both versions, once."""

    def __init__(self, old: Process, new: Process) -> None:
        self.tellers = old, new
        self.told: dict[str, tuple[Any, Any]] = {}

    def __getitem__(self, name: str) -> tuple[Any, Any]:
        if name not in self.told:
            old, new = self.tellers
            self.told[name] = old.ask(name), new.ask(name)
        return self.told[name]


@pytest.fixture(scope="session")
def tellings(version_2: Version, version_3: Version, redis_server: RedisServer) -> Iterator[Tellings]:
    """``tellings[name]``: what version 2 and what version 3 said in that story."""
    code = "import teller; teller.main()"
    old, new = (Process(version, code, redis_server.socket) for version in (version_2, version_3))
    yield Tellings(old, new)
    old.stop()
    new.stop()
