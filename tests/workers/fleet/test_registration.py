"""Workers are there for all to see, and do what they are asked for with their heartbeat."""

from __future__ import annotations

import json
import logging
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from typing import Any
from unittest.mock import patch

import preloaded
import pytest
import redis
from all_scripts import ALL_SCRIPTS
from cases import each
from running import messages, worker_of, working
from servers import RedisServer, wait_until

from limpyd_jobs import Job, Queue, Worker, WorkerPresence
from limpyd_jobs.check import check
from limpyd_jobs.commands.workers import HEADING, as_row
from limpyd_jobs.models import AliveWorker
from limpyd_jobs.models.presence import Order, RunningJob
from limpyd_jobs.query import app_versions, explain_job
from limpyd_jobs.records import presences
from limpyd_jobs.records.app_versions import note_version
from limpyd_jobs.records.audit import last_entries
from limpyd_jobs.texts import host_and_pid
from limpyd_jobs.threads import Heartbeat
from limpyd_jobs.views.workers import shown_workers

pytestmark = pytest.mark.usefixtures("redis_client")

COMMAND = str(Path(sys.executable).with_name("limpyd-jobs"))
WORKER = str(Path(sys.executable).with_name("limpyd-jobs-worker"))

# So that a sign of life comes often.
OPTIONS: dict[str, Any] = {"lease": 3, "max_loops": 100, "max_duration": 60}

LEASES = "jobs:workerpresence:leases"


class Task(Job):
    namespace = "registration"
    queue_name = "queue"


def the_worker() -> AliveWorker:
    return wait_for("")


def wait_for(status: str) -> AliveWorker:
    """Return the one worker that there is, once it has that status; empty for any."""
    found: list[AliveWorker] = []

    def is_so() -> bool:
        found[:] = WorkerPresence.alive()
        return len(found) == 1 and status in ("", found[0].status)

    wait_until(is_so, status or "a worker")
    return found[0]


@contextmanager
def registered(**options: Any) -> Iterator[Worker]:
    """A worker that runs in a thread, and is there for others to see; it is stopped at the end."""
    worker = worker_of(**{**OPTIONS, **options})
    with working(worker):
        try:
            wait_until(WorkerPresence.alive, "a worker")
            yield worker
        finally:
            worker.end_forced = True


@contextmanager
def heartbeat() -> Iterator[Callable[[], None]]:
    """The sign of life of the worker that begins in this context."""
    with patch("limpyd_jobs.workers.loop.Heartbeat", wraps=Heartbeat) as made:
        yield lambda: made.call_args.args[1]()


@contextmanager
def process(server: RedisServer, *options: str) -> Iterator[subprocess.Popen[bytes]]:
    command = [WORKER, "--queues=queue", "--lease=3", "--no-title", "--logger-level=info", *options]
    # Its log is read by the caller, if by anybody.
    child = subprocess.Popen(
        command, env={**os.environ, "LIMPYD_JOBS_DATABASE": server.url}, stderr=subprocess.PIPE, start_new_session=True
    )
    try:
        yield child
    finally:
        if child.poll() is None:
            os.killpg(child.pid, signal.SIGKILL)
        child.communicate()


def run(server: RedisServer, *arguments: str) -> tuple[int, str, str]:
    done = preloaded.run([COMMAND, *arguments], env={**os.environ, "LIMPYD_JOBS_DATABASE": server.url})
    return done.returncode, done.stdout, done.stderr


def asked(worker: AliveWorker, verb: str, value: str = "") -> None:
    """Ask something of a worker, and wait until it took that."""
    WorkerPresence.order(worker, verb, value)
    key = f"jobs:workerpresence:{worker.pk}:orders"
    connection = WorkerPresence.get_connection()
    wait_until(lambda: not connection.exists(key), f"{verb} is taken")


