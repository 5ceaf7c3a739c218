"""An application that was built on version 2 works with version 3 as it is. Each check passes with both."""

from __future__ import annotations

import json
from collections.abc import Iterator

import pytest
from application import checks
from servers import RedisServer
from versions import PATIENCE, Process, Version


@pytest.fixture(scope="module")
def applications(version_2: Version, version_3: Version, redis_server: RedisServer) -> Iterator[dict[Version, Process]]:
    """A process of each version that runs checks, each in a fork of its own."""
    code = "from application import checks; checks.main()"
    running = {version: Process(version, code, redis_server.socket) for version in (version_2, version_3)}
    yield running
    for process in running.values():
        process.stop()


@pytest.mark.matrix(2)
@pytest.mark.parametrize("check", checks.names())
def test_an_application_built_on_version_2_can_have(
    check: str, version: Version, applications: dict[Version, Process]
) -> None:
    process = applications[version]
    told = process.ask(check)
    assert told == "passed", process.stop()


@pytest.mark.proof
def test_the_application_of_the_documents_of_version_2_comes_to_the_same(
    version_2: Version, version_3: Version, redis_server: RedisServer
) -> None:
    """Both at once, each on a database of its own: the workers end after five seconds."""
    code = "import printshop; printshop.main()"
    processes = [
        version.start(code, redis_server.socket, str(database))
        for database, version in enumerate((version_2, version_3))
    ]
    ended = [process.communicate(timeout=PATIENCE) for process in processes]
    assert [process.returncode for process in processes] == [0, 0], [errors for _, errors in ended]
    old, new = (json.loads(output) for output, _ in ended)
    assert new == old
    assert new["indexes"] == {
        "printshop:order:status:e": 1,
        "printshop:order:status:s": 13,
        "printshop:reprint:status:s": 2,
    }
    assert new["workers"] == [["0:00:05", "terminated", False, True]] * 3
