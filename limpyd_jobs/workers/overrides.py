"""Which methods an application overrides: found out once, before the jobs are run."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any

from limpyd_jobs import transitions
from limpyd_jobs.functions import overrides, takes
from limpyd_jobs.models import Error, Job, Queue
from limpyd_jobs.models.pruning import keeps_no_success
from limpyd_jobs.records.lazy_fields import has_method
from limpyd_jobs.workers.context import Face

# The hooks that end a job, and the methods of the job that may follow.
ENDS = {
    "job_success": "on_success",
    "job_skipped": "on_skipped",
    "job_delayed": "on_delayed",
    "job_error": "on_error",
    "job_requeued": "on_requeued",
}

# The methods of a job that an object may have of its own.
METHODS = frozenset((*ENDS.values(), "on_started"))

# What a job meets of its worker on its way from the list to its success, beside its code.
ON_THE_WAY = frozenset(
    (
        *("log", "must_stop", "set_status", "wait_for_job", "get_queue", "get_job"),
        *("job_started", "job_started_message", "job_success", "job_success_message"),
    )
)


@dataclass(eq=False)
class Overrides:
    """What is overridden of a worker, by its class or on the object itself, and of its jobs. `base` has ours."""

    worker: Face
    base: type[Face]
    settings: SimpleNamespace

    def __post_init__(self) -> None:
        self.refresh()

    def refresh(self) -> None:
        """Find out what is overridden of the worker now."""
        self._hooks: dict[str, Callable[..., Any]] = {}
        self._was_straight = self._are_ours(*ON_THE_WAY) and type(self.worker).id is self.base.id
        self._started, self._succeeded = self.base.job_started, self.base.job_success
        chained = [hook for hook in ENDS if self._are_ours("must_stop", "wait_for_job", hook)]
        self._chained_hooks = frozenset(chained)
        # Whether `wait_for_job`, `job_success` and `job_skipped` are ours.
        self.waits_as_we_do = self._are_ours("wait_for_job")
        self.has_our_status = self._are_ours("set_status")
        self.has_our_success, self.has_our_skip = self._are_ours("job_success"), self._are_ours("job_skipped")
        # Whether no code of the application finds jobs or queues by what names them in its own shard only.
        self.may_visit = self._are_ours("wait_for_job", "get_job", "get_queue")
        # Whether no code of the application decides about successes, or about their queue.
        self.may_record_later = "job_success" in self._chained_hooks and self._are_ours("get_queue")

    @property
    def is_straight(self) -> bool:
        """Whether nothing of the worker is overridden that a job meets on its way: a job may change that, on the worker
        or, of the two hooks, on its class."""
        worker, kind = self.worker, type(self.worker)
        is_same = kind.job_success is self._succeeded and kind.job_started is self._started
        return self._was_straight and is_same and vars(worker).keys().isdisjoint(ON_THE_WAY)

    def _are_ours(self, *names: str) -> bool:
        return not overrides(self.worker, self.base, *names)

    def hook(self, name: str, *args: Any) -> Any:
        """Call a hook that version 2 does not have: our own, if the application uses its name for something else."""
        if name not in self._hooks:
            hook: Any = getattr(self.worker, name, None)
            self._hooks[name] = hook if takes(hook, *args) else getattr(self.base, name).__get__(self.worker)
        return self._hooks[name](*args)

    def chained_hooks_of(self, job: Job) -> frozenset[str]:
        """The hooks after which no code of the application sees the job."""
        return frozenset(hook for hook in self._chained_hooks if not has_method(job, ENDS[hook]))

    def may_erase(self, job: Job, queue: Queue) -> bool:
        """Whether a job that succeeded is not kept, and no code of the application sees it after that."""
        return (
            keeps_no_success(type(queue), self.settings.keep_success)
            and transitions.is_erased_at_once(type(job))
            and "job_success" in self._chained_hooks
            and self._are_ours("job_success_message")
            and not has_method(job, "on_success")
        )

    def overrides_errors(self, job: Job) -> bool:
        """Whether code of the application sees the job between its error and its return to a queue."""
        return (
            not self._are_ours("additional_error_fields", "job_error_message", "requeue_job")
            or overrides(type(job), Job, "requeue", "must_be_cancelled_on_error")
            or overrides(self.worker.error_model, Error, "add_error")
            or has_method(job, "on_error")
            or has_method(job, "on_requeued")
        )