class TestWhoIsThere:
    def test_tells_what_it_is_and_does(self) -> None:
        Queue.get_queue("queue")
        with registered(queues=["queue", "other"], prefetch=3) as worker:
            told = wait_for("idle")
            assert told.id == worker.id
            assert told.name.startswith(f"{host_and_pid()}:")
            assert told.pid == os.getpid()
            assert told.queues == ["queue", "other"]
            assert (told.running, told.done, told.failed, told.parent) == ([], 0, 0, 0)
            assert told.memory > 1_000_000
            assert told.versions.keys() == {"library", "python"}
            assert told.options["prefetch"] == 3
            assert told.since <= told.last_seen < told.until

    def test_tells_for_how_long_it_has_been_idle(self) -> None:
        Queue.get_queue("queue")
        with heartbeat() as beat, registered() as worker:
            wait_for("idle")
            beat()
            before = the_worker().idle_for
            wait_until(lambda: (beat(), the_worker().idle_for > before)[1], "the next millisecond")
            Task.add_job("one")
            wait_until(lambda: worker.num_loops and worker.status == "waiting", "a job was run")
            beat()
            assert the_worker().idle_for == 0  # it ran a job in between

    def test_tells_which_job_runs_and_counts_those_that_ended(self) -> None:
        go_on = threading.Event()

        def wait(job: Job, queue: Queue) -> None:
            assert go_on.wait(60)
            if job.identifier.hget() == "bad":
                raise ValueError("on purpose")

        jobs = [Task.add_job(identifier) for identifier in ("good", "bad", "fine")]
        with registered(callback=wait, requeue_times=0):
            (running,) = wait_for("busy").running
            assert (running.ident, running.identifier) == (jobs[0].ident, "good")
            assert running.since == jobs[0].start.hget()
            assert jobs[0].claim_owner() == the_worker().name
            go_on.set()
            wait_until(lambda: (the_worker().done, the_worker().failed) == (2, 1))

    def test_is_there_while_it_waits_for_a_queue(self) -> None:
        with registered():
            assert wait_for("no queue").queues == ["queue"]

    def test_is_shown_as_it_is_soon_after_its_first_queue_was_made(self) -> None:
        with registered(lease=3600):  # so that the next regular sign of life is long after this test
            wait_for("no queue")
            Queue.get_queue("queue")
            wait_for("idle")

    def test_leaves_nothing_behind_at_its_end(self, redis_client: redis.Redis) -> None:
        Queue.get_queue("queue")
        with registered():
            asked(the_worker(), "quiet")
        assert WorkerPresence.alive() == []
        assert list(redis_client.scan_iter("*workerpresence*")) == []

    @pytest.mark.proof
    def test_lapses_if_it_is_killed(self, redis_server: RedisServer) -> None:
        Queue.get_queue("queue")
        with process(redis_server) as child:
            assert the_worker().pid == child.pid
            child.kill()
            wait_until(lambda: not WorkerPresence.alive())

    def test_comes_back_after_all_was_lost(self, redis_client: redis.Redis) -> None:
        Queue.get_queue("queue")
        with registered():
            since = the_worker().since
            redis_client.flushall()
            assert the_worker().since == since


class TestTheCosts:
    def test_a_short_life_and_a_job_cost_nothing(self, commands: Any) -> None:
        Task.add_jobs({"identifier": f"{number}"} for number in range(50))
        with commands() as sent:
            worker_of(max_loops=50).run()
        assert not any("workerpresence" in command for command in sent)

    def test_a_heartbeat_is_one_script_more_than_the_lease_of_the_job(self, commands: Any) -> None:
        begun, go_on = threading.Event(), threading.Event()

        def wait(job: Job, queue: Queue) -> None:
            begun.set()
            assert go_on.wait(60)

        Task.add_job("a")
        with heartbeat() as beat, registered(callback=wait, lease=600, metrics=False):
            assert begun.wait(60)
            with commands() as sent:
                beat()
            go_on.set()
        names = {script.sha: script.name for script in ALL_SCRIPTS}
        assert [names[command.split()[1]] for command in sent] == ["renew_many", "keep_presence"]


