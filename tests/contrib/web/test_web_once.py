"""What a page of the dashboard asks Redis for, it asks for once."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import Any

import pytest
from asking import Dashboard

from limpyd_jobs import Job

pytestmark = pytest.mark.usefixtures("redis_client")


class Postcard(Job):
    namespace = "web-once"
    queue_name = "postcards"

    def run(self, queue: Any) -> None: ...


PAGES = ("/", "/jobs", "/queues", "/errors", "/jobs/{ident}", "/limits", "/workers", "/find?q=ann")


@pytest.mark.parametrize("page", PAGES)
def test_a_page_asks_at_most_once_which_classes_there_are(
    page: str, commands: Callable[[], AbstractContextManager[Any]]
) -> None:
    ident = Postcard.add_job("ann").ident
    dashboard, address = Dashboard(), page.format(ident=ident)
    dashboard.read(address)
    with commands() as sent:
        dashboard.read(address)
    assert len([command for command in sent if command.split()[3:4] == ["limpyd-jobs:classes"]]) <= 1
