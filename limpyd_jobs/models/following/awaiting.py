"""Ends and results of jobs under asyncio."""

from __future__ import annotations

import asyncio
from math import inf
from time import monotonic
from typing import Any

from limpyd.model import RedisModel
from redis.exceptions import RedisError

from limpyd_jobs.models.following.changes import (
    FIRST_RETRY,
    MAX_RETRY,
    check_notifies,
    checked_timeout,
    is_interruption,
)
from limpyd_jobs.models.following.results import checked_wait, not_ended, not_known, outcome, read
from limpyd_jobs.models.following.waiting import deadline_of, has_ended, listening
from limpyd_jobs.records.lazy_fields import pk_of
from limpyd_jobs.redis.awaiting import finished


async def wait_for_end(job: RedisModel, timeout: float | None = None) -> bool | None:
    """Do what `Job.wait` says; return None instead of False if Redis does not answer when the time is over."""
    model, pk, timeout = type(job), pk_of(job), checked_timeout(timeout)
    check_notifies(model)
    if timeout == 0:
        return await finished(has_ended(model, pk))
    with listening(model, pk) as (listener, ended):
        try:
            async with asyncio.timeout(None if timeout == inf else timeout):
                await asyncio.wrap_future(listener.listens)
                if not ended.done() and await _has_ended(model, pk):
                    return True
                return await asyncio.wrap_future(ended)
        except TimeoutError:
            return False if listener.reaches_redis else None


async def _has_ended(model: type[RedisModel], pk: str) -> bool:
    try:
        return await finished(has_ended(model, pk))
    except RedisError as error:
        if not is_interruption(error):
            raise
        return False  # the listener asks again


async def result_of(job: Any, timeout: float | None, error_model: Any) -> Any:
    """Do what `Job.result` says."""
    timeout = checked_wait(job, timeout)
    if timeout == 0:
        return outcome(job, await finished(read(job, error_model)))
    deadline = deadline_of(timeout)
    if await wait_for_end(job, timeout) is False:
        raise not_ended(job, timeout)
    pause = FIRST_RETRY
    while True:
        try:
            return outcome(job, await finished(read(job, error_model)))
        except RedisError as error:
            if not is_interruption(error):
                raise
            if monotonic() >= deadline:
                raise not_known(job, timeout, error) from error
        await asyncio.sleep(max(0, min(pause, deadline - monotonic())))
        pause = min(2 * pause, MAX_RETRY)