class TestOrders:
    def test_quiet_and_resume(self) -> None:
        Queue.get_queue("queue")
        with registered() as worker:
            asked(the_worker(), "quiet")
            wait_for("quiet")
            job = Task.add_job("a")
            asked(the_worker(), "dump")
            assert job.status.hget() == "w"
            asked(the_worker(), "resume")
            wait_until(lambda: job.status.hget() == "s")
            assert not worker.end_forced

    def test_stop_ends_it_after_the_running_job(self) -> None:
        begun, go_on = threading.Event(), threading.Event()

        def wait(job: Job, queue: Queue) -> None:
            begun.set()
            assert go_on.wait(60)

        first, second = Task.add_job("a"), Task.add_job("b")
        with working(worker_of(callback=wait, **OPTIONS)):
            assert begun.wait(60)
            WorkerPresence.order(the_worker(), "stop")
            wait_for("stopping")
            go_on.set()
        assert (first.status.hget(), second.status.hget()) == ("s", "w")

    def test_dump_and_log_level(self, log: pytest.LogCaptureFixture) -> None:
        Queue.get_queue("queue")
        logger = logging.getLogger("limpyd-jobs")
        before = logger.level
        try:
            with registered():
                asked(the_worker(), "log-level", "error")
                wait_until(lambda: logger.level == logging.ERROR)
                asked(the_worker(), "log-level", "10")
                wait_until(lambda: logger.level == 10)
                asked(the_worker(), "dump")
                wait_until(lambda: any("thread limpyd-jobs-heartbeat:" in text for text in messages(log)))
                wait_until(lambda: WorkerPresence.dump_of(the_worker()), "the dump is kept")
                shown = WorkerPresence.dump_of(the_worker())
                assert shown
                assert "thread limpyd-jobs-heartbeat:" in shown.text
                assert shown.text.startswith("dump asked by ")
        finally:
            logger.setLevel(before)

    def test_a_dump_names_jobs_without_identifiers_which_may_be_secret(self, log: pytest.LogCaptureFixture) -> None:
        begun, go_on = threading.Event(), threading.Event()

        def wait(job: Job, queue: Queue) -> None:
            begun.set()
            assert go_on.wait(60)

        job = Task.add_job("SECRET")
        with registered(callback=wait):
            assert begun.wait(60)
            asked(the_worker(), "dump")
            wait_until(lambda: WorkerPresence.dump_of(the_worker()), "the dump is kept")
            shown = WorkerPresence.dump_of(the_worker())
            go_on.set()
        assert shown
        assert f"on [queue|{job.pk.get()}] {job.ident}, try 1" in shown.text
        assert "SECRET" not in shown.text
        assert any(f"on [queue|{job.pk.get()}|SECRET] {job.ident}" in text for text in messages(log))

    def test_is_done_once_and_written_in_the_audit(
        self, log: pytest.LogCaptureFixture, redis_client: redis.Redis
    ) -> None:
        Queue.get_queue("queue")
        with heartbeat() as beat, registered():
            asked(the_worker(), "dump")
            asked(the_worker(), "dump")
            wait_until(lambda: len([text for text in messages(log) if "dump asked by" in text]) == 2)
            beat()
            assert len([text for text in messages(log) if "dump asked by" in text]) == 2
            entry = last_entries(redis_client, 10)[0]
            assert (entry["verb"], entry["filter"]) == ("dump", f"worker={the_worker().name}")

    def test_that_no_process_takes_lapses(self, redis_client: redis.Redis) -> None:
        a_record(redis_client)
        WorkerPresence.order(the_worker(), "quiet")
        assert 50_000 < redis_client.pttl("jobs:workerpresence:worker-a:orders") <= 60_000

    def test_outlives_the_presence_of_who_is_only_stopped(self, redis_client: redis.Redis) -> None:
        a_record(redis_client)
        WorkerPresence.order(the_worker(), "quiet")
        redis_client.zadd("jobs:workerpresence:leases", {"worker-a": 1})
        assert (presences.sweep(WorkerPresence), WorkerPresence.alive()) == (1, [])
        assert not check(pause=0).findings
        again = presences.keep(WorkerPresence, "worker-a", {"name": "a", "kind": "worker"}, 60, takes_orders="1")
        assert [Order.parse(text).verb for text in again.orders] == ["quiet"]

    def test_for_who_is_gone_is_refused(self, redis_client: redis.Redis) -> None:
        a_record(redis_client)
        worker = the_worker()
        WorkerPresence.delete_many([worker.pk])
        with pytest.raises(LookupError, match="x:1:a is not there any more"):
            WorkerPresence.order(worker, "quiet")
        assert redis_client.dbsize() == 0

    @pytest.mark.parametrize(("verb", "value"), [("kill", ""), ("log-level", "loud"), ("quiet", "x"), ("", "")])
    def test_that_are_none_are_refused(self, redis_client: redis.Redis, verb: str, value: str) -> None:
        Queue.get_queue("queue")
        with registered():
            with pytest.raises(ValueError, match=r"not one of|not a level|no value"):
                WorkerPresence.order(the_worker(), verb, value)
            assert last_entries(redis_client, 10) == []


