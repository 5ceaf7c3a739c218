"""Workers and makers of flows that are killed, again and again, while they make and run flows of all shapes.

Run as a program with the path of a socket, the number of kills and a seed, it prints what it did as JSON. It forks each
process, which is as if it had just begun: no process has a connection before.
"""

from __future__ import annotations

import gc
import json
import os
import random
import signal
import sys
import time
from collections import Counter
from collections.abc import Callable
from typing import Any, NoReturn

from limpyd import fields

from limpyd_jobs import STATUSES, Flow, Job, Queue, Retry, Worker, chain
from limpyd_jobs.models import BaseJobsModel
from limpyd_jobs.workers.maintenance import flows as maintenance

LEASE = 2

# A list of the jobs that began before one that they come after had ended.
EARLY = "early"

# A counter of the runs of all jobs.
RUNS = "runs"


class Node(Job):
    """A job of a flow, which notes whether it began too early."""

    namespace = "kills"
    queue_name = "nodes"
    default_retry_policy = Retry(times=1, delay=0)
    does = fields.InstanceHashField(default="succeed")

    def run(self, queue: Queue) -> Any:
        client = self.get_connection()
        client.incr(RUNS)
        open_nodes = [node for node in self.children() if node.state in ("waiting", "running", "delayed")]
        if open_nodes:
            client.rpush(EARLY, f"{self.ident} before {open_nodes}")
        time.sleep(random.random() / 200)
        if self.does.hget() == "fail":
            raise ValueError("it fails")
        return 1


class Other(Node):
    """A job of another class, in another queue."""

    namespace = "kills"
    queue_name = "others"


def node(chance: float = 0.0) -> Any:
    does = "fail" if random.random() < chance else "succeed"
    return random.choice((Node, Other)).prepare(does=does)


def make_chain() -> None:
    chain(*(node(0.1) for _ in range(5)))


def make_diamond() -> None:
    with Flow() as flow:
        first = flow.add(node())
        sides = [flow.add(node(0.1), after=first) for _ in range(2)]
        flow.add(node(), after=sides, on_error=random.choice(("fail", "run", "cancel")))


def make_fan() -> None:
    with Flow() as flow:
        pages = [flow.add(node(0.05)) for _ in range(9)]
        flow.add(node(), after=flow.add(node(), after=pages, on_error="run"))


def make_cascade() -> None:
    with Flow() as flow:
        first = flow.add(node(0.5))
        others = [flow.add(node(), after=first) for _ in range(60)]
        flow.add(node(), after=others, on_error="run")


def make_large() -> None:
    with Flow() as flow:
        pages = [flow.add(node()) for _ in range(220)]
        flow.add(node(), after=pages, on_error="run")


SHAPES: list[Callable[[], None]] = [*[make_chain] * 6, *[make_diamond] * 6, *[make_fan] * 4, make_cascade, make_large]
WORKERS: list[dict[str, Any]] = [{}, {"prefetch": 5}, {"concurrency": 4}, {"prefetch": 20}]


def make_flows() -> None:
    while True:
        if _are_enough():
            time.sleep(0.02)
        else:
            random.choice(SHAPES)()


def _are_enough() -> bool:
    return bool(BaseJobsModel.get_connection().zcard("limpyd-jobs:flows:live") > 40)


def run_jobs(**options: Any) -> None:
    Worker("nodes,others", lease=LEASE, timeout=1, fetch_priorities_delay=1, **options).run()


class Master:
    """Forks, kills and forks again."""

    def __init__(self, socket: str, seed: int) -> None:
        self._socket, self._random = socket, random.Random(seed)
        self.kills: Counter[str] = Counter()
        self._alive: dict[int, tuple[str, Callable[[], None]]] = {}

    def start(self, kind: str, target: Callable[[], None]) -> None:
        seed = self._random.random()
        pid = os.fork()
        if pid == 0:
            _live(self._socket, seed, target)
        self._alive[pid] = kind, target

    def kill(self, pid: int) -> tuple[str, Callable[[], None]]:
        os.kill(pid, signal.SIGKILL)
        os.waitpid(pid, 0)
        return self._alive.pop(pid)

    def kill_some(self, number: int) -> None:
        for _ in range(number):
            time.sleep(self._random.uniform(0.02, 0.2))
            kind, target = self.kill(self._random.choice(list(self._alive)))
            self.kills[kind] += 1
            self.start(kind, target)

    def end(self, kind: str) -> None:
        for pid in [pid for pid, (each, _) in self._alive.items() if each == kind]:
            self.kill(pid)


def _live(socket: str, seed: float, target: Callable[[], None]) -> NoReturn:
    status = 1
    try:
        random.seed(seed)
        BaseJobsModel.database.connect(unix_socket_path=socket, db=0)
        maintenance.MAKING_SECONDS = 3
        target()
        status = 0
    except BaseException:
        sys.excepthook(*sys.exc_info())
    finally:
        os._exit(status)


def main(socket: str, kills: int, seed: int) -> None:
    gc.freeze()
    master = Master(socket, seed)
    for options in WORKERS:
        master.start("worker", lambda options=options: run_jobs(**options))
    for _ in range(2):
        master.start("maker", make_flows)
    master.kill_some(kills)
    master.end("maker")
    BaseJobsModel.database.connect(unix_socket_path=socket, db=0)
    client = BaseJobsModel.get_connection()
    until = time.monotonic() + 60
    keys = [f"limpyd-jobs:flows:{name}" for name in ("live", "building", "todo")]
    while any(client.zcard(key) for key in keys) and time.monotonic() < until:
        time.sleep(0.1)
    stuck = {key: client.zrange(key, 0, -1) for key in keys}
    master.end("worker")
    ended = client.zcard("limpyd-jobs:flows:ended")
    parked = sum(1 for each in (Node, Other) for _ in each.collection(status=STATUSES.DELAYED))
    told = {"kills": master.kills, "stuck": stuck, "ended": ended, "parked": parked}
    print(json.dumps({**told, "early": client.lrange(EARLY, 0, -1), "runs": int(client.get(RUNS) or 0)}))


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]), int(sys.argv[3]))
