"""What environment variables say in place of options that are not given."""

from __future__ import annotations

import os
from importlib import import_module
from importlib.util import find_spec

from limpyd_jobs.classes.imports import is_not_found, where_to_look, why_not_imported
from limpyd_jobs.classes.job_classes import module_names
from limpyd_jobs.exceptions import ConfigurationException
from limpyd_jobs.texts import MESSAGE, one_line

MODULES = "LIMPYD_JOBS_MODULES"
PYTHONPATH = "LIMPYD_JOBS_PYTHONPATH"
WORKER_CONFIG = "LIMPYD_JOBS_WORKER_CONFIG"
DJANGO_SETTINGS = "DJANGO_SETTINGS_MODULE"


def job_modules() -> str | None:
    """Return the modules of jobs that the environment names; `ConfigurationException` if it names none."""
    text = os.environ.get(MODULES)
    if not text:
        return None
    try:
        module_names(text)
    except ConfigurationException as error:
        raise ConfigurationException(f"Environment variable {MODULES}: {error}") from None
    return text


def python_path() -> list[str]:
    """Return what the environment adds to the Python path: directories, joined as in PYTHONPATH."""
    text = os.environ.get(PYTHONPATH)
    return [text] if text else []


def worker_config() -> str | None:
    """Return the path of the class that reads the options of a worker, if the environment names it."""
    return os.environ.get(WORKER_CONFIG) or None


def set_up_django() -> None:
    """Set Django up if the environment names its settings, unless it is; `ConfigurationException` if it fails."""
    settings = os.environ.get(DJANGO_SETTINGS)
    if not settings or find_spec("django") is None or import_module("django.apps").apps.ready:
        return
    try:
        import_module("django").setup()
    except (Exception, SystemExit) as error:  # of any application of the project
        hint = f". {where_to_look()}" if is_not_found(error, settings.partition(".")[0]) else ""
        why = one_line(f"{why_not_imported(error)}{hint}", MESSAGE)
        raise ConfigurationException(
            f"Environment variable {DJANGO_SETTINGS}: Django cannot be set up with {settings}: {why}"
        ) from None
