"""What a running job says of its limits, and what people set for them."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from limpyd.model import RedisModel

from limpyd_jobs.records.layout import layout_of
from limpyd_jobs.records.records import redis_of, sender_of
from limpyd_jobs.redis.calls import Call, Verb, outcome_of
from limpyd_jobs.redis.scripting import Script

_settle = Script("claiming/settle")
_rest = Script("claiming/rest")
_set_limit = Script("queues/set_limit")


@Verb
def settle(job: RedisModel, token: str, limit: str, amount: float) -> Call[str]:
    """Correct what a job used of a rate; return ``done``, ``no rate``, ``refused`` or ``gone``."""
    return Call(sender_of(type(job)), _settle, {**_running(job, token, limit), "amount": amount}, outcome_of)


@Verb
def rest(job: RedisModel, token: str, limit: str, seconds: float) -> Call[str]:
    """Let a limit of a job rest; return ``done``, ``no limit``, ``refused`` or ``gone``."""
    return Call(sender_of(type(job)), _rest, {**_running(job, token, limit), "seconds": seconds}, outcome_of)


@Verb
def set_limit(
    queue_model: type[RedisModel], limit: str, values: Mapping[str, str], audit: Mapping[str, str]
) -> Call[str]:
    """Set numbers of a limit, or of one key of it, beside the queues of a model; return all that is set."""
    request = {"queue_model": layout_of(queue_model).json, "limit": limit, "values": json.dumps(values), **audit}
    return Call(redis_of(queue_model), _set_limit, request, lambda reply: str(reply["text"]))


def _running(job: RedisModel, token: str, limit: str) -> dict[str, Any]:
    ident = job.ident  # type: ignore[attr-defined]
    return {"job_model": layout_of(type(job)).json, "ident": ident, "token": token, "limit": limit}
