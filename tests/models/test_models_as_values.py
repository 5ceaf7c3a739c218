"""Models of pydantic, Structs of msgspec and TypedDicts as arguments and results of jobs."""

from __future__ import annotations

import subprocess
import sys
from datetime import date
from typing import Any, NotRequired, TypedDict

import msgspec
import pytest
from cases import each
from pydantic import BaseModel, ConfigDict, Field, RootModel
from running import work

from limpyd_jobs import Argument, Error, Job, Queue, job
from limpyd_jobs.fields.codecs import codec_of

pytestmark = pytest.mark.usefixtures("redis_client")


class Order(BaseModel):
    model_config = ConfigDict(strict=True)

    book: str
    day: date
    copies: int = Field(1, gt=0, alias="number")


class Larger(Order):
    more: int = 0


class Names(RootModel[list[str]]):
    pass


class Point(msgspec.Struct):
    x: int
    day: date | None = None


class Pair(msgspec.Struct, array_like=True):
    x: int
    y: int


class Page(TypedDict):
    url: str
    day: NotRequired[date]
    links: NotRequired[list[Page]]


DAY = date(2030, 1, 2)
STORED: list[tuple[Any, Any, str]] = [
    (Order, Order(book="Emma", day=DAY, number=2), '{"book":"Emma","day":"2030-01-02","number":2}'),
    (Names, Names(["ann"]), '["ann"]'),
    (Order | None, None, "null"),
    (list[Order], [Order(book="Emma", day=DAY)], '[{"book":"Emma","day":"2030-01-02","number":1}]'),
    (Point, Point(1, DAY), '{"x":1,"day":"2030-01-02"}'),
    (Pair, Pair(1, 2), "[1,2]"),
    (Page, {"url": "/", "day": DAY, "links": [{"url": "/a"}]}, '{"url":"/","day":"2030-01-02","links":[{"url":"/a"}]}'),
]

# what is stored is of another version of the class
UNREADABLE = [
    (Order, '{"book":"Emma"}', "day"),
    (Order, '{"book":"Emma","day":"2030-01-02","number":0}', "number"),
    (Point, "{}", "x"),
    (Page, "{}", "Page needs url"),
    (Page, '{"url":"/","day":"today"}', "day of Page: 'today' is not date"),
    (Page, '{"url":"/","size":3}', "Page has no size"),
]

REFUSED = [
    (Order, {"book": "Emma", "day": DAY}, "is not Order"),
    (Order, Larger(book="Emma", day=DAY), "is not Order"),
    (Order, Order.model_construct(book=5, day=DAY, copies=1), "book"),
    (Point, Point("x"), "Expected `int`"),  # type: ignore[arg-type]
    (Page, {"day": DAY}, "Page needs url"),
    (Page, {"url": 5}, "url of Page: 5 is not str"),
]


@job(queue="orders", keep_result=True)
def total(order: Order, page: Page | None = None) -> Order:
    return order.model_copy(update={"copies": order.copies + 1})


class Ship(Job):
    namespace = "models_as_values"
    queue_name = "orders"
    order = Argument(Order)
    point = Argument(Point, default=Point(3))

    def run(self, queue: Queue) -> None:
        raise ValueError(f"{self.order.value().book} {self.point.value().x + 0}")


@each(("kind", "value", "text"), STORED)
def test_they_are_stored_as_json_and_come_back_as_they_were(kind: Any, value: Any, text: str) -> None:
    codec = codec_of(kind)
    assert codec.stored("It", value) == text
    assert codec.load(text) == value


@each(("kind", "text", "what"), UNREADABLE)
def test_what_cannot_be_read_is_an_error_that_names_it(kind: Any, text: str, what: str) -> None:
    with pytest.raises(ValueError, match=what):
        codec_of(kind).load(text)


@each(("kind", "value", "what"), REFUSED)
def test_what_is_not_valid_is_refused_when_it_is_added(kind: Any, value: Any, what: str) -> None:
    with pytest.raises(TypeError, match=what):
        codec_of(kind).stored("It", value)


def test_a_field_that_is_new_has_its_default() -> None:
    assert codec_of(Order).load('{"book":"Emma","day":"2030-01-02"}').copies == 1
    assert codec_of(Point).load('{"x":1}').day is None


def test_functions_and_classes_take_and_return_them() -> None:
    added = total.add(Order(book="Emma", day=DAY), {"url": "/"})
    work("orders", callback=None)
    assert added.result() == Order(book="Emma", day=DAY, number=2)
    Ship.add(order=Order(book="Ulysses", day=DAY))
    work("orders", callback=None)
    assert [error.message.hget() for error in Error.collection().instances()] == ["Ulysses 3"]


def test_a_job_whose_argument_is_of_another_version_fails_and_says_why() -> None:
    added = total.add(Order(book="Emma", day=DAY))
    type(added.job).database.connection.hset(f"{added.job.key}", "order", '{"book":"Emma"}')
    work("orders", callback=None)
    [error] = Error.collection().instances()
    assert error.message.hget().startswith(f"The argument 'order' of {__name__}.total is not Order: ")
    assert "day" in error.message.hget()


@pytest.mark.proof
def test_who_has_no_such_class_and_no_resource_imports_none_of_it() -> None:
    program = """if True:
        import sys
        from typing import Any
        from limpyd_jobs import Argument
        Argument(dict[str, Any]), Argument(list[int] | None, default=None)
        try:
            Argument(type("Unknown", (), {}))
        except TypeError:
            assert not any(name.startswith("limpyd_jobs.workers") for name in sys.modules)
            print({"pydantic", "msgspec", "limpyd_jobs.models.functions.resources"} & sys.modules.keys())
    """
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True, timeout=60)
    assert done.stdout == "set()\n"
