"""Which functions can be jobs. Those that cannot are refused when their module is imported, in one line."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any, NoReturn

from limpyd_jobs.exceptions import ConfigurationException
from limpyd_jobs.functions import REMEDY, unrun_kind

AT_TOP = "define it at the top level of a module that workers can import, such as myapp/jobs.py"


def refuse(function: Any, what: str) -> NoReturn:
    """Raise `ConfigurationException`, which names a function, and its file and line."""
    raise ConfigurationException(f"{path_of_function(function)}{_place_of(function)}: {what}")


def path_of_function(function: Any) -> str:
    """Return the path of a function, also of one that cannot be a job."""
    try:
        return f"{function.__module__}.{function.__qualname__}"
    except AttributeError:
        return repr(function)


def _place_of(function: Any) -> str:
    code = getattr(inspect.unwrap(function) if callable(function) else function, "__code__", None)
    return f" ({code.co_filename}, line {code.co_firstlineno})" if code else ""


def check_function(function: Any) -> None:
    """Refuse what is not a function that other processes find by its path, and that does its work when called."""
    if isinstance(function, (classmethod, staticmethod)):
        refuse(function.__func__, f"a method cannot be a job: {AT_TOP}")
    if not (callable(function) and inspect.isfunction(inspect.unwrap(function))):
        refuse(function, f"only a function can be a job, not {_kind_of(function)}: write it with def")
    if function.__name__ == "<lambda>":
        refuse(function, "a lambda has no name by which workers could find it: write it with def")
    _check_place(function)
    kind = unrun_kind(function)
    if kind:
        refuse(function, f"{kind} cannot be a job: {REMEDY[0].lower()}{REMEDY[1:]}")


def _check_place(function: Callable[..., Any]) -> None:
    outer, _, _ = function.__qualname__.rpartition(".")
    if outer.endswith("<locals>"):
        refuse(
            function,
            f"a function inside another one cannot be a job: {AT_TOP}. If a decorator below @job made it, that needs "
            "functools.wraps",
        )
    if outer:
        refuse(function, f"a method cannot be a job: {AT_TOP}")
    if function.__module__ in ("__main__", "__mp_main__", None):
        refuse(function, f"workers cannot import the program that was started: {AT_TOP}, and import it from there")


def _kind_of(thing: Any) -> str:
    return f"the class {thing.__name__}" if isinstance(thing, type) else f"a {type(thing).__name__}"
