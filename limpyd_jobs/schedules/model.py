"""The model of schedules."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from contextlib import suppress
from datetime import datetime, timedelta, timezone
from functools import partial
from itertools import islice
from typing import Any

from limpyd import fields
from limpyd.exceptions import DoesNotExist, UniquenessError

from limpyd_jobs import dates
from limpyd_jobs.arguments import is_number, stored_identifier, stored_queue_name, stored_value
from limpyd_jobs.classes.binding import bound_like
from limpyd_jobs.classes.job_classes import job_class_of, path_of
from limpyd_jobs.dates import as_naive_utc, datetime_to_score, parse_datetime
from limpyd_jobs.exceptions import ConfigurationException
from limpyd_jobs.fields.argument import as_stored
from limpyd_jobs.fields.new_fields import checked_fields, default_priority
from limpyd_jobs.models import BaseJobsModel, Job, Queue, has_custom_placement, job_classes
from limpyd_jobs.models.awaitable import in_thread
from limpyd_jobs.models.functions.function import JobFunction
from limpyd_jobs.records import records
from limpyd_jobs.records.layout import found_by, layout_of, layout_to_add
from limpyd_jobs.records.lazy_fields import pk_of
from limpyd_jobs.schedules.misfires import MISFIRE_POLICIES, steps
from limpyd_jobs.schedules.triggers import Times, describe

EVERY_TIME, ONCE = "{name}:{time}", "{name}"

_TRIGGERS = ("cron", "interval", "date", "trigger")
_OPTIONS = (*_TRIGGERS, "timezone", "identifier", "queue_name", "priority", "misfire_policy", "misfire_grace_time")
_KNOWN = {*_OPTIONS, "name", "job_class", "job_fields", "declaration"}

# What is not given of a schedule that is made, or made anew.
_DEFAULTS = {
    "timezone": "UTC",
    "identifier": None,
    "queue_name": None,
    "priority": None,
    "misfire_policy": "latest",
    "misfire_grace_time": None,
}

# What a change is made of: if another process changes one of these meanwhile, it is made anew.
_SEEN = ("job_model_repr", "trigger", "timezone", "paused", "misfire_policy")

# How often a schedule may be made or deleted by other processes while one replaces it.
_TRIES = 10


@found_by("name")
class Schedule(BaseJobsModel):
    """A job that is added at set times. The worker that looks first adds it.

    Dates are stored as naive UTC. `next_run` is absent if the schedule is paused or over.

    Attributes
    ----------
    max_missed_runs: int
        If `misfire_policy` is ``all``: how many missed times are made up for at most, the latest ones.
    """

    name = fields.InstanceHashField(indexable=True, unique=True)
    job_model_repr = fields.InstanceHashField(indexable=True)
    identifier = fields.InstanceHashField()
    queue_model = fields.InstanceHashField()
    queue_name = fields.InstanceHashField(indexable=True)
    priority = fields.InstanceHashField(default=0)
    job_fields = fields.InstanceHashField()
    trigger = fields.InstanceHashField()
    timezone = fields.InstanceHashField()
    next_run = fields.InstanceHashField()
    last_run = fields.InstanceHashField()
    paused = fields.InstanceHashField(indexable=True)
    misfire_policy = fields.InstanceHashField()
    misfire_grace_time = fields.InstanceHashField()
    declaration = fields.InstanceHashField()

    max_missed_runs = 100

    @classmethod
    def add(
        cls,
        name: str,
        job_class: type[Job] | JobFunction[..., Any, Any] | str,
        *,
        cron: str | Mapping[str, Any] | None = None,
        interval: float | timedelta | Mapping[str, Any] | None = None,
        date: datetime | str | None = None,
        trigger: Any = None,
        timezone: str = "UTC",
        identifier: str | None = None,
        queue_name: str | None = None,
        priority: int | str | None = None,
        misfire_policy: str = "latest",
        misfire_grace_time: float | timedelta | None = None,
        paused: bool = False,
        replace: bool = False,
        **job_fields: Any,
    ) -> Schedule:
        """Make a schedule, with one of `cron`, `interval`, `date` and `trigger`.

        Parameters
        ----------
        name: str
            No other schedule may have it, unless `replace` is True.
        job_class: type of Job, JobFunction, or str
            The class of the jobs, or the function that is a job, or its path.
        cron: str or mapping
            Five fields as in crontab, six with the seconds first, or an alias such as ``@daily``; or the arguments of
            APScheduler's `CronTrigger`.
        interval: float, timedelta or mapping
            Seconds; or the arguments of APScheduler's `IntervalTrigger`. It is counted from now, unless the arguments
            say otherwise.
        date: datetime or str
            For one time. A naive date is in the `timezone`.
        trigger: object or mapping
            A trigger of APScheduler, or the description of one: see `limpyd_jobs.schedules.triggers`.
        timezone: str
            Such as ``Europe/Paris``.
        identifier: str
            The identifier of the jobs. ``{name}`` stands for the name of the schedule, ``{time}`` for the time it is
            due, in UTC. By default ``{name}``: then a job that is still queued at the next time is not added again; or
            ``{name}:{time}`` if `misfire_policy` is ``all``.
        queue_name: str
            By default the one of the class.
        priority: int
            By default the one of the class.
        misfire_policy: str
            Which times to run if no worker was there for a while: the ``latest``, ``all`` of them, up to
            `max_missed_runs`, or ``none``.
        misfire_grace_time: float or timedelta
            How late, in seconds, a time may be run. None for no limit; for a minute if `misfire_policy` is ``none``.
        paused: bool
            Whether the schedule waits for `resume`.
        replace: bool
            Whether to change the schedule of that name, if there is one, to what is given, so that an application may
            call this at each start, in any number of processes. What is not given gets its default. The next time is
            counted anew only if the times change; an interval of the same length goes on. A paused schedule stays
            paused, and one that is not stays so: `paused` is for a new one.
        **job_fields
            Other fields of the jobs.

        Raises
        ------
        ValueError, TypeError, AttributeError
            If an argument is not one of the above. The message says what is wrong with it.
        ConfigurationException
            If APScheduler is not installed, or jobs of the class cannot be added in one step.
        LimpydJobsException
            If no queue name is given.
        UniquenessError
            If there is another schedule of that name, and `replace` is False.
        """
        given = {
            "cron": cron,
            "interval": interval,
            "date": date,
            "trigger": trigger,
            "name": name,
            "job_class": job_class,
            "timezone": timezone,
            "identifier": identifier,
            "queue_name": queue_name,
            "priority": priority,
            "misfire_policy": misfire_policy,
            "misfire_grace_time": misfire_grace_time,
            "job_fields": job_fields,
        }
        values = cls._values(given)
        return cls._put(given, values, paused)[0] if replace else cls._made(values, job_class, paused)

    @classmethod
    async def aadd(cls, name: str, job_class: type[Job] | JobFunction[..., Any, Any] | str, **options: Any) -> Schedule:
        """Do as `add`, in a thread: it may have to import the module of the class."""
        return await in_thread(partial(cls.add, name, job_class, **options))

    @classmethod
    def _put(cls, given: Mapping[str, Any], values: dict[str, str], paused: bool = False) -> tuple[Schedule, str]:
        """Make a schedule, or change the one of that name: ``added``, ``changed``, or ``same`` if it was declared so.
        Other processes may do so at the same time."""
        for tries in range(1, _TRIES + 1):
            with suppress(DoesNotExist):  # it is deleted at this moment
                for schedule in cls.collection(name=values["name"]).instances():
                    if "declaration" in given and schedule.declaration.hget() == given["declaration"]:
                        return schedule, "same"
                    schedule.edit(**given)
                    return schedule, "changed"
            try:
                return cls._made(values, given["job_class"], paused), "added"
            except UniquenessError:  # it is made at this moment
                if tries == _TRIES:
                    raise
        raise AssertionError("no try was the last one")

    @classmethod
    def _made(cls, values: dict[str, str], job_class: Any, paused: bool = False) -> Schedule:
        values.update(cls._start(values["trigger"], values["timezone"], paused))
        queue_model = _make_queue(cls, job_class, values)
        present = {name: value for name, value in values.items() if value != ""}
        heard_by = records.signal_key(queue_model, values["queue_name"])
        try:
            pk = records.set_schedule(cls, "", score_of(values["next_run"]), present, heard_by)
        except UniquenessError as error:
            raise UniquenessError(f"There is a schedule named {values['name']!r} already") from error
        schedule: Schedule = records.attached(cls, pk)
        return schedule

    @classmethod
    def get_by_name(cls, name: str) -> Schedule:
        """Return the schedule of a name.

        Raises
        ------
        DoesNotExist
            If there is no such schedule.
        """
        for schedule in cls.collection(name=name).instances():
            return schedule  # type: ignore[no-any-return]
        raise DoesNotExist(f"No schedule is named {name!r}")

    def edit(self, **changes: Any) -> None:
        """Change the schedule. The arguments are those of `add`, with ``job_fields`` for all other fields of the jobs.

        Values that are not given stay. With another trigger or time zone, the next time is counted anew from now.
        Exceptions: see `add`.
        """
        while not self._edit(changes):
            pass  # another process changed it meanwhile

    def _edit(self, changes: Mapping[str, Any]) -> bool:
        stored = self.hgetall()
        values = self._values(changes, stored)
        timing = {"trigger", "timezone"} & {name for name in values if values[name] != stored.get(name)}
        due = "keep"
        if timing:
            trigger, zone = values.get("trigger", stored["trigger"]), values.get("timezone", stored["timezone"])
            values.update(self._start(trigger, zone, bool(stored.get("paused"))))
            due = score_of(values["next_run"])
        if {"queue_name", "priority"} & values.keys():
            _make_queue(type(self), values["job_model_repr"], {**stored, **values})
        return self._write(due, values, stored)

    def _write(self, due: str, values: Mapping[str, str], stored: Mapping[str, str]) -> bool:
        """Write values that were made of what was stored; return False if another process changed that meanwhile."""
        heard_by = _signal_of(type(self), {**stored, **values})
        seen = {name: stored.get(name, "") for name in _SEEN}
        return bool(records.set_schedule(type(self), pk_of(self), due, values, heard_by, seen))

    def pause(self) -> None:
        """Stop adding jobs, until `resume`. Queued jobs stay."""
        records.set_schedule(type(self), pk_of(self), "", {"paused": "1", "next_run": ""})

    def resume(self) -> None:
        """Add jobs again, from the next time on. Times that were due during the pause are not made up for."""
        while (stored := self.hgetall()).get("paused"):
            values = self._start(stored.get("trigger", ""), stored.get("timezone", ""), paused=False, may_be_over=True)
            if self._write(score_of(values["next_run"]), values, stored):
                return

    def run_now(self) -> Job:
        """Add its job now, in addition to its times, even if it is paused; return the job. For the exceptions see
        `add_job`."""
        stored = self.hgetall()
        job_class: type[Job] = job_classes.like(type(self)).resolve(stored.get("job_model_repr", ""))
        identifier = identifier_of(stored, now_of_redis(type(self)))
        values = as_stored(job_class, json.loads(stored.get("job_fields") or "{}"))
        return job_class.add_job(identifier, stored.get("queue_name"), stored.get("priority"), **values)

    def next_times(self, number: int = 10) -> list[datetime]:
        """Return the next times when it is due, aware, in its time zone. A pause does not matter."""
        stored = self.hgetall()
        times = Times.of(stored.get("trigger", ""), stored.get("timezone", ""))
        first = aware(stored.get("next_run")) or times.after(now_of_redis(type(self)))
        if first is None:
            return []
        found = islice(times.until(first, datetime.max.replace(tzinfo=timezone.utc)), number)
        return [time.astimezone(times.zone) for time in found]

    def delete(self) -> None:
        """Delete the schedule. Its queued jobs stay."""
        pk = pk_of(self)
        super().delete()
        self.get_connection().zrem(records.due_key(type(self)), pk)

    @classmethod
    def declare(cls, name: str, job_class: type[Job], declared: Mapping[str, Any]) -> str:
        """Make a schedule that is declared on a job class, or change it: ``added``, ``changed`` or ``same``."""
        if not isinstance(declared, Mapping):
            raise TypeError(f"It must be a mapping, such as {{'cron': '0 3 * * *'}}, not {declared!r}")
        text = json.dumps([path_of(job_class), dict(declared)], sort_keys=True, default=str)
        given = {**_DEFAULTS, **_with_job_fields(declared), "name": name, "job_class": job_class, "declaration": text}
        return cls._put(given, cls._values(given))[1]

    # -- From arguments to what is stored

    @classmethod
    def _values(cls, given: Mapping[str, Any], stored: Mapping[str, str] | None = None) -> dict[str, str]:
        """Return the fields of the given values, checked against each other and against the stored values."""
        if given.keys() - _KNOWN:
            raise AttributeError(f"A schedule has no {', '.join(sorted(given.keys() - _KNOWN))}")
        stored = stored or {}
        job_class = _job_class(cls, given.get("job_class", stored.get("job_model_repr")))
        values = {"job_model_repr": path_of(job_class), "queue_model": job_class.queue_model._name}
        if "name" in given:
            values["name"] = _stored_name(given["name"])
        if "timezone" in given or not stored:
            values["timezone"] = given.get("timezone") or "UTC"
        triggers = {name: given[name] for name in _TRIGGERS if given.get(name) is not None}
        if triggers or not stored:
            values["trigger"] = cls._trigger(triggers, stored.get("trigger", ""))
        misfire_policy = given.get("misfire_policy", stored.get("misfire_policy", "latest"))
        if misfire_policy not in MISFIRE_POLICIES:
            raise ValueError(f"The misfire_policy must be one of {', '.join(MISFIRE_POLICIES)}, not {misfire_policy!r}")
        values["misfire_policy"] = misfire_policy
        if "misfire_grace_time" in given:
            values["misfire_grace_time"] = _stored_grace_time(given["misfire_grace_time"])
        if "identifier" in given:
            template = given["identifier"] or (EVERY_TIME if misfire_policy == "all" else ONCE)
            values["identifier"] = stored_identifier(template)
        if "queue_name" in given:
            values["queue_name"] = stored_queue_name(job_class._get_queue_name(given["queue_name"]))
        if "priority" in given:
            values["priority"] = default_priority(job_class, given["priority"])
        if "job_fields" in given:
            values["job_fields"] = _stored_fields(job_class, given["job_fields"])
        if "declaration" in given:
            values["declaration"] = given["declaration"]
        return values

    @classmethod
    def _trigger(cls, triggers: Mapping[str, Any], stored: str) -> str:
        """Return the text of a trigger: of the stored one, if it is an interval as the one that is given, but for the
        moment from which that would be counted."""
        if triggers.get("interval") is not None:
            same = _described(triggers, _start_date(stored))
            if same == stored:
                return stored
        return _described(triggers, now_of_redis(cls))

    @classmethod
    def _start(cls, trigger: str, timezone: str, paused: bool, may_be_over: bool = False) -> dict[str, str]:
        """Return the fields that say when it is due, from now on."""
        times = Times.of(trigger, timezone)
        first = times.after(now_of_redis(cls))
        if first is not None:
            steps(times, first, first)  # as a worker will ask
        elif not may_be_over:
            raise ValueError(f"This would never run: {trigger}")
        return {"next_run": "" if paused else text_of(first), "paused": "1" if paused else ""}


def identifier_of(stored: Mapping[str, str], time: datetime) -> str:
    """Return the identifier of the job of a schedule, given its fields, for one of its times."""
    template = stored.get("identifier") or ONCE
    parts = {"{name}": stored.get("name", ""), "{time}": time.strftime("%Y-%m-%dT%H:%M:%SZ")}
    return stored_identifier("".join(parts.get(part, part) for part in re.split(r"(\{name\}|\{time\})", template)))


def now_of_redis(model: type[BaseJobsModel]) -> datetime:
    """Return the time by the clock of Redis, as an aware datetime."""
    time: Any = records.redis_of(model).time()
    seconds, microseconds = time
    return datetime.fromtimestamp(seconds, timezone.utc).replace(microsecond=microseconds) + dates.moved_time


def _described(triggers: Mapping[str, Any], now: datetime | None) -> str:
    return json.dumps(describe(**triggers, now=now), ensure_ascii=False)


def _start_date(trigger: str) -> datetime | None:
    """Return from when a stored interval is counted; None if there is no such moment."""
    with suppress(ValueError, TypeError, KeyError, RecursionError):  # any program may have written it
        return datetime.fromisoformat(json.loads(trigger)["interval"]["start_date"])
    return None


def aware(text: str | None) -> datetime | None:
    moment = parse_datetime(text)
    return None if moment is None else moment.replace(tzinfo=timezone.utc)


def text_of(moment: datetime | None) -> str:
    """Return a date as it is stored; empty for None."""
    return "" if moment is None else str(as_naive_utc(moment))


def score_of(text: str) -> str:
    """Return the score, in seconds, of a stored date; empty for an empty text."""
    moment = parse_datetime(text)
    return "" if moment is None else f"{datetime_to_score(moment):.6f}"


def _with_job_fields(declared: Mapping[str, Any]) -> dict[str, Any]:
    """Split a declaration into the arguments of a schedule and the fields of its jobs."""
    own = {name: value for name, value in declared.items() if name in _OPTIONS}
    return {**own, "job_fields": {name: value for name, value in declared.items() if name not in own}}


def _job_class(schedule_model: type[Schedule], job_class: Any) -> type[Job]:
    found: Any = job_classes.resolve(job_class) if isinstance(job_class, str) else job_class_of(job_class)
    if not (isinstance(found, type) and issubclass(found, Job)):
        raise TypeError(f"What a schedule adds must be a subclass of Job, or its path, not {job_class!r}")
    if has_custom_placement(found, found.queue_model):
        raise ConfigurationException(
            f"{path_of(found)} cannot be scheduled: it, or its queue model, has its own way to put a job in a queue"
        )
    found = bound_like(found, schedule_model)
    layout_to_add(found)
    return found  # type: ignore[no-any-return]


def _make_queue(schedule_model: type[Schedule], job_class: Any, values: Mapping[str, str]) -> type[Queue]:
    """Make the queue of a schedule, for its workers to know it before its first job; return its model."""
    queue_model = _job_class(schedule_model, job_class).queue_model
    queue_model.get_queue(values["queue_name"], values["priority"])
    return queue_model


def _signal_of(schedule_model: type[Schedule], stored: Mapping[str, str]) -> str:
    """Return the key of the signal on which its workers wait; empty if its class cannot be resolved here."""
    with suppress(Exception):  # whatever its module raises
        job_class: type[Job] = job_classes.like(schedule_model).resolve(stored["job_model_repr"])
        return records.signal_key(job_class.queue_model, stored["queue_name"])
    return ""


def _stored_name(name: Any) -> str:
    if not isinstance(name, str):
        raise TypeError(f"The name of a schedule must be a string, not {name!r}")
    if not name.strip():
        raise ValueError("The name of a schedule must not be empty")
    return stored_identifier(name)


def _stored_grace_time(given: Any) -> str:
    if given is None:
        return ""
    seconds = given.total_seconds() if isinstance(given, timedelta) else given
    if not is_number(seconds):
        raise TypeError(f"The misfire_grace_time must be a number of seconds or a timedelta, not {given!r}")
    if not 0 <= seconds <= 1e10:
        raise ValueError(f"The misfire_grace_time must be 0 seconds or more, not {given!r}")
    return str(seconds)


def _stored_fields(job_class: type[Job], values: Mapping[str, Any]) -> str:
    checked = checked_fields(job_class, dict(values))
    plain = {name: value for name, value in checked.items() if name in layout_of(job_class).plain}
    for name, value in plain.items():
        checked[name] = stored_value(name, value)
    try:
        return json.dumps(checked, ensure_ascii=False)
    except TypeError as error:
        raise TypeError(f"The fields of the jobs of a schedule must be what JSON can hold: {error}") from error
