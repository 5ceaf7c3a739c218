"""Whether a function does its work when it is called: workers await coroutines, and do not run generators."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from functools import partial
from types import AsyncGeneratorType, CoroutineType, GeneratorType
from typing import Any

REMEDY = "Make it an ordinary function, or an async one, and let it loop over the generator"

_AWAIT_IT = "Make it an async function that awaits it"

_KINDS = (
    (inspect.isasyncgenfunction, "an async generator function"),
    (inspect.isgeneratorfunction, "a generator function"),
)


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
