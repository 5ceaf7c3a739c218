"""Where Redis is, as job stores and executors are told it."""

from __future__ import annotations

from collections.abc import Mapping
from inspect import signature
from typing import Any

from redis import Redis

from limpyd_jobs.contrib.apscheduler.records import ScheduledJob
from limpyd_jobs.store.database import JobsDatabase


def database_of(
    url: str | None, database: JobsDatabase | None, client: Any, settings: Mapping[str, Any]
) -> JobsDatabase:
    """Return the database that is named; without a name, the database of `limpyd_jobs`.

    Raises
    ------
    TypeError, ValueError
        If a setting is wrong.
    """
    if client is not None:
        return JobsDatabase.of_client(client)
    for name in {"db", "port"} & settings.keys():
        if not str(settings[name]).isdecimal():  # it may be text, from a file of settings
            raise ValueError(f"{name} must be an integer of 0 or more, not {settings[name]!r}")
    if url is not None and not isinstance(url, str):
        raise TypeError(f"url must be a text, as redis://localhost:6379/0, not {url!r}")
    unknown = settings.keys() - signature(Redis).parameters.keys()
    if unknown:
        raise TypeError(f"{min(unknown)!r} is no option of a job store, nor of redis.Redis")
    if url or settings:
        return JobsDatabase(**({"url": url} if url else {}), **settings)
    return database or ScheduledJob.database
