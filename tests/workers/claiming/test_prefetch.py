"""A worker that claims several jobs at once, runs them one after the other, and records their ends together."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import redis
from all_scripts import ALL_SCRIPTS
from invariants import violations
from parts import with_part
from running import Collector, messages, waiting_idly, work, worker_of, working
from servers import RedisServer, refuse_all, refuse_nothing, wait_until

from limpyd_jobs import STATUSES, Cancel, Error, Job, Queue, Requeue, Worker, transitions
from limpyd_jobs.dates import parse_datetime
from limpyd_jobs.models import job_classes
from limpyd_jobs.workers import backoff
from limpyd_jobs.workers.claiming.leases import Leases
from limpyd_jobs.workers.claiming.stock import Stock
from limpyd_jobs.workers.running import endings
from limpyd_jobs.workers.running.endings import Endings

pytestmark = pytest.mark.usefixtures("redis_client")

Log = pytest.LogCaptureFixture
REFUSED = "Unable to record how a job went"
Recorder = Callable[[], AbstractContextManager[Any]]

VERBS = ("claim", "succeed", "succeed_many", "fail", "cancel", "delay", "release")
SCRIPTS = {script.sha: script.name for script in ALL_SCRIPTS}
PATH = os.pathsep.join(str(path) for path in Path(__file__).parents[:3])


class Task(Job):
    namespace = "prefetch"
    queue_name = "queue"

    def run(self, queue: Queue) -> str:
        return "done"


class Told(Task):
    namespace = "prefetch-told"
    told: list[Any] = []

    def on_success(self, queue: Queue, result: Any) -> None:
        self.told.append((self.status.hget(), result))


class TellsError(Task):
    namespace = "prefetch-tells-error"

    def on_error(self, queue: Queue, exception: Exception, trace: str | None) -> None: ...


MODELS = (Task, Told, TellsError, Queue, Error)


@pytest.fixture(autouse=True)
def _classes_are_known() -> None:
    for job_class in (Task, Told, TellsError):
        job_classes.resolve(job_class.get_model_repr())


@pytest.fixture(autouse=True)
def _invariants(redis_client: redis.Redis) -> Any:
    yield
    assert violations(redis_client, *MODELS) == []


@pytest.fixture
def patient(monkeypatch: pytest.MonkeyPatch) -> None:
    """No end is recorded but with others, however slow this machine is."""
    monkeypatch.setattr(endings, "MAX_ACK_DELAY", 3600)


def add(number: int, job_class: type[Task] = Task) -> list[str]:
    identifiers = [f"{each:03d}" for each in range(number)]
    job_class.add_jobs(identifiers)
    return identifiers


def prefetching(
    number: int, prefetch: int | str = 10, queues: Any = "queue", worker_class: type[Worker] = Worker, **options: Any
) -> Worker:
    """A worker of some jobs."""
    return worker_of(queues, worker_class, **{"max_loops": number, "prefetch": prefetch, "callback": None, **options})


def queue() -> Queue:
    return Queue.get_queue("queue")


def waiting() -> list[str]:
    return [Job.get_from_ident(ident).identifier.hget() for ident in queue().waiting.lmembers()]


def statuses() -> list[str]:
    jobs = sorted(Task.collection().instances(), key=lambda job: str(job.identifier.hget()))
    return [job.status.hget() for job in jobs]


def statuses_in_one_word() -> str:
    return "".join(statuses())


def sent_by(action: Callable[[], Any], commands: Recorder) -> list[str]:
    """The scripts that a worker runs for its jobs."""
    with commands() as sent:
        action()
    names = [SCRIPTS.get(command.split(" ")[1], "") for command in sent if command.startswith("EVALSHA ")]
    return [
        name for name in names if name in ("claim", "succeed", "succeed_many", "fail", "cancel", "delay", "release")
    ]


class TestWhatIsRun:
    @pytest.mark.parametrize("prefetch", [2, 3, 10, 1000, "auto"])
    def test_are_all_jobs_once_in_their_order(self, redis_client: redis.Redis, prefetch: int | str) -> None:
        identifiers, collector = add(25), Collector()
        prefetching(25, prefetch, callback=collector).run()
        assert collector.identifiers == identifiers
        assert set(statuses()) == {STATUSES.SUCCESS}
        assert [job.identifier.hget() for job in map(Job.get_from_ident, queue().success.lmembers())] == identifiers

    def test_priorities_are_respected_between_batches(self) -> None:
        Task.add_jobs(["1", "2", "3", "4", "5"])
        ran: list[str] = []

        def callback(job: Job, queue: Queue) -> None:
            ran.append(job.identifier.hget())
            if len(ran) == 2:
                Task.add_job("urgent", priority=9)

        Queue.get_queue("queue", 9)
        prefetching(6, 2, callback=callback).run()
        assert ran == ["1", "2", "3", "urgent", "4", "5"]

    def test_are_no_more_than_max_loops(self) -> None:
        add(25)
        worker = prefetching(7)
        worker.run()
        assert worker.num_loops == 7
        assert statuses_in_one_word() == "s" * 7 + "w" * 18
        assert {job.tries.hget() for job in Task.collection().instances()} == {"1", None}

    def test_are_jobs_that_come_while_it_waits(self, redis_client: redis.Redis) -> None:
        queue()
        with waiting_idly(prefetching(20, max_duration=60), redis_client):
            add(20)
        assert statuses_in_one_word() == "s" * 20

    @pytest.mark.usefixtures("patient")
    def test_is_followed_by_what_was_added_meanwhile(self) -> None:
        add(3)
        prefetching(4, callback=lambda job, queue: Task.add_job("last")).run()
        assert statuses_in_one_word() == "ssss"


class TestRoundTrips:
    @pytest.mark.usefixtures("patient")
    def test_are_one_for_each_batch(self, commands: Recorder) -> None:
        add(101)
        sent = sent_by(prefetching(101, 20).run, commands)
        assert sent == ["claim", *6 * ["succeed_many"]]

    @pytest.mark.usefixtures("patient")
    def test_are_one_more_for_each_job_that_fails(self, commands: Recorder) -> None:
        add(41)

        def callback(job: Job, queue: Queue) -> None:
            if job._cached_identifier == "010":
                raise ValueError("it fails")

        sent = sent_by(prefetching(41, 20, callback=callback).run, commands)
        assert sent == ["claim", "succeed_many", "fail", "succeed_many", "succeed_many"]
        assert statuses_in_one_word() == "s" * 10 + "e" + "s" * 30

    @pytest.mark.parametrize("prefetch", [10, "auto"])
    @pytest.mark.parametrize("method", ["job_success", "must_stop", "wait_for_job"])
    def test_are_as_ever_for_a_worker_with_a_say_in_it(
        self, commands: Recorder, method: str, prefetch: int | str
    ) -> None:
        def overridden(self: Worker, *args: Any) -> Any:
            return getattr(Worker, method)(self, *args)

        add(5)
        worker_class = type("Own", (Worker,), {method: overridden})
        sent = sent_by(prefetching(5, prefetch, worker_class=worker_class).run, commands)
        assert "succeed_many" not in sent
        assert sent.count("succeed") == 5

    def test_are_as_ever_for_a_job_that_is_told_of_its_success(self, commands: Recorder) -> None:
        Told.told.clear()
        add(5, Told)
        sent = sent_by(prefetching(5).run, commands)
        assert sent.count("succeed") == 5
        assert Told.told == [("s", "done")] * 5

    def test_are_as_ever_without_the_parameter(self, commands: Recorder) -> None:
        add(3)
        assert sent_by(lambda: work(callback=None, max_loops=3), commands) == ["claim", *3 * ["succeed"]]


class TestWhatIsRecorded:
    @pytest.mark.usefixtures("patient")
    def test_is_how_long_each_job_ran_itself(self, log: Log) -> None:
        add(4)
        ticks = threading.Event()
        prefetching(4, callback=lambda *_: ticks.wait(0.05)).run()
        jobs = [Task.get(identifier=f"{number:03d}") for number in range(4)]
        dates = [parse_datetime(text) for job in jobs for text in (job.start.hget(), job.end.hget())]
        assert dates[2:] == sorted(dates[2:])  # type: ignore[type-var]
        assert all(job.duration.total_seconds() >= 0.05 for job in jobs)
        logged = [message for message in messages(log) if "success" in message]
        assert logged == [f"[queue|{job.pk.get()}|{job.identifier.hget()}] success, in {job.duration}" for job in jobs]

    @pytest.mark.usefixtures("patient")
    @pytest.mark.parametrize("job_class", [Task, TellsError])
    def test_is_so_for_jobs_that_fail(self, job_class: type[Task]) -> None:
        add(4, job_class)
        ticks = threading.Event()

        def callback(job: Job, queue: Queue) -> None:
            ticks.wait(0.05)
            raise ValueError("it fails")

        def fail_but_the_first(job: Job, queue: Queue) -> None:
            if job._cached_identifier != "000":
                callback(job, queue)

        prefetching(4, callback=fail_but_the_first).run()
        jobs = [job_class.get(identifier=f"{number:03d}") for number in range(1, 4)]
        assert [job.status.hget() for job in jobs] == ["e", "e", "e"]
        dates = [parse_datetime(text) for job in jobs for text in (job.start.hget(), job.end.hget())]
        assert dates == sorted(dates)  # type: ignore[type-var]

    def test_is_logged_for_each_job_in_the_usual_order(self, log: Log) -> None:
        add(5)
        prefetching(5).run()
        for number in range(5):
            (_, start), (_, end) = [
                (at, line.split("] ")[1]) for at, line in enumerate(messages(log)) if f"|{number:03d}]" in line
            ]
            assert (start, end[:11]) == ("starting", "success, in")

    @pytest.mark.usefixtures("patient")
    def test_is_what_other_jobs_of_the_batch_came_to(self, log: Log) -> None:
        add(8)

        def callback(job: Job, queue: Queue) -> None:
            what = job._cached_identifier
            if what == "002":
                raise ValueError("it fails")
            if what == "003":
                raise Requeue(delayed_for=1000)
            if what == "004":
                raise Cancel("no more")
            if what == "005":
                job.status.hset(STATUSES.CANCELED)
            if what == "006":
                job.status.hset(STATUSES.DELAYED)

        prefetching(8, callback=callback).run()
        assert statuses_in_one_word() == "ssedccds"
        assert len([line for line in messages(log) if "job skipped (current status: CANCELED)" in line]) == 2
        assert len([line for line in messages(log) if "success, in" in line]) == 3

    @pytest.mark.usefixtures("patient")
    def test_is_nothing_if_the_claim_was_lost_which_is_logged(self, log: Log, redis_client: redis.Redis) -> None:
        add(5)

        def callback(job: Job, queue: Queue) -> None:
            if job._cached_identifier == "002":
                redis_client.hset(f"{Task._name}:{job.pk.get()}:hash", "_claim_token", "another's")

        prefetching(5, callback=callback).run()
        assert statuses_in_one_word() == "ssrss"
        lost = [message for message in messages(log) if "is lost" in message]
        assert len(lost) == 1
        assert lost[0].startswith("[002] The claim on ")

    @pytest.mark.usefixtures("patient")
    def test_is_everything_else_if_a_record_is_broken(self, log: Log, redis_client: redis.Redis) -> None:
        add(5)
        stored = {}

        def callback(job: Job, queue: Queue) -> None:
            if job._cached_identifier == "002":
                key = f"{Task._name}:{job.pk.get()}:hash"
                stored.update({key: redis_client.hgetall(key)})
                redis_client.delete(key)
                redis_client.set(key, "none")

        prefetching(5, callback=callback).run()
        for key, fields in stored.items():
            redis_client.delete(key)
            redis_client.hset(key, mapping=fields)
        assert statuses_in_one_word() == "ssrss"
        assert len([line for line in messages(log) if "is not recorded" in line]) == 1

    def test_is_recorded_at_once_if_it_took_long(self, redis_client: redis.Redis) -> None:
        add(3)
        seen = []

        def callback(job: Job, queue: Queue) -> None:
            seen.append(statuses_in_one_word())
            threading.Event().wait(2 * endings.MAX_ACK_DELAY)

        prefetching(3, callback=callback).run()
        assert seen == ["rww", "srr", "ssr"]

    def test_is_recorded_by_a_thread_while_the_next_job_takes_long(self) -> None:
        add(4)
        seen: list[bool] = []

        def callback(job: Job, queue: Queue) -> None:
            if job._cached_identifier == "003":
                wait_until(lambda: statuses_in_one_word() == "sssr", "the end of the jobs before")
                seen.append(True)

        prefetching(4, callback=callback).run()
        assert seen == [True]
        assert statuses_in_one_word() == "ssss"

    def test_is_recorded_before_it_waits(self) -> None:
        add(3)
        worker = prefetching(5, max_duration=60)
        with working(worker):
            wait_until(lambda: statuses_in_one_word() == "sss", "the end of all jobs")
            worker.end_forced = True

    @pytest.mark.usefixtures("patient")
    def test_is_recorded_again_and_again_until_redis_takes_it(
        self, redis_client: redis.Redis, monkeypatch: pytest.MonkeyPatch, log: Log
    ) -> None:
        monkeypatch.setattr(backoff, "FIRST_PAUSE", 0.01)
        add(5)

        def callback(job: Job, queue: Queue) -> None:
            if job._cached_identifier == "004":
                refuse_all(redis_client)

        with working(prefetching(5, callback=callback)):
            wait_until(lambda: any(REFUSED in line for line in messages(log)), "a refusal")
            refuse_nothing(redis_client)
        assert statuses_in_one_word() == "sssss"


class TestAuto:
    """Batches find their size, and what waits for too long is given back."""

    @pytest.mark.usefixtures("patient")
    def test_claims_more_and_more_short_jobs_at_once(self, commands: Recorder) -> None:
        add(1 + 2 + 4 + 8 + 16 + 32 + 10)
        sent = sent_by(prefetching(73, "auto", prefetch_time=3600).run, commands)
        assert sent == ["claim", *7 * ["succeed_many"]]

    def test_claims_long_jobs_one_by_one(self, commands: Recorder) -> None:
        add(5)
        ticks = threading.Event()
        worker = prefetching(5, "auto", prefetch_time=0.001, callback=lambda *_: ticks.wait(0.005))
        assert sent_by(worker.run, commands) == ["claim", *5 * ["succeed"]]

    @pytest.mark.parametrize("is_left_to_the_worker", [False, True])
    def test_gives_back_what_waits_for_too_long_so_that_a_higher_priority_comes_first(
        self, monkeypatch: pytest.MonkeyPatch, commands: Recorder, is_left_to_the_worker: bool
    ) -> None:
        identifiers, ran = add(20), list[str]()
        Queue.get_queue("queue", 9)
        if is_left_to_the_worker:
            monkeypatch.setattr(Endings, "_look_meanwhile", lambda _: None)

        def callback(job: Job, queue: Queue) -> None:
            ran.append(job._cached_identifier)
            if len(ran) == 10:
                if is_left_to_the_worker:
                    wait_until(lambda: prefetched.are_late, "the bound")
                else:
                    wait_until(lambda: statuses_in_one_word() == "s" * 9 + "r" + "w" * 10, "all others in their list")
                    assert waiting() == identifiers[10:]
                Task.add_job("urgent", priority=9)

        options = {"prefetch_time": 0.5, "callback": callback}
        worker, prefetched = with_part(Stock, lambda: prefetching(21, "auto", **options))
        assert "release" in sent_by(worker.run, commands)
        assert ran == [*identifiers[:10], "urgent", *identifiers[10:]]
        assert {job.tries.hget() for job in Task.collection().instances()} == {"1"}

    def test_lets_others_run_what_it_gave_back(self) -> None:
        add(20)
        at_the_tenth = threading.Event()

        def callback(job: Job, queue: Queue) -> None:
            if job._cached_identifier == "009":
                at_the_tenth.set()
                wait_until(lambda: statuses_in_one_word() == "s" * 9 + "r" + "s" * 10, "the end of all others")

        with working(prefetching(10, "auto", prefetch_time=0.2, callback=callback)):
            at_the_tenth.wait()
            prefetching(10, "auto").run()
        assert statuses_in_one_word() == "s" * 20

    def test_gives_back_again_and_again_until_redis_takes_it(
        self, redis_client: redis.Redis, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(backoff, "FIRST_PAUSE", 0.01)
        monkeypatch.setattr(endings, "RETRY_AFTER", 0.01)
        add(20)

        def callback(job: Job, queue: Queue) -> None:
            if job._cached_identifier == "009":
                refuse_all(redis_client)
                wait_until(lambda: prefetched.releasing, "jobs on their way back")
                refuse_nothing(redis_client)
                wait_until(lambda: statuses_in_one_word() == "s" * 9 + "r" + "w" * 10, "all others in their list")

        worker, prefetched = with_part(Stock, lambda: prefetching(20, "auto", prefetch_time=0.5, callback=callback))
        worker.run()
        assert statuses_in_one_word() == "s" * 20

    def test_says_a_few_times_only_that_it_cannot_give_jobs_back_which_are_rescued(
        self, redis_client: redis.Redis, log: Log
    ) -> None:
        add(40)
        told: list[str] = []

        def callback(job: Job, queue: Queue) -> None:
            if not told and queue.running.zcard() > 4:  # with this one
                redis_client.rename(queue.waiting.key, "aside")
                redis_client.set(queue.waiting.key, "none")
                wait_until(lambda: any("more like it" in line for line in messages(log)), "the sum")
                told.extend(line for line in messages(log) if "Unable to give a job back" in line)
                redis_client.delete(queue.waiting.key)
                redis_client.rename("aside", queue.waiting.key)

        prefetching(40, "auto", prefetch_time=0.5, lease=1, callback=callback, max_duration=60).run()
        assert len(told) == 4
        assert statuses_in_one_word() == "s" * 40
        assert {job.tries.hget() for job in Task.collection().instances()} == {"1"}

    @pytest.mark.usefixtures("patient")
    def test_gives_up_after_one_lease_all_in_all_if_it_has_to_end_while_redis_refuses(
        self, redis_client: redis.Redis, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(backoff, "FIRST_PAUSE", 0.01)
        add(20)
        asked: list[str] = []

        def counted(name: str) -> Callable[..., Any]:
            function = getattr(transitions, name)

            def count(*args: Any) -> Any:
                if asked and not threading.current_thread().name.startswith("limpyd-jobs"):
                    worker.end_forced = len(asked) > 2
                    asked.append(name)
                return function(*args)

            return count

        def callback(job: Job, queue: Queue) -> None:
            if job._cached_identifier == "009":
                refuse_all(redis_client)
                wait_until(lambda: prefetched.releasing, "jobs on their way back")
                asked.append("refusals")

        for name in ("succeed_many", "release_all"):
            monkeypatch.setattr(transitions, name, counted(name))
        options = {"prefetch_time": 0.5, "lease": 0.5, "callback": callback}
        worker, prefetched = with_part(Stock, lambda: prefetching(20, "auto", **options))
        with working(worker):
            wait_until(lambda: worker.status == "terminated", "the end")
            refuse_nothing(redis_client)
        assert [name for name in asked if name != "release_all"] == ["refusals", "succeed_many"]
        assert asked[-1] == "release_all"

    def test_does_not_take_what_it_gives_back_for_lost(
        self, monkeypatch: pytest.MonkeyPatch, log: Log, redis_client: redis.Redis
    ) -> None:
        add(20)
        renew_all = transitions.renew_all

        def callback(job: Job, queue: Queue) -> None:
            if job._cached_identifier == "009":
                leases.renew(redis_client)

        def renew_once_another_has_one(*args: Any) -> list[str]:
            assert leases.stock.release() == []
            with Task.get(identifier="010").claim(owner="another"):
                return renew_all(*args)

        monkeypatch.setattr(transitions, "renew_all", renew_once_another_has_one)
        worker, leases = with_part(Leases, lambda: prefetching(19, "auto", prefetch_time=3600, callback=callback))
        worker.run()
        assert statuses_in_one_word() == "s" * 20
        assert leases.stock._outcomes == {}
        assert "lost" not in log.text

    @pytest.mark.usefixtures("patient")
    def test_gives_back_at_the_end_of_the_worker(self) -> None:
        identifiers = add(20)

        def callback(job: Job, queue: Queue) -> None:
            worker.end_forced = job._cached_identifier == "009"

        worker = prefetching(100, "auto", prefetch_time=3600, callback=callback)
        worker.run()
        assert statuses_in_one_word() == "s" * 10 + "w" * 10
        assert waiting() == identifiers[10:]

    def test_counts_the_rescue_of_a_job_that_was_claimed_alone(self) -> None:
        """With the size of a batch that has become one, in the step that records a batch, too."""
        add(2)
        request = transitions.ClaimRequest(Queue.get_waiting_keys("queue"), "token", 60, job_classes.known)
        claimed = transitions.succeed_many(queue().get_connection(), [], request, 1)[1]
        assert [delivery.token for delivery in claimed] == ["token"]
        again = replace(request, is_again=True)
        assert transitions.succeed_many(queue().get_connection(), [], again, 1)[1] == claimed


class TestTheEndOfTheWorker:
    @pytest.mark.usefixtures("patient")
    def test_gives_back_what_was_not_run_in_its_order(self) -> None:
        identifiers = add(20)

        def callback(job: Job, queue: Queue) -> None:
            worker.end_forced = job._cached_identifier == "004"

        worker = prefetching(100, callback=callback)
        worker.run()
        assert statuses_in_one_word() == "s" * 5 + "w" * 15
        assert waiting() == identifiers[5:]
        assert {job.tries.hget() for job in Task.collection(status="w").instances()} == {None}

    @pytest.mark.usefixtures("patient")
    @pytest.mark.parametrize(
        ("raises", "error"),
        [(sys.exit, SystemExit), (partial(signal.raise_signal, signal.SIGINT), KeyboardInterrupt)],
    )
    def test_by_an_exception_leaves_nothing_in_its_hands(
        self, raises: Callable[[], Any], error: type[BaseException]
    ) -> None:
        add(10)

        def callback(job: Job, queue: Queue) -> None:
            if job._cached_identifier == "003":
                raises()

        with pytest.raises(error):
            prefetching(100, callback=callback).run()
        assert statuses_in_one_word() in ("sssewwwwww", "ssswwwwwww")

    @pytest.mark.usefixtures("patient")
    def test_because_its_time_is_over_gives_back_the_rest(self) -> None:
        add(10)
        worker = prefetching(100, max_duration=0.5, callback=lambda *_: threading.Event().wait(0.3))
        worker.run()
        assert statuses_in_one_word().strip("w").strip("s") == ""
        assert queue().running.zcard() == 0
        assert worker.num_loops < 5


@pytest.mark.proof
class TestADeadWorker:
    """All that it had claimed is run, by others, once the leases lapsed; what was not recorded is run again."""

    def kill_one(self, server: RedisServer, die_at: str, prefetch: int = 10) -> None:
        program = f"""
