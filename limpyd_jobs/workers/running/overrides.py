"""Which methods an application overrides: found out once, before the jobs are run."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from limpyd_jobs import transitions
from limpyd_jobs.functions import overrides, takes
from limpyd_jobs.models import Error, Job, Queue, has_custom_placement
from limpyd_jobs.models.pruning import keeps_no_success
from limpyd_jobs.records.lazy_fields import has_method
from limpyd_jobs.statuses import STATUSES
from limpyd_jobs.workers.running.strategies import CustomPlacement, FailAtOnce, FailStepByStep, OwnPlacement, Strategy

if TYPE_CHECKING:
    from limpyd_jobs.workers.engine import Engine
    from limpyd_jobs.workers.worker import Worker

# The hooks that end a job, and the methods of the job that may follow.
ENDS = {
    "job_success": "on_success",
    "job_skipped": "on_skipped",
    "job_delayed": "on_delayed",
    "job_error": "on_error",
    "job_requeued": "on_requeued",
}

METHODS = frozenset(ENDS.values())


class Overrides:
    """What is overridden of a worker, by its class or on the object itself, and of its jobs. `base` has our versions.

    Attributes
    ----------
    waits_as_we_do: bool
        Whether `wait_for_job` is ours.
    may_buffer: bool
        Whether no code of the application decides about successes, or about their queue.
    """

    def __init__(self, engine: Engine, base: type[Worker]) -> None:
        self._engine = engine
        self._base = base
        self._hooks: dict[str, Callable[..., Any]] = {}
        self._strategies: dict[tuple[type, type], Strategy] = {}
        chained = [hook for hook in ENDS if self._are_ours("must_stop", "wait_for_job", hook)]
        self._chained_hooks = frozenset(chained)
        self.waits_as_we_do = self._are_ours("wait_for_job")
        self._has_our_success, self._has_our_skip = self._are_ours("job_success"), self._are_ours("job_skipped")
        self.may_buffer = "job_success" in self._chained_hooks and self._are_ours("get_queue")

    def _are_ours(self, *names: str) -> bool:
        return not overrides(self._engine.worker, self._base, *names)

    def hook(self, name: str, *args: Any) -> Any:
        """Call a hook that version 2 does not have: our own, if the application uses its name for something else."""
        if name not in self._hooks:
            hook: Any = getattr(self._engine.worker, name, None)
            self._hooks[name] = hook if takes(hook, *args) else getattr(self._base, name).__get__(self._engine.worker)
        return self._hooks[name](*args)

    def of(self, job: Job, queue: Queue) -> Strategy:
        """Return the strategy of a job: the one of its class, unless the job has methods of its own."""
        if not vars(job).keys().isdisjoint(METHODS):
            return self._find_strategy(job, queue)
        kind = type(job), type(queue)
        if kind not in self._strategies:
            self._strategies[kind] = self._find_strategy(job, queue)
        return self._strategies[kind]

    def _find_strategy(self, job: Job, queue: Queue) -> Strategy:
        is_custom = has_custom_placement(type(job), type(queue))
        fail = FailStepByStep if is_custom or self._overrides_errors(job) else FailAtOnce
        return Strategy(
            frozenset(hook for hook in self._chained_hooks if not has_method(job, ENDS[hook])),
            fail(self._engine),
            (CustomPlacement if is_custom else OwnPlacement)(self._engine),
            self._may_erase(job, queue),
        )

    def _may_erase(self, job: Job, queue: Queue) -> bool:
        """Whether a job that succeeded is not kept, and no code of the application sees it after that."""
        return (
            keeps_no_success(type(queue), self._engine.settings.keep_success)
            and transitions.is_erased_at_once(type(job))
            and "job_success" in self._chained_hooks
            and self._are_ours("job_success_message")
            and not has_method(job, "on_success")
        )

    def _overrides_errors(self, job: Job) -> bool:
        """Whether code of the application sees the job between its error and its return to a queue."""
        return (
            not self._are_ours("additional_error_fields", "job_error_message", "requeue_job")
            or overrides(type(job), Job, "requeue", "must_be_cancelled_on_error")
            or overrides(self._engine.worker.error_model, Error, "add_error")
            or has_method(job, "on_error")
            or has_method(job, "on_requeued")
        )

    # -- The status that an overridden hook finds: as in version 2, the one that the job gave itself

    def status_after_run(self, job: Job) -> str:
        """Return this status, or running for our own `job_success`, which finds out by itself."""
        return STATUSES.RUNNING if self._has_our_success else self._engine.redis_retry.retry(job.status.hget)

    def set_canceled(self, job: Job) -> None:
        """Store the status, unless our own `job_skipped` does so."""
        if not self._has_our_skip:
            self._engine.redis_retry.retry(job.status.hset, STATUSES.CANCELED)
