"""What is not wrong, but may become so: what the check warns of."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import timedelta
from typing import Any

from redis.exceptions import RedisError

from limpyd_jobs.check.catalogue import Catalogue
from limpyd_jobs.check.queues import Queues
from limpyd_jobs.check.reader import Reader
from limpyd_jobs.limiting.limit import limits_of_class
from limpyd_jobs.models.presence import AliveWorker, WorkerPresence
from limpyd_jobs.records.sizes import large_jobs
from limpyd_jobs.redis.cluster.tags import without_tag
from limpyd_jobs.redis.primary import PrimaryPool
from limpyd_jobs.redis.servers import MAY_DELETE_JOBS, memory_of
from limpyd_jobs.statuses import STATUSES
from limpyd_jobs.texts import one_line, some_named

# From how many jobs on a list of finished jobs without a limit is warned of.
MANY = 10_000

# How many workers, and how many classes, are named.
MOST_NAMED = 5

# The lists of finished jobs: the field of a queue, the parameter that limits it, and what stands there.
FINISHED = (("success", "keep_success", "succeeded"), ("errors", "keep_errors", "failed"))


def warnings_of(reader: Reader, catalogue: Catalogue, queues: Queues, strict: bool) -> Iterator[str]:
    """Yield the warnings: of lists that grow, of large jobs; if the check is strict, of settings that lose jobs in a
    failover, or when the memory is full."""
    yield from _growing(reader, catalogue, queues)
    names = {path: model._name for path, model in catalogue.jobs.items()}
    yield from map(str, large_jobs(reader.connection, names))
    yield from _of_limits(reader, catalogue)
    if strict:
        yield from _of_eviction(reader)
        yield from _of_failovers(reader)


def _growing(reader: Reader, catalogue: Catalogue, queues: Queues) -> Iterator[str]:
    for field, parameter, what in FINISHED:
        limits = {model: getattr(model, parameter, None) for model in catalogue.queues}
        unlimited = [model for model, limit in limits.items() if not isinstance(limit, (int, timedelta))]
        keys = [key for key in queues.sound if any(key.startswith(f"{model._name}:") for model in unlimited)]
        lengths = reader.all(("LLEN", f"{key}:{field}") for key in keys)
        names = reader.all(("HGET", f"{key}:hash", "name") for key in keys)
        for key, length, name in zip(keys, lengths, names, strict=True):
            if isinstance(length, int) and length >= MANY:
                yield (
                    f"The queue {name!r} ({key}) keeps {length:,} jobs that {what}, and more and more, unless its "
                    f"workers have --{parameter.replace('_', '-')}: its class sets no {parameter}."
                )


def _of_limits(reader: Reader, catalogue: Catalogue) -> Iterator[str]:
    """Yield who begins jobs of classes with limits without a look at these."""
    limited = [model for model in catalogue.jobs.values() if limits_of_class(model)]
    if not limited:
        return
    classes = some_named(sorted(model.get_model_repr() for model in limited), MOST_NAMED)
    exceeded = f"more jobs may run than the limits of {classes} allow"
    models = {without_tag(model.queue_model._name) for model in limited}
    workers = [each for each in _workers(catalogue) if without_tag(each.queue_model) in models]
    names = [one_line(each.name) for each in workers if not heeds_limits(each)]
    if names:
        who = f"The worker {names[0]} ignores" if len(names) == 1 else f"{len(names):,} workers ignore"
        named = "" if len(names) == 1 else f": {some_named(names, MOST_NAMED)}"
        yield f"{who} limits, as a version from before them{named}. Until you stop it, {exceeded}."
    number = sum(_unclaimed(reader, model) for model in limited)
    if number:
        jobs = f"1 job of {classes} runs" if number == 1 else f"{number:,} jobs of {classes} run"
        yield f"{jobs} without a claim, as in version 2. Its workers ignore limits: {exceeded}."


def heeds_limits(worker: AliveWorker) -> bool:
    """Whether a worker looks at the limits of jobs, as far as it says so."""
    heeded = worker.details.get("heeds") if isinstance(worker.details, dict) else None
    return isinstance(heeded, list) and "limits" in heeded


def _workers(catalogue: Catalogue) -> Iterator[AliveWorker]:
    for model in catalogue.timed:
        if issubclass(model, WorkerPresence):
            yield from model.alive()


def _unclaimed(reader: Reader, model: Any) -> int:
    """Return how many jobs of a class run without a claim."""
    running = (pk for pks in reader.members(f"{model._name}:status:{STATUSES.RUNNING}") for pk in pks)
    tokens = reader.all(("HGET", f"{model._name}:{pk}:hash", "_claim_token") for pk in running)
    return sum(not token for token in tokens)


def _of_eviction(reader: Reader) -> Iterator[str]:
    memory = memory_of(reader.connection)
    if memory is None:
        yield "Whether Redis deletes jobs when its memory is full cannot be read: this user may not run INFO."
    elif memory.deletes:
        yield f"{MAY_DELETE_JOBS}{memory.policy}."


def _of_failovers(reader: Reader) -> Iterator[str]:
    client = reader.connection
    pool: Any = client.connection_pool
    if not isinstance(pool, PrimaryPool):
        return
    service, least, replicas = pool.service_name, _least_replicas(client), pool.count_replicas()
    if least is None or replicas is None:
        unknown = "how many replicas there are" if replicas is None else "the min-replicas-to-write of the primary"
        yield f"A failover of {service!r} may lose jobs that were acknowledged: {unknown} cannot be read."
    elif least < replicas:
        yield (
            f"A failover of {service!r} may lose jobs that were acknowledged: min-replicas-to-write is {least}, but "
            f"Sentinel knows {replicas} replica{'s' * (replicas > 1)}. See 'What a failover loses' in the manual."
        )


def _least_replicas(client: Any) -> int | None:
    """The setting of the primary; None if it may not be read."""
    try:
        return int(client.config_get("min-replicas-to-write")["min-replicas-to-write"])
    except (RedisError, KeyError, ValueError):
        return None
