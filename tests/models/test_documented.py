"""What the documents say of the properties and methods of the models, one by one."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime, timedelta, timezone
from pathlib import Path
from typing import Any

import pytest
import redis
from invariants import violations
from limpyd.exceptions import DoesNotExist
from running import delayed_and_due, fail, work

from limpyd_jobs import STATUSES, Error, Job, LimpydJobsException, Queue
from limpyd_jobs.dates import datetime_to_score, utcnow

pytestmark = pytest.mark.usefixtures("redis_client")

FAR = datetime(2099, 1, 2, 3, 4, 5, 678)


class Documented(Job):
    namespace = "documented"
    queue_name = "queue"


class Careful(Job):
    namespace = "documented"
    queue_name = "queue"
    always_cancel_on_error = True


class Coded(Exception):
    def __init__(self, code: Any) -> None:
        super().__init__(f"coded {code}")
        self.code = code


@pytest.fixture
def consistent(redis_client: redis.Redis) -> Iterator[None]:
    """Check at the end that hashes, indexes, lists and sets agree."""
    yield
    assert violations(redis_client, Job, Documented, Careful, Queue, Error) == []


def waiting(name: str = "queue", priority: int = 0) -> list[str]:
    return list(Queue.get_queue(name, priority).waiting.lmembers())


@pytest.fixture
def failed(redis_client: redis.Redis) -> Documented:
    """A job that failed, in the queue of priority 2."""
    job = Documented.add_job("a", priority=2)
    work(callback=fail)
    return job


class TestJob:
    def test_ident_and_model_repr_name_the_class(self) -> None:
        job = Documented.add_job("a")
        assert Documented.get_model_repr() == job.get_model_repr() == "test_documented.Documented"
        assert job.ident == "test_documented.Documented:1"
        assert Job.add_job("a", "queue").ident == "limpyd_jobs.models.Job:1"

    def test_get_from_ident_returns_the_job_of_any_class(self) -> None:
        job = Documented.add_job("a")
        for job_class in (Job, Documented, Careful):
            found = job_class.get_from_ident(job.ident)
            assert found == job
            assert type(found) is Documented

    def test_get_from_ident_imports_the_module(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        source = "from limpyd_jobs import Job\nclass FarJob(Job):\n    namespace = 'far-documented'\n"
        (tmp_path / "far_documented.py").write_text(source)
        monkeypatch.syspath_prepend(str(tmp_path))
        with pytest.raises(DoesNotExist):
            Job.get_from_ident("far_documented.FarJob:1")

    def test_a_new_job_waits(self, consistent: None) -> None:
        before = utcnow()
        job = Documented.add_job("a", priority=3)
        assert job.hmget("identifier", "status", "priority", "queued") == ["a", "w", "3", "1"]
        assert job.hmget("start", "end", "tries", "delayed_until", "cancel_on_error") == [None] * 5
        assert before - timedelta(seconds=1) <= datetime.fromisoformat(job.added.hget()) <= utcnow()
        assert waiting(priority=3) == [job.ident]

    @pytest.mark.parametrize("delay", [3600, 3600.5, timedelta(hours=1)])
    def test_a_job_may_be_delayed_for_a_while(self, consistent: None, delay: Any) -> None:
        before = utcnow()
        job = Documented.add_job("a", delayed_for=delay)
        until = datetime.fromisoformat(job.delayed_until.hget())
        length = delay if isinstance(delay, timedelta) else timedelta(seconds=delay)
        second = timedelta(seconds=1)
        assert before + length - second <= until <= utcnow() + length + second
        assert Queue.get_queue("queue").first_delayed == (job.ident, datetime_to_score(until))
        assert job.hmget("status", "queued") == ["d", "1"]

    def test_a_job_may_be_delayed_until_a_date(self, consistent: None) -> None:
        job = Documented.add_job("a", delayed_until=FAR)
        assert job.hmget("status", "delayed_until") == ["d", str(FAR)]
        assert waiting() == []

    @pytest.mark.parametrize("priority", [-1, 0, 1])
    def test_adding_a_queued_job_again_returns_it(self, consistent: None, priority: int) -> None:
        job = Documented.add_job("a", priority=1)
        assert Documented.add_job("a", priority=priority).pk.get() == job.pk.get()
        assert job.priority.hget() == "1"
        assert waiting(priority=1) == [job.ident]

    def test_a_higher_priority_moves_a_queued_job(self, consistent: None) -> None:
        job, other = Documented.add_job("a"), Documented.add_job("b", priority=2)
        Documented.add_job("a", priority=2)
        assert job.priority.hget() == "2"
        assert (waiting(), waiting(priority=2)) == ([], [other.ident, job.ident])

    def test_prepend_moves_a_queued_job_to_the_beginning(self, consistent: None) -> None:
        jobs = [Documented.add_job(name) for name in "abc"]
        Documented.add_job("c", prepend=True)
        first = Documented.add_job("d", prepend=True)
        assert waiting() == [first.ident, *(jobs[number].ident for number in (2, 0, 1))]

    def test_a_job_that_ended_can_be_added_again(self, consistent: None) -> None:
        job = Documented.add_job("a")
        work()
        again = Documented.add_job("a")
        assert again.pk.get() != job.pk.get()
        assert set(Documented.collection(identifier="a", queued="1")) == {again.pk.get()}

    def test_the_queue_name_of_the_class_is_the_default(self) -> None:
        Documented.add_job("a")
        job = Documented.add_job("b", "elsewhere")
        assert waiting("elsewhere") == [job.ident]
        with pytest.raises(LimpydJobsException):
            Job.add_job("c")

    def test_jobs_are_found_by_status_priority_and_identifier(self) -> None:
        Documented.add_job("a", priority=1)
        Documented.add_job("b", priority=2)
        work()
        assert list(Documented.collection(status=STATUSES.SUCCESS)) == ["2"]
        assert list(Documented.collection(status=STATUSES.WAITING, priority=1)) == ["1"]
        assert list(Documented.collection(identifier="b", queued="1")) == []

    def test_duration_is_the_time_between_start_and_end(self) -> None:
        job = Documented.add_job("a")
        assert job.duration is None
        job.start.hset("2030-01-01 00:00:00")
        assert job.duration is None
        job.end.hset("2030-01-01 00:01:00.250000")
        assert job.duration == timedelta(seconds=60.25)
        job.end.hset("garbage")
        assert job.duration is None

    @pytest.mark.parametrize("value", [None, "1", "True", "0", ""])
    def test_cancel_on_error_is_any_text(self, value: str | None) -> None:
        job = Documented.add_job("a")
        if value is not None:
            job.cancel_on_error.hset(value)
        assert job.must_be_cancelled_on_error == value
        assert Careful.add_job("a").must_be_cancelled_on_error is True

    def test_run_has_to_be_defined(self) -> None:
        with pytest.raises(NotImplementedError):
            Documented.add_job("a").run(Queue.get_queue("queue"))

    def test_set_fields_sets_each_field(self) -> None:
        job = Documented.add_job("a")
        job.set_fields(cancel_on_error="1", tries=4)
        assert job.hmget("cancel_on_error", "tries") == ["1", "4"]
        with pytest.raises(AttributeError):
            job.set_fields(flavour="sweet")


class TestRequeue:
    def test_a_failed_job_is_put_back(self, consistent: None, failed: Documented) -> None:
        assert failed.requeue() is None
        assert failed.hmget("status", "queued", "priority", "tries") == ["w", "1", "2", "1"]
        assert failed.hmget("start", "end", "delayed_until") == [None] * 3
        assert waiting(priority=2) == [failed.ident]
        assert Queue.get_queue("queue", 2).errors.lmembers() == [failed.ident]

    def test_elsewhere_and_with_another_priority(self, consistent: None, failed: Documented) -> None:
        failed.requeue("elsewhere", 9)
        assert waiting("elsewhere", 9) == [failed.ident]
        assert failed.priority.hget() == "9"

    @pytest.mark.parametrize("delay", [{"delayed_for": 3600}, {"delayed_until": FAR}])
    def test_later(self, consistent: None, failed: Documented, delay: dict[str, Any]) -> None:
        failed.requeue(**delay)
        assert failed.hmget("status", "queued") == ["d", "1"]
        assert Queue.get_queue("queue", 2).delayed.zmembers() == [failed.ident]

    @pytest.mark.parametrize(
        "delay", [{"delayed_for": -1}, {"delayed_for": 0}, {"delayed_until": datetime(2001, 1, 1)}]
    )
    def test_a_delay_that_is_over_is_none(self, consistent: None, failed: Documented, delay: dict[str, Any]) -> None:
        failed.requeue(**delay)
        assert failed.hmget("status", "delayed_until") == ["w", None]

    def test_it_runs_again(self, consistent: None, failed: Documented) -> None:
        failed.requeue()
        work()
        assert failed.hmget("status", "tries") == ["s", "2"]
        queue = Queue.get_queue("queue", 2)
        assert (queue.success.lmembers(), queue.errors.lmembers()) == ([failed.ident], [failed.ident])

    def test_not_beside_another_queued_job_of_its_identifier(self, consistent: None, failed: Documented) -> None:
        Documented.add_job("a")
        with pytest.raises(LimpydJobsException):
            failed.requeue()
        assert failed.hmget("status", "queued") == ["e", None]
        assert failed.end.hget() is not None


class TestEnqueueOrDelay:
    def test_a_job_made_by_hand_waits(self, consistent: None) -> None:
        job = Documented(identifier="a")
        assert job.enqueue_or_delay(priority=4) is None
        assert job.hmget("status", "queued", "priority") == ["w", "1", "4"]
        assert waiting(priority=4) == [job.ident]

    @pytest.mark.parametrize("until", [FAR, str(FAR), FAR.replace(tzinfo=timezone.utc)], ids=["date", "text", "aware"])
    def test_or_is_delayed(self, consistent: None, until: Any) -> None:
        job = Documented(identifier="a")
        job.enqueue_or_delay(delayed_until=until)
        assert job.hmget("status", "queued", "delayed_until") == ["d", "1", str(FAR)]
        assert Queue.get_queue("queue").first_delayed == (job.ident, datetime_to_score(FAR))

    @pytest.mark.parametrize("until", [None, "", datetime(2001, 1, 1), "2001-01-01 00:00:00"])
    def test_a_date_that_is_over_is_none(self, consistent: None, until: Any) -> None:
        job = Documented(identifier="a")
        job.enqueue_or_delay(delayed_until=until)
        assert job.hmget("status", "delayed_until") == ["w", None]

    def test_prepend_puts_it_first(self, consistent: None) -> None:
        other, job = Documented.add_job("b"), Documented(identifier="a")
        job.enqueue_or_delay(prepend=True)
        assert waiting() == [job.ident, other.ident]

    def test_a_queued_job_is_moved(self, consistent: None) -> None:
        job = Documented.add_job("a", priority=1)
        job.enqueue_or_delay(priority=5, delayed_until=FAR)
        job.enqueue_or_delay(queue_name="elsewhere")
        assert (waiting(priority=1), waiting("elsewhere", 5)) == ([], [job.ident])
        assert Queue.get_queue("queue", 5).delayed.zcard() == 0


class TestQueue:
    def test_get_queue_finds_or_makes_the_queue(self) -> None:
        queue = Queue.get_queue("queue", 3)
        assert queue.hmget("name", "priority") == ["queue", "3"]
        assert Queue.get_queue("queue", "3") == Queue.get_queue(name="queue", priority=3) == queue
        assert Queue.get_queue("queue").priority.hget() == "0"
        assert len(list(Queue.collection(name="queue"))) == 2

    def test_get_all_and_its_like_take_a_name_or_several(self) -> None:
        made = {key: Queue.get_queue(*key) for key in (("x", 1), ("y", 9), ("x", -5), ("x", 10), ("z", 1))}
        assert set(Queue.get_all("x")) == {made[key] for key in made if key[0] == "x"}
        by_priority = [made[key] for key in (("x", 10), ("y", 9), ("x", 1), ("x", -5))]
        assert Queue.get_all_by_priority(["x", "y"]) == by_priority
        assert Queue.get_all_by_priority(("z", "x"))[1:3] == [made["z", 1], made["x", 1]]
        assert Queue.get_waiting_keys(["x", "y"]) == [queue.waiting.key for queue in by_priority]
        assert Queue.get_all([]) == Queue.get_all("nowhere") == Queue.get_waiting_keys("nowhere") == []
        assert Queue.get_all("x,y") == []

    def test_jobs_are_counted_over_all_priorities(self) -> None:
        for name, queue, priority in (("a", "x", 1), ("b", "x", 2), ("c", "y", 1)):
            Documented.add_job(name, queue, priority)
            Documented.add_job(f"delayed {name}", queue, priority, delayed_until=FAR)
        assert (Queue.count_waiting_jobs("x"), Queue.count_waiting_jobs(["x", "y"])) == (2, 3)
        assert (Queue.count_delayed_jobs("x"), Queue.count_delayed_jobs(["x", "y"])) == (2, 3)
        assert (Queue.count_waiting_jobs("nowhere"), Queue.count_delayed_jobs([])) == (0, 0)

    def test_the_first_delayed_job_is_the_first_to_be_ready(self) -> None:
        queue = Queue.get_queue("queue")
        assert (queue.first_delayed, queue.first_delayed_time) == (None, None)
        Documented.add_job("later", delayed_until=FAR + timedelta(seconds=1))
        job = Documented.add_job("sooner", delayed_until=FAR)
        assert queue.first_delayed == (job.ident, datetime_to_score(FAR))
        assert queue.first_delayed_time == datetime_to_score(FAR) == 4071006245.000678

    def test_error_is_another_name_of_errors(self, failed: Documented) -> None:
        queue = Queue.get_queue("queue", 2)
        assert queue.error.lmembers() == queue.errors.lmembers() == [failed.ident]
        queue.error.rpush("x")
        assert queue.errors.llen() == 2

    def test_a_job_is_put_in_a_list_by_hand(self) -> None:
        queue, job, other = Queue.get_queue("queue", 4), Documented(identifier="a"), Documented(identifier="b")
        assert queue.enqueue_job(job) is None
        queue.enqueue_job(other, prepend=True)
        assert queue.waiting.lmembers() == [other.ident, job.ident]
        assert job.hmget("status", "queued") == [None, None]

    @pytest.mark.parametrize("until", [FAR, FAR.replace(tzinfo=timezone.utc)], ids=["naive", "aware"])
    def test_a_job_is_delayed_by_hand(self, until: datetime) -> None:
        queue, job = Queue.get_queue("queue", 4), Documented(identifier="a")
        assert queue.delay_job(job, until) is None
        assert queue.first_delayed == (job.ident, datetime_to_score(FAR))
        assert job.hmget("status", "delayed_until") == [None, None]

    def test_delayed_jobs_that_are_due_are_moved(self, consistent: None) -> None:
        due, later = delayed_and_due(Documented, "due"), Documented.add_job("later", delayed_until=FAR)
        assert Queue.get_queue("queue").requeue_delayed_jobs() == []
        assert [due.status.hget(), later.status.hget()] == ["w", "d"]
        assert waiting() == [due.ident]

    @pytest.mark.parametrize("status", [STATUSES.CANCELED, STATUSES.SUCCESS, STATUSES.ERROR])
    def test_the_status_of_a_due_job_changes_only_if_it_is_delayed(self, status: str) -> None:
        job = delayed_and_due(Documented, "due")
        job.status.hset(status)
        Queue.get_queue("queue").requeue_delayed_jobs()
        assert job.status.hget() == status
        assert waiting() == [job.ident]
        assert work().num_loops == 1
        assert job.hmget("status", "queued", "tries") == [status, None, None]

    def test_those_that_could_not_be_moved_are_told(self, consistent: None) -> None:
        deleted, due = delayed_and_due(Documented, "deleted"), delayed_and_due(Documented, "due")
        queue = Queue.get_queue("queue")
        ident = deleted.ident
        deleted.delete()
        queue.delayed.zadd({"garbage": 1})
        failures = dict(queue.requeue_delayed_jobs())
        assert failures.keys() == {"garbage", ident}
        assert all(isinstance(reason, str) and reason for reason in failures.values())
        assert waiting() == [due.ident]


class TestError:
    def test_an_error_says_what_happened(self) -> None:
        job = Documented.add_job("a")
        error = Error.add_error("queue", job, Coded(404), when=FAR, trace="a trace")
        names = ("job_model_repr", "job_pk", "identifier", "queue_name", "type", "code", "message", "traceback")
        assert error.hmget(*names) == [
            *("test_documented.Documented", "1", "a", "queue"),
            *("Coded", "404", "coded 404", "a trace"),
        ]
        assert error.hmget("date_time", "date", "time") == [str(FAR), "2099-01-02", "03:04:05.000678"]
        assert error.datetime == FAR

    def test_errors_are_found_by_their_indexed_fields(self, consistent: None) -> None:
        first, second = Documented.add_job("a"), Careful.add_job("b")
        one = Error.add_error("x", first, Coded("E1"), when=datetime(2021, 5, 6, 7, 8, 9)).pk.get()
        two = Error.add_error("y", second, ValueError("v"), when=datetime(2022, 5, 6, 7, 8, 9)).pk.get()
        filters: list[dict[str, Any]] = [
            {"queue_name": "x"},
            {"job_model_repr": "test_documented.Documented"},
            {"identifier": "a"},
            {"type": "Coded"},
            {"code": "E1"},
            {"date": "2021-05-06"},
            {"date_time": "2021-05-06 07:08:09"},
            {"date_time__date": "2021-05-06"},
            {"date_time__lt": "2022"},
        ]
        assert [list(Error.collection(**each)) for each in filters] == [[one]] * len(filters)
        assert list(Error.collection(date_time__gt="2022")) == [two]
        assert set(Error.collection(date_time__time="07:08:09")) == {one, two}

    @pytest.mark.parametrize(("code", "stored"), [(0, "0"), ("E1", "E1"), (None, None)])
    def test_a_code_is_stored_if_there_is_one(self, code: Any, stored: str | None) -> None:
        assert Error.add_error("queue", Documented.add_job("a"), Coded(code)).code.hget() == stored

    @pytest.mark.parametrize(
        ("error", "type_", "message"),
        [
            (ValueError(), "ValueError", ""),
            (KeyError("k"), "KeyError", "'k'"),
            (OSError(2, "x"), "FileNotFoundError", "[Errno 2] x"),
        ],
    )
    def test_message_and_type_are_those_of_the_exception(self, error: Exception, type_: str, message: str) -> None:
        stored = Error.add_error("queue", Documented.add_job("a"), error)
        assert stored.hmget("type", "message", "code", "traceback") == [type_, message, None, None]

    def test_collection_for_job_is_of_all_jobs_of_the_class_and_identifier(self) -> None:
        for _ in range(2):
            job = Documented.add_job("a")
            work(callback=fail)
        Careful.add_job("a")
        Documented.add_job("b")
        work(callback=fail, max_loops=2)
        errors = Error.collection_for_job(job)
        assert [error.job_pk.hget() for error in errors.sort(by="job_pk").instances()] == ["1", "2"]
        assert [error.job_pk.hget() for error in errors.filter(job_pk=2).instances()] == ["2"]
