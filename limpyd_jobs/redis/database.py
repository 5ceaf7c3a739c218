"""The database of the models, by settings or a URL.

A database is named by settings, the arguments of `redis.Redis` (``host``, ``port``, ``db``, ``password``,
``unix_socket_path``, ``ssl``…), and these additional ones:

- ``url``: a text that `parse_database` reads;
- ``sentinels``, a list of ``(host, port)``, with ``service_name`` and maybe ``sentinel_kwargs`` (settings of
  the connections to the sentinels): the primary that Redis Sentinel knows;
- ``cluster``, a list of ``(host, port)``, with ``tag``: the server of a Redis Cluster that has the keys that begin with
  this tag, as all keys of the database then do; some servers of the cluster are enough, which know the others;
- ``embedded``: a private server (see `limpyd_jobs.redis.embedded`), True for a temporary one, or the directory of
  its data;
- ``wait_for_replicas``: how many replicas must have a copy of each job before `Job.add_job` and `Job.add_jobs` return,
  0 by default; and ``replica_timeout``: after how many seconds without it they raise `NotReplicated`, 0.2 by default.
"""

from __future__ import annotations

import os
import re
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Any

import redis
from limpyd.contrib.database import PipelineDatabase
from redis.backoff import NoBackoff
from redis.client import Pipeline
from redis.retry import Retry
from redis.sentinel import SentinelConnectionPool

from limpyd_jobs.exceptions import ConfigurationException
from limpyd_jobs.redis.addresses import ACCEPTED, hide_passwords, name_of, read
from limpyd_jobs.redis.cluster.client import ClusterCommands, DatabasePipeline
from limpyd_jobs.redis.cluster.names import rename_models
from limpyd_jobs.redis.cluster.pool import NOTICING_DEAD_HOSTS, ClusterPool, _to_owner
from limpyd_jobs.redis.cluster.tags import check_tag, prefix_of
from limpyd_jobs.redis.connections import SharedConnection, escaping, improved
from limpyd_jobs.redis.embedded import EmbeddedServer
from limpyd_jobs.redis.primary import TIMEOUT, PrimaryPool, Sentinels
from limpyd_jobs.redis.replication import SETTINGS, Copies, CopyingSender
from limpyd_jobs.redis.servers import (
    VARIABLE,
    check_server,
    of_cluster,
    refuse_cluster,
)

Settings = dict[str, Any]

# With one of these settings, each command goes through the client, which follows them.
ABOUT_CONNECTIONS = ("max_connections", "retry", "retry_on_timeout", "retry_on_error", "credential_provider")

# How many connections a pool may have if the settings do not say it: as many as with redis-py 5 to 7. From 8 on its
# limit is 100, beyond which it raises instead of waiting: of 300 threads, most could not add a job. A pool that waits
# for a free connection is no better: threads that keep theirs, as those of a worker do, would let others wait for
# nothing. There are never more connections than threads that use one at once, and the server has its own limit,
# ``maxclients``.
UNLIMITED = 2**31

# one lock for all databases and models, renewed in a forked child: the thread that held it does not exist there
_lock = threading.RLock()


def databases_lock() -> threading.RLock:
    """Return the lock of this process for what belongs to databases."""
    return _lock


def _renew_lock() -> None:
    global _lock
    _lock = threading.RLock()


os.register_at_fork(after_in_child=_renew_lock)


