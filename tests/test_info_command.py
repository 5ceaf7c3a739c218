"""``limpyd-jobs info`` and ``limpyd-jobs top``, as a user runs them."""

from __future__ import annotations

import json
import os
import pty
import re
import signal
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

import preloaded
import pytest
from servers import RedisServer, wait_until

from limpyd_jobs import Job, Worker
from limpyd_jobs.query import overview

COMMAND = str(Path(sys.executable).with_name("limpyd-jobs"))

pytestmark = pytest.mark.usefixtures("redis_client")


class Ticket(Job):
    namespace = "info"
    queue_name = "tickets"

    def run(self, queue: Any) -> None:
        if self.identifier.hget() == "wrong":
            raise ValueError("on purpose")


@pytest.fixture(autouse=True)
def _jobs() -> None:
    for name in ("right", "wrong", "next", "last"):
        Ticket.add_job(name)
    Worker("tickets", max_loops=2, logger_level=60).run()


def environment(server: RedisServer) -> dict[str, str]:
    return {**os.environ, "LIMPYD_JOBS_DATABASE": server.url, "TERM": "xterm", "COLUMNS": "120", "LINES": "40"}


def run(server: RedisServer, *arguments: str) -> tuple[int, str, str]:
    done = preloaded.run([COMMAND, *arguments], env=environment(server))
    return done.returncode, done.stdout, done.stderr


def test_a_database_is_shown_at_a_glance(redis_server: RedisServer) -> None:
    status, out, err = run(redis_server, "info")
    assert (status, err) == (0, "")
    lines = out.splitlines()
    assert lines[0].endswith(" MB")
    assert lines[1].split() == ["jobs", "waiting", "delayed", "running", "success", "error", "canceled", "latency"]
    assert lines[2].split()[:7] == ["4", "2", "0", "0", "1", "1", "0"]
    assert lines[5].split()[:3] == ["tickets", "0", "2"]


def test_programs_get_json(redis_server: RedisServer) -> None:
    status, out, err = run(redis_server, "info", "--json")
    assert (status, err) == (0, "")
    shown = json.loads(out)
    assert shown.keys() >= {"queues", "workers", "totals"}
    assert (shown["totals"]["jobs"], shown["totals"]["waiting"], shown["totals"]["error"]) == (4, 2, 1)
    assert [(queue["name"], queue["waiting"]) for queue in shown["queues"]] == [("tickets", 2)]


def test_workers_that_are_there_are_shown(redis_server: RedisServer) -> None:
    keep, shown = threading.Event(), ""
    worker = Worker("tickets", callback=lambda job, queue: keep.wait(30), max_loops=1, logger_level=60)
    thread = threading.Thread(target=worker.run)
    worker.stop_handling_end_signal()
    thread.start()

    def is_shown() -> bool:
        nonlocal shown
        shown = run(redis_server, "info", "--json")[1]
        return bool(json.loads(shown)["workers"])

    try:
        wait_until(is_shown)
        (told,) = json.loads(shown)["workers"]
        assert (told["queues"], told["status"], told["pid"]) == (["tickets"], "busy", os.getpid())
        assert [job["identifier"] for job in told["running"]] == ["next"]
        assert told["name"] in run(redis_server, "info")[1]
    finally:
        keep.set()
        thread.join()


def test_an_empty_database_has_only_headings(redis_server: RedisServer, redis_client: Any) -> None:
    redis_client.flushdb()
    status, out, err = run(redis_server, "info")
    assert (status, err) == (0, "")
    assert out.splitlines()[2].split() == ["0"] * 7


def test_it_is_shown_again_and_again(redis_server: RedisServer) -> None:
    command = [COMMAND, "info", "--watch", "--every=0.05"]
    with subprocess.Popen(command, env=environment(redis_server), stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        headings = 0
        for line in process.stdout:
            headings += line.startswith("jobs ")
            if headings == 3:
                break
        process.send_signal(signal.SIGINT)
        process.stdout.read()
        assert process.wait(20) == 0


def test_top_fills_a_terminal_until_ctrl_c(redis_server: RedisServer) -> None:
    ours, theirs = pty.openpty()
    process = subprocess.Popen(
        [COMMAND, "top", "--every=0.1"], env=environment(redis_server), stdout=theirs, stdin=theirs
    )
    os.close(theirs)
    shown = ""

    def has_all() -> bool:
        nonlocal shown
        shown += os.read(ours, 65536).decode(errors="replace")
        plain = re.sub(r"\x1b\[[0-9;?]*[a-zA-Z]", "", shown)
        return "begun/min" in plain and "tickets" in plain and "identifier" in plain

    try:
        wait_until(has_all)
        process.send_signal(signal.SIGINT)
        assert process.wait(20) == 0
    finally:
        process.kill()
        process.wait()
        os.close(ours)


def test_top_needs_a_terminal(redis_server: RedisServer) -> None:
    status, out, err = run(redis_server, "top")
    assert (status, out) == (2, "")
    assert "needs a terminal; limpyd-jobs info --watch does not" in err


def test_watching_goes_on_while_redis_is_away(redis_server: RedisServer) -> None:
    environ = {**environment(redis_server), "LIMPYD_JOBS_DATABASE": "redis://127.0.0.1:1/0"}
    command = [COMMAND, "info", "--watch", "--every=0.05"]
    with subprocess.Popen(command, env=environ, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        told = [line for line, _ in zip(process.stdout, range(4), strict=False)]
        process.send_signal(signal.SIGINT)
        process.stdout.read()
        assert process.wait(20) == 0
    assert sum("127.0.0.1:1" in line for line in told) == 2


def test_what_runs_is_told_in_python() -> None:
    seen = overview(most_running=5)
    assert (seen.totals.jobs, seen.totals.success, list(seen.running)) == (4, 1, [])
    assert seen.totals.latency is not None
    assert seen.totals.latency == pytest.approx(seen.queues[0].latency)
