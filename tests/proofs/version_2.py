"""What processes of version 2 do to jobs: one plain command after the other, without claims, leases and scripts."""

from __future__ import annotations

import redis

INDEXED = ("identifier", "status", "priority", "queued")


class Version2:
    """One process of version 2.

    Parameters
    ----------
    client: redis.Redis
        One that decodes.
    model: str
        The beginning of the keys of the jobs.
    path: str
        The path of their class.
    """

    def __init__(self, client: redis.Redis, model: str, path: str) -> None:
        self.client = client
        self.model = model
        self.path = path

    def write(self, pk: str, **fields: str | None) -> None:
        """Set fields of a job, or unset those that are None, and move it between the indexes of each."""
        key = f"{self.model}:{pk}:hash"
        for name, value in fields.items():
            old = self.client.hget(key, name)
            if name in INDEXED and old is not None:
                self.client.srem(f"{self.model}:{name}:{old}", pk)
            if name in INDEXED and value is not None:
                self.client.sadd(f"{self.model}:{name}:{value}", pk)
            if value is None:
                self.client.hdel(key, name)
            else:
                self.client.hset(key, name, value)

    def add(self, identifier: str, queue: str, priority: str) -> str:
        """Add a job; return its pk."""
        pk = str(self.client.incr(f"{self.model}:max_pk"))
        self.client.sadd(f"{self.model}:collection", pk)
        self.write(pk, identifier=identifier, priority=priority, status="w", queued="1")
        self.client.rpush(f"{queue}:waiting", f"{self.path}:{pk}")
        return pk

    def raise_priority(self, pk: str, old_queue: str, queue: str, priority: str) -> None:
        """Take a waiting job from one queue to another."""
        self.client.lrem(f"{old_queue}:waiting", 0, f"{self.path}:{pk}")
        self.write(pk, priority=priority)
        self.client.rpush(f"{queue}:waiting", f"{self.path}:{pk}")

    def begin(self, pk: str, tries: int) -> None:
        """Run a job that was taken from its list."""
        self.write(pk, status="r", tries=str(tries), start="2026-01-01 00:00:00")

    def succeed(self, pk: str, queue: str) -> None:
        self.write(pk, status="s", queued=None)
        self.client.rpush(f"{queue}:success", f"{self.path}:{pk}")

    def fail(self, pk: str, queue: str) -> None:
        self.write(pk, status="e", queued=None)
        self.client.rpush(f"{queue}:errors", f"{self.path}:{pk}")

    def put_back(self, pk: str, queue: str) -> None:
        """Let a job that runs wait once more, after a failure."""
        self.client.rpush(f"{queue}:errors", f"{self.path}:{pk}")
        self.write(pk, status="w", start=None)
        self.client.rpush(f"{queue}:waiting", f"{self.path}:{pk}")

    def cancel(self, pk: str) -> None:
        """Set the status, as applications do: a worker sees to the rest."""
        self.write(pk, status="c")
