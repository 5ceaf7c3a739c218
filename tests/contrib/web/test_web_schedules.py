"""Schedules are looked at and changed in the dashboard."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest
import redis
from asking import Dashboard
from limpyd import fields

from limpyd_jobs import Job, Schedule
from limpyd_jobs.dates import utcnow
from limpyd_jobs.query import JobFilter
from limpyd_jobs.records import records
from limpyd_jobs.schedules.model import score_of

pytestmark = pytest.mark.usefixtures("redis_client")

HOSTILE = '<script>alert(1)</script>"\x1b[1m'


class Nightly(Job):
    namespace = "web-schedules"
    queue_name = "reports"
    to = fields.InstanceHashField()
    api_token = fields.InstanceHashField()

    def run(self, queue: Any) -> None: ...


def add(name: str = "nightly & co", **options: Any) -> Schedule:
    return Schedule.add(name, Nightly, **{"cron": "0 3 * * *", "timezone": "Europe/Paris", **options})


def one(dashboard: Dashboard) -> Any:
    return dashboard.read("/schedules/schedule?name=nightly+%26+co")


def test_schedules_are_listed_and_one_is_shown_with_its_next_times() -> None:
    add(to="ann", api_token="s3cret")
    add("other")
    dashboard = Dashboard()
    assert [each["name"] for each in dashboard.read("/schedules")["schedules"]] == ["nightly & co", "other"]
    found = dashboard.read("/schedules?q=oth&limit=1")
    assert (found["number"], found["schedules"][0]["trigger"]) == (1, {"cron": "0 3 * * *"})
    shown = one(dashboard)
    assert len(shown["times"]) == 10
    assert shown["job_fields"] == {"to": "ann", "api_token": "(masked)"}
    page = dashboard.get("/schedules/schedule?name=nightly+%26+co").shown
    assert "03:00:00 in Europe/Paris" in page
    assert "s3cret" not in page
    assert dashboard.get("/schedules/schedule?name=gone").status == 404


def test_the_times_of_a_schedule_are_said_in_words() -> None:
    add("probe", cron=None, interval=600)
    add("both", cron=None, trigger={"or": [{"cron": "0 3 * * *"}, {"cron": "0 4 * * *"}]})
    page = Dashboard().get("/schedules").shown
    assert all(times in page for times in ("every 10 min", '{"or": [{"cron": "0 3 * * *"}, {"cron": "0 4 * * *"}]}'))
    assert "every 10 min" in Dashboard().get("/schedules/schedule?name=probe").shown


def test_one_that_is_late_says_so_and_why() -> None:
    schedule = add()
    due = utcnow() - timedelta(minutes=4, seconds=5)
    records.set_schedule(Schedule, schedule.pk.get(), score_of(str(due)), {"next_run": str(due)})
    dashboard = Dashboard()
    assert dashboard.read("/schedules")["schedules"][0]["notes"] == ["late 4 min", "no worker listens to reports"]
    assert "late 4 min" in dashboard.get("/schedules").shown


def test_a_schedule_is_paused_resumed_run_now_and_removed() -> None:
    add()
    dashboard = Dashboard()
    which = {"name": "nightly & co"}
    dashboard.do("/schedules/pause", which)
    assert one(dashboard)["schedule"]["state"] == "paused"
    dashboard.do("/schedules/resume", which)
    assert one(dashboard)["schedule"]["state"] == "active"
    assert dashboard.do("/schedules/run-now", which)["outcome"].endswith(" is added")
    assert "queued already" in dashboard.do("/schedules/run-now", which)["outcome"]
    assert JobFilter(queue="reports").count().number == 1
    assert "removed for good" in dashboard.post("/schedules/remove", which).shown
    assert dashboard.do("/schedules/remove", which)["outcome"] == "nightly & co is removed"
    assert dashboard.read("/schedules")["number"] == 0
    verbs = [entry["verb"] for entry in dashboard.read("/audit?q=nightly")["entries"]]
    assert sorted(verbs) == [
        "schedules pause",
        "schedules remove",
        "schedules resume",
        "schedules run-now",
        "schedules run-now",
    ]


def test_a_schedule_is_edited_and_what_is_not_given_stays() -> None:
    add(to="ann")
    dashboard = Dashboard()
    form = {"name": "nightly & co", "timezone": "UTC", "queue_name": "reports", "cron": "30 4 * * *", "priority": "7"}
    changed = dashboard.do("/schedules/edit", form)
    assert changed["title"] == "Change cron and priority and timezone of nightly & co"
    assert " 04:30:00 UTC" in changed["outcome"]
    schedule = one(dashboard)["schedule"]
    assert (schedule["trigger"], schedule["timezone"], schedule["priority"]) == ({"cron": "30 4 * * *"}, "UTC", 7)
    assert (schedule["queue"], schedule["job_fields"]) == ("reports", '{"to": "ann"}')
    assert dashboard.post("/schedules/edit", {"name": "nightly & co", "timezone": "UTC"}).status == 400


@pytest.mark.parametrize(
    ("form", "told"),
    [
        ({"cron": "0 3 * * *", "interval": "10m"}, "Give one of cron and interval, not both"),
        ({"interval": "often"}, "interval: "),
        ({"trigger": "[1]"}, "trigger: it must be an object of JSON"),
        ({"priority": "high"}, "priority must be a number"),
    ],
)
def test_a_wrong_edit_is_refused_in_one_line(form: dict[str, str], told: str) -> None:
    add()
    answer = Dashboard().post("/schedules/edit", {"name": "nightly & co", **form})
    assert answer.status == 400
    assert told in answer.shown


def test_an_edit_that_cannot_be_says_why_and_changes_nothing() -> None:
    add()
    dashboard = Dashboard()
    answer = dashboard.post("/schedules/edit", {"name": "nightly & co", "cron": "0 99 * * *"})
    assert answer.status == 303
    assert "ValueError: " in dashboard.get(answer.headers["location"]).shown
    assert one(dashboard)["schedule"]["trigger"] == {"cron": "0 3 * * *"}


def test_hostile_schedules_are_shown_as_text(redis_client: redis.Redis) -> None:
    schedule = add()
    key = f"jobs:schedule:{schedule.pk.get()}:hash"
    hostile = {"trigger": HOSTILE, "timezone": HOSTILE, "job_fields": HOSTILE, "last_run": HOSTILE, "priority": HOSTILE}
    redis_client.hset(key, mapping=hostile)
    redis_client.delete("jobs:schedule:name:nightly & co")  # the index
    dashboard = Dashboard()
    for address in ("/schedules", "/schedules/schedule?name=nightly+%26+co"):
        answer = dashboard.get(address)
        assert answer.status == 200
        assert "<script>a" not in answer.text
        assert "\x1b" not in answer.text
