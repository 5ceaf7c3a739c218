"""Adding many jobs at once: each is added as by itself, in its order, in few round trips."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from datetime import datetime, timedelta
from typing import Any

import pytest
import redis
from cases import each
from invariants import contents, violations
from limpyd import fields
from limpyd.exceptions import UniquenessError

from limpyd_jobs import STATUSES, Job, Queue
from limpyd_jobs.models.adding import STEP_SIZE

LATER = datetime(2099, 1, 1)


class Letter(Job):
    namespace = "bulk"
    queue_name = "mail"
    colour = fields.InstanceHashField(indexable=True, default="red")
    tags = fields.SetField()


class Stamp(Job):
    namespace = "bulk"
    queue_name = "mail"
    number = fields.InstanceHashField(unique=True)


class Registered(Job):
    namespace = "bulk"
    queue_name = "mail"

    def enqueue_or_delay(self, *args: Any, **kwargs: Any) -> None:
        super().enqueue_or_delay(*args, **kwargs)
        self.tries.hset(7)


@pytest.fixture(autouse=True)
def _whole(redis_client: redis.Redis) -> Iterator[None]:
    """All invariants hold after each test."""
    yield
    assert violations(redis_client, Letter, Stamp, Registered, Queue) == []


def names(jobs: list[Any]) -> list[str]:
    return [job.identifier.hget() for job in jobs]


def order(priority: int = 0) -> list[str]:
    """The identifiers of the jobs that wait."""
    waiting = Queue.get_queue("mail", priority).waiting.lrange(0, -1)
    return names([Job.get_from_ident(ident) for ident in waiting])


class TestSeveralJobs:
    def test_wait_in_their_order(self, redis_client: redis.Redis) -> None:
        jobs = Letter.add_jobs(str(number) for number in range(10))
        assert names(jobs) == order() == [str(number) for number in range(10)]
        assert [job.colour.hget() for job in jobs] == ["red"] * 10
        assert len(list(Letter.collection(colour="red", status="w"))) == 10

    def test_leave_the_same_as_one_by_one(self, redis_client: redis.Redis) -> None:
        def left(add: Callable[[], object]) -> dict[str, Any]:
            redis_client.flushall()
            add()
            found = contents(redis_client)
            for value in found.values():
                if isinstance(value, dict):
                    value.pop("added", None)
            return found

        options: dict[str, Any] = {"priority": 3, "delayed_until": LATER, "colour": "blue"}
        one_by_one = left(lambda: [Letter.add_job(name, **options) for name in "abca"])
        assert left(lambda: Letter.add_jobs([*"abca"], **options)) == one_by_one

    def test_may_be_none(self, redis_client: redis.Redis) -> None:
        assert Letter.add_jobs([]) == []
        assert redis_client.keys() == []

    def test_may_each_have_arguments_of_their_own(self, redis_client: redis.Redis) -> None:
        jobs = Letter.add_jobs(
            [
                "a",
                {"identifier": "b", "priority": 5, "colour": "blue"},
                {"identifier": "c", "delayed_for": timedelta(hours=1)},
                {"identifier": "d", "tags": ["x", "y"]},
                {"identifier": "e", "queue_name": "post"},
                "f",
            ],
            colour="green",
        )
        assert names(jobs) == list("abcdef")
        assert [job.colour.hget() for job in jobs] == ["green", "blue", "green", "green", "green", "green"]
        assert [job.priority.hget() for job in jobs] == ["0", "5", "0", "0", "0", "0"]
        assert jobs[2].status.hget() == STATUSES.DELAYED
        assert jobs[3].tags.smembers() == {"x", "y"}
        assert order() == ["a", "d", "f"]
        assert order(5) == ["b"]
        assert Queue.count_waiting_jobs("post") == 1

    def test_of_one_identifier_are_one(self, redis_client: redis.Redis) -> None:
        first = Letter.add_job("a")
        jobs = Letter.add_jobs(["b", "a", "b"], colour="blue")
        assert [job.pk.get() for job in jobs] == [jobs[0].pk.get(), first.pk.get(), jobs[0].pk.get()]
        assert order() == ["a", "b"]
        assert first.colour.hget() == "red"

    def test_move_up_the_queued_ones(self, redis_client: redis.Redis) -> None:
        Letter.add_jobs(["a", "b"])
        Letter.add_jobs(["b", "c"], priority=2)
        assert (order(), order(2)) == (["a"], ["b", "c"])

    def test_go_to_the_beginning_one_after_the_other(self, redis_client: redis.Redis) -> None:
        Letter.add_jobs([*"abc"], prepend=True)
        assert order() == ["c", "b", "a"]

    def test_may_have_any_text(self, redis_client: redis.Redis) -> None:
        texts = ["é", '"', "\\", "\n", "\0", "😀", "[1,2]", "%s"]
        assert names(Letter.add_jobs(texts, colour='"é\\')) == texts
        assert len(list(Letter.collection(colour='"é\\'))) == len(texts)

    @pytest.mark.parametrize("number", [1, STEP_SIZE, STEP_SIZE + 1, 3 * STEP_SIZE])
    def test_take_a_round_trip_for_each_step(
        self, number: int, redis_client: redis.Redis, commands: Callable[[], AbstractContextManager[Any]]
    ) -> None:
        Letter.add_jobs(["to load the script"])
        with commands() as sent:
            jobs = Letter.add_jobs(f"{i}" for i in range(number))
        assert len(jobs) == number
        assert sent.names == ["EVALSHA"] * -(-number // STEP_SIZE)

    def test_are_added_while_they_are_read_and_counted(self, redis_client: redis.Redis) -> None:
        counts: list[int] = []
        waiting: list[int] = []

        def read() -> Iterator[str]:
            for number in range(2 * STEP_SIZE + 2):
                if number % STEP_SIZE == 1:
                    waiting.append(Queue.count_waiting_jobs("mail"))
                yield str(number)

        Letter.add_jobs(read(), progress=counts.append)
        assert counts == [STEP_SIZE, 2 * STEP_SIZE, 2 * STEP_SIZE + 2]
        assert waiting == [0, STEP_SIZE, 2 * STEP_SIZE]


class TestWhatAScriptCannotDoAlone:
    def test_unique_values_are_refused_as_ever(self, redis_client: redis.Redis) -> None:
        with pytest.raises(UniquenessError, match="number"):
            Stamp.add_jobs([{"identifier": name, "number": "1"} for name in "ab"])
        assert order() == ["a"]

    def test_a_class_may_place_its_jobs_itself(self, redis_client: redis.Redis) -> None:
        jobs = Registered.add_jobs([*"ab"])
        assert order() == ["a", "b"]
        assert [job.tries.hget() for job in jobs] == ["7", "7"]


WRONG: dict[str, tuple[Any, dict[str, Any], type[Exception]]] = {
    "an identifier that is none": (["a", ["b"]], {}, TypeError),
    "an empty identifier": (["a", ""], {}, ValueError),
    "an unknown field": (["a", {"identifier": "b", "size": 1}], {}, AttributeError),
    "a field of the library": (["a", {"identifier": "b", "status": "s"}], {}, ValueError),
    "a priority that is none": (["a"], {"priority": "high"}, ValueError),
    "two delays": (["a"], {"delayed_for": 5, "delayed_until": LATER}, ValueError),
    "no iterable": (5, {}, TypeError),
}


@each(("jobs", "options", "error"), WRONG.values())
def test_of_a_step_with_a_wrong_job_none_is_added(
    jobs: Any, options: dict[str, Any], error: type[Exception], redis_client: redis.Redis
) -> None:
    with pytest.raises(error):
        Letter.add_jobs(jobs, **options)
    assert redis_client.keys("bulk:*") == []


def test_each_job_may_name_its_own_queue() -> None:
    class Homeless(Job):
        namespace = "bulk"

    jobs = Homeless.add_jobs([{"identifier": name, "queue_name": f"for {name}"} for name in "ab"])
    waiting = [Queue.get_queue(f"for {name}", 0).waiting.lrange(0, -1) for name in "ab"]
    assert waiting == [[job.ident] for job in jobs]
