"""Resolving the class paths that are stored with jobs. Only job classes are imported, whatever the path says."""

from __future__ import annotations

import re
import sys
import warnings
from collections.abc import Mapping, Sequence
from contextlib import suppress
from datetime import timedelta
from importlib import import_module
from itertools import islice
from pkgutil import iter_modules
from types import ModuleType
from typing import Any, Generic, TypeVar

from limpyd.model import RedisModel

from limpyd_jobs.arguments import checked_duration, is_number
from limpyd_jobs.classes.binding import bound_like, concrete, origin_of
from limpyd_jobs.classes.imports import NotAllowed, hint_for, why_not_imported
from limpyd_jobs.classes.roots import roots
from limpyd_jobs.classes.sources import bare_folders, defines_job_function, defines_subclass, is_ours, is_standard
from limpyd_jobs.exceptions import ConfigurationException
from limpyd_jobs.functions import REMEDY, frames_of_ours, unrun_kind

T = TypeVar("T")

# The longest path of a class, in characters.
MAX_PATH_LENGTH = 1024

# The job classes that this library adds jobs of by itself, by their paths: the modules that define them. They are
# imported when such a job is met, whatever modules are allowed. What they call is in one of these.
ON_EXHAUSTED = "limpyd_jobs.models.OnExhausted"
OWN_CLASSES = dict.fromkeys((ON_EXHAUSTED, f"{ON_EXHAUSTED}Async"), "limpyd_jobs.models.claims.exhausted")


def resolve_path(path: str, base: type[T], named: Sequence[str] = ()) -> type[T]:
    """Return the class of a path, which must be one of the subclasses of `base`, or `base` itself.

    If the class is not imported yet, the source of its module is read before. The module is imported only if, as far as
    its source tells (see `defines_subclass` and `defines_job_function`), it defines such a class, or a function that is
    a job, itself, and if it is part neither of the standard
    library nor of this one: an integration that happens to be installed is for the application to import. Nor is a
    module imported that is below a folder without an ``__init__``, such as one of uploads, unless that folder, or
    something in it, is among the modules that are named. It raises ValueError for what is not such a path, and
    ImportError or AttributeError if there is no such class.
    """
    module_name, name = _split(path)
    if path in OWN_CLASSES:
        return _look_up(import_module(OWN_CLASSES[path]), name, path, base)
    module = sys.modules.get(module_name)
    if module is None:
        _check_source(module_name, name, base)
        _check_folders(module_name, named)
        module = _import(module_name)
    return _look_up(module, name, path, base)


def _split(path: str) -> tuple[str, str]:
    module_name, _, name = path.rpartition(".")
    if len(path) > MAX_PATH_LENGTH or not (module_name and all(part.isidentifier() for part in path.split("."))):
        raise ValueError(f"{path[:MAX_PATH_LENGTH]!r} is not the path of a class: a module and a name are needed")
    return module_name, name


def _check_source(module_name: str, name: str, base: type) -> None:
    if "__main__" in module_name.split("."):
        raise ValueError(f"{module_name}.{name} is not imported: a __main__ is a program, so to import it is to run it")
    if is_standard(module_name):
        raise ValueError(f"{module_name}.{name} is not imported: {module_name} is part of the standard library")
    if not (defines_subclass(module_name, name, base) or defines_job_function(module_name, name)):
        raise AttributeError(
            f"{module_name} is not imported: {name} is neither the name of a subclass of {base.__name__} at the top "
            "level of its source, nor of a function with @job. If it is made otherwise, let the application import it"
        )
    if is_ours(module_name):
        raise NotAllowed(
            f"{module_name} is not imported because a job names it: import it in the application", name=module_name
        )


def _check_folders(module_name: str, named: Sequence[str]) -> None:
    for folder in bare_folders(module_name):
        if not any(f"{name}.".startswith(f"{folder}.") for name in named):
            raise NotAllowed(
                f"{module_name} is not imported because a job names it: {folder} is a folder without an __init__.py",
                name=module_name,
            )


def _import(module_name: str) -> ModuleType:
    try:
        return import_module(module_name)
    except SystemExit as error:
        raise ImportError(f"{module_name} ends the program when it is imported", name=module_name) from error


def _look_up(module: ModuleType, name: str, path: str, base: type[T]) -> type[T]:
    """Return a class of a module, without running code of the module or of the object."""
    names = vars(module) if isinstance(module, ModuleType) else {}
    if name not in names:
        raise AttributeError(f"{path!r} is not there: its module has no such name")
    found: Any = names[name]
    if type(found) is roots.job_function:
        found = job_class_of(found)
        if path_of(found) != path:  # the keys of its jobs are by its own path
            raise ValueError(f"{path!r} is not the path of a job, but another name of {path_of(found)}")
    if not (issubclass(type(found), type) and issubclass(found, base)):
        raise ValueError(f"{path!r} is not a subclass of {base.__name__}")
    if vars(found).get("abstract", False):
        raise ValueError(f"{path!r} is abstract, so there are no jobs of it")
    return found