HOSTILE_ORDERS = [
    *("", "{}", "[]", "[" * 100_000, "5", '["stop"]', '["stop", 1, 2]', '[["stop"], "", ""]', '["fire", "", ""]'),
    '{"verb": "stop", "value": "", "by": ""}',
]

HOSTILE_DETAILS = [
    "null",
    "[]",
    '{"queues": 5, "running": {"a": 1}, "versions": [], "options": "x", "lease": 1e999, "done": [], "parent": "a"}',
    '{"queues": [1, null, "ok"], "running": [[1, 2, 3], ["a"], null], "lease": -5, "status": {}, "id": []}',
    '{"queues": ["\\ud800\\u001b[31m\\n"], "status": "\\ud800", "running": [["\\ud800", "\\n", "yesterday"]]}',
    f'{{"memory": 1{"0" * 4000}, "done": 1{"0" * 4000}, "parent": -1}}',
    '{"lease": "x", "memory": 1.5, "done": true, "versions": {"python": [[]]}}',
]


class TestWhatSomebodyElseWrote:
    def test_as_an_order_changes_nothing(self, log: pytest.LogCaptureFixture, redis_client: redis.Redis) -> None:
        Queue.get_queue("queue")
        with registered(lease=1) as worker:
            for order in HOSTILE_ORDERS:
                log.clear()
                redis_client.rpush(f"jobs:workerpresence:{the_worker().pk}:orders", order)
                wait_until(lambda: any("Unknown order: " in text for text in messages(log)), f"{order:.20} is told")
            asked(the_worker(), "quiet")
            wait_for("quiet")
            assert not worker.end_forced

    def test_as_many_orders_is_told_in_a_few_lines(
        self, log: pytest.LogCaptureFixture, redis_client: redis.Redis
    ) -> None:
        Queue.get_queue("queue")
        with registered():
            redis_client.rpush(f"jobs:workerpresence:{the_worker().pk}:orders", *["junk"] * 50)
            wait_until(lambda: any("unknown orders: and 47 more like it" in text for text in messages(log)))
            assert sum("Unknown order: " in text for text in messages(log)) == 3

    def test_as_orders_of_another_type_is_deleted(self, redis_client: redis.Redis) -> None:
        Queue.get_queue("queue")
        with registered():
            key = f"jobs:workerpresence:{the_worker().pk}:orders"
            redis_client.set(key, "x")
            wait_until(lambda: not redis_client.exists(key))

    @pytest.mark.matrix(1)
    @pytest.mark.parametrize("details", HOSTILE_DETAILS, ids=range(len(HOSTILE_DETAILS)))
    def test_as_its_details_breaks_no_list(
        self, redis_client: redis.Redis, redis_server: RedisServer, details: str
    ) -> None:
        a_record(redis_client, details=details)
        assert [worker.name for worker in WorkerPresence.alive()] == ["x:1:a"]
        for arguments in (["list"], ["list", "--json"], ["show", "x:1"], ["show", "--all", "--json"]):
            status, out, err = run(redis_server, "workers", *arguments)
            assert (status, err) == (0, "")
            assert "x:1:a" in out

    @pytest.mark.parametrize("ends", ["1e300", "inf", "4e11"])
    def test_as_the_end_of_its_lease_breaks_no_list(self, redis_client: redis.Redis, ends: str) -> None:
        a_record(redis_client)
        a_record(redis_client, "other", ends=ends)
        assert [worker.pk for worker in WorkerPresence.alive()] == ["worker-a"]

    @pytest.mark.matrix(1)
    @pytest.mark.parametrize("since", ["0001-01-01", "2026-01-01T00:00:00+14:00", "0001-01-01T00:00:00+14:00", "now"])
    def test_as_the_date_of_its_beginning_breaks_no_list(
        self, redis_client: redis.Redis, redis_server: RedisServer, since: str
    ) -> None:
        a_record(redis_client)
        a_record(redis_client, "other", since=since)
        assert "worker-a" in [worker.pk for worker in WorkerPresence.alive()]
        assert run(redis_server, "workers", "list")[0] == 0

    def test_as_bytes_that_are_no_text_breaks_no_list(self, redis_client: redis.Redis) -> None:
        a_record(redis_client)
        a_record(redis_client, "other", name=b"\xff\xfe", details=b'{"queues": ["\xff"]}')
        assert "x:1:a" in [worker.name for worker in WorkerPresence.alive()]

    def test_as_a_hash_of_its_own_does_not_stop_it(
        self, log: pytest.LogCaptureFixture, redis_client: redis.Redis
    ) -> None:
        Queue.get_queue("queue")
        with registered():
            key = f"jobs:workerpresence:{the_worker().pk}:hash"
            redis_client.delete(key)
            redis_client.set(key, "x")
            wait_until(lambda: any("Unable to tell others" in text for text in messages(log)))
            redis_client.delete(key)
            job = Task.add_job("a")
            wait_until(lambda: job.status.hget() == "s")
            assert the_worker().queues == ["queue"]


