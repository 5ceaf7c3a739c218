"""Flows: jobs that begin once others have ended. What follows from an end is a part of the step that records it."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from limpyd.model import RedisModel

from limpyd_jobs.exceptions import ClaimLost, LimpydJobsException
from limpyd_jobs.records.layout import layout_of
from limpyd_jobs.records.records import sender_of
from limpyd_jobs.redis.calls import Call, Verb, given, listed, outcome_of
from limpyd_jobs.redis.replication import CopyingSender
from limpyd_jobs.redis.scripting import Script
from limpyd_jobs.retrying import Cancel
from limpyd_jobs.texts import one_line

_add_flow = Script("flows/add_flow")
_ask_children = Script("flows/ask_children")
_ask_signal = Script("flows/ask_signal")
_send_signal = Script("flows/send_signal")
_take_back_signal = Script("flows/take_back_signal")
_signal_flow = Script("flows/signal_flow")
_cancel_flow = Script("flows/cancel_flow")
_drop_flow = Script("flows/drop_flow")
_requeue_flow = Script("flows/requeue_flow")
_tend_flow = Script("flows/tend_flow")

# For how many seconds the maker of a flow may do nothing between two steps.
MAKING_SECONDS = 60


class SpawnedBefore(Exception):
    """A job has spawned others before, by the same name; or begun to."""

    def __init__(self, flow: str, is_begun: bool) -> None:
        super().__init__(flow)
        self.flow, self.is_begun = flow, is_begun


def add_flow(
    sender: Any,
    flow: str,
    jobs: Sequence[Sequence[Any]],
    models: Sequence[type[RedisModel]],
    layouts: Sequence[str],
    idents: Callable[[Sequence[str]], list[str]],
    before: Callable[[], object] | None = None,
    **names: Any,
) -> Call[list[str]]:
    """Add the jobs of a flow, or those of one of several steps; return their pks. Refusals are exceptions: nothing is
    added then."""
    request = {"flow": flow, "jobs": listed(jobs), "models": listed(layouts), **given(**names)}

    def read(reply: Mapping[str, Any]) -> list[str]:
        pks = list(_accepted(flow, request.get("name", ""), jobs, models, reply)["pks"])
        added = idents(pks)
        if isinstance(sender, CopyingSender):
            sender.check(added)
        return pks

    return Call(sender, _add_flow, request, read, models, before=before)


def _accepted(
    flow: str, name: str, jobs: Sequence[Sequence[Any]], models: Sequence[type[RedisModel]], reply: Mapping[str, Any]
) -> Mapping[str, Any]:
    """Return the reply, or raise why the flow was not added."""
    outcome = reply["outcome"]
    if outcome == "done":
        return reply
    if outcome == "name taken":
        raise LimpydJobsException(f"A flow of the name {one_line(name)!r} runs already: {reply['flow']}")
    if outcome == "refused":
        raise ClaimLost("The job that spawned others has lost its claim: another worker may run it")
    if outcome == "canceled":
        raise Cancel("it was canceled while it ran")
    if outcome in ("spawned before", "begun before"):
        raise SpawnedBefore(reply["flow"], outcome == "begun before")
    if outcome == "dropped":
        raise LimpydJobsException(f"The flow {flow} took too long between two steps, so it was dropped: make it again")
    job = next(job for job in jobs if str(job[0]) == str(reply["number"]))
    other = f"{models[job[1] - 1].get_model_repr()}:{reply['pk']}"
    if outcome == "not unique":
        why = f"{other} has the value {one_line(reply['value'])} of the unique field {reply['field']}"
    elif outcome == "throttled":
        why = f"{other}, of the same identifier, ended too short a while ago (unique_for)"
    else:
        why = f"{other}, of the same identifier, is queued already: leave it out, or wait until that has ended"
    raise LimpydJobsException(f"The flow was not added, because of its job {one_line(job[-1])!r}: {why}")


def cancel_flow(sender: Any, flow: str, reason: str) -> Call[str]:
    """Cancel what is left of a flow; return ``done``, ``ended`` or ``gone``."""
    return Call(sender, _cancel_flow, {"flow": flow, "reason": reason}, outcome_of)


def requeue_flow(sender: Any, flow: str) -> Call[str]:
    """Put what failed or was canceled in a flow back; return ``done`` or ``gone``."""
    return Call(sender, _requeue_flow, {"flow": flow}, outcome_of)


def drop_flow(sender: Any, flow: str, silent_for: float = 0) -> Call[bool]:
    """Drop some jobs of a flow that was not made to its end; return whether there are more: not if it is ``kept``, as
    it is being made, or was made."""
    request = {"flow": flow, **given(silent_for=silent_for)}
    return Call(sender, _drop_flow, request, lambda reply: reply["outcome"] == "done" and reply["more"])


def tend_flow(sender: Any, flow: str, cursor: str = "0") -> Call[tuple[str, list[str]]]:
    """Look for ends of jobs in a flow that it does not know of; return the next cursor, ``0`` at the end, and the
    numbers of those jobs."""
    request = {"flow": flow, "cursor": cursor}
    return Call(sender, _tend_flow, request, lambda reply: (reply["cursor"], list(reply["found"])))


def wake_spawner(job_class: type[RedisModel], ident: str, flow: str) -> Call[str]:
    """Put a job in its queue that waits for what it spawned, if the flow of that is gone."""
    request = {"flow": flow, "cursor": "0", "job_model": layout_of(job_class).json, "ident": ident}
    return Call(sender_of(job_class), _tend_flow, request, outcome_of, [job_class])


@Verb
def ask_signal(job: RedisModel, token: str, name: str, delay: str) -> Call[tuple[str, str]]:
    """Ask for a signal to a running job, and let its deadline begin; return ``done`` and the value, as JSON, or ``in
    vain``, ``waits``, ``refused`` or ``gone``."""
    request = {**running(job, token), "name": name, "delay": delay}
    return Call(sender_of(type(job)), _ask_signal, request, _outcome_and("value"), [type(job)])


@Verb
def ask_children(job: RedisModel, token: str, spawn: str) -> Call[tuple[str, str, str]]:
    """Ask whether what a running job spawned has ended; return ``done`` with the flow and the policy, ``waits`` or
    ``own turn`` with the flow, or ``not spawned``, ``refused`` or ``gone``."""
    request = {**running(job, token), "spawn": spawn}
    return Call(sender_of(type(job)), _ask_children, request, _outcome_and("flow", "policy"), [type(job)])


def running(job: RedisModel, token: str) -> dict[str, Any]:
    """Return what scripts have to know of a job whose code asks for something."""
    return {"job_model": layout_of(type(job)).json, "ident": job.ident, "token": token}  # type: ignore[attr-defined]


def _outcome_and(*names: str) -> Callable[[Mapping[str, Any]], Any]:
    """Read the outcome of a reply, and some texts, each empty if it is not there."""
    return lambda reply: (reply["outcome"], *(reply.get(name) or "" for name in names))


def send_signal(job_class: type[RedisModel], ident: str, name: str, value: str) -> Call[tuple[str, str]]:
    """Send a signal to a job; return what became of it, as the script says, and which other one the job waits for."""
    request = {**_to(job_class, ident, name), "value": value}
    return Call(sender_of(job_class), _send_signal, request, _outcome_and("waits"), [job_class])


def signal_flow(sender: Any, flow: str, name: str, value: str) -> Call[tuple[str, str]]:
    """Send a signal to all jobs of a flow; return the same."""
    return Call(sender, _signal_flow, {"flow": flow, "name": name, "value": value}, _outcome_and("waits"))


def take_back_signal(job_class: type[RedisModel], ident: str, name: str) -> Call[str]:
    """Forget a signal that was sent to a job; return ``done``, or ``asked``, ``none`` or ``gone``."""
    return Call(sender_of(job_class), _take_back_signal, _to(job_class, ident, name), outcome_of, [job_class])


def take_back_from_flow(sender: Any, flow: str, name: str) -> Call[str]:
    """Forget a signal that was sent to a flow; return the same."""
    return Call(sender, _take_back_signal, {"flow": flow, "name": name}, outcome_of)


def _to(job_class: type[RedisModel], ident: str, name: str) -> dict[str, Any]:
    return {"job_model": layout_of(job_class).json, "ident": ident, "name": name}
