"""A claim that ends with a success which is not kept."""

from __future__ import annotations

from typing import Any

import pytest
import redis
from limpyd import fields
from limpyd.indexes import NumberRangeIndex

from limpyd_jobs import (
    STATUSES,
    Argument,
    Error,
    Job,
    JobGone,
    Queue,
)
from limpyd_jobs.exceptions import NotRecorded
from limpyd_jobs.models.claims.job_claim import JobClaim

pytestmark = pytest.mark.usefixtures("redis_client", "consistent")


class TestASuccessThatIsNotKept:
    """By a queue class with ``keep_success = 0``."""

    @pytest.fixture
    def job(self, redis_client: redis.Redis) -> Any:
        return Fleeting.add_job("a", size=5, colour="red")

    def test_is_erased_in_the_step_that_records_it(self, job: Any, redis_client: redis.Redis, commands: Any) -> None:
        Fleeting.add_job("first", size=5).claim().succeed()
        job.notes.rpush("x")
        claim = job.claim()
        with commands() as sent:
            claim.succeed()
        assert len(sent.names) == 1
        assert claim.status == STATUSES.SUCCESS
        left = {key for key in redis_client.scan_iter("fleeting:fleeting:*") if not key.endswith("max_pk")}
        assert left == set()
        assert redis_client.keys("fleeting:*:success") == redis_client.keys("fleeting:*:_running") == []
        assert redis_client.keys("fleeting:*:_claim*") == []

    def test_goes_with_the_errors_of_its_earlier_tries(self, job: Any) -> None:
        with pytest.raises(ValueError, match="once"), job.claim():
            raise ValueError("once")
        job.requeue()
        other = Fleeting.add_job("b", size=5)
        Error.add_error("q", other, ValueError("of another one"))
        with job.claim():
            pass
        assert [error.message.hget() for error in Error.collection().instances()] == ["of another one"]

    def test_that_was_canceled_meanwhile_is_canceled(self, job: Any) -> None:
        with job.claim() as claim:
            job.cancel()
        assert claim.status == STATUSES.CANCELED
        assert job.status.hget() == STATUSES.CANCELED

    def test_whose_reply_was_lost_may_be_told_again(self, job: Any, monkeypatch: Any) -> None:
        claim = job.claim()
        succeed = JobClaim.succeed

        def lose_reply(held: JobClaim, **how: Any) -> None:
            succeed(held, **how)
            raise redis.ConnectionError("lost")

        monkeypatch.setattr(JobClaim, "succeed", lose_reply)
        with pytest.raises(NotRecorded):
            claim.succeed()
        monkeypatch.undo()
        claim.succeed()
        assert claim.status == STATUSES.SUCCESS

    def test_that_another_process_deleted_is_told(self, job: Any) -> None:
        claim = job.claim()
        job.delete()
        with pytest.raises(JobGone):
            claim.succeed()

    def test_of_a_class_that_a_script_cannot_delete_is_kept_for_the_pruner(self) -> None:
        job = FleetingButIndexed.add_job("a")
        with job.claim():
            pass
        assert FleetingQueue.get_queue("q").success.lmembers() == [job.ident]
        assert FleetingQueue.get_queue("q").prune() == 1


class FleetingQueue(Queue):
    namespace = "fleeting"
    keep_success = 0


class Fleeting(Job):
    namespace = "fleeting"
    queue_model = FleetingQueue
    queue_name = "q"
    size = Argument(int, indexable=True, indexes=[NumberRangeIndex])
    colour = fields.InstanceHashField(indexable=True)
    notes = fields.ListField()


class FleetingButIndexed(Job):
    namespace = "fleeting"
    queue_model = FleetingQueue
    queue_name = "q"
    colours = fields.SetField(indexable=True)
