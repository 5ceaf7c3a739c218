"""What the list of processes (``ps``, ``top``) says about a worker."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from datetime import timedelta
from time import monotonic

from redis.exceptions import RedisError

from limpyd_jobs.store import records
from limpyd_jobs.utils import get_delta
from limpyd_jobs.workers.worker import Worker

# The statuses that change with each job, and for how many seconds the rest of the title may stay as it is.
PASSING, LASTS = ("waiting", "running"), 1.0

# Stands for what is filled in: no name of a queue has it, as no argument of a command can.
GAP = "\0"


def make_title(
    program: str,
    worker_id: str | None = None,
    status: str | None = None,
    *,
    ending: bool = False,
    quiet: bool = False,
    queues: Sequence[str] = (),
    loops: tuple[object, float | None] = (0, None),
    counts: tuple[int, int] = (0, 0),
    elapsed: timedelta | None = None,
    max_duration: timedelta | None = None,
) -> str:
    """Return a title: ``limpyd-jobs-worker#038480 [waiting] queues=a,b loop=0/1000 waiting=2 delayed=0``.

    Parameters
    ----------
    status: str
        None before the worker runs, when no more than the queues are shown.
    loops: int, int or None
        How many jobs were fetched, and how many are the most.
    counts: int, int
        How many jobs are waiting, and how many delayed.
    """
    name = program if worker_id is None else f"{program}#{worker_id}"
    words = [name, f"[{status or 'init'}{' - ending' if ending else ' - quiet' if quiet else ''}]"]
    if queues:
        words.append(f"queues={','.join(queues)}")
    if status:
        words += [f"loop={_part_of(*loops)}", f"waiting={counts[0]}", f"delayed={counts[1]}"]
    if status and elapsed is not None:
        words.append(f"duration={_part_of(_whole_seconds(elapsed), max_duration)}")
    return " ".join(words)


def make_parent_title(program: str, status: str, queues: Sequence[str], living: int, number: int) -> str:
    """Return the title of a parent: ``limpyd-jobs-worker [running] queues=a,b processes=4/4``."""
    return f"{program} [{status}] queues={','.join(queues)} processes={_part_of(living, number)}"


def _part_of(amount: object, most: object | None) -> str:
    return f"{amount}" if most is None else f"{amount}/{most}"


def _whole_seconds(duration: timedelta) -> timedelta:
    return timedelta(seconds=duration // timedelta(seconds=1))


class WorkerTitle:
    """The title of the process of a worker: but for the status and the loops, found out once a second at most."""

    def __init__(self, program: str, worker: Worker) -> None:
        self.worker = worker
        self._program = program
        self._counts = (0, 0)
        self._around: list[str] = []
        self._found_at = 0.0

    def __str__(self) -> str:
        worker = self.worker
        if worker.status not in PASSING or worker._engine.stopping.begins_no_more:
            return self._made(worker.status, worker.num_loops)
        if not self._around or (monotonic() - self._found_at >= LASTS and not worker._engine.has_its_first_job):
            self._found_at = monotonic()
            self._around = self._made(GAP, GAP).split(GAP)
        before, between, after = self._around
        return f"{before}{worker.status}{between}{worker.num_loops}{after}"

    def _made(self, status: str | None, loops: object) -> str:
        worker = self.worker
        # Once a signal came, it may have interrupted a command to Redis.
        if status and not worker._engine.stopping.begins_no_more:
            with suppress(RedisError):
                self._counts = records.count_jobs(worker.queue_model, worker.queues)
        return make_title(
            self._program,
            worker.id,
            status,
            ending=worker.end_forced,
            quiet=worker._engine.stopping.is_quiet,
            queues=worker.queues,
            loops=(loops, worker.max_loops),
            counts=self._counts,
            elapsed=worker.elapsed,
            max_duration=get_delta(worker.max_duration) if worker.max_duration else None,
        )
