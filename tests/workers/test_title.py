"""The process title: its text, and how seldom Redis is asked for it."""

from __future__ import annotations

from datetime import timedelta

import pytest
import redis

from limpyd_jobs.workers.title import JobCounts, make_title

PROGRAM = "limpyd-jobs-worker"


def test_before_there_is_a_worker_only_the_program_and_init_are_shown():
    assert make_title(PROGRAM) == "limpyd-jobs-worker [init]"


def test_a_worker_that_does_not_run_yet_shows_its_id_and_queues():
    title = make_title(PROGRAM, "1566090", queues=["foo", "bar"], loops=(0, 1000))
    assert title == "limpyd-jobs-worker#1566090 [init] queues=foo,bar"


@pytest.mark.parametrize(
    ("status", "loops", "counts", "elapsed", "expected"),
    [
        ("starting", 0, (10, 0), None, "[starting] queues=foo,bar loop=0/1000 waiting=10 delayed=0"),
        (
            "running",
            1,
            (9, 2),
            timedelta(seconds=15, microseconds=999_999),
            "[running] queues=foo,bar loop=1/1000 waiting=9 delayed=2 duration=0:00:15",
        ),
        (
            "terminated",
            10,
            (0, 0),
            timedelta(minutes=12, seconds=27),
            "[terminated] queues=foo,bar loop=10/1000 waiting=0 delayed=0 duration=0:12:27",
        ),
    ],
)
def test_a_worker_that_runs_shows_what_the_documents_show(status, loops, counts, elapsed, expected):
    title = make_title(
        PROGRAM,
        "1566090",
        status,
        queues=["foo", "bar"],
        loops=(loops, 1000),
        counts=counts,
        elapsed=elapsed,
    )
    assert title == f"limpyd-jobs-worker#1566090 {expected}"


def test_an_end_that_was_asked_for_is_shown_beside_the_status():
    assert "[running - ending] " in make_title(PROGRAM, "038480", "running", ending=True, queues=["a"])


def test_a_maximum_duration_is_shown_beside_the_duration():
    title = make_title(PROGRAM, "1", "waiting", elapsed=timedelta(seconds=1), max_duration=timedelta(hours=1))
    assert title.endswith(" duration=0:00:01/1:00:00")


def test_no_maximum_of_loops_shows_only_the_loops():
    assert " loop=7 " in make_title(PROGRAM, "1", "waiting", loops=(7, None))


class Asked:
    """Answers with how often it was asked; raises ``error`` instead while there is one."""

    def __init__(self) -> None:
        self.times = 0
        self.error: Exception | None = None

    def __call__(self) -> tuple[int, int]:
        self.times += 1
        if self.error:
            raise self.error
        return self.times, 0


class Clock:
    now = 1000.0

    def __call__(self) -> float:
        return self.now


def test_the_counts_are_asked_for_at_most_once_a_second():
    asked, clock = Asked(), Clock()
    counts = JobCounts(asked, clock)
    assert [counts.latest() for _ in range(3)] == [(1, 0)] * 3
    clock.now += 0.9
    assert counts.latest() == (1, 0)
    clock.now += 0.1
    assert counts.latest() == (2, 0)


def test_the_counts_are_not_asked_for_when_they_may_not_be_unless_there_are_none_yet():
    asked, clock = Asked(), Clock()
    counts = JobCounts(asked, clock)
    assert counts.latest(may_ask=False) == (1, 0)
    clock.now += 10
    assert counts.latest(may_ask=False) == (1, 0)


def test_counts_that_redis_does_not_give_leave_the_last_ones():
    asked, clock = Asked(), Clock()
    counts = JobCounts(asked, clock)
    counts.latest()
    asked.error = redis.ConnectionError("gone")
    clock.now += 2
    assert counts.latest() == (1, 0)
    counts.latest()
    assert asked.times == 2  # a server that is down is not asked more often
