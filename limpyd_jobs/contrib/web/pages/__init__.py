"""The pages. A new one is a file here, with its `PAGE`, a template, and its place in `PAGES`, which is that in the
navigation."""

from __future__ import annotations

from limpyd_jobs.contrib.web.pages import (
    audit,
    check,
    errors,
    find,
    flows,
    job,
    jobs,
    limits,
    metrics,
    overview,
    quarantine,
    queue,
    queues,
    requeues,
    schedules,
    tasks,
    workers,
)
from limpyd_jobs.contrib.web.protocol import Page

PAGES: tuple[Page, ...] = (
    overview.PAGE,
    queues.PAGE,
    queue.PAGE,
    queue.CLASS_PAGE,
    jobs.PAGE,
    jobs.FACETS_PAGE,
    jobs.WORDS_PAGE,
    job.PAGE,
    errors.PAGE,
    errors.CAUSE_PAGE,
    workers.PAGE,
    workers.ONE_PAGE,
    schedules.PAGE,
    schedules.ONE_PAGE,
    flows.PAGE,
    flows.ONE_PAGE,
    limits.PAGE,
    quarantine.PAGE,
    check.PAGE,
    audit.PAGE,
    tasks.PAGE,
    requeues.PAGE,
    find.PAGE,
    find.THROUGH_PAGE,
    metrics.PAGE,
)
