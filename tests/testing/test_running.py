"""`drain` and `run_job`: what a test of an application learns of the jobs it runs."""

from __future__ import annotations

from datetime import datetime
from typing import Any

import pytest
import redis
from flow_kinds import Page, Report
from shop import Chain, Mail

from limpyd_jobs import STATUSES, Error, Job, Queue, Worker, chain
from limpyd_jobs.models import job_classes
from limpyd_jobs.testing import drain, run_job

pytestmark = pytest.mark.usefixtures("redis_client")


def test_drain_runs_all_that_waits_and_what_that_adds_and_tells_how_it_went() -> None:
    for to in ("ann", "bob", "cancel", "later", "unreachable"):
        Mail.add_job(f"to:{to}", to=to)
    Chain.add_job("chain", "links", left=3)
    drained = drain(raise_errors=False)
    assert (drained.success, drained.error, drained.cancelled, drained.requeued) == (1 + 4, 1, 1, 2)
    assert (drained.skipped, drained.delayed, drained.total) == (0, 0, 9)
    assert [type(each) for each in drained.exceptions] == [ValueError, OSError]
    assert drain().total == 0


def test_drain_raises_what_the_first_job_raised_that_ends_in_error() -> None:
    Mail.add_job("1", to="unreachable")  # which is tried again
    failed, waiting = Mail.add_job("2", to="bob"), Mail.add_job("3", to="ann")
    with pytest.raises(ValueError, match="bob is not an address"):
        drain()
    assert failed.status.hget() == STATUSES.ERROR
    assert waiting.status.hget() == STATUSES.WAITING
    assert len(Error.collection_for_job(failed)) == 1


@pytest.mark.parametrize("with_delayed", [False, True])
def test_drain_runs_a_flow_to_its_end_in_its_order(with_delayed: bool) -> None:
    flow = chain(Page.prepare(number=1), Report.prepare(), Page.prepare(number=2))
    assert drain(with_delayed=with_delayed).success == 3
    assert flow.state()[:3] == ("ended", 0, 0)
    assert flow._nodes[2].job.results() == {"Report": {"Page": 1}}


def test_drain_runs_the_queues_it_is_given_or_those_of_a_class() -> None:
    Mail.add_job("1", to="ann")
    Mail.add_job("2", "other", to="ann")
    assert drain("none").total == 0
    assert drain("other").total == 1
    with pytest.raises(AssertionError, match="There is no queue 'othre': is other meant"):
        drain("othre")
    Chain.add_job("chain", "links", left=0)
    assert drain(job_class=Mail).total == 1
    assert drain(job_class=Chain).total == 1


def test_drain_leaves_alone_what_is_delayed_or_paused() -> None:
    Mail.add_job("1", to="ann", delayed_for=60)
    Mail.add_job("2", "paused", to="ann")
    Mail.add_job("3", "paused", to="ann", delayed_for=60)
    Queue.pause("paused")
    assert drain().total == 0
    assert drain(with_delayed=True).total == 1


def test_drain_runs_what_is_delayed_and_what_is_tried_again_without_waiting() -> None:
    Mail.add_job("1", to="ann", delayed_for=3600)
    failed = Mail.add_job("2", to="unreachable")
    with pytest.raises(OSError, match="no mail server"):
        drain(with_delayed=True)
    assert (failed.tries.hget(), failed.status.hget()) == ("2", STATUSES.ERROR)


def test_drain_ends_even_if_jobs_do_not() -> None:
    Chain.add_job("chain", "links", left=10)
    with pytest.raises(AssertionError, match="5 jobs were run, and there are 1 more"):
        drain(limit=5)
    assert drain(limit=6).success == 6
    with pytest.raises(TypeError, match="The limit is a number of jobs, not 'x'"):
        drain(limit="x")  # type: ignore[arg-type]
    Mail.add_job("1", to="later")
    with pytest.raises(AssertionError, match="20 jobs were run"):
        drain(limit=20, with_delayed=True)


