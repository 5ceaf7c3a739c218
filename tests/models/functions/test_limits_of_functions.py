"""Limits in the annotations of functions that are jobs."""

from __future__ import annotations

from typing import Annotated

import redis

from limpyd_jobs import Job, Limit, current_job, job
from limpyd_jobs.limiting.limit import limits_of_class
from limpyd_jobs.query import limits_of, rest_limit, resume_limit, set_limit
from limpyd_jobs.testing import drain


class Limited(Job):
    namespace = "limited-functions"
    abstract = True
    limits = [Limit(name="all_of_base", concurrency=9)]


@job(base=Limited, limits=[Limit("start", concurrency=5), Limit(name="maker", concurrency=50)])
async def ask(
    customer: Annotated[str, Limit(concurrency=2, fair=True)],
    model: Annotated[str, "any other", Limit(rate="100/m", weight="tokens")],
    tokens: int,
    start: int = 0,  # a name that jobs use, so its field has another one
) -> None:
    await current_job().asettle("model", 2 * tokens)


def test_a_limit_is_of_its_parameter_or_of_the_option() -> None:
    assert limits_of_class(ask.job_class) == (
        Limit(name="all_of_base", concurrency=9),
        Limit("arg_start", concurrency=5),
        Limit(name="maker", concurrency=50),
        Limit("customer", concurrency=2, fair=True),
        Limit("model", rate="100/m", weight="tokens"),
    )


def test_the_code_of_a_function_settles_its_own_limits(redis_client: redis.Redis) -> None:
    ask.add("ann", "m", 50)
    assert drain("default")
    assert limits_of(ask) == []
    until = int((redis_client.get(f"{ask.job_class._name}:_limit:model:m:rate") or "0").split()[0]) / 1e6
    assert 50 < until - redis_client.time()[0] <= 61


def test_the_limits_of_a_function_are_set_as_those_of_a_class(redis_client: redis.Redis) -> None:
    assert set_limit(ask, "customer", "ann", concurrency=1) == {"concurrency": "1"}
    rest_limit(ask, "customer", "ann", 60)
    assert [(key.label, key.allowed, key.rests_for > 0) for key in limits_of(ask)] == [("customer=ann", 1, True)]
    resume_limit(ask, "customer", "ann")
    assert limits_of(ask) == limits_of(ask.job_class)
