"""What is written of the results: JSON, tables, and plots."""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Callable
from dataclasses import asdict
from functools import partial
from pathlib import Path
from statistics import median

from environments import HERE
from measured import Results, Row
from measures import COLUMNS, MEASURES, Column

SPEED = ["add", "bulk", "run_1", "run_2", "latency_p50", "latency_p99", "bytes"]
COST = [column for column in COLUMNS if column not in SPEED]
NONE = TO = "\N{EN DASH}"
RATES = ["add", "bulk", "run_1", "run_2"]  # what is told in relation to the bare loop, too


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
    scale, thrown_away = results.settings["scale"], results.settings.get("thrown away", 0)
    if thrown_away:
        text += f" Taken again, as the machine was disturbed: {thrown_away} measures."
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
