"""What can be asked of functions and methods: such as whether they do their work when they are called. Workers await
coroutines, and do not run generators."""

from __future__ import annotations

import inspect
import sys
from collections.abc import Callable
from functools import cache, partial
from types import AsyncGeneratorType, CoroutineType, GeneratorType
from typing import Any, TypeVar, cast

Function = TypeVar("Function", bound=Callable[..., Any])

REMEDY = "Make it an ordinary function, or an async one, and let it loop over the generator"

_AWAIT_IT = "Make it an async function that awaits it"

_KINDS = (
    (inspect.isasyncgenfunction, "an async generator function"),
    (inspect.isgeneratorfunction, "a generator function"),
)

_memoized: list[Any] = []


def memoized(function: Function) -> Function:
    """Do as `functools.cache`, also for arguments whose types mypy takes for unhashable."""
    kept = cache(function)
    _memoized.append(kept)
    return cast(Function, kept)


def forget_memoized() -> None:
    """Forget all results: what was found out about classes is no longer true."""
    for function in _memoized:
        function.cache_clear()


def overrides(owner: Any, base: type, *names: str) -> bool:
    """Return whether a class, or an object, overrides any of these attributes of one of its bases."""
    if owner is base:
        return False
    for name in names:
        one, other = getattr(owner, name, None), getattr(base, name)
        if getattr(one, "__func__", one) is not getattr(other, "__func__", other):
            return True
    return False


def takes(function: Any, *args: Any) -> bool:
    """Return whether something is a function that can be called with such arguments."""
    try:
        inspect.signature(function).bind(*args)
    except TypeError:
        return False
    except ValueError:  # it does not say what it takes
        return True
    return True


def frames_of_ours() -> int:
    """Return how many frames to go up, for `warnings.warn` in the caller, to the code that called this library."""
    package = __name__.partition(".")[0]
    level, frame = 1, sys._getframe(1)
    while frame.f_back and frame.f_globals.get("__name__", "").partition(".")[0] == package:
        level, frame = level + 1, frame.f_back
    return level


def unrun_kind(function: Any) -> str:
    """Return the kind of a function whose code no worker runs, such as ``a generator function``; else empty.

    A decorated function is judged by itself: one around a generator function may well run it.
    """
    kinds = (kind for is_of_kind, kind in _KINDS if _is_any(is_of_kind, function))
    return next(kinds, "")


def is_async(function: Any) -> bool:
    """Whether a function is an async one, to be awaited. A decorated function is judged by itself."""
    return _is_any(inspect.iscoroutinefunction, function)


def _is_any(is_of_kind: Callable[[Any], bool], function: Any) -> bool:
    while isinstance(function, partial):
        function = function.func
    candidates = (function, type(function).__call__) if callable(function) else ()
    return any(map(is_of_kind, candidates))


def is_coroutine(result: Any) -> bool:
    """Whether a function returned a coroutine, whose code has not run."""
    return isinstance(result, CoroutineType)


def is_unrun(result: Any) -> bool:
    """Whether a function returned something that is still to be run: a generator, or something that can be awaited."""
    return isinstance(result, (GeneratorType, AsyncGeneratorType)) or hasattr(type(result), "__await__")


def why_unrun(function: Any, result: Any) -> str:
    """Say why a call did not do its work, given its return value. That is closed."""
    if is_coroutine(result):
        result.close()  # without a warning that it was never awaited
    name = f"{getattr(function, '__module__', '')}.{getattr(function, '__qualname__', repr(function))}"
    kind = unrun_kind(function)
    if kind:
        return f"{name} is {kind}: nothing of it has run. {REMEDY}"
    remedy = _AWAIT_IT if hasattr(type(result), "__await__") else REMEDY
    return f"{name} returned a {type(result).__name__}, which is not run. {remedy}"
