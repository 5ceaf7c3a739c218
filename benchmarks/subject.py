"""Inside the environment of a peer: add jobs, or be a worker. ``run.py`` starts it; it is not for people.

``python subject.py PEER VERB ARGUMENT``, where the verb is

- ``add SECONDS``: add jobs, one call per job, for so long;
- ``add_many JOBS``: add so many, by the peer's own way for many;
- ``add_some JOBS``: add so many, one call per job;
- ``fill JOBS``: add so many, in the fastest of these ways there is;
- ``latency SAMPLES``: add a job to an idle worker, see when it runs, and again;
- ``add_flows FLOWS``: add so many flows, one call per flow;
- ``flow_latency SAMPLES``: add a flow, see when its last job runs, and again;
- ``work VARIANT``: be a worker, until a signal.

Before it adds, it is ready: connected and warm. Then it writes a line, and waits for one. What it measured is its last
line, as JSON.
"""

from __future__ import annotations

import asyncio
import inspect
import json
import os
import random
import sys
import time
from collections.abc import Awaitable, Callable, Sequence
from importlib import import_module
from statistics import median
from typing import Any

from inside import CHILDREN, DIRECTORY, read_marks

WARM_UP = 20  # jobs
MAX_LATENCY = 12.0  # seconds for all samples

Add = Callable[[int], Any]


def main(name: str, verb: str, argument: str) -> None:
    """Do one verb for one peer."""
    peer = import_module(f"peers.{name}")
    if verb == "work":
        work(peer, argument)
    else:
        asyncio.run(measure(peer, verb, float(argument)))


def work(peer: Any, variant: str) -> None:
    """Be a worker. A peer with a command line is that command from here on."""
    command = peer.work(variant)
    if command:
        os.execv(command[0], command)


async def measure(peer: Any, verb: str, argument: float) -> None:
    """Get ready, wait for the start, and tell what was measured."""
    await settled(peer.setup())
    known = await warm_up(peer, verb)
    print("ready", flush=True)
    sys.stdin.readline()
    print(json.dumps(await VERBS[verb](peer, argument, **known)), flush=True)
    sys.stdin.readline()  # what it says when it closes its connection is not to be counted
    os._exit(0)  # some clients take their time to close


async def warm_up(peer: Any, verb: str) -> dict[str, float]:
    """Do the same before, for the first call of a client does more than others; return what it is good to know."""
    if verb in ("latency", "flow_latency"):
        return {"usual": median((await VERBS[verb](peer, WARM_UP))["seconds"])}
    if verb == "add_flows":
        await in_a_row(peer.add_flow, range(WARM_UP))
    elif verb != "fill":
        await add_some(peer, WARM_UP)
        if verb == "add_many":
            if not hasattr(peer, "add_many"):
                raise SystemExit("it has no way to add many jobs")
            await add_many(peer, WARM_UP)
    return {}


async def settled(value: Any) -> Any:
    return await value if inspect.isawaitable(value) else value


async def add(peer: Any, seconds: float) -> dict[str, float]:
    """Add jobs for some seconds."""
    chunk, jobs, began = 50, 0, time.perf_counter()
    while (passed := time.perf_counter() - began) < seconds:
        await in_a_row(peer.add, range(jobs, jobs + chunk))
        jobs += chunk
    return {"jobs": jobs, "seconds": passed}


async def add_some(peer: Any, jobs: float) -> dict[str, float]:
    """Add so many jobs."""
    began = time.perf_counter()
    await in_a_row(peer.add, range(int(jobs)))
    return {"jobs": jobs, "seconds": time.perf_counter() - began}


async def in_a_row(add_one: Add | Callable[[int], Awaitable[Any]], numbers: Sequence[int]) -> None:
    if inspect.iscoroutinefunction(add_one):
        for number in numbers:
            await add_one(number)
    else:
        for number in numbers:
            add_one(number)


async def add_many(peer: Any, jobs: float) -> dict[str, float]:
    """Add so many jobs in the way the peer has for many."""
    began = time.perf_counter()
    await settled(peer.add_many(range(int(jobs))))
    return {"jobs": jobs, "seconds": time.perf_counter() - began}


async def fill(peer: Any, jobs: float) -> dict[str, float]:
    """Add so many jobs."""
    return await (add_many if hasattr(peer, "add_many") else add_some)(peer, jobs)


async def add_flows(peer: Any, flows: float) -> dict[str, float]:
    """Add so many flows."""
    began = time.perf_counter()
    await in_a_row(peer.add_flow, range(int(flows)))
    return {"jobs": flows, "seconds": time.perf_counter() - began}


async def flow_latency(peer: Any, samples: float, usual: float = 0) -> dict[str, list[float]]:
    """Do as `latency`, with flows: until the last job of each runs."""
    return await latency(peer, samples, usual, peer.add_flow, CHILDREN + 1)


async def latency(
    peer: Any, samples: float, usual: float = 0, add: Add | None = None, jobs: int = 1
) -> dict[str, list[float]]:
    """Add one job at a time to an idle worker; tell the times from before the call to the beginning of the run.

    The pauses in between let the worker become idle again. They are of random lengths, up to more than the `usual`
    latency in seconds, for else a worker that polls would always be met just after it did.
    """
    found: list[float] = []
    end = time.monotonic() + MAX_LATENCY
    while len(found) < samples and (time.monotonic() < end or not found):
        await asyncio.sleep(random.uniform(0.01, 0.03 + usual))
        known = sum(begun for begun, _ in read_marks(DIRECTORY))
        began = time.monotonic()
        await settled((add or peer.add)(len(found)))
        while sum(begun for begun, _ in read_marks(DIRECTORY)) < known + jobs:
            if time.monotonic() > end + MAX_LATENCY:
                raise RuntimeError("the job does not run")
            await asyncio.sleep(0.0005)
        found.append(max(last for _, last in read_marks(DIRECTORY)) - began)
    return {"seconds": found}


VERBS: dict[str, Callable[..., Any]] = {
    "add": add,
    "add_some": add_some,
    "add_many": add_many,
    "fill": fill,
    "latency": latency,
    "add_flows": add_flows,
    "flow_latency": flow_latency,
}

if __name__ == "__main__":
    main(*sys.argv[1:])
