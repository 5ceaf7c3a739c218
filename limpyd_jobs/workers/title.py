"""What the list of processes (``ps``, ``top``) says about a worker."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from datetime import timedelta

from redis.exceptions import RedisError

COUNTS_LAST = 1.0  # seconds


def make_title(
    program: str,
    worker_id: str | None = None,
    status: str | None = None,
    *,
    ending: bool = False,
    queues: Sequence[str] = (),
    loops: tuple[int, int | None] = (0, None),
    counts: tuple[int, int] = (0, 0),
    elapsed: timedelta | None = None,
    max_duration: timedelta | None = None,
) -> str:
    """Return a title: ``limpyd-jobs-worker#038480 [waiting] queues=a,b loop=0/1000 waiting=2 delayed=0``.

    Parameters
    ----------
    program: str
        The name of the command.
    worker_id: str
        The worker's `id`, once there is one.
    status: str
        The worker's status; None before it runs, when no more than the queues are shown.
    ending: bool
        If the worker was asked to end.
    queues: sequence of str
        The names of the queues.
    loops: int, int or None
        How many jobs were fetched, and how many are the most.
    counts: int, int
        How many jobs are waiting, and how many delayed.
    elapsed, max_duration: timedelta
        How long the worker has been running, if it has, and the most it may, if there is a limit.
    """
    name = program if worker_id is None else f"{program}#{worker_id}"
    words = [name, f"[{status or 'init'}{' - ending' if ending else ''}]"]
    if queues:
        words.append(f"queues={','.join(queues)}")
    if status:
        words += [f"loop={_part_of(*loops)}", f"waiting={counts[0]}", f"delayed={counts[1]}"]
    if status and elapsed is not None:
        words.append(f"duration={_part_of(_whole_seconds(elapsed), max_duration)}")
    return " ".join(words)


def make_parent_title(program: str, status: str, queues: Sequence[str], living: int, number: int) -> str:
    """Return the title of a parent: ``limpyd-jobs-worker [running] queues=a,b processes=4/4``.

    Parameters
    ----------
    program: str
        The name of the command.
    status: str
        That of the `Processes`.
    queues: sequence of str
        The names of the queues.
    living, number: int
        How many children there are, and how many there should be.
    """
    return f"{program} [{status}] queues={','.join(queues)} processes={_part_of(living, number)}"


def _part_of(amount: object, most: object | None) -> str:
    return f"{amount}" if most is None else f"{amount}/{most}"


def _whole_seconds(duration: timedelta) -> timedelta:
    return timedelta(seconds=duration // timedelta(seconds=1))


class JobCounts:
    """The numbers of waiting and delayed jobs: asked for at most once a second, remembered in between.

    Parameters
    ----------
    ask: callable
        Returns the two numbers.
    clock: callable
        Returns the time, in seconds from any start.
    """

    def __init__(self, ask: Callable[[], tuple[int, int]], clock: Callable[[], float] = time.monotonic) -> None:
        self._ask = ask
        self._clock = clock
        self._latest = (0, 0)
        self._asked_at: float | None = None

    def latest(self, *, may_ask: bool = True) -> tuple[int, int]:
        """Return the numbers, older than a second only if Redis fails or ``may_ask`` is False.

        The first call always asks.
        """
        now = self._clock()
        if self._asked_at is None or (may_ask and now - self._asked_at >= COUNTS_LAST):
            self._asked_at = now
            self._latest = self._answer()
        return self._latest

    def _answer(self) -> tuple[int, int]:
        try:
            return self._ask()
        except RedisError:
            return self._latest
