"""Stock conductors of TaskFlow that share a board, and are killed or stopped: each flow completes.

    python tests/proofs/conductors.py --minutes 5 --kill-every 1

prints what came of it, and ends with status 1 if a posting is left, if a flow did not complete, if a posting was
consumed twice, or if a conductor ended by itself. Books are kept by SQLite. Every second time, a conductor is not
killed but stopped for longer than its lease: somebody else takes its posting over, and what it consumes then is
refused.

A step of a flow runs again if its conductor was killed or stopped while it ran: how many did is told. If that was while
TaskFlow wrote the book, its storage may not be able to read the book any more, or two engines are at it. Then the next
conductor trashes the posting, which is kept in the `errors` of its queue: at most one for each kill and each stop.
"""

from __future__ import annotations

import argparse
import faulthandler
import os
import random
import signal
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterable
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

HERE = Path(__file__).parent
sys.path[:0] = [str(each) for each in (HERE, HERE.parent) if str(each) not in sys.path]

from oslo_utils import uuidutils  # noqa: E402
from servers import RedisServer  # noqa: E402
from taskflow import engines, exceptions, states, task  # noqa: E402
from taskflow.conductors import backends as conductor_backends  # noqa: E402
from taskflow.patterns import linear_flow  # noqa: E402
from taskflow.persistence import backends as persistence_backends  # noqa: E402
from taskflow.persistence import models  # noqa: E402

from limpyd_jobs import Error  # noqa: E402
from limpyd_jobs.check import check  # noqa: E402
from limpyd_jobs.contrib.taskflow import Board, LimpydJob, LimpydJobBoard, Posting  # noqa: E402
from limpyd_jobs.models import BaseJobsModel  # noqa: E402
from limpyd_jobs.redis.embedded import find_server  # noqa: E402

CONDUCTORS = 3
CLAIMERS = 8
STEPS = ("book", "pay", "ship")
LEASE = 2  # seconds
RATE = 4  # postings, each second
PATIENCE = 90  # seconds for the last postings
BOARD = "flows"
JOURNAL, STORE, SOCKET = "CONDUCTORS_JOURNAL", "CONDUCTORS_STORE", "CONDUCTORS_SOCKET"


def note(*words: object) -> None:
    """Add a line to the journal, by one write."""
    file = os.open(os.environ[JOURNAL], os.O_WRONLY | os.O_APPEND | os.O_CREAT)
    os.write(file, (" ".join(map(str, words)) + "\n").encode())
    os.close(file)


def noted(kind: str) -> Counter[str]:
    """Return how often each thing of a kind is in the journal."""
    lines = Path(os.environ[JOURNAL]).read_text().splitlines()
    return Counter(line.removeprefix(f"{kind} ") for line in lines if line.startswith(f"{kind} "))


class Step(task.Task):
    """What flows are made of."""

    def execute(self, order: str) -> None:
        time.sleep(random.uniform(0, 0.1))
        note("did", order, self.name)


def saga() -> linear_flow.Flow:
    return linear_flow.Flow("saga").add(*map(Step, STEPS))


class NotingBoard(LimpydJobBoard):
    """Notes who claimed what, what was consumed or trashed, and who was refused."""

    def claim(self, job: LimpydJob, who: str, expiry: float | None = None) -> None:
        super().claim(job, who, expiry)
        note("run", job.uuid, os.getpid())

    def consume(self, job: LimpydJob, who: str) -> None:
        try:
            super().consume(job, who)
        except (exceptions.JobFailure, exceptions.NotFound):
            note("refused", job.uuid)
            raise
        note("consumed", job.uuid)

    def trash(self, job: LimpydJob, who: str) -> None:
        super().trash(job, who)
        note("trashed", job.uuid)


# -- Processes


def open_board(persistence: Any = None) -> NotingBoard:
    conf = {"unix_socket_path": os.environ[SOCKET], "lease": LEASE}
    board = NotingBoard(BOARD, conf, persistence=persistence)
    board.connect()
    return board


def open_store() -> Any:
    # who is stopped may hold the lock of SQLite meanwhile; who has waited longer gives up, and another one goes on
    return persistence_backends.fetch({"connection": f"sqlite:///{os.environ[STORE]}?timeout={10 * LEASE}"})


def conduct() -> None:
    """Be a conductor, for ever. On SIGUSR1, say where it is."""
    faulthandler.register(signal.SIGUSR1)
    store = open_store()
    board = open_board(store)
    name = f"conductor-{os.getpid()}"
    options = {"persistence": store, "engine": "serial", "wait_timeout": board.timeout()}
    conductor_backends.fetch("blocking", name, board, **options).run()


