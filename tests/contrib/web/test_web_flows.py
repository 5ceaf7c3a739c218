"""The dashboard shows flows, the graph of each, and the way from a job to its flow and back."""

from __future__ import annotations

import pytest
from asking import PROGRAM, Dashboard
from flow_kinds import Page, Report, Spawning, ask
from running import work
from servers import wait_until

from limpyd_jobs import Flow, Worker, chain
from limpyd_jobs.query import audit_entries, job_details
from limpyd_jobs.records import flows
from limpyd_jobs.search.classes import connection_to

pytestmark = pytest.mark.usefixtures("redis_client")

HOSTILE = "<script>alert(1)</script>"


def a_flow(name: str = "report:7") -> Flow:
    flow = chain(Page.prepare(), Report.prepare(), name=name)
    flow._nodes[0].job.claim().fail(ValueError("no paper"))
    return flow


def test_flows_are_listed_and_found_by_a_part_of_their_names() -> None:
    dashboard = Dashboard()
    assert "There is no flow" in dashboard.get("/flows").shown
    flow = a_flow(HOSTILE)
    chain(Page.prepare(), name="nightly")
    page = dashboard.get("/flows")
    assert "<script>alert" not in page.text
    assert f"/flows/flow?name={flow.id}" in page.text
    assert [each["name"] for each in dashboard.read("/flows?q=NIGHT")["flows"]] == ["nightly"]


def test_a_job_leads_to_its_flow_and_the_flow_to_its_jobs() -> None:
    flow = a_flow()
    dashboard = Dashboard()
    page = dashboard.get("/flows/flow?name=report:7")
    for node in flow.nodes():
        assert f'href="/jobs/{node.ident}"' in page.text
        assert f'"/flows/flow?name={flow.id}"' in dashboard.get(f"/jobs/{node.ident}").text
    assert "Page failed" in page.shown
    assert "#id-" not in page.text
    found = dashboard.read(f"/flows/flow?name={flow.id}&state=canceled")
    assert [each["node"]["name"] for each in found["nodes"]] == ["Report"]


def test_one_that_is_gone_is_said_to_be() -> None:
    answer = Dashboard().get("/flows/flow?name=nightly")
    assert answer.status == 404
    assert "There is no flow nightly" in answer.shown


def test_a_flow_is_canceled_and_requeued_once_that_is_confirmed() -> None:
    flow, dashboard = a_flow(), Dashboard()
    asked = dashboard.post("/flows/requeue", {"flow": flow.id})
    assert "Requeue 2 jobs?" in asked.shown
    assert flow.state().open == 0
    dashboard.post("/flows/requeue", {"flow": flow.id, "confirmed": "1"})
    assert [node.state for node in flow.nodes()] == ["waiting", "waiting for others"]
    assert "Cancel 2 jobs?" in dashboard.post("/flows/cancel", {"flow": flow.id}).shown
    dashboard.post("/flows/cancel", {"flow": flow.id, "confirmed": "1"})
    assert [node.state for node in flow.nodes()] == ["canceled", "canceled"]
    assert [(each.verb, each.filter) for each in audit_entries()] == [
        ("flows cancel", "report:7"),
        ("flows requeue", "report:7"),
    ]


def test_a_large_flow_is_shown_in_few_boxes_each_of_which_lists_its_jobs() -> None:
    with Flow("large") as flow:
        pages = [flow.add(Page.prepare()) for _ in range(60)]
        flow.add(Report.prepare(), after=pages)
    page = Dashboard().get("/flows/flow?name=large")
    assert page.text.count("<foreignObject") == 4
    assert "jobs of a class that come after as many others are one box" in page.shown
    found = Dashboard().read("/flows/flow?name=large&group=61")
    assert (found["number"], found["nodes"][0]["after"], found["nodes"][0]["others"]) == (
        1,
        ["Page", "Page 2", "Page 3"],
        57,
    )


def test_what_another_program_wrote_breaks_no_page() -> None:
    flow = a_flow()
    connection = connection_to(None)
    connection.hset(flows.key_of(connection, flow.id), mapping={"size": "many", "added": "x", "state": "odd"})
    connection.delete(flows.key_of(connection, flow.id, ":open"))
    connection.set(flows.key_of(connection, flow.id, ":open"), "x")
    for path in ("/flows", f"/flows/flow?name={flow.id}"):
        assert Dashboard().get(path).status == 200


