"""How a worker begins: it waits for Redis, and for a queue."""

from __future__ import annotations

import random
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from itertools import count
from math import inf
from time import monotonic
from typing import Any, TypeVar

from redis import BlockingConnectionPool
from redis.exceptions import BusyLoadingError, RedisError

from limpyd_jobs.exceptions import ConfigurationException
from limpyd_jobs.models.pruning import Retention, kept_for_ever, read_finished
from limpyd_jobs.records import records
from limpyd_jobs.records.known_classes import QUEUES, models_in, read_written
from limpyd_jobs.records.relocations import refuse_moved
from limpyd_jobs.redis.database import database_name
from limpyd_jobs.redis.servers import MAY_DELETE_JOBS, is_away, is_connection_cut, is_transient, memory_of
from limpyd_jobs.texts import MESSAGE, one_line
from limpyd_jobs.workers.context import Context, Face
from limpyd_jobs.workers.running.recorder import RedisRetry, nap

T = TypeVar("T")

# How many connections the threads of a worker of several slots use, beside those of its jobs.
OWN_CONNECTIONS = 6

# Of how many queues a worker that begins counts the finished jobs.
MAX_COUNTED = 100

# From how many finished jobs on that nothing limits it says so: about 1 MB, and what a worker runs by default.
MANY_KEPT = 1000

# How many times a worker that begins asks Redis, while its connections are cut.
START_TRIES = 4


