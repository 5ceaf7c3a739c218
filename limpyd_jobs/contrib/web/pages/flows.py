"""Flows: how far each is, the graph of its jobs with their states, live; cancel and requeue."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial

from limpyd_jobs.contrib.web.pictures.graphs import Graph, drawn
from limpyd_jobs.contrib.web.protocol import Act, Asked, Form, Page, Plan
from limpyd_jobs.contrib.web.refusals import Refusal
from limpyd_jobs.contrib.web.rendering import address
from limpyd_jobs.contrib.web.tasks import OnStep
from limpyd_jobs.contrib.web.users import Role
from limpyd_jobs.integration import one_line
from limpyd_jobs.query import Tally
from limpyd_jobs.views import (
    FlowBeside,
    FlowGraph,
    FlowNode,
    FlowSummary,
    cancel_flow,
    flow_graph,
    flow_rows,
    flows_beside,
    flows_named,
    requeue_flow_in_words,
    said_of_signal,
    signal,
    value_of_signal,
)

HERE = "/flows"
ONE = "/flows/flow"

# How many flows are on a page, and how many jobs of one are listed.
PER_PAGE, MAX_PER_PAGE, MAX_NODES = 100, 3_000, 50

# How many others that a job comes after are named.
MAX_BEFORE = 3

# How many characters of the value of a signal are shown.
MAX_VALUE = 200

# What a verb does that cannot be undone, and what it leaves as it is.
SAID = {
    "Cancel": (
        "What waits is canceled, and jobs that run are asked to end: what they return is not kept.",
        "Jobs that have ended. Requeue puts back those that were canceled.",
    ),
    "Requeue": ("", "Jobs that have succeeded. Jobs that come after others wait for them again."),
}


@dataclass(frozen=True)
class FlowsShown:
    """Some flows in whose names a text occurs."""

    text: str
    flows: Sequence[FlowSummary]
    number: int


@dataclass(frozen=True)
class NodeShown:
    """A job of a flow, the names of some that it comes after, and how many more these are."""

    node: FlowNode
    after: Sequence[str]
    others: int


@dataclass(frozen=True)
class FlowShown:
    """A flow, the graph of its jobs, and some of these as a list.

    Attributes
    ----------
    flow: FlowSummary
    states: mapping of str to int
        How many of the jobs that were looked at are in which state.
    looked: int
        At how many of its jobs it looked.
    is_grouped: bool
        Whether a box of the graph may stand for several jobs.
    state, group: str
        Of which jobs the list is: those in a state, or those in the box with a job of that number; empty for all.
    nodes: sequence of NodeShown
    number: int
        How many such jobs there are.
    signals: mapping of str to int
        For which signals its jobs wait, and how many of them for each.
    """

    flow: FlowSummary
    states: Mapping[str, int]
    looked: int
    is_grouped: bool
    across: Graph
    down: Graph
    state: str
    group: str
    nodes: Sequence[NodeShown]
    number: int
    signals: Mapping[str, int]

    @property
    def name(self) -> str:
        return self.flow.label


def show(asked: Asked) -> FlowsShown:
    text, limit = asked.query.get("q"), asked.query.number("limit", PER_PAGE, 1, MAX_PER_PAGE)
    found = flow_rows(text, asked.database)
    return FlowsShown(text, found[:limit], len(found))


def show_one(asked: Asked) -> FlowShown:
    flow = _found(asked, asked.query.one("name"))
    graph = asked.find(("flow", flow.id), partial(flow_graph, flow.id, asked.database))
    state, group = asked.query.get("state"), asked.query.get("group")
    nodes = [*_chosen(graph, state, group)]
    if graph.is_grouped:  # those to look at first
        ranks = {each: rank for rank, each in enumerate(graph.states)}
        nodes.sort(key=lambda each: (ranks[each.state], each.number))
    return FlowShown(
        flow=flow,
        states=graph.states,
        looked=len(graph.nodes),
        is_grouped=graph.is_grouped,
        across=drawn(graph, is_down=False),
        down=drawn(graph, is_down=True),
        state=state,
        group=group,
        nodes=[NodeShown(_masked(asked, each), *graph.before(each, MAX_BEFORE)) for each in nodes[:MAX_NODES]],
        number=len(nodes),
        signals=Counter(each.wait.signal for each in graph.nodes if each.wait.signal),
    )


def shown_flows(asked: Asked, is_there: Callable[[FlowBeside], bool]) -> list[FlowSummary]:
    """Return the flows that go on of which a job that has not ended is in a place: those first of which jobs failed."""
    found = asked.find("flows beside", partial(flows_beside, asked.database))
    return sorted((each.flow for each in found if is_there(each)), key=lambda flow: not flow.failed)


def _masked(asked: Asked, node: FlowNode) -> FlowNode:
    return node._replace(reason=asked.masking.any.text(node.reason)) if node.reason else node


def _chosen(graph: FlowGraph, state: str, group: str) -> Sequence[FlowNode]:
    box = next((graph.of_nodes[at] for at, each in enumerate(graph.nodes) if f"{each.number}" == group), None)
    return [
        each
        for each, of in zip(graph.nodes, graph.of_nodes, strict=True)
        if (not state or each.state == state) and (not group or of == box)
    ]


def _found(asked: Asked, name: str) -> FlowSummary:
    """Return a flow by its id, or by its name: the last one of that name."""
    found = flows_named(name, 1, asked.database)
    if not found or name not in (found[0].id, found[0].name):
        raise Refusal(404, f"There is no flow {name}, or it is not kept any more")
    return found[0]


def cancel(asked: Asked, form: Form) -> Plan:
    flow = _found(asked, form.one("flow"))

    def do(_: OnStep) -> str:
        was_open = cancel_flow(flow.id, asked.database)
        return "its jobs are canceled; those that run end at their next sign of life" if was_open else "it had ended"

    return _plan("Cancel", flow, flow.open, do)


def requeue(asked: Asked, form: Form) -> Plan:
    flow = _found(asked, form.one("flow"))

    def do(_: OnStep) -> str:
        return requeue_flow_in_words(flow.id, asked.database)

    return _plan("Requeue", flow, flow.failed, do)


def send(asked: Asked, form: Form) -> Plan:
    """Send a signal to a job that waits for it, by its ident, or to all jobs of a flow, by its id."""
    to, name, value = form.one("to"), form.one("signal"), form.get("value")
    flow = next(iter(flows_named(to, 1, asked.database)), None)
    is_flow = flow is not None and flow.id == to
    shown = flow.label if flow and is_flow else to

    def do(_: OnStep) -> str:
        return said_of_signal(signal(to, name, value_of_signal(value or None), asked.database))

    return Plan(
        title=f"Send the signal {one_line(name)} to {shown}",
        do=do,
        count=lambda: f"its value is {one_line(value, MAX_VALUE)}" if value else "it has no value",
        danger="Only the first signal of a name counts: another one cannot take its place.",
        back=address(ONE, name=to) if is_flow else address(f"/jobs/{to}"),
        is_short=True,
    )


def _plan(verb: str, flow: FlowSummary, number: int, do: Callable[[OnStep], str]) -> Plan:
    danger, stays = SAID[verb]
    return Plan(
        title=f"{verb} the flow {flow.label}",
        do=do,
        count=lambda: Tally.of(Counter(done=number)),
        danger=danger,
        back=address(ONE, name=flow.id),
        is_short=True,
        verb=verb,
        is_grave=verb == "Cancel",
        stays=stays,
    )


ACTS = (
    Act(f"{HERE}/cancel", Role.ACT, cancel),
    Act(f"{HERE}/requeue", Role.ACT, requeue),
    Act(f"{HERE}/signal", Role.ACT, send),
)

PAGE = Page(HERE, "Flows", show, "flows.html", "Flows", "flows", "f", acts=ACTS, lane="records")
ONE_PAGE = Page(ONE, "Flow", show_one, "flow.html", lane="records")
