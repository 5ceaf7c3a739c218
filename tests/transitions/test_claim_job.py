"""claim job: a given job, wherever it stands, is claimed to be run."""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime
from functools import partial
from threading import Barrier, Thread
from typing import Any

import pytest
from worlds import LATER, LEASE, TOKEN, Moment, World, pk_of

from limpyd_jobs import AlreadyClaimed, Job, JobGone, LimpydJobsException, NotClaimable, transitions
from limpyd_jobs.exceptions import ClaimLost, ConfigurationException
from limpyd_jobs.transitions import ONLY_TAKEN, Delivery

After = Callable[[float], Moment]

ROUNDS = 50
PAST = datetime(2001, 1, 1)


def claim(world: World, job: Job, token: str = TOKEN, queue: str = "q") -> Delivery:
    return transitions.claim_job(job, world.queue_class, queue, token, LEASE)


def lapse(world: World, job: Job) -> None:
    world.client.zadd(f"{world.queue_key()}:_running", {job.ident: 1})


@pytest.mark.parametrize("state", ["waiting", "custom", "delayed and due"])
class TestAJobThatNobodyRuns:
    @pytest.fixture
    def job(self, any_world: World, state: str) -> Job:
        job = any_world.job_that_is("delayed" if state.startswith("delayed") else state)
        if state.startswith("delayed"):
            job.delayed_until.hset(str(PAST))
            any_world.client.zadd(f"{any_world.queue_key()}:delayed", {job.ident: 1})
        any_world.queue()
        return job

    def test_runs_under_a_lease(self, any_world: World, job: Job, after: After) -> None:
        found = claim(any_world, job)
        stored = any_world.state(job)
        stored.pop("delayed_until", None)
        assert stored == {
            "status": "r",
            "priority": "0",
            "queued": "1",
            "start": after(0),
            "tries": "1",
            "_claim_token": TOKEN,
        }
        assert any_world.places(job) == ["q/0 running"]
        assert (found.outcome, found.ident, found.token, found.tries) == ("claimed", job.ident, TOKEN, "1")
        assert (found.queue_key, found.queue_name, found.queue_priority) == (any_world.queue_key(), "q", "0")
        running = any_world.client.zrange(f"{any_world.queue_key()}:_running", 0, -1, withscores=True)
        assert running == [(job.ident, after(LEASE))]
        any_world.succeed(job)

    def test_is_claimed_once(self, any_world: World, job: Job, after: After) -> None:
        claim(any_world, job)
        with any_world.unchanged(), pytest.raises(AlreadyClaimed) as info:
            claim(any_world, job, "other")
        assert (info.value.ident, info.value.status, info.value.owner) == (job.ident, "r", None)
        assert str(info.value.until) == after(LEASE)
        any_world.succeed(job)

    def test_is_not_claimed_by_a_worker(self, any_world: World, job: Job) -> None:
        claim(any_world, job)
        assert any_world.claim(token="worker") is None
        any_world.succeed(job)

    def test_ends_as_any_other(self, any_world: World, job: Job) -> None:
        claim(any_world, job)
        assert any_world.succeed(job).outcome == "done"
        assert any_world.places(job) == ["q/0 success"]
        assert "queued" not in any_world.state(job)

    def test_is_the_queued_one_of_its_identifier(self, any_world: World, job: Job) -> None:
        claim(any_world, job)
        outcome, found = any_world.add("a")
        assert (outcome, pk_of(found)) == ("existing", pk_of(job))
        any_world.succeed(job)

    @pytest.mark.leaves("I7")
    def test_a_repeat_of_the_call_finds_its_own_claim(self, any_world: World, job: Job) -> None:
        """The reply to the first may have been lost on its way."""
        claim(any_world, job)
        lapse(any_world, job)
        again = claim(any_world, job)
        assert (again.outcome, again.token, again.tries) == ("claimed", TOKEN, "1")
        assert any_world.places(job) == ["q/0 running"]
        with pytest.raises(AlreadyClaimed):
            claim(any_world, job, "other")

    @pytest.mark.leaves("I5", "I7")
    def test_of_a_paused_queue_is_claimed_all_the_same(self, any_world: World, job: Job) -> None:
        any_world.queue_class.pause("q")
        assert claim(any_world, job).outcome == "claimed"
        any_world.queue_class.resume("q")

    def test_is_rescued_if_its_holder_dies(self, any_world: World, job: Job) -> None:
        claim(any_world, job)
        lapse(any_world, job)
        request = any_world.request("no list", token="rescuer")
        (rescued,) = transitions.rescue(any_world.queue_class, [any_world.queue_key()], 3, request).rescued
        assert (rescued.ident, rescued.rescues) == (job.ident, 1)
        assert any_world.places(job) == ["q/0 waiting"]
        with pytest.raises(ClaimLost):
            any_world.succeed(job)


