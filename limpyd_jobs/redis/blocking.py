"""Event loops whose coroutines must not wait for Redis between two of their steps."""

from __future__ import annotations

import asyncio
import sys
from types import FrameType
from typing import Any

from limpyd.fields import RedisField

from limpyd_jobs.exceptions import BlockingCall

# The guarded loops of this process. As long as there is none, nothing is asked.
guarded: set[asyncio.AbstractEventLoop] = set()

# The packages between the application and Redis.
_BETWEEN = ("limpyd_jobs", "limpyd", "limpyd_extensions", "redis")


def refuse_on_guarded_loop() -> None:
    """Raise `BlockingCall` in a coroutine of a guarded loop. It is called before a command is sent whose reply will be
    waited for."""
    if asyncio._get_running_loop() in guarded:
        call, advice = _call_and_advice(sys._getframe(1))
        raise BlockingCall(
            f"{call} would hold the event loop of the worker, and all jobs on it, until Redis answers: write {advice}"
        )


def _call_and_advice(frame: FrameType | None) -> tuple[str, str]:
    """Return what the application called, and how to await it."""
    names, owner = [""], None
    while frame and str(frame.f_globals.get("__name__")).partition(".")[0] in _BETWEEN:
        known, code = frame.f_locals, frame.f_code
        names.append(str(known.get("command_name", code.co_name)))  # limpyd's methods for commands have one code
        owner = known.get(code.co_varnames[0]) if code.co_argcount else None
        frame = frame.f_back
    return _of_field(owner, names[-1]) if isinstance(owner, RedisField) else _of_method(owner, names[-1])


def _of_field(field: Any, method: str) -> tuple[str, str]:
    call = f"{field.name}.{method}()"
    if not hasattr(getattr(field, "_instance", None), "aget"):
        return call, f"await asyncio.to_thread({field.name}.{method})"
    is_read = method in field.available_getters or method in ("value", "proxy_get")
    return f"job.{call}", f"await job.aget({field.name!r})" if is_read else f"await job.aset({field.name!r}, …)"


def _of_method(owner: Any, method: str) -> tuple[str, str]:
    if method == "__exit__":
        return "The end of this 'with'", "async with"
    name = "job" if hasattr(type(owner), "aget") else owner.__name__ if isinstance(owner, type) else ""
    if name and method.isidentifier() and not method.startswith("_"):
        other = "await_end" if method == "wait" else f"a{method}"
        is_there = hasattr(owner, other) and method != "get"  # `aget` reads a field
        in_thread = f"await asyncio.to_thread({name}.{method}, …)"
        return f"{name}.{method}()", f"await {name}.{other}(…)" if is_there else in_thread
    return "This call", "await asyncio.to_thread(…), with a function that does so"
