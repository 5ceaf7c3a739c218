"""A worker of several slots has as many connections as its jobs use, or says at its start that it has not."""

from __future__ import annotations

import pytest
from running import worker_of, working
from servers import RedisServer, wait_until

from limpyd_jobs import STATUSES, ConfigurationException, Job, Queue
from limpyd_jobs.redis.database import JobsDatabase

AT_ONCE = 130  # more than a pool of redis-py 8 has


class Gated(Job):
    """Jobs that each wait for Redis over a connection of their own."""

    namespace = "gated"
    queue_name = "queue"

    def run(self, queue: Queue) -> None:
        assert self.get_connection().blpop("gate", 60)


@pytest.mark.proof
@pytest.mark.parametrize("limit", [{}, {"max_connections": AT_ONCE + 6}], ids=["without a limit", "least"])
def test_each_job_has_a_connection(
    limit: dict[str, int], jobs_database: JobsDatabase, redis_server: RedisServer
) -> None:
    jobs_database.connect(unix_socket_path=redis_server.socket, db=0, socket_timeout=60, **limit)
    jobs = Gated.add_jobs(range(AT_ONCE))
    with (
        redis_server.client() as client,
        working(worker_of(callback=None, concurrency=AT_ONCE, max_loops=AT_ONCE)),
    ):
        wait_until(lambda: client.info("clients")["blocked_clients"] >= AT_ONCE, "that all jobs wait")
        client.rpush("gate", *range(AT_ONCE))
    assert {job.status.hget() for job in jobs} == {STATUSES.SUCCESS}


def test_a_worker_is_refused_that_may_have_fewer_connections_than_its_jobs_use(
    jobs_database: JobsDatabase, redis_server: RedisServer
) -> None:
    jobs_database.connect(unix_socket_path=redis_server.socket, max_connections=25)
    with pytest.raises(ConfigurationException, match=r"max_connections=25 .* concurrency=20, which uses up to 26"):
        worker_of(concurrency=20).run()
