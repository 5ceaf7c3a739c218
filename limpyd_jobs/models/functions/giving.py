"""Parameters that no call gives: a worker gives the function its job, the queue, or a resource."""

from __future__ import annotations

import atexit
import inspect
import types
import typing
from collections.abc import Callable, Sequence
from threading import Lock
from typing import Any, NamedTuple, NoReturn

from limpyd_jobs.models.functions.refusing import refuse
from limpyd_jobs.models.job import Job
from limpyd_jobs.models.queue import Queue
from limpyd_jobs.redis.forks import this_process


class _Given:
    """The default of a parameter that a worker gives: see `GIVEN`."""

    def __getattr__(self, name: str) -> NoReturn:
        raise AttributeError(f"A worker gives this parameter, and no worker called the function: give it ({name})")

    def __repr__(self) -> str:
        return "GIVEN"


# Lets type checkers know that no call has to give a parameter: ``def shrink(path: str, job: Job = GIVEN)``.
GIVEN: Any = _Given()


class ResourceBase:
    """A resource: see `limpyd_jobs.worker_resource`."""

    is_async: bool


class Resource:
    """Says by which resource a parameter is given: ``pool: Annotated[Pool, Resource(pool)] = GIVEN``.

    Parameters
    ----------
    resource: WorkerResource or JobResource
        What `worker_resource` or `job_resource` made of a function.
    """

    def __init__(self, resource: Any) -> None:
        if not isinstance(resource, ResourceBase):
            raise TypeError(f"{resource!r} is no resource: write @worker_resource or @job_resource above it")
        self.resource = resource


class AtEnd:
    """What is to be called when the last worker of this process ends."""

    def __init__(self) -> None:
        self._lock = Lock()
        self._workers = 0
        self._calls: list[tuple[int, Callable[[], None]]] = []

    def call(self, function: Callable[[], None]) -> None:
        """Call a function then, or when the process ends if none runs; not in a process that this one forks."""
        with self._lock:
            if not self._calls:
                atexit.register(self._call_all)
            self._calls.append((this_process.pid, function))

    def __enter__(self) -> None:
        with self._lock:
            self._workers += 1

    def __exit__(self, *exc_info: object) -> None:
        with self._lock:
            self._workers -= 1
        if not self._workers and self._calls:
            self._call_all()

    def _call_all(self) -> None:
        while self._calls:
            pid, function = self._calls.pop()
            if pid == this_process.pid:
                function()


at_end = AtEnd()


class GivenParameter(NamedTuple):
    """A parameter that a worker gives by name: the resource, or how to find its value for a job and its queue."""

    name: str
    value_for: Callable[[Any, Any], Any] | None
    resource: ResourceBase | None = None


def given_parameter(
    function: Any, parameter: inspect.Parameter, annotation: Any, base: type[Job]
) -> GivenParameter | None:
    """Return a parameter that is annotated as a job, as a queue, perhaps as None, too, or with a resource; None for any
    other one."""
    found = _given(function, parameter, annotation, base)
    if found and parameter.kind is inspect.Parameter.POSITIONAL_ONLY:
        refuse(function, f"the parameter {parameter.name!r} is given by name: write it behind the /")
    return found


def resource_in(annotation: Any) -> ResourceBase | None:
    """Return the resource that an annotation names."""
    if typing.get_origin(annotation) is typing.Annotated:
        return next((each.resource for each in annotation.__metadata__ if isinstance(each, Resource)), None)
    return None


def _given(function: Any, parameter: inspect.Parameter, annotation: Any, base: type[Job]) -> GivenParameter | None:
    resource = resource_in(annotation)
    if resource is not None:
        return GivenParameter(parameter.name, None, resource)
    kind = _without_none(annotation)
    if not isinstance(kind, type):
        return None
    if issubclass(kind, Job):
        if not issubclass(base, kind):
            refuse(
                function,
                f"the parameter {parameter.name!r} is a {kind.__name__}, but the job is a {base.__name__}: write "
                f"@job(base={kind.__name__})",
            )
        value_for = _job
    elif issubclass(kind, Queue):
        value_for = _queue
    else:
        return None
    return GivenParameter(parameter.name, value_for)


def give(given: Sequence[GivenParameter], job: Any, queue: Any, by_name: dict[str, Any]) -> None:
    """Add what a worker gives to the other arguments of a call, without resources."""
    for each in given:
        if each.value_for:
            by_name[each.name] = each.value_for(job, queue)


def _job(job: Any, queue: Any) -> Any:
    return job


def _queue(job: Any, queue: Any) -> Any:
    return queue


def _without_none(annotation: Any) -> Any:
    if typing.get_origin(annotation) in (typing.Union, types.UnionType):
        others = [each for each in typing.get_args(annotation) if each is not type(None)]
        return others[0] if len(others) == 1 else annotation
    return annotation