class TestTheQueue:
    @pytest.mark.leaves("I7")
    def test_is_the_one_it_stands_in(self, any_world: World) -> None:
        job = any_world.job_that_is("waiting")
        transitions.move(job, any_world.queue_class, "p", "7")
        assert claim(any_world, job, queue="").queue_name == "p"
        assert any_world.places(job) == ["p/7 running"]

    @pytest.mark.leaves("I7")
    @pytest.mark.parametrize("queue", ["q", "p", "", "no such"])
    def test_of_a_job_of_version_2_is_found(self, any_world: World, queue: str) -> None:
        job = any_world.job_that_is("waiting")
        job.queue_key.delete()
        assert claim(any_world, job, queue=queue).queue_name == "q"
        assert any_world.places(job) == ["q/0 running"]

    @pytest.mark.leaves("I7")
    def test_of_one_that_stands_in_none_is_made(self, any_world: World) -> None:
        job = any_world.job_class(identifier="a", priority=4)
        assert claim(any_world, job, queue="new").queue_priority == "4"
        assert any_world.places(job) == ["new/4 running"]

    def test_has_to_be_named_for_one_that_stands_in_none(self, any_world: World) -> None:
        job = any_world.job_that_is("custom")
        with any_world.unchanged(), pytest.raises(LimpydJobsException, match="name not defined"):
            claim(any_world, job, queue="")

    def test_has_to_be_of_the_given_model(self, any_world: World) -> None:
        job = any_world.job_that_is("waiting")
        other = type("Other", (any_world.queue_class,), {"namespace": f"other-{any_world.queues}"})
        with any_world.unchanged(), pytest.raises(ConfigurationException, match=f"{any_world.queue_key()}: give"):
            transitions.claim_job(job, other, "", TOKEN, LEASE)

    @pytest.mark.leaves("I6")
    @pytest.mark.parametrize("state", ["waiting", "delayed"])
    @pytest.mark.parametrize("index", ["status:w", "status:r", "queued:1"])
    def test_keeps_the_place_of_a_job_whose_index_is_broken(self, world: World, state: str, index: str) -> None:
        job = world.job_that_is(state)
        world.queue()
        if state == "delayed":
            job.delayed_until.hset(str(PAST))
        key = f"{world.jobs}:{index}"
        members = world.client.smembers(key)
        world.client.delete(key)
        world.client.set(key, "text")
        with world.unchanged(), pytest.raises(Exception, match="WRONGTYPE"):
            claim(world, job)
        world.client.delete(key)
        if members:
            world.client.sadd(key, *members)

    def test_that_is_broken_keeps_the_job(self, any_world: World) -> None:
        job = any_world.job_that_is("waiting")
        key = f"{any_world.queue_key()}:_running"
        any_world.client.set(key, "text")
        with any_world.unchanged(), pytest.raises(Exception, match="WRONGTYPE"):
            claim(any_world, job)
        any_world.client.delete(key)


