"""The observers that a worker is given by their names."""

from __future__ import annotations

from functools import cache
from importlib import import_module
from types import ModuleType
from typing import Any

from limpyd_jobs.classes.imports import import_class, installed_only, is_not_found, not_imported
from limpyd_jobs.exceptions import ConfigurationException
from limpyd_jobs.observing.emitting import subscribe
from limpyd_jobs.observing.instruments import Instrument
from limpyd_jobs.texts import is_meant

# By name: the class, its arguments, and the extra that brings what it needs.
INTEGRATIONS: dict[str, tuple[str, tuple[str, ...], str]] = {
    "opentelemetry": ("limpyd_jobs.contrib.opentelemetry.Tracing", (), "opentelemetry"),
    "opentelemetry-links": ("limpyd_jobs.contrib.opentelemetry.Tracing", ("link",), "opentelemetry"),
    "sentry": ("limpyd_jobs.contrib.sentry.Sentry", (), "sentry"),
}


def observer_names(names: Any) -> list[str]:
    """Return the names of observers: the given ones, in a list, a tuple, or a text with commas; or raise
    `ConfigurationException`."""
    found = names.split(",") if isinstance(names, str) else names
    if not isinstance(found, (list, tuple)) or not all(isinstance(name, str) for name in found):
        raise ConfigurationException(f"observers must be names in a list or a text, not {names!r}")
    found = list(dict.fromkeys(name.strip() for name in found if name.strip()))
    if not found:
        raise ConfigurationException(f"no observer is named by {names!r}")
    for name in found:
        if name not in INTEGRATIONS and not all(part.isidentifier() for part in name.split(".")):
            raise ConfigurationException(f"{name!r} cannot be the name of an observer: {_choices()}")
    return found


def subscribe_named(names: Any) -> None:
    """Subscribe observers by their names. A module is imported, and may subscribe what it likes.

    Raises
    ------
    ConfigurationException
        If one cannot be imported, or is not an observer.
    """
    for name in observer_names(names):
        observer = _made(name) if name in INTEGRATIONS else _imported(name)
        if isinstance(observer, Instrument) or (callable(observer) and not isinstance(observer, type)):
            subscribe(observer)
        elif not isinstance(observer, ModuleType):
            raise ConfigurationException(f"observers: {name} is not an observer, but {observer!r}: {_choices()}")


@cache
def _made(name: str) -> Any:
    """Return the observer of an integration, the same one each time."""
    path, arguments, extra = INTEGRATIONS[name]
    try:
        with installed_only():
            return import_class(path)(*arguments)
    except ImportError as error:
        needed = f"pip install 'redis-limpyd-jobs[{extra}]'"
        raise ConfigurationException(f"observers: {name} is not installed: {needed} ({error})") from error


def _imported(name: str) -> Any:
    try:
        try:
            return import_module(name)
        except ModuleNotFoundError as error:
            if "." not in name or not is_not_found(error, name):
                raise
            return import_class(name)
    except Exception as error:  # the module may raise any exception
        if "." not in name and is_not_found(error, name):
            meant = is_meant(name, INTEGRATIONS) or f": {_choices()}"
            raise ConfigurationException(f"observers: nothing is called {name}{meant}") from error
        raise ConfigurationException(f"observers: {not_imported(name, error)}") from error


def _choices() -> str:
    return f"name {', '.join(INTEGRATIONS)}, or the path of a function, such as myapp.metrics.count"
