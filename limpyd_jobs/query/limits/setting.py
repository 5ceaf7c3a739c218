"""Other numbers for limits than their classes say, and rests of limits."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from limpyd_jobs import transitions
from limpyd_jobs.classes.job_classes import job_class_of
from limpyd_jobs.exceptions import ConfigurationException
from limpyd_jobs.limiting.limit import Limit, amount_of, check_numbers, interval_of, key_of, limits_of_class, prefix_of
from limpyd_jobs.limiting.live import FOREVER, words_of
from limpyd_jobs.models import Job
from limpyd_jobs.models.functions.function import JobFunction
from limpyd_jobs.query.limits.keys import owner_of, shown
from limpyd_jobs.records.audit import entry_request, refusing_if_unaudited
from limpyd_jobs.records.known_classes import HIDDEN, is_secret_in
from limpyd_jobs.search.classes import connection_to, replies_to


def set_limit(
    job_class: type[Job] | JobFunction[..., Any, Any],
    limit: str,
    value: str | None = None,
    *,
    concurrency: int | str | None = "",
    rate: str | None = "",
    burst: int | str | None = "",
    share: float | str | None = "",
    unaudited: bool = False,
) -> Mapping[str, str]:
    """Set other numbers for a limit than its class does, from the next claim on: they outlast a deploy.

    Jobs that run go on, also if they are more than that; none begins until there is room.

    Parameters
    ----------
    job_class: type of Job, or JobFunction
        A class, or a function, with the limit. If several share it, it is set for all whose queues are of the same
        model.
    limit: str
        The name of the limit, or its field.
    value: str
        The value of the field that is meant; None for all values that have no numbers of their own.
    concurrency, rate, burst
        As of `Limit`; None for what the class says. What is left out stays as it is.
    share: float
        How many turns the value has while others have one, if they take turns.
    unaudited: bool
        True to do it even if Redis refuses to write it to the audit.

    Returns
    -------
    mapping
        All that is set for it now.

    Raises
    ------
    ConfigurationException
        If the class has no such limit, or a number is none.
    NotAudited
        If Redis refuses to write it to the audit.
    """
    given = {"concurrency": concurrency, "rate": rate, "burst": burst, "share": share}
    given = {name: number for name, number in given.items() if number != ""}
    check_numbers(**given)
    words = {name: "" if number is None else str(number) for name, number in given.items()}
    if "rate" in words:
        words["most"] = repr(amount_of(words["rate"])) if words["rate"] else ""
    if words.get("rate"):
        words["rate"] = repr(interval_of(words["rate"]))
    said = " ".join(f"{name}={'' if number is None else number}" for name, number in given.items())
    return _set(job_class, limit, value, words, f"set {said}", unaudited=unaudited)


def rest_limit(
    job_class: type[Job] | JobFunction[..., Any, Any],
    limit: str,
    value: str | None = None,
    seconds: float | None = None,
    *,
    unaudited: bool = False,
) -> Mapping[str, str]:
    """Let no job of a limit, or of one value, begin for some seconds; without a number, until `resume_limit`. See
    `set_limit`."""
    connection = connection_to(job_class_of(job_class).database)
    now, microseconds = replies_to(connection, [("TIME",)])[0]
    until = FOREVER if seconds is None else now * 1_000_000 + microseconds + round(seconds * 1_000_000)
    said = "pause" if seconds is None else f"rest {seconds:g}"
    return _set(job_class, limit, value, {"rest": str(until)}, said, unaudited=unaudited)


def resume_limit(
    job_class: type[Job] | JobFunction[..., Any, Any], limit: str, value: str | None = None, *, unaudited: bool = False
) -> Mapping[str, str]:
    """Let the jobs of a limit that rests begin again. See `set_limit`."""
    return _set(job_class, limit, value, {"rest": ""}, "resume", unaudited=unaudited)


def _set(
    given: Any, limit: str, value: str | None, words: Mapping[str, str], said: str, *, unaudited: bool
) -> Mapping[str, str]:
    job_class: type[Job] = job_class_of(given)
    found = limit_named(job_class, limit)
    if value is not None and found.field is None:
        raise ConfigurationException(
            f"The limit {found.label!r} of {job_class.__name__} has no values: it has no field"
        )
    owner = owner_of(job_class, found)
    key = prefix_of(owner, found) if value is None else key_of(owner, found, value)
    is_secret = found.field is not None and is_secret_in(job_class, found.field)
    shown_value = "" if value is None else f"={HIDDEN if is_secret else value}"
    what = f"{job_class.get_model_repr()} {found.label}{shown_value}"
    audit = entry_request(unaudited, verb=f"limit {said.partition(' ')[0]}", filter=f"{what} {said}")
    with refusing_if_unaudited():
        return shown(words_of(transitions.set_limit(job_class.queue_model, key, words, audit)))


def limit_named(job_class: type[Job], name: str) -> Limit:
    """Return the limit of a class by its name, or its field; raise `ConfigurationException` if it has none such."""
    limits = limits_of_class(job_class)
    for limit in limits:
        if limit.label == name:
            return limit
    has = f"its limits are {', '.join(limit.label for limit in limits)}" if limits else "it has none"
    raise ConfigurationException(f"{job_class.__name__} has no limit named {name!r}: {has}")
