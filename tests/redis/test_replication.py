"""Who asks for it knows that replicas have the jobs that were added: one real primary, one real replica."""

from __future__ import annotations

import asyncio
import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest
import redis
from cases import each
from limpyd import fields
from servers import RedisServer, free_port, wait_until

from limpyd_jobs import ConfigurationException, Job, NotReplicated
from limpyd_jobs.redis.database import VARIABLE, JobsDatabase


class Order(Job):
    namespace = "copied"
    queue_name = "orders"


class Listed(Job):
    """With a field that is written before the job."""

    namespace = "copied"
    queue_name = "orders"
    lines = fields.ListField()


class OwnWay(Job):
    namespace = "copied"
    queue_name = "orders"

    def enqueue_or_delay(self, *args: Any, **kwargs: Any) -> None:
        super().enqueue_or_delay(*args, **kwargs)


@pytest.fixture(scope="module")
def pair(redis_binary: str) -> Iterator[tuple[RedisServer, RedisServer]]:
    """A primary, and a replica that follows it."""
    port = free_port()
    with (
        RedisServer(redis_binary, "--repl-diskless-sync-delay", "0", port=port) as primary,
        RedisServer(redis_binary, "--replicaof", "127.0.0.1", str(port)) as replica,
    ):
        wait_until(lambda: replica.client().info("replication")["master_link_status"] == "up")
        yield primary, replica


@contextmanager
def silent(server: RedisServer) -> Iterator[None]:
    """Let a server do nothing inside the block."""
    assert server.process
    server.process.send_signal(signal.SIGSTOP)
    try:
        yield
    finally:
        server.process.send_signal(signal.SIGCONT)


def added(job_class: type[Job], identifier: str) -> list[Job]:
    return [job_class.add_job(identifier)]


def added_with_lines(job_class: type[Job], identifier: str) -> list[Job]:
    return [job_class.add_job(identifier, lines=["a", "b"])]


def added_by_asyncio(job_class: type[Job], identifier: str) -> list[Job]:
    return [asyncio.run(job_class.aadd_job(identifier))]


def added_together_by_asyncio(job_class: type[Job], identifier: str) -> list[Job]:
    return asyncio.run(job_class.aadd_jobs([identifier, f"{identifier}:2"]))


def added_together(job_class: type[Job], identifier: str) -> list[Job]:
    return job_class.add_jobs([identifier, f"{identifier}:2"])


@pytest.mark.parametrize(
    ("job_class", "add"),
    [
        (Order, added),
        (Order, added_together),
        (Order, added_by_asyncio),
        (Order, added_together_by_asyncio),
        (Listed, added_with_lines),
        (OwnWay, added),
        (OwnWay, added_together),
        (OwnWay, added_by_asyncio),
    ],
)
def test_a_job_that_was_not_copied_is_there_and_may_be_added_again(
    pair: tuple[RedisServer, RedisServer], job_class: type[Job], add: Any
) -> None:
    primary, replica = pair
    settings = {"unix_socket_path": primary.socket, "wait_for_replicas": 1}
    database = JobsDatabase(**settings)
    there, identifier = job_class.bound_to(database, f"{job_class.__name__}-{add.__name__}"), "x"
    with silent(replica):
        for _ in range(2):  # to add it again writes nothing, but waits for the copy of what was written
            database.connect(**settings, replica_timeout=0.01)  # over another connection
            with pytest.raises(NotReplicated, match=r"copied to 0 of 1 replicas within 0.01 seconds") as caught:
                add(there, identifier)
    first = there.get(identifier=identifier, queued="1")
    assert caught.value.idents[0] == first.ident
    assert (caught.value.copied, caught.value.wanted) == (0, 1)
    database.connect(**settings, replica_timeout=5)
    jobs = add(there, identifier)
    assert jobs[0] == first
    waiting = there.queue_model.get_queue("orders").waiting
    assert waiting.lmembers() == [job.ident for job in jobs]
    assert replica.client().lrange(waiting.key, 0, -1) == waiting.lmembers()


