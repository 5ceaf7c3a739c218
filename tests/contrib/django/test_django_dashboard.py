"""The dashboard below an address of a project of Django."""

from __future__ import annotations

import json
import os
import re
from html import unescape
from typing import Any

import pytest
from bookshop.jobs import Stock
from django.core.management import call_command
from django.http import HttpResponse
from django.test import override_settings
from django.urls import reverse
from visiting import make_user, visit_as, visit_async_as

from limpyd_jobs.contrib.django.dashboard.bridge import Bridge
from limpyd_jobs.contrib.django.settings import problems
from limpyd_jobs.query import audit_entries, paused_queues

ROOT = "/staff/jobs"

ROLES = [("view_jobs", "view"), ("act_jobs", "act"), ("admin_jobs", "admin")]


def addresses_of(page: Any) -> set[str]:
    found = re.findall(r'(?:href|src|hx-get)="([^"#][^"]*)"', page.content.decode())
    return {unescape(each) for each in found}


class TestABrowser:
    def test_finds_all_below_the_address_of_the_project(self) -> None:
        Stock.add_job("one", title="Emma")
        browser = visit_as(make_user("ann", "view_jobs"))
        page = browser.get(reverse("limpyd_jobs:page", args=["queues"]))
        assert page.status_code == 200
        found = addresses_of(page)
        assert {each for each in found if not each.startswith(f"{ROOT}/")} == set()
        for address in found:
            answer = browser.get(address)
            assert answer.status_code == 200, address
        assert browser.get(f"{ROOT}/none").status_code == 404

    def test_asks_for_news_because_a_stream_would_hold_a_thread(self) -> None:
        page = visit_as(make_user("ann", "view_jobs")).get(reverse("limpyd_jobs:dashboard"))
        assert f'hx-get="{ROOT}/live" hx-trigger="every 5s"' in page.content.decode()

    def test_sends_forms_without_the_token_of_django(self) -> None:
        Stock.add_job("one", title="Emma")
        browser = visit_as(make_user("ann", "act_jobs"), HTTP_ORIGIN="http://shop.example.com")
        done = browser.generic("POST", f"{ROOT}/queues/pause", b"queue=stock", "application/x-www-form-urlencoded")
        assert (done.status_code, done["Location"].partition("?")[0]) == (303, f"{ROOT}/queues")
        assert [name for _, name in paused_queues()] == ["stock"]
        entry = next(iter(audit_entries()))
        assert entry.who.startswith("ann by ")


class TestAForm:
    @pytest.mark.parametrize(
        "headers",
        [
            {"HTTP_SEC_FETCH_SITE": "cross-site"},
            {"HTTP_SEC_FETCH_SITE": "same-site"},
            {"HTTP_ORIGIN": "http://evil.example.com"},
            {"HTTP_ORIGIN": "null"},
            {"HTTP_SEC_FETCH_SITE": None},
        ],
    )
    def test_of_another_site_or_of_no_site_is_refused(self, headers: dict[str, Any]) -> None:
        Stock.add_job("one", title="Emma")
        browser = visit_as(make_user("ann", "act_jobs"))
        for name, value in headers.items():
            browser.defaults.pop(name) if value is None else browser.defaults.update({name: value})
        done = browser.generic("POST", f"{ROOT}/queues/pause", b"queue=stock", "application/x-www-form-urlencoded")
        assert done.status_code == 403
        assert list(paused_queues()) == []


