"""Tokens under which jobs are added once, however often that is tried."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager, suppress
from contextvars import ContextVar
from typing import Any

from limpyd.model import RedisModel
from redis.exceptions import RedisError

from limpyd_jobs.records.records import redis_of

# For how many seconds a token holds once the caller will not try again: longer than a process may stand still.
FORGOTTEN_AFTER = 3600


class Once:
    """What is added for a token: the first job, the second, and so on."""

    def __init__(self, token: str) -> None:
        self._token = token
        self._used: list[tuple[type[RedisModel], str]] = []

    def next_key(self, queue_model: type[RedisModel]) -> str:
        """Return the key that tells of the next job whether it is added."""
        number = len(self._used)
        key = f"{queue_model._name}:_once:{self._token}{f':{number + 1}' if number else ''}"
        self._used.append((queue_model, key))
        return key

    def done(self) -> None:
        """Let the token be forgotten in an hour: the caller has noted that it need not be used again. If Redis fails,
        it is forgotten later."""
        for queue_model, key in self._used:
            with suppress(RedisError):
                client: Any = redis_of(queue_model)
                client.expire(key, FORGOTTEN_AFTER)


current_once: ContextVar[Once | None] = ContextVar("current_once", default=None)


@contextmanager
def adding_once(token: str) -> Iterator[Once]:
    """Let the jobs that `add_job` adds in the block be added once for a token, however often such a block is run.

    If it is run again, `add_job` returns the job that it added before, whatever became of that, even if it was deleted.
    A token holds for 30 days, or until an hour after `done` was called. A block that adds several jobs has to add them
    in the same sequence each time.

    >>> with adding_once("3f1c") as once:
    ...     SendInvoice.add_job("order:7")
    >>> once.done()

    Parameters
    ----------
    token: str
        What no other block has, such as a UUID.
    """
    once = Once(token)
    before = current_once.set(once)
    try:
        yield once
    finally:
        current_once.reset(before)