def test_a_job_that_waits_for_others_has_no_date_at_the_end_of_time() -> None:
    chain(Page.prepare(), Page.prepare())
    for path, said in (("/jobs?status=delayed", "waits for others"), ("/queues/queue?name=pages", "no date")):
        shown = Dashboard().get(path).shown
        assert said in shown
        assert "9999" not in shown
        assert "2,9" not in shown


def test_what_a_node_waits_for_is_said() -> None:
    with Flow("approvals") as flow:
        flow.add(ask.prepare("approval"))
        flow.add(Spawning.prepare())
    wait_until(lambda: Worker("asking,spawning", timeout=0.1, max_duration=0.3, logger_level=60).run() or is_idle(flow))
    page, children = Dashboard().get("/flows/flow?name=approvals"), flow.nodes()[1].wait.children
    assert "waiting for a signal: approval" in page.shown
    assert f'"/flows/flow?name={children}"' in page.text
    assert Dashboard().read(f"/flows/flow?name={children}")["flow"]["size"] == 3
    spawner = flow.nodes()[1].ident
    assert f'href="/jobs/{spawner}">{spawner}</a>' in Dashboard().get(f"/flows/flow?name={children}").text
    assert f"spawned by {spawner}" in Dashboard().get("/flows").shown


def is_idle(flow: Flow) -> bool:
    return all(each.is_parked for each in flow.nodes())


def test_a_signal_is_sent_to_a_job_or_to_a_flow_once_that_is_confirmed() -> None:
    with Flow("approvals") as flow:
        for _ in range(2):
            flow.add(ask.prepare("approval"))
    job = ask.add("answer")
    work("asking", callback=None, max_loops=3)
    dashboard = Dashboard()
    page = dashboard.get(f"/jobs/{job.ident}").shown
    assert "Waiting for a signal" in page
    assert "Run now" not in page
    assert "waits for the signal answer" in dashboard.get("/jobs").shown
    asked = dashboard.post("/flows/signal", {"to": job.ident, "signal": "answer", "value": '{"by": "ann"}'})
    assert 'its value is {"by": "ann"}' in asked.shown
    assert "Only the first signal of a name counts" in asked.shown
    assert job_details(job.ident).waits_for == "waiting for a signal"
    dashboard.do("/flows/signal", {"to": job.ident, "signal": "answer", "value": '{"by": "ann"}'})
    assert job_details(job.ident).status == "waiting"
    assert "2 of its jobs wait for the signal approval" in dashboard.get("/flows/flow?name=approvals").shown
    sent = dashboard.do("/flows/signal", {"to": flow.id, "signal": "approval"})
    assert "sent: what waited" in f"{sent}"
    assert [node.state for node in flow.nodes()] == ["waiting", "waiting"]
    again = dashboard.do("/flows/signal", {"to": flow.id, "signal": "approval", "value": "no"})
    assert "another one of that name" in f"{again}"
    assert audit_entries()[-1].filter == f"{job.ident} answer"
    gone = dashboard.post("/flows/signal", {"to": "shop.jobs.Gone:1", "signal": "answer", "confirmed": "1"}, PROGRAM)
    assert "cannot be imported" in gone.text


def test_pages_of_queues_and_classes_name_the_flows_whose_jobs_are_there() -> None:
    a_flow("done").cancel()
    chain(Page.prepare(), Report.prepare(), name=HOSTILE)
    for place in (f"class?name={Page.get_model_repr()}", "queue?name=pages"):
        page = Dashboard().get(f"/queues/{place}")
        assert [each["name"] for each in Dashboard().read(f"/queues/{place}")["flows"]] == [HOSTILE]
        assert "0 of 2" in page.shown
        assert "<script>alert" not in page.text
    assert Dashboard().read(f"/queues/class?name={Spawning.get_model_repr()}")["flows"] == []


def test_a_flow_that_is_held_says_of_what_one_runs_at_a_time() -> None:
    flows_of_turn = [chain(Page.prepare(), name=name, one_at_a_time=HOSTILE) for name in ("first", "second")]
    dashboard = Dashboard()
    page = dashboard.get(f"/flows/flow?name={flows_of_turn[1].id}")
    assert "It is held until it is its turn" in page.shown
    assert "<script>alert" not in page.text
    found = dashboard.read("/flows")["flows"]
    assert sorted((each["state"], each["turn"]) for each in found) == [("held", HOSTILE), ("running", HOSTILE)]
