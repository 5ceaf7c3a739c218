"""A job goes straight if nothing is overridden, else by the hooks of the worker: what can be seen of it is the same."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
import stories
from compare import differences
from servers import RedisServer
from versions import Process, Version

PLAIN = [name for name, story in stories.STORIES.items() if "plain" in story.modes]


@pytest.fixture(scope="module")
def teller(version_3: Version, redis_server: RedisServer) -> Iterator[Process]:
    process = Process(version_3, "import teller; teller.main()", redis_server.socket)
    yield process
    process.stop()


@pytest.mark.parametrize("name", PLAIN)
@pytest.mark.parametrize("events", ["", pytest.param("-events", marks=pytest.mark.proof)])
def test_both_ways_tell_the_same_story(name: str, events: str, teller: Process) -> None:
    straight, by_hooks = (teller.ask(f"{name}-{mode}{events}") for mode in ("plain", "hooked"))
    if found := differences(straight, by_hooks, {}):
        pytest.fail(found, pytrace=False)
