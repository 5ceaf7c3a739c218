"""The queues of arq."""

from __future__ import annotations

from collections.abc import Iterator

from limpyd_jobs.contrib.takeover.old_queues import Left, OldJob, OldQueues, Place, as_bytes

DEFAULT_QUEUE = "arq:queue"


class Arq(OldQueues):
    """The queues of arq. Its workers may go on meanwhile: they look whether a job runs before they run it, and what is
    taken over seems to run."""

    name = "arq"
    running = "arq:in-progress:"
    per_second = 1000

    def found_queues(self) -> list[str]:
        return [DEFAULT_QUEUE]  # it keeps no list of them

    def queue_of(self, key: str) -> str:
        return key

    def places(self) -> Iterator[Place]:
        for queue in self.queues:
            yield from (Place(queue, False, id) for id in self.client.zrange(queue, 0, -1))

    def data_keys(self, id: str) -> list[str]:
        return [f"arq:job:{id}", f"arq:retry:{id}"]

    def read(self, id: str) -> OldJob | Left:
        stored = self.client.get(f"arq:job:{id}")
        if stored is None:
            return Left(id, "has expired: arq would drop it, too")
        try:
            found = self.loaded(as_bytes(stored))
            return OldJob(id, str(found["f"]), found["a"], found["k"])
        except (ValueError, TypeError, KeyError) as error:
            return Left(id, str(error))

    def others(self) -> Iterator[tuple[int, str]]:
        for queue in self.queues:
            running = sum(self.client.exists(f"{self.running}{id}") for id in self.client.zrange(queue, 0, -1))
            yield running, f"of {queue} run now: call this again once they have ended"
