"""Errors are shown by their cause, and the jobs of a cause are requeued, in three clicks from an alarm."""

from __future__ import annotations

import re
from datetime import timedelta
from typing import Any

import pytest
import redis
from asking import PROGRAM, Answer, Dashboard
from servers import wait_until

from limpyd_jobs import Error, Job
from limpyd_jobs.contrib.web import kept
from limpyd_jobs.contrib.web.pages import errors as page_of_errors
from limpyd_jobs.contrib.web.protocol import Times
from limpyd_jobs.dates import utcnow
from limpyd_jobs.query import JobFilter, queue_states
from limpyd_jobs.search import walk
from limpyd_jobs.search.classes import error_models_of

pytestmark = pytest.mark.usefixtures("redis_client")

PASSWORD = "a-long-password-of-all"


class Invoice(Job):
    namespace = "web-errors"
    queue_name = "invoices"

    def run(self, queue: Any) -> None: ...


def fail(identifier: str, error: Exception, queue: str = "invoices") -> Job:
    job = Invoice.add_job(identifier, queue)
    with job.claim(owner="web1:12") as claim:
        claim.fail(error)
    return job


def causes(dashboard: Dashboard, address: str = "/errors") -> list[tuple[str, int]]:
    return [(group["type"], group["count"]) for group in dashboard.read(address)["groups"]]


def fingerprint_of(dashboard: Dashboard, kind: str) -> str:
    groups = dashboard.read("/errors")["groups"]
    return next(group["fingerprint"] for group in groups if group["type"] == kind)  # type: ignore[no-any-return]


def test_causes_are_listed_with_what_is_known_of_them() -> None:
    for number in range(3):
        fail(f"{number}", KeyError(f"customer {number}"))
    fail("other", ValueError("no address"), "others")
    dashboard = Dashboard()
    group, _ = dashboard.read("/errors")["groups"]
    assert (group["type"], group["count"], sum(group["trend"]), group["queues"]) == ("KeyError", 3, 3, {"invoices": 3})
    assert group["messages"][0]["count"] == 3
    assert causes(dashboard, "/errors?queue=others") == [("ValueError", 1)]
    assert dashboard.read("/errors?limit=1")["others"] == 1
    page = dashboard.get("/errors").shown
    assert "<strong>2 causes</strong>" in page
    assert 'aria-label="3 in the last 24 hours' in page


def test_a_cause_is_shown_with_its_traceback_and_its_jobs() -> None:
    try:
        raise KeyError("customer")
    except KeyError as error:
        job = fail("one", error)
    dashboard = Dashboard()
    address = f"/errors/cause?fingerprint={fingerprint_of(dashboard, 'KeyError')}"
    cause = dashboard.read(address)
    assert (cause["number"], cause["failed"], cause["last"]["type"]) == (1, 1, "KeyError")
    assert [each["ident"] for each in cause["jobs"]] == [job.ident]
    page = dashboard.get(address).shown
    assert "KeyError: 'customer'" in page  # the end of its traceback
    assert page.count(f'href="/jobs/{job.ident}"') == 2  # in the list, and with the last error
    assert dashboard.get("/errors/cause?fingerprint=NoSuchError").status == 404


def link(answer: Answer, pattern: str) -> str:
    found = re.search(rf'href="({pattern})"', answer.shown)
    assert found, answer.shown
    return found[1]


def form_of(answer: Answer, path: str) -> dict[str, str]:
    found = re.search(rf'<form [^>]*action="{path}"[^>]*>(.*?)</form>', answer.shown)
    assert found, answer.shown
    return dict(re.findall(r'name="(\w+)" value="([^"]*)"', found[1]))


def test_three_clicks_lead_from_an_alarm_to_the_requeued_jobs() -> None:
    for number in range(3):
        fail(f"{number}", KeyError("customer"))
    fail("elsewhere", KeyError("customer"), "others")
    dashboard = Dashboard()
    listed = dashboard.get("/errors?queue=invoices")  # what the alarm of the overview leads to
    asked = dashboard.post("/errors/requeue", form_of(listed, "/errors/requeue"))
    assert "data-yes>Requeue 3 jobs<" in asked.shown
    assert "failed with KeyError (" in asked.shown
    back = link(asked, '/errors/cause[^"]*')
    assert back == link(listed, '/errors/cause[^"]*') != link(dashboard.get("/errors"), '/errors/cause[^"]*')
    assert (dashboard.read(back)["number"], form_of(dashboard.get(back), "/errors/requeue")["q"]) == (
        3,
        "queue=invoices",
    )
    done = dashboard.post("/errors/requeue", form_of(asked, "/errors/requeue"))
    page = done.headers["location"]
    assert "Requeue of 3 jobs" in dashboard.get(page).shown
    dashboard.do(f"{page}/stop")
    again = dashboard.post("/errors/requeue", form_of(listed, "/errors/requeue"))
    assert ("would change nothing" in again.shown, "data-yes" in again.shown) == (True, False)
    assert [(state.name, state.waiting) for state in queue_states()] == [("invoices", 3), ("others", 0)]


