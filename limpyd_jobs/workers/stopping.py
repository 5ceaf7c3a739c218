"""Why and how a worker ends."""

from __future__ import annotations

import signal
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from types import FrameType

from limpyd_jobs.classes.job_classes import job_classes
from limpyd_jobs.exceptions import GracePeriodOver
from limpyd_jobs.idents import QueueKey
from limpyd_jobs.limiting.limit import limits_of_class
from limpyd_jobs.limiting.live import declared_by, waits_for_ever
from limpyd_jobs.records import records
from limpyd_jobs.workers.context import Context, Face
from limpyd_jobs.workers.process.signals import DUMP, HANG_UP, INTERRUPT, QUIET, TERMINATE, Handlers, has_terminal
from limpyd_jobs.workers.timers import JobTimer


@dataclass(eq=False)
class Stopping:
    """The signals, limits and states after which a worker begins no other job."""

    worker: Face
    context: Context
    timer: JobTimer  # interrupts the running job when the grace period is over
    report: Callable[..., str]  # is given where the main thread is: see `Report`
    end_wait: Callable[[], None]
    may_find_jobs: Callable[[], bool]  # whether a task has to look again for jobs that no list has
    broken_lists: Callable[[], Sequence[str]]

    def __post_init__(self) -> None:
        self._state = self.context.state
        self.handlers = Handlers()
        self._interrupts = 0

    # -- Signals

    def handle_other_signals(self) -> None:
        """Let no other signal that people send interrupt the running job, unless the application handles it."""
        if self.worker.terminate_gracefuly:
            self.handlers.take_unhandled(self.worker.catch_end_signal, HANG_UP)
        self.handlers.mark_interrupts()
        self.handlers.take_unhandled(self._log_report, DUMP)
        self.handlers.take_unhandled(lambda *_: self.be_quiet(f"{QUIET.name} caught"), QUIET)

    def catch_end_signal(self, signum: int) -> None:
        """Ask for the end; what `Worker.catch_end_signal` does."""
        worker, timer = self.worker, self.timer
        is_from_terminal = signum == INTERRUPT and has_terminal()
        self._interrupts += is_from_terminal
        if not worker.end_signal_caught:
            worker.end_signal_caught = worker.end_forced = True
            self._state.why = f"{signal.Signals(signum).name} caught"
            hint = ", which a second one releases" if is_from_terminal else ""
            self._log(f"{self._state.why}: ending, after the running job if there is one{hint}")
            grace_period = self.context.settings.grace_period
            if grace_period is not None and timer.is_possible():
                timer.set("grace period", grace_period, GracePeriodOver())
            self._change_begins()
        elif is_from_terminal and self._interrupts == 2:
            self._log("SIGINT caught again: ending, without the running job if there is one", "warning")
            timer.set("grace period", 0, GracePeriodOver())

    def be_quiet(self, why: str) -> None:
        """Begin no other job, and live on until the end is asked for."""
        if not self._state.is_quiet:
            self._state.is_quiet = True
            self._log(f"{why}: quiet, no other job is begun")
            self._change_begins()

    def resume(self, why: str) -> None:
        """Begin jobs again."""
        if self._state.is_quiet:
            self._state.is_quiet = False
            self._log(f"{why}: jobs are begun again")
            self.context.notify_status()

    def end_for_good(self, why: str) -> None:
        """Let the worker end as on SIGTERM. Any thread may do so."""
        self._state.is_for_good = True
        self._log(f"{why}: ending as on {TERMINATE.name}")
        if not self.handlers.send(TERMINATE):
            self.worker.catch_end_signal(TERMINATE, None)

    def _change_begins(self) -> None:
        self.end_wait()
        self.context.notify_status()

    def _log_report(self, signum: int, frame: FrameType | None) -> None:
        """Log what the worker does, and where each of its threads is."""
        self._log(f"{signal.Signals(signum).name} caught: {self.report(frame)}", "warning")

    def _log(self, message: str, level: str = "info") -> None:
        """Log a message, unless the signal came while another one was being written: Python does not allow that."""
        with suppress(RuntimeError):
            self.worker.log(message, level)

    # -- Limits

    @property
    def reason(self) -> str:
        """Why it ended, in words."""
        worker = self.worker
        if self._state.why:
            return self._state.why
        if worker.end_signal_caught:
            return "a signal was caught"
        if worker.end_forced:
            return "end_forced was set"
        if worker.num_loops >= worker.max_loops:
            return f"max_loops={worker.max_loops} is reached"
        if self.context.is_over_time:
            return "max_duration is over" if worker.max_duration else "wanted_end_date has passed"
        return "must_stop() is true"

    def ends_burst(self, *, is_stuck: bool = False) -> bool:
        """Ask for the end if `burst` says so, now that no job is there, or can be claimed; return whether it does."""
        worker, burst = self.worker, self.context.settings.burst
        if not burst or self.may_find_jobs():
            return False
        broken = set(map(QueueKey.of_list, self.broken_lists()))
        served, aside = set(self.context.queue_keys) - broken, ""
        for pk, _, _, waiting, delayed, is_paused in records.list_queues(worker.queue_model, worker.queues):
            key, comes = f"{worker.queue_model._name}:{pk}", delayed and burst == "delayed"
            is_left = (waiting and not is_stuck) or comes
            if is_left and is_paused:
                aside = ", paused queues aside"
            elif is_left and key in served:
                declared = declared_by((cls._name, limits_of_class(cls)) for cls in job_classes.all())
                if comes or not waits_for_ever(records.redis_of(worker.queue_model), key, declared):
                    return False
                aside = ", paused limits aside"
        self._state.is_done = worker.end_forced = True
        what = "no job waits, or is delayed" if burst == "delayed" else "no job waits"
        self._state.why = ("no job that waits can be claimed" if is_stuck or broken else what) + aside
        self.context.notify_status()
        return True
