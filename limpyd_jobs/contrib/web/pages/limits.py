"""The keys of limits that are in use: who holds their slots, and how many jobs wait for them."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

from limpyd_jobs.contrib.web.masking import HIDDEN, Mask
from limpyd_jobs.contrib.web.protocol import Act, Asked, Form, Page, Plan
from limpyd_jobs.contrib.web.refusals import Refusal
from limpyd_jobs.contrib.web.tasks import OnStep
from limpyd_jobs.contrib.web.users import Role
from limpyd_jobs.integration import time_span
from limpyd_jobs.query import LimitKey, rest_limit, resume_limit, set_limit
from limpyd_jobs.views import LimitRow, class_with_limits, limit_rows, rows_of, shown_span

PER_PAGE = 200

# What can be set.
NUMBERS = ("concurrency", "rate")

HERE, MARK = "/limits", "x"


@dataclass(frozen=True)
class LimitsShown:
    """Some keys of limits in which a text occurs, or in their classes, the worst first: see `limit_rows`.

    `number` is how many there are of these, `parked` for how many jobs wait for them; one that waits for two of them
    counts twice. `set_by` is the class of each by which it can be set here; empty if its value is hidden, or no class
    of it is known.
    """

    text: str
    rows: Sequence[LimitRow]
    number: int
    parked: int
    set_by: Sequence[str] = ()


def show(asked: Asked) -> LimitsShown:
    text = asked.query.get("q")
    low = text.lower()
    found = [each for each in _rows(asked) if low in f"{each.key.label} {each.job_class or each.key.owner}".lower()]
    rows = found[:PER_PAGE]
    set_by = ["" if _is_hidden(asked, each.key) else each.set_by for each in rows]
    return LimitsShown(text, rows, len(found), sum(each.key.parked for each in found), set_by)


def shown_limits(asked: Asked, paths: Collection[str]) -> list[LimitRow]:
    """Return the keys of the limits of some classes that are in use."""
    return rows_of(_rows(asked), paths) if paths else []


def _rows(asked: Asked) -> list[LimitRow]:
    found = asked.find("limits", partial(limit_rows, asked.database))
    return [row._replace(key=_masked(row.key, asked.masking.any)) for row in found]


def _is_hidden(asked: Asked, key: LimitKey) -> bool:
    """Whether something may be hidden of what is shown of a key."""
    return bool(key.value is not None and (not key.field or asked.masking.any.field(key.field, MARK) != MARK))


def _masked(key: LimitKey, secrets: Mask) -> LimitKey:
    """Return a key without a value that is secret, or may be: as of a field that is not known."""
    if key.value is None:
        return key
    return key._replace(value=secrets.field(key.field, key.value) if key.field else HIDDEN)


def change(verb: str, asked: Asked, form: Form) -> Plan:
    """Pause a key of a limit, let its jobs begin again, let it rest for some time, or set other numbers for it."""
    path, limit = form.one("class"), form.one("limit")
    value = form.get("value") if form.get("has_value") else None
    try:
        job_class = class_with_limits(path, asked.database)
    except LookupError:
        raise Refusal(404, f"The class {path} is not known here: name its module in --job-modules") from None
    label = limit if value is None else f"{limit}={value}"
    seconds = form.read("for", time_span) if verb == "rest" else None
    if verb == "rest" and not seconds:
        raise Refusal(400, "Say for how long it has to rest, such as 5m")
    numbers: dict[str, Any] = {name: form.get(name).strip() or None for name in NUMBERS}

    def do(_: OnStep) -> str:
        if verb == "set":
            now_set = set_limit(job_class, limit, value, **numbers)
            said = " ".join(f"{name}={number}" for name, number in now_set.items())
            return f"{label} has {said} now" if said else f"{label} is as its class says"
        if verb == "resume":
            resume_limit(job_class, limit, value)
            return f"{label} is resumed: its jobs begin again, unless the limit or its value is paused as a whole"
        rest_limit(job_class, limit, value, seconds)
        until = f"for {shown_span(seconds)}" if seconds else "until it is resumed"
        return f"No job of {label} begins {until}. Jobs that run go on"

    return Plan(f"{verb.capitalize()} {label}", do, back=HERE, is_short=True)


PAGE = Page(
    HERE,
    "Limits",
    show,
    "limits.html",
    "Limits",
    "limits",
    "l",
    acts=[Act(f"{HERE}/{verb}", Role.ACT, partial(change, verb)) for verb in ("pause", "resume", "rest", "set")],
    lane="records",
)
