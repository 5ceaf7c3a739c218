"""Jobs are found, looked at and changed in the dashboard."""

from __future__ import annotations

import json
import re
from datetime import timedelta
from html import unescape
from typing import Any
from urllib.parse import urlencode

import pytest
import redis
from asking import BROWSER, PROGRAM, Dashboard
from cases import each
from limpyd import fields
from reading import limpyd_jobs

from limpyd_jobs import STATUSES, Job, Queue
from limpyd_jobs.contrib.web.pages import jobs as jobs_page
from limpyd_jobs.query import JobFilter
from limpyd_jobs.search import walk

pytestmark = pytest.mark.usefixtures("redis_client")


class Letter(Job):
    namespace = "web-jobs"
    queue_name = "letters"
    to = fields.InstanceHashField(indexable=True)
    api_token = fields.InstanceHashField()
    account = fields.InstanceHashField()
    more = fields.InstanceHashField()
    masked_fields = ("account",)
    keep_history = 10

    def run(self, queue: Any) -> None: ...


def fail(job: Letter, error: Exception, **how: Any) -> None:
    with job.claim(owner="web1:12") as claim:
        claim.fail(error, **how)


def test_the_filter_is_in_the_address() -> None:
    for name in ("ann", "bob"):
        Letter.add_job(name, to=f"{name} & co")
    Letter.add_job("later", delayed_for=timedelta(hours=1))
    dashboard = Dashboard()
    assert [job["identifier"] for job in dashboard.read("/jobs")["jobs"]] == ["later", "bob", "ann"]
    assert [job["identifier"] for job in dashboard.read("/jobs?oldest=1&status=waiting")["jobs"]] == ["ann", "bob"]
    found = dashboard.read("/jobs?to=ann+%26+co")
    assert (found["words"], [job["identifier"] for job in found["jobs"]]) == (["to=ann & co"], ["ann"])
    assert dashboard.read("/jobs?q=status%3Ddelayed+'to='&added__gt=-1h")["count"] == 1
    page = dashboard.get("/jobs?to=ann+%26+co")
    assert 'value="&#39;to=ann &amp; co&#39;"' in page.text


def test_jobs_of_classes_that_are_not_known_are_told_of(redis_client: redis.Redis) -> None:
    dashboard = Dashboard()
    assert dashboard.read("/jobs")["unknown_classes"] == []
    queue = Queue.get_queue("letters")
    redis_client.rpush(queue.waiting.key, "old.app.Parcel<b>:1")
    assert dashboard.read("/jobs")["unknown_classes"] == ["old.app.Parcel<b>"]
    page = dashboard.get("/jobs?queue=letters").text
    assert "Jobs of classes that are not known here were not looked at: old.app.Parcel&lt;b&gt;." in page
    overview = dashboard.get("/").text
    assert "In letters are jobs of old.app.Parcel&lt;b&gt;, a class that is not known here" in overview
    assert "Name its module in" in overview


def test_pages_follow_each_other() -> None:
    for number in range(5):
        Letter.add_job(f"{number}")
    dashboard = Dashboard()
    first = dashboard.read("/jobs?limit=3")
    second = dashboard.read(f"/jobs?limit=3&after={first['following']}")
    assert [job["identifier"] for page in (first, second) for job in page["jobs"]] == ["4", "3", "2", "1", "0"]
    assert second["following"] is None


@each(
    ("address", "told"),
    [
        ("/jobs?q=9a%3Dx", "is not a condition"),
        ("/jobs?q='open", "The filter is not complete"),
        ("/jobs?nonesuch=red", "None of these classes has a field 'nonesuch'"),
        ("/jobs?limit=0", "limit must be a number from 1 to 500"),
        ("/jobs?after=x", "is not where a page ended"),
        ("/jobs/nonsense", "is not the ident of a job"),
        ("/jobs/facets?by=pk", "pk is not a field of a job"),
    ],
)
def test_what_cannot_be_found_is_refused_in_one_line(address: str, told: str) -> None:
    Letter.add_job("one")
    answer = Dashboard().get(address, PROGRAM)
    assert answer.status == 400
    assert told in answer.json["error"]


