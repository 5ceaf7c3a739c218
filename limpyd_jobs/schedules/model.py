"""The model of schedules."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from datetime import datetime, timedelta, timezone
from functools import partial
from itertools import islice
from typing import Any, NamedTuple

from limpyd import fields
from limpyd.exceptions import DoesNotExist, UniquenessError

from limpyd_jobs import dates
from limpyd_jobs.arguments import (
    MAX_OWNER_BYTES,
    check_size,
    is_number,
    read_seconds,
    stored_identifier,
    stored_queue_name,
    stored_value,
)
from limpyd_jobs.classes.awaitable import in_thread
from limpyd_jobs.classes.binding import bound_like
from limpyd_jobs.classes.job_classes import job_class_of, path_of
from limpyd_jobs.dates import as_naive_utc, datetime_to_score, parse_datetime
from limpyd_jobs.exceptions import ConfigurationException, LimpydJobsException
from limpyd_jobs.fields.argument import as_stored
from limpyd_jobs.fields.new_fields import checked_fields, default_priority
from limpyd_jobs.functions import overrides
from limpyd_jobs.models import BaseJobsModel, Job, Queue, has_custom_placement, job_classes
from limpyd_jobs.models.functions.function import JobFunction
from limpyd_jobs.models.timed import removal_of_schedule
from limpyd_jobs.records import records
from limpyd_jobs.records.layout import found_by, layout_of, layout_to_add
from limpyd_jobs.records.lazy_fields import pk_of
from limpyd_jobs.redis.calls import Call, chunks, send, send_all
from limpyd_jobs.schedules.misfires import MISFIRE_POLICIES, due_times
from limpyd_jobs.schedules.triggers import Times, describe

EVERY_TIME, ONCE = "{name}:{time}", "{name}"

_TRIGGERS = ("cron", "interval", "date", "trigger")
_MISFIRES = ("misfire_policy", "misfire_grace_time")
_OPTIONS = (*_TRIGGERS, "timezone", "identifier", "queue_name", "priority", *_MISFIRES, "jitter")
_KNOWN = {*_OPTIONS, "name", "job_class", "owner", "job_fields", "declaration"}

# What is not given of a schedule that is made, or made anew.
_DEFAULTS = {
    "timezone": "UTC",
    "identifier": None,
    "queue_name": None,
    "priority": None,
    "misfire_policy": "latest",
    "misfire_grace_time": None,
    "jitter": 0,
}

# What a change is made of: if another process changes one of these meanwhile, it is made anew.
_SEEN = ("job_model_repr", "trigger", "timezone", "paused", "misfire_policy")

# How often a schedule may be made or deleted by other processes while one replaces it.
_TRIES = 10

_UNITS = ("weeks", "days", "hours", "minutes", "seconds")

# How many schedules are written in one round trip.
_AT_ONCE = 250

# The exceptions that say what is wrong with a schedule, each before those that it is a kind of.
_REFUSALS = (
    *(ConfigurationException, LimpydJobsException, TypeError, AttributeError, LookupError, ImportError, ValueError),
)


class _Planned(NamedTuple):
    """A schedule that `add_many` will write: what is given; its fields; when it is due, as `set_schedule` takes it; its
    pk, and its fields as they are stored, of one that is not new."""

    given: Mapping[str, Any]
    paused: bool
    values: dict[str, str]
    due: str
    pk: str
    stored: Mapping[str, str]

    @property
    def queue(self) -> tuple[str, ...]:
        return tuple(self.values[name] for name in ("queue_model", "queue_name", "priority"))


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
    owner = fields.InstanceHashField(indexable=True)
    jitter = fields.InstanceHashField()

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
        owner: str | None = None,
        jitter: float | timedelta = 0,
        fields: Mapping[str, Any] | None = None,
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
        owner: str
            Who declares it, such as the name of an application: it is shown, ``Schedule.collection(owner="shop")``
            finds it, and `add_many` can remove what an owner does not declare any more.
        jitter: float or timedelta
            Each job is delayed by a random number of seconds, from 0 up to this one, after it was due. The next time of
            the schedule is not. Less than the `interval`, if there is one.
        fields: mapping
            Other fields of the jobs, also those that have the name of an argument here: ``fields={"date": "today"}``.
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
            "owner": owner,
            "jitter": jitter,
            "job_fields": _all_fields(fields, job_fields),
        }
        values = cls._values(given)
        return cls._put(given, values, paused)[0] if replace else cls._made(values, job_class, paused)

    @classmethod
    async def aadd(cls, name: str, job_class: type[Job] | JobFunction[..., Any, Any] | str, **options: Any) -> Schedule:
        """Do as `add`, in a thread: it may have to import the module of the class."""
        return await in_thread(partial(cls.add, name, job_class, **options))

    @classmethod
    def add_many(
        cls,
        schedules: Iterable[Mapping[str, Any]],
        *,
        owner: str | None = None,
        replace: bool = False,
        prune: bool = False,
    ) -> list[Schedule]:
        """Make several schedules, or change them, in few round trips; return them in the same order.

        All are checked before the first one is written. If Redis fails meanwhile, some of them may be written.

        >>> Schedule.add_many(
        ...     [
        ...         {"name": "nightly", "job_class": Clean, "cron": "0 3 * * *", "folder": "tmp"},
        ...         {"name": "probe", "job_class": Probe, "interval": 90, "jitter": 30},
        ...     ],
        ...     owner="shop", replace=True, prune=True,
        ... )

        Parameters
        ----------
        schedules: iterable of mappings
            Each has arguments of `add`, but `owner` and `replace`.
        owner: str
            Who declares all of them.
        replace: bool
            As for `add`. A schedule that had another owner has this one now.
        prune: bool
            Whether to delete the other schedules of the `owner`. Their queued jobs stay.

        Raises
        ------
        Exception
            As for `add`. The message names the schedule.
        ValueError
            If two have the same name, or it is to prune without an owner.
        """
        of_whom = _stored_owner(owner)
        if prune and not of_whom:
            raise ValueError("To prune needs an owner: only the schedules of that owner are deleted")
        stored = {found.get("name", ""): (pk, found) for pk, found in cls.read_many(cls.collection())}
        planned = cls._planned(schedules, owner, stored, replace)
        for each in {each.queue: each for each in planned}.values():
            _make_queue(cls, each.given["job_class"], each.values)
        done = [schedule for some in chunks(planned, _AT_ONCE) for schedule in cls._write_all(some, replace)]
        kept = {each.values["name"] for each in planned}
        if prune:
            others = (pk for name, (pk, found) in stored.items() if found.get("owner") == of_whom and name not in kept)
            for some in chunks(others, _AT_ONCE):
                cls._prune(some, of_whom)
        return done

    @classmethod
    def _prune(cls, pks: Sequence[str], owner: str) -> None:
        """Delete schedules that still are of this owner: another process may have declared one for its own, or deleted
        one, meanwhile."""
        layout, connection, due = layout_of(cls), records.redis_of(cls), records.due_key(cls)
        if layout.special or layout.outside or overrides(cls, Schedule, "delete"):
            for pk in pks:
                with suppress(DoesNotExist):
                    schedule = records.attached(cls, pk)
                    if schedule.owner.hget() == owner:
                        schedule.delete()
            return
        calls = (removal_of_schedule(cls, pk, due, {"owner": owner}) for pk in pks)
        outcomes: list[str | Exception] = [*send_all(connection, calls)]
        for pk, outcome in zip(pks, outcomes, strict=True):
            if isinstance(outcome, Exception):
                raise outcome
            if outcome != "changed":
                connection.zrem(due, pk)

    @classmethod
    async def aadd_many(cls, schedules: Iterable[Mapping[str, Any]], **options: Any) -> list[Schedule]:
        """Do as `add_many`, in a thread."""
        return await in_thread(partial(cls.add_many, schedules, **options))

    @classmethod
    def _planned(
        cls,
        schedules: Iterable[Mapping[str, Any]],
        owner: str | None,
        stored: Mapping[str, tuple[str, Mapping[str, str]]],
        replace: bool,
    ) -> list[_Planned]:
        """Check the schedules that are given for `add_many`, beside those that are stored, by their names."""
        planned, names, now = list[_Planned](), set[str](), now_of_redis(cls)
        for number, each in enumerate(schedules, 1):
            with _naming(number, each):
                given, paused = _given_for_many(each, owner)
                name = _stored_name(given["name"])
                if name in names:
                    raise ValueError("this name is given twice")
                if name in stored and not replace:
                    raise UniquenessError(f"There is a schedule named {name!r} already")
                names.add(name)
                pk, found = stored.get(name, ("", {}))
                values = cls._values(given, now=now)  # also of one that is stored: it needs all that a new one does
                values = cls._values(given, found, now) if pk else values
                due = cls._due(values, found, paused, now)
                planned.append(_Planned(given, paused, values, due, pk, found))
        return planned

    @classmethod
    def _write_all(cls, planned: Sequence[_Planned], replace: bool) -> Iterator[Schedule]:
        """Write schedules in one round trip; yield each."""
        calls = [cls._write_call(each.pk, each.due, each.values, each.stored) for each in planned]
        replies = send_all(records.redis_of(cls), calls)
        for each, reply in zip(planned, replies, strict=True):
            if isinstance(reply, str) and reply:
                yield records.attached(cls, reply)
            elif isinstance(reply, UniquenessError) and not replace:
                raise _named_already(each.values["name"]) from reply
            elif isinstance(reply, (str, UniquenessError, DoesNotExist)):  # another process was faster
                yield cls._put(each.given, cls._values(each.given), each.paused)[0]
            else:
                raise reply

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
        due = cls._due(values, {}, paused)
        _make_queue(cls, job_class, values)
        try:
            pk = send(cls._write_call("", due, values, {}))
        except UniquenessError as error:
            raise _named_already(values["name"]) from error
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
        due = self._due(values, stored, bool(stored.get("paused")))
        if {"queue_name", "priority"} & values.keys():
            _make_queue(type(self), values["job_model_repr"], {**stored, **values})
        return self._write(due, values, stored)

    def _write(self, due: str, values: Mapping[str, str], stored: Mapping[str, str]) -> bool:
        """Write values that were made of what was stored; return False if another process changed that meanwhile."""
        return bool(send(self._write_call(pk_of(self), due, values, stored)))

    @classmethod
    def _write_call(cls, pk: str, due: str, values: Mapping[str, str], stored: Mapping[str, str]) -> Call[str]:
        """Return the call that writes a schedule, a new one without a pk."""
        heard_by = _signal_of(cls, {**stored, **values})
        if not pk:
            present = {name: value for name, value in values.items() if value != ""}
            return records.set_schedule.call(cls, "", due, present, heard_by)
        seen = {name: stored.get(name, "") for name in _SEEN}
        return records.set_schedule.call(cls, pk, due, values, heard_by, seen)

    @classmethod
    def _due(cls, values: dict[str, str], stored: Mapping[str, str], paused: bool, now: datetime | None = None) -> str:
        """Add to the values those that say when it is due, if its times change; return that as `set_schedule` takes
        it."""
        if all(values.get(name, stored.get(name)) == stored.get(name) for name in ("trigger", "timezone")):
            return "keep"
        trigger, zone = values.get("trigger", stored.get("trigger", "")), values.get("timezone", stored.get("timezone"))
        paused = bool(stored.get("paused")) if stored else paused
        values.update(cls._start(trigger, zone or "UTC", paused, now=now))
        return score_of(values["next_run"])

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
    def _values(
        cls, given: Mapping[str, Any], stored: Mapping[str, str] | None = None, now: datetime | None = None
    ) -> dict[str, str]:
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
            values["trigger"] = cls._trigger(triggers, stored.get("trigger", ""), now)
        misfire_policy = given.get("misfire_policy", stored.get("misfire_policy", "latest"))
        if misfire_policy not in MISFIRE_POLICIES:
            raise ValueError(f"The misfire_policy must be one of {', '.join(MISFIRE_POLICIES)}, not {misfire_policy!r}")
        values["misfire_policy"] = misfire_policy
        if "misfire_grace_time" in given:
            seconds = given["misfire_grace_time"]
            values["misfire_grace_time"] = "" if seconds is None else str(_seconds("misfire_grace_time", seconds))
        if "owner" in given:
            values["owner"] = _stored_owner(given["owner"])
        jitter = str(_seconds("jitter", given["jitter"]) or "") if "jitter" in given else stored.get("jitter", "")
        _check_jitter(jitter, values.get("trigger", stored.get("trigger", "")))
        if "jitter" in given:
            values["jitter"] = jitter
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
    def _trigger(cls, triggers: Mapping[str, Any], stored: str, now: datetime | None = None) -> str:
        """Return the text of a trigger: of the stored one, if it is an interval as the one that is given, but for the
        moment from which that would be counted."""
        if triggers.get("interval") is not None:
            same = _described(triggers, _start_date(stored))
            if same == stored:
                return stored
        return _described(triggers, now or now_of_redis(cls))

    @classmethod
    def _start(
        cls, trigger: str, timezone: str, paused: bool, may_be_over: bool = False, now: datetime | None = None
    ) -> dict[str, str]:
        """Return the fields that say when it is due, from now on."""
        times = Times.of(trigger, timezone)
        first = times.after(now or now_of_redis(cls))
        if first is not None:
            due_times(times, first, first)  # as a worker will ask
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
    others = {name: value for name, value in declared.items() if name not in {*own, "fields"}}
    return {**own, "job_fields": _all_fields(declared.get("fields"), others)}


def _all_fields(fields: Mapping[str, Any] | None, others: Mapping[str, Any]) -> dict[str, Any]:
    """Return the fields of the jobs, which are given in both ways."""
    if fields is None:
        return dict(others)
    if not isinstance(fields, Mapping):
        raise TypeError(f"The fields must be a mapping, not {fields!r}")
    twice = fields.keys() & others.keys()
    if twice:
        raise TypeError(f"{', '.join(sorted(twice))}: given twice, in the fields and beside them")
    return {**fields, **others}


def _given_for_many(each: Mapping[str, Any], owner: str | None) -> tuple[dict[str, Any], bool]:
    """Return what `add_many` is given for one schedule, as `_values` takes it; and whether it is paused."""
    if not isinstance(each, Mapping):
        raise TypeError(f"it must be a mapping of the arguments of add, not {each!r}")
    for name in ("name", "job_class"):
        if name not in each:
            raise TypeError(f"it needs a {name}")
    for name in ("owner", "replace"):
        if name in each:
            raise TypeError(f"{name} is an argument of add_many, for all. A field of that name is one of the fields")
    apart = ("name", "job_class", "paused")
    others = {name: value for name, value in each.items() if name not in apart}
    named = {"name": each["name"], "job_class": each["job_class"], "owner": owner}
    return {**_DEFAULTS, **_with_job_fields(others), **named}, bool(each.get("paused"))


@contextmanager
def _naming(number: int, each: Any) -> Iterator[None]:
    """Let an exception say which schedule of a list is meant."""
    try:
        yield
    except (UniquenessError, *_REFUSALS) as error:
        kind: Any = next(kind for kind in (UniquenessError, *_REFUSALS) if isinstance(error, kind))
        name = f", {each['name']!r}" if isinstance(each, Mapping) and "name" in each else ""
        raise kind(f"Schedule {number} of the list{name}: {error}") from error


def _named_already(name: str) -> UniquenessError:
    return UniquenessError(f"There is a schedule named {name!r} already")


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


def _stored_owner(given: Any) -> str:
    if given is None:
        return ""
    if not isinstance(given, str):
        raise TypeError(f"The owner of a schedule must be a string, not {given!r}")
    if not given.strip():
        raise ValueError("The owner of a schedule must not be empty")
    check_size("The owner of a schedule", given, MAX_OWNER_BYTES)
    return str(stored_value("owner", given))


def _seconds(name: str, given: Any) -> float:
    seconds = given.total_seconds() if isinstance(given, timedelta) else given
    if not is_number(seconds):
        raise TypeError(f"The {name} must be a number of seconds or a timedelta, not {given!r}")
    if not 0 <= seconds <= 1e10:
        raise ValueError(f"The {name} must be 0 seconds or more, not {given!r}")
    return seconds  # type: ignore[no-any-return]


def _check_jitter(jitter: str, trigger: str) -> None:
    """Raise `ValueError` if a job could be delayed until the next time of an interval, or longer."""
    seconds = read_seconds(jitter)
    length = _interval_of(trigger) if seconds else None
    if seconds and length is not None and seconds >= length:
        raise ValueError(f"The jitter must be less than the interval of {length:g} seconds, not {jitter}")


def _interval_of(trigger: str) -> float | None:
    """Return the seconds of a stored interval; None if the trigger is another one."""
    with suppress(ValueError, TypeError, KeyError, RecursionError):  # any program may have written it
        arguments = json.loads(trigger)["interval"]
        return timedelta(**{name: arguments[name] for name in _UNITS if name in arguments}).total_seconds()
    return None


def _stored_fields(job_class: type[Job], values: Mapping[str, Any]) -> str:
    checked = checked_fields(job_class, dict(values))
    plain = {name: value for name, value in checked.items() if name in layout_of(job_class).plain}
    for name, value in plain.items():
        checked[name] = stored_value(name, value)
    try:
        return json.dumps(checked, ensure_ascii=False)
    except TypeError as error:
        raise TypeError(f"The fields of the jobs of a schedule must be what JSON can hold: {error}") from error
