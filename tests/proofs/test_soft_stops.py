"""Workers that are asked to end under load, at any moment: each job runs once, in its order, and no try is lost."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections import Counter
from pathlib import Path
from random import Random

import pytest
import redis
from invariants import violations
from servers import RedisServer, wait_until

from limpyd_jobs import Error, Job, Queue, Worker
from limpyd_jobs.models import BaseJobsModel

SEED = 2026
JOBS = 1500
MAX_BETWEEN_STOPS = 150
PATH = os.pathsep.join(str(path) for path in (Path(__file__).parent, Path(__file__).parents[1]))


class Counted(Job):
    """Every tenth takes a few milliseconds, so that batches are of all sizes, and some of their jobs are given back."""

    namespace = "soft-stops"
    queue_name = "queue"

    def run(self, queue: Queue) -> None:
        identifier = self._cached_identifier
        self.database.connection.rpush("ran", identifier)
        if identifier.endswith("0"):
            time.sleep(int(identifier[-2]) / 1000)


def live(socket: str, prefetch: str) -> None:
    """Run a worker, in a process of its own."""
    BaseJobsModel.database.connect(unix_socket_path=socket, db=0)
    number = prefetch if prefetch == "auto" else int(prefetch)
    Worker("queue", prefetch=number, timeout=1, max_loops=JOBS, logger_name="soft-stops").run()


@pytest.mark.parametrize("prefetch", ["1", "10", "auto"])
def test_each_job_runs_once_in_its_order(redis_server: RedisServer, redis_client: redis.Redis, prefetch: str) -> None:
    identifiers = [f"{number:05d}" for number in range(JOBS)]
    Counted.add_jobs(identifiers)
    program = f"from test_soft_stops import live; live({redis_server.socket!r}, {prefetch!r})"
    random, ran = Random(SEED), 0
    while ran < JOBS:
        worker = subprocess.Popen([sys.executable, "-c", program], env={**os.environ, "PYTHONPATH": PATH})
        enough = min(ran + random.randint(1, MAX_BETWEEN_STOPS), JOBS)
        wait_until(lambda enough=enough: redis_client.llen("ran") >= enough, "some jobs")
        worker.send_signal(signal.SIGTERM)
        assert worker.wait(60) == 0
        ran = redis_client.llen("ran")
        assert len(Counted.collection(status="r")) == 0
    assert redis_client.lrange("ran", 0, -1) == identifiers
    ends = Counter(tuple(job.hmget("status", "tries")) for job in Counted.collection().instances())
    assert ends == {("s", "1"): JOBS}
    redis_client.delete("ran")
    assert violations(redis_client, Counted, Queue, Error) == []
