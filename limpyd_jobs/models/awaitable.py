"""The awaitable methods of the models: each does as the other method, by the same steps, without blocking the loop."""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from functools import partial, wraps
from typing import Any, TypeVar, cast

from limpyd_jobs.classes.roots import extends
from limpyd_jobs.functions import memoized
from limpyd_jobs.redis.calls import Steps

T = TypeVar("T")
Method = TypeVar("Method", bound=Callable[..., Coroutine[Any, Any, Any]])

# The methods of version 2, and of limpyd: what a class overrides them with is meant.
_OF_VERSION_2 = ("add_job", "delete", "enqueue_or_delay", "requeue", "set_fields")


async def finished(steps: Steps[T]) -> T:
    """Do as `limpyd_jobs.redis.awaiting.finished`."""
    from limpyd_jobs.redis import awaiting  # not at the start of each process

    return await awaiting.finished(steps)


async def in_thread(function: Callable[[], T]) -> T:
    """Do as `limpyd_jobs.redis.awaiting.in_thread`."""
    from limpyd_jobs.redis import awaiting  # not at the start of each process

    return await awaiting.in_thread(function)


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
