"""add once: for a token, a job is added once, however often that is tried, and whatever became of the job."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
import redis
from worlds import TOKEN, Order, Till, World

from limpyd_jobs import Job, Queue, check, transitions
from limpyd_jobs.transitions import adding_once

DAY = 86400


class Note(Job):
    namespace = "once"
    queue_name = "q"


class Placing(Job):
    """Has its own way to be put in a queue, which may fail."""

    namespace = "once"
    queue_name = "q"
    fails = False

    def enqueue_or_delay(self, *args: Any, **kwargs: Any) -> None:
        if self.fails:
            raise KeyboardInterrupt
        super().enqueue_or_delay(*args, **kwargs)


class Twofold(Job):
    namespace = "once"
    queue_name = "q"

    @classmethod
    def add_job(cls, *args: Any, **kwargs: Any) -> Any:
        super().add_job("the other one")
        return super().add_job(*args, **kwargs)


def key_of(world: World, token: str) -> str:
    return f"{world.queues}:_once:{token}"


def test_a_job_is_as_one_that_is_added_without_a_token(any_world: World) -> None:
    outcome, job = any_world.add("a", "q", 3, once=key_of(any_world, "x"))
    assert outcome == "added"
    assert any_world.places(job) == ["q/3 waiting"]


def test_the_same_token_finds_the_job_also_when_it_has_ended(any_world: World) -> None:
    key = key_of(any_world, "x")
    job = any_world.add("a", once=key)[1]
    any_world.claim()
    any_world.succeed(job)
    with any_world.unchanged():
        assert any_world.add("a", once=key) == ("existing", job)
        assert any_world.add("another one", prepend=True, once=key) == ("existing", job)
    assert any_world.add("a", once=key_of(any_world, "y"))[0] == "added"


def test_the_same_token_adds_nothing_also_when_the_job_is_deleted(world: World) -> None:
    job = world.add("a", once=key_of(world, "x"))[1]
    job.delete()
    with world.unchanged():
        assert world.add("a", once=key_of(world, "x"))[0] == "existing"


def test_a_token_holds_also_if_a_queued_job_was_found(any_world: World) -> None:
    key, job = key_of(any_world, "x"), any_world.add("a")[1]
    assert any_world.add("a", "q", 2, once=key) == ("moved", job)
    any_world.claim(any_world.waiting_key("q", 2))
    transitions.succeed(job, any_world.queue("q", 2), TOKEN)
    assert any_world.add("a", once=key) == ("existing", job)


def test_a_token_is_forgotten_after_a_month(world: World) -> None:
    world.add("a", once=key_of(world, "x"))
    assert 29 * DAY < world.client.ttl(key_of(world, "x")) <= 30 * DAY


def test_fields_that_only_limpyd_can_write_are_written_once(redis_client: redis.Redis) -> None:
    world = World(redis_client, Order, Till)
    fields = {"customer": "eve", "lines": ["x", "y"]}
    job = world.add(fields=fields, once=key_of(world, "x"))[1]
    with world.unchanged():
        assert world.add(fields=fields, once=key_of(world, "x")) == ("existing", job)
    assert job.lines.lmembers() == ["x", "y"]


def test_a_token_of_a_refused_job_may_be_used_again(redis_client: redis.Redis) -> None:
    from limpyd.exceptions import UniquenessError
    from worlds import Bench, Probe

    world = World(redis_client, Probe, Bench)
    world.add("a", fields={"serial": "s"})
    with pytest.raises(UniquenessError):
        world.add("b", fields={"serial": "s"}, once=key_of(world, "x"))
    assert world.add("b", fields={"serial": "t"}, once=key_of(world, "x"))[0] == "added"


def test_a_key_of_a_wrong_type_lets_no_job_be_added(world: World) -> None:
    world.client.sadd(key_of(world, "x"), "1")
    with world.unchanged(), pytest.raises(redis.ResponseError):
        world.add("a", once=key_of(world, "x"))


class TestABlock:
    def test_that_is_run_again_adds_no_job(self, redis_client: redis.Redis) -> None:
        jobs = []
        for _ in range(3):
            with adding_once("x"):
                jobs.append(Note.add_job())
            jobs[-1].cancel()
        assert {job.ident for job in jobs} == {jobs[0].ident}
        assert Note.add_job().ident != jobs[0].ident

    def test_adds_each_of_its_jobs_once(self, redis_client: redis.Redis) -> None:
        for _ in range(2):
            with adding_once("x"):
                Twofold.add_job("one")
                Twofold.add_jobs(["another", "one more"])
            for job in Twofold.collection().instances():
                job.cancel()
        found = [job.identifier.hget() for job in Twofold.collection().instances()]
        assert sorted(found) == ["another", "one", "one more", "the other one"]

    def test_that_was_left_by_a_process_before_the_job_stood_anywhere_puts_it_there(
        self, redis_client: redis.Redis, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        with adding_once("x"):
            job = Placing.add_job("a")
        redis_client.lrem("jobs:queue:1:waiting", 0, job.ident)
        redis_client.hdel(f"once:placing:{job.pk.get()}:hash", "status", "_queue_key")
        redis_client.srem("once:placing:status:w", job.pk.get())
        for _ in range(2):
            with adding_once("x"):
                assert Placing.add_job("a").ident == job.ident
        assert redis_client.lrange("jobs:queue:1:waiting", 0, -1) == [job.ident]

    def test_that_is_done_lets_its_token_be_forgotten_in_an_hour(self, redis_client: redis.Redis) -> None:
        with adding_once("x") as once:
            Note.add_job("a")
        once.done()
        assert 3590 < redis_client.ttl("jobs:queue:_once:x") <= 3600

    def test_holds_under_asyncio(self, redis_client: redis.Redis) -> None:
        async def add() -> str:
            with adding_once("x"):
                job = await Note.aadd_job()
            await job.acancel()
            return job.ident

        async def twice() -> list[str]:
            return [await add(), await add()]

        one, other = asyncio.run(twice())
        assert one == other

    def test_counts_for_no_other_thread(self, redis_client: redis.Redis) -> None:
        from threading import Thread

        with adding_once("x"):
            thread = Thread(target=Note.add_job)
            thread.start()
            thread.join()
            Note.add_job()
        assert len(Note.collection()) == 2


def test_the_check_knows_the_keys_of_tokens(redis_client: redis.Redis) -> None:
    with adding_once("x"):
        Note.add_job("a")
    redis_client.persist("jobs:queue:_once:x")
    assert check.check(queue_models=[Queue]).findings == []


@pytest.mark.parametrize("value", [b"", b"x", b"9" * 30, b"1:hash", b"\xff"])
def test_anything_in_the_place_of_a_pk_counts_as_a_job_that_is_gone(redis_client: redis.Redis, value: bytes) -> None:
    redis_client.set("jobs:queue:_once:x", value)
    with adding_once("x"):
        Note.add_job("a")
    assert not Note.collection()
