"""On a cluster, a script is done as a whole, or not at all, whichever of its keys have moved to another server."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import suppress
from datetime import datetime
from itertools import count
from typing import Any

import pytest
import redis
from servers import Cluster
from worlds import LEASE, TOKEN, World

from limpyd_jobs import Error, Flow, Job, Queue, Schedule, chain, send_signal, transitions
from limpyd_jobs.exceptions import NotRecorded
from limpyd_jobs.models import BaseJobsModel
from limpyd_jobs.query import JobFilter
from limpyd_jobs.redis.cluster import tags
from limpyd_jobs.redis.cluster.tags import slot_of

pytestmark = pytest.mark.proof

_numbers = count()

Act = Callable[[World], Any]


def that_is(state: str) -> Act:
    return lambda world: (world.job_that_is(state), world.add("another"))


def job_of(world: World) -> Job:
    return world.job("1")


def lapsed(world: World) -> None:
    that_is("running")(world)
    world.client.zadd(f"{world.queue_key()}:_running", {job_of(world).ident: 1})


def come_due(world: World) -> None:
    that_is("delayed")(world)
    world.client.zadd(f"{world.queue_key()}:delayed", {job_of(world).ident: 1})


def known(world: World) -> dict[str, type[Job]]:
    return {world.path: world.job_class}


def add_once(world: World) -> None:
    with transitions.adding_once("token") as once:
        Job.add_job("new", "q")
    once.done()


def succeed_many(world: World) -> Any:
    fetched = world.request(token="next")
    return world.succeed(job_of(world), next_claim=fetched)


def promote(world: World) -> Any:
    return transitions.promote(Queue, [world.queue_key()], known(world))


def rescue(world: World) -> Any:
    return transitions.rescue(Queue, [world.queue_key()], 3, world.request(token="rescuer"))


def due_schedule(world: World) -> None:
    that_is("waiting")(world)
    Schedule.add("hourly", Job, cron="@hourly", queue_name="q")


def fire(world: World) -> Any:
    return Schedule.get_by_name("hourly").pause()


def prune(world: World) -> Any:
    return world.queue().prune(keep_success=0, keep_errors=0)


def make_flow(world: World) -> None:
    chain(Job.prepare("first", "q"), Job.prepare("then", "q"), name="flow")


def end_the_first(world: World) -> None:
    Job.get(identifier="first").claim("me").succeed()


def fail_the_first(world: World) -> None:
    make_flow(world)
    Job.get(identifier="first").cancel()


def ask(world: World) -> Any:
    return transitions.ask_signal(job_of(world), TOKEN, "go", "")


def wait(world: World) -> Any:
    return transitions.release(Job, job_of(world).ident, TOKEN, world.queue_key(), waits="signal go")


def ask_first(world: World) -> None:
    that_is("running")(world)
    ask(world)


def waiting_for_signal(world: World) -> None:
    ask_first(world)
    wait(world)


def spawn(world: World) -> None:
    job = job_of(world)
    vars(job)["_held_token"] = TOKEN
    job.spawn(Job.prepare("child", "q"))


def spawn_first(world: World) -> None:
    that_is("running")(world)
    spawn(world)


def filtered(verb: str, **options: Any) -> Act:
    return lambda world: getattr(JobFilter(), verb)(**options)


# What each verb needs, and the verb.
VERBS: dict[str, tuple[Act, Act]] = {
    "add": (that_is("waiting"), lambda world: world.add("new")),
    "add, delayed": (that_is("waiting"), lambda world: world.add("new", delay="+500000000")),
    "add, to a new queue": (that_is("waiting"), lambda world: world.add("new", priority=7)),
    "add once": (that_is("waiting"), add_once),
    "add many": (that_is("waiting"), lambda world: Job.add_jobs(["new", "newer"], "q")),
    "raise the priority": (that_is("waiting"), lambda world: world.add("a", priority=9)),
    "move": (that_is("waiting"), lambda world: job_of(world).enqueue_or_delay("q", 3)),
    "delay by hand": (
        that_is("waiting"),
        lambda world: job_of(world).enqueue_or_delay("q", delayed_until=datetime(2099, 1, 1)),
    ),
    "cancel": (that_is("waiting"), lambda world: job_of(world).cancel()),
    "cancel a delayed job": (that_is("delayed"), lambda world: job_of(world).cancel()),
    "requeue": (that_is("error"), lambda world: job_of(world).requeue("q")),
    "claim": (that_is("waiting"), lambda world: world.claim(token="other")),
    "claim a job": (that_is("waiting"), lambda world: job_of(world).claim(lease=LEASE)),
    "renew": (
        that_is("running"),
        lambda world: transitions.renew(world.client, Job, job_of(world).ident, TOKEN, world.queue_key(), 2 * LEASE),
    ),
    "release": (
        that_is("running"),
        lambda world: transitions.release(Job, job_of(world).ident, TOKEN, world.queue_key()),
    ),
    "succeed": (that_is("running"), lambda world: world.succeed(job_of(world))),
    "succeed, claim the next": (that_is("running"), succeed_many),
    "fail": (that_is("running"), lambda world: world.fail(job_of(world))),
    "fail, requeue": (that_is("running"), lambda world: world.fail(job_of(world), times=3)),
    "delay": (that_is("running"), lambda world: world.delay(job_of(world))),
    "finish canceled": (that_is("running set to canceled"), lambda world: world.finish_canceled(job_of(world))),
    "promote": (come_due, promote),
    "rescue": (lapsed, rescue),
    "prune": (that_is("success"), prune),
    "delete": (that_is("success"), lambda world: job_of(world).delete()),
    "add an error": (
        that_is("error"),
        lambda world: Error.add_error("q", job_of(world), ValueError("no")),
    ),
    "new queue": (that_is("waiting"), lambda world: Queue.get_queue("new", 5)),
    "pause": (that_is("waiting"), lambda world: Queue.pause("q")),
    "make a schedule": (that_is("waiting"), due_schedule),
    "pause a schedule": (due_schedule, fire),
    "cancel all": (that_is("waiting"), filtered("cancel_all")),
    "requeue all": (that_is("error"), filtered("requeue_all")),
    "delete all": (that_is("success"), filtered("delete_all")),
    "add a flow": (that_is("waiting"), make_flow),
    "end a job of a flow": (make_flow, end_the_first),
    "cancel a flow": (make_flow, lambda world: Flow.find("flow").cancel()),
    "requeue a flow": (fail_the_first, lambda world: Flow.find("flow").requeue()),
    "ask for a signal": (that_is("running"), ask),
    "wait for a signal": (ask_first, wait),
    "send a signal": (waiting_for_signal, lambda world: send_signal(job_of(world), "go")),
    "send a signal to a flow": (make_flow, lambda world: send_signal("flow", "go")),
    "spawn": (that_is("running"), spawn),
    "ask for children": (spawn_first, lambda world: transitions.ask_children(job_of(world), TOKEN, "spawn")),
    "write fields": (that_is("waiting"), lambda world: job_of(world).set_fields(priority=4)),
    "log": (that_is("waiting"), lambda world: job_of(world).log("hello")),
}


@pytest.fixture
def on_cluster(cluster: Cluster, monkeypatch: pytest.MonkeyPatch) -> Iterator[World]:
    """A world with a new tag, whose calls are refused at once."""
    monkeypatch.setattr("limpyd_jobs.redis.cluster.refusals.PATIENCE", 0.0)
    tag, database = f"verbs-{next(_numbers)}", BaseJobsModel.database
    database.connect(cluster=[server.address for server in cluster.servers[:3]], tag=tag, socket_timeout=None)
    yield World(database.connection)
    database.connect().connection_pool.disconnect()
    database.reset()


def half_done(cluster: Cluster, world: World, act: Act) -> tuple[list[str], int]:
    """Return the keys without which a verb was half done, and how many keys were tried. One at a time has moved."""
    slot = slot_of(BaseJobsModel.database.connection.connection_pool.tag)
    source, found = cluster.owner(slot), []
    to, keys = cluster.other(source), sorted(cluster.keys_in(source, slot))
    for key in keys:
        cluster.begin_move(slot, to)
        cluster.move_keys(source, to, [key])
        before = cluster.stored_in(source, slot), cluster.stored_in(to, slot)
        with suppress(redis.RedisError, NotRecorded):
            act(world)
        if (cluster.stored_in(source, slot), cluster.stored_in(to, slot)) != before:
            found.append(key)
        cluster.give_up_move(slot, source, to)
    return found, len(keys)


@pytest.mark.parametrize("verb", VERBS)
def test_verb_is_done_as_a_whole_or_not_at_all(verb: str, cluster: Cluster, on_cluster: World) -> None:
    prepare, act = VERBS[verb]
    prepare(on_cluster)
    found, tried = half_done(cluster, on_cluster, act)
    assert found == []
    assert tried > 5
    slot = slot_of(BaseJobsModel.database.connection.connection_pool.tag)
    before = cluster.stored_in(cluster.owner(slot), slot)
    act(on_cluster)
    assert cluster.stored_in(cluster.owner(slot), slot) != before


def test_key_that_exists_would_not_do_for_the_guard(
    cluster: Cluster, on_cluster: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    prepare, act = VERBS["delete"]
    prepare(on_cluster)
    monkeypatch.setattr(tags, "GUARD", "jobs:job:max_pk")
    found, _ = half_done(cluster, on_cluster, act)
    assert found
