"""The models of this library from which those of applications come, and what these have their own way for."""

from __future__ import annotations

from typing import Any

from limpyd_jobs.functions import overrides


class Roots:
    """`BaseJobsModel`, `Job`, `Queue` and `Error`, each set where it is defined, for what stands below it."""

    base: Any
    job: Any
    queue: Any
    error: Any


roots = Roots()


def has_custom_queues(queue_model: Any) -> bool:
    """Whether a queue model has its own way to find a queue, or to put a job in it. Then that must be called."""
    return overrides(queue_model, roots.queue, "get_queue", "enqueue_job", "delay_job")


def has_custom_placement(job_class: Any, queue_model: Any) -> bool:
    """Whether a job class, or a queue model, has its own way to put a job in a queue. Then that must be called."""
    return overrides(job_class, roots.job, "enqueue_or_delay") or has_custom_queues(queue_model)