def produce(seconds: float) -> None:
    """Post flows, for so long."""
    store, until = open_store(), time.monotonic() + seconds
    board = open_board(store)
    while time.monotonic() < until:
        book = models.LogBook("orders", uuidutils.generate_uuid())
        flow = models.FlowDetail("saga", uuidutils.generate_uuid())
        book.add(flow)
        flow.meta["store"] = {"order": flow.uuid}
        store.get_connection().save_logbook(book)
        engines.save_factory_details(flow, saga, [], {}, backend=store)
        job = board.post("saga", book=book, details={"flow_uuid": flow.uuid})
        note("posted", job.uuid)
        note("ordered", flow.uuid, book.uuid, job.uuid)
        time.sleep(1 / RATE)
    board.close()


def claim_all() -> None:
    """Claim whatever can be claimed."""
    board = open_board()
    for job in board.iterjobs(only_unclaimed=True):
        try:
            board.claim(job, f"claimer-{os.getpid()}", expiry=600)
        except exceptions.UnclaimableJob:
            continue
        note("claimed", job.uuid)
    board.close()


def post_all(count: int) -> None:
    """Post what has no flow."""
    board = open_board()
    for number in range(count):
        board.post(str(number))
    board.close()


def fork(play: Callable[[], None]) -> int:
    """Start a process that plays a part; return its pid."""
    pid = os.fork()
    if pid == 0:
        status = 1
        try:
            play()
            status = 0
        except BaseException:
            sys.excepthook(*sys.exc_info())
        finally:
            os._exit(status)
    return pid


def kill(pid: int) -> None:
    os.kill(pid, signal.SIGKILL)
    os.waitpid(pid, 0)


def show(pids: Iterable[int]) -> None:
    """Have each conductor write to the standard error what its threads are at."""
    for pid in pids:
        print(f"conductor {pid} is at:", file=sys.stderr, flush=True)
        os.kill(pid, signal.SIGUSR1)
        time.sleep(1)


# -- The test


class Report(NamedTuple):
    """What came of it."""

    kills: int
    stops: int
    posted: int
    incomplete: list[str]
    consumed_twice: int
    not_consumed: int
    refused: int
    steps_again: int
    died: int
    left: list[str]
    trashed: int
    errors: int
    findings: list[Any]

    @property
    def wrong(self) -> list[str]:
        rules = {
            "nothing was posted": self.posted,
            f"{len(self.incomplete)} flows did not complete: {', '.join(self.incomplete)}": not self.incomplete,
            f"{self.consumed_twice} postings consumed twice": not self.consumed_twice,
            # who is killed between the two consumed it, and could not note it
            f"{self.not_consumed} consumed by nobody, after {self.kills} kills": self.not_consumed <= self.kills,
            f"{self.died} processes ended by themselves": not self.died,
            f"{len(self.left)} postings left: {', '.join(self.left)}": not self.left,
            f"{self.trashed} trashed, after {self.kills} kills and {self.stops} stops": (
                self.trashed <= self.kills + self.stops
            ),
            f"{self.trashed} trashed, but {self.errors} kept in errors": self.trashed <= self.errors,
            f"the check: {self.findings}": not self.findings,
        }
        return [text for text, is_kept in rules.items() if not is_kept]

    def __str__(self) -> str:
        return (
            f"{self.posted} flows, {self.kills} kills, {self.stops} stops: {len(self.incomplete)} incomplete, "
            f"{len(self.left)} left, {self.trashed} trashed, {self.consumed_twice} consumed twice, "
            f"{self.refused} refused; {self.steps_again} steps ran again\n"
            + ("wrong: " + "; ".join(self.wrong) if self.wrong else "all is well")
        )


def run(seconds: float, kill_every: float) -> Report:
    """Let conductors work for a while, and kill or stop one of them every so many seconds, if that is not 0."""
    open_store().get_connection().upgrade()
    conductors = [fork(conduct) for _ in range(CONDUCTORS)]
    producer = fork(partial(produce, seconds))
    stopped: list[tuple[float, int]] = []  # until when, and who
    died = kills = stops = 0
    until, give_up = time.monotonic() + seconds, time.monotonic() + seconds + PATIENCE
    while time.monotonic() < until or ((postings_left() or stopped or incomplete()) and time.monotonic() < give_up):
        time.sleep(kill_every or 0.5)
        while stopped and stopped[0][0] < time.monotonic():
            conductors.append(stopped.pop(0)[1])
            os.kill(conductors[-1], signal.SIGCONT)
        for pid in [pid for pid in conductors if os.waitpid(pid, os.WNOHANG)[0]]:
            died += 1
            conductors.remove(pid)
        if kill_every and time.monotonic() < until:
            if stops < kills:
                stopped.append((time.monotonic() + 2 * LEASE, conductors.pop(0)))
                os.kill(stopped[-1][1], signal.SIGSTOP)
                stops += 1
            else:
                kill(conductors.pop(0))
                kills += 1
        conductors += [fork(conduct) for _ in range(CONDUCTORS - len(conductors))]
    died += os.waitpid(producer, 0)[1] != 0
    if postings_left() or incomplete():
        show(conductors)
    for pid in [*conductors, *(pid for _, pid in stopped)]:
        kill(pid)
    return report(kills, stops, died)