def a_record(client: redis.Redis, pk: str = "worker-a", ends: str = "4000000000", **changes: Any) -> None:
    """Write the record of a worker that is not there."""
    fields = {"name": "x:1:a", "kind": "worker", "host": "x", "pid": "1", "since": "2026-01-01 00:00:00"}
    client.hset(f"jobs:workerpresence:{pk}:hash", mapping={**fields, "details": "{}", **changes})
    client.sadd("jobs:workerpresence:collection", pk)
    client.zadd(LEASES, {pk: ends})


def test_a_job_whose_worker_is_quiet_says_so(redis_client: redis.Redis) -> None:
    job = Task.add_job("a", delayed_for=3600)
    with registered():
        asked(the_worker(), "quiet")
        wait_for("quiet")
        wait_until(lambda: not redis_client.info("clients")["blocked_clients"], "a worker that waits for no job")
        job.enqueue_or_delay()

        def codes() -> list[str]:
            return [reason.code for reason in explain_job(job.ident).reasons]

        # its last wait may end by claiming the job, which it then gives back
        wait_until(lambda: codes() == ["next", "workers_quiet"], "a quiet worker is the reason")


def test_a_job_whose_class_no_worker_can_import_says_so(redis_server: RedisServer) -> None:
    job = Task.add_job("a")
    with process(redis_server):
        wait_until(lambda: the_worker().unresolved == [Task.get_model_repr()])
        deferred, unknown = explain_job(job.ident).reasons
        assert (deferred.code, unknown.code) == ("deferred", "class_unknown")
        assert deferred.text.startswith("Workers could not import its class, once, and try again in ")
        assert unknown.text == f"No worker of the queue queue that is there can import {Task.get_model_repr()}."


class TestThePool:
    @pytest.mark.proof
    def test_has_a_worker_for_each_child_and_a_stopped_one_is_not_followed(self, redis_server: RedisServer) -> None:
        Queue.get_queue("queue")
        with process(redis_server, "--processes=2") as parent:
            wait_until(lambda: len(WorkerPresence.alive()) == 2)
            first, second = WorkerPresence.alive()
            assert first.parent == second.parent == parent.pid
            assert run(redis_server, "workers", "stop", first.name)[:2] == (0, f"{first.name}: asked\n")
            wait_until(lambda: [worker.name for worker in WorkerPresence.alive()] == [second.name])
            host = first.name.partition(":")[0]
            assert run(redis_server, "workers", "stop", f"{host}:{parent.pid}")[0] == 0
            assert parent.wait(60) == 0


