"""The dashboard shows which limits keep jobs waiting, and who holds their slots."""

from __future__ import annotations

import pytest
from asking import Dashboard
from limpyd import fields
from servers import wait_until

from limpyd_jobs import Job, Limit, Worker
from limpyd_jobs.query import LimitKey, limit_keys, rest_limit
from limpyd_jobs.views import LimitRow

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


def test_what_another_program_wrote_as_slots_breaks_no_list() -> None:
    job = Ride.add_job(driver="bob")
    with job.claim():
        job.get_connection().hset(job.key, "_slots", "boo\nr 1")
        assert "No job holds a slot of a limit" in Dashboard().get("/limits").shown


def test_a_limit_warns_if_a_job_has_waited_for_long_and_not_as_soon_as_one_waits() -> None:
    key = LimitKey("customer", "acme", "shop:Ask", 1, 1, 442, 240.0, None, 0.0, {}, [])
    signs = [LimitRow(key._replace(waited=waited, allowed=9), "").sign for waited in (240.0, 4.5)]
    assert (LimitRow(key, "").sign, signs) == ("late", ["late", "waiting"])
