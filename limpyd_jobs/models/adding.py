"""Adding jobs, in steps. Of many jobs, consecutive ones that go to the same place are added together, in one round
trip."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import partial
from typing import Any, NamedTuple

from limpyd_jobs import transitions
from limpyd_jobs.arguments import delay_argument, stored_value
from limpyd_jobs.classes.roots import has_custom_placement
from limpyd_jobs.dates import compute_delayed_until
from limpyd_jobs.fields.new_fields import checked_fields, default_priority, stored_names
from limpyd_jobs.models.identifying import LEFT_OUT, identifier_of_new
from limpyd_jobs.observing import instruments
from limpyd_jobs.records import records
from limpyd_jobs.records.layout import layout_to_add
from limpyd_jobs.records.sizes import check_job_size
from limpyd_jobs.redis.calls import Steps
from limpyd_jobs.transitions import instrumented

# How many jobs one script adds, at most: it keeps Redis from everybody else for some milliseconds.
STEP_SIZE = 250

Step = Steps["list[Any]"]  # jobs of the class they are added of
Row = tuple[str, Mapping[str, str]]


class Place(NamedTuple):
    """Where a job goes."""

    queue_model: Any
    queue_name: str
    priority: str
    prepend: bool
    delay: str


# No place for a job that must be added alone; the fields of a new one as they are stored, but for its identifier.
Destination = tuple["Place | None", Mapping[str, str]]


def one(
    job_class: Any,
    identifier: str,
    queue_name: str | None,
    priority: int | str | None,
    queue_model: Any,
    prepend: bool,
    delayed_for: Any,
    delayed_until: Any,
    fields_if_new: dict[str, Any],
) -> Steps[Any]:
    """Do what `Job.add_job` says."""
    queue_name = job_class._get_queue_name(queue_name)
    given_model, queue_model = queue_model, queue_model or job_class.queue_model
    delay = delay_argument(delayed_for, delayed_until)
    is_custom = has_custom_placement(job_class, queue_model)
    identifier = identifier_of_new(job_class, identifier, fields_if_new)
    fields = stored_names(job_class, checked_fields(job_class, fields_if_new))
    check_job_size(job_class, identifier, fields)
    add, once = instrumented.add if instruments.installed else transitions.add, transitions.current_once.get()
    outcome, pk = yield from add.steps(
        job_class,
        identifier,
        queue_model,
        queue_name,
        default_priority(job_class, priority),
        prepend=prepend,
        delay=delay,
        fields=fields,
        place=not is_custom,
        once=once.next_key(queue_model) if once else "",
    )
    job = records.attached(job_class, pk)
    job.__dict__["_was_added"] = outcome == "added"
    if is_custom and outcome != "existing":
        until = compute_delayed_until(delayed_for, delayed_until)
        given_model = given_model if outcome == "added" else queue_model
        # the arguments are those that an override was given by version 2
        place = partial(job.enqueue_or_delay, queue_name, priority, until, prepend, given_model)
        yield from _placed_by_override(job, place, is_new=outcome == "added")
    if is_custom:
        yield partial(transitions.await_copies, job)
    return job


def _placed_by_override(job: Any, place: Callable[[], object], *, is_new: bool) -> Steps[None]:
    try:
        yield place
    except GeneratorExit:
        raise
    except BaseException:
        if is_new:
            yield job.queued.delete
        raise


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
    usual: Destination | None = None
    place: Place | None = None
    rows: list[Row] = []
    for job in jobs:
        arguments = dict(job) if isinstance(job, Mapping) else {"identifier": job}
        if arguments.keys() == {"identifier"}:
            where, fields = usual = usual or read(**common)
        else:
            where, fields = read(**{**common, **arguments})
        if rows and place and (where != place or len(rows) == STEP_SIZE):
            yield _add_together(job_class, rows, place)
            rows = []
        place = where
        if place:
            identifier = identifier_of_new(job_class, arguments.get("identifier", LEFT_OUT), {**common, **arguments})
            check_job_size(job_class, identifier, fields)
            rows.append((identifier, fields))
        else:
            yield _add_alone(job_class, {**common, **arguments})
    if rows and place:
        yield _add_together(job_class, rows, place)


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
) -> Destination:
    """Check the arguments of a job, and return where it goes."""
    layout, queue_model = layout_to_add(job_class), queue_model or job_class.queue_model
    fields = stored_names(job_class, checked_fields(job_class, fields))
    if (
        has_custom_placement(job_class, queue_model)
        or layout.needs_limpyd
        or layout.has_unique
        or not layout.plain.issuperset(fields)
        or transitions.current_once.get()
    ):
        return None, {}
    place = Place(
        queue_model,
        job_class._get_queue_name(queue_name),
        default_priority(job_class, priority),
        bool(prepend),
        delay_argument(delayed_for, delayed_until),
    )
    return place, {name: stored_value(name, value) for name, value in fields.items()}


def _add_together(job_class: Any, rows: list[Row], place: Place) -> Step:
    model, name, priority, prepend, delay = place
    where = job_class, rows, model, name, priority
    if instruments.installed:
        pks = yield from instrumented.add_many.steps(*where, prepend=prepend, delay=delay)
    else:
        pks = yield transitions.add_many.call(*where, prepend=prepend, delay=delay)
    return [records.attached(job_class, pk) for pk in pks]


def _add_alone(job_class: Any, arguments: Mapping[str, Any]) -> Step:
    return [(yield partial(job_class.add_job, **arguments))]
