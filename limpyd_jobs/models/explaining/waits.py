"""What a job waits for, others of its flow or a signal, in a sentence."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from limpyd_jobs.models.following.nodes import nodes_of
from limpyd_jobs.records.flows import (
    END_OF_ALL_DATES,
    TURNS,
    Wait,
    is_number,
    key_of,
    numbers_in,
    read_of_flow,
    wait_of,
)
from limpyd_jobs.redis.calls import finish
from limpyd_jobs.redis.cluster.tags import at
from limpyd_jobs.search.classes import replies_to
from limpyd_jobs.texts import one_line

# How many jobs a sentence names.
MAX_NAMED = 5


def own_wait(stored: Mapping[str, str]) -> Wait:
    """Return which signal a job waits for, or for the jobs that it spawned; an empty one if it waits for neither."""
    wait = _wait_of(stored)
    return wait if wait and (wait.signal or wait.children) else Wait("")


def _wait_of(stored: Mapping[str, str]) -> Wait | None:
    return wait_of(stored.get("status"), stored.get("_waits"), stored.get("delayed_until"))


def what_it_waits_for(connection: Any, stored: Mapping[str, str]) -> str:
    """Say which jobs of its flow a job waits for, and since when; empty if it waits for none."""
    wait, place = _wait_of(stored), read_of_flow(stored.get("_flow"), stored.get("_after"))
    if not place or not wait or wait.signal or wait.children:
        return ""
    date = wait.date
    first, last, after = f"[{place.number}:", f"({place.number};", key_of(connection, place.flow, ":after")
    number, entries, of_flow = replies_to(
        connection,
        [
            ("ZLEXCOUNT", after, first, last),
            ("ZRANGEBYLEX", after, first, last, "LIMIT", 0, MAX_NAMED),
            ("HMGET", key_of(connection, place.flow), "name", "state", "turn"),
        ],
    )
    name, state, turn = of_flow or (None, None, None)
    numbers = sorted(filter(is_number, (entry.partition(":")[2] for entry in entries or ())), key=int)
    nodes = finish(nodes_of(connection, place.flow, [each for each in numbers if each != "0"]))
    told = ", ".join(f"{one_line(node.name)} ({node.state})" for node in nodes) + (", …" if number > MAX_NAMED else "")
    of = f"{number:,} of the {len(numbers_in(place.before_it)):,} jobs" if nodes else "the beginning"
    which = f" of its flow, {one_line(name or place.flow)}"
    if state == "held":
        which += f", which is held until {_turn_of(connection, place.flow, turn or '')}"
    latest = "" if date == END_OF_ALL_DATES else f" It runs at {date} (UTC) at the latest."
    since = stored.get("_requeued_at") or stored.get("added", "")
    return f"It waits for {of}{which}, since {since} (UTC){f': {told}' if told else ''}.{latest}"


def _turn_of(connection: Any, flow: str, turn: str) -> str:
    """Say what a flow waits for that is held."""
    key = at(connection, f"{TURNS}{turn}")
    first, before = replies_to(connection, [("LINDEX", key, 0), ("LPOS", key, flow)])
    (name,) = replies_to(connection, [("HGET", key_of(connection, first or ""), "name")])
    others = f" and {before - 1:,} more" if before and before > 1 else ""
    return f"{one_line(name or first or '')}{others}, of {one_line(repr(turn))}, has ended"
