"""Acts that are being done, in threads of their own: how far they are, and how they ended."""

from __future__ import annotations

import logging
from collections import OrderedDict
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from datetime import datetime, timezone
from secrets import token_urlsafe
from threading import Event, main_thread
from time import monotonic
from typing import Protocol

from redis.exceptions import RedisError

from limpyd_jobs.contrib.web.refusals import Refusal, told_of
from limpyd_jobs.contrib.web.users import User
from limpyd_jobs.integration import acting_for, one_line
from limpyd_jobs.query import Enough, Tally

log = logging.getLogger("limpyd-jobs.web")


class OnStep(Protocol):
    """Is called after each step with how many records were looked at, and how many at most there are; or with what is
    being done."""

    def __call__(self, looked: int, total: int, told: str = "", /) -> object: ...


# How many acts of a kind are remembered; and how many are done at once: those that take long, those that only look,
# those that are done in a moment, and those that are followed to their end. One kind does not wait for another: a user
# who may only look holds up no other.
MAX_TASKS = 200
AT_ONCE = {"long": 2, "look": 2, "short": 4, "follow": 8}


# For how many seconds it is counted what an act would do, before the user confirms it.
COUNT_WITHIN = 1.0


def for_a_moment() -> OnStep:
    """Return what ends a count in time: then it says at least how many there are."""
    until = monotonic() + COUNT_WITHIN

    def step(looked: int, total: int, told: str = "", /) -> None:
        if looked < total and monotonic() >= until:
            raise Enough

    return step


class Stopped(Exception):
    """The dashboard ends, or a user stopped the act. What was done stays done."""


class Task:
    """An act of a user."""

    def __init__(self, title: str, user: User, back: str) -> None:
        self.pk, self.title, self.user, self.back = token_urlsafe(9), title, user, back
        self.began = datetime.now(timezone.utc)
        self.looked = self.total = 0
        self.tally: Tally | None = None
        self.text = self.error = self.told = ""
        self.stop = Event()
        self.future: Future[None] | None = None

    @property
    def is_over(self) -> bool:
        return self.future is not None and self.future.done()

    def step(self, looked: int, total: int, told: str = "", /) -> None:
        """Note how far it is, and what it does; end it if it has to stop."""
        self.looked, self.total, self.told = looked, total, told
        if self.stop.is_set() or not main_thread().is_alive():  # else the process would wait for what is followed
            raise Stopped("stopped: what was done until then stays done")

    def run(self, do: Callable[[OnStep], Tally | str]) -> None:
        try:
            self.step(0, 0)  # it may be stopped before it begins
            with acting_for(self.user.name):
                outcome = do(self.step)
        except Exception as error:  # shown to the user
            self.error = str(error) if isinstance(error, Stopped) else told_of(error)
            if not isinstance(error, (Stopped, RedisError)):
                log.warning("%s: %s", one_line(self.title), self.error)
            return
        if isinstance(outcome, Tally):
            self.tally = outcome
        else:
            self.text = outcome


class Tasks:
    """The last acts of this process."""

    def __init__(self) -> None:
        self._executors = {
            lane: ThreadPoolExecutor(number, thread_name_prefix=f"limpyd-jobs-web-{lane}")
            for lane, number in AT_ONCE.items()
        }
        self._tasks: dict[str, OrderedDict[str, Task]] = {lane: OrderedDict() for lane in AT_ONCE}

    def begin(self, title: str, user: User, back: str, do: Callable[[OnStep], Tally | str], lane: str) -> Task:
        task, tasks = Task(title, user, back), self._tasks[lane]
        over = [pk for pk, each in tasks.items() if each.is_over]
        for pk in over[: max(0, len(tasks) + 1 - MAX_TASKS)]:
            del tasks[pk]
        if len(tasks) >= MAX_TASKS:
            raise Refusal(503, f"{MAX_TASKS} acts wait for their turn already: stop some, or try again later")
        task.future = self._executors[lane].submit(task.run, do)
        tasks[task.pk] = task
        return task

    def get(self, pk: str) -> Task | None:
        return next((tasks[pk] for tasks in self._tasks.values() if pk in tasks), None)

    def stop(self) -> None:
        """Let all acts end with their present step."""
        for tasks in self._tasks.values():
            for task in tasks.values():
                task.stop.set()
