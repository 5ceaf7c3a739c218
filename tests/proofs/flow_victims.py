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
from contextlib import suppress
from secrets import token_hex
from typing import Any, NoReturn

import redis
from limpyd import fields
from redis.exceptions import RedisError

from limpyd_jobs import (
    STATUSES,
    Flow,
    Job,
    Limit,
    LimpydJobsException,
    Queue,
    Retry,
    SignalTimeout,
    Worker,
    chain,
    send_signal,
)
from limpyd_jobs.models import BaseJobsModel
from limpyd_jobs.workers.maintenance import flows as maintenance

LEASE = 2

# How many jobs begin between two kills at least, unless that takes longer than so many seconds.
RUNS_PER_KILL, LONGEST_PAUSE = 8, 10.0

# A list of the jobs that began before one that they come after had ended.
EARLY = "early"

# A counter of the runs of all jobs.
RUNS = "runs"

# A list of the jobs that ran again although their flow had their result.
AGAIN = "again"

# A list of the jobs beside which too many others of their limit ran; the claims of those that run; how many may.
OVER, CLAIMS, MOST = "over", "claims", 2

# The flows to which a signal is to be sent; the signals that jobs took, by the idents of the jobs; and what these got.
TO_SIGNAL, SENT, GOT = "to signal", "sent", "got"


class Node(Job):
    """A job of a flow, which notes whether it began too early."""

    namespace = "kills"
    queue_name = "nodes"
    default_retry_policy = Retry(times=1, delay=0)
    does = fields.InstanceHashField(default="succeed")

    def run(self, queue: Queue) -> Any:
        client = self.get_connection()
        client.incr(RUNS)
        flow, _, rest = (client.hget(self.key, "_flow") or "").partition(" ")
        if client.hexists(f"limpyd-jobs:flow:{flow}:results", rest.partition(" ")[0]):
            client.rpush(AGAIN, self.ident)
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


class Narrow(Node):
    """A job of which few run at once, which notes if there are more."""

    namespace = "kills"
    queue_name = "others"
    account = fields.InstanceHashField(default="one")
    limits = (Limit("account", concurrency=MOST),)

    def run(self, queue: Queue) -> Any:
        client, own = self.get_connection(), f"{self.key} {self.attempt_token}"
        client.sadd(CLAIMS, own)
        claims = client.smembers(CLAIMS)
        gone = [claim for claim in claims if not _holds(client, claim)]
        if len(claims) - len(gone) > MOST and _holds(client, own):
            client.rpush(OVER, f"{own}, with {claims - {*gone}}")
        if gone:
            client.srem(CLAIMS, *gone)
        return super().run(queue)


def _holds(client: Any, claim: str) -> bool:
    key, _, token = claim.partition(" ")
    return bool(client.hget(key, "_claim_token") == token)


class Child(Node):
    """A job that was spawned, which notes by whom."""

    namespace = "kills"
    spawner = fields.InstanceHashField()

    def run(self, queue: Queue) -> Any:
        self.get_connection().sadd(f"children:{self.spawner.hget()}", self.pk.get())
        return super().run(queue)


class Spawner(Node):
    """A job that spawns others, and notes if it goes on too early."""

    namespace = "kills"
    size = fields.InstanceHashField()

    def run(self, queue: Queue) -> Any:
        client, size = self.get_connection(), int(self.size.hget())
        self.spawn(*(Child.prepare(spawner=self.ident, does=_does(0.1)) for _ in range(size)), on_error="run")
        results = self.children_results()
        state = Flow.find(json.loads(self.spawned.hget())["spawn"]).state()
        if (state.state, len(results) + state.failed) != ("ended", size):
            client.rpush(EARLY, f"{self.ident} with {len(results)} results, {state}")
        return super().run(queue)


class Asker(Node):
    """A job that waits for a signal, sometimes not for long, and notes what it got."""

    namespace = "kills"
    within = fields.InstanceHashField()

    def run(self, queue: Queue) -> Any:
        seconds = self.within.hget()
        try:
            got = self.wait_for("go", timeout=float(seconds) if seconds else None)
        except SignalTimeout:
            got = "in vain"
        self.get_connection().hset(GOT, self.ident, got)
        return super().run(queue)


class Turned(Node):
    """A job of a flow of which one runs at a time, which notes if another one has the turn."""

    namespace = "kills"
    turn = fields.InstanceHashField()

    def run(self, queue: Queue) -> Any:
        client = self.get_connection()
        first = client.lindex(f"limpyd-jobs:flows:turn:{self.turn.hget()}", 0)
        if first != client.hget(self.key, "_flow").partition(" ")[0]:
            client.rpush(EARLY, f"{self.ident} in the turn of {first}")
        return super().run(queue)


