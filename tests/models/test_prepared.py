"""`prepare`: a call of `add_job` as a value."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
import redis
from invariants import contents
from limpyd import fields

from limpyd_jobs import Argument, Job, job

pytestmark = pytest.mark.usefixtures("redis_client")


class Ask(Job):
    namespace = "prepared"
    queue_name = "questions"
    text = Argument(str)
    to = Argument(str, default="anybody")


class Other(Job):
    namespace = "prepared"
    queue_name = "questions"


class Translated(Job):
    namespace = "prepared"
    queue_name = "questions"
    language = fields.InstanceHashField()

    @classmethod
    def add_job(cls, country: Any = "", *args: Any, **kwargs: Any) -> Any:
        return super().add_job(*args, language=f"of {country}", **kwargs)


class WithTheField(Job):
    namespace = "prepared"
    queue_name = "questions"
    prepare = fields.InstanceHashField()


@job(queue="questions", priority=2)
def ask(text: str, to: str = "anybody") -> str:
    return text


def test_it_is_done_as_often_as_one_likes() -> None:
    call = Ask.prepare(text="why?", priority=3)
    assert Ask.collection().instances() == []
    first, second = call.add(), call.add(queue_name="slow", identifier="a", text="how?")
    assert isinstance(first, Ask)
    assert (first.arguments.text, second.arguments.text, second.identifier.hget()) == ("why?", "how?", "a")
    assert first != second
    assert [each.priority.hget() for each in (first, second)] == ["3", "3"]
    assert second.get_field("_queue_key").hget() == "jobs:queue:2"


def test_it_is_awaited_as_well() -> None:
    async def add() -> Any:
        return await Ask.prepare("a", text="why?").aadd(priority=1), await ask.prepare("why?").aadd(priority=1)

    first, second = asyncio.run(add())
    assert (first.identifier.hget(), first.priority.hget()) == ("a", "1")
    assert (second.added, second.job.priority.hget()) == (True, "1")


def test_many_of_a_class_are_added_together() -> None:
    calls = [Ask.prepare(text=str(number), priority=number % 2) for number in range(4)]
    jobs = Ask.add_jobs([*calls, {"text": "4"}], to="ann")
    assert [each.arguments.text for each in jobs] == list("01234")
    assert [each.priority.hget() for each in jobs] == ["0", "1", "0", "1", "0"]
    assert {each.arguments.to for each in jobs} == {"ann"}
    (found,) = ask.job_class.add_jobs([ask.prepare("why?")])
    assert found.hmget("text", "priority") == ["why?", "2"]
    with pytest.raises(TypeError, match=r"prepared.Ask prepared with text> is no job of .*Other: add it by its own"):
        Other.add_jobs([Ask.prepare(text="x")])


def test_a_function_has_its_own_arguments_and_those_of_configure() -> None:
    call = ask.configure(priority=5).prepare("why?", to="ann")
    assert dict(call) == {"priority": 5, "text": "why?", "to": "ann"}
    first, second = call.add(), call.add(queue="slow", identifier="a", priority=7)
    assert (first.job.hmget("text", "to", "priority"), second.job.priority.hget()) == (["why?", "ann", "5"], "7")
    with pytest.raises(TypeError, match="prioriti"):
        call.add(prioriti=3)


def test_mistakes_show_where_they_are_made(redis_client: redis.Redis) -> None:
    wrong: dict[type[Exception], list[Any]] = {
        TypeError: [lambda: Ask.prepare(), lambda: Ask.prepare(text=5), lambda: ask.prepare(), lambda: ask.prepare(5)],
        AttributeError: [lambda: Ask.prepare(text="x", colour="red")],
        ValueError: [
            lambda: Ask.prepare(text="x", delayed_for=5, delayed_until=5),
            lambda: Ask.prepare("", text="x"),
            lambda: Ask.prepare(text="x", on_duplicate="drop"),
            lambda: Ask.prepare("a", "a,b", text="x"),
        ],
    }
    for error, calls in wrong.items():
        for call in calls:
            with pytest.raises(error):
                call()
    assert contents(redis_client) == {}


def test_a_class_with_an_add_job_of_its_own_is_given_what_was_prepared() -> None:
    assert Translated.prepare("France", identifier="a").add().hmget("identifier", "language") == ["a", "of France"]
    with pytest.raises(TypeError, match=r"Give all arguments of .*Translated.prepare by name"):
        Translated.prepare("France", "a")


def test_a_field_of_the_application_with_that_name_is_its_own() -> None:
    assert WithTheField.add_job("a", prepare="mine").prepare.hget() == "mine"


def test_it_is_a_value_that_shows_no_values() -> None:
    given = {"text": "secret"}
    call = Ask.prepare(**given)
    assert (call, len(call), call["text"]) == (Ask.prepare(text="secret"), 1, "secret")
    assert call != Ask.prepare(text="other")
    assert call != given
    assert repr(call) == f"<{__name__}.Ask prepared with text>"
