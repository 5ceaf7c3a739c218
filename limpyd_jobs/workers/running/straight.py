"""The way of a job of which the application overrides nothing: `Worker` is not entered."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from limpyd_jobs.models import Job, Queue, job_classes
from limpyd_jobs.records import records
from limpyd_jobs.statuses import STATUSES
from limpyd_jobs.transitions import Delivery
from limpyd_jobs.workers.overrides import METHODS, Overrides
from limpyd_jobs.workers.run import Run, Runs, Way
from limpyd_jobs.workers.running.announcer import Announcer
from limpyd_jobs.workers.running.strategies import Strategies, Strategy


@dataclass(eq=False)
class Straight:
    """Makes the objects of a job, and does what the hooks of the worker would do. What can be seen of it is the same.

    Its jobs are those whose class has no method for their start or success, which is found out when the class is first
    met. An application may override methods on the worker, on the job, or on its class, while that runs: from then on,
    the job goes by the hooks.
    """

    queue_model: type[Queue]
    runs: Runs
    overrides: Overrides
    strategies: Strategies
    announcer: Announcer
    by_hooks: Way
    succeed: Callable[[Run, Strategy, Any], None]  # records that a job succeeded, now or later

    def __post_init__(self) -> None:
        self._met: dict[str, tuple[type[Job], Strategy]] = {}  # by the path of the class

    def run_of(self, delivery: Delivery) -> Run:
        """Return the run of a job that was claimed, with its objects."""
        try:
            job_class, strategy = self._met.get(delivery.path) or (job_classes.resolve(delivery.path), None)
            job = records.attached(job_class, delivery.pk)
            known = {"_cached_name": delivery.queue_name, "_cached_priority": delivery.queue_priority}
            queue = records.attached(self.queue_model, delivery.queue_pk, **known)
            run = Run(delivery, job, queue)
            run.strategy = strategy if strategy and vars(job).keys().isdisjoint(METHODS) else self._meet(run)
            run.way = self if run.strategy.is_straight else self.by_hooks
        except BaseException:
            self.runs.offer(delivery)  # so that it is released
            raise
        self.runs.running[run] = None
        return run

    def _meet(self, run: Run) -> Strategy:
        """Find out how a job is ended; if it is one like the others of its class, keep that for these."""
        strategy = self.strategies.of(run.job, run.queue)
        if vars(run.job).keys().isdisjoint(METHODS):  # else it is the strategy of this object
            self._met[run.delivery.path] = type(run.job), strategy
        return strategy

    def start(self, run: Run) -> None:
        if self.overrides.is_straight and not hasattr(type(run.job), "on_started"):
            self.announcer.started(run)
        else:
            self._by_hooks(run).start(run)

    def executed(self, run: Run, result: Any) -> None:
        job = run.job
        if not self.overrides.is_straight or not vars(job).keys().isdisjoint(METHODS):
            self._by_hooks(run).executed(run, result)
            return
        vars(job)["_cached_status"] = STATUSES.RUNNING
        if "_pk" not in vars(run.queue):
            run.queue = run.living_queue()
        self.succeed(run, run.strategy, result)

    def succeeded(self, run: Run) -> None:
        if not hasattr(type(run.job), "on_success"):
            self.announcer.succeeded(run)
        else:
            self._by_hooks(run).succeeded(run)

    def _by_hooks(self, run: Run) -> Way:
        """Let a job go by the hooks from now on: something was overridden meanwhile."""
        run.way = self.by_hooks
        return self.by_hooks