def test_a_cause_is_requeued_in_some_queues_and_the_question_names_them() -> None:
    for queue in ("invoices", "others", "third"):
        fail(queue, KeyError("customer"), queue)
    dashboard = Dashboard()
    cause = {"fingerprint": fingerprint_of(dashboard, "KeyError"), "queue__in": "invoices,third"}
    asked = dashboard.post("/errors/requeue", cause)
    assert "data-yes>Requeue 2 jobs<" in asked.shown
    assert "of queue__in=invoices,third that failed with KeyError" in asked.shown
    assert form_of(asked, "/errors/requeue")["queue__in"] == "invoices,third"
    dashboard.do("/errors/requeue", cause)
    assert {state.name for state in queue_states() if state.waiting} == {"invoices", "third"}
    assert dashboard.read("/errors?queue__in=others%2Cthird")["groups"][0]["count"] == 2


def test_a_cause_is_requeued_at_a_rate() -> None:
    for number in range(3):
        fail(f"{number}", KeyError("customer"))
    dashboard = Dashboard()
    cause = {"fingerprint": fingerprint_of(dashboard, "KeyError")}
    assert dashboard.do("/errors/requeue", {**cause, "rate": "2/m"})["outcome"]["done"] == 3
    [state] = queue_states()
    assert (state.waiting, state.delayed) == (1, 2)
    refused = dashboard.post("/errors/requeue", {**cause, "rate": "fast"})
    assert (refused.status, "rate:" in refused.shown) == (400, True)
    assert dashboard.post("/errors/requeue", {**cause, "rate": "2/m", "spread": "1h"}).status == 400


def test_the_errors_of_a_cause_are_deleted_and_their_jobs_stay() -> None:
    fail("one", KeyError("customer"))
    fail("two", ValueError("no address"))
    users = {name: (PASSWORD, name) for name in ("act", "admin")}
    cause = {"fingerprint": fingerprint_of(Dashboard(), "KeyError")}
    assert Dashboard(users=users).post("/errors/delete", cause).status == 401
    dashboard = Dashboard()
    assert "Their jobs stay" in dashboard.post("/errors/delete", cause).shown
    assert dashboard.do("/errors/delete", cause)["outcome"]["done"] == 1
    assert causes(dashboard) == [("ValueError", 1)]
    assert JobFilter(status="error").count().number == 2


def test_all_errors_are_counted_on_request_if_there_is_no_time_for_that(monkeypatch: pytest.MonkeyPatch) -> None:
    fail("one", KeyError("customer"))
    fail("two", KeyError("customer"))
    monkeypatch.setattr(page_of_errors, "ERRORS_TIMES", Times(0.0, 0.0))
    monkeypatch.setattr(walk, "PER_STEP", 1)
    dashboard = Dashboard()
    assert dashboard.read("/errors")["is_exact"] is False
    assert "These are of the newest 1 of 2 errors" in dashboard.get("/errors").shown
    assert dashboard.do("/errors/count")["outcome"] == "2 errors were looked at"
    found = dashboard.read("/errors")
    assert (found["is_exact"], found["counted"] is None, found["groups"][0]["count"]) == (True, False, 2)
    assert "Counted at <time" in dashboard.get("/errors").shown
    assert dashboard.read("/errors?queue=others")["counted"] is None


def test_a_page_comes_soon_and_looks_on_for_all_viewers(monkeypatch: pytest.MonkeyPatch) -> None:
    for number in range(3):
        fail(f"{number}", KeyError("customer"))
    monkeypatch.setattr(page_of_errors, "ERRORS_TIMES", Times(0.0, 60.0))
    monkeypatch.setattr(walk, "PER_STEP", 1)
    monkeypatch.setattr(kept, "TIMES", 1e6)
    dashboard = Dashboard()
    for page in ("/errors", f"/errors/cause?fingerprint={fingerprint_of(dashboard, 'KeyError')}"):
        first = dashboard.read(page)
        assert (first["is_exact"], first["looked"]) == (False, 1)
        then = dashboard.get(page, {**PROGRAM, "hx-request": "true"}).json
        assert (then["is_exact"], then["looked"]) == (True, 3)
        assert dashboard.read(page)["looked"] == 3  # a reload says no less than is known


