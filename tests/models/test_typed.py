"""`add` and `configure` of job classes, whose arguments type checkers know; `tests/types` hold what these know."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
import redis
from limpyd import fields
from running import work

from limpyd_jobs import STATUSES, Argument, Job, Queue, typed
from limpyd_jobs.query import JobFilter

pytestmark = pytest.mark.usefixtures("redis_client")


@typed
class Letter(Job):
    namespace = "typed"
    queue_name = "letters"
    keep_result = True
    priority = fields.InstanceHashField(indexable=True, default=4)

    to: Argument[str] = Argument(str)
    size: Argument[int] = Argument(int, default=3)

    def run(self, queue: Queue) -> str:
        return f"{self.to.value()} {self.size.value()}"


class Translated(Letter):
    namespace = "typed"

    @classmethod
    def add_job(cls, *args: Any, **kwargs: Any) -> Any:
        return super().add_job(*args, **{**kwargs, "to": f"translated {kwargs['to']}"})


class OfTheirOwn(Letter):
    namespace = "typed"

    @classmethod
    def add(cls, number: int) -> Any:  # type: ignore[override]
        return cls.add_job(f"number {number}", to="ann")


def test_a_job_is_added_with_its_arguments_alone() -> None:
    job = Letter.add(to="ann", size=5)
    assert (type(job), job.arguments.size, job.status.hget()) == (Letter, 5, STATUSES.WAITING)
    work("letters", callback=None)
    assert job.result() == "ann 5"


def test_it_has_the_priority_of_its_class_unless_another_one_is_configured() -> None:
    first, second = Letter.add(to="ann"), Letter.configure(priority=7, delayed_for=60).add(to="bob")
    assert [first.priority.hget(), second.priority.hget()] == ["4", "7"]
    assert [first.status.hget(), second.status.hget()] == [STATUSES.WAITING, STATUSES.DELAYED]


def test_the_options_have_the_names_of_those_of_functions() -> None:
    job = Letter.configure(queue="slow", timeout=5, retry="times=2", identifier="ann").add(to="ann")
    assert [job.job_timeout.hget(), job.identifier.hget()] == ["5", "ann"]
    assert Queue.get_queue("slow", 4).waiting.lrange(0, -1) == [job.ident]


def test_a_configured_call_is_prepared_as_a_value() -> None:
    prepared = Letter.configure(queue="slow").prepare(to="ann", size=5)
    assert dict(prepared) == {"priority": 4, "queue_name": "slow", "to": "ann", "size": 5}
    assert prepared.add().arguments.size == 5


def test_a_coroutine_adds_in_the_same_way() -> None:
    async def add() -> list[Any]:
        return [await Letter.aadd(to="ann"), await Letter.configure(priority=7).aadd(to="bob")]

    assert [(each.arguments.to, each.priority.hget()) for each in asyncio.run(add())] == [("ann", "4"), ("bob", "7")]


def test_what_is_no_argument_is_refused_and_the_message_says_where_it_belongs(redis_client: redis.Redis) -> None:
    letter: Any = Letter
    with pytest.raises(TypeError, match=r"Letter\.configure\(queue=…\)\.add\(…\)"):
        letter.add(to="ann", queue_name="slow")
    with pytest.raises(TypeError, match="by name"):
        letter.add("ann")
    with pytest.raises(TypeError, match="'size' of Letter must be an integer"):
        letter.add(to="ann", size="5")
    with pytest.raises(AttributeError, match="sise"):
        letter.add(to="ann", sise=5)
    with pytest.raises(TypeError, match="needs the argument 'to'"):
        letter.add()
    assert not redis_client.exists("typed:letter:max_pk", "typed:letter:collection")


def test_an_add_job_of_the_application_is_called() -> None:
    assert Translated.add(to="ann").arguments.to == "translated ann"


def test_an_add_of_the_application_stays_its_own() -> None:
    assert OfTheirOwn.add(5).identifier.hget() == "number 5"


def test_a_filter_yields_the_jobs_themselves() -> None:
    added = [Letter.add(to="ann"), Letter.add(to="bob")]
    found = [*JobFilter(Letter, status="waiting").jobs()]
    assert found == added[::-1]
    assert [job.arguments.to for job in found] == ["bob", "ann"]
