"""The pages of what jobs wait for beside workers: limits and flows."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import partial

from limpyd_jobs.commands.screen.lines import Column, line, paragraphs, table
from limpyd_jobs.commands.screen.pages import OF_STATE, Asked, Item, Page, Row, ago, is_met
from limpyd_jobs.dates import span
from limpyd_jobs.flows import Flow, FlowNode, FlowSummary
from limpyd_jobs.texts import count_of
from limpyd_jobs.views.flows import flow_rows, shown_state, sign_of
from limpyd_jobs.views.limits import LimitRow, limit_rows

# How many rows a page lists.
MOST = 200

# The signs and styles of limits, and of flows and their jobs.
_OF_LIMITS = {"paused": ("paused", "warning"), "late": ("warning", "warning"), "full": ("running", "running")}
_OF_FLOWS = {**OF_STATE, "ended": ("well", "well"), "canceled": ("gone", "weak"), "held": ("paused", "weak")}

_LIMITS = (
    Column("", 0),
    Column("limit", 0, is_prose=True, least=20),
    Column("running", 3, is_number=True),
    Column("waiting", 6, is_number=True),
    Column("oldest", 5, is_number=True),
    Column("state", 4, is_prose=True),
    Column("class", 1, is_prose=True),
)

_FLOWS = (
    Column("", 0),
    Column("flow", 0, is_prose=True, least=20),
    Column("state", 6, is_prose=True),
    Column("ended", 5, is_number=True),
    Column("failed", 4, is_number=True),
    Column("made", 3, is_number=True),
)

_NODES = (
    Column("", 0),
    Column("job", 0, is_prose=True, least=20),
    Column("state", 6),
    Column("after", 3),
    Column("reason", 2, is_prose=True),
)


class Limits(Page):
    """The keys of limits that are in use, the worst first."""

    title = "limits"

    def read(self) -> Sequence[LimitRow]:  # type: ignore[override]
        return limit_rows()

    def rows(self, asked: Asked) -> Iterator[Row]:
        if not isinstance(asked.data, list):
            yield from _not_read(asked)
            return
        if not asked.data:
            yield Row(line(("No job holds a slot of a limit, or waits for one.", "weak")))
            return
        found = [row for row in asked.data if is_met(asked, row.masked.label, *row.classes)]
        heading, lines = table(_LIMITS, [_cells_of_limit(row, asked) for row in found[:MOST]], asked.width)
        yield Row(heading, is_heading=True)
        for row, shown in zip(found, lines, strict=False):
            yield Row(shown, Item("page", partial(OfLimit, row), row.masked.label))
        yield from _others(len(found), len(asked.data), "limit")


def _cells_of_limit(row: LimitRow, asked: Asked) -> list[tuple[str, str]]:
    key, (sign, style) = row.masked, _OF_LIMITS.get(row.sign, ("well", "well"))
    allowed = "" if key.allowed is None else f" of {key.allowed:,}"
    return [
        (asked.signs[sign], style),
        (key.label, ""),
        (f"{key.taken:,}{allowed}", ""),
        (f"{key.parked:,}", "" if key.parked else "weak"),
        ("" if key.waited is None else span(key.waited), style if row.sign == "late" else ""),
        (key.state, style),
        (", ".join(row.classes) or key.owner, "weak"),
    ]


class OfLimit(Page):
    """A key of a limit, and who holds its slots."""

    def __init__(self, row: LimitRow) -> None:
        self._row, self.title = row, f"limit {row.masked.label}"

    def rows(self, asked: Asked) -> Iterator[Row]:
        key = self._row.masked
        yield Row(line((key.label, "title"), f"  {key.taken:,} running, {key.parked:,} waiting  {key.state}"))
        if key.set:
            yield Row(line(("set: ", "weak"), " ".join(f"{name}={value}" for name, value in key.set.items())))
        path = next(iter(self._row.classes), "")
        if path and not self._row.is_secret:
            verb = "resume" if key.rests_for else "pause"
            yield Row(line(("  ", ""), (f"limpyd-jobs limits {verb} {path} {key.label}", "link")))
        yield Row([])
        yield Row(line(("held by" if key.holders else "No job holds a slot of it.", "heading")))
        for ident in key.holders:
            yield Row(line(ident), Item("job", _Ident(ident), ident))


class _Ident:
    """A job of which only the ident is known."""

    def __init__(self, ident: str) -> None:
        self.ident = ident


class Flows(Page):
    """The flows: those in which something failed first."""

    title = "flows"

    def read(self) -> Sequence[FlowSummary]:  # type: ignore[override]
        return flow_rows()

    def rows(self, asked: Asked) -> Iterator[Row]:
        if not isinstance(asked.data, list):
            yield from _not_read(asked)
            return
        if not asked.data:
            yield Row(line(("There is no flow.", "weak")))
            return
        found = [each for each in asked.data if is_met(asked, each.label, each.id)]
        heading, lines = table(_FLOWS, [_cells_of_flow(each, asked) for each in found[:MOST]], asked.width)
        yield Row(heading, is_heading=True)
        for each, shown in zip(found, lines, strict=False):
            yield Row(shown, Item("page", partial(OfFlow, each), each.label))
        yield from _others(len(found), len(asked.data), "flow")


def _cells_of_flow(flow: FlowSummary, asked: Asked) -> list[tuple[str, str]]:
    sign, style = _OF_FLOWS.get(sign_of(flow), ("running", "running"))
    return [
        (asked.signs[sign], style),
        (flow.label, ""),
        (shown_state(flow), style),
        (f"{flow.size - flow.open:,} of {flow.size:,}", ""),
        (f"{flow.failed:,}" if flow.failed else "", "error"),
        (f"{ago(flow.added, asked.now)} ago" if flow.added else "", "weak"),
    ]


class OfFlow(Page):
    """The jobs of a flow."""

    def __init__(self, flow: FlowSummary) -> None:
        self._flow, self.title = flow, f"flow {flow.label}"

    def read(self) -> Sequence[FlowNode]:  # type: ignore[override]
        return Flow.find(self._flow.id).nodes()

    def rows(self, asked: Asked) -> Iterator[Row]:
        if not isinstance(asked.data, list):
            yield from _not_read(asked)
            return
        found = [each for each in asked.data if is_met(asked, each.name, each.ident, each.state)]
        cells = []
        for node in found[:MOST]:
            sign, style = _OF_FLOWS.get(node.state, ("gone", "weak"))
            cells.append(
                [
                    (asked.signs[sign], style),
                    (f"{node.number} {node.name}", ""),
                    (node.state, style),
                    (", ".join(map(str, node.after)), "weak"),
                    (node.reason or "", "weak"),
                ]
            )
        heading, lines = table(_NODES, cells, asked.width)
        yield Row(heading, is_heading=True)
        for node, shown in zip(found, lines, strict=False):
            yield Row(shown, Item("job", node, node.ident))
        yield from _others(len(found), len(asked.data), "job")


def _others(found: int, number: int, what: str) -> Iterator[Row]:
    """Yield how many are not listed: there are too many, or the words after / leave none."""
    if not found:
        yield Row(line((f"None of {count_of(number, what)} has these words", "weak")))
    elif found > MOST:
        yield Row(line((f"{count_of(found - MOST, f'more {what}')}: / finds one by its name", "weak")))


def _not_read(asked: Asked) -> Iterator[Row]:
    """Yield what is said before something is read, or why it cannot be."""
    why = asked.data if isinstance(asked.data, str) else ""
    return (Row(each) for each in paragraphs(why or "…", asked.width, "error" if why else "weak"))
