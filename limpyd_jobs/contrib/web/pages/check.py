"""Whether what is stored is whole: a check that is started by a button, its findings, and their repair."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from threading import Lock
from typing import Any

from limpyd_jobs import Queue
from limpyd_jobs.check import Finding, Report, audited_repair, check, import_used_integrations
from limpyd_jobs.contrib.web.protocol import Act, Asked, Form, Page, Plan
from limpyd_jobs.contrib.web.refusals import Refusal
from limpyd_jobs.contrib.web.tasks import OnStep
from limpyd_jobs.contrib.web.users import Role

HERE = "/check"

# For how many seconds it waits before it looks again at what seems wrong.
PAUSE = 5.0

# How many findings of a kind are shown, and how many kinds, warnings and others.
MAX_OF_KIND, MAX_SHOWN = 20, 200

# Is held by the check that is going on in this process.
BUSY = Lock()


@dataclass(frozen=True)
class KindShown:
    """The findings of one kind, of which the first are shown."""

    severity: str
    invariant: str
    kind: str
    number: int
    left: int
    findings: Sequence[Finding]


@dataclass(frozen=True)
class Checked:
    """What a check found, the gravest first."""

    user: str
    is_repair: bool
    kinds: Sequence[KindShown]
    number: int
    repaired: int
    repairable: int
    warnings: Sequence[str]
    unchecked: Sequence[str]
    records: Mapping[str, int]
    databases: Sequence[str]
    seconds: float

    @classmethod
    def of(cls, report: Report, user: str, is_repair: bool) -> Checked:
        return cls(
            user=user,
            is_repair=is_repair,
            kinds=_kinds(report.findings)[:MAX_SHOWN],
            number=len(report.findings),
            repaired=len(report.findings) - len(report.left),
            repairable=sum(each.repairable for each in report.left),
            warnings=report.warnings[:MAX_SHOWN],
            unchecked=report.unchecked[:MAX_SHOWN],
            records=report.records,
            databases=report.databases,
            seconds=report.seconds,
        )


@dataclass(frozen=True)
class CheckShown:
    """The last check of this process in the last minutes, and when it ended; and whether one is going on."""

    is_running: bool
    at: datetime | None
    checked: Checked | None


def _kinds(findings: Sequence[Finding]) -> list[KindShown]:
    by_kind: defaultdict[str, list[Finding]] = defaultdict(list)
    for each in findings:
        by_kind[each.kind].append(each)
    kinds = [
        KindShown(
            severity=some[0].severity,
            invariant=some[0].invariant,
            kind=kind,
            number=len(some),
            left=sum(not each.repaired for each in some),
            findings=some[:MAX_OF_KIND],
        )
        for kind, some in by_kind.items()
    ]
    return sorted(kinds, key=lambda each: (each.severity != "grave", -each.number, each.kind))


def show(asked: Asked) -> CheckShown:
    kept = asked.kept.get(HERE)
    return CheckShown(BUSY.locked(), kept.at if kept else None, kept.value if kept else None)


def run(asked: Asked, form: Form) -> Plan:
    return Plan("Check the database", _doing(asked, check, is_repair=False), back=HERE)


def repair(asked: Asked, form: Form) -> Plan:
    """Repair what the last check found. Whoever asks sees first how much that is."""
    kept = asked.kept.get(HERE)
    if kept is None:
        raise Refusal(409, "Check first: what is to be repaired must be known")
    found: Checked = kept.value
    if not found.repairable:
        raise Refusal(409, "The last check found nothing that can be repaired")
    would = f"{found.repairable:,} of {found.number:,} findings of the last check can be repaired"
    danger = "Each finding is looked at again, and repaired in one step. What is repaired cannot be undone."
    return Plan("Repair the database", _doing(asked, audited_repair, is_repair=True), lambda: would, danger, HERE)


def _doing(asked: Asked, verb: Callable[..., Report], *, is_repair: bool) -> Callable[[OnStep], str]:
    def do(step: OnStep) -> str:
        if not BUSY.acquire(blocking=False):
            raise Refusal(409, "A check is going on already: wait for its end")
        try:
            report = _report(asked, verb, lambda line: step(0, 0, line))
        finally:
            BUSY.release()
        checked = Checked.of(report, asked.user.name, is_repair)
        asked.kept.put(HERE, checked)
        done = f", {checked.repaired:,} repaired" if is_repair else ""
        return f"{checked.number:,} found{done}" if checked.number else "Nothing is wrong"

    return do


def _report(asked: Asked, verb: Callable[..., Report], tell: Callable[[str], Any]) -> Report:
    """Check, or repair. Whoever may only look lets no module be imported because what is stored names it."""
    imports = asked.may(Role.ACT)
    unread = import_used_integrations() if imports else []
    how = {"mask": asked.masking.any.field, "imports": imports}
    report = verb(database=asked.database or Queue.database, pause=PAUSE, progress=tell, **how)
    if not report.databases:
        raise Refusal(409, "No model that is imported here is on this database: use limpyd-jobs check")
    report.unchecked += unread
    return report


PAGE = Page(
    HERE,
    "Check",
    show,
    "check.html",
    "Check",
    "check",
    "c",
    acts=(Act(f"{HERE}/run", Role.VIEW, run), Act(f"{HERE}/repair", Role.ADMIN, repair)),
)
