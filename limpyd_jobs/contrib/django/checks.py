"""System checks: ``manage.py check``."""

from __future__ import annotations

import os
from typing import Any

from django.conf import settings as of_django
from django.core import checks

from limpyd_jobs.contrib.django import settings

VARIABLE = "LIMPYD_JOBS_DATABASE"


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
