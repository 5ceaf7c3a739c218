"""What can be asked of functions and methods."""

from __future__ import annotations

import sys
from collections.abc import Callable
from functools import cache
from inspect import signature
from typing import Any, TypeVar, cast

Function = TypeVar("Function", bound=Callable[..., Any])

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
        signature(function).bind(*args)
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
