"""Whatever is killed, stopped or cut, and when: no job that was added is lost."""

from __future__ import annotations

from chaos import Chaos
from chaos_report import Report

# For conftest.py to print.
REPORTS: list[Report] = []

SEED = 20


def report_of(chaos: Chaos) -> Report:
    report = chaos.run()
    REPORTS.append(report)
    print(f"what the processes wrote is in {chaos.directory}")
    return report


def test_no_job_is_lost_under_any_faults(redis_binary: str) -> None:
    chaos = Chaos(SEED, seconds=25, binary=redis_binary)
    report = report_of(chaos)
    assert report.violations == []
    assert report.acknowledged
    assert report.again
    assert {"BLPOP cut", "Redis killed", "client killed", "worker killed", "worker stopped"} <= report.faults.keys()
    chaos.remove()


def test_jobs_are_lost_in_the_hand_over_if_nobody_looks_for_them(redis_binary: str) -> None:
    chaos = Chaos(SEED, seconds=8, reconcile=False, faults={"cut_hand_over": 1}, binary=redis_binary)
    report = report_of(chaos)
    cut = {fault.ident for fault in chaos.faults}
    assert report.lost
    assert report.lost <= {report.seen.records[ident]["identifier"] for ident in cut}
    chaos.remove()
