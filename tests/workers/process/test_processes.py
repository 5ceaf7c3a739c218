"""Several processes with a worker each: real ones, started by the command as a user does."""

from __future__ import annotations

import json
import os
import re
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator
from http.client import HTTPConnection
from pathlib import Path
from urllib.parse import urlsplit

import pytest
import redis
from invariants import violations
from parents import QUEUE, Parent, add, all_succeeded, processes_of_session, runners
from servers import TIMEOUT, RedisServer, wait_until

from limpyd_jobs import STATUSES, Error, Job, Queue, Worker
from limpyd_jobs.exceptions import ConfigurationException
from limpyd_jobs.redis.database import JobsDatabase
from limpyd_jobs.workers.process.children import ChildProcess

pytestmark = pytest.mark.usefixtures("jobs_database")


class TestRunningJobs:
    def test_each_process_runs_a_job_at_the_same_time(self, start, redis_client):
        jobs = add(3)
        parent = start("--processes=3", "--callback=shop.ship_slowly")
        wait_until(lambda: len(runners(redis_client)) == 3)
        assert sorted(runners(redis_client)) == sorted(parent.children)
        redis_client.rpush("open", 1, 2, 3)
        wait_until(lambda: all_succeeded(jobs))
        assert parent.end() == 0
        assert violations(redis_client, Job, Queue, Error) == []

    @pytest.mark.skipif(not Path("/proc/self/fd").exists(), reason="there is no /proc to look at")
    def test_no_connection_is_shared(self, start, redis_client):
        def sockets(pid: int) -> set[str]:
            links = [os.readlink(link) for link in Path(f"/proc/{pid}/fd").iterdir()]
            return {link for link in links if link.startswith("socket:")}

        add(2)
        parent = start("--processes=2", "--callback=shop.ship_slowly")
        wait_until(lambda: len(runners(redis_client)) == 2)
        first, second = (sockets(pid) for pid in parent.children)
        assert first
        assert second
        assert first & second == sockets(parent.pid) == set()
        redis_client.rpush("open", 1, 2)
        assert parent.end() == 0

    @pytest.mark.proof
    def test_an_embedded_server_is_shared(self, start, redis_client, tmp_path):
        program = "from limpyd_jobs import Job; [Job.add_job(str(n), 'orders') for n in range(4)]"
        database = f"embedded://{tmp_path}/data"
        subprocess.run(
            [sys.executable, "-c", program], env={**os.environ, "LIMPYD_JOBS_DATABASE": database}, check=True
        )
        parent = start("--processes=2", "--callback=shop.ship", LIMPYD_JOBS_DATABASE=database)
        wait_until(lambda: len(runners(redis_client)) == 4)
        assert parent.end() == 0

    def test_a_temporary_embedded_server_is_one_for_all(self, start):
        parent = start("--processes=2", "--callback=shop.ship", "--database=embedded://")
        wait_until(lambda: parent.log.count("No queues yet") == 2)
        assert parent.end() == 0

    def test_in_python(self, start, redis_client):
        jobs = add(2)
        program = """if True:
            import os, sys, redis
            from limpyd_jobs import Queue, Worker
            from limpyd_jobs.workers import WorkerPool

            Queue.get_queue("orders")  # so it has a connection already
            gates = redis.Redis(unix_socket_path=os.environ["GATES"])
            sys.exit(WorkerPool(2, lambda: Worker("orders", callback=lambda *_: gates.rpush("by", os.getpid()))).run())
        """
        parent = start(program=[sys.executable, "-c", program])
        wait_until(lambda: all_succeeded(jobs))
        assert set(runners(redis_client)) <= set(parent.children)
        assert parent.end() == 0

    @pytest.mark.parametrize("number", [(), ("--processes=1",)])
    def test_one_process_has_no_parent(self, start, redis_client, number):
        add(1)
        parent = start(*number, "--callback=shop.ship", "--max-loops=1")
        assert parent.wait() == 0
        assert runners(redis_client) == [parent.pid]

    def test_a_dry_run_starts_none(self, start):
        parent = start("--processes=2", "--dry-run", "--print-options")
        assert parent.wait() == 0
        assert " - processes = 2\n" in parent.log
        assert parent.said("") == []

    @pytest.mark.parametrize("number", [0, -1, 1.5, "two", True, None])
    def test_a_number_of_processes_must_be_1_or_more(self, number):
        with pytest.raises(ConfigurationException, match="processes must be a number, 1 or more"):
            Worker(QUEUE, processes=number)

    @pytest.mark.proof
    def test_titles(self, start, redis_client):
        def titles() -> list[str]:
            listed = subprocess.run(["ps", "-eo", "sess=,args="], capture_output=True, text=True, check=True).stdout
            rows = [line.split(None, 1) for line in listed.splitlines()]
            return [row[1].strip() for row in rows if row[0] == str(parent.pid) and "<defunct>" not in row[1]]

        add(2)
        parent = start("--processes=2", "--callback=shop.ship_slowly", is_forked=False)
        wait_until(lambda: len(runners(redis_client)) == 2)
        wait_until(lambda: f"limpyd-jobs-worker [running] queues={QUEUE} processes=2/2" in titles())
        parent.send(signal.SIGTERM)
        wait_until(lambda: f"limpyd-jobs-worker [ending] queues={QUEUE} processes=2/2" in titles())
        wait_until(lambda: sum("[running - ending] " in title for title in titles()) == 2)
        assert len({title.split()[0] for title in titles()}) == 3
        redis_client.rpush("open", 1)
        wait_until(lambda: f"limpyd-jobs-worker [ending] queues={QUEUE} processes=1/2" in titles())
        redis_client.rpush("open", 1)
        assert parent.wait() == 0


