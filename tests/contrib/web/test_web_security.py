"""The dashboard lets in whom it should, and nobody else; and what it sends runs nothing of others."""

from __future__ import annotations

import re
from base64 import b64encode
from time import monotonic
from typing import Any

import pytest
from asking import BROWSER, PROGRAM, Dashboard
from cases import each

from limpyd_jobs import ConfigurationException, Job
from limpyd_jobs.contrib.web import User, access, application
from limpyd_jobs.contrib.web.access import MAX_FAILURES
from limpyd_jobs.contrib.web.app import lane_of
from limpyd_jobs.contrib.web.guard import MAX_BODY, MAX_QUERY
from limpyd_jobs.contrib.web.pages import PAGES
from limpyd_jobs.contrib.web.pages.jobs import MAX_FILTER
from limpyd_jobs.contrib.web.users import Role
from limpyd_jobs.models import BaseJobsModel
from limpyd_jobs.query import queue_states
from limpyd_jobs.records.audit import last_entries

pytestmark = pytest.mark.usefixtures("redis_client")

TOKEN, VIEW_TOKEN, PASSWORD = "a-token-of-admins", "a-token-of-viewers", "the-password-of-ann"


class Mail(Job):
    namespace = "web-security"
    queue_name = "mails"

    def run(self, queue: Any) -> None: ...


def basic(name: str, secret: str) -> dict[str, str]:
    return {**BROWSER, "authorization": f"Basic {b64encode(f'{name}:{secret}'.encode()).decode()}"}


def bearer(secret: str) -> dict[str, str]:
    return {**BROWSER, "authorization": f"Bearer {secret}"}


@each(
    ("settings", "told"),
    [
        ({"tokn": "x" * 20}, "'tokn' is not a setting of the dashboard: is token meant?"),
        ({"token": "short"}, "token must have 16 characters or more"),
        ({"token": "with spaces in between"}, "no spaces"),
        ({"users": {"ann": "password"}}, "ann must have a password and a role"),
        ({"users": {"ann": (PASSWORD, "root")}}, "ann must have a password and a role: view, act, admin"),
        ({"hosts": ["https://jobs.example.com"]}, "hosts must be host names"),
        ({"hosts": ["jobs.example.com"]}, "others can reach 'jobs.example.com', so give a token"),
        ({"threads": 0}, "threads must be a number from 1 to 100"),
        ({"database": "localhost"}, "database must be a JobsDatabase"),
        ({"read_only": "no"}, "read_only must be True or False"),
        ({"authenticate": "ann"}, "authenticate must be a function"),
        ({"masked": "account"}, "masked must be a list of texts"),
        ({"users": {}}, "users must have one user or more"),
        ({"token": ""}, "token must have 16 characters or more"),
        ({"title": ""}, "title must be a text of 1 to 100 characters"),
    ],
)
def test_a_wrong_setting_is_refused_in_one_line(settings: dict[str, Any], told: str) -> None:
    with pytest.raises(ConfigurationException) as refused:
        application(**settings)
    assert told in str(refused.value)
    assert "\n" not in str(refused.value)
    assert PASSWORD not in str(refused.value)


def test_without_a_secret_only_this_machine_is_answered() -> None:
    assert Dashboard().get("/queues").status == 200
    assert Dashboard(client="::1").get("/queues").status == 200
    assert Dashboard(client="192.0.2.1").get("/queues").status == 403
    assert Dashboard(client="").get("/queues").status == 403
    for header in ("x-forwarded-for", "x-forwarded-proto", "via", "cf-connecting-ip"):
        assert Dashboard().get("/queues", {header: "192.0.2.1"}).status == 403  # a proxy asks


def test_tokens_and_passwords_name_the_user() -> None:
    dashboard = Dashboard(
        client="192.0.2.1", token=TOKEN, view_token=VIEW_TOKEN, users={"ann": (PASSWORD, "act")}, hosts=["localhost"]
    )
    refused = dashboard.get("/queues")
    assert (refused.status, refused.headers["www-authenticate"]) == (
        401,
        'Basic realm="limpyd-jobs", charset="UTF-8"',
    )
    for headers in (bearer(TOKEN), basic("whoever", TOKEN), basic("ann", PASSWORD), bearer(VIEW_TOKEN)):
        assert dashboard.get("/queues", headers).status == 200
    for headers in (bearer("wrong"), basic("bob", PASSWORD), basic("ann", "wrong"), {"authorization": "Basic ="}):
        assert dashboard.get("/queues", headers).status == 401


