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
        "django.contrib.sessions",
        "django.contrib.messages",
        "django.contrib.admin",
        *([] if IS_BUILT_IN else ["django_tasks"]),
        "limpyd_jobs.contrib.django",
        "limpyd_jobs.contrib.django.outbox",
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
    "ROOT_URLCONF": "bookshop.urls",
    "MIDDLEWARE": [
        "django.middleware.security.SecurityMiddleware",
        "django.contrib.sessions.middleware.SessionMiddleware",
        "django.middleware.common.CommonMiddleware",
        "django.middleware.csrf.CsrfViewMiddleware",
        "django.contrib.auth.middleware.AuthenticationMiddleware",
        "django.contrib.messages.middleware.MessageMiddleware",
        "django.middleware.clickjacking.XFrameOptionsMiddleware",
    ],
    "TEMPLATES": [
        {
            "BACKEND": "django.template.backends.django.DjangoTemplates",
            "APP_DIRS": True,
            "OPTIONS": {
                "context_processors": [
                    "django.template.context_processors.request",
                    "django.contrib.auth.context_processors.auth",
                    "django.contrib.messages.context_processors.messages",
                ]
            },
        }
    ],
    "ALLOWED_HOSTS": ["shop.example.com", "testserver"],
    "PASSWORD_HASHERS": ["django.contrib.auth.hashers.MD5PasswordHasher"],
    "STATIC_URL": "static/",
    "SECRET_KEY": "of tests",
    "USE_TZ": True,
    "TIME_ZONE": "Europe/Paris",
    "LANGUAGE_CODE": "fr",
}


@cache
def set_up() -> None:
    """Set Django up, with a database in memory, and take away what it put around all jobs of this process."""
    import django
    from django.conf import settings
    from django.core.management import call_command

    from limpyd_jobs import events
    from limpyd_jobs.observing import worker_tasks

    os.environ.pop("DJANGO_SETTINGS_MODULE", None)
    settings.configure(**SETTINGS)
    django.setup()
    for observer in observers():
        events.unsubscribe(observer)
    worker_tasks.installed.clear()  # no worker of other tests has this database
    call_command("migrate", run_syncdb=True, verbosity=0)


def observers() -> list[Any]:
    """Return what the integration subscribes to events."""
    from limpyd_jobs.contrib.django.apps import around_jobs
    from limpyd_jobs.contrib.django.tasks.backend import send_signals

    return [around_jobs, send_signals]