def test_jobs_are_counted_by_their_fields_and_words_are_completed() -> None:
    Letter.add_job("one", to="ann")
    Letter.add_job("two", to="ann", queue_name="others")
    dashboard = Dashboard()
    facets = dashboard.read("/jobs/facets?by=to&status=waiting")["facets"]
    assert facets["to"]["counts"] == {"ann": 2}
    assert facets["queue"]["counts"] == {"letters": 1, "others": 1}
    assert dashboard.read("/jobs/words?q=status%3Dwaiting+queue%3Dl")["words"] == ["queue=letters"]
    assert "to=" in dashboard.read("/jobs/words?q=t")["words"]


@pytest.mark.proof
def test_what_is_too_long_is_not_read(redis_client: redis.Redis) -> None:
    long = "y" * 2_000_000
    job = Letter.add_job("one", queue_name="letters")
    fail(job, ValueError("short"))
    [error] = redis_client.keys("jobs:error:[0-9]*:hash")
    redis_client.hset(error, "traceback", long)
    redis_client.hset(f"{Letter._name}:{job.pk.get()}:hash", mapping={"to": long, "identifier": long, "more": "z"})
    redis_client.hset("jobs:queue:1:hash", mapping={"name": long, "x": "y"})
    redis_client.xadd("limpyd-jobs:audit", {"who": long, "verb": "x", "filter": long})
    redis_client.hset("limpyd-jobs:audit:begun", "x", f'{{"who": "{long}"}}')
    dashboard = Dashboard()
    found = dashboard.read(f"/jobs/{job.ident}")["job"]
    assert found["fields"]["to"] == "(2.0 MB, too long to be read here)"
    assert found["fields"]["more"] == "z"
    assert found["errors"][0]["traceback"] == "(2.0 MB, too long to be read here)"
    for address in (f"/jobs/{job.ident}", "/jobs", "/queues", "/", "/live", "/audit", "/errors"):
        for headers in (BROWSER, PROGRAM):
            answer = dashboard.get(address, headers)
            assert answer.status == 200
            assert len(answer.content) < 400_000, address
    name = dashboard.read("/queues")["queues"][0]["name"]
    assert name == f"{'y' * 4096}… (2000000 bytes)"
    assert 'name="field.to"' not in dashboard.get(f"/jobs/{job.ident}").text


def test_secrets_are_masked_and_cannot_be_asked_for() -> None:
    values = {"api_token": "secret-1", "account": "secret-2", "to": "secret-3"}
    job = Letter.add_job("one", **values, more='{"a": [{"password": "secret-4"}]}')
    dashboard = Dashboard(masked=[f"{__name__}.Letter.to"])
    for answer in (dashboard.get(f"/jobs/{job.ident}"), dashboard.get(f"/jobs/{job.ident}", PROGRAM)):
        assert answer.status == 200
        assert "secret-" not in answer.text
        assert answer.text.count("(masked)") == 4
    for address in ("/jobs?api_token=h", "/jobs?account__gt=h", "/jobs?to=h", "/jobs/facets?by=account"):
        assert dashboard.get(address).status == 403
    assert dashboard.post("/jobs/delete", {"all": "1", "q": "api_token>h"}).status == 403
    asked = [
        '{"a": [{"password": "secret-',
        ' "{\\"password\\": \\"s',
        '["x", {"account": "s',
        '{"p\\u0061ss',
        '{"a": [',
    ]
    found = [dashboard.get("/jobs?" + urlencode({"more__gt": value})).status for value in asked]
    assert found == [403, 403, 403, 403, 200]
    assert dashboard.get("/errors?" + urlencode({"message__lt": asked[0]})).status == 403
    for page in ("/jobs", "/errors"):  # the name of a queue, to which pages link
        assert dashboard.get(f"{page}?{urlencode({'queue': asked[0]})}").status == 200


def test_what_was_asked_for_is_masked_in_the_audit_and_what_failed_in_the_traceback() -> None:
    fail(Letter.add_job("one"), ValueError('{"pin": "SECRET"}'), trace='ValueError: {"pin": "SECRET"}')
    Letter.add_job("two", to="ann")
    for words in ("api_token=SECRET x=SECRET", "priority=0", "to!=bob account__gt=SECRET", 'more={"pin": "SECRET"}'):
        JobFilter(*(words.split(" ", 1) if "account" in words else [words])).cancel_all()
    dashboard = Dashboard(masked=["pin"])
    filters = [entry["filter"] for entry in dashboard.read("/audit")["entries"]]
    assert filters == ["more=(masked)", "to!=bob account>(masked)", "priority=0", "api_token=(masked)"]
    assert dashboard.read("/audit?q=SECRET")["entries"] == []
    fingerprint = dashboard.read("/errors")["groups"][0]["fingerprint"]
    for page in (f"/jobs/{Letter.get_model_repr()}:1", f"/errors/cause?fingerprint={fingerprint}"):
        assert "SECRET" not in dashboard.get(page).text