def test_metrics_need_the_role_view() -> None:
    dashboard = Dashboard(client="192.0.2.1", view_token=VIEW_TOKEN, hosts=["localhost"])
    assert dashboard.get("/metrics").status == 401
    for headers in (bearer(VIEW_TOKEN), basic("prometheus", VIEW_TOKEN)):
        answer = dashboard.get("/metrics", headers)
        assert (answer.status, answer.headers["content-type"]) == (200, "text/plain; version=0.0.4; charset=utf-8")
        assert "# TYPE limpyd_jobs_queue_jobs gauge\n" in answer.text


def test_guessing_is_throttled_by_address_but_whoever_was_let_in_stays() -> None:
    dashboard = Dashboard(client="192.0.2.1", token=TOKEN, view_token=VIEW_TOKEN)
    assert dashboard.get("/queues", bearer(VIEW_TOKEN)).status == 200
    statuses = [dashboard.get("/queues", bearer("wrong")).status for _ in range(MAX_FAILURES)]
    assert set(statuses) == {401}
    throttled = dashboard.get("/queues", bearer("wrong"))
    assert throttled.status == 429
    assert 0 < int(throttled.headers["retry-after"]) <= 60
    assert dashboard.get("/queues", bearer(TOKEN)).status == 429  # it may be a guess
    assert dashboard.get("/queues", bearer(VIEW_TOKEN)).status == 200  # behind a proxy, it may be another client
    assert Dashboard(dashboard.app, client="192.0.2.2").get("/queues", bearer("wrong")).status == 401


