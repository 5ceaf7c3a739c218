"""Each script, and BLPOP, loses its request or its reply once: no job is lost, none is added or run twice."""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

import boundaries
import pytest
import redis
from boundaries import JOBS, LATER, LEFTOVERS, MODELS, QUEUE, Task, Told, add, all_of, only_job, worker
from invariants import FINAL, violations
from proxy import Fault, Proxy
from servers import RedisServer, wait_until

from limpyd_jobs import Error, Job, LimpydJobsException, Queue, transitions
from limpyd_jobs.query import JobFilter, edit_job
from limpyd_jobs.records.metrics import KEY, LENGTH, Metrics
from limpyd_jobs.redis.database import JobsDatabase
from limpyd_jobs.schedules import Schedule
from limpyd_jobs.transitions import Delivery
from limpyd_jobs.workers import backoff
from limpyd_jobs.workers.claiming import claimer
from limpyd_jobs.workers.fleet.metrics import WorkerMetrics
from limpyd_jobs.workers.maintenance import rescue
from limpyd_jobs.workers.run import Runs

pytestmark = pytest.mark.usefixtures("redis_client")

LOSSES = [fault for fault in Fault if fault is not Fault.DELAY]
NEVER = 3600


@pytest.fixture(autouse=True)
def _no_patience(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rescue, "ORPHAN_SEEN_FOR", 0.01)
    monkeypatch.setattr(backoff, "FIRST_PAUSE", 0.01)
    monkeypatch.setattr(claimer, "REGISTRATION_MARGIN", 0.05)


@pytest.fixture
def proxy(redis_server: RedisServer) -> Iterator[Proxy]:
    with Proxy(redis_server.socket) as proxy:
        yield proxy


@pytest.fixture
def behind(
    request: pytest.FixtureRequest, proxy: Proxy, redis_server: RedisServer, jobs_database: JobsDatabase
) -> Iterator[Callable[[], None]]:
    """Put the models behind the proxy. They wait for a reply only for a moment if it never comes."""
    seconds = 0.5 if request.getfixturevalue("fault") is Fault.SWALLOW else 20
    yield lambda: jobs_database.connect(unix_socket_path=proxy.socket, socket_timeout=seconds)
    jobs_database.connect(unix_socket_path=redis_server.socket)


def statuses(client: redis.Redis) -> dict[str, str]:
    """The status of each job, by class and identifier; ``live`` if it is still queued."""
    found = {}
    for job_class in JOBS:
        for key in client.scan_iter(f"{job_class._name}:*:hash"):
            stored = client.hgetall(key)
            found[key] = "live" if stored.get("queued") else stored.get("status", "")
    return found


def all_ended(client: redis.Redis) -> bool:
    return all(status in FINAL for status in statuses(client).values())


# -- What an application calls


@dataclass(frozen=True)
class Call:
    """What is called, again if it fails; what is there before; and which statuses jobs have in the end."""

    call: Callable[[], Any]
    before: Callable[[], Any] = lambda: None
    then: str = "s"


claimed: list[Delivery] = []
objects: list[Task] = []


def release() -> None:
    fetched = claimed[-1]
    transitions.release(Task, fetched.ident, fetched.token, fetched.queue_key)


def raise_schedule() -> None:
    Schedule.get_by_name("hourly").edit(priority=5)


def add_once() -> None:
    with transitions.adding_once("token"):
        Task.add_job("a")


CALLS = {
    "add": Call(add()),
    "add, existing": Call(add(), add()),
    "add, raising the priority": Call(add(priority=5), add()),
    "add, delayed": Call(add(**LATER)),
    "add_once": Call(add_once),
    "add_once, existing": Call(add_once, add()),
    "add_many": Call(lambda: Task.add_jobs(["a"])),
    "move": Call(lambda: only_job().enqueue_or_delay(priority=5), add()),
    "requeue": Call(lambda: only_job().requeue(), all_of(add("fails"), boundaries.run()), "e"),
    "edit": Call(lambda: edit_job(only_job().ident, priority=5, seen={"priority": "0"}), add()),
    "requeue_many": Call(
        lambda: JobFilter("status=error").requeue_all(rate=1000), all_of(add("fails"), boundaries.run()), "e"
    ),
    "release": Call(release, all_of(add(), lambda: claimed.append(boundaries.claim()))),
    "claim_job": Call(lambda: objects[-1].claim("me").release(), all_of(add(), lambda: objects.append(only_job()))),
    "cancel": Call(lambda: only_job().cancel(), add(), "c"),
    "get_queue": Call(lambda: Queue.get_queue(QUEUE, 7), add()),
    "list_queues": Call(lambda: Queue.count_waiting_jobs(QUEUE), add()),
    "set_fields": Call(lambda: only_job().priority.hset(4), add()),
    "unset_fields": Call(lambda: only_job().cancel_on_error.delete(), add()),
    "due_schedules": Call(boundaries.enqueue_due_schedules, boundaries.schedule()),
    "enqueue_due": Call(boundaries.enqueue_due_schedules, boundaries.schedule()),
    "enqueue_due, to pass over a time": Call(
        boundaries.enqueue_due_schedules, all_of(add(), boundaries.schedule(misfire_grace_time=0))
    ),
    "set_schedule": Call(all_of(raise_schedule, boundaries.enqueue_due_schedules), boundaries.schedule()),
}


