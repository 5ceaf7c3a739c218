"""What a job costs, counted: commands inside the scripts, and calls of Python functions. Neither may grow unnoticed."""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Callable
from importlib.util import find_spec
from types import FrameType
from typing import Any

import pytest
import redis
from limpyd import fields
from worlds import TOKEN, World

from limpyd_jobs import Flow, Job, Limit, Queue, Worker, transitions

JOBS = 200

of_python_3_12 = pytest.mark.skipif(sys.version_info[:2] != (3, 12), reason="other Pythons have other bytecodes")

# Add the reason to the commit that raises one of these.
COMMANDS_TO_ADD = 16.5  # inside the script
COMMANDS_TO_RUN = {1: 20.5, 100: 6.5}  # by prefetch
COMMANDS_OF = {"add": 16, "claim": 14, "end": 10, "end and claim": 20}  # inside each script
# Of a job whose limits are not reached, as a part of the commands of a job without limits.
COMMANDS_WITH_LIMITS = {"One": 1.3, "Rated": 1.2, "Two": 1.5, "Fair": 1.5}
COMMANDS_LET_OUT = 42  # of a job that a rate has kept, until an idle worker lets it out
COMMANDS_IN_A_FLOW = {1: 24.5, 100: 6.9}  # the same, for a job that another one comes after
COMMANDS_FOR_A_RESULT = 1  # more, if it returns something
COMMANDS_TO_MAKE_A_FLOW = 20  # for each of a hundred jobs
CALLS_TO_ADD = 43  # of functions of this package and of limpyd; Python 3.11 calls each comprehension, 3.12 none
CALLS_TO_RUN = {1: 80, 100: 68}
# The same functions, with Python 3.12: calls hide long functions. Without hiredis, one of them packs the commands.
PACKS = find_spec("hiredis") is None
BYTECODES_TO_ADD = 1470 if PACKS else 1000
BYTECODES_TO_RUN = {1: 2925 if PACKS else 2500, 100: 2300}


class Parcel(Job):
    namespace = "costs"
    queue_name = "q"
    label = fields.InstanceHashField()

    def run(self, queue: Queue) -> None:
        pass


class One(Parcel):
    limits = [Limit("label", concurrency=1000)]


class Rated(Parcel):
    limits = [Limit("label", rate="1000000/s", burst=1000)]


class Paced(Parcel):
    limits = [Limit(rate="20/s")]


class Two(Parcel):
    limits = [Limit("label", concurrency=1000), Limit(name="all-of-two", concurrency=1000)]


class Fair(Parcel):
    limits = [Limit("label", concurrency=1000, fair=True)]


def add(first: int, jobs: int = JOBS) -> None:
    for i in range(first, first + jobs):
        Parcel.add_job(identifier=f"job:{i}", label="x")


def run(prefetch: int, jobs: int = JOBS) -> None:
    Worker(queues="q", prefetch=prefetch, max_loops=jobs).run()


def commands_of(client: redis.Redis) -> Callable[[Callable[[], Any]], float]:
    """Return a function that counts the commands that a step sends for each job: those of scripts, not their calls."""

    def commands_in(step: Callable[[], Any]) -> float:
        before = statistics(client)
        step()
        after = statistics(client)
        return sum((after - before).values()) / JOBS

    return commands_in


def statistics(client: redis.Redis) -> Counter[str]:
    entries = client.info("commandstats")
    return Counter(
        {name: entry["calls"] for name, entry in entries.items() if name not in ("cmdstat_info", "cmdstat_evalsha")}
    )


def calls_in(step: Callable[[], Any]) -> float:
    """Return how many functions of this package, and of limpyd, a step calls for each job."""
    calls = 0

    def count(frame: FrameType, event: str, _: Any) -> None:
        nonlocal calls
        calls += event == "call" and "limpyd" in frame.f_code.co_filename

    sys.setprofile(count)
    try:
        step()
    finally:
        sys.setprofile(None)
    return calls / JOBS


def bytecodes_in(step: Callable[[], Any]) -> float:
    """Return how many bytecodes of this package, and of limpyd, a step takes for each job."""
    bytecodes = 0

    def trace(frame: FrameType, event: str, _: Any) -> Any:
        nonlocal bytecodes
        bytecodes += event == "opcode"
        frame.f_trace_lines = False
        frame.f_trace_opcodes = "limpyd" in frame.f_code.co_filename
        return trace if frame.f_trace_opcodes else None

    before = sys.gettrace()
    sys.settrace(trace)
    try:
        step()
    finally:
        sys.settrace(before)
    return bytecodes / JOBS


def test_adding_a_job(redis_client: redis.Redis) -> None:
    add(0)
    assert commands_of(redis_client)(lambda: add(JOBS)) <= COMMANDS_TO_ADD
    assert calls_in(lambda: add(2 * JOBS)) <= CALLS_TO_ADD


def test_each_script(world: World) -> None:
    queue, next_claim, commands = world.queue(), world.request(token="next"), {}
    jobs = (world.job(pk) for pk in "1234")
    for _ in range(2):  # the second time, all classes and scripts are known
        world.add("the next one")
        for name, step in {
            "add": lambda: world.add("any other"),
            "claim": lambda: world.claim(),
            "end and claim": lambda: transitions.succeed(next(jobs), queue, TOKEN, next_claim),
            "end": lambda: transitions.succeed(next(jobs), queue, "next"),
        }.items():
            before = statistics(world.client)
            step()
            commands[name] = sum((statistics(world.client) - before).values())
    assert all(commands[name] <= most for name, most in COMMANDS_OF.items()), commands


