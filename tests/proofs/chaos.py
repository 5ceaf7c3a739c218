"""Chaos: producers and workers at work while processes are killed and stopped, connections are cut, and Redis crashes.

    python tests/proofs/chaos.py --minutes 30 --seed 7
    python tests/proofs/chaos.py --minutes 10 --cluster

prints what came of it, and ends with status 1 if a job was lost, or anything else was not as it has to be. What is
broken, and when, follows from the seed; what is hit by it, from the machine as well. Redis writes each change to its
append-only file before it answers, so it remembers all that it acknowledged.
"""

from __future__ import annotations

import argparse
import os
import random
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from time import monotonic
from typing import Any

HERE = Path(__file__).parent
sys.path[:0] = [each for each in (str(HERE), str(HERE.parent)) if each not in sys.path]

from boundaries import LEFTOVERS  # noqa: E402
from chaos_crew import PYTHONPATH, Crew  # noqa: E402
from chaos_jobs import GO_ON, JOBS, MIXTURES, MODELS, QUEUE  # noqa: E402
from chaos_marks import HAS_CHILDREN, SOCKETS, Marks, Pulse, read_marks  # noqa: E402
from chaos_report import HARNESS, REDIS, Fault, Observed, Report  # noqa: E402
from invariants import violations  # noqa: E402
from proxy import Fault as Cut  # noqa: E402
from proxy import Proxy  # noqa: E402
from redis import Redis  # noqa: E402
from redis.backoff import NoBackoff  # noqa: E402
from redis.retry import Retry  # noqa: E402
from servers import RedisServer, wait_until  # noqa: E402

from limpyd_jobs import STATUSES, Queue  # noqa: E402
from limpyd_jobs.commandline.kinds import read_prefetch  # noqa: E402
from limpyd_jobs.redis.database import VARIABLE  # noqa: E402
from limpyd_jobs.redis.embedded import find_server  # noqa: E402
from limpyd_jobs.workers.claiming.stock import MAX_BATCH  # noqa: E402

NO_RESCUE = "CHAOS_NO_RESCUE"

REMEMBERS_ALL = ("--appendonly", "yes", "--appendfsync", "always")

WORKERS = 4
PRODUCERS = 2
RATE = 4.0  # jobs each second, of each producer
RATE_OF_MANY = 20.0  # if a worker runs several at once
AGAIN = 0.05  # how many of them are added once more, with a higher priority; that finds a lost one, too
LEASE = 2.0  # seconds
GRACE_PERIOD = 1.0  # seconds

# The last moment for all jobs to end, in seconds after the last fault. A job that was lost by a worker, whose loss is
# noticed by a worker that is lost as well, is looked for a minute later.
PATIENCE = 100

PROGRESS = 10  # seconds

# How often each kind of fault comes up in a row of them.
FAULTS = {
    "kill_worker": 5,
    "kill_producer": 1,
    "stop_worker": 2,
    "end_worker": 2,
    "kill_client": 4,
    "cut": 6,
    "cut_hand_over": 4,
    "kill_redis": 1,
}

COMMANDS = ("add", "claim", "succeed", "fail", "renew", "renew_many", "rescue", "promote", "reconcile")

WORKER_OPTIONS = (
    "--worker-class=chaos_worker.ChaosWorker",
    f"--queues={QUEUE}",
    "--max-rescues=1000",
    "--max-loops=1000000",
    "--timeout=2",
    "--fetch-priorities-delay=1",
    "--fetch-delayed-delay=0.5",
    "--requeue-times=1",
    "--requeue-delay-delta=0.5",
)


