"""What becomes of the functions of the old queue here, as the application says."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from datetime import datetime
from inspect import signature
from typing import Any, NamedTuple, get_type_hints

from limpyd_jobs import Argument, ConfigurationException, Job, JobFunction
from limpyd_jobs.contrib.takeover.old_queues import OldJob
from limpyd_jobs.integration import codec_of

WHAT = "a function with @job, a job class, or a pair of one of these and a function that returns the new arguments"


class Destination(NamedTuple):
    """Where the jobs of an old queue go; None for what the new function, or class, says."""

    queue: str | None = None
    priority: int | None = None

    def __str__(self) -> str:
        return f"{self.queue or ''}{'' if self.priority is None else f':{self.priority}'}"


class Target(NamedTuple):
    """The function, or the class, of the new jobs, and what makes its arguments of the old ones."""

    made: Any
    convert: Callable[..., Mapping[str, Any]] | None = None

    @property
    def path(self) -> str:
        return str(self.job_class.get_model_repr())

    @property
    def job_class(self) -> type[Job]:
        found: type[Job] = self.made.job_class if isinstance(self.made, JobFunction) else self.made
        return found

    def arguments_of(self, old: OldJob) -> Mapping[str, Any]:
        """Return the arguments of the new job by name.

        Raises
        ------
        TypeError
            If it does not take such arguments.
        """
        if self.convert:
            return {**self.convert(*old.args, **old.kwargs)}
        if isinstance(self.made, JobFunction):
            return signature(self.made).bind(*old.args, **old.kwargs).arguments
        if old.args:
            raise TypeError(f"{self.path} is a class, and takes no arguments without a name: give a pair")
        return old.kwargs

    def check(self, arguments: Mapping[str, Any]) -> None:
        """Raise `TypeError` if a job cannot be given these arguments."""
        if isinstance(self.made, JobFunction):
            function = self.made.__wrapped__  # type: ignore[attr-defined]
            signature(function).bind(**arguments)
            codecs = {name: codec_of(kind) for name, kind in get_type_hints(function, include_extras=True).items()}
        else:
            fields = {name: getattr(self.job_class, f"_redis_attr_{name}", None) for name in self.job_class._fields}
            if unknown := arguments.keys() - fields.keys():
                raise TypeError(f"{self.path} has no argument {min(unknown)!r}")
            codecs = {name: field.codec for name, field in fields.items() if isinstance(field, Argument)}
        for name, value in arguments.items():
            if name in codecs:
                codecs[name].stored(f"The argument {name!r}", value)

    def add(
        self, identifier: str, arguments: Mapping[str, Any], delayed_until: datetime, destination: Destination
    ) -> Job:
        """Add a job with these arguments."""
        how: dict[str, Any] = {"identifier": identifier, "delayed_until": delayed_until}
        if destination.priority is not None:
            how["priority"] = destination.priority
        is_function = isinstance(self.made, JobFunction)
        if destination.queue:
            how["queue" if is_function else "queue_name"] = destination.queue
        if is_function:
            job: Job = self.made.configure(**how).add(**arguments).job
            return job
        return self.job_class.add_job(**how, **arguments)


def targets_of(given: Any) -> dict[str, Target]:
    """Return what an application declares, a dictionary of `WHAT` by the paths of the old functions.

    Raises
    ------
    ConfigurationException
        If it is not such a dictionary.
    """
    if not isinstance(given, Mapping):
        raise ConfigurationException(f"it is a dictionary of new jobs by the paths of old functions, not {given!r}")
    return {str(path): _target(str(path), each) for path, each in given.items()}


def _target(path: str, given: Any) -> Target:
    made, convert = given if isinstance(given, tuple) and len(given) == 2 else (given, None)
    is_class = isinstance(made, type) and issubclass(made, Job)
    if not ((isinstance(made, JobFunction) or is_class) and (convert is None or callable(convert))):
        raise ConfigurationException(f"{path}: {WHAT}, not {given!r}")
    return Target(made, convert)
