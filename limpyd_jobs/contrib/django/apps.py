"""The application of Django, and its system checks."""

from __future__ import annotations

import os
from importlib import import_module
from typing import Any

from django.apps import AppConfig
from django.conf import settings as of_django
from django.core import checks
from django.core.exceptions import ImproperlyConfigured
from django.utils.module_loading import autodiscover_modules

from limpyd_jobs import Job
from limpyd_jobs.contrib.django import instances, settings
from limpyd_jobs.contrib.django.around import AroundJobs, forget_inherited_connections
from limpyd_jobs.integration import events

# Where jobs and tasks are looked for in each application.
MODULES = ("jobs", "tasks")

# Before any module of jobs is imported: Django imports all AppConfigs first.
INSTANCES = instances.form_of_model

VARIABLE = "LIMPYD_JOBS_DATABASE"

around_jobs = AroundJobs()


def check_settings(**options: Any) -> list[checks.CheckMessage]:
    """Check the setting ``LIMPYD_JOBS``. The checks are ``limpyd_jobs.E001`` and those that follow."""
    found: list[checks.CheckMessage] = [
        checks.Error(problem.text, id=f"limpyd_jobs.E{problem.number:03}") for problem in settings.problems()
    ]
    if not (found or of_django.DEBUG or settings.database_settings() or os.environ.get(VARIABLE)):
        text = "Jobs go to the Redis at localhost:6379, because no database is named"
        hint = f"Set {settings.NAME} = {{'DATABASE': 'redis://…'}}, or the environment variable {VARIABLE}."
        found.append(checks.Warning(text, hint=hint, id="limpyd_jobs.W001"))
    return found


class LimpydJobsConfig(AppConfig):
    """Moves the models to the database of the settings, stands around each job, and imports the jobs of all
    applications: their modules ``jobs`` and ``tasks``, and those that ``LIMPYD_JOBS["MODULES"]`` names."""

    name = "limpyd_jobs.contrib.django"
    label = "limpyd_jobs"
    verbose_name = "Jobs"
    default_auto_field = "django.db.models.BigAutoField"

    def ready(self) -> None:
        """Do what the class says.

        Raises
        ------
        ImproperlyConfigured
            If a setting is wrong: its jobs would go to another database.
        """
        checks.register(check_settings)
        for problem in settings.problems():
            raise ImproperlyConfigured(f"{problem.text} (limpyd_jobs.E{problem.number:03})")
        found = settings.database_settings()
        if found:
            Job.database.reset(**found)
        events.subscribe(around_jobs)
        os.register_at_fork(after_in_child=forget_inherited_connections)
        autodiscover_modules(*MODULES)
        for name in settings.module_names():
            import_module(name)
