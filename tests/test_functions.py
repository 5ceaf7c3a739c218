"""What is no ordinary function: code that a call alone does not run."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Iterator
from functools import partial, wraps
from typing import Any

from cases import each

from limpyd_jobs.functions import is_async, unrun_kind


async def asynchronous(*args: Any) -> None:
    pass


def generator(*args: Any) -> Iterator[int]:
    yield 1


async def asynchronous_generator(*args: Any) -> AsyncIterator[int]:
    yield 1


def plain(*args: Any) -> None:
    pass


def to_plain(function: Callable[..., Any]) -> Callable[..., Any]:
    @wraps(function)
    def wrapper(*args: Any) -> Any:
        return asyncio.run(function(*args))

    return wrapper


def to_asynchronous(function: Callable[..., Any]) -> Callable[..., Any]:
    @wraps(function)
    async def wrapper(*args: Any) -> Any:
        return function(*args)

    return wrapper


class Asynchronous:
    async def __call__(self) -> None:
        pass

    async def method(self) -> None:
        pass

    @staticmethod
    async def static() -> None:
        pass

    @classmethod
    async def of_class(cls) -> None:
        pass


class Plain:
    def __call__(self) -> None:
        pass


ASYNC = [
    asynchronous,
    partial(asynchronous, 1),
    partial(partial(asynchronous, 1), 2),
    Asynchronous(),
    partial(Asynchronous()),
    Asynchronous().method,
    Asynchronous.static,
    Asynchronous.of_class,
    to_asynchronous(plain),
]

UNORDINARY = {
    "a generator function": [generator, partial(generator, 1)],
    "an async generator function": [asynchronous_generator, partial(asynchronous_generator, 1)],
}


@each(("kind", "function"), [(kind, function) for kind, functions in UNORDINARY.items() for function in functions])
def test_it_is_told_of_which_kind_it_is(kind: str, function: Any) -> None:
    assert unrun_kind(function) == kind


@each("function", ASYNC)
def test_an_async_function_is_to_be_awaited(function: Any) -> None:
    assert is_async(function)
    assert unrun_kind(function) == ""


@each("function", [plain, partial(plain, 1), Plain(), Plain, Asynchronous, print, str.upper, None, 1])
def test_others_are_ordinary(function: Any) -> None:
    assert unrun_kind(function) == ""
    assert not is_async(function)


def test_an_ordinary_function_that_runs_an_async_one_is_ordinary() -> None:
    assert not is_async(to_plain(asynchronous))
