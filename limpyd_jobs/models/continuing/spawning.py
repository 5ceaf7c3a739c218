"""Jobs that the code of a job adds while it runs, and whose end it waits for."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from secrets import token_hex
from typing import Any, NamedTuple

from limpyd_jobs import transitions
from limpyd_jobs.classes.binding import check_database
from limpyd_jobs.exceptions import ClaimLost, JobInterrupted, LimpydJobsException
from limpyd_jobs.models.calls.building import (
    NodeRow,
    Plan,
    Planned,
    checked_name,
    checked_policy,
    dropped,
    made,
    row_of,
    usual_name,
)
from limpyd_jobs.models.continuing.cursors import cursors_of
from limpyd_jobs.models.continuing.signals import only_wait
from limpyd_jobs.models.following.nodes import check_succeeded, nodes_of, results_of
from limpyd_jobs.records.flows import MAX_NODES, checked, is_number, key_of, size_in
from limpyd_jobs.records.lazy_fields import held_token
from limpyd_jobs.records.records import redis_of
from limpyd_jobs.redis.calls import Commands, Steps


class Child(NamedTuple):
    """A job to be spawned, as a node of a flow."""

    number: int
    name: str
    row: NodeRow
    policy: str = "run"
    after: Sequence[int] = ()
    wait_at_most: str = ""


def spawning(job: Any, calls: Sequence[Any], name: str, on_error: str) -> Steps[None]:
    """Do what `Job.spawn` says."""
    token = _token_of(job, name)
    policy = checked_policy(on_error)
    plan = _plan_of(job, calls)
    cursors = cursors_of(job)
    if name in cursors.spawned:
        raise RuntimeError(f"{name!r} was spawned before in this run: spawn all at once, or give each its own name")
    cursors.check()
    spawner = {**transitions.running(job, token), "spawn": name, "policy": policy}
    while True:
        plan = plan._replace(flow=token_hex(8), spawner=spawner)
        try:
            yield from made(plan)
        except transitions.SpawnedBefore as before:
            if not before.is_begun:
                break
            yield from dropped(plan._replace(flow=before.flow))
        else:
            break
    cursors.spawned.add(name)


def _plan_of(job: Any, calls: Sequence[Any]) -> Plan:
    if len(calls) != 1 or not isinstance(calls[0], Planned):
        return Plan("", "", _children_of(job, calls))
    plan = calls[0].plan()
    if not plan.nodes:
        raise LimpydJobsException("The flow has no jobs: add some")
    check_database(type(job), plan.nodes[0].row.job_class)
    return plan


def _children_of(job: Any, calls: Sequence[Any]) -> list[Child]:
    if not calls:
        raise ValueError("There is nothing to spawn: give prepared calls, such as Page.prepare(number=1)")
    if len(calls) > MAX_NODES:
        raise ValueError(f"A job spawns {MAX_NODES:,} jobs at most, by one name")
    children: list[Child] = []
    names, numbers = set[str](), dict[str, int]()
    for number, call in enumerate(calls, 1):
        row = row_of(call)
        check_database(type(job), row.job_class)
        children.append(Child(number, usual_name(row, names, numbers), row))
        names.add(children[-1].name)
    return children


def results_of_children(job: Any, name: str) -> Steps[dict[str, Any]]:
    """Do what `Job.children_results` says."""
    token = _token_of(job, name)
    cursors_of(job).check()
    with only_wait(job, token, f"the jobs that it spawned by the name {name!r}"):
        outcome, flow, policy = yield transitions.ask_children.call(job, token, name)
        if outcome == "waits":
            raise JobInterrupted("it waits for the jobs that it spawned", waits=f"children {flow}")
    if outcome == "own turn":
        raise LimpydJobsException(
            f"{job.ident} cannot wait for flow {flow}, which it spawned: that is held by one_at_a_time until the flow "
            "of this job has ended. Give it another text, or do not wait for it"
        )
    if outcome == "not spawned":
        raise LimpydJobsException(f"{job.ident} has spawned nothing by the name {name!r}")
    if outcome != "done":
        raise ClaimLost(f"The claim on {job.ident} is lost: another worker may run it")
    return (yield from _results(job, flow, policy))


def _results(job: Any, flow: str, policy: str) -> Steps[dict[str, Any]]:
    client = redis_of(job)
    size, failed = checked(
        (yield Commands(client, [("HGET", key_of(client, flow), "size"), ("HKEYS", key_of(client, flow, ":failed"))]))
    )
    if not size_in(size):
        raise LimpydJobsException(f"What {job.ident} spawned is not kept any more: another program deleted it")
    if failed and policy != "run":
        numbers = sorted(filter(is_number, failed), key=int)  # not a foreign one
        for node in (yield from nodes_of(client, flow, numbers)):
            yield partial(check_succeeded, type(job).database, node)
        raise LimpydJobsException(f"A job that {job.ident} spawned failed, or was deleted")
    return (yield from results_of(client, flow, [str(number) for number in range(1, size_in(size) + 1)]))


def _token_of(job: Any, name: str) -> str:
    checked_name("The name of a spawn", name)
    return held_token(job, "spawn jobs")
