"""The configuration of a board. Its values may come as text, from a file."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

from limpyd_jobs import ConfigurationException
from limpyd_jobs.contrib.settings import checked_seconds
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
OTHER_SETTINGS = {
    *("board", "hostname", "namespace", "lease", "sentinel"),
    *("encoding", "encoding_errors", "retry_on_timeout", "health_check_interval"),
    *("sentinel_fallbacks", "sentinel_kwargs"),
}


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
    queue_name, lease = _queue_name(conf.get("namespace", name)), checked_seconds("lease", conf.get("lease", LEASE))
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
    unknown = [repr(key) for key in conf if key not in OF_DATABASE and key not in OTHER_SETTINGS]
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
