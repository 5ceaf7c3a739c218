"""WorkerPool that begin at the same moment: producers that add jobs, and workers that run them.

>>> with Racers(redis_server.socket, tmp_path, produce=8, work=4) as racers:
...     racers.wait_for("produce")
...     racers.end_work()

What the jobs do is written outside of Redis, each line by one write.
"""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

from limpyd_jobs import Job, Queue, Schedule, Worker
from limpyd_jobs.models import BaseJobsModel
from limpyd_jobs.workers.maintenance.scheduler import Scheduler

IDENTIFIERS = 200
PRIORITIES = 4


class Race(Job):
    """A job that leaves two lines: its pk when it starts, and when it ends."""

    namespace = "races"
    queue_name = "queue"

    def run(self, queue: Queue) -> None:
        journal = os.open(os.environ["JOURNAL"], os.O_WRONLY | os.O_APPEND | os.O_CREAT)
        os.write(journal, f"start {self.pk.get()} {os.getpid()}\n".encode())
        sum(range(20_000))
        os.write(journal, f"end {self.pk.get()} {os.getpid()}\n".encode())
        os.close(journal)


class Racers:
    """The processes, all of which end with the context.

    Parameters
    ----------
    parts: int
        How many processes play each of the `PARTS`.
    """

    def __init__(self, socket: str, directory: Path, **parts: int) -> None:
        self._journal = directory / "journal"
        self._journal.touch()
        path = os.pathsep.join(str(each) for each in (Path(__file__).parent, Path(__file__).parents[1]))
        environment = {**os.environ, "PYTHONPATH": path, "SOCKET": socket, "JOURNAL": str(self._journal)}
        # imported, not run, for the class of the jobs to have the same path everywhere
        command = [sys.executable, "-W", "ignore", "-c", f"import racers; racers.race({parts!r})"]
        self._process = subprocess.Popen(
            command, env=environment, stdout=subprocess.PIPE, text=True, start_new_session=True
        )

    def wait_for(self, part: str) -> None:
        """Wait until the processes that play a part have ended, and see that none failed. Those that work are last."""
        assert self._process.stdout is not None
        name, _, statuses = self._process.stdout.readline().partition(":")
        assert (name, set(json.loads(statuses))) == (part, {0})

    def end_work(self) -> None:
        """Ask those that work to end, and wait for it."""
        os.killpg(self._process.pid, signal.SIGTERM)
        self.wait_for("work")

    def lines(self) -> Iterator[tuple[str, str, str]]:
        """What the jobs wrote: what happened, the pk, and the process."""
        for line in self._journal.read_text().splitlines():
            event, pk, process = line.split(" ")
            yield event, pk, process

    def __enter__(self) -> Racers:
        return self

    def __exit__(self, *exception: object) -> None:
        if self._process.poll() is None:
            os.killpg(self._process.pid, signal.SIGKILL)
        self._process.communicate()


def race(parts: dict[str, int]) -> None:
    """Fork the processes, let them begin at the same moment, and tell how they ended."""
    reader, writer = os.pipe()
    signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGTERM})  # for those that work, once they can obey
    children = {part: [_fork(part, reader, writer) for _ in range(number)] for part, number in parts.items()}
    os.close(writer)
    for part, pids in children.items():
        print(f"{part}: {[os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) for pid in pids]}", flush=True)


def _fork(part: str, reader: int, writer: int) -> int:
    pid = os.fork()
    if pid == 0:
        status = 1
        try:
            os.close(writer)
            BaseJobsModel.database.connect(unix_socket_path=os.environ["SOCKET"]).ping()
            os.read(reader, 1)  # until nobody can write any more
            PARTS[part]()
            status = 0
        except BaseException:
            sys.excepthook(*sys.exc_info())
        finally:
            os._exit(status)
    return pid


def produce() -> None:
    """Add the same identifiers as all others do, in an order of our own."""
    for number in random.sample(range(IDENTIFIERS), IDENTIFIERS):
        Race.add_job(f"job {number}")


def raise_priorities() -> None:
    """Add jobs again and again, at higher and higher priorities, while they wait and while they run."""
    for priority in range(PRIORITIES):
        for number in random.sample(range(IDENTIFIERS), IDENTIFIERS):
            Race.add_job(f"job {number}", priority=priority, prepend=random.random() < 0.1)


def add_seldom() -> None:
    """Add the same jobs again and again, while they wait, run and have ended, but none that ended in this hour."""
    for _ in range(3):
        for number in random.sample(range(IDENTIFIERS), IDENTIFIERS):
            Race.add_job(f"job {number}", unique_for=3600)


def replace() -> None:
    """Add the same jobs again and again, each time in place of the queued one; note what was done."""
    journal = os.open(os.environ["JOURNAL"], os.O_WRONLY | os.O_APPEND)
    for number in random.choices(range(5), k=300):
        delay, priority = random.choice((None, 0.001)), random.randrange(PRIORITIES)
        job = Race.add_job(f"job {number}", on_duplicate="replace", delayed_for=delay, priority=priority)
        os.write(journal, f"{job.add_outcome} {job.pk.get()} {os.getpid()}\n".encode())
    os.close(journal)


def work() -> None:
    """Run jobs until we are told to end."""
    often = {"fetch_delayed_delay": 0.05, "fetch_priorities_delay": 0.05}
    worker = Worker("queue", lease=60, max_loops=10**6, max_duration=60, **often)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGTERM})
    worker.run()


def enqueue_due() -> None:
    """Fire what schedules there are, as workers do, until nothing is due any more."""
    scheduler = Scheduler(Queue, 1, print, print)
    now = Schedule.get_connection().time()[0]
    while Schedule.get_connection().zcount("jobs:schedule:due", 0, now):
        for _ in scheduler.enqueue_due():
            pass


PARTS = {each.__name__: each for each in (add_seldom, enqueue_due, produce, raise_priorities, replace, work)}
