"""The job whose code runs here, for functions that have no `self`."""

from __future__ import annotations

from contextvars import ContextVar
from typing import Any, TypeVar, overload

from limpyd_jobs.models.job import Job

Default = TypeVar("Default")

# The job whose code runs. The tasks that it makes have it, too, and so does what runs in a copy of its context.
running_job: ContextVar[Any] = ContextVar("limpyd_jobs_running_job", default=None)

_NONE: Any = object()


@overload
def current_job() -> Job: ...


@overload
def current_job(default: Default, /) -> Job | Default: ...


def current_job(default: Any = _NONE, /) -> Any:
    """Return the job whose code calls this, with all that a job can do while it runs, such as `progress`, `log`,
    `iterate`, `step` and `is_cancelled`.

    >>> @job
    ... def resize(paths: list[str]) -> None:
    ...     for path in current_job().iterate(paths):
    ...         shrink(path)

    It is known to functions with `@job`, to ``run`` of job classes, to callbacks of workers, and to all that these
    call; to coroutines, their tasks and ``asyncio.to_thread``; and where tests run jobs. Other threads know it if they
    run in a copy of the context: ``Thread(target=copy_context().run, args=(function,))``. It costs no command.

    Parameters
    ----------
    default: object
        What to return outside of a job, as where a test calls the function itself: ``current_job(None)``.

    Raises
    ------
    RuntimeError
        Outside of a job, if no default is given.
    """
    found = running_job.get()
    if found is not None:
        return found
    if default is _NONE:
        raise RuntimeError(
            "current_job() was called outside of a job. Call current_job(None) to get None there. In a thread that "
            "the job has started, run the function in a copy of its context: contextvars.copy_context().run"
        )
    return default
