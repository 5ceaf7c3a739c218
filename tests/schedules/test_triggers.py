"""What users say of when a job is due, and the times that follow from it. Without Redis."""

from __future__ import annotations

import json
from bisect import bisect
from collections.abc import Iterator
from datetime import date, datetime, timedelta, timezone
from itertools import islice, pairwise
from typing import Any
from zoneinfo import ZoneInfo, available_timezones

import pytest
from apscheduler.triggers.calendarinterval import CalendarIntervalTrigger
from apscheduler.triggers.combining import AndTrigger, OrTrigger
from apscheduler.triggers.cron import CronTrigger
from apscheduler.triggers.date import DateTrigger
from apscheduler.triggers.interval import IntervalTrigger
from cases import each

from limpyd_jobs.exceptions import ConfigurationException
from limpyd_jobs.schedules import search_budget
from limpyd_jobs.schedules.misfires import due_times
from limpyd_jobs.schedules.triggers import Times, describe, describe_trigger, trigger_of

PARIS = ZoneInfo("Europe/Paris")
NEVER = datetime.max.replace(tzinfo=timezone.utc)


def utc(text: str) -> datetime:
    return datetime.fromisoformat(text).replace(tzinfo=timezone.utc)


def next_times(description: Any, after: str, number: int = 4, zone: str = "UTC") -> list[str]:
    """The next times after a moment in UTC, as the clocks of the zone show them."""
    times = Times(description, zone)
    first = times.after(utc(after))
    found = islice(times.until(first, NEVER), number) if first else ()
    return [time.astimezone(times.zone).replace(tzinfo=None).isoformat(" ") for time in found]


def cron_times(line: str, after: str = "2026-01-01 00:00:00", number: int = 4, zone: str = "UTC") -> list[str]:
    return next_times({"cron": line}, after, number, zone)


@each(
    ("line", "expected"),
    [
        ("0 3 * * *", ["2026-01-01 03:00:00", "2026-01-02 03:00:00"]),
        ("*/20 * * * *", ["2026-01-01 00:20:00", "2026-01-01 00:40:00"]),
        ("*/10 * * * * *", ["2026-01-01 00:00:10", "2026-01-01 00:00:20"]),
        ("30 0 3 * * *", ["2026-01-01 03:00:30", "2026-01-02 03:00:30"]),
        ("0 0 1 FEB,mar *", ["2026-02-01 00:00:00", "2026-03-01 00:00:00"]),
        ("5,7-8 0 * * *", ["2026-01-01 00:05:00", "2026-01-01 00:07:00", "2026-01-01 00:08:00"]),
        ("0 0 29 2 *", ["2028-02-29 00:00:00", "2032-02-29 00:00:00"]),
        ("0 0 last * *", ["2026-01-31 00:00:00", "2026-02-28 00:00:00"]),
        ("@yearly", ["2027-01-01 00:00:00"]),
        ("@annually", ["2027-01-01 00:00:00"]),
        ("@monthly", ["2026-02-01 00:00:00"]),
        ("@weekly", ["2026-01-04 00:00:00", "2026-01-11 00:00:00"]),
        ("@daily", ["2026-01-02 00:00:00"]),
        ("@Midnight", ["2026-01-02 00:00:00"]),
        ("@hourly", ["2026-01-01 01:00:00"]),
    ],
)
def test_a_line_of_cron_means_what_it_means_to_cron(line: str, expected: list[str]) -> None:
    assert cron_times(line, number=len(expected)) == expected


@each(
    ("field", "days"),
    [
        ("0", "4 11"),
        ("7", "4 11"),
        ("1", "5 12"),
        ("sun", "4 11"),
        ("1-5", "1 2 5 6 7 8 9 12"),
        ("mon-fri", "1 2 5 6 7 8 9 12"),
        ("5-7", "2 3 4 9 10 11"),
        ("0-2", "4 5 6 11 12"),
        ("fri-mon", "2 3 4 5 9 10 11 12"),
        ("Sat,0", "3 4 10 11"),
        ("*/2", "1 3 4 6 8 10 11"),
        ("1-5/2", "2 5 7 9 12"),
        ("4/1", "1 2 3 8 9 10"),
    ],
)
def test_the_days_of_the_week_are_those_of_cron(field: str, days: str) -> None:
    """January 2026 begins on a Thursday."""
    expected = [f"2026-01-{int(day):02} 12:00:00" for day in days.split()]
    found = cron_times(f"0 12 * * {field}", number=20)
    assert [time for time in found if time < "2026-01-13"] == expected


