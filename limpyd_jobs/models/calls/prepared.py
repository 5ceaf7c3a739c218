"""Calls of `add_job` as values: made and checked now, and done later, once, several times, or together with others; and
how to add jobs, said before, so that a call takes the arguments alone."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from datetime import datetime, timedelta
from inspect import Parameter, signature
from typing import Any, Generic, Literal, ParamSpec, Self, TypedDict, TypeVar

from limpyd_jobs.arguments import delay_argument, read_priority, stored_identifier, stored_queue_name
from limpyd_jobs.classes.binding import origin_of
from limpyd_jobs.classes.job_classes import path_of
from limpyd_jobs.classes.roots import roots
from limpyd_jobs.fields.new_fields import checked_fields, default_priority
from limpyd_jobs.functions import memoized, overrides
from limpyd_jobs.models.calls.duplicates import replaces
from limpyd_jobs.records.limpyd_types import RedisModel
from limpyd_jobs.retrying import Retry

P = ParamSpec("P")
Made = TypeVar("Made")

# The arguments of `add_job` that are not fields.
OF_THE_PLACE = ("identifier", "queue_name", "priority", "queue_model", "prepend", "delayed_for", "delayed_until")


class Prepared(Mapping[str, Any]):
    """The arguments of a call of `add_job`, by name. `add_jobs` of its class takes it as one of its jobs.

    Attributes
    ----------
    job_class: type of Job
        The class of the job.
    """

    __slots__ = ("_arguments", "job_class")

    def __init__(self, job_class: Any, arguments: Mapping[str, Any]) -> None:
        self.job_class = job_class
        self._arguments = dict(arguments)

    def __getitem__(self, name: str) -> Any:
        return self._arguments[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._arguments)

    def __len__(self) -> int:
        return len(self._arguments)

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Prepared):
            return NotImplemented
        return self.job_class is other.job_class and self._arguments == other._arguments

    __hash__ = None  # type: ignore[assignment]

    def __repr__(self) -> str:
        """Without the values: they may be secrets."""
        return f"<{path_of(self.job_class)} prepared with {', '.join(self._arguments) or 'nothing'}>"

    def check_class(self, job_class: Any) -> Self:
        """Refuse to be added as a job of another class."""
        if origin_of(job_class) is not origin_of(self.job_class):
            raise TypeError(f"{self!r} is no job of {path_of(job_class)}: add it by its own class")
        return self


class PreparedJob(Prepared, Generic[Made]):
    """A call of `add_job` as a value: see `Job.prepare`. It can be done several times."""

    __slots__ = ()

    def add(self, **options: Any) -> Made:
        """Add a job, and return it: see `Job.add_job`.

        Parameters
        ----------
        **options
            Arguments of `add_job` that take the place of those that were given before.
        """
        made: Made = self.job_class.add_job(**{**self._arguments, **options})
        return made

    async def aadd(self, **options: Any) -> Made:
        """Do as `add`, under asyncio: see `Job.aadd_job`."""
        made: Made = await self.job_class.aadd_job(**{**self._arguments, **options})
        return made


def prepared(job_class: Any, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> PreparedJob[Any]:
    """Do what `Job.prepare` says."""
    arguments = _named(job_class, args, kwargs)
    if not overrides(job_class, roots.job, "add_job"):
        _check(job_class, arguments)
    return PreparedJob(job_class, arguments)


def _named(job_class: Any, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> dict[str, Any]:
    """Return the arguments of a call by name."""
    if not args:
        return dict(kwargs)
    of_call = signature(job_class.add_job)
    bound = of_call.bind_partial(*args, **kwargs).arguments
    named: dict[str, Any] = {}
    for name, value in bound.items():
        kind = of_call.parameters[name].kind
        if kind in (Parameter.VAR_POSITIONAL, Parameter.POSITIONAL_ONLY):
            raise TypeError(f"Give all arguments of {path_of(job_class)}.prepare by name: its add_job has no names")
        named.update(value if kind is Parameter.VAR_KEYWORD else {name: value})
    return named


def _check(job_class: Any, arguments: Mapping[str, Any]) -> None:
    """Raise what `add_job` would raise of these arguments, so that a mistake shows where it is made."""
    fields = {name: value for name, value in arguments.items() if name not in OF_THE_PLACE}
    if "on_duplicate" in fields:
        replaces(job_class, fields)
    if "identifier" in arguments:
        stored_identifier(arguments["identifier"])
    if arguments.get("queue_name") is not None:
        stored_queue_name(arguments["queue_name"])
    default_priority(job_class, arguments.get("priority", 0))
    delay_argument(arguments.get("delayed_for"), arguments.get("delayed_until"))
    checked_fields(job_class, fields)


# The options whose names in `add_job` are other ones.
_NAMES = {"queue": "queue_name", "retry": "retry_policy", "timeout": "job_timeout"}


class OptionsOfAdding(TypedDict, total=False):
    """How to add a job, as `Job.configure` and `JobFunction.configure` take it; None for what holds for the class."""

    identifier: str | None
    queue: str | None
    priority: int | None
    prepend: bool
    delayed_for: float | timedelta | None
    delayed_until: datetime | None
    retry: Retry | str | None
    timeout: float | None
    start_within: float | timedelta | None
    retry_for: float | timedelta | None
    unique_for: float | timedelta | None
    on_duplicate: Literal["keep", "replace", "replace_or_follow"] | None


def options_of(given: OptionsOfAdding) -> dict[str, Any]:
    """Return what `add_job` takes for the options that are given; raise `TypeError` if one is none of these."""
    for name in given:
        if name not in OptionsOfAdding.__annotations__:
            options = ", ".join(OptionsOfAdding.__annotations__)
            raise TypeError(f"configure() has no option {name!r}: there are {options}")
    return {_NAMES.get(name, name): value for name, value in given.items() if value is not None and value is not False}


@memoized
def default_priority_of(job_class: type[RedisModel]) -> int:
    """Return the priority of the jobs of a class for which none is given."""
    return read_priority(str(getattr(job_class.get_field("priority"), "default", 0))) or 0


def arguments_for(job_class: Any, options: Mapping[str, Any], args: Any, arguments: Mapping[str, Any]) -> Any:
    """Return what `add_job` takes to add a job with these arguments, in a way that was configured."""
    if args:
        raise TypeError(f"{job_class.__name__}.add takes the arguments of the job by name")
    for name in OF_THE_PLACE:
        if name in arguments:
            option = next((each for each in _NAMES if _NAMES[each] == name), name)
            what = f"{job_class.__name__}.configure({option}=…).add(…)"
            raise TypeError(f"{name} is no argument of the job, but how to add it: write {what}")
    priority = default_priority_of(job_class)
    return {**({"priority": priority} if priority else {}), **options, **arguments}


class AddingJobs(Generic[P, Made]):
    """Adds jobs of a class in a way that was configured: see `Job.configure`."""

    def __init__(self, job_class: Any, options: Mapping[str, Any]) -> None:
        self._job_class = job_class
        self._options = options

    def add(self, *args: P.args, **arguments: P.kwargs) -> Made:
        """Add a job, and return it: see `Job.add`."""
        made: Made = self._job_class.add_job(**self._given(args, arguments))
        return made

    async def aadd(self, *args: P.args, **arguments: P.kwargs) -> Made:
        """Do as `add`, under asyncio."""
        made: Made = await self._job_class.aadd_job(**self._given(args, arguments))
        return made

    def prepare(self, *args: P.args, **arguments: P.kwargs) -> PreparedJob[Made]:
        """Return a call as a value: see `Job.prepare`."""
        return prepared(self._job_class, (), self._given(args, arguments))

    def _given(self, args: Any, arguments: Mapping[str, Any]) -> Any:
        return arguments_for(self._job_class, self._options, args, arguments)
