"""Each message of the table of the manual is logged when that happens."""

from __future__ import annotations

import asyncio
import os
import re
import signal
import threading
from contextlib import suppress
from pathlib import Path
from unittest.mock import patch

import pytest
from actions import do_nothing, fail, let_its_worker_die
from pages import read_table
from parts import run_task, with_part
from redis.exceptions import ConnectionError
from running import interrupt, working
from servers import RedisServer, free_port, wait_until

from limpyd_jobs import STATUSES, Job, Queue, Schedule, Worker, WorkerPresence
from limpyd_jobs.exceptions import WorkerFailed
from limpyd_jobs.records import records
from limpyd_jobs.redis.database import JobsDatabase
from limpyd_jobs.workers.claiming.claimer import Claimer
from limpyd_jobs.workers.maintenance.tasks import Pruner
from limpyd_jobs.workers.process.hard_limits import Board, HardLimits


class Declaring(Job):
    """Declares schedules, once a test makes it."""

    namespace = "declaring"


class Abstract(Job):
    """Declares schedules for nobody, once a test makes it."""

    abstract = True


class Concrete(Abstract):
    namespace = "inheriting"


class Endless(Job):
    """Asks for a parent that kills its process."""

    namespace = "endless"
    kill_after = 1


class Careless(Worker):
    """Has a hook that fails."""

    def job_success(self, *args):
        raise RuntimeError("oops")


def provoke_what_a_parent_is_for():
    Endless.add_jobs(["endless", "of a child"], queue_name="endless")
    with working(Worker("endless", callback=do_nothing, job_timeout=1, max_loops=1, terminate_gracefuly=False)):
        pass
    child = Worker("endless", callback=do_nothing, max_loops=1, terminate_gracefuly=False)
    child._run_state.hard_limits = HardLimits(Board(), lambda: None)  # as the parent of several processes gives them
    child.run()


def run_until(text: str, caplog: pytest.LogCaptureFixture, worker: Worker) -> None:
    """Run a worker until that is in the log."""
    with working(worker):
        wait_until(lambda: text in caplog.text, text)
        worker.end_forced = True


def provoke_what_is_wrong_with_jobs() -> None:
    queue = Queue.get_queue("a")
    queue.waiting.rpush("myapp.jobs.SendMail:1", "limpyd_jobs.models.Job:12", "garbage")
    queue.delayed.zadd({"myapp.jobs.SendMail:2": 1, "more garbage": 1})
    queue.deferrals.hset("myapp.jobs.SendMail:2", 60)
    Job.add_job("canceled", "a").status.hset(STATUSES.CANCELED)
    Job.add_job("a", "a")
    Queue.get_connection().set("jobs:error:identifier:a", "of a wrong type")
    Worker("a", callback=fail, requeue_times=1, max_loops=2).run()
    Job.add_job("itself", "itself")
    Worker("itself", callback=lambda job, queue: job.enqueue_or_delay("itself", 0), max_loops=1).run()
    Job.add_job("b", "b")
    with patch.object(Pruner, "run", side_effect=RuntimeError("oops")):
        Careless("b", callback=do_nothing, max_loops=1).run()
    Job.add_job("c", "c")
    with pytest.raises(KeyboardInterrupt):
        Worker("c", callback=interrupt, terminate_gracefuly=False).run()


def provoke_a_long_job_to_begin_anew() -> None:
    Job.add_job("long", "long").cursor.hset("of another program")
    Worker("long", callback=lambda job, queue: [*job.iterate(range(3))], max_loops=1).run()


def provoke_what_a_job_leaves() -> None:
    Job.add_job("deaf", "deaf")
    Worker("deaf", callback=lambda job, queue: signal.signal(signal.SIGTERM, signal.SIG_IGN), max_loops=1).run()


async def close_the_loop(job: Job, queue: Queue) -> None:
    asyncio.get_running_loop()._selector.close()  # type: ignore[attr-defined]
    await asyncio.sleep(60)


def provoke_a_broken_loop() -> None:
    Job.add_job("broken", "broken")
    with pytest.raises(WorkerFailed):
        Worker("broken", callback=close_the_loop, terminate_gracefuly=False).run()


