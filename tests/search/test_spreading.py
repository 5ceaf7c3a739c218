"""Jobs that are put back one after the other, so that they are not all run at once."""

from __future__ import annotations

import json
import os
import signal
from datetime import datetime, timedelta
from itertools import pairwise
from typing import Any, ClassVar

import pytest
import redis
from cases import each
from reading import limpyd_jobs

from limpyd_jobs import Job, Worker
from limpyd_jobs.dates import parse_datetime, utcnow
from limpyd_jobs.query import Enough, JobFilter, Tally
from limpyd_jobs.records.audit import last_entries
from limpyd_jobs.search import walk

MINUTE = timedelta(minutes=1)


class Parcel(Job):
    namespace = "spreading"
    queue_name = "parcels"


class Registered(Parcel):
    """With a way of its own to be put in a queue."""

    given: ClassVar[list[Any]] = []

    def enqueue_or_delay(self, *arguments: Any, **options: Any) -> None:
        self.given.append(arguments[2])
        super().enqueue_or_delay(*arguments, **options)


@pytest.fixture(autouse=True)
def _few_per_step(redis_client: redis.Redis, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(walk, "CHANGES_PER_STEP", 2)


def failed(number: int, job_class: type[Job] = Parcel) -> list[Any]:
    jobs = [job_class.add_job(f"{len(job_class.collection()) + 1}", priority=each % 3) for each in range(number)]
    Worker("parcels", callback=lambda job, queue: 1 / 0, max_loops=number, logger_level=60).run()
    return jobs


def dues(jobs: list[Any]) -> list[datetime]:
    """When jobs are due; the first one may wait."""
    found = [parse_datetime(job.delayed_until.hget()) for job in jobs]
    return [each for each in found if each]


def gaps(jobs: list[Any]) -> list[float]:
    return [round((later - earlier).total_seconds(), 3) for earlier, later in pairwise(dues(jobs))]


def test_jobs_are_due_one_after_the_other_and_the_last_before_the_time_is_over() -> None:
    jobs, before = failed(5), utcnow()
    asked = JobFilter("status=error")
    would = asked.requeue_all(spread=10 * MINUTE, dry_run=True)
    tally = asked.requeue_all(spread=10 * MINUTE)
    assert would == tally == (5, 0, 0, {})
    assert tally.until == dues(jobs)[-1]
    assert before + 8 * MINUTE <= tally.until < utcnow() + 10 * MINUTE
    assert would.until
    assert abs(would.until - tally.until) < MINUTE
    assert [job.status.hget() for job in jobs] == ["w", "d", "d", "d", "d"]
    assert [job.priority.hget() for job in jobs] == ["0", "1", "2", "0", "1"]
    assert gaps(jobs) == [120, 120, 120]
    [entry] = last_entries(Parcel.get_connection(), 2)
    assert (entry["how"], entry["done"], entry["until"]) == ("spread=600s", "5", f"{tally.until}")


def test_a_rate_says_how_many_are_due_per_second() -> None:
    jobs = failed(5)
    tally = JobFilter(Parcel).requeue_all("elsewhere", delayed_for=60, rate=0.5)
    assert gaps(jobs) == [2, 2, 2, 2]
    assert {job.status.hget() for job in jobs} == {"d"}
    assert dues(jobs)[0] > utcnow() + MINUTE / 2
    assert tally.until == dues(jobs)[-1]
    assert last_entries(Parcel.get_connection(), 1)[0]["how"] == "queue_name=elsewhere delay=+60 s rate=0.5/s"


@pytest.mark.parametrize(
    ("job_class", "pace", "told"),
    [
        (Parcel, {"rate": 0.01}, "rate=0.01/s"),
        (Parcel, {"spread": 10 * MINUTE}, "spread=600s"),
        (Registered, {"spread": 10 * MINUTE}, "spread=600s"),
    ],
)
def test_after_a_kill_the_rest_is_due_behind_what_was_done(job_class: type[Job], pace: Any, told: str) -> None:
    jobs, asked = failed(6, job_class), JobFilter(job_class, "status=error")

    def die(looked: int, size: int) -> None:
        if asked.count().number <= 3:
            os.kill(os.getpid(), signal.SIGKILL)

    child = os.fork()
    if not child:
        try:
            asked.requeue_all(**pace, progress=die)
        finally:
            os._exit(1)
    assert os.waitpid(child, 0)[1] == signal.SIGKILL
    done = len([job for job in jobs if job.status.hget() != "e"])
    assert 3 <= done < 6
    [entry] = last_entries(job_class.get_connection(), 5)
    assert (entry["how"], entry["done"]) == (told, f"{done}")
    would = asked.requeue_all(**pace, dry_run=True)
    tally = asked.requeue_all(**pace)
    assert tally == would == (6 - done, 0, 0, {})
    assert tally.until == would.until == dues(jobs)[-1]
    assert gaps(jobs) == [100, 100, 100, 100]


def interrupted(asked: JobFilter, at_most: int, **pace: Any) -> None:
    """Begin to requeue jobs, and end that before it is done."""

    def end(looked: int, size: int) -> None:
        if asked.count().number <= at_most:
            raise Enough

    asked.requeue_all(**pace, progress=end)
    assert 0 < asked.count().number <= at_most


def test_the_rest_of_a_spread_goes_on_as_it_began_once_the_turn_has_passed(redis_client: redis.Redis) -> None:
    jobs, asked = failed(6), JobFilter("status=error")
    interrupted(asked, 3, spread=60 * MINUTE)
    [key] = redis_client.keys("limpyd-jobs:turns:*")
    assert 3_500_000 < redis_client.pttl(key) <= 3_600_000
    JobFilter("status=delayed").promote_all()
    rest = [job for job in jobs if job.status.hget() == "e"]
    tally = asked.requeue_all(spread=3600)
    assert tally.until
    assert tally.until < utcnow() + 10 * MINUTE * len(rest)
    assert {*gaps(rest)} <= {600}


def test_another_spread_begins_anew() -> None:
    jobs, asked = failed(6), JobFilter("status=error")
    interrupted(asked, 4, delayed_for=60, spread=60)
    assert asked.requeue_all(delayed_for=60, spread=600).done == 4
    assert gaps(jobs)[-1] == 150
    rest = failed(2)
    asked.requeue_all(delayed_for=60, spread=600)
    assert gaps(rest) == [300], "the one before was done"


def test_more_jobs_than_were_left_are_due_in_the_same_time() -> None:
    jobs, asked = failed(4), JobFilter("status=error")
    interrupted(asked, 2, spread=60)
    jobs += failed(8)
    asked.requeue_all(spread=60)
    assert gaps(jobs)[-5:] == [6] * 5


def test_jobs_are_not_behind_others_that_wait_no_more() -> None:
    failed(5)
    asked = JobFilter("status=error")
    asked.requeue_all(spread=60 * MINUTE)
    JobFilter("status=delayed").promote_all()
    Worker("parcels", callback=lambda job, queue: 1 / 0, max_loops=5, logger_level=60).run()
    tally = asked.requeue_all(rate=1)
    assert (tally.done, tally.until is not None and tally.until < utcnow() + MINUTE) == (5, True)


def test_a_job_that_is_refused_takes_no_turn(redis_client: redis.Redis) -> None:
    jobs = [Job.add_job(name, "parcels") for name in "abcd"]
    Worker("parcels", callback=lambda job, queue: 1 / 0, max_loops=4, logger_level=60).run()
    redis_client.hdel("jobs:job:3:hash", "_queue_key")
    assert JobFilter(Job).requeue_all(rate=1) == (3, 0, 1, {"no queue": 1})
    assert gaps(jobs) == [1]


def test_the_next_turn_is_forgotten_once_it_has_passed(redis_client: redis.Redis) -> None:
    failed(1)
    JobFilter(Parcel).requeue_all(rate=0.01)
    [key] = redis_client.keys("limpyd-jobs:turns:*")
    assert 90_000 < redis_client.pttl(key) <= 100_000


def test_a_class_with_its_own_way_is_told_when_each_is_due() -> None:
    jobs = failed(3, Registered)
    Registered.given.clear()
    tally = JobFilter(Registered).requeue_all(spread=30)
    assert tally == (3, 0, 0, {})
    assert gaps(jobs) == [10]
    assert [*map(str, Registered.given[1:])] == [job.delayed_until.hget() for job in jobs[1:]]
    assert tally.until == dues(jobs)[-1]


@pytest.mark.matrix(4)
@pytest.mark.parametrize("pace", [{"rate": 1}, {"spread": 2}])
@pytest.mark.parametrize("wrong", ["nan", "inf", "soon", "1e300", "9" * 20, "1@2/3.4.5", "1@nan/1", None])
def test_what_another_program_wrote_in_place_of_the_turn_is_replaced(
    redis_client: redis.Redis, wrong: str | None, pace: Any
) -> None:
    failed(2)
    JobFilter(Parcel).requeue_all(**pace)
    [key] = redis_client.keys("limpyd-jobs:turns:*")
    if wrong:
        redis_client.set(key, wrong)
    else:
        redis_client.delete(key)
        redis_client.lpush(key, "a list")
    jobs = failed(2)
    assert JobFilter(Parcel).requeue_all(**pace).done == 2
    assert gaps([Parcel(job.pk.get()) for job in jobs]) == [1] or len(dues(jobs)) == 1


@each(
    ("how", "told"),
    {
        "spread=0": "the spread must be a timedelta or a number of seconds, more than 0, not 0",
        "spread=-MINUTE": "more than 0, not -60.0",
        "spread=float('nan')": "more than 0, not nan",
        "spread='10m'": "more than 0, not '10m'",
        "spread=True": "more than 0, not True",
        "rate=0": "the rate must be a number of jobs per second, more than 0, not 0",
        "rate=float('inf')": "more than 0, not inf",
        "rate='50/s'": "more than 0, not '50/s'",
        "rate=MINUTE": "more than 0, not datetime.timedelta",
        "spread=1, rate=1": "give a spread or a rate, not both",
    }.items(),
)
def test_other_values_are_refused(how: str, told: str) -> None:
    with pytest.raises(ValueError, match=told):
        eval(f"JobFilter(Parcel).requeue_all({how})")


def test_what_would_be_due_after_the_last_year_is_refused() -> None:
    jobs = failed(3)
    tally = JobFilter(Parcel).requeue_all(rate=1e-300)
    assert tally == (2, 0, 1, {"beyond the year 9999": 1}) or tally == (3, 0, 0, {})
    assert len(dues(jobs)) == tally.done - 1


def on_the_command_line(*words: str) -> tuple[int, str, str]:
    return limpyd_jobs("jobs", "requeue", *words)


def test_the_command_says_until_when_it_lasts() -> None:
    failed(3)
    status, out, _ = on_the_command_line("class=Parcel", "--spread=30m", "--dry-run")
    assert (status, "would be requeued, the last one due at 2" in out) == (0, True)
    status, out, _ = on_the_command_line("class=Parcel", "--rate=30/m", "--yes", "--json")
    told = json.loads(out)
    assert (told["done"], told["until"]) == (3, f"{max(dues(list(Parcel.collection().instances())))}")
    assert json.loads(limpyd_jobs("audit", "--json")[1])[0]["until"] == told["until"]
    failed(1)
    [group] = json.loads(limpyd_jobs("errors", "groups", "--json")[1])
    status, out, _ = limpyd_jobs("errors", "requeue", group["fingerprint"], "--spread=1h", "--yes")
    assert (status, "requeued, the last one due at 2" in out) == (0, True)


@each(
    ("words", "told"),
    {
        "--all --spread=0": "option --spread: The spread argument (0) must be",
        "--all --spread=10x": "'10x' is not a time span: write it as 90, 90s, 30m, 1h or 2d",
        "--all --spread=nan": "option --spread:",
        "--all --rate=0/s": "'0/s' is not a rate: write it as 50/s, 600/m or 1000/h",
        "--all --rate=50/": "'50/' is not a rate",
        "--all --rate=nan": "'nan' is not a rate",
        "--all --rate=-1/s": "'-1/s' is not a rate",
        "--all --rate=1/s --spread=1m": "--spread and --rate do not go together",
    }.items(),
)
def test_wrong_options_are_refused(words: str, told: str) -> None:
    status, out, error = on_the_command_line(*words.split())
    assert (status, out) == (2, "")
    assert told in error


def test_verbs_that_do_not_requeue_refuse_it() -> None:
    for line in ("jobs promote --all --spread=1m", "errors delete --all --rate=1/s"):
        assert "does not support --" in limpyd_jobs(*line.split())[2]


def test_sums_of_tallies_keep_the_last_moment() -> None:
    one, other = Tally(1, 0, 0, {}), Tally(2, 0, 0, {})
    other.until = datetime(2030, 1, 1)
    assert (Tally.sum([one, other, one]), Tally.sum([one, other]).until) == ((4, 0, 0, {}), other.until)


def test_jobs_that_are_named_one_by_one_are_spread_too_and_are_one_entry_of_the_audit() -> None:
    first, _, third = failed(3)
    idents = f"{first.ident}, {third.ident}"
    status, out, _ = limpyd_jobs("jobs", "requeue", first.ident, third.ident, "--rate=1/s", "--yes")
    assert (status, "requeued, the last one due at 2" in out) == (0, True)
    assert json.loads(limpyd_jobs("audit", "--json")[1])[0]["filter"] == idents
    assert JobFilter("status=error").count().number == 1
    with pytest.raises(ValueError, match="is not the ident of a job"):
        JobFilter.of_jobs(["mails"])
