"""A database behind Redis Sentinel: one real sentinel, one primary, one replica."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from time import monotonic
from typing import Any

import pytest
import redis
from servers import RedisServer, SentinelServer, free_port, wait_until

from limpyd_jobs import Queue
from limpyd_jobs.check import check
from limpyd_jobs.redis import primary as primary_module
from limpyd_jobs.redis.connections import _FOR_ANYTHING
from limpyd_jobs.redis.database import JobsDatabase
from limpyd_jobs.redis.lines import line_to


@dataclass
class Service:
    sentinel: SentinelServer
    primary: RedisServer
    replica: RedisServer

    @property
    def url(self) -> str:
        return f"redis+sentinel://127.0.0.1:{self.sentinel.port}/jobs/2"

    def is_led_by_replica(self) -> bool:
        """Tell whether the failover is over, for the sentinel and for the server that was the replica."""
        with self.sentinel.client() as sentinel:
            address = sentinel.execute_command("SENTINEL", "GET-MASTER-ADDR-BY-NAME", "jobs")
        with self.replica.client() as replica:
            return int(address[1]) == self.replica.port and replica.role()[0] == "master"


@pytest.fixture
def service(redis_binary: str) -> Iterator[Service]:
    """A primary with its replica, seen by the sentinel and ready for a failover."""
    with RedisServer(redis_binary, "--repl-diskless-sync-delay", "0", port=free_port()) as primary:
        follow = ("--replicaof", "127.0.0.1", str(primary.port))
        with RedisServer(redis_binary, *follow, port=free_port()) as replica:
            wait_until(lambda: is_in_sync(replica), "the replica follows")
            with SentinelServer(redis_binary, primary.port) as sentinel:
                wait_until(lambda: knows_replica(sentinel), "the sentinel knows the replica")
                yield Service(sentinel, primary, replica)


def is_in_sync(replica: RedisServer) -> bool:
    with replica.client() as client:
        return bool(client.info("replication")["master_link_status"] == "up")


def knows_replica(sentinel: SentinelServer) -> bool:
    with sentinel.client() as client:
        return any(
            replica["flags"] == "slave" and replica["master-link-status"] == "ok"
            for replica in client.sentinel_slaves("jobs")
        )


def test_url_leads_to_the_primary(service: Service) -> None:
    database = JobsDatabase(url=service.url)
    database.connection.set("key", "value")
    with service.primary.client(db=2) as client:
        assert client.get("key") == "value"


def test_settings_lead_to_the_primary(service: Service) -> None:
    database = JobsDatabase(sentinels=[("127.0.0.1", service.sentinel.port)], service_name="jobs", db=2)
    database.connection.set("key", "value")
    with service.primary.client(db=2) as client:
        assert client.get("key") == "value"


def test_sentinels_that_are_down_are_passed_over(service: Service) -> None:
    url = f"redis+sentinel://127.0.0.1:{free_port()},127.0.0.1:{service.sentinel.port}/jobs"
    assert JobsDatabase(url=url).connection.ping()


def test_unknown_service_is_a_connection_error(service: Service) -> None:
    database = JobsDatabase(url=service.url.replace("/jobs", "/others"))
    with pytest.raises(redis.ConnectionError, match="others"):
        database.connection.ping()


def test_writes_go_to_the_new_primary_after_the_old_one_crashed(service: Service) -> None:
    database = JobsDatabase(url=service.url)
    database.connection.set("before", "1")
    assert database.connection.wait(1, 10_000) == 1
    service.primary.kill()
    write_at_last(database)
    assert service.is_led_by_replica()
    with service.replica.client(db=2) as client:
        assert client.mget("before", "after") == ["1", "1"]


def test_connection_to_a_demoted_primary_is_dropped_and_the_next_finds_the_new_one(service: Service) -> None:
    database = JobsDatabase(url=service.url)
    database.connection.ping()
    with service.replica.client() as replica, service.primary.client() as primary:
        # what the sentinel does in a failover, but without telling the clients
        replica.replicaof("NO", "ONE")
        primary.replicaof("127.0.0.1", str(service.replica.port))
    with pytest.raises(redis.ConnectionError):
        database.connection.eval("redis.call('SET', KEYS[1], 1)", 1, "after")
    with service.sentinel.client() as sentinel:
        sentinel.sentinel_remove("jobs")
        sentinel.sentinel_monitor("jobs", "127.0.0.1", service.replica.port, 1)
    database.connection.set("after", "1")
    with service.replica.client(db=2) as client:
        assert client.get("after") == "1"


def test_a_connection_ends_soon_after_its_host_is_gone(service: Service) -> None:
    pool: Any = JobsDatabase(url=service.url).connection.connection_pool
    of_sentinels = pool.sentinel_manager.sentinels[0].connection_pool
    for each in (pool, of_sentinels):
        connection = each.get_connection(*_FOR_ANYTHING)
        assert connection._sock.getsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE)
        if hasattr(socket, "TCP_USER_TIMEOUT"):
            assert connection._sock.getsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT) == 4000
        each.release(connection)


def test_tasks_of_asyncio_follow_sentinel(service: Service) -> None:
    database = JobsDatabase(url=service.url)

    async def main() -> None:
        line = line_to(database.connection)
        await line.execute(("SET", "key", "before"))
        await asyncio.to_thread(name_the_replica, service)
        primary_pool: Any = database.connection.connection_pool
        primary_pool._ask_at = line._valid_until = 0.0  # as if a second had passed
        await asyncio.gather(*(line.execute(("SET", f"key:{i}", "after")) for i in range(10)))

    asyncio.run(main())
    with service.primary.client(db=2) as primary, service.replica.client(db=2) as replica:
        assert [primary.get("key"), primary.get("key:9"), replica.get("key:9")] == ["before", None, "after"]


def test_tasks_of_asyncio_find_the_new_primary_after_the_old_one_crashed(service: Service) -> None:
    database = JobsDatabase(url=service.url)

    async def write_at_last() -> None:
        while True:
            with suppress(redis.RedisError):
                if await line_to(database.connection).execute(("SET", "after", "1")) == ["OK"]:
                    return
            await asyncio.sleep(0.01)

    async def main() -> None:
        await line_to(database.connection).execute(("SET", "before", "1"), ("WAIT", "1", "10000"))
        service.primary.kill()
        await write_at_last()

    asyncio.run(main())
    with service.replica.client(db=2) as client:
        assert client.mget("before", "after") == ["1", "1"]


def name_the_replica(service: Service) -> None:
    """Promote the replica, and let the sentinel name it, while the old primary goes on as if nothing had happened.

    In a planned failover it does so for some ten seconds.
    """
    with service.replica.client() as replica, service.sentinel.client() as sentinel:
        replica.replicaof("NO", "ONE")
        pipe = sentinel.pipeline(transaction=False)
        pipe.execute_command("SENTINEL", "REMOVE", "jobs")
        pipe.execute_command("SENTINEL", "MONITOR", "jobs", "127.0.0.1", service.replica.port, 1)
        pipe.execute()


SENDERS = {"client": lambda database: database.connection, "kept connection": lambda database: database.sender}


@pytest.mark.parametrize("sender_of", SENDERS.values(), ids=SENDERS.keys())
def test_connections_leave_a_primary_that_sentinel_does_not_name_any_more(service: Service, sender_of: Any) -> None:
    database = JobsDatabase(url=service.url)
    with service.primary.client(db=2) as primary, service.replica.client(db=2) as replica:
        send = sender_of(database).execute_command
        send("SET", "key", "before")
        name_the_replica(service)

        def is_over() -> bool:
            send("SET", "key", "after")
            return bool(replica.get("key") == "after")

        wait_until(is_over, "writes to the new primary, without an error")
        assert primary.role()[0] == "master"
        primary.set("key", "kept")
        send("SET", "key", "again")
        assert (primary.get("key"), replica.get("key")) == ("kept", "again")


def test_a_connection_that_is_in_use_is_closed_when_it_is_given_back(service: Service) -> None:
    client = JobsDatabase(url=service.url).connection
    pubsub = client.pubsub()
    pubsub.subscribe("any")
    name_the_replica(service)
    wait_until(lambda: client.info("server")["tcp_port"] == service.replica.port)
    pubsub.close()
    with service.primary.client() as primary:
        wait_until(lambda: not [each for each in primary.client_list() if each["db"] == "2"], "no connection")


def is_set(database: JobsDatabase, value: str) -> bool:
    with suppress(redis.ConnectionError):
        return bool(database.connection.set("key", value))
    return False


def test_a_primary_that_has_lost_its_replicas_is_left_as_well(service: Service) -> None:
    """They may follow another one by now."""
    database = JobsDatabase(url=service.url)
    with service.primary.client() as primary, service.replica.client(db=2) as replica:
        primary.config_set("min-replicas-to-write", 1)
        wait_until(lambda: is_set(database, "before"), "a replica in time")
        name_the_replica(service)
        wait_until(lambda: primary.info("replication")["connected_slaves"] == 0)
        with suppress(redis.ConnectionError):  # or Sentinel was asked first
            database.connection.eval("redis.call('SET', KEYS[1], 'after')", 1, "key")
        database.connection.set("key", "after")
        assert replica.get("key") == "after"


def test_one_without_sentinel_says_so_and_is_kept(service: Service) -> None:
    database = JobsDatabase(url=f"unix://{service.primary.socket}")
    with service.primary.client() as primary:
        number = database.connection.client_id()
        primary.config_set("min-replicas-to-write", 2)
        with pytest.raises(redis.ResponseError, match="NOREPLICAS"):
            database.connection.set("key", "value")
        assert database.connection.client_id() == number


def test_connections_are_kept_while_no_sentinel_answers(service: Service, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(primary_module, "ANSWER_VALID_FOR", 0)
    monkeypatch.setattr(primary_module, "SENTINEL_PAUSE", 0)
    database = JobsDatabase(url=service.url)
    number = database.connection.client_id()
    service.sentinel.kill()
    database.connection.set("key", "value")
    assert database.connection.client_id() == number
    service.sentinel.start()
    name_the_replica(service)
    wait_until(lambda: database.connection.info("server")["tcp_port"] == service.replica.port)


@pytest.mark.parametrize("sender_of", SENDERS.values(), ids=SENDERS.keys())
def test_sentinel_is_asked_once_a_second_at_the_most(service: Service, sender_of: Any) -> None:
    send = sender_of(JobsDatabase(url=service.url)).execute_command
    with service.sentinel.client() as sentinel:
        send("SET", "key", "value")
        before, began = asked(sentinel), monotonic()
        for _ in range(1000):
            send("SET", "key", "value")
        assert asked(sentinel) - before <= monotonic() - began + 1


def asked(sentinel: redis.Redis) -> int:
    """How often somebody asked for the primary."""
    statistics = sentinel.info("commandstats")
    found = (
        each["calls"] for name, each in statistics.items() if "get-master-addr" in name or name == "cmdstat_sentinel"
    )
    return sum(found)


def test_password_of_the_sentinels_is_not_the_one_of_the_servers(service: Service) -> None:
    with service.sentinel.client() as sentinel, service.primary.client() as primary:
        sentinel.execute_command("ACL", "SETUSER", "default", ">of-sentinel")
        primary.acl_setuser("app", enabled=True, passwords=["+of-redis"], keys=["*"], commands=["+@all"])
    url = service.url.replace("127.0.0.1", "app:of-redis@127.0.0.1") + "?sentinel_password="
    assert JobsDatabase(url=url + "of-sentinel").connection.ping()
    with pytest.raises(redis.ConnectionError):
        JobsDatabase(url=url + "wrong").connection.ping()


def write_at_last(database: JobsDatabase) -> None:
    """Write as a worker would: again after each lost connection."""

    def writes() -> bool:
        try:
            return bool(database.connection.set("after", "1"))
        except redis.ConnectionError:
            return False

    wait_until(writes, "a write")


def test_check_warns_of_failovers_that_lose_jobs_if_it_is_strict(service: Service) -> None:
    model = Queue.bound_to(JobsDatabase(url=service.url))
    assert check(queue_models=[model], strict=False).warnings == []
    (warning,) = check(queue_models=[model], strict=True).warnings
    assert (
        "'jobs' may lose jobs that were acknowledged: min-replicas-to-write is 0, but Sentinel knows 1 repl" in warning
    )
    with service.primary.client() as primary:
        primary.config_set("min-replicas-to-write", 1)
    assert check(queue_models=[model], strict=True).warnings == []
    service.sentinel.kill()
    (warning,) = check(queue_models=[model], strict=True).warnings
    assert "how many replicas there are cannot be read" in warning
