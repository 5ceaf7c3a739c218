"""Jobs, and workers with a hook of their own, for the tests of hooks."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime
from typing import Any

import pytest
from limpyd import fields
from running import fail, succeed, work

from limpyd_jobs import STATUSES, Error, Job, Queue, Worker

FAR = datetime(2099, 1, 2, 3, 4, 5, 678)


class Task(Job):
    namespace = "hooks"
    queue_name = "queue"


class Special(Job):
    namespace = "hooks"
    queue_name = "queue"
    note = fields.InstanceHashField()


class SpecialQueue(Queue):
    namespace = "hooks"


class DetailedError(Error):
    namespace = "hooks"
    severity = fields.InstanceHashField(indexable=True)
    hints = fields.ListField()


def set_status(status: str, **values: Any) -> Callable[[Job, Queue], None]:
    """Return a callback that changes the status, and maybe other fields, of its job."""

    def callback(job: Job, queue: Queue) -> None:
        for name, value in values.items():
            job.get_field(name).hset(str(value))
        job.status.hset(status)

    return callback


@dataclass(frozen=True)
class Case:
    """A way to a hook of the worker, and what becomes of the job.

    Attributes
    ----------
    hook, event: str
        The names of the hook, and of the method of the job for the same event.
    status_before: str
        The status that somebody else gives the job while it waits.
    before: tuple
        The status, and `queued`, when the hook begins.
    cached_status: str
        The status that the hook may read without asking Redis.
    after: tuple
        The same as `before`, when the hook is done.
    """

    hook: str
    event: str
    callback: Callable[[Job, Queue], Any]
    before: tuple[str, str | None]
    cached_status: str
    after: tuple[str, str | None]
    status_before: str | None = None
    requeue_times: int = 0

    @property
    def message(self) -> str:
        return {"requeue_job": "job_requeue"}.get(self.hook, self.hook) + "_message"

    def add_job(self) -> Task:
        """Add the job, the only one of the identifier ``a``."""
        job = Task.add_job("a", priority=2)
        if self.status_before:
            job.status.hset(self.status_before)
        return job

    def work(self, worker_class: type[Worker] = Worker, **options: Any) -> Worker:
        return work(
            worker_class=worker_class, **{"callback": self.callback, "requeue_times": self.requeue_times, **options}
        )


CASES = {
    "started": Case("job_started", "on_started", succeed, ("r", "1"), "w", ("s", None)),
    "success": Case("job_success", "on_success", succeed, ("r", "1"), "r", ("s", None)),
    "error": Case("job_error", "on_error", fail, ("r", "1"), "w", ("e", None)),
    "error, then requeued": Case("job_error", "on_error", fail, ("r", "1"), "w", ("d", "1"), requeue_times=1),
    "requeued": Case("requeue_job", "on_requeued", fail, ("e", "1"), "w", ("d", "1"), requeue_times=1),
    "canceled while waiting": Case(
        "job_skipped", "on_skipped", succeed, ("c", "1"), "c", ("c", None), status_before=STATUSES.CANCELED
    ),
    "canceled while running": Case(
        "job_skipped", "on_skipped", set_status(STATUSES.CANCELED), ("c", "1"), "c", ("c", None)
    ),
    "delayed while waiting": Case(
        "job_delayed", "on_delayed", succeed, ("d", "1"), "d", ("d", "1"), status_before=STATUSES.DELAYED
    ),
    "delayed while running": Case(
        "job_delayed", "on_delayed", set_status(STATUSES.DELAYED), ("d", "1"), "d", ("d", "1")
    ),
}


each_case = pytest.mark.parametrize("case", CASES.values(), ids=CASES.keys())


def with_hook(name: str, hook: Callable[..., Any]) -> type[Worker]:
    """Return a worker class that has another version of one method."""
    return type("WorkerWithHook", (Worker,), {name: hook})


def state(job: Job) -> tuple[str, str | None]:
    status, queued = job.hmget("status", "queued")
    return status, queued


def is_mine(job: Job) -> bool:
    """Whether a job is the one that the case is about, and not the next one."""
    return bool(job.identifier.hget() == "a")


class Oops(Exception):
    """Raised in hooks."""


class RunningTask(Job):
    namespace = "hooks"
    queue_name = "queue"

    def run(self, queue: Queue) -> str:
        return f"{self.identifier.hget()} in {queue.name.hget()}"
