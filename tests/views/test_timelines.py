"""A job is drawn as what it did: to scale, try by try, with the error of each; its traceback by whose frames it has."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest

from limpyd_jobs import Job, Queue, Retry, Worker, transitions
from limpyd_jobs.query import job_details
from limpyd_jobs.transitions import ClaimRequest
from limpyd_jobs.views.timelines import timeline_of
from limpyd_jobs.views.tracebacks import blocks_of

pytestmark = pytest.mark.usefixtures("redis_client")


class Payment(Job):
    namespace = "timelines"
    queue_name = "payments"
    keep_history = 20

    def run(self, queue: Any) -> None:
        raise ValueError("no bank")


class Plain(Job):
    namespace = "timelines-plain"
    queue_name = "plain"

    def run(self, queue: Any) -> None:
        raise KeyError("no history")


def test_each_try_has_what_it_did_and_the_error_that_ended_it() -> None:
    job = Payment.add_job("one", retry_policy=Retry(times=1, delay=0.1))
    Worker("payments", max_loops=1, logger_level=60).run()
    Worker("payments", max_loops=1, logger_level=60, max_duration=20).run()
    found = timeline_of(job_details(job.ident))
    assert found
    first, second = found.tries
    assert [(each.number, each.outcome, each.error["type"]) for each in (first, second)] == [
        (1, "retry", "ValueError"),
        (2, "error", "ValueError"),
    ]
    assert [each.kind for each in first.segments] == ["waited", "ran"]
    assert second.segments[0].kind == "delayed"
    assert found.is_whole
    parts = [each for a_try in found.tries for each in a_try.segments]
    assert all(0 <= each.at <= 1 and each.width >= 0.005 for each in parts)
    assert [each.at for each in parts] == sorted(each.at for each in parts)
    assert "to scale" in found.text
    assert found.ticks[0] == (0, "0")


def test_without_history_the_last_try_is_drawn_and_it_is_said() -> None:
    job = Plain.add_job("one")
    waiting = timeline_of(job_details(job.ident))
    assert waiting
    assert (waiting.tries[0].outcome, waiting.tries[0].segments[0].kind) == ("waiting", "waited")
    Worker("plain", max_loops=1, logger_level=60).run()
    found = timeline_of(job_details(job.ident))
    assert found
    assert not found.is_whole
    [last] = found.tries
    assert ([each.kind for each in last.segments], last.error["type"]) == (["waited", "ran"], "KeyError")


def lose(job: Job, queue: str) -> None:
    """Let a worker claim a job and die, and another one put it back."""
    keys = Queue.get_waiting_keys(queue)
    request = ClaimRequest(keys, "1@web1:7:0123456789ab", 60, {job.get_model_repr(): type(job)})
    transitions.claim(Queue, request)
    base = Queue.get_queue(queue).waiting.key.removesuffix(":waiting")
    job.get_connection().zadd(f"{base}:_running", {job.ident: 1})
    transitions.rescue(Queue, [base], 5, request)


def test_a_run_that_was_lost_is_shown_or_said() -> None:
    whole, plain = Payment.add_job("one"), Plain.add_job("one")
    lose(whole, "payments")
    lose(plain, "plain")
    found = timeline_of(job_details(whole.ident))
    assert found
    assert ([each.outcome for each in found.tries], found.missing) == (["lost", "waiting"], "")
    found = timeline_of(job_details(plain.ident))
    assert found
    assert (found.tries[0].number, found.missing) == (2, "1 run was lost: the worker died.")
    lose(plain, "plain")
    assert "2 runs were lost" in timeline_of(job_details(plain.ident)).missing  # type: ignore[union-attr]
    Worker("plain", max_loops=1, logger_level=60).run()
    found = timeline_of(job_details(plain.ident))
    assert found
    assert (found.tries[0].number, found.missing.partition(":")[0]) == (3, "Of 2 earlier tries no error is kept")


TRACEBACK = """Traceback (most recent call last):
  File "/venv/lib/python3.12/site-packages/limpyd_jobs/workers/loop.py", line 1, in run
    job.run(queue)
    ~~~~~~~^^^^^^^
  File "/srv/shop/payouts.py", line 58, in run
    send(self)
  File "/venv/lib/python3.12/site-packages/httpx/_client.py", line 9, in post
    raise
  File "/usr/lib/python3.12/ssl.py", line 9, in read
ValueError: no answer
  of the bank
"""


def test_frames_of_the_application_are_open_and_others_folded() -> None:
    found = blocks_of(TRACEBACK, "shop.payouts.SendPayout")
    assert [(each.owner, len(each.frames)) for each in found] == [
        ("limpyd_jobs", 1),
        ("", 1),
        ("httpx, python", 2),
        ("", 0),
    ]
    assert found[1].frames[0].code == ["send(self)"]
    assert (found[1].frames[0].line, found[1].frames[0].function) == ("58", "run")
    assert found[-1].text == "ValueError: no answer\n  of the bank"
    assert blocks_of("", "shop.Mail") == []
    assert blocks_of("(masked)", "shop.Mail")[0].text == "(masked)"


@pytest.mark.parametrize("seconds", [0.3, 0.7, 1.4, 7, 280, 1000, 30_000, 200_000, 4_000_000])
def test_no_two_marks_of_the_axis_are_alike(seconds: float) -> None:
    job = Payment.add_job("one")
    found = job_details(job.ident)
    added = found.history[0].at
    ended = found.history[0]._replace(at=added + timedelta(seconds=seconds), status="SUCCESS")
    drawn = timeline_of(found._replace(history=[found.history[0], ended]))
    assert drawn
    texts = [text for _, text in drawn.ticks]
    assert len({*texts}) == len(texts) >= 2
