"""The configuration of a board."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

from oslo_utils import strutils

from limpyd_jobs import ConfigurationException
from limpyd_jobs.arguments import stored_queue_name
from limpyd_jobs.contrib.settings import seconds
from limpyd_jobs.redis.database import JobsDatabase

LOG = logging.getLogger(__name__)

# For how long, in seconds, a claim without an expiry outlives its process.
LEASE = 30.0

# The settings of the database, with their types, because they may come as text.
OF_DATABASE: dict[str, Callable[[Any], Any]] = {
    **dict.fromkeys(("url", "host", "username", "password", "unix_socket_path", "client_name"), str),
    **dict.fromkeys(("ssl_keyfile", "ssl_certfile", "ssl_cert_reqs", "ssl_ca_certs"), str),
    **dict.fromkeys(("port", "db"), int),
    **dict.fromkeys(("socket_timeout", "socket_connect_timeout"), float),
    "ssl": strutils.bool_from_string,
}

# Other settings. The last ones belong to TaskFlow's own board for Redis, and mean nothing here.
OTHERS = {
    *("board", "hostname", "namespace", "lease", "sentinel"),
    *("encoding", "encoding_errors", "retry_on_timeout", "health_check_interval"),
    *("sentinel_fallbacks", "sentinel_kwargs"),
}

# The arguments of a board beside its configuration.
ARGUMENTS = ("client", "persistence")


class Settings(NamedTuple):
    """The values of a configuration."""

    queue_name: str
    lease: float
    database: JobsDatabase


def settings_of(name: str, conf: Mapping[str, Any], client: Any) -> Settings:
    """Read the configuration of a board. If a client is given, it says where Redis is.

    Raises
    ------
    ValueError
        If a setting is wrong.
    """
    if conf.get("sentinel") is not None:
        raise ValueError("Name Sentinels by a url: redis+sentinel://host1:26379,host2:26379/name/0")
    _warn_of_unknown(name, conf)
    queue_name, lease = _queue_name(conf.get("namespace", name)), seconds("lease", conf.get("lease", LEASE))
    return Settings(queue_name, lease, _database(conf) if client is None else JobsDatabase.of_client(client))


def _queue_name(given: Any) -> str:
    if given in (None, "", b""):
        raise ValueError(f"The namespace of a board, or else its name, must not be empty, nor None: it is {given!r}")
    return stored_queue_name(given.decode() if isinstance(given, bytes) else str(given))


def _database(conf: Mapping[str, Any]) -> JobsDatabase:
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
        f". {key} is not a setting, but an argument: fetch(name, conf, {key}=…)" for key in ARGUMENTS if key in conf
    ]
    if unknown:
        LOG.warning(
            "The board %s ignores what it does not know in its configuration: %s. It knows %s%s",
            *(name, ", ".join(unknown), ", ".join([*OF_DATABASE, "namespace", "lease"]), "".join(hints)),
        )
