"""The verbs that jobs can have, by their status; and a verb on many records, as the commands and the dashboard let
people do it: counted first, then done once."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from functools import cached_property
from itertools import product
from typing import Any

from limpyd_jobs.exceptions import NotAudited
from limpyd_jobs.idents import Ident
from limpyd_jobs.query import ErrorFilter, JobFilter, Tally
from limpyd_jobs.records.audit import of_the_rest
from limpyd_jobs.redis.calls import Steps, finish
from limpyd_jobs.redis.database import JobsDatabase
from limpyd_jobs.search.classes import asking_once
from limpyd_jobs.search.conditions import Condition
from limpyd_jobs.search.filter import Plan
from limpyd_jobs.search.walk import OnStep
from limpyd_jobs.views.following import Following

# The verbs for all jobs of a filter, and those for the errors of one.
VERBS = ("requeue", "cancel", "move", "delay", "promote", "delete")

# What stands in a queue, to be moved or deleted.
QUEUED = ("waiting", "delayed")

# What each verb is called where people press it, and the key that presses it.
NAMES_OF_VERBS: Mapping[str, str] = {
    "requeue": "Run again",
    "duplicate": "Run again",
    "cancel": "Cancel",
    "promote": "Run now",
    "move": "Move",
    "delay": "Delay",
    "edit": "Edit",
    "release": "Release",
    "delete": "Delete",
}

# The verbs for one job of each status, the one that helps most often first.
_BY_STATUS: Mapping[str, tuple[str, ...]] = {
    "waiting": ("cancel", "edit", "move", "delay", "delete"),
    "delayed": ("promote", "cancel", "edit", "move", "delay", "delete"),
    "running": ("cancel", "release"),
    "success": ("duplicate", "delete"),
    "error": ("requeue", "duplicate", "delete"),
    "canceled": ("duplicate", "delete"),
}

# What cannot be done with a job that a worker holds, whatever its status.
_NOT_IF_CLAIMED = frozenset({"requeue", "edit", "move", "delay", "promote", "delete"})


class Change:
    """A verb on all that some filters find. Whoever has counted it does the same: where to look is asked once.

    Parameters
    ----------
    verb: str
        One of `VERBS`; of errors, ``delete``.
    filters: sequence of JobFilter or ErrorFilter
    **arguments
        Those of the verb, as of `JobFilter.requeue_all`; with ``told=True``, a requeue can be followed.
    """

    def __init__(self, verb: str, filters: Sequence[JobFilter | ErrorFilter], **arguments: Any) -> None:
        self.verb, self.filters, self._arguments = verb, filters, arguments

    @cached_property
    def _plans(self) -> list[Plan]:
        with asking_once():
            return [finish(each.planning(self.verb, **self._arguments)) for each in self.filters]

    def count(self, progress: OnStep | None = None) -> Tally:
        """Count what would be done."""
        return self._each(plan.counting(progress) for plan in self._plans)

    def do(self, progress: OnStep | None = None, *, unaudited: bool = False) -> Tally:
        """Do it. For the exceptions see `JobFilter.requeue_all`."""
        return self._each(plan.doing(progress, unaudited=unaudited) for plan in self._plans)

    @property
    def is_followed(self) -> bool:
        """Whether it is asked to say which jobs it changed."""
        return bool(self._arguments.get("told"))

    def follow(self, following: Following, *, unaudited: bool = False) -> Tally:
        """Do it, and see what becomes of the jobs: `following` says when to go on, and when to stop."""
        [plan] = self._plans
        return finish(plan.doing(following, unaudited=unaudited, follower=following))

    def _each(self, plans: Iterable[Steps[Tally]]) -> Tally:
        tallies: list[Tally] = []
        for asked, steps in zip(self.filters, plans, strict=True):
            try:
                tally = finish(steps)
            except NotAudited as error:
                if Tally.sum(tallies).done:
                    raise of_the_rest(error) from error
                raise
            tallies.append(_gone(asked) if tally == NOTHING else tally)
        return Tally.sum(tallies)


NOTHING = Tally.of(Counter())


def filter_of_job(ident: Ident, **how: Any) -> JobFilter:
    """Return the filter that finds one job. Its database and the model of errors may be given."""
    return JobFilter(f"class={ident.path}", f"pk={ident.pk}", **how)


def filters_of_queued(names: Iterable[str], database: JobsDatabase | None = None, **conditions: Any) -> list[JobFilter]:
    """Return the filters that find the jobs that wait or are delayed in the queues of some names."""
    which = product(names, QUEUED)
    return [JobFilter(queue=name, status=status, database=database, **conditions) for name, status in which]


def filter_of_failed(fingerprint: str, *words: str, **how: Any) -> JobFilter:
    """Return the filter that finds the jobs that are in error by a cause, with other conditions."""
    return JobFilter("status=error", *words, f"last_fingerprint={fingerprint}", **how)


# Conditions of an error that jobs can be asked for, as they are called there: of their last error, if that is needed.
_OF_JOBS = {"queue": "queue", "class": "class", "app_version": "last_app_version"}


def words_of_failed(words: Iterable[str]) -> tuple[list[str], list[str]]:
    """Return the conditions of jobs that say the same as those of the errors of a cause, and those of errors that no
    condition of jobs says. The type of the errors is that of the cause."""
    found, others = list[str](), list[str]()
    for word in words:
        field, comparison, value = Condition.parse(word)
        if comparison in ("=", "!=", "in") and field in _OF_JOBS:
            found.append(f"{Condition(_OF_JOBS[field], comparison, value)}")
        elif comparison != "=" or field not in ("type", "error", "fingerprint"):
            others.append(word)
    return found, others


def _gone(asked: JobFilter | ErrorFilter) -> Tally:
    """Return the outcome of a filter that finds nothing: it may be about one job."""
    values = {condition.field: condition.value for condition in asked.conditions}
    if "pk" not in values:
        return NOTHING
    name = f"{values['class']}:{values['pk']}" if values.keys() == {"class", "pk"} else f"{asked}"
    return Tally.of(Counter({f"there is no job {name}": 1}))


def verbs_for(status: str, *, is_claimed: bool = False, waits: bool = False) -> tuple[str, ...]:
    """Return the verbs that can work for a job now; `waits` says whether it waits for other jobs, or for a signal: it
    then runs no sooner, whoever asks."""
    found = tuple(verb for verb in _BY_STATUS.get(status, ("delete",)) if not (waits and verb == "promote"))
    if not is_claimed:
        return found
    return tuple(verb for verb in dict.fromkeys((*found, "release")) if verb not in _NOT_IF_CLAIMED)


def verbs_for_many(jobs: Iterable[tuple[str, bool]]) -> tuple[str, ...]:
    """Return the verbs that can work for some of several jobs, given the status of each and whether it waits for other
    jobs, or for a signal: those that there are for many at once."""
    able = {verb for status, waits in jobs for verb in verbs_for(status, waits=waits)}
    return tuple(verb for verb in ("requeue", "promote", "cancel", "move", "delay", "delete") if verb in able)
