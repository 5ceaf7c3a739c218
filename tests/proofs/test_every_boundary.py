"""A process may be killed before or after any command it sends: no job is lost, and no identifier is blocked.

Many of these moments leave the same in Redis: before a command, mostly, what was there after the one before. What a
healthy worker makes of it is looked at once for each state that is found, times and tokens aside.
"""

from __future__ import annotations

import json
import re
import time
from collections import Counter
from collections.abc import Iterator
from itertools import product

import boundaries
import pytest
import redis
from all_scripts import ALL_SCRIPTS
from boundaries import JOBS, LEFTOVERS, MODELS, PATHS, QUEUE, Worker
from invariants import FINAL, contents, violations
from servers import RedisServer
from victims import MOMENTS, Victims

from limpyd_jobs import Job, Queue, Schedule
from limpyd_jobs.dates import datetime_to_score, parse_datetime
from limpyd_jobs.workers.maintenance import rescue

pytestmark = pytest.mark.usefixtures("redis_client")

TABLE: list[tuple[str, int, Counter[str]]] = []
MAX_COMMANDS = 60

# How long a healthy worker goes on at the most, in seconds: it is done at once, unless a job is lost.
PATIENCE = 60

# Where something is written that is not counted: by another thread, or by another process. Elsewhere, what a process
# leaves after a command is what it leaves before the next one, so that only this one is looked at without ``--long``.
NOT_COUNTED = {
    "succeed many, claim the next",
    "succeed many, fail in their midst",
    "succeed many, end with jobs in hand",
    "end with many jobs in hand",
    "find the size of batches",
    "give back what waits for too long",
    "run 10 at once",
    "run 100 at once",
    "wait, be handed a job, succeed",
    "cancel while it runs",
    "delay while it runs",
}

# What holds even with a job in the hands of a dead process.
ALWAYS = {"I1", "I2", "I4", "I9", "I10"}


@pytest.fixture(scope="module")
def victims(redis_server: RedisServer) -> Iterator[Victims]:
    with Victims(redis_server.socket) as victims:
        yield victims


class Healthy(Worker):
    """A worker that goes on until all jobs have ended."""

    def must_stop(self) -> bool:
        return super().must_stop() or not unfinished()


def stored_jobs() -> list[tuple[type[Job], dict[str, str]]]:
    """All jobs: the class and the hash of each."""
    pipe = Queue.get_connection().pipeline(transaction=False)
    for job_class in JOBS:
        pipe.smembers(f"{job_class._name}:collection")
    found = [(job_class, pk) for job_class, pks in zip(JOBS, pipe.execute(), strict=True) for pk in pks]
    for job_class, pk in found:
        pipe.hgetall(f"{job_class._name}:{pk}:hash")
    return [(job_class, stored) for (job_class, _), stored in zip(found, pipe.execute(), strict=True)]


def unfinished() -> list[str]:
    return [
        job.get("identifier", "") for _, job in stored_jobs() if job.get("status") not in FINAL or job.get("queued")
    ]


def let_a_healthy_worker_go_on() -> None:
    boundaries.lapse()
    boundaries.make_due()
    quick = {"timeout": 0.05, "fetch_delayed_delay": 0.02, "fetch_priorities_delay": 0.02, "lease": 0.2}
    if unfinished():
        Healthy(QUEUE, **quick, max_duration=PATIENCE, terminate_gracefuly=False, requeue_delay_delta=0).run()


def harm_of(client: redis.Redis, path: str, acknowledged: dict[type[Job], set[str]]) -> list[str]:
    """What is wrong after a process was killed on its path: nothing, if the promises are kept."""
    if PATHS[path].deletes:
        PATHS[path].act()
        assert [identifiers(job_class) for job_class in JOBS] == [set()] * len(JOBS)
        acknowledged = {}
    found = [problem for problem in violations(client, *MODELS) if problem.split()[0] in ALWAYS]
    let_a_healthy_worker_go_on()
    found += [f"never ended: {identifier}" for identifier in unfinished()]
    if found and worst(found) == "harm":
        return found
    found += schedules_gone_wrong() + items_gone_wrong(client)
    found += [f"lost: {each}" for job_class, them in acknowledged.items() for each in them - identifiers(job_class)]
    found += violations(client, *MODELS)
    again = [job_class.add_job(identifier) for job_class in JOBS for identifier in identifiers(job_class)]
    let_a_healthy_worker_go_on()
    found += [f"cannot be added again: {identifier}" for identifier in unfinished()]
    found += [f"was added to nothing: {job.ident}" for job in again if job.status.hget() not in FINAL]
    return found + violations(client, *MODELS)


