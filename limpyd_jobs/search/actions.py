"""The verbs for all the jobs that a filter finds, and their outcomes."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from datetime import datetime, timedelta
from functools import partial
from typing import Any, ClassVar, NamedTuple

from redis.exceptions import ConnectionError, RedisError, TimeoutError

from limpyd_jobs import transitions
from limpyd_jobs.arguments import check_servable, delay_argument, shown_delay, stored_priority, stored_queue_name
from limpyd_jobs.classes.binding import check_database
from limpyd_jobs.classes.roots import extends, has_custom_placement, roots
from limpyd_jobs.dates import compute_delayed_until, parse_datetime
from limpyd_jobs.exceptions import AlreadyClaimed, naming
from limpyd_jobs.functions import memoized, overrides
from limpyd_jobs.records import records
from limpyd_jobs.records.audit import Entry
from limpyd_jobs.records.layout import layout_of
from limpyd_jobs.records.lazy_fields import pk_of
from limpyd_jobs.redis.calls import Steps, Verb, given, listed
from limpyd_jobs.search.pace import Pace
from limpyd_jobs.search.walk import Ask, Source
from limpyd_jobs.statuses import STATUSES
from limpyd_jobs.texts import described
from limpyd_jobs.transitions import many
from limpyd_jobs.transitions.many import Changed

# Outcomes of jobs for which there is nothing to do.
NOTHING_TO_DO = ("ended", "gone", "not delayed", "not in error", "not queued")

# What scripts need to give jobs one moment after the other.
TURNS = ("turns", "interval", "spread")

Delay = float | timedelta | None


class _Numbers(NamedTuple):
    done: int
    skipped: int
    refused: int
    reasons: dict[str, int]


class Tally(_Numbers):
    """The outcomes of the jobs that were found.

    Attributes
    ----------
    done: int
        How many were changed; with ``dry_run``, how many would be.
    skipped: int
        How many have another status, so that there was nothing to do.
    refused: int
        How many could not be changed.
    reasons: dict of str to int
        Why jobs were skipped or refused: ``not in error``, ``already queued`` (another job of the identifier is),
        ``claimed`` (a process runs it), ``no queue``, ``broken``, ``refused by Redis`` (as it is full), ``the pk is not
        a number`` (such jobs are not looked at, whether they meet the conditions or not)…
    until: datetime
        When the last of jobs that are spread is due, naive UTC; None if they are not.
    is_exact: bool
        False if `progress` raised `Enough` before all jobs were looked at.
    """

    until: datetime | None = None
    is_exact: bool = True

    @classmethod
    def of(cls, outcomes: Counter[str], until: datetime | None = None, is_exact: bool = True) -> Tally:
        """Make a tally from the number of jobs of each outcome."""
        reasons = {outcome: number for outcome, number in sorted(outcomes.items()) if number and outcome != "done"}
        skipped = sum(number for outcome, number in reasons.items() if outcome in NOTHING_TO_DO)
        tally = cls(outcomes["done"], skipped, sum(reasons.values()) - skipped, reasons)
        tally.until, tally.is_exact = until, is_exact
        return tally

    @property
    def written(self) -> dict[str, Any]:
        """What the audit has of it: all but the reasons."""
        return {"done": self.done, "skipped": self.skipped, "refused": self.refused, **given(until=self.until)}

    @classmethod
    def sum(cls, tallies: Iterable[Tally]) -> Tally:
        """Return the sum of several tallies."""
        outcomes: Counter[str] = Counter()
        until: list[datetime] = []
        is_exact = True
        for tally in tallies:
            outcomes.update(tally.reasons, done=tally.done)
            until += [tally.until] if tally.until else []
            is_exact = is_exact and tally.is_exact
        return cls.of(outcomes, max(until, default=None), is_exact)


class Action:
    """A verb for each of many jobs. Each subclass is one verb."""

    verb: ClassVar[str]
    transition: ClassVar[Verb[Any, Changed]]
    methods: ClassVar[tuple[str, ...]]  # of a job, that do it with one: if a class has its own, they are called
    spares_claimed: ClassVar[bool] = True  # whether jobs that are claimed are left alone
    turn: datetime | None = None  # of the last job that was done by its own way, if jobs are spread
    is_counted_first = False  # whether it depends on the number of jobs
    request: Mapping[str, Any] = {}  # for the script, as far as it does not depend on the class

    @property
    def how(self) -> str:
        """Say how jobs are changed, for the audit: ``queue_name=urgent priority=5``; empty if the verb says all."""
        told = {name: self.request[name] for name in ("queue_name", "priority") if name in self.request}
        told |= {"delay": shown_delay(self.request["delay"])} if "delay" in self.request else {}
        return " ".join(f"{name}={value}" for name, value in told.items())

    @property
    def needs_room(self) -> bool | None:
        """Whether Redis must have room for it; None if only for a new queue."""
        return None if {"queue_name", "priority"} & self.request.keys() else False

    def heed(self, connection: Any, would: Tally) -> Steps[None]:
        """Take note of what was counted."""
        yield from ()

    def end(self, connection: Any) -> Steps[None]:
        """Forget what the same verb would need if it was interrupted."""
        yield from ()

    def do_one(self, job: Any, queue_name: str | None) -> None:
        """Do it with one job. `queue_name` is the queue that it is or was in."""
        raise NotImplementedError

    @classmethod
    def needs_python(cls, job_class: type[Any]) -> bool:
        """Whether a script cannot do it, because the class or its queues have their own way."""
        return overrides(job_class, roots.job, *cls.methods)

    def asking(self, source: Source, job_class: type[Any], entry: Entry | None) -> Ask[Changed]:
        """Return what does it with some jobs of a source, and notes that; without an entry, it only counts."""
        queue_model = job_class.queue_model
        check_database(job_class, queue_model)
        request = {
            "queue_model": layout_of(queue_model).json,
            **given(default_name=job_class.queue_name),
            **self.request,
        }
        if entry and _needs_python(type(self), job_class):
            return partial(self._one_by_one, source, job_class, entry, request)
        request.update(entry.names if entry else {"dry": "1"})
        return partial(many.changed, self.transition, job_class, request)

    def _one_by_one(
        self, source: Source, job_class: type[Any], entry: Entry, request: Mapping[str, Any], which: Mapping[str, Any]
    ) -> Steps[Changed]:
        """Do it with the next job of a class that has its own way, if the filter finds it still."""
        step = yield from source.find(which, names=listed(["queue"]), most=1)
        outcomes: Counter[str] = Counter()
        alone = {"conditions": "[]", "dry": "1", "default_name": job_class.queue_name or "which its own way knows"}
        try:
            for pk, (queue_name,) in step.records:
                only = {**alone, "pks": listed([f"{pk}"])}
                would = yield from many.changed(self.transition, job_class, request, only)
                outcome = next(iter(would.outcomes), "gone")
                if outcome == "done":
                    outcome = yield partial(self._outcome_of_one, records.attached(job_class, f"{pk}"), queue_name)
                outcomes[outcome] += 1
        finally:  # also if it is interrupted
            yield from entry.note(outcomes["done"])
        done = [f"{pk}" for pk, _ in step.records] if outcomes["done"] else []  # it is one
        return Changed(outcomes, step.looked, step.seen, self.turn, pks=done)

    def _outcome_of_one(self, job: Any, queue_name: str | None) -> str:
        """Do it with one job, and return the outcome: what its own way raises is one, and what it leaves undone."""
        if self.spares_claimed:
            transitions.spare_if_claimed(job)
        stored = partial(_stored, type(job), pk_of(job))
        before = stored()
        try:
            self.do_one(job, queue_name)
        except AlreadyClaimed:
            return "claimed"
        except (ConnectionError, TimeoutError):
            raise
        except (Exception, SystemExit) as error:  # of code of the application
            return described(error)
        if self.is_done(before, stored(), queue_name):
            return "done"
        return f"unchanged by its own {' or '.join(self.methods)}"

    def is_done(self, before: Mapping[str, Any], after: Mapping[str, Any], queue_name: str | None) -> bool:
        """Return whether its own way did it with a job of that queue, by its hash before and after that."""
        return before != after


@memoized
def _needs_python(action: type[Action], job_class: type[Any]) -> bool:
    """Ask a class once: each filter asks all classes of which it finds jobs."""
    return action.needs_python(job_class)


def _stored(job_class: type[Any], pk: str) -> dict[str, str]:
    return next((fields for _, fields in records.read_many(job_class, [pk])), {})


def _cancel(job: Any) -> None:
    if extends(type(job), "cancel"):
        job.cancel()
    else:
        roots.job.cancel(job)


def _servable_name(queue_name: str) -> str:
    name = stored_queue_name(queue_name)
    check_servable(name)
    return name


class RequeueMany(Action):
    """Put the jobs that failed back in their queues, or in another one."""

    verb = "requeue"
    transition = many.requeue_many
    methods = ("requeue", "enqueue_or_delay")

    def __init__(
        self,
        queue_name: str | None = None,
        priority: int | None = None,
        delayed_for: Delay = None,
        delayed_until: datetime | None = None,
        pace: Pace | None = None,
        restart: bool = False,
        told: bool = False,
    ) -> None:
        self._delayed_for, self._delayed_until = delayed_for, delayed_until
        self._pace, self._restart = pace, bool(restart)
        self.is_counted_first = bool(pace and pace.spread)
        self.request = given(
            queue_name=None if queue_name is None else _servable_name(queue_name),
            priority="" if priority is None else stored_priority(priority),
            delay=delay_argument(delayed_for, delayed_until),
            restart=self._restart,
            told="1" if told else "",  # whether to answer which jobs were put back
            **(_turns(pace, 0) if pace else {}),
        )

    @property
    def how(self) -> str:
        return " ".join(filter(None, [super().how, f"{self._pace or ''}", "restart" if self._restart else ""]))

    def do_one(self, job: Any, queue_name: str | None) -> None:
        delay = self._delayed_for, self._delayed_until
        if self._pace:
            request = {name: value for name, value in self.request.items() if name in ("delay", *TURNS)}
            self.turn = many.take_turn(records.redis_of(job), request)
            delay = None, self.turn
        restart = given(restart=self._restart)  # which a requeue of an application may not know
        where = self.request.get("queue_name", queue_name), self.request.get("priority")
        job.requeue(*where, *delay, **restart)

    @classmethod
    def needs_python(cls, job_class: type[Any]) -> bool:
        return super().needs_python(job_class) or _has_own_queues(job_class)

    def heed(self, connection: Any, would: Tally) -> Steps[None]:
        if self._pace and self.is_counted_first:
            pace = yield from self._pace.going_on(connection)
            self.request = {**self.request, **_turns(pace, would.done)}
            would.until = many.last_turn(would.until, pace.interval(would.done), would.done)

    def end(self, connection: Any) -> Steps[None]:
        if self._pace and self.is_counted_first:
            with suppress(RedisError):  # all is done; that only says what the next spread has to heed
                yield partial(many.end_turns, connection, self._pace.key)


def _turns(pace: Pace, number: int) -> Mapping[str, str]:
    """Return what scripts need to give so many jobs one moment after the other."""
    interval = f"{pace.interval(number) * 1_000_000:f}"
    return given(turns=pace.key, interval=interval, spread=f"{pace.seconds:f}" if pace.spread else None)


class CancelMany(Action):
    """Cancel the jobs that wait, are delayed or run."""

    verb = "cancel"
    transition = many.cancel_many
    methods = ("cancel",)
    spares_claimed = False

    def do_one(self, job: Any, queue_name: str | None) -> None:
        _cancel(job)

    def is_done(self, before: Mapping[str, Any], after: Mapping[str, Any], queue_name: str | None) -> bool:
        return after.get("status") not in (STATUSES.WAITING, STATUSES.DELAYED, STATUSES.RUNNING)

    @classmethod
    def needs_python(cls, job_class: type[Any]) -> bool:
        return extends(job_class, "cancel")


class DeleteMany(Action):
    """Delete the jobs that do not run."""

    verb = "delete"
    transition = many.delete_many
    methods = ("delete",)

    def do_one(self, job: Any, queue_name: str | None) -> None:
        if job.queued.hget() == "1":
            _cancel(job)
        job.delete()

    def is_done(self, before: Mapping[str, Any], after: Mapping[str, Any], queue_name: str | None) -> bool:
        return not after

    @classmethod
    def needs_python(cls, job_class: type[Any]) -> bool:
        layout = layout_of(job_class)
        is_plain = layout.erasable and not layout.special and not layout.description["keys"]
        return super().needs_python(job_class) or not is_plain


class MoveMany(Action):
    """Move the jobs that wait or are delayed to another queue, priority or date."""

    verb = "move"
    transition = many.move_many
    methods = ("enqueue_or_delay",)

    def __init__(self, queue_name: str | None = None, priority: int | None = None) -> None:
        if queue_name is None and priority is None:
            where = (("queue_name", "a queue_name"), ", ", ("priority", "a priority"))
            raise naming(ValueError, "say where to move the jobs: give ", *where, ", or both")
        self.request = given(
            queue_name=None if queue_name is None else _servable_name(queue_name),
            priority="" if priority is None else stored_priority(priority),
        )

    def do_one(self, job: Any, queue_name: str | None) -> None:
        until = job.delayed_until.hget() if job.status.hget() == STATUSES.DELAYED else None
        job.enqueue_or_delay(self.request.get("queue_name", queue_name), self.request.get("priority"), until)

    def is_done(self, before: Mapping[str, Any], after: Mapping[str, Any], queue_name: str | None) -> bool:
        there = {"queue_name": queue_name, "priority": before.get("priority")}
        return before != after or all(there[name] == asked for name, asked in self.request.items())

    @classmethod
    def needs_python(cls, job_class: type[Any]) -> bool:
        return super().needs_python(job_class) or _has_own_queues(job_class)


class DelayMany(MoveMany):
    """Delay the jobs that wait or are delayed."""

    verb = "delay"

    def __init__(self, delayed_for: Delay = None, delayed_until: datetime | None = None) -> None:
        delay = delay_argument(delayed_for, delayed_until)
        if not delay:
            when = (("delayed_for", "a delayed_for"), " or ", ("delayed_until", "a delayed_until"))
            raise naming(ValueError, "say until when to delay the jobs: give ", *when)
        self._until = compute_delayed_until(delayed_for, delayed_until)
        self.request = {"delay": delay}

    def do_one(self, job: Any, queue_name: str | None) -> None:
        job.enqueue_or_delay(queue_name, delayed_until=self._until)

    def is_done(self, before: Mapping[str, Any], after: Mapping[str, Any], queue_name: str | None) -> bool:
        return before != after or parse_datetime(before.get("delayed_until")) == self._until


class PromoteMany(MoveMany):
    """Promote the jobs that are delayed."""

    verb = "promote"

    def __init__(self) -> None:
        self.request = {"promote": "1"}

    def do_one(self, job: Any, queue_name: str | None) -> None:
        job.enqueue_or_delay(queue_name)

    def is_done(self, before: Mapping[str, Any], after: Mapping[str, Any], queue_name: str | None) -> bool:
        return before != after


def _has_own_queues(job_class: type[Any]) -> bool:
    """Whether the queues of a class have their own way to take a job, or need what only limpyd can write."""
    return has_custom_placement(job_class, job_class.queue_model) or layout_of(job_class.queue_model).needs_limpyd


ACTIONS: Mapping[str, Callable[..., Action]] = {
    each.verb: each for each in (RequeueMany, CancelMany, DeleteMany, MoveMany, DelayMany, PromoteMany)
}