class TestHealth:
    @staticmethod
    def ask(parent: Parent, path: str) -> tuple[int, str]:
        (message,) = parent.wait_for("Health: ")
        connection = HTTPConnection(urlsplit(message.split()[1]).netloc, timeout=TIMEOUT)
        connection.request("GET", path)
        response = connection.getresponse()
        return response.status, response.read().decode()

    def wait_for(self, parent: Parent, *statuses: int) -> str:
        """Return why the children are not ready, once it is so whether they are alive, and ready."""
        paths = "/health/live", "/health/ready"
        wait_until(lambda: tuple(self.ask(parent, path)[0] for path in paths) == statuses, str(statuses))
        return self.ask(parent, "/health/ready")[1]

    @pytest.mark.proof
    def test_the_parent_answers_for_all(self, start, redis_client, tmp_path):
        Queue.get_queue(QUEUE)
        path = tmp_path / "healthy"
        parent = start("--processes=2", "--health-port=0", f"--health-file={path}", "--stalled-after=1")
        self.wait_for(parent, 200, 200)
        wait_until(lambda: path.read_text() == "ok\n")
        stopped, other = parent.children
        os.kill(stopped, signal.SIGSTOP)
        assert self.wait_for(parent, 503, 503).startswith(f"process {stopped}: it has reported nothing for ")
        status, text = self.ask(parent, "/health")
        assert (status, [each["pid"] for each in json.loads(text)["processes"]]) == (503, [stopped, other])
        os.kill(stopped, signal.SIGCONT)
        self.wait_for(parent, 200, 200)
        os.kill(other, signal.SIGKILL)
        assert self.wait_for(parent, 200, 503) == "a process is about to be started\n"
        self.wait_for(parent, 200, 200)
        assert parent.end() == 0
        assert not path.exists()

    @pytest.mark.parametrize("number", [1, 2])
    def test_an_address_that_is_in_use_is_refused_in_one_line(self, start, number):
        with socket.create_server(("127.0.0.1", 0)) as server:
            port = server.getsockname()[1]
            parent = start(f"--processes={number}", f"--health-port={port}")
            assert parent.wait() == 2
        assert f"error: Cannot listen on 127.0.0.1:{port}: Address already in use\n" in parent.log
        assert "Traceback" not in parent.log