class JobsDatabase(PipelineDatabase):  # type: ignore[misc]
    """The Redis database of some models: a limpyd database that can be moved, by settings or by a URL.

    Without settings it is the database that the environment variable LIMPYD_JOBS_DATABASE names at the first use,
    or else localhost:6379, database 0. Nothing connects before the first command.

    >>> BaseJobsModel.database.connect(host="redis.example.com", port=6379, db=2)
    >>> BaseJobsModel.database.from_url("rediss://user:password@redis.example.com/2")
    >>> BaseJobsModel.use_database(JobsDatabase(url="unix:///run/redis.sock?db=2"))

    Unless the settings say otherwise, a command is never sent twice (redis-py's own retries are off),
    connecting takes 5 seconds at most, and an answer 10 seconds, and there are as many connections as threads that use
    one at once. A connection that gets the answer READONLY is
    dropped with a `redis.ConnectionError`, so that the next one may find the new primary.

    Text that is not UTF-8 is read as surrogate escapes, which are written back as the same bytes: a broken
    key or value can be looked at and removed like any other.

    Parameters
    ----------
    **connection_settings
        As described at the top of this module.
    """

    def __init__(self, **connection_settings: Any) -> None:
        self._threads = threading.local()
        self._embedded: EmbeddedServer | None = None
        self._direct_connection: redis.Redis | None = None
        self._shared: SharedConnection | None = None
        self.copies: Copies | None = None
        self._pipelined_connection: Any = None
        self.prefix = ""  # what the names of the models, and all keys, begin with on a cluster
        super().__init__(**connection_settings)
        if not connection_settings:
            self.reset()

    def connect(self, **settings: Any) -> redis.Redis:
        """Move this database, and all models that use it, to the given settings; return the client.

        Without settings, nothing moves. Nothing is sent to Redis either way.

        Raises
        ------
        ConfigurationException
            If the `url` cannot be parsed, there are `sentinels` without a `service_name`, the embedded server does not
            start, or the replicas cannot be waited for like that.
        TypeError
            If there is no such setting.
        """
        with _lock:
            if self._direct_connection is not None and not settings:
                return self._direct_connection
            settings = _expand(settings) or self.connection_settings or self._default_settings()
            server, client = _open(settings)
            self.reset(**settings)
            self._embedded, self._direct_connection = server, client
            self._shared = None if settings.keys() & set(ABOUT_CONNECTIONS) else SharedConnection(client)
            return client

    @classmethod
    def of_client(cls, client: redis.Redis) -> JobsDatabase:
        """Return the database that an existing client of redis-py uses, with connections of its own.

        Host, port, user, password, TLS, unix socket, timeouts and sentinels are taken from the client. How it reads
        replies, and repeats commands, does not matter.

        Raises
        ------
        TypeError
            If it is not a client, or is a client of asyncio or of a cluster, or a pipeline.
        ConfigurationException
            If its connections are of a special class, such as those of fakeredis, or lead to replicas.
        """
        if not isinstance(client, redis.Redis) or isinstance(client, Pipeline):
            raise TypeError(f"A database is that of a redis.Redis, not of {client!r}")
        return cls(**settings_of(client))

    def from_url(self, url: str) -> redis.Redis:
        """Move this database, and all models that use it, to a URL; return the client.

        The same as ``connect(url=url)``: it takes any text that `parse_database` can read.
        """
        return self.connect(url=url)

    def reset(self, **connection_settings: Any) -> None:
        """Do as `connect` does, but at the first use; without settings, go back to the default."""
        with _lock:
            self.connection_settings: Settings = _expand(connection_settings)
            # those of the default settings, which the environment may name, are not known before they are read
            self.copies = Copies.of(self.connection_settings) if self.connection_settings else None
            self._turn_to_prefix(_prefix_of(self.connection_settings))
            self._direct_connection = self._shared = None
            self.forget_contents()
            self.__dict__.pop("_redis_version", None)
            if self._embedded is not None:
                self._embedded.leave()
                self._embedded = None

    def _default_settings(self) -> Settings:
        settings = default_settings()
        if prefix_of(settings.get("tag", "")) != self.prefix:
            raise ConfigurationException(
                f"The environment variable {VARIABLE} names a cluster, or another tag, since limpyd_jobs was imported: "
                "set it before, or call BaseJobsModel.database.from_url"
            )
        return settings

    def _turn_to_prefix(self, prefix: str) -> None:
        before, self.prefix = self.prefix, prefix
        if prefix != before:
            rename_models(self, before, prefix)

    def _add_model(self, model: Any) -> Any:
        """Know a new model, as limpyd does; on a cluster, its name begins with the tag."""
        if self.prefix and not model._name.startswith(self.prefix):
            model._name = f"{self.prefix}{model._name}"
        return super()._add_model(model)

    def forget_contents(self) -> None:
        """Forget what this process wrote to the database: it is empty, or another one."""
        self.__dict__.pop("_written_classes", None)

    @property
    def connection(self) -> Any:
        """The client of this database, a `redis.Redis`, or the pipeline that is open in this thread."""
        return self._connection or self.connect()

    @property
    def client(self) -> redis.Redis:
        """The client of this database, even while a pipeline is open."""
        return self._direct_connection or self.connect()

    @property
    def sender(self) -> SharedConnection | redis.Redis:
        """The fastest sender of a command, even while a pipeline is open: the client, or a `SharedConnection`."""
        return self._shared or self.client

    def close_idle(self) -> None:
        """Close the connections that are not in use right now; the next command opens one."""
        if self._shared is not None:
            self._shared.close_idle()
        if self._direct_connection is not None:
            self._direct_connection.connection_pool.disconnect(inuse_connections=False)

    async def aclose(self) -> None:
        """Close the connections that the awaitable methods have made in this event loop; the next call makes one.

        The end of the loop does the same, if it is run by `asyncio.run`, or by a server of web applications.

        Raises
        ------
        ConfigurationException
            If no loop of asyncio runs.
        """
        from limpyd_jobs.redis.lines import close_lines  # not at the start of each process

        if self._direct_connection is not None:
            await close_lines(self._direct_connection.connection_pool)

    def pipeline(self, transaction: bool = True, share_in_threads: bool = False) -> Any:
        """Return limpyd's pipeline: while it is open, the commands of this thread (or of all) go into it."""
        self.connect()
        if self.prefix:
            return DatabasePipeline(self, transaction=transaction, share_in_threads=share_in_threads)
        return super().pipeline(transaction, share_in_threads)

    # limpyd has one place for the pipelines of all threads; here each thread has its own

    @property
    def _connection(self) -> Any:
        pipeline = getattr(self._threads, "pipeline", None)
        return pipeline or self._pipelined_connection or self._direct_connection

    @_connection.setter
    def _connection(self, value: Any) -> None:
        """Open a pipeline; close it if the value is anything else."""
        pipeline: Any = value if isinstance(value, Pipeline) else None
        is_shared = pipeline is not None and pipeline.share_in_threads
        self._threads.pipeline = None if is_shared else pipeline
        if is_shared or pipeline is None:
            self._pipelined_connection = pipeline


