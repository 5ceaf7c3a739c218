"""Deleting the finished jobs that are not to be kept, step by step."""

from __future__ import annotations

from collections.abc import Generator, Iterable, Mapping, Sequence
from datetime import timedelta
from itertools import count
from math import inf
from time import monotonic
from types import MappingProxyType
from typing import Any, NamedTuple

from limpyd.model import RedisModel
from redis.exceptions import ConnectionError as RedisConnectionError
from redis.exceptions import TimeoutError as RedisTimeoutError

from limpyd_jobs import transitions
from limpyd_jobs.arguments import check_retention
from limpyd_jobs.classes.job_classes import BoundJobClasses, JobClasses
from limpyd_jobs.idents import Ident
from limpyd_jobs.redis.calls import Call
from limpyd_jobs.texts import printable
from limpyd_jobs.transitions import Begun, Cleared, Pruning

Keep = int | timedelta
Classes = JobClasses[Any] | BoundJobClasses


class Retention(NamedTuple):
    """How many finished jobs of a queue to keep, or for how long; None for all."""

    success: Keep | None
    errors: Keep | None

    @classmethod
    def of(cls, queue_model: Any, keep_success: Any = None, keep_errors: Any = None) -> Retention:
        """Return the given limits, or else the attributes of the queue model."""
        success = _own(queue_model.keep_success) if keep_success is None else keep_success
        errors = _own(queue_model.keep_errors) if keep_errors is None else keep_errors
        check_retention("keep_success", success)
        check_retention("keep_errors", errors)
        return cls(success, errors)

    def lists(self, queue_keys: Sequence[str]) -> dict[str, Keep]:
        """Return the keys of the lists of some queues that are to be pruned, each with how much to keep."""
        return {
            f"{queue_key}:{name}": keep
            for queue_key in queue_keys
            for name, keep in self._asdict().items()
            if keep is not None
        }

    @property
    def unlimited(self) -> list[str]:
        """The names of the lists that only grow."""
        return [name for name, keep in self._asdict().items() if keep is None]


# The lists of finished jobs, and the option of workers that limits each. A job is in `errors` once for each failure.
LIMITED_BY = {"success": "--keep-success", "errors": "--keep-errors"}


def read_finished(connection: Any, queue_keys: Iterable[str], names: Sequence[str]) -> dict[str, int]:
    """Return how many entries these lists of some queues have, in one round trip."""
    pipeline = connection.pipeline(transaction=False)
    asked = [name for queue_key in queue_keys for name in names if pipeline.llen(f"{queue_key}:{name}")]
    numbers = dict.fromkeys(names, 0)
    for name, length in zip(asked, pipeline.execute(raise_on_error=False), strict=True):
        numbers[name] += length if isinstance(length, int) else 0
    return numbers


def kept_for_ever(where: str, numbers: Mapping[str, int]) -> str:
    """Say how many finished jobs stand in lists that nothing limits, and what would limit them; '' if there is none."""
    if not any(numbers.values()):
        return ""
    ended = ", ".join(f"{number:,} in {name}" for name, number in numbers.items())
    options = " and ".join(LIMITED_BY[name] for name in numbers)
    limit = f"{options} of workers limit{'s' * (len(numbers) == 1)} that"
    return f"Finished jobs are kept for ever in {where}, {ended} so far: {limit}"


def _own(value: Any) -> Keep | None:
    """The value of an attribute of a queue model, unless the application uses the name for something else."""
    return value if isinstance(value, (int, timedelta)) and not isinstance(value, bool) else None


def keeps_no_success(queue_model: Any, keep_success: Any = None) -> bool:
    """Whether jobs that succeeded are not kept at all: by the given limit, or else by the class of their queue."""
    keep = _own(getattr(queue_model, "keep_success", None)) if keep_success is None else keep_success
    return keep is not None and not keep


class Pruned(NamedTuple):
    """How many jobs were deleted; why others could not be, by their ident; and, of the lists where there is more to do,
    how many entries to pass over the next time."""

    deleted: int
    failures: dict[str, str]
    starts: dict[str, int]


def prune(
    queue_model: type[RedisModel],
    error_model: type[RedisModel],
    lists: Mapping[str, Keep],
    job_classes: Classes,
    starts: Mapping[str, int] = MappingProxyType({}),
    max_steps: float = inf,
    until: float = inf,
) -> Generator[Call[Pruning], Pruning, Pruned]:
    """Yield the calls that delete the oldest jobs of some lists: for each up to a number of steps, and until some time
    by the clock of `monotonic`, but one at least. A later step finishes what one has begun."""
    transitions.check_prunable(queue_model, error_model)
    classes, unknown = dict(job_classes.known), set[str]()
    deleted, failures, next_starts = 0, dict[str, str](), dict[str, int]()
    for key, keep in lists.items():
        start, cleared = starts.get(key, 0), Cleared({}, set())
        for number in count(1):
            step = yield transitions.prune.call(queue_model, key, keep, error_model, classes, start, cleared)
            deleted += step.deleted
            failures.update(step.failures)
            cleared = Cleared({ident: False for ident, is_done in cleared.jobs.items() if not is_done}, set())
            for begun in step.begun:
                failures.update(_clear(begun, classes, error_model, cleared))
            is_resolved = _resolve(step.unknown, classes, unknown, job_classes)
            start = start if is_resolved else step.start
            if not (step.more or is_resolved):
                break
            if number >= max_steps or monotonic() > until:
                next_starts[key] = start
                break
    return Pruned(deleted, failures, next_starts)


def _clear(begun: Begun, classes: Any, error_model: Any, cleared: Cleared) -> Iterable[tuple[str, str]]:
    """Do limpyd's part for a job: for its errors, or, once these are gone, for the job itself."""
    path, pk = Ident.of(begun.ident)
    try:
        for error_pk, values in begun.errors:
            transitions.clear(error_model, error_pk, values)
            cleared.errors.add(error_pk)
        if not begun.errors:
            transitions.clear(classes[path], pk, begun.values)
            cleared.jobs[begun.ident] = True
    except (RedisConnectionError, RedisTimeoutError):
        raise
    except Exception as error:  # whatever the application's own delete() raises
        cleared.jobs[begun.ident] = False
        return [(begun.ident, printable(error))]
    return []


def _resolve(idents: Sequence[str], classes: dict[str, Any], unknown: set[str], job_classes: Classes) -> bool:
    """Resolve the classes of some jobs, each once; return whether another class is known now."""
    before = len(classes)
    for path in {Ident.of(ident).path for ident in idents} - classes.keys() - unknown:
        try:
            classes[path] = job_classes.resolve(path)
        except Exception:
            unknown.add(path)
    return len(classes) > before
