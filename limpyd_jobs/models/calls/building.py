"""Making a flow: its jobs as a script takes them, in one step, or in several of which the last one begins it."""

from __future__ import annotations

import json
from collections.abc import Callable, Container, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from datetime import timedelta
from typing import Any, NamedTuple

from redis.exceptions import RedisError

from limpyd_jobs import transitions
from limpyd_jobs.arguments import check_size, delay_argument, wait_argument
from limpyd_jobs.classes.binding import check_database
from limpyd_jobs.classes.job_classes import path_of
from limpyd_jobs.classes.roots import has_custom_placement, roots
from limpyd_jobs.exceptions import ConfigurationException
from limpyd_jobs.fields.new_fields import default_priority
from limpyd_jobs.functions import overrides
from limpyd_jobs.models.adding import checked_for_new
from limpyd_jobs.models.calls.prepared import Prepared
from limpyd_jobs.models.identifying import LEFT_OUT
from limpyd_jobs.records.flows import ranges_of
from limpyd_jobs.records.known_classes import unwritten, was_written
from limpyd_jobs.records.layout import layout_of, layout_to_add
from limpyd_jobs.redis.calls import Call, Steps, chunks, listed
from limpyd_jobs.redis.database import sender_of, sender_to_add
from limpyd_jobs.search.classes import on

# How many jobs a flow has that is made in one step, at most, and how many each step of a larger one makes.
STEP_SIZE, PART_SIZE = 100, 50

# How many times one step notes that a job comes after another one, at most.
EDGES_AT_ONCE = 1000

# The longest names of a flow and of a node, in bytes.
LONGEST_NAME = 1000

POLICIES = ("fail", "run", "cancel")

# The fields that scripts change when other jobs end: they must do so alone.
_WRITTEN = {"status", "queued", "priority", "delayed_until", "start", "end"}


class NodeRow(NamedTuple):
    """A job of a flow to be made."""

    job_class: Any
    queue_model: Any
    queue_name: str
    priority: str
    delay: str
    prepend: bool
    identifier: str
    fields: dict[str, str]


def checked_policy(policy: object) -> str:
    """Return what a node does if one that it comes after fails."""
    if policy not in POLICIES:
        raise ValueError(f"on_error must be one of {', '.join(map(repr, POLICIES))}, not {policy!r}")
    return str(policy)


def checked_name(what: str, name: object) -> str:
    """Return the name of a flow, or of a node."""
    if not isinstance(name, str):
        raise TypeError(f"{what} must be a text, not {name!r}")
    check_size(what, name, LONGEST_NAME)
    if not name or name != name.strip() or not name.isprintable():
        raise ValueError(f"{what} must be a printable text without spaces at its ends, not {name!r}")
    return name


def checked_wait(seconds: float | timedelta | None) -> str:
    """Return for how long a node waits for others at most, as scripts take it; empty for no limit."""
    return wait_argument("wait_at_most", seconds)


def row_of(call: Any, database: Any = None) -> NodeRow:
    """Return the job that a prepared call adds, once it is checked; on another database, if one is given."""
    if not isinstance(call, Prepared):
        raise TypeError(f"A node is a prepared call, such as SendMail.prepare(to='ann'), not {call!r}")
    job_class, given = call.job_class, dict(call)
    queue_model = given.pop("queue_model", None)
    if database is not None:
        job_class, queue_model = on(job_class, database), queue_model and on(queue_model, database)
    queue_model = queue_model or job_class.queue_model
    queue_name = job_class._get_queue_name(given.pop("queue_name", None))
    priority = default_priority(job_class, given.pop("priority", 0))
    delay = delay_argument(given.pop("delayed_for", None), given.pop("delayed_until", None))
    prepend, identifier = bool(given.pop("prepend", False)), given.pop("identifier", LEFT_OUT)
    _check_class(job_class, queue_model)
    if "on_duplicate" in given:
        raise TypeError("on_duplicate has no meaning in a flow, whose jobs are all new")
    identifier, fields = checked_for_new(job_class, identifier, given)
    plain, others = layout_of(job_class).split(fields, layout_of(job_class).plain)
    if others:
        raise _unfit(job_class, f"its field {min(others)!r} is not written by the step that adds the flow")
    return NodeRow(job_class, queue_model, queue_name, priority, delay, prepend, identifier, plain)


