"""Jobs, errors, queues, schedules and workers in Django's admin."""

from __future__ import annotations

import json
import re
from html import unescape
from typing import Any
from urllib.parse import parse_qsl

import pytest
import redis
from bookshop.jobs import Sell, Stock
from bookshop.models import Book
from django.contrib import admin
from django.test import override_settings
from django.urls import path, reverse
from visiting import make_user, visit_as

from limpyd_jobs import Schedule, Worker, WorkerPresence
from limpyd_jobs.query import pause_queue, queue_states
from limpyd_jobs.records import presences

KINDS = ("jobs", "errors", "queues", "schedules", "workers")

DASHBOARD = "/staff/jobs"


def address_of(kind: str) -> str:
    return str(reverse(f"admin:limpyd_jobs_{kind}_changelist"))


class List:
    """A list, as a user sees it."""

    def __init__(self, kind: str, browser: Any = None, **query: str) -> None:
        self.browser = browser or visit_as(make_user("ann", "view_jobs"))
        self.kind = kind
        self.source = self.browser.get(address_of(kind), query).content.decode()
        self.text = unescape(self.source)

    @property
    def rows(self) -> list[list[str]]:
        rows = re.findall(r"<tr><th scope=\"row\">(.*?)</tr>", self.text)
        return [[re.sub("<[^>]*>", "", cell) for cell in re.split("</t[hd]><td>", row)] for row in rows]

    def link(self, label: str) -> str:
        found = re.search(rf'<a href="([^"]*)">{re.escape(label)}</a>', self.text)
        assert found, f"no {label} in {self.text}"
        return found[1]

    def narrowed(self, label: str) -> list[list[str]]:
        """Follow the link of a filter."""
        query = parse_qsl(self.link(label).removeprefix("?"))
        return List(self.kind, self.browser, **dict(query)).rows


@pytest.fixture
def failed() -> Any:
    """Three jobs: one failed, because of a book that there is not."""
    book = Book.objects.create(title="Sanditon")
    job = Sell.add_job("gone", book=book)
    book.delete()
    Worker("sales", max_loops=1).run()
    for title in ("Emma", "Persuasion"):
        Stock.add_job(f"stock:{title}", title=title)
    return job


class TestTheIndex:
    def test_has_the_lists_for_whom_the_dashboard_lets_in(self) -> None:
        browser = visit_as(make_user("ann", "view_jobs"))
        page = browser.get("/admin/").content.decode()
        assert [kind for kind in KINDS if f'href="{address_of(kind)}"' in page] == [*KINDS]
        assert "/admin/limpyd_jobs/jobs/add/" not in page

    def test_does_not_have_them_for_others(self) -> None:
        browser = visit_as(make_user("carl"))
        assert "limpyd_jobs" not in browser.get("/admin/").content.decode()
        assert [browser.get(address_of(kind)).status_code for kind in KINDS] == [403] * 5
        assert visit_as(None).get(address_of("jobs")).status_code == 302


class TestJobs:
    def test_are_listed_and_lead_to_their_pages_in_the_dashboard(self, failed: Any) -> None:
        shown = List("jobs")
        assert [row[1:4] for row in shown.rows] == [
            ["stock:Persuasion", "waiting", "stock"],
            ["stock:Emma", "waiting", "stock"],
            ["gone", "error", "sales"],
        ]
        page = shown.browser.get(shown.link(failed.ident))
        assert (page.status_code, "gone" in page.content.decode()) == (200, True)

    def test_are_narrowed_to_a_status_a_queue_or_a_filter(self, failed: Any) -> None:
        shown = List("jobs")
        assert [row[1] for row in shown.narrowed("error (1)")] == ["gone"]
        assert [row[1] for row in shown.narrowed("stock (2)")] == ["stock:Persuasion", "stock:Emma"]
        both = List("jobs", shown.browser, q="queue=stock status=error")
        assert (both.rows, "There are none." in both.text) == ([], True)
        assert [row[1] for row in both.narrowed("All")] == [
            "stock:Persuasion",
            "stock:Emma",
        ]  # the first filter is that of the status

    def test_have_pages(self, failed: Any) -> None:
        shown = List("jobs", limit="2")
        assert len(shown.rows) == 2
        assert [row[1] for row in shown.narrowed("Next page")] == ["gone"]

    def test_of_a_filter_that_is_wrong_say_so(self) -> None:
        assert "no-such-status" in List("jobs", q="status=no-such-status").text

    def test_with_hostile_texts_are_shown_as_texts(self) -> None:
        Stock.add_job("<script>alert(1)</script>\u202e", title="Emma")
        shown = List("jobs")
        assert "<script>alert" not in shown.source
        assert "\u202e" not in shown.text


def test_errors_are_listed_by_cause(failed: Any) -> None:
    shown = List("errors")
    assert [(row[0], row[3], row[4]) for row in shown.rows] == [("InstanceGone", "1", "sales")]
    assert shown.browser.get(shown.link("InstanceGone")).status_code == 200
    assert shown.narrowed("stock") == []
    assert len(shown.narrowed("sales")) == 1


def test_queues_are_listed_by_state(failed: Any) -> None:
    pause_queue(queue_states()[0].model, "stock")
    shown = List("queues")
    assert [row[:4] for row in shown.rows] == [["sales", "0", "open", "0"], ["stock", "0", "paused", "2"]]
    assert [row[0] for row in shown.narrowed("paused")] == ["stock"]


def test_schedules_are_listed_by_name_and_state() -> None:
    Schedule.add("restock", Stock, interval=3600, title="Emma")
    shown = List("schedules")
    assert [row[:2] for row in shown.rows] == [["restock", "active"]]
    assert shown.browser.get(shown.link("restock")).status_code == 200
    assert (List("schedules", shown.browser, q="re").rows, List("schedules", shown.browser, q="x").rows) == (
        shown.rows,
        [],
    )
    assert shown.narrowed("paused") == []


def test_workers_are_listed_by_what_they_do(redis_client: redis.Redis) -> None:
    for name, status in (("web1:17:aaaaaaaaaaaa", "busy"), ("web1:18:bbbbbbbbbbbb", "idle")):
        details = {"queues": ["stock"], "queue_model": "jobs:queue", "lease": 60, "status": status}
        fields = {"kind": "worker", "name": name, "host": "web1", "pid": "17", "details": json.dumps(details)}
        presences.keep(WorkerPresence, name, fields, 60, redis_client, takes_orders="1")
    shown = List("workers")
    assert [row[1:3] for row in shown.rows] == [["busy", "stock"], ["idle", "stock"]]
    assert shown.browser.get(shown.link("web1:17:aaaaaaaaaaaa")).status_code == 200
    assert [row[0] for row in shown.narrowed("idle")] == ["web1:18:bbbbbbbbbbbb"]


def test_without_the_dashboard_in_urls_they_lead_nowhere(failed: Any) -> None:
    browser = visit_as(make_user("ann", "view_jobs"))
    with override_settings(ROOT_URLCONF=(path("admin/", admin.site.urls),)):
        shown = List("jobs", browser)
    assert len(shown.rows) == 3
    assert "/staff/jobs" not in shown.text
