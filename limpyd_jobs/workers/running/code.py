"""The code of a job: called on the thread of the worker, or begun in a slot; interrupted when its time is over."""

from __future__ import annotations

from collections.abc import Callable
from contextvars import copy_context
from dataclasses import dataclass
from functools import partial
from time import monotonic
from types import CoroutineType, TracebackType
from typing import Any

from limpyd_jobs.arguments import own_seconds, read_seconds
from limpyd_jobs.exceptions import CodeNotRun, JobTimeout
from limpyd_jobs.fields.argument import know_all_arguments
from limpyd_jobs.functions import is_async, is_coroutine, is_unrun, memoized, why_unrun
from limpyd_jobs.models import Job
from limpyd_jobs.models.functions.current import running_job
from limpyd_jobs.observing import instruments
from limpyd_jobs.observing.instruments import Around, Running, as_attempt, call_in_thread
from limpyd_jobs.redis.forks import end_child, this_process
from limpyd_jobs.threads import DaemonThreads
from limpyd_jobs.workers.context import Face, RunState
from limpyd_jobs.workers.log import label_of
from limpyd_jobs.workers.overrides import Overrides
from limpyd_jobs.workers.run import Run
from limpyd_jobs.workers.running.event_loop import Awaiting, AwaitingBeside, EventLoop
from limpyd_jobs.workers.running.interrupting import Canceling, Limits
from limpyd_jobs.workers.running.recorder import RedisRetry
from limpyd_jobs.workers.running.slots import Slot, Slots
from limpyd_jobs.workers.running.threads import code_of
from limpyd_jobs.workers.timers import JobTimer


