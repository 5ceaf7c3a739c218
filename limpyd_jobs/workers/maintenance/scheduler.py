"""Adding the jobs of the schedules that are due."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from datetime import datetime, timedelta, timezone
from random import random
from time import monotonic
from typing import Any, NamedTuple

from redis.exceptions import RedisError

from limpyd_jobs import transitions
from limpyd_jobs.arguments import delay_argument
from limpyd_jobs.classes.binding import is_same_database
from limpyd_jobs.classes.imports import hint_for
from limpyd_jobs.classes.job_classes import path_of
from limpyd_jobs.dates import EPOCH
from limpyd_jobs.models import Job, Queue, job_classes
from limpyd_jobs.models.adding import why_not_added
from limpyd_jobs.observing import instruments
from limpyd_jobs.records import records
from limpyd_jobs.records.lazy_fields import pk_of
from limpyd_jobs.redis.servers import is_transient
from limpyd_jobs.schedules.misfires import DueTime, due_times
from limpyd_jobs.schedules.model import Schedule, score_of, text_of
from limpyd_jobs.schedules.plan import Plan
from limpyd_jobs.schedules.search_budget import SearchTooLong
from limpyd_jobs.texts import MESSAGE, described, one_line, traceback_of
from limpyd_jobs.transitions import instrumented
from limpyd_jobs.workers.context import Context

# The most schedules that are read at once, beside the schedules that rest. If more are due, each worker reads some at
# another place, so that several share them.
LIMIT = 50

# For how many seconds one run adds jobs, at most. Then jobs are run for as long.
MAX_ENQUEUING = 0.1

# How long a schedule that cannot be enqueued here rests, in seconds. Another worker may know the class of its jobs.
RETRY_SCHEDULE_AFTER = 60


class Occurrence(NamedTuple):
    """The outcome of a schedule that was due."""

    schedule: Schedule
    name: str
    time: datetime | None  # when it was due, as naive UTC
    outcome: str  # with a job: as its `add_outcome`; without: ``passed over`` or ``failed``
    job: Job | None = None
    error: Exception | None = None


class Scheduler:
    """Adds the jobs of schedules, for any queues."""

    name = "enqueue_due_schedules"

    def __init__(
        self, queue_model: type[Queue], longest: float, on_added: Callable[..., Any], on_missed: Callable[..., Any]
    ) -> None:
        self._queue_model = queue_model  # schedules on another database than these queues are not looked at
        # Called with the job, the schedule and the time; and without the job if the time was missed.
        self._on_added, self._on_missed = on_added, on_missed
        self._longest = longest  # how many seconds to let pass until the next run, at most
        self._declared: set[type[Job]] = set()
        self._resting: dict[str, float] = {}
        self.interval = longest

    def run(self, context: Context) -> float:
        for job_class in job_classes.all() if is_here(self._queue_model) else ():
            if job_class not in self._declared:
                self._declare(context, job_class)
        for occurrence in self.enqueue_due():
            self._log(context, occurrence)
        return self.interval

    def _log(self, context: Context, occurrence: Occurrence) -> None:
        schedule, name, time, outcome, job, error = occurrence
        if error or time is None:
            failed = "schedule cannot be enqueued"
            why = f"{one_line(error, MESSAGE)}{hint_for(error, '') if error else ''}"
            context.log_repeated(failed, f"[{one_line(name)}] {failed}: {why}")
        elif job is None:
            self._call(context, name, self._on_missed, schedule, time)
        elif outcome in ("existing", "throttled"):
            why = f"job {pk_of(job)} of that identifier {why_not_added(outcome)}"
            context.log(f"[{one_line(name)}] due at {time}, but {why}")
        else:
            self._call(context, name, self._on_added, job, schedule, time)

    @staticmethod
    def _call(context: Context, name: str, hook: Callable[..., Any], *args: Any) -> None:
        """Call a hook of a schedule. Its failure stops no other hook."""
        try:
            hook(*args)
        except RedisError:
            raise
        except Exception as error:
            text = f"[{one_line(name)}] unexpected error: {described(error)}\n{traceback_of(error)}"
            context.log(text, "error")

    def _declare(self, context: Context, job_class: type[Job]) -> None:
        """Make or change the schedules that a job class declares, once, when the class is known."""
        declared = vars(job_class).get("schedules")
        if declared is None:
            self._warn_of_abstract(context, job_class)
        for name, options in declared.items() if isinstance(declared, Mapping) else ():
            try:
                outcome = Schedule.declare(name, job_class, options)
            except RedisError:
                raise
            except Exception as error:
                context.log(f"[{one_line(name)}] schedule cannot be declared: {one_line(error, MESSAGE)}", "error")
            else:
                if outcome != "same":
                    context.log(f"[{one_line(name)}] schedule {outcome}, as declared")
        self._declared.add(job_class)

    def _warn_of_abstract(self, context: Context, job_class: type[Job]) -> None:
        """Warn of the abstract class from which a class inherits its schedules, if it is the first one that does. The
        name of a schedule is given once, so it cannot be made for each class."""
        source = next(each for each in job_class.__mro__ if "schedules" in vars(each))
        if vars(source)["schedules"] and vars(source).get("abstract") and source not in self._declared:
            self._declared.add(source)
            name = path_of(job_class)
            what = f"the class is abstract, and has no jobs. Declare them on {name}, or call Schedule.add(…, {name}, …)"
            text = f"[{one_line(path_of(source))}] its schedules are not made: {one_line(what, MESSAGE)}"
            context.log(text, "warning")

    def enqueue_due(self) -> Iterator[Occurrence]:
        """Enqueue the schedules that are due, as long as there is time; yield the outcome of each."""
        self.interval, until = self._longest, monotonic() + MAX_ENQUEUING
        for occurrence in self._enqueue_all_due() if is_here(self._queue_model) else ():
            yield occurrence
            if monotonic() >= until or isinstance(occurrence.error, SearchTooLong):
                self.interval = MAX_ENQUEUING
                return

    def _enqueue_all_due(self) -> Iterator[Occurrence]:
        has_more = True
        while has_more:
            self._resting = {pk: until for pk, until in self._resting.items() if until > monotonic()}
            due = records.due_schedules(Schedule, LIMIT + len(self._resting), random())
            self._look_again_at(due.upcoming, due.moment)
            yield from self._enqueue(due.found, (EPOCH + timedelta(seconds=due.moment)).replace(tzinfo=timezone.utc))
            has_more = due.number > len(due.found)

    def _enqueue(self, due: Iterable[tuple[str, Mapping[str, str]]], moment: datetime) -> Iterator[Occurrence]:
        for pk, stored in due:
            if pk in self._resting:
                continue
            try:
                yield from self._enqueue_due(pk, stored, moment)
            except Exception as error:
                if isinstance(error, RedisError) and is_transient(error):
                    raise
                self._resting[pk] = monotonic() + RETRY_SCHEDULE_AFTER
                yield Occurrence(records.attached(Schedule, pk), stored.get("name", pk), None, "failed", error=error)

    def _look_again_at(self, moment: float | None, now: float) -> None:
        if moment is not None:
            self.interval = min(self.interval, max(moment - now, 0))

    def _enqueue_due(self, pk: str, stored: Mapping[str, str], now: datetime) -> Iterator[Occurrence]:
        plan = Plan.read(stored, job_classes.resolve(stored["job_model_repr"]))
        if plan.due is None:
            raise ValueError("it has no next_run")
        seen = stored["next_run"]
        policy = plan.misfire_policy, plan.misfire_grace_time, Schedule.max_missed_runs
        for step in due_times(plan.times, plan.due, now, *policy):
            outcome, job_pk = self._make(pk, plan, seen, step)
            if outcome == "not due":
                return
            seen = text_of(step.following)
            job = records.attached(plan.job_class, job_pk) if job_pk else None
            time = (step.run or plan.due).replace(tzinfo=None)
            yield Occurrence(records.attached(Schedule, pk), stored["name"], time, outcome, job)
        if step.following is not None:
            self._look_again_at((step.following - now).total_seconds(), 0)

    def _make(self, pk: str, plan: Plan, seen: str, step: DueTime) -> tuple[str, str]:
        following = text_of(step.following)
        occurrence = {
            "seen": [seen, plan.stored["trigger"], plan.stored["timezone"]],
            "run": text_of(step.run),
            "following": following,
            "score": score_of(following),
            "delay": delay_argument(delayed_for=plan.jitter * random()) if plan.jitter else "",
        }
        identifier, fields = (plan.identifier(step.run), plan.fields) if step.run else ("", {})
        where = plan.job_class.queue_model, plan.queue_name, plan.priority
        due = Schedule, pk, occurrence, plan.job_class, identifier, *where, fields
        if instruments.installed and step.run:
            return instrumented.enqueue_due(plan.stored["name"], *due)
        return transitions.enqueue_due(*due)


def is_here(queue_model: type[Queue]) -> bool:
    """Whether schedules are on the database of the queues."""
    return is_same_database(queue_model.database, Schedule.database)
