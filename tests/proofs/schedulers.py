"""Schedulers of APScheduler that share their jobs, and are killed: each time of each job is seen to.

    python tests/proofs/schedulers.py --minutes 5 --kill-every 0.5

prints what came of it, and ends with status 1 if a time of a job was lost, if one was seen to more often than kills
explain, or if a scheduler ended by itself.

A scheduler gives a job to its executor, then records in the store that it did. If it is killed in between, another one
cannot know, and gives the job once more: one job per kill, which is what is allowed here. What an executor was given is
run by a thread of that process, and dies with it: how many of these there were is told, and is nothing that a store
could prevent.
"""

from __future__ import annotations

import argparse
import os
import random
import signal
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterator
from datetime import datetime, timedelta, timezone
from pathlib import Path
from typing import Any, NamedTuple

HERE = Path(__file__).parent
sys.path[:0] = [str(each) for each in (HERE, HERE.parent) if str(each) not in sys.path]

from apscheduler.executors.pool import ThreadPoolExecutor  # noqa: E402
from apscheduler.schedulers.background import BackgroundScheduler  # noqa: E402
from servers import RedisServer  # noqa: E402

from limpyd_jobs import Error, Queue  # noqa: E402
from limpyd_jobs.check import check  # noqa: E402
from limpyd_jobs.contrib.apscheduler import LimpydJobStore  # noqa: E402
from limpyd_jobs.models import BaseJobsModel  # noqa: E402
from limpyd_jobs.redis.embedded import find_server  # noqa: E402

SCHEDULERS = 3
INTERVALS = {"quarter": 0.25, "half": 0.5, "second": 1.0}  # seconds
RATE = 20  # jobs for one time, each second
LEASE = 3  # seconds
PATIENCE = 60  # seconds for the last jobs
OPTIONS = {"misfire_grace_time": None, "coalesce": False, "max_instances": 10_000}
JOURNAL = "SCHEDULERS_JOURNAL"

Slot = tuple[str, float]


class Submission(NamedTuple):
    """A job that an executor was given, and its times: seconds since the epoch."""

    job: str
    times: tuple[float, ...]


class Journal:
    """What processes did: a file, to which each line is added by one write."""

    def __init__(self, path: str) -> None:
        self._path = path
        self._file = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT)

    def note(self, *words: object) -> None:
        os.write(self._file, (" ".join(map(str, words)) + "\n").encode())

    def lines(self, kind: str) -> Iterator[list[str]]:
        for line in Path(self._path).read_text().splitlines():
            words = line.split(" ")
            if words[0] == kind:
                yield words[1:]

    def submissions(self) -> list[Submission]:
        return [Submission(job, tuple(map(float, times))) for job, *times in self.lines("submitted")]


def note_run(job: str) -> None:
    """What all jobs do."""
    Journal(os.environ[JOURNAL]).note("ran", job)


class NotingExecutor(ThreadPoolExecutor):
    """Notes what it was given."""

    def submit_job(self, job: Any, run_times: list[datetime]) -> None:
        Journal(os.environ[JOURNAL]).note("submitted", job.id, *(each.timestamp() for each in run_times))
        super().submit_job(job, run_times)


# -- Processes


def make_scheduler(*, paused: bool = False) -> BackgroundScheduler:
    scheduler = BackgroundScheduler(timezone="UTC", job_defaults=OPTIONS)
    scheduler.add_jobstore(LimpydJobStore(lease=LEASE, allowed=[__name__]))
    scheduler.add_executor(NotingExecutor(10))
    scheduler.start(paused=paused)
    return scheduler


def schedule() -> None:
    """Be a scheduler, for ever."""
    make_scheduler()._thread.join()


def produce(seconds: float) -> None:
    """Add jobs for one time, for so long. They are due at once, or soon."""
    scheduler, until = make_scheduler(paused=True), time.monotonic() + seconds
    journal, number = Journal(os.environ[JOURNAL]), 0
    while time.monotonic() < until:
        name, number = f"once-{number}", number + 1
        moment = datetime.now(timezone.utc) + timedelta(seconds=random.uniform(0, 0.5))
        scheduler.add_job(note_run, "date", run_date=moment, id=name, args=[name])
        journal.note("added", name, moment.timestamp())
        time.sleep(1 / RATE)


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


# -- The test


