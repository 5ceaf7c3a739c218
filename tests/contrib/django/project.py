"""The settings of a project of Django, and setting it up once in this process."""

from __future__ import annotations

import os
from functools import cache
from importlib.util import find_spec
from typing import Any

# Django has it built in from 6.0 on
IS_BUILT_IN = find_spec("django.tasks") is not None

SETTINGS = {
    "INSTALLED_APPS": [
        "django.contrib.contenttypes",
        "django.contrib.auth",
        *([] if IS_BUILT_IN else ["django_tasks"]),
        "limpyd_jobs.contrib.django",
        "bookshop",
    ],
    "TASKS": {
        "default": {
            "BACKEND": "limpyd_jobs.contrib.django.tasks.LimpydBackend",
            "QUEUES": [],
            "OPTIONS": {"ENQUEUE_ON_COMMIT": False},
        }
    },
    "DATABASES": {"default": {"ENGINE": "django.db.backends.sqlite3", "NAME": ":memory:"}},
    "DEFAULT_AUTO_FIELD": "django.db.models.AutoField",
    "ROOT_URLCONF": "project",
    "SECRET_KEY": "of tests",
    "USE_TZ": True,
    "TIME_ZONE": "Europe/Paris",
    "LANGUAGE_CODE": "fr",
}

urlpatterns: list[object] = []


@cache
def set_up() -> None:
    """Set Django up, with a database in memory, and take away what it put around all jobs of this process."""
    import django
    from django.conf import settings
    from django.core.management import call_command

    from limpyd_jobs import events

    os.environ.pop("DJANGO_SETTINGS_MODULE", None)
    settings.configure(**SETTINGS)
    django.setup()
    for observer in observers():
        events.unsubscribe(observer)
    call_command("migrate", run_syncdb=True, verbosity=0)


def observers() -> list[Any]:
    """Return what the integration subscribes to events."""
    from limpyd_jobs.contrib.django.apps import around_jobs
    from limpyd_jobs.contrib.django.tasks.signals import send_signals

    return [around_jobs, send_signals]