# The settings of a client's connections that a database keeps.
_OF_CONNECTIONS = re.compile(
    r"host|port|db|username|password|credential_provider|client_name|health_check_interval|ssl_.+"
    r"|socket_(?:connect_)?timeout|socket_keepalive(?:_options)?"
)


def settings_of(client: redis.Redis) -> Settings:
    """Return the settings of a client, as `JobsDatabase` takes them, if they tell completely how it reaches the
    primary."""
    pool: Any = client.connection_pool
    ours = (escaping.__module__, _to_owner.__module__)
    of_redis_py = next(each for each in pool.connection_class.__mro__ if each.__module__ not in ours)
    if not of_redis_py.__module__.startswith("redis."):
        raise ConfigurationException(f"Connections of its own kind cannot be made anew: {pool.connection_class!r}")
    if not getattr(pool, "is_master", True):
        raise ConfigurationException("The client reads from replicas: that of the primary is needed")
    found = {
        name: value
        for name, value in pool.connection_kwargs.items()
        if _OF_CONNECTIONS.fullmatch(name) and value is not None
    }
    if issubclass(pool.connection_class, redis.UnixDomainSocketConnection):
        found["unix_socket_path"] = pool.connection_kwargs["path"]
    if issubclass(pool.connection_class, redis.SSLConnection):
        found["ssl"] = True
    if isinstance(pool, ClusterPool):
        found["cluster"], found["tag"] = list(pool.topology.seeds), pool.tag
    if isinstance(pool, SentinelConnectionPool):
        sentinels = pool.sentinel_manager.sentinels
        addresses = [each.connection_pool.connection_kwargs for each in sentinels]
        found["sentinels"] = [(each["host"], each["port"]) for each in addresses]
        found["service_name"] = pool.service_name
        found["sentinel_kwargs"] = dict(pool.sentinel_manager.sentinel_kwargs)
    return found


