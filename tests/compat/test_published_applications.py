"""An application that was built on version 2 works with version 3 as it is. Each check passes with both."""

from __future__ import annotations

import json

import pytest
from application import checks
from servers import RedisServer
from versions import PATIENCE, Version


@pytest.mark.parametrize("check", checks.names())
def test_an_application_built_on_version_2_can_have(check: str, version: Version, redis_server: RedisServer) -> None:
    code = "from application import checks; checks.main()"
    process = version.start(code, redis_server.socket, check)
    output, errors = process.communicate(timeout=PATIENCE)
    assert (process.returncode, output) == (0, '"passed"\n'), errors


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
