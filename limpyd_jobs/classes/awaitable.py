"""Awaitable methods: each does as the other method, by the same steps, without blocking the loop."""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from functools import partial, wraps
from inspect import signature
from typing import Any, ParamSpec, TypeVar, cast

from limpyd_jobs.classes.roots import extends
from limpyd_jobs.functions import memoized
from limpyd_jobs.redis.calls import Requests, Steps, finish

P = ParamSpec("P")
T = TypeVar("T")
Method = TypeVar("Method", bound=Callable[..., Coroutine[Any, Any, Any]])

# The methods of version 2, and of limpyd: what a class overrides them with is meant.
_OF_VERSION_2 = ("add_job", "delete", "enqueue_or_delay", "requeue", "set_fields")


async def finished(steps: Requests[T]) -> T:
    """Do as `limpyd_jobs.redis.awaiting.finished`."""
    from limpyd_jobs.redis import awaiting  # not at the start of each process

    return await awaiting.finished(steps)


async def in_thread(function: Callable[[], T]) -> T:
    """Do as `limpyd_jobs.redis.awaiting.in_thread`."""
    from limpyd_jobs.redis import awaiting  # not at the start of each process

    return await awaiting.in_thread(function)


def by_steps(method: Callable[P, Steps[T]]) -> Callable[P, T]:
    """Let a method that returns steps finish them."""

    @wraps(method)
    def call(*args: P.args, **kwargs: P.kwargs) -> T:
        return finish(method(*args, **kwargs))

    shown = signature(method)
    result = str(shown.return_annotation).removeprefix("Steps[").removesuffix("]")
    call.__signature__ = shown.replace(return_annotation=result)  # type: ignore[attr-defined]
    return call


def awaited(
    method: Callable[P, T], steps: Callable[..., Requests[T]] | None = None, *, about: str = ""
) -> Callable[P, Coroutine[Any, Any, T]]:
    """Return the awaitable form of a method, given what makes its steps of the same arguments. It need not be given of
    a method that has the decorator `by_steps`."""
    make: Callable[..., Requests[T]] = steps or method.__wrapped__  # type: ignore[attr-defined]

    @wraps(method)
    async def call(*args: P.args, **kwargs: P.kwargs) -> T:
        return await finished(make(*args, **kwargs))

    call.__name__, call.__qualname__ = f"a{method.__name__}", method.__qualname__.replace(".", ".a")
    call.__doc__ = f"Do as `{method.__name__}`, under asyncio: see :doc:`/howto/asyncio`. {about}".rstrip()
    return call


def awaitable(method: Method) -> Method:
    """Let an awaitable method call the other one, whose name lacks the ``a``, in a thread, with the arguments as they
    are given, if a class of the application overrides that, and not the awaitable one."""
    name = method.__name__
    other = "wait" if name == "await_end" else name[1:]  # `await` is a word of Python

    @wraps(method)
    async def call(owner: Any, *args: Any, **kwargs: Any) -> Any:
        if is_passed_over(owner if isinstance(owner, type) else type(owner), name, other):
            return await in_thread(partial(getattr(owner, other), *args, **kwargs))
        return await method(owner, *args, **kwargs)

    return cast(Method, call)


@memoized
def is_passed_over(owner: type, name: str, other: str) -> bool:
    """Whether an awaitable method would pass over what a class does in the other one."""
    for each in owner.__mro__:
        if name in vars(each):
            return False
        if other in vars(each):
            return other in _OF_VERSION_2 or extends(owner, other)
    return False
