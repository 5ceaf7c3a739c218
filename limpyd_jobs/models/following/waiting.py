"""Waiting for the ends of jobs. All threads and tasks of a process that wait for jobs of one model share a listener."""

from __future__ import annotations

import logging
import os
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, wait
from contextlib import contextmanager, suppress
from math import inf
from threading import TIMEOUT_MAX, Lock, Thread
from time import monotonic, sleep
from typing import Any, TypeVar
from weakref import WeakKeyDictionary

from limpyd.model import RedisModel
from redis.exceptions import RedisError

from limpyd_jobs.models.following.changes import (
    CHANGES_WAIT,
    COUNT,
    FIRST_RETRY,
    MAX_RETRY,
    Changes,
    check_notifies,
    checked_timeout,
    is_interruption,
    refusing_other_keys,
)
from limpyd_jobs.records.lazy_fields import pk_of
from limpyd_jobs.records.records import redis_of
from limpyd_jobs.redis.calls import Commands, Steps, chunks, commanded, finish
from limpyd_jobs.statuses import STATUSES
from limpyd_jobs.texts import MESSAGE, described, one_line

log = logging.getLogger("limpyd-jobs.changes")

Answer = TypeVar("Answer")

# The statuses of jobs that ended.
FINAL = (STATUSES.SUCCESS, STATUSES.ERROR, STATUSES.CANCELED)


def wait_for_end(job: RedisModel, timeout: float | None = None) -> bool | None:
    """Do what `Job.wait` says; return None instead of False if Redis does not answer when the time is over."""
    model, pk, timeout = type(job), pk_of(job), checked_timeout(timeout)
    check_notifies(model)
    if timeout == 0:
        return finish(has_ended(model, pk))
    deadline = deadline_of(timeout)
    with listening(model, pk) as (listener, ended):
        if _is_done(listener.listens, deadline) and not ended.done():
            with suppress(TimeoutError):
                if one_at_a_time(model, lambda: finish(has_ended(model, pk)), deadline):
                    return True
        if _is_done(ended, deadline):
            return ended.result()
        return False if listener.reaches_redis else None


def _is_done(future: Future[Any], deadline: float) -> bool:
    wait([future], _left(deadline))
    return future.done()


def one_at_a_time(model: type[RedisModel], ask: Callable[[], Answer], deadline: float) -> Answer:
    """Do as `in_turn`, with the connections of a model."""
    return in_turn(redis_of(model).connection_pool, ask, deadline)


def in_turn(pool: Any, ask: Callable[[], Answer], deadline: float) -> Answer:
    """Ask Redis, again and again while it does not answer, until the deadline (`TimeoutError`); one thread of this
    process after the other, so that any number of them needs one connection of a pool."""
    turn, pause = turn_of(pool), FIRST_RETRY
    while True:
        left = _left(deadline)
        if not turn.acquire(timeout=-1 if left is None else left):
            raise TimeoutError("other threads of this process ask it")
        try:
            return ask()
        except RedisError as error:
            if not is_interruption(error):
                raise
            if monotonic() >= deadline:
                raise TimeoutError(one_line(error, MESSAGE)) from error
        finally:
            turn.release()
        sleep(max(0, min(pause, deadline - monotonic())))
        pause = min(2 * pause, MAX_RETRY)


def deadline_of(timeout: float | None) -> float:
    """Return when a time to wait is over, by the monotonic clock."""
    return monotonic() + (inf if timeout is None else timeout)


def _left(deadline: float) -> float | None:
    """Return the seconds until a deadline, as `threading` takes them."""
    return None if deadline == inf else max(0, min(deadline - monotonic(), TIMEOUT_MAX))


def has_ended(model: type[RedisModel], pk: str) -> Steps[bool]:
    """Whether a job has ended, or is gone."""
    client, key = redis_of(model), f"{model._name}:{pk}:hash"
    with refusing_other_keys("the hash of a job", key):
        status = yield from commanded(client, "HGET", key, "status")
    return status in FINAL or (status is None and not (yield from commanded(client, "EXISTS", key)))


def ended_of(model: type[RedisModel], pks: Sequence[str]) -> Steps[list[str]]:
    """Return those of some jobs that have ended, or are gone."""
    found: list[str] = []
    for some in chunks(pks, COUNT):
        keys = [f"{model._name}:{pk}:hash" for pk in some]
        commands = [command for key in keys for command in (("HGET", key, "status"), ("EXISTS", key))]
        replies = yield Commands(redis_of(model), commands)
        rows = zip(some, replies[::2], replies[1::2], strict=True)
        found += [pk for pk, status, exists in rows if status in FINAL or not exists]
    return found


