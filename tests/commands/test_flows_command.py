"""``limpyd-jobs flows``: flows are listed, shown, canceled and requeued."""

from __future__ import annotations

import io
import json

import pytest
from flow_kinds import Page, Report, Spawning
from running import work

from limpyd_jobs import Flow, chain
from limpyd_jobs.commands.flows import Flows
from limpyd_jobs.commands.jobs import Jobs
from limpyd_jobs.query import audit_entries

pytestmark = pytest.mark.usefixtures("redis_client")


def run(*words: str) -> int:
    try:
        return Flows("limpyd-jobs flows", [*words]).execute()
    except SystemExit as error:
        return int(str(error))


def a_flow() -> Flow:
    return chain(Page.prepare(), Report.prepare(), name="report:7")


def test_all_are_listed_the_last_ones_first(capsys: pytest.CaptureFixture[str]) -> None:
    chain(Page.prepare(), name="ended").cancel()
    a_flow()
    with Flow() as other:
        other.add(Page.prepare())
    assert run() == 0
    lines = [line.split() for line in capsys.readouterr().out.splitlines()]
    assert [line[:5] for line in lines[1:]] == [
        [other.id, "running", "1", "1", "0"],
        ["report:7", "running", "2", "2", "0"],
        ["ended", "canceled", "1", "0", "1"],
    ]
    assert run("list", "--json") == 0
    assert [each["name"] for each in json.loads(capsys.readouterr().out)] == ["", "report:7", "ended"]


def test_one_that_a_job_spawned_is_listed_with_its_id_and_that_job(capsys: pytest.CaptureFixture[str]) -> None:
    job = Spawning.add_job()
    work("spawning", callback=None)
    assert run() == 0
    children = job.waits.hget().partition("children ")[2].partition("\n")[0]
    assert f"{children}, spawned by {job.ident}" in capsys.readouterr().out
    assert run("list", "--json") == 0
    assert [each["spawner"] for each in json.loads(capsys.readouterr().out)] == [job.ident]


def test_the_jobs_of_one_are_shown_with_why_they_were_canceled(capsys: pytest.CaptureFixture[str]) -> None:
    flow = a_flow()
    flow._nodes[0].job.claim("me").fail(ValueError("no paper"))
    assert run("show", "report:7", "--json") == 0
    found = json.loads(capsys.readouterr().out)
    assert [(each["name"], each["status"], each["state"], each["reason"]) for each in found] == [
        *[("Page", "e", "error", ""), ("Report", "c", "canceled", "Page failed")],
    ]
    assert run("show", flow.id) == 0
    assert "Page failed" in capsys.readouterr().out
    assert Jobs("limpyd-jobs jobs", ["show", found[1]["ident"]]).execute() == 0
    shown = [line.split(maxsplit=1) for line in capsys.readouterr().out.splitlines()]
    assert ["flow", flow.id] in shown
    assert ["canceled", "because  Page failed"] in shown
    assert "delayed_until" not in dict(shown)  # it waited for others until the end of all dates


def test_one_is_canceled_and_requeued_and_the_audit_has_it(capsys: pytest.CaptureFixture[str]) -> None:
    flow = a_flow()
    assert run("cancel", "report:7", "--yes") == 0
    assert [node.state for node in flow.nodes()] == ["canceled", "canceled"]
    assert run("cancel", "report:7") == 0
    assert run("requeue", flow.id, "--yes") == 0
    assert [node.state for node in flow.nodes()] == ["waiting", "waiting for others"]
    assert capsys.readouterr().out.splitlines() == ["canceled", "had ended before", "open now: 2 jobs"]
    assert sorted((entry.verb, entry.done) for entry in audit_entries()) == [
        *[("flows cancel", 0), ("flows cancel", 1), ("flows requeue", 1)],
    ]


def test_the_jobs_to_change_are_counted_and_it_is_asked_first(capsys: pytest.CaptureFixture[str]) -> None:
    flow = a_flow()
    before = [node.state for node in flow.nodes()]
    assert run("cancel", "report:7", "--dry-run") == 0
    assert run("cancel", "report:7", "--dry-run", "--json") == 0
    shown, _, as_json = capsys.readouterr().out.partition("\n")
    assert shown == "2 jobs would be canceled"
    assert json.loads(as_json) == {"outcome": "would be canceled", "jobs": 2, "dry_run": True}
    assert run("cancel", "report:7") == 2  # there is none to ask
    assert "cancel 2 jobs of the flow report:7? Give --yes" in capsys.readouterr().err
    assert [node.state for node in flow.nodes()] == before
    flow.cancel()
    assert run("requeue", flow.id, "--dry-run") == 0
    assert run("requeue", flow.id) == 2
    shown = capsys.readouterr()
    assert (shown.out, flow.state().open) == ("2 jobs would be requeued\n", 0)
    assert f"requeue 2 jobs of the flow {flow.id}?" in shown.err
    assert not audit_entries()


@pytest.mark.parametrize(("answer", "status", "is_open"), [("n", 1, 2), ("y", 0, 0)])
def test_a_flow_is_canceled_if_the_answer_is_yes(
    monkeypatch: pytest.MonkeyPatch, answer: str, status: int, is_open: int
) -> None:
    flow = a_flow()
    answers = io.StringIO(f"{answer}\n")
    answers.isatty = lambda: True  # type: ignore[method-assign]
    monkeypatch.setattr("sys.stdin", answers)
    assert run("cancel", "report:7") == status
    assert flow.state().open == is_open


def test_one_that_is_not_there_is_refused_with_one_line(capsys: pytest.CaptureFixture[str]) -> None:
    for words in (["show", "nightly"], ["show"], ["list", "nightly"], ["drop", "nightly"]):
        assert run(*words) == 2
    lines = capsys.readouterr().err.splitlines()
    assert any(line.endswith("There is no flow 'nightly', or no longer") for line in lines)
    assert any("show needs the name or the id of a flow after it" in line for line in lines)


def test_one_that_is_held_says_of_what_one_runs_at_a_time(capsys: pytest.CaptureFixture[str]) -> None:
    for name in ("first", "second"):
        chain(Page.prepare(), name=name, one_at_a_time="customer:7")
    assert run() == 0
    assert "held: customer:7" in capsys.readouterr().out
    assert run("list", "--json") == 0
    assert [each["turn"] for each in json.loads(capsys.readouterr().out)] == ["customer:7"] * 2
    assert run("cancel", "first", "--yes") == 0
    assert Flow.find("second").state().state == "running"
    assert run("requeue", "first", "--yes") == 0
    assert "it is held until it is its turn" in capsys.readouterr().out