class Chaos:
    """One test.

    Parameters
    ----------
    seed: int
    seconds: float
        For how long there are faults.
    rescue: bool
        False to do without the search for lost jobs, be they those of dead workers.
    faults: dict
        How often each kind of fault comes up in a row of them.
    mixture: str
        Which jobs are added: a name of `chaos_jobs.MIXTURES`.
    prefetch: int or str
        How many jobs each worker claims at once, as its parameter.
    concurrency: int
        How many jobs each worker runs at once.
    processes: int
        How many processes each worker has.
    shards: int
        How many databases the jobs are in.
    lease: float
        For how many seconds a claim holds.
    network_delay: float
        How many seconds each request takes to Redis.
    binary: str
        The server program.
    tell: callable
        What to call with a line of text from time to time.
    """

    def __init__(
        self,
        seed: int,
        seconds: float,
        *,
        rescue: bool = True,
        faults: Mapping[str, int] = FAULTS,
        mixture: str = "simple",
        prefetch: int | str = 1,
        concurrency: int = 1,
        processes: int = 1,
        shards: int = 1,
        lease: float = LEASE,
        network_delay: float = 0.0,
        binary: str = "",
        tell: Callable[[str], None] = lambda line: None,
    ) -> None:
        self.seed, self.seconds = seed, seconds
        self.faults: list[Fault] = []
        self.wrong: list[str] = []
        self.directory = Path(tempfile.mkdtemp(prefix="limpyd-jobs-chaos-"))
        self._rng, self._hits = random.Random(seed), random.Random(seed)  # what to do and when, and to whom
        self._kinds, self._undone, self._deck = faults, set(faults), list[str]()
        self._stopped: dict[str, tuple[int, float]] = {}
        self._cuts_under_way: set[str] = set()
        self._are_cuts_on = True
        self._ended_themselves = 0
        self._tell, self._told = tell, monotonic()
        self._rescue, self._mixture = rescue, mixture
        self._prefetch, self._concurrency, self._processes, self._shards = prefetch, concurrency, processes, shards
        self._lease, self._network_delay = lease, network_delay
        self._commands = COMMANDS if prefetch == concurrency == 1 else (*COMMANDS, "succeed_many", "release")
        self._binary = binary or find_server()

    def run(self) -> Report:
        """Let there be faults for a while, then none, until all jobs came to an end; and look at what is left."""
        with ExitStack() as stack:
            self._let_pulse(stack, HARNESS)
            self._hire(self._enter(stack))
            stack.callback(self._end)
            self._start()
            self._break_things()
            self._calm_down()
            return self._report()

    def remove(self) -> None:
        """Delete what the processes wrote."""
        shutil.rmtree(self.directory, ignore_errors=True)

    def _enter(self, stack: ExitStack) -> list[str]:
        """Start Redis; return the databases of the processes."""
        self._servers = [stack.enter_context(RedisServer(self._binary, *REMEMBERS_ALL)) for _ in range(self._shards)]
        self._proxies = [stack.enter_context(Proxy(each.socket, self._network_delay)) for each in self._servers]
        self._clients = [stack.enter_context(each.client()) for each in self._servers]
        proxied = [f"unix://{proxy.socket}" for proxy in self._proxies]
        for name, urls in ((REDIS, [each.url for each in self._servers]), (HARNESS, proxied)):
            for url in urls:
                asked = Redis.from_url(url, client_name=REDIS, retry=Retry(NoBackoff(), 0))
                self._let_pulse(stack, name, stack.enter_context(asked).ping)
        return proxied

    def _let_pulse(self, stack: ExitStack, name: str, ask: Callable[[], object] = lambda: None) -> None:
        stack.callback(Pulse(Marks(self.directory / f"{name}.marks"), ask).stop)

    def _command_of(self, number: int) -> list[str]:
        """Return the words with which the command of a process begins."""
        return []

    def _hire(self, databases: list[str]) -> None:
        env = {VARIABLE: databases[0], **self._sockets_of(databases), **({} if self._rescue else {NO_RESCUE: "1"})}
        rate = RATE if self._concurrency == 1 else RATE_OF_MANY
        producer = [sys.executable, str(HERE / "chaos_producer.py")]
        settings = (self._mixture, str(rate), str(AGAIN if self._rescue else 0))

        def worker_of(number: int) -> list[str]:
            shards = [f"--shards={' '.join(databases)}", f"--home={number % len(databases)}"]
            own = shards if len(databases) > 1 else []
            return [*self._command_of(number), *self._worker_command(), *own]

        def producer_of(number: int) -> list[str]:
            return [*self._command_of(number), *producer, f"{self.seed}:{number}", *settings]

        def requeuer_of(number: int) -> list[str]:
            return [sys.executable, str(HERE / "chaos_requeuer.py"), *(each.url for each in self._servers)]

        children = {HAS_CHILDREN: "1"} if self._processes > 1 else {}
        of_requeuer = {SOCKETS: " ".join(each.socket for each in self._servers)} if self._goes_on else {}
        self._workers = Crew("worker", WORKERS, self.directory, worker_of, **env, **children)
        self._producers = Crew("producer", PRODUCERS, self.directory, producer_of, **env)
        self._requeuers = Crew("requeuer", int(self._goes_on), self.directory, requeuer_of, **of_requeuer)

    def _sockets_of(self, databases: list[str]) -> dict[str, str]:
        if len(databases) < 2:
            return {}
        return {SOCKETS: " ".join(each.removeprefix("unix://") for each in databases)}

    @property
    def _goes_on(self) -> bool:
        """Whether there are jobs that go on where they were."""
        return any(job_class in MIXTURES[self._mixture] for job_class in GO_ON)

    def _worker_command(self) -> list[str]:
        longest = f"--max-duration={self.seconds + 3 * PATIENCE}"  # should nobody be left to end them
        at_once = [f"--prefetch={self._prefetch}", f"--concurrency={self._concurrency}"]
        if self._processes > 1:
            at_once.append(f"--processes={self._processes}")
        if "end_worker" in self._kinds:
            at_once.append(f"--grace-period={GRACE_PERIOD}")
        program = [sys.executable, "-m", "limpyd_jobs.scripts.worker"]
        return [*program, *WORKER_OPTIONS, f"--lease={self._lease}", *at_once, longest]

    def _start(self) -> None:
        self._fill()
        wait_until(lambda: sum(mark["kind"] == "begun" for mark in self._marks()) >= WORKERS, "all workers")

    def _marks(self) -> list[dict[str, Any]]:
        return list(read_marks(self.directory))

    def _fill(self) -> None:
        for crew in (self._workers, self._producers, self._requeuers):
            for name, status in crew.ended():
                self._died(name, status)
            for name, left_with in crew.left():
                self._check_end(name, left_with)
            crew.fill()

    def _died(self, name: str, status: int) -> None:
        """A worker that cannot use Redis at its start says so, and ends with status 1: its supervisor starts one. One
        whose jobs do not end when they should may end in good order, and says why."""
        self._stopped.pop(name, None)
        has_begun = self._has_begun(name)
        if has_begun and status in (0, 1) and self._mixture == "hostile" and "ending" in self._whole_log_of(name):
            self._ended_themselves += 1
            self._note("worker ended itself", name)
            return
        if status != 1 or has_begun:
            self.wrong.append(f"{name} ended with status {status}: {self._log_of(name)}")
        self._note("ended at its start", name)

    def _end_crew(self, crew: Crew) -> None:
        for name, status in crew.end().items():
            self._check_end(name, status)

    def _check_end(self, name: str, status: int | None) -> None:
        """SIGTERM has to end a process well, but for one that did not come to know it yet."""
        if status is None or (status and self._has_begun(name)):
            self.wrong.append(f"{name}, asked to end, came to status {status}: {self._log_of(name)}")

    def _has_begun(self, name: str) -> bool:
        return any(True for _ in read_marks(self.directory, name))

    def _log_of(self, name: str) -> str:
        return self._whole_log_of(name)[-2000:]

    def _whole_log_of(self, name: str) -> str:
        return (self.directory / f"{name}.log").read_text(errors="replace")

    # -- Faults

    def _break_things(self) -> None:
        begun = monotonic()
        while monotonic() < begun + self.seconds or not self._has_done_all(begun):
            time.sleep(self._rng.uniform(0.05, 0.8))
            self._continue_stopped()
            if self._kinds:
                getattr(self, f"_{self._next_fault()}")()
            self._fill()
            self._tell_progress(f"{monotonic() - begun:.0f} s under faults")

    def _has_done_all(self, begun: float) -> bool:
        """Whether there was each kind of fault, and, if workers are sure to wait, a reply lost in a hand-over: else the
        test would prove little."""
        has_lost = (
            "cut_hand_over" not in self._kinds
            or self._mixture != "simple"
            or any(fault.kind == "BLPOP cut" for fault in self.faults)
        )
        return (has_lost and not self._undone) or monotonic() > begun + self.seconds + PATIENCE

    def _next_fault(self) -> str:
        if not self._deck:
            self._deck = [name for name, number in self._kinds.items() for _ in range(number)]
            self._rng.shuffle(self._deck)
        name = self._deck.pop()
        self._undone.discard(name)
        return name

    def _tell_progress(self, what: str) -> None:
        if monotonic() > self._told + PROGRESS:
            self._told = monotonic()
            kinds = [mark["kind"] for mark in self._marks()]
            told = f"{kinds.count('added')} jobs added, {kinds.count('start')} runs begun, {len(self.faults)} faults"
            self._tell(f"{what}: {told}")

    def _note(self, kind: str, name: str = "", ident: str = "") -> None:
        self.faults.append(Fault(monotonic(), kind, name, ident))

    def _next_worker(self) -> str | None:
        """Any, or, every other time, one that runs a job, if there is one; None without any."""
        names = sorted(self._workers.running())
        busy = [name for name in names if self._is_busy(name)]
        return self._hits.choice(busy if busy and self._hits.random() < 0.5 else names) if names else None

    def _is_busy(self, name: str) -> bool:
        kinds = [mark["kind"] for mark in read_marks(self.directory, name)]
        return kinds.count("start") > kinds.count("end") + kinds.count("left")

    def _is_one_starting(self) -> bool:
        """Whether a worker has not begun yet. On a slow machine, nearly all would be hit before they begin."""
        return not all(map(self._has_begun, self._workers.members))

    def _kill_worker(self) -> None:
        """One that is starting, too, but not often."""
        name = self._next_worker()
        if name and (not self._is_one_starting() or self._hits.random() < 0.2):
            self._stopped.pop(name, None)
            self._workers.kill(name)
            self._note("worker killed", name)

    def _end_worker(self) -> None:
        """As a deployment does it."""
        stopped = {name.partition(".")[0] for name in self._stopped}
        names = sorted(self._workers.members.keys() - stopped)
        if names and not (self._workers.leaving or self._is_one_starting()):
            name = self._hits.choice(names)
            self._note("worker ended", name)
            self._workers.dismiss(name)

    def _kill_producer(self) -> None:
        name = self._hits.choice(sorted(self._producers.members))
        self._producers.kill(name)
        self._note("producer killed", name)

    def _stop_worker(self) -> None:
        name = self._next_worker()
        if name and name not in self._stopped and len(self._stopped) < 2:
            pid = self._workers.running()[name]
            self._note("worker stopped", name)
            os.kill(pid, signal.SIGSTOP)
            self._stopped[name] = pid, monotonic() + self._lease * self._hits.uniform(1.2, 2)

    def _continue_stopped(self, at: float | None = None) -> None:
        for name, (pid, until) in list(self._stopped.items()):
            if until < (at or monotonic()):
                del self._stopped[name]
                if name in self._workers.running():
                    os.kill(pid, signal.SIGCONT)

    def _kill_client(self) -> None:
        client = self._hits.choice(self._clients)
        own = client.client_id()
        known = client.client_list()
        others = [each["id"] for each in known if int(each["id"]) != own and each["name"] != REDIS]
        if others:
            self._note("client killed")
            client.client_kill_filter(_id=self._hits.choice(others))

    def _kill_redis(self) -> None:
        server = self._hits.choice(self._servers)
        self._note("Redis killed")
        server.kill()
        server.start()

    def _cut(self) -> None:
        """Lose a request, or its reply."""
        command = self._rng.choice(self._commands)
        cut = self._rng.choice((Cut.CUT_BEFORE_REQUEST, Cut.CUT_BEFORE_REPLY, Cut.CUT_WITHIN_REPLY))
        self._cut_once(command, cut, lambda reply: "")

    def _cut_hand_over(self) -> None:
        """Lose the reply that tells a worker that its wait has ended, and with it what it claimed then."""
        self._cut_once("BLPOP", self._rng.choice((Cut.CUT_BEFORE_REPLY, Cut.CUT_WITHIN_REPLY)), _heard)

    def _cut_once(self, command: str, cut: Cut, ident_in: Callable[[bytes], str | None]) -> None:
        """Cut the next such command with a reply that is meant; only one of them is looked for at a time."""

        def is_cut(reply: bytes) -> bool:
            ident = ident_in(reply)
            if ident is None or not self._are_cuts_on:
                return False
            self._note(f"{command} cut", ident=ident)
            self._cuts_under_way.discard(command)
            return True

        if command not in self._cuts_under_way:
            self._cuts_under_way.add(command)
            self._hits.choice(self._proxies).on(command, cut, if_reply=is_cut)

    # -- The end

    def _calm_down(self) -> None:
        """No more faults, no more jobs; wait until nothing is left to do."""
        self._are_cuts_on = False
        self._continue_stopped(at=float("inf"))
        self._end_crew(self._producers)
        self._producers.size = 0
        for one in self._requeuers.members.values():
            one.terminate()  # it leaves successes alone from now on
        until = monotonic() + PATIENCE
        while self._are_jobs_left() and monotonic() < until:
            self._fill()
            time.sleep(0.1)
            self._tell_progress("no more faults, waiting for the last jobs")
        if self._rescue and self._are_jobs_left():
            self.wrong.append("queues are not empty")
        for name in list(self._requeuers.members):
            self._requeuers.kill(name)
        self._end_crew(self._workers)

    def _are_jobs_left(self) -> bool:
        """Whether jobs are queued, or, if nobody looks for lost ones, stand where workers find them."""
        return any(map(self._are_left_in, self._clients))

    def _are_left_in(self, client: Any) -> bool:
        places = [key for key in client.scan_iter(f"{Queue._name}:*") if re.search(":(waiting|delayed)$", key)]
        queued = [f"{job_class._name}:queued:1" for job_class in JOBS] if self._rescue else []
        to_requeue = [f"{job_class._name}:status:{STATUSES.ERROR}" for job_class in GO_ON]
        return bool(client.exists(*places, *queued, *to_requeue))

    def _end(self) -> None:
        for crew in (self._producers, self._requeuers, self._workers):
            crew.end()

    def _broken(self) -> list[str]:
        """Return what is wrong with what is left."""
        found = [each for client in self._clients for each in violations(client, *MODELS)]
        checked = [line for server in self._servers for line in _checked(server.url)]
        return [each for each in found if not each.startswith(LEFTOVERS)] + checked

    def _report(self) -> Report:
        return Report(
            Observed(
                seed=self.seed,
                seconds=self.seconds,
                lease=self._lease,
                workers=WORKERS * self._processes,
                marks=self._marks(),
                faults=self.faults,
                records=dict(self._records()),
                broken=self._broken(),
                wrong=self.wrong,
                prefetch=MAX_BATCH if isinstance(self._prefetch, str) else self._prefetch + self._concurrency - 1,
                gone=self._workers.gone,
                is_concurrent=self._concurrency > 1,
                ended_themselves=self._ended_themselves,
            )
        )

    def _records(self) -> Iterator[tuple[str, Any]]:
        for number, client in enumerate(self._clients):
            place = f" in {number}" if self._shards > 1 else ""
            for job_class in JOBS:
                for pk in client.smembers(f"{job_class._name}:collection"):
                    record = client.hgetall(f"{job_class._name}:{pk}:hash")
                    yield f"{job_class.get_model_repr()}:{pk}{place}", record


