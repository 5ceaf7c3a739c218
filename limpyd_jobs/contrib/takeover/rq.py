"""The queues of RQ, from 1.0 on."""

from __future__ import annotations

import zlib
from collections.abc import Iterator, Mapping

from limpyd_jobs.contrib.takeover.old_queues import Left, OldJob, OldQueues, Place, as_bytes

MAX_BYTES = 1 << 24  # of the data of a job, once it is inflated

# What a job of RQ may have that has no counterpart in a single job here, and what it is.
_UNLIKE = {
    "success_callback_name": "has a callback: call it at the end of the new function, or in on_success",
    "failure_callback_name": "has a callback: call it in on_error of the new job",
    "stopped_callback_name": "has a callback for when it is stopped",
    "webhooks": "has webhooks",
    "repeats_left": "is repeated: add a schedule",
    "rate_limit_key": "has a limit of its rate",
}


class RQ(OldQueues):
    """The queues of RQ. Its workers may go on meanwhile: a job is taken by them, or taken over, and never both."""

    name = "rq"
    running = "limpyd-jobs:takeover:rq:running:"  # its workers need no such key: what they take is in no queue

    def found_queues(self) -> list[str]:
        return sorted(key.removeprefix("rq:queue:") for key in self.client.smembers("rq:queues"))

    def unknown_queues(self) -> list[str]:
        found = set(self.found_queues())
        return [
            name
            for name in self.queues
            if name not in found and not self.client.exists(f"rq:queue:{name}", f"rq:scheduled:{name}")
        ]

    def queue_of(self, key: str) -> str:
        return key.split(":", 2)[2]

    def places(self) -> Iterator[Place]:
        for queue in self.queues:
            key = f"rq:queue:{queue}"
            yield from (Place(key, True, id) for id in self.client.lrange(key, 0, -1))
            key = f"rq:scheduled:{queue}"
            yield from (Place(key, False, id) for id in self.client.zrange(key, 0, -1))

    def data_keys(self, id: str) -> list[str]:
        return [f"rq:job:{id}", f"rq:job:{id}:dependents", f"rq:job::{id}:dependencies"]

    def read(self, id: str) -> OldJob | Left:
        key, dependents, _ = self.data_keys(id)
        stored = self.client.hgetall(key)
        if "data" not in stored:
            return Left(id, "has no data any more: RQ would drop it, too")
        unlike = next((why for name, why in _UNLIKE.items() if stored.get(name)), "")
        if unlike:
            return Left(id, unlike)
        if self.client.exists(dependents):
            return Left(id, "has jobs that wait for it: let RQ run both, or add the second one at the end of the first")
        return self._call_of(id, stored)

    def _call_of(self, id: str, stored: Mapping[str, str]) -> OldJob | Left:
        try:
            function, instance, args, kwargs = self.loaded(_inflated(as_bytes(stored["data"])))
        except (ValueError, TypeError) as error:
            return Left(id, str(error))
        if instance is not None:
            return Left(id, f"calls a method of an object: {function}")
        return OldJob(id, str(function), args, kwargs)

    def others(self) -> Iterator[tuple[int, str]]:
        for kind, what in (
            ("wip", "run now: call this again once they have ended"),
            ("deferred", "wait for others: let RQ run them"),
            ("failed", "have failed: requeue them in RQ first, with rq requeue, if they are to be taken over"),
        ):
            yield sum(self.client.zcard(f"rq:{kind}:{queue}") for queue in self.queues), what


def _inflated(data: bytes) -> bytes:
    inflating = zlib.decompressobj()
    try:
        inflated = inflating.decompress(data, MAX_BYTES)
    except zlib.error:  # of an old version
        return data
    if not inflating.eof:
        raise ValueError(f"is larger than {MAX_BYTES:,} bytes")
    return inflated
