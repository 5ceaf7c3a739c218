"""The names of databases: ``localhost:6379:0``, and URLs, which are read more strictly than by redis-py."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Mapping
from ipaddress import IPv6Address
from typing import Any
from urllib.parse import SplitResult, parse_qsl, quote, unquote, unquote_to_bytes, urlsplit

from limpyd_jobs.redis.cluster.tags import check_tag

Settings = dict[str, Any]

ACCEPTED = (
    "host:port, host:port:db, [ipv6]:port:db, redis://user:password@host:port/db, rediss://…, "
    "unix:///path?db=2, redis+sentinel://host:port,host:port/service/db, redis+cluster://host:port,host:port/name, "
    "embedded:// and embedded:///path"
)
HOST = r"(?:\[(?P<ipv6>[^\[\]]+)\]|(?P<host>[\w.-]+))"
HOST_PORT = re.compile(HOST + r"(?::(?P<port>\w+))?")
HOST_PORT_DB = re.compile(HOST + r"(?::(?P<port>\w+)(?::(?P<db>\w+))?)?")


def name_of(settings: Mapping[str, Any]) -> str:
    """Return the name of the database of some settings, without user, password and options."""
    settings = {name: value for name, value in settings.items() if value is not None}
    db = settings.get("db", 0)
    scheme = "rediss" if settings.get("ssl") else "redis"
    if "embedded" in settings:
        directory = "" if settings["embedded"] is True else _shown_path(settings["embedded"])
        return f"embedded://{directory}{f'?db={db}' if db else ''}"
    if "sentinels" in settings:
        hosts = ",".join(_shown_address(*address) for address in settings["sentinels"])
        return f"{scheme}+sentinel://{hosts}/{quote(settings['service_name'], safe='')}/{db}"
    if "cluster" in settings:
        hosts = ",".join(_shown_address(*address) for address in settings["cluster"])
        return f"{scheme}+cluster://{hosts}/{settings['tag']}"
    if "unix_socket_path" in settings:
        return f"unix://{_shown_path(settings['unix_socket_path'])}?db={db}"
    address = _shown_address(settings.get("host", "localhost"), settings.get("port", 6379))
    return f"{scheme}://{address}/{db}" if settings.get("ssl") else f"{address}:{db}"


def _shown_path(path: str | os.PathLike[str]) -> str:
    return quote(os.fsencode(os.path.abspath(path)))


def _shown_address(host: str, port: int) -> str:
    host = host.rpartition("@")[2]  # a host has no user and password, but if they are given, they must not be shown
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


def hide_passwords(text: str) -> str:
    """Return the name of a database as it may be shown: ``redis://***@localhost:6379/2``."""
    text = re.sub(r"(?is)(password=).*", r"\1***", text)
    return re.sub(r"(?s)^([\w+]*://)?.*@", r"\1***@", text)


def read(text: str) -> Settings:
    """Return the settings that a name stands for: see `limpyd_jobs.redis.database.parse_database`."""
    if "://" in text:
        return _read_url(text)
    host, port, db = _match(HOST_PORT_DB, text).values()
    return {"host": host, "port": _port(port or "6379"), "db": _db(db or "0")}


def _read_url(text: str) -> Settings:
    try:
        url = _split(text)
    except ValueError:
        raise ValueError("it is not a valid URL") from None  # the reason might tell the password
    if url.scheme not in SCHEMES:
        raise ValueError("there is no such scheme")
    if not text.isprintable():
        raise ValueError("there is a character that cannot be printed")
    if "#" in text:
        raise ValueError("a # must be written as %23")
    credentials, _, hosts = url.netloc.rpartition("@")
    user, _, password = credentials.partition(":")
    given = {"username": unquote(user), "password": unquote(password), "ssl": url.scheme.startswith("rediss")}
    settings = {**SCHEMES[url.scheme](url, hosts), **{name: value for name, value in given.items() if value}}
    return {**settings, **_read_options(url)}


def _split(text: str) -> SplitResult:
    """Divide a URL as `urlsplit` does. That takes each of several hosts alone, but not always all of them together."""
    scheme, separator, rest = text.partition("://")
    hosts = re.split("[/?#]", rest, maxsplit=1)[0]
    if "," not in hosts:
        return urlsplit(text)
    credentials, at, names = hosts.rpartition("@")
    for host in names.split(","):
        urlsplit(f"{scheme}{separator}{credentials}{at}{host}")
    return urlsplit(f"{scheme}{separator}{rest[len(hosts) :]}")._replace(netloc=hosts)


def _read_redis(url: SplitResult, hosts: str) -> Settings:
    host, port = _host_and_port(hosts, 6379) if hosts else ("localhost", 6379)
    return {"host": host, "port": port, "db": _db(url.path[1:] or "0")}


def _read_unix(url: SplitResult, hosts: str) -> Settings:
    return {"unix_socket_path": _path(hosts, url.path), "db": 0}


