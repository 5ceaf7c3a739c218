"""A memory of our speed: one line for each run, with the commit, so that a slower one is seen.

``python benchmarks/history.py`` draws ``results/history.png`` from ``results/history.jsonl``, to which ``run.py`` adds.
What is kept is what another machine finds as well: rates in relation to the bare loop of the same moment, and counts.

``python benchmarks/history.py --against COMMIT`` compares instead: this checkout and that commit, in one run.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
from pathlib import Path
from statistics import median
from typing import Any

from against import compare
from environments import HERE
from measured import Results, Row

OURS = "limpyd_jobs_3"
RATES = ["add", "bulk", "run_1", "run_2"]
COUNTS = ["add_round_trips", "add_commands", "run_round_trips", "run_commands", "bytes"]


def remember(results: Results, directory: Path) -> None:
    """Add a line with what a run found of us."""
    rows = [row for row in results.entries if row.peer == OURS and row.values]
    if rows:
        line = {"date": results.date, "commit": commit(), "workers": {row.variant: _kept(row) for row in rows}}
        with open(directory / "history.jsonl", "a", encoding="utf-8") as file:
            file.write(json.dumps(line) + "\n")


def _kept(row: Row) -> dict[str, float]:
    rates = {name: round(row.ratio(name), 3) for name in RATES if name in row.values}
    return {**rates, **{name: round(median(row.values[name]), 2) for name in COUNTS if name in row.values}}


def commit() -> str:
    """Return the short name of the commit that is measured, with a star if files were changed since; else nothing."""
    command = ["git", "-C", str(HERE), "describe", "--always", "--dirty=*", "--exclude=*"]
    try:
        return subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip()
    except (OSError, subprocess.CalledProcessError):
        return ""


def read(directory: Path) -> list[dict[str, Any]]:
    """Return the lines, the oldest first."""
    return [json.loads(line) for line in (directory / "history.jsonl").read_text(encoding="utf-8").splitlines()]


def main() -> None:
    """Draw what is remembered, or compare what a job costs with another commit: 1 if it is higher than it may be."""
    parser = argparse.ArgumentParser(prog="benchmarks/history.py", description=main.__doc__)
    parser.add_argument("--results", type=Path, default=HERE / "results", metavar="DIR", help="where it is")
    parser.add_argument("--against", metavar="COMMIT", help="compare with this commit, instead of drawing")
    parser.add_argument("--tolerance", type=float, default=0.05, help="how much higher a cost may be (default 0.05)")
    parser.add_argument("--rounds", type=int, default=10, help="how often to compare (default 10)")
    parser.add_argument("--jobs", type=int, default=1000, help="how many jobs to measure in each step (default 1000)")
    parser.add_argument("--redis-server", default="redis-server", metavar="PROGRAM", help="the server to start")
    options = parser.parse_args()

    if options.against:
        good = compare(options.against, options.redis_server, options.jobs, options.rounds, options.tolerance)
        sys.exit(not good)

    from plots import draw_history

    draw_history(read(options.results), options.results)


if __name__ == "__main__":
    main()