class TestWhoMaySeeIt:
    @pytest.mark.parametrize(("permission", "role"), ROLES)
    def test_a_permission_gives_a_role(self, permission: str, role: str) -> None:
        page = visit_as(make_user("ann", permission)).get(f"{ROOT}/queues")
        assert f">ann, {role}<" in page.content.decode()

    def test_a_superuser_may_do_all(self) -> None:
        page = visit_as(make_user("root", is_superuser=True)).get(f"{ROOT}/queues")
        assert ">root, admin<" in page.content.decode()

    def test_a_user_cannot_do_what_needs_another_permission(self) -> None:
        Stock.add_job("one", title="Emma")
        browser = visit_as(make_user("ann", "view_jobs"))
        done = browser.generic("POST", f"{ROOT}/queues/pause", b"queue=stock", "application/x-www-form-urlencoded")
        assert done.status_code == 403
        assert list(paused_queues()) == []

    @pytest.mark.parametrize("attributes", [{"is_staff": False}, {"is_staff": False, "is_superuser": True}])
    def test_who_is_not_of_the_staff_is_sent_to_the_login(self, attributes: dict[str, bool]) -> None:
        page = visit_as(make_user("bob", "view_jobs", **attributes)).get(f"{ROOT}/jobs?q=status%3Derror")
        assert page.status_code == 302
        assert page["Location"] == "/admin/login/?next=/staff/jobs/jobs%3Fq%3Dstatus%253Derror"

    def test_who_is_not_signed_in_is_sent_to_the_login(self) -> None:
        assert visit_as(None).get(f"{ROOT}/")["Location"] == "/admin/login/?next=/staff/jobs/"

    def test_news_for_an_open_page_are_refused_instead(self) -> None:
        assert visit_as(None).get(f"{ROOT}/live", HTTP_HX_REQUEST="true").status_code == 403
        assert visit_as(None, HTTP_ACCEPT="application/json").get(f"{ROOT}/queues").status_code == 403

    def test_the_staff_needs_a_permission(self) -> None:
        assert visit_as(make_user("carl")).get(f"{ROOT}/").status_code == 403

    def test_a_name_that_django_does_not_know_is_refused(self) -> None:
        browser = visit_as(make_user("ann", "view_jobs"), HTTP_HOST="evil.example.com")
        assert browser.get(f"{ROOT}/").status_code == 400


class TestTheServer:
    def test_may_speak_asgi(self) -> None:
        Stock.add_job("one", title="Emma")
        ask = visit_async_as(make_user("ann", "act_jobs"))
        page = ask("get", f"{ROOT}/queues")
        assert ">ann, act<" in page.content.decode()
        form = {"data": "queue=stock", "content_type": "application/x-www-form-urlencoded"}
        done = ask("post", f"{ROOT}/queues/pause", **form)
        assert (done.status_code, done["Location"].partition("?")[0]) == (303, f"{ROOT}/queues")
        assert [name for _, name in paused_queues()] == ["stock"]

    def test_may_fork_after_the_first_request(self) -> None:
        async def app(scope: Any, receive: Any, send: Any) -> None:
            await send({"type": "http.response.start", "status": 200, "headers": []})
            await send({"type": "http.response.body", "body": (await receive())["body"]})

        bridge = Bridge(lambda: app)
        assert bridge.ask({}, b"here").content == b"here"
        pid = os.fork()
        if not pid:
            os._exit(0 if bridge.ask({}, b"there").content == b"there" else 1)
        assert os.waitpid(pid, 0)[1] == 0


class TestTheSettings:
    def test_are_checked(self) -> None:
        with override_settings(LIMPYD_JOBS={"DASHBOARD": {"token": "x"}}):
            assert [problem.number for problem in problems()] == [5]
        with override_settings(LIMPYD_JOBS={"DASHBOARD": ["title"]}):
            assert [problem.number for problem in problems()] == [5]
        with override_settings(LIMPYD_JOBS={"DASHBOARD": {"title": "Shop", "read_only": True}}):
            assert list(problems()) == []


def test_the_models_without_tables_are_in_no_dump(capsys: pytest.CaptureFixture[str]) -> None:
    call_command("dumpdata", "--all", "limpyd_jobs")
    assert json.loads(capsys.readouterr().out) == []


def test_a_project_of_ours_answers_as_django_does() -> None:
    assert isinstance(visit_as(None).get("/staff/jobs", follow=False), HttpResponse)
