"""The presence of a worker, the orders that it is given there, and the report of what it does."""

from __future__ import annotations

import json
import os
import platform
import socket
import sys
import threading
import traceback
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from math import isfinite
from threading import Lock
from time import monotonic
from types import FrameType
from typing import Any

from redis import Redis

from limpyd_jobs.arguments import MAX_LEASE
from limpyd_jobs.dates import utcnow
from limpyd_jobs.models import WorkerPresence
from limpyd_jobs.models.error import VERSION_VARIABLE
from limpyd_jobs.models.presence import HEEDED, Order
from limpyd_jobs.models.pruning import Retention
from limpyd_jobs.records import presences
from limpyd_jobs.records.app_versions import note_version
from limpyd_jobs.redis.forks import this_process
from limpyd_jobs.redis.servers import is_transient
from limpyd_jobs.texts import LOGGED, MESSAGE, NAME, one_line, shortened
from limpyd_jobs.transitions import Delivery
from limpyd_jobs.version import EXACT_VERSION
from limpyd_jobs.workers.claiming.stock import Stock
from limpyd_jobs.workers.context import Context, Face
from limpyd_jobs.workers.log import Repeats, part_of
from limpyd_jobs.workers.process.leftovers import memory_of_process
from limpyd_jobs.workers.run import Runs
from limpyd_jobs.workers.running.recorder import WAIT_SLICE
from limpyd_jobs.workers.stopping import Stopping

# How many of the claimed jobs the report names.
NAMED = 5

# After how many seconds a worker registers. A worker that lives for less time is not seen.
FIRST_SIGN = 1.0

# How many of the classes that could not be imported are told.
MAX_UNRESOLVED = 100

# The options that are told.
OPTIONS = (
    *("prefetch", "concurrency", "lease", "queue_strategy", "burst"),
    *("job_timeout", "grace_period", "max_loops", "max_duration"),
)


@dataclass(eq=False)
class Report:
    """What a worker does, in lines."""

    worker: Face
    context: Context
    runs: Runs
    stock: Stock
    held: Callable[[], Iterator[str]]  # what jobs hold, in lines

    def __call__(self, frame: FrameType | None, *, has_identifiers: bool = True) -> str:
        """Return it. `frame` is where the main thread is, if this is called by the handler of a signal. Without
        identifiers, it may be shown to whoever may not see these."""
        worker = self.worker
        asked = "asked to end, " if worker.end_forced else "quiet, " if self.context.state.is_quiet else ""
        loops, queues = part_of(worker.num_loops, worker.max_loops), ",".join(map(one_line, worker.queues))
        state = f"{worker.status}, {asked}queues={queues}, loop={loops}, duration={worker.elapsed}"
        return "\n".join([state, *self._jobs(has_identifiers), *self.held(), *_threads(frame)])

    def _jobs(self, has_identifiers: bool) -> Iterator[str]:
        def name(delivery: Delivery) -> str:
            identifier = f"|{one_line(delivery.identifier)}" if has_identifiers else ""
            place = f"[{one_line(delivery.queue_name)}|{delivery.pk}{identifier}]"
            return f"{place} {one_line(delivery.ident)}, try {delivery.tries}"

        running = [each for each in self.runs.now_running() if each.is_held]
        for claim in running:
            since = monotonic() - claim.began
            yield f"has the claim {claim.token} on {name(claim.delivery)}, since {since:.1f} seconds"
        if not running:
            yield "idle"
        following = list(self.stock.deliveries)
        unrecorded = [each.delivery for each in self.runs.unrecorded.copy()]
        for what, waiting in (("to be run next", following), ("run, but not recorded yet", unrecorded)):
            if waiting:
                names = "; ".join(map(name, waiting[:NAMED]))
                yield f"{len(waiting)} jobs {what}: {names}{'; …' if len(waiting) > NAMED else ''}"


def _threads(frame: FrameType | None) -> Iterator[str]:
    names = {thread.ident: thread.name for thread in threading.enumerate()}
    frames = sys._current_frames()
    if frame is not None:
        frames[threading.get_ident()] = frame  # without the handler
    for ident in sorted(frames, key=lambda ident: ident != threading.main_thread().ident):
        stack = "".join(traceback.format_stack(frames[ident])).rstrip()
        yield f"thread {names.get(ident, ident)}:\n{stack}"


