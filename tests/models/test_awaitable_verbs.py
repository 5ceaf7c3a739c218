"""Moving, requeuing, canceling and deleting a job under asyncio, and its fields: as without."""

from __future__ import annotations

import asyncio
import json
import threading
from typing import Any

import pytest
import redis
from invariants import violations
from limpyd import fields
from limpyd.exceptions import DoesNotExist, UniquenessError

from limpyd_jobs import STATUSES, Argument, Job, LimpydJobsException, Queue, ValueField, Worker

pytestmark = pytest.mark.usefixtures("redis_client")


class Letter(Job):
    namespace = "verbs"
    queue_name = "letters"
    size = Argument(int, default=3)
    options = ValueField(json)
    to = fields.InstanceHashField(indexable=True)
    code = fields.InstanceHashField(unique=True)
    lines = fields.ListField()


class Homeless(Job):
    namespace = "verbs"


class Counted(Job):
    """With ways of its own."""

    namespace = "verbs"
    queue_name = "counted"
    calls: list[tuple[str, bool]] = []

    def requeue(self, *args: Any, **kwargs: Any) -> None:
        self.calls.append(("requeue", threading.current_thread() is threading.main_thread()))
        super().requeue(*args, **kwargs)

    def cancel(self) -> bool:
        self.calls.append(("cancel", threading.current_thread() is threading.main_thread()))
        return super().cancel()

    def enqueue_or_delay(self, *args: Any, **kwargs: Any) -> None:
        self.calls.append(("enqueue_or_delay", threading.current_thread() is threading.main_thread()))
        super().enqueue_or_delay(*args, **kwargs)


class Order(Job):
    """Written for version 2, with other things of the same names."""

    namespace = "verbs"
    queue_name = "orders"

    def cancel(self) -> str:  # type: ignore[override]
        return "the order, at the supplier"

    def log(self, *lines: str) -> str:  # type: ignore[override]
        return "to the file of the supplier"


class OwnQueue(Queue):
    namespace = "verbs"

    def enqueue_job(self, *args: Any, **kwargs: Any) -> None:
        super().enqueue_job(*args, **kwargs)


class Queued(Job):
    namespace = "verbs"
    queue_name = "queued"
    queue_model = OwnQueue


def failed(job_class: type[Job], *queue_names: str) -> Any:
    job = job_class.add_job("failed", *queue_names)
    Worker(
        queue_names or job_class.queue_name or "",
        callback=_fail,
        max_loops=1,
        logger_level=60,
        queue_model=job_class.queue_model,
    ).run()
    assert job.status.hget() == STATUSES.ERROR
    return job


def _fail(job: Job, queue: Queue) -> None:
    raise LookupError


def waiting(job: Job, name: str, priority: int = 0) -> bool:
    return job.queue_model.get_queue(name, priority).waiting.lmembers() == [job.ident]


def test_a_job_is_canceled_moved_and_deleted() -> None:
    async def main() -> None:
        job = await Letter.aadd_job("1")
        await job.aenqueue_or_delay("urgent", 5)
        assert waiting(job, "urgent", 5)
        assert await job.acancel() is True
        assert job.status.hget() == STATUSES.CANCELED
        await job.adelete()
        with pytest.raises(DoesNotExist):
            await Letter.lazy_connect("1").acancel()

    asyncio.run(main())
    assert violations(Letter.get_connection()) == []


def test_a_job_that_succeeded_is_not_canceled() -> None:
    job = Letter.add_job("1")
    Worker("letters", callback=lambda job, queue: None, max_loops=1).run()
    assert asyncio.run(job.acancel()) is False


@pytest.mark.parametrize("job_class", [Letter, Queued, Counted])
def test_a_failed_job_is_requeued(job_class: type[Job]) -> None:
    job = failed(job_class)
    asyncio.run(job.arequeue(priority=4))
    assert waiting(job, job_class.queue_name or "", 4)
    with pytest.raises(LimpydJobsException, match="ERROR status"):
        asyncio.run(job.arequeue())


