"""A process that adds jobs, each again and again until `add_job` returns, and marks it then, until it gets SIGTERM."""

from __future__ import annotations

import asyncio
import os
import random
import signal
import sys
import time
from itertools import count
from typing import Any

from chaos_jobs import MIXTURES
from chaos_marks import NAME, SOCKETS, marks, name_of
from redis.exceptions import RedisError

from limpyd_jobs import NotReplicated
from limpyd_jobs.shards import Shards

PARENT = os.getppid()

_is_over = False
_loop = asyncio.new_event_loop()
_urls = [f"unix://{socket}" for socket in os.environ.get(SOCKETS, "").split()]
_shards = Shards.of_text(" ".join(_urls)) if len(_urls) > 1 else None


def produce(seed: str, mixture: str, rate: float, again: float) -> None:
    """Add jobs, `rate` each second, and of some of them, `again` of 1, more urgent ones of the same identifier."""
    rng, name = random.Random(seed), os.environ[NAME]
    classes, weights = zip(*MIXTURES[mixture].items(), strict=True)
    for number in count():
        identifier = f"{name}:{number}"
        job_class = rng.choices(classes, weights)[0]
        options: dict[str, Any] = {"priority": rng.choice((None, None, 0, 5, -2)), "prepend": rng.random() < 0.1}
        if rng.random() < 0.15:
            options["delayed_for"] = rng.uniform(0.1, 2)
        _add(job_class, identifier, options)
        if rng.random() < again:
            _add(job_class, identifier, {"priority": 9})
        if _is_over:
            return
        time.sleep(rng.expovariate(rate))


def _add(job_class: Any, identifier: str, options: dict[str, Any]) -> None:
    while os.getppid() == PARENT:
        try:
            job = _added(job_class, identifier, options)
        except (RedisError, NotReplicated):
            marks().write("not added", identifier=identifier)
            time.sleep(0.05)
        else:
            marks().write("added", identifier=identifier, ident=name_of(job))
            return
    sys.exit("there is nobody left to end this process")


def _added(job_class: Any, identifier: str, options: dict[str, Any]) -> Any:
    """Half of the producers add their jobs with asyncio."""
    if int(os.environ[NAME].rpartition("-")[2]) % 4 < 2:
        if _shards:
            return _shards.add_job(job_class, identifier, **options)
        return job_class.add_job(identifier, **options)
    if _shards:
        return _loop.run_until_complete(_shards.aadd_job(job_class, identifier, **options))
    return _loop.run_until_complete(job_class.aadd_job(identifier, **options))


def _end(*_: object) -> None:
    global _is_over
    _is_over = True


if __name__ == "__main__":
    signal.signal(signal.SIGTERM, _end)
    produce(sys.argv[1], sys.argv[2], *map(float, sys.argv[3:]))
