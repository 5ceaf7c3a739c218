"""append_output: what the code of a job emits is added to its output, by the run that holds the job only."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest
import redis

from limpyd_jobs import ClaimLost, Job, JobGone, LimpydJobsException, Queue
from limpyd_jobs.models.following import emitting

pytestmark = pytest.mark.usefixtures("redis_client")


class Answer(Job):
    namespace = "append-output"
    queue_name = "answers"


class Short(Answer):
    keep_output = timedelta(seconds=20)


def values(chunks: Any) -> list[Any]:
    return [chunk.value for chunk in chunks]


def test_a_run_that_lost_its_claim_emits_nothing_and_is_told_so() -> None:
    Answer.add_job("a")
    lost, claimed = Answer.get("1"), Answer.get("1")
    lost.claim("ann")
    lost.emit("from the first")
    Queue.get_queue("answers").running.zadd({claimed.ident: 1})  # the lease lapses
    claim = claimed.claim("bob")
    for _ in range(2):
        with pytest.raises(ClaimLost, match="lost its claim"):
            lost.emit("from the lost one")
    claimed.emit("from the second")
    claim.succeed()
    with pytest.raises(LimpydJobsException, match="does not run here"):
        claimed.emit("after the end")
    assert values(claimed.output()) == ["from the first", "from the second"]


def test_a_run_whose_job_was_deleted_is_told_so() -> None:
    claimed = Answer.add_job("a")
    claimed.claim("ann")
    Answer.get(claimed.pk.get()).delete()
    with pytest.raises(JobGone):
        claimed.emit("a")


def test_the_last_chunks_are_kept_by_their_number_and_their_size() -> None:
    claimed = Answer.add_job("many")
    claimed.claim("ann")
    for some in range(0, 2500, 100):
        claimed.emit(*range(some, some + 100))
    assert values(claimed.output(timeout=0)) == list(range(1500, 2500))
    claimed = Answer.add_job("large")
    claimed.claim("ann")
    for number in range(40):
        claimed.emit(f"{number:02}" + 50_000 * "x")
    kept = values(claimed.output(timeout=0))
    assert kept[-1].startswith("39")
    assert 900_000 < len("".join(kept)) <= emitting.MAX_BYTES


def test_it_expires_after_the_end_of_the_job_and_not_before(redis_client: redis.Redis) -> None:
    for kind, seconds in ((Answer, 3600), (Short, 20)):
        claimed = kind.add_job("a")
        claim = claimed.claim("ann")
        claimed.emit("a")
        key = f"{kind._name}:{claimed.pk.get()}:_output"
        assert redis_client.ttl(key) == -1
        claim.fail(ValueError("later"))
        assert seconds - 10 < redis_client.ttl(key) <= seconds
        claimed.requeue()
        assert redis_client.ttl(key) == -1
        claimed.claim("ann").succeed()
        assert seconds - 10 < redis_client.ttl(key) <= seconds


def test_what_cannot_be_kept_is_refused_and_nothing_is_emitted() -> None:
    claimed = Answer.add_job("a")
    claimed.claim("ann")
    for value, error in (
        (object(), TypeError),
        (float("nan"), TypeError),
        ([-float("inf")], TypeError),
        ("\ud800", TypeError),
        (70_000 * "x", ValueError),
    ):
        with pytest.raises(error):
            claimed.emit("good", value)
    assert values(claimed.output(timeout=0)) == []
    for after in ("x", "1-", 7):
        with pytest.raises((TypeError, ValueError), match="after the id of a chunk"):
            claimed.output(after=after)  # type: ignore[arg-type]


def test_a_key_of_another_program_is_named(redis_client: redis.Redis) -> None:
    claimed = Answer.add_job("a")
    claimed.claim("ann")
    redis_client.set(f"append-output:answer:{claimed.pk.get()}:_output", "text")
    for step in (lambda: claimed.emit("a"), lambda: list(claimed.output(timeout=0))):
        with pytest.raises(LimpydJobsException, match="is not a stream: another program wrote it"):
            step()


def test_an_emission_is_one_round_trip_and_a_job_that_emits_nothing_has_none(commands: Any) -> None:
    claimed = Answer.add_job("a")
    claimed.claim("ann")
    claimed.emit("first")
    with commands() as sent:
        claimed.emit("one")
    assert sent.names == ["EVALSHA"]
    with commands() as sent:
        claimed.emit(*range(100))
    assert sent.names == ["EVALSHA"]


def test_what_redis_did_not_take_goes_with_the_next_call(redis_client: redis.Redis) -> None:
    claimed = Answer.add_job("a")
    claimed.claim("ann")
    claimed.emit(0)
    redis_client.config_set("maxmemory", 1)
    try:
        claimed.emit(1)
    finally:
        redis_client.config_set("maxmemory", 0)
    claimed.emit(2)
    assert values(claimed.output(timeout=0)) == [0, 1, 2]


def test_it_goes_with_the_job(redis_client: redis.Redis) -> None:
    claimed = Answer.add_job("a")
    claim = claimed.claim("ann")
    claimed.emit("a")
    claim.succeed()
    assert redis_client.keys("*:_output")
    claimed.delete()
    assert not redis_client.keys("*:_output")


def test_what_another_program_wrote_does_no_harm(redis_client: redis.Redis) -> None:
    claimed = Answer.add_job("a")
    claim = claimed.claim("ann")
    claimed.emit("a")
    pk = claimed.pk.get()
    redis_client.xadd(f"append-output:answer:{pk}:_output", {"value": "not JSON"}, id="7-1")
    redis_client.hset(f"append-output:answer:{pk}:hash", "_emitted", "garbage")
    claimed.emit("b")
    claim.succeed()
    assert values(claimed.output()) == ["a", "not JSON", "b"]
