"""Threadmill, for the tasks of Django."""

from __future__ import annotations

import os
import sys

import django
from inside import mark

os.environ["DJANGO_SETTINGS_MODULE"] = "threadmill_settings"
django.setup()

from django.tasks import task  # noqa: E402

TITLE = "Threadmill"
REQUIREMENTS = ["threadmill[redis]==0.8.4"]
PACKAGE = "threadmill"
LEAST_PYTHON = [3, 14]
ADDING = "`enqueue`"
WORKERS = {
    "1 thread": "one process; defaults: prefetch 4, lease 1 h, results kept a day",
    "8 threads": "one process; prefetch 32, and the rest as above",
}


@task
def nothing(number: int) -> None:
    mark(number)


def setup() -> None:
    pass


def add(number: int) -> None:
    nothing.enqueue(number)


def work(variant: str) -> list[str]:
    threads = variant.split()[0]
    return [sys.executable, "-m", "django", "threadmill", "worker", "--workers", "1", "--threads", threads]