def test_a_day_of_the_month_or_one_of_the_week_is_enough() -> None:
    assert cron_times("0 0 13 * 5") == [
        *("2026-01-02 00:00:00", "2026-01-09 00:00:00", "2026-01-13 00:00:00", "2026-01-16 00:00:00")
    ]


def test_arguments_of_the_trigger_mean_what_they_mean_to_apscheduler() -> None:
    description = {"cron": {"day": 13, "day_of_week": "fri"}}
    assert next_times(description, "2026-01-01 00:00:00", 2) == ["2026-02-13 00:00:00", "2026-03-13 00:00:00"]


@each(
    ("line", "wrong"),
    [
        ("", "not 0"),
        ("* * * *", "not 4"),
        ("* * * * * * *", "not 7"),
        ("@reboot", "one of @yearly"),
        ("61 * * * *", "61"),
        ("* 24 * * *", "24"),
        ("* * 0 * *", "'0'"),
        ("* * * 13 *", "13"),
        ("* * * foo *", '"foo"'),
        ("* * * * foo", "'foo' is not a day of the week"),
        ("* * * * 8", "'8' is not a day of the week"),
        ("* * * * 5-1", "'5-1' ends before it begins"),
        ("* * * * */0", "step"),
        ("*/0 * * * *", "Increment"),
        ("30-10 * * * *", "range"),
        ("x * * * *", '"x" for field "minute"'),
        ("* * * * mon fri *", "not 7"),
    ],
)
def test_what_is_wrong_with_a_line_is_told(line: str, wrong: str) -> None:
    with pytest.raises(ValueError, match="Invalid cron") as caught:
        Times({"cron": line})
    assert wrong in str(caught.value)
    assert repr(line) in str(caught.value)


def test_a_time_that_does_not_exist_comes_an_hour_later_on_that_day() -> None:
    """On 29 March 2026, clocks in Paris go from 2:00 to 3:00."""
    assert cron_times("30 2 * * *", "2026-03-28 00:00:00", zone="Europe/Paris") == [
        *("2026-03-28 02:30:00", "2026-03-29 03:30:00", "2026-03-30 02:30:00", "2026-03-31 02:30:00")
    ]


def gaps(first: datetime, last: datetime) -> Iterator[tuple[str, datetime]]:
    """Yield a zone and the first moment after a time that does not exist there, for one zone of each kind."""
    seen = set()
    for name in sorted(available_timezones()):
        zone, moment = ZoneInfo(name), first
        while (later := moment + timedelta(days=14)) < last:
            before, after = offset_at(moment, zone), offset_at(later, zone)
            if after > before:
                seconds = range(14 * 86400)
                at = bisect(seconds, before, key=lambda second: offset_at(moment + timedelta(seconds=second), zone))
                found = moment + timedelta(seconds=at)
                if (found, before, after) not in seen:
                    seen.add((found, before, after))
                    yield name, found
            moment = later


def offset_at(moment: datetime, zone: ZoneInfo) -> timedelta:
    offset = moment.astimezone(zone).utcoffset()
    assert offset is not None
    return offset


def test_no_zone_has_a_time_that_is_skipped_because_it_does_not_exist() -> None:
    """Clocks go forward at midnight in Santiago, Cairo, Havana, Beirut, Asunción and on the Azores."""
    wrong = []
    for name, moment in gaps(utc("2025-12-01 00:00:00"), utc("2027-12-01 00:00:00")):
        missing = (moment - timedelta(microseconds=1)).astimezone(ZoneInfo(name)) + timedelta(microseconds=1)
        time = f"{missing.minute} {missing.hour}"
        for days in (f"{missing.day} {missing.month} *", f"{missing.day} * *", f"* * {missing:%a}", "* * *"):
            times, early = Times({"cron": f"{time} {days}"}, name), moment - timedelta(days=2)
            if moment not in times.until(times.after(early) or NEVER, moment):
                wrong.append((name, str(moment), f"{time} {days}"))
    assert wrong == []