def client_like(client: redis.Redis, others: Settings) -> redis.Redis | None:
    """Return a client that leads where another one does, with some other settings; None if none can be made."""
    try:
        settings = settings_of(client)
    except ConfigurationException:
        return None
    return JobsDatabase(**{**settings, **others}).connect()


def default_settings() -> Settings:
    """Return the settings of the database to use if none is given."""
    text = os.environ.get(VARIABLE)
    if not text:
        return {"host": "localhost", "port": 6379, "db": 0}
    try:
        return parse_database(text)
    except ConfigurationException as error:
        raise ConfigurationException(f"Environment variable {VARIABLE}: {error}") from None


def database_name(settings: dict[str, Any]) -> str:
    """Return the name of a database, of the default one without settings, as ``--database`` takes it, without user,
    password and options."""
    return name_of(settings or default_settings())


def parse_database(text: str) -> Settings:
    """Return the settings that a text names, such as the value of ``--database`` and LIMPYD_JOBS_DATABASE.

    Accepted are ``host``, ``host:port``, ``host:port:db`` (an IPv6 address in brackets), and the URLs

    - ``redis://[[user]:password@][host][:port][/db]``, and ``rediss://…`` with TLS;
    - ``unix://[[user]:password@]/path/of/the.socket[?db=2]``;
    - ``redis+sentinel://[[user]:password@]host[:port],host[:port]/service[/db]``, and
      ``rediss+sentinel://…``;
    - ``redis+cluster://[[user]:password@]host[:port],host[:port]/tag``, and ``rediss+cluster://…``;
    - ``embedded://`` and ``embedded:///path/of/the/data[?db=2]``.

    After a ``?``, more settings of `OPTIONS` may follow.

    Raises
    ------
    ConfigurationException
        If the text is none of these; the message shows it without its password.
    """
    if not isinstance(text, str):
        raise ConfigurationException(f"The name of a database must be a text, not a {type(text).__name__}")
    text = text.strip()
    try:
        settings = read(text)
        Copies.of(settings)
        if "embedded" not in settings:  # redis-py checks the settings, without connecting
            pool = _client(settings).connection_pool
            pool.connection_class(**pool.connection_kwargs)
    except (TypeError, ValueError, OSError, ConfigurationException, redis.RedisError) as error:
        shown = hide_passwords(text)
        raise ConfigurationException(
            f"{shown!r} is not the name of a database: {error}; accepted are {ACCEPTED}"
        ) from None
    return settings


# Opening


class Redis(redis.Redis):
    """A client of redis-py that is short to look at: ``<client of localhost:6379:0>``. It has the name that is in
    warnings of redis-py, which applications filter."""

    def __repr__(self) -> str:
        pool: Any = self.connection_pool
        if isinstance(pool, ClusterPool):
            return f"<client of the keys of {pool.tag!r} on a cluster>"
        if not isinstance(pool, SentinelConnectionPool):
            return f"<client of {_name_of_connection(pool)}>"
        return f"<client of the primary of {pool.service_name!r}, database {pool.connection_kwargs.get('db', 0)}>"


