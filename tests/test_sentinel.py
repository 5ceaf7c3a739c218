"""A database behind Redis Sentinel: one real sentinel, one primary, one replica."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import pytest
import redis
from servers import RedisServer, SentinelServer, free_port, wait_until

from limpyd_jobs.database import JobsDatabase


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
