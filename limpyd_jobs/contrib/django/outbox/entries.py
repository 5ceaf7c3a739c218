"""The entries of the outbox. Its table is looked up when it is used: this may be imported before Django is set up."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime, timedelta
from typing import Any

from django.apps import apps
from django.core.exceptions import ImproperlyConfigured
from django.dispatch import Signal
from django.utils import timezone

APPLICATION = "limpyd_jobs.contrib.django.outbox"

# Sent once a job was added that another process had written to the outbox, or this one before: with `job`.
relayed_later = Signal()


def entries_of(database: str) -> Any:
    """Return the entries in a database, as a query set of all.

    Raises
    ------
    ImproperlyConfigured
        If the application is not installed.
    """
    if not apps.is_installed(APPLICATION):
        raise ImproperlyConfigured(f"The outbox needs {APPLICATION!r} in INSTALLED_APPS, and manage.py migrate")
    return apps.get_model("limpyd_jobs_outbox", "OutboxEntry")._base_manager.using(database).order_by("id")


def is_due() -> dict[str, datetime]:
    """Return a filter for the entries that any process may relay now."""
    return {"due__lte": timezone.now()}


def after(seconds: float) -> datetime:
    """Return a moment from now."""
    return timezone.now() + timedelta(seconds=seconds)


def try_again(entries: Any, pks: Sequence[int] = ()) -> int:
    """Let entries that are set aside, those of some pks or all, be relayed again; return how many there were."""
    found = entries.filter(due__isnull=True)
    if pks:
        found = found.filter(pk__in=pks)
    number: int = found.update(due=timezone.now(), tries=0)
    return number
