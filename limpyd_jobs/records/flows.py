"""The keys of flows, and what is stored there: see ``lua/includes/flows.lua``."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, NamedTuple

from redis.exceptions import ResponseError

from limpyd_jobs.exceptions import LimpydJobsException
from limpyd_jobs.redis.calls import Commands, Steps, chunks
from limpyd_jobs.redis.cluster.tags import at
from limpyd_jobs.statuses import STATUSES

FLOW, FLOWS = "limpyd-jobs:flow:", "limpyd-jobs:flows:"

# Sorted sets of the ids of flows: those that run, those that are made in several steps, those of which something is
# left to do, and those that have ended.
LIVE, BUILDING, TODO, ENDED = (f"{FLOWS}{name}" for name in ("live", "building", "todo", "ended"))

# A hash: the models of the jobs and queues in flows, as scripts take them, by the beginning of their keys.
CLASSES = f"{FLOWS}classes"

# A hash: of the flows that jobs spawned, the beginning of the keys of that job.
SPAWNERS = f"{FLOWS}spawners"

# The id of the last flow of a name.
NAMES = f"{FLOWS}name:"

# A list: the ids of the flows that share a text, of which one runs at a time, and that have not ended.
TURNS = f"{FLOWS}turn:"

# Only one worker looks after the flows at a time: this key expires.
TENDED = f"{FLOWS}tended"

# Of how many nodes is read at once.
CHUNK = 1000

# How many nodes a flow has at most.
MAX_NODES = 100_000

# The fields `_flow`, and a range among numbers. Another program may have written anything there.
_OF_FLOW = re.compile(r"(\S+) ([0-9]+) ([a-z]+) ([0-9,-]*)")
_ID = re.compile(r"[0-9a-f]+")
_RANGE = re.compile(r"([0-9]+)-?([0-9]*)")

# What the second line of `_waits` begins with if the job waits for a signal, or for the jobs that it spawned.
_SIGNAL, _CHILDREN = "signal ", "children "

# Until when a job is delayed that waits for others without a limit.
END_OF_ALL_DATES = "9999-12-31 23:59:59"


class StoredNode(NamedTuple):
    """A node as its flow has it: its number, the beginning of the keys of its job, and its name."""

    number: str
    job: str
    name: str


class OfFlow(NamedTuple):
    """What a job knows of its flow."""

    flow: str
    number: str
    policy: str
    after_it: str
    before_it: str


class Wait(NamedTuple):
    """What the field ``_waits`` of a job says: the date until which it waits at most; what it waits for, ``after`` for
    the jobs of its flow that it comes after; and since when it waits for anything else."""

    date: str
    what: str = ""
    since: str = ""

    @property
    def signal(self) -> str:
        """The name of the signal that it waits for; empty if it waits for something else."""
        return self.what.removeprefix(_SIGNAL) if self.what.startswith(_SIGNAL) else ""

    @property
    def children(self) -> str:
        """The id of the flow of the jobs that it spawned, if it waits for these; else empty."""
        return self.what.removeprefix(_CHILDREN) if self.what.startswith(_CHILDREN) else ""

    @property
    def state(self) -> str:
        """What it waits for, in words."""
        if self.signal:
            return "waiting for a signal"
        return "waiting for its children" if self.children else "waiting for others"


def read_wait(text: str | None) -> Wait:
    """Read the field ``_waits`` of a job."""
    date, _, rest = (text or "").partition("\n")
    what, _, since = rest.partition("\n")
    since = since.partition("\n")[0]  # the claim by which it waits is for scripts
    is_endless = not date and what.startswith((_SIGNAL, _CHILDREN))
    return Wait(END_OF_ALL_DATES if is_endless else date, what, since)


def wait_of(status: str | None, waits: str | None, delayed_until: str | None) -> Wait | None:
    """Return what a job waits for, given its status, ``_waits`` and ``delayed_until``; None if it waits for
    no other jobs, and no signal."""
    wait = read_wait(waits)
    return wait if status == STATUSES.DELAYED and wait.date and wait.date == delayed_until else None


def key_of(connection: Any, flow: str, part: str = "") -> str:
    """Return a key of a flow, in the database of a connection."""
    return at(connection, f"{FLOW}{flow}{part}")


def read_of_flow(text: str | None, before: str | None) -> OfFlow | None:
    """Read the fields ``_flow`` and ``_after`` of a job; None if it is in no flow."""
    found = _OF_FLOW.fullmatch(text or "")
    if not found:
        return None
    flow, number, policy, after_it = found.groups()
    return OfFlow(flow, number, policy, after_it, before or "")


def size_in(text: str | None) -> int:
    """Return how many nodes a flow has, given its ``size``; 0 if another program wrote something else there."""
    return min(int(text[:9]), MAX_NODES) if text and text.isascii() and text.isdecimal() else 0


def spawned_flows(text: str | None) -> list[str]:
    """Return the ids of the flows of what a job has spawned, given its field ``_spawned``. Another program may have
    written anything there."""
    try:
        found = json.loads(text or "{}")
    except (ValueError, RecursionError):
        return []
    flows = found.values() if isinstance(found, dict) else ()
    return [flow for flow in flows if isinstance(flow, str) and _ID.fullmatch(flow)]


def numbers_in(ranges: str) -> list[str]:
    """Return the numbers of ``3,7-10``: no more than a flow has nodes, whatever another program wrote."""
    found: list[str] = []
    for first, last in bounds_in(ranges):
        found += map(str, range(first, min(last, first + MAX_NODES - len(found) - 1, MAX_NODES) + 1))
    return found


def bounds_in(ranges: str) -> list[tuple[int, int]]:
    """Return the first and the last number of each range of a text such as ``3,7-10``."""
    return [(int(first[:9]), int(last[:9] or first[:9])) for first, last in _RANGE.findall(ranges)]


def ranges_of(numbers: Iterable[int]) -> str:
    """Return the text of some numbers, such as ``3,7-10``."""
    parts: list[list[int]] = []
    for number in sorted(numbers):
        if parts and parts[-1][1] == number - 1:
            parts[-1][1] = number
        else:
            parts.append([number, number])
    return ",".join(str(first) if first == last else f"{first}-{last}" for first, last in parts)


def is_number(text: str) -> bool:
    """Whether a text may be the number of a node."""
    return text.isascii() and text.isdecimal() and len(text) < 10


def read_nodes(connection: Any, flow: str, numbers: Sequence[str] | None = None) -> Steps[list[StoredNode]]:
    """Return some nodes of a flow, in the order of their numbers; all of them if none are given. What another program
    wrote beside them is passed over."""
    key, found = key_of(connection, flow, ":nodes"), []
    with readable(f"The flow {flow}"):
        if numbers is None:
            (stored,) = yield Commands(connection, [("HGETALL", key)])
            found = [_node(number, text) for number, text in _pairs(stored).items()]
        for some in chunks(numbers or (), CHUNK):
            (texts,) = checked((yield Commands(connection, [("HMGET", key, *some)])))
            found += [_node(number, text) for number, text in zip(some, texts, strict=True) if text]
    return sorted((node for node in found if is_number(node.number)), key=lambda node: int(node.number))


@contextmanager
def readable(flow: Any) -> Iterator[None]:
    """Say what it means if a key of a flow is of a wrong type."""
    try:
        yield
    except ResponseError as error:
        if "WRONGTYPE" not in str(error):
            raise
        raise LimpydJobsException(f"{flow} cannot be read: another program wrote to keys of flows") from error


def checked(replies: list[Any]) -> list[Any]:
    """Return the replies to some commands, or raise the first exception among them."""
    for reply in replies:
        if isinstance(reply, Exception):
            raise reply
    return replies


def _node(number: str, text: str) -> StoredNode:
    return StoredNode(number, *text.partition(" ")[::2])


def _pairs(reply: Any) -> Mapping[str, str]:
    if isinstance(reply, Exception):
        raise reply
    return reply if isinstance(reply, Mapping) else dict(zip(reply[::2], reply[1::2], strict=True))
