"""`jobs_at_once`: jobs run before the call that adds them returns."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

import pytest
from shop import Chain, Mail

from limpyd_jobs import STATUSES, Job, Queue
from limpyd_jobs.testing import added_jobs, drain, jobs_at_once, run_job

pytestmark = pytest.mark.usefixtures("redis_client")


def test_a_job_has_run_when_it_is_added() -> None:
    with jobs_at_once():
        job = Mail.add_job("1", to="ann")
        assert job.status.hget() == STATUSES.SUCCESS
        jobs = Mail.add_jobs(["2", "3"], to="ann")
        assert [each.status.hget() for each in jobs] == [STATUSES.SUCCESS] * 2
    assert Mail.add_job("4", to="ann").status.hget() == STATUSES.WAITING
    assert "add_job" not in vars(Mail)


@pytest.mark.proof
def test_what_a_job_adds_runs_when_that_has_ended_before_the_first_call_returns() -> None:
    with jobs_at_once():
        Chain.add_job("chain", "links", left=120)  # more would not be called within each other
    chain = added_jobs(Chain, status="success")
    assert len(chain) == 121
    assert chain[0].end.hget() < chain[1].start.hget()


def test_the_call_raises_what_the_job_raised() -> None:
    with jobs_at_once():
        with pytest.raises(ValueError, match="bob is not an address"):
            Mail.add_job("1", to="bob")
        with pytest.raises(ValueError, match="bob is not an address"):
            Mail.add_jobs([{"identifier": "2", "to": "bob"}, {"identifier": "3", "to": "ann"}])
    assert len(added_jobs(Mail, status="error")) == 2
    assert len(added_jobs(Mail, status="success")) == 1
    with jobs_at_once(raise_errors=False):
        assert Mail.add_job("1", to="bob").status.hget() == STATUSES.ERROR


def test_the_inner_one_of_two_blocks_counts() -> None:
    with jobs_at_once():
        with jobs_at_once(raise_errors=False):
            assert Mail.add_job("1", to="bob").tries.hget() == "1"
        with pytest.raises(ValueError, match="bob is not an address"):
            Mail.add_job("1", to="bob")


def test_what_is_delayed_or_paused_or_tried_again_is_left_alone() -> None:
    Queue.pause("paused")
    with jobs_at_once(raise_errors=False):
        assert Mail.add_job("1", to="ann", delayed_for=60).status.hget() == STATUSES.DELAYED
        assert Mail.add_job("2", "paused", to="ann").status.hget() == STATUSES.WAITING
        assert Mail.add_job("3", to="unreachable").tries.hget() == "1"
    assert drain(with_delayed=True, raise_errors=False).total == 2


def test_jobs_without_end_are_an_error() -> None:
    with jobs_at_once(limit=5), pytest.raises(AssertionError, match="More than 5 jobs were added by one call"):
        Chain.add_job("chain", "links", left=10)
    assert len(added_jobs(Chain, status="success")) == 5


def test_jobs_that_are_run_otherwise_are_not_run_twice() -> None:
    waiting = Chain.add_job("waiting", "links", left=2)
    with jobs_at_once():
        assert run_job(Mail, to="ann").result == "sent to ann"
        assert drain().success == 3
    assert waiting.tries.hget() == "1"


def test_a_class_may_have_an_add_job_of_its_own() -> None:
    class OwnMail(Mail):
        @classmethod
        def add_job(cls, identifier, *args, **kwargs):
            return super().add_job(f"own:{identifier}", *args, **kwargs)

    with jobs_at_once():
        assert OwnMail.add_job("1", to="ann").status.hget() == STATUSES.SUCCESS
    assert Job.add_job.__func__.__module__ == "limpyd_jobs.models.job"


def test_blocks_may_end_in_any_order_and_leave_nothing_behind() -> None:
    before = vars(Job)["add_job"], vars(Job)["add_jobs"]
    first, second = jobs_at_once(), jobs_at_once(raise_errors=False)
    first.__enter__()
    second.__enter__()
    first.__exit__(None, None, None)
    assert Mail.add_job("1", to="bob").status.hget() == STATUSES.ERROR
    second.__exit__(None, None, None)
    assert (vars(Job)["add_job"], vars(Job)["add_jobs"]) == before
    assert Mail.add_job("2", to="bob").status.hget() == STATUSES.WAITING


@pytest.mark.proof
def test_each_job_has_run_whichever_thread_added_it() -> None:
    def add(number: int) -> list[str]:
        chain = Chain.add_job(f"chain:{number}", "links", left=2)
        return [job.status.hget() for job in (chain, *Mail.add_jobs([f"{number}:a", f"{number}:b"], to="ann"))]

    with jobs_at_once(), ThreadPoolExecutor(4) as threads:
        assert list(threads.map(add, range(8))) == [[STATUSES.SUCCESS] * 3] * 8
    assert len(added_jobs(Chain, status="success")) == 8 * 3


def test_a_parameter_that_there_is_not_is_refused() -> None:
    with (
        pytest.raises(TypeError, match="There is no parameter 'raise_eror': is raise_errors meant"),
        jobs_at_once(raise_eror=False),
    ):
        pass