@pytest.mark.matrix(2)
@pytest.mark.parametrize(
    "stored",
    [
        ' {"api-key": "SECRET"}',
        '{"password": "SECRET", "n": ' + "9" * 5_000 + "}",
        '["{\\"pin\\": \\"SECRET\\"}"]',
        '{"x": {"pin": "SECRET"}, "x": 1}',
        '"{\\"pin\\": \\"SECRET\\"}"',
        '{"p\\u0069n": "SECRET"',
        '\ufeff{"pin": "SECRET"}',
    ],
)
def test_secrets_in_values_are_masked_wherever_these_are_shown(stored: str) -> None:
    job = Letter.add_job("one", more=stored)
    dashboard = Dashboard(masked=["pin"])
    for answer in (
        dashboard.get(f"/jobs/{job.ident}", PROGRAM),
        dashboard.get("/jobs/facets?by=more"),
        dashboard.get("/jobs/facets?by=more", PROGRAM),
        dashboard.post("/jobs/edit", {"ident": job.ident, "field.more": "x"}),
    ):
        assert answer.status == 200
        assert "(masked)" in answer.text
        assert "SECRET" not in answer.text


def test_secrets_are_masked_in_what_a_job_tells_of_itself() -> None:
    secret = '{"pin": "SECRET"}'
    failed, canceled = Letter.add_jobs(["failed", "canceled"])
    fail(failed, ValueError(secret))
    failed.log(secret)
    failed.progress(0.5, secret)
    canceled.cancel()
    client = failed.connection
    client.hset(failed._cursor.key, "_cursor", '{"send": [3, {"pin": "SECRET"}]}')
    client.hset(canceled._cursor.key, "_cancel_reason", secret)
    dashboard = Dashboard(masked=["pin"])
    cause = "/errors/cause?fingerprint=" + dashboard.read("/errors")["groups"][0]["fingerprint"]
    for address in (f"/jobs/{failed.ident}", f"/jobs/{canceled.ident}", "/errors", cause):
        for answer in (dashboard.get(address), dashboard.get(address, PROGRAM)):
            assert "(masked)" in answer.text
            assert "SECRET" not in answer.text
    reasons = " ".join(reason["text"] for reason in dashboard.read(f"/jobs/{failed.ident}")["reasons"])
    assert 'ValueError: {"pin": "(masked)"}' in reasons
    assert '{"send": [3, {"pin": "(masked)"}]}' in reasons


@pytest.mark.parametrize("to", ["\udcff", "a\nb"])
def test_what_is_confirmed_is_what_was_counted(to: str) -> None:
    others = [Letter.add_job("question", to="?"), Letter.add_job("crlf", to="a\r\nb")]
    job = Letter.add_job("one")
    job.to.hset(to.encode(errors="surrogateescape"))
    asked = Dashboard().post("/jobs/delete", {"all": "1", "to": to.encode(errors="surrogateescape")})
    assert "data-yes>Delete 1 job<" in asked.shown
    sent = re.findall(r'<input type="hidden" name="([^"]*)"\s+value="([^"]*)">', asked.text)
    form = [(unescape(name), unescape(value).replace("\n", "\r\n")) for name, value in sent]  # as browsers do
    Dashboard().post("/jobs/delete", form)
    assert not job.exists(pk=job.pk.get())
    assert all(other.exists(pk=other.pk.get()) for other in others)


def test_selected_jobs_are_changed() -> None:
    jobs = [Letter.add_job(f"{number}") for number in range(3)]
    dashboard = Dashboard()
    form = {"ident": [job.ident for job in jobs[:2]]}
    asked = dashboard.post("/jobs/cancel", form)
    assert "data-yes>Cancel 2 jobs<" in asked.shown
    assert "Cancel 2 jobs?" in asked.shown
    assert dashboard.do("/jobs/cancel", form)["outcome"]["done"] == 2
    assert [job.status.hget() for job in jobs] == [STATUSES.CANCELED, STATUSES.CANCELED, STATUSES.WAITING]
    gone = f"{__name__}.Letter:99"
    assert dashboard.do("/jobs/delete", {"ident": gone})["outcome"]["reasons"] == {f"there is no job {gone}": 1}


