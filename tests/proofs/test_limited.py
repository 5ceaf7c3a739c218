"""Workers and Redis are killed at any moment: no limit is exceeded, all jobs end, and nothing of the limits is left."""

from __future__ import annotations

import random
import time
from contextlib import suppress
from functools import partial
from typing import Any

import pytest
import redis
from invariants import violations
from limited import Paced, Turn, Visit, add_some, crew, do_any_verb, slots_over
from redis.cluster import RedisCluster
from redis.crc import key_slot
from servers import Cluster, ClusterOfOne, RedisServer, wait_until

from limpyd_jobs import Queue
from limpyd_jobs.redis.database import JobsDatabase

LEASE = 1.0


@pytest.fixture
def kills(request: pytest.FixtureRequest) -> int:
    return 500 if request.config.getoption("--long") else 30


@pytest.mark.timeout(1800)  # in its long form
@pytest.mark.usefixtures("jobs_database")
def test_no_limit_is_exceeded_and_nothing_is_left(redis_client: redis.Redis, kills: int) -> None:
    seed = random.randrange(2**32)
    random.seed(seed)
    over: list[str] = []
    add_some(300)
    with crew(redis_client, LEASE) as workers:
        while workers.kills < kills:
            workers.kill_one()
            until = time.monotonic() + 0.1
            while time.monotonic() < until:
                do_any_verb()
                over += slots_over(redis_client)
            if redis_client.scard(f"{Turn._name}:queued:1") < 100:
                add_some(100)
        wait_until(lambda: not any(map(queued, (Turn, Visit))), f"the end of all jobs; seed {seed}")
        wait_until(lambda: not keys_left(redis_client), f"the end of lanes; seed {seed}")
    assert over == [], seed
    assert redis_client.lrange("over", 0, -1) == [], seed
    assert int(redis_client.get("begun") or 0) > kills
    for key in redis_client.scan_iter("running:*", count=10_000):
        redis_client.delete(key)
    redis_client.delete("begun")
    assert violations(redis_client, Turn, Visit, Queue) == []


@pytest.mark.timeout(1800)
def test_no_limit_is_exceeded_when_redis_is_killed(
    redis_binary: str, jobs_database: JobsDatabase, request: pytest.FixtureRequest
) -> None:
    times = 20 if request.config.getoption("--long") else 3
    seed = random.randrange(2**32)
    random.seed(seed)
    over: list[str] = []
    with RedisServer(redis_binary, "--appendonly", "yes", "--appendfsync", "always") as server:
        jobs_database.connect(unix_socket_path=server.socket, db=0)
        client = server.client()
        add_some(100)
        with crew(client, 3.0) as workers:
            for _ in range(times):
                begun = int(client.get("begun") or 0)
                wait_until(lambda begun=begun: int(client.get("begun") or 0) > begun + 10, f"jobs begin; seed {seed}")
                for _ in range(20):
                    do_any_verb()
                    over += slots_over(client)
                server.kill()
                server.start()
                workers.kill_one()
                add_some(30)
            wait_until(lambda: not any(map(queued, (Turn, Visit))), f"the end of all jobs; seed {seed}")
            wait_until(lambda: not keys_left(client), f"the end of lanes; seed {seed}")
        assert over == [], seed
        assert client.lrange("over", 0, -1) == [], seed


@pytest.mark.timeout(1800)
def test_no_limit_is_exceeded_in_a_cluster(redis_binary: str, jobs_database: JobsDatabase, kills: int) -> None:
    over: list[str] = []
    with ClusterOfOne(redis_binary) as server:
        jobs_database.connect(url=f"redis+cluster://127.0.0.1:{server.port}/limited")
        client = server.client()
        add_some(150)
        with crew(client, LEASE) as workers:
            while workers.kills < kills / 3:
                workers.kill_one()
                for _ in range(20):
                    do_any_verb()
                    over += slots_over(client)
            wait_until(lambda: not any(map(queued, (Turn, Visit))), "the end of all jobs")
            wait_until(lambda: not keys_left(client), "the end of lanes")
        assert over == client.lrange("{limited}:over", 0, -1) == []
        assert int(client.get("{limited}:begun") or 0) > kills


def test_nothing_is_stuck_when_the_server_of_a_cluster_that_has_the_limits_dies(
    redis_binary: str, jobs_database: JobsDatabase
) -> None:
    """What it has not copied yet is lost, a slot too: so a limit may be exceeded then, for one run."""
    with Cluster(redis_binary, node_timeout=1000) as cluster:
        jobs_database.connect(url=cluster.url("limited"))
        client: Any = RedisCluster.from_url(f"redis://127.0.0.1:{cluster.servers[0].port}", decode_responses=True)
        owner = cluster.owner(key_slot(b"limited"))
        next_owner = partial(cluster.owner, key_slot(b"limited"), but=owner)
        add_some(60)
        paced = Paced.add_jobs({"account": "a", "queue_name": "one"} for _ in range(30))
        with crew(client, LEASE) as workers:
            wait_until(lambda: Paced.collection(status="s"), "jobs begin")
            assert client.lrange("{limited}:over", 0, -1) == []
            owner.kill()
            wait_until(lambda: next_owner() is not owner and answers(client), "a replica has taken over")
            workers.kill_one()
            successor = next_owner().client()  # all keys are there
            names = [f"{job_class._name}:queued:1" for job_class in (Turn, Visit, Paced)]
            wait_until(lambda: not successor.exists(*names), "the end of all jobs")
            wait_until(lambda: not keys_left(successor), "the end of lanes")
        assert successor.scard(f"{Paced._name}:status:s") == len(paced)


def queued(job_class: type) -> int:
    number: int = job_class.get_connection().scard(f"{job_class._name}:queued:1")
    return number


def answers(client: redis.Redis) -> bool:
    with suppress(redis.RedisError):
        return bool(client.incr("{limited}:begun"))
    return False


def keys_left(client: redis.Redis) -> list[str]:
    """What is left of limits, but for slots of jobs that were deleted while they ran, which lapse."""
    parts = ("_lane\n", "_parked", "_later", "_blocked\n", ":slots", ":queues")
    return [key for key in client.scan_iter("*", count=10_000) if any(part in key for part in parts)]
