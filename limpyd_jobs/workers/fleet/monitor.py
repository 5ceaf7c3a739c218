"""Whether one worker is healthy, as another thread sees it, and the answers to those who ask."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing, contextmanager
from dataclasses import dataclass
from math import inf
from threading import Thread
from time import monotonic

from limpyd_jobs.observing.responder import Responder
from limpyd_jobs.records import records
from limpyd_jobs.redis.database import client_like
from limpyd_jobs.threads import Heartbeat
from limpyd_jobs.workers.claiming.stock import Stock
from limpyd_jobs.workers.context import Context, Face, Verdict
from limpyd_jobs.workers.fleet.health import HEALTHY, LOOK_EVERY, HealthFile, answering
from limpyd_jobs.workers.run import Runs

# How many seconds pass between two looks until the worker is ready: whoever starts it waits for that.
FIRST_LOOKS = 1.0

# How many seconds Redis has to answer.
ANSWER_TIMEOUT = 5.0

ENDING = "ending"


@dataclass(eq=False)
class Turns:
    """The maintenance task that shows that the loop turns: it is run between jobs, and while there is none."""

    name = "note that the loop turns"
    interval: float

    def run(self, context: Context) -> None:
        context.state.turned = monotonic()


@dataclass(eq=False)
class Monitor:
    """Tells whether a worker is alive, and whether it is ready.

    It is alive while its loop turns. While it runs a job, and until its loop begins, it is alive while its heartbeat
    goes on. It is ready if Redis answers, it has a queue, and its claims do not stall: they stall if jobs have stood in
    its queues for too long, at each look, while it was idle. A worker that works takes one of them in seconds.
    """

    worker: Face
    context: Context
    runs: Runs
    stock: Stock
    held_for_too_long: Callable[[float], str]  # what jobs have held for a number of seconds

    def __post_init__(self) -> None:
        settings = self.context.settings
        self._stalled_after: float = settings.stalled_after
        self.interval = min(LOOK_EVERY, self._stalled_after / 4)
        self._longest_silence = settings.lease + self.interval
        self._answered = monotonic()
        self._failure = ""
        self._loops = -1
        self._waits_since = inf  # since when jobs wait, and this worker is idle
        self._was_ready: bool | None = None
        state = self.context.state
        state.turned = state.beaten = monotonic()
        timeouts = {"socket_timeout": ANSWER_TIMEOUT, "socket_connect_timeout": ANSWER_TIMEOUT}
        self._client = client_like(self.worker.connection, timeouts)

    # -- What it sees

    def look(self) -> Verdict:
        """Ask Redis, and return the verdict. Nothing is raised."""
        try:
            rows = records.list_queues(self.worker.queue_model, self.worker.queues, self._client)
        except Exception as error:
            self._failure, self._waits_since = f"Redis cannot be used: {type(error).__name__}", inf
        else:
            self._answered, self._failure = monotonic(), ""
            self._note_waiting(rows)
        verdict = self.verdict()
        self._log_change(verdict)
        return verdict

    def _note_waiting(self, rows: list[tuple[str, str, str, int, int, int]]) -> None:
        served, prefix = {*self.context.queue_keys}, self.worker.queue_model._name
        waits = any(waiting and not paused and f"{prefix}:{pk}" in served for pk, _, _, waiting, _, paused in rows)
        loops, self._loops = self._loops, self.worker.num_loops
        is_idle = loops == self._loops and not (self.runs.running or self.stock.deliveries)
        self._waits_since = min(self._waits_since, monotonic()) if waits and is_idle else inf

    def _log_change(self, verdict: Verdict) -> None:
        if verdict.is_ready and self._was_ready is False:
            self.worker.log("Healthy again")
        elif not verdict.is_ready and self._was_ready and verdict.reason != ENDING:
            self.worker.log(f"Not healthy: {verdict.reason}", "warning")
        if verdict.is_ready or self._was_ready is not None:
            self._was_ready = verdict.is_ready

    # -- What it says

    def verdict(self) -> Verdict:
        """Return the verdict as of now. It does not wait for Redis, so any thread may ask."""
        dead = self._why_not_live()
        if dead:
            return Verdict(False, False, dead)
        reason = self._why_not_ready()
        return Verdict(True, False, reason) if reason else HEALTHY

    def _why_not_live(self) -> str:
        now, state = monotonic(), self.context.state
        if state.failure:
            return state.failure
        if now - state.turned <= self._stalled_after:
            return ""
        if not (self.runs.running or self.worker.status == "starting"):
            return f"the loop has not turned for {now - state.turned:.0f} seconds"
        silent = now - state.beaten
        return f"no heartbeat for {silent:.0f} seconds" if silent > self._longest_silence else ""

    def _why_not_ready(self) -> str:
        worker, state, now = self.worker, self.context.state, monotonic()
        if worker.end_forced or worker.status == "terminated":
            return ENDING
        silent, stalled = now - self._answered, now - self._waits_since
        if self._failure:
            return self._failure
        if silent > 2 * (self.interval + ANSWER_TIMEOUT):
            return f"Redis has not answered for {silent:.0f} seconds"
        if not (worker.keys or self.context.settings.shards):  # else others may have queues
            return "none of its queues exists" if state.lacks_queues or worker.status != "starting" else "starting"
        if worker.status == "starting":
            return "starting"
        if state.is_behind:
            return "its leases are not renewed in time, so it claims no more jobs"
        if stalled > self._stalled_after and not state.is_quiet:
            return f"claims stall: jobs have waited for {stalled:.0f} seconds while the worker was idle"
        return self.held_for_too_long(self._stalled_after)

    # -- Who asks for it

    @contextmanager
    def telling(self) -> Iterator[None]:
        """Let others know the verdict while the context is entered. In a pool, that is the parent alone."""
        settings, parent = self.context.settings, self.context.state.tell_health
        with ExitStack() as stack:
            if self._client:
                stack.callback(self._client.close)
            outlets = [parent] if parent else []
            if settings.health_file and not parent:
                outlets.append(stack.enter_context(closing(HealthFile(settings.health_file))))
            if settings.health_port is not None and not parent:
                stack.enter_context(self._serving(settings.health_host, settings.health_port))

            def look() -> None:
                verdict = self.look()
                for tell in outlets:
                    tell(verdict)
                if verdict.is_ready:
                    heartbeat.begin_anew(self.interval)

            heartbeat = Heartbeat(min(FIRST_LOOKS, self.interval), look, first=0.0)
            stack.enter_context(heartbeat)
            yield

    @contextmanager
    def _serving(self, host: str, port: int) -> Iterator[None]:
        """Answer in a thread of its own, so that no answer waits for Redis, or for a job."""
        pid = os.getpid()
        responder = Responder(host, port, answering(lambda: {pid: self.verdict()}))
        thread = Thread(target=responder.serve_until_ended, name="limpyd-jobs-health", daemon=True)
        thread.start()
        self.worker.log(f"Health: {responder.address}/health")
        try:
            yield
        finally:
            responder.end()
            thread.join()
            responder.close()
