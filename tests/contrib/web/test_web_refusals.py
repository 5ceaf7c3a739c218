"""Whoever asks for what cannot be is answered where the question stands; what cannot be undone is not done by Enter."""

from __future__ import annotations

from typing import Any

import pytest
from asking import BROWSER, Dashboard
from cases import each
from limpyd import fields

from limpyd_jobs import Job
from limpyd_jobs.contrib.web import app
from limpyd_jobs.query import JobFilter

pytestmark = pytest.mark.usefixtures("redis_client")


class Note(Job):
    namespace = "web-refusals"
    queue_name = "notes"
    to = fields.InstanceHashField(indexable=True)
    pin = fields.InstanceHashField(indexable=True)
    masked_fields = ("pin",)

    def run(self, queue: Any) -> None: ...


@each(
    ("page", "typed", "told"),
    [
        ("/jobs", "stauts=error", "has a field 'stauts': is status meant?"),
        ("/jobs", "status=eror", "'eror' is not a status: waiting, delayed"),
        ("/jobs", "'open", "The filter is not complete"),
        ("/errors", "tpye=KeyError", "'tpye': is type meant?"),
    ],
)
def test_a_wrong_condition_is_told_under_the_box_that_keeps_it(page: str, typed: str, told: str) -> None:
    Note.add_job("one")
    answer = Dashboard().get(f"{page}?q={typed.replace('=', '%3D')}")
    assert answer.status == 400
    assert told in answer.shown
    assert f'value="{typed}"' in answer.shown
    assert 'aria-label="Pages"' in answer.text
    form = answer.text.partition('role="search"')[2].partition("</form>")[0]
    assert 'role="alert"' in form


def test_a_word_alone_leads_to_its_job_and_means_no_masked_field() -> None:
    Note.add_job("one", to="ann", pin="4711")
    dashboard = Dashboard()
    assert [job["identifier"] for job in dashboard.read("/jobs?q=ann")["jobs"]] == ["one"]
    assert dashboard.read("/jobs?q=4711")["jobs"] == []
    assert "is queue=notes meant?" in dashboard.get("/jobs?q=notes").shown


def test_a_form_that_is_refused_is_shown_again_with_what_was_typed() -> None:
    job = Note.add_job("one")
    dashboard = Dashboard()
    answer = dashboard.post("/jobs/cancel", {"q": "status=waiting"})
    assert answer.status == 400
    assert "Select some jobs first" in answer.shown
    assert 'value="status=waiting"' in answer.shown
    from_job = {**BROWSER, "referer": f"http://localhost:8780/jobs/{job.ident}"}
    answer = dashboard.post("/jobs/edit", {"ident": job.ident, "priority_to": "many"}, from_job)
    assert answer.status == 400
    assert job.ident in answer.shown
    assert "priority" in answer.shown.partition('role="alert">')[2].partition("<")[0]


def test_any_other_refusal_has_the_navigation_and_says_what_it_is() -> None:
    answer = Dashboard().get("/nowhere")
    assert answer.status == 404
    assert "Not found" in answer.shown
    assert 'aria-label="Pages"' in answer.text
    assert "Not done" not in answer.shown


def test_what_is_confirmed_is_named_by_its_number_and_no_has_the_focus() -> None:
    Note.add_jobs(["one", "two"])
    answer = Dashboard().post("/jobs/delete", {"q": "status=waiting", "all": "1"})
    assert "data-yes>Delete 2 jobs</button>" in answer.shown
    focused = answer.shown.partition(" autofocus")[0].rpartition("<")[2]
    assert focused.startswith("a ")
    assert 'name="typed"' not in answer.text


def test_a_large_number_that_nothing_brings_back_is_typed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(app, "MAX_UNTYPED", 1)
    Note.add_jobs(["one", "two"])
    dashboard, form = Dashboard(), {"q": "status=waiting", "all": "1"}
    assert 'name="typed"' in dashboard.post("/jobs/delete", form).text
    wrong = dashboard.post("/jobs/delete", {**form, "confirmed": "1", "counted": "2", "typed": "3"})
    assert "That is not the number: it is 2" in wrong.shown
    assert JobFilter().count().number == 2
    dashboard.post("/jobs/delete", {**form, "confirmed": "1", "counted": "2", "typed": "2"})
    assert JobFilter().count().number == 0
    Note.add_jobs(["one", "two"])
    assert 'name="typed"' not in dashboard.post("/jobs/move", {**form, "priority_to": "3"}).text


def test_a_count_is_never_less_than_what_is_shown() -> None:
    """Not all was looked at, as there is no index."""
    from limpyd_jobs.contrib.web.pages import jobs as page

    Note.add_jobs([f"{number}" for number in range(30)])
    dashboard = Dashboard()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(page, "MAX_COUNTED", 0)
        patch.setattr(page, "COUNT_TIMEOUT", 0)
        seen = {dashboard.read("/jobs?q=to%3D+status%3Dwaiting")["count"] for _ in range(3)}
    assert len(seen) == 1
    assert seen.pop() >= 30
