"""Entries in quarantine are looked at, put back and dropped in the dashboard."""

from __future__ import annotations

from typing import Any

import pytest
import redis
from asking import Dashboard

from limpyd_jobs import Queue
from limpyd_jobs.query import queues

HOSTILE = "<script>alert(1)</script>\r\n\x1b[1m"

WAITING, QUARANTINE = "jobs:queue:1:waiting", "jobs:queue:1:_quarantine"


@pytest.fixture
def entries(redis_client: redis.Redis) -> list[Any]:
    """What is in quarantine."""
    Queue.get_queue("mails")
    redis_client.rpush(QUARANTINE, HOSTILE, "nothing", "more")
    dashboard = Dashboard()
    return dashboard.read("/quarantine")["entries"]  # type: ignore[no-any-return]


def test_some_entries_are_put_back_and_others_dropped(entries: list[Any], redis_client: redis.Redis) -> None:
    dashboard = Dashboard()
    assert [each["entry"] for each in entries] == [HOSTILE, "nothing", "more"]
    asked = dashboard.post("/quarantine/retry", {"entry": entries[0]["digest"]})
    assert "Put back 1 entry?" in asked.shown
    dashboard.do("/quarantine/retry", {"entry": entries[0]["digest"]})
    assert redis_client.lrange(WAITING, 0, -1) == [HOSTILE]
    dashboard.do("/quarantine/drop", {"entry": entries[1]["digest"]})
    assert redis_client.lrange(QUARANTINE, 0, -1) == ["more"]
    assert dashboard.post("/quarantine/drop", {"entry": entries[1]["digest"]}).status == 404
    dashboard.do("/quarantine/drop", {"all": "1", "queue": "mails"})
    assert dashboard.read("/quarantine")["number"] == 0


def test_entries_are_shown_as_text_and_not_all_are_read_if_they_are_large(
    entries: list[Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    page = Dashboard().get("/quarantine?queue=mails")
    assert "<script>a" not in page.text
    assert "\x1b" not in page.text
    monkeypatch.setattr(queues, "LARGEST", 5)
    assert (
        '3 entries of mails</h2><span class="weak">the first 1 are shown'
        in Dashboard().get("/quarantine?queue=mails").shown
    )
