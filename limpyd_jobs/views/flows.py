"""Flows as the command and the dashboard show them: how far each is, and its jobs as a graph, put together if many."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Container, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import cached_property
from itertools import islice
from typing import Any, NamedTuple, TypeVar

from limpyd.exceptions import DoesNotExist

from limpyd_jobs.exceptions import LimpydJobsException
from limpyd_jobs.flows import Flow, FlowNode, FlowSummary, SignalOutcome, flows_of, send_signal, take_back_signal
from limpyd_jobs.flows.listing import flow_summaries, flow_summary
from limpyd_jobs.idents import Ident
from limpyd_jobs.models.following.nodes import nodes_of
from limpyd_jobs.records import flows
from limpyd_jobs.records.audit import audited
from limpyd_jobs.records.flows import MAX_NODES, bounds_in, numbers_in, read_nodes, read_of_flow
from limpyd_jobs.redis.calls import finish
from limpyd_jobs.redis.cluster.tags import at
from limpyd_jobs.redis.database import JobsDatabase
from limpyd_jobs.search.classes import classes_of, connection_to, replies_to
from limpyd_jobs.texts import MESSAGE, count_of, one_line

T = TypeVar("T")

# Of a flow, how many nodes are read at most; and how many boxes a graph has, before nodes are put together.
MOST_NODES, MOST_BOXES = 10_000, 48

# How many classes have boxes of their own, if they are put together.
MOST_KINDS = 10

# How many ranges of numbers are followed from node to node, for the edges.
MOST_RANGES = 200_000

# Among how many flows that run, and among how many that have ended, one is looked for by a part of its name.
MOST_LOOKED = 200

# The states of nodes, those to look at first.
STATES = (
    *("error", "deleted", "canceled", "waiting for a signal", "running", "waiting", "delayed"),
    *("waiting for its children", "waiting for others", "success"),
)


class Box(NamedTuple):
    """A node of a graph: one job, or several of a class that were put together.

    Attributes
    ----------
    first: FlowNode
        The job, or the first one of several.
    name: str
        The name of the node, or of the class.
    states: mapping of str to int
        How many of its jobs are in which state, in the order of `STATES`.
    level, row: int
        Where it stands: after how many others, and at which place among those beside it, from 0.
    """

    first: FlowNode
    name: str
    states: Mapping[str, int]
    level: int
    row: int

    @property
    def number(self) -> int:
        """How many jobs it stands for."""
        return sum(self.states.values())

    @property
    def state(self) -> str:
        """The state of its job; of several, the one to look at first."""
        return next(iter(self.states))


@dataclass(frozen=True)
class FlowGraph:
    """The jobs of a flow and what comes after what, as far as that was read.

    Attributes
    ----------
    nodes: sequence of FlowNode
        The jobs that were read, in the order of their numbers.
    boxes: sequence of Box
        The jobs, or groups of them, by their levels.
    edges: sequence of tuple
        From which box to which, by their indexes.
    of_nodes: sequence of int
        Which box each of the nodes is in.
    is_grouped: bool
        Whether a box may stand for several jobs.
    """

    nodes: Sequence[FlowNode]
    boxes: Sequence[Box]
    edges: Sequence[tuple[int, int]]
    of_nodes: Sequence[int]
    is_grouped: bool

    @cached_property
    def states(self) -> Mapping[str, int]:
        """How many of its jobs are in which state."""
        return counted(each.state for each in self.nodes)

    @cached_property
    def names(self) -> Mapping[int, str]:
        """The names of its nodes by their numbers."""
        return {each.number: each.name for each in self.nodes}

    def before(self, node: FlowNode, most: int) -> tuple[list[str], int]:
        """Return the names of the first nodes that a node comes after, and how many more there are."""
        bounds = [(first, min(last, MAX_NODES)) for first, last in bounds_in(node.after)]
        numbers = islice((number for first, last in bounds for number in range(first, last + 1)), most)
        names = [self.names.get(number, f"number {number}") for number in numbers]
        return names, sum(max(last - first + 1, 0) for first, last in bounds) - len(names)


def counted(states: Iterable[str]) -> dict[str, int]:
    """Count states, those to look at first."""
    numbers = Counter(states)
    known = (*STATES, *sorted(numbers.keys() - {*STATES}))
    return {state: numbers[state] for state in known if numbers[state]}


def shown_state(flow: FlowSummary) -> str:
    """Return what to show of a flow in a word: ``building``, ``held``, ``running``, ``ended`` or ``canceled``."""
    return "canceled" if flow.canceled and flow.state == "ended" else flow.state


def sign_of(flow: FlowSummary) -> str:
    """Return the state whose sign a flow has: ``error`` if something failed and is not put back."""
    state = shown_state(flow)
    return "error" if flow.failed and state in ("running", "ended") else state


def flow_rows(text: str = "", database: JobsDatabase | None = None) -> list[FlowSummary]:
    """Return the flows in whose names a text is: those that go on first, those of them first in which something failed;
    then those that have ended, the last ones first. See `flows_of`."""
    low = text.lower()
    found = [each for each in flows_of(database) if low in f"{each.id} {each.label}".lower()]
    return sorted(found, key=lambda each: (each.state == "ended", each.state != "ended" and not each.failed))


def flow_graph(flow: str, database: JobsDatabase | None = None) -> FlowGraph:
    """Read the jobs of a flow, by its id: the first ones, if it has more than 10,000."""
    connection = connection_to(database)
    summary = flow_summary(flow, database)
    size = min(summary.size if summary else 0, MOST_NODES)
    return graph_of(finish(nodes_of(connection, flow, [*map(str, range(size + 1))])))


def graph_of(nodes: Sequence[FlowNode]) -> FlowGraph:
    """Return the graph of some nodes, in the order of their numbers."""
    edges = _Edges({node.number: at for at, node in enumerate(nodes)}, nodes)
    levels = edges.levels()
    if len(nodes) <= MOST_BOXES:
        names = [node.name for node in nodes]
        return _drawn(nodes, [*range(len(nodes))], names, levels, edges, is_grouped=False)
    kinds = _kinds_of(nodes)
    for size in _sizes(max(levels) + 1):
        keys = [(level // size, kind) for level, kind in zip(levels, kinds, strict=True)]
        if len({*keys}) <= MOST_BOXES:
            break
    groups = {key: place for place, key in enumerate(sorted({*keys}))}
    of_nodes = [groups[key] for key in keys]
    return _drawn(nodes, of_nodes, [name for _, name in groups], [band for band, _ in groups], edges, is_grouped=True)


def _sizes(number: int) -> Iterator[int]:
    """Yield how many levels are put together: one, then more and more, then all."""
    size = 1
    while size < number:
        yield size
        size *= 2
    yield number


def _kinds_of(nodes: Sequence[FlowNode]) -> list[str]:
    """Return the name of the class of each node; those of the rarer of many classes are put together."""
    kinds = [node.ident.rpartition(":")[0].rpartition(".")[2] for node in nodes]
    most = {kind for kind, _ in Counter(kinds).most_common(MOST_KINDS)}
    return [kind if kind in most else "of other classes" for kind in kinds]


@dataclass
class _Edges:
    """What nodes come after which. Their numbers stand as ranges, of which there may be many alike."""

    places: Mapping[int, int]
    nodes: Sequence[FlowNode]
    left: int = MOST_RANGES
    _known: dict[str, list[tuple[int, int]]] = field(default_factory=dict)

    def before(self, node: FlowNode) -> list[tuple[int, int]]:
        """Return where the nodes stand that a node comes after, as firsts and ends."""
        if node.after not in self._known:
            bounds = bounds_in(node.after)[: self.left]
            self.left -= len(bounds)
            self._known[node.after] = [*filter(None, map(self._places_of, bounds))]
        return self._known[node.after]

    def _places_of(self, bounds: tuple[int, int]) -> tuple[int, int] | None:
        """Numbers are places but for a few that are gone, or that are not read."""
        first, last = bounds
        last = min(last, self.nodes[-1].number)
        some = [self.places[each] for each in (first, last) if each in self.places]
        if len(some) < 2:
            some = [at for number, at in self.places.items() if first <= number <= last]
        return (min(some), max(some) + 1) if some else None

    def levels(self) -> list[int]:
        """Return after how many others each node comes. A node comes after those of lower numbers."""
        levels = [0] * len(self.nodes)
        known: dict[str, int] = {}
        for place, node in enumerate(self.nodes):
            if node.after not in known:
                parts = [levels[first : min(end, place)] for first, end in self.before(node)]
                known[node.after] = max((max(each) + 1 for each in parts if each), default=0)
            levels[place] = known[node.after]
        return levels

    def between(self, of_nodes: Sequence[int]) -> list[tuple[int, int]]:
        """Return from which box to which they lead."""
        found: set[tuple[int, int]] = set()
        known: dict[str, set[int]] = {}
        for node, box in zip(self.nodes, of_nodes, strict=True):
            if node.after not in known:
                known[node.after] = {each for first, end in self.before(node) for each in of_nodes[first:end]}
            found.update((each, box) for each in known[node.after] if each != box)
        return sorted(found)


def _drawn(
    nodes: Sequence[FlowNode],
    of_nodes: Sequence[int],
    names: Sequence[str],
    levels: Sequence[int],
    edges: _Edges,
    *,
    is_grouped: bool,
) -> FlowGraph:
    """Place the boxes: those of a level by where those stand that they come after, so that few edges cross."""
    between = edges.between(of_nodes)
    members: list[list[FlowNode]] = [[] for _ in names]
    for node, box in zip(nodes, of_nodes, strict=True):
        members[box].append(node)
    before: list[list[int]] = [[] for _ in names]
    for source, target in between:
        if levels[source] < levels[target]:
            before[target].append(source)
    rows = _rows(levels, before)
    boxes = [
        Box(some[0], name, counted(each.state for each in some), levels[at], rows[at])
        for at, (some, name) in enumerate(zip(members, names, strict=True))
    ]
    return FlowGraph(nodes, boxes, between, of_nodes, is_grouped)


def _rows(levels: Sequence[int], before: Sequence[Sequence[int]]) -> list[int]:
    rows = [0] * len(levels)
    of_level: dict[int, list[int]] = {}
    for box, level in enumerate(levels):
        of_level.setdefault(level, []).append(box)
    for _, boxes in sorted(of_level.items()):
        middles = {box: sum(rows[each] for each in before[box]) / (len(before[box]) or 1) for box in boxes}
        for row, box in enumerate(sorted(boxes, key=lambda box: (middles[box], box))):
            rows[box] = row
    return rows


class PlaceInFlow(NamedTuple):
    """The flow of a job.

    Attributes
    ----------
    flow: FlowSummary
    node: FlowNode
        What the job is there.
    before, after: list of FlowNode
        Some of those that it comes after, and of those that come after it.
    others_before, others_after: int
        How many more there are.
    """

    flow: FlowSummary
    node: FlowNode
    before: Sequence[FlowNode]
    after: Sequence[FlowNode]
    others_before: int
    others_after: int


# How many nodes beside a job are named.
MOST_BESIDE = 5


def place_in_flow(ident: str, database: JobsDatabase | None = None) -> PlaceInFlow | None:
    """Return where a job stands in its flow; None if it is in no flow, or that is not kept any more."""
    parsed, known = Ident.of(ident), classes_of(database)
    if parsed.path not in known:
        return None
    connection = connection_to(database)
    key = f"{known[parsed.path].name}:{parsed.pk}:hash"
    text, before = replies_to(connection, [("HMGET", key, "_flow", "_after")])[0] or (None, None)
    place = read_of_flow(text, before)
    flow = flow_summary(place.flow, database) if place else None
    if not place or not flow:
        return None
    sides = [numbers_in(side) for side in (place.before_it, place.after_it)]
    asked = [place.number, *(number for side in sides for number in side[:MOST_BESIDE])]
    found = {str(each.number): each for each in finish(nodes_of(connection, place.flow, asked))}
    if place.number not in found:
        return None
    before, after = ([found[each] for each in side[:MOST_BESIDE] if each in found] for side in sides)
    others_before, others_after = (max(len(side) - MOST_BESIDE, 0) for side in sides)
    return PlaceInFlow(flow, found[place.number], before, after, others_before, others_after)


def flows_named(text: str, most: int, database: JobsDatabase | None = None) -> list[FlowSummary]:
    """Return some flows for a text: the last one of that name, or id; then the newest ones in whose names it is."""
    connection, low = connection_to(database), text.lower()
    keys = [at(connection, each) for each in (flows.LIVE, flows.BUILDING, flows.ENDED)]
    exact = replies_to(connection, [("GET", at(connection, f"{flows.NAMES}{text}"))])[0]
    newest = replies_to(connection, [("ZREVRANGE", key, 0, MOST_LOOKED - 1) for key in keys])
    ids = [*dict.fromkeys([exact or text, *(each for some in newest for each in some or ())])]
    names = replies_to(connection, [("HGET", flows.key_of(connection, each), "name") for each in ids])
    some = [each for each, name in zip(ids, names, strict=True) if each in (exact, text) or low in (name or "").lower()]
    return [each for each in (flow_summary(flow, database) for flow in some[:most]) if each]


class FlowBeside(NamedTuple):
    """A flow that goes on, with the classes of some of its jobs that have not ended, and the keys of their queues."""

    flow: FlowSummary
    classes: Container[str]
    queues: Container[str]


# At how many flows, the newest ones, and at how many jobs of each it is looked for the pages of queues and classes.
MOST_FLOWS_BESIDE, MOST_OPEN = 40, 12


def flows_beside(database: JobsDatabase | None = None) -> list[FlowBeside]:
    """Return the newest flows that go on, with where some of their jobs are that have not ended."""
    connection = connection_to(database)
    ids = replies_to(connection, [("ZREVRANGE", at(connection, flows.LIVE), 0, MOST_FLOWS_BESIDE - 1)])[0] or ()
    asked = [("SRANDMEMBER", flows.key_of(connection, flow, ":open"), MOST_OPEN) for flow in ids]
    open_of = dict(zip(ids, replies_to(connection, asked), strict=True))
    nodes = {flow: finish(read_nodes(connection, flow, numbers)) for flow, numbers in open_of.items() if numbers}
    keys = [node.job for some in nodes.values() for node in some]
    stands = replies_to(connection, [("HGET", f"{key}:hash", "_queue_key") for key in keys])
    queues = dict(zip(keys, stands, strict=True))
    paths = {known.name: path for path, known in classes_of(database).items()}
    return [
        FlowBeside(
            summary,
            {paths.get(node.job.rpartition(":")[0], "") for node in nodes[summary.id]},
            {queues[node.job] for node in nodes[summary.id]},
        )
        for summary in flow_summaries([*nodes], database)
    ]


# What is said of a signal that was sent.
SIGNALED: Mapping[str, str] = {
    "received": "sent: what waited for it goes on",
    "kept": "kept: nothing waits for it yet",
    "already": "not sent: another one of that name was sent before, which counts",
    "late": "not sent: the job waited for it in vain",
    "ended": "not sent: it has ended",
}

# What becomes of a signal that was taken.
TAKEN = ("received", "kept")


def said_of_signal(outcome: SignalOutcome) -> str:
    """Return what to say of the outcome of a signal."""
    if outcome.waits_for:
        return f"kept, but what waits does so for {outcome.waits_for!r}: see limpyd-jobs flows take-back"
    return SIGNALED[outcome]


@contextmanager
def class_known(to: str) -> Iterator[None]:
    """Raise `ValueError` if the class of a job cannot be imported."""
    try:
        yield
    except (ImportError, AttributeError) as error:
        raise ValueError(f"The class of {one_line(to)} cannot be imported: {one_line(error, MESSAGE)}") from error


def value_of_signal(text: str | None) -> Any:
    """Return the value that a text stands for: what it is as JSON, else the text."""
    try:
        return None if text is None else json.loads(text)
    except (ValueError, RecursionError):
        return text


def signal(
    to: str, name: str, value: Any, database: JobsDatabase | None = None, *, unaudited: bool = False
) -> SignalOutcome:
    """Send a signal to a job, by its ident, or to a flow, by its name or id: see `send_signal`. The audit has it,
    without the value. If the class of the job cannot be imported: `ValueError`."""
    with _noting("flows signal", to, name, database, unaudited) as entry:
        outcome = send_signal(to, name, value, database)
        if outcome not in TAKEN:
            entry.numbers, entry.outcome = {"refused": 1}, f"refused: {SIGNALED[outcome]}"
    return outcome


def take_back(to: str, name: str, database: JobsDatabase | None = None, *, unaudited: bool = False) -> bool:
    """Forget a signal that no job has asked for; return False if one has: see `take_back_signal`, and `signal`."""
    with _noting("flows take-back", to, name, database, unaudited) as entry:
        is_done = take_back_signal(to, name, database)
        if not is_done:
            entry.numbers, entry.outcome = {"refused": 1}, "refused: a job has it already"
    return is_done


@contextmanager
def _noting(verb: str, to: str, name: str, database: JobsDatabase | None, unaudited: bool) -> Iterator[Any]:
    """Write to the audit what is done with a signal."""
    how: dict[str, Any] = {"verb": verb, "filter": f"{to} {name}", "unaudited": unaudited}
    refusals = (LimpydJobsException, DoesNotExist, LookupError, TypeError, ValueError)
    with audited(connection_to(database), needs_room=True, refusals=refusals, **how) as entry, class_known(to):
        yield entry


def number_to_change(verb: str, name: str, database: JobsDatabase | None = None) -> int:
    """Return how many jobs of a flow, by its name or id, there are to ``cancel`` or to ``requeue``. For the exceptions
    see `Flow.find`."""
    state = Flow.find(name, database).state()
    return int(state.open if verb == "cancel" else state.failed)


def cancel_flow(name: str, database: JobsDatabase | None = None, *, unaudited: bool = False) -> bool:
    """Cancel all jobs of a flow, by its name or id, that have not ended; return whether there were some. The audit has
    it. For the exceptions see `Flow.find` and `JobFilter.cancel_all`."""
    return _audited("flows cancel", name, lambda flow: bool(flow.cancel()), database, unaudited)


def requeue_flow(name: str, database: JobsDatabase | None = None, *, unaudited: bool = False) -> int:
    """Put the jobs of a flow that failed or were canceled back; return how many are open then. See `cancel_flow`."""

    def requeued(flow: Flow) -> int:
        flow.requeue()
        return int(flow.state().open)

    return _audited("flows requeue", name, requeued, database, unaudited)


def requeue_flow_in_words(name: str, database: JobsDatabase | None = None, *, unaudited: bool = False) -> str:
    """Do as `requeue_flow`; say what came of it."""
    number = requeue_flow(name, database, unaudited=unaudited)
    if not number and Flow.find(name, database).state().state == "held":
        return "it is held until it is its turn"
    return f"open now: {count_of(number, 'job')}"


def _audited(verb: str, name: str, act: Callable[[Flow], T], database: JobsDatabase | None, unaudited: bool) -> T:
    flow = Flow.find(name, database)
    how: dict[str, Any] = {"verb": verb, "filter": flow.name or flow.id, "unaudited": unaudited}
    with audited(connection_to(database), needs_room=True, refusals=(LimpydJobsException,), **how) as entry:
        done = act(flow)
        entry.numbers = {"done": 1 if done else 0}
    return done