@pytest.mark.parametrize("fault", LOSSES, ids=lambda fault: fault.name.lower())
@pytest.mark.parametrize("name", CALLS)
def test_a_call_that_failed_may_be_repeated(
    name: str, fault: Fault, redis_client: redis.Redis, proxy: Proxy, behind: Callable[[], None]
) -> None:
    case = CALLS[name]
    script = name.partition(",")[0]
    case.before()
    behind()
    proxy.on(script, fault)
    with pytest.raises(redis.RedisError):
        case.call()
    with suppress(LimpydJobsException):  # that it is done already
        case.call()
    assert proxy.faults == [script]
    assert violations(redis_client, *MODELS) == []
    boundaries.make_due()
    runs = end_all(redis_client)
    assert list(statuses(redis_client).values()) == [case.then]
    assert violations(redis_client, *MODELS) == []
    assert sum(runs.values()) == (0 if case.then == "c" else 1)


# A worker that has nothing else to do claims the next job in the step that ends one.
ALONE = {"lease": 240, "fetch_delayed_delay": 60, "fetch_priorities_delay": 60}

WORK = [
    # what is lost, what is there before, how often jobs are run, parameters of the worker
    ("claim", add(), 1, {}),
    ("succeed", all_of(add("a"), add("b"), add("c")), 3, ALONE),
    ("succeed_many", all_of(*map(add, "abcdefg")), 7, {**ALONE, "prefetch": 3}),
    ("succeed_many", all_of(*map(add, "abcdefg")), 7, {**ALONE, "prefetch": "auto", "prefetch_time": 3600}),
    (
        "release",
        all_of(*map(add, [*"abc", "takes a while", *"def"])),
        7,
        {**ALONE, "prefetch": "auto", "prefetch_time": 0.2},
    ),
    ("fail", add("fails"), 1, {}),
    ("fail", add("fails"), 2, {"requeue_times": 1}),
    ("fail", add("fails", Told), 2, {"requeue_times": 1}),
    ("requeue", add("fails", Told), 2, {"requeue_times": 1}),
    ("add_error", add("fails", Told), 1, {}),
    ("finish_canceled", add("cancels itself"), 1, {}),
    ("finish_canceled", add("gives itself up"), 1, {}),
    ("delay", add("delays itself"), 2, {}),
    ("delay", add("asks to be put back"), 2, {}),
    ("rescue", all_of(add(), boundaries.lose_worker), 1, {}),
    ("promote", add(delayed_for=0.3), 1, {}),
    ("renew_many", add("takes a while"), 1, {}),
    ("prune", add("fails"), 1, {"keep_errors": 0}),
    ("succeed", all_of(add("a"), add("b"), add("c")), 3, {**ALONE, "keep_success": 0}),
    ("succeed_many", all_of(*map(add, "abcdefg")), 7, {**ALONE, "keep_success": 0, "prefetch": 3}),
    ("reconcile", all_of(add(), lambda: Queue.get_queue(QUEUE).waiting.delete()), 1, {}),
    ("skip", all_of(add(), lambda: only_job().status.hset("c")), 0, {}),
]


@pytest.mark.parametrize("fault", LOSSES, ids=lambda fault: fault.name.lower())
@pytest.mark.parametrize(("lost", "before", "times", "parameters"), WORK)
def test_a_worker_ends_all_jobs_and_runs_none_once_more_than_it_has_to(
    lost: str,
    before: Callable[[], Any],
    times: int,
    parameters: dict[str, Any],
    fault: Fault,
    redis_client: redis.Redis,
    proxy: Proxy,
    behind: Callable[[], None],
) -> None:
    before()
    behind()
    if lost == "promote":  # the first one is part of the start, which may fail
        nth = 2 if fault is Fault.CUT_BEFORE_REQUEST else 1
        proxy.on(lost, fault, nth, if_reply=lambda reply: b":0" not in reply[:6])
    else:
        proxy.on(lost, fault)
    # On a busy machine, the first jobs may take so long that none is in stock when one takes a while: try again.
    rounds, may_be_none = 1, lost == "release"
    runs = end_all(redis_client, lambda: proxy.faults or may_be_none, **parameters)
    while not proxy.faults and rounds < 10:
        rounds += 1
        before()
        runs = end_all(redis_client, lambda: True, **parameters)
    assert proxy.faults == [lost]
    assert sum(runs.values()) == times
    if lost == "add_error":
        assert len(Error.collection()) == 1
    if "keep_success" in parameters:
        assert statuses(redis_client) == {}
    elif lost not in ("rescue", "prune"):
        jobs = [job for job_class in JOBS for job in job_class.collection().instances()]
        assert sum(int(job.tries.hget() or 0) for job in jobs) == times * rounds
    found = violations(redis_client, *MODELS)
    assert [problem for problem in found if not problem.startswith(LEFTOVERS)] == []


