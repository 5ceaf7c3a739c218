"""What a running job says of its limits, and what people set for them."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from limpyd.model import RedisModel

from limpyd_jobs.records.layout import layout_of
from limpyd_jobs.records.records import redis_of, sender_of
from limpyd_jobs.redis.calls import Call, Sender, Verb, outcome_of, passing_over_wrong_types, send
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


def set_limit(queue_model: type[RedisModel], limit: str, values: Mapping[str, str], audit: Mapping[str, str]) -> str:
    """Set numbers of a limit, or of one key of it, beside the queues of a model; return all that is set. Lanes
    that wait for it look at it again, in steps."""
    request = {"queue_model": layout_of(queue_model).json, "limit": limit, "values": json.dumps(values)}
    sender = redis_of(queue_model)
    reply = send(Call(sender, _set_limit, {**request, **audit}, dict))
    for queue in reply["queues"]:
        step, cursor = {**request, "queue": queue}, "0"
        with passing_over_wrong_types():
            while (cursor := _look_again(sender, step, cursor)) != "0":
                pass
    return str(reply["text"])


def _look_again(sender: Sender, request: Mapping[str, str], cursor: str) -> str:
    return send(Call(sender, _set_limit, {**request, "cursor": cursor}, lambda reply: str(reply["cursor"])))


def _running(job: RedisModel, token: str, limit: str) -> dict[str, Any]:
    ident = job.ident  # type: ignore[attr-defined]
    return {"job_model": layout_of(type(job)).json, "ident": ident, "token": token, "limit": limit}
