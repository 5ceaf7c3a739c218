"""What a worker counts of the jobs that it runs, for the metrics of all workers."""

from __future__ import annotations

from collections import defaultdict, deque
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from datetime import datetime
from itertools import chain
from threading import Lock
from time import time

from redis import Redis
from redis.exceptions import ResponseError

from limpyd_jobs.models import job_classes
from limpyd_jobs.records import metrics
from limpyd_jobs.records.metrics import Metrics, OfNames
from limpyd_jobs.transitions import Delivery
from limpyd_jobs.workers.run import Run, Runs

# How many jobs are noted before they are summed up: few, because their arguments stay in memory.
MANY = 100


class WorkerMetrics:
    """Notes how each job ended, and writes it to Redis now and then. A job waits only for the note.

    The worker notes. Its heartbeat writes, and the worker itself once more when it ends.
    """

    def __init__(self, runs: Runs, queue_keys: Callable[[], Sequence[str]] = tuple) -> None:
        self._runs = runs
        self._queue_keys = queue_keys  # the beginnings of the keys of its queues
        self._minute = -1  # in which it last noted how many jobs wait and run in these queues
        self._noted: deque[tuple[Delivery, float, bool | None]] = deque()
        self._begun: set[str] = set()  # the tokens of jobs that are counted as started, and still run
        self._metrics: defaultdict[tuple[str, str], Metrics] = defaultdict(Metrics)  # by queue name and class path
        self._lock = Lock()

    def note(self, run: Run) -> None:
        """A job was run."""
        self._noted.append((run.delivery, run.ran, run.is_success))
        if len(self._noted) >= MANY:
            with self._lock:
                self._sum_up()

    def write(self, connection: Redis) -> None:
        """Write down what was noted, in parts, so that Redis can do other things in between. Nothing is raised.

        If Redis refuses, the rest is written the next time. If a reply is lost, that part may be written already. It is
        dropped: metrics may be lost, but are never counted twice.
        """
        with self._lock:
            self._sum_up()
            self._count_running()
            gathered, self._metrics = self._metrics, defaultdict(Metrics)
        parts = list(metrics.parts_of(gathered))
        while parts:
            part = parts.pop()
            try:
                known = job_classes.known
                metrics.write(connection, part, {path: known[path]._name for _, path in part if path in known})
            except Exception as error:
                self._put_back([*parts, part] if isinstance(error, ResponseError) else parts)
                return

    def note_levels(self, connection: Redis) -> None:
        """Note once a minute how many jobs wait and run in the queues of the worker. Nothing is raised."""
        minute, keys = int(time() // 60), self._queue_keys()
        if minute != self._minute and keys:
            self._minute = minute
            with suppress(Exception):  # then this minute may have none
                metrics.note_levels(connection, keys)

    def _put_back(self, parts: Iterable[OfNames]) -> None:
        with self._lock:
            for key, each in chain.from_iterable(part.items() for part in parts):
                self._metrics[key].add(each)

    def _sum_up(self) -> None:
        with suppress(IndexError):
            while True:
                delivery, ran, is_success = self._noted.popleft()
                found = self._of(delivery)
                if self._begun and delivery.token in self._begun:
                    self._begun.remove(delivery.token)
                else:
                    found.observe_start(_seconds_waited(delivery))
                if is_success is not None:
                    found.observe_end(ran, is_success)

    def _count_running(self) -> None:
        """Count jobs as started that still run."""
        for run in self._runs.now_running():
            delivery = run.delivery
            if run.is_running and delivery.token not in self._begun:
                self._begun.add(delivery.token)
                self._of(delivery).observe_start(_seconds_waited(delivery))

    def _of(self, delivery: Delivery) -> Metrics:
        return self._metrics[delivery.queue_name, delivery.path]


def _seconds_waited(delivery: Delivery) -> float | None:
    """Return for how long a job waited: since it was added, or put back by hand, or its delay was over."""
    since, until = delivery.retry[2], delivery.delayed_until
    try:
        began = datetime.fromisoformat(max(since, until) if until else since)
        return max((datetime.fromisoformat(delivery.start) - began).total_seconds(), 0.0)
    except (TypeError, ValueError):  # another program wrote these dates
        return None
