"""``limpyd-jobs stats``: how many jobs are run, how they end, how long they wait and run."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import timedelta
from fnmatch import fnmatchcase
from typing import Any

from limpyd_jobs.commandline.options import WorkerOption, one_of
from limpyd_jobs.commands.shared.command import Command
from limpyd_jobs.commands.shared.options import JSON, JSONL, READING_OPTIONS
from limpyd_jobs.commands.shared.printing import chart, print_fitted, wrapped
from limpyd_jobs.dates import shown_span, utcnow
from limpyd_jobs.query.metrics import PERIODS, Period, read_metrics, summed
from limpyd_jobs.records.metrics import BOUNDS, Histogram, Metrics
from limpyd_jobs.search.conditions import parse_moment
from limpyd_jobs.texts import MESSAGE, one_line
from limpyd_jobs.views.hints import unknown_names
from limpyd_jobs.views.merged import periods_of_all

# How many columns a chart has at most.
MAX_CHART_WIDTH = 72

GROUPS = ("queue", "class", "time")

COLUMNS = ("added", "started", "succeeded", "failed", "mean run", "95 % run within", "mean wait", "95 % wait within")


class Stats(Command):
    """Exit status: 0; 2 if the command line is wrong."""

    summary = "Tell how many jobs are run, how they end, how long they wait and run"
    examples = (
        "limpyd-jobs stats --since=-6h",
        "limpyd-jobs stats --daily --by=class",
    )
    merged = ("",)
    option_list = (
        *READING_OPTIONS,
        WorkerOption(
            "--since",
            help="Since when, as -2h or 2026-11-20 (UTC) (default: -1h; with --daily -30d). By the minute metrics are "
            "kept for two days, by the day for a year",
        ),
        WorkerOption("--daily", action="store_true", help="By the day (default: by the minute)"),
        WorkerOption(
            "--by",
            check=one_of(*GROUPS),
            default="queue",
            help="A row for each queue (the default), class, or time: minute or day",
        ),
        WorkerOption("--queue", help="Of this queue only; * and ? stand for any text"),
        WorkerOption("--class", dest="job_class", help="Of this class only, by its path, as shop.jobs.*"),
        JSON,
        JSONL,
    )

    def run(self) -> int:
        try:
            since = utcnow() - parse_moment("--since", self.options.since or ("-30d" if self.options.daily else "-1h"))
            if since <= timedelta():
                raise ValueError("option --since: it must be in the past")
            by = "day" if self.options.daily else "minute"
            periods = self.look(read_metrics, periods_of_all, since=since, by=by)
        except ValueError as error:
            self.parser.error(one_line(error, MESSAGE))
        given = {"queue": self.options.queue, "class": self.options.job_class}
        asked = [(field, "=", name) for field, name in given.items() if name and not {"*", "?"} & {*name}]
        if asked and not summed(periods, self._group):
            self.note_unknown(unknown_names, conditions=asked)
        if self.print_as_json(self._as_json(periods)):
            return 0
        if self.options.by == "time":
            self._print_times(periods)
        else:
            self._print_groups(periods, since.total_seconds())
        if not any(period.metrics for period in periods):
            self.note_foreign()
        return 0

    def _group(self, queue: str, path: str) -> str | None:
        """Return the row that metrics belong to; None if they are not asked for."""
        of_queue, of_class = self.options.queue or "*", self.options.job_class or "*"
        if not (fnmatchcase(queue, of_queue) and fnmatchcase(path, of_class)):
            return None
        return {"queue": queue or "(others)", "class": path or "(others)", "time": ""}[self.options.by]

    def _rows(self, periods: Sequence[Period]) -> dict[str, Metrics]:
        if self.options.by != "time":
            return dict(sorted(summed(periods, self._group).items()))
        return {str(period.start): summed([period], self._group).get("", Metrics()) for period in periods}

    def _added(self, periods: Sequence[Period], row: str) -> int | None:
        """Return how many jobs were added. That is known by class, once a worker noted an earlier number."""
        if self.options.queue or self.options.by == "queue":
            return None
        pattern = row if self.options.by == "class" else self.options.job_class or "*"
        found = [number for each in periods for path, number in each.added.items() if fnmatchcase(path, pattern)]
        return sum(found) if found else None

    def _as_json(self, periods: Sequence[Period]) -> list[dict[str, Any]]:
        at = {str(period.start): [period] for period in periods}
        return [
            {
                self.options.by: row,
                "added": self._added(at.get(row, periods), row),
                "started": metrics.started,
                "succeeded": metrics.succeeded,
                "failed": metrics.failed,
                "waited": _histogram(metrics.waited),
                "ran": _histogram(metrics.ran),
            }
            for row, metrics in self._rows(periods).items()
        ]

    def _print_groups(self, periods: Sequence[Period], seconds: float) -> None:
        rows = self._rows(periods)
        table = [
            (row, _number(self._added(periods, row)), *_shown(metrics), f"{metrics.started / seconds * 60:,.1f}")
            for row, metrics in rows.items()
        ]
        print_fitted([(self.options.by, *COLUMNS, "jobs/min"), *table])
        end = periods[-1].start + PERIODS["day" if self.options.daily else "minute"]
        for row in rows:
            numbers = [summed([period], self._group).get(row, Metrics()).started for period in periods]
            what = f"{one_line(row)}: begun from {periods[0].start} to {end} (UTC)"
            print(f"\n{wrapped(what)}")
            print(chart(numbers, MAX_CHART_WIDTH))

    def _print_times(self, periods: Sequence[Period]) -> None:
        at = {str(period.start): [period] for period in periods}
        table = [
            (row, _number(self._added(at[row], row)), *_shown(metrics))
            for row, metrics in self._rows(periods).items()
            if metrics.started
        ]
        print_fitted([("time (UTC)", *COLUMNS), *table])


def _number(number: int | None) -> str:
    return "" if number is None else f"{number:,}"


def _shown(metrics: Metrics) -> Sequence[str]:
    times = (metrics.ran.mean, metrics.ran.quantile(0.95), metrics.waited.mean, metrics.waited.quantile(0.95))
    numbers = (metrics.started, metrics.succeeded, metrics.failed)
    return [*(f"{number:,}" for number in numbers), *(shown_span(time) for time in times)]


def _histogram(times: Histogram) -> Mapping[str, Any]:
    bounds = [*map(float, BOUNDS), None]
    return {
        "mean": times.mean,
        "seconds": times.microseconds / 1_000_000,
        "buckets": [{"up_to": bound, "count": number} for bound, number in zip(bounds, times.counts, strict=True)],
    }
