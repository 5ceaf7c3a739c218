"""The check looks at a database twice, some seconds apart. A problem counts if it is there both times."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator
from typing import Any

from limpyd.contrib.database import PipelineDatabase

from limpyd_jobs.check.advice import warnings_of
from limpyd_jobs.check.beside.flows import Flows
from limpyd_jobs.check.beside.presences import Presences
from limpyd_jobs.check.beside.schedules import Schedules
from limpyd_jobs.check.catalogue import Catalogue, Model, catalogues, path_of_model
from limpyd_jobs.check.keys import Keys
from limpyd_jobs.check.places import Places
from limpyd_jobs.check.problems import LEAVE, OF_ANY_TEXT, OF_VALUES, PROBLEMS, Choices
from limpyd_jobs.check.queues import Queues
from limpyd_jobs.check.reader import Reader
from limpyd_jobs.check.records import Records, unchecked_indexes
from limpyd_jobs.check.report import Finding, Report
from limpyd_jobs.check.unknown import Unknown
from limpyd_jobs.models import BaseJobsModel, Error, Queue
from limpyd_jobs.records.audit import audited
from limpyd_jobs.records.records import redis_of
from limpyd_jobs.redis.database import database_name

# For how many seconds at most a worker holds a job that stands in no list, or version 2 takes to change a job.
DEFAULT_PAUSE = 5
LEASE = 86400

# After how many seconds a wait is told of again.
TELL_EVERY = 0.5

# Is given the name of a field and a value of it; returns what to tell instead.
Mask = Callable[[str, str], str]


def _as_it_is(_: str, value: str) -> str:
    return value


def check(
    repair: bool = False,
    *,
    queue_models: Iterable[type[Queue]] | None = None,
    error_models: Iterable[type[Error]] | None = None,
    database: PipelineDatabase | None = None,
    lease: float = LEASE,
    pause: float = DEFAULT_PAUSE,
    unresolved: str = LEAVE,
    unknown_status: str = LEAVE,
    strict: bool = False,
    progress: Callable[[str], None] | None = None,
    mask: Mask = _as_it_is,
    imports: bool = True,
) -> Report:
    """Look for problems in the database: jobs in no list or in several, wrong indexes, keys of nothing.

    Workers and producers may go on: it reads in small parts, then looks at each problem a second time, and repairs it,
    in one atomic step. It looks at all job classes that are imported, and at the classes that are known from the
    database, or of jobs in the queues, if they can be imported. Other classes that have jobs are findings.

    Parameters
    ----------
    repair: bool
        True to repair the problems that can be repaired.
    queue_models, error_models: iterables of model classes
        By default, all imported models.
    database: PipelineDatabase
        The only database to look at. By default, all databases of these models.
    lease: float
        For how many seconds at most a job that is RUNNING without a lease, or without the claim of a worker, is left
        alone, because a worker of version 2 may run it, before a worker puts it back: 0 if none lives.
    pause: float
        How many seconds lie between the two looks; less than 5 only if nothing else uses the database.
    unresolved: str
        What a repair does with jobs in queues whose class cannot be resolved, unless they run: ``leave`` them
        there; ``quarantine``, to move their idents to the quarantine list of their queue; ``delete``, to remove them.
        Their hashes always stay: a worker that can resolve the class puts them back.
    unknown_status: str
        What a repair does with jobs that stand in no queue, and whose status is not one of the six: ``leave``,
        ``requeue`` or ``delete`` them.
    strict: bool
        Whether to warn of settings of Redis that lose jobs in a failover, or when its memory is full, too.
    progress: callable
        Called with a line of text now and then.
    mask: callable
        Is given the name of a field and a value of it, or ``entry`` and an entry of a queue that is no ident; returns
        what to show instead.
    imports: bool
        False to import no class because a job names it: jobs of classes that are not imported are not looked at.

    Returns
    -------
    Report

    Raises
    ------
    ValueError
        If `unresolved` or `unknown_status` is another word.
    redis.exceptions.RedisError
        If Redis fails.

    Examples
    --------
    >>> report = check()
    >>> report.left
    []
    """
    began = time.monotonic()
    choices, report = Choices(unresolved, unknown_status, lease), Report()
    for catalogue in catalogues(queue_models, error_models, database, imports=imports):
        report.databases.append(database_name(catalogue.database.connection_settings))
        _Session(catalogue, pause, choices, progress or (lambda line: None), report, mask).run(repair, strict)
    report.seconds = time.monotonic() - began
    return report


def audited_repair(
    *, unresolved: str = LEAVE, unknown_status: str = LEAVE, unaudited: bool = False, **how: Any
) -> Report:
    """Repair as `check` does, and write that to the audit. The arguments are those of `check`.

    Raises
    ------
    NotAudited
        If Redis refuses to write it to the audit, and it may not be unaudited.
    """
    choices = {"unresolved": unresolved, "unknown_status": unknown_status}
    told = " ".join(f"{name}={choice}" for name, choice in choices.items())
    connection = BaseJobsModel.get_connection()
    with audited(connection, verb="check --repair", filter=told, unaudited=unaudited) as entry:
        report = check(repair=True, unresolved=unresolved, unknown_status=unknown_status, **how)
        entry.numbers = {"done": len(report.findings) - len(report.left), "refused": len(report.left)}
    return report


class _Session:
    def __init__(
        self,
        catalogue: Catalogue,
        pause: float,
        choices: Choices,
        progress: Callable[[str], object],
        report: Report,
        mask: Mask,
    ) -> None:
        self._mask = mask
        self._catalogue = catalogue
        self._choices = choices
        self._pause = pause
        self._progress = progress
        self._report = report
        self._reader = reader = Reader(redis_of(catalogue.queues[0]))
        self._unknown = Unknown(reader, catalogue)
        self._progress("looking for job classes")
        self._queues = Queues(reader, catalogue, choices)
        self._places = Places(reader, catalogue, self._queues, choices)
        self._schedules = Schedules(reader, catalogue)
        self._discover()
        self._presences, self._flows = Presences(reader, catalogue), Flows(reader, catalogue)
        self._records = Records(reader)
        self._keys = Keys(reader, catalogue, self._queues, self._records, self._note)

    def _note(self, key: str) -> None:
        """Note a key that belongs to none of the models."""
        self._unknown.note(key)
        self._flows.note(key)

    def _discover(self) -> None:
        """Resolve the classes of what is stored, until that makes no other model known: a module may define several."""
        known = -1
        while known < len(self._catalogue.all):
            known = len(self._catalogue.all)
            self._queues.read()
            for part in (self._unknown, self._places, self._schedules):
                part.discover()
            self._catalogue.look_for_models()

    def run(self, repair: bool, strict: bool) -> None:
        self._look()
        parts: Iterable[Any] = (self._keys, self._records, self._queues, self._places, self._schedules, self._presences)
        if any(part.is_suspicious for part in (*parts, self._flows, self._unknown)):
            self._wait()
            self._report.findings += self._look_again(repair)
        for model in self._catalogue.all:
            path, known = path_of_model(model), self._report.records  # a model may be in several namespaces
            known[path] = known.get(path, 0) + self._records.counts.get(model, 0)
            if self._records.counts.get(model):
                self._report.unchecked += unchecked_indexes(model)
        self._report.unchecked += self._catalogue.refused
        if not self._catalogue.imports:
            self._report.unchecked += (f"jobs of {path}: {why}" for path, why in self._catalogue.unknown.items())
        self._report.warnings += self._unknown.warnings()
        self._report.warnings += self._places.warnings()
        self._report.warnings += warnings_of(self._reader, self._catalogue, self._queues, strict)

    def _wait(self) -> None:
        until = time.monotonic() + self._pause
        while (left := until - time.monotonic()) > 0:
            self._progress(
                f"waits for {max(left, 1):.0f} s, then looks again at what seems wrong: a job that begins, ends or "
                "moves right now may look so"
            )
            time.sleep(min(left, TELL_EVERY))

    def _look(self) -> None:
        self._follow("keys", self._keys.look())
        if self._queues.recordless:
            self._places.discover()
        for model in self._catalogue.all:
            self._follow(f"records of {path_of_model(model)}", self._records.look(model, self._places.expect))
        self._follow("places in queues", self._places.look())
        self._follow("schedules", self._schedules.look())
        self._follow("presences", self._presences.look())
        self._follow("flows", self._flows.look())

    def _follow(self, what: str, numbers: Iterator[int]) -> None:
        for number in numbers:
            self._progress(f"{what}: {number}")

    def _look_again(self, repair: bool) -> Iterator[Finding]:
        """Yield the problems. The order matters to a repair, because each step relies on the steps before it."""
        for step in (
            self._keys.look_at_types_again,
            self._keys.restore_queues,
            self._records.look_again,
            self._queues.merge,
            self._keys.look_at_indexes_again,
            self._places.look_again,
            self._keys.look_at_owners_again,
            self._queues.remove_nameless,
            self._queues.unservable,
            self._schedules.look_again,
            self._presences.look_again,
            self._flows.look_again,
            self._unknown.look_again,
        ):
            for model, subject, kind, details in step(repair):
                shown = _masked_subject(model, subject, kind, self._mask)
                told = shown, kind, _masked_details(kind, details, self._mask)
                yield finding(model, *told, repair, self._choices)


def _masked_subject(model: Model | None, subject: str, kind: str, mask: Mask) -> str:
    """Return a key without the value that stands in it, as in those of indexes; and what an entry of a queue has in it
    if it is no ident."""
    if kind == OF_ANY_TEXT:
        return mask("entry", subject)
    begin = f"{model._name}:" if model else ""
    field, colon, value = subject.removeprefix(begin).partition(":")
    return f"{begin}{field}:{mask(field, value)}" if model and colon and subject.startswith(begin) else subject


def _masked_details(kind: str, details: tuple[Any, ...], mask: Mask) -> tuple[Any, ...]:
    if kind not in OF_VALUES:
        return details
    field, value, *others = details
    return (field, mask(field, value), *others)


def finding(
    model: Model | None, subject: str, kind: str, details: tuple[Any, ...], repaired: bool, choices: Choices
) -> Finding:
    problem = PROBLEMS[kind]
    is_job_state = len(details) == 3
    status = details[1] if is_job_state else ""
    repair = "" if is_job_state and not details[2] else problem.repair_by(choices)
    repair = repair.format(*details, put_back=choices.put_back)
    return Finding(
        invariant=problem.invariant,
        model=path_of_model(model) if model else "",
        subject=subject,
        kind=kind,
        problem=problem.text.format(*details, status=status),
        repair=repair,
        repaired=repaired and bool(repair),
        option="" if repair else problem.option,
    )
