"""What the code of a job tells while it runs: its progress, and lines of a log."""

from __future__ import annotations

import json
from typing import Any

import pytest
import redis
from cases import each

from limpyd_jobs import STATUSES, Job, Queue, Worker
from limpyd_jobs.dates import utcnow
from limpyd_jobs.models.following import progress
from limpyd_jobs.models.following.progress import Progress
from limpyd_jobs.query import JobFilter, job_details

pytestmark = pytest.mark.usefixtures("redis_client")


class Pages(Job):
    namespace = "progress"
    queue_name = "pages"

    def run(self, queue: Queue) -> None:
        for page in range(1, 4):
            self.log(f"page {page}")
            self.progress(page / 3, f"page {page} of 3")


class Finished(Pages):
    def on_success(self, queue: Queue, result: Any) -> None:
        self.progress(1, "all is done")


def test_progress_is_told_while_a_job_runs(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(progress, "PROGRESS_INTERVAL", 0)
    job = Pages.add_job("all")
    assert job.read_progress() is None
    job.progress(0.4, "page 12 of 30")
    found = job.read_progress()
    assert found is not None
    assert (found.fraction, found.text) == (0.4, "page 12 of 30")
    job.progress(0.5)
    assert (job.read_progress() or found).fraction == 0.5


def test_it_is_written_the_first_time_and_at_the_end_and_seldom_in_between(commands: Any) -> None:
    job = Pages.add_job("all")
    with commands() as sent:
        for number in range(1000):
            job.progress(number / 1000)
        job.progress(1, "done")
    assert len(sent) < 20
    found = job.read_progress()
    assert found is not None
    assert (found.fraction, found.text) == (1, "done")


def test_that_of_a_run_which_lost_its_claim_does_not_hide_that_of_the_next_one() -> None:
    Pages.add_job("all")
    lost, job = Pages.get("1"), Pages.get("1")
    lost.claim("ann")
    Queue.get_queue("pages").running.zadd({job.ident: 1})  # the lease lapses
    claim = job.claim("bob")
    job.progress(0.25, "the next run")
    for end in (lambda: None, claim.succeed):
        end()
        lost.progress(1, "the lost run")
        assert (job.read_progress() or Progress(0, "", utcnow())).text == "the next run"


def test_a_run_that_ended_last_may_tell_it_still() -> None:
    job = Finished.add_job("all")
    Worker("pages", max_loops=1, logger_level=60).run()
    assert job.read_progress().text == "all is done"  # type: ignore[union-attr]


def test_it_goes_with_the_job_or_by_itself(redis_client: redis.Redis) -> None:
    for delete in (lambda job: job.delete(), lambda job: JobFilter(Pages).delete_all()):
        job = Pages.add_job("all")
        job.log("line")
        (key,) = redis_client.keys("*:_log")  # type: ignore[misc]
        assert 600_000 < redis_client.ttl(key) <= 7 * 86400  # type: ignore[operator]
        delete(job)
        assert redis_client.keys("*:_log") == []


def test_a_job_is_shown_with_both() -> None:
    job = Pages.add_job("all")
    Worker("pages", max_loops=1, logger_level=60).run()
    assert job.status.hget() == STATUSES.SUCCESS
    details = job_details(job.ident)
    assert details.progress is not None
    assert (details.progress.fraction, details.progress.text) == (1, "page 3 of 3")
    assert [line.partition(" page ")[2] for line in details.log] == ["1", "2", "3"]


def test_redis_away_makes_no_failure(redis_client: redis.Redis) -> None:
    job = Pages.add_job("all")
    redis_client.set("progress:pages:1:_log", "text")
    job.log("line")
    redis_client.delete("progress:pages:1:_log")
    assert job.read_log() == []


@each("stored", ["", "x", "[]", "5", '["a", "b", "c"]', '[1, "a", "soon"]', "[" * 100_000])
def test_what_another_process_wrote_is_nothing(redis_client: redis.Redis, stored: str) -> None:
    job = Pages.add_job("all")
    redis_client.hset("progress:pages:1:hash", "_progress_state", stored)
    assert job.read_progress() is None
    assert job_details(job.ident).progress is None


@each("fraction", [True, "0.5", None, float("nan"), float("inf"), -0.1, 1.1])
def test_what_is_no_fraction_is_refused(fraction: Any) -> None:
    job = Pages.add_job("all")
    with pytest.raises((TypeError, ValueError), match="progress must be a number from 0 to 1, not"):
        job.progress(fraction)


class WithItsOwn(Job):
    """As an application of version 2 may have it."""

    namespace = "progress"
    queue_name = "own"
    progress = "what it is called there"  # type: ignore[assignment]
    log: list[str] = []  # type: ignore[assignment]

    def run(self, queue: Queue) -> None: ...


def test_the_names_may_be_those_of_an_application() -> None:
    job = WithItsOwn.add_job("a")
    Worker("own", max_loops=1, logger_level=60).run()
    assert (job.progress, job.log, job.status.hget()) == ("what it is called there", [], "s")


def test_the_state_is_json() -> None:
    job = Pages.add_job("all")
    job.progress(0.25, "é")
    fraction, text, _ = json.loads(job.progress_state.hget() or "")
    assert (fraction, text) == (0.25, "é")
