"""Editing a job before it is run."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime, timedelta
from typing import Any, NamedTuple

from limpyd_jobs import transitions
from limpyd_jobs.arguments import delay_argument, shown_delay, stored_priority, stored_value
from limpyd_jobs.classes.job_classes import job_classes
from limpyd_jobs.classes.roots import has_custom_placement, roots
from limpyd_jobs.exceptions import NotEditable, naming
from limpyd_jobs.fields.argument import ValueField
from limpyd_jobs.fields.new_fields import RESERVED, checked_fields, stored_names
from limpyd_jobs.idents import Ident
from limpyd_jobs.models.explaining.details import stored_job
from limpyd_jobs.records import records
from limpyd_jobs.records.audit import audited, entry_request, refusing_if_unaudited
from limpyd_jobs.records.layout import layout_of
from limpyd_jobs.records.sizes import check_job_size
from limpyd_jobs.redis.calls import given
from limpyd_jobs.redis.database import JobsDatabase
from limpyd_jobs.search.classes import connection_to, imported_queue_model, on, replies_to
from limpyd_jobs.search.jobs import JobFilter
from limpyd_jobs.texts import one_line


class FieldChange(NamedTuple):
    """A field that was changed, with the stored texts before and after that; None for no value."""

    name: str
    before: str | None
    after: str | None


def edit_job(
    ident: str,
    fields: Mapping[str, Any] | None = None,
    *,
    priority: int | str | None = None,
    delayed_for: float | timedelta | None = None,
    delayed_until: datetime | None = None,
    seen: Mapping[str, str | None] | None = None,
    as_text: bool = False,
    database: JobsDatabase | None = None,
    dry_run: bool = False,
    unaudited: bool = False,
) -> list[FieldChange]:
    """Change fields and arguments, the priority and the delay of a job that waits or is delayed, in one step.

    It keeps its place in its list, unless its priority or delay changes: then it is put at the end of another one. The
    audit has the names of the fields, not their values.

    Parameters
    ----------
    ident: str
    fields: mapping
        The new values, as `Job.add_job` takes them; None for a field that loses its value.
    priority: int
        None to keep it.
    delayed_for: int, float or timedelta
        How long to wait from now on; 0 to wait no more, None to keep the delay.
    delayed_until: datetime
        Until when to wait instead: naive UTC, or aware.
    seen: mapping of str to str
        Stored values that the job must still have, as `JobDetails.fields` has them; None for no value. It does not
        matter if nothing has to be changed.
    as_text: bool
        True if the values of arguments, and of other fields that hold values of Python, are texts, as in a form.
    database: JobsDatabase
        The database of `BaseJobsModel` by default.
    dry_run: bool
        True to change nothing, and to return what would be changed.
    unaudited: bool
        True to do it even if Redis refuses to write it to the audit.

    Returns
    -------
    list of FieldChange
        Without those that had the value already.

    Raises
    ------
    NotEditable
        If the job is claimed, neither waits nor is delayed, or has not the values that were seen.
    AttributeError, TypeError, ValueError, UniquenessError
        If an argument is not one of the above, or cannot be edited.
    LookupError
        If there is no such job, or its class is not known in the database.
    NotAudited
        If Redis refuses to write it to the audit.
    Exception
        Whatever the module of its class raises as it is imported.
    """
    stored = stored_job(ident, database)
    job_class = on(job_classes.resolve(Ident.of(ident).path), database)
    changes = _checked(job_class, stored, _read(job_class, fields or {}) if as_text else dict(fields or {}))
    keeps_delay = delayed_for is None and delayed_until is None
    delay = None if keeps_delay else delay_argument(delayed_for, delayed_until)
    new_priority = "" if priority is None else stored_priority(priority)
    if not (changes or new_priority or delay is not None):
        what = (("priority", "a priority"), ", ", ("delayed_for", "a delay"))
        raise naming(ValueError, "say what to change: give ", *what, " or fields")
    queue_model = _queue_model_of(job_class, stored, database)
    if (new_priority or delay is not None) and has_custom_placement(job_class, queue_model):
        raise ValueError(f"{job_class.__name__} has its own way to a queue: move or delay it, without other changes")
    told = given(priority=new_priority, delay="none" if delay == "" else shown_delay(delay or ""))
    names = sorted(name.removeprefix("_") for name in changes)
    how = " ".join([*(f"{name}={value}" for name, value in told.items()), *names])
    with refusing_if_unaudited(needs_room=None if new_priority else False):
        found = transitions.edit(
            records.attached(job_class, Ident.of(ident).pk),
            queue_model,
            changes,
            priority=new_priority,
            delay=delay,
            default_name=_queue_name_of(stored, database) or job_class.queue_name or "",
            seen={name: value or "" for name, value in stored_names(job_class, dict(seen or {})).items()},
            audit=entry_request(unaudited, verb="edit", filter=ident, how=how, done=1),
            dry=dry_run,
        )
    return [FieldChange(name.removeprefix("_"), *values) for name, *values in found]


def _read(job_class: Any, fields: Mapping[str, str | None]) -> dict[str, Any]:
    return {name: _value_of(job_class, name, text) for name, text in fields.items()}


def _value_of(job_class: Any, name: str, text: str | None) -> Any:
    field = job_class.get_class_field(name) if name in job_class._fields else None
    return field.read(text) if isinstance(field, ValueField) and text is not None else text


def _checked(job_class: Any, stored: Mapping[str, str], fields: dict[str, Any]) -> dict[str, str | None]:
    """Return fields as they are stored; raise the exception of one that cannot be changed so."""
    layout = layout_of(job_class)
    checked = stored_names(job_class, checked_fields(job_class, fields, is_new=False))
    for name in checked.keys() - layout.plain - layout.special:
        raise ValueError(f"The field {name!r} of {job_class.__name__} cannot be edited: no script can write it")
    changes = {name: None if value is None else stored_value(name, value) for name, value in checked.items()}
    tries = changes.get("tries")
    if tries is not None and not (tries.isascii() and tries.isdigit()):
        raise ValueError(f"tries must be a number, 0 or more, not {one_line(tries)!r}")
    kept = {name: value for name, value in stored.items() if not (name.startswith("_") or name in RESERVED)}
    new = {name: value for name, value in {**kept, **changes}.items() if value is not None}
    check_job_size(job_class, stored.get("identifier", ""), new)
    return changes


def _queue_model_of(job_class: Any, stored: Mapping[str, str], database: JobsDatabase | None) -> Any:
    """Return the model of the queue in which a job is: that of its class, unless it was added otherwise."""
    name = stored.get("_queue_key", "").rpartition(":")[0]
    own = job_class.queue_model
    return own if name in ("", own._name) else imported_queue_model(database, name)


def _queue_name_of(stored: Mapping[str, str], database: JobsDatabase | None) -> str:
    (name,) = replies_to(connection_to(database), [("HGET", f"{stored.get('_queue_key', '')}:hash", "name")])
    return name or ""


def duplicate_job(
    ident: str,
    fields: Mapping[str, Any] | None = None,
    *,
    identifier: str | None = None,
    queue_name: str | None = None,
    priority: int | str | None = None,
    delayed_for: float | timedelta | None = None,
    delayed_until: datetime | None = None,
    as_text: bool = False,
    database: JobsDatabase | None = None,
    dry_run: bool = False,
    unaudited: bool = False,
) -> str:
    """Add a job with the identifier, the fields and the arguments of another one, of whatever status, or with changes.

    The other one stays as it is. The new one has the priority and the policies of its class. Fields that are not in the
    hash, such as lists, are not copied.

    Parameters
    ----------
    ident: str
    fields: mapping
        Other values, as `Job.add_job` takes them; None for a field without a value.
    identifier, queue_name: str
        Those of the other job by default.
    dry_run: bool
        True to add nothing, and to return the ident of the other one.

    The other parameters: see `edit_job`, and `Job.add_job`.

    Returns
    -------
    str
        The ident of the new job.

    Raises
    ------
    NotEditable
        If a job of the identifier is queued already.
    LookupError, AttributeError, TypeError, ValueError, UniquenessError, NotAudited
        As `edit_job` does.
    """
    stored, path = stored_job(ident, database), Ident.of(ident).path
    job_class = on(job_classes.resolve(path), database)
    own = {name: stored[name] for name in job_class._fields if name in stored and name not in roots.job._fields}
    changes = _read(job_class, fields or {}) if as_text else dict(fields or {})
    values = {name: value for name, value in {**_read(job_class, own), **changes}.items() if value is not None}
    checked_fields(job_class, dict(values))
    name = stored.get("identifier", "") if identifier is None else identifier
    if queued := JobFilter(f"class={path}", identifier=name, queued="1", database=database).page(1).found:
        raise NotEditable(f"{queued[0].ident} has the identifier {one_line(name)} and is queued: give another one")
    if dry_run:
        return ident
    queue_name = queue_name or _queue_name_of(stored, database) or None
    told = {"verb": "duplicate", "filter": ident, "how": " ".join(sorted(changes))}
    with audited(connection_to(database), unaudited=unaudited, needs_room=True, refusals=(), **told) as entry:
        delay = given(delayed_for=delayed_for, delayed_until=delayed_until)
        job = job_class.add_job(name, queue_name, priority, **delay, **values)
        entry.numbers = {"done": 1}
    return f"{job.ident}"
