"""What the tests of the integration with Django share: a project that is set up once."""

from __future__ import annotations

from collections.abc import Iterator

import project
import pytest

from limpyd_jobs import events

project.set_up()  # before the modules of tests, which import models


@pytest.fixture(autouse=True)
def _in_the_project(redis_client: object) -> Iterator[None]:
    """Let Django be around each job, and each test be in a transaction, which is rolled back."""
    from bookshop.tasks import ran
    from django.db import transaction

    ran.clear()
    for observer in project.observers():
        events.subscribe(observer)
    with transaction.atomic():
        yield
        transaction.set_rollback(True)
    for observer in project.observers():
        events.unsubscribe(observer)
