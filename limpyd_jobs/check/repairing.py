"""A repair that is in the audit."""

from __future__ import annotations

from typing import Any

from limpyd_jobs.check.checking import check
from limpyd_jobs.check.problems import LEAVE
from limpyd_jobs.check.report import Report
from limpyd_jobs.models import BaseJobsModel
from limpyd_jobs.records.audit import audited


def audited_repair(
    *, unresolved: str = LEAVE, unknown_status: str = LEAVE, unaudited: bool = False, **how: Any
) -> Report:
    """Repair as `check` does, and write that to the audit. The arguments are those of `check`.

    Raises
    ------
    NotAudited
        If Redis refuses to write it to the audit, and it may not be unaudited.
    """
    choices = {"unresolved": unresolved, "unknown_status": unknown_status}
    told = " ".join(f"{name}={choice}" for name, choice in choices.items())
    connection = BaseJobsModel.get_connection()
    with audited(connection, verb="check --repair", filter=told, unaudited=unaudited) as entry:
        report = check(repair=True, unresolved=unresolved, unknown_status=unknown_status, **how)
        entry.numbers = {"done": len(report.findings) - len(report.left), "refused": len(report.left)}
    return report
