"""The dashboard shows which limits keep jobs waiting, and who holds their slots."""

from __future__ import annotations

from math import inf

import pytest
from asking import Dashboard
from limpyd import fields
from servers import wait_until

from limpyd_jobs import Job, Limit, Worker
from limpyd_jobs.query import LimitKey, limit_keys, rest_limit
from limpyd_jobs.views import LimitRow, limit_rows
from limpyd_jobs.views import limits as of_views

pytestmark = pytest.mark.usefixtures("redis_client")

HOSTILE = "<script>alert(1)</script>\r\n"


class Ride(Job):
    namespace = "rides"
    queue_name = "q"
    driver = fields.InstanceHashField()
    limits = [Limit("driver", concurrency=1)]


class Call(Job):
    namespace = "rides"
    queue_name = "q"
    api_key = fields.InstanceHashField()
    limits = [Limit("api_key", concurrency=1), Limit("api_key", name="provider", concurrency=1)]


def parked() -> int:
    return sum(each.parked for each in limit_keys() if each.value == "ann")


def test_the_value_of_a_secret_field_is_hidden() -> None:
    first, _ = (Call.add_job(api_key="s3cr3t") for _ in range(2))
    with first.claim():
        paths = ("/limits", "/queues/queue?name=q", f"/queues/class?name={Call.get_model_repr()}")
        pages = [Dashboard().get(path) for path in paths]
        assert Dashboard().read("/limits?q=s3cr3t")["rows"] == []
    for page in pages:
        assert "api_key=" in page.shown
        assert "provider=" in page.shown
        assert "s3cr3t" not in page.text


def test_limits_that_are_in_use_are_shown_as_text() -> None:
    dashboard = Dashboard()
    assert "No job holds a slot of a limit" in dashboard.get("/limits").shown
    first, _ = (Ride.add_job(driver="ann") for _ in range(2))
    Ride.add_job(driver=HOSTILE)
    rest_limit(Ride, "driver", HOSTILE)
    with first.claim():
        wait_until(lambda: Worker("q", timeout=0.1, max_duration=0.3, logger_level=60).run() or parked())
        page = dashboard.get("/limits")
        rows = dashboard.read("/limits?q=DRIVER%3Dann")["rows"]
        found = {each["key"]["name"]: each["key"] for each in rows}
        of_class = dashboard.get(f"/queues/class?name={Ride.get_model_repr()}").shown
        of_queue = dashboard.get("/queues/queue?name=q").shown
    assert "driver=ann" in page.shown
    assert first.ident in page.shown
    assert "<script>alert" not in page.text
    assert (found["driver"]["taken"], found["driver"]["parked"]) == (1, 1)
    assert len(rows) == 1
    for shown in (of_class, of_queue):
        assert "driver=ann" in shown
        assert "1 of 1 running, full" in shown
        assert "1 parked" in shown


def test_a_limit_is_paused_rests_is_resumed_and_gets_other_numbers() -> None:
    dashboard, path = Dashboard(), Ride.get_model_repr()
    of_key = {"class": path, "limit": "driver", "value": "ann", "has_value": "1"}

    def ask(verb: str, **more: str) -> str:
        return str(dashboard.do(f"/limits/{verb}", of_key | more)["outcome"])

    with Ride.add_job(driver="ann").claim():
        assert 'action="/limits/pause"' in dashboard.get("/limits").text
        assert "No job of driver=ann begins until it is resumed" in ask("pause")
        [ann] = limit_keys()
        assert (ann.rests_for, ann.value) == (inf, "ann")
        assert 'action="/limits/resume"' in dashboard.get("/limits").text
        assert "for 5 min" in ask("rest", **{"for": "5m"})
        assert 290 < limit_keys()[0].rests_for <= 300
        ask("resume")
        assert limit_keys()[0].rests_for == 0
        assert "concurrency=3" in ask("set", concurrency="3", rate="")
        assert limit_keys()[0].allowed == 3
        assert "as its class says" in ask("set", concurrency="", rate="")
        assert dashboard.post("/limits/rest", of_key).status == 400
        assert dashboard.post("/limits/pause", of_key | {"class": "gone.Job"}).status == 404
        assert 'action="/limits/pause"' not in Dashboard(read_only=True).get("/limits").text
    with Call.add_job(api_key="s3cr3t").claim():  # what is hidden cannot be set
        assert Dashboard().get("/limits?q=key").text.count('action="/limits/pause"') == 0


def test_the_key_whose_job_has_waited_longest_is_first(monkeypatch: pytest.MonkeyPatch) -> None:
    def key(value: str, parked: int, waited: float | None, rests_for: float = 0.0) -> LimitKey:
        return LimitKey("driver", value, "o", 1, 1, parked, waited, None, rests_for, {}, [])

    keys = [key("many", 9, 5.0), key("long", 1, 90.0), key("none", 0, None), key("paused", 1, 1.0, inf)]
    monkeypatch.setattr(of_views, "limit_keys", lambda database: keys)
    assert [row.key.value for row in limit_rows()] == ["paused", "long", "many", "none"]


def test_what_another_program_wrote_as_slots_breaks_no_list() -> None:
    job = Ride.add_job(driver="bob")
    with job.claim():
        job.get_connection().hset(job.key, "_slots", "boo\nr 1")
        assert "No job holds a slot of a limit" in Dashboard().get("/limits").shown


def test_a_limit_warns_if_a_job_has_waited_for_long_and_not_as_soon_as_one_waits() -> None:
    key = LimitKey("customer", "acme", "shop:Ask", 1, 1, 442, 240.0, None, 0.0, {}, [])
    signs = [LimitRow(key._replace(waited=waited, allowed=9), "").sign for waited in (240.0, 4.5)]
    assert (LimitRow(key, "").sign, signs) == ("late", ["late", "waiting"])
