"""Letting the code of jobs begin, each in a slot: coroutines on an event loop, ordinary functions in threads."""

from __future__ import annotations

from contextvars import copy_context
from functools import partial
from types import TracebackType
from typing import Any

from limpyd_jobs.exceptions import JobTimeout
from limpyd_jobs.functions import is_async, is_coroutine, memoized
from limpyd_jobs.models import Job, Queue
from limpyd_jobs.observing import instruments
from limpyd_jobs.observing.instruments import Around, Running, as_attempt, call_in_thread
from limpyd_jobs.threads import DaemonThreads
from limpyd_jobs.workers.concurrent.awaiting import Awaiting, AwaitingBeside
from limpyd_jobs.workers.concurrent.event_loop import EventLoop
from limpyd_jobs.workers.concurrent.interrupting import Canceling, Limits
from limpyd_jobs.workers.concurrent.slots import Slot, Slots
from limpyd_jobs.workers.concurrent.stepping import running_job
from limpyd_jobs.workers.context import Face
from limpyd_jobs.workers.run import Run
from limpyd_jobs.workers.running.code import JobCode


class Starter:
    """Begins jobs in slots, with what interrupts them while the context is entered."""

    def __init__(
        self,
        worker: Face,
        slots: Slots,
        code: JobCode,
        awaiting: AwaitingBeside,
        event_loop: EventLoop,
        limits: Limits,
        canceling: Canceling,
    ) -> None:
        self._worker, self._code, self._limits, self._canceling = worker, code, limits, canceling
        self.slots, self.awaiting, self.event_loop = slots, awaiting, event_loop
        self._threads = DaemonThreads(slots.limit, "limpyd-jobs-plain")

    def __enter__(self) -> None:
        self.slots.bell.open()
        self._limits.__enter__()
        self._canceling.__enter__()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._canceling.__exit__(kind, error, trace)
        self._limits.__exit__(kind, error, trace)

    def close(self, *, is_hurried: bool) -> None:
        """End the threads and the event loop."""
        self._threads.shutdown()
        self.event_loop.close(is_hurried=is_hurried)

    def cancel(self, run: Run) -> None:
        """Interrupt a job that was canceled. Any thread may do so."""
        self._canceling.cancel(run)

    def begin(self, run: Run, *, later: bool) -> None:
        """Take a slot for a job, and let it begin; for `later` see `EventLoop.start`."""
        slot = Slot(run, copy_context(), self.slots.ended)
        self.slots.take(slot)
        self._canceling.begun(slot)
        try:
            slot.context.run(self._start, slot, later)
        except BaseException as error:
            slot.fail(error)
            self.slots.ended(slot)

    def _start(self, slot: Slot, later: bool) -> None:
        """Call the hook for the start of a job, and let its code run."""
        run, worker, code = slot.run, self._worker, self._code
        job, queue = run.job, run.queue
        running_job.set(job)
        if instruments.installed:
            slot.around = Around(Running(job, run.delivery.queue_name, as_attempt(run.delivery.tries), worker.id))
            slot.around.__enter__()
        self.awaiting.keep_in(slot.before)
        try:
            run.way.start(run)
        finally:
            self.awaiting.keep_in(None)
            slot.end_if_forked()
        function = worker.callback or worker.execute
        seconds = code.timeout_of(run, needs_signal=False)
        if self._is_async(job, function):
            code.read_arguments(job)
            slot.begin_on(self.event_loop, function(job, queue), later=later)
        else:
            awaiting = Awaiting(self.event_loop)
            call = partial(self._call, awaiting, function, job, queue)
            if slot.around is not None:
                call = partial(call_in_thread, job, call)
            slot.begin_in(self._threads.submit, awaiting, call)
        if seconds is not None:
            self._limits.set(slot, seconds, JobTimeout(f"It ran for more than {seconds} seconds"))

    def _call(self, awaiting: Awaiting, function: Any, job: Job, queue: Queue) -> Any:
        """Call an ordinary function; await a coroutine that it got from the job, as it may well do."""
        result = function(job, queue)
        if is_coroutine(result) and is_async(job.run):
            self._code.read_arguments(job)
            return awaiting.run(result)
        return result

    def _is_async(self, job: Job, function: Any) -> bool:
        return (
            _has_async_run(type(job)) if self._code.is_ours(function) and "run" not in vars(job) else is_async(function)
        )


@memoized
def _has_async_run(job_class: type[Job]) -> bool:
    return is_async(job_class.run)
