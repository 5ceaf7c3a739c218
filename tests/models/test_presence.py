"""Who is there is known to others, as long as it gives signs of life."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest
import redis
from cases import each
from servers import RedisServer, wait_until

from limpyd_jobs import Presence
from limpyd_jobs.dates import utcnow
from limpyd_jobs.models import AlivePresence
from limpyd_jobs.records import presences
from limpyd_jobs.redis.database import JobsDatabase
from limpyd_jobs.texts import host_and_pid

pytestmark = pytest.mark.usefixtures("redis_client")

LEASES = "jobs:presence:leases"


class Visitor(Presence):
    namespace = "museum"
    notify_changes = True


def only_one() -> Any:
    """Who is there; after a while if this process was stopped for longer than the lease."""
    found: list[Any] = []
    wait_until(lambda: found.extend(Presence.alive()) or found)
    (one,) = found
    return one


def names(kind: str | None = None, model: type[Presence] = Presence) -> list[str]:
    return [alive.name for alive in model.alive(kind)]


class TestWhoIsRegistered:
    def test_is_there_until_it_is_closed(self) -> None:
        registration = Presence.register("importer", "a")
        assert names() == ["a"]
        registration.close()
        registration.close()
        assert names() == []
        assert list(Presence.collection()) == []

    def test_is_there_until_the_end_of_the_context(self) -> None:
        with Presence.register("importer", "a"):
            assert names() == ["a"]
        assert names() == []

    def test_is_known_with_what_it_tells_of_itself(self) -> None:
        with Presence.register("importer", lease=30, feeds=["news", "blog"], size={"a": 1.5}) as registration:
            (alive,) = Presence.alive()
            assert alive == AlivePresence(
                registration.pk,
                host_and_pid(),
                "importer",
                alive.host,
                os.getpid(),
                alive.since,
                alive.until,
                {"feeds": ["news", "blog"], "size": {"a": 1.5}},
            )
            assert abs(alive.since - utcnow()) < timedelta(seconds=10)
            assert timedelta(seconds=20) < alive.until - utcnow() < timedelta(seconds=40)

    def test_is_listed_by_its_kind_in_the_order_of_coming(self) -> None:
        registrations = [Presence.register(kind, name) for kind, name in (("x", "b"), ("y", "a"), ("x", "a"))]
        assert (names(), names("x"), names("y"), names("z")) == (["b", "a", "a"], ["b", "a"], ["a"], [])
        for registration in registrations:
            registration.close()

    def test_is_a_record_that_can_be_filtered(self) -> None:
        with Presence.register("importer", "a", lease=30):
            assert [record.kind.hget() for record in Presence.collection(name="a").instances()] == ["importer"]

    def test_may_be_on_another_database_and_of_another_model(self, redis_server: RedisServer) -> None:
        there = Visitor.bound_to(JobsDatabase(unix_socket_path=redis_server.socket, db=5), "bound")
        there.database.connection.flushdb()
        changes = there.changes(timeout=0)
        with there.register("visitor", "a"):
            assert (names(model=there), names(model=Visitor), names()) == (["a"], [], [])
        assert [change.what for change in changes] == ["made", "deleted"]

    def test_takes_one_round_trip_to_come_to_be_listed_and_to_go(self, commands: Any) -> None:
        with commands() as sent, Presence.register("importer"):
            Presence.alive()
        assert {*sent.names} <= {"EVALSHA", "EVAL"}  # the latter if the server was not told of the script yet


class TestWhoDies:
    def test_is_gone_for_who_looks_once_its_lease_lapsed(self, redis_client: redis.Redis) -> None:
        with Presence.register("importer", "a", lease=300), Presence.register("importer", "b", lease=300):
            redis_client.zadd(LEASES, {"1": 1})
            assert names() == ["b"]

    def test_leaves_nothing_once_another_process_gives_a_sign_of_life(self, redis_client: redis.Redis) -> None:
        presences.keep(Presence, "", {"name": "dead", "kind": "importer"}, 100)
        redis_client.zadd(LEASES, {"1": 1})
        with Presence.register("importer", "b", lease=300):
            assert list(Presence.collection()) == ["2"]
            assert redis_client.zrange(LEASES, 0, -1) == ["2"]

    def test_is_known_to_be_silent_before(self, redis_client: redis.Redis) -> None:
        with Presence.register("importer", "a", lease=60):
            assert Presence.alive()[0].silent_for == 0
            seconds = redis_client.time()[0]  # type: ignore[index]
            redis_client.zadd(LEASES, {"1": seconds + 35})
            (alive,) = Presence.alive()
            assert 24 <= alive.silent_for <= 30
            assert abs(alive.silent_for + alive.lease_left - 60) < 0.1

    def test_by_kill_9_is_gone_after_its_lease(self) -> None:
        pid = os.fork()
        if pid == 0:
            Presence.register("importer", "child", lease=2)
            signal.pause()
        wait_until(lambda: names() == ["child"])
        os.kill(pid, signal.SIGKILL)
        os.waitpid(pid, 0)
        wait_until(lambda: names() == [])

    def test_is_no_reason_to_forget_who_lives(self) -> None:
        with Presence.register("importer", "a", lease=0.3) as registration:
            first = only_one()
            wait_until(lambda: only_one().until > first.until + timedelta(seconds=0.5))
            assert (only_one().since, only_one().pk) == (first.since, registration.pk)


def test_who_was_taken_for_dead_is_there_again(redis_client: redis.Redis) -> None:
    with Presence.register("importer", "a", lease=0.3):
        first = only_one()
        redis_client.flushall()
        assert (only_one().name, only_one().since) == ("a", first.since)


def test_a_forked_process_does_not_end_the_presence_of_its_parent() -> None:
    with Presence.register("importer", "a") as registration:
        pid = os.fork()
        if pid == 0:
            registration.close()
            os._exit(0)
        assert os.waitpid(pid, 0)[1] == 0
        assert names() == ["a"]


def test_redis_may_be_gone_at_the_end(redis_binary: str) -> None:
    with RedisServer(redis_binary) as server:
        there = Presence.bound_to(JobsDatabase(unix_socket_path=server.socket))
        registration = there.register("importer")
    registration.close()


@pytest.mark.parametrize(
    "damage",
    [
        lambda client: client.set("jobs:presence:1:hash", "x"),
        lambda client: client.hset("jobs:presence:1:hash", "pid", "x"),
    ],
    ids=["no hash", "no pid"],
)
def test_a_broken_record_is_passed_over(redis_client: redis.Redis, damage: Callable[[Any], Any]) -> None:
    with Presence.register("importer", "a", lease=300), Presence.register("importer", "b", lease=300):
        redis_client.delete("jobs:presence:1:hash")
        damage(redis_client)
        assert names() == ["b"]
        redis_client.zadd(LEASES, {"1": 1})
        assert names() == ["b"]


@each(
    ("arguments", "error"),
    [
        ({"kind": ""}, ValueError),
        ({"kind": None}, TypeError),
        ({"name": ""}, ValueError),
        ({"name": 5}, TypeError),
        ({"name": "x" * 1025}, ValueError),
        ({"lease": 0}, ValueError),
        ({"lease": float("nan")}, ValueError),
        ({"lease": True}, ValueError),
        ({"what": {1, 2}}, TypeError),
    ],
)
def test_what_is_none_is_refused_before_anything_is_written(
    redis_client: redis.Redis, arguments: Any, error: type[Exception]
) -> None:
    with pytest.raises(error):
        Presence.register(**{"kind": "importer", **arguments})
    assert redis_client.dbsize() == 0
