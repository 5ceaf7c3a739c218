"""A module named as our decorator, whose functions are named as our models."""

from __future__ import annotations

import limpyd_jobs


@limpyd_jobs.job
def job(text: str) -> str:
    return f"job {text}"


@limpyd_jobs.job
def queue(text: str) -> str:
    return f"queue {text}"


@limpyd_jobs.job()
def error(text: str) -> str:
    return f"error {text}"


@limpyd_jobs.job
def Job(text: str) -> str:  # noqa: N802
    return f"Job {text}"
