"""`clock`: the time can be moved, for all that waits for some time."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime, timedelta, timezone

import pytest
from limpyd import fields
from limpyd.indexes import NumberRangeIndex
from shop import Mail, Nightly

from limpyd_jobs import STATUSES, Queue, Schedule, TimedRecord
from limpyd_jobs.exceptions import ClaimLost
from limpyd_jobs.redis.scripting import load
from limpyd_jobs.testing import added_jobs, assert_added, clock, drain

pytestmark = pytest.mark.usefixtures("redis_client", "_reset")


class Reminder(TimedRecord):
    namespace = "shop_of_testing"
    due_field = "at"
    at = fields.InstanceHashField(indexable=True, indexes=[NumberRangeIndex])


@pytest.fixture
def _reset() -> Iterator[None]:
    yield
    clock.reset()


def test_delayed_jobs_become_due() -> None:
    job = Mail.add_job("1", to="ann", delayed_for=3600)
    clock.move(minutes=59)
    assert drain().total == 0
    clock.move(minutes=1)
    assert drain().total == 1
    assert job.start.hget() > job.delayed_until.hget()


def test_the_time_is_that_of_the_server_whatever_stops_the_time_of_this_process(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    class Frozen(datetime):
        @classmethod
        def now(cls, tz: object = None) -> datetime:
            return datetime(2020, 1, 1, tzinfo=timezone.utc)

    monkeypatch.setattr("limpyd_jobs.dates.datetime", Frozen)
    clock.move_to(datetime(2031, 12, 24, 17))
    assert clock.now().replace(second=0, microsecond=0) == datetime(2031, 12, 24, 17)
    Mail.add_job("1", to="ann", delayed_for=1800)
    assert drain().total == 0
    clock.move(minutes=30)
    assert drain().total == 1


def test_the_dates_of_jobs_are_those_of_the_clock() -> None:
    clock.move_to(datetime(2031, 12, 24, 18, tzinfo=timezone(timedelta(hours=1))))
    job = Mail.add_job("1", to="ann", delayed_until=datetime(2031, 12, 24, 20))
    assert job.added.hget().startswith("2031-12-24 17:00")
    assert clock.now() - datetime(2031, 12, 24, 17) < timedelta(minutes=10)
    assert job.status.hget() == STATUSES.DELAYED
    assert Mail.add_job("2", to="ann", delayed_until=datetime(2031, 12, 24, 16)).status.hget() == STATUSES.WAITING


def test_tries_come_when_their_delay_is_over() -> None:
    job = Mail.add_job("1", to="unreachable")
    assert drain().requeued == 1
    assert drain().total == 0
    clock.move(minutes=10)
    with pytest.raises(OSError, match="no mail server"):
        drain()
    assert job.tries.hget() == "2"


def test_schedules_are_enqueued_at_their_times() -> None:
    clock.move_to(datetime(2031, 12, 24, 12))
    Schedule.add("nightly", Nightly, cron="0 3 * * *", timezone="UTC")
    assert drain().total == 0
    for day in (25, 26):
        clock.move_to(datetime(2031, 12, day, 3, 0, 1))
        assert drain().success == 1
        assert drain().total == 0
        assert assert_added(Nightly).added.hget().startswith(f"2031-12-{day} 03:00")
    assert len(added_jobs(Nightly)) == 2


def test_leases_lapse() -> None:
    job = Mail.add_job("1", to="ann")
    claim = job.claim(lease=60)
    clock.move(seconds=61)
    assert drain().success == 1
    with pytest.raises(ClaimLost):
        claim.succeed()


def test_timed_records_become_due() -> None:
    Reminder.make("tea", {"at": clock.now().replace(tzinfo=timezone.utc).timestamp() + 180})
    assert Reminder.lease_due("somebody") == []
    clock.move(minutes=3)
    assert [pk for pk, _ in Reminder.lease_due("somebody")] == ["tea"]


def test_jobs_are_pruned_once_they_are_old() -> None:
    Mail.add_job("1", to="ann")
    drain()
    queue = Queue.get_queue("mails")
    assert queue.prune(keep_success=timedelta(days=7)) == 0
    clock.move(days=8)
    assert queue.prune(keep_success=timedelta(days=7)) == 1


def test_a_clock_that_is_not_moved_changes_no_script() -> None:
    before = load("claiming/claim")
    clock.move(by=timedelta(microseconds=5))
    assert load("claiming/claim") != before
    clock.move(seconds=-0.000005)
    assert load("claiming/claim") == before
    assert clock.moved == timedelta()