def _name_of_connection(pool: redis.ConnectionPool) -> str:
    kwargs = pool.connection_kwargs
    known = {name: kwargs.get(name) for name in ("host", "port", "db")}
    is_tls = issubclass(pool.connection_class, redis.SSLConnection)
    return database_name({**known, "unix_socket_path": kwargs.get("path"), "ssl": is_tls or None})


def _expand(settings: Settings) -> Settings:
    if "url" in settings:
        others = {name: value for name, value in settings.items() if name != "url"}
        settings = {**parse_database(settings["url"]), **others}
    if "cluster" in settings or "tag" in settings:
        _check_cluster(settings)
    if "sentinels" in settings and not settings.get("service_name"):
        raise ConfigurationException("sentinels need a service_name: what they call the primary")
    return settings


def _check_cluster(settings: Settings) -> None:
    if not settings.get("cluster") or not settings.get("tag"):
        raise ConfigurationException("a cluster needs both: cluster, a list of (host, port), and the tag of all keys")
    if "sentinels" in settings:
        raise ConfigurationException("a cluster has no sentinels: give one of cluster and sentinels")
    if not _are_servers(settings["cluster"]):
        raise ConfigurationException('cluster must be a list of (host, port), such as [("redis-1", 6379)]')
    if settings.get("db"):
        raise ConfigurationException("A cluster has no database but 0: choose another tag")
    try:
        check_tag(settings["tag"])
    except ValueError as error:
        raise ConfigurationException(f"{settings['tag']!r} is not a tag: {error}") from None


def _are_servers(given: Any) -> bool:
    is_list = isinstance(given, (list, tuple))
    return is_list and all(
        isinstance(each, (list, tuple)) and [type(part) for part in each] == [str, int] for each in given
    )


def _prefix_of(settings: Settings) -> str:
    """Return what the keys begin with that some settings lead to; without settings, those of the environment."""
    if not settings and "+cluster:" in os.environ.get(VARIABLE, ""):
        with suppress(ConfigurationException):  # that is raised at the first use
            settings = default_settings()
    return prefix_of(settings.get("tag", ""))


def _open(settings: Settings) -> tuple[EmbeddedServer | None, redis.Redis]:
    if "embedded" not in settings:
        return None, _client(settings)
    others = {name: value for name, value in settings.items() if name != "embedded"}
    server = EmbeddedServer(None if settings["embedded"] is True else settings["embedded"])
    return server, _client({**others, "unix_socket_path": server.socket})


def _client(settings: Settings) -> redis.Redis:
    settings = {name: value for name, value in settings.items() if name not in SETTINGS}
    settings = {
        "socket_timeout": 10,
        "socket_connect_timeout": 2 if "cluster" in settings else 5,
        # the answers of RESP2 are the same with each version of redis-py
        "protocol": 2,
        "retry": Retry(NoBackoff(), 0),
        "max_connections": UNLIMITED,
        "encoding_errors": "surrogateescape",
        "redis_connect_func": _greet,
        **(NOTICING_DEAD_HOSTS if {*settings} & {"sentinels", "cluster"} else {}),
        **settings,
        "decode_responses": True,
    }
    if "sentinels" in settings:
        client = _client_of_primary(settings)
    else:
        client = _client_of_cluster(settings) if "cluster" in settings else Redis(**settings)
    pool = client.connection_pool
    pool.connection_class = improved(pool.connection_class)
    return client


class RedisOfCluster(ClusterCommands, Redis):
    """A client of the server of a cluster that has the keys of a tag."""


def client_of(pool: redis.ConnectionPool) -> redis.Redis:
    """Return a client with the connections of a pool."""
    return RedisOfCluster(connection_pool=pool) if isinstance(pool, ClusterPool) else redis.Redis(connection_pool=pool)


def _client_of_cluster(settings: Settings) -> redis.Redis:
    ours = ("cluster", "tag", "db", "ssl")
    kind = redis.SSLConnection if settings.get("ssl") else redis.Connection
    others = {name: value for name, value in settings.items() if name not in ours}
    greeted = {**others, "redis_connect_func": _greet_in_cluster}
    return RedisOfCluster(connection_pool=ClusterPool(settings["cluster"], settings["tag"], kind, **greeted))


