"""succeed_many: jobs that ran one after the other are recorded in one step, which may claim several next ones."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from time import monotonic
from typing import Any

import pytest
from limpyd.exceptions import DoesNotExist
from worlds import LEASE, Moment, Ran, World, pk_of

from limpyd_jobs import Job, transitions
from limpyd_jobs.dates import parse_datetime
from limpyd_jobs.exceptions import ClaimLost, NotRecorded
from limpyd_jobs.records import records
from limpyd_jobs.transitions import Delivery, Ending, Room

After = Callable[[float], Moment]


class Other(Job):
    namespace = "others"


def succeed_many(
    world: World, claims: Sequence[Delivery], limit: int = 0, token: str = "next", again: bool = False, **request: Any
) -> tuple[list[Any], list[Delivery]]:
    """The jobs began three seconds ago, and ended one second later, then the next."""
    now = monotonic()
    successes = [
        Ran(world.job(claim.pk), claim, now - 3 + number, now - 2 + number) for number, claim in enumerate(claims)
    ]
    next_claim = replace(world.request(token=token, **request), is_again=again)
    endings, claimed = transitions.succeed_many(world.client, successes, next_claim, limit)
    for success, ending in zip(successes, endings, strict=True):
        if ending[0] == "done":
            transitions.accept_success(success.job, ending)
    return endings, claimed


def claims_on(world: World, *identifiers: str) -> list[Delivery]:
    """The claims on new jobs, each with a token of its own."""
    for identifier in identifiers:
        world.add(identifier)
    found = [world.claim(token=f"claim of {identifier}") for identifier in identifiers]
    assert all(found)
    return [each for each in found if each]


def outcomes(endings: Sequence[Any]) -> list[str]:
    return [ending[0] for ending in endings]


def test_the_whole_effect(world: World, after: After) -> None:
    claims = claims_on(world, "a", "b")
    endings, claimed = succeed_many(world, claims)
    assert (outcomes(endings), claimed) == (["done", "done"], [])
    assert world.contents() == {
        "jobs:job:max_pk": "2",
        "jobs:job:collection": {"1", "2"},
        "jobs:job:1:hash": {
            "identifier": "a",
            "status": "s",
            "priority": "0",
            "added": after(0),
            "_queue_key": "jobs:queue:1",
            "start": after(-3),
            "end": after(-2),
            "tries": "1",
            "_last_claim": "claim of a",
        },
        "jobs:job:2:hash": {
            "identifier": "b",
            "status": "s",
            "priority": "0",
            "added": after(0),
            "_queue_key": "jobs:queue:1",
            "start": after(-2),
            "end": after(-1),
            "tries": "1",
            "_last_claim": "claim of b",
        },
        "jobs:job:identifier:a": {"1"},
        "jobs:job:identifier:b": {"2"},
        "jobs:job:status:s": {"1", "2"},
        "jobs:job:priority:0": {"1", "2"},
        "jobs:queue:max_pk": "1",
        "jobs:queue:collection": {"1"},
        "jobs:queue:1:hash": {"name": "q", "priority": "0"},
        "jobs:queue:name:q": {"1"},
        "jobs:queue:priority:0": {"1"},
        "jobs:queue:1:success": [claim.ident for claim in claims],
    }


def test_each_is_found_by_its_indexes_and_its_end_is_told(any_world: World) -> None:
    claims = claims_on(any_world, *"abc")
    endings, _ = succeed_many(any_world, claims)
    for claim, reply in zip(claims, endings, strict=True):
        job = any_world.job(claim.pk)
        ending = transitions.accept_success(job, reply)
        assert (ending.outcome, ending.end) == ("done", job.end.hget())
        assert any_world.places(job) == ["q/0 success"]
    assert set(any_world.job_class.collection(status="s")) == {claim.pk for claim in claims}


def test_the_stored_dates_say_what_the_success_says(any_world: World) -> None:
    began = monotonic() - 5.123456789
    (claim,) = claims_on(any_world, "a")
    success = Ran(any_world.job(claim.pk), claim, began, began + 1.23456789)
    transitions.accept_success(
        success.job, transitions.succeed_many(any_world.client, [success], any_world.request())[0][0]
    )
    stored = any_world.hash(success.job)
    start, end = parse_datetime(stored["start"]), parse_datetime(stored["end"])
    assert start is not None
    assert end is not None
    assert end - start == transitions.duration_between(success.began, success.ended_at)


class TestEachIsRecordedWhateverBecomesOfTheOthers:
    @pytest.mark.leaves("I3", "I6", "I7", "I8")
    @pytest.mark.parametrize(("status", "outcome"), [("c", "canceled"), ("d", "delayed")])
    def test_one_that_was_given_another_status(self, any_world: World, status: str, outcome: str) -> None:
        claims = claims_on(any_world, *"abc")
        job = any_world.job(claims[1].pk)
        job.status.hset(status)
        before = any_world.hash(job)
        endings, _ = succeed_many(any_world, claims)
        assert outcomes(endings) == ["done", outcome, "done"]
        assert transitions.accept_success(job, endings[1]) == Ending(outcome)
        assert any_world.hash(job) == before
        assert any_world.places(job) == ["q/0 running"]

    def test_one_whose_claim_was_lost(self, any_world: World) -> None:
        claims = claims_on(any_world, *"abc")
        transitions.release(any_world.job_class, claims[1].ident, claims[1].token, any_world.queue_key())
        other = any_world.claim(token="other")
        assert other is not None
        endings, _ = succeed_many(any_world, claims)
        assert outcomes(endings) == ["done", "refused", "done"]
        with pytest.raises(ClaimLost):
            transitions.accept_success(any_world.job(claims[1].pk), endings[1])
        assert any_world.hash(any_world.job(claims[1].pk))["_claim_token"] == "other"

    def test_all_while_redis_accepts_no_writes_which_are_to_be_sent_again_as_they_are(self, any_world: World) -> None:
        claims = claims_on(any_world, *"abc")
        any_world.client.config_set("maxmemory", 1)
        try:
            with any_world.unchanged(), pytest.raises(NotRecorded, match="maxmemory"):
                succeed_many(any_world, claims)
        finally:
            any_world.client.config_set("maxmemory", 0)
        assert outcomes(succeed_many(any_world, claims)[0]) == ["done", "done", "done"]

    def test_one_that_was_deleted(self, any_world: World) -> None:
        claims = claims_on(any_world, *"abc")
        any_world.job_class(claims[1].pk).delete()
        any_world.client.zrem(f"{any_world.queue_key()}:_running", claims[1].ident)
        endings, _ = succeed_many(any_world, claims)
        assert outcomes(endings) == ["done", "gone", "done"]
        with pytest.raises(DoesNotExist):
            transitions.accept_success(any_world.job(claims[1].pk), endings[1])

    @pytest.mark.leaves("I1", "I2", "I7")
    def test_one_whose_hash_is_none(self, any_world: World) -> None:
        claims = claims_on(any_world, *"abc")
        key = f"{any_world.jobs}:{claims[1].pk}:hash"
        any_world.client.delete(key)
        any_world.client.set(key, "none")
        endings, _ = succeed_many(any_world, claims)
        assert outcomes(endings) == ["done", "failed", "done"]
        assert "WRONGTYPE" in endings[1][1]
        assert any_world.client.get(key) == "none"

    @pytest.mark.leaves("I10")
    def test_those_of_a_queue_whose_list_is_none(self, any_world: World) -> None:
        claims = claims_on(any_world, *"ab")
        any_world.add("c", "other")
        claims.append(any_world.claim(any_world.waiting_key("other"), token="c"))  # type: ignore[arg-type]
        key = f"{any_world.queue_key()}:success"
        any_world.client.set(key, "none")
        endings, _ = succeed_many(any_world, claims)
        assert outcomes(endings) == ["failed", "failed", "done"]
        assert [any_world.state(any_world.job(claim.pk))["status"] for claim in claims] == ["r", "r", "s"]
        any_world.client.delete(key)
        assert outcomes(succeed_many(any_world, claims)[0]) == ["done"] * 3

    def test_of_several_classes(self, any_world: World) -> None:
        claims = claims_on(any_world, *"ab")
        transitions.add(Other, "c", any_world.queue_class, "q", "0")
        third = any_world.claim(token="c", classes={Other.get_model_repr(): Other})
        assert third is not None
        job = records.attached(Other, third.pk)
        successes = [Ran(any_world.job(claim.pk), claim, 0, 1) for claim in claims]
        successes.append(Ran(job, third, 0, 1))
        endings, _ = transitions.succeed_many(any_world.client, successes, any_world.request())
        for success, ending in zip(successes, endings, strict=True):
            assert transitions.accept_success(success.job, ending).outcome == "done"
        assert any_world.client.hget(f"{Other._name}:{third.pk}:hash", "status") == "s"


class TestTheNextJobs:
    def test_are_claimed_in_their_order_each_with_a_token_and_a_lease(self, any_world: World, after: After) -> None:
        claims = claims_on(any_world, "a")
        jobs = [any_world.add(identifier)[1] for identifier in "bcdef"]
        _, claimed = succeed_many(any_world, claims, limit=3)
        assert [fetched.ident for fetched in claimed] == [job.ident for job in jobs[:3]]
        assert [fetched.token for fetched in claimed] == ["next/1", "next/2", "next/3"]
        assert {fetched.outcome for fetched in claimed} == {"claimed"}
        for job, fetched in zip(jobs, claimed, strict=False):
            stored = any_world.state(job)
            assert (stored["status"], stored["tries"], stored["_claim_token"]) == ("r", "1", fetched.token)
            assert stored["start"] == fetched.start == after(0)
            assert any_world.client.zscore(f"{any_world.queue_key()}:_running", job.ident) == after(LEASE)
        assert any_world.waiting() == [pk_of(job) for job in jobs[3:]]

    def test_are_those_of_the_first_lists_first(self, any_world: World) -> None:
        for number, identifier in enumerate("abcd"):
            any_world.add(identifier, priority=number % 2)
        keys = [any_world.waiting_key(priority=1), any_world.waiting_key(priority=0)]
        request = replace(any_world.request(token="next"), keys=keys)
        _, claimed = transitions.succeed_many(any_world.client, [], request, 3)
        assert [fetched.identifier for fetched in claimed] == ["b", "d", "a"]

    def test_are_all_there_are(self, any_world: World) -> None:
        any_world.add("a")
        assert [fetched.identifier for fetched in succeed_many(any_world, [], limit=1000)[1]] == ["a"]

    def test_are_those_of_queues_that_are_not_paused(self, any_world: World) -> None:
        any_world.add("a", "paused")
        any_world.add("b")
        any_world.queue_class.pause("paused")
        keys = [any_world.waiting_key("paused"), any_world.waiting_key()]
        request = replace(any_world.request(token="next"), keys=keys)
        _, claimed = transitions.succeed_many(any_world.client, [], request, 3)
        assert [fetched.identifier for fetched in claimed] == ["b"]

    @pytest.mark.leaves("I1", "I2", "I3", "I5", "I8", "I10")
    @pytest.mark.parametrize("what", ["garbage", "gone", "found", "broken", "unknown"])
    def test_end_with_what_is_no_job_to_run(self, any_world: World, what: str) -> None:
        jobs = [any_world.add(identifier)[1] for identifier in "abc"]
        key = f"{any_world.jobs}:{pk_of(jobs[1])}:hash"
        if what in ("garbage", "unknown"):
            ident = {"garbage": "\0", "unknown": "myapp.jobs.Unknown:1"}[what]
            any_world.client.linsert(any_world.waiting_key(), "BEFORE", jobs[1].ident, ident)
        elif what == "found":
            jobs[1].status.hset("s")
        else:
            any_world.client.delete(key)
        if what == "broken":
            any_world.client.set(key, "none")
        _, claimed = succeed_many(any_world, [], limit=10)
        assert [fetched.outcome for fetched in claimed] == ["claimed", what]
        assert any_world.waiting()[-1] == pk_of(jobs[2])
        assert any_world.places(jobs[0]) == ["q/0 running"]

    @pytest.mark.leaves("I2", "I10")
    def test_end_where_a_key_is_broken_that_all_share(self, world: World) -> None:
        jobs = [world.add(identifier)[1] for identifier in "ab"]
        world.client.delete("jobs:job:status:r")
        world.client.set("jobs:job:status:r", "none")
        with world.unchanged():
            assert succeed_many(world, [], limit=10) == ([], [])
        assert world.waiting() == [pk_of(job) for job in jobs]


class TestASuspect:
    """It may be what kills its workers, so no other suspect is to be in the same hand."""

    def rescued(self, world: World, number: int) -> list[Job]:
        jobs = [world.add(f"{each}")[1] for each in range(4)]
        world.client.hset(f"{world.jobs}:{pk_of(jobs[number])}:hash", "_rescues", 0)
        return jobs

    def test_is_claimed_alone_with_a_token_as_any_other(self, any_world: World) -> None:
        jobs = self.rescued(any_world, 0)
        _, claimed = succeed_many(any_world, [], limit=10)
        assert [(fetched.ident, fetched.token) for fetched in claimed] == [(jobs[0].ident, "next")]

    def test_is_left_for_the_next_batch(self, any_world: World) -> None:
        jobs = self.rescued(any_world, 2)
        _, claimed = succeed_many(any_world, [], limit=10)
        assert [fetched.ident for fetched in claimed] == [job.ident for job in jobs[:2]]
        assert any_world.waiting() == [pk_of(job) for job in jobs[2:]]

    @pytest.mark.parametrize(("room", "number"), [(Room(), 2), (Room(1, 1), 0), (Room(1, 1), 2)])
    def test_is_passed_over_by_a_worker_that_runs_several(self, any_world: World, room: Room, number: int) -> None:
        jobs = self.rescued(any_world, number)
        request = replace(any_world.request(token="next"), room=room)
        _, claimed = transitions.succeed_many(any_world.client, [], request, 10)
        assert [each.ident for each in claimed] == [job.ident for job in jobs if job is not jobs[number]]
        assert [each.token for each in claimed] == ["next/1", "next/2", "next/3"]
        assert any_world.waiting() == [pk_of(jobs[number])]


def test_jobs_in_many_lists_are_claimed_in_the_order_of_the_lists(any_world: World) -> None:
    keys = [f"jobs:queue:{1000 + i}:waiting" for i in range(200)]
    for place in (2, 3, 10, 70, 199):
        keys[place] = any_world.waiting_key(f"q{place}")
        for each in ("first", "second"):
            any_world.add(f"{each} of {place}", f"q{place}")
    _, claimed = transitions.succeed_many(any_world.client, [], any_world.request(*keys), 9)
    in_order = [f"{each} of {place}" for place in (2, 3, 10, 70, 199) for each in ("first", "second")]
    assert [fetched.identifier for fetched in claimed] == in_order[:9]


class TestTheSameCallAgain:
    """The first reply was lost."""

    def test_answers_the_same(self, any_world: World) -> None:
        claims = claims_on(any_world, *"ab")
        for number in range(15):
            any_world.add(f"next {number}")
        endings, claimed = succeed_many(any_world, claims, limit=12)
        assert len(claimed) == 12
        with any_world.unchanged():
            endings_again, claimed_again = succeed_many(any_world, claims, limit=12, again=True)
        assert [ending[:2] for ending in endings_again] == [ending[:2] for ending in endings]
        assert [replace(fetched, retry=()) for fetched in claimed_again] == [
            replace(fetched, retry=()) for fetched in claimed
        ]

    def test_finds_one_that_came_alone(self, any_world: World) -> None:
        jobs = TestASuspect().rescued(any_world, 0)
        first = succeed_many(any_world, [], limit=10)[1]
        with any_world.unchanged():
            assert succeed_many(any_world, [], limit=10, again=True)[1] == first
        assert [fetched.ident for fetched in first] == [jobs[0].ident]

    def test_is_the_first_if_the_request_was_lost(self, any_world: World) -> None:
        claims = claims_on(any_world, *"ab")
        any_world.add("c")
        endings, claimed = succeed_many(any_world, claims, limit=10, again=True)
        assert (outcomes(endings), len(claimed)) == (["done", "done"], 1)

    def test_finds_no_claims_but_its_own(self, any_world: World) -> None:
        for identifier in "abc":
            any_world.add(identifier)
        succeed_many(any_world, [], limit=1, token="next:1")
        _, claimed = succeed_many(any_world, [], limit=1, token="next", again=True)
        assert [fetched.token for fetched in claimed] == ["next"]
        assert [fetched.identifier for fetched in claimed] == ["b"]

    def test_in_other_company_is_told_that_it_is_done(self, any_world: World) -> None:
        """The first call was that of the thread."""
        claims = claims_on(any_world, *"abc")
        first, _ = succeed_many(any_world, claims[:2])
        endings, _ = succeed_many(any_world, claims)
        assert outcomes(endings) == ["done"] * 3
        assert [ending[1] for ending in endings[:2]] == [ending[1] for ending in first]
        assert any_world.queue().success.lmembers() == [claim.ident for claim in claims]


def test_a_failure_of_redis_is_one_of_recording(redis_client: Any) -> None:
    world = World(redis_client)
    claims = claims_on(world, "a")
    user = "nobody"
    redis_client.acl_setuser(user, enabled=True, nopass=True, commands=["+ping", "+@connection"])
    try:
        other = redis_client.__class__(
            unix_socket_path=redis_client.connection_pool.connection_kwargs["path"], username=user, password="any"
        )
        success = Ran(world.job(claims[0].pk), claims[0], 0, 1)
        with pytest.raises(NotRecorded):
            transitions.succeed_many(other, [success], world.request())
        other.close()
    finally:
        redis_client.acl_deluser(user)


def test_jobs_with_idents_that_are_hard_to_carry(world: World) -> None:
    """A pk may be any text, even bytes that are none."""
    (claim,) = claims_on(world, "a")
    pk = 'é"\\\n😀'
    key = f"jobs:job:{pk}:hash"
    world.client.rename("jobs:job:1:hash", key)
    success = Ran(records.attached(Job, pk), replace(claim, ident=f"{world.path}:{pk}"), 0, 1)
    endings, _ = transitions.succeed_many(world.client, [success], world.request())
    assert outcomes(endings) == ["done"]
    assert world.client.hget(key, "status") == "s"
    world.client.flushdb()
