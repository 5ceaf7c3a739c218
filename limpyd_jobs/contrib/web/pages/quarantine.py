"""Entries of waiting lists that no worker could do anything with: put them back, or drop them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from hashlib import sha256

from limpyd_jobs.contrib.web.protocol import Act, Asked, Form, Page, Plan
from limpyd_jobs.contrib.web.refusals import Refusal
from limpyd_jobs.contrib.web.tasks import OnStep
from limpyd_jobs.contrib.web.users import Role
from limpyd_jobs.query import QuarantineEntry, leave_quarantine, quarantine_entries, some_quarantine_entries

HERE = "/quarantine"

PER_PAGE, MAX_PER_PAGE = 100, 1_000


@dataclass(frozen=True)
class EntryShown:
    """An entry. `digest` stands for it in forms: it may be any text."""

    digest: str
    queue: str
    priority: int | str
    entry: str


@dataclass(frozen=True)
class QuarantineShown:
    """Some entries, of all that there are of a queue."""

    queue: str
    entries: Sequence[EntryShown]
    number: int


def show(asked: Asked) -> QuarantineShown:
    queue, limit = asked.query.get("queue"), asked.query.number("limit", PER_PAGE, 1, MAX_PER_PAGE)
    found, number = some_quarantine_entries(limit, queue or None, asked.database)
    mask = asked.masking.any.text
    entries = [EntryShown(_digest(each), each.queue, each.priority, mask(each.entry)) for each in found]
    return QuarantineShown(queue, entries, number)


def _digest(found: QuarantineEntry) -> str:
    whole = "\n".join((found.model, found.pk, found.entry))
    return sha256(whole.encode(errors="surrogatepass")).hexdigest()[:32]


def leave(asked: Asked, form: Form, *, drop: bool) -> Plan:
    """Let the entries whose digests are sent, or, with ``all``, all of a queue, leave the quarantine."""
    digests, queue = {*form.all("entry")}, form.get("queue")
    if not (digests or form.get("all")):
        raise Refusal(400, "Select some entries first, or all")
    if form.get("all"):
        found = quarantine_entries(queue or None, asked.database)
    else:
        shown, _ = some_quarantine_entries(MAX_PER_PAGE, queue or None, asked.database)
        found = [each for each in shown if _digest(each) in digests]
    if not found:
        raise Refusal(404, "These entries are not in quarantine any more")
    what = "1 entry" if len(found) == 1 else f"{len(found):,} entries"

    def do(_: OnStep) -> str:
        number = leave_quarantine(found, asked.database, drop=drop)
        return f"{number:,} of {what} {'dropped' if drop else 'put back in their queues'}"

    danger = (
        "They are dropped for good. The records of jobs stay."
        if drop
        else "A worker that still cannot do anything with them puts them in quarantine again."
    )
    return Plan(f"{'Drop' if drop else 'Put back'} {what}", do, lambda: what, danger, HERE)


PAGE = Page(
    HERE,
    "Quarantine",
    show,
    "quarantine.html",
    acts=(
        Act(f"{HERE}/retry", Role.ACT, partial(leave, drop=False)),
        Act(f"{HERE}/drop", Role.ADMIN, partial(leave, drop=True)),
    ),
    lane="records",
)
