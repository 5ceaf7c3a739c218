"""The settings of a project of Django, and setting it up once in this process."""

from __future__ import annotations

import os
from functools import cache

SETTINGS = {
    "INSTALLED_APPS": [
        "django.contrib.contenttypes",
        "django.contrib.auth",
        "limpyd_jobs.contrib.django",
        "bookshop",
    ],
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
    from limpyd_jobs.contrib.django.apps import around_jobs

    events.unsubscribe(around_jobs)
    call_command("migrate", run_syncdb=True, verbosity=0)
