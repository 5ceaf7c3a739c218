"""The results: what was measured where, as JSON, as tables, and as plots."""

from __future__ import annotations

import argparse
import json
import os
import platform
import re
import sys
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass, field
from functools import partial
from pathlib import Path
from statistics import median
from typing import Any

from environments import HERE, Peer
from measures import COLUMNS, MEASURES, Column, Entry, Sizes
from server import Server

FORMAT = 1

SPEED = ["add", "bulk", "run_1", "run_2", "latency_p50", "latency_p99", "bytes"]
COST = [column for column in COLUMNS if column not in SPEED]
NONE = TO = "\N{EN DASH}"
RATES = ["add", "bulk", "run_1", "run_2"]  # what is told in relation to the bare loop, too


@dataclass
class Row:
    """What was found of one entry: values by column, one per round, with the rates of the bare loop beside them."""

    peer: str
    variant: str
    title: str
    adding: str
    working: str
    versions: dict[str, str]
    is_limit: bool
    values: dict[str, list[float]] = field(default_factory=dict)
    bare: dict[str, list[float]] = field(default_factory=dict)
    failures: dict[str, str] = field(default_factory=dict)

    def ratio(self, column: str) -> float:
        """Return the median of the ratios to the bare loop of the same moment."""
        return median(value / bare for value, bare in zip(self.values[column], self.bare[column], strict=True))


@dataclass
class Results:
    """What one run found."""

    date: str
    machine: dict[str, Any]
    settings: dict[str, Any]
    entries: list[Row] = field(default_factory=list)
    format: int = FORMAT

    @classmethod
    def of_this_machine(cls, server: Server, rounds: int, scale: float, sizes: Sizes) -> Results:
        """Return empty results, with what one has to know of the machine. Names and paths of it are not told."""
        machine = {
            "processor": processor_model(),
            "cores": os.cpu_count(),
            "system": f"{platform.system()} {platform.machine()}",
            "Python": platform.python_version(),
            "Redis": server.client.info("server")["redis_version"],
            "transport": "TCP, loopback",
        }
        settings = {"rounds": rounds, "scale": scale, **asdict(sizes)}
        return cls(time.strftime("%Y-%m-%d", time.gmtime()), machine, settings)

    @classmethod
    def read(cls, path: Path) -> Results:
        """Read what `write_results` wrote."""
        raw = json.loads(path.read_text(encoding="utf-8"))
        return cls(**{**raw, "entries": [Row(**row) for row in raw["entries"]]})

    def add_entry(self, entry: Entry) -> None:
        self.entries.append(_row(entry.peer, entry.variant, entry.title, entry.environment.versions))

    def add_missing(self, peer: Peer, reason: str) -> None:
        """Add a peer that could not be installed."""
        row = _row(peer, "default", peer.TITLE, {})
        row.failures = dict.fromkeys(MEASURES, without_paths(reason))
        self.entries.append(row)

    def add_values(self, entry: Entry, values: dict[str, float | None], bare: float) -> None:
        row = self._row_of(entry)
        for column, value in values.items():
            if value is not None:
                row.values.setdefault(column, []).append(value)
                row.bare.setdefault(column, []).append(bare)

    def add_failure(self, entry: Entry, name: str, reason: str) -> None:
        self._row_of(entry).failures[name] = without_paths(reason)

    def has_failed(self, entry: Entry, name: str) -> bool:
        return name in self._row_of(entry).failures

    def _row_of(self, entry: Entry) -> Row:
        return next(row for row in self.entries if (row.peer, row.variant) == (entry.peer.name, entry.variant))


def _row(peer: Peer, variant: str, title: str, versions: dict[str, str]) -> Row:
    working = peer.WORKERS.get(variant, "")
    return Row(peer.name, variant, title, peer.ADDING, working, versions, peer.name.startswith("bare"))


def processor_model() -> str:
    """Return the name of the processor's model, as far as the system tells."""
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        return platform.processor() or "unknown"
    return next((line.split(":", 1)[1].strip() for line in lines if line.startswith("model name")), "unknown")


def without_paths(text: str) -> str:
    """Return a text with the last part only of each path in it."""
    return re.sub(r"(?:/[\w.@+-]+)+/", "", text)


# -- Files


def write_results(results: Results, directory: Path, plots: bool = True) -> None:
    """Write ``benchmarks.json``, ``table.rst``, ``details.rst`` and the plots."""
    directory.mkdir(parents=True, exist_ok=True)
    (directory / "benchmarks.json").write_text(json.dumps(asdict(results), indent=1) + "\n", encoding="utf-8")
    (directory / "table.rst").write_text(summary(results), encoding="utf-8")
    (directory / "details.rst").write_text(details(results), encoding="utf-8")
    if plots:
        from plots import draw_results

        draw_results(results, directory)


