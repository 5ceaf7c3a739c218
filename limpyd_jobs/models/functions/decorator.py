"""The decorator that makes a function a job."""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Mapping, Sequence
from datetime import timedelta
from typing import Any, Protocol, TypeVar, overload

from limpyd_jobs.limiting.limit import Limit
from limpyd_jobs.models.functions.function import JobFunction, P, check_not_a_job
from limpyd_jobs.models.functions.parameters import Unique
from limpyd_jobs.models.functions.refusing import check_function, refuse
from limpyd_jobs.models.job import Job
from limpyd_jobs.retrying import Retry

Value = TypeVar("Value")


class JobDecorator(Protocol):
    """What ``job(…)`` returns: it is called with the function."""

    @overload
    def __call__(
        self, function: Callable[P, Coroutine[Any, Any, Value]], /
    ) -> JobFunction[P, Coroutine[Any, Any, Value], Value]: ...

    @overload
    def __call__(self, function: Callable[P, Value], /) -> JobFunction[P, Value, Value]: ...


@overload
def job(function: Callable[P, Coroutine[Any, Any, Value]], /) -> JobFunction[P, Coroutine[Any, Any, Value], Value]: ...


@overload
def job(function: Callable[P, Value], /) -> JobFunction[P, Value, Value]: ...


@overload
def job(
    *,
    queue: str | None = None,
    priority: int | None = None,
    retry: Retry | str | None = None,
    unique: Unique = False,
    keep_result: bool | float | timedelta | None = None,
    keep_output: float | timedelta | None = None,
    notify_changes: bool | None = None,
    timeout: float | None = None,
    kill_after: float | None = None,
    start_within: float | timedelta | None = None,
    retry_for: float | timedelta | None = None,
    unique_for: float | timedelta | None = None,
    limits: Sequence[Limit] | None = None,
    schedules: Mapping[str, Mapping[str, Any]] | None = None,
    base: type[Job] | None = None,
) -> JobDecorator: ...


def job(function: Any = None, /, **options: Any) -> Any:
    """Make a function a job: ``@job`` or ``@job(queue="mails")`` above a function at the top level of a module.

    >>> @job(queue="mails", priority=2)
    ... def send_mail(to: str, subject: str = "") -> None: ...
    >>> send_mail.add("ann", subject="hello")

    To call it runs the function, which may be async: workers await it. Its jobs are of a class of their own,
    `job_class`, whose path is that of the function. Each parameter needs an annotation, and is an `Argument` of that
    class.

    Parameters
    ----------
    queue: str
        The queue of its jobs; by default the one of the `base`, or else ``"default"``.
    priority: int
        The higher, the sooner; 0 by default.
    retry: Retry or str
        When to try a failed job again.
    unique: bool, str, list of str, or callable
        Whether a job is added only if no other one with the same arguments is queued: True for all of them; names of
        parameters for these; or a function that makes the identifier of the arguments, as ``lambda arguments:
        arguments.to``. The arguments are part of the identifier, which logs show, if that has up to 200 characters.
    keep_result: bool, float or timedelta
        Whether to keep what it returns: True for a day; or for how long, in seconds or as a timedelta.
    keep_output: float or timedelta
        For how long after its end to keep what the code of a job emitted: see `Job`.
    notify_changes: bool
        Whether what becomes of its jobs is written to its changes, as `AddedJob.wait` needs: see `Job.changes`.
    timeout: float
        After how many seconds of running a job is an error of type `JobTimeout`.
    kill_after: float
        With ``--processes`` of workers: how many seconds after its timeout a job that cannot be interrupted fails,
        and its process is killed: see `Job`.
    start_within, retry_for: float or timedelta
        How long its jobs may wait for their first run, and be tried after their first failure, in seconds unless a
        timedelta: see `Job`.
    unique_for: float or timedelta
        For how long after the end of a job no other one of the same identifier is added: see `unique`, and `Job`.
    limits: list of Limit
        How many of its jobs run at once, or begin in a time, beside what the annotations of its parameters say.
    schedules: mapping
        When to add jobs of it: names, each with the arguments of `Schedule.add`, and those of the function, as
        ``{"weekly": {"cron": "0 8 * * 1", "to": "eve"}}``. Workers make them when they start.
    base: type of Job
        From which its class derives, with fields, hooks and attributes of its own; `Job` by default.

    Raises
    ------
    ConfigurationException
        If it cannot be a job. The message names the file, the function, and what to do.
    """
    if function is not None and options:
        refuse(function, "write the options as @job(queue=…), without the function")
    if function is None:
        return lambda given: _made(given, options)
    if isinstance(function, str):
        raise TypeError(f"The options of @job are given by name, as @job(queue={function!r})")
    return _made(function, options)


def _made(function: Any, options: dict[str, Any]) -> Any:
    check_not_a_job(function)
    check_function(function)
    return JobFunction(function, options)
