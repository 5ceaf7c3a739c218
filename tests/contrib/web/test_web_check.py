"""The database is checked and repaired in the dashboard."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import pytest
import redis
from asking import BROWSER, PROGRAM, Dashboard

from limpyd_jobs import Job
from limpyd_jobs.contrib.web.pages import check

TOKEN, VIEW_TOKEN = "a-token-of-admins", "a-token-of-viewers"


class Mail(Job):
    namespace = "web-check"
    queue_name = "mails"

    def run(self, queue: Any) -> None: ...


@pytest.fixture(autouse=True)
def _no_pause(monkeypatch: pytest.MonkeyPatch, redis_client: redis.Redis) -> None:
    monkeypatch.setattr(check, "PAUSE", 0.0)


def outcome(dashboard: Dashboard, path: str, form: Any = ()) -> str:
    """Do something, wait for its end, and return how it ended."""
    answer = dashboard.post(path, {**dict(form), "confirmed": "1"})
    assert answer.status == 303, answer.shown
    place = answer.headers["location"]
    if not place.startswith("/tasks/"):
        return dashboard.get(place).shown
    while not dashboard.read(place)["is_over"]:
        pass
    return str(dashboard.read(place)["text"])


def test_findings_are_shown_with_advice_and_repaired_after_they_were_counted(redis_client: redis.Redis) -> None:
    job = Mail.add_job("one")
    redis_client.delete("jobs:queue:1:waiting")
    dashboard = Dashboard()
    assert "No check was made" in dashboard.get("/check").shown
    assert dashboard.post("/check/repair").status == 409
    assert "1 found" in outcome(dashboard, "/check/run")
    [kind] = dashboard.read("/check")["checked"]["kinds"]
    assert (kind["severity"], kind["kind"], kind["findings"][0]["subject"]) == ("grave", "in no list", job.ident)
    page = dashboard.get("/check").shown
    assert "is WAITING, but in no list" in page
    assert "A repair: put at the beginning of its list" in page
    asked = dashboard.post("/check/repair")
    assert "1 of 1 findings of the last check can be repaired" in asked.shown
    assert redis_client.llen("jobs:queue:1:waiting") == 0
    assert "1 found, 1 repaired" in outcome(dashboard, "/check/repair")
    assert redis_client.lrange("jobs:queue:1:waiting", 0, -1) == [job.ident]
    [entry] = dashboard.read("/audit")["entries"]
    assert (entry["verb"], entry["done"], entry["who"].partition(" by ")[0]) == ("check --repair", 1, "local")


def test_nothing_wrong_is_said_so() -> None:
    Mail.add_job("one")
    dashboard = Dashboard()
    assert "Nothing is wrong" in outcome(dashboard, "/check/run")
    assert dashboard.read("/check")["checked"]["number"] == 0


def test_whoever_may_look_may_check_but_not_repair(redis_client: redis.Redis) -> None:
    Mail.add_job("one")
    redis_client.delete("jobs:queue:1:waiting")
    dashboard = Dashboard(token=TOKEN, view_token=VIEW_TOKEN)
    viewer = {**BROWSER, "authorization": f"Bearer {VIEW_TOKEN}"}
    assert dashboard.post("/check/run", (), viewer).status == 303
    assert dashboard.post("/check/repair", (), viewer).status == 403
    assert "Repair" not in dashboard.get("/check", viewer).shown


def test_no_class_is_imported_for_whoever_may_only_look(
    redis_client: redis.Redis, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "named_by_data.py").write_text(
        "from limpyd_jobs import Job\nclass Stray(Job):\n    namespace = 'web-check'\n    def run(self, queue): ...\n"
    )
    monkeypatch.syspath_prepend(tmp_path)
    Mail.add_job("one")
    redis_client.rpush("jobs:queue:1:waiting", "named_by_data.Stray:1")
    for dashboard in (Dashboard(view_token=VIEW_TOKEN), Dashboard(read_only=True)):
        viewer = {**PROGRAM, "authorization": f"Bearer {VIEW_TOKEN}"}
        begun = dashboard.post("/check/run", (), viewer).json
        while not dashboard.get(begun["progress"], viewer).json["is_over"]:
            pass
        checked = dashboard.get("/check", viewer).json["checked"]
        told = "jobs of named_by_data.Stray: it is not imported here, and this check imports nothing"
        assert checked["unchecked"] == [told]
        assert checked["number"] == 0
        assert "named_by_data" not in sys.modules
    outcome(Dashboard(), "/check/run")
    assert sys.modules.pop("named_by_data")


def test_one_check_runs_at_a_time() -> None:
    dashboard = Dashboard()
    with check.BUSY:
        assert dashboard.read("/check")["is_running"] is True
        answer = dashboard.post("/check/run")
    assert "A check is going on already" in dashboard.get(answer.headers["location"]).shown