def test_what_runs_several_times_an_hour_passes_over_the_hour_that_does_not_exist() -> None:
    assert cron_times("*/30 * * * *", "2026-03-29 00:00:00", 4, "Europe/Paris") == [
        *("2026-03-29 01:30:00", "2026-03-29 03:00:00", "2026-03-29 03:30:00", "2026-03-29 04:00:00")
    ]


def test_a_time_that_exists_twice_comes_twice() -> None:
    """On 25 October 2026, clocks in Paris go from 3:00 to 2:00."""
    times = Times({"cron": "30 2 * * *"}, "Europe/Paris")
    first = times.after(utc("2026-10-24 12:00:00"))
    assert first is not None
    assert [str(time) for time in islice(times.until(first, NEVER), 3)] == [
        *("2026-10-25 00:30:00+00:00", "2026-10-25 01:30:00+00:00", "2026-10-26 01:30:00+00:00")
    ]


@each("line", ["0 3 * * *", "0 1 * * *"])
@each("day", ["2026-03-28 12:00:00", "2026-10-24 12:00:00"])
def test_a_time_beside_the_change_comes_once_on_that_day(line: str, day: str) -> None:
    found = cron_times(line, day, 3, "Europe/Paris")
    assert len({time[:10] for time in found}) == 3


def test_an_interval_takes_no_notice_of_the_clocks() -> None:
    description = describe(interval={"hours": 12, "start_date": datetime(2026, 3, 28, 12, tzinfo=PARIS)})
    assert next_times(description, "2026-03-28 00:00:00", 3, "Europe/Paris") == [
        *("2026-03-28 12:00:00", "2026-03-29 00:00:00", "2026-03-29 13:00:00")
    ]


@each("interval", [90, 90.0, timedelta(seconds=90), {"seconds": 30, "minutes": 1}])
def test_an_interval_is_counted_from_its_start(interval: Any) -> None:
    description = describe(interval=interval, now=utc("2026-01-01 00:00:00.250000"))
    found = next_times(description, "2026-01-01 00:10:00", 2)
    assert found == ["2026-01-01 00:10:30.250000", "2026-01-01 00:12:00.250000"]


@each("seconds", [1, 3600, 86400 * 7])
def test_an_interval_never_gives_the_same_time_again(seconds: float) -> None:
    """Numbers of seconds since the epoch are not exact."""
    times = Times(describe(interval=seconds, now=utc("2020-01-01 00:00:00.123457")))
    found = list(islice(times.until(times.after(utc("2026-05-05 05:05:05")) or NEVER, NEVER), 300))
    gaps = {(later - earlier).total_seconds() for earlier, later in pairwise(found)}
    assert all(abs(gap - seconds) < 0.0001 for gap in gaps)


def test_a_date_comes_once() -> None:
    assert next_times(describe(date="2026-07-01T12:00:00"), "2026-01-01 00:00:00") == ["2026-07-01 12:00:00"]
    assert next_times(describe(date="2026-07-01T12:00:00"), "2026-07-01 12:00:00") == []


def test_a_naive_date_is_of_the_time_zone() -> None:
    times = Times(describe(date=datetime(2026, 7, 1, 12)), "Europe/Paris")
    assert times.after(utc("2026-01-01 00:00:00")) == utc("2026-07-01 10:00:00")


