"""Which task a record names: one that is imported. No name that is stored makes this process import anything."""

from __future__ import annotations

import sys
from typing import Any

from limpyd_jobs.contrib.django.tasks.framework import Task
from limpyd_jobs.integration import job_modules, one_line

# How many characters of the path of a task are shown at most.
MAX_PATH = 200


class UnknownTask(LookupError):
    """A record names a task that this process does not have."""


def task_at(path: str) -> Any:
    """Return the task at the top level of a module that this process has imported.

    A module is imported because Django is set up: it is ``tasks.py`` or ``jobs.py`` of an application, or named by
    ``LIMPYD_JOBS["MODULES"]``. If ``--job-modules`` is given, it has to be in one of these, too.

    Raises
    ------
    UnknownTask
        If there is no such task.
    """
    module, _, name = path.rpartition(".")
    found: Any = vars(sys.modules[module]).get(name) if module in sys.modules else None  # which runs no code
    if not (isinstance(found, Task) and found.module_path == path and _is_allowed(module)):
        raise UnknownTask(
            f"{one_line(path[:MAX_PATH])} is not a task that this process has imported: define it in tasks.py of an "
            "application in INSTALLED_APPS, import it there, or name its module in LIMPYD_JOBS['MODULES']"
        )
    return found


def _is_allowed(module: str) -> bool:
    allowed = job_modules()
    return allowed is None or any(f"{module}.".startswith(f"{name}.") for name in allowed)
