"""The job that runs a task."""

from __future__ import annotations

import hashlib
import json
import logging
from datetime import datetime
from typing import Any, NoReturn

from limpyd_jobs import Argument, Job, Queue, Requeue
from limpyd_jobs.contrib.django.tasks.framework import TaskContext, normalize_json
from limpyd_jobs.contrib.django.tasks.resolving import UnknownTask, task_at
from limpyd_jobs.contrib.django.tasks.results import running_result

# How often a worker that does not have the task puts the job back, for another worker, and after how many seconds.
RETURNS, RETURN_DELAY = 10, 30

# Of how many tasks the log of a worker says that it does not have them.
MAX_WARNED = 1000

_warned: set[str] = set()

logger = logging.getLogger("limpyd-jobs")


class TaskJob(Job):
    """A task of Django, in its queue. Its identifier is the id of the result.

    Attributes
    ----------
    task: field
        The path of the task.
    parameters: field
        Its arguments: a list, and a dictionary.
    backend: field
        The alias of the backend.
    enqueued_at: field
        When it was added, UTC.
    """

    __module__ = "limpyd_jobs.contrib.django.tasks"  # what is stored of a class is its path

    namespace = "django"
    keep_result = True
    keep_history = 100

    task = Argument(indexable=True)
    parameters = Argument(json)
    backend = Argument()
    enqueued_at = Argument(datetime)

    def run(self, queue: Queue) -> Any:
        """Call the function of the task, and return what it returned, as JSON has it."""
        try:
            task = task_at(self.arguments.task)
        except UnknownTask as error:
            if int(self.tries.hget() or 0) <= RETURNS:
                self._put_back(str(error))
            raise
        args, kwargs = self.arguments.parameters
        if task.takes_context:
            args = [TaskContext(task_result=running_result(self, task)), *args]
        value = normalize_json(task.call(*args, **kwargs))
        return value if getattr(task, "keep_result", True) else None

    def _put_back(self, why: str) -> NoReturn:
        """Put the job back for another worker, and say why: in the log of the worker, once a task, and in its own."""
        why += f": put back for {RETURN_DELAY} seconds, for a worker that has it"
        self.log(why)
        if why not in _warned and len(_warned) < MAX_WARNED:
            _warned.add(why)
            logger.warning(f"[{self.identifier.hget()}] {why}")
        raise Requeue(delayed_for=RETURN_DELAY) from None


def unique_id(path: str, args: Any, kwargs: Any) -> str:
    """Return the id of the result of a unique task, which has these arguments."""
    text = json.dumps([path, args, kwargs], sort_keys=True)
    return hashlib.sha256(text.encode()).hexdigest()