def _does(chance: float) -> str:
    return "fail" if random.random() < chance else "succeed"


def node(chance: float = 0.0) -> Any:
    return random.choice((Node, Node, Other, Other, Narrow)).prepare(does=_does(chance))


def named(shape: str) -> str:
    """Return a name for a flow, which tells its shape."""
    return f"{shape}:{token_hex(6)}"


def make_chain() -> None:
    chain(*(node(0.1) for _ in range(5)), name=named("chain"))


def make_diamond() -> None:
    with Flow(named("diamond")) as flow:
        first = flow.add(node())
        sides = [flow.add(node(0.1), after=first) for _ in range(2)]
        flow.add(node(), after=sides, on_error=random.choice(("fail", "run", "cancel")))


def make_fan() -> None:
    with Flow(named("fan")) as flow:
        pages = [flow.add(node(0.05)) for _ in range(9)]
        flow.add(node(), after=flow.add(node(), after=pages, on_error="run"))


def make_cascade() -> None:
    with Flow(named("cascade")) as flow:
        first = flow.add(node(0.5))
        others = [flow.add(node(), after=first) for _ in range(60)]
        flow.add(node(), after=others, on_error="run")


def make_large() -> None:
    with Flow(named("large")) as flow:
        pages = [flow.add(node()) for _ in range(220)]
        flow.add(node(), after=pages, on_error="run")


def make_spawner() -> None:
    spawner = Spawner.prepare(size=random.choice((*[3] * 10, 120)))
    if random.random() < 0.3:
        spawner.add()
    else:
        chain(node(), spawner, node(), name=named("spawner"))


def make_turn() -> None:
    turn = random.choice("abcdefgh")
    nodes = (Turned.prepare(turn=turn, does=_does(0.1)) for _ in range(3))
    flow = chain(*nodes, name=named("turn"), one_at_a_time=turn, on_error=random.choice(("fail", "run")))
    if random.random() < 0.1:
        flow.cancel()


def make_asker() -> None:
    """Make a flow that waits for a signal, which another process sends, maybe before it is asked for."""
    flow = Flow(named("asker"))
    BaseJobsModel.get_connection().sadd(TO_SIGNAL, flow.id)
    with flow:
        first = flow.add(Asker.prepare(within=random.choice(("", "", "0.05", "0.5"))))
        flow.add(node(), after=first)


def send_signals() -> None:
    """Send a signal to each flow that may wait for one, or to its job; and note what became of it."""
    client = BaseJobsModel.get_connection()
    while True:
        with suppress(RedisError):
            flow = client.srandmember(TO_SIGNAL)
            time.sleep(random.random() / 50)
            if flow and signal_flow(flow):
                client.srem(TO_SIGNAL, flow)


def signal_flow(flow: str) -> bool:
    client = BaseJobsModel.get_connection()
    try:
        ident = Flow.find(flow).nodes()[0].ident
        if random.random() < 0.5:
            send_signal(flow, "go", flow)
        elif send_signal(ident, "go", ident) in ("received", "kept"):
            client.hset(SENT, ident, ident)
    except LimpydJobsException:  # it is not made, or being made
        return False
    return True


def make_beside() -> None:
    """Make jobs that are in no flow, which share a limit with nodes."""
    for _ in range(3):
        Narrow.add_job(does="succeed", identifier=token_hex(6))


SHAPES: list[Callable[[], None]] = [*[make_chain] * 6, *[make_diamond] * 6, *[make_fan] * 4, make_cascade, make_large]
SHAPES += [*[make_spawner] * 5, *[make_beside] * 3, *[make_asker] * 5, *[make_turn] * 8]
WORKERS: list[dict[str, Any]] = [{}, {"prefetch": 5}, {"concurrency": 4}, {"prefetch": 20}]


def make_flows() -> None:
    while True:
        with suppress(RedisError):  # it may be killed, too
            if _are_enough():
                time.sleep(0.02)
            else:
                random.choice(SHAPES)()


def _are_enough() -> bool:
    client = BaseJobsModel.get_connection()
    return sum(client.llen(f"jobs:queue:{pk}:waiting") for pk in Queue.collection()) > 100


def run_jobs(**options: Any) -> None:
    Worker("nodes,others", lease=LEASE, timeout=1, fetch_priorities_delay=1, **options).run()