@pytest.mark.parametrize("state", ["success", "error", "canceled", "delayed"])
def test_a_job_that_is_not_to_be_run_is_refused(any_world: World, state: str) -> None:
    job = any_world.job_that_is(state)
    with any_world.unchanged(), pytest.raises(NotClaimable, match=f"status is {state.upper()}") as info:
        claim(any_world, job)
    assert not isinstance(info.value, AlreadyClaimed)
    assert info.value.status == job.status.hget()
    assert (str(LATER) in str(info.value)) == (state == "delayed")


def test_a_deleted_job_is_not_made_again(any_world: World) -> None:
    job = any_world.job_that_is("deleted")
    with any_world.unchanged(), pytest.raises(JobGone, match=job.ident):
        claim(any_world, job)


def test_a_second_job_of_an_identifier_is_refused(any_world: World) -> None:
    job, second = any_world.job_that_is("waiting"), any_world.job_that_is("custom")
    with any_world.unchanged(), pytest.raises(LimpydJobsException, match=f"job {pk_of(job)}, of the same"):
        claim(any_world, second)


@pytest.mark.leaves("I3", "I6", "I7", "I8")
@pytest.mark.parametrize("state", ["running set to canceled", "running set to delayed"])
def test_a_repeat_of_the_call_finds_what_a_process_asked_for_meanwhile(any_world: World, state: str) -> None:
    job = any_world.job_that_is(state)
    with any_world.unchanged(), pytest.raises(NotClaimable, match=f"status is {state.split()[-1].upper()}") as info:
        claim(any_world, job)
    assert not isinstance(info.value, AlreadyClaimed)


@pytest.mark.parametrize("state", ["running", "running set to canceled", "running set to delayed", "held"])
@pytest.mark.leaves("I3", "I6", "I7", "I8")
def test_what_a_worker_holds_is_refused(any_world: World, state: str) -> None:
    job = any_world.job_that_is(state)
    with any_world.unchanged(), pytest.raises(AlreadyClaimed):
        claim(any_world, job, "other")


@pytest.mark.leaves("I5", "I7")
def test_what_is_in_the_hand_of_a_worker_is_refused(any_world: World) -> None:
    job = any_world.job_that_is("waiting")
    any_world.claim(token=ONLY_TAKEN + transitions.claim_token("worker"))
    with any_world.unchanged(), pytest.raises(AlreadyClaimed) as info:
        claim(any_world, job)
    assert info.value.owner == "worker"


@pytest.mark.leaves("I3", "I7")
def test_what_version_2_runs_is_refused(any_world: World) -> None:
    job = any_world.job_that_is("waiting")
    any_world.client.lpop(any_world.waiting_key())
    job.status.hset("r")
    with any_world.unchanged(), pytest.raises(AlreadyClaimed) as info:
        claim(any_world, job)
    assert (info.value.owner, info.value.until) == (None, None)


class TestAJobWhoseLeaseLapsed:
    def test_is_taken_over_from_one_that_died(self, any_world: World) -> None:
        job = any_world.job_that_is("running")
        lapse(any_world, job)
        assert claim(any_world, job, "other").tries == "2"
        assert any_world.hash(job)["_rescues"] == "1"
        with any_world.unchanged(), pytest.raises(ClaimLost):
            any_world.succeed(job)
        assert any_world.succeed(job, "other").outcome == "done"

    def test_is_an_error_if_it_killed_too_many(self, any_world: World) -> None:
        job = any_world.job_that_is("running")
        for number in range(2):
            lapse(any_world, job)
            claim(any_world, job, f"other {number}")
        lapse(any_world, job)
        request = any_world.request("no list", token="rescuer")
        exhausted = transitions.rescue(any_world.queue_class, [any_world.queue_key()], 2, request).exhausted
        assert exhausted is not None
        assert exhausted.ident == job.ident
        any_world.fail(job, "rescuer")

    def test_is_taken_over_from_a_hand(self, any_world: World) -> None:
        job = any_world.job_that_is("waiting")
        any_world.claim(token=f"{ONLY_TAKEN}worker")
        lapse(any_world, job)
        assert claim(any_world, job).tries == "1"
        any_world.succeed(job)

    @pytest.mark.parametrize("state", ["running set to canceled", "running set to delayed", "held"])
    @pytest.mark.leaves("I3", "I6", "I7", "I8")
    def test_is_left_to_the_rescuer_if_it_is_not_to_be_run(self, any_world: World, state: str) -> None:
        job = any_world.job_that_is(state)
        lapse(any_world, job)
        with any_world.unchanged(), pytest.raises(NotClaimable) as info:
            claim(any_world, job, "other")
        assert not isinstance(info.value, AlreadyClaimed)


