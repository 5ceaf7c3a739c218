"""The settings of integrations, and where Redis is by them. Their values may come as text, from a file."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from inspect import signature
from typing import Any, NamedTuple

from redis import Redis

from limpyd_jobs import ConfigurationException
from limpyd_jobs.integration import JobsDatabase, stored_queue_name

LOG = logging.getLogger(__name__)

# For how long, in seconds, a claim on a posting without an expiry outlives its process.
LEASE = 30.0

# What is true of the settings of TaskFlow, as oslo.utils reads them.
TRUE = ("1", "t", "true", "on", "y", "yes")

# The settings of the database of a board, with their types.
OF_DATABASE: dict[str, Callable[[Any], Any]] = {
    **dict.fromkeys(("url", "host", "username", "password", "unix_socket_path", "client_name"), str),
    **dict.fromkeys(("ssl_keyfile", "ssl_certfile", "ssl_cert_reqs", "ssl_ca_certs"), str),
    **dict.fromkeys(("port", "db"), int),
    **dict.fromkeys(("socket_timeout", "socket_connect_timeout"), float),
    "ssl": lambda value: str(value).strip().lower() in TRUE,
}

# Other settings of a board. The last ones belong to TaskFlow's own board for Redis, and mean nothing here.
OTHERS = {
    *("board", "hostname", "namespace", "lease", "sentinel"),
    *("encoding", "encoding_errors", "retry_on_timeout", "health_check_interval"),
    *("sentinel_fallbacks", "sentinel_kwargs"),
}


def seconds(name: str, value: Any) -> float:
    """Return a number of seconds; raise `ValueError` if it is not one of more than 0."""
    try:
        number = float("nan") if isinstance(value, bool) else float(value)
    except (TypeError, ValueError):
        number = float("nan")
    if not 0 < number < 1e9:
        raise ValueError(f"{name} must be a number of seconds, more than 0, not {value!r}")
    return number


def database_of(
    url: str | None, database: JobsDatabase | None, client: Any, settings: Mapping[str, Any], default: JobsDatabase
) -> JobsDatabase:
    """Return the database that is named, or the default. A setting beside a URL overrides what the URL says."""
    given = {"url": url, "database": database, "client": client, "connection_pool": settings.get("connection_pool")}
    places = [name for name, value in given.items() if value is not None]
    if len(places) > 1:
        raise TypeError(f"Say once where Redis is: give {' or '.join(places)}")
    others = settings.keys() - {"connection_pool"}
    if others and places and places != ["url"]:
        raise TypeError(f"{min(others)!r} is a setting of the {places[0]}: give one of them")
    if given["connection_pool"] is not None:
        client = Redis(connection_pool=given["connection_pool"])
    if client is not None:
        return JobsDatabase.of_client(client)
    return database or _made(url, settings) or default


def _made(url: str | None, settings: Mapping[str, Any]) -> JobsDatabase | None:
    for name in {"db", "port"} & settings.keys():
        if not str(settings[name]).isdecimal():
            raise ValueError(f"{name} must be an integer of 0 or more, not {settings[name]!r}")
    if url is not None and not isinstance(url, str):
        raise TypeError(f"url must be a text, as redis://localhost:6379/0, not {url!r}")
    unknown = settings.keys() - signature(Redis).parameters.keys()
    if unknown:
        raise TypeError(f"{min(unknown)!r} is neither an argument of this class nor of redis.Redis")
    return JobsDatabase(**({"url": url} if url else {}), **settings) if url or settings else None


class BoardSettings(NamedTuple):
    """The values of the configuration of a board."""

    queue_name: str
    lease: float
    database: JobsDatabase


def of_board(name: str, conf: Mapping[str, Any], client: Any) -> BoardSettings:
    """Read the configuration of a board, or raise `ValueError`. If a client is given, it says where Redis is."""
    if conf.get("sentinel") is not None:
        raise ValueError("Name Sentinels by a url: redis+sentinel://host1:26379,host2:26379/name/0")
    _warn_of_unknown(name, conf)
    queue_name, lease = _queue_name(conf.get("namespace", name)), seconds("lease", conf.get("lease", LEASE))
    database = _database_of_board(conf) if client is None else JobsDatabase.of_client(client)
    return BoardSettings(queue_name, lease, database)


def _queue_name(given: Any) -> str:
    if given in (None, "", b""):
        raise ValueError(f"The namespace of a board, or else its name, must not be empty, nor None: it is {given!r}")
    return stored_queue_name(given.decode() if isinstance(given, bytes) else str(given))


def _database_of_board(conf: Mapping[str, Any]) -> JobsDatabase:
    given = {key: conf[key] for key in OF_DATABASE if key in conf}
    if "hostname" in conf:  # of a URL, limpyd://host:port, where TaskFlow adds the port once more
        given.setdefault("host", str(conf["hostname"]).removesuffix(f":{conf.get('port')}"))
    try:
        return JobsDatabase(**{key: _converted(key, value) for key, value in given.items()})
    except ConfigurationException as error:
        raise ValueError(str(error)) from error


def _converted(key: str, value: Any) -> Any:
    if value is None:
        raise ValueError(f"The setting {key} must not be None: leave it out")
    try:
        return OF_DATABASE[key](value)
    except (TypeError, ValueError) as error:
        raise ValueError(f"The setting {key} is wrong: {error}") from error


def _warn_of_unknown(name: str, conf: Mapping[str, Any]) -> None:
    """Warn of settings that are misspelt, or belong to another board, such as the `hosts` of zookeeper."""
    unknown = [repr(key) for key in conf if key not in OF_DATABASE and key not in OTHERS]
    hints = [
        f". {key} is not a setting, but an argument: fetch(name, conf, {key}=…)"
        for key in ("client", "persistence")
        if key in conf
    ]
    if unknown:
        LOG.warning(
            "The board %s ignores what it does not know in its configuration: %s. It knows %s%s",
            *(name, ", ".join(unknown), ", ".join([*OF_DATABASE, "namespace", "lease"]), "".join(hints)),
        )