def provoke_what_jobs_keep(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let jobs swallow that they are canceled, and hang in all threads of the loop."""
    go_on, threads = threading.Event(), min(32, (os.cpu_count() or 1) + 4)

    async def hang(job: Job, queue: Queue) -> None:
        with suppress(asyncio.CancelledError):
            await asyncio.to_thread(go_on.wait, 60)
        await asyncio.to_thread(go_on.wait, 60)

    monkeypatch.setattr("limpyd_jobs.workers.running.interrupting.LAST_SECONDS", 0.1)
    Job.add_jobs(map(str, range(threads)), "hanging", job_timeout=0.1)
    Worker("hanging", callback=hang, concurrency=threads + 1, lease=0.4, terminate_gracefuly=False).run()
    go_on.set()


def provoke_a_held_loop(caplog: pytest.LogCaptureFixture) -> None:
    async def hold(job: Job, queue: Queue) -> None:
        wait_until(lambda: "holds the event loop" in caplog.text)

    Job.add_job("held", "held")
    Worker("held", callback=hold, max_loops=1).run()


def provoke_what_happens_when_workers_die(caplog: pytest.LogCaptureFixture) -> None:
    let_its_worker_die("rescued", "rescued")
    Worker("rescued", callback=do_nothing, max_loops=1).run()
    let_its_worker_die("lost", "lost")
    Worker("lost", max_rescues=0, burst=True).run()

    broken = let_its_worker_die("broken", "broken")
    Queue.get_connection().set(broken.key, "of a wrong type")
    Worker("broken", burst=True).run()
    Queue.get_connection().delete(broken.key)

    def lose_the_claim(job: Job, queue: Queue) -> None:
        job.claim_token.hset("of another worker")
        wait_until(lambda: "lost its claim" in caplog.text)

    Job.add_job("stolen", "stolen")
    Worker("stolen", callback=lose_the_claim, lease=0.2, max_loops=1).run()


def provoke_a_taken_list(caplog: pytest.LogCaptureFixture) -> None:
    Queue.get_queue("at once")
    worker, claimer = with_part(Claimer, lambda: Worker("at once", concurrency=2, terminate_gracefuly=False))
    Queue.get_connection().set(claimer.canceled_key, "of a wrong type")
    run_until("Unable to listen for canceled jobs", caplog, worker)
    Queue.get_connection().delete(claimer.canceled_key)


def provoke_orphans(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("limpyd_jobs.workers.maintenance.rescue.ORPHAN_SEEN_FOR", 0.01)
    Queue.get_queue("nowhere", priority=1)
    Queue.get_queue("elsewhere", priority=1)
    homeless = Job.add_job("homeless", "nowhere", priority=1)
    homeless.queue_key.delete()
    for identifier in ("orphan", "second orphan"):
        Job.add_job(identifier, "orphans")
    for name, priority in (("nowhere", 1), ("orphans", 0)):
        Queue.get_queue(name, priority).waiting.delete()
    Queue.get_connection().delete("jobs:queue:reconcile_lock")
    Worker("orphans", callback=do_nothing, max_loops=2).run()


def provoke_what_is_wrong_with_schedules(monkeypatch: pytest.MonkeyPatch) -> None:
    late, bad = (Schedule.add(name, Job, interval=60, queue_name="s", misfire_grace_time=0) for name in ("late", "bad"))
    again = Schedule.add("again", Job, interval=60, queue_name="s")
    again.run_now()
    for schedule in (late, bad, again):
        records.set_schedule(Schedule, schedule.pk.get(), "1", {"next_run": "1970-01-01 00:00:01"})
    bad.job_model_repr.hset("not.Here")
    monkeypatch.setattr(Declaring, "schedules", {"wrong": {"cron": "61 3 * * *"}}, raising=False)
    monkeypatch.setattr(Abstract, "schedules", {"never": {"cron": "@daily"}}, raising=False)
    run_task(Worker("s"), "scheduler")
    for schedule in (late, bad, again):
        schedule.delete()


def provoke_what_others_ask_for(caplog: pytest.LogCaptureFixture) -> None:
    Queue.get_queue("asked")
    connection = Queue.get_connection()
    with working(Worker("asked", lease=2, max_duration=60, terminate_gracefuly=False)):
        wait_until(WorkerPresence.alive)
        (there,) = WorkerPresence.alive()
        WorkerPresence.order(there, "quiet")
        wait_until(lambda: "quiet asked by" in caplog.text)
        key = f"jobs:workerpresence:{there.pk}:hash"
        connection.delete(key)
        connection.set(key, "of a wrong type")
        wait_until(lambda: "Unable to tell others" in caplog.text)
        connection.delete(key)
        wait_until(WorkerPresence.alive)
        WorkerPresence.order(there, "stop")


class Deaf(Worker):
    """Takes no job, though it looks as if it waited."""

    def wait_for_job(self) -> None:
        self.end_forced = "Not healthy" in self.caplog.text
        threading.Event().wait(0.01)


def provoke_a_stall(caplog: pytest.LogCaptureFixture, path: Path) -> None:
    Queue.get_queue("stalled")
    deaf = type("Deaf", (Deaf,), {"caplog": caplog})(
        "stalled", stalled_after=0.1, health_file=str(path), max_duration=60
    )
    with working(deaf):
        wait_until(lambda: path.exists() and path.read_text() == "ok\n")
        Job.add_job("waits", "stalled")


def provoke_failures_of_redis(database: JobsDatabase, binary: str, caplog: pytest.LogCaptureFixture) -> None:
    with RedisServer(binary, "--maxmemory", "1gb", "--maxmemory-policy", "allkeys-lru", port=free_port()) as server:
        database.connection.close()
        database.connect(host="127.0.0.1", port=server.port)

        def run_without_redis(lease: float, wait_for: str) -> None:
            def stop_redis(job: Job, queue: Queue) -> None:
                server.stop()
                wait_until(lambda: wait_for in caplog.text)
                worker.end_forced = True

            Job.add_job("d", "d")
            worker = Worker("d", callback=stop_redis, lease=lease)
            worker.run()
            server.start()

        run_without_redis(lease=0.2, wait_for="lease not renewed")
        run_without_redis(lease=2, wait_for="")
        Queue.get_queue("d")
        unlucky = type("Unlucky", (Worker,), {"run_started": lambda self: server.stop()})
        run_until("Unable to get job, trying again", caplog, unlucky("d", terminate_gracefuly=False))
        with suppress(ConnectionError):
            Worker("d", terminate_gracefuly=False, wait_for_redis=0.1).run()


def provoke_late_renewals(caplog: pytest.LogCaptureFixture) -> None:
    def slow_redis_down(job: Job, queue: Queue) -> None:
        while "not renewed in time" not in caplog.text:
            Queue.get_connection().client_pause(800)

    Job.add_job("late", "late")
    Worker("late", callback=slow_redis_down, lease=1, max_loops=1).run()


def test_the_log_says_what_the_manual_says(
    caplog: pytest.LogCaptureFixture,
    monkeypatch: pytest.MonkeyPatch,
    jobs_database: JobsDatabase,
    redis_binary: str,
    tmp_path: Path,
):
    run_until("No queues yet", caplog, Worker("nobody", terminate_gracefuly=False))
    provoke_what_is_wrong_with_jobs()
    provoke_a_long_job_to_begin_anew()
    provoke_what_a_job_leaves()
    provoke_a_held_loop(caplog)
    provoke_what_happens_when_workers_die(caplog)
    provoke_a_taken_list(caplog)
    provoke_a_broken_loop()
    provoke_what_jobs_keep(monkeypatch)
    provoke_late_renewals(caplog)
    provoke_orphans(monkeypatch)
    provoke_what_is_wrong_with_schedules(monkeypatch)
    provoke_what_a_parent_is_for()
    provoke_what_others_ask_for(caplog)
    provoke_a_stall(caplog, tmp_path / "healthy")
    provoke_failures_of_redis(jobs_database, redis_binary, caplog)

    for message in read_table("What does the log say?"):
        pattern = re.escape(message).replace("…", ".*")
        assert any(re.search(pattern, line) for line in caplog.messages), message
