"""How to add jobs: said before, by other names than those of fields, so that a call takes the arguments alone."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Generic, ParamSpec, TypeVar

from limpyd_jobs.arguments import read_priority
from limpyd_jobs.functions import memoized
from limpyd_jobs.models.calls.prepared import OF_THE_PLACE, PreparedJob, prepared
from limpyd_jobs.records.limpyd_types import RedisModel

P = ParamSpec("P")
Made = TypeVar("Made", covariant=True)

# The options whose names in `add_job` are other ones.
_NAMES = {"queue": "queue_name", "retry": "retry_policy", "timeout": "job_timeout"}


def options_of(**given: Any) -> dict[str, Any]:
    """Return what `add_job` takes for the options that are given: None stands for those of the class."""
    return {_NAMES.get(name, name): value for name, value in given.items() if value is not None}


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
