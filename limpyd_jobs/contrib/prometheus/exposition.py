"""The metrics as text, and what is answered to who asks for it over HTTP."""

from __future__ import annotations

from collections.abc import Callable
from threading import Lock
from typing import NamedTuple
from weakref import WeakKeyDictionary

from prometheus_client import CollectorRegistry
from prometheus_client.exposition import generate_latest
from redis.exceptions import RedisError

from limpyd_jobs import Job
from limpyd_jobs.contrib.prometheus.collector import FleetCollector
from limpyd_jobs.integration import Answer, JobsDatabase, described

PATH = "/metrics"

# The format of the text, which all versions of Prometheus read, and of its client write.
KIND = "text/plain; version=0.0.4; charset=utf-8"

_registries: WeakKeyDictionary[JobsDatabase, CollectorRegistry] = WeakKeyDictionary()
_lock = Lock()


class Exposition(NamedTuple):
    """What Prometheus is answered: the body, and its ``Content-Type``."""

    content: bytes
    kind: str


def exposition(database: JobsDatabase | None = None) -> Exposition:
    """Return the metrics of a database as Prometheus reads them; those of `BaseJobsModel` by default.

    Any thread may call it, as often as it likes: Redis is asked at most once a second. If Redis cannot be used, an
    exception of redis-py is raised.
    """
    database = database or Job.database
    with _lock:
        if database not in _registries:
            _registries[database] = CollectorRegistry()
            _registries[database].register(FleetCollector(database))
    return Exposition(generate_latest(_registries[database]), KIND)


def answering(database: JobsDatabase | None = None) -> Callable[[str], Answer]:
    """Return what a `Responder` answers for a path: the metrics of a database."""

    def answer(path: str) -> Answer:
        if path.partition("?")[0] != PATH:
            return Answer(404, f"The metrics are at {PATH}\n")
        try:
            found = exposition(database)
        except RedisError as error:
            return Answer(503, f"Redis cannot be used: {described(error)}\n")
        return Answer(200, found.content.decode(), found.kind)

    return answer
