"""A job store in the place of APScheduler's own one in Redis."""

from __future__ import annotations

import pickle
from datetime import datetime
from typing import Any

from apscheduler.job import Job
from redis.exceptions import RedisError

from limpyd_jobs.contrib.apscheduler.store import LimpydJobStore

# The arguments that say which database it is, besides `db`.
ELSEWHERE = {"url", "database", "client", "connection_pool"}


class RedisJobStore(LimpydJobStore):
    """A `LimpydJobStore` with the arguments of APScheduler's own `RedisJobStore`. When it starts, it takes over the
    jobs of that store."""

    def __init__(
        self,
        db: int = 0,
        jobs_key: str = "apscheduler.jobs",
        run_times_key: str = "apscheduler.run_times",
        pickle_protocol: int = pickle.HIGHEST_PROTOCOL,
        **connect_args: Any,
    ) -> None:
        if db is None:
            raise ValueError('The "db" parameter must not be empty')
        if not jobs_key:
            raise ValueError('The "jobs_key" parameter must not be empty')
        if not run_times_key:
            raise ValueError('The "run_times_key" parameter must not be empty')
        if "serializer" in connect_args:
            raise TypeError("RedisJobStore stores pickles: for JSON, take LimpydJobStore, and its import_jobs()")
        if "namespace" in connect_args:
            raise TypeError("RedisJobStore has no namespace: its jobs_key is the beginning of its keys")
        ours = {name: connect_args.pop(name) for name in ("allowed", "lease", "look_again") if name in connect_args}
        if db != 0 or not connect_args.keys() & ELSEWHERE:  # 0 is the default
            connect_args["db"] = db
        super().__init__(
            namespace=jobs_key, serializer="pickle", pickle_protocol=pickle_protocol, **ours, **connect_args
        )
        self.jobs_key, self.run_times_key = jobs_key, run_times_key
        self._has_taken_over = False

    def start(self, scheduler: Any, alias: str) -> None:
        """Take over the jobs of APScheduler's own store, then begin."""
        super().start(scheduler, alias)
        try:
            self._take_over()
        except RedisError as error:
            self._logger.warning("The jobs of APScheduler's own store are taken over later: %s", error)

    def get_due_jobs(self, now: datetime) -> list[Job]:
        """Do as `LimpydJobStore` does, once the jobs of APScheduler's own store are taken over."""
        self._take_over()
        return super().get_due_jobs(now)

    def _take_over(self) -> None:
        if not self._has_taken_over:
            self.import_jobs(self.jobs_key, self.run_times_key)
            self._has_taken_over = True
