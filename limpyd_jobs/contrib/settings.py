"""The settings that integrations have in common. Their values may come as text, from a file."""

from __future__ import annotations

from collections.abc import Mapping
from inspect import signature
from typing import Any

from redis import Redis

from limpyd_jobs.integration import JobsDatabase


def checked_seconds(name: str, value: Any) -> float:
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