def schedules_gone_wrong() -> list[str]:
    """What was fired twice, or not at all, once a healthy worker has looked at the schedules."""
    boundaries.enqueue_due_schedules()
    let_a_healthy_worker_go_on()
    found = []
    for schedule in Schedule.collection().instances():
        stored = schedule.hgetall()
        fired = sorted(job["identifier"] for _, job in stored_jobs() if job["identifier"].startswith("hourly"))
        if parse_datetime(stored.get("next_run")) is None and not stored.get("paused"):
            found.append("the schedule is never due again")
        if len(set(fired)) != len(fired) or (stored["misfire_policy"] == "all" and len(fired) < 3):
            found.append(f"not fired once for each time: {fired}")
    return found


def items_gone_wrong(client: redis.Redis) -> list[str]:
    """What a long job left out, or repeated beyond one interval: two items, and the one that was being done."""
    times = Counter(client.lrange("did", 0, -1))
    if not times:
        return []
    wanted = [*map(str, range(boundaries.ITEMS)), "last"]
    found = [f"left out: {item}" for item in wanted if not times[item]]
    repeated = times.total() - len(wanted)
    return found + [f"{repeated} items are repeated"] * (repeated > 3)


def worst(problems: list[str]) -> str:
    """The worst of some problems: harm, leftovers, or harmless if there is none."""
    if not problems:
        return "harmless"
    return "leftovers" if all(problem.startswith(LEFTOVERS) for problem in problems) else "harm"


def identifiers(job_class: type[Job]) -> set[str]:
    return {stored["identifier"] for its_class, stored in stored_jobs() if its_class is job_class}


def load_scripts(client: redis.Redis) -> None:
    if all(client.script_exists(*(each.sha for each in ALL_SCRIPTS))):
        return
    pipe = client.pipeline(transaction=False)
    for each in ALL_SCRIPTS:
        pipe.script_load(each.source)
    pipe.execute()


A_DATE = re.compile(r"\b\d{4}-\d\d-\d\d \d\d:\d\d:\d\d(?:\.\d+)?|\b\d{10}\.\d+\b")
OF_ONE_PROCESS = re.compile(r"\b\d\d:\d\d:\d\d(?:\.\d+)?|\b[0-9a-f]+@[^\"/ ]+|\bdead worker \d+\b")  # times, tokens


def state_of(client: redis.Redis) -> str:
    """All that Redis has: what differs by the token of a claim, or by seconds, is the same state."""
    known_scripts = client.script_exists(*(each.sha for each in ALL_SCRIPTS))
    everything = json.dumps([contents(client), known_scripts], default=sorted, sort_keys=True)

    def minutes_from_now(match: re.Match[str]) -> str:
        moment = parse_datetime(match[0])
        score = datetime_to_score(moment) if moment else float(match[0])
        return f"{round((score - time.time()) / 60)} minutes"

    return OF_ONE_PROCESS.sub("any ", A_DATE.sub(minutes_from_now, everything))


@pytest.fixture(autouse=True)
def _no_patience_with_orphans(monkeypatch: pytest.MonkeyPatch) -> None:
    """No worker of version 2 is about."""
    monkeypatch.setattr(rescue, "ORPHAN_SEEN_FOR", 0.01)


@pytest.mark.parametrize("path", PATHS)
def test_no_harm_is_done_by_a_process_that_dies(
    path: str, redis_client: redis.Redis, victims: Victims, pytestconfig: pytest.Config
) -> None:
    known: dict[str, str] = {}
    kills: Counter[str] = Counter()
    problems = []
    moments = MOMENTS if path in NOT_COUNTED or pytestconfig.getoption("--long") else ["before"]
    for number, moment in product(range(1, MAX_COMMANDS), moments):
        redis_client.flushall()
        load_scripts(redis_client)
        PATHS[path].prepare()
        acknowledged = {job_class: identifiers(job_class) for job_class in JOBS}
        command = victims.run(path, number, moment)
        state = state_of(redis_client)
        if state not in known:
            found = harm_of(redis_client, path, acknowledged)
            known[state] = worst(found)
            where = f"killed {moment} command {number}, {command or 'none'}"
            problems += [f"{where}: {problem}" for problem in found if worst([problem]) == "harm"]
        if not command:
            break
        kills[known[state]] += 1
    else:
        pytest.fail("it never ends")
    TABLE.append((path, len(known), kills))
    assert problems == []
    assert kills, "it sends nothing"