class TestTheCommand:
    @pytest.mark.proof
    def test_lists_and_shows(self, redis_server: RedisServer) -> None:
        Queue.get_queue("queue")
        with process(redis_server) as child:
            worker = wait_for("idle")
            (row,) = json.loads(run(redis_server, "workers", "list", "--json")[1])
            assert {"name", "host", "pid", "queues", "status", "running", "last_seen"} <= row.keys()
            assert (row["name"], row["pid"], row["queues"]) == (worker.name, child.pid, ["queue"])
            assert (row["status"], row["running"]) == ("idle", [])
            heading, line = run(redis_server, "workers", "list")[1].splitlines()
            assert heading.startswith("worker")
            assert line.split()[:3] == [worker.name, "idle", "queue"]
            for name in (worker.name, worker.id, f"{worker.host}:{worker.pid}"):
                shown = run(redis_server, "workers", "show", name)[1]
                assert f"pid {child.pid}" in " ".join(shown.split())

    @pytest.mark.proof
    def test_steers(self, redis_server: RedisServer) -> None:
        Queue.get_queue("queue")
        with process(redis_server) as child:
            name = wait_for("idle").name
            assert run(redis_server, "workers", "quiet", name, "--dry-run")[1] == f"{name}: would be asked\n"
            assert run(redis_server, "workers", "quiet", name) == (0, f"{name}: asked\n", "")
            wait_for("quiet")
            assert (
                run(redis_server, "workers", "resume", "--all", "--json")[1]
                == json.dumps({"asked": [name]}, indent=2) + "\n"
            )
            wait_for("idle")
            assert run(redis_server, "workers", "dump", name)[0] == 0
            assert run(redis_server, "workers", "log-level", "WARNING", "--all")[0] == 0
            status, _, error = run(redis_server, "workers", "stop", "--all")
            assert (status, "stop all 1 worker?" in error) == (2, True)
            assert run(redis_server, "workers", "stop", "--all", "--yes")[0] == 0
            _, log = child.communicate(timeout=60)
            assert child.returncode == 0
            assert b"dump asked by" in log
            assert b"thread MainThread:" in log
            assert WorkerPresence.alive() == []

    @each(
        ("arguments", "message"),
        [
            (["fire"], "'fire' is not one of list, show, quiet"),
            (["quiet"], "quiet needs the names of workers, or --all"),
            (["quiet", "x", "--all"], "quiet needs the names of workers, or --all"),
            (["quiet", "nobody"], "there is no worker nobody"),
            (["log-level"], "log-level needs a level"),
            (["log-level", "loud", "--all"], "is not a level of the log"),
        ],
    )
    def test_refuses(self, redis_server: RedisServer, arguments: list[str], message: str) -> None:
        status, out, error = run(redis_server, "workers", *arguments)
        assert (status, out) == (2, "")
        assert message in error

    def test_tells_how_long_a_job_ran_at_the_last_sign(self) -> None:
        with registered():
            worker = the_worker()
        job = RunningJob("jobs.Task:1", "a", str(worker.last_seen - timedelta(minutes=2)))
        (shown,) = shown_workers([replace(worker, running=[job])])
        told = dict(zip(HEADING, as_row(shown), strict=True))
        assert (told["runs"], told["for"]) == ("jobs.Task:1", "2 min")

    def test_without_workers(self, redis_server: RedisServer) -> None:
        assert run(redis_server, "workers", "list", "--json")[:2] == (0, "[]\n")
        assert run(redis_server, "workers", "stop", "--all", "--yes")[:2] == (0, "there are no workers\n")


def test_the_version_of_the_application_is_noted_when_it_is_seen_first(
    redis_client: redis.Redis, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("LIMPYD_JOBS_APP_VERSION", "2026.11")
    with registered():
        assert the_worker().versions["application"] == "2026.11"
        wait_until(app_versions, "a version")
    (first,) = app_versions()
    note_version(redis_client, "2026.11")
    assert (app_versions(), first.version) == ([first], "2026.11")
    for number in range(60):
        note_version(redis_client, f"{number:02}")
    assert len(app_versions()) == 50