def module_names(modules: str | Sequence[str]) -> list[str]:
    """Return the names of modules and packages: the given ones, in a list, a tuple, or a text with commas."""
    names = modules.split(",") if isinstance(modules, str) else modules
    if not isinstance(names, (list, tuple)) or not all(isinstance(name, str) for name in names):
        raise ConfigurationException(f"The modules of jobs must be names in a list or a text, not {modules!r}")
    names = list(dict.fromkeys(name.strip() for name in names if name.strip()))
    if not names:
        raise ConfigurationException(f"No module of jobs is named by {modules!r}")
    for name in names:
        if not all(part.isidentifier() for part in name.split(".")):
            raise ConfigurationException(f"{name!r} cannot be the name of a module of jobs")
    return names


def import_with_submodules(name: str) -> None:
    """Import a module, and, if it is a package, all its modules, except ``__main__``, which is a program."""
    try:
        module = _import(name)
    except Exception as error:  # the module may raise any exception
        why = f"{why_not_imported(error)}{hint_for(error, name)}"
        raise ConfigurationException(f"cannot import {name!r}: {why}") from error
    if name == __name__.partition(".")[0]:  # its job class is imported, and not all our integrations can be
        return
    for info in iter_modules(getattr(module, "__path__", ()), f"{name}."):
        last = info.name.rpartition(".")[2]
        if last != "__main__" and last.isidentifier():
            import_with_submodules(info.name)


class JobClasses(Generic[T]):
    """The job classes that this process used lately; at first, some of the imported ones. Scripts are told of them, as
    they change jobs before the caller knows the classes of the jobs.

    Parameters
    ----------
    base: type
        The class that all of them inherit from.
    limit: int
        How many classes to remember at most.
    """

    def __init__(self, base: type[T], limit: int = 32) -> None:
        self.base = base
        self.limit = limit
        self._resolved: dict[str, type[T]] = {}
        self._allowed: list[str] | None = None

    @property
    def modules(self) -> tuple[str, ...] | None:
        """The modules and packages that are allowed; None for any."""
        return None if self._allowed is None else tuple(self._allowed)

    @property
    def known(self) -> Mapping[str, type[T]]:
        """The classes by their path. The mapping is never changed, but replaced, so threads may share it."""
        if not self._resolved:
            imported = (cls for cls in concrete(self.base) if self._allows(path_of(cls)))
            self._resolved = {path_of(cls): cls for cls in islice(imported, self.limit)} or self._resolved
        return self._resolved

    def look_again(self) -> None:
        """Know all classes that are imported, also those that tests define inside functions."""
        self._resolved = {path_of(cls): cls for cls in self.all()}

    def all(self) -> list[type[T]]:
        """Return the classes that this process knows: the imported ones, and those it has resolved."""
        imported = (cls for cls in concrete(self.base) if self._allows(path_of(cls)))
        return list(dict.fromkeys([*imported, *self._resolved.values()]))

    def allow(self, modules: str | Sequence[str] | None) -> None:
        """From now on, in the whole process, resolve only the classes of these modules and of the modules below them;
        of any module if it is None."""
        self._allowed = None if modules is None else module_names(modules)
        self._resolved = {}

    def load(self, modules: str | Sequence[str]) -> None:
        """Import these modules, and all modules below them, and `allow` no others."""
        names = module_names(modules)
        if names != self._allowed:
            for name in names:
                import_with_submodules(name)
            self.allow(names)

    def resolve(self, path: str) -> type[T]:
        """Return the class of a path, if it is in one of the allowed modules, and remember it: see `resolve_path`."""
        cls = self._resolved.get(path) or self.known.get(path)
        if cls is None:
            self._check(path)
            cls = resolve_path(path, self.base, self._allowed or ())
            self._check(path_of(cls))
            # The path may be the old path of a class that was moved.
            paths = dict.fromkeys((path, path_of(cls)), cls)
            others = [(known, other) for known, other in self.known.items() if known not in paths]
            self._resolved = {**dict(others[len(paths) - self.limit :]), **paths}
        return cls

    def like(self, model: type[RedisModel]) -> JobClasses[T] | BoundJobClasses:
        """Return the job classes for a model, such as a queue model: bound like the model, if it is bound."""
        return self if origin_of(model) is model else BoundJobClasses(self, model)

    def _check(self, path: str) -> None:
        if not self._allows(path):
            allowed = ", ".join(self._allowed or ())
            path = path[:MAX_PATH_LENGTH]
            raise NotAllowed(
                f"{path!r} is in none of the modules that jobs may come from: {allowed}", name=path.rpartition(".")[0]
            )

    def _allows(self, path: str) -> bool:
        module = path.rpartition(".")[0]
        if self._allowed is None or path in OWN_CLASSES:
            return True
        return any(f"{module}.".startswith(f"{name}.") for name in self._allowed)


