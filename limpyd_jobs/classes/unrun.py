"""Whether a function does its work when it is called: workers do not run coroutines and generators."""

from __future__ import annotations

import inspect
from functools import partial
from types import AsyncGeneratorType, CoroutineType, GeneratorType
from typing import Any

REMEDY = (
    "Make it an ordinary function. For asynchronous code, let that call asyncio.run(); for a generator, let it loop "
    "over the generator"
)

_KINDS = (
    (inspect.isasyncgenfunction, "an async generator function"),
    (inspect.iscoroutinefunction, "an async function"),
    (inspect.isgeneratorfunction, "a generator function"),
)


def unrun_kind(function: Any) -> str:
    """Return the kind of a function whose code does not run when it is called, such as ``an async function``.

    A decorated function is judged by itself: one around an async one may well run it.
    """
    while isinstance(function, partial):
        function = function.func
    candidates = (function, type(function).__call__) if callable(function) else ()
    kinds = (kind for is_of_kind, kind in _KINDS if any(map(is_of_kind, candidates)))
    return next(kinds, "")


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
    return f"{name} returned a {type(result).__name__}, which is not run. {REMEDY}"