def test_wrong_secrets_are_logged_in_one_line_with_the_address_and_not_one_after_the_other(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(access, "LOGGED_EVERY", 3600.0)
    dashboard = Dashboard(client="192.0.2.1", token=TOKEN, users={"ann": (PASSWORD, "act")})
    for name in ("not\na name", "ann"):
        assert dashboard.get("/queues", basic(name, "wrong")).status == 401
    assert caplog.messages == ["Wrong token or password, from 192.0.2.1"]
    monkeypatch.setattr("limpyd_jobs.texts.monotonic", lambda: monotonic() + 7200)
    assert Dashboard(dashboard.app, client="x\ny").get("/queues", basic("ann", "wrong")).status == 401
    told = "Wrong token or password of ann, from x\\ny, and 1 more since the last such line"
    assert caplog.messages[1:] == [told]


def test_a_redirect_stays_on_the_host_whatever_name_is_asked_for() -> None:
    dashboard = Dashboard(token=TOKEN, hosts=["*"], host="evil.example")
    for address, place in (
        ("/queues/?q=a", "/queues?q=a"),
        ("//evil.example//queues/", None),
        ("//queues/", "/queues"),
        ("//evil.example/", None),
        ("//evil.example/%2e%2e/queues/", None),
    ):
        answer = dashboard.get(address, bearer(TOKEN))
        assert answer.headers.get("location") == place
        assert answer.status == (307 if place else 404)
    posted = dashboard.post("/queues/pause", {"queue": "a"}, bearer(TOKEN))
    assert posted.status == 404


def test_a_function_of_the_application_names_the_user() -> None:
    async def of_coroutine(scope: Any) -> User | None:
        return of_function(scope)

    def of_function(scope: Any) -> User | None:
        name = dict(scope["headers"]).get(b"x-user", b"").decode()
        return User(name, "act") if name else None

    for hook in (of_function, of_coroutine):
        dashboard = Dashboard(client="192.0.2.1", authenticate=hook)
        assert dashboard.get("/queues").status == 403
        assert dashboard.get("/queues", {"x-user": "ann"}).status == 200


def test_each_act_needs_its_role_and_the_user_is_in_the_audit() -> None:
    Mail.add_job("one")
    users = {name: (PASSWORD, name) for name in ("view", "act", "admin")}
    dashboard = Dashboard(users=users)
    for name, path, status in (
        ("view", "/queues/pause", 403),
        ("act", "/queues/clear", 403),
        ("act", "/queues/pause", 303),
        ("admin", "/queues/clear", 303),
    ):
        answer = dashboard.post(path, {"queue": "mails", "confirmed": "1"}, basic(name, PASSWORD))
        assert answer.status == status
    assert [entry["who"].partition(" by ")[0] for entry in last_entries(BaseJobsModel.get_connection(), 9)] == [
        "admin",
        "act",
    ]


def test_no_act_of_any_page_is_done_without_its_role() -> None:
    users = {role.word: (PASSWORD, role.word) for role in Role}
    dashboard, read_only = Dashboard(users=users), Dashboard(read_only=True)
    acts = [act for page in PAGES for act in page.acts if act.role > Role.VIEW]
    assert len(acts) > 20
    for act in acts:
        lesser = Role(act.role - 1).word
        assert dashboard.post(act.path, {"confirmed": "1"}, basic(lesser, PASSWORD)).status == 403
        assert read_only.post(act.path, {"confirmed": "1"}).status == 403


def test_a_read_only_dashboard_changes_nothing() -> None:
    Mail.add_job("one")
    dashboard = Dashboard(read_only=True)
    assert dashboard.post("/queues/pause", {"queue": "mails"}).status == 403
    assert "<form" not in dashboard.get("/queues").text
    assert not queue_states("mails")[0].is_paused


@pytest.mark.parametrize(
    "headers",
    [
        {"sec-fetch-site": "cross-site"},
        {"sec-fetch-site": "same-site"},
        {"origin": "https://evil.example"},
        {"origin": "null"},
        {"origin": "http://["},
        {"origin": "http://localhost:8780@evil.example"},
        {"origin": "http://localhost:9999"},
        {"origin": "ftp://localhost:8780"},
    ],
)
def test_what_another_site_sends_is_refused(headers: dict[str, str]) -> None:
    Mail.add_job("one")
    assert Dashboard().post("/queues/pause", {"queue": "mails"}, headers).status == 403
    assert not queue_states("mails")[0].is_paused


def test_another_site_may_link_to_a_page_but_load_nothing() -> None:
    foreign = {"sec-fetch-site": "cross-site", "sec-fetch-mode": "navigate", "sec-fetch-dest": "document"}
    assert Dashboard().get("/queues", foreign).status == 200
    assert Dashboard().get("/queues", {**foreign, "sec-fetch-dest": "iframe"}).status == 403
    assert Dashboard().get("/queues", {"sec-fetch-site": "cross-site", "sec-fetch-mode": "cors"}).status == 403


@each(
    "host",
    ["evil.example", "localhost.evil.example", "127.0.0.1.evil.example:8780", "[::2]", "127.0.0.1:x@evil.example", ""],
)
def test_a_name_that_is_not_listed_is_refused(host: str) -> None:
    assert Dashboard(host=host).get("/queues").status == 421


def test_names_may_have_a_star_in_front() -> None:
    dashboard = Dashboard(token=TOKEN, hosts=["*.example.com"])
    for host, status in (("a.example.com", 200), ("a.example.com:80", 200), ("example.com", 421), ("example.org", 421)):
        assert Dashboard(dashboard.app, host=host).get("/queues", bearer(TOKEN)).status == status


def test_health_answers_whoever_asks_and_tells_nothing_more() -> None:
    dashboard = Dashboard(token=TOKEN, client="192.0.2.1", host="10.0.0.1:80")
    answer = dashboard.get("/health")
    assert (answer.status, answer.text) == (200, "ok\n")
    assert dashboard.post("/health").status == 421


@pytest.mark.parametrize("address", ["/queues", "/no/such/page", "/health", "/static/no.js"])
def test_each_response_lets_a_browser_run_nothing_but_our_files(address: str) -> None:
    answer = Dashboard().get(address)
    policy = answer.headers["content-security-policy"]
    assert "default-src 'none'" in policy
    assert "unsafe" not in policy
    assert "frame-ancestors 'none'" in policy
    assert "require-trusted-types-for 'script'" in policy
    assert answer.headers["x-content-type-options"] == "nosniff"
    assert answer.headers["x-frame-options"] == "DENY"
    assert answer.headers["referrer-policy"] == "same-origin"
    assert answer.headers["cache-control"] == "no-store"
    nonces = {*re.findall(r'<script [^>]*nonce="([^"]+)"', answer.text)}
    assert nonces <= {*re.findall(r"'nonce-([^']+)'", policy)}
    assert " style=" not in answer.text
    assert not re.search(r"<script(?![^>]*\bsrc=)|\son\w+=", answer.text)


def test_sizes_are_bounded() -> None:
    dashboard = Dashboard()
    assert dashboard.post("/queues/pause", {"queue": "x" * MAX_BODY}).status == 413
    assert dashboard.ask("POST", "/queues/pause", {"content-length": "no"}).status == 413
    assert dashboard.get("/queues?x=" + "x" * MAX_QUERY).status == 414
    assert dashboard.post("/queues/pause", [("queue", "a")] * 3_000).status == 413
    assert dashboard.ask("PUT", "/queues", {}).status == 405
    assert dashboard.ask("POST", "/queues/pause", {"content-type": "text/plain"}, b"{}").status == 415


@pytest.mark.parametrize("path", ["/jobs", "/jobs/facets", "/errors", "/errors/cause?fingerprint=a&"])
def test_a_filter_has_a_largest_length(path: str) -> None:
    for query in ("q=" + "a" * MAX_FILTER + "=1", f"{'b' * MAX_FILTER}=1"):
        answer = Dashboard().get(f"{path}{'' if path.endswith('&') else '?'}{query}", PROGRAM)
        assert (answer.status, answer.json["error"]) == (414, "The filter is too long: at most 8,000 characters")
    assert Dashboard().post("/jobs/requeue", {"all": "1", "q": "a" * MAX_FILTER + "=1"}).status == 414


@pytest.mark.proof
def test_bytes_that_are_not_utf_8_are_no_error_of_the_server() -> None:
    Mail.add_job("one")
    for path in ("/jobs", "/jobs/facets", "/errors"):
        for query in ("owner=%FF", "q=owner%3D%FFa", "added__gt=%FF", "%FF=a", "error=%FF", "after=%FF", "limit=%FF"):
            assert Dashboard().get(f"{path}?{query}").status in (200, 400), query
    assert Dashboard().get("/jobs?owner=%FF").status == 400
    assert Dashboard().post("/jobs/requeue", {"all": "1", "owner": b"\xff"}).status == 400
    spread = {"all": "1", "queue": b"\xff", "spread": "1h", "confirmed": "1"}
    assert Dashboard().post("/jobs/requeue", spread, PROGRAM).json["error"] is None


def test_heavy_pages_leave_threads_for_those_that_are_shown_at_once() -> None:
    lanes = {page.lane for page in PAGES} - {""}
    assert len(lanes) * lane_of("any", 8).total_tokens < 8
    assert {page.path for page in PAGES if not page.lane} == {"/", "/queues", "/jobs/words", "/check", "/tasks/{pk}"}


def test_what_is_stored_is_escaped_and_what_is_not_visible_is_shown() -> None:
    Mail.add_job("one", queue_name='<img src=x onerror=alert(1)>"\u202e\u200b')
    page = Dashboard().get("/queues").text
    assert "<img" not in page
    assert "&lt;img src=x onerror=alert(1)&gt;&#34;\\u202e\\u200b" in page


def test_a_refusal_is_one_line_for_people_and_programs() -> None:
    answer = Dashboard().post("/queues/pause", {"queue": "<b>none</b>"}, PROGRAM)
    assert (answer.status, answer.json) == (404, {"error": "There is no queue <b>none</b>", "status": 404})
    assert "There is no queue &lt;b&gt;none" in Dashboard().post("/queues/pause", {"queue": "<b>none</b>"}).text
    assert Dashboard().get("/queues/none").status == 404


def test_a_form_of_a_page_without_tls_is_refused_where_there_is_tls() -> None:
    def status(scheme: str, origin: str) -> int:
        dashboard = Dashboard()

        async def app(scope: Any, *ways: Any) -> None:
            await dashboard.app({**scope, "scheme": scheme}, *ways)

        asked = Dashboard(app)
        return asked.post("/queues/pause", {"queue": "q"}, {"origin": f"{origin}://localhost:8780"}).status

    assert status("https", "http") == 403
    assert {status("https", "https"), status("http", "https"), status("http", "http")} == {
        404
    }  # there is no such queue


def test_a_proxy_that_adds_no_header_but_asks_as_proxies_do_is_not_this_machine() -> None:
    dashboard = Dashboard()

    async def app(scope: Any, *ways: Any) -> None:
        await dashboard.app({**scope, "http_version": "1.0"}, *ways)

    assert Dashboard(app).get("/queues").status == 403
    assert Dashboard(app).get("/health").status == 200


def test_a_request_whose_sender_went_away_is_no_failure_of_the_dashboard(caplog: pytest.LogCaptureFixture) -> None:
    app = application()

    async def goes_away() -> Any:
        return {"type": "http.disconnect"}

    async def asked(scope: Any, _: Any, send: Any) -> None:
        await app(scope, goes_away, send)

    assert Dashboard(asked).post("/queues/pause", {"queue": "mails"}).status == 400
    assert "failed" not in caplog.text