class Master:
    """Forks, kills and forks again."""

    def __init__(self, socket: str, seed: int) -> None:
        self._socket, self._random = socket, random.Random(seed)
        self.kills: Counter[str] = Counter()
        self._client, self._runs_before = redis.Redis(unix_socket_path=socket, decode_responses=True), 0
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

    def start_ended(self) -> None:
        """Start those anew that ended by themselves, as a worker does that begins while there is no Redis."""
        for pid, (kind, target) in list(self._alive.items()):
            if os.waitpid(pid, os.WNOHANG)[0]:
                del self._alive[pid]
                self.start(kind, target)

    def kill_some(self, number: int) -> None:
        for _ in range(number):
            time.sleep(self._random.uniform(0.02, 0.2))
            self._await_some_runs()
            self.start_ended()
            kind, target = self.kill(self._random.choice(list(self._alive)))
            self.kills[kind] += 1
            self.start(kind, target)

    def _await_some_runs(self) -> None:
        """On a slow machine, let some jobs begin between two kills."""
        until = time.monotonic() + LONGEST_PAUSE
        while self._runs() < self._runs_before + RUNS_PER_KILL and time.monotonic() < until:
            time.sleep(0.01)
            self.start_ended()
        self._runs_before = self._runs()

    def _runs(self) -> int:
        with suppress(RedisError):
            return int(self._client.get(RUNS) or 0)
        return 0

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
    master.start("sender", send_signals)
    master.kill_some(kills)
    master.end("maker")
    BaseJobsModel.database.connect(unix_socket_path=socket, db=0)
    client = BaseJobsModel.get_connection()
    until = time.monotonic() + 60
    while any(stuck_in(client).values()) and time.monotonic() < until:
        time.sleep(0.1)
        master.start_ended()
    stuck = stuck_in(client)
    master.end("worker")
    master.end("sender")
    ended = client.zcard("limpyd-jobs:flows:ended")
    parked = sum(1 for each in CLASSES for _ in each.collection(status=STATUSES.DELAYED))
    told = {"kills": master.kills, "stuck": stuck, "ended": ended, "parked": parked, **signals_in(client)}
    told |= {
        "shapes": shapes_in(client),
        "again": client.lrange(AGAIN, 0, -1),
        "over": client.lrange(OVER, 0, -1),
    }
    told |= {"spawned": len(Spawner.collection(status=STATUSES.SUCCESS)), "twice": spawned_twice(client)}
    print(json.dumps({**told, "early": client.lrange(EARLY, 0, -1), "runs": int(client.get(RUNS) or 0)}))


CLASSES = (Node, Other, Narrow, Child, Spawner, Asker, Turned)


def stuck_in(client: Any) -> dict[str, list[str]]:
    """Return the flows that have not ended. One that a job spawned stays among the live ones for a while."""
    keys = [f"limpyd-jobs:flows:{name}" for name in ("live", "building", "todo")]
    return {
        key: [flow for flow in client.zrange(key, 0, -1) if client.hget(f"limpyd-jobs:flow:{flow}", "state") != "ended"]
        for key in keys
    }


def shapes_in(client: Any) -> dict[str, Any]:
    """Return how many flows of each shape there are: those that have ended, those in which something failed, others."""
    found: dict[str, Counter[str]] = {}
    ids = {each for key in ("live", "building", "ended") for each in client.zrange(f"limpyd-jobs:flows:{key}", 0, -1)}
    for flow in ids:
        name, state = client.hmget(f"limpyd-jobs:flow:{flow}", "name", "state")
        counter = found.setdefault((name or "spawned").partition(":")[0], Counter())
        counter["ended" if state == "ended" else "stuck"] += 1
        counter["failed"] += client.exists(f"limpyd-jobs:flow:{flow}:failed")
    return found


def spawned_twice(client: Any) -> list[str]:
    """Return the jobs of which more others ran than they were to spawn, or fewer."""
    found = []
    for job in Spawner.collection(status=STATUSES.SUCCESS).instances():
        number = client.scard(f"children:{job.ident}")
        if number != int(job.size.hget()):
            found.append(f"{job.ident}: {number}")
    return found


def signals_in(client: Any) -> dict[str, Any]:
    """Return how many signals jobs took, and which were lost."""
    sent, got = client.hgetall(SENT), client.hgetall(GOT)
    lost = [f"{ident}: {got[ident]}" for ident, value in sent.items() if ident in got and got[ident] != value]
    return {"signals": Counter("in vain" if value == "in vain" else "taken" for value in got.values()), "lost": lost}


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]), int(sys.argv[3]))
