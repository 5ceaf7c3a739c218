"""What the tests of the transitions share: a world for each kind of model, and a look at it when a test ends."""

from __future__ import annotations

import time
from collections import defaultdict
from collections.abc import Callable, Iterator

import pytest
import redis
from invariants import violations
from servers import RedisServer
from worlds import KINDS, MODELS, Moment, World


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line("markers", "leaves(*invariants): the test ends, on purpose, in a state that breaks these")


@pytest.hookimpl(tryfirst=True)  # before pytest selects by markers
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Take each case of a test in one world, in turn. In the others it is a proof, or of many cases ``--long``."""
    if config.getoption("--long"):
        return
    tests: defaultdict[str, dict[tuple[str, ...], list[pytest.Item]]] = defaultdict(dict)
    for item in items:
        callspec = getattr(item, "callspec", None)
        if callspec and "any_world" in callspec.params:
            case = tuple(part for part in callspec.id.split("-") if part not in KINDS)
            tests[item.nodeid.partition("[")[0]].setdefault(case, []).append(item)
    left_out = set()
    for test, cases in enumerate(tests.values()):
        for number, case in enumerate(cases.values()):
            turn = (test + number + number // len(KINDS)) % len(KINDS)  # another one for each value of any parameter
            others = case[:turn] + case[turn + 1 :]
            if len(cases) >= len(KINDS):
                left_out.update(others)
            for item in others:
                item.add_marker("proof")
    items[:] = [item for item in items if item not in left_out]
    config.hook.pytest_deselected(items=list(left_out))


@pytest.fixture(scope="session")
def look(redis_server: RedisServer) -> Iterator[redis.Redis]:
    """A client that decodes anything."""
    with redis_server.client(encoding_errors="surrogateescape") as client:
        yield client


@pytest.fixture(autouse=True)
def _the_invariants_hold_at_the_end(request: pytest.FixtureRequest) -> Iterator[None]:
    if "redis_client" not in request.fixturenames:
        yield
        return
    look = request.getfixturevalue("look")
    yield
    marker = request.node.get_closest_marker("leaves")
    accepted = marker.args if marker else ()
    found = violations(look, *MODELS)
    assert [problem for problem in found if problem.split()[0] not in accepted] == []


@pytest.fixture
def world(redis_client: redis.Redis) -> World:
    """The world of the documented models."""
    return World(redis_client)


@pytest.fixture(params=KINDS)
def any_world(request: pytest.FixtureRequest, redis_client: redis.Redis) -> World:
    """A world of each kind of models."""
    return World(redis_client, *KINDS[request.param])


@pytest.fixture
def after() -> Callable[[float], Moment]:
    """Moments of this test: ``after(0)`` equals any date and any score of its time, ``after(60)`` those a minute on."""
    began = time.time()
    return lambda seconds: Moment(began, seconds)
