"""What goes over the wire: the budget of round trips, command by command."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from contextlib import AbstractContextManager
from datetime import datetime, timedelta
from threading import Thread, current_thread
from typing import Any

import pytest
import redis
from all_scripts import ALL_SCRIPTS
from limpyd import fields
from redis.connection import AbstractConnection
from servers import wait_until

from limpyd_jobs import STATUSES, Argument, Cancel, Error, Job, Queue, Requeue, Retry, Worker
from limpyd_jobs.models import job_classes

Recorder = Callable[[], AbstractContextManager[Any]]

SCRIPTS = {script.sha: script.name for script in ALL_SCRIPTS}
JOBS = 20
LATER = datetime(2099, 1, 1)


@pytest.fixture(autouse=True)
def _classes_are_known() -> None:
    """The first job of a class that a worker has not met costs a round trip more."""
    for name, value in globals().items():
        if isinstance(value, type) and issubclass(value, Job) and value is not Job:
            job_classes.resolve(f"{__name__}.{name}")


# What a worker does once, before its first job.
# The first counts are those of the finished jobs that nothing limits.
START = ["HGETALL", "list_queues", "promote", "counts", "EXISTS", "rescue", "SMEMBERS", "counts", "due_schedules"]
COUNTS = ("SCARD", "LLEN", "ZCARD")


class Task(Job):
    namespace = "trips"
    queue_name = "q"
    size = fields.InstanceHashField(indexable=True)

    def run(self, queue: Queue) -> None:
        pass


class Failing(Task):
    def run(self, queue: Queue) -> None:
        raise ValueError("on purpose")


class Asking(Task):
    def run(self, queue: Queue) -> None:
        raise Requeue(delayed_for=1000)


class GivingUp(Task):
    def run(self, queue: Queue) -> None:
        raise Cancel


class Reading(Task):
    to = Argument(indexable=True)
    number = Argument(int)

    def run(self, queue: Queue) -> None:
        for _ in range(3):
            assert self.arguments.number == int(self.number.hget()) == int(self.to.hget())


class TellsSuccess(Task):
    def on_success(self, queue: Queue, result: Any) -> None:
        pass


class TellsStart(Task):
    def on_started(self, queue: Queue) -> None:
        pass


class TellsError(Failing):
    def on_error(self, queue: Queue, exception: Exception, trace: str | None) -> None:
        pass


class TellsRequeue(Failing):
    def on_requeued(self, queue: Queue) -> None:
        pass


class Cancels(Task):
    def run(self, queue: Queue) -> None:
        self.status.hset(STATUSES.CANCELED)


class CancelsItself(Task):
    def run(self, queue: Queue) -> None:
        assert self.cancel()


class Delays(Task):
    def run(self, queue: Queue) -> None:
        self.set_fields(status=STATUSES.DELAYED, delayed_until=str(LATER))


class WithSuccess(Worker):
    def job_success(self, job: Job, queue: Queue, job_result: Any) -> None:
        super().job_success(job, queue, job_result)


class WithStart(Worker):
    def job_started(self, job: Job, queue: Queue) -> None:
        super().job_started(job, queue)


class WithError(Worker):
    def job_error(self, job: Job, queue: Queue, exception: BaseException, trace: str | None = None) -> None:
        super().job_error(job, queue, exception, trace)


class WithRequeue(Worker):
    def requeue_job(self, job: Job, queue: Queue, priority: int, delayed_for: Any = None) -> None:
        super().requeue_job(job, queue, priority, delayed_for)


class WithErrorFields(Worker):
    def additional_error_fields(self, job: Job, queue: Queue, exception: BaseException, trace: Any = None) -> Any:
        return {"code": 7}


class WithExecute(Worker):
    def execute(self, job: Job, queue: Queue) -> None:
        pass


class WithMessages(Worker):
    def job_success_message(self, job: Job, queue: Queue, job_result: Any) -> str:
        return f"{super().job_success_message(job, queue, job_result)}: {job_result}"

    def job_started_message(self, job: Job, queue: Queue) -> str:
        return "starting"


@pytest.fixture(autouse=True)
def _scripts_are_known(redis_client: redis.Redis) -> None:
    """Sending a script whole, once for each server, is no part of the budget."""
    known = redis_client.script_exists(*(script.sha for script in ALL_SCRIPTS))
    for script, is_known in zip(ALL_SCRIPTS, known, strict=True):
        if not is_known:
            redis_client.script_load(script.source)


def verbs(sent: Iterable[str]) -> list[str]:
    """The names of the scripts among commands, and the other commands as they are called; counts, and
    the looks for queues, which each go in one pipeline, as one. The metrics that a worker writes at its end are left
    out."""
    names: list[str] = []
    for command in sent:
        name, _, rest = command.partition(" ")
        if name.upper() in COUNTS:
            names += [] if names[-1:] == ["counts"] else ["counts"]
        elif names[-1:] != ["SMEMBERS"] or name.upper() != "SMEMBERS":
            names.append(SCRIPTS.get(rest.split(" ", 1)[0], name) if name.upper() == "EVALSHA" else name.upper())
    return [name for name in names if name != "write_metrics"]


def backlog(job_class: type[Job] = Task, number: int = JOBS) -> None:
    Queue.get_queue("q", -1)  # that of jobs that are put back: a new queue costs a round trip, once
    for count in range(number):
        job_class.add_job(str(count))


def work(worker_class: type[Worker] = Worker, jobs: int = JOBS, **options: Any) -> None:
    defaults = {"max_loops": jobs, "terminate_gracefuly": False, "timeout": 1, "max_duration": 30, "lease": 3600}
    worker_class("q", **{**defaults, **options}).run()


def sent_by(action: Callable[[], Any], commands: Recorder) -> list[str]:
    with commands() as sent:
        action()
    return verbs(sent)


class TestAddJob:
    @pytest.mark.parametrize(
        "options",
        [
            {},
            {"priority": 5},
            {"prepend": True},
            {"delayed_for": 60},
            {"delayed_until": LATER},
            {"size": 5, "cancel_on_error": "1"},
            {"queue_name": "another"},
        ],
        ids=str,
    )
    def test_of_a_new_one_is_one_round_trip(self, commands: Recorder, options: dict[str, Any]) -> None:
        assert sent_by(lambda: Task.add_job("a", **options), commands) == ["add"]

    @pytest.mark.parametrize(
        "options", [{}, {"priority": 5}, {"prepend": True}, {"priority": 1, "delayed_for": timedelta(5)}], ids=str
    )
    def test_of_one_that_is_queued_is_one_round_trip_be_it_moved_or_not(
        self, commands: Recorder, options: dict[str, Any]
    ) -> None:
        Task.add_job("a")
        assert sent_by(lambda: Task.add_job("a", **options), commands) == ["add"]


class TestTheOtherMethods:
    def test_requeue_is_one_round_trip(self, commands: Recorder) -> None:
        job = Task.add_job("a")
        work(max_loops=1, callback=Failing.run)
        assert sent_by(lambda: job.requeue(priority=1), commands) == ["requeue"]

    @pytest.mark.parametrize("options", [{}, {"priority": 3}, {"delayed_until": LATER}], ids=str)
    def test_enqueue_or_delay_is_one_round_trip(self, commands: Recorder, options: dict[str, Any]) -> None:
        job = Task.add_job("a")
        assert sent_by(lambda: job.enqueue_or_delay(**options), commands) == ["move"]

    def test_cancel_is_one_round_trip(self, commands: Recorder) -> None:
        job = Task.add_job("a")
        assert sent_by(job.cancel, commands) == ["cancel"]

    def test_a_job_may_ask_as_often_as_it_likes_whether_it_is_cancelled(self, commands: Recorder) -> None:
        job = Task.add_job("a")
        job._next_question = float("inf")
        assert sent_by(lambda: [job.is_cancelled() for _ in range(10_000)], commands) == []
        job._next_question = 0
        assert sent_by(job.is_cancelled, commands) == ["HMGET"]

    @pytest.mark.parametrize(
        ("change", "script"),
        [
            (lambda job: job.size.hset(5), "set_fields"),
            (lambda job: job.size.hsetnx(5), "set_fields"),
            (lambda job: job.hmset(size=5, status="c", tries=1), "set_fields"),
            (lambda job: job.size.hincrby(), "increase_field"),
            (lambda job: job.size.delete(), "unset_fields"),
            (lambda job: job.hdel("size", "status"), "unset_fields"),
        ],
    )
    def test_a_change_of_fields_is_one_round_trip(
        self, commands: Recorder, change: Callable[[Any], Any], script: str
    ) -> None:
        job = Task.add_job("a")
        assert sent_by(lambda: change(job), commands) == [script]

    def test_get_queue_is_one_round_trip(self, commands: Recorder) -> None:
        assert sent_by(lambda: Queue.get_queue("q", 5), commands) == ["get_queue"]
        assert sent_by(lambda: Queue.get_queue("q", 5), commands) == ["get_queue"]

    def test_an_error_is_one_round_trip_but_for_its_date_which_has_an_index_of_its_own(
        self, commands: Recorder
    ) -> None:
        job = Task.add_job("a")
        job._cached_identifier = "a"
        sent = sent_by(lambda: Error.add_error("q", job, ValueError("x")), commands)
        assert sent == ["add_error", "ZADD", "ZADD", "ZADD"]

    @pytest.mark.parametrize(
        "method", ["get_all", "get_all_by_priority", "get_waiting_keys", "count_waiting_jobs", "count_delayed_jobs"]
    )
    def test_all_queues_of_many_names_are_read_in_one_round_trip(self, commands: Recorder, method: str) -> None:
        for name in "pqr":
            for priority in range(5):
                Queue.get_queue(name, priority)
        found: list[Any] = []
        assert sent_by(lambda: found.append(getattr(Queue, method)(["p", "q", "r"])), commands) == ["list_queues"]
        assert found[0] == 0 if method.startswith("count") else len(found[0]) == 15

    def test_the_keys_of_a_worker_are_updated_in_one_round_trip(self, commands: Recorder) -> None:
        for priority in range(5):
            Queue.get_queue("q", priority)
        worker = Worker("q,p", terminate_gracefuly=False)
        assert sent_by(worker.update_keys, commands) == ["list_queues"]
        assert len(worker.keys) == 5

    @pytest.mark.parametrize("number", [1, 50])
    def test_all_jobs_that_are_due_are_woken_in_one_round_trip(
        self, redis_client: redis.Redis, commands: Recorder, number: int
    ) -> None:
        for count in range(number):
            Task.add_job(str(count), delayed_until=LATER)
        queue = Queue.get_queue("q")
        redis_client.zadd(queue.delayed.key, dict.fromkeys(queue.delayed.zrange(0, -1), 1))
        assert sent_by(queue.requeue_delayed_jobs, commands) == ["promote"]
        assert queue.waiting.llen() == number

    def test_the_due_jobs_of_all_queues_of_a_worker_are_woken_in_one_round_trip(self, commands: Recorder) -> None:
        for priority in range(5):
            Queue.get_queue("q", priority)
        worker = Worker("q", terminate_gracefuly=False)
        worker.update_keys()
        assert sent_by(worker.requeue_delayed_jobs, commands) == ["promote"]


class TestASteadyBacklog:
    """Each job but the first is claimed in the step that ends the one before."""

    def test_is_one_round_trip_a_job(self, commands: Recorder) -> None:
        backlog()
        assert sent_by(work, commands) == [*START, "claim", *JOBS * ["succeed"]]

    @pytest.mark.parametrize("worker_class", [WithStart, WithExecute, WithMessages])
    def test_is_so_with_hooks_that_have_no_say_in_how_a_job_ends(
        self, commands: Recorder, worker_class: type[Worker]
    ) -> None:
        backlog()
        assert sent_by(lambda: work(worker_class), commands) == [*START, "claim", *JOBS * ["succeed"]]

    def test_is_so_with_a_callback_and_for_a_job_that_tells_its_start(self, commands: Recorder) -> None:
        backlog(TellsStart)
        done: list[Any] = []
        sent = sent_by(lambda: work(callback=lambda job, queue: done.append(job)), commands)
        assert sent == [*START, "claim", *JOBS * ["succeed"]]
        assert len(done) == JOBS

    def test_is_so_for_jobs_that_read_their_arguments(self, commands: Recorder) -> None:
        Reading.add_jobs({"identifier": f"{number}", "to": f"{number}", "number": number} for number in range(JOBS))
        assert sent_by(work, commands) == [*START, "claim", *JOBS * ["succeed"]]
        assert len(Reading.collection(status=STATUSES.SUCCESS)) == JOBS

    def test_is_so_for_jobs_that_are_not_kept(self, commands: Recorder) -> None:
        backlog()
        sent = without_pruning(sent_by(lambda: work(keep_success=0), commands))
        assert sent == [*START, "claim", *JOBS * ["succeed"]]
        assert len(Task.collection()) == 0

    def test_is_so_for_jobs_that_fail_their_errors_aside(self, commands: Recorder) -> None:
        backlog(Failing)
        assert sent_by(lambda: work(save_errors=False), commands) == [*START, "claim", *JOBS * ["fail"]]

    def test_is_so_for_jobs_that_are_put_back(self, commands: Recorder) -> None:
        backlog(Failing)
        sent = sent_by(lambda: work(save_errors=False, requeue_times=1), commands)
        assert sent == [*START, "claim", *JOBS * ["fail"]]
        assert Queue.count_delayed_jobs("q") == JOBS

    def test_is_so_for_jobs_that_are_put_back_as_a_policy_says(self, commands: Recorder) -> None:
        Queue.get_queue("q", -1)
        Failing.add_jobs([f"{number}" for number in range(JOBS)], retry_policy=Retry(times=1, delay=1000, max_age=5000))
        sent = sent_by(lambda: work(save_errors=False), commands)
        assert sent == [*START, "claim", *JOBS * ["fail"]]
        assert Queue.count_delayed_jobs("q") == JOBS

    def test_is_so_for_jobs_that_ask_to_be_put_back(self, commands: Recorder) -> None:
        backlog(Asking)
        assert sent_by(work, commands) == [*START, "claim", *JOBS * ["delay"]]
        assert Queue.count_delayed_jobs("q") == JOBS

    def test_is_so_for_jobs_that_end_as_canceled(self, commands: Recorder) -> None:
        backlog(GivingUp)
        assert sent_by(work, commands) == [*START, "claim", *JOBS * ["finish_canceled"]]

    def test_is_so_for_failures_with_their_errors_but_for_the_index_of_their_dates(self, commands: Recorder) -> None:
        backlog(Failing)
        assert without_dates(sent_by(work, commands)) == [*START, "claim", *JOBS * ["fail"]]

    def test_of_several_priorities_is_one_too(self, commands: Recorder) -> None:
        for count in range(JOBS):
            Task.add_job(str(count), priority=count % 5)
        assert sent_by(work, commands) == [*START, "claim", *JOBS * ["succeed"]]

    def test_of_several_classes_costs_one_more_for_a_class_that_was_not_met_yet(self, commands: Recorder) -> None:
        for count in range(JOBS):
            (Task, TellsStart)[count % 2].add_job(str(count))
        sent = sent_by(work, commands)
        assert set(sent) == {*START, "claim", "succeed"}
        assert sent.count("succeed") == JOBS
        assert sent.count("claim") <= 5


def without_pruning(sent: list[str]) -> list[str]:
    return [name for name in sent if name != "prune"]


def without_dates(sent: list[str]) -> list[str]:
    return [name for name in sent if name != "ZADD"]


class TestHooksOfTheApplication:
    """They see what they saw in version 2, in at most three round trips a job."""

    BUDGET = 3

    def check(self, commands: Recorder, worker_class: type[Worker], one_job: list[str], **options: Any) -> None:
        sent = without_dates(sent_by(lambda: work(worker_class, **options), commands))
        assert sent == [*START, *JOBS * one_job]
        assert len([name for name in one_job if name != "add_error"]) <= self.BUDGET

    def test_job_success(self, commands: Recorder) -> None:
        backlog()
        self.check(commands, WithSuccess, ["claim", "HGET", "succeed"])

    def test_on_success(self, commands: Recorder) -> None:
        backlog(TellsSuccess)
        self.check(commands, Worker, ["claim", "succeed"])

    @pytest.mark.parametrize("requeue_times", [0, 1])
    def test_job_error(self, commands: Recorder, requeue_times: int) -> None:
        backlog(Failing)
        self.check(commands, WithError, ["claim", "fail"], requeue_times=requeue_times)

    def test_on_error(self, commands: Recorder) -> None:
        backlog(TellsError)
        self.check(commands, Worker, ["claim", "fail", "add_error"])

    @pytest.mark.parametrize("job_class", [TellsError, TellsRequeue])
    def test_on_error_and_on_requeued_of_a_job_that_is_put_back(self, commands: Recorder, job_class: type[Job]) -> None:
        backlog(job_class)
        self.check(commands, Worker, ["claim", "fail", "add_error", "requeue"], requeue_times=1)

    def test_requeue_job(self, commands: Recorder) -> None:
        backlog(Failing)
        self.check(commands, WithRequeue, ["claim", "fail", "add_error", "requeue"], requeue_times=1)

    def test_additional_error_fields(self, commands: Recorder) -> None:
        backlog(Failing)
        self.check(commands, WithErrorFields, ["claim", "fail", "add_error", "requeue"], requeue_times=1)

    @pytest.mark.parametrize(
        ("job_class", "end"),
        [
            (Cancels, ["set_fields", "succeed", "finish_canceled"]),
            (CancelsItself, ["cancel", "succeed", "finish_canceled"]),
            (Delays, ["set_fields", "set_fields", "succeed", "HGET", "delay"]),
        ],
    )
    def test_a_job_that_cancels_or_delays_itself(
        self, commands: Recorder, job_class: type[Job], end: list[str]
    ) -> None:
        backlog(job_class)
        assert sent_by(work, commands) == [*START, "claim", *JOBS * end]


def is_waiting(client: redis.Redis) -> bool:
    return any(each["cmd"] == "blpop" for each in client.client_list())


class TestAnIdleWorker:
    def test_sends_nothing_between_the_end_of_its_wait_and_its_first_job(
        self, redis_client: redis.Redis, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        Queue.get_queue("q")
        senders: list[Thread] = []
        send = AbstractConnection.send_packed_command

        def counted(connection: Any, *args: Any, **options: Any) -> Any:
            senders.append(current_thread())
            return send(connection, *args, **options)

        monkeypatch.setattr(AbstractConnection, "send_packed_command", counted)
        sent: list[int] = []
        options = {"jobs": 1, "timeout": 20, "callback": lambda job, queue: sent.append(senders.count(thread))}
        thread = Thread(target=work, kwargs=options)
        thread.start()
        wait_until(lambda: is_waiting(redis_client), "a worker that waits")
        sent.append(senders.count(thread))
        Task.add_job("a")
        thread.join()
        assert sent[0] == sent[1]

    def test_claims_its_first_job_with_what_it_sent_before(self, redis_client: redis.Redis, commands: Recorder) -> None:
        Queue.get_queue("q")
        with commands() as sent:
            thread = Thread(target=work, kwargs={"jobs": 1, "timeout": 20})
            thread.start()
            wait_until(lambda: is_waiting(redis_client), "a worker that waits")
            Task.add_job("a")
            thread.join()
        names = [name for name in verbs(sent) if name != "CLIENT"]
        before, after = names[: names.index("add")], names[names.index("add") :]
        assert set(before) <= {*START, "claim", "BLPOP"}
        assert before[-1] == "BLPOP"
        assert after == ["add", "claim", "succeed"]
