"""`assert_added`, `refute_added` and `added_jobs`: which jobs were added, and what is shown if it were others."""

from __future__ import annotations

import re
from datetime import datetime, timedelta, timezone
from typing import Any
from unittest.mock import ANY

import pytest
from cases import each
from shop import Chain, Mail, Nightly

from limpyd_jobs.testing import added_jobs, assert_added, drain, refute_added

pytestmark = pytest.mark.usefixtures("redis_client")

TOMORROW = datetime(2099, 1, 1, tzinfo=timezone(timedelta(hours=1)))


def test_jobs_are_found_by_the_values_of_their_fields() -> None:
    mail = Mail.add_job("1", "urgent", 5, to="ann", options={"size": [1]}, note=7, tags=["a"], delayed_until=TOMORROW)
    for fields in (
        {},
        {"identifier": "1"},
        {"queue_name": "urgent", "priority": 5, "to": "ann"},
        {"options": {"size": [1]}, "note": 7, "tags": {"a"}},
        {"note": "7", "options": ANY},
        {"delayed_until": TOMORROW, "status": "delayed"},
    ):
        assert assert_added(Mail, **fields) == mail
    for fields in (
        {"identifier": "2"},
        {"queue_name": "mails"},
        {"priority": 0},
        {"options": {}},
        {"delayed_until": None},
        {"delayed_for": 60},
        {"status": "waiting"},
    ):
        refute_added(Mail, **fields)
    refute_added(Chain)


def test_our_own_fields_are_among_them() -> None:
    job = Mail.add_job("1", to="ann", job_timeout=5)
    assert assert_added(Mail, job_timeout=5) == job
    refute_added(Mail, job_timeout=6)


def test_a_delay_is_counted_from_when_the_job_was_added() -> None:
    Mail.add_job("1", to="ann", delayed_for=600)
    assert_added(Mail, delayed_for=600)
    assert_added(Mail, delayed_for=timedelta(minutes=10))
    refute_added(Mail, delayed_for=601)
    refute_added(Mail, delayed_for=None)


def test_jobs_count_as_added_whatever_became_of_them() -> None:
    Mail.add_job("1", to="ann")
    drain()
    first, second = Mail.collection(identifier="1").instances()[0], Mail.add_job("1", to="ann")
    assert added_jobs(Mail, to="ann") == [first, second]
    assert added_jobs(Mail, status="waiting") == [second]
    assert assert_added(Mail) == second
    Mail.add_job("2", "other", to="ann")
    drain()
    assert_added(Mail, identifier="2", queue_name="other", status="success")


def test_a_failure_shows_what_was_added_instead() -> None:
    Mail.add_job("1", to="ann", options={"size": 5})
    Mail.add_job("2", to="eve", delayed_for=60)
    Nightly.add_job("3")
    with pytest.raises(AssertionError) as failure:
        assert_added(Mail, to="eve", priority=3)
    first, second, *jobs, last = str(failure.value).splitlines()
    assert first == "No Mail with to='eve', priority=3 was added."
    assert second == "2 of that class were added:"
    assert jobs[0].startswith("  Mail 1: identifier='1', queue_name='mails', priority=0, to='ann', options={'size': 5}")
    assert [job.rpartition("    ")[2] for job in jobs] == ["differs in to, priority", "differs in priority"]
    assert last == "Of other classes: 1 Nightly."


def test_a_failure_of_a_refutation_shows_the_jobs() -> None:
    Mail.add_job("1", to="ann")
    with pytest.raises(AssertionError) as failure:
        refute_added(Mail, to="ann")
    first, second = str(failure.value).splitlines()
    assert first == "No Mail with to='ann' should have been added, but there is:"
    assert second.startswith("  Mail 1: identifier='1'")


def test_a_failure_shows_that_nothing_was_added() -> None:
    with pytest.raises(AssertionError, match=r"^No Mail was added.\nOf other classes: none.$"):
        assert_added(Mail)


@pytest.mark.parametrize("function", [assert_added, refute_added, added_jobs])
def test_a_field_that_does_not_exist_is_an_error(function) -> None:
    with pytest.raises(AttributeError, match=r"Mail has no field 'too'; there are: .*identifier, note, options, .*to"):
        function(Mail, too="ann")
    with pytest.raises(TypeError, match="The first argument is the class of the jobs, not 'Mail'"):
        function("Mail", to="ann")


@each(
    ("fields", "message"),
    [
        ({"status": "wating"}, "There is no status 'wating'; there are: waiting, delayed, running, success"),
        ({"status": None}, "The status of a job is a text, not None"),
        ({"priority": "3"}, "The priority of a job is a whole number, not '3'"),
        ({"delayed_for": "60"}, "The delayed_for of a job is a number of seconds"),
        ({"delayed_until": "2099-01-01"}, "The delayed_until of a job is a datetime or None"),
        ({"queue_name": None}, "The queue_name of a job is a text"),
        ({"to": 5}, "The argument 'to' of Mail must be a text, not 5"),
        ({"left": "5"}, "The argument 'left' of Chain must be an integer, not '5'"),
    ],
)
@each("ask", [added_jobs, assert_added, refute_added])
def test_a_value_that_no_job_could_have_is_refused(ask: Any, fields: dict[str, Any], message: str) -> None:
    with pytest.raises((TypeError, ValueError), match=re.escape(message)):
        ask(Chain if "left" in fields else Mail, **fields)


def test_a_value_may_be_equal_to_anything() -> None:
    Mail.add_job("1", to="ann", options={"size": 5})
    for fields in ({"status": ANY, "priority": ANY}, {"to": ANY}, {"options": {"size": ANY}}, {"status": "WAITING"}):
        assert_added(Mail, **fields)
