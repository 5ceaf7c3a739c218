"""Whatever is killed, stopped or cut, and when: no job that was added is lost."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from chaos import Chaos
from chaos_jobs import HangingThread, Swallowing, class_of
from chaos_report import Report

SEED = 20

# Few enough faults for workers to live as long as jobs hang.
AS_DEPLOYED = {"end_worker": 1, "cut": 1, "kill_client": 1}


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
    [
        pytest.param({}, id="one"),
        pytest.param({"prefetch": 10}, id="prefetch 10", marks=pytest.mark.only_long),  # as "auto" comes to
        pytest.param({"prefetch": "auto"}, id="prefetch auto"),
        pytest.param(
            {"concurrency": 10, "prefetch": 50}, id="concurrency 10, prefetch 50", marks=pytest.mark.only_long
        ),
        pytest.param({"concurrency": 100}, id="concurrency 100"),
    ],
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


def test_no_work_of_jobs_that_go_on_where_they_were_is_skipped(
    redis_binary: str, report_of: Callable[[Chaos], Report]
) -> None:
    storm = {"mixture": "loops", "concurrency": 50, "lease": 1.0, "network_delay": 0.005}
    chaos = Chaos(SEED, seconds=10, **storm, binary=redis_binary)
    report = report_of(chaos)
    assert report.violations == []
    assert [each for each in report.ledger.rounds() if each.has_succeeded]
    assert report.put_back
    chaos.remove()


def test_jobs_that_do_not_end_when_they_should_hold_up_no_others(
    redis_binary: str, report_of: Callable[[Chaos], Report]
) -> None:
    storm = {"mixture": "hostile", "concurrency": 20, "lease": 1.0, "faults": AS_DEPLOYED}
    chaos = Chaos(SEED, seconds=12, **storm, binary=redis_binary)
    report = report_of(chaos)
    assert report.violations == []
    assert {HangingThread, Swallowing} & {class_of(run.ident) for run in report.runs if run.over > run.start + 1}
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
