"""Parameters that no call gives: a worker gives the function its job, or the queue."""

from __future__ import annotations

import inspect
import types
import typing
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple, NoReturn

from limpyd_jobs.models.functions.refusing import refuse
from limpyd_jobs.models.job import Job
from limpyd_jobs.models.queue import Queue


class _Given:
    """The default of a parameter that a worker gives: see `GIVEN`."""

    def __getattr__(self, name: str) -> NoReturn:
        raise AttributeError(f"A worker gives this parameter, and no worker called the function: give it ({name})")

    def __repr__(self) -> str:
        return "GIVEN"


# Lets type checkers know that no call has to give a parameter: ``def shrink(path: str, job: Job = GIVEN)``.
GIVEN: Any = _Given()


class GivenParameter(NamedTuple):
    """A parameter that a worker gives: its name, its place, and how to find its value for a job and its queue."""

    name: str
    place: int | None  # None if it is given by name
    value_for: Callable[[Any, Any], Any]


def given_parameter(
    function: Any, parameter: inspect.Parameter, place: int, annotation: Any, base: type[Job]
) -> GivenParameter | None:
    """Return a parameter that is annotated as a job or as a queue, perhaps as None, too; None for any other one."""
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
    by_name = parameter.kind is inspect.Parameter.KEYWORD_ONLY
    return GivenParameter(parameter.name, None if by_name else place, value_for)


def with_given(
    given: Sequence[GivenParameter], job: Any, queue: Any, in_order: list[Any], by_name: dict[str, Any]
) -> None:
    """Add what a worker gives to the other arguments of a call."""
    for each in given:
        value = each.value_for(job, queue)
        if each.place is None:
            by_name[each.name] = value
        else:
            in_order.insert(each.place, value)


def _job(job: Any, queue: Any) -> Any:
    return job


def _queue(job: Any, queue: Any) -> Any:
    return queue


def _without_none(annotation: Any) -> Any:
    if typing.get_origin(annotation) in (typing.Union, types.UnionType):
        others = [each for each in typing.get_args(annotation) if each is not type(None)]
        return others[0] if len(others) == 1 else annotation
    return annotation
