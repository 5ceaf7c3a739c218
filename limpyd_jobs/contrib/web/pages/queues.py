"""What stands in each queue; pause, resume, move, clear and delete."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from datetime import datetime, timezone
from functools import partial
from typing import Any

from limpyd_jobs.contrib.web.pages.overview import ShownRow, with_sparks
from limpyd_jobs.contrib.web.protocol import Act, Asked, Form, Page, Plan
from limpyd_jobs.contrib.web.refusals import Refusal
from limpyd_jobs.contrib.web.rendering import address
from limpyd_jobs.contrib.web.tasks import OnStep
from limpyd_jobs.contrib.web.users import Role
from limpyd_jobs.query import (
    JobFilter,
    QueueState,
    attention,
    delete_queue,
    pause_queue,
    paused_queues,
    queue_states,
    unknown_queue_models,
)
from limpyd_jobs.views import Change, filters_of_queued, queue_rows

HERE, ONE = "/queues", "/queues/queue"

# How many names that are paused, but have no queue, are shown: a program may have paused any number.
MAX_PAUSED = 100

# How many models of queues that are not known are named.
MAX_MODELS = 10

# What is on the page only, and not sent to programs.
OF_PAGE = ("rows", "names", "at")

# How many queues are on the page, unless more are asked for.
PER_PAGE, MAX_PER_PAGE = 200, 10_000


@dataclass(frozen=True)
class QueuesShown:
    """The first queues whose names have a text, and the first names that are paused but have no queue. `others` and
    `other_paused` count those left out. The page lists `rows`, one a name, the worst first, of which there are `names`.

    Without queues, `unknown_models` has the beginnings of the keys of models of queues that are not known.
    """

    queues: Sequence[QueueState]
    paused_names: Sequence[str]
    other_paused: int
    unknown_models: Sequence[str]
    q: str = ""
    others: int = 0
    rows: Sequence[ShownRow] = ()
    names: int = 0
    at: datetime | None = None

    def as_dict(self) -> Mapping[str, Any]:
        """Return what a program is sent."""
        return {each.name: getattr(self, each.name) for each in fields(self) if each.name not in OF_PAGE}


def show(asked: Asked) -> QueuesShown:
    glanced, _ = asked.looks.glance()
    states = glanced.overview.queues
    names = {(state.model, state.name) for state in states}
    paused = {name for model, name in paused_queues(asked.database) if (model, name) not in names}
    unknown = [] if states else unknown_queue_models(asked.database)[:MAX_MODELS]
    q, limit = asked.query.get("q"), asked.query.number("limit", PER_PAGE, 1, MAX_PER_PAGE)
    found = [state for state in states if q.casefold() in state.name.casefold()]
    rows = [row for row in queue_rows(glanced, attention(glanced)) if q.casefold() in row.name.casefold()]
    return QueuesShown(
        found[:limit],
        sorted(paused)[:MAX_PAUSED],
        max(0, len(paused) - MAX_PAUSED),
        unknown,
        q,
        len(found[limit:]),
        with_sparks(glanced, rows[:limit]),
        len(rows),
        datetime.now(timezone.utc),
    )


def pause(asked: Asked, form: Form, *, pauses: bool) -> Plan:
    """Pause the queues of one name or more, of all priorities, or resume them."""
    names = [*dict.fromkeys(form.all("queue"))] or [form.one("queue")]
    models = {name: _models_of(asked, name, pauses) for name in names}

    def do(_: OnStep) -> str:
        changed = [
            name
            for name in names
            if [model for model in models[name] if pause_queue(model, name, asked.database, pauses=pauses)]
        ]
        if not changed:
            return f"{what} was {'paused already' if pauses else 'not paused'}"
        return f"{what} is paused: running jobs go on" if pauses else f"{what} is resumed"

    what = names[0] if len(names) == 1 else f"Each of {len(names):,} queues"
    back = {"queue": _page_of(names[0]), "overview": "/"}.get(form.get("from"), HERE)
    title = f"{'Pause' if pauses else 'Resume'} {', '.join(names[:3])}"
    told = "Running jobs go on; no other one begins." if pauses else "Its jobs begin again."
    return Plan(title, do, (lambda: told) if form.get("ask") else None, back=back, is_short=True)


def _page_of(name: str) -> str:
    return address(ONE, name=name)


def _models_of(asked: Asked, name: str, pauses: bool) -> list[str]:
    found = {state.model for state in queue_states(name, asked.database)}
    if not pauses:
        found |= {model for model, paused in paused_queues(asked.database) if paused == name}
    if not found:
        raise Refusal(404, f"There is no queue {name}")
    return sorted(found)


def clear(asked: Asked, form: Form) -> Plan:
    """Delete the jobs that wait or are delayed in a queue: of one priority, if it is given."""
    queue = _queue_of(form)
    danger = "The jobs are deleted for good. Running jobs go on."
    title = f"Delete the jobs that wait or are delayed in {_shown(queue)}"
    return Plan.of(title, Change("delete", _queued(asked, **queue)), danger, _page_of(queue["queue"]))


def move(asked: Asked, form: Form) -> Plan:
    """Move the jobs that wait or are delayed in a queue to another one: of one priority, if it is given."""
    queue, target = _queue_of(form), form.one("target")
    if target == queue["queue"]:
        raise Refusal(400, f"The jobs are in {target} already: give the name of another queue")
    known = {state.name for state in queue_states(database=asked.database)}
    danger = "" if target in known else f"There is no queue {target} yet: it is made. A worker has to serve it."
    title = f"Move the jobs that wait or are delayed from {_shown(queue)} to {target}"
    return Plan.of(title, Change("move", _queued(asked, **queue), queue_name=target), danger, _page_of(queue["queue"]))


def _queue_of(form: Form) -> dict[str, Any]:
    """Return the conditions for the jobs of a queue."""
    name, priority = form.one("queue"), form.get("priority")
    return {"queue": name, "priority": priority} if priority else {"queue": name}


def _queued(asked: Asked, queue: str, **conditions: Any) -> list[JobFilter]:
    return filters_of_queued([queue], asked.database, **conditions)


def _shown(queue: Mapping[str, Any]) -> str:
    return " of priority ".join(queue.values())


def delete(asked: Asked, form: Form) -> Plan:
    """Delete a queue, of one priority, if it is empty."""
    name, pk, model = form.one("queue"), form.one("pk"), form.one("model")
    state = next((it for it in queue_states(name, asked.database) if (it.pk, it.model) == (pk, model)), None)
    if state is None:
        raise Refusal(404, f"There is no such queue {name}")
    if state.is_in_use:
        raise Refusal(409, f"{name} is not empty: clear it first")

    def do(_: OnStep) -> str:
        outcomes = {"deleted": "is deleted", "gone": "was gone already", "used": "has a job now, so it stays"}
        return f"{name} {outcomes[delete_queue(state, asked.database)]}"

    title = f"Delete the queue {name} of priority {state.priority}"
    return Plan(title, do, lambda: "1 queue, which is empty", "The records of its jobs stay.", HERE, is_short=True)


PAGE = Page(
    HERE,
    "Queues",
    show,
    "queues.html",
    "Queues",
    "queues",
    "q",
    acts=(
        Act("/queues/pause", Role.ACT, partial(pause, pauses=True)),
        Act("/queues/resume", Role.ACT, partial(pause, pauses=False)),
        Act("/queues/move", Role.ACT, move),
        Act("/queues/clear", Role.ADMIN, clear),
        Act("/queues/delete", Role.ADMIN, delete),
    ),
)