TRIGGERS = {
    "cron": CronTrigger(hour="3", day="last", timezone="Europe/Paris"),
    "cron with more": CronTrigger(minute="*/7", start_date="2026-02-01", end_date="2026-02-02", timezone="UTC"),
    "crontab": CronTrigger.from_crontab("0 5 * * mon", timezone="Asia/Tokyo"),
    "interval": IntervalTrigger(hours=5, start_date=datetime(2025, 1, 1, tzinfo=PARIS), timezone=PARIS),
    "calendar": CalendarIntervalTrigger(months=1, hour=4, start_date="2025-01-31", timezone="UTC"),
    "date": DateTrigger(datetime(2026, 6, 1, tzinfo=timezone.utc)),
    "or": OrTrigger([CronTrigger(hour=3, timezone="UTC"), CronTrigger(minute=59, hour=4, timezone="UTC")]),
}


@each("name", TRIGGERS)
def test_a_trigger_of_apscheduler_has_the_same_times_once_it_was_stored(name: str) -> None:
    trigger = TRIGGERS[name]
    stored = json.loads(json.dumps(describe(trigger=trigger)))
    times, now, previous = Times(stored), utc("2026-01-01 00:00:00"), None
    if name == "calendar":
        now = utc("2025-01-30 00:00:00")
    for _ in range(8):
        expected = trigger.get_next_fire_time(previous, previous or now)
        now = times.after(now) or NEVER
        assert now == (expected or NEVER)
        if expected is None:
            break
        previous = expected


@each(
    "description",
    [
        *({}, [], "cron", {"cron": "* * * * *", "date": "2026-01-01"}, {"pickle": "gASV"}, {"cron": 5}, {"date": 5}),
        *({"date": "soon"}, {"cron": {"hours": 3}}, {"cron": {"hour": 25}}, {"cron": {"hour": [3]}}),
        *({"interval": {}}, {"interval": {"seconds": 0.5}}, {"interval": {"seconds": -9}}),
        *({"interval": {"seconds": "9"}}, {"interval": {"seconds": float("nan")}}, {"interval": {"days": 1e300}}),
        *({"interval": {"hours": 1, "start_date": "soon"}}, {"interval": {"hours": 1, "jitter": -1}}),
        *({"calendar": {"days": 1}}, {"calendar": {"start_date": "2026-01-01"}}),
        *({"and": []}, {"or": "x"}, {"or": [{}]}, {"or": [{"or": [{"or": [{"or": [{"cron": "* * * * *"}]}]}]}]}),
        {"and": [{"interval": {"hours": 1, "start_date": "2026-01-01"}}, {"cron": "* * * * *"}]},
        {"or": [{"cron": "* * * * *"}] * 21},
        {"cron": {"hour": 3, "timezone": "Mars/Olympus"}},
    ],
)
def test_what_is_no_description_is_refused(description: Any) -> None:
    with pytest.raises((ValueError, TypeError)):
        Times(description)


@each("zone", ["Mars/Olympus", "", "../../etc/passwd", "CET-ish", None, 5])
def test_what_is_no_time_zone_is_refused(zone: Any) -> None:
    with pytest.raises((ValueError, TypeError), match="time zone"):
        Times({"cron": "* * * * *"}, zone)


@each(
    ("given", "wrong"),
    [
        ({}, "none of them"),
        ({"cron": "@daily", "interval": 5}, "cron and interval"),
        ({"trigger": object()}, "must be one of CronTrigger"),
        ({"trigger": type("Mine", (CronTrigger,), {})(hour=3, timezone="UTC")}, "must be one of CronTrigger"),
        ({"trigger": CronTrigger(hour=3, timezone=timezone(timedelta(hours=1), "mine"))}, "name"),
        ({"trigger": OrTrigger([CronTrigger(hour=3, timezone="UTC")], jitter=5)}, "jitter"),
        ({"interval": "5"}, "mapping"),
    ],
)
def test_what_cannot_be_described_is_refused(given: Any, wrong: str) -> None:
    with pytest.raises((ValueError, TypeError), match=wrong):
        describe(**given)


def test_all_triggers_of_an_and_have_its_times() -> None:
    """APScheduler's own hangs, if it is told of a time before."""
    both = AndTrigger([CronTrigger(day=1, timezone="UTC"), CronTrigger(day_of_week="sun", timezone="UTC")])
    found = next_times(json.loads(json.dumps(describe(trigger=both))), "2026-01-01 00:00:00", 3)
    assert found == ["2026-02-01 00:00:00", "2026-03-01 00:00:00", "2026-11-01 00:00:00"]


