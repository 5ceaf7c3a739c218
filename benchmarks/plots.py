"""The plots of the results, with matplotlib: each as PNG and as SVG."""

from __future__ import annotations

from pathlib import Path
from statistics import median
from typing import TYPE_CHECKING, Any

import matplotlib

matplotlib.use("Agg")
matplotlib.rcParams["svg.hashsalt"] = "redis-limpyd-jobs"  # the same numbers make the same file

import matplotlib.pyplot as plt  # noqa: E402
from measures import COLUMNS  # noqa: E402

if TYPE_CHECKING:
    from measured import Results, Row

OURS, OTHERS, LIMIT = "#c1440e", "#6b7a8f", "#c9ced6"

PLOTS = {
    "adding": ["add", "bulk"],
    "running": ["run_1", "run_2"],
    "latency": ["latency_p50", "latency_p99"],
    "memory": ["bytes"],
    "commands": ["add_commands", "run_commands"],
    "round_trips": ["add_round_trips", "run_round_trips"],
}


def draw_results(results: Results, directory: Path) -> None:
    """Write one plot for each row of `PLOTS`."""
    for name, columns in PLOTS.items():
        columns = [column for column in columns if any(column in row.values for row in results.entries)]
        if columns:
            _draw(results, columns, directory / name)


def _draw(results: Results, columns: list[str], path: Path) -> None:
    longest = max(sum(column in row.values for row in results.entries) for column in columns)
    figure, axes = plt.subplots(1, len(columns), figsize=(6.4 * len(columns), 1 + 0.3 * longest), squeeze=False)
    for axis, column in zip(axes[0], columns, strict=True):
        _bars(axis, results, column)
    machine = results.machine
    about = f"{results.date}, {machine['cores']} cores, Redis {machine['Redis']}"
    figure.text(0.01, 0.005, about, fontsize=7, color=OTHERS)
    figure.tight_layout()
    _save(figure, path)


def _save(figure: Any, path: Path) -> None:
    for suffix in ("png", "svg"):
        figure.savefig(path.with_suffix(f".{suffix}"), dpi=110, metadata={"Date": None} if suffix == "svg" else None)
    plt.close(figure)


def _bars(axis: Any, results: Results, column: str) -> None:
    """Draw the medians as bars, the best at the top, with the range of the rounds."""
    more = COLUMNS[column].more_is_better
    rows = sorted((row for row in results.entries if column in row.values), key=lambda row: median(row.values[column]))
    rows = rows if more else rows[::-1]
    middles = [median(row.values[column]) for row in rows]
    below = [middle - min(row.values[column]) for middle, row in zip(middles, rows, strict=True)]
    above = [max(row.values[column]) - middle for middle, row in zip(middles, rows, strict=True)]
    bars = axis.barh([row.title for row in rows], middles, xerr=[below, above], ecolor="#333333", height=0.7)
    for bar, row in zip(bars, rows, strict=True):
        bar.set_color(_color(row))
    axis.bar_label(bars, [f" {middle:,.{COLUMNS[column].digits}f}" for middle in middles], fontsize=7)
    axis.set_title(f"{COLUMNS[column].title} ({'more' if more else 'less'} is better)", fontsize=9)
    axis.tick_params(labelsize=8)
    axis.spines[["top", "right"]].set_visible(False)
    if column.startswith("latency"):
        axis.set_xscale("log")
    axis.margins(x=0.15, y=0.01)


def _color(row: Row) -> str:
    return LIMIT if row.is_limit else OURS if row.peer == "limpyd_jobs_3" else OTHERS


def draw_growth(raw: dict[str, Any], path: Path) -> None:
    """Plot the time of a core for a job beside more and more of something, in relation to that beside the least."""
    kinds = raw["growth"]
    figure, axes = plt.subplots(1, len(kinds) + 1, figsize=(3.2 * (len(kinds) + 1), 3), squeeze=False)
    for axis, (kind, costs) in zip(axes[0], kinds.items(), strict=False):
        there = [cost["there"] for cost in costs]
        for name, color in (("add_cpu", OTHERS), ("run_cpu", OURS)):
            axis.plot(there, [cost[name] / costs[0][name] for cost in costs], marker="o", label=name[:3], color=color)
        axis.set_xscale("symlog", linthresh=max(1, min(filter(None, there), default=1)))
        axis.set_ylim(0, max(2, 1.1 * axis.get_ylim()[1]))
        axis.set_title(f"cost beside more {kind}", fontsize=9)
        axis.legend(fontsize=7)
    axis = axes[0][-1]
    axis.plot(*zip(*raw["worker"], strict=True), color=OURS, marker="o")
    axis.set_ylim(0, 1.2 * axis.get_ylim()[1])
    axis.set_title("memory of a worker, MB, after jobs", fontsize=9)
    for axis in axes[0]:
        axis.tick_params(labelsize=7)
        axis.spines[["top", "right"]].set_visible(False)
    figure.tight_layout()
    _save(figure, path)


def draw_history(lines: list[dict[str, Any]], directory: Path) -> None:
    """Draw the rates of all runs in relation to the bare loop, one plot for each, one line for each kind of worker."""
    rates = ["add", "bulk", "run_1", "run_2"]
    figure, axes = plt.subplots(1, len(rates), figsize=(3.2 * len(rates), 3), squeeze=False)
    for name, axis in zip(rates, axes[0], strict=True):
        for worker in sorted({worker for line in lines for worker in line["workers"]}):
            points = [(line["commit"], line["workers"].get(worker, {}).get(name)) for line in lines]
            known = [(commit, value) for commit, value in points if value is not None]
            if known:
                axis.plot(*zip(*known, strict=True), marker="o", label=worker)
        axis.set_title(f"{COLUMNS[name].title}, in bare loops", fontsize=9)
        axis.tick_params(axis="x", rotation=90, labelsize=7)
        axis.set_ylim(bottom=0)
    axes[0][2].legend(fontsize=7)
    _save(figure, directory / "history")
