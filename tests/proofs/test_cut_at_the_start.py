"""Connections that are cut while a worker starts, with Redis well: it tries again, but not for ever."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator

import pytest
import redis
from proxy import Fault, Proxy
from running import work
from servers import RedisServer

from limpyd_jobs import STATUSES, Job
from limpyd_jobs.redis.database import JobsDatabase
from limpyd_jobs.workers import backoff
from limpyd_jobs.workers.start import START_TRIES

PROGRAM = """
import sys
sys.argv[0] = "limpyd-jobs-worker"
from limpyd_jobs.scripts.worker import main
from limpyd_jobs.workers import backoff
backoff.FIRST_PAUSE, backoff.MAX_PAUSE = 0.01, 0.1
main()
"""


@pytest.fixture
def proxy(redis_server: RedisServer, redis_client: redis.Redis) -> Iterator[Proxy]:
    with Proxy(redis_server.socket) as proxy:
        yield proxy


def run(proxy: Proxy, *more: str) -> subprocess.CompletedProcess[str]:
    """Run one job by the command, with shorter waits."""
    options = ["--queues=queue", "--max-loops=1", "--max-duration=60", f"--database=unix://{proxy.socket}", *more]
    return subprocess.run([sys.executable, "-c", PROGRAM, *options], capture_output=True, text=True, timeout=60)


# what the command sends first: INFO with each new connection, PING; then, as it runs, INFO, and the rest
@pytest.mark.parametrize(
    ("name", "nth", "fault"),
    [
        *((name, 1, Fault.CUT_BEFORE_REPLY) for name in ("INFO", "PING", "list_queues", "promote")),
        *(("INFO", 2, fault) for fault in (Fault.CUT_BEFORE_REQUEST, Fault.CUT_BEFORE_REPLY, Fault.CUT_WITHIN_REPLY)),
    ],
)
def test_the_worker_begins_all_the_same(proxy: Proxy, name: str, nth: int, fault: Fault) -> None:
    job = Job.add_job("a", "queue")
    proxy.on(name, fault, nth)
    result = run(proxy)
    assert (proxy.faults, result.returncode) == ([name], 0), result.stderr
    assert "Traceback" not in result.stderr
    assert job.status.hget() == STATUSES.ERROR  # no callback


def test_a_server_that_always_hangs_up_is_one_line_of_error_and_exit_status_1(proxy: Proxy) -> None:
    for _ in range(START_TRIES):
        proxy.on("PING", Fault.CUT_BEFORE_REPLY)
    result = run(proxy, "--wait-for-redis=0")
    assert proxy.faults == ["PING"] * START_TRIES
    assert result.returncode == 1
    assert "Traceback" not in result.stderr
    assert "error: cannot use Redis" in result.stderr.splitlines()[-1]


def test_so_does_a_worker_without_the_command(
    proxy: Proxy, jobs_database: JobsDatabase, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(backoff, "FIRST_PAUSE", 0.01)
    job = Job.add_job("a", "queue")
    jobs_database.connect(unix_socket_path=proxy.socket)
    proxy.on("INFO", Fault.CUT_BEFORE_REPLY)
    proxy.on("INFO", Fault.CUT_BEFORE_REPLY, 2)
    work()
    assert proxy.faults == ["INFO", "INFO"]
    assert job.status.hget() == STATUSES.SUCCESS


def test_a_server_that_is_not_there_is_told_at_once(jobs_database: JobsDatabase, tmp_path: object) -> None:
    jobs_database.connect(unix_socket_path=f"{tmp_path}/no.sock")
    with pytest.raises(redis.ConnectionError, match=r"no\.sock"):
        work()