class TestStartingAgain:
    def test_a_killed_child_is_replaced_and_its_job_rescued(self, start, redis_client):
        (job,) = add(1)
        parent = start("--processes=2", "--callback=shop.crash_once", "--lease=0.5")
        wait_until(lambda: all_succeeded([job]))
        killed, rescuer, *_ = runners(redis_client)  # another one, if the second was stopped for longer than its lease
        assert killed != rescuer
        (message,) = parent.said(f"process {killed}.*another")
        assert re.fullmatch(rf"process {killed} died of SIGKILL, another one is started in [12]\.\d seconds", message)
        assert len(parent.wait_for("process .* started$", 3)) == 3
        assert parent.end() == 0
        assert violations(redis_client, Job, Queue, Error) == []

    def test_a_child_that_ran_all_its_jobs_is_followed_at_once(self, start, redis_client):
        jobs = add(20)
        parent = start("--processes=2", "--callback=shop.ship", "--max-loops=4")
        wait_until(lambda: all_succeeded(jobs))
        messages = parent.wait_for("process .* another one is started", 4)
        assert [re.sub(r"\d+", "0", message, count=1) for message in messages] == [
            "process 0 ended after 4 jobs, another one is started"
        ] * len(messages)
        assert len(set(runners(redis_client))) >= 5
        wait_until(lambda: len(parent.children) == 2)
        assert parent.end() == 0

    def test_so_is_one_with_too_much_memory_in_use(self, start, redis_client):
        jobs = add(3)
        parent = start("--processes=2", "--callback=shop.ship", "--max-memory=1kB")
        wait_until(lambda: all_succeeded(jobs))
        assert len(parent.wait_for("process .* ended after 1 jobs, another one is started", 3)) == 3
        assert len(set(runners(redis_client))) == 3
        assert parent.end() == 0

    def test_idle_children_are_recycled_after_max_duration(self, start):
        Queue.get_queue(QUEUE)
        parent = start("--processes=2", "--max-duration=1.2")
        messages = parent.wait_for("process .* another", 4)
        assert {re.sub(r"\d+", "0", message, count=1) for message in messages} == {
            "process 0 ended after 0 jobs, another one is started"
        }
        assert parent.end() == 0

    def test_while_one_child_is_replaced_the_others_work(self, start, redis_client):
        add(1)
        parent = start("--processes=2", "--callback=shop.ship_slowly")
        wait_until(lambda: len(runners(redis_client)) == 1)
        (busy,) = runners(redis_client)
        (idle,) = set(parent.children) - {busy}
        os.kill(busy, signal.SIGTERM)
        redis_client.rpush("open", 1)
        parent.wait_for(f"process {busy} ended after 1 jobs, another one is started$")
        wait_until(lambda: len(parent.children) == 2)
        assert idle in parent.children
        assert parent.end() == 0

    def test_children_that_cannot_start_are_started_again_ever_later(self, start):
        Queue.get_queue(QUEUE)
        parent = start("--processes=2", "--worker-class=shop.FailingWorker")
        messages = parent.wait_for("process .* ended with exit status 1", 4)
        delays = [float(message.split()[-2]) for message in messages]
        assert all(1 <= delay <= 10 for delay in delays)
        assert "RuntimeError: no way" in parent.log
        parent.end()

    def test_children_that_end_without_having_run_a_job_make_no_hot_loop(self, start):
        Queue.get_queue(QUEUE)
        parent = start("--processes=2", "--max-loops=0")
        messages = parent.wait_for("process .* ended after 0 jobs", 2)
        assert all(message.endswith(" seconds") for message in messages)
        assert parent.end() == 0

    def test_a_worker_that_is_refused_ends_the_parent_before_it_starts_any(self, start):
        parent = start("--processes=2", "--callback=shop.nothing")
        assert parent.wait() == 2
        assert parent.log.count("\n") == 1

    def test_children_outlast_a_redis_that_is_away(self, start, redis_binary):
        with RedisServer(redis_binary) as server:
            options = f"--database={server.url}", "--callback=shop.ship", "--wait-for-redis=0"
            parent = start("--processes=2", *options)
            wait_until(lambda: parent.log.count("No queues yet") == 2)
            server.kill()
            os.kill(parent.children[0], signal.SIGKILL)
            wait_until(lambda: "error: cannot use Redis" in parent.log)
            server.start()
            wait_until(lambda: parent.log.count("No queues yet") >= 3)
            assert parent.end() == 0

    def test_the_wait_grows_with_each_failure_and_is_none_after_a_long_life(self):
        slot = ChildProcess()
        slot._started = -100.0
        assert slot.next_after(status=1) == 0

    @pytest.mark.parametrize(("status", "jobs", "waits"), [(0, 0, True), (0, 1, False), (1, 1, True), (-9, 0, True)])
    def test_who_ended_soon_waits_unless_it_did_its_work(self, status, jobs, waits):
        slot = ChildProcess()
        slot._started = float("inf")
        slot._jobs = jobs
        assert (slot.next_after(status) > 0) is waits


