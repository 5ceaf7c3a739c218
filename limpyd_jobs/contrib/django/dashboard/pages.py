"""The pages in Django's admin. What they show is changed in the dashboard, to which they lead."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from django.contrib import admin
from django.core.exceptions import PermissionDenied
from django.http import HttpRequest
from django.template.response import TemplateResponse
from django.urls import path

from limpyd_jobs.contrib.django import models
from limpyd_jobs.contrib.django.dashboard.lists import (
    Column,
    Filter,
    NotShown,
    cells,
    encoded,
    narrow,
    narrow_words,
    page_of,
    read,
    root,
    when,
)
from limpyd_jobs.contrib.django.dashboard.site import user_of
from limpyd_jobs.contrib.web import User
from limpyd_jobs.contrib.web.rendering import address
from limpyd_jobs.views import shown_span

Query = Mapping[str, str]

MAX_ROWS = 100


class ListPage(admin.ModelAdmin):  # type: ignore[misc]
    """A list of what a page of the dashboard shows. Nothing can be added, changed or deleted here.

    Attributes
    ----------
    address: str
        Of the page of the dashboard.
    rows: str
        The name of its list.
    columns: sequence of Column
    searched: str
        What can be typed; empty if nothing can.
    """

    address = rows = searched = ""
    columns: Sequence[Column] = ()

    def narrowed(self, rows: list[Any], query: Query) -> list[Any]:
        """Return the rows that the query is about, where the dashboard does not choose them."""
        return rows

    def filters(self, user: User, value: Any, query: Query) -> Sequence[Filter]:
        """Return what the list can be narrowed to."""
        return ()

    # What Django asks

    def has_add_permission(self, request: HttpRequest) -> bool:
        """Return false."""
        return False

    def has_change_permission(self, request: HttpRequest, obj: object = None) -> bool:
        """Return false."""
        return False

    def has_delete_permission(self, request: HttpRequest, obj: object = None) -> bool:
        """Return false."""
        return False

    def has_view_permission(self, request: HttpRequest, obj: object = None) -> bool:
        """Return whether the user may see the dashboard."""
        return user_of(request.user) is not None

    def has_module_permission(self, request: HttpRequest) -> bool:
        """Return the same."""
        return self.has_view_permission(request)

    def get_urls(self) -> list[Any]:
        """Return the list only: objects have their pages in the dashboard."""
        name = f"{self.opts.app_label}_{self.opts.model_name}_changelist"
        return [path("", self.admin_site.admin_view(self.changelist_view), name=name)]

    def changelist_view(self, request: HttpRequest, extra_context: dict[str, Any] | None = None) -> TemplateResponse:
        """Show the list."""
        user = user_of(request.user)
        if user is None:
            raise PermissionDenied
        query = request.GET.dict()
        where = root()
        context = {
            **self.admin_site.each_context(request),
            **self._shown(user, query),
            "title": str(self.opts.verbose_name_plural).capitalize(),
            "opts": self.opts,
            "labels": [column.label for column in self.columns],
            "searched": self.searched,
            "q": query.get("q", ""),
            "dashboard": None if where is None else f"{where}{self.address}",
            **(extra_context or {}),
        }
        request.current_app = self.admin_site.name
        return TemplateResponse(request, "limpyd_jobs/admin_list.html", context)

    def _shown(self, user: User, query: Query) -> dict[str, Any]:
        try:
            value = read(user, self.address, {"limit": f"{MAX_ROWS}", **query})
            filters = self.filters(user, value, query)
        except NotShown as refused:
            return {"refused": str(refused), "rows": [], "filters": []}
        rows = self.narrowed(value[self.rows], query)
        following = encoded({**query, "after": value["following"]}) if value.get("following") else ""
        shown = cells(self.columns, rows)
        return {"rows": shown, "filters": filters, "following": following, "note": _note(value, len(value[self.rows]))}


def _note(value: Any, shown: int) -> str:
    """Return what to know of a list that does not have all."""
    if not value.get("is_complete", True) or not value.get("is_exact", True):
        return "There was no time to look at all: the dashboard looks for longer."
    number = value.get("number", 0)
    return f"These are {shown:,} of {number:,}: the dashboard has the others." if number > shown else ""


class JobsPage(ListPage):
    """Jobs, by a filter as that of the dashboard."""

    address, rows, searched = "/jobs", "jobs", "status=error queue=mails"
    columns = (
        Column("Job", lambda row: row["ident"], lambda row: address(f"/jobs/{row['ident']}")),
        Column("Identifier", lambda row: row["identifier"]),
        Column("Status", lambda row: row["status"]),
        Column("Queue", lambda row: row["queue"]),
        Column("Tries", lambda row: row["tries"]),
        Column("Added", lambda row: when(row["added"])),
        Column("Ended", lambda row: when(row["end"])),
    )

    def filters(self, user: User, value: Any, query: Query) -> Sequence[Filter]:
        """Return the values that there are of the fields by which the dashboard counts jobs."""
        facets = read(user, "/jobs/facets", {"q": query.get("q", "")})["facets"]
        return [narrow_words(value["words"], field, facets[field]["counts"]) for field in facets]


class ErrorsPage(ListPage):
    """The causes of errors, the most frequent first."""

    address, rows, searched = "/errors", "groups", "queue=mails"
    columns = (
        Column("Type", lambda row: row["type"] or "(no type)", page_of("/errors/cause", fingerprint="fingerprint")),
        Column("Message", lambda row: row["message"]),
        Column("Raised in", lambda row: row["raised_in"]),
        Column("Errors", lambda row: row["count"]),
        Column("Queues", lambda row: ", ".join(row["queues"])),
        Column("First", lambda row: when(row["first_seen"])),
        Column("Last", lambda row: when(row["last_seen"])),
    )

    def filters(self, user: User, value: Any, query: Query) -> Sequence[Filter]:
        """Return the queues."""
        queues = read(user, "/queues", {})["queues"]
        return [narrow_words(value["words"], "queue", dict.fromkeys(queue["name"] for queue in queues))]


class QueuesPage(ListPage):
    """The queues, with what stands in each."""

    address, rows = "/queues", "queues"
    columns = (
        Column("Queue", lambda row: row["name"], page_of("/jobs", queue="name")),
        Column("Priority", lambda row: row["priority"]),
        Column("State", lambda row: "paused" if row["paused"] else "open"),
        Column("Waiting", lambda row: row["waiting"]),
        Column("Latency", lambda row: shown_span(row["latency"])),
        Column("Delayed", lambda row: row["delayed"]),
        Column("Running", lambda row: row["running"]),
        Column("Quarantine", lambda row: row["quarantine"]),
    )

    def narrowed(self, rows: list[Any], query: Query) -> list[Any]:
        """Return those of a state."""
        wanted = query.get("state", "")
        return [row for row in rows if wanted in ("", "paused" if row["paused"] else "open")]

    def filters(self, user: User, value: Any, query: Query) -> Sequence[Filter]:
        """Return the states."""
        return [narrow(query, "state", ("open", "paused"))]


class SchedulesPage(ListPage):
    """The jobs that are added at set times."""

    address, rows, searched = "/schedules", "schedules", "a part of the name"
    columns = (
        Column("Schedule", lambda row: row["name"], page_of("/schedules/schedule", name="name")),
        Column("State", lambda row: row["state"]),
        Column("Next", lambda row: when(row["next_run"])),
        Column("Last", lambda row: when(row["last_run"])),
        Column("Job class", lambda row: row["job"]),
        Column("Queue", lambda row: row["queue"]),
        Column("Owner", lambda row: row["owner"] or ""),
        Column("Notes", lambda row: ", ".join(row["notes"] or ())),
    )

    def narrowed(self, rows: list[Any], query: Query) -> list[Any]:
        """Return those of a state."""
        return [row for row in rows if query.get("state", "") in ("", row["state"])]

    def filters(self, user: User, value: Any, query: Query) -> Sequence[Filter]:
        """Return the states."""
        return [narrow(query, "state", ("active", "paused", "over"))]


class WorkersPage(ListPage):
    """The workers that are there, as of their last signs of life."""

    address, rows = "/workers", "workers"
    columns = (
        Column("Worker", lambda row: row["name"], lambda row: address(f"/workers/{row['pk']}")),
        Column("Status", lambda row: row["silence"] or row["status"]),
        Column("Queues", lambda row: ", ".join(row["queues"])),
        Column("Runs", lambda row: ", ".join(job["ident"] for job in row["running"])),
        Column("Done", lambda row: row["done"]),
        Column("Failed", lambda row: row["failed"]),
        Column("Since", lambda row: when(row["since"])),
        Column("Last seen", lambda row: when(row["last_seen"])),
    )

    def filters(self, user: User, value: Any, query: Query) -> Sequence[Filter]:
        """Return the statuses and the queues of all workers."""
        workers = read(user, "/workers", {"limit": "1000"})["workers"]
        statuses = sorted({worker["status"] for worker in workers})
        queues = sorted({queue for worker in workers for queue in worker["queues"]})
        return [narrow(query, "status", statuses), narrow(query, "queue", queues)]


PAGES = {
    models.Jobs: JobsPage,
    models.Errors: ErrorsPage,
    models.Queues: QueuesPage,
    models.Schedules: SchedulesPage,
    models.Workers: WorkersPage,
}


def register() -> None:
    """Let the admin have the pages."""
    for model, page in PAGES.items():
        admin.site.register(model, page)
