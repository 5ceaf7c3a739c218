"""Which functions are called because a record names them: those of modules that code, or the command line, allows."""

from __future__ import annotations

from collections.abc import Iterable
from functools import lru_cache
from typing import Any

from apscheduler.util import ref_to_obj

from limpyd_jobs.models.job_record import job_modules

# The package of this library, whose functions are not for records to call.
OURS = __name__.partition(".")[0]

# How many characters of the name of a function are shown at most.
SHOWN = 200

# How many functions are remembered. To look one up takes longer than to read the rest of its job.
FUNCTIONS = 1_000


class AllowedFunctions:
    """The functions that may be called because a record names them. That they are imported already allows nothing.

    Parameters
    ----------
    allowed: iterable of str
        The modules, or packages, in which they have to be defined; None for the modules of jobs of this process, which
        ``--job-modules`` names.
    owner: str
        Who was given `allowed`, for messages.
    is_open: bool
        Whether any function may be called if nobody says which.

    Raises
    ------
    TypeError
        If `allowed` is something else.
    """

    def __init__(self, allowed: Iterable[str] | None, owner: str, is_open: bool = False) -> None:
        self._allowed = _checked_modules(allowed)
        self._owner = owner
        self._is_open = is_open

    def check(self, func: str) -> None:
        """Raise `ValueError` if a function, given as ``module:name``, may not be called.

        It must be found in one of the modules, and made there. Functions that they import, such as ``os.system``, do
        not count.
        """
        modules = job_modules() if self._allowed is None else self._allowed
        if modules is None and self._is_open:
            return
        if modules is None:
            raise ValueError(
                f"The function {func[:SHOWN]!r} is not called, because no module is allowed: name its module in "
                f"`allowed` of {self._owner}, or with --job-modules"
            )
        if not _is_of(func, modules):
            raise ValueError(f"The function {func[:SHOWN]!r} is in none of the modules that are allowed")


def _is_of(func: str, modules: tuple[str, ...]) -> bool:
    module, _, name = func.partition(":")
    is_program = "__main__" in name.split(".")  # to look it up is to run it
    return _is_in(module, modules) and not is_program and _is_made_in(func, modules)


@lru_cache(FUNCTIONS)
def _is_made_in(func: str, modules: tuple[str, ...]) -> bool:
    return _is_in(getattr(ref_to_obj(func), "__module__", None), modules)


def _is_in(module: Any, modules: Iterable[str]) -> bool:
    name = str(module)
    if name.partition(".")[0] == OURS:
        return False
    is_program = name.endswith(".__main__")
    return any(name == each or (name.startswith(f"{each}.") and not is_program) for each in modules)


def _checked_modules(allowed: Any) -> tuple[str, ...] | None:
    if allowed is None:
        return None
    if isinstance(allowed, str):  # each of its letters would be a module
        raise TypeError(f"allowed must be a list of modules, as [{allowed!r}], not {allowed!r}")
    names = tuple(allowed) if isinstance(allowed, Iterable) else (allowed,)
    if not all(isinstance(each, str) for each in names):
        raise TypeError(f"allowed must be a list of modules, as ['myapp.jobs'], not {allowed!r}")
    return names
