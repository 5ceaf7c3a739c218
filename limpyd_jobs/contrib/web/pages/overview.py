"""A database at a glance."""

from __future__ import annotations

from limpyd_jobs.contrib.web.protocol import Asked, Page
from limpyd_jobs.query import Overview, overview

MAX_RUNNING = 10


def show(asked: Asked) -> Overview:
    return overview(asked.database, MAX_RUNNING)


PAGE = Page("/", "Overview", show, "overview.html", "Overview")
