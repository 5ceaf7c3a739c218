"""Deleting jobs that ended."""

from __future__ import annotations

import json
from collections.abc import Mapping
from contextlib import suppress
from datetime import timedelta
from typing import Any, NamedTuple

from limpyd.model import RedisModel

from limpyd_jobs.arguments import retention_arguments
from limpyd_jobs.classes.binding import check_database
from limpyd_jobs.exceptions import ConfigurationException
from limpyd_jobs.records.layout import check_found_by, classes_argument, layout_of
from limpyd_jobs.records.records import attached, redis_of
from limpyd_jobs.redis.calls import Call, Verb, reindexed
from limpyd_jobs.redis.scripting import Script

# How many entries of a list one call of prune() looks at, at most.
PRUNE_LIMIT = 100

_prune = Script("recovering/prune")


class Pruning(NamedTuple):
    """What a step did, see ``recovering/prune.lua``."""

    deleted: int
    start: int
    more: bool
    begun: list[Begun]
    unknown: list[str]
    failures: list[tuple[str, str]]


class Cleared(NamedTuple):
    """What limpyd has cleared: jobs, by their ident, with whether that was possible; the pks of errors."""

    jobs: dict[str, bool]
    errors: set[str]


class Begun(NamedTuple):
    """A job that is being deleted, and what limpyd has to clear before: the special fields of the record with their
    values, to take them out of their indexes; and the same of each of its errors, which come first."""

    ident: str
    values: Mapping[str, str]
    errors: list[tuple[str, Mapping[str, str]]]


@Verb
def prune(
    queue_model: type[RedisModel],
    list_key: str,
    keep: int | timedelta,
    error_model: type[RedisModel],
    classes: Mapping[str, type[RedisModel]],
    start: int = 0,
    cleared: Cleared | None = None,
) -> Call[Pruning]:
    """Delete the oldest jobs of a list of finished jobs, beyond the retention, with all that belongs to them, given
    what `clear` did for the last call."""
    jobs, errors = cleared or ({}, ())
    limpyd = {
        "models": {model._name: True for model in (error_model, *classes.values()) if _needs_limpyd(model)},
        "jobs": jobs,
        "errors": dict.fromkeys(errors, True),
    }
    number, seconds = retention_arguments(keep)
    request = {
        "keep": number,
        "keep_for": seconds,
        "start": start,
        "limit": PRUNE_LIMIT,
        "error_model": layout_of(error_model).json,
        "limpyd": json.dumps(limpyd),
        "classes": classes_argument(classes),
    }
    return Call(redis_of(queue_model), _prune, request, _pruning, keys=[list_key])


def _pruning(reply: dict[str, Any]) -> Pruning:
    begun = [
        Begun(ident, values, [(pk, of_error) for pk, of_error in errors]) for ident, values, errors in reply["begun"]
    ]
    failures = [(ident, reason) for ident, reason in reply["failures"]]
    return Pruning(reply["deleted"], reply["start"], reply["has_more"], begun, list(reply["unknown"]), failures)


def clear(model: type[RedisModel], pk: str, values: Mapping[str, str]) -> None:
    """Do the part of deleting a record that a script cannot do, by limpyd or the model's own ``delete``."""
    record = attached(model, pk)
    if not _is_erasable(model):
        record.delete()
        return
    reindexed(model, pk, [(name, value, None) for name, value in values.items()])
    for name in layout_of(model).outside:
        record.get_field(name).delete()


def check_prunable(queue_model: type[RedisModel], error_model: type[RedisModel]) -> None:
    """Raise `ConfigurationException` if a script cannot find the errors of the jobs of some queues."""
    check_database(error_model, queue_model)
    check_found_by(error_model, ("job_pk", "job_model_repr"))


def _needs_limpyd(model: type[RedisModel]) -> bool:
    """Whether each record of a model has something to clear, even without special fields."""
    with suppress(ConfigurationException):  # no script is told of such a class
        return not _is_erasable(model) or bool(layout_of(model).outside)
    return False


def _is_erasable(model: type[RedisModel]) -> bool:
    """Whether a script may delete records of a model: not if fields of other models may point to them."""
    relations = getattr(model.database, "_relations", {}).get(model._name.lower())
    return layout_of(model).erasable and not relations
