"""Several processes with a worker each, and the parent that keeps them running."""

from __future__ import annotations

import logging
import os
import signal
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from functools import partial
from math import inf
from multiprocessing.context import ForkProcess
from select import PIPE_BUF, select
from threading import Thread, main_thread
from time import monotonic
from types import FrameType
from typing import TYPE_CHECKING, Any

from limpyd_jobs.commandline.parameters import Parameters
from limpyd_jobs.texts import one_line
from limpyd_jobs.workers.context import Verdict
from limpyd_jobs.workers.process.children import ChildProcess, Reports
from limpyd_jobs.workers.process.hard_limits import Board, HardLimits, Overdue
from limpyd_jobs.workers.process.signals import DUMP, HANG_UP, INTERRUPT, QUIET, TERMINATE, Handlers, has_terminal
from limpyd_jobs.workers.process.system import VARIABLES, notify, watchdog_interval
from limpyd_jobs.workers.worker import Worker, logger

if TYPE_CHECKING:
    from limpyd_jobs.workers.fleet.health import PoolHealth

# The signals that ask for the end, and the others that are passed on to the children.
END_SIGNALS, OTHER_SIGNALS = (INTERRUPT, TERMINATE, HANG_UP), (DUMP, QUIET)

# How many seconds after its grace period a child is killed.
KILL_MARGIN = 10.0