def test_a_jitter_makes_it_later_by_no_more_than_that() -> None:
    times = Times({"cron": {"minute": 0, "jitter": 60}})
    found = times.after(utc("2026-01-01 00:00:00"))
    assert found is not None
    assert timedelta(0) <= found - utc("2026-01-01 01:00:00") <= timedelta(seconds=60)


def minutes(first: int, number: int) -> list[Any]:
    return [{"cron": f"{first + minute} * * * *"} for minute in range(number)]


@each("policy", ["latest", "all"])
@each(
    "description",
    [
        {"or": [{"or": [{"cron": "0 0 30 2 *"}] * 20}] * 18},
        {"and": [{"or": minutes(0, 20)}, {"or": [{"or": minutes(20, 18)}] * 15}]},
        {"cron": {"week": 1, "month": "2-11"}},
        {"cron": {"minute": ",".join(["59"] * 3000), "week": 1, "month": 6}},
        {"calendar": {"days": 1, "start_date": "0001-01-01"}},
        {"calendar": {"years": 9000, "start_date": "2026-01-01"}},
        {"calendar": {"months": -1, "start_date": "2026-01-01"}},
        {"calendar": {"days": 1e12, "start_date": "2026-01-01"}},
    ],
)
def test_a_search_that_would_last_ends(description: Any, policy: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(search_budget, "MAX_STEPS", 5000)
    with pytest.raises(ValueError, match=r"no time in 5,000 steps|leave the years"):
        due_times(Times(description), utc("0001-01-01 00:00:00"), utc("2026-11-25 10:00:00"), policy)


def test_a_time_after_the_last_second_that_there_is_is_refused() -> None:
    times = Times({"cron": {"start_date": "9999-12-31T23:59:59", "second": 5}})
    with pytest.raises(ValueError, match="its times leave the years 1 to 9999: no second after 9999-12-31T23:59:59"):
        times.after(utc("2026-11-25 10:00:00"))


@each(
    ("description", "runs"),
    [
        ({"cron": "0 0 29 2 *"}, 7),
        ({"and": [{"cron": "0 0 13 * *"}, {"cron": "0 0 * * fri"}]}, 43),
        ({"and": [{"cron": "0 0 29 2 *"}, {"cron": "0 0 * * mon"}]}, 2),
        ({"or": [{"cron": f"{minute}-59 * * * *"} for minute in range(20)]}, 100),
        ({"cron": "* * * 1 *"}, 100),
        ({"calendar": {"days": 1, "start_date": "1970-01-01"}}, 100),
    ],
)
def test_years_of_missed_times_are_found(description: Any, runs: int) -> None:
    """The first is the one that is due."""
    found = due_times(Times(description), utc("2003-01-01 00:00:00"), utc("2026-11-25 10:00:00"), "all")
    assert len(found) == runs
    assert all(step.run is not None for step in found)


def test_the_latest_of_millions_of_times_is_found_at_once() -> None:
    times, asked = Times({"cron": "*/7 * * * *"}), 0

    class Counted:
        def after(self, moment: datetime) -> datetime | None:
            nonlocal asked
            asked += 1
            return times.after(moment)

    first = times.after(utc("2000-01-01 00:00:00"))
    assert first is not None
    found = Times.latest(Counted(), first, utc("2026-01-01 00:13:00"))  # type: ignore[arg-type]
    assert found == utc("2026-01-01 00:07:00")
    assert asked < 200


@each("line", ["* * * * *", "*/7 * * * *", "0-9 4 * * *", "0 0 29 2 *"])
def test_the_latest_time_is_the_last_of_all(line: str) -> None:
    times, first = Times({"cron": line}), None
    for last in ("2024-02-29 00:00:00", "2024-02-29 04:05:59", "2024-03-01 04:09:00", "2024-03-02 12:34:56"):
        first = times.after(utc("2024-02-28 23:58:00"))
        assert first is not None
        if first > utc(last):
            continue
        assert times.latest(first, utc(last)) == [*times.until(first, utc(last))][-1]


def test_without_apscheduler_it_is_told_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(__import__("sys").modules, "limpyd_jobs.schedules.bounded", None)
    with pytest.raises(ConfigurationException, match=r"redis-limpyd-jobs\[schedules\]"):
        Times({"cron": "@daily"})


PARIS, FIVE = ZoneInfo("Europe/Paris"), timezone(timedelta(hours=-5, minutes=-30))
START = datetime(2026, 10, 24, 1, 30, 0, 250000, tzinfo=PARIS)
ANY_TRIGGERS = {
    "date": DateTrigger(START),
    "date in a zone without a name": DateTrigger(datetime(2026, 1, 1, tzinfo=FIVE)),
    "interval": IntervalTrigger(minutes=37, start_date=START, end_date=datetime(2026, 10, 26, tzinfo=PARIS)),
    "interval of less than a second": IntervalTrigger(seconds=0.2, start_date=START, timezone=FIVE),
    "cron": CronTrigger(day="last", hour="*/5", minute="3,9-12", second=30, timezone=PARIS),
    "cron of a crontab": CronTrigger.from_crontab("*/7 2,3 * oct-nov sun", timezone=PARIS),
    "cron that begins and ends": CronTrigger(
        minute=5, start_date=START, end_date=datetime(2026, 10, 25), timezone=PARIS
    ),
    "calendar": CalendarIntervalTrigger(
        months=1, days=3, hour=2, minute=30, start_date=date(2026, 1, 31), end_date=date(2027, 1, 1), timezone=PARIS
    ),
    "or": OrTrigger([CronTrigger(hour=3, timezone=PARIS), IntervalTrigger(hours=7, start_date=START)]),
    "and with an interval": AndTrigger(
        [
            IntervalTrigger(minutes=15, start_date=datetime(2026, 10, 24), timezone=PARIS),
            IntervalTrigger(minutes=15, start_date=datetime(2026, 10, 24), timezone=PARIS),
        ]
    ),
}


@each("name", ANY_TRIGGERS)
def test_a_trigger_fires_at_the_same_times_once_it_is_made_of_its_description(name: str) -> None:
    trigger = ANY_TRIGGERS[name]
    description = json.loads(json.dumps(describe_trigger(trigger)))
    again = trigger_of(description)
    assert describe_trigger(again) == description
    for now in (START - timedelta(hours=1), START, START + timedelta(days=40)):
        assert fire_times(again, now) == fire_times(trigger, now)


def fire_times(trigger: Any, now: datetime) -> list[datetime]:
    found = [trigger.get_next_fire_time(None, now)]
    while found[-1] and len(found) < 50:
        found.append(trigger.get_next_fire_time(found[-1], found[-1]))
    return found


def test_a_zone_of_pytz_is_described_by_its_name() -> None:
    pytz = pytest.importorskip("pytz")
    assert describe_trigger(CronTrigger(hour=3, timezone=pytz.timezone("Europe/Paris"))) == {
        "cron": {"hour": "3", "timezone": "Europe/Paris"}
    }


@each("seconds", [0, -1])
def test_an_interval_takes_time(seconds: int) -> None:
    with pytest.raises(ValueError, match="more than 0 seconds"):
        trigger_of({"interval": {"seconds": seconds, "start_date": "2026-01-01T00:00:00Z"}})


def test_a_stored_text_that_would_take_long_to_read_is_refused() -> None:
    text = json.dumps({"cron": ",".join(["1"] * 10_000) + " * * * *"})
    with pytest.raises(ValueError, match=r"a trigger of 20,\d+ characters: at most 10,000 are read"):
        Times.of(text, "UTC")


def test_a_stored_description_that_is_deep_is_refused() -> None:
    # how deep is too deep depends on the Python: from 3.14 on, on the size of the stack
    with pytest.raises(ValueError, match=r"too many lists or objects in each other|Expecting value"):
        Times.of("[" * 9_999, "UTC")
