"""What is run of the times that were missed. Without Redis."""

from __future__ import annotations

from datetime import datetime, timedelta, timezone
from typing import Any

from cases import each

from limpyd_jobs.schedules.misfires import due_times
from limpyd_jobs.schedules.triggers import Times

HOURLY = Times({"cron": "@hourly"})


def at(hour: int, minute: int = 0, second: int = 0, day: int = 1) -> datetime:
    return datetime(2026, 1, day, hour, minute, second, tzinfo=timezone.utc)


def told(due: datetime, now: datetime, **options: Any) -> list[tuple[int | None, int]]:
    """The hours that are run, each with the one that follows."""
    found = due_times(HOURLY, due, now, **options)
    return [(run.hour if run else None, following.hour) for run, following in found if following]


@each("misfire_policy", ["latest", "all", "none"])
@each("now", [at(5), at(5, 0, 30)])
def test_what_is_due_now_is_run(misfire_policy: str, now: datetime) -> None:
    assert told(at(5), now, misfire_policy=misfire_policy) == [(5, 6)]


@each(
    ("options", "expected"),
    [
        ({}, [(8, 9)]),
        ({"misfire_policy": "latest", "misfire_grace_time": timedelta(minutes=20)}, [(8, 9)]),
        ({"misfire_policy": "latest", "misfire_grace_time": timedelta(minutes=10)}, [(None, 9)]),
        ({"misfire_policy": "all"}, [(5, 6), (6, 7), (7, 8), (8, 9)]),
        ({"misfire_policy": "all", "most": 4}, [(5, 6), (6, 7), (7, 8), (8, 9)]),
        ({"misfire_policy": "all", "most": 3}, [(6, 7), (7, 8), (8, 9)]),
        ({"misfire_policy": "all", "most": 1}, [(8, 9)]),
        ({"misfire_policy": "all", "misfire_grace_time": timedelta(hours=2)}, [(7, 8), (8, 9)]),
        ({"misfire_policy": "all", "misfire_grace_time": timedelta(minutes=1)}, [(None, 9)]),
        ({"misfire_policy": "none"}, [(None, 9)]),
        ({"misfire_policy": "none", "misfire_grace_time": timedelta(minutes=30)}, [(8, 9)]),
    ],
)
def test_what_was_missed_is_run_as_is_said(options: Any, expected: Any) -> None:
    """Workers were away from before 5:00 to 8:15."""
    assert told(at(5), at(8, 15), **options) == expected


def test_each_step_begins_where_the_one_before_ended() -> None:
    found = due_times(HOURLY, at(5), at(12, 30), "all")
    assert [step.run for step in found[1:]] == [step.following for step in found[:-1]]


def test_years_of_seconds_are_made_up_for_with_the_latest_ones() -> None:
    found = due_times(Times({"cron": "* * * * * *"}), datetime(2020, 1, 1, tzinfo=timezone.utc), at(0), "all", most=3)
    assert [step.run for step in found] == [at(0) - timedelta(seconds=number) for number in (2, 1, 0)]


@each("misfire_policy", ["latest", "all", "none"])
def test_what_never_comes_again_is_over(misfire_policy: str) -> None:
    once = Times({"date": "2026-01-01T05:00:00"})
    assert due_times(once, at(5), at(5), misfire_policy) == [(at(5), None)]


def test_what_is_too_late_and_never_comes_again_is_over() -> None:
    assert due_times(Times({"date": "2026-01-01T05:00:00"}), at(5), at(9), "none") == [(None, None)]
