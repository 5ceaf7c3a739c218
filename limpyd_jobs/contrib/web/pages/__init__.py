"""The pages. A new one is a file here, with its `PAGE`, a template, and its place in `PAGES`, which is that in the
navigation."""

from __future__ import annotations

from limpyd_jobs.contrib.web.pages import overview, queues, tasks
from limpyd_jobs.contrib.web.protocol import Page

PAGES: tuple[Page, ...] = (
    overview.PAGE,
    queues.PAGE,
    tasks.PAGE,
)