class TestEnding:
    @pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
    def test_a_signal_ends_all_after_their_jobs_and_a_second_one_changes_nothing(self, start, redis_client, number):
        jobs = add(3)
        parent = start("--processes=2", "--callback=shop.ship_slowly")
        wait_until(lambda: len(runners(redis_client)) == 2)
        parent.send(number)
        parent.wait_for(f"{number.name} caught: ending all processes, after their running jobs")
        parent.send(number)
        redis_client.rpush("open", 1, 2)
        assert parent.wait() == 0
        assert sorted(job.status.hget() for job in jobs) == ["s", "s", "w"]
        assert len(parent.said("process .* ended after 1 jobs$")) == 2
        assert parent.said("all") == ["all processes have ended"]
        assert parent.children == []

    def test_a_signal_that_comes_just_before_a_wait_ends_it(self, start):
        """No bytecode runs between the signal and the wait, so that no handler of Python's does."""
        program = """if True:
            import ctypes, functools, logging, select, signal, sys
            from limpyd_jobs import Worker
            from limpyd_jobs.workers import WorkerPool
            from limpyd_jobs.workers.process import pool

            def wait(*arguments):
                pool.select = select.select
                signalled = functools.partial(ctypes.pythonapi["raise"], signal.SIGTERM)
                waited = functools.partial(select.select, *arguments)
                return list(map(functools.partial.__call__, [signalled, waited]))[1]

            def patch(parent):
                if parent.status == "running":
                    pool.select = wait

            logging.basicConfig(level="INFO")
            sys.exit(WorkerPool(2, lambda: Worker("orders"), on_change=patch).run())
        """
        parent = start(program=[sys.executable, "-c", program])
        assert parent.wait() == 0
        assert parent.said("SIGTERM caught")

    def test_a_lost_terminal_ends_them_too(self, start, redis_client):
        jobs = add(2)
        parent = start("--processes=2", "--callback=shop.ship_slowly")
        wait_until(lambda: len(runners(redis_client)) == 2)
        os.killpg(parent.pid, signal.SIGHUP)
        parent.wait_for("SIGHUP caught: ending all processes")
        redis_client.rpush("open", 1, 2)
        assert parent.wait() == 0
        assert all_succeeded(jobs)

    def test_a_signal_to_all_processes_at_once_is_the_same(self, start, redis_client):
        jobs = add(2)
        parent = start("--processes=2", "--callback=shop.ship_slowly")
        wait_until(lambda: len(runners(redis_client)) == 2)
        os.killpg(parent.pid, signal.SIGINT)
        redis_client.rpush("open", 1, 2)
        assert parent.wait() == 0
        assert all_succeeded(jobs)

    def test_jobs_that_outlast_the_grace_period_are_released(self, start, redis_client):
        jobs = add(2)
        parent = start("--processes=2", "--callback=shop.ship_slowly", "--grace-period=0.1")
        wait_until(lambda: len(runners(redis_client)) == 2)
        assert parent.end() == 0
        assert [job.status.hget() for job in jobs] == ["w", "w"]
        assert violations(redis_client, Job, Queue, Error) == []

    def test_workers_that_leave_signals_alone_die_of_them(self, start, redis_client):
        add(2)
        parent = start("--processes=2", "--callback=shop.ship_slowly", "--no-terminate-gracefuly")
        wait_until(lambda: len(runners(redis_client)) == 2)
        assert parent.end() == 0
        assert len(parent.said("process .* died of SIGTERM$")) == 2

    def test_who_does_not_end_after_the_grace_period_is_killed(self, start, redis_client):
        add(2)
        options = ("--callback=shop.ship_slowly", "--grace-period=0", "--worker-config=shop.ImpatientConfig")
        parent = start("--processes=2", *options)
        wait_until(lambda: len(runners(redis_client)) == 2)
        stopped = parent.children[0]
        os.kill(stopped, signal.SIGSTOP)
        assert parent.end() == 1
        assert parent.said(f"process {stopped} ")[-2:] == [
            f"process {stopped} does not end: it is killed",
            f"process {stopped} died of SIGKILL",
        ]

    def test_it_is_told_though_all_processes_ended_by_themselves_at_that_moment(self, start):
        parent = start("--processes=2")
        wait_until(lambda: parent.log.count("No queues yet") == 2)
        children = parent.children
        parent.send(signal.SIGSTOP)
        for child in children:
            os.kill(child, signal.SIGTERM)
        wait_until(lambda: parent.children == [])
        parent.send(signal.SIGTERM)
        parent.send(signal.SIGCONT)
        assert parent.wait() == 0
        assert parent.said("SIGTERM caught: ending all processes")
        assert parent.said("")[-1] == "all processes have ended"

    def test_without_a_grace_period_none_is_killed_but_who_dies_shows_in_the_exit_status(self, start, redis_client):
        add(2)
        parent = start("--processes=2", "--callback=shop.ship_slowly")
        wait_until(lambda: len(runners(redis_client)) == 2)
        parent.send(signal.SIGTERM)
        parent.wait_for("SIGTERM caught")
        os.kill(parent.children[0], signal.SIGKILL)
        redis_client.rpush("open", 1, 2)
        assert parent.wait() == 1

    def test_children_of_a_killed_parent_end_after_their_jobs(self, start, redis_client):
        jobs = add(3)
        parent = start("--processes=3", "--callback=shop.ship_slowly")
        wait_until(lambda: len(runners(redis_client)) == 3)
        parent.send(signal.SIGKILL)
        assert parent.wait() == -signal.SIGKILL
        wait_until(lambda: parent.log.count("SIGTERM caught: ending, after the running job") == 3)
        redis_client.rpush("open", 1, 2, 3)
        wait_until(lambda: not processes_of_session(parent.pid))
        assert all_succeeded(jobs)

    def test_idle_children_of_a_killed_parent_end(self, start):
        Queue.get_queue(QUEUE)
        parent = start("--processes=2")
        wait_until(lambda: parent.log.count("Run started.") == 2)
        parent.send(signal.SIGKILL)
        parent.wait()
        wait_until(lambda: not processes_of_session(parent.pid))
        assert parent.log.count("Run terminated") == 2

    def test_children_of_a_parent_that_fails_end(self, start, redis_client):
        jobs = add(2)
        parent = start("--processes=2", "--callback=shop.ship_slowly", "--worker-config=shop.FailingConfig")
        wait_until(lambda: len(runners(redis_client)) == 2)
        wait_until(lambda: parent.log.count("Run started.") == 2)
        os.kill(runners(redis_client)[0], signal.SIGKILL)
        wait_until(lambda: "RuntimeError: the parent fails" in parent.log)
        redis_client.rpush("open", 1, 2)
        assert parent.wait() == 1
        assert sorted(job.status.hget() for job in jobs) == ["r", "s"]