def _client_of_primary(settings: Settings) -> redis.Redis:
    ours = ("sentinels", "service_name", "sentinel_kwargs")
    of_redis = {name: value for name, value in settings.items() if name not in ours}
    of_both = {
        name: value
        for name, value in of_redis.items()
        if name.startswith(("socket_", "ssl")) or name in ("retry", "protocol")
    }
    # each thread that connects to the primary asks for its address
    own = {"socket_timeout": TIMEOUT, "socket_connect_timeout": TIMEOUT, "max_connections": UNLIMITED}
    of_sentinels = {**of_both, **own, **settings.get("sentinel_kwargs", {})}
    sentinels: Any = Sentinels(settings["sentinels"], sentinel_kwargs=of_sentinels)  # type: ignore[no-untyped-call]
    client: redis.Redis = sentinels.master_for(
        settings["service_name"], redis_class=Redis, connection_pool_class=PrimaryPool, **of_redis
    )
    return client


def _greet(connection: Any) -> None:
    """Set a new connection up, and refuse a server that is too old."""
    with _disconnecting(connection):
        try:
            information = _greet_in_cluster(connection)
        except redis.ResponseError as error:
            if "not allowed in cluster mode" in str(error):  # to select another database than 0
                raise of_cluster(connection) from None
            if "DB index is out of range" in str(error):  # so says Valkey 9 of a cluster
                refuse_cluster(_information_of(connection), connection)
            raise
        refuse_cluster(information, connection)


def _greet_in_cluster(connection: Any) -> str:
    """Do the same for a server of a cluster; return what it says of itself."""
    connection.on_connect()
    information = _information_of(connection)
    with _disconnecting(connection):
        check_server(information)
    return information


def _information_of(connection: Any) -> str:
    connection.send_command("INFO", "server", check_health=False)
    try:
        return str(connection.read_response())
    except redis.ResponseError:
        return ""  # INFO is forbidden to this user


@contextmanager
def _disconnecting(connection: Any) -> Iterator[None]:
    try:
        yield
    except ConfigurationException:
        connection.disconnect()
        raise


def tolerant(client: redis.Redis, settings: Settings) -> redis.Redis:
    """Let the client of a database of limpyd read text that is not UTF-8, and write it back, and have as many
    connections as it needs, unless the settings say how many: as clients of a `JobsDatabase` do; return it."""
    pool = client.connection_pool
    if pool.connection_kwargs.get("encoding_errors", "strict") == "strict":
        if not {"max_connections", "connection_pool"} & settings.keys():
            pool.max_connections = UNLIMITED
        pool.connection_kwargs["encoding_errors"] = "surrogateescape"
        pool.connection_class = escaping(pool.connection_class)
        pool.reset()  # for the existing connections
    return client


# What sends to the database of a model


def redis_of(model: Any) -> redis.Redis:
    """The connection of a model, even inside one of limpyd's pipelines: a script's reply is needed at once."""
    if isinstance(model.database, JobsDatabase):
        return model.database.client
    connection: redis.Redis = model.get_connection()
    return client_of(connection.connection_pool) if isinstance(connection, Pipeline) else connection


def sender_of(model: Any) -> redis.Redis | SharedConnection:
    """Return the fastest sender of a script of a model."""
    return model.database.sender if isinstance(model.database, JobsDatabase) else redis_of(model)


def sender_to_add(model: Any) -> redis.Redis | SharedConnection | CopyingSender:
    """Return the fastest sender of a script that adds jobs of a model: it waits for the replicas if the database asks
    for that."""
    database = model.database
    if not isinstance(database, JobsDatabase):
        return redis_of(model)
    sender = database.sender  # from here on, the settings are known
    copies = database.copies
    return CopyingSender(database.connect(), copies) if copies and copies.replicas else sender
