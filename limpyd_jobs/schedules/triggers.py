"""When a schedule is due: descriptions as data, and the triggers of APScheduler that they describe.

A description is a dictionary with one key. It can be stored as JSON, and is only data:

- ``{"cron": "0 3 * * *"}``, or the arguments of `CronTrigger`: ``{"cron": {"hour": 3, "day": "last"}}``
- ``{"interval": {"hours": 2, "start_date": "2026-01-01T00:00:00+00:00"}}``
- ``{"calendar": {"months": 1, "start_date": "2026-01-31"}}``
- ``{"date": "2026-01-01T03:00:00"}``
- ``{"and": [description…]}``, ``{"or": [description…]}``
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator, Mapping
from datetime import date, datetime, timedelta, timezone, tzinfo
from typing import Any
from zoneinfo import ZoneInfo

from limpyd_jobs.exceptions import ConfigurationException
from limpyd_jobs.schedules.search_budget import SearchBudget

Description = dict[str, Any]

ALIASES = {
    "@yearly": "0 0 1 1 *",
    "@annually": "0 0 1 1 *",
    "@monthly": "0 0 1 * *",
    "@weekly": "0 0 * * 0",
    "@daily": "0 0 * * *",
    "@midnight": "0 0 * * *",
    "@hourly": "0 * * * *",
}
WEEKDAYS = ("sun", "mon", "tue", "wed", "thu", "fri", "sat")

# The arguments of the triggers that a description may have, by its kind.
_COMMON = ("start_date", "end_date", "timezone", "jitter")
ARGUMENTS = {
    "cron": ("year", "month", "day", "week", "day_of_week", "hour", "minute", "second", *_COMMON),
    "interval": ("weeks", "days", "hours", "minutes", "seconds", *_COMMON),
    "calendar": ("years", "months", "weeks", "days", "hour", "minute", "second", *_COMMON),
}

SHORTEST_INTERVAL = timedelta(seconds=1)

# How deep descriptions may stand in each other, and how many in one.
MAX_DEPTH, MAX_PARTS = 4, 20

# What is added to a moment to ask for the time after it. Numbers of seconds since the epoch are not exact.
_STEPS = (timedelta(microseconds=1), timedelta(milliseconds=1), timedelta(seconds=1))

_OFFSET = re.compile(r"UTC([+-])(\d\d):(\d\d)", re.ASCII)  # as the text of a timezone has it
_WEEKDAY = re.compile(r"(?:\*|([a-z]{3}|\d)(?:-([a-z]{3}|\d))?)(?:/(\d{1,2}))?", re.ASCII)

# The longest text of a trigger, in characters: it takes milliseconds to read.
MAX_TEXT = 10_000


class Times:
    """The times of a description, in a zone; raises `ValueError` or `TypeError` if one of them is not valid.

    All that is asked of one object is taken out of one `SearchBudget`.
    """

    def __init__(self, description: Description, timezone: str = "UTC") -> None:
        self.zone = zone_of(timezone)
        self._trigger = _build(description, self.zone, strictly=True)
        self._budget = SearchBudget()

    @classmethod
    def of(cls, text: str, timezone: str) -> Times:
        """Return the times of a stored description, which may be anything: see the class for what is raised."""
        if len(text) > MAX_TEXT:
            raise ValueError(f"a trigger of {len(text):,} characters: at most {MAX_TEXT:,} are read")
        try:
            description = json.loads(text)
        except RecursionError as error:
            raise ValueError("a trigger of too many lists or objects in each other") from error
        return cls(description, timezone)

    def after(self, moment: datetime) -> datetime | None:
        """Return the first time after a moment, an aware datetime, in UTC; None if there is no such time."""
        try:
            with self._budget:
                return _after(self._trigger, moment)
        except OverflowError as error:
            raise ValueError(f"its times leave the years 1 to 9999: {error}") from error

    def until(self, first: datetime, last: datetime) -> Iterator[datetime]:
        """Yield one of the times, then all those after it that are not after `last`."""
        found: datetime | None = first
        while found is not None and found <= last:
            yield found
            found = self.after(found)

    def latest(self, first: datetime, last: datetime) -> datetime:
        """Return the latest time that is not after `last`, given one of the times. There may be millions in between."""
        found, bound = first, last
        while True:
            following = self.after(found)
            if following is None or following > last:
                return found
            found = following
            later = self.after(found + (bound - found) / 2) if bound > found else None
            if later is not None and later <= last:
                found = later
            else:
                bound = found + (bound - found) / 2


def zone_of(name: str) -> tzinfo:
    """Return the time zone of a name.

    Raises
    ------
    ValueError, TypeError
        If it is not the name of a time zone.
    """
    if not isinstance(name, str):
        raise TypeError(f"A time zone must be named by a string, as 'Europe/Paris', not {name!r}")
    if name == "UTC":
        return timezone.utc
    offset = _OFFSET.fullmatch(name)
    if offset:
        hours, minutes = int(offset[2]), int(offset[3])
        return timezone((1 if offset[1] == "+" else -1) * timedelta(hours=hours, minutes=minutes))
    try:
        return ZoneInfo(name)
    except (KeyError, ValueError, OSError) as error:
        raise ValueError(f"There is no time zone {name!r} here (if its name is right, install tzdata)") from error


def describe_trigger(trigger: Any) -> Description:
    """Return the description of a trigger of APScheduler. `trigger_of` makes of it a trigger that fires at the same
    times.

    Raises
    ------
    TypeError, ValueError
        If its class, its time zone or its jitter cannot be described.
    """
    classes = _classes()
    kinds = {
        each: kind for kind, cls in classes.items() for each in (cls, cls.__bases__[-1])
    }  # ours, and APScheduler's
    kind = kinds.get(type(trigger))
    if kind is None:
        names = ", ".join(cls.__name__ for cls in classes.values())
        raise TypeError(f"The trigger must be one of {names}, not {trigger!r}")
    if kind in ("and", "or"):
        if trigger.jitter:
            raise ValueError(f"A jitter of {type(trigger).__name__} cannot be stored: give it to the triggers in it")
        return {kind: [describe_trigger(each) for each in trigger.triggers]}
    if kind == "date":
        return {kind: trigger.run_date.isoformat()}
    found = {name: getattr(trigger, name) for name in _COMMON}
    if kind == "cron":
        found.update((field.name, str(field)) for field in trigger.fields if not field.is_default)
    elif kind == "interval":
        found["seconds"] = trigger.interval.total_seconds()
    else:
        moment = trigger._time
        found.update(hour=moment.hour, minute=moment.minute, second=moment.second)
        found.update((name, getattr(trigger, name)) for name in ("years", "months", "weeks", "days"))
    return {kind: _arguments(found)}


def trigger_of(description: Description, timezone: str = "UTC") -> Any:
    """Return a trigger of APScheduler by its description: see the module.

    Parameters
    ----------
    timezone: str
        The name of the zone for triggers without one of their own.

    Raises
    ------
    ValueError, TypeError, ConfigurationException
        As `Times`. But any trigger that APScheduler makes is fine, even if it would hardly ever fire.
    """
    return _build(description, zone_of(timezone), strictly=False)


def describe(
    cron: Any = None, interval: Any = None, date: Any = None, trigger: Any = None, now: datetime | None = None
) -> Description:
    """Return the description of what users pass: one of these arguments of `Schedule.add`."""
    given = {
        name: value
        for name, value in {"cron": cron, "interval": interval, "date": date, "trigger": trigger}.items()
        if value is not None
    }
    if len(given) != 1:
        told = " and ".join(given) or "none of them"
        raise ValueError(f"A schedule needs exactly one of cron, interval, date and trigger, and was given {told}")
    if trigger is not None:
        return dict(trigger) if isinstance(trigger, Mapping) else describe_trigger(trigger)
    if cron is not None:
        return {"cron": cron if isinstance(cron, str) else _given("A cron", cron, "a text such as '0 3 * * *'")}
    if date is not None:
        return {"date": _text(date)}
    if isinstance(interval, (int, float)) and not isinstance(interval, bool):
        interval = timedelta(seconds=interval)
    if isinstance(interval, timedelta):
        interval = {"seconds": interval.total_seconds()}
    arguments = _given("An interval", interval, "a number of seconds, a timedelta")
    if now is not None:
        arguments.setdefault("start_date", now.isoformat())
    return {"interval": arguments}


def _given(what: str, arguments: Any, forms: str) -> dict[str, Any]:
    if not isinstance(arguments, Mapping):
        raise TypeError(f"{what} must be {forms}, or a mapping of arguments, not {arguments!r}")
    return _arguments(arguments)


def _arguments(arguments: Mapping[str, Any]) -> dict[str, Any]:
    return {name: _text(value) for name, value in arguments.items() if value is not None}


def _text(value: Any) -> Any:
    """A date or a time zone as text; anything else as it is."""
    if isinstance(value, date):  # a datetime is one, too
        return value.isoformat()
    if isinstance(value, tzinfo):
        return _zone_name(value)
    return value


def _zone_name(zone: Any) -> str:
    if zone is timezone.utc or (isinstance(zone, timezone) and _OFFSET.fullmatch(str(zone))):
        return str(zone)
    name = getattr(zone, "key", None) or getattr(zone, "zone", None)  # as zoneinfo has it, or pytz
    if not name:
        raise ValueError(f"The time zone must be one with a name, as 'Europe/Paris', not {zone!r}")
    return str(name)


def _classes() -> dict[str, Any]:
    try:
        from limpyd_jobs.schedules.bounded import TRIGGERS
    except ImportError as error:
        raise ConfigurationException(
            f"Schedules need APScheduler 3.11: pip install 'redis-limpyd-jobs[schedules]' ({error})"
        ) from error
    return TRIGGERS


def _build(description: Any, zone: tzinfo, strictly: bool, depth: int = 1) -> Any:
    """Return the trigger of a description. If strict, refuse one that is of no use for a schedule."""
    if not isinstance(description, Mapping) or len(description) != 1:
        raise ValueError(
            f"A trigger must be a mapping with one key, such as {{'cron': '0 3 * * *'}}, not {description!r}"
        )
    ((kind, what),) = description.items()
    classes = _classes()
    if kind not in classes:
        raise ValueError(f"There is no trigger of the kind {kind!r}, but of {', '.join(classes)}")
    if kind in ("and", "or"):
        return _combined(kind, what, zone, strictly, depth)
    if kind == "cron" and isinstance(what, str):
        return _crontab(what, zone)
    if kind == "date":
        if not isinstance(what, str):
            raise TypeError(f"A date must be a datetime, or its text in ISO 8601, not {what!r}")
        return _made("date", what, lambda: classes["date"](_moment(what, zone)))
    return _of_arguments(kind, what, zone, strictly)


def _combined(kind: str, parts: Any, zone: tzinfo, strictly: bool, depth: int) -> Any:
    if not isinstance(parts, (list, tuple)) or not 1 <= len(parts) <= MAX_PARTS or depth >= MAX_DEPTH:
        raise ValueError(f"{kind!r} needs a list of 1 to {MAX_PARTS} triggers, {MAX_DEPTH} deep at most")
    if strictly and kind == "and" and any(isinstance(part, Mapping) and "interval" in part for part in parts):
        raise ValueError("'and' cannot have an interval, which almost never meets the time of another trigger")
    return _classes()[kind]([_build(part, zone, strictly, depth + 1) for part in parts])


def _of_arguments(kind: str, arguments: Any, zone: tzinfo, strictly: bool) -> Any:
    if not isinstance(arguments, Mapping):
        raise TypeError(f"The trigger {kind!r} needs a mapping of arguments, not {arguments!r}")
    for name, value in arguments.items():
        if name not in ARGUMENTS[kind]:
            raise ValueError(f"The trigger {kind!r} has no argument {name!r}, but {', '.join(ARGUMENTS[kind])}")
        if isinstance(value, bool) or not isinstance(value, (str, int, float)):
            raise TypeError(f"The {name} of the trigger {kind!r} must be a text or a number, not {value!r}")
    given = dict(arguments)
    zone = zone_of(given.pop("timezone")) if "timezone" in given else zone
    for name in ("start_date", "end_date"):
        if name in given and kind != "calendar":
            given[name] = _moment(given[name], zone)
    if not 0 <= _number(given.get("jitter", 0), "jitter") <= 86400:
        raise ValueError(f"The jitter must be between 0 and 86400 seconds, not {given['jitter']!r}")
    if kind == "interval":
        _check_interval(given, SHORTEST_INTERVAL if strictly else timedelta.resolution)
    if kind == "calendar" and "start_date" not in given:
        raise ValueError("The trigger 'calendar' needs a start_date, to count from")
    return _made(kind, arguments, lambda: _classes()[kind](**given, timezone=zone))


def _check_interval(given: Mapping[str, Any], shortest: timedelta) -> None:
    names = [name for name in ARGUMENTS["interval"] if name not in _COMMON]
    try:
        interval = timedelta(**{name: _number(given[name], name) for name in names if name in given})
    except OverflowError as error:
        raise ValueError("An interval must be shorter than the years 1 to 9999") from error
    if interval < shortest:
        length = "a second or more" if shortest == SHORTEST_INTERVAL else "more than 0 seconds"
        raise ValueError(f"An interval must be {length}, not {interval.total_seconds():g} seconds")
    if "start_date" not in given:
        raise ValueError("The trigger 'interval' needs a start_date, to count from")


def _number(value: Any, name: str) -> float:
    if isinstance(value, str) or not float("-inf") < value < float("inf"):
        raise ValueError(f"The {name} must be a number, not {value!r}")
    return float(value)


def _moment(text: Any, zone: tzinfo) -> datetime:
    try:
        moment = datetime.fromisoformat(re.sub("[Zz]$", "+00:00", str(text)))
    except ValueError as error:
        raise ValueError(f"{text!r} is not a date in ISO 8601, as 2026-12-31T23:00:00") from error
    return moment if moment.tzinfo else moment.replace(tzinfo=zone)


def _made(kind: str, what: Any, make: Callable[[], Any]) -> Any:
    try:
        return make()
    except (ValueError, TypeError, OverflowError) as error:
        raise ValueError(f"Invalid {kind} {what!r}: {error}") from error


def _crontab(text: str, zone: tzinfo) -> Any:
    """Make a trigger of a line, read as cron does: 0 and 7 are Sunday; of two kinds of days, either is enough."""
    words = ALIASES.get(text.strip().lower(), text).split()
    if len(words) not in (5, 6):
        raise ValueError(
            f"Invalid cron {text!r}: it must have 5 fields, or 6 with seconds first, not {len(words)}, or be one of "
            + ", ".join(ALIASES)
        )
    second, minute, hour, day, month, weekday = words if len(words) == 6 else ["0", *words]
    weekday = weekday.lower()

    def make() -> Any:
        cron, either = _classes()["cron"], _classes()["or"]
        common = {"second": second, "minute": minute, "hour": hour, "month": month.lower(), "timezone": zone}
        weekdays = _weekdays(weekday)
        if day.startswith("*") or weekday.startswith("*"):
            return cron(day=day, day_of_week=weekdays, **common)
        return either([cron(day=day, **common), cron(day="*", day_of_week=weekdays, **common)])

    return _made("cron", text, make)


def _weekdays(field: str) -> str:
    """Return the days of the week of a field of cron by their names."""
    return "*" if field == "*" else ",".join(name for part in field.split(",") for name in _weekday_names(part))


def _weekday_names(part: str) -> list[str]:
    match = _WEEKDAY.fullmatch(part)
    if not match:
        raise ValueError(f"{part!r} is not a day of the week: 0 (Sunday) to 7 (Sunday), or sun to sat")
    step = int(match[3] or 1)
    if not step:
        raise ValueError(f"The step of {part!r} must be more than 0")
    if match[1] is None:
        first, last = 0, 6
    else:
        first = _weekday_number(match[1])
        last = _weekday_number(match[2]) if match[2] else (6 if match[3] else first)
    if last < first:
        if not (match[2] or "").isalpha():
            raise ValueError(f"{part!r} ends before it begins")
        last += 7
    return [WEEKDAYS[number % 7] for number in range(first, last + 1, step)]


def _weekday_number(text: str) -> int:
    if text in WEEKDAYS:
        return WEEKDAYS.index(text)
    if not text.isdigit() or int(text) > 7:
        raise ValueError(f"{text!r} is not a day of the week: 0 (Sunday) to 7 (Sunday), or sun to sat")
    return int(text)


def _after(trigger: Any, moment: datetime) -> datetime | None:
    SearchBudget.take()
    classes = _classes()
    if isinstance(trigger, classes["or"]):
        found = [time for time in (_after(each, moment) for each in trigger.triggers) if time is not None]
        return min(found, default=None)
    if isinstance(trigger, classes["and"]):
        return _common_after(trigger, moment)
    if isinstance(trigger, classes["date"]):
        return _in_utc(trigger.run_date) if trigger.run_date > moment else None
    if isinstance(trigger, classes["calendar"]):
        time = trigger.after(moment)
        return None if time is None else _in_utc(time)
    for step in _STEPS:
        found_time = trigger.get_next_fire_time(None, moment + step)
        if found_time is None or found_time > moment:
            return None if found_time is None else _in_utc(found_time)
    return None


def _common_after(trigger: Any, moment: datetime) -> datetime | None:
    just_before = moment
    while True:
        times = [_after(each, just_before) for each in trigger.triggers]
        found = [time for time in times if time is not None]
        if len(found) < len(times):
            return None
        if min(found) == max(found):
            return found[0]
        just_before = max(found) - _STEPS[0]


def _in_utc(moment: datetime) -> datetime:
    return moment.astimezone(timezone.utc)