def test_hostile_errors_are_shown_as_text_and_cut() -> None:
    hostile = '<script>alert(1)</script>"\x1b[1m\u202e'
    fail(hostile, type("Bad<b>", (Exception,), {})(hostile))
    Error.add_error(
        queue_name=hostile, job=Invoice.add_job("x"), error=ValueError("x" * 2_000_000), when=None, trace=hostile
    )
    dashboard = Dashboard()
    fingerprints = [group["fingerprint"] for group in dashboard.read("/errors")["groups"]]
    for address in ("/errors", *(f"/errors/cause?fingerprint={each}" for each in fingerprints)):
        answer = dashboard.get(address)
        assert answer.status == 200
        assert len(answer.content) < 100_000
        assert "<script>a" not in answer.text
        assert "<b>" not in answer.text
        assert not {"\x1b", "\u202e"} & {*answer.text}


def test_a_search_by_what_is_masked_is_refused() -> None:
    fail("one", KeyError("customer"))
    assert Dashboard(masked=["identifier"]).get("/errors?identifier=one").status == 403


def test_only_jobs_whose_last_error_is_of_the_cause_are_counted_and_requeued() -> None:
    job = fail("changed", KeyError("customer"))
    fail("same", KeyError("customer"))
    job.requeue()
    with job.claim(owner="web1:12") as claim:
        claim.fail(ValueError("no address"))
    dashboard = Dashboard()
    first, second = (fingerprint_of(dashboard, kind) for kind in ("KeyError", "ValueError"))
    cause = dashboard.read(f"/errors/cause?fingerprint={first}")
    assert (cause["number"], cause["failed"]) == (2, 1)
    assert [each["identifier"] for each in cause["jobs"]] == ["same"]
    assert dashboard.read(f"/errors/cause?fingerprint={second}")["failed"] == 1
    assert dashboard.do("/errors/requeue", {"fingerprint": first})["outcome"]["done"] == 1
    assert JobFilter(f"fingerprint={first}").count().number == 2
    assert [job.identifier for job in JobFilter(f"last_fingerprint!={second}")] == ["same"]


def test_masked_identifiers_are_hidden_beside_a_cause() -> None:
    fail("4111-1111", KeyError("customer"))
    dashboard = Dashboard(masked=["identifier"])
    address = f"/errors/cause?fingerprint={fingerprint_of(dashboard, 'KeyError')}"
    assert "4111" not in dashboard.get(address).text
    assert "4111" not in dashboard.get("/jobs").text
    assert dashboard.read("/jobs")["jobs"][0]["identifier"] == "(masked)"


def test_the_page_of_a_cause_looks_at_each_error_and_each_job_once(redis_client: redis.Redis) -> None:
    for number in range(20):
        fail(f"{number}", KeyError("customer"))
    dashboard = Dashboard()
    fingerprint = fingerprint_of(dashboard, "KeyError")
    redis_client.config_resetstat()
    page = dashboard.read(f"/errors/cause?fingerprint={fingerprint}")
    assert page["number"] == page["failed"] == 20
    calls = {name.removeprefix("cmdstat_"): each["calls"] for name, each in redis_client.info("commandstats").items()}
    models = len(error_models_of(None))  # those of other tests, too
    assert calls["sinter"] == 20 * models  # the last error of each job
    assert calls["hmget"] == 20 + 3 * 20  # an error; a job with its last error


def test_a_requeue_is_followed_on_a_page_of_its_own_and_can_be_stopped() -> None:
    for number in range(3):
        fail(f"{number}", KeyError("customer"))
    dashboard = Dashboard()
    form = {"fingerprint": fingerprint_of(dashboard, "KeyError"), "stop_if_failing": "20%"}
    asked = dashboard.post("/errors/requeue", form)
    assert 'name="stop_if_failing"' in asked.text
    begun = dashboard.post("/errors/requeue", {**form, "confirmed": "1"})
    page = begun.headers["location"]
    assert (begun.status, page.startswith("/requeues/")) == (303, True)
    found = dashboard.read(page)["requeue"]
    assert (found["state"], found["done"], found["outcomes"]["open"]) == ("running", 3, 3)
    assert "Requeue of 3 jobs" in dashboard.get(page).shown
    dashboard.do(f"{page}/stop")
    wait_until(lambda: dashboard.read(page)["requeue"]["state"] == "stopped", "the end")
    assert "stopped by" in dashboard.get(page).shown
    assert dashboard.get("/requeues/none").status == 404


