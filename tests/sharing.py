"""Which tests are run by one process, one after the other, when there are several: those that share costly work."""

from __future__ import annotations

from typing import Any

from xdist.scheduler import LoadScopeScheduling

# The beginnings of their names
TOGETHER = (
    "tests/proofs/test_benchmark_runs.py::TestARun::",
    "tests/test_example.py::TestAWholeRun::",
    "tests/web/test_dashboard",  # with one browser
)


class Schedule(LoadScopeScheduling):
    """Each test goes to the process that is free first, but for those that share something."""

    def _split_scope(self, nodeid: str) -> str:
        return next((name for name in TOGETHER if nodeid.startswith(name)), nodeid)

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
