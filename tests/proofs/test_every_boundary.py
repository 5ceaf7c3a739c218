"""A process may be killed before or after any command it sends: no job is lost, and no identifier is blocked."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

import boundaries
import pytest
import redis
from all_scripts import ALL_SCRIPTS
from boundaries import JOBS, LEFTOVERS, MODELS, PATHS, QUEUE, Worker
from invariants import FINAL, violations
from servers import RedisServer
from victims import MOMENTS, Victims

import limpyd_jobs.workers.worker
from limpyd_jobs import Job, Schedule
from limpyd_jobs.utils import parse_datetime
from limpyd_jobs.workers import reconciler

pytestmark = pytest.mark.usefixtures("redis_client")

TABLE: list[tuple[str, str, Counter[str]]] = []
MOST_COMMANDS = 40

# How long a healthy worker goes on at the most, in seconds: it is done at once, unless a job is lost.
PATIENCE = 3

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


def unfinished() -> list[str]:
    jobs = [job for job_class in JOBS for job in job_class.collection().instances()]
    return [job.identifier.hget() for job in jobs if job.status.hget() not in FINAL or job.queued.hget()]


def let_a_healthy_worker_go_on() -> None:
    boundaries.lapse()
    boundaries.make_due()
    quick = {"timeout": 0.05, "fetch_delayed_delay": 0.02, "fetch_priorities_delay": 0.02, "lease": 0.2}
    if unfinished():
        Healthy(QUEUE, **quick, max_duration=PATIENCE, terminate_gracefuly=False, requeue_delay_delta=0).run()


def harm(client: redis.Redis, acknowledged: dict[type[Job], set[str]]) -> list[str]:
    """What is wrong after a process was killed: nothing, if the promises are kept."""
    found = [problem for problem in violations(client, *MODELS) if problem.split()[0] in ALWAYS]
    let_a_healthy_worker_go_on()
    found += [f"never ended: {identifier}" for identifier in unfinished()]
    if found and worst(found) == "harm":
        return found
    found += schedules_gone_wrong()
    found += [f"lost: {each}" for job_class, them in acknowledged.items() for each in them - identifiers(job_class)]
    found += violations(client, *MODELS)
    for job_class in JOBS:
        for identifier in identifiers(job_class):
            job = job_class.add_job(identifier)
            let_a_healthy_worker_go_on()
            if unfinished() or job.status.hget() not in FINAL:
                found.append(f"cannot be added again: {identifier}")
    return found + violations(client, *MODELS)


def schedules_gone_wrong() -> list[str]:
    """What was fired twice, or not at all, once a healthy worker has looked at the schedules."""
    boundaries.fire_schedules()
    let_a_healthy_worker_go_on()
    found = []
    for schedule in Schedule.collection().instances():
        stored = schedule.hgetall()
        jobs = [job for job_class in JOBS for job in job_class.collection().instances()]
        fired = sorted(job.identifier.hget() for job in jobs if job.identifier.hget().startswith("hourly"))
        if parse_datetime(stored.get("next_run")) is None and not stored.get("paused"):
            found.append("the schedule is never due again")
        if len(set(fired)) != len(fired) or (stored["catch_up"] == "all" and len(fired) < 3):
            found.append(f"not fired once for each time: {fired}")
    return found


def worst(problems: list[str]) -> str:
    """The worst of some problems: harm, leftovers, or harmless if there is none."""
    if not problems:
        return "harmless"
    return "leftovers" if all(problem.startswith(LEFTOVERS) for problem in problems) else "harm"


def identifiers(job_class: type[Job]) -> set[str]:
    return {job.identifier.hget() for job in job_class.collection().instances()}


def load_scripts(client: redis.Redis) -> None:
    for each in ALL_SCRIPTS:
        client.script_load(each.source)


@pytest.fixture(autouse=True)
def _no_patience_with_orphans(monkeypatch: pytest.MonkeyPatch) -> None:
    """No worker of version 2 is about."""
    for module in (reconciler, limpyd_jobs.workers.worker):
        monkeypatch.setattr(module, "PATIENCE", 0.01)


@pytest.mark.parametrize("moment", MOMENTS)
@pytest.mark.parametrize("path", PATHS)
def test_no_harm_is_done_by_a_process_that_dies(
    path: str, moment: str, redis_client: redis.Redis, victims: Victims
) -> None:
    outcomes: Counter[str] = Counter()
    problems = []
    for number in range(1, MOST_COMMANDS):
        redis_client.flushall()
        load_scripts(redis_client)
        PATHS[path].prepare()
        acknowledged = {job_class: identifiers(job_class) for job_class in JOBS}
        command = victims.run(path, number, moment)
        if PATHS[path].deletes:
            PATHS[path].act()
            assert [identifiers(job_class) for job_class in JOBS] == [set()] * len(JOBS)
            acknowledged = {}
        found = harm(redis_client, acknowledged)
        if command:
            outcomes[worst(found)] += 1
        where = f"killed {moment} command {number}, {command or 'none'}"
        problems += [f"{where}: {problem}" for problem in found if worst([problem]) == "harm"]
        if not command:
            break
    else:
        pytest.fail("it never ends")
    TABLE.append((path, moment, outcomes))
    assert problems == []
    assert outcomes, "it sends nothing"
