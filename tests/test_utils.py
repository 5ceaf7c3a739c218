"""Dates as scores, the end of a delay, and classes named by their path."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from datetime import date, datetime, timedelta, timezone
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest
from cases import each

from limpyd_jobs import Worker
from limpyd_jobs.classes.imports import import_class
from limpyd_jobs.dates import as_naive_utc, compute_delayed_until, datetime_to_score, get_delta, parse_datetime, utcnow
from limpyd_jobs.statuses import Statuses
from limpyd_jobs.texts import MESSAGE, one_line

# POSIX rules rather than names, so that the machine needs no time zone database. A sign is west of Greenwich.
ZONES = {
    "UTC": "UTC0",
    "New York": "EST5EDT,M3.2.0,M11.1.0",
    "Paris": "CET-1CEST,M3.5.0,M10.5.0/3",
    "Kathmandu": "<+0545>-5:45",
    "Lord Howe": "<+1030>-10:30<+11>-11,M10.1.0,M4.1.0",
    "Kiritimati": "<+14>-14",
}

SCORES = {
    "the epoch": (datetime(1970, 1, 1), 0.0),
    "before the epoch": (datetime(1969, 12, 31, 23, 59, 59, 500_000), -0.5),
    "one microsecond": (datetime(1970, 1, 1, 0, 0, 0, 1), 0.000001),
    "winter": (datetime(2026, 1, 15, 12, 0, 0, 123_456), 1768478400.123456),
    "summer": (datetime(2026, 7, 15, 12, 0, 0, 654_321), 1784116800.654321),
    "in the hour New York skips": (datetime(2026, 3, 8, 2, 30), 1772937000.0),
    "in the hour New York has twice": (datetime(2026, 11, 1, 1, 30), 1793496600.0),
    "in the hour Paris skips": (datetime(2026, 3, 29, 2, 30), 1774751400.0),
    "in the hour Paris has twice": (datetime(2026, 10, 25, 2, 30), 1792895400.0),
    "beyond 32 bits": (datetime(2038, 1, 19, 3, 14, 8), 2147483648.0),
    "the last second": (datetime(9999, 12, 31, 23, 59, 59), 253402300799.0),
}

# Two moments of UTC an hour apart that local time, there, may take for one.
CLOCK_CHANGES = [
    datetime(2026, 3, 8, 1, 30),
    datetime(2026, 11, 1, 0, 30),
    datetime(2026, 3, 29, 1, 30),
    datetime(2026, 10, 25, 1, 30),
]


@pytest.fixture(params=ZONES.values(), ids=ZONES.keys())
def host_zone(request: pytest.FixtureRequest) -> Iterator[str]:
    """Set the time zone of this process, and set the former one again at the end."""
    former = os.environ.get("TZ")
    _set_zone(request.param)
    yield request.param
    _set_zone(former)


def _set_zone(name: str | None) -> None:
    os.environ.pop("TZ", None)
    if name is not None:
        os.environ["TZ"] = name
    time.tzset()


@pytest.mark.usefixtures("host_zone")
class TestDatetimeToScoreOnAHostInAnyZone:
    @each(("moment", "score"), SCORES.values())
    def test_a_naive_date_is_utc(self, moment: datetime, score: float) -> None:
        assert datetime_to_score(moment) == score

    @each("moment", CLOCK_CHANGES)
    def test_an_hour_is_3600_seconds_when_the_clocks_change(self, moment: datetime) -> None:
        hour_later = moment + timedelta(hours=1)
        assert datetime_to_score(hour_later) - datetime_to_score(moment) == 3600

    def test_now_is_the_clock_of_the_machine(self) -> None:
        before = time.time()
        score = datetime_to_score(utcnow())
        after = time.time()
        assert round(before - 0.000001, 6) <= score <= round(after, 6)


@each("microsecond", [0, 1, 7, 123_456, 500_000, 999_999])
@each("year", [1970, 2026, 2038, 2200])
def test_a_score_keeps_the_microseconds(year: int, microsecond: int) -> None:
    moment = datetime(year, 6, 1, 10, 20, 30, microsecond)
    score = datetime_to_score(moment)
    assert datetime(1970, 1, 1) + timedelta(microseconds=round(score * 1_000_000)) == moment


@each("minutes", [0, 120, -330, 345, 840, -720])
def test_an_aware_date_has_the_score_of_its_moment(minutes: int) -> None:
    zone = timezone(timedelta(minutes=minutes))
    moment = datetime(2026, 1, 15, 12, 0, tzinfo=zone)
    assert datetime_to_score(moment) == moment.timestamp()


def test_an_aware_date_becomes_naive_utc() -> None:
    moment = datetime(2026, 1, 15, 1, 30, 0, 5, tzinfo=timezone(timedelta(hours=2)))
    assert as_naive_utc(moment) == datetime(2026, 1, 14, 23, 30, 0, 5)


class TestParseDatetime:
    @each(
        ("text", "moment"),
        [
            ("2026-11-21 09:44:00.182760", datetime(2026, 11, 21, 9, 44, 0, 182_760)),
            ("2026-11-21 09:44:00", datetime(2026, 11, 21, 9, 44)),
            ("2026-11-21T09:44:00", datetime(2026, 11, 21, 9, 44)),
            ("2026-11-21", datetime(2026, 11, 21)),
            ("2026-11-21 09:44:00+02:00", datetime(2026, 11, 21, 7, 44)),
        ],
    )
    def test_a_stored_date_is_read_back_as_naive_utc(self, text: str, moment: datetime) -> None:
        assert parse_datetime(text) == moment

    @each("moment", [datetime(2026, 11, 21, 9, 44), datetime(1, 1, 1), datetime.max])
    def test_what_str_gives_is_read_back_the_same(self, moment: datetime) -> None:
        assert parse_datetime(str(moment)) == moment

    @each("text", [None, "", "soon", "2026-13-01", "9999-12-31 23:59:59-23:00", "\0", "nan"])
    def test_what_is_no_date_is_none(self, text: str | None) -> None:
        assert parse_datetime(text) is None


class TestComputeDelayedUntil:
    def test_no_delay_is_none(self) -> None:
        assert compute_delayed_until() is None
        assert compute_delayed_until(None, None) is None

    @each(
        ("delay", "length"),
        [
            (60, timedelta(seconds=60)),
            (0.25, timedelta(milliseconds=250)),
            (timedelta(days=2, microseconds=1), timedelta(days=2, microseconds=1)),
            (0, timedelta(0)),
            (-5, timedelta(seconds=-5)),
            (timedelta(days=-1), timedelta(days=-1)),
        ],
    )
    def test_delayed_for_counts_from_now_in_utc(self, delay: float | timedelta, length: timedelta) -> None:
        before = utcnow()
        until = compute_delayed_until(delayed_for=delay)
        after = utcnow()
        assert until is not None
        assert until.tzinfo is None
        assert before + length <= until <= after + length

    @pytest.mark.usefixtures("host_zone")
    def test_delayed_for_is_the_same_moment_on_a_host_in_any_zone(self) -> None:
        before = time.time()
        until = compute_delayed_until(delayed_for=60)
        after = time.time()
        assert until is not None
        assert round(before + 60 - 0.000001, 6) <= datetime_to_score(until) <= round(after + 60, 6)

    @each("moment", [datetime(2026, 11, 21, 9, 44), datetime(1999, 1, 1), datetime.max])
    def test_a_naive_delayed_until_is_taken_as_utc(self, moment: datetime) -> None:
        assert compute_delayed_until(delayed_until=moment) == moment

    @pytest.mark.parametrize("host_zone", ["America/New_York"], indirect=True)
    def test_a_local_time_that_is_ago_as_utc_is_warned_of(self, host_zone: str) -> None:
        with pytest.warns(UserWarning, match=r"is \d h ago: a naive datetime is UTC.*Give an aware one") as warned:
            compute_delayed_until(delayed_until=datetime.now())
        assert warned[0].filename == __file__
        for meant in (utcnow(), datetime.now().astimezone(), datetime.now() - timedelta(hours=1)):
            compute_delayed_until(delayed_until=meant)  # pytest makes an error of a warning

    def test_an_aware_delayed_until_is_converted_to_utc(self) -> None:
        moment = datetime(2030, 6, 1, 12, 0, tzinfo=timezone(timedelta(hours=-7)))
        assert compute_delayed_until(delayed_until=moment) == datetime(2030, 6, 1, 19, 0)

    @each("delay", [-1e12, -(10**30), timedelta.min])
    def test_a_delay_that_ended_before_the_first_year_ended_in_the_past(self, delay: float | timedelta) -> None:
        until = compute_delayed_until(delayed_for=delay)
        assert until is not None
        assert until < utcnow()

    @each(
        "delay",
        ["60", b"60", float("nan"), float("inf"), float("-inf"), True, False, [60], Decimal(60)],
    )
    def test_delayed_for_that_is_no_number_of_seconds_is_refused(self, delay: object) -> None:
        with pytest.raises(ValueError, match="delayed_for"):
            compute_delayed_until(delayed_for=delay)

    @each(
        "delay",
        [1e12, 1e300, 10**30, 10**400, timedelta.max],
    )
    def test_delayed_for_beyond_year_9999_is_refused(self, delay: float | timedelta) -> None:
        with pytest.raises(ValueError, match=r"delayed_for.*9999|9999.*delayed_for"):
            compute_delayed_until(delayed_for=delay)

    @each(
        "moment",
        ["2030-01-01", date(2030, 1, 1), 1893456000, 1.5, float("nan"), True, timedelta(1)],
    )
    def test_delayed_until_that_is_no_datetime_is_refused(self, moment: object) -> None:
        with pytest.raises(ValueError, match="delayed_until"):
            compute_delayed_until(delayed_until=moment)

    def test_delayed_until_beyond_year_9999_in_utc_is_refused(self) -> None:
        moment = datetime(9999, 12, 31, 23, 0, tzinfo=timezone(timedelta(hours=-5)))
        with pytest.raises(ValueError, match=r"delayed_until.*9999|9999.*delayed_until"):
            compute_delayed_until(delayed_until=moment)

    def test_both_are_refused(self) -> None:
        with pytest.raises(ValueError, match=r"delayed_until and delayed_for .* exclusive"):
            compute_delayed_until(60, datetime(2030, 1, 1))

    def test_a_delay_of_nothing_leaves_the_date(self) -> None:
        assert compute_delayed_until(0, datetime(2030, 1, 1)) == datetime(2030, 1, 1)


class TestGetDelta:
    @each("value", [90, 90.0, timedelta(seconds=90)])
    def test_seconds_and_timedeltas_become_a_timedelta(self, value: float | timedelta) -> None:
        assert get_delta(value) == timedelta(minutes=1, seconds=30)

    @each("value", ["90", None, b"90", [], date(2020, 1, 1), float("nan"), float("inf")])
    def test_anything_else_raises(self, value: Any) -> None:
        with pytest.raises((TypeError, ValueError, OverflowError)):
            get_delta(value)


class TestImportClass:
    def test_a_path_gives_the_class(self) -> None:
        assert import_class("limpyd_jobs.statuses.Statuses") is Statuses

    def test_any_name_of_a_module_can_be_imported(self) -> None:
        assert import_class("os.path.join") is os.path.join

    @each("path", ["Statuses", "", ".", ".Statuses", "limpyd_jobs.statuses."])
    def test_a_path_without_a_module_or_a_name_raises_valueerror(self, path: str) -> None:
        with pytest.raises(ValueError, match="not the path of a class"):
            import_class(path)

    @each("path", ["no_such_module.Thing", "limpyd_jobs.no_such_module.Thing", "os..Thing"])
    def test_a_module_that_is_not_there_raises_importerror(self, path: str) -> None:
        with pytest.raises(ImportError):
            import_class(path)

    def test_a_module_that_itself_imports_what_is_not_there_raises_its_importerror(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        (tmp_path / "lacking.py").write_text("import not_installed\n")
        monkeypatch.syspath_prepend(tmp_path)
        for path in ("lacking.Thing", "lacking.Thing.part"):
            with pytest.raises(ImportError, match="not_installed"):
                import_class(path)

    def test_a_path_may_lead_through_classes(self) -> None:
        assert import_class(f"{__name__}.TestImportClass.Inner") is self.Inner
        assert import_class(f"{__name__}.TestImportClass.Inner.mark") == "inside"

    def test_a_module_comes_before_an_attribute_of_its_package(self) -> None:
        assert import_class("os.path.join.__name__") == "join"
        assert import_class("limpyd_jobs.workers.worker.Worker.run") is Worker.run

    class Inner:
        mark = "inside"

    def test_a_name_that_a_class_on_the_way_lacks_raises_attributeerror(self) -> None:
        with pytest.raises(AttributeError, match="Missing"):
            import_class("limpyd_jobs.statuses.Statuses.Missing")

    def test_a_name_its_module_lacks_raises_attributeerror(self) -> None:
        with pytest.raises(AttributeError, match="Missing"):
            import_class("limpyd_jobs.statuses.Missing")


class TestOneLine:
    def test_plain_text_is_shown_as_it_is(self) -> None:
        assert one_line("mail 12, é") == "mail 12, é"

    def test_what_would_break_a_line_is_escaped(self) -> None:
        assert one_line("a\nb\x1b") == "a\\nb\\x1b"

    @each("character", ["x", "\n"])
    def test_a_long_text_is_shortened_and_its_length_told(self, character: str) -> None:
        shown = one_line(character * 1_000_000)
        assert shown.endswith("… (1,000,000 characters)")
        assert len(shown) < 500

    def test_a_message_may_be_longer_than_a_name(self) -> None:
        assert one_line("x" * 300, MESSAGE) == "x" * 300
