"""What the proofs have to say at the end."""

from __future__ import annotations

import sys
from collections import Counter

import pytest

pytest.register_assert_rewrite("machine")


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Print the figures of the proofs that ran."""
    _print_boundaries(terminalreporter)
    _print_chaos(terminalreporter)


def _print_boundaries(terminalreporter: pytest.TerminalReporter) -> None:
    """Print the table of the points where processes were killed."""
    table = getattr(sys.modules.get("test_every_boundary"), "TABLE", [])
    if not table:
        return
    terminalreporter.section("killed at every boundary")
    total = sum((outcomes for *_, outcomes in table), Counter())
    for path, states, outcomes in [*table, ("all", sum(states for _, states, _ in table), total)]:
        figures = "  ".join(f"{outcomes[kind]:3} {kind}" for kind in ("harmless", "leftovers", "harm"))
        terminalreporter.write_line(f"{path:50} {sum(outcomes.values()):4} kill points {states:4} states  {figures}")


def _print_chaos(terminalreporter: pytest.TerminalReporter) -> None:
    """Print what the chaos tests report, each with its seed, whichever process ran them."""
    for reports in terminalreporter.stats.values():
        for report in reports:
            found = dict(getattr(report, "user_properties", ())).get("chaos")
            if found and report.when == "call":
                terminalreporter.section("chaos")
                terminalreporter.write_line(found)