import os, signal, sys
from limpyd_jobs import Worker
from limpyd_jobs.models import BaseJobsModel
from test_prefetch import Task
from limpyd_jobs.workers.running import endings
endings.MAX_ACK_DELAY = 3600
def callback(job, queue):
    if job._cached_identifier == {die_at!r}:
        os.kill(os.getpid(), signal.SIGKILL)
BaseJobsModel.database.connect(unix_socket_path={server.socket!r}, db=0)
Worker("queue", prefetch={prefetch}, max_rescues=0, callback=callback, max_loops=100, max_duration=60).run()
"""
        environment = {**os.environ, "PYTHONPATH": PATH}
        done = subprocess.run([sys.executable, "-c", program], env=environment, check=False)
        assert done.returncode == -signal.SIGKILL

    def lapse(self) -> None:
        for ident in queue().running.zmembers():
            queue().running.zadd({ident: 1})

    def test_loses_nothing(self, redis_server: RedisServer) -> None:
        identifiers, collector = add(25), Collector()
        self.kill_one(redis_server, "015")
        assert statuses_in_one_word() == "s" * 11 + "r" * 10 + "w" * 4
        self.lapse()
        prefetching(14, callback=collector).run()
        assert set(statuses()) == {STATUSES.SUCCESS}
        assert sorted(collector.identifiers) == identifiers[11:]

    @pytest.mark.proof
    def test_had_one_job_that_killed_it_and_the_others_are_run(self, redis_server: RedisServer) -> None:
        """That one is an error after so many rescues, and no other."""
        add(10)
        for _ in range(5):  # twice it is one of ten, then among four and two, then alone
            self.kill_one(redis_server, "005")
            self.lapse()
        prefetching(10, max_rescues=0, burst=True).run()
        assert statuses_in_one_word() == "sssss" + "e" + "ssss"
        assert [error.type.hget() for error in Error.collection().instances()] == ["WorkerLost"]

    def test_of_many_jobs_is_made_good_at_once(self) -> None:
        add(250)
        request = transitions.ClaimRequest(Queue.get_waiting_keys("queue"), "dead", 60, job_classes.known)
        assert len(transitions.succeed_many(queue().get_connection(), [], request, 1000)[1]) == 250
        self.lapse()
        prefetching(250, max_duration=60).run()
        assert statuses_in_one_word() == "s" * 250


class TestTheLeases:
    def test_of_jobs_that_wait_in_its_hands_are_renewed(self, redis_client: redis.Redis) -> None:
        add(6)

        def callback(job: Job, queue: Queue) -> None:
            if job._cached_identifier == "001":
                ends = [score for _, score in queue.running.zrange(0, -1, withscores=True)]
                wait_until(
                    lambda: min(score for _, score in queue.running.zrange(0, -1, withscores=True)) > max(ends),
                    "new leases",
                )

        prefetching(6, lease=1, callback=callback).run()
        assert statuses_in_one_word() == "ssssss"

    @pytest.mark.usefixtures("patient")
    def test_of_jobs_that_are_not_recorded_yet_are_renewed(self) -> None:
        add(6)

        def callback(job: Job, queue: Queue) -> None:
            if job._cached_identifier == "004":
                assert queue.running.zcard() == 5
                ends = max(score for _, score in queue.running.zrange(0, -1, withscores=True))
                wait_until(
                    lambda: min(score for _, score in queue.running.zrange(0, -1, withscores=True)) > ends, "new leases"
                )

        prefetching(6, lease=1, callback=callback).run()
        assert statuses_in_one_word() == "ssssss"

    def test_a_job_whose_claim_is_lost_is_not_run(self, redis_client: redis.Redis, log: Log) -> None:
        add(6)
        collector = Collector()

        def callback(job: Job, queue: Queue) -> None:
            collector(job, queue)
            if job._cached_identifier == "001":
                key = Task.get(identifier="003").key
                redis_client.hset(key, "_claim_token", "another's")
                wait_until(lambda: any("[003] lost its claim" in line for line in messages(log)), "the news")

        prefetching(5, lease=1, callback=callback).run()
        assert collector.identifiers == ["000", "001", "002", "004", "005"]
        assert statuses_in_one_word() == "sssrss"

    def test_a_job_that_was_canceled_is_not_run(self, log: Log) -> None:
        add(6)
        collector = Collector()

        def callback(job: Job, queue: Queue) -> None:
            collector(job, queue)
            if job._cached_identifier == "001":
                Task.get(identifier="003").cancel()
                wait_until(lambda: prefetched._outcomes, "the news")

        worker, prefetched = with_part(Stock, lambda: prefetching(6, lease=1, callback=callback))
        worker.run()
        assert collector.identifiers == ["000", "001", "002", "004", "005"]
        assert statuses_in_one_word() == "ssscss"
        assert any("job skipped (current status: CANCELED)" in line for line in messages(log))

    def test_a_job_of_a_batch_sees_that_it_is_cancelled(self) -> None:
        add(4)
        seen = []

        def callback(job: Job, queue: Queue) -> None:
            seen.append(job.is_cancelled())
            if job._cached_identifier == "002":
                Task.get(identifier="002").cancel()
                job._next_question = 0
                seen.append(job.is_cancelled())

        prefetching(4, callback=callback).run()
        assert seen == [False, False, False, True, False]
        assert statuses_in_one_word() == "sscs"


def test_a_job_timeout_is_that_of_each_job() -> None:
    add(4)
    Task.get(identifier="002").job_timeout.hset(0.2)

    def callback(job: Job, queue: Queue) -> None:
        if job._cached_identifier == "002":
            threading.Event().wait(60)

    prefetching(4, job_timeout=60, callback=callback).run()
    assert statuses_in_one_word() == "sses"


def test_what_is_no_job_does_not_keep_the_others(redis_client: redis.Redis, log: Log) -> None:
    add(3)
    redis_client.rpush(queue().waiting.key, "\0")
    Task.add_job("003")
    prefetching(4, max_duration=60).run()
    assert statuses_in_one_word() == "ssss"
    assert any("Not the ident of a job" in line for line in messages(log))


def test_each_queue_has_its_turn(redis_client: redis.Redis) -> None:
    for number in range(10):
        for name in ("one", "two"):
            Task.add_job(f"{name} {number}", name)
    collector = Collector()
    prefetching(20, 5, queues=["one", "two"], queue_strategy="round_robin", callback=collector).run()
    first_half = collector.identifiers[:10]
    assert 3 <= len([identifier for identifier in first_half if identifier.startswith("one")]) <= 7
