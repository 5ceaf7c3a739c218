"""Editing a job that waits or is delayed."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from limpyd.model import RedisModel

from limpyd_jobs.classes.binding import check_database
from limpyd_jobs.exceptions import NotEditable
from limpyd_jobs.records.known_classes import unwritten, was_written
from limpyd_jobs.records.layout import layout_of
from limpyd_jobs.records.records import redis_of, unique
from limpyd_jobs.redis.calls import Call, Verb, given, listed
from limpyd_jobs.redis.scripting import Script
from limpyd_jobs.statuses import STATUSES
from limpyd_jobs.texts import one_line
from limpyd_jobs.transitions.claiming import owner_of
from limpyd_jobs.transitions.placing import accept, asking_for

_edit = Script("placing/edit")


@Verb
def edit(
    job: RedisModel,
    queue_model: type[RedisModel],
    fields: Mapping[str, str | None],
    *,
    priority: str = "",
    delay: str | None = None,
    default_name: str = "",
    seen: Mapping[str, str] | None = None,
    audit: Mapping[str, Any] | None = None,
    dry: bool = False,
) -> Call[list[tuple[str, str | None, str | None]]]:
    """Change fields that a script can write (see `Layout`), the priority and the delay of a job that waits or is
    delayed; an empty delay ends its own. Return the name, the old and the new value of each field that changes."""
    check_database(type(job), queue_model)
    models = (type(job),), queue_model
    registry = "" if dry else unwritten(*models)
    request = {
        "job_model": layout_of(type(job)).json,
        "queue_model": layout_of(queue_model).json,
        "ident": job.ident,
        **given(
            **(audit or {}),
            registry=registry,
            dry=dry,
            priority=priority,
            delay=delay,
            promote=delay == "",
            default_name=default_name,
        ),
        "unset": listed(name for name, value in fields.items() if value is None),
        "seen": json.dumps(seen or {}),
    }

    def read(reply: dict[str, Any]) -> list[tuple[str, str | None, str | None]]:
        _check_edited(job, reply)
        if registry and reply["changes"]:
            was_written(*models)
        return [(name, _value(old), _value(new)) for name, old, new in reply["changes"]]

    before = asking_for(queue_model, default_name, priority) if priority and default_name and not dry else None
    stored = {name: value for name, value in fields.items() if value is not None}
    return Call(redis_of(type(job)), _edit, request, read, [type(job), queue_model], before=before, fields=stored)


def _check_edited(job: RedisModel, reply: Mapping[str, Any]) -> None:
    outcome, ident = unique(type(job), dict(reply))["outcome"], job.ident
    if outcome == "claimed":
        raise NotEditable(f"{ident} cannot be edited: {one_line(owner_of(reply.get('token')) or 'a worker')} runs it")
    if outcome == "not queued":
        status = STATUSES.by_value(reply["status"], reply["status"] or "in no queue").lower()
        raise NotEditable(f"{ident} cannot be edited: it neither waits nor is delayed, but is {one_line(status)}")
    if outcome == "changed":
        raise NotEditable(f"{ident} was not edited: its {one_line(reply['field'])} changed meanwhile")
    if outcome == "no queue":
        raise NotEditable(f"{ident} does not say in which queue it is: limpyd-jobs check tells more")
    accept(ident, reply)


def _value(text: str | bool) -> str | None:
    return text if isinstance(text, str) else None