def show_summary(results: Results) -> None:
    print(summary(results))


def summary(results: Results) -> str:
    """Return the table for people: medians, the best of each column in bold."""
    return "\n".join(
        [
            _about(results),
            _table(SPEED, results, partial(_cell, results)),
            *(f"- {line}" for line in _failures(results)),
            "",
        ]
    )


def details(results: Results) -> str:
    """Return all tables: the costs, each value with its range and in relation to the bare loop, and the settings."""
    return "\n".join(
        [
            "Commands, round trips and idling",
            "--------------------------------",
            "",
            _table(COST, results, partial(_cell, results)),
            "Medians, with the least and the most of all rounds",
            "--------------------------------------------------",
            "",
            _table(SPEED, results, _range),
            "In relation to a bare loop of RPUSH at the same moment",
            "------------------------------------------------------",
            "",
            _table(RATES, results, _ratio),
            "Settings and versions",
            "---------------------",
            "",
            table(["queue", "adding", "running", "versions"], [_settings(row) for row in results.entries]),
        ]
    )


def _about(results: Results) -> str:
    machine = results.machine
    text = (
        f"Measured on {results.date}: {machine['processor']}, {machine['cores']} cores, Redis {machine['Redis']}, "
        f"Python {machine['Python']}; medians, rounds: {results.settings['rounds']}."
    )
    scale = results.settings["scale"]
    return text + (f" A small run, of scale {scale:g}: the numbers are rough.\n" if scale < 1 else "\n")


def _table(columns: list[str], results: Results, cell: Callable[[Row, str], str]) -> str:
    rows = [[row.title, *(cell(row, name) for name in columns)] for row in results.entries]
    return table(["queue", *(COLUMNS[name].title for name in columns)], rows)


def _cell(results: Results, row: Row, name: str) -> str:
    if name not in row.values:
        return NONE if _measure_of(name) in row.failures else ""
    value = shown(median(row.values[name]), COLUMNS[name])
    return f"**{value}**" if row in best(results, name) else value


def _measure_of(column: str) -> str:
    return next(name for name, measure in MEASURES.items() if column in measure.columns)


def best(results: Results, name: str) -> list[Row]:
    """Return who is best in a column, the limits aside."""
    rows = [row for row in results.entries if name in row.values and not row.is_limit]
    if len(rows) < 2:
        return []
    values = [round(median(row.values[name]), COLUMNS[name].digits) for row in rows]
    first = max(values) if COLUMNS[name].more_is_better else min(values)
    return [row for row, value in zip(rows, values, strict=True) if value == first]


def shown(value: float, column: Column) -> str:
    return f"{value:,.{column.digits}f}"


def _range(row: Row, name: str) -> str:
    values, column = row.values.get(name, []), COLUMNS[name]
    if not values:
        return ""
    middle = shown(median(values), column)
    return middle if len(values) == 1 else f"{middle} ({shown(min(values), column)}{TO}{shown(max(values), column)})"


def _ratio(row: Row, name: str) -> str:
    return f"{row.ratio(name):.2f}" if name in row.values else ""


def _settings(row: Row) -> list[str]:
    versions = ", ".join(f"{name} {version}" for name, version in row.versions.items())
    return [row.title, row.adding.replace("`", "``"), row.working.replace("`", "``"), versions]


def _failures(results: Results) -> list[str]:
    """Tell why there is no number where there is none: the same reason of all measures of an entry once."""
    lines = []
    for row in results.entries:
        reasons: dict[str, list[str]] = {}
        for name, reason in row.failures.items():
            reasons.setdefault(reason, []).append(name)
        for reason, names in reasons.items():
            what = "" if len(names) == len(MEASURES) else f" ({', '.join(names)})"
            lines.append(f"{row.title}{what}: ``{reason.replace('`', ' ').strip()}``")
    return lines


def table(titles: list[str], rows: list[list[str]]) -> str:
    """Return a table in reStructuredText. The first column must have no empty cells."""
    lines = [[*titles], *rows]
    widths = [max(len(line[column]) for line in lines) for column in range(len(titles))]
    ruler = "  ".join("=" * width for width in widths)
    head, *body = ["  ".join(map(str.ljust, line, widths)).rstrip() for line in lines]
    return "\n".join([ruler, head, ruler, *body, ruler, ""])


def main(arguments: list[str]) -> int:
    """Write the tables and plots again, from what was measured."""
    parser = argparse.ArgumentParser(prog="benchmarks/report.py", description=main.__doc__)
    parser.add_argument("--results", type=Path, default=HERE / "results", metavar="DIR", help="where they are")
    parser.add_argument("--no-plots", action="store_true", help="write no plots, which need matplotlib")
    options = parser.parse_args(arguments)
    write_results(Results.read(options.results / "benchmarks.json"), options.results, plots=not options.no_plots)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
