"""Where Redis is, as job stores and executors are told it."""

from __future__ import annotations

from collections.abc import Mapping
from inspect import signature
from typing import Any

from redis import Redis

from limpyd_jobs.contrib.apscheduler.records import ScheduledJob
from limpyd_jobs.redis.database import JobsDatabase


def database_of(
    url: str | None, database: JobsDatabase | None, client: Any, settings: Mapping[str, Any]
) -> JobsDatabase:
    """Return the database that is named; without a name, the database of `limpyd_jobs`.

    A setting beside a URL overrides what the URL says.

    Raises
    ------
    TypeError, ValueError
        If a setting is wrong.
    """
    given = {"url": url, "database": database, "client": client, "connection_pool": settings.get("connection_pool")}
    places = [name for name, value in given.items() if value is not None]
    if len(places) > 1:
        raise TypeError(f"Say once where Redis is: give {' or '.join(places)}")
    others = settings.keys() - {"connection_pool"}
    if others and places and places != ["url"]:
        raise TypeError(f"{min(others)!r} is a setting of the {places[0]}: give one of them")
    if given["connection_pool"] is not None:
        client = Redis(connection_pool=given["connection_pool"])
    return database or (JobsDatabase.of_client(client) if client is not None else _made(url, settings))


def _made(url: str | None, settings: Mapping[str, Any]) -> JobsDatabase:
    for name in {"db", "port"} & settings.keys():
        if not str(settings[name]).isdecimal():  # it may be text, from a file of settings
            raise ValueError(f"{name} must be an integer of 0 or more, not {settings[name]!r}")
    if url is not None and not isinstance(url, str):
        raise TypeError(f"url must be a text, as redis://localhost:6379/0, not {url!r}")
    unknown = settings.keys() - signature(Redis).parameters.keys()
    if unknown:
        raise TypeError(f"{min(unknown)!r} is neither an argument of this class nor of redis.Redis")
    if url or settings:
        return JobsDatabase(**({"url": url} if url else {}), **settings)
    return ScheduledJob.database