def test_classes_may_be_defined_inside_a_test() -> None:
    class Local(Job):
        namespace = "shop_of_testing"

        def run(self, queue):
            return "done"

    assert run_job(Local).result == "done"
    Local.add_job("1", "links")
    assert drain().success == 1


def test_jobs_of_classes_that_no_worker_can_find_do_not_keep_it_from_ending(redis_client: redis.Redis) -> None:
    job = Mail.add_job("1", to="ann")
    queue = Queue.get_queue("mails")
    queue.waiting.lrem(1, job.ident)
    queue.waiting.rpush("shop.Missing:1")
    assert drain().total == 0
    with pytest.raises(AttributeError, match=r"'shop.Missing' is not there"):
        drain(with_delayed=True)
    job_classes.allow("other.module")
    try:
        with pytest.raises(AssertionError, match="was not run: what the worker logged says why"):
            run_job(Mail, to="ann")
    finally:
        job_classes.allow(None)


def test_the_worker_is_that_of_the_application() -> None:
    class OwnWorker(Worker):
        def execute(self, job, queue):
            return "not sent"

    assert run_job(Mail, to="bob", worker_class=OwnWorker).result == "not sent"
    Mail.add_job("1", to="bob")
    assert drain(worker_class=OwnWorker).success == 1
    assert run_job(Mail, to="bob", raise_errors=False, options={"retry_policy": "times=3"}).status == "ERROR"


def test_run_job_runs_one_job_and_tells_its_outcome() -> None:
    other = Mail.add_job("other", to="eve", priority=5)
    outcome = run_job(Mail, to="ann")
    assert (outcome.status, outcome.result, outcome.exception) == ("SUCCESS", "sent to ann", None)
    assert outcome.job.arguments.to == "ann"
    assert outcome.job.tries.hget() == "1"
    assert other.status.hget() == STATUSES.WAITING
    assert run_job(Mail, to="cancel").status == "CANCELED"
    assert run_job(Mail, to="later").status == "DELAYED"
    assert run_job(Chain, left=0).job.queued.hget() is None


def test_run_job_raises_what_the_job_raised_unless_told_not_to() -> None:
    with pytest.raises(OSError, match="no mail server"):
        run_job(Mail, to="unreachable")
    outcome = run_job(Mail, to="unreachable", raise_errors=False)
    assert outcome.status == "DELAYED"
    assert isinstance(outcome.exception, OSError)


def test_run_job_runs_no_other_job_of_its_identifier() -> None:
    Mail.add_job("1", to="bob")
    with pytest.raises(AssertionError, match="'1' is queued already"):
        run_job(Mail, "1", to="ann")


def test_run_job_runs_a_delayed_job_at_once() -> None:
    class Slow(Mail):
        @classmethod
        def add_job(cls, identifier, *args, **kwargs):
            return super().add_job(identifier, *args, **{"delayed_for": 60, **kwargs})

    for job_class, fields in ((Mail, {"delayed_for": 60}), (Mail, {"delayed_until": datetime(2099, 1, 1)}), (Slow, {})):
        outcome = run_job(job_class, to="ann", **fields)
        assert (outcome.status, outcome.result) == ("SUCCESS", "sent to ann")


@pytest.mark.parametrize("run", [drain, lambda **options: run_job(Mail, to="ann", options=options)])
def test_a_parameter_that_there_is_not_is_refused(run: Any) -> None:
    with pytest.raises(TypeError, match="There is no parameter 'prefech': is prefetch meant"):
        run(prefech=1)
    assert not Mail.collection()


def test_a_worker_with_an_init_of_its_own_may_take_any_parameter() -> None:
    class OwnWorker(Worker):
        def __init__(self, *args, greeting, **kwargs):
            super().__init__(*args, **kwargs)

    assert drain(worker_class=OwnWorker, greeting="hello").total == 0