def _check_class(job_class: Any, queue_model: Any) -> None:
    """Refuse classes whose jobs a script cannot add, or let go, alone."""
    if overrides(job_class, roots.job, "add_job"):
        raise _unfit(job_class, "it has an add_job of its own")
    if has_custom_placement(job_class, queue_model):
        raise _unfit(job_class, "it, or its queue model, has its own way to put a job in a queue")
    odd = _WRITTEN & layout_to_add(job_class).description["special"].keys()
    if odd:
        raise _unfit(job_class, f"its field {min(odd)!r} has an index of its own kind")
    check_database(job_class, queue_model)


def _unfit(job_class: Any, why: str) -> ConfigurationException:
    return ConfigurationException(f"A job of {path_of(job_class)} cannot be in a flow: {why}")


def usual_name(row: NodeRow, taken: Container[str], numbers: dict[str, int]) -> str:
    """Return the name of a node for which none is given: that of its class; if it is taken, with the next number of the
    class, from 2 on. `numbers` has the last ones."""
    usual = found = path_of(row.job_class).rpartition(".")[2]
    while found in taken:
        numbers[usual] = numbers.get(usual, 1) + 1
        found = f"{usual} {numbers[usual]}"
    return found


class Plan(NamedTuple):
    """A flow to be made: its nodes in the order of their numbers, from 1; what scripts have to know of the job that
    spawns it, if one does; and the text that it shares with those of which one runs at a time."""

    flow: str
    name: str
    nodes: Sequence[Any]  # NewNode, or what has the same attributes
    spawner: Mapping[str, Any] = {}
    turn: str = ""

    @property
    def after_each(self) -> list[list[int]]:
        """The numbers of the nodes that come after each."""
        found: list[list[int]] = [[] for _ in self.nodes]
        for node in self.nodes:
            for number in node.after:
                found[number - 1].append(node.number)
        return found


class Planned:
    """What can be made, and is not yet: a flow."""

    def plan(self) -> Plan:
        raise NotImplementedError


def made(plan: Plan) -> Steps[list[str]]:
    """Make a flow; return the pks of its jobs. If that fails, none is left."""
    _check_identifiers(plan.nodes)
    pks: list[str] = []
    calls = list(_calls(plan))
    try:
        for call in calls:
            pks += yield call
    except GeneratorExit:
        raise
    except BaseException as error:
        if pks or isinstance(error, RedisError):  # else it was refused as a whole
            yield from dropped(plan)
        raise
    return pks


def _check_identifiers(nodes: Sequence[Any]) -> None:
    """Refuse two jobs of one class and identifier, which would be queued at once."""
    first: dict[tuple[Any, str], Any] = {}
    for node in nodes:
        other = first.setdefault((node.row.job_class, node.row.identifier), node)
        if other is not node:
            what = f"of {path_of(node.row.job_class)}, with the identifier {node.row.identifier!r}"
            raise ValueError(f"{other.name!r} and {node.name!r} are one job {what}: leave one of them out")


def dropped(plan: Plan) -> Steps[None]:
    """Delete what was made of a flow, unless it is made to its end. If Redis fails, a worker will do so."""
    sender = sender_of(plan.nodes[0].row.job_class)
    with suppress(RedisError):
        while (yield transitions.drop_flow(sender, plan.flow)):
            pass


def _calls(plan: Plan) -> Iterator[Call[list[str]]]:
    """Yield the calls that make a flow."""
    after_each = plan.after_each
    heads = ranges_of(node.number for node in plan.nodes if not node.after)
    final = ranges_of(number for number, after in enumerate(after_each, 1) if not after)
    steps = list(_steps(plan.nodes))
    for number, (nodes, edges) in enumerate(steps, 1):
        is_last = number == len(steps)
        of_last = heads if is_last and (number > 1 or plan.turn) else ""
        how = {"first": number == 1, "last": is_last, "heads": of_last, "final": final, "edges": edges}
        yield _call(plan, nodes, after_each, how) if nodes else _call_for_edges(plan, how)