def test_a_job_whose_class_has_no_queue_goes_back_to_the_one_it_was_in() -> None:
    job = failed(Homeless, "anywhere")
    asyncio.run(job.arequeue())
    assert waiting(job, "anywhere")


def test_a_delay_that_is_not_a_date_is_refused() -> None:
    with pytest.raises(ValueError, match="not the text of a datetime"):
        asyncio.run(Letter.add_job("1").aenqueue_or_delay(delayed_until="soon"))


def test_what_overrides_a_verb_is_called_in_a_thread() -> None:
    Counted.calls.clear()
    job = failed(Counted)
    asyncio.run(job.arequeue())
    asyncio.run(job.aenqueue_or_delay(priority=1))
    asyncio.run(job.acancel())
    assert [name for name, is_main in Counted.calls if not is_main] == [
        *("requeue", "enqueue_or_delay", "enqueue_or_delay", "cancel")
    ]


def test_another_thing_of_the_same_name_is_not_called() -> None:
    job = Order.add_job("1")
    asyncio.run(job.alog("a line"))
    assert job.read_log()[0].endswith("a line")
    assert asyncio.run(job.acancel()) is True
    assert job.status.hget() == STATUSES.CANCELED


def test_fields_are_read_and_set() -> None:
    job = Letter.add_job("1", size=5, to="ann", lines=["a", "b"])

    async def main() -> list[Any]:
        await job.aset("to", "bob")
        await job.aset("options", {"colour": "blue"})
        await job.aset("lines", ["c"])
        names = ("size", "to", "code", "options", "lines", "status", "job_timeout")
        return [await job.aget(name) for name in names]

    assert asyncio.run(main()) == [5, "bob", None, {"colour": "blue"}, ["a", "b", "c"], "w", None]
    assert list(Letter.collection(to="bob")) == ["1"]
    assert violations(Letter.get_connection()) == []


def test_fields_are_refused_as_without(redis_client: redis.Redis) -> None:
    Letter.add_job("0", code="taken")
    job = Letter.add_job("1")

    async def main() -> None:
        with pytest.raises(AttributeError):
            await job.aget("colour")
        with pytest.raises(AttributeError):
            await job.aset("colour", "blue")
        with pytest.raises(AttributeError, match="never changes"):
            await job.aset("size", 5)
        with pytest.raises(UniquenessError):
            await job.aset("code", "taken")
        with pytest.raises(ValueError, match="65,536"):
            await job.aset("to", "x" * 100_000)
        redis_client.hset(f"{job._name}:2:hash", "size", "many")
        with pytest.raises(ValueError, match="many"):
            await job.aget("size")
        await job.adelete()
        with pytest.raises(DoesNotExist):
            await Letter.lazy_connect("2").aset("to", "ann")

    asyncio.run(main())


def test_progress_and_log_are_told() -> None:
    job = Letter.add_job("1")

    async def main() -> None:
        await job.aprogress(0.5, "half")
        await job.alog("a line")
        with pytest.raises(ValueError, match="from 0 to 1"):
            await job.aprogress(2)

    asyncio.run(main())
    told = job.read_progress()
    assert told
    assert (told.fraction, told.text) == (0.5, "half")
    assert job.read_log()[0].endswith("a line")


def test_progress_and_log_are_no_failure_while_redis_refuses(redis_client: redis.Redis) -> None:
    job = Letter.add_job("1")
    redis_client.set(f"{job._name}:1:_log", "of another program")
    asyncio.run(job.alog("a line"))
    redis_client.script_flush()
    asyncio.run(job.aprogress(1))
    assert job.read_progress()


def test_a_job_is_found_by_its_ident() -> None:
    job = Letter.add_job("1")
    assert asyncio.run(Job.aget_from_ident(job.ident)) == job
    with pytest.raises(ValueError, match="not the ident"):
        asyncio.run(Job.aget_from_ident("1"))