@pytest.mark.parametrize("fault", LOSSES, ids=lambda fault: fault.name.lower())
def test_a_job_that_was_lost_in_the_hand_over_is_run_once(
    fault: Fault, redis_client: redis.Redis, proxy: Proxy, behind: Callable[[], None]
) -> None:
    Queue.get_queue(QUEUE)
    proxy.on("BLPOP", fault, if_reply=lambda reply: b":_signal:" in reply or reply == b"any")

    names = iter("abcdefghijklmnopqrstuvwxyz")

    def a_job_is_handed_over() -> bool:
        is_waiting = redis_client.info("clients")["blocked_clients"]  # it may wait no longer once the job is added
        happened = bool(proxy.faults) and bool(statuses(redis_client))
        if is_waiting and not happened and all_ended(redis_client):
            Task.add_job(next(names))
        return happened

    behind()
    runs = end_all(redis_client, a_job_is_handed_over)
    assert set(runs.values()) == {1}
    assert len(runs) == len(statuses(redis_client))
    assert violations(redis_client, *MODELS) == []


@pytest.mark.parametrize("fault", LOSSES, ids=lambda fault: fault.name.lower())
def test_a_job_that_the_worker_did_not_hear_of_is_given_back_at_its_end(
    fault: Fault, monkeypatch: pytest.MonkeyPatch, redis_client: redis.Redis, proxy: Proxy, behind: Callable[[], None]
) -> None:
    monkeypatch.setattr(backoff, "FIRST_PAUSE", 600.0)
    job = Task.add_job("a")
    proxy.on("claim", fault)
    behind()
    ours = worker(lease=NEVER, max_duration=NEVER)
    thread = threading.Thread(target=ours.run)
    thread.start()
    wait_until(lambda: proxy.faults, "a lost claim")
    ours.end_forced = True
    thread.join()
    assert job.hmget("status", "tries") == ["w", None]
    assert Queue.get_queue(QUEUE).waiting.lmembers() == [job.ident]
    assert violations(redis_client, *MODELS) == []


def end_all(client: redis.Redis, until: Callable[[], Any] = lambda: True, **parameters: Any) -> Counter[str]:
    """Run a worker in a thread until all jobs have ended, and something else is true; count what it runs."""
    runs: Counter[str] = Counter()

    def run(job: Job, queue: Queue) -> Any:
        runs[job.identifier.hget()] += 1
        return job.run(queue)

    quick = {
        "fetch_delayed_delay": 0.02,
        "fetch_priorities_delay": 0.02,
        "lease": 1,
        "max_loops": 1000,
        "max_duration": NEVER,
        "callback": run,
    }
    ours = worker(**{**quick, **parameters})
    thread = threading.Thread(target=ours.run)
    thread.start()
    try:
        wait_until(lambda: until() and all_ended(client), "the end of all jobs")
    finally:
        ours.end_forced = True
        thread.join()
    return runs


@pytest.mark.parametrize(("fault", "written"), [(Fault.CUT_BEFORE_REQUEST, []), (Fault.CUT_BEFORE_REPLY, ["3"])])
def test_metrics_whose_reply_is_lost_are_not_counted_twice(
    proxy: Proxy,
    behind: Callable[[], None],
    jobs_database: JobsDatabase,
    redis_client: redis.Redis,
    fault: Fault,
    written: list[str],
) -> None:
    behind()
    gathered = WorkerMetrics(Runs())
    gathered._metrics[("bells", "a.B")] = Metrics([3, *[0] * (LENGTH - 1)])
    proxy.on("write_metrics", fault)
    for _ in range(2):
        gathered.write(jobs_database.connection)
    assert proxy.faults == ["write_metrics"]
    stored = [redis_client.hget(key, "bells\na.B") for key in redis_client.keys(f"{KEY}minute:*")]
    assert [text.split()[0] for text in stored] == written
