"""The models of this library from which those of applications come, and what these have their own way for."""

from __future__ import annotations

from inspect import unwrap
from typing import Any

from limpyd_jobs.functions import overrides


class Roots:
    """`BaseJobsModel`, `Job`, `Queue`, `Error` and `JobFunction`, each set where it is defined, for what stands below
    it; and what is called with each new class of jobs and its `run`, once the process has a resource."""

    base: Any
    job: Any
    queue: Any
    error: Any
    job_function: Any = None
    prepare_run: Any = None


roots = Roots()


def has_custom_queues(queue_model: Any) -> bool:
    """Whether a queue model has its own way to find a queue, or to put a job in it. Then that must be called."""
    return overrides(queue_model, roots.queue, "get_queue", "enqueue_job", "delay_job")


def has_custom_placement(job_class: Any, queue_model: Any) -> bool:
    """Whether a job class, or a queue model, has its own way to put a job in a queue. Then that must be called."""
    if overrides(job_class, roots.job, "enqueue_or_delay"):
        return True
    return queue_model is not roots.queue and has_custom_queues(queue_model)


def extends(job_class: Any, name: str) -> bool:
    """Whether a class has a method of this name that calls ours. Version 2 lacks ours, so it may be another thing."""
    if not overrides(job_class, roots.job, name):
        return False
    code: Any = getattr(unwrap(getattr(job_class, name)), "__code__", None)
    callers = {"super", *(base.__name__ for base in job_class.__mro__)}
    return bool(code) and name in code.co_names and not callers.isdisjoint(code.co_names)
