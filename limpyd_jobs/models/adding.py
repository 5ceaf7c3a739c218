"""Adding jobs: one by one request, or many in steps, of which each adds consecutive jobs that go to the same place."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import partial
from typing import Any, Literal, NamedTuple

from limpyd_jobs import transitions
from limpyd_jobs.arguments import delay_argument, stored_identifier, stored_priority, stored_value
from limpyd_jobs.classes.roots import has_custom_placement, roots
from limpyd_jobs.dates import compute_delayed_until
from limpyd_jobs.fields.argument import arguments_of
from limpyd_jobs.fields.new_fields import checked_fields, default_priority, stored_names
from limpyd_jobs.models.calls.prepared import Prepared
from limpyd_jobs.models.identifying import LEFT_OUT, identifier_of_new
from limpyd_jobs.observing import instruments
from limpyd_jobs.records.layout import layout_to_add
from limpyd_jobs.records.lazy_fields import attached
from limpyd_jobs.records.sizes import check_job_size
from limpyd_jobs.redis.calls import Call, Requests, Steps, stepped
from limpyd_jobs.transitions import instrumented

# How many jobs one script adds, at most: it keeps Redis from everybody else for some milliseconds.
STEP_SIZE = 250

Step = Steps["list[Any]"]  # jobs of the class they are added of
Row = tuple[str, Mapping[str, str]]  # the identifier of a new job, and its other fields as they are stored
Added = tuple[str, str]  # the outcome, and the pk of the job

AddOutcome = Literal["added", "existing", "moved", "replaced", "running", "throttled"]


def why_not_added(outcome: str | None) -> str:
    """Return what is to be said of a job that was found instead of a new one."""
    return "ended too short a while ago (unique_for)" if outcome == "throttled" else "is queued already"


class OutcomeOfAdding:
    """What the call that returned this object of a job did, as `Job.add_job` says; None if none of those returned it.
    An application may have a field or method of that name."""

    def __get__(self, job: Any, owner: type) -> Any:
        return self if job is None else vars(job).get("_add_outcome")


class Where(NamedTuple):
    """Where a new job goes."""

    queue_model: Any
    queue_name: str
    priority: str
    prepend: bool
    delay: str
    replaces: str


def one(
    job_class: Any,
    identifier: str,
    queue_name: str,
    priority: int | str | None,
    queue_model: Any,
    prepend: bool,
    delayed_for: Any,
    delayed_until: Any,
    fields_if_new: dict[str, Any],
) -> Requests[Any]:
    """Do what `Job.add_job` says, given the checked name of a queue."""
    model = queue_model or job_class.queue_model
    # what most jobs do not need is not called
    delay = "" if delayed_for is None and delayed_until is None else delay_argument(delayed_for, delayed_until)
    is_usual = model is roots.queue and job_class.enqueue_or_delay is roots.job.enqueue_or_delay
    is_custom = not is_usual and has_custom_placement(job_class, model)
    replaces = _replaces(job_class, fields_if_new) if "on_duplicate" in fields_if_new else ""
    identifier, fields = checked_for_new(job_class, identifier, fields_if_new)
    if replaces:
        _check_replacement(job_class, fields, is_custom=is_custom)
    stored = default_priority(job_class, None) if priority is None else stored_priority(priority)
    add, once = instrumented.add if instruments.installed else transitions.add, transitions.current_once.get()
    added = add.steps(
        job_class,
        identifier,
        model,
        queue_name,
        stored,
        prepend=prepend,
        delay=delay,
        fields=fields,
        place=not is_custom,
        once=once.next_key(model) if once else "",
        replaces=replaces,
    )
    if not is_custom:
        return _job_of_call(job_class, added) if isinstance(added, Call) else _job_of_steps(job_class, added)

    def place(job: Any, outcome: str) -> None:
        until = compute_delayed_until(delayed_for, delayed_until)
        # the arguments are those that an override was given by version 2
        job.enqueue_or_delay(queue_name, priority, until, prepend, queue_model if outcome == "added" else model)

    return _placed_by_override(job_class, stepped(added), place)


def checked_for_new(job_class: Any, identifier: Any, fields: dict[str, Any]) -> tuple[str, dict[str, Any]]:
    """Return the identifier and the fields of a new job as they are stored, if they are as they must be."""
    if identifier is LEFT_OUT:
        identifier = identifier_of_new(job_class, identifier, fields)
    else:
        identifier = stored_identifier(identifier)
    if fields or arguments_of(job_class):
        fields = stored_names(job_class, checked_fields(job_class, fields))
    if job_class.max_job_bytes is not None:
        check_job_size(job_class, identifier, fields)
    return identifier, fields


def _replaces(job_class: Any, fields: dict[str, Any]) -> str:
    """Take what is to become of a queued job of the same identifier out of the fields of a new job, unless its class
    has a field of that name; return it as scripts take it."""
    from limpyd_jobs.models.calls import duplicates  # most processes never need it

    return duplicates.replaces(job_class, fields)


def _check_replacement(job_class: Any, fields: Mapping[str, Any], *, is_custom: bool) -> None:
    from limpyd_jobs.models.calls import duplicates

    duplicates.check_replacement(job_class, fields, is_custom=is_custom)


def _job_of_call(job_class: Any, call: Call[Added]) -> Call[Any]:
    """Let a call that adds a job return the object of the job."""
    read: Callable[[dict[str, Any]], Any] = call.read
    call.read = lambda reply: _job_of(job_class, read(reply))
    return call


def _job_of_steps(job_class: Any, added: Steps[Added]) -> Steps[Any]:
    return _job_of(job_class, (yield from added))


def _job_of(job_class: Any, added: Added) -> Any:
    outcome, pk = added
    job = attached(job_class, pk)
    job.__dict__["_add_outcome"] = outcome
    return job


def _placed_by_override(job_class: Any, added: Steps[Added], place: Callable[[Any, str], None]) -> Steps[Any]:
    """Add a job that the application puts in a queue by itself."""
    outcome, pk = yield from added
    job = _job_of(job_class, ("moved" if outcome == "outranked" else outcome, pk))
    try:
        if outcome in ("added", "outranked"):
            yield partial(place, job, outcome)
    except GeneratorExit:
        raise
    except BaseException:
        if outcome == "added":
            yield job.queued.delete
        raise
    yield partial(transitions.await_copies, job)
    return job


def many(
    job_class: Any,
    jobs: Iterable[str | Mapping[str, Any]],
    progress: Callable[[int], object] | None,
    fields_if_new: Mapping[str, Any],
    **where: Any,
) -> Step:
    """Do what `Job.add_jobs` says."""
    added: list[Any] = []
    for step in _steps(job_class, jobs, {**where, **fields_if_new}):
        added += yield from step
        if progress:
            progress(len(added))
    return added


def _steps(
    job_class: Any,
    jobs: Iterable[str | Mapping[str, Any]],
    common: Mapping[str, Any],
) -> Iterator[Step]:
    """Yield steps that each add some of the jobs, given by their identifiers or arguments, in their order, and return
    them. The common arguments are those of jobs that have none of their own."""
    if isinstance(jobs, (str, bytes, Mapping)):
        raise TypeError(f"Give a list of jobs, as [{jobs!r}], not {jobs!r}")
    read = partial(_read, job_class)
    usual: tuple[Where | None, Mapping[str, str]] | None = None
    there: Where | None = None  # where the rows go
    rows: list[Row] = []
    for job in jobs:
        if isinstance(job, Prepared):
            job.check_class(job_class)
        arguments = dict(job) if isinstance(job, Mapping) else {"identifier": job}
        if arguments.keys() == {"identifier"}:
            where, fields = usual = usual or read(**common)
        else:
            where, fields = read(**{**common, **arguments})
        if rows and there and (where != there or len(rows) == STEP_SIZE):
            yield _add_together(job_class, rows, there)
            rows = []
        there = where
        if there:
            identifier = identifier_of_new(job_class, arguments.get("identifier", LEFT_OUT), {**common, **arguments})
            check_job_size(job_class, identifier, fields)
            rows.append((identifier, fields))
        else:
            yield _add_alone(job_class, {**common, **arguments})
    if rows and there:
        yield _add_together(job_class, rows, there)


def _read(
    job_class: Any,
    queue_name: str | None,
    priority: Any,
    queue_model: Any,
    prepend: bool,
    delayed_for: Any,
    delayed_until: Any,
    identifier: Any = None,
    **fields: Any,
) -> tuple[Where | None, Mapping[str, str]]:
    """Check the arguments of a job; return where it goes, and its fields as they are stored. It goes nowhere
    with others if it must be added alone."""
    layout, queue_model = layout_to_add(job_class), queue_model or job_class.queue_model
    replaces = _replaces(job_class, fields) if "on_duplicate" in fields else ""
    fields = stored_names(job_class, checked_fields(job_class, fields))
    if (
        has_custom_placement(job_class, queue_model)
        or layout.needs_limpyd
        or layout.has_unique
        or not layout.plain.issuperset(fields)
        or transitions.current_once.get()
    ):
        return None, {}
    where = Where(
        queue_model,
        job_class._get_queue_name(queue_name),
        default_priority(job_class, priority),
        bool(prepend),
        delay_argument(delayed_for, delayed_until),
        replaces,
    )
    return where, {name: stored_value(name, value) for name, value in fields.items()}


def _add_together(job_class: Any, rows: list[Row], where: Where) -> Step:
    arguments = job_class, rows, where.queue_model, where.queue_name, where.priority
    options: dict[str, Any] = {"prepend": where.prepend, "delay": where.delay, "replaces": where.replaces}
    if instruments.installed:
        added = yield from stepped(instrumented.add_many.steps(*arguments, **options))
    else:
        added = yield transitions.add_many.call(*arguments, **options)
    return [attached(job_class, pk, _add_outcome=outcome) for outcome, pk in added]


def _add_alone(job_class: Any, arguments: Mapping[str, Any]) -> Step:
    return [(yield partial(job_class.add_job, **arguments))]
