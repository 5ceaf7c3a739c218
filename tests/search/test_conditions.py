"""What is asked of jobs: how it is written, and what is refused."""

from __future__ import annotations

import re
from datetime import datetime, timedelta, timezone
from typing import Any

import pytest
from cases import each

from limpyd_jobs import Job
from limpyd_jobs.dates import parse_datetime, utcnow
from limpyd_jobs.query import Condition


@each(
    ("word", "condition"),
    [
        ("to=ann@example.com", ("to", "=", "ann@example.com")),
        ("to!=ann", ("to", "!=", "ann")),
        ("to__ne=ann", ("to", "!=", "ann")),
        ("size>=3", ("size", ">=", "3")),
        ("size__gte=3", ("size", ">=", "3")),
        ("size__lt=3", ("size", "<", "3")),
        ("size__eq=3", ("size", "=", "3")),
        ("to=a=b>c\n", ("to", "=", "a=b>c\n")),
        ("to=", ("to", "=", "")),
        ("my__field=1", ("my__field", "=", "1")),
        ("my__field__gt=1", ("my__field", ">", "1")),
        ("status=Error", ("status", "=", "e")),
        ("status=e", ("status", "=", "e")),
        ("priority=+05", ("priority", "=", "5")),
        ("added>2026-11-20", ("added", ">", "2026-11-20 00:00:00")),
        ("added>2026-11-20T10:30+02:00", ("added", ">", "2026-11-20 08:30:00")),
    ],
)
def test_a_word_is_a_condition(word: str, condition: tuple[str, str, str]) -> None:
    assert Condition.parse(word) == condition


@each(
    ("name", "value", "condition"),
    [
        ("to", "ann", ("to", "=", "ann")),
        ("size__gt", 3, ("size", ">", "3")),
        ("size__lte", 3.5, ("size", "<=", "3.5")),
        ("urgent", True, ("urgent", "=", "1")),
        ("my__field", "x", ("my__field", "=", "x")),
        ("added__lt", datetime(2026, 11, 20), ("added", "<", "2026-11-20 00:00:00")),
        (
            "added__lt",
            datetime(2026, 11, 20, tzinfo=timezone(timedelta(hours=2))),
            ("added", "<", "2026-11-19 22:00:00"),
        ),
        ("class", Job, ("class", "=", "limpyd_jobs.models.Job")),
    ],
)
def test_so_is_an_argument_of_python(name: str, value: Any, condition: tuple[str, str, str]) -> None:
    assert Condition.named(name, value) == condition


@each(
    ("given", "seconds"),
    [
        ("now", 0),
        ("-90s", -90),
        ("+30m", 1800),
        ("-1.5h", -5400),
        ("+2d", 172800),
        ("-1w", -604800),
        (timedelta(hours=-1), -3600),
    ],
)
def test_a_time_may_be_a_span_from_now(given: Any, seconds: float) -> None:
    before = utcnow()
    moment = parse_datetime(Condition.of("end", ">", given).value)
    assert moment is not None
    assert before <= moment - timedelta(seconds=seconds) <= utcnow()


@each(
    ("word", "told"),
    [
        ("mails", "'mails' is not a condition: write it as field=value, field!=value, field>value or field__gt=value"),
        ("", "is not a condition"),
        ("=x", "is not a condition"),
        ("9a=x", "is not a condition"),
        ("size__gt>3", "compares twice"),
        ("status=fine", "'fine' is not a status: waiting, delayed, running, success, error, canceled"),
        ("status>e", "status cannot be compared by >: only by = and !="),
        ("class>=x", "class cannot be compared by >="),
        ("priority=high", "priority is an integer, not 'high'"),
        ("tries>1e3", "tries is an integer, not '1e3'"),
        ("priority=99999999999999999999", "priority is an integer"),
        (
            "added>yesterday",
            "added: 'yesterday' is not a time: write 2026-11-20, 2026-11-20T10:30 (UTC), -1h, -30m or +2d",
        ),
        ("added>-99999999w", "is not a time"),
        ("status__in=waiting,error", "only queue takes several names"),
        ("added>-1y", "is not a time"),
    ],
)
def test_what_is_none_is_refused_with_what_to_write(word: str, told: str) -> None:
    with pytest.raises(ValueError, match=re.escape(told)):
        Condition.parse(word)


@each("value", [None, [], {}, b"x", object()])
def test_a_value_of_another_kind_is_refused(value: Any) -> None:
    with pytest.raises(TypeError, match="to is compared with a text, a number or a time, not with"):
        Condition.of("to", "=", value)


@each(
    ("word", "path", "is_met"),
    [
        ("class=shop.jobs.SendMail", "shop.jobs.SendMail", True),
        ("class=shop.jobs.*", "shop.jobs.SendMail", True),
        ("class=shop.*", "shopping.jobs.SendMail", False),
        ("class=SendMail", "shop.jobs.SendMail", True),
        ("class=Send*", "shop.jobs.SendMail", True),
        ("class=sendmail", "shop.jobs.SendMail", False),
        ("class!=SendMail", "shop.jobs.SendMail", False),
        ("to=ann", "shop.jobs.SendMail", True),
    ],
)
def test_classes_are_meant_by_a_pattern(word: str, path: str, is_met: bool) -> None:
    assert Condition.parse(word).is_met_by_class(path) is is_met
