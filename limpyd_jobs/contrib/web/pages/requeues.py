"""A requeue that is followed: what became of its jobs, and orders to pause, to go on or to stop."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from time import monotonic, sleep

from limpyd_jobs.contrib.web.protocol import Act, Asked, Form, Page, Plan
from limpyd_jobs.contrib.web.refusals import Refusal
from limpyd_jobs.contrib.web.rendering import address
from limpyd_jobs.contrib.web.tasks import OnStep
from limpyd_jobs.contrib.web.users import Role
from limpyd_jobs.views import Requeue, order_requeue, requeue_of, requeues

HERE = "/requeues/{token}"

# For how many seconds it waits for one that is about to begin.
BEGINS_WITHIN = 1.0

# What each order is called in an address, and in the sentence that says so.
ORDERS = {"pause": ("pause", "pauses"), "resume": ("go on", "goes on"), "stop": ("stop", "stops")}


@dataclass(frozen=True)
class RequeueShown:
    """A requeue, as it was at this moment."""

    requeue: Requeue


def masked(asked: Asked, found: Requeue) -> Requeue:
    """Return a requeue without the secrets that its filter asked for."""
    mask = asked.masking.any
    return found._replace(filter=mask.filter(found.filter), how=mask.text(found.how))


def running(asked: Asked) -> list[Requeue]:
    """Return the last requeues."""
    return [masked(asked, each) for each in requeues(asked.database)]


def show(asked: Asked) -> RequeueShown:
    token = asked.path["token"]
    found = requeue_of(token, asked.database)
    until = monotonic() + BEGINS_WITHIN
    while found is None and monotonic() < until:
        sleep(0.1)
        found = requeue_of(token, asked.database)
    if found is None:
        raise Refusal(404, "The audit has no such requeue, or not any more")
    return RequeueShown(masked(asked, found))


def order(name: str, asked: Asked, form: Form) -> Plan:
    token, (word, told) = asked.path["token"], ORDERS[name]

    def do(_: OnStep) -> str:
        order_requeue(token, word, asked.user.name, asked.database)
        return f"It {told} within a second or two"

    return Plan(f"{word.capitalize()} the requeue", do, back=address(f"/requeues/{token}"), is_short=True)


ACTS = tuple(Act(f"{HERE}/{name}", Role.ACT, partial(order, name)) for name in ORDERS)

PAGE = Page(HERE, "Requeue", show, "requeue.html", acts=ACTS, lane="records")
