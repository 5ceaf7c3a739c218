"""A task that says more than Django asks: when it is added, and when it is tried again."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Any

from limpyd_jobs import Exponential, Retry
from limpyd_jobs.contrib.django.tasks.framework import InvalidTask, Task, task_backends

# The value of enqueue_on_commit for tasks that are written to the outbox.
OUTBOX = "outbox"

NAMES = ("priority", "queue_name", "run_after", "backend")


@dataclass(frozen=True, slots=True, kw_only=True)
class LimpydTask(Task):
    """A task of `LimpydBackend`. Give the following to the decorator ``task``, or to ``using``.

    Attributes
    ----------
    enqueue_on_commit: bool or "outbox"
        Whether it is added once the transaction is committed that adds it; ``"outbox"`` to write it to the outbox in
        that transaction. None for what the backend says.
    max_attempts: int
        How often it is run at most, if it fails. None for what the worker says.
    backoff: float, list of float, or Exponential
        How many seconds to wait after each failure: see `Retry`.
    unique: bool
        Whether it is not added if it is queued already with the same arguments. The result is then that of both; its id
        depends on the task and the arguments only, so it is that of the last such run.
    keep_result: bool
        Whether its return value is kept.
    """

    enqueue_on_commit: Any = None
    max_attempts: int | None = None
    backoff: Any = None
    unique: bool = False
    keep_result: bool = True

    def __post_init__(self) -> None:
        Task.__post_init__(self)
        self.retry()
        if self.enqueue_on_commit not in (None, True, False, OUTBOX):
            raise InvalidTask(f"enqueue_on_commit must be True, False or {OUTBOX!r}, not {self.enqueue_on_commit!r}")
        for name in ("unique", "keep_result"):
            if not isinstance(getattr(self, name), bool):
                raise InvalidTask(f"{name} must be True or False, not {getattr(self, name)!r}")

    def retry(self) -> Retry | None:
        """Return when it is tried again, as jobs say that; None for what the worker says."""
        attempts = self.max_attempts
        if attempts is None and self.backoff is None:
            return None
        if attempts is None and not isinstance(self.backoff, (list, tuple)):
            raise InvalidTask("A backoff needs max_attempts, unless it is a list of delays")
        if attempts is not None and (type(attempts) is not int or attempts < 1):
            raise InvalidTask(f"max_attempts must be an integer of 1 or more, not {attempts!r}")
        delay = Exponential() if self.backoff is None else self.backoff
        try:
            return Retry(None if attempts is None else attempts - 1, delay)
        except (TypeError, ValueError) as error:
            raise InvalidTask(f"max_attempts and backoff do not go: {error}") from error

    def using(self, **changes: Any) -> LimpydTask:
        """Return the same task with other values; None for no other one."""
        given = {name: value for name, value in changes.items() if not (name in NAMES and value is None)}
        made: LimpydTask = replace(self, **given)
        return made


def task(
    function: Callable[..., Any] | None = None,
    *,
    priority: int = 0,
    queue_name: str = "default",
    backend: str = "default",
    takes_context: bool = False,
    run_after: datetime | None = None,
    **options: Any,
) -> Any:
    """Make a function a task, as the decorator of Django does. With Django 6.0, only this one takes the options of
    `LimpydTask`."""

    def made(func: Callable[..., Any]) -> Any:
        return task_backends[backend].task_class(
            func=func,
            priority=priority,
            queue_name=queue_name,
            backend=backend,
            takes_context=takes_context,
            run_after=run_after,
            **options,
        )

    return made(function) if function else made
