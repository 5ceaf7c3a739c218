"""Which functions are called because a record names them: those of modules that code, or the command line, allows."""

from __future__ import annotations

from collections.abc import Iterable
from functools import lru_cache
from importlib import import_module
from inspect import getattr_static
from types import FunctionType, ModuleType
from typing import Any

from limpyd_jobs.integration import job_modules, one_line

# The package of this library, whose functions are not for records to call.
OURS = __name__.partition(".")[0]

# How many characters of the name of a function are shown at most.
MAX_NAME = 200

# How many functions are remembered. To look one up takes longer than to read the rest of its job.
FUNCTIONS = 1_000


class AllowedFunctions:
    """The functions that may be called because a record names them: those of the modules that `owner` allows, or else
    of those that ``--job-modules`` names, or else, if it is open, any. That they are imported already allows nothing.
    """

    def __init__(self, allowed: Iterable[str] | None, owner: str, is_open: bool = False) -> None:
        self._allowed = _checked_modules(allowed)
        self._owner = owner
        self._is_open = is_open

    def check(self, func: str) -> None:
        """Raise `ValueError` if a function, given as ``module:name``, may not be called.

        Functions that a module imports, such as ``os.system``, do not count; nor do properties, which would run code.
        """
        modules = job_modules() if self._allowed is None else self._allowed
        if modules is None and self._is_open:
            return
        if modules is None:
            raise ValueError(
                f"The function {func[:MAX_NAME]!r} is not called, because no module is allowed: name its module in "
                f"`allowed` of {self._owner}, or with --job-modules"
            )
        _check_made(func, modules)


@lru_cache(FUNCTIONS)
def _check_made(func: str, modules: tuple[str, ...]) -> None:
    """Look a function up in its module, and in the classes there, without running code of them but their import."""
    module, _, path = func.partition(":")
    found: Any = _imported(module) if _is_in(module, modules) else None
    *objects, last = path.split(".")
    for name in (*objects, last):
        found = getattr_static(found, name, None)
        if isinstance(found, (staticmethod, classmethod)):
            found = found.__func__
        is_function = isinstance(found, (FunctionType, type))
        made = found if is_function else type(found)  # an object may have a method that its class made
        if not (_is_in(made.__module__, modules) and (is_function or name is not last)):
            raise ValueError(
                f"The function {func[:MAX_NAME]!r} is in none of the modules that are allowed, or not a function there"
            )


def _imported(module: str) -> ModuleType:
    try:
        return import_module(module)
    except ImportError as error:
        raise LookupError(f"{one_line(module)} cannot be imported: {one_line(error)}") from error


def _is_in(module: Any, modules: Iterable[str]) -> bool:
    name = str(module)
    if name.partition(".")[0] == OURS:
        return False
    if "__main__" in name.split(".") and name != "__main__":  # a program: to import it is to run it
        return False
    return any(name == each or name.startswith(f"{each}.") for each in modules)


def _checked_modules(allowed: Any) -> tuple[str, ...] | None:
    if allowed is None:
        return None
    if isinstance(allowed, str):  # each of its letters would be a module
        raise TypeError(f"allowed must be a list of modules, as [{allowed!r}], not {allowed!r}")
    names = tuple(allowed) if isinstance(allowed, Iterable) else (allowed,)
    if not all(isinstance(each, str) for each in names):
        raise TypeError(f"allowed must be a list of modules, as ['myapp.jobs'], not {allowed!r}")
    return names
