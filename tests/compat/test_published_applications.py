"""An application that was built on version 2 works with version 3 as it is. Each check passes with both."""

from __future__ import annotations

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
