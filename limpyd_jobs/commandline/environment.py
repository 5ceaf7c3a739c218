"""What environment variables say in place of options that are not given."""

from __future__ import annotations

import os

from limpyd_jobs.classes.job_classes import module_names
from limpyd_jobs.exceptions import ConfigurationException

MODULES = "LIMPYD_JOBS_MODULES"
PYTHONPATH = "LIMPYD_JOBS_PYTHONPATH"
WORKER_CONFIG = "LIMPYD_JOBS_WORKER_CONFIG"


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
