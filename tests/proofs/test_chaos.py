"""Whatever is killed, stopped or cut, and when: no job that was added is lost."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from chaos import Chaos
from chaos_report import Report

SEED = 20


@pytest.fixture
def report_of(record_property: Callable[[str, object], None]) -> Callable[[Chaos], Report]:
    """Run a test, and have its report printed at the end of all."""

    def run(chaos: Chaos) -> Report:
        print(f"seed {chaos.seed}; what the processes wrote is in {chaos.directory}")
        report = chaos.run()
        record_property("chaos", str(report))
        return report

    return run


@pytest.mark.long
@pytest.mark.parametrize(
    "many",
    [{}, {"prefetch": 10}, {"prefetch": "auto"}, {"concurrency": 10}, {"concurrency": 100}],
    ids=["one", "prefetch 10", "prefetch auto", "concurrency 10", "concurrency 100"],
)
def test_no_job_is_lost_under_any_faults(
    redis_binary: str, report_of: Callable[[Chaos], Report], many: dict[str, Any]
) -> None:
    chaos = Chaos(SEED, seconds=20, **many, binary=redis_binary)
    report = report_of(chaos)
    assert report.violations == []
    assert report.acknowledged
    assert {
        *("Redis killed", "client killed"),
        *("worker killed", "worker stopped", "producer killed"),
    } <= report.faults.keys()
    chaos.remove()


def test_no_job_is_lost_in_the_hand_over_although_no_process_looks_for_any(
    redis_binary: str, report_of: Callable[[Chaos], Report]
) -> None:
    chaos = Chaos(SEED, seconds=5, rescue=False, faults={"cut_hand_over": 1}, binary=redis_binary)
    report = report_of(chaos)
    assert report.faults["BLPOP cut"]
    assert report.lost == set()
    chaos.remove()


def test_jobs_of_dead_workers_are_lost_if_no_process_looks_for_them(
    redis_binary: str, report_of: Callable[[Chaos], Report]
) -> None:
    chaos = Chaos(SEED, seconds=5, rescue=False, faults={"kill_worker": 1}, binary=redis_binary)
    assert report_of(chaos).lost
    chaos.remove()
