"""The verbs under asyncio: what answers the requests of their steps."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from functools import cache, partial
from typing import Any, TypeVar

import redis
from redis.exceptions import NoScriptError, RedisError

from limpyd_jobs.redis.calls import Call, Commands, Request, Requests
from limpyd_jobs.redis.cluster import tags
from limpyd_jobs.redis.lines import line_to, running_loop
from limpyd_jobs.redis.replication import CopyingSender
from limpyd_jobs.threads import in_own_thread

T = TypeVar("T")

# A reply with one of these words asks for more commands: for indexes that only limpyd can maintain, or for flows.
_MORE = ('"reindex"', '"flows"')


async def finished(steps: Requests[T]) -> T:
    """Do as `limpyd_jobs.redis.calls.finish`, without keeping the loop from other tasks.

    If the task is canceled, the steps are told so, as of any other failure. What is on its way to Redis may be done all
    the same.
    """
    if isinstance(steps, Call):
        return await sent(steps)
    proceed: Callable[[], Request] = partial(next, steps)
    while True:
        try:
            request = proceed()
        except StopIteration as end:
            result: T = end.value
            return result
        try:
            reply = await _reply_to(request)
        except BaseException as error:
            proceed = partial(steps.throw, error)
        else:
            proceed = partial(steps.send, reply)


async def _reply_to(request: Request) -> Any:
    if isinstance(request, Call):
        return await sent(request)
    if isinstance(request, Commands):
        return await _replies_to(request)
    return await in_thread(request)


async def sent(call: Call[T]) -> T:
    """Do as `limpyd_jobs.redis.calls.send`."""
    if call.before:
        await in_thread(call.before)
    try:
        text = await _text_of(call)
    except RedisError as error:
        failure = call.failed(error)
        if failure is error:
            raise
        raise failure from error
    return await in_thread(partial(call.accept, text)) if any(each in text for each in _MORE) else call.accept(text)


async def _text_of(call: Call[Any]) -> str:
    script, keys = call.script, call.keys
    if tags.used:
        script, keys = script.at(call.sender, keys)
    rest = [len(keys), *keys, *call.words()]
    text = await _reply_of(call.sender, ("EVALSHA", script.sha, *rest))
    if isinstance(text, NoScriptError):
        text = await _reply_of(call.sender, ("EVAL", script.source, *rest))
    if isinstance(text, RedisError):
        raise text
    return str(text)


async def _reply_of(sender: Any, command: Sequence[Any]) -> Any:
    if isinstance(sender, CopyingSender):  # others must not wait for the replicas, too
        return sender.accept(await line_to(sender, "copies").execute(*sender.with_wait(command)))
    (reply,) = await line_to(sender).execute(command)
    return reply


async def _replies_to(commands: Commands) -> list[Any]:
    replies = await line_to(commands.connection).execute(*commands.commands)
    return [_as_redis_py_reads(*pair) for pair in zip(commands.commands, replies, strict=True)]


def _as_redis_py_reads(command: Sequence[Any], reply: Any) -> Any:
    read = _callbacks().get(str(command[0]))
    return reply if read is None or isinstance(reply, Exception) else read(reply)


@cache
def _callbacks() -> Any:
    """Return how redis-py reads the replies to commands, by their names; the client is not used otherwise."""
    client: Any = redis.Redis(protocol=2)
    return client.response_callbacks


async def in_thread(function: Callable[[], T]) -> T:
    """Call what is not made for asyncio in a thread. If the task is canceled, it waits for the end of the call: what
    comes next must not be done at the same time."""
    loop = running_loop()
    call = loop.create_task(in_own_thread(function))
    try:
        return await asyncio.shield(call)
    except asyncio.CancelledError:
        if not call.cancelled():
            await asyncio.wait([call])
            call.exception()
        raise
