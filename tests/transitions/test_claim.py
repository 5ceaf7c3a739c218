"""claim: a worker takes the first job of the first list that has one, and holds it for the length of a lease."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from threading import Thread
from typing import Any

import pytest
import redis
from cases import each
from worlds import EVERYTHING, IDENTIFIERS, LATER, LEASE, STATES, TOKEN, Moment, Order, Probe, Till, World, pk_of

from limpyd_jobs import Job, transitions
from limpyd_jobs.idents import Ident
from limpyd_jobs.transitions import Delivery, Room

After = Callable[[float], Moment]


def test_the_whole_effect_on_the_first_job(world: World, after: After) -> None:
    job = world.job_that_is("waiting", "job:1")
    assert world.claim() == Delivery(
        "claimed",
        "jobs:queue:1:waiting",
        "limpyd_jobs.models.Job:1",
        "w",
        "job:1",
        "q",
        "0",
        start=after(0),
        tries="1",
        retry=["", "", after(0)],
        token=TOKEN,
    )
    assert world.contents() == {
        "jobs:job:max_pk": "1",
        "jobs:job:collection": {"1"},
        "jobs:job:1:hash": {
            "identifier": "job:1",
            "status": "r",
            "priority": "0",
            "added": after(0),
            "_queue_key": "jobs:queue:1",
            "start": after(0),
            "tries": "1",
            "queued": "1",
            "_claim_token": TOKEN,
        },
        "jobs:job:identifier:job:1": {"1"},
        "jobs:job:status:r": {"1"},
        "jobs:job:priority:0": {"1"},
        "jobs:job:queued:1": {"1"},
        "jobs:queue:max_pk": "1",
        "jobs:queue:collection": {"1"},
        "jobs:queue:1:hash": {"name": "q", "priority": "0"},
        "jobs:queue:name:q": {"1"},
        "jobs:queue:priority:0": {"1"},
        "jobs:queue:1:_running": {job.ident: after(LEASE)},
    }


@pytest.mark.leaves("I7")
def test_a_lease_that_version_2_left_in_another_queue_is_not_taken_for_the_claim(any_world: World) -> None:
    job = any_world.add("a")[1]
    other = any_world.queue_key("other")
    any_world.client.zadd(f"{other}:_running", {job.ident: 1e12})
    keys = [f"{other}:waiting", any_world.waiting_key()]
    first = any_world.claim(*keys)
    again, _ = transitions.claim(any_world.queue_class, replace(any_world.request(*keys), is_again=True))
    assert again == first
    any_world.client.delete(f"{other}:_running")


def test_the_last_pk_of_a_queue_is_told_also_if_the_reply_was_lost(any_world: World) -> None:
    any_world.job_that_is("waiting")
    any_world.queue("another")
    last = any_world.client.get(f"{any_world.queues}:max_pk")
    assert last
    fetched = any_world.claim()
    again, _ = transitions.claim(any_world.queue_class, replace(any_world.request(), is_again=True))
    assert again == fetched
    assert [each and each.queues for each in (fetched, again)] == [last, last]


class TestTheOrder:
    def test_is_that_of_the_lists_then_that_in_them(self, any_world: World) -> None:
        for identifier, priority in [("a", 0), ("b", 0), ("c", 5)]:
            any_world.add(identifier, "q", priority)
        keys = [any_world.waiting_key("q", priority) for priority in (5, 3, 0)]
        claimed = [any_world.claim(*keys, token=token) for token in "123"]
        assert [fetched and fetched.identifier for fetched in claimed] == ["c", "a", "b"]
        assert [fetched and fetched.queue_priority for fetched in claimed] == ["5", "0", "0"]
        assert any_world.claim(*keys, token="4") is None

    def test_of_keys_is_the_callers_even_if_another_has_a_higher_priority(self, any_world: World) -> None:
        any_world.add("a", "q", 5)
        any_world.add("b", "q", 0)
        fetched = any_world.claim(any_world.waiting_key("q", 0), any_world.waiting_key("q", 5))
        assert fetched is not None
        assert fetched.identifier == "b"


def test_nothing_is_claimed_from_empty_lists(any_world: World) -> None:
    keys = [any_world.waiting_key("q"), any_world.waiting_key("p"), "no:such:waiting"]
    with any_world.unchanged():
        assert any_world.claim(*keys) is None


def test_each_job_is_claimed_once_though_many_workers_claim(any_world: World) -> None:
    jobs = [any_world.add(str(number))[1].ident for number in range(40)]
    request = any_world.request()
    claimed: list[str] = []

    def claim_all(worker: int) -> None:
        number = 0
        while fetched := any_world.claim(*request.keys, token=f"{worker}:{number}"):
            claimed.append(fetched.ident)
            number += 1

    threads = [Thread(target=claim_all, args=(worker,)) for worker in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(claimed) == sorted(jobs)


@pytest.mark.parametrize("tries", ["0", "1", "41", "", "many", "1.0"])
def test_the_tries_are_counted_whatever_was_stored(any_world: World, tries: str) -> None:
    job = any_world.job_that_is("waiting")
    job.tries.hset(tries)
    assert any_world.claim() is not None
    expected = {"0": "1", "1": "2", "41": "42", "1.0": "2"}.get(tries, "1")
    assert job.tries.hget() == expected


@pytest.mark.parametrize("tries", ["inf", "nan", "1e400", "0x10", "9223372036854775807", "-5"])
def test_tries_that_are_no_sensible_number_do_not_stop_a_worker(world: World, tries: str) -> None:
    job = world.job_that_is("waiting")
    job.tries.hset(tries)
    fetched = world.claim()
    assert fetched is not None
    assert fetched.outcome == "claimed"
    assert int(job.tries.hget()) == int(fetched.tries)


def test_what_a_former_run_left_is_replaced(any_world: World, after: After) -> None:
    job = any_world.job_that_is("error")
    any_world.client.hset(f"{any_world.jobs}:{pk_of(job)}:hash", "_rescues", 1)
    job.requeue(queue_name="q", queue_model=any_world.queue_class)
    any_world.client.hset(f"{any_world.jobs}:{pk_of(job)}:hash", "_rescues", 1)
    assert any_world.claim(token="second") is not None
    assert any_world.state(job) == {
        "status": "r",
        "priority": "0",
        "queued": "1",
        "start": after(0),
        "tries": "2",
        "_claim_token": "second",
        "_rescues": "1",
    }


@each("identifier", IDENTIFIERS.values())
def test_any_identifier_and_queue_name_is_told_to_the_worker(any_world: World, identifier: str) -> None:
    name = identifier.strip()
    any_world.add(identifier, name)
    fetched = any_world.claim(any_world.waiting_key(name))
    assert fetched is not None
    assert (fetched.identifier, fetched.queue_name) == (identifier, name)


def test_a_claimed_job_is_found_by_its_indexes_through_limpyd(redis_client: redis.Redis) -> None:
    for world in (World(redis_client, Order, Till), World(redis_client, Probe, Till)):
        job = world.job_that_is("running")
        start = job.start.hget()
        for filters in ({"status": "r"}, {"tries": "1"}, {"start": start if world.job_class is Order else start[:19]}):
            assert list(world.job_class.collection(**filters)) == [pk_of(job)]


class TestAJobThatDoesNotWait:
    @pytest.mark.parametrize(
        "state",
        [state for state in STATES if state not in ("waiting", "deleted")],
    )
    @pytest.mark.leaves("I3", "I6", "I7", "I8")
    def test_leaves_the_list_and_is_told_of_unchanged(self, any_world: World, state: str) -> None:
        job = any_world.job_that_is(state)
        before, places = any_world.hash(job), any_world.places(job)
        any_world.queue().enqueue_job(job)
        fetched = any_world.claim(token="next")
        key, status = any_world.waiting_key(), before.get("status", "")
        assert fetched == Delivery("found", key, job.ident, status, "a", "q", "0")
        assert any_world.hash(job) == before
        assert any_world.places(job) == places

    @pytest.mark.parametrize("status", ["z", "waiting", "W", "é", "*"])
    @pytest.mark.leaves("I3")
    def test_may_have_a_status_that_is_none_of_the_six(self, any_world: World, status: str) -> None:
        job = any_world.job_that_is("waiting")
        job.status.hset(status)
        fetched = any_world.claim()
        assert fetched is not None
        assert (fetched.outcome, fetched.status) == ("found", status)
        assert any_world.places(job) == []

    def test_stands_twice_in_a_list_and_is_claimed_once(self, any_world: World) -> None:
        job = any_world.job_that_is("waiting")
        any_world.queue().enqueue_job(job)
        outcomes = [any_world.claim(token=token) for token in "12"]
        assert [fetched and fetched.outcome for fetched in outcomes] == ["claimed", "found"]
        assert any_world.state(job)["_claim_token"] == "1"
        assert any_world.places(job) == ["q/0 running"]


class TestHalfStates:
    def test_a_waiting_job_that_is_not_marked_as_queued_is_run_and_counts_as_queued(self, any_world: World) -> None:
        job = any_world.job_that_is("waiting")
        job.queued.delete()
        fetched = any_world.claim()
        assert fetched is not None
        assert fetched.outcome == "claimed"
        assert any_world.add("a", "q", 9)[0] == "existing"

    @pytest.mark.leaves("I3", "I5")
    def test_of_two_jobs_of_an_identifier_that_wait_one_is_run(self, any_world: World) -> None:
        """Version 2 may lose the mark of a job that it queues."""
        first = any_world.job_that_is("waiting", "a")
        first.queued.delete()
        second = any_world.add("a")[1]
        claimed = [any_world.claim(token=token) for token in "12"]
        running = [fetched.ident for fetched in claimed if fetched and fetched.outcome == "claimed"]
        assert running in ([first.ident], [second.ident])

    def test_a_job_without_an_identifier_or_a_priority_is_run(self, any_world: World) -> None:
        job = any_world.job_class(status="w", queued="1")
        any_world.queue().enqueue_job(job)
        fetched = any_world.claim()
        assert fetched is not None
        assert (fetched.outcome, fetched.identifier) == ("claimed", "")

    def test_a_job_that_was_deleted_leaves_the_list(self, any_world: World) -> None:
        job = any_world.job_that_is("deleted")
        other = any_world.job_that_is("waiting", "b")
        any_world.queue().enqueue_job(job, prepend=True)
        gone = any_world.claim()
        assert gone == Delivery("gone", any_world.waiting_key(), f"{any_world.path}:{pk_of(job)}")
        assert any_world.waiting() == [pk_of(other)]

    @pytest.mark.parametrize(
        "ident",
        [
            "garbage",
            "",
            ":",
            "a:1",
            "a.b",
            "a.b:",
            ".b:1",
            "a.b:1:2",
            "\0",
            "😀",
            "limpyd_jobs.models.Job",
            "a b.c :x:1",
        ],
    )
    def test_what_is_no_ident_leaves_the_list(self, any_world: World, ident: str) -> None:
        other = any_world.job_that_is("waiting", "b")
        any_world.client.lpush(any_world.waiting_key(), ident)
        assert any_world.claim() == Delivery("garbage", any_world.waiting_key(), ident)
        assert any_world.waiting() == [pk_of(other)]
        assert any_world.queue().quarantine.lmembers() == [ident]

    def test_an_entry_that_is_longer_than_any_ident_is_not_even_looked_up(self, world: World) -> None:
        ident = f"{world.path}:{'9' * 65536}"
        assert Ident.parse(ident) is None
        world.client.rpush(world.waiting_key(), ident)
        assert world.claim() == Delivery("garbage", world.waiting_key(), ident[:1000])
        assert world.queue().quarantine.lmembers() == [ident]

    def test_bytes_that_are_no_text_are_told_as_they_are_and_set_aside(self, world: World) -> None:
        world.client.lpush(world.waiting_key(), b"\xff\xfe")
        fetched = world.claim()
        assert fetched is not None
        assert (fetched.outcome, fetched.ident.encode(errors="surrogateescape")) == ("garbage", b"\xff\xfe")
        assert world.queue().quarantine.lmembers() == [fetched.ident]

    def test_an_identifier_that_is_no_text_is_told_as_it_is(self, world: World) -> None:
        job = world.job_that_is("waiting")
        world.client.hset("jobs:job:1:hash", "identifier", b"\xff")
        world.client.rename("jobs:job:identifier:a", b"jobs:job:identifier:\xff")
        fetched = world.claim()
        assert fetched is not None
        assert (fetched.outcome, fetched.identifier) == ("claimed", "\udcff")
        assert world.succeed(job).outcome == "done"

    @pytest.mark.proof
    def test_the_last_thousand_that_were_set_aside_are_kept(self, world: World) -> None:
        world.client.rpush(world.waiting_key(), *(f"garbage {number}" for number in range(1003)))
        while world.claim():
            pass
        kept = world.queue().quarantine.lmembers()
        assert (len(kept), kept[0], kept[-1]) == (1000, "garbage 3", "garbage 1002")

    def test_a_job_of_an_unknown_class_stays_in_the_list_until_the_caller_knows_it(self, any_world: World) -> None:
        job = any_world.job_that_is("waiting")
        with any_world.unchanged():
            fetched = any_world.claim(classes={"another.Class": Job})
        assert fetched == Delivery("unknown", any_world.waiting_key(), job.ident)
        fetched = any_world.claim()
        assert fetched is not None
        assert fetched.outcome == "claimed"

    @pytest.mark.leaves("I5", "I10")
    def test_a_list_without_a_queue_is_left_alone(self, any_world: World) -> None:
        any_world.job_that_is("waiting")
        orphaned = f"{any_world.queues}:99:waiting"
        any_world.client.rename(any_world.waiting_key(), orphaned)
        other = any_world.job_that_is("waiting", "b")
        with any_world.unchanged():
            assert any_world.claim(orphaned) is None
        fetched = any_world.claim(orphaned, any_world.waiting_key())
        assert fetched is not None
        assert fetched.ident == other.ident


class TestWhatMattersIfItFails:
    """The policy of the job, how many of its tries do not count, and since when its age does."""

    def test_is_what_its_hash_says(self, any_world: World, after: After) -> None:
        job = any_world.job_that_is("waiting")
        any_world.client.hset(job.key, mapping={"_retry_policy": "times=1", "_uncounted_tries": "2"})
        fetched = any_world.claim()
        assert fetched is not None
        assert fetched.retry == ["times=1", "2", after(0)]

    def test_begins_when_it_was_put_back_by_hand(self, any_world: World) -> None:
        job = any_world.job_that_is("waiting")
        any_world.client.hset(job.key, "_requeued_at", "2020-01-01 00:00:00")
        fetched = any_world.claim()
        assert fetched is not None
        assert fetched.retry == ["", "", "2020-01-01 00:00:00"]

    def test_is_said_again_if_the_reply_was_lost(self, any_world: World) -> None:
        job = any_world.job_that_is("waiting")
        any_world.client.hset(job.key, mapping={"_retry_policy": "times=1", "_uncounted_tries": "2"})
        first = any_world.claim()
        again, _ = transitions.claim(any_world.queue_class, replace(any_world.request(), is_again=True))
        assert first is not None
        assert again is not None
        assert first.retry == again.retry

    def test_is_nothing_where_nothing_is_known(self, any_world: World) -> None:
        job = any_world.job_that_is("waiting")
        job.added.delete()
        fetched = any_world.claim()
        assert fetched is not None
        assert fetched.retry == ["", "", ""]


class TestAJobTakenByOtherMeans:
    """As by BLPOP, while a worker is idle."""

    def take(self, world: World) -> tuple[str, str]:
        key = world.waiting_key()
        ident = world.client.lpop(key)
        return key, ident

    def test_is_claimed_as_any_other(self, any_world: World, after: After) -> None:
        job = any_world.job_that_is("waiting")
        key, ident = self.take(any_world)
        fetched = any_world.claim(key, ident=ident)
        expected = Delivery("claimed", key, ident, "w", "a", "q", "0", start=after(0), tries="1", token=TOKEN)
        assert fetched == replace(expected, retry=["", "", after(0)])
        assert any_world.places(job) == ["q/0 running"]

    def test_leaves_the_others_where_they_are(self, any_world: World) -> None:
        any_world.job_that_is("waiting", "a")
        other = any_world.job_that_is("waiting", "b")
        key, ident = self.take(any_world)
        any_world.claim(key, ident=ident)
        assert any_world.waiting() == [pk_of(other)]

    def test_may_be_claimed_already(self, any_world: World) -> None:
        any_world.job_that_is("waiting")
        key, ident = self.take(any_world)
        any_world.claim(key, ident=ident)
        with any_world.unchanged():
            assert any_world.claim(key, ident=ident, token="late") == Delivery("found", key, ident, "r", "a", "q", "0")

    def test_may_be_of_a_class_the_caller_does_not_know_yet(self, any_world: World) -> None:
        key = any_world.waiting_key()
        with any_world.unchanged():
            assert any_world.claim(key, ident="un.known:1") == Delivery("unknown", key, "un.known:1")

    def test_may_be_none(self, any_world: World) -> None:
        key = any_world.waiting_key()
        assert any_world.claim(key, ident="garbage") == Delivery("garbage", key, "garbage")
        assert any_world.queue().quarantine.lmembers() == ["garbage"]

    @pytest.mark.leaves("I5", "I10")
    def test_goes_back_if_the_list_is_that_of_no_queue(self, any_world: World) -> None:
        job = any_world.job_that_is("waiting")
        any_world.client.delete(any_world.waiting_key())
        key = f"{any_world.queues}:99:waiting"
        assert any_world.claim(key, ident=job.ident) == Delivery("no queue", key, job.ident)
        assert any_world.client.lrange(key, 0, -1) == [job.ident]

    def test_may_be_deleted(self, any_world: World) -> None:
        job = any_world.job_that_is("deleted")
        key, ident = any_world.waiting_key(), f"{any_world.path}:{pk_of(job)}"
        with any_world.unchanged():
            assert any_world.claim(key, ident=ident) == Delivery("gone", key, ident)


def test_a_job_that_an_index_lacks_is_in_it_again(world: World) -> None:
    job = world.job_that_is("waiting")
    world.client.srem("jobs:job:status:w", job.pk.get())
    assert world.claim() is not None
    assert world.client.smembers("jobs:job:status:r") == {job.pk.get()}


class TestKeysOfAWrongType:
    @pytest.mark.parametrize("value", ["string", "hash", "set", "zset", "stream"])
    @pytest.mark.leaves("I10")
    def test_a_list_that_is_none_does_not_hide_the_next_one(self, world: World, value: str) -> None:
        job = world.job_that_is("waiting")
        wrong = world.waiting_key("p")
        write: dict[str, Callable[[], Any]] = {
            "string": lambda: world.client.set(wrong, "x"),
            "hash": lambda: world.client.hset(wrong, "x", "y"),
            "set": lambda: world.client.sadd(wrong, "x"),
            "zset": lambda: world.client.zadd(wrong, {"x": 1}),
            "stream": lambda: world.client.xadd(wrong, {"x": "y"}),
        }
        write[value]()
        fetched = world.claim(wrong, world.waiting_key("q"))
        assert fetched is not None
        assert (fetched.outcome, fetched.ident) == ("claimed", job.ident)
        world.client.delete(wrong)

    def test_an_index_that_is_none_leaves_the_job_where_it_was(self, world: World) -> None:
        world.job_that_is("waiting")
        world.client.set("jobs:job:status:r", "of a wrong type")
        with world.unchanged(), pytest.raises(redis.ResponseError, match="WRONGTYPE"):
            world.claim()
        world.client.delete("jobs:job:status:r")

    @pytest.mark.leaves("I1", "I2")
    def test_a_job_that_is_broken_is_set_aside_and_nothing_else_is_changed(self, world: World) -> None:
        job = world.job_that_is("waiting")
        other = world.add("b")[1]
        world.client.delete("jobs:job:1:hash")
        world.client.set("jobs:job:1:hash", "of a wrong type")
        before = world.contents()
        fetched = world.claim()
        assert fetched is not None
        assert (fetched.outcome, fetched.key, fetched.ident) == ("broken", world.waiting_key(), job.ident)
        assert "WRONGTYPE" in fetched.status
        before["jobs:queue:1:waiting"] = [other.ident]
        before["jobs:queue:1:_quarantine"] = [job.ident]
        assert world.contents() == before
        fetched = world.claim()
        assert fetched is not None
        assert (fetched.outcome, fetched.ident) == ("claimed", other.ident)

    @pytest.mark.parametrize("key", ["jobs:job:status:w", "jobs:job:status:r", "jobs:queue:1:_running"])
    @pytest.mark.leaves(*EVERYTHING)
    def test_jobs_that_are_not_broken_themselves_stay_in_their_list(self, world: World, key: str) -> None:
        """What is broken concerns them all: setting them aside, one after the other, would empty the queue."""
        for number in range(3):
            world.add(str(number))
        world.client.delete(key)
        world.client.set(key, "of a wrong type")
        for token in "123":
            with suppress(redis.ResponseError):
                world.claim(token=token)
        assert world.waiting() == ["1", "2", "3"]


@pytest.mark.leaves("I2")
def test_a_full_server_loses_no_job(any_world: World) -> None:
    jobs = [any_world.add(str(number))[1] for number in range(3)]
    request = any_world.request()
    any_world.client.config_set("maxmemory", 1)
    try:
        for token in "123":
            with suppress(redis.ResponseError):
                any_world.claim(*request.keys, token=token)
    finally:
        any_world.client.config_set("maxmemory", 0)
    places = [any_world.places(job) for job in jobs]
    assert [place for place in places if place not in (["q/0 waiting"], ["q/0 running"])] == []


def test_a_job_of_another_class_is_claimed_by_the_same_call(redis_client: redis.Redis) -> None:
    worlds = [World(redis_client, job_class, Till) for job_class in (Order, Probe, Job)]
    jobs = [world.add("a", "q")[1] for world in worlds]
    classes = {world.path: world.job_class for world in worlds}
    claimed = [worlds[0].claim(token=token, classes=classes) for token in "123"]
    assert [fetched and fetched.ident for fetched in claimed] == [job.ident for job in jobs]


def test_a_job_whose_class_was_moved_is_held_under_its_present_name(world: World) -> None:
    job = world.job_that_is("waiting")
    world.client.delete(world.waiting_key())
    world.client.rpush(world.waiting_key(), "old.place.Job:1")
    fetched = world.claim(classes={"old.place.Job": Job, world.path: Job})
    assert fetched is not None
    assert (fetched.outcome, fetched.ident) == ("claimed", job.ident)
    assert world.client.zrange(f"{world.queue_key()}:_running", 0, -1) == [job.ident]


def test_the_delayed_date_of_a_job_that_was_woken_is_kept_for_version_2(world: World) -> None:
    job = world.job_that_is("waiting")
    job.delayed_until.hset(str(LATER))
    world.claim()
    assert job.delayed_until.hget() == str(LATER)


def test_a_queue_is_found_by_its_key(any_world: World) -> None:
    any_world.job_that_is("waiting")
    fetched = any_world.claim()
    assert fetched is not None
    assert fetched.queue_key == any_world.queue_key()
    assert (fetched.queue_pk, fetched.path, fetched.pk) == ("1", any_world.path, "1")


class TestPaused:
    def test_its_jobs_are_passed_over(self, any_world: World) -> None:
        any_world.add("a", "p")
        _, job = any_world.add("b", "q")
        any_world.queue_class.pause("p")
        keys = [any_world.waiting_key("p"), any_world.waiting_key("q")]
        fetched = any_world.claim(*keys)
        assert fetched
        assert fetched.ident == job.ident
        with any_world.unchanged():
            assert any_world.claim(*keys, token="another") is None

    def test_what_was_popped_goes_back_to_the_front(self, any_world: World) -> None:
        for identifier in "ab":
            any_world.add(identifier)
        any_world.queue_class.pause("q")
        with any_world.unchanged():
            ident = any_world.client.lpop(any_world.waiting_key())
            fetched = any_world.claim(ident=ident)
            assert fetched
            assert (fetched.outcome, fetched.token) == ("paused", "")

    def test_their_lists_are_not_told_of_as_broken(self, any_world: World) -> None:
        any_world.add()
        any_world.queue_class.pause("q")
        _, next_wakeups = transitions.claim(any_world.queue_class, any_world.request())
        assert next_wakeups.broken == []


@pytest.mark.leaves("I10")
@pytest.mark.parametrize("number", [0, 3, 5, 70])
def test_lists_that_are_none_or_of_no_queue_are_told(world: World, number: int) -> None:
    world.queue()
    empty = [f"jobs:queue:{1000 + i}:waiting" for i in range(number)]
    keys = [*empty, "jobs:queue:7:waiting", world.waiting_key(), "jobs:queue:8:waiting"]
    world.client.set(keys[-1], "no list")
    world.client.rpush(keys[number], "some.Job:1")
    _, next_wakeups = transitions.claim(world.queue_class, world.request(*keys))
    assert next_wakeups.broken == [keys[number], keys[-1]]
    world.client.delete(keys[number], keys[-1])


@pytest.mark.parametrize("number", [1, 3, 4, 5, 6, 36, 37, 67, 68, 69, 70, 131, 132, 133, 200])
def test_the_first_of_many_lists_that_has_a_job_is_found_wherever_it_stands(world: World, number: int) -> None:
    empty = [f"jobs:queue:{1000 + i}:waiting" for i in range(number - 1)]
    job = world.job_that_is("waiting")
    keys = [*empty, world.waiting_key(), *empty]
    fetched = world.claim(*keys)
    assert fetched is not None
    assert (fetched.outcome, fetched.ident) == ("claimed", job.ident)
    assert world.claim(*keys) is None


@pytest.mark.parametrize("number", [1, 4, 5, 68, 69, 200])
def test_of_many_lists_those_that_have_no_job_to_run_are_passed_over(world: World, number: int) -> None:
    world.add("resting", "paused")
    world.queue_class.pause("paused")
    others = [f"jobs:queue:{1000 + i}:waiting" for i in range(number)]
    others[-1] = world.waiting_key("paused")
    job = world.job_that_is("waiting")
    fetched = world.claim(*others, world.waiting_key(), *others)
    assert fetched is not None
    assert (fetched.outcome, fetched.ident) == ("claimed", job.ident)


class TestAWorkerThatRunsSeveralJobs:
    def claim(self, world: World, *room: int) -> Any:
        request = replace(world.request(token="many"), room=Room(*room))
        return transitions.claim(world.queue_class, request)[0]

    def test_gets_the_token_of_one_of_several(self, any_world: World) -> None:
        any_world.add("a")
        assert self.claim(any_world).token == "many/1"

    def suspect(self, world: World, identifier: str, queue: str = "q") -> Any:
        _, job = world.add(identifier, queue)
        world.client.hset(f"{world.jobs}:{pk_of(job)}:hash", "_rescues", 0)
        return job

    @pytest.mark.parametrize(("rescues", "token"), [("once with others", "many/1"), ("0", "many"), ("1", "many")])
    def test_gets_a_suspect_with_a_token_of_its_own(self, any_world: World, rescues: str, token: str) -> None:
        _, job = any_world.add("a")
        any_world.client.hset(f"{any_world.jobs}:{pk_of(job)}:hash", "_rescues", rescues)
        assert self.claim(any_world).token == token

    def test_gets_no_other_one_while_that_runs(self, any_world: World) -> None:
        suspects = [self.suspect(any_world, each) for each in "ab"]
        assert self.claim(any_world, 1, 1) is None
        assert any_world.waiting() == [pk_of(job) for job in suspects]

    def test_gets_what_is_behind_it_then_in_the_order_of_the_lists(self, any_world: World) -> None:
        suspects = [self.suspect(any_world, str(number)) for number in range(60)]
        fresh = [any_world.add(each)[1] for each in "ab"]
        other = self.suspect(any_world, "c", "p")
        last = any_world.add("d", "p")[1]
        any_world.client.lpush(any_world.waiting_key(), "not an ident")
        any_world.client.lmove(any_world.waiting_key(), any_world.waiting_key(), "LEFT", "RIGHT")
        request = replace(
            any_world.request(any_world.waiting_key(), any_world.waiting_key("p"), token="many"), room=Room(1, 1)
        )
        claimed = [transitions.claim(any_world.queue_class, request)[0] for _ in range(3)]
        assert [each and each.ident for each in claimed] == [job.ident for job in (*fresh, last)]
        assert transitions.claim(any_world.queue_class, request)[0] is None
        assert any_world.waiting() == [*(pk_of(job) for job in suspects), "not an ident"]
        assert any_world.waiting("p") == [pk_of(other)]
