"""What the connections of a database are made with, which a new redis-py must not change behind our back."""

from __future__ import annotations

import inspect
from contextlib import ExitStack
from typing import Any

import pytest
import redis
from cases import each
from limpyd.contrib.database import PipelineDatabase
from redis.backoff import NoBackoff
from servers import RedisServer

from limpyd_jobs import Job
from limpyd_jobs.redis.database import JobsDatabase
from limpyd_jobs.redis.primary import PrimaryPool

NOT_GIVEN = "not given"  # an object that redis-py makes for this
OURS = "a database sets it, whatever the default"

# The arguments of redis.Redis: what we rely on, and what redis-py 5 to 8 do, if that makes no difference to us. If a
# new release adds an argument, or changes a default, look at what it does to us before it is added here.
DEFAULTS: dict[str, tuple[Any, ...]] = {
    **dict.fromkeys(("socket_timeout", "socket_connect_timeout", "protocol", "retry", "max_connections"), (OURS,)),
    **dict.fromkeys(("encoding_errors", "decode_responses", "redis_connect_func"), (OURS,)),
    "host": ("localhost",),
    "port": (6379,),
    "db": (0,),
    "encoding": ("utf-8",),
    "single_connection_client": (False,),
    "health_check_interval": (0,),  # else a PING would be sent now and then, which no one counts
    "retry_on_timeout": (False,),
    "retry_on_error": (None,),
    "connection_pool": (None,),
    "unix_socket_path": (None,),
    "ssl": (False,),
    "ssl_cert_reqs": ("required",),
    "ssl_check_hostname": (False, True),  # from 6 on
    "ssl_validate_ocsp": (False,),
    "ssl_validate_ocsp_stapled": (False,),
    "socket_keepalive": (None, True),  # from 8 on; on a cluster we set it
    "socket_keepalive_options": (None, NOT_GIVEN),
    "socket_read_size": (32768,),  # before 8 not to be chosen
    "lib_name": ("redis-py", None, NOT_GIVEN),
    "lib_version": (redis.__version__, None, NOT_GIVEN),
    "driver_info": (None, NOT_GIVEN),
    "legacy_responses": (True,),  # from 8 on; it says what RESP3 looks like, which we do not use
    "cache": (None,),
    "cache_config": (None,),
    "event_dispatcher": (None,),
    "maint_notifications_config": (None,),  # these need RESP3
    "oss_cluster_maint_notifications_handler": (None,),
    **dict.fromkeys(("username", "password", "client_name", "credential_provider", "charset", "errors"), (None,)),
    **dict.fromkeys(("ssl_keyfile", "ssl_certfile", "ssl_ca_certs", "ssl_ca_path", "ssl_ca_data"), (None,)),
    **dict.fromkeys(("ssl_password", "ssl_ocsp_context", "ssl_ocsp_expected_cert", "ssl_min_version"), (None,)),
    **dict.fromkeys(("ssl_ciphers", "ssl_include_verify_flags", "ssl_exclude_verify_flags"), (None,)),
}

KINDS: dict[str, dict[str, Any]] = {
    "TCP": {"host": "localhost"},
    "TLS": {"host": "localhost", "ssl": True},
    "socket": {"unix_socket_path": "/no/such.socket"},
    "sentinels": {"sentinels": [("localhost", 1)], "service_name": "jobs"},
    "cluster": {"cluster": [("localhost", 1)], "tag": "shop"},
}


def test_each_default_of_redis_py_is_one_that_was_looked_at() -> None:
    parameters = inspect.signature(redis.Redis.__init__).parameters.values()
    found = {each.name: each.default for each in parameters if each.name != "self"}
    found = {name: NOT_GIVEN if type(value) is object else value for name, value in found.items()}
    assert {name for name in found if name not in DEFAULTS} == set()
    allowed = {name: DEFAULTS[name] for name in found if DEFAULTS[name] != (OURS,)}
    assert {name: found[name] for name in allowed if found[name] not in allowed[name]} == {}


@each("kind", KINDS)
def test_a_database_has_the_same_connections_with_each_redis_py(kind: str) -> None:
    pool: Any = JobsDatabase(**KINDS[kind]).connect().connection_pool
    assert isinstance(pool, redis.ConnectionPool)
    assert not isinstance(pool, redis.BlockingConnectionPool)
    assert pool.max_connections == 2**31
    connection = pool.make_connection()
    assert connection.socket_timeout == 10
    if kind != "socket":  # for which not each redis-py has one: the system connects at once, or not at all
        assert connection.socket_connect_timeout == (2 if kind == "cluster" else 5)
    assert connection.health_check_interval == 0
    assert connection.retry._retries == 0
    assert isinstance(connection.retry._backoff, NoBackoff)
    assert not connection.retry_on_timeout
    assert int(connection.protocol) == 2
    encoder = connection.encoder
    assert (encoder.encoding, encoder.encoding_errors, encoder.decode_responses) == ("utf-8", "surrogateescape", True)


def test_sentinel_is_asked_with_one_try_by_each_thread_that_connects() -> None:
    pool: Any = JobsDatabase(**KINDS["sentinels"]).connect().connection_pool
    assert isinstance(pool, PrimaryPool)
    [sentinel] = pool.sentinel_manager.sentinels
    assert sentinel.connection_pool.max_connections == 2**31
    connection = sentinel.connection_pool.make_connection()
    assert (connection.socket_timeout, connection.socket_connect_timeout) == (1, 1)
    assert connection.retry._retries == 0
    assert int(connection.protocol) == 2


def test_a_connection_without_a_client_tries_once() -> None:
    # as the servers of a cluster are asked who has which slot
    connection: Any = redis.Connection()
    assert connection.retry._retries == 0
    assert connection.health_check_interval == 0


@pytest.mark.parametrize("kind", [JobsDatabase, PipelineDatabase])
def test_more_threads_than_a_hundred_may_use_a_database_at_once(kind: Any, redis_server: RedisServer) -> None:
    there = type("There", (Job,), {"namespace": "of-many", "abstract": True})
    there.use_database(kind(unix_socket_path=redis_server.socket, db=0))
    pool: Any = there.get_connection().connection_pool
    with ExitStack() as stack:
        for _ in range(101):
            connection = pool.make_connection()
            connection.connect()
            stack.callback(connection.disconnect)


def test_a_limit_of_the_application_stays(redis_server: RedisServer) -> None:
    there = type("There", (Job,), {"namespace": "of-few", "abstract": True})
    there.use_database(PipelineDatabase(unix_socket_path=redis_server.socket, db=0, max_connections=3))
    assert there.get_connection().connection_pool.max_connections == 3
    there.use_database(JobsDatabase(unix_socket_path=redis_server.socket, db=0, max_connections=4))
    assert there.get_connection().connection_pool.max_connections == 4