@dataclass(eq=False)
class JobCode:
    """Knows what the code of a job is, and calls it in the thread of the worker."""

    worker: Face
    overrides: Overrides
    redis_retry: RedisRetry
    timer: JobTimer
    awaiting: Awaiting
    state: RunState

    def __post_init__(self) -> None:
        self._our_execute = self.overrides.base.execute
        self._met: set[type[Job]] = set()

    def call_inside(self, run: Run) -> Any:
        """Do as `call`, with the instruments around it."""
        with Around(Running(run.job, run.delivery.queue_name, as_attempt(run.delivery.tries), self.worker.id)):
            return self.call(run)

    def call(self, run: Run) -> Any:
        """Call the hook for the start of a job, then its code, and end that when its time is over."""
        job, worker, pid = run.job, self.worker, this_process.pid
        running_job.set(job)  # in the context that this job has for itself
        run.way.start(run)
        if this_process.pid != pid:
            end_child()
        function = worker.callback or worker.execute
        is_ours = getattr(function, "__func__", None) is self._our_execute
        seconds = self.timeout_of(run)
        if seconds is not None:
            self.timer.set("job", seconds, JobTimeout(f"It ran for more than {seconds} seconds"))
            place = self.begin_limit(run, seconds)
        self.timer.arm()
        began, run.is_running, was_interrupted = monotonic(), True, False
        try:
            result = job.run(run.queue) if is_ours else function(job, run.queue)
            if type(result) is CoroutineType:
                result = self._await(job, function, result)
        finally:
            run.ran, run.is_running = monotonic() - began, False
            if this_process.pid != pid:
                end_child()
            self.timer.disarm()
            if seconds is not None:
                was_interrupted = self.timer.clear("job")
                self.end_limit(place)
        if was_interrupted:
            self.worker.log(f"{label_of(job)} swallowed JobTimeout, and went on to its end all the same", "warning")
            raise JobTimeout(f"It ran for more than {seconds} seconds")
        if result is not None and is_unrun(result):
            self.check_has_run(job, function, result)
        return result

    def met(self, job_class: type[Job], own_timeout: str) -> None:
        """Warn once of a class that asks to kill the process of its jobs, which only a parent process can do, and only
        of jobs with a time limit. Its first job here may have one of its own."""
        if job_class in self._met:
            return
        self._met.add(job_class)
        if not own_seconds(job_class.kill_after):
            return
        has = f"{job_class.get_model_repr()} has kill_after = {job_class.kill_after:g}, but"
        if self.state.hard_limits is None:
            parent = (
                "this worker has no parent that could kill its process: start it with --processes, or with --kill-after"
            )
            self.worker.log(f"{has} {parent}", "warning")
        elif not (own_timeout or own_seconds(job_class.default_job_timeout) or self.worker._settings.job_timeout):
            limit = "no time limit, from which that counts: give it default_job_timeout, or each job a job_timeout"
            self.worker.log(f"{has} {limit}", "warning")

    def begin_limit(self, run: Run, seconds: float) -> int | None:
        """Let the parent kill this process if a job goes on for too long after its time limit; see `end_limit`."""
        limits = self.state.hard_limits
        return limits.begin(run, seconds, self.worker._settings.kill_after) if limits else None

    def end_limit(self, place: int | None) -> None:
        """The code of a job has ended. Any thread may say so."""
        if place is not None:
            self.state.hard_limits.end(place)

    def _await(self, job: Job, function: Any, coroutine: CoroutineType[Any, Any, Any]) -> Any:
        """Await the coroutine of an async function. One that another function returned may be there by mistake."""
        self.timer.disarm()
        if is_async(job.run) or is_async(function):
            try:
                self.read_arguments(job)
            except BaseException:
                coroutine.close()
                raise
            with code_of(job):
                return self.awaiting.run(coroutine, self.timer)
        return coroutine

    def read_arguments(self, job: Job) -> None:
        """Read the arguments that did not come with the claim of the job, so that a coroutine has all at hand."""
        self.redis_retry.retry(know_all_arguments, job)

    def timeout_of(self, run: Run, *, needs_signal: bool = True) -> float | None:
        """Return the seconds a job may run, as the job, else its class, else the worker says; None for no limit, or if
        that needs a signal, and this thread gets none."""
        job, given = run.job, run.delivery.job_timeout
        seconds = read_seconds(given) if given else None
        if seconds is None and job.default_job_timeout is not None:
            seconds = own_seconds(job.default_job_timeout)
        if seconds is None:
            seconds = self.worker._settings.job_timeout
        if not (seconds and needs_signal) or self.timer.is_possible():
            return seconds or None
        if not (is_async(job.run) or is_async(self.worker.callback)):
            self.worker.log(f"{label_of(job)} may run for ever: a time limit needs the main thread", "warning")
            return None
        return seconds or None

    def check_has_run(self, job: Job, function: Any, result: Any) -> None:
        """Raise `CodeNotRun` if the code of a job returned a coroutine or a generator instead of doing its work.

        Generators that the application's own `execute` returns are left to its hooks.
        """
        is_ours = self.is_ours(function)
        if is_ours or function != self.worker.execute or is_coroutine(result):
            raise CodeNotRun(why_unrun(job.run if is_ours else function, result))

    def is_ours(self, function: Any) -> bool:
        """Whether what runs jobs is our own `Worker.execute`, which only calls the method of the job."""
        return getattr(function, "__func__", None) is self._our_execute

    def interrupted(self) -> None:
        """The code was interrupted: let nothing interrupt what follows, and drop connections, as one may still have a
        reply for it."""
        self.timer.disarm()
        self.redis_retry.disconnect()


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
        if self._canceling.early:
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
        call = partial(job.run, queue) if code.is_ours(function) else partial(function, job, queue)
        seconds = code.timeout_of(run, needs_signal=False)
        if seconds is not None:  # before its code begins, which may let nothing else run
            place = code.begin_limit(run, seconds)
            if place is not None:
                slot.limit(partial(code.end_limit, place))
        if self._is_async(job, function):
            code.read_arguments(job)
            slot.begin_on(self.event_loop, call(), later=later)
        else:
            call = partial(self._call, job, call)
            if slot.around is not None:
                call = partial(call_in_thread, job, call)
            slot.begin_in(self._threads.submit, self.event_loop, call)
        if seconds is not None:
            self._limits.set(slot, seconds, JobTimeout(f"It ran for more than {seconds} seconds"))

    def _call(self, job: Job, call: Callable[[], Any]) -> Any:
        """Call an ordinary function; await a coroutine that it got from the job, as it may well do."""
        result = call()
        if is_coroutine(result) and is_async(job.run):
            self._code.read_arguments(job)
            return Awaiting(self.event_loop).run(result)
        return result

    def _is_async(self, job: Job, function: Any) -> bool:
        return (
            _has_async_run(type(job)) if self._code.is_ours(function) and "run" not in vars(job) else is_async(function)
        )


@memoized
def _has_async_run(job_class: type[Job]) -> bool:
    return is_async(job_class.run)