def _checked(url: str) -> list[str]:
    """Return what ``limpyd-jobs check`` finds."""
    program = [sys.executable, "-W", "ignore", "-m", "limpyd_jobs.scripts.jobs", "check", f"--database={url}"]
    env = {**os.environ, "PYTHONPATH": PYTHONPATH}
    done = subprocess.run([*program, "--job-modules=chaos_jobs"], env=env, capture_output=True, text=True)
    return [] if done.returncode == 0 else [f"check: {done.stdout} {done.stderr}"]


def _heard(reply: bytes) -> str | None:
    """No ident, but a signal, if the reply of BLPOP has one."""
    return "" if b":_signal:" in reply else None


def _kind_of(cluster: bool) -> tuple[type[Chaos], Mapping[str, int]]:
    if not cluster:
        return Chaos, FAULTS
    import chaos_cluster  # which needs this module

    return chaos_cluster.ClusterChaos, chaos_cluster.FAULTS


def main() -> int:
    """Run the test that the command line asks for."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--minutes", type=float, default=1, help="for how long there are faults (default: 1)")
    parser.add_argument("--seed", type=int, default=None, help="what is broken when (default: any)")
    parser.add_argument(
        "--prefetch",
        type=read_prefetch,
        default=1,
        metavar="N",
        help="what workers get as such an option",
    )
    parser.add_argument(
        "--concurrency", type=int, default=1, metavar="N", help="how many jobs a worker runs at once (default: 1)"
    )
    parser.add_argument("--processes", type=int, default=1, metavar="N", help="how many processes a worker has")
    parser.add_argument("--shards", type=int, default=1, metavar="N", help="how many databases have the jobs")
    parser.add_argument("--jobs", choices=MIXTURES, default="simple", help="which kinds of jobs (default: simple)")
    parser.add_argument("--lease", type=float, default=LEASE, metavar="SECONDS", help=f"of jobs (default: {LEASE:g})")
    parser.add_argument(
        "--network-delay",
        type=float,
        default=0,
        metavar="SECONDS",
        help="what each request takes to Redis (default: 0)",
    )
    parser.add_argument(
        "--faults", default="", metavar="NAME,NAME", help=f"only these, or `none`, of: {', '.join(FAULTS)}"
    )
    parser.add_argument("--cluster", action="store_true", help="on a Redis Cluster: its servers die, its slot moves")
    parser.add_argument("--no-rescue", action="store_true", help="do not look for lost jobs: some are lost then")
    parser.add_argument("--redis-server", default="", help="the server program")
    options = parser.parse_args()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit("terminated"))  # so that all that was started is ended
    seed = random.randrange(10**6) if options.seed is None else options.seed
    kind, faults = _kind_of(options.cluster)
    if options.faults:
        faults = {name: faults[name] for name in options.faults.split(",") if name != "none"}
    chaos = kind(
        seed,
        options.minutes * 60,
        rescue=not options.no_rescue,
        faults=faults,
        mixture=options.jobs,
        prefetch=options.prefetch,
        concurrency=options.concurrency,
        processes=options.processes,
        shards=options.shards,
        lease=options.lease,
        network_delay=options.network_delay,
        binary=options.redis_server,
        tell=partial(print, flush=True),
    )
    print(f"seed {seed}; what the processes write is in {chaos.directory}", flush=True)
    report = chaos.run()
    print(report)
    if report.violations:
        return 1
    chaos.remove()
    return 0


if __name__ == "__main__":
    sys.exit(main())
