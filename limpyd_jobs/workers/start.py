"""How a worker begins: it waits for Redis, and for a queue."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from functools import partial
from math import inf
from typing import TYPE_CHECKING, Any, TypeVar

from redis.exceptions import RedisError, ResponseError

from limpyd_jobs.exceptions import ConfigurationException
from limpyd_jobs.records import records
from limpyd_jobs.records.known_classes import QUEUES, known_models
from limpyd_jobs.redis.database import database_name
from limpyd_jobs.texts import one_line
from limpyd_jobs.workers.backoff import is_connection_cut, is_transient
from limpyd_jobs.workers.redis_retry import nap

if TYPE_CHECKING:
    from limpyd_jobs.workers.engine import Engine

T = TypeVar("T")

# How many times a worker that begins asks Redis, while its connections are cut.
START_TRIES = 4


class Start:
    """What a worker does before its first job. It warns of problems."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self._worker = engine.worker

    def check_connections(self) -> None:
        """Raise `ConfigurationException` if there may be one connection only: the threads of a worker need others."""
        if getattr(self._worker.connection.connection_pool, "max_connections", inf) < 2:
            raise ConfigurationException("max_connections=1 is too few for a worker, whose threads use up to five")

    def ask(self, question: Callable[[], T]) -> T:
        """Ask Redis something. Ask again, a few times, if the connection is cut."""
        for _ in range(START_TRIES - 1):
            try:
                return question()
            except RedisError as error:
                if self._worker.end_forced or not is_connection_cut(error):
                    raise
                self._engine.redis_retry.wait("Unable to begin", error)
        return question()

    def find_queues(self) -> None:
        """Wait until Redis is ready, and there is a queue. After its first answer, Redis may fail."""
        self.check_connections()
        self._warn_of_names()
        self._warn_of_eviction()
        worker, stopping = self._worker, self._engine.stopping
        warned = False
        while not worker.must_stop():
            try:
                self._look_for_queues()
            except RedisError as error:
                if not warned and not is_transient(error):
                    raise
                self._engine.redis_retry.wait("Unable to find the queues", error)
                continue
            self._engine.lacks_queues = not worker.keys
            while self._engine.ready_callbacks:
                self._engine.ready_callbacks.pop()()
            if not (worker.keys or warned) and (stopping.is_done or not worker.end_forced):
                warned = True
                self._log_no_queues()
            if worker.keys or worker.end_forced:
                return
            nap()

    def promote(self) -> None:
        """Move the delayed jobs that are due."""
        maintenance, promoter = self._engine.maintenance, self._engine.promoter
        try:
            maintenance.run(promoter)
        except RedisError as error:
            self._engine.redis_retry.log("Unable to look for delayed jobs", error)
            maintenance.postpone(promoter)
        except Exception as error:
            maintenance.log_failure(promoter, error)

    def _look_for_queues(self) -> None:
        engine, maintenance = self._engine, self._engine.maintenance
        maintenance.run(engine.queue_refresh)
        if not self._worker.keys and maintenance.is_due(engine.scheduler):
            maintenance.run(engine.scheduler)
        if not self._worker.keys and engine.settings.burst:
            maintenance.run(engine.queue_refresh)  # a schedule that was due may have made a queue
            engine.stopping.ends_burst()

    def _warn_of_names(self) -> None:
        """Warn if the class uses the names of parameters for something else."""
        kind = type(self._worker).__name__
        for name in self._worker._names_of_others:
            text = f"{name} is not a parameter of {kind}, but something else: its default is used"
            self._worker.log(text, "warning")

    def _warn_of_eviction(self) -> None:
        """Warn if Redis may delete jobs to make room."""
        with suppress(ResponseError):  # not every user may ask
            memory: Any = self.ask(partial(self._worker.connection.info, "memory"))
            policy = memory.get("maxmemory_policy", "noeviction")
            if memory.get("maxmemory") and policy != "noeviction":
                self._worker.log(
                    f"Redis may DELETE JOBS when its memory is full: set maxmemory-policy to noeviction, not {policy}",
                    "critical",
                )

    def _log_no_queues(self) -> None:
        """Say that there are no queues of these names: it may be the wrong database, or a wrong name."""
        queue_model, others, model = self._worker.queue_model, list[str](), ""
        with suppress(RedisError):
            others, model = records.some_queue_names(queue_model), self._other_model()
        database = database_name(queue_model.database.connection_settings)
        names = one_line(", ".join(others)) if others else "none"
        # A burst may well come before the first job, so then it is not a warning
        is_done = self._engine.stopping.is_done
        what, level = ("there is none", "info") if is_done else ("waiting for one", "warning")
        self._worker.log(
            f"No queues yet ({what} named {one_line(', '.join(self._worker.queues))} in {database}, where there are: "
            f"{names}; {model or 'are --queues and --database right?'})",
            level,
        )

    def _other_model(self) -> str:
        """Say that queues of these names are of another model, as the database knows it; empty if there are none."""
        own, client = self._worker.queue_model, records.redis_of(self._worker.queue_model)
        for known in known_models(client, QUEUES).values():
            prefix = known.indexes.get("name", f"{known.name}:name:")
            if known.name != own._name and client.exists(*(f"{prefix}{name}" for name in self._worker.queues)):
                return f"there is one of another model: is --queue-model={one_line(known.path)} missing?"
        return ""
