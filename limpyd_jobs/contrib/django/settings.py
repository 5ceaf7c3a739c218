"""The setting ``LIMPYD_JOBS`` of a Django project."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

from django.conf import settings
from django.db import DEFAULT_DB_ALIAS

from limpyd_jobs import ConfigurationException
from limpyd_jobs.integration import JobsDatabase, one_line, stored_queue_name

NAME = "LIMPYD_JOBS"

KNOWN = ("DATABASE", "QUEUES", "MODULES", "DASHBOARD", "OUTBOX_DATABASES")

# The settings of the dashboard that a project may name. Of users and names of hosts, Django knows.
OF_DASHBOARD = ("masked", "read_only", "threads", "title")


class Problem(NamedTuple):
    """What is wrong with a setting: the number of its check, and a line."""

    number: int
    text: str


def of_project() -> Mapping[str, Any]:
    """Return the setting as it is given; without it, nothing is set."""
    given = getattr(settings, NAME, {})
    return given if isinstance(given, Mapping) else {}


def database_settings() -> dict[str, Any]:
    """Return the settings of the database as `JobsDatabase` takes them; empty if the project names none."""
    given = of_project().get("DATABASE")
    if not given:
        return {}
    return dict(given) if isinstance(given, Mapping) else {"url": given}


def queue_names() -> list[str]:
    """Return the queues that workers serve if their command line names none: those of the setting, then those that the
    backends of tasks name."""
    return list(dict.fromkeys([*of_project().get("QUEUES", ()), *_queues_of_tasks()]))


def _queues_of_tasks() -> Iterator[str]:
    for backend in getattr(settings, "TASKS", {}).values():
        if backend.get("BACKEND", "").startswith("limpyd_jobs."):
            yield from backend.get("QUEUES", ["default"])  # as Django has it


def module_names() -> list[str]:
    """Return the modules of jobs and tasks beside ``jobs.py`` and ``tasks.py`` of the applications."""
    return [*of_project().get("MODULES", ())]


def dashboard_settings() -> dict[str, Any]:
    """Return the settings of the dashboard, as `limpyd_jobs.contrib.web.application` takes them."""
    return dict(of_project().get("DASHBOARD", {}))


def outbox_databases() -> list[str]:
    """Return the aliases of the databases with an outbox."""
    return [*of_project().get("OUTBOX_DATABASES", (DEFAULT_DB_ALIAS,))]


def problems() -> Iterator[Problem]:
    """Yield what is wrong with the setting."""
    given = getattr(settings, NAME, {})
    if not isinstance(given, Mapping):
        yield Problem(1, f"{NAME} must be a dictionary, not {one_line(repr(given))}")
        return
    for name in sorted(map(str, given.keys() - {*KNOWN})):
        yield Problem(1, f"{NAME} has no setting {one_line(repr(name))}, but {', '.join(KNOWN)}")
    yield from _problems_of_database(given.get("DATABASE"))
    yield from _problems_of_names(given, "QUEUES", 3)
    yield from _problems_of_names(given, "MODULES", 4)
    yield from _problems_of_dashboard(given.get("DASHBOARD", {}))
    yield from _problems_of_aliases(given.get("OUTBOX_DATABASES", (DEFAULT_DB_ALIAS,)))


def _problems_of_database(given: Any) -> Iterator[Problem]:
    what = f"{NAME}['DATABASE']"
    if not (given is None or isinstance(given, (str, Mapping))):
        yield Problem(2, f"{what} must be a URL, as redis://localhost:6379/0, or a dictionary, not a {type(given)}")
        return
    try:
        JobsDatabase(**database_settings())
    except (ConfigurationException, TypeError, ValueError) as error:
        yield Problem(2, f"{what}: {one_line(error)}")


def _problems_of_dashboard(given: Any) -> Iterator[Problem]:
    what = f"{NAME}['DASHBOARD']"
    if not isinstance(given, Mapping):
        yield Problem(5, f"{what} must be a dictionary, not {one_line(repr(given))}")
        return
    for name in sorted(map(str, given.keys() - {*OF_DASHBOARD})):
        yield Problem(5, f"{what} has no setting {one_line(repr(name))}, but {', '.join(OF_DASHBOARD)}")


def _problems_of_aliases(given: Any) -> Iterator[Problem]:
    what = f"{NAME}['OUTBOX_DATABASES']"
    if not (isinstance(given, (list, tuple)) and given):
        yield Problem(6, f"{what} must be a list of aliases of DATABASES, not {one_line(repr(given))}")
        return
    for alias in given:
        if not (isinstance(alias, str) and alias in settings.DATABASES):
            yield Problem(6, f"{what}: DATABASES has no {one_line(repr(alias))}")


def _problems_of_names(given: Mapping[str, Any], name: str, number: int) -> Iterator[Problem]:
    names = given.get(name, ())
    if not isinstance(names, (list, tuple)):
        yield Problem(number, f"{NAME}[{name!r}] must be a list of names, not {one_line(repr(names))}")
        return
    for each in names:
        try:
            if name == "MODULES" and not all(part.isidentifier() for part in each.split(".")):
                raise ValueError(f"{each!r} cannot be the name of a module")
            stored_queue_name(each)
        except (AttributeError, TypeError, ValueError) as error:
            yield Problem(number, f"{NAME}[{name!r}]: {one_line(error)}")