@pytest.fixture
def late_server(redis_binary: str) -> Iterator[RedisServer]:
    """A server that has yet to start."""
    server = RedisServer(redis_binary)
    yield server
    server.kill()
    server.remove()


class TestARedisThatIsLate:
    """Systemd, Docker and Kubernetes start workers that do not have to come after Redis."""

    @pytest.mark.parametrize("number", [1, 2])
    def test_is_waited_for_and_said_in_one_line(self, start, late_server, number):
        parent = start(f"--processes={number}", f"--database={late_server.url}", "--callback=shop.ship")
        wait_until(lambda: "Waiting for Redis" in parent.log)
        late_server.start()
        wait_until(lambda: parent.log.count("No queues yet") == number)
        assert parent.end() == 0
        (line,) = [each for each in parent.log.splitlines() if "Waiting" in each]
        assert f"Waiting for Redis at {late_server.url}?db=0, for 60 seconds at most: Error 2 connecting to" in line

    @pytest.mark.parametrize("number", [1, 2])
    def test_is_not_waited_for_after_a_signal(self, start, late_server, number):
        parent = start(f"--processes={number}", f"--database={late_server.url}")
        wait_until(lambda: "Waiting for Redis" in parent.log)
        assert parent.end() == 0
        assert "[parent] process" not in parent.log

    def test_is_an_error_when_the_time_is_over(self, start, late_server):
        parent = start(f"--database={late_server.url}", "--wait-for-redis=0.1")
        assert parent.wait() == 1
        first, last = parent.log.splitlines()
        assert "for 0.1 seconds at most" in first
        assert last.startswith("limpyd-jobs-worker: error: cannot use Redis: ")

    def test_is_waited_for_in_python_if_the_worker_says_so(self, late_server):
        far = type("LateQueue", (Queue,), {"namespace": "late", "database": JobsDatabase(url=late_server.url)})
        options = {"queue_model": far, "terminate_gracefuly": False, "burst": True}
        with pytest.raises(redis.ConnectionError):
            Worker("a", **options).run()
        starting = threading.Timer(0.1, late_server.start)
        starting.start()
        worker = Worker("a", wait_for_redis=TIMEOUT, **options)
        worker.run()
        starting.join()
        assert worker.status == "terminated"