def test_it_forgets_how_often_no_worker_knew_the_class(any_world: World) -> None:
    job = any_world.job_that_is("waiting")
    any_world.client.lpop(any_world.waiting_key())
    transitions.defer_unresolved(any_world.queue_class, any_world.waiting_key(), job.ident)
    claim(any_world, job)
    assert any_world.client.exists(f"{any_world.queue_key()}:_deferrals") == 0
    assert any_world.places(job) == ["q/0 running"]
    any_world.succeed(job)


@pytest.mark.parametrize("owner", ["me", "host.example.com:77", "a/b@c", "50%2F", " ", "né\n\t😀", "hand:"])
def test_a_token_tells_its_owner(owner: str) -> None:
    token = transitions.claim_token(owner)
    assert token != transitions.claim_token(owner)
    assert transitions.owner_of(token) == transitions.owner_of(f"{token}/12") == owner
    assert not Delivery("claimed", "", "", token=token).is_one_of_several
    assert not token.startswith(ONLY_TAKEN)


@pytest.mark.parametrize("token", [None, "", "check:1", "name:7", "x@"])
def test_another_token_tells_none(token: str | None) -> None:
    assert transitions.owner_of(token) is None


def at_once(*actions: Callable[[], Any]) -> list[Any]:
    """Call functions in threads, at the same moment; return what they returned, or raised."""
    barrier, results = Barrier(len(actions)), [None] * len(actions)

    def call(number: int) -> None:
        barrier.wait()
        try:
            results[number] = actions[number]()
        except LimpydJobsException as error:
            results[number] = error

    threads = [Thread(target=call, args=[number]) for number in range(len(actions))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return results


class TestAgainstOthers:
    def test_one_of_all_who_claim_it_at_once_gets_it(self, world: World) -> None:
        for number in range(ROUNDS):
            _, job = world.add(str(number))
            names = [transitions.claim_token(f"claimer {i}") for i in range(4)]
            copies = [world.job(pk_of(job)) for _ in names]
            found = at_once(*map(partial(partial, claim, world), copies, names))
            (winner,) = [each for each in found if isinstance(each, Delivery)]
            losers = [each for each in found if isinstance(each, AlreadyClaimed)]
            assert {each.owner for each in losers} == {transitions.owner_of(winner.token)}
            assert len(losers) == 3
            world.succeed(job, winner.token)

    def test_either_a_worker_or_the_claimer_gets_it(self, world: World) -> None:
        key = world.waiting_key()
        for number in range(ROUNDS):
            _, job = world.add(str(number))
            by_worker, by_claimer = at_once(
                lambda number=number: world.claim(key, token=f"worker {number}"),
                lambda number=number, job=job: claim(world, world.job(pk_of(job)), f"claimer {number}"),
            )
            assert (by_worker is None) == isinstance(by_claimer, Delivery)
            assert world.places(job) == ["q/0 running"]
            world.succeed(job, world.hash(job)["_claim_token"])

    def test_who_cancels_it_meanwhile_is_heard(self, world: World) -> None:
        for number in range(ROUNDS):
            _, job = world.add(str(number))
            canceled, claimed = at_once(
                lambda job=job: transitions.cancel(world.job(pk_of(job)), world.queue_class),
                lambda number=number, job=job: claim(world, world.job(pk_of(job)), f"claimer {number}"),
            )
            assert canceled is True
            if isinstance(claimed, Delivery):
                assert world.succeed(job, claimed.token).outcome == "canceled"
                world.finish_canceled(job, claimed.token)
            else:
                assert claimed.status == "c"
            assert world.places(job) == []