@pytest.mark.parametrize("prefetch", [1, 100])
def test_running_a_job(prefetch: int, redis_client: redis.Redis, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("limpyd_jobs.workers.loop.FIRST_SIGN", 600.0)  # a slow run would live for long enough
    add(0)
    run(prefetch)  # so that all classes and scripts are known
    for cost, most in ((commands_of(redis_client), COMMANDS_TO_RUN), (calls_in, CALLS_TO_RUN)):
        assert any(cost_of_each(cost, prefetch) <= most[prefetch] for _ in range(3))


def test_letting_out_a_job_that_a_rate_has_kept(redis_client: redis.Redis) -> None:
    Paced.add_jobs({"identifier": f"{i}", "label": "x"} for i in range(68))
    run(1, 2)  # now all are parked

    def cost() -> float:
        few, more = (commands_of(redis_client)(lambda jobs=jobs: run(1, jobs)) for jobs in (1, 21))
        return (more - few) * JOBS / 20

    assert any(cost() <= COMMANDS_LET_OUT for _ in range(3))


@pytest.mark.parametrize("job_class", [One, Rated, Two, Fair])
def test_running_a_job_with_limits(
    job_class: type[Parcel], redis_client: redis.Redis, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("limpyd_jobs.workers.loop.FIRST_SIGN", 600.0)
    job_class.add_jobs({"identifier": f"{i}", "label": f"{i % 100}"} for i in range(JOBS))
    run(1)  # so that all classes and scripts are known
    most = COMMANDS_WITH_LIMITS[job_class.__name__] * COMMANDS_TO_RUN[1]

    def cost() -> float:
        job_class.add_jobs({"identifier": f"{i}", "label": f"{i % 100}"} for i in range(2 * JOBS))
        few = commands_of(redis_client)(lambda: run(1, JOBS // 2))
        return commands_of(redis_client)(lambda: run(1, JOBS + JOBS // 2)) - few

    costs = []
    while len(costs) < 3 and not (costs and min(costs) <= most):
        costs.append(cost())
    assert min(costs) <= most, costs


class Reply(Parcel):
    def run(self, queue: Queue) -> int:
        return 1


def make_flow(job_class: type[Parcel], jobs: int) -> None:
    with Flow() as flow:
        nodes = [flow.add(job_class.prepare(label="x")) for _ in range(jobs - 1)]
        flow.add(job_class.prepare(queue_name="later"), after=nodes)


@pytest.mark.parametrize("prefetch", [1, 100])
def test_running_a_job_of_a_flow(prefetch: int, redis_client: redis.Redis, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("limpyd_jobs.workers.loop.FIRST_SIGN", 600.0)
    cost = commands_of(redis_client)

    def cost_in_a_flow(job_class: type[Parcel]) -> float:
        redis_client.delete("jobs:queue:1:waiting")
        make_flow(job_class, 4 * JOBS)
        run(prefetch, JOBS)
        few = cost(lambda: run(prefetch, JOBS // 2))
        return cost(lambda: run(prefetch, JOBS + JOBS // 2)) - few

    for job_class, more in ((Parcel, 0), (Reply, COMMANDS_FOR_A_RESULT)):
        assert any(cost_in_a_flow(job_class) <= COMMANDS_IN_A_FLOW[prefetch] + more for _ in range(3))


def test_making_a_flow(redis_client: redis.Redis) -> None:
    make_flow(Parcel, 100)
    cost = commands_of(redis_client)(lambda: make_flow(Parcel, 100)) * JOBS / 100
    assert cost <= COMMANDS_TO_MAKE_A_FLOW, cost


def cost_of_each(cost: Callable[[Callable[[], Any]], float], prefetch: int) -> float:
    """Return what each job costs beside the start of the worker; more if it is slow, and does other things, too."""
    add(0, 2 * JOBS)
    few = cost(lambda: run(prefetch, JOBS // 2))
    return cost(lambda: run(prefetch, JOBS + JOBS // 2)) - few


@of_python_3_12
def test_the_bytecodes_of_adding_a_job(redis_client: redis.Redis) -> None:
    add(0)
    bytecodes_in(lambda: add(JOBS))  # the first time, Python counts none
    assert bytecodes_in(lambda: add(2 * JOBS)) <= BYTECODES_TO_ADD


@pytest.mark.proof
@of_python_3_12
@pytest.mark.parametrize("prefetch", [1, 100])
def test_the_bytecodes_of_running_a_job(
    prefetch: int, redis_client: redis.Redis, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("limpyd_jobs.workers.loop.FIRST_SIGN", 600.0)
    # to count bytecodes is slow: jobs that ended are recorded together all the same
    monkeypatch.setattr("limpyd_jobs.workers.running.endings.MAX_ACK_DELAY", 600.0)
    monkeypatch.setattr(Worker, "prefetch_time", 600.0)
    add(0)
    bytecodes_in(lambda: run(prefetch))  # the first time, Python counts none
    assert any(cost_of_each(bytecodes_in, prefetch) <= BYTECODES_TO_RUN[prefetch] for _ in range(3))