def _steps(nodes: Sequence[Any]) -> Iterator[tuple[Sequence[Any], str]]:
    """Yield the nodes that each step makes, and what it notes of those that come after others: each of its nodes, if
    that is empty. Others follow if there is too much to note in one step."""
    if len(nodes) <= STEP_SIZE and sum(len(node.after) for node in nodes) <= EDGES_AT_ONCE:
        yield nodes, ""
        return
    for some in chunks(nodes, PART_SIZE):
        made_with, *others = [*_edges_in_parts(some)] or [[]]
        yield some, listed(made_with)
        for edges in others:
            yield (), listed(edges)


def _edges_in_parts(nodes: Sequence[Any]) -> Iterator[list[tuple[int, str]]]:
    """Yield what some nodes come after, so much at once as one step notes."""
    part, room = list[tuple[int, str]](), EDGES_AT_ONCE
    for node in nodes:
        first = 0
        while first < len(node.after):
            taken = node.after[first : first + room]
            part.append((node.number, ranges_of(taken)))
            first, room = first + len(taken), room - len(taken)
            if not room:
                yield part
                part, room = [], EDGES_AT_ONCE
    if part:
        yield part


def _call_for_edges(plan: Plan, how: Mapping[str, Any]) -> Call[list[str]]:
    """Return the call of a step that makes no node."""
    sender = sender_to_add(plan.nodes[0].row.job_class)
    names = {"name": plan.name, "size": len(plan.nodes), "turn": plan.turn, **how, **plan.spawner}
    return transitions.add_flow(sender, plan.flow, (), (), (), list, **names)


def _call(
    plan: Plan, nodes: Sequence[Any], after_each: Sequence[Sequence[int]], how: Mapping[str, Any]
) -> Call[list[str]]:
    classes = list(dict.fromkeys(node.row.job_class for node in nodes))
    models = [*classes, *dict.fromkeys(node.row.queue_model for node in nodes)]
    places = {model: number for number, model in enumerate(models, 1)}
    registry, sender = _Registry(classes, models[len(classes) :]), sender_to_add(classes[0])

    def idents(pks: Sequence[str]) -> list[str]:
        registry.was_written()
        return [f"{path_of(node.row.job_class)}:{pk}" for node, pk in zip(nodes, pks, strict=True)]

    return transitions.add_flow(
        sender,
        plan.flow,
        [_words(node, places, after_each[node.number - 1]) for node in nodes],
        classes,
        [layout_of(model).json for model in models],
        idents,
        _making_queues(nodes),
        name=plan.name,
        size=len(plan.nodes),
        turn=plan.turn,
        registry=registry.text,
        **how,
        **plan.spawner,
    )


class _Registry:
    """What others have to know of the classes and the queue models of some nodes, if this process did not write it."""

    def __init__(self, classes: Sequence[Any], queue_models: Sequence[Any]) -> None:
        first, *others = queue_models
        self._parts = [(tuple(classes), first), *(((), model) for model in others)]
        texts = [unwritten(*part) for part in self._parts]
        self.text = listed(row for text in texts if text for row in json.loads(text)) if any(texts) else ""

    def was_written(self) -> None:
        for part in self._parts if self.text else ():
            was_written(*part)


def _words(node: Any, places: dict[Any, int], after: Iterable[int]) -> list[Any]:
    """Return a node as the script takes it."""
    row = node.row
    where = [places[row.job_class], places[row.queue_model], row.queue_name, row.priority, row.delay]
    what = [
        "1" if row.prepend else "",
        row.identifier,
        row.fields,
        node.policy,
        ranges_of(after),
        ranges_of(node.after),
    ]
    return [node.number, *where, *what, node.wait_at_most, node.name]


def _making_queues(nodes: Sequence[Any]) -> Callable[[], object] | None:
    """Return what makes the queues that a script cannot make, or must not; None if there are none."""
    places = {(node.row.queue_model, node.row.queue_name, node.row.priority) for node in nodes}
    before = list(filter(None, (transitions.asking_for(*place) for place in places)))
    return (lambda: [make() for make in before]) if before else None