class Listener:
    """Reads the changes of the jobs of a model, in a thread of its own, as long as any thread or task of this process
    waits.

    Attributes
    ----------
    listens: Future
        It is done once each change that comes is read.
    """

    def __init__(self, model: type[RedisModel], key: tuple[Any, ...]) -> None:
        self.listens: Future[None] = _future()
        self._model, self._key = model, key
        self._waiting: dict[str, list[Future[bool]]] = {}
        self._changes: Changes | None = None

    @property
    def reaches_redis(self) -> bool:
        """Whether Redis answered the last time."""
        return self._changes is not None and self._changes.failure is None

    def add(self, pk: str) -> Future[bool]:
        """Return what is done when a job ends. The caller holds the lock."""
        ended: Future[bool] = _future()
        self._waiting.setdefault(pk, []).append(ended)
        return ended

    def remove(self, pk: str, ended: Future[bool]) -> None:
        """Let it wait no more. The caller holds the lock."""
        with suppress(KeyError, ValueError):  # it is done
            self._waiting[pk].remove(ended)
            if not self._waiting[pk]:
                del self._waiting[pk]

    def run(self) -> None:
        """Wake those whose job ends, until no thread waits."""
        pause = FIRST_RETRY
        while self._is_needed():
            try:
                self._listen()
            except Exception as error:
                if not is_interruption(error):
                    self._fail(error)
                    return
                self._changes = None
                log.warning("Changes cannot be read, trying again: %s", described(error))
                sleep(pause)
                pause = min(2 * pause, MAX_RETRY)

    def _listen(self) -> None:
        def is_awaited(change: Any) -> bool:
            return change.pk in self._waiting and (change.what == "deleted" or change.status in FINAL)

        with Changes([self._model], wants=is_awaited) as changes:
            self._wake_ended()
            self._changes, looked_at = changes, monotonic()
            if not self.listens.done():
                self.listens.set_result(None)
            while self._is_needed():
                for change in changes.read(CHANGES_WAIT):
                    self._wake(change.pk)
                if monotonic() - looked_at > CHANGES_WAIT:  # a worker of version 2 tells nothing
                    self._wake_ended()
                    looked_at = monotonic()

    def _wake_ended(self) -> None:
        """Ask for the jobs that are waited for, and wake those whose job has ended."""
        with _lock:
            pks = list(self._waiting)
        with turn_of(redis_of(self._model).connection_pool):
            ended = finish(ended_of(self._model, pks))
        for pk in ended:
            self._wake(pk)

    def _wake(self, pk: str) -> None:
        with _lock:
            waiting = self._waiting.pop(pk, ())
        for ended in waiting:
            ended.set_result(True)

    def _fail(self, error: Exception) -> None:
        """Let all that wait raise an error."""
        with _lock:
            _listeners.pop(self._key, None)
            waiting = [ended for some in self._waiting.values() for ended in some]
        for each in waiting:
            each.set_exception(error)
        if not self.listens.done():
            self.listens.set_exception(error)

    def _is_needed(self) -> bool:
        with _lock:
            if not self._waiting:
                _listeners.pop(self._key, None)
            return bool(self._waiting)


def _future() -> Future[Any]:
    """Return a future that a task of asyncio may await, and cannot cancel."""
    future: Future[Any] = Future()
    future.set_running_or_notify_cancel()
    return future


@contextmanager
def listening(model: type[RedisModel], pk: str) -> Iterator[tuple[Listener, Future[bool]]]:
    """Wait for the end of a job inside the block: the future is done then."""
    key = (model, redis_of(model).connection_pool)  # the database of a model may be moved
    with _lock:
        listener = _listeners.get(key) or Listener(model, key)
        ended = listener.add(pk)
        if key not in _listeners:
            Thread(target=listener.run, name=f"limpyd-jobs-listener-{model.__name__}", daemon=True).start()
            _listeners[key] = listener
    try:
        yield listener, ended
    finally:
        with _lock:
            listener.remove(pk, ended)


def turn_of(pool: Any) -> Lock:
    """Return what the threads of this process hold, one after the other, while they ask Redis."""
    with _lock:
        return _turns.setdefault(pool, Lock())


def _begin() -> None:
    """Forget all threads: those of a parent process do not exist in its children."""
    global _lock, _listeners, _turns
    _lock, _listeners, _turns = Lock(), {}, WeakKeyDictionary()


_lock: Lock
_listeners: dict[tuple[Any, ...], Listener]
_turns: WeakKeyDictionary[Any, Lock]
_begin()
os.register_at_fork(after_in_child=_begin)
