"""The run of a worker: what it does in which order, when it ends, and what cannot end it."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
import redis
from invariants import violations
from running import Collector, delayed_and_due, fail, messages, waiting_idly, work, worker_of, working
from servers import RedisServer, wait_until

from limpyd_jobs import STATUSES, ConfigurationException, Job, LimpydJobsException, Queue, Worker
from limpyd_jobs.dates import utcnow
from limpyd_jobs.redis.database import JobsDatabase, database_name, parse_database

pytestmark = pytest.mark.usefixtures("redis_client")


class Task(Job):
    namespace = "run"
    queue_name = "queue"


class TestOrder:
    class Telling(Worker):
        """Keeps the names of its methods in the order of their calls."""

        told: list[str]

        def __init__(self, *args: Any, **kwargs: Any) -> None:
            self.told = []
            super().__init__(*args, **kwargs)

    def test_the_methods_are_called_in_the_documented_order(self) -> None:
        names = (
            *("handle_end_signal", "stop_handling_end_signal", "set_logger", "run", "run_started", "run_ended"),
            *("update_keys", "requeue_delayed_jobs", "wait_for_job", "get_queue", "get_job", "execute"),
            *("job_started", "job_started_message", "job_success", "job_success_message"),
        )
        for name in names:
            setattr(self.Telling, name, self._telling(name))
        Task.add_job("a")
        worker = work(worker_class=self.Telling, callback=None, terminate_gracefuly=True)
        assert worker.told == [
            *("set_logger", "handle_end_signal"),
            *("run", "update_keys", "requeue_delayed_jobs", "run_started"),
            *("wait_for_job", "get_queue", "get_job"),
            *("job_started", "job_started_message", "execute"),
            *("run_ended", "stop_handling_end_signal"),
        ]

    @staticmethod
    def _telling(name: str) -> Callable[..., Any]:
        def method(self: Any, *args: Any, **kwargs: Any) -> Any:
            self.told.append(name)
            return getattr(Worker, name)(self, *args, **kwargs)

        return method

    def test_the_status_follows_the_run(self) -> None:
        statuses: list[str | None] = []

        class Watching(Worker):
            def set_status(self, status: str) -> None:
                super().set_status(status)
                statuses.append(self.status)

        Task.add_job("a")
        Task.add_job("b")
        worker = worker_of(worker_class=Watching, max_loops=2)
        assert worker.status is None
        worker.run()
        around_jobs = [status for status in statuses if status != "running"]
        assert around_jobs == ["starting", "waiting", "waiting", "terminated"]
        assert statuses[-2:] == ["running", "terminated"]

    def test_the_status_can_be_read_in_the_methods(self) -> None:
        seen = {}

        class Watching(Worker):
            def update_keys(self) -> None:
                seen["update_keys"] = self.status
                super().update_keys()

            def run_started(self) -> None:
                seen["run_started"] = self.status

            def execute(self, job: Job, queue: Queue) -> None:
                seen["execute"] = self.status

            def job_success(self, job: Job, queue: Queue, job_result: Any) -> None:
                seen["job_success"] = self.status

            def run_ended(self) -> None:
                seen["run_ended"] = self.status

        Task.add_job("a")
        work(worker_class=Watching, callback=None)
        assert seen == {
            "update_keys": "starting",
            "run_started": "starting",
            "execute": "running",
            "job_success": "running",
            "run_ended": "terminated",
        }

    def test_a_run_is_dated(self) -> None:
        Task.add_job("a")
        worker = worker_of(max_duration=60)
        assert (worker.start_date, worker.end_date, worker.wanted_end_date, worker.elapsed) == (None,) * 4
        before = utcnow()
        worker.run()
        assert worker.start_date is not None
        assert worker.end_date is not None
        assert worker.wanted_end_date is not None
        assert before <= worker.start_date <= worker.end_date <= utcnow()
        assert (worker.wanted_end_date - worker.start_date).total_seconds() == 60
        assert worker.elapsed == worker.end_date - worker.start_date

    def test_the_time_elapsed_can_be_read_while_it_runs(self) -> None:
        Task.add_job("a")
        elapsed: list[Any] = []
        worker = worker_of(callback=lambda *_: elapsed.append(worker.elapsed))
        worker.run()
        assert elapsed[0].total_seconds() > 0

    def test_a_run_is_logged(self, log: pytest.LogCaptureFixture) -> None:
        Task.add_job("a")
        worker = work()
        assert messages(log) == [
            "Run started.",
            "[queue|1|a] starting",
            f"[queue|1|a] success, in {Task.get(1).duration}",
            f"Run terminated, with 1 loops (duration={worker.elapsed}): max_loops=1 is reached",
        ]
        assert all(record.getMessage().startswith(f"[{worker.id}] ") for record in log.records)
        assert len(worker.id) == 6
        assert worker.id.isdigit()

    @pytest.mark.parametrize("ending", ["done", "broken off"])
    def test_a_worker_runs_only_once(self, ending: str) -> None:
        def callback(job: Job, queue: Queue) -> None:
            if ending == "broken off":
                sys.exit()

        Task.add_job("a")
        worker = worker_of(callback=callback)
        with suppress(SystemExit):
            worker.run()
        Task.add_job("b")
        with pytest.raises(LimpydJobsException, match="This worker run is already terminated"):
            worker.run()
        assert worker.status == "aborted"
        assert Queue.get_queue("queue").waiting.llen() == 1

    def test_a_worker_that_may_have_one_connection_only_is_refused(
        self, jobs_database: JobsDatabase, redis_server: RedisServer
    ) -> None:
        jobs_database.connect(unix_socket_path=redis_server.socket, max_connections=1)
        with pytest.raises(ConfigurationException, match="max_connections=1 is too few for a worker"):
            worker_of().run()

    def test_a_running_worker_cannot_be_run_again(self) -> None:
        refusals = []

        def callback(job: Job, queue: Queue) -> None:
            with pytest.raises(LimpydJobsException) as refusal:
                worker.run()
            refusals.append(refusal)

        Task.add_job("a")
        worker = worker_of(callback=callback)
        worker.run()
        assert len(refusals) == 1

    def test_what_an_application_sees_of_a_job_that_starts(self) -> None:
        """It is not the same as in version 2: docs/upgrading.rst says so."""
        seen: list[Any] = []

        class Watching(Worker):
            def set_status(self, status: str) -> None:
                seen.append(status)
                super().set_status(status)

            def job_started(self, job: Job, queue: Queue) -> None:
                seen.append(job.tries.hget())
                super().job_started(job, queue)

        Task.add_job("a")
        Watching("queue", callback=lambda job, queue: None, max_loops=1, terminate_gracefuly=False).run()
        assert seen == ["starting", "waiting", "running", "1", "terminated"]


class TestOrderOfJobs:
    def test_the_highest_priority_comes_first(self, collector: Collector) -> None:
        for priority in (2, -1, 10, 0, 9):
            Task.add_job(f"{priority}", priority=priority)
        work(callback=collector, max_loops=5)
        assert collector.identifiers == ["10", "9", "2", "0", "-1"]

    def test_of_equal_priorities_the_queue_named_first_comes_first(self, collector: Collector) -> None:
        for name, priority in (("x", 1), ("y", 1), ("x", 2), ("z", 2)):
            Task.add_job(f"{name}{priority}", name, priority=priority)
        worker = work("y,z,x", callback=collector, max_loops=4)
        assert collector.identifiers == ["z2", "x2", "y1", "x1"]
        assert worker.keys == Queue.get_waiting_keys(["y", "z", "x"])

    def test_of_one_queue_the_first_added_comes_first(self, collector: Collector) -> None:
        for name in "abc":
            Task.add_job(name)
        Task.add_job("first of all", prepend=True)
        work(callback=collector, max_loops=4)
        assert collector.identifiers == ["first of all", "a", "b", "c"]

    def test_a_job_of_higher_priority_added_meanwhile_is_next(self, collector: Collector) -> None:
        def callback(job: Job, queue: Queue) -> None:
            collector(job, queue)
            if job.identifier.hget() == "a":
                Task.add_job("urgent", priority=5)

        Queue.get_queue("queue", 5)
        for name in "abc":
            Task.add_job(name)
        work(callback=callback, max_loops=4)
        assert collector.identifiers == ["a", "urgent", "b", "c"]


class TestLimits:
    def test_max_loops_leaves_the_other_jobs_untouched(self, redis_client: redis.Redis, collector: Collector) -> None:
        jobs = [Task.add_job(name) for name in "abcd"]
        worker = work(callback=collector, max_loops=2)
        assert (worker.num_loops, collector.identifiers) == (2, ["a", "b"])
        assert Queue.get_queue("queue").waiting.lmembers() == [job.ident for job in jobs[2:]]
        assert jobs[2].hmget("status", "start", "tries", "_claim_token") == ["w", None, None, None]
        assert violations(redis_client, Task, Queue) == []

    def test_no_loops_is_no_run_at_all(self, log: pytest.LogCaptureFixture) -> None:
        Task.add_job("a")
        worker = work(max_loops=0)
        assert worker.status == "terminated"
        assert [message.split(" (")[0] for message in messages(log)] == ["Run terminated, with 0 loops"]
        assert Queue.get_queue("queue").waiting.llen() == 1

    def test_skipped_delayed_and_failed_jobs_count_as_loops(self) -> None:
        Task.add_job("canceled").status.hset(STATUSES.CANCELED)
        Task.add_job("delayed").status.hset(STATUSES.DELAYED)
        Task.add_job("fails")
        assert work(callback=fail, max_loops=3).num_loops == 3

    def test_waiting_in_vain_and_failed_fetches_count_no_loop(self) -> None:
        outcomes = []

        class Watching(Worker):
            def wait_for_job(self) -> Any:
                try:
                    outcomes.append(super().wait_for_job())
                except Exception as error:
                    outcomes.append(type(error).__name__)
                    raise
                self.end_forced = outcomes[-1] is None
                return outcomes[-1]

        Task.add_job("deleted").delete()
        worker = work(worker_class=Watching, timeout=0.05, max_loops=5)
        assert outcomes == ["DoesNotExist", None]
        assert worker.num_loops == 0

    def test_max_duration_ends_an_idle_worker(self) -> None:
        Queue.get_queue("queue")
        worker = work(max_duration=0.1, timeout=0)
        assert worker.status == "terminated"
        assert worker.end_date is not None
        assert worker.wanted_end_date is not None
        assert worker.end_date >= worker.wanted_end_date

    def test_max_duration_ends_a_worker_that_has_no_queue(self) -> None:
        assert work(max_duration=0.1).status == "terminated"

    def test_max_duration_lets_the_running_job_finish(self, collector: Collector) -> None:
        def callback(job: Job, queue: Queue) -> None:
            collector(job, queue)
            worker.wanted_end_date = utcnow()

        Task.add_job("a")
        Task.add_job("b")
        worker = worker_of(callback=callback, max_loops=2, max_duration=3600)
        worker.run()
        assert collector.identifiers == ["a"]
        assert Task.get(1).status.hget() == STATUSES.SUCCESS
        assert Task.get(2).hmget("status", "tries") == ["w", None]

    @pytest.mark.parametrize("no_limit", [None, 0])
    def test_no_max_duration_is_no_limit(self, no_limit: int | None) -> None:
        Task.add_job("a")
        worker = work(max_duration=no_limit)
        assert (worker.num_loops, worker.wanted_end_date) == (1, None)

    def test_wait_for_job_gives_up_after_the_timeout(self) -> None:
        Queue.get_queue("queue")
        worker = worker_of(timeout=0.05)
        worker.update_keys()
        assert worker.wait_for_job() is None

    def test_wait_for_job_returns_the_queue_and_the_job(self) -> None:
        job = Task.add_job("a", priority=3)
        worker = worker_of()
        worker.update_keys()
        queue, fetched = worker.wait_for_job() or (None, None)
        assert queue == Queue.get_queue("queue", 3)
        assert fetched == job
        assert type(fetched) is Task

    def test_without_a_timeout_it_waits_until_there_is_a_job(self, redis_client: redis.Redis) -> None:
        Queue.get_queue("queue")
        worker = worker_of(timeout=0)
        with waiting_idly(worker, redis_client):
            job = Task.add_job("a")
        assert job.status.hget() == STATUSES.SUCCESS

    def test_end_forced_by_a_job_ends_the_run_after_it(self, collector: Collector) -> None:
        def callback(job: Job, queue: Queue) -> None:
            collector(job, queue)
            worker.end_forced = True

        Task.add_job("a")
        Task.add_job("b")
        worker = worker_of(callback=callback, max_loops=2)
        worker.run()
        assert (collector.identifiers, worker.num_loops, worker.status) == (["a"], 1, "terminated")
        assert Task.get(2).hmget("status", "tries") == ["w", None]

    def test_end_forced_from_elsewhere_ends_an_idle_worker(self, redis_client: redis.Redis) -> None:
        Queue.get_queue("queue")
        worker = worker_of(timeout=0, max_duration=None)
        with waiting_idly(worker, redis_client):
            worker.end_forced = True
        assert worker.status == "terminated"

    def test_end_forced_before_the_run_makes_it_an_empty_one(self, log: pytest.LogCaptureFixture) -> None:
        Task.add_job("a")
        worker = worker_of()
        worker.end_forced = True
        worker.run()
        assert worker.status == "terminated"
        assert [message.split(" (")[0] for message in messages(log)] == ["Run terminated, with 0 loops"]

    def test_must_stop_says_what_ends_the_run(self) -> None:
        worker = worker_of(max_loops=2)
        assert worker.must_stop() is False
        worker.num_loops = 2
        assert worker.must_stop() is True
        worker.num_loops = 0
        worker.end_forced = True
        assert worker.must_stop() is True


class TestQueues:
    def test_a_worker_waits_for_its_first_queue(self, log: pytest.LogCaptureFixture) -> None:
        worker = worker_of()
        with working(worker):
            wait_until(lambda: "No queues yet" in log.text)
            assert worker.status == "starting"
            job = Task.add_job("a")
        assert job.status.hget() == STATUSES.SUCCESS
        assert [message.split(" (")[0] for message in messages(log)] == [
            "No queues yet",
            "Run started.",
            "[queue|1|a] starting",
            f"[queue|1|a] success, in {job.duration}",
            "Run terminated, with 1 loops",
        ]
        assert log.records[0].levelname == "WARNING"

    @pytest.mark.proof
    def test_a_queue_made_by_another_process_is_found(
        self, redis_server: RedisServer, log: pytest.LogCaptureFixture
    ) -> None:
        code = "from limpyd_jobs import Job; Job.add_job('a', 'queue')"
        worker = worker_of()
        with working(worker):
            wait_until(lambda: "No queues yet" in log.text)
            subprocess.run([sys.executable, "-c", code], env=environment(redis_server), check=True)
        assert Job.get(1).status.hget() == STATUSES.SUCCESS

    def test_no_queues_yet_is_said_once_with_those_that_there_are(
        self, redis_server: RedisServer, log: pytest.LogCaptureFixture
    ) -> None:
        Queue.get_queue("another")
        Queue.get_queue("another", 1)
        work(max_duration=1.5, fetch_priorities_delay=0.01)
        database = database_name(parse_database(redis_server.url))
        assert [message for message in messages(log) if message.startswith("No queues yet")] == [
            f"No queues yet (waiting for one named queue in {database}, where there are: another; are --queues and "
            "--database right?)"
        ]
        assert "Run started." not in messages(log)

    def test_a_new_priority_is_noticed_by_an_idle_worker(self, redis_client: redis.Redis) -> None:
        Queue.get_queue("queue")
        with waiting_idly(worker_of(fetch_priorities_delay=0.1, timeout=30), redis_client):
            job = Task.add_job("a", priority=5)
        assert job.status.hget() == STATUSES.SUCCESS

    @pytest.mark.parametrize(
        ("delay", "order"),
        [(0, ["a", "urgent", "b"]), (25, ["a", "b"])],
        ids=["after the delay", "not before"],
    )
    def test_a_new_priority_is_noticed_by_a_busy_worker(
        self, collector: Collector, delay: int, order: list[str]
    ) -> None:
        def callback(job: Job, queue: Queue) -> None:
            collector(job, queue)
            if job.identifier.hget() == "a":
                Task.add_job("urgent", priority=5)

        Task.add_job("a")
        Task.add_job("b")
        work(callback=callback, fetch_priorities_delay=delay, max_loops=len(order))
        assert collector.identifiers == order

    def test_delayed_jobs_that_are_due_at_the_start_are_run(self) -> None:
        job = delayed_and_due(Task, "a")
        work()
        assert job.status.hget() == STATUSES.SUCCESS

    def test_delayed_jobs_are_woken_by_an_idle_worker(self, redis_client: redis.Redis) -> None:
        Queue.get_queue("queue")
        with waiting_idly(worker_of(fetch_delayed_delay=0.1, timeout=30), redis_client):
            job = Task.add_job("a", delayed_for=0.2)
            assert job.status.hget() == STATUSES.DELAYED
        assert job.status.hget() == STATUSES.SUCCESS

    @pytest.mark.parametrize(
        ("delay", "status"),
        [(0, STATUSES.WAITING), (25, STATUSES.DELAYED)],
        ids=["after the delay", "not before"],
    )
    def test_delayed_jobs_are_woken_by_a_busy_worker(self, delay: int, status: str) -> None:
        def callback(job: Job, queue: Queue) -> None:
            if job.identifier.hget() == "a":
                delayed_and_due(Task, "due")

        Task.add_job("a")
        Task.add_job("b")
        work(callback=callback, fetch_delayed_delay=delay, max_loops=2)
        assert Task.get(identifier="due").status.hget() == status

    def test_delayed_jobs_that_are_not_due_stay(self, redis_client: redis.Redis) -> None:
        job = Task.add_job("a", delayed_for=3600)
        worker = work(max_duration=0.1)
        assert worker.num_loops == 0
        assert job.status.hget() == STATUSES.DELAYED
        assert violations(redis_client, Task, Queue) == []

    @pytest.mark.parametrize("option", ["fetch_priorities_delay", "fetch_delayed_delay"])
    def test_an_idle_worker_without_a_delay_between_its_rounds_does_not_spin(
        self, redis_client: redis.Redis, option: str
    ) -> None:
        Queue.get_queue("queue")
        worker = worker_of(**{option: 0}, timeout=1, max_duration=0.5)
        assert scripts_during(worker.run, redis_client) < 200  # in at most 12 rounds; without a rest, thousands


def scripts_during(action: Callable[[], object], client: redis.Redis) -> int:
    """Return how many scripts the server ran during an action: how often a worker asked it for something."""
    client.config_resetstat()
    action()
    return sum(client.info("commandstats").get(f"cmdstat_{name}", {}).get("calls", 0) for name in ("eval", "evalsha"))


def environment(server: RedisServer) -> dict[str, str]:
    """Return the environment of a program that uses this package, these tests and a server."""
    here = Path(__file__).resolve()
    path = os.pathsep.join([str(here.parents[2]), str(here.parents[1]), str(here.parent)])
    return {**os.environ, "PYTHONPATH": path, "PYTHONWARNINGS": "ignore", "LIMPYD_JOBS_DATABASE": server.url}


class TestSignals:
    @pytest.fixture(autouse=True)
    def _same_handlers_afterwards(self) -> Iterator[None]:
        before = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)}
        yield
        for number, handler in before.items():
            signal.signal(number, handler)

    @pytest.mark.parametrize(("number", "times"), [(signal.SIGINT, 1), (signal.SIGTERM, 1), (signal.SIGTERM, 2)])
    def test_the_running_job_is_finished_then_the_worker_ends(
        self, log: pytest.LogCaptureFixture, number: signal.Signals, times: int
    ) -> None:
        def callback(job: Job, queue: Queue) -> None:
            for _ in range(times):
                signal.raise_signal(number)
            seen.append((worker.end_signal_caught, worker.end_forced, worker.status))

        seen: list[tuple[bool, bool, str | None]] = []
        Task.add_job("a")
        Task.add_job("b")
        worker = worker_of(callback=callback, max_loops=2, terminate_gracefuly=True)
        worker.run()
        assert seen == [(True, True, "running")]
        assert Task.get(1).status.hget() == STATUSES.SUCCESS
        assert Task.get(2).hmget("status", "tries") == ["w", None]
        assert (worker.num_loops, worker.status) == (1, "terminated")
        assert sum(message.startswith(number.name) for message in messages(log)) == 1

    @pytest.mark.matrix(1)
    @pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
    def test_an_idle_worker_ends_in_good_order(
        self, redis_server: RedisServer, redis_client: redis.Redis, number: signal.Signals
    ) -> None:
        code = (
            "from limpyd_jobs import Queue, Worker; Queue.get_queue('queue')\n"
            "worker = Worker('queue', timeout=0); worker.run()\n"
            "print(worker.status, worker.end_signal_caught, worker.num_loops)"
        )
        command = [sys.executable, "-c", code]
        with subprocess.Popen(command, env=environment(redis_server), stdout=subprocess.PIPE, text=True) as process:
            wait_until(lambda: redis_client.info("clients")["blocked_clients"])
            process.send_signal(number)
            output, _ = process.communicate(timeout=20)
        assert output == "terminated True 0\n"
        assert process.returncode == 0

    @pytest.mark.proof
    def test_a_second_signal_does_not_end_the_running_job(
        self, redis_server: RedisServer, redis_client: redis.Redis
    ) -> None:
        code = (
            "from limpyd_jobs import Job, Worker\n"
            "def callback(job, queue):\n"
            "    job.connection.set('runs', 1)\n"
            "    job.connection.blpop('go on', 20)\n"
            "Job.add_job('a', 'queue'); Job.add_job('b', 'queue')\n"
            "worker = Worker('queue', callback=callback, timeout=1); worker.run()\n"
            "print(worker.status, worker.end_signal_caught, worker.num_loops)"
        )
        command = [sys.executable, "-c", code]
        with subprocess.Popen(command, env=environment(redis_server), stdout=subprocess.PIPE, text=True) as process:
            wait_until(lambda: redis_client.get("runs"))
            process.send_signal(signal.SIGTERM)
            process.send_signal(signal.SIGINT)
            process.send_signal(signal.SIGTERM)
            redis_client.rpush("go on", "now")
            output, _ = process.communicate(timeout=20)
        assert output == "terminated True 1\n"
        assert [Job.get(pk).status.hget() for pk in (1, 2)] == [STATUSES.SUCCESS, STATUSES.WAITING]

    def test_the_handlers_are_given_back_after_the_run(self) -> None:
        of_interrupt = signal.getsignal(signal.SIGINT)
        for handler in (signal.SIG_IGN, signal.SIG_DFL, lambda *_: None):
            signal.signal(signal.SIGTERM, handler)
            Task.add_job("a")
            worker = worker_of(terminate_gracefuly=True)
            assert signal.getsignal(signal.SIGTERM) == worker.catch_end_signal
            assert signal.getsignal(signal.SIGINT) == worker.catch_end_signal
            worker.run()
            assert signal.getsignal(signal.SIGTERM) is handler
            assert signal.getsignal(signal.SIGINT) == of_interrupt

    def test_the_handlers_are_given_back_when_the_run_is_broken_off(self) -> None:
        before = signal.getsignal(signal.SIGTERM)
        Task.add_job("a")
        worker = worker_of(callback=lambda *_: sys.exit(), terminate_gracefuly=True)
        with pytest.raises(SystemExit):
            worker.run()
        assert signal.getsignal(signal.SIGTERM) == before

    def test_the_end_of_one_worker_leaves_the_next_one_its_handlers(self) -> None:
        first = worker_of(terminate_gracefuly=True)
        second = worker_of(terminate_gracefuly=True)
        Task.add_job("a")
        first.run()
        assert signal.getsignal(signal.SIGTERM) == second.catch_end_signal

    def test_without_grace_signals_are_left_alone(self) -> None:
        before = signal.getsignal(signal.SIGTERM)
        worker_of(terminate_gracefuly=False)
        assert signal.getsignal(signal.SIGTERM) == before

    def test_more_signals_may_be_handled(self) -> None:
        class Listening(Worker):
            def handle_end_signal(self) -> None:
                super().handle_end_signal()
                signal.signal(signal.SIGUSR1, self.catch_end_signal)

        def callback(job: Job, queue: Queue) -> None:
            signal.raise_signal(signal.SIGUSR1)

        Task.add_job("a")
        Task.add_job("b")
        before = signal.getsignal(signal.SIGUSR1)
        try:
            worker = work(worker_class=Listening, callback=callback, max_loops=2, terminate_gracefuly=True)
        finally:
            signal.signal(signal.SIGUSR1, before)
        assert (worker.num_loops, worker.end_signal_caught) == (1, True)

    def test_a_worker_runs_in_any_thread(self) -> None:
        outcomes: list[Any] = []

        def run() -> None:
            try:
                outcomes.append(work(terminate_gracefuly=True).status)
            except BaseException as error:
                outcomes.append(error)

        before = signal.getsignal(signal.SIGTERM)
        Task.add_job("a")
        thread = threading.Thread(target=run)
        thread.start()
        thread.join()
        assert outcomes == ["terminated"]
        assert signal.getsignal(signal.SIGTERM) == before

    def test_a_worker_of_the_main_thread_may_run_in_another_one(self) -> None:
        before = signal.getsignal(signal.SIGTERM)
        Task.add_job("a")
        worker = worker_of(terminate_gracefuly=True, max_loops=1)
        outcomes: list[Any] = []
        thread = threading.Thread(target=lambda: outcomes.append(worker.run()))
        thread.start()
        thread.join()
        assert (outcomes, worker.status) == ([None], "terminated")
        worker.stop_handling_end_signal()
        assert signal.getsignal(signal.SIGTERM) == before

    def test_catch_end_signal_may_be_called_by_hand(self) -> None:
        worker = worker_of()
        worker.catch_end_signal(signal.SIGTERM, None)
        assert (worker.end_signal_caught, worker.end_forced, worker.must_stop()) == (True, True, True)


class TestNextJobOfAWorkerThatStops:
    """To end a job and to fetch the next one is one step, so a worker may have to stop with a job in its hand."""

    @pytest.fixture
    def jobs(self) -> list[Task]:
        return [Task.add_job(name) for name in "abc"]

    @staticmethod
    def given_back(jobs: list[Task]) -> bool:
        assert Queue.get_queue("queue").waiting.lmembers() == [job.ident for job in jobs[1:]]
        assert jobs[1].hmget("status", "queued", "start", "tries") == ["w", "1", None, None]
        return True

    def test_it_is_given_back_if_the_end_is_forced_in_a_message(
        self, redis_client: redis.Redis, jobs: list[Task]
    ) -> None:
        class Stopping(Worker):
            def job_success_message(self, job: Job, queue: Queue, job_result: Any) -> str:
                self.end_forced = True
                return super().job_success_message(job, queue, job_result)

        worker = work(worker_class=Stopping, max_loops=3)
        assert worker.num_loops == 1
        assert self.given_back(jobs)
        assert violations(redis_client, Task, Queue) == []

    def test_it_is_given_back_if_a_message_breaks_the_run_off(
        self, redis_client: redis.Redis, jobs: list[Task]
    ) -> None:
        class Exiting(Worker):
            def job_success_message(self, job: Job, queue: Queue, job_result: Any) -> str:
                raise SystemExit

        with pytest.raises(SystemExit):
            work(worker_class=Exiting, max_loops=3)
        assert self.given_back(jobs)
        assert violations(redis_client, Task, Queue) == []

    def test_it_is_run_by_the_next_worker(self, collector: Collector, jobs: list[Task]) -> None:
        class Stopping(Worker):
            def job_success_message(self, job: Job, queue: Queue, job_result: Any) -> str:
                self.end_forced = True
                return "enough"

        for _ in jobs:
            work(worker_class=Stopping, callback=collector, max_loops=3)
        assert collector.identifiers == ["a", "b", "c"]
        assert [job.tries.hget() for job in jobs] == ["1", "1", "1"]

    def test_it_is_run_if_the_message_of_the_job_before_raises(
        self, redis_client: redis.Redis, jobs: list[Task]
    ) -> None:
        class Mute(Worker):
            def job_success_message(self, job: Job, queue: Queue, job_result: Any) -> str:
                raise ValueError("no words")

        worker = work(worker_class=Mute, max_loops=3)
        assert worker.num_loops == 3
        assert [job.hmget("status", "tries") for job in jobs] == [["s", "1"]] * 3
        assert violations(redis_client, Task, Queue) == []

    def test_it_is_run_if_the_one_before_failed(self, redis_client: redis.Redis, jobs: list[Task]) -> None:
        work(callback=fail, max_loops=3)
        assert [job.hmget("status", "tries") for job in jobs] == [["e", "1"]] * 3
        assert violations(redis_client, Task, Queue) == []


class TestOverriddenRounds:
    def test_update_keys_without_super_decides_alone(self, redis_client: redis.Redis, collector: Collector) -> None:
        class OneQueue(Worker):
            def update_keys(self) -> None:
                self.keys = [Queue.get_queue("queue", 1).waiting.key]

        Task.add_job("urgent", priority=5)
        Task.add_job("a", priority=1)
        worker = worker_of(worker_class=OneQueue, callback=collector, max_loops=2, max_duration=0.5)
        assert scripts_during(worker.run, redis_client) < 200  # in at most 12 rounds; without a rest, thousands
        assert collector.identifiers == ["a"]

    def test_requeue_delayed_jobs_that_fails_at_the_start_keeps_no_process_from_work(self, log: Any) -> None:
        class Failing(Worker):
            def requeue_delayed_jobs(self) -> None:
                raise KeyError("on purpose")

        job = Task.add_job("a")
        work(worker_class=Failing)
        assert job.status.hget() == STATUSES.SUCCESS
        assert any("requeue_delayed_jobs failed: KeyError: 'on purpose'" in message for message in messages(log))

    def test_requeue_delayed_jobs_without_super_leaves_them(
        self, redis_client: redis.Redis, collector: Collector
    ) -> None:
        class Lazy(Worker):
            def requeue_delayed_jobs(self) -> None:
                pass

        delayed_and_due(Task, "delayed")
        Task.add_job("a")
        worker = worker_of(worker_class=Lazy, callback=collector, max_loops=2, max_duration=0.5)
        assert scripts_during(worker.run, redis_client) < 200  # in at most 12 rounds; without a rest, thousands
        assert collector.identifiers == ["a"]

    def test_rounds_may_be_called_by_hand(self) -> None:
        job = delayed_and_due(Task, "a")
        worker = worker_of()
        assert worker.keys == []
        worker.update_keys()
        assert worker.keys == Queue.get_waiting_keys("queue")
        worker.requeue_delayed_jobs()
        assert job.status.hget() == STATUSES.WAITING
        assert (worker.count_waiting_jobs(), worker.count_delayed_jobs()) == (1, 0)