def _read_sentinel(url: SplitResult, hosts: str) -> Settings:
    service, _, db = url.path[1:].partition("/")
    if not service:
        raise ValueError("it needs the name of the service")
    sentinels = [_host_and_port(host, 26379) for host in hosts.split(",")]
    return {"sentinels": sentinels, "service_name": unquote(service), "db": _db(db or "0")}


def _read_cluster(url: SplitResult, hosts: str) -> Settings:
    servers = [_host_and_port(host, 6379) for host in hosts.split(",")]
    return {"cluster": servers, "tag": check_tag(unquote(url.path[1:]))}


def _read_embedded(url: SplitResult, hosts: str) -> Settings:
    if set(dict(parse_qsl(url.query))) - {"db"}:
        raise ValueError("the only option of an embedded server is db")
    return {"embedded": _path(url.netloc, url.path) if url.netloc or url.path else True, "db": 0}


SCHEMES: dict[str, Callable[[SplitResult, str], Settings]] = {
    **dict.fromkeys(("redis", "rediss"), _read_redis),
    "unix": _read_unix,
    **dict.fromkeys(("redis+sentinel", "rediss+sentinel"), _read_sentinel),
    **dict.fromkeys(("redis+cluster", "rediss+cluster"), _read_cluster),
    "embedded": _read_embedded,
}


def _read_options(url: SplitResult) -> Settings:
    """Read the options after the question mark."""
    settings: Settings = {}
    for name, value in parse_qsl(url.query, keep_blank_values=True):
        if name == "db" and "cluster" in url.scheme:
            raise ValueError("a cluster has no other databases: write another name after the hosts")
        if name == "shards" and "cluster" in url.scheme:
            raise ValueError(f"shards are named by --shards; the first of them alone is …{url.path}-0")
        is_for_sentinels = name in ("sentinel_username", "sentinel_password") and "sentinel" in url.scheme
        if is_for_sentinels:
            settings.setdefault("sentinel_kwargs", {})[name.removeprefix("sentinel_")] = value
        elif name not in OPTIONS or (name.startswith("ssl_") and not url.scheme.startswith("rediss")):
            raise ValueError(f"it has an option that {url.scheme}:// does not know")
        else:
            settings[name] = OPTIONS[name](value)
    return settings


def _path(before: str, quoted: str) -> str:
    path = os.fsdecode(unquote_to_bytes(quoted))
    if before or len(path) < 2 or "\0" in path:
        raise ValueError("it needs an absolute path, after three slashes")
    return path


def _host_and_port(text: str, default_port: int) -> tuple[str, int]:
    host, port = _match(HOST_PORT, text).values()
    return host, _port(port or str(default_port))


def _match(pattern: re.Pattern[str], text: str) -> dict[str, Any]:
    """Return the groups of the pattern, the host first."""
    match = pattern.fullmatch(text)
    if match is None:
        raise ValueError("there is no host, or a character that does not belong there")
    groups = match.groupdict()
    ipv6, host = groups.pop("ipv6"), groups.pop("host")
    if ipv6:
        IPv6Address(ipv6)
    elif host.isdecimal():
        raise ValueError("a number is not a host")
    return {"host": ipv6 or host, **groups}


def _number(name: str, least: int, most: int) -> Callable[[str], int]:
    def parse(text: str) -> int:
        if not re.fullmatch("[0-9]{1,10}", text) or not least <= int(text) <= most:
            raise ValueError(f"{name} must be a number from {least} to {most}")
        return int(text)

    return parse


def _seconds(text: str) -> float:
    seconds = float(text) if re.fullmatch(r"[0-9.]{1,10}", text) else 0
    if not seconds:
        raise ValueError("a time-out must be a number of seconds above zero")
    return seconds


def _yes_or_no(text: str) -> bool:
    answers = {"true": True, "yes": True, "1": True, "false": False, "no": False, "0": False}
    if text.lower() not in answers:
        raise ValueError(f"{text!r} is neither yes nor no")
    return answers[text.lower()]


_port = _number("the port", 1, 65535)
_db = _number("the db", 0, 2**31 - 1)

OPTIONS: dict[str, Callable[[str], Any]] = {
    "db": _db,
    "protocol": _number("the protocol", 2, 3),
    "max_connections": _number("max_connections", 1, 2**31 - 1),
    "wait_for_replicas": _number("wait_for_replicas", 0, 1000),
    "health_check_interval": _number("health_check_interval", 0, 2**31 - 1),
    "ssl_min_version": _number("ssl_min_version", 0, 65535),
    **dict.fromkeys(("replica_timeout", "socket_timeout", "socket_connect_timeout"), _seconds),
    **dict.fromkeys(("socket_keepalive", "ssl_check_hostname"), _yes_or_no),
    **dict.fromkeys(("username", "password", "client_name", "ssl_keyfile", "ssl_certfile", "ssl_password"), str),
    **dict.fromkeys(("ssl_cert_reqs", "ssl_ca_certs", "ssl_ca_path", "ssl_ca_data", "ssl_ciphers"), str),
}
