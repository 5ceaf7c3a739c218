"""Jobs that are added at set times: when next, whether late and why; pause, resume, run now, edit and remove."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from functools import partial
from typing import Any

from limpyd_jobs.contrib.web.masking import HIDDEN
from limpyd_jobs.contrib.web.protocol import Act, Asked, Form, Page, Plan
from limpyd_jobs.contrib.web.refusals import Refusal
from limpyd_jobs.contrib.web.rendering import address
from limpyd_jobs.contrib.web.tasks import OnStep
from limpyd_jobs.contrib.web.users import Role
from limpyd_jobs.integration import described, time_span
from limpyd_jobs.query import (
    ScheduleState,
    edit_schedule,
    next_times,
    pause_schedule,
    remove_schedule,
    run_schedule_now,
    schedule_state,
    schedules,
)

HERE = "/schedules"
ONE = "/schedules/schedule"

# How many schedules are on a page, and for how many seconds it looks why their jobs are not run in time.
PER_PAGE, MAX_PER_PAGE, TIMEOUT = 100, 1_000, 2.0

NEXT_TIMES = 10

# What can be changed with a text as it is, and with a time span.
TEXTS = ("timezone", "identifier", "queue_name", "misfire_policy")
TRIGGERS = ("cron", "interval", "date", "trigger")


@dataclass(frozen=True)
class SchedulesShown:
    """Some of the schedules in whose names a text occurs, by name."""

    text: str
    schedules: Sequence[ScheduleState]
    number: int


@dataclass(frozen=True)
class OneShown:
    """A schedule with its next times, in its time zone, or why these are not known; and what can be edited."""

    schedule: ScheduleState
    trigger: str
    times: Sequence[datetime]
    error: str
    job_fields: Mapping[str, str]
    form: Mapping[str, str]


def show(asked: Asked) -> SchedulesShown:
    text, limit = asked.query.get("q"), asked.query.number("limit", PER_PAGE, 1, MAX_PER_PAGE)
    found = schedules(text, limit, TIMEOUT, asked.database)
    return SchedulesShown(text, [_masked(asked, each) for each in found.found], found.number)


def _masked(asked: Asked, state: ScheduleState) -> ScheduleState:
    return asked.masking.of(state.job or "").schedule(state)


def show_one(asked: Asked) -> OneShown:
    state = _state_of(asked, asked.query.one("name"))
    times: list[datetime] = []
    error = ""
    try:
        times = next_times(state.name, NEXT_TIMES, asked.database)
    except Exception as failed:  # of a trigger that another program wrote
        error = described(failed)
    trigger = state.trigger if isinstance(state.trigger, str) else json.dumps(state.trigger, ensure_ascii=False)
    shown = _masked(asked, state)
    return OneShown(shown, trigger, times, error, _fields_of(shown.job_fields or ""), _form_of(shown))


def _state_of(asked: Asked, name: str) -> ScheduleState:
    try:
        return schedule_state(name, asked.database)
    except LookupError as error:
        raise Refusal(404, str(error)) from None


def _fields_of(text: str) -> dict[str, str]:
    try:
        fields = json.loads(text or "{}")
    except (ValueError, RecursionError):
        return {"(not JSON)": text}
    if not isinstance(fields, dict):
        return {"(not fields)": text}
    return {name: value if isinstance(value, str) else json.dumps(value) for name, value in fields.items()}


def _form_of(state: ScheduleState) -> dict[str, str]:
    """Return the values to be edited. A text that cannot be seen, or is masked, is left out."""
    texts = {**state._asdict(), "queue_name": state.queue}
    names = (*TEXTS, "misfire_grace_time", "priority")
    shown = {name: "" if texts[name] is None else str(texts[name]) for name in names}
    return {name: text if text.isprintable() and HIDDEN not in text else "" for name, text in shown.items()}


def pause(asked: Asked, form: Form, *, pauses: bool) -> Plan:
    name = form.one("name")

    def do(_: OnStep) -> str:
        pause_schedule(name, asked.database, pauses=pauses)
        return f"{name} is paused: queued jobs stay" if pauses else f"{name} is resumed, from its next time on"

    return Plan(f"{'Pause' if pauses else 'Resume'} {name}", do, back=_address(name), is_short=True)


def run_now(asked: Asked, form: Form) -> Plan:
    name = form.one("name")

    def do(_: OnStep) -> str:
        run = run_schedule_now(name, asked.database)
        return f"{run.ident} is added" if run.is_new else f"{run.ident} {run.why_not_added}, so no job was added"

    return Plan(f"Run {name} now", do, back=_address(name), is_short=True)


def remove(asked: Asked, form: Form) -> Plan:
    name = form.one("name")

    def do(_: OnStep) -> str:
        remove_schedule(name, asked.database)
        return f"{name} is removed"

    danger = "It is removed for good. Queued jobs stay. A schedule that a job class declares is made again."
    return Plan(f"Remove the schedule {name}", do, lambda: "1 schedule", danger, HERE, is_short=True)


def edit(asked: Asked, form: Form) -> Plan:
    """Change what the form has, if it is not as it was."""
    name = form.one("name")
    changes = _changes(_masked(asked, _state_of(asked, name)), form)
    if not changes:
        raise Refusal(400, "Nothing is changed: give another value")

    def do(_: OnStep) -> str:
        time = edit_schedule(name, asked.database, **changes)
        return f"{name} is changed. Its next time is {time:%Y-%m-%d %H:%M:%S %Z}" if time else f"{name} is over"

    return Plan(f"Change {' and '.join(sorted(changes))} of {name}", do, back=_address(name), is_short=True)


def _changes(state: ScheduleState, form: Form) -> dict[str, Any]:
    shown = _form_of(state)
    sent = {name for name, _ in form.pairs if name in shown and form.get(name) != shown[name]}
    changes: dict[str, Any] = {name: form.get(name) or None for name in TEXTS if name in sent}
    if "priority" in sent and form.get("priority"):
        changes["priority"] = form.number("priority", 0, -(10**9), 10**9)
    if "misfire_grace_time" in sent:
        changes["misfire_grace_time"] = form.read("misfire_grace_time", time_span)
    if form.get("job_fields"):
        changes["job_fields"] = form.read("job_fields", _object)
    triggers = [name for name in TRIGGERS if form.get(name)]
    if len(triggers) > 1:
        raise Refusal(400, f"Give one of {' and '.join(triggers)}, not both")
    readers = {"interval": time_span, "trigger": _object}
    changes |= {name: form.read(name, readers.get(name, str)) for name in triggers}
    return changes


def _object(text: str) -> Any:
    try:
        found = json.loads(text)
    except RecursionError:
        found = None
    if not isinstance(found, dict):
        raise ValueError("it must be an object of JSON")
    return found


def _address(name: str) -> str:
    return address(ONE, name=name)


ACTS = (
    Act(f"{HERE}/pause", Role.ACT, partial(pause, pauses=True)),
    Act(f"{HERE}/resume", Role.ACT, partial(pause, pauses=False)),
    Act(f"{HERE}/run-now", Role.ACT, run_now),
    Act(f"{HERE}/edit", Role.ADMIN, edit),
    Act(f"{HERE}/remove", Role.ADMIN, remove),
)

PAGE = Page(HERE, "Schedules", show, "schedules.html", "Schedules", "schedules", "s", acts=ACTS, lane="records")
ONE_PAGE = Page(ONE, "Schedule", show_one, "schedule.html", lane="records")