def test_the_badge_at_errors_counts_the_causes_that_fail_now_as_the_page_does() -> None:
    dashboard = Dashboard()
    assert 'data-failing="0"' in dashboard.get("/workers").text
    long_ago = utcnow() - timedelta(minutes=11)
    Error.add_error("invoices", Invoice.add_job("over"), OSError("c"), when=long_ago)
    for number, error in enumerate((KeyError("a"), ValueError("b"), ValueError("b"))):
        fail(f"{number}", error, f"queue{number}")
    dashboard = Dashboard()
    assert 'data-failing="2"' in dashboard.get("/workers").text
    assert "2 causes failed in the last 10 minutes" in dashboard.get("/errors").shown


def test_pages_that_ask_again_by_themselves_show_what_took_long_again(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kept, "TIMES", 1e6)
    fail("1", KeyError("a"))
    dashboard = Dashboard()
    fingerprint = fingerprint_of(dashboard, "KeyError")
    pages = "/errors", f"/errors/cause?fingerprint={fingerprint}", "/queues/queue?name=invoices"
    for page in pages:
        dashboard.get(page)
    fail("2", KeyError("a"))

    def shown(page: str, **headers: str) -> int:
        found = dashboard.get(page, {**PROGRAM, **headers}).json
        cause = found if "fingerprint" in found else (found["groups"] if "groups" in found else found["causes"])[0]
        return int(cause["number"] if "number" in cause else cause["count"])

    again = {"hx-request": "true"}
    assert [shown(page, **again) for page in pages] == [1, 1, 1]
    assert [shown(page) for page in pages] == [2, 2, 2]
    fail("3", KeyError("a"))
    dashboard.do("/queues/pause", {"queue": "invoices"})
    assert [shown(page, **again) for page in pages] == [3, 3, 3]


def test_a_cause_that_fails_now_offers_to_pause_its_queues_first() -> None:
    fail("a", KeyError("rate"))
    fail("b", KeyError("rate"), "others")
    dashboard = Dashboard()
    address = f"/errors/cause?fingerprint={fingerprint_of(dashboard, 'KeyError')}"
    assert sorted(dashboard.read(address)["pausing"]) == ["invoices", "others"]
    assert "Pause 2 queues" in dashboard.get(address).shown
    answer = dashboard.post("/queues/pause", [("from", "overview"), ("queue", "invoices")])
    assert answer.headers["location"].partition("?")[0] == "/"
    assert dashboard.read(address)["pausing"] == ["others"]


def test_a_requeue_meets_the_filter_of_its_page(monkeypatch: pytest.MonkeyPatch) -> None:
    """What the button counts is what is put back; without a condition that jobs can be asked for, there is none."""
    for number, version in enumerate(("-1", "-2", "-2")):
        monkeypatch.setenv("LIMPYD_JOBS_APP_VERSION", f"2026.11{version}")
        fail(f"{number}", KeyError("customer"))
    dashboard = Dashboard()
    listed = dashboard.get("/errors?q=app_version=2026.11-2 type=KeyError")
    assert "Requeue 2…" in listed.shown
    cause = dashboard.get(link(listed, '/errors/cause[^"]*'))
    assert "Requeue 2…" in cause.shown
    assert dashboard.read(link(cause, '/jobs[?]q=status[^"]*'))["count"] == 2
    form = form_of(listed, "/errors/requeue")
    asked = dashboard.post("/errors/requeue", form).shown
    assert "data-yes>Requeue 2 jobs<" in asked
    assert "the jobs of app_version=2026.11-2 type=KeyError that failed" in asked
    assert dashboard.do("/errors/requeue", form)["outcome"]["done"] == 2
    assert [job.identifier for job in JobFilter("status=error", "last_app_version=2026.11-1")] == ["0"]

    recent = dashboard.get("/errors?q=date_time>-1h")
    assert "/errors/requeue" not in recent.shown + dashboard.get(link(recent, '/errors/cause[^"]*')).shown
    refused = dashboard.post("/errors/requeue", {**form, "q": "date_time>-1h", "confirmed": "1"})
    assert (refused.status, "cannot be requeued by 'date_time>-1h'" in refused.shown) == (400, True)


def test_jobs_are_not_searched_by_a_masked_version_of_their_last_error() -> None:
    Invoice.add_job("one")
    assert Dashboard(masked=["app_version"]).get("/jobs?last_app_version=2026").status == 403