class WorkerPool:
    """Runs workers, each in a process of its own, until SIGTERM, SIGINT or SIGHUP, or until `burst` ends all of them.

    The process that calls `run` is the parent: it runs no jobs. If a child ends, for instance as it has run
    ``max_loops`` jobs, another one follows at once. If a child dies soon after its start, another one follows after 1
    to 10 seconds. Signals are passed on, and after SIGUSR2 no other child is started. If the parent dies, its children
    end as they do on SIGTERM.

    Children inherit what the parent opened before, so let each worker open its own connections, as the models do.

    >>> WorkerPool(4, lambda: Worker("mails", grace_period=25), grace_period=25).run()

    Parameters
    ----------
    number: int
        How many children.
    make_worker: callable
        Returns the worker of a child. It is called in the child.
    run_worker: callable
        Runs the worker that it is called with, in the child; by default, it calls the method `run`.
    grace_period: float
        The grace period of the workers, in seconds. A child that lives 10 seconds longer is killed; None for never.
    health_port, health_host, health_file, stalled_after: int, str, str, float
        Where the parent answers for the health of all children, and when they are not healthy: as of a worker. Give
        them here, and not to the workers.
    logger: logging.Logger
        Where the parent tells how its children start and end.
    on_change: callable
        Called by the parent, with this object, each time that `status` or `alive` may have changed.
    """

    def __init__(
        self,
        number: int,
        make_worker: Callable[[], Worker],
        run_worker: Callable[[Worker], Any] = lambda worker: worker.run(),
        *,
        grace_period: float | None = None,
        health_port: int | None = None,
        health_host: str = Parameters.health_host,
        health_file: str | None = None,
        stalled_after: float = Parameters.stalled_after,
        logger: logging.Logger = logger,
        on_change: Callable[[WorkerPool], None] = lambda _: None,
    ) -> None:
        self._slots = [ChildProcess() for _ in range(number)]
        self._make_worker = make_worker
        self._run_worker = run_worker
        self._grace_period = grace_period
        self._health_at = health_port, health_host, health_file
        self._stalled_after = stalled_after
        self._health: PoolHealth | None = None
        self._logger = logger
        self._on_change = on_change
        self._handlers = Handlers()
        self._caught: signal.Signals | None = None
        self._passed_on = TERMINATE
        self._to_pass_on: list[signal.Signals] = []
        self._is_quiet = False
        self._kill_at: float | None = None
        self._all_ended_well = True
        self.status = "starting"

    @property
    def number(self) -> int:
        """How many children there should be."""
        return len(self._slots)

    @property
    def alive(self) -> int:
        """How many children there are."""
        return len(self._children())

    def run(self) -> int:
        """Keep the processes running until a signal asks for the end, then wait for it. For the main thread only.

        Returns
        -------
        int
            The exit status for the parent: 0 if all children ended as they were asked to, or 1.

        Raises
        ------
        ConfigurationException
            If the parent cannot answer for the health of its children there.
        """
        with self._telling_health(), self._signals_and_pipes():
            while self.alive or not self._is_over():
                if self._caught is None:
                    self._start_children()
                elif self.status != "ending":
                    self._end_children()
                self._on_change(self)
                self._wait()
                self._pass_on()
                self._reap_children()
                if self._health:
                    self._health.serve()
                self._kill_overdue_children()
                self._kill_late_children()
            if self._caught and self.status != "ending":  # the last one ended by itself at that moment
                self._end_children()
        self._log("all processes have ended")
        return 0 if self._all_ended_well else 1

    def _log(self, message: str, level: int = logging.INFO) -> None:
        self._logger.log(level, f"[parent] {message}")

    def _is_over(self) -> bool:
        """Whether no more children are to be started, ever."""
        return self._caught is not None or all(slot.is_done for slot in self._slots)

    def _children(self) -> list[ForkProcess]:
        return [slot.process for slot in self._slots if slot.process]

    @contextmanager
    def _telling_health(self) -> Iterator[None]:
        port, host, path = self._health_at
        if port is None and not path:
            yield
            return
        from limpyd_jobs.workers.fleet.health import PoolHealth

        self._health = PoolHealth(self._verdicts, self._stalled_after / 4, port, host, path)
        if self._health.address:
            self._log(f"Health: {self._health.address}/health")
        try:
            yield
        finally:
            self._health.close()

    def _verdicts(self) -> dict[int, Verdict]:
        """Return what is known of the health of each process that there should be, by its pid; 0 for those to come."""
        ends = self._caught is not None or self._is_quiet
        slots = [slot for slot in self._slots if slot.process or not (slot.is_done or ends)]
        return {slot.pid: slot.verdict(self._stalled_after) for slot in slots}

    # -- Signals and pipes

    @contextmanager
    def _signals_and_pipes(self) -> Iterator[None]:
        self._reports = Reports()
        self._lifeline, self._held = os.pipe()  # nothing is written to it: it breaks when the parent ends
        self._signals, self._signalled = os.pipe()  # written when a signal arrives: one just before a wait ends it, too
        for pipe in (self._signals, self._signalled):
            os.set_blocking(pipe, False)
        self._previous_wakeup = signal.set_wakeup_fd(self._signalled, warn_on_full_buffer=False)
        self._handlers.take(self._catch, INTERRUPT, TERMINATE, signal.SIGCHLD)
        self._handlers.take_unhandled(self._catch, HANG_UP, *OTHER_SIGNALS)
        try:
            yield
        finally:
            self._restore_signals()
            self._reports.close()
            _close(self._lifeline, self._held, self._signals, self._signalled)

    def _restore_signals(self) -> None:
        signal.set_wakeup_fd(self._previous_wakeup)
        self._handlers.restore()

    def _catch(self, number: int, frame: FrameType | None) -> None:
        if number in END_SIGNALS and self._caught is None:
            self._caught = signal.Signals(number)
        elif number in OTHER_SIGNALS:
            self._to_pass_on.append(signal.Signals(number))

    def _wait(self) -> None:
        """Wait until a child ends or reports, a signal comes, or the time for something has come."""
        moments = [slot.due for slot in self._empty_slots()]
        if self._kill_at is not None:
            moments.append(self._kill_at)
        moments += [moment for slot in self._slots if (moment := slot.board.look_at) < inf and slot.process]
        watchdog = watchdog_interval()
        if watchdog:
            moments.append(monotonic() + watchdog)
        if self._health:
            moments.append(self._health.due)
        timeout = max(min(moments) - monotonic(), 0) if moments else None
        health = self._health.files if self._health else []
        readable, _, _ = select([self._reports.inbox, self._signals, *health], [], [], timeout)
        if self._signals in readable:
            os.read(self._signals, PIPE_BUF)  # the handlers have noted them
        if watchdog:
            notify("WATCHDOG=1")

    # -- Children

    def _start_children(self) -> None:
        for slot in self._empty_slots():
            if self._caught is None and monotonic() >= slot.due:
                self._start_child(slot)

    def _empty_slots(self) -> list[ChildProcess]:
        """Return the slots where to start another child."""
        if self._caught or self._is_quiet:
            return []
        return [slot for slot in self._slots if not slot.process and not slot.is_done]

    def _start_child(self, slot: ChildProcess) -> None:
        # A child without our handlers has none of its own yet.
        signal.pthread_sigmask(signal.SIG_BLOCK, (*END_SIGNALS, *OTHER_SIGNALS))
        try:
            process = slot.start(partial(self._live, slot.board, slot.killed))
            self._log(f"process {process.pid} started")
        except OSError as error:
            delay = slot.next_after(status=1)
            self._log(
                f"no process can be started, trying again in {delay:.1f} seconds: {one_line(error)}", logging.ERROR
            )
        finally:
            signal.pthread_sigmask(signal.SIG_UNBLOCK, (*END_SIGNALS, *OTHER_SIGNALS))

    def _live(self, board: Board, killed: Sequence[Overdue]) -> None:
        """Run the worker of a child, and end the process. What became of jobs that were killed is recorded first."""
        with suppress(KeyboardInterrupt):  # SIGINT, if the worker does not handle it, or is not made yet
            self._leave_parent()
            worker = self._make_worker()
            state = worker._run_state
            state.on_ready.append(self._ready)
            state.tell_health = (lambda verdict: self._reports.send(health=verdict)) if self._health else None
            state.parent = os.getppid()
            state.hard_limits = HardLimits(board, self._reports.send)
            state.killed, state.on_recorded = killed, board.recorded
            self._run_worker(worker)
            self._reports.send(worker.num_loops, state.is_done or state.is_for_good)

    def _leave_parent(self) -> None:
        """Close the parent's pipes, and watch for its end."""
        self._restore_signals()
        self._reports.leave_parent()
        _close(self._held, self._signals, self._signalled)
        if self._health:
            self._health.leave_parent()
        signal.pthread_sigmask(signal.SIG_UNBLOCK, END_SIGNALS)
        for name in VARIABLES:  # the parent speaks for all
            os.environ.pop(name, None)
        Thread(target=self._end_with_parent, name="limpyd-jobs-lifeline", daemon=True).start()

    def _ready(self) -> None:
        """Pass the signals that have come to the worker of a child, because it handles its signals now."""
        signal.pthread_sigmask(signal.SIG_UNBLOCK, OTHER_SIGNALS)
        self._reports.send()

    def _end_with_parent(self) -> None:
        os.read(self._lifeline, 1)
        thread = main_thread().ident
        assert thread is not None
        signal.pthread_kill(thread, signal.SIGTERM)

    def _reap_children(self) -> None:
        ended = [slot for slot in self._slots if slot.process and slot.process.exitcode is not None]
        for report in self._reports.take():
            for slot in self._slots:
                slot.note(report)
        for slot in ended:
            self._reap_child(slot)
        if self.status == "starting" and all(slot.was_ready for slot in self._slots):
            self.status = "quiet" if self._is_quiet else "running"
            notify("READY=1")

    def _reap_child(self, slot: ChildProcess) -> None:
        pid, status, jobs = slot.clear()
        what = f"process {pid} {_shown_end(status, jobs)}"
        level = logging.ERROR if status else logging.INFO
        if self._caught:
            if status in (0, -self._caught, -self._passed_on):
                level = logging.INFO
            else:
                self._all_ended_well = False
            self._log(what, level)
        elif slot.is_done or self._is_quiet:
            self._log(what, level)
        else:
            delay = slot.next_after(status)
            self._log(f"{what}, another one is started{f' in {delay:.1f} seconds' if delay else ''}", level)

    def _end_children(self) -> None:
        assert self._caught is not None
        self.status = "ending"
        notify("STOPPING=1")
        self._log(f"{self._caught.name} caught: ending all processes, after their running jobs")
        # A terminal sends SIGINT to the children, too; one more would be their second one, which releases their jobs.
        self._passed_on = TERMINATE if self._caught == INTERRUPT and has_terminal() else self._caught
        for process in self._children():
            _send(process, self._passed_on)
        if self._grace_period is not None:
            self._kill_at = monotonic() + self._grace_period + KILL_MARGIN

    def _pass_on(self) -> None:
        """Pass on the signals that do not ask for the end."""
        while self._to_pass_on:
            number = self._to_pass_on.pop(0)
            self._is_quiet = self._is_quiet or number == QUIET
            if self._is_quiet and self.status == "running":
                self.status = "quiet"
            self._log(f"{number.name} caught: passed on to {self.alive} processes")
            for process in self._children():
                _send(process, number)

    def _kill_overdue_children(self) -> None:
        """Kill the children whose jobs run for too long, and could not be interrupted there."""
        for slot in self._slots:
            overdue = slot.look_for_overdue()
            if overdue and slot.process:
                jobs = "a job" if len(overdue) == 1 else f"{len(overdue)} jobs"
                self._log(f"process {slot.pid} is killed: {jobs} could not be interrupted", logging.ERROR)
                _send(slot.process, signal.SIGKILL)

    def _kill_late_children(self) -> None:
        if self._kill_at is not None and monotonic() >= self._kill_at:
            self._kill_at = None
            for process in self._children():
                self._log(f"process {process.pid} does not end: it is killed", logging.CRITICAL)
                _send(process, signal.SIGKILL)


def _close(*pipes: int) -> None:
    for pipe in pipes:
        os.close(pipe)


def _send(process: ForkProcess, number: signal.Signals) -> None:
    if process.exitcode is None:  # so no other process has its id
        assert process.pid is not None
        os.kill(process.pid, number)


def _shown_end(status: int, jobs: int) -> str:
    if status > 0:
        return f"ended with exit status {status}"
    if status == 0:
        return f"ended after {jobs} jobs"
    try:
        return f"died of {signal.Signals(-status).name}"
    except ValueError:
        return f"died of signal {-status}"
