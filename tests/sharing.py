"""Which tests are run by one process, one after the other, when there are several: those that share costly work."""

from __future__ import annotations

from collections import Counter
from typing import Any

import pytest
from _pytest.runner import runtestprotocol
from xdist.scheduler import LoadScopeScheduling

# The beginnings of their names
TOGETHER = (
    "tests/proofs/test_benchmark_runs.py::TestARun::",
    "tests/test_example.py::TestAWholeRun::",
)

# Those of a file are together: a process that has any of them starts a browser.
WITH_A_BROWSER = "tests/web/test_dashboard"

# How many cases of a quick test, at most, are given to a process at once: each time, it waits for an answer.
CASES = 8


class Schedule(LoadScopeScheduling):
    """Each test, or some cases of it, goes to the process that is free first, but for those that share something."""

    def __init__(self, config: pytest.Config, log: Any) -> None:
        super().__init__(config, log)
        self._cases = CASES if config.option.markexpr == "not proof" else 1
        self._units: dict[str, str] = {}
        self._seen: Counter[str] = Counter()

    def _split_scope(self, nodeid: str) -> str:
        if nodeid not in self._units:
            self._units[nodeid] = self._unit_of(nodeid)
        return self._units[nodeid]

    def _unit_of(self, nodeid: str) -> str:
        if nodeid.startswith(WITH_A_BROWSER):
            return nodeid.partition("::")[0]
        for name in TOGETHER:
            if nodeid.startswith(name):
                return name
        test = nodeid.partition("[")[0]
        self._seen[test] += 1
        return f"{test} {(self._seen[test] - 1) // self._cases}"

    def _assign_work_unit(self, node: Any) -> None:
        """Let each second process begin with the tests of workers, which wait more than they compute."""
        if self.nodes.index(node) % 2:
            waiting = next((name for name in self.workqueue if name.startswith("tests/workers/")), "")
            if waiting:
                self.workqueue.move_to_end(waiting, last=False)
        super()._assign_work_unit(node)

    def _pending_of(self, workload: dict[str, dict[str, bool]]) -> int:
        """As theirs, but without a look at all that was done before, for each test that ends: that took seconds."""
        pending = 0
        for tests in reversed(workload.values()):
            waiting = [*tests.values()].count(False)
            if not waiting:  # so have those before it
                break
            pending += waiting
        return pending


class Brief:
    """Of a test that passes, a process tells the one that shares out the tests once, and not five times."""

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtest_protocol(self, item: pytest.Item, nextitem: pytest.Item | None) -> bool:
        for report in runtestprotocol(item, nextitem=nextitem, log=False):
            if report.when == "call" or not report.passed:
                item.ihook.pytest_runtest_logreport(report=report)
        return True


def is_brief(config: pytest.Config) -> bool:
    """Whether this is a process of several, and nobody has asked for what it would not tell."""
    return hasattr(config, "workerinput") and config.option.durations is None and not config.option.xmlpath
