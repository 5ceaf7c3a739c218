"""Importing what a path names, and saying why it cannot be imported."""

from __future__ import annotations

import importlib
import os
import sys
import traceback
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from importlib import import_module
from importlib.util import find_spec
from typing import Any

from limpyd_jobs.texts import MESSAGE, kind_of, one_line

_OURS = os.path.dirname(os.path.dirname(__file__))

# What Django raises if it is not set up, and what to do then.
_OF_DJANGO = {
    ("django.core.exceptions", "ImproperlyConfigured"),
    ("django.core.exceptions", "AppRegistryNotReady"),
}

DJANGO = (
    "Django is not set up: with limpyd_jobs.contrib.django in INSTALLED_APPS, use python manage.py limpyd_jobs, or "
    "limpyd_jobs_worker; for limpyd-jobs, the environment variable DJANGO_SETTINGS_MODULE is enough; else write a "
    "module that calls django.setup(), and name it before the modules of your jobs, as "
    "--job-modules=django_setup,orders.jobs"
)


class NotAllowed(ImportError):
    """A module is not imported because a job names it, but is if ``--job-modules`` names it."""


def import_class(class_uri: str) -> Any:
    """Return the object that a dotted path names: at the top level of a module, or inside a class there.

    >>> import_class("limpyd_jobs.models.Job.add_job")
    <bound method Job.add_job of <class 'limpyd_jobs.models.Job'>>

    Raises
    ------
    ValueError
        If the path has no module part.
    ImportError
        If the module cannot be imported.
    AttributeError
        If the module, or a class on the way, does not have that name.
    """
    owner, _, name = class_uri.rpartition(".")
    if not owner or not name:
        raise ValueError(
            f"{class_uri!r} is not the path of a class or a function: a module and a name are needed, such as "
            "myapp.jobs.ship"
        )
    return getattr(_import_owner(owner), name)


def _import_owner(path: str) -> Any:
    """Import the module that a path names, or the module with the class of that path."""
    try:
        return import_module(path)
    except ModuleNotFoundError as error:
        owner, _, name = path.rpartition(".")
        if not owner or not f"{path}.".startswith(f"{error.name}."):  # the module exists, but imports one that does not
            raise
        try:
            return getattr(_import_owner(owner), name)
        except AttributeError:
            raise error from None


def why_not_imported(error: BaseException) -> str:
    """Return the text of an exception of an import, and the line of the application that raised it, if there is one."""
    reason = f"{kind_of(error)}: {one_line(error)}"
    frames = traceback.extract_tb(error.__traceback__)
    lines = [f"{frame.filename}, line {frame.lineno}" for frame in frames if not _is_of_import(frame.filename)]
    return f"{reason} ({lines[-1]})" if lines and lines[-1] not in reason else reason


def is_not_found(error: BaseException, path: str) -> bool:
    """Whether an import failed because there is no such module, not because that module imports one that does not
    exist."""
    return isinstance(error, ModuleNotFoundError) and f"{path}.".startswith(f"{error.name}.")


def where_to_look() -> str:
    """Say what to do about a module that is not found."""
    if sys.flags.safe_path:
        return "Name the directory that its package is in with --pythonpath: PYTHONSAFEPATH leaves the current one out"
    try:
        place = f", not from {one_line(os.getcwd())}"
    except OSError:  # it was deleted
        place = ""
    return f"Name the directory that its package is in with --pythonpath, or start from there{place}"


def hint_for(error: BaseException, path: str) -> str:
    """Return the end of a message about an import that failed: what to do about it, if that is known."""
    if lacks_django(error):
        return f". {DJANGO}"
    if isinstance(error, NotAllowed):
        return f". {how_to_allow(error)}"
    return f". {where_to_look()}" if is_not_found(error, path.partition(".")[0]) else ""


def how_to_allow(error: NotAllowed) -> str:
    """Say what to do about a module that is not imported because a job names it."""
    if not error.name:
        return "Give it with its module, as in myapp.jobs.SendMail"
    return f"If its jobs are yours, name {one_line(error.name)} in --job-modules"


def lacks_django(error: BaseException) -> bool:
    """Whether an import failed because Django is not set up yet."""
    kinds = {(cls.__module__, cls.__name__) for cls in type(error).__mro__}
    return bool(kinds & _OF_DJANGO) or (error.__cause__ is not None and lacks_django(error.__cause__))


def not_imported(path: str, error: BaseException) -> str:
    """Say in a line that a class cannot be imported, why, and what to do about it."""
    why = one_line(why_not_imported(error), MESSAGE)
    return f"{one_line(path)} cannot be imported: {why}{hint_for(error, path)}"


def _is_of_import(filename: str) -> bool:
    return filename.startswith(("<frozen ", os.path.dirname(importlib.__file__), _OURS))


@contextmanager
def installed_only(*others: str) -> Iterator[None]:
    """Import in the block what is installed, or where ``--pythonpath`` leads, and not what happens to have such a name
    in the current directory. The other modules, which are imported later if they are there, are found here, too, or
    never."""
    before = sys.path[:]
    with suppress(OSError):  # it may have been deleted
        while sys.path[-1:] == [os.getcwd()]:
            sys.path.pop()
    try:
        yield
        for name in others:
            if find_spec(name) is None:
                sys.modules.setdefault(name, None)  # type: ignore[arg-type]
    finally:
        sys.path[:] = before