@dataclass(eq=False)
class WorkerRegistration:
    """Lets others see what a worker does, and does what they ask of it, with each of its signs of life."""

    worker: Face
    context: Context
    owner: str  # of its claims
    runs: Runs
    stopping: Stopping
    unresolved: Callable[[], list[str]]  # the paths of classes that could not be resolved
    may_log: Callable[[], bool]

    def __post_init__(self) -> None:
        self._repeats = Repeats(self.worker.log)
        self._pk = presences.pk_of_worker(self.owner)
        self._pid = 0  # of the process that registered: the code of a job may fork others
        self._lease = min(self.context.settings.lease, MAX_LEASE)
        self._since = ""
        self._is_closed = False
        self._lock = Lock()
        self._last_failure = ""
        self._dump = ""  # to be shown to others
        self._loops, self._idle_since = -1, 0.0  # the jobs fetched by then
        self._app_version = os.environ.get(VERSION_VARIABLE, "")

    def renew(self, connection: Redis) -> None:
        """Give a sign of life, and obey the orders. Nothing is raised."""
        with self._lock:
            if self._is_closed:
                return
            try:
                while orders := self._keep(connection):  # so that others see the effect at once
                    for order in orders:
                        self._obey(order)
                    dump, self._dump = self._dump, ""
                    if dump:
                        presences.keep_dump(connection, WorkerPresence, self._pk, shortened(dump, LOGGED))
                self._repeats.sum_up()
                self._last_failure = ""
            except Exception as error:
                self._log_failure(error)

    def close(self, connection: Redis) -> None:
        """Delete the presence when the worker ends. If Redis fails, it ends with the lease. Nothing is raised."""
        if self.context.is_too_late:
            self._is_closed = True
            return
        is_free = self._lock.acquire(timeout=WAIT_SLICE)  # Redis may not answer
        self._is_closed = True
        if is_free:
            self._lock.release()
        if self._since and self._pid == this_process.pid:
            with suppress(Exception):
                presences.leave(connection, WorkerPresence, self._pk, is_noted=self.context.settings.metrics)

    def _keep(self, connection: Redis) -> list[str]:
        self._pid = this_process.pid
        fields = self._fields()
        sign = presences.keep(WorkerPresence, self._pk, fields, self._lease, connection, takes_orders="1")
        is_first, self._since = not self._since, sign.since
        if is_first and self._app_version and self.context.settings.metrics:
            note_version(connection, self._app_version)
        return sign.orders

    def _log_failure(self, error: Exception) -> None:
        """Log once why this worker is not seen. Others log that Redis fails for a while."""
        failure = one_line(error, MESSAGE)
        if failure != self._last_failure and not is_transient(error) and self.may_log():
            self._last_failure = failure
            self.worker.log(f"Unable to tell others of this worker: {failure}", "warning")

    # -- What is told

    def _fields(self) -> dict[str, str]:
        fields = {
            "kind": "worker",
            "name": self.owner,
            "host": socket.gethostname(),
            "pid": str(self._pid),
            "details": json.dumps(self._details()),
        }
        return {**fields, "since": self._since} if self._since else fields

    def _details(self) -> dict[str, Any]:
        worker, runs, settings = self.worker, self.runs, self.context.settings
        running = [run.delivery for run in runs.now_running()]
        options = {name: getattr(settings, name, None) or getattr(worker, name, None) for name in OPTIONS}
        retention = Retention.of(worker.queue_model, settings.keep_success, settings.keep_errors)
        options |= {"keep_success": retention.success, "keep_errors": retention.errors}
        return {
            "id": worker.id,
            "queues": list(worker.queues),
            "queue_model": worker.queue_model._name,
            "status": self._status,
            "running": [[it.ident, one_line(it.identifier, NAME), it.start or ""] for it in running],
            "done": runs.done,
            "failed": runs.failed,
            "idle_for": self._idle_for(),
            "memory": memory_of_process(),
            "unresolved": self.unresolved()[:MAX_UNRESOLVED],
            "versions": self._versions(),
            "heeds": list(HEEDED),
            "options": {name: _plain(value) for name, value in options.items()},
            "parent": self.context.state.parent,
            "lease": self._lease,
        }

    def _versions(self) -> dict[str, str]:
        application = {"application": one_line(self._app_version)} if self._app_version else {}
        return {"library": EXACT_VERSION, "python": platform.python_version(), **application}

    @property
    def _status(self) -> str:
        if self.worker.end_forced:
            return "stopping"
        if self.context.state.is_quiet:
            return "quiet"
        if self.worker.status == "starting":
            return "no queue" if self.context.state.lacks_queues else "starting"
        return "busy" if self.runs.running else "idle"

    def _idle_for(self) -> float:
        """For how many seconds it has been seen to do nothing: between jobs it is idle, too."""
        loops, self._loops = self._loops, self.worker.num_loops
        if self._status != "idle" or loops != self._loops:
            self._idle_since = monotonic()
        return round(monotonic() - self._idle_since, 3)

    # -- What is asked for

    def _obey(self, text: str) -> None:
        """Obey an order. A text that is not an order is logged, and changes nothing."""
        try:
            order = Order.parse(text)
        except ValueError:
            self._repeats.log("unknown orders", f"Unknown order: {one_line(text, NAME)}", "warning")
            return
        try:
            self._do(order, f"{order.verb} asked by {one_line(order.by, NAME)}")
        except Exception as error:  # such as of a method that the application overrides
            self.worker.log(f"Unable to do what is asked for: {one_line(error, MESSAGE)}", "error")

    def _do(self, order: Order, why: str) -> None:
        match order.verb:
            case "quiet":
                self.stopping.be_quiet(why)
            case "resume":
                self.stopping.resume(why)
            case "stop":
                self.stopping.end_for_good(why)
            case "dump":
                report = self.stopping.report
                self.worker.log(f"{why}: {report(None)}", "warning")
                self._dump = f"{utcnow()}\n{why}: {report(None, has_identifiers=False)}"
            case "log-level":
                level = order.value
                self.worker.logger.setLevel(int(level) if level.isdecimal() else level)
                self.worker.log(f"{why}: the level of the log is {one_line(level)}", "warning")


def _plain(value: Any) -> Any:
    """Return a value of an option as JSON can hold it."""
    is_plain = value is None or isinstance(value, (bool, int, str)) or (isinstance(value, float) and isfinite(value))
    return value if is_plain else one_line(value)
