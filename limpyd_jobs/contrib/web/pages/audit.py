"""Who did what to many jobs at once, or to queues, schedules and workers."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from limpyd_jobs.contrib.web.protocol import Asked, Page
from limpyd_jobs.query import AuditEntry, audit_entries, why_no_audit

PER_PAGE, MAX_PER_PAGE = 100, 1_000


@dataclass(frozen=True)
class AuditShown:
    """The last entries of the audit in which a text occurs. `looked` says among how many it was looked for; `unread`
    says why there are none to look at, if the audit cannot be read."""

    text: str
    entries: Sequence[AuditEntry]
    looked: int
    limit: int
    unread: str = ""


def show(asked: Asked) -> AuditShown:
    text, limit = asked.query.get("q"), asked.query.number("limit", PER_PAGE, 1, MAX_PER_PAGE)
    stored = audit_entries(limit, asked.database)
    mask = asked.masking.any
    entries = [each._replace(filter=mask.filter(each.filter), how=mask.text(each.how)) for each in stored]
    found = [each for each in entries if text in f"{each.who}\n{each.claimed}\n{each.verb}\n{each.filter}\n{each.how}"]
    return AuditShown(text, found, len(entries), limit, "" if stored else why_no_audit(asked.database))


PAGE = Page("/audit", "Audit", show, "audit.html", "Audit", "audit", "a", lane="records")
