"""What becomes of the queued job of an identifier that is added again: it is kept, or it is replaced."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from limpyd_jobs.functions import memoized
from limpyd_jobs.records.layout import layout_to_add
from limpyd_jobs.redis.calls import listed
from limpyd_jobs.texts import one_line

# What a job keeps that is replaced, or what a script gives it anew.
_KEPT = {"identifier", "status", "priority", "added", "delayed_until", "queued"}
_KEPT |= {"_queue_key", "_claim_token", "_last_claim", "_followed_by"}
_KEPT |= {"_flow", "_after", "_emitted"}  # it is the same node of its flow, and its output is still there


def replaces(job_class: Any, fields: dict[str, Any]) -> str:
    """Take `on_duplicate` out of the fields of a new job, unless its class has a field of that name. Return the names
    of the fields that the queued job of its identifier loses, as `add.lua` takes them; empty to keep them."""
    if job_class.has_field("on_duplicate"):
        return ""
    chosen = fields.pop("on_duplicate")
    if chosen not in (None, "keep", "replace", "replace_or_follow"):
        words = '"keep", "replace" or "replace_or_follow"'
        raise ValueError(f"on_duplicate is {words}, not {one_line(repr(chosen))}")
    if chosen == "replace_or_follow":
        return _or_follow(job_class)
    return _names_of(job_class) if chosen == "replace" else ""


@memoized
def _names_of(job_class: Any) -> str:
    return listed(sorted(layout_to_add(job_class).plain - _KEPT))


@memoized
def _or_follow(job_class: Any) -> str:
    return f"follow {_names_of(job_class)}"


def check_replacement(job_class: Any, fields: Mapping[str, Any], *, is_custom: bool) -> None:
    """Refuse to replace a job by what no script can write in one step, whether one is queued or not."""
    what = f"{job_class.__name__}.add_job cannot replace a queued job"
    if is_custom:
        raise ValueError(f"{what}: the class, or its queue model, has its own way to put a job in a queue")
    others = sorted(fields.keys() - layout_to_add(job_class).plain)
    if others:
        raise ValueError(f"{what} by one with the field {others[0]!r}, which no script can write")