@pytest.mark.parametrize("add", [added, added_together, added_by_asyncio])
def test_the_first_job_of_a_process_waits_if_the_environment_asks_for_it(
    pair: tuple[RedisServer, RedisServer], add: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    primary, replica = pair
    monkeypatch.setenv(VARIABLE, f"{primary.url}?wait_for_replicas=1&replica_timeout=0.01")
    there = Order.bound_to(JobsDatabase(), f"environment-{add.__name__}")
    with silent(replica), pytest.raises(NotReplicated):
        add(there, "1")


def test_a_wait_on_a_primary_that_becomes_a_replica_is_a_failed_connection_as_other_calls_then(
    pair: tuple[RedisServer, RedisServer],
) -> None:
    primary, replica = pair
    raised: list[Exception] = []

    def add() -> None:
        try:
            there.add_job("1")
        except (redis.RedisError, NotReplicated) as error:
            raised.append(error)

    settings = {"unix_socket_path": primary.socket, "wait_for_replicas": 1, "replica_timeout": 9}
    there = Order.bound_to(JobsDatabase(**settings), "demoted")
    with primary.client() as client, replica.client() as following:
        with silent(replica):
            adding = threading.Thread(target=add)
            adding.start()
            wait_until(lambda: client.info("clients")["blocked_clients"], "it waits for the replica")
            client.replicaof("127.0.0.1", str(free_port()))
            adding.join()
            client.replicaof("NO", "ONE")
        wait_until(lambda: following.info("replication")["master_link_status"] == "up", "the replica follows again")
    assert [type(error) for error in raised] == [redis.ConnectionError]


def test_a_refusal_to_wait_is_no_secret(pair: tuple[RedisServer, RedisServer]) -> None:
    primary, _ = pair
    primary.client().acl_setuser(  # type: ignore[no-untyped-call]
        "app", enabled=True, nopass=True, keys=["*"], channels=["*"], commands=["+@all", "-wait"]
    )
    url = f"unix://app:any@{primary.socket}?wait_for_replicas=1"
    there = Order.bound_to(JobsDatabase(url=url), "refused")
    with pytest.raises(redis.ResponseError, match="wait"):
        there.add_job("1")
    assert len(there.collection(queued="1")) == 1


def test_who_does_not_ask_for_it_does_not_wait(pair: tuple[RedisServer, RedisServer]) -> None:
    primary, replica = pair
    with silent(replica):
        assert Order.bound_to(JobsDatabase(unix_socket_path=primary.socket), "plain").add_job("1")


@each(
    ("settings", "message"),
    [
        ({"wait_for_replicas": -1}, "wait_for_replicas must be a number of replicas, not -1"),
        ({"wait_for_replicas": True}, "wait_for_replicas must be a number of replicas, not True"),
        (
            {"replica_timeout": 0},
            "replica_timeout must be a number of seconds, less than the socket_timeout .10., not 0",
        ),
        (
            {"wait_for_replicas": 1, "replica_timeout": 3, "socket_timeout": 2},
            r"less than the socket_timeout \(2\), not 3",
        ),
        ({"url": "localhost:6379?wait_for_replicas=1"}, "is not the name of a database"),
        ({"url": "redis://localhost?wait_for_replicas=x"}, "wait_for_replicas must be a number"),
        ({"url": "redis://localhost?wait_for_replicas=1&replica_timeout=11"}, "less than the socket_timeout"),
    ],
)
def test_settings_that_cannot_be_met_are_refused(settings: Any, message: str) -> None:
    with pytest.raises(ConfigurationException, match=message):
        JobsDatabase(**settings)


def test_they_may_be_part_of_a_url() -> None:
    database = JobsDatabase(url="redis+sentinel://a,b/jobs?wait_for_replicas=2&replica_timeout=0.5")
    settings = database.connection_settings
    assert (settings["wait_for_replicas"], settings["replica_timeout"]) == (2, 0.5)
    assert database.copies == (2, 0.5)
