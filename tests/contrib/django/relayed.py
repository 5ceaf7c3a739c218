"""Entries of the outbox whose process died after the commit, and relaying them."""

from __future__ import annotations

import io
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import datetime, timezone

import redis
from django.core.management import call_command
from django.test import TestCase

from limpyd_jobs import Worker
from limpyd_jobs.contrib.django.outbox.models import OutboxEntry

committed = TestCase.captureOnCommitCallbacks


@contextmanager
def lost() -> Iterator[None]:
    """Let the process die after the commit: what it would do then is not done. Others relay at once."""
    with committed():
        yield
    make_due()


def make_due() -> None:
    OutboxEntry.objects.update(due=datetime(2020, 1, 1, tzinfo=timezone.utc))


def ran(client: redis.Redis) -> list[str]:
    """What the jobs did that are queued."""
    Worker(["errands", "default"], burst=True).run()
    return client.lrange("errands done", 0, -1)


def manage(*words: str) -> str:
    out = io.StringIO()
    call_command("limpyd_jobs_outbox", *words, stdout=out)
    return out.getvalue().strip()