class Report(NamedTuple):
    """What came of it."""

    kills: int
    slots: int
    submissions: int
    lost: set[Slot]
    doubled: list[Submission]
    died: int
    not_run: int
    findings: list[Any]
    left: int

    @property
    def wrong(self) -> list[str]:
        rules = {
            f"{len(self.lost)} lost": not self.lost,
            f"{len(self.doubled)} seen to more than once, after {self.kills} kills": len(self.doubled) <= self.kills,
            f"{self.died} schedulers ended by themselves": not self.died,
            f"{self.not_run} given to executors that lived, and not run": self.kills or not self.not_run,
            f"{self.left} jobs left": not self.left,
            f"the check: {self.findings}": not self.findings,
        }
        return [text for text, is_kept in rules.items() if not is_kept]

    def __str__(self) -> str:
        return (
            f"{self.slots} times of jobs, {self.submissions} submissions, {self.kills} kills: {len(self.lost)} lost, "
            f"{len(self.doubled)} seen to again, {self.died} schedulers ended; {self.not_run} died in an executor\n"
            + ("wrong: " + "; ".join(self.wrong) if self.wrong else "all is well")
        )


def run(seconds: float, kill_every: float) -> Report:
    """Let schedulers work for a while, and kill one of them every so many seconds, if that is not 0."""
    slots = add_intervals(seconds)
    schedulers = [fork(schedule) for _ in range(SCHEDULERS)]
    producer = fork(lambda: produce(seconds))
    died = kills = 0
    until, give_up = time.monotonic() + seconds, time.monotonic() + seconds + PATIENCE
    while time.monotonic() < until or (jobs_left() and time.monotonic() < give_up):
        time.sleep(kill_every or 0.5)
        for pid in [pid for pid in schedulers if os.waitpid(pid, os.WNOHANG)[0]]:
            died += 1
            schedulers.remove(pid)
        if kill_every and time.monotonic() < until:
            kill(schedulers.pop(0))
            kills += 1
        schedulers += [fork(schedule) for _ in range(SCHEDULERS - len(schedulers))]
    died += os.waitpid(producer, 0)[1] != 0
    findings = check(pause=0, queue_models=[Queue], error_models=[Error]).findings
    for pid in schedulers:
        kill(pid)
    return report(slots, kills, died, findings)


def add_intervals(seconds: float) -> set[Slot]:
    """Add the jobs that come again and again; return all their times."""
    start = datetime.now(timezone.utc).replace(microsecond=0) + timedelta(seconds=1)
    end, slots = start + timedelta(seconds=int(seconds)), set()
    pid = fork(lambda: _add_intervals(start, end))
    assert os.waitpid(pid, 0)[1] == 0
    for name, interval in INTERVALS.items():
        slots |= {(name, start.timestamp() + interval * n) for n in range(int(int(seconds) / interval) + 1)}
    return slots


def _add_intervals(start: datetime, end: datetime) -> None:
    scheduler = make_scheduler(paused=True)
    for name, interval in INTERVALS.items():
        options = {"seconds": interval, "start_date": start, "end_date": end, "next_run_time": start}
        scheduler.add_job(note_run, "interval", id=name, args=[name], **options)


def jobs_left() -> int:
    return len(LimpydJobStore().jobs)


def report(slots: set[Slot], kills: int, died: int, findings: list[Any]) -> Report:
    journal = Journal(os.environ[JOURNAL])
    slots = slots | {(job, float(moment)) for job, moment in journal.lines("added")}
    seen: set[Slot] = set()
    doubled = []
    submissions = journal.submissions()
    for each in submissions:
        times = {(each.job, moment) for moment in each.times}
        if times & seen:
            doubled.append(each)
        seen |= times
    ran = Counter(job for (job,) in journal.lines("ran"))
    given = Counter(each.job for each in submissions for _ in each.times)
    not_run = sum((given - ran).values())
    return Report(kills, len(slots), len(submissions), slots - seen, doubled, died, not_run, findings, jobs_left())


def main() -> int:
    """Run the test that the command line asks for."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--minutes", type=float, default=1, help="for how long (default: 1)")
    parser.add_argument(
        "--kill-every", type=float, default=0.5, metavar="S", help="seconds; 0 for never (default: 0.5)"
    )
    parser.add_argument("--redis-server", default="", help="the server program")
    options = parser.parse_args()
    with RedisServer(options.redis_server or find_server()) as server, tempfile.TemporaryDirectory() as directory:
        os.environ[JOURNAL] = f"{directory}/journal"
        BaseJobsModel.database.connect(unix_socket_path=server.socket)
        found = run(options.minutes * 60, options.kill_every)
    print(found)
    return 1 if found.wrong else 0


if __name__ == "__main__":
    # functions are stored with their module: "__main__" is something else in each process, "schedulers" is not
    import schedulers

    sys.exit(schedulers.main())