class TestOtherSignals:
    def test_each_child_tells_what_it_does(self, start, redis_client):
        jobs = add(2)
        parent = start("--processes=2", "--callback=shop.ship_slowly")
        wait_until(lambda: len(runners(redis_client)) == 2)
        parent.send(signal.SIGUSR1)
        parent.wait_for("SIGUSR1 caught: passed on to 2 processes")
        wait_until(lambda: len(re.findall("in ship_slowly", parent.log)) == 2)
        redis_client.rpush("open", 1, 2)
        wait_until(lambda: all_succeeded(jobs))
        assert parent.end() == 0

    def test_quiet_children_begin_no_job_and_are_not_replaced(self, start, redis_client):
        jobs = add(3)
        parent = start("--processes=2", "--callback=shop.ship_slowly", "--max-loops=1")
        wait_until(lambda: len(runners(redis_client)) == 2)
        parent.send(signal.SIGUSR2)
        wait_until(lambda: parent.log.count("SIGUSR2 caught: quiet, no other job is begun") == 2)
        redis_client.rpush("open", 1, 2)
        parent.wait_for("process .* ended after 1 jobs$", 2)
        assert (parent.children, jobs[2].status.hget()) == ([], STATUSES.WAITING)
        assert parent.end() == 0
        assert len(parent.said("process .* started")) == 2

    def test_a_child_that_is_not_ready_yet_gets_them_later(self, start, redis_client):
        parent = start("--processes=2", "--callback=shop.ship", "--worker-config=shop.SlowConfig")
        parent.wait_for("process .* started", 2)
        wait_until(lambda: redis_client.get("prepared") == "3")  # the second child waits
        parent.send(signal.SIGUSR2)
        parent.wait_for("SIGUSR2 caught: passed on to 2 processes")
        redis_client.rpush("prepare", 1)
        wait_until(lambda: parent.log.count("SIGUSR2 caught: quiet") == 2)
        assert parent.end() == 0
        assert parent.said("process .* died") == []


class TestBurst:
    def test_the_parent_ends_once_no_job_waits(self, start, redis_client):
        jobs = add(12)
        parent = start("--processes=2", "--callback=shop.ship", "--burst", "--max-loops=5")
        assert parent.wait() == 0
        assert all_succeeded(jobs)
        assert parent.said("all") == ["all processes have ended"]
        assert parent.said(".* caught") == []
        assert len(parent.said("process .* another one is started")) >= 1
        assert parent.log.count(": no job waits\n") == 2

    def test_without_any_queue_all_end_at_once(self, start, redis_client):
        parent = start("--processes=2", "--burst-delayed")
        assert parent.wait() == 0
        assert len(parent.said("process .* ended after 0 jobs$")) == 2

    def test_a_child_that_died_is_followed_by_another_one(self, start, redis_client):
        jobs = add(3)
        parent = start("--processes=2", "--callback=shop.crash_once", "--burst", "--lease=1")
        assert parent.wait() == 0
        assert len(parent.said("process .* died of SIGKILL, another one is started")) == 1
        assert [job.status.hget() for job in jobs].count(STATUSES.SUCCESS) >= 2

    def test_one_process_ends_with_status_0(self, start, redis_client):
        jobs = add(2)
        parent = start("--callback=shop.ship", "--burst")
        assert parent.wait() == 0
        assert all_succeeded(jobs)
