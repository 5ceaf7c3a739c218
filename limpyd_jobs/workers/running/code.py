"""The code of a job, on the thread of the worker: called, awaited, interrupted when its time is over."""

from __future__ import annotations

from dataclasses import dataclass
from time import monotonic
from types import CoroutineType
from typing import Any

from limpyd_jobs.arguments import own_seconds, read_seconds
from limpyd_jobs.exceptions import CodeNotRun, JobTimeout
from limpyd_jobs.fields.argument import know_all_arguments
from limpyd_jobs.functions import is_async, is_coroutine, is_unrun, why_unrun
from limpyd_jobs.models import Job
from limpyd_jobs.observing.instruments import Around, Running, as_attempt
from limpyd_jobs.redis.forks import end_child, this_process
from limpyd_jobs.workers.concurrent.awaiting import Awaiting
from limpyd_jobs.workers.concurrent.stepping import code_of
from limpyd_jobs.workers.context import Face
from limpyd_jobs.workers.log import label_of
from limpyd_jobs.workers.overrides import Overrides
from limpyd_jobs.workers.redis_retry import RedisRetry
from limpyd_jobs.workers.run import Run
from limpyd_jobs.workers.timers import JobTimer


@dataclass(eq=False)
class JobCode:
    """Knows what the code of a job is, and calls it in the thread of the worker."""

    worker: Face
    overrides: Overrides
    redis_retry: RedisRetry
    timer: JobTimer
    awaiting: Awaiting

    def __post_init__(self) -> None:
        self._our_execute = self.overrides.base.execute

    def call_inside(self, run: Run) -> Any:
        """Do as `call`, with the instruments around it."""
        with Around(Running(run.job, run.delivery.queue_name, as_attempt(run.delivery.tries), self.worker.id)):
            return self.call(run)

    def call(self, run: Run) -> Any:
        """Call the hook for the start of a job, then its code, and end that when its time is over."""
        job, worker, pid = run.job, self.worker, this_process.pid
        run.way.start(run)
        if this_process.pid != pid:
            end_child()
        function = worker.callback or worker.execute
        is_ours = getattr(function, "__func__", None) is self._our_execute
        seconds = self.timeout_of(run)
        if seconds is not None:
            self.timer.set("job", seconds, JobTimeout(f"It ran for more than {seconds} seconds"))
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
        if was_interrupted:
            self.worker.log(f"{label_of(job)} swallowed JobTimeout, and went on to its end all the same", "warning")
            raise JobTimeout(f"It ran for more than {seconds} seconds")
        if result is not None and is_unrun(result):
            self.check_has_run(job, function, result)
        return result

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