class BoundJobClasses:
    """The job classes of this process, bound like a model."""

    def __init__(self, classes: JobClasses[Any], model: type[RedisModel]) -> None:
        self._classes = classes
        self._model = model
        self._known: tuple[Mapping[str, Any], dict[str, Any]] = {}, {}

    @property
    def known(self) -> Mapping[str, Any]:
        """As `JobClasses.known`, without the classes that cannot be bound."""
        origins = self._classes.known
        if self._known[0] is not origins:
            known = {}
            for path, cls in origins.items():
                with suppress(ConfigurationException):
                    known[path] = bound_like(cls, self._model)
            self._known = origins, known
        return self._known[1]

    def resolve(self, path: str) -> Any:
        """As `JobClasses.resolve`.

        Raises
        ------
        ConfigurationException
            If the class cannot be bound.
        """
        return bound_like(self._classes.resolve(path), self._model)


# The classes of the jobs this process has met. Their common base is set where it is defined.
job_classes: JobClasses[Any] = JobClasses(RedisModel)


def job_class_of(given: Any) -> Any:
    """Return the job class of a function that is a job; anything else as it is."""
    return vars(given)["job_class"] if type(given) is roots.job_function else given


def imported_job_class(path: str) -> Any:
    """Return the job class of a path, if this process has imported it; else None. Nothing is imported."""
    module, _, name = path.rpartition(".")
    found = vars(sys.modules[module]).get(name) if module in sys.modules else None  # which runs no code of the module
    found = job_class_of(found)
    return found if isinstance(found, type) and issubclass(found, job_classes.base) else None


# The durations that a class has as attributes, and a text that is likely meant as one.
_DURATIONS = (
    "start_within", "retry_for", "max_run_time", "unique_for", "keep_output", "keep_result", "default_job_timeout",
    "kill_after",
)  # fmt: skip
_TIME = re.compile(r"\s*-?\d+(\.\d+)?\s*([smhdw]|ms|secs?|seconds?|mins?|minutes?|hours?|days?|weeks?)?\s*", re.ASCII)


def check_addable(job_class: Any) -> None:
    """Check a class before its first job is added; warn if workers in other processes could not import it.

    Raises
    ------
    ConfigurationException
        If a worker that calls its `run` method would not run its code, or a time limit of the class is not valid.
    """
    check_durations(job_class)
    kind = unrun_kind(getattr(job_class, "run", None))
    if kind:
        raise ConfigurationException(f"{path_of(job_class)}.run is {kind}: a worker would run nothing of it. {REMEDY}.")
    place = _place_out_of_reach(job_class)
    if place and not _is_private(job_class.database):
        warnings.warn(
            f"{path_of(job_class)} {place}, so workers in other processes cannot import it, nor run its jobs. "
            "Define the class at the top level of a module that workers can import, such as myapp/jobs.py.",
            stacklevel=frames_of_ours(),
        )


def check_durations(job_class: Any) -> None:
    """Raise `ConfigurationException` if a class has a number, a timedelta or a text such as ``"1h"`` in place of a
    duration, and it is none. Anything else of that name is the application's own."""
    for name in _DURATIONS:
        value = getattr(job_class, name, None)
        is_meant = isinstance(value, timedelta) or (isinstance(value, str) and _TIME.fullmatch(value))
        if isinstance(value, timedelta) and name in ("default_job_timeout", "kill_after"):
            raise ConfigurationException(f"{path_of(job_class)}.{name} must be a number of seconds, not {value!r}")
        if is_meant or is_number(value):
            try:
                checked_duration(f"{path_of(job_class)}.{name}", value)
            except (TypeError, ValueError) as error:
                raise ConfigurationException(str(error)) from None


def _place_out_of_reach(cls: type) -> str:
    """Return where a class is defined, if no other process finds it there; else empty."""
    if cls.__module__ == "__main__":
        return "is defined in the program itself"
    is_inside = "." in cls.__qualname__
    if is_inside and getattr(sys.modules.get(cls.__module__), cls.__name__, None) is not origin_of(cls):
        inside = "a function" if "<locals>" in cls.__qualname__ else "another class"
        return f"is defined inside {inside}"
    return ""


def _is_private(database: Any) -> bool:
    """Whether only this process uses the Redis server of a database, so that there are no other workers."""
    return (getattr(database, "connection_settings", None) or {}).get("embedded") is True


def path_of(cls: type) -> str:
    """Return the path of a class: its module and its name."""
    return f"{cls.__module__}.{cls.__name__}"
