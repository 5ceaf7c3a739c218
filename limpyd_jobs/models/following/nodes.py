"""The nodes of flows: jobs that begin once others have ended, as they are now, and what they returned."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from limpyd_jobs.classes.job_classes import job_classes
from limpyd_jobs.exceptions import JobCanceled, JobFailed, JobGone
from limpyd_jobs.models.following.results import as_annotated, failure_of
from limpyd_jobs.records import flows
from limpyd_jobs.records.flows import OfFlow, StoredNode, Wait, checked, numbers_in, read_nodes, read_of_flow, wait_of
from limpyd_jobs.records.lazy_fields import pk_of
from limpyd_jobs.records.records import redis_of
from limpyd_jobs.redis.calls import Commands, Steps, chunks
from limpyd_jobs.redis.cluster.tags import at
from limpyd_jobs.statuses import STATUSES

# What is read of the job of each node.
_FIELDS = ("status", "_waits", "delayed_until", "_cancel_reason", "_after")


class FlowNode(NamedTuple):
    """A job of a flow, as it is now.

    Attributes
    ----------
    number: int
        The first node of a flow is number 1.
    name: str
        Its name in the flow.
    ident: str
        The ident of the job.
    status: str
        A letter of `STATUSES`; empty if the job was deleted.
    is_parked: bool
        Whether it is delayed because it waits for other nodes, for a signal, or for what it spawned.
    reason: str
        Why it was canceled, if that is known.
    after: str
        The numbers of the nodes that it comes after, such as ``1-9,12``; empty if it comes after none.
    wait: Wait
        What it waits for, if it does: `signal` is the name of a signal, `children` the id of the flow of the jobs that
        it spawned.
    """

    number: int
    name: str
    ident: str
    status: str
    is_parked: bool = False
    reason: str = ""
    after: str = ""
    wait: Wait = Wait("")

    @property
    def state(self) -> str:
        """What to show: the name of its status in lower case, ``waiting for others``, ``waiting for a signal``,
        ``waiting for its children``, or ``deleted``."""
        if self.is_parked:
            return self.wait.state
        return STATUSES.by_value(self.status, "deleted").lower() if self.status else "deleted"


def nodes_of(connection: Any, flow: str, numbers: Sequence[str] | None = None) -> Steps[list[FlowNode]]:
    """Return some nodes of a flow, in the order of their numbers; all of them if none are given."""
    stored = yield from read_nodes(connection, flow, numbers)
    paths = yield from _paths_of(connection, stored)
    found: list[FlowNode] = []
    for some in chunks(stored, flows.CHUNK):
        replies = yield Commands(connection, [("HMGET", f"{each.job}:hash", *_FIELDS) for each in some])
        found += [_node(each, paths, reply) for each, reply in zip(some, replies, strict=True)]
    return found


def _paths_of(connection: Any, stored: Sequence[StoredNode]) -> Steps[Mapping[str, str]]:
    """Return the class paths of some nodes, by the beginning of the keys of their jobs."""
    names = sorted({_model_of(each) for each in stored})
    if not names:
        return {}
    (texts,) = checked((yield Commands(connection, [("HMGET", at(connection, flows.CLASSES), *names)])))
    return {name: path for name, text in zip(names, texts, strict=True) if (path := _path_in(text))}


def _path_in(text: str | None) -> str | None:
    """Return the class path in a model as scripts take it; None if another program wrote something else there."""
    try:
        return str(json.loads(text or "{}")["path"])
    except (ValueError, LookupError, TypeError, RecursionError):
        return None


def _model_of(node: StoredNode) -> str:
    return node.job.rpartition(":")[0]


def ident_of(node: StoredNode, paths: Mapping[str, str]) -> str:
    """Return the ident of the job of a node."""
    model, _, pk = node.job.rpartition(":")
    return f"{paths.get(model, model)}:{pk}"


def _node(node: StoredNode, paths: Mapping[str, str], reply: Any) -> FlowNode:
    status, waits, delayed_until, reason, after = reply if isinstance(reply, list) else [None] * len(_FIELDS)
    wait = wait_of(status, waits, delayed_until)
    known = status or "", wait is not None, reason or "", after or "", wait or Wait("")
    return FlowNode(int(node.number), node.name, ident_of(node, paths), *known)


def check_succeeded(database: Any, node: FlowNode) -> None:
    """Raise `JobFailed` or `JobCanceled` if the job of a node failed, or was canceled."""
    if node.status == STATUSES.ERROR:
        raise JobFailed(node.ident, *failure_of(database, node.ident))
    if node.status == STATUSES.CANCELED:
        raise JobCanceled(f"{node.name}, {node.ident}, was canceled" + (f": {node.reason}" if node.reason else ""))


def place_of(job: Any) -> Steps[OfFlow | None]:
    """Return which node of which flow a job is; None if it is in no flow."""
    text, before = yield from _fields_of(job, "_flow", "_after")
    return read_of_flow(text, before)


def _fields_of(job: Any, *names: str) -> Steps[list[str | None]]:
    key = f"{type(job)._name}:{pk_of(job)}:hash"
    (reply,) = yield Commands(redis_of(job), [("HMGET", key, "status", *names)])
    if isinstance(reply, Exception):
        raise reply
    status, *found = reply
    if status is None:
        raise JobGone(job.ident)
    return list(found)


def nodes_before(job: Any) -> Steps[list[FlowNode]]:
    """Do what `Job.children` says."""
    text, before, spawned = yield from _fields_of(job, "_flow", "_after", "_spawned")
    place, found = read_of_flow(text, before), []
    if place:
        found += yield from nodes_of(redis_of(job), place.flow, numbers_in(place.before_it))
    for flow in flows.spawned_flows(spawned):
        found += yield from nodes_of(redis_of(job), flow)
    return found


def nodes_after(job: Any) -> Steps[list[FlowNode]]:
    """Do what `Job.parents` says."""
    place = yield from place_of(job)
    return (yield from nodes_of(redis_of(job), place.flow, numbers_in(place.after_it))) if place else []


def results_before(job: Any) -> Steps[dict[str, Any]]:
    """Do what `Job.results` says."""
    place = yield from place_of(job)
    return (yield from results_of(redis_of(job), place.flow, numbers_in(place.before_it))) if place else {}


def results_of(connection: Any, flow: str, numbers: Sequence[str]) -> Steps[dict[str, Any]]:
    """Return what some nodes returned, by their names, without those that failed or have not ended."""
    stored = yield from read_nodes(connection, flow, numbers)
    paths, found = (yield from _paths_of(connection, stored)), {}
    open_key, failed_key, results_key = (
        flows.key_of(connection, flow, part) for part in (":open", ":failed", ":results")
    )
    for some in chunks(stored, flows.CHUNK):
        asked = [each.number for each in some]
        commands = [("SMISMEMBER", open_key, *asked), ("HMGET", failed_key, *asked), ("HMGET", results_key, *asked)]
        with flows.readable(f"The flow {flow}"):
            are_open, failed, texts = checked((yield Commands(connection, commands)))
        for node, is_open, how, text in zip(some, are_open, failed, texts, strict=True):
            if not is_open and not how:
                found[node.name] = _loaded(ident_of(node, paths).rpartition(":")[0], text)
    return found


def _loaded(path: str, text: str | None) -> Any:
    if text is None:
        return None
    found = json.loads(text)
    known = job_classes.known.get(path)
    return as_annotated(known, found) if known else found