def test_of_many_jobs_the_newest_are_sorted_and_it_is_said_how_many(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(jobs_page, "FIRST_SORTED", 3)
    monkeypatch.setattr(jobs_page, "MAX_SORTED", 4)
    for number in (5, 3, 4, 1, 2):
        Letter.add_job(f"{number}")
    dashboard = Dashboard()

    def shown(address: str) -> tuple[list[str], int]:
        found = dashboard.read(address)
        return [job["identifier"] for job in found["jobs"]], found["sorted_of"]

    assert shown("/jobs?sort=identifier") == (["1", "2", "4"], 3)
    assert shown("/jobs?sort=identifier&long=1") == (["1", "2", "3", "4"], 4)
    page = dashboard.get("/jobs?sort=identifier").shown
    assert "Only the newest 3 of 5 are sorted. It goes on by itself." in page
    [further] = re.findall(r'hx-get="([^"]*long=1)" hx-trigger="load"', page)
    assert "sort=identifier" in further
    assert "Only the newest 4 of 5 are sorted. Narrow the filter down" in dashboard.get(further).shown
    monkeypatch.setattr(jobs_page, "MAX_SORTED", 5)
    assert shown("/jobs?sort=-identifier&long=1") == (["5", "4", "3", "2", "1"], 0)


def test_the_column_of_moments_says_what_they_are_the_moments_of() -> None:
    later, soon, failed, running = (Letter.add_job(name) for name in ("later", "soon", "failed", "running"))
    fail(failed, ValueError("no"))
    running.claim(owner="web1:13")
    Letter.add_job("new")
    for job, hours in ((later, 3), (soon, 2)):
        JobFilter(f"pk={job.pk.get()}").delay_all(delayed_for=timedelta(hours=hours))
    dashboard = Dashboard()

    def heading(words: str) -> str:
        page = dashboard.get(f"/jobs?q={words}").shown
        [found] = re.findall(r'<th scope="col" class="c-when n"[^>]*><a href="[^"]*">(\w+)', page)
        return str(found)

    of_status = {name: heading(f"status%3D{name}") for name in ("delayed", "error", "running", "waiting")}
    assert of_status == {"delayed": "Due", "error": "Ended", "running": "Began", "waiting": "Added"}
    assert heading("") == "When"
    page = dashboard.get("/jobs").shown
    for event in ("due", "ended", "began", "added"):
        assert f'<td class="c-when n">{event} <time' in page
    assert '<td class="c-when n"><time' in dashboard.get("/jobs?q=status%3Derror").shown
    by_due = dashboard.read("/jobs?q=status%3Ddelayed&sort=when")["jobs"]
    assert [job["identifier"] for job in by_due] == ["soon", "later"]


def test_a_requeue_of_jobs_that_were_chosen_one_by_one_is_followed_as_well() -> None:
    jobs = [Letter.add_job(f"{number}") for number in range(3)]
    for job in jobs:
        fail(job, KeyError("no"))
    dashboard = Dashboard()
    form = {"ident": [jobs[0].ident, jobs[2].ident]}
    assert 'name="stop_if_failing"' in dashboard.post("/jobs/requeue", form).text
    begun = dashboard.post("/jobs/requeue", {**form, "stop_if_failing": "20%", "confirmed": "1"})
    page = begun.headers["location"]
    assert (begun.status, page.startswith("/requeues/")) == (303, True)
    found = dashboard.read(page)["requeue"]
    assert (found["done"], found["filter"]) == (2, f"{jobs[0].ident}, {jobs[2].ident}")
    assert jobs[1].status.hget() == STATUSES.ERROR
    dashboard.do(f"{page}/stop")


def test_all_that_match_are_changed_and_no_others() -> None:
    for number in range(60):
        fail(Letter.add_job(f"{number}", to="ann"), KeyError("no"))
    fail(Letter.add_job("other", to="bob"), KeyError("no"))
    dashboard = Dashboard()
    form = {"all": "1", "q": "status=error to=ann", "queue_to": "again", "priority_to": "5", "spread": "10m"}
    asked = dashboard.post("/jobs/requeue", form)
    assert " 60 jobs</button>" in asked.shown
    assert "There is no queue again yet" in asked.shown
    assert "; the last one is due at <time" in asked.shown
    counted = dashboard.post("/jobs/requeue", form, PROGRAM).json
    assert (counted["confirmed"], counted["danger"][:23]) == (False, "There is no queue again")
    done = dashboard.do("/jobs/requeue", form)
    assert (done["confirmed"], done["outcome"]["done"], done["outcome"]["until"][:2]) == (True, 60, "20")
    assert JobFilter(status="error").count().number == 1
    assert JobFilter(queue="again", priority=5).count().number == 60


def test_jobs_are_moved_delayed_and_promoted() -> None:
    job = Letter.add_job("one")
    dashboard = Dashboard()
    which = {"ident": job.ident}
    assert dashboard.do("/jobs/delay", {**which, "for": "30m"})["outcome"]["done"] == 1
    assert job.status.hget() == STATUSES.DELAYED
    assert dashboard.do("/jobs/promote", which)["outcome"]["done"] == 1
    assert dashboard.do("/jobs/move", {**which, "queue_to": "others"})["outcome"]["done"] == 1
    assert Queue.get_queue("others").waiting.lmembers() == [job.ident]
    for wrong in ({"for": "soon"}, {"until": "soon"}, {}):
        assert dashboard.post("/jobs/delay", {**which, **wrong}).status == 400


def test_programs_send_json() -> None:
    job = Letter.add_job("one")
    dashboard = Dashboard()
    headers = {**PROGRAM, "content-type": "application/json"}

    def send(**form: Any) -> Any:
        return dashboard.ask("POST", "/jobs/cancel", headers, json.dumps(form).encode()).json

    assert send(ident=[job.ident], all=False)["outcome"]["done"] == 1  # counted
    assert job.status.hget() == STATUSES.WAITING
    assert "Select some jobs first" in send(all=False, ident=None, confirmed=True)["error"]
    assert send(ident=job.ident, confirmed=True)["outcome"]["done"] == 1
    assert job.status.hget() == STATUSES.CANCELED
    assert "half a character" in send(ident="\ud800")["error"]
    assert dashboard.ask("POST", "/jobs/cancel", headers, b"[]").json["error"] == "The JSON must be an object"


def test_nothing_is_done_without_a_choice() -> None:
    Letter.add_job("one")
    assert "Select some jobs first" in Dashboard().post("/jobs/delete", {"confirmed": "1"}).shown
    assert JobFilter().count().number == 1


def test_a_job_is_shown_with_all_that_is_known_of_it() -> None:
    job = Letter.add_job("one", to="<ann>\u202e")
    fail(job, KeyError("<b>no such key</b>"))
    page = Dashboard().get(f"/jobs/{job.ident}").shown
    for text in ("<ann>\\u202e", "KeyError", "<b>no such key</b>", "web1:12", "It is not tried again"):
        assert text in page
    read = Dashboard().read(f"/jobs/{job.ident}")
    assert read["job"]["fields"]["to"] == "<ann>\u202e"
    assert [change["status"] for change in read["job"]["history"]][-1].lower() == "error"
    assert json.dumps(read["reasons"])
    assert Dashboard().get(f"/jobs/{__name__}.Letter:99").status == 404
    assert 'action="/jobs/requeue"' in page
    assert 'name="spread"' not in page  # one job cannot be
    assert 'name="spread"' in Dashboard().get("/jobs").text


@pytest.mark.parametrize(
    ("name", "text", "told"),
    [
        ("for", "-5m", "for must be a positive integer, or one with a fraction"),
        ("for", "soon", "for: 'soon' is not a time span: "),
        ("until", "soon", "until: 'soon' is not a time: "),
    ],
)
def test_a_wrong_time_is_refused_in_one_line(name: str, text: str, told: str) -> None:
    answer = Dashboard().post("/jobs/delay", {"all": "1", name: text}, PROGRAM)
    assert answer.status == 400
    assert answer.json["error"].startswith(told)


def test_a_waiting_job_is_edited_unless_it_changed_meanwhile() -> None:
    job = Letter.add_job("one", to="ann", account="secret-1")
    dashboard = Dashboard()
    page = dashboard.get(f"/jobs/{job.ident}").text
    assert 'name="field.to"' in page
    assert "field.account" not in page
    form = {"ident": job.ident, "field.to": "bob", "seen.to": "ann", "priority_to": "5", "for": "10m"}
    asked = dashboard.post("/jobs/edit", form)
    assert "to from ann to bob" in asked.shown
    assert dashboard.do("/jobs/edit", form)["error"] is None
    assert (job.to.hget(), job.priority.hget(), job.status.hget()) == ("bob", "5", STATUSES.DELAYED)
    assert re.search(r"delayed until <time[^>]*>[^<]* UTC</time>, for", dashboard.get(f"/jobs/{job.ident}").shown)
    assert dashboard.do("/jobs/edit", {"ident": job.ident, "now": "1"})["error"] is None
    assert job.status.hget() == STATUSES.WAITING
    for wrong in ({"now": "1", "for": "5m"}, {"field.nope": "x"}, {"field.account": "x"}, {"priority_to": "high"}, {}):
        assert dashboard.post("/jobs/edit", {"ident": job.ident, **wrong}).status in (400, 403)
    job.claim(owner="web1:12")
    refused = dashboard.post("/jobs/edit", form, PROGRAM)
    assert (refused.status, "web1:12 runs it" in refused.json["error"]) == (409, True)


def test_an_edit_is_refused_if_another_user_changed_the_field_since_it_was_shown() -> None:
    job = Letter.add_job("one", to="ann", more="1")
    dashboard = Dashboard()
    form = {"ident": job.ident, "field.to": "dave", "seen.to": "ann", "field.more": "1", "seen.more": "1"}
    dashboard.do("/jobs/edit", {"ident": job.ident, "field.to": "carol", "field.more": "2"})
    for confirmed in ({}, {"confirmed": "1"}):
        assert dashboard.post("/jobs/edit", {**form, **confirmed}).status == 409
    assert job.hmget("to", "more") == ["carol", "2"]
    assert dashboard.do("/jobs/edit", {**form, "seen.to": "carol"})["outcome"] == "changed: to from carol to dave"


def test_a_job_whose_worker_died_is_released() -> None:
    job = Letter.add_job("one")
    job.claim(owner="web1:12", lease=1000)
    dashboard = Dashboard()
    assert "seems to be alive" in dashboard.post("/jobs/release", {"ident": job.ident}).shown
    assert dashboard.do("/jobs/release", {"ident": job.ident, "force": "1"})["error"] is None
    assert job.status.hget() == STATUSES.WAITING


def test_a_page_without_time_for_all_jobs_comes_first_and_then_looks_on(monkeypatch: pytest.MonkeyPatch) -> None:
    for number in range(4):
        Letter.add_job(f"{number}", more="rare" if number < 2 else "common")
    monkeypatch.setattr(walk, "PER_STEP", 1)
    monkeypatch.setattr(jobs_page, "FEW_JOBS", 0)
    monkeypatch.setattr(jobs_page, "PAGE_TIMEOUT", 0.0)
    monkeypatch.setattr(jobs_page, "LONG_PAGE_TIMEOUT", 60.0)
    dashboard = Dashboard()
    cut = dashboard.read("/jobs?more=rare")
    assert (cut["jobs"], cut["is_complete"], cut["following"] is None) == ([], False, False)
    page = dashboard.get("/jobs?more=rare&oldest=1&limit=5")
    assert "There was no time yet to look at all jobs, only at 1 of 4" in page.shown
    assert (cut["looked"], cut["size"]) == (1, 4)
    assert "No job is found yet: the next page goes on." in dashboard.get("/jobs?more=rare").shown
    found = re.search(r'hx-get="([^"]*long=1)" hx-trigger="load" hx-target="#list"', page.text)
    assert found
    whole = dashboard.read(unescape(found[1]))
    assert ([job["identifier"] for job in whole["jobs"]], whole["is_complete"]) == (["0", "1"], True)
    assert "no time" not in dashboard.get(unescape(found[1])).shown.partition('id="list"')[2]


def test_the_jobs_of_a_queue_come_from_its_lists_if_there_is_no_time_for_all(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, queue in (("mine", "letters"), ("other", "others"), ("another", "others")):
        Letter.add_job(name, queue)
    monkeypatch.setattr(walk, "PER_STEP", 1)
    for name in ("PAGE_TIMEOUT", "COUNT_TIMEOUT", "FACETS_TIMEOUT", "FEW_JOBS"):
        monkeypatch.setattr(jobs_page, name, 0)
    dashboard = Dashboard()
    found = dashboard.read("/jobs?queue=letters")
    assert [job["identifier"] for job in found["jobs"]] == ["mine"]
    assert (found["count"], found["count_at_least"]) == (1, True)
    assert (found["is_listed"], found["is_complete"], found["following"]) == (True, False, None)
    page = dashboard.get("/jobs?queue=letters").shown
    assert "Only the jobs in the lists of the queue were looked at" in page
    assert 'hx-target="#list"' not in page
    facets = dashboard.read("/jobs/facets?queue=letters")
    assert (facets["count"], facets["facets"]["queue"]) == (
        1,
        {"counts": {"letters": 1}, "others": 0, "at_least": True},
    )
    assert (facets["is_listed"], facets["looked"]["queue"]) == (True, [1, 1])
    assert "At least: only the jobs in the lists" in dashboard.get("/jobs/facets?queue=letters").shown
    assert "1 of 3 jobs were looked at" in dashboard.get("/jobs/facets?q=identifier!=x").shown
    Letter.add_job("newest", "letters")
    monkeypatch.setattr(jobs_page, "MAX_LISTED", 1)
    for order, name, end in (("", "newest", "first"), ("&oldest=1", "mine", "last")):
        answer = dashboard.read(f"/jobs?queue=letters{order}")
        assert ([job["identifier"] for job in answer["jobs"]], answer["left_out"]) == ([name], 1)
        assert f"without 1 that were added to a list {end}" in dashboard.get(f"/jobs?queue=letters{order}").shown


class Parcel(Job):
    namespace = "web-jobs"
    queue_name = "parcels"
    contents = fields.ListField()
    address = fields.HashField()
    api_keys = fields.SetField()


def test_fields_that_are_not_in_the_hash_are_shown_without_secrets() -> None:
    hostile = "<script>alert(1)</script>\u202e"
    job = Parcel.add_job("parcel", contents=[hostile, '{"token": "s3cret"}'], api_keys={"s3cret"})
    job.connection.hset(job.address.key, mapping={"city": "Bern", "password": "s3cret"})
    answer = Dashboard().get(f"/jobs/{job.ident}")
    assert "s3cret" not in answer.text
    assert "\u202e" not in answer.text
    assert "<script>alert" not in answer.text
    for shown in ("&lt;script&gt;alert(1)", "Bern", "list of 2 values", "set of 1 value"):
        assert shown in answer.text
    assert Dashboard().read(f"/jobs/{job.ident}")["job"]["beside"]["api_keys"]["values"] == ["(masked)"]


def test_a_job_with_more_than_a_page_holds_is_shown_in_part_and_says_so(redis_client: redis.Redis) -> None:
    job = Letter.add_job("many")
    key = job.key.removesuffix("hash")
    redis_client.rpush(f"{key}_log", *(f"2026-01-01 00:00:00 line {number}" for number in range(1_002)))
    redis_client.rpush(f"{key}_history", *(f"2026-01-01 00:00:00 {STATUSES.RUNNING}" for _ in range(1_500)))
    redis_client.hset(f"{key}hash", mapping={f"field{number:04}": "a" for number in range(2_000)})
    dashboard = Dashboard()
    page = dashboard.get(f"/jobs/{job.ident}").shown
    assert "line 1001" in page
    assert "line 1 " not in page
    assert "The last 1,000 of 1,002 are shown. All: <code>Job.read_log()</code>" in page
    assert "The last 1,000 of 1,501 are shown. All: <code>Job.read_history()</code>" in page
    shown = dashboard.read(f"/jobs/{job.ident}")
    number = len(shown["job"]["fields"])
    assert f"The first {number} of {shown['fields_stored']:,} fields are shown." in page
    assert (number < 220, page.count("<textarea") < 450) == (True, True)
    assert shown["job"]["fields"]["identifier"] == "many"
    assert (len(shown["job"]["log"]), shown["job"]["lines_stored"]) == (1_000, 1_002)
    assert (len(shown["job"]["history"]), shown["job"]["changes_stored"]) == (1_000, 1_501)
    status, out, _ = limpyd_jobs("jobs", "show", job.ident)
    assert status == 0
    assert ("  … 501 earlier changes of the status are not shown\n" in out, "field1999" in out) == (True, True)
    assert "  … 2 earlier lines of the log are not shown\n" in out
