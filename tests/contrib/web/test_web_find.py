"""The palette asks the dashboard: what a text finds, where each leads, and nothing that is masked."""

from __future__ import annotations

from typing import Any
from urllib.parse import urlencode

import pytest
from asking import Dashboard
from limpyd import fields

from limpyd_jobs import Job
from limpyd_jobs.query import queue_states

pytestmark = pytest.mark.usefixtures("redis_client")


class Ticket(Job):
    namespace = "web-find"
    queue_name = "tickets"
    to = fields.InstanceHashField(indexable=True)
    note = fields.InstanceHashField()
    pin = fields.InstanceHashField()
    masked_fields = ("pin", "identifier")

    def run(self, queue: Any) -> None: ...


def options(dashboard: Dashboard, text: str) -> dict[str, str]:
    """Return what a text finds: where each option leads, by its title."""
    found = dashboard.read(f"/find?{urlencode({'q': text})}")
    return {each["title"]: each["address"] for group in found["groups"] for each in group["options"]}


def test_each_option_leads_to_a_page_that_is_there() -> None:
    jobs = [Ticket.add_job(f"{number}", to="ann@example.com") for number in range(7)]
    with Ticket.add_job("failed").claim(owner="web1:12") as claim:
        claim.fail(KeyError("no"))
    dashboard = Dashboard()
    found = options(dashboard, "ann@example.com")
    assert found["All 7 jobs"] == "/jobs?q=ann%40example.com"
    assert found[f"Ticket:{jobs[-1].pk.get()}"] == f"/jobs/{jobs[-1].ident}"
    more = options(dashboard, "ticket") | options(dashboard, "KeyError") | options(dashboard, "error")
    assert {"Queue tickets", f"Class {Ticket.get_model_repr()}", "Jobs that are error"} <= more.keys()
    assert all(dashboard.get(address).status == 200 for address in {**found, **more}.values())


def verbs(dashboard: Dashboard, text: str) -> dict[str, tuple[str, dict[str, str]]]:
    """Return what a text offers to do: where each verb is sent, and the form, by its title."""
    groups = dashboard.read(f"/find?{urlencode({'q': text})}")["groups"]
    offered = [each for group in groups if group["title"] == "Do" for each in group["options"]]
    return {each["title"]: (each["address"], each["form"]) for each in offered}


def test_a_verb_is_offered_for_what_it_can_be_done_with_and_asks_first() -> None:
    dashboard = Dashboard()
    with Ticket.add_job("failed").claim(owner="web1:12") as claim:
        claim.fail(KeyError("no"))
    address, form = verbs(dashboard, "pause tickets")["Pause tickets…"]
    asked = dashboard.post(address, form)
    assert ("data-yes>Pause tickets<" in asked.shown, queue_states()[0].is_paused) == (True, False)
    dashboard.do(address, form)
    assert (queue_states()[0].is_paused, verbs(dashboard, "pause tickets")) == (True, {})
    address, form = verbs(dashboard, "Unpause tick")["Unpause tickets…"]
    assert "data-yes>Resume tickets<" in dashboard.post(address, form).shown
    found = verbs(dashboard, "requeue tickets") | verbs(dashboard, "requeue keyerror")
    assert "Requeue the jobs in error of tickets…" in found
    assert any(title.startswith("Requeue the jobs of KeyError") for title in found)
    for address, form in found.values():
        assert "data-yes>Requeue 1 job<" in dashboard.post(address, form).shown
    assert "Requeue the jobs in error of tickets…" in dashboard.get("/find?q=requeue+tickets").shown
    assert verbs(Dashboard(read_only=True), "pause tickets") == {}
    assert "Queue tickets" in options(dashboard, "tickets")


def test_nothing_is_found_by_what_is_masked() -> None:
    Ticket.add_job("secret-name", pin="4711-pin", note="about a ring")
    dashboard = Dashboard()
    assert options(dashboard, "secret-name") == {}
    assert dashboard.read("/find/through?q=4711-pin")["options"] == []
    [found] = dashboard.read("/find/through?q=a+ring")["options"]
    assert found["detail"] == "(masked), in note"


def test_it_works_without_scripts() -> None:
    job = Ticket.add_job("one", to="ann")
    dashboard = Dashboard()
    assert f'href="/jobs/{job.ident}"' in dashboard.get(f"/find?q={job.ident}").shown
    assert "Looked at 1 of 1 job" in dashboard.get("/find/through?q=ann").shown