@dataclass(eq=False)
class Start:
    """What a worker does before its first job. It warns of problems."""

    worker: Face
    context: Context
    redis_retry: RedisRetry

    def __post_init__(self) -> None:
        self._wait: float = self.context.settings.wait_for_redis or 0  # in seconds, while there is no server
        self._until: float | None = None

    def check_connection(self, wait: float) -> None:
        """Raise an exception if Redis does not answer, or there may be too few connections. A database that is still
        loading does answer. If there is a connection, but it is cut, try again a few times. If there is none, wait for
        some seconds, unless the worker has a time of its own, or has to end."""
        if self.context.settings.wait_for_redis is None and not self.worker.end_forced:
            self._wait = wait
        self._check_connections()
        with suppress(BusyLoadingError):
            self._ask(self.worker.connection.ping)
            self._check_home()

    def _check_connections(self) -> None:
        """Raise `ConfigurationException` if there may be fewer connections than the worker cannot do without."""
        shards = self.context.settings.shards
        for client in (self.worker.connection, *(each.connection for each in (shards.databases if shards else ()))):
            self._check_pool(client.connection_pool)

    def _check_pool(self, pool: Any) -> None:
        allowed, at_once = getattr(pool, "max_connections", inf), self.context.settings.concurrency
        if allowed < 2:
            raise ConfigurationException("max_connections=1 is too few for a worker, whose threads use up to five")
        # One job alone shares what there is with the worker's threads, which try again. A pool that waits is enough.
        if at_once > 1 and allowed < OWN_CONNECTIONS + at_once and not isinstance(pool, BlockingConnectionPool):
            raise ConfigurationException(
                f"max_connections={allowed} is too few for a worker with concurrency={at_once}, which uses up to "
                f"{OWN_CONNECTIONS + at_once}: set max_connections to that or more, or leave it out"
            )

    def _check_home(self) -> None:
        """Raise `ConfigurationException` if the worker was given other shards, or another order of them."""
        if shards := self.context.settings.shards:
            shards.check(self.context.settings.home)

    def _ask(self, question: Callable[[], T]) -> T | None:
        """Ask Redis something. Ask again while there is no server, until the wait is over, and a few times if the
        connection is cut. Return None if a signal ends the worker meanwhile."""
        for tries in count(1):
            try:
                return question()
            except RedisError as error:
                if self.worker.end_signal_caught:
                    break
                if self._may_wait(error):
                    nap(random.uniform(0.5, 1))
                elif self.worker.end_forced or not is_connection_cut(error) or tries >= START_TRIES:
                    raise
                else:
                    self.redis_retry.wait("Unable to begin", error)
        return None

    def _may_wait(self, error: RedisError) -> bool:
        """Whether to ask again, because there is no server yet; say so the first time."""
        if self.worker.end_forced or not self._wait or not is_away(error) or isinstance(error, BusyLoadingError):
            return False
        if self._until is None:
            self._until = monotonic() + self._wait
            what = f"Waiting for Redis at {self._place()}, for {self._wait:g} seconds at most"
            remedy = "If no server runs there, name another one with --database or LIMPYD_JOBS_DATABASE"
            self.worker.log(f"{what}: {one_line(error, MESSAGE)} {remedy}", "warning")
        return monotonic() < self._until

    def _place(self) -> str:
        settings = self.context.settings
        if settings.shards:
            return str(settings.shards.name_of(settings.home))
        return database_name(self.worker.queue_model.database.connection_settings)

    def find_queues(self, look: Callable[[], None]) -> None:
        """Wait until Redis is ready, and there is a queue. After its first answer, Redis may fail."""
        self._check_connections()
        self._warn_of_names()
        self._warn_of_eviction()
        worker, state = self.worker, self.context.state
        warned, is_asked = False, False
        while not self.context.must_stop():
            state.turned = monotonic()
            try:
                self._check_home()
                if not is_asked:
                    refuse_moved(worker.connection)
                    is_asked = True
                look()
            except RedisError as error:
                if not warned and not is_transient(error):
                    raise
                self.redis_retry.wait("Unable to find the queues", error)
                continue
            state.lacks_queues = not worker.keys
            while state.on_ready:
                state.on_ready.pop()()
            if not (worker.keys or warned) and (state.is_done or not worker.end_forced):
                warned = True
                self._log_no_queues()
            if worker.keys or worker.end_forced or self.context.settings.shards:  # others may have queues
                return
            nap()

    def _warn_of_names(self) -> None:
        """Warn if the class uses the names of parameters for something else."""
        for name in self.worker._names_of_others:
            what = f"{name} is not a parameter of {type(self.worker).__name__}"
            self.worker.log(f"{what}, but something else: its default is used", "warning")

    def _warn_of_eviction(self) -> None:
        """Warn if Redis may delete jobs to make room."""
        memory = self._ask(partial(memory_of, self.worker.connection))
        if memory and memory.deletes:
            self.worker.log(f"{MAY_DELETE_JOBS}{memory.policy}", "critical")

    def log_kept(self) -> None:
        """Say how many finished jobs the queues keep, if nothing limits that and they are many. Redis may fail
        meanwhile."""
        queue_model, settings = self.worker.queue_model, self.context.settings
        names = Retention.of(queue_model, settings.keep_success, settings.keep_errors).unlimited
        with suppress(RedisError):
            keys = self.context.queue_keys if names else []
            counted = keys[:MAX_COUNTED]
            numbers = read_finished(records.redis_of(queue_model), counted, names) if counted else {}
            if sum(numbers.values()) >= MANY_KEPT:
                where = "these queues" if counted == keys else f"the first {len(counted)} of these {len(keys):,} queues"
                self.worker.log(kept_for_ever(where, numbers))

    def _log_no_queues(self) -> None:
        """Say that there are no queues of these names: it may be the wrong database, or a wrong name."""
        queue_model, others, model = self.worker.queue_model, list[str](), ""
        with suppress(RedisError):
            others, model = records.some_queue_names(queue_model), self._other_model()
        database = database_name(queue_model.database.connection_settings)
        names = one_line(", ".join(others)) if others else "none"
        given = "shards" if self.context.settings.shards else "database"
        # A burst may well come before the first job, so then it is not a warning
        is_done = self.context.state.is_done
        what, level = ("there is none", "info") if is_done else ("waiting for one", "warning")
        self.worker.log(
            f"No queues yet ({what} named {one_line(', '.join(self.worker.queues))} in {database}, where there are: "
            f"{names}; {model or f'are --queues and --{given} right?'})",
            level,
        )

    def _other_model(self) -> str:
        """Say that queues of these names are of another model, as the database knows it; empty if there are none."""
        own, client = self.worker.queue_model, records.redis_of(self.worker.queue_model)
        for known in models_in(read_written(client), QUEUES).values():
            prefix = known.indexes.get("name", f"{known.name}:name:")
            if known.name != own._name and client.exists(*(f"{prefix}{name}" for name in self.worker.queues)):
                return f"there is one of another model: is --queue-model={one_line(known.path)} missing?"
        return ""
