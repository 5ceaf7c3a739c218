"""The job class of a function."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from datetime import timedelta
from difflib import get_close_matches
from functools import partial
from typing import Any, NamedTuple

from limpyd import fields

from limpyd_jobs.arguments import (
    check_servable,
    checked_duration,
    own_seconds,
    stored_priority,
    stored_queue_name,
)
from limpyd_jobs.classes.awaitable import in_thread
from limpyd_jobs.classes.binding import made_model
from limpyd_jobs.classes.sources import definitions_of
from limpyd_jobs.fields.argument import arguments_of
from limpyd_jobs.functions import is_async
from limpyd_jobs.limiting.limit import Limit, limits_of_class
from limpyd_jobs.models.functions.giving import GivenParameter, give
from limpyd_jobs.models.functions.parameters import (
    Parameter,
    came_along,
    identify_by,
    limits_in,
    parameters_of,
    values_of,
)
from limpyd_jobs.models.functions.refusing import path_of_function, refuse
from limpyd_jobs.models.job import Job
from limpyd_jobs.redis.cluster.names import prefix_in
from limpyd_jobs.redis.database import databases_lock
from limpyd_jobs.retrying import as_policy

# The queue of a function, if neither it nor its base names one.
DEFAULT_QUEUE = "default"

OPTIONS = (
    "queue",
    "priority",
    "retry",
    "unique",
    "keep_result",
    "keep_output",
    "notify_changes",
    "timeout",
    "kill_after",
    "start_within",
    "retry_for",
    "unique_for",
    "limits",
    "schedules",
    "base",
)

# What other libraries, or `Job`, call an option.
_OF_OTHERS = {
    "queue_name": "queue",
    "name": "queue",
    "retries": "retry",
    "max_retries": "retry",
    "retry_policy": "retry",
    "job_timeout": "timeout",
    "time_limit": "timeout",
    "result_ttl": "keep_result",
    "cron": "schedules",
}


class Declared(NamedTuple):
    """The job class of a function, and the parameters that its jobs are given."""

    job_class: type[Job]
    parameters: Sequence[Parameter]
    given: Sequence[GivenParameter]


def declared(function: Callable[..., Any], owner: Any, options: dict[str, Any]) -> Declared:
    """Make the job class of a function that can be a job; `owner` is what stands in its place in its module."""
    _check_options(function, options)
    base = _base(function, options.get("base"))
    parameters, given = parameters_of(function, base)
    missing = [name for name, each in arguments_of(base).items() if each.is_needed]
    if missing:
        refuse(function, f"{base.__name__} needs the argument {missing[0]!r}, which no call gives: give it a default")
    attributes = {
        "__module__": function.__module__,
        "__qualname__": function.__qualname__,
        "__doc__": function.__doc__,
        "_function": owner,
        "run": _run_of(function, parameters, given),
        **{each.field: each.argument for each in parameters},
        **_attributes(function, base, options, parameters),
    }
    return Declared(_made(function, base, attributes), parameters, given)


def _check_options(function: Any, options: dict[str, Any]) -> None:
    for name in options:
        if name not in OPTIONS:
            near = [_OF_OTHERS[name]] if name in _OF_OTHERS else get_close_matches(name, OPTIONS, n=1)
            if near:
                hint = f"is {near[0]!r} meant?"
            elif not callable(getattr(Job, name, callable)):
                hint = f"give {name!r} to a subclass of Job as an attribute, and that class to @job as base=…"
            else:
                hint = f"there are {', '.join(OPTIONS)}"
            refuse(function, f"@job has no option {name!r}: {hint}")


def _base(function: Any, base: Any) -> type[Job]:
    if base is None:
        return Job
    if not (isinstance(base, type) and issubclass(base, Job)):
        refuse(function, f"base is a subclass of Job, not {base!r}")
    return base


def _attributes(function: Any, base: type[Job], options: dict[str, Any], parameters: Any) -> dict[str, Any]:
    try:
        return dict(_checked(function, base, options, parameters))
    except (TypeError, ValueError) as error:
        refuse(function, str(error))


def _checked(function: Any, base: type[Job], options: dict[str, Any], parameters: Any) -> Any:
    """Yield the attributes of the class that the options ask for."""
    queue = options.get("queue")
    if queue is not None or base.queue_name is None:
        name = stored_queue_name(DEFAULT_QUEUE if queue is None else queue)
        check_servable(name)
        yield "queue_name", name
    if options.get("priority") is not None:
        yield "priority", fields.InstanceHashField(indexable=True, default=int(stored_priority(options["priority"])))
    if options.get("retry") is not None:
        as_policy(options["retry"])
        yield "default_retry_policy", options["retry"]
    for name, attribute in (("timeout", "default_job_timeout"), ("kill_after", "kill_after")):
        if options.get(name) is not None:
            if own_seconds(options[name]) is None:
                raise ValueError(f"{name} is a number of seconds, not {options[name]!r}")
            yield attribute, options[name]
    for name in ("start_within", "retry_for", "unique_for", "keep_output"):
        if options.get(name) is not None:
            checked_duration(name, options[name])
            yield name, options[name]
    if options.get("keep_result") is not None:
        yield "keep_result", _keep_result(options["keep_result"])
    if options.get("notify_changes") is not None:
        if not isinstance(options["notify_changes"], bool):
            raise TypeError(f"notify_changes is True or False, not {options['notify_changes']!r}")
        yield "notify_changes", options["notify_changes"]
    if options.get("schedules") is not None:
        yield "schedules", _schedules(options["schedules"])
    limits = limits_in(function, parameters, _limits(options.get("limits")))
    if limits:
        yield "limits", [*limits_of_class(base), *limits]
    identify = identify_by(function, options.get("unique"), parameters)
    if identify:
        yield "identify", staticmethod(identify)


def _keep_result(value: Any) -> Any:
    seconds = value.total_seconds() if isinstance(value, timedelta) else value
    if not (isinstance(value, bool) or own_seconds(seconds) is not None):
        raise ValueError(f"keep_result is True, False, a number of seconds or a timedelta, not {value!r}")
    return value


def _limits(value: Any) -> Any:
    if not (value is None or (isinstance(value, list | tuple) and all(isinstance(each, Limit) for each in value))):
        raise TypeError(f"limits is a list of Limit, not {value!r}")
    return value or ()


def _schedules(value: Any) -> Any:
    if not isinstance(value, Mapping) or not all(isinstance(each, Mapping) for each in value.values()):
        raise TypeError(f'schedules is a mapping of names, as {{"nightly": {{"cron": "0 3 * * *"}}}}, not {value!r}')
    return value


def _run_of(
    function: Callable[..., Any], parameters: Sequence[Parameter], given: Sequence[GivenParameter]
) -> Callable[[Job, Any], Any]:
    path = path_of_function(function)
    if any(each.resource for each in given):
        from limpyd_jobs.models.functions.resources import with_resources  # only for those who have such

        function = with_resources(function, given)

    def run(self: Job, queue: Any) -> Any:
        in_order, by_name = values_of(self, parameters, path)
        if given:
            give(given, self, queue, by_name)
        return function(*in_order, **by_name)

    async def run_async(self: Job, queue: Any) -> Any:
        if not came_along(self, parameters):
            await in_thread(partial(values_of, self, parameters, path))
        in_order, by_name = values_of(self, parameters, path)
        if given:
            give(given, self, queue, by_name)
        return await function(*in_order, **by_name)

    chosen: Any = run_async if is_async(function) else run
    chosen.__name__ = "run"
    chosen.__qualname__, chosen.__module__, chosen.__doc__ = (
        function.__qualname__,
        function.__module__,
        function.__doc__,
    )
    return chosen


def _made(function: Any, base: type[Job], attributes: dict[str, Any]) -> type[Job]:
    path = path_of_function(function)
    with databases_lock():
        _give_way(function, base, f"{prefix_in(base.database)}{base.namespace}:{path}")
        made: type[Job] = made_model(base, function.__name__, path, attributes)
    return made


def _give_way(function: Any, base: type[Job], name: str) -> None:
    """Forget the class that a module made of the function before it was loaded again; refuse a second function of the
    same path."""
    models = base.database._models
    if name not in models:
        return
    earlier = models[name]
    if _is_defined_twice(function.__module__, function.__name__):
        other = vars(earlier)["_function"].__wrapped__
        line = getattr(getattr(other, "__code__", None), "co_firstlineno", "?")
        refuse(function, f"another job of this path is defined in line {line}: give one of them another name")
    earlier.abstract = True  # no job is of it any more
    del models[name]


def _is_defined_twice(module: str, name: str) -> bool:
    try:
        return definitions_of(module, name) > 1
    except (ImportError, ValueError):  # no source to read
        return False
