"""Moving the delayed jobs that are due to their waiting lists, step by step."""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterator, Sequence
from math import inf
from time import monotonic
from typing import Any

from limpyd.model import RedisModel

from limpyd_jobs import transitions
from limpyd_jobs.classes.job_classes import BoundJobClasses, JobClasses, job_classes
from limpyd_jobs.classes.roots import roots
from limpyd_jobs.functions import overrides
from limpyd_jobs.idents import Ident, QueueKey
from limpyd_jobs.records.layout import layout_of
from limpyd_jobs.records.records import attached
from limpyd_jobs.redis.calls import Call
from limpyd_jobs.texts import printable
from limpyd_jobs.transitions import Promoted

# The ident of a job that could not be moved, and why.
Failure = tuple[str, str]

Classes = JobClasses[Any] | BoundJobClasses

# Takes the waiting list and the ident of a job whose class cannot be resolved, and why; returns what to report, if any.
Defer = Callable[[str, str, Exception], Exception | None]


def promote(
    queue_model: type[RedisModel], queue_keys: Sequence[str], defer: Defer, until: float = inf
) -> Generator[Call[Promoted], Promoted, tuple[bool, list[Failure]]]:
    """Yield the calls that move the jobs of some queues, until no other is due, or until some time by the clock of
    `monotonic`; return whether others are due, and the failures."""
    is_custom, classes = overrides(queue_model, roots.queue, "enqueue_job"), job_classes.like(queue_model)
    failures, has_more = list[Failure](), bool(queue_keys)
    while has_more:
        step = yield transitions.promote.call(queue_model, queue_keys, classes.known, is_custom=is_custom)
        failures += step.failures
        failures += _enqueued(queue_model, classes, step.ready)
        failures += _resolved(classes, step.unknown, defer)
        has_more = step.has_more or bool(step.unknown)
        if monotonic() >= until:
            break
    return has_more, failures


def _enqueued(queue_model: Any, classes: Classes, ready: Any) -> Iterator[Failure]:
    """Put jobs in their queues in the queues' own way. If that fails, do it in our way."""
    for queue_key, ident in ready:
        try:
            path, pk = Ident.of(ident)
            queue, job = attached(queue_model, QueueKey(queue_key).pk), attached(classes.resolve(path), pk)
            try:
                queue.enqueue_job(job)
            except Exception:
                roots.queue.enqueue_job(queue, job)
                raise
        except Exception as error:  # the application's own way may raise any exception
            yield ident, printable(error)


def _resolved(classes: Classes, unknown: Any, defer: Defer) -> Iterator[Failure]:
    """Get to know the classes of some jobs, for the next step, and defer those where that fails."""
    for queue_key, ident in unknown:
        try:
            layout_of(classes.resolve(Ident.of(ident).path))
        except Exception as error:
            reported = defer(QueueKey(queue_key).waiting, ident, error)
            if reported:
                yield ident, printable(reported)
