"""What the system sees of a worker: the title of its process (``ps``, ``top``), and its state, for systemd."""

from __future__ import annotations

import os
import socket
from contextlib import suppress
from datetime import timedelta
from time import monotonic
from weakref import WeakSet

from redis.exceptions import RedisError
from setproctitle import setproctitle

from limpyd_jobs.dates import get_delta
from limpyd_jobs.records import records
from limpyd_jobs.workers.log import part_of
from limpyd_jobs.workers.worker import Worker

# The statuses that change with each job, and after how many seconds the rest of the title is made again.
PASSING, LASTS = ("waiting", "running"), 1.0

# The place to fill in: no name of a queue has this character, because no argument of a command can.
GAP = "\0"

# How long to wait for a service manager that does not listen right now, in seconds.
NOTIFY_TIMEOUT = 1.0

# What it sets.
VARIABLES = ("NOTIFY_SOCKET", "WATCHDOG_USEC", "WATCHDOG_PID")

_shown: WeakSet[WorkerTitle] = WeakSet()


class WorkerTitle:
    """The title of the process: ``limpyd-jobs-worker#038480 [waiting] queues=a,b loop=0/1000 waiting=2 delayed=0``.

    All parts except the status and the loops are found out at most once a second.
    """

    def __init__(self, program: str, worker: Worker) -> None:
        self.worker = worker
        self._program = program
        self._counts = (0, 0)
        self._around: list[str] = []
        self._found_at = 0.0
        _shown.add(self)

    def mark_child(self) -> None:
        """Let the list of processes tell this process, which the code of a job forked, from the worker."""
        setproctitle(f"{self._program}#{self.worker.id} [child]")

    def __str__(self) -> str:
        worker, state = self.worker, self.worker._run_state
        if worker.status not in PASSING or worker.end_forced or state.is_quiet:
            return self._made(worker.status, worker.num_loops)
        begins = worker.status == "running" and state.has_waited  # its job must not wait for this
        if not self._around or (monotonic() - self._found_at >= LASTS and not begins):
            self._found_at = monotonic()
            self._around = self._made(GAP, GAP).split(GAP)
        before, between, after = self._around
        return f"{before}{worker.status}{between}{worker.num_loops}{after}"

    def _made(self, status: str | None, loops: object) -> str:
        worker = self.worker
        asked = " - ending" if worker.end_forced else " - quiet" if worker._run_state.is_quiet else ""
        if status and not asked:  # else a signal may have interrupted a command to Redis
            with suppress(RedisError):
                self._counts = records.count_jobs(worker.queue_model, worker.queues)
        words = [f"{self._program}#{worker.id}", f"[{status or 'init'}{asked}]", f"queues={','.join(worker.queues)}"]
        if status:
            waiting, delayed = self._counts
            words += [f"loop={part_of(loops, worker.max_loops)}", f"waiting={waiting}", f"delayed={delayed}"]
        if status and worker.elapsed is not None:
            most = get_delta(worker.max_duration) if worker.max_duration else None
            words.append(f"duration={part_of(timedelta(seconds=worker.elapsed // timedelta(seconds=1)), most)}")
        return " ".join(words)


def _mark_child() -> None:
    for title in list(_shown):
        title.mark_child()


os.register_at_fork(after_in_child=_mark_child)


def notify(state: str) -> None:
    """Send a state, such as ``READY=1``, ``STOPPING=1`` or ``WATCHDOG=1``, if a service manager listens."""
    address = os.environ.get("NOTIFY_SOCKET")
    if address:
        if address.startswith("@"):  # the abstract namespace of Linux
            address = f"\0{address[1:]}"
        with suppress(OSError), socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as client:
            client.settimeout(NOTIFY_TIMEOUT)
            client.connect(address)  # so that it waits for the manager, not for itself, to have room
            client.send(state.encode())


def watchdog_interval() -> float | None:
    """Return how many seconds to let pass between two ``WATCHDOG=1``; None if the service manager expects none."""
    microseconds = os.environ.get("WATCHDOG_USEC", "")
    is_for_us = os.environ.get("WATCHDOG_PID", str(os.getpid())) == str(os.getpid())
    return int(microseconds) / 2e6 if microseconds.isdecimal() and int(microseconds) and is_for_us else None