def postings_left() -> int:
    return sum(queue.waiting.llen() + queue.running.zcard() for queue in Board.get_all(BOARD))


def incomplete() -> list[str]:
    """The flows that did not complete, those apart whose postings were trashed: the state of each, and who ran it.

    Who was stopped and goes on writes the state of a flow that somebody else completed meanwhile, as TaskFlow does not
    ask whose the book is; and may be killed then. So the state says nothing of a flow that several have run.
    """
    connection, trashed, did = open_store().get_connection(), noted("trashed"), noted("did")
    orders = [order.split(" ") for order in noted("ordered")]
    flows = {job: connection.get_logbook(book).find(flow) for flow, book, job in orders if job not in trashed}
    return [
        f"{flow.state}, run by {runners_of(job)}"
        for job, flow in flows.items()
        if any(not did[f"{flow.uuid} {step}"] for step in STEPS)
        or (flow.state != states.SUCCESS and len(runners_of(job)) == 1)
    ]


def report(kills: int, stops: int, died: int) -> Report:
    posted, consumed, trashed, did = map(noted, ("posted", "consumed", "trashed", "did"))
    left = {each.identifier.hget(): each for each in Posting.collection(queued="1").instances()}
    findings = check(pause=0, queue_models=[Board], error_models=[Error]).findings
    return Report(
        kills=kills,
        stops=stops,
        posted=len(posted),
        incomplete=incomplete(),
        consumed_twice=sum(count > 1 for count in consumed.values()),
        not_consumed=len(posted.keys() - consumed.keys() - trashed.keys()),
        refused=noted("refused").total(),
        steps_again=did.total() - len(did),
        died=died,
        left=[f"{posting.ident} {posting.claim_state()}, run by {runners_of(uuid)}" for uuid, posting in left.items()],
        trashed=len(trashed),
        errors=sum(queue.errors.llen() for queue in Board.get_all(BOARD)),
        findings=findings,
    )


def runners_of(job: str) -> list[str]:
    """The pids of the conductors that claimed a posting."""
    return [line.split(" ")[1] for line in noted("run") if line.startswith(job)]


def claims(count: int) -> Counter[str]:
    """Let several processes claim the same postings; return how often each of them was claimed."""
    pids = [fork(partial(post_all, count))]
    assert os.waitpid(pids.pop(), 0)[1] == 0
    pids = [fork(claim_all) for _ in range(CLAIMERS)]
    assert [os.waitpid(pid, 0)[1] for pid in pids] == [0] * CLAIMERS
    return noted("claimed")


def main() -> int:
    """Run the test that the command line asks for."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--minutes", type=float, default=1, help="for how long (default: 1)")
    parser.add_argument("--kill-every", type=float, default=1, metavar="S", help="seconds; 0 for never (default: 1)")
    parser.add_argument("--claims", type=int, metavar="N", help=f"only let {CLAIMERS} processes claim N postings")
    parser.add_argument("--redis-server", default="", help="the server program")
    options = parser.parse_args()
    with RedisServer(options.redis_server or find_server()) as server, tempfile.TemporaryDirectory() as directory:
        os.environ.update({JOURNAL: f"{directory}/journal", STORE: f"{directory}/store", SOCKET: server.socket})
        BaseJobsModel.database.connect(unix_socket_path=server.socket)
        if options.claims:
            won = claims(options.claims)
            print(f"{len(won)} of {options.claims} postings claimed, {won.total() - len(won)} of them twice")
            return 0 if won.total() == len(won) == options.claims else 1
        found = run(options.minutes * 60, options.kill_every)
    print(found)
    return 1 if found.wrong else 0


if __name__ == "__main__":
    # flows are stored with the module of their factory: "__main__" is something else in each process
    import conductors

    sys.exit(conductors.main())
