"""Jobs with limits, and workers that are killed while they run them."""

from __future__ import annotations

import os
import random
import signal
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import Any

import redis
from limpyd import fields
from running import worker_of

from limpyd_jobs import Job, Limit, Queue
from limpyd_jobs.query import edit_job

ACCOUNTS, REGIONS, QUEUES = "abcd", "xy", ("one", "two", "three")

# How many of each may run at once; and what those that run say themselves, whoever counts them. The code of one that
# lost its claim, because its job was deleted, moved, or not renewed in time, may go on for a moment: it does not count.
MOST = {"account": 2, "region": 3}

_ENTER = """
local function holds(member)
  local job, token = string.match(member, '^%d+ (%S+) (%S+)$')
  return redis.call('HGET', job, '_claim_token') == token
end
local over, begun = KEYS[#KEYS - 1], KEYS[#KEYS]
for i = 1, #KEYS - 2 do
  redis.call('SADD', KEYS[i], ARGV[1])
  local held = {}
  for _, member in ipairs(redis.call('SMEMBERS', KEYS[i])) do
    if holds(member) then held[#held + 1] = member end
  end
  if holds(ARGV[1]) and #held > tonumber(ARGV[i + 1]) then
    redis.call('RPUSH', over, KEYS[i] .. ': ' .. table.concat(held, ', '))
  end
end
redis.call('INCR', begun)
"""


class Turn(Job):
    """Of one account, in one region: both are limited, in two classes together."""

    namespace = "turns"
    account = fields.InstanceHashField(indexable=True)
    region = fields.InstanceHashField()
    limits = [
        Limit("account", concurrency=MOST["account"], fair=True),
        Limit("region", name="of-turns", concurrency=MOST["region"]),
    ]

    def run(self, queue: Queue) -> None:
        run_counted(self, ("account", "region"))


class Visit(Job):
    """In one region."""

    namespace = "turns"
    region = fields.InstanceHashField()
    limits = [Limit("region", name="of-turns", concurrency=MOST["region"])]

    def run(self, queue: Queue) -> None:
        run_counted(self, ("region",))


class Paced(Job):
    """Of one account, whose jobs begin one after the other."""

    namespace = "turns"
    account = fields.InstanceHashField(indexable=True)
    limits = [Limit("account", name="pace-of-turns", rate="20/s")]

    def run(self, queue: Queue) -> None:
        pass


def run_counted(job: Job, names: tuple[str, ...]) -> None:
    """Run for a while, and count how many others do."""
    client = job.get_connection()
    tag = job.key.partition("turns:")[0]  # of a cluster
    keys = [f"{tag}running:{name}:{value}" for name, value in zip(names, job.hmget(*names), strict=True)]
    member = f"{os.getpid()} {job.key} {job.attempt_token}"
    client.eval(_ENTER, len(keys) + 2, *keys, f"{tag}over", f"{tag}begun", member, *(MOST[name] for name in names))
    time.sleep(random.uniform(0.001, 0.03))
    for key in keys:
        client.srem(key, member)
    if random.random() < 0.1:
        raise ValueError("it failed")


def add_some(number: int) -> None:
    for _ in range(number):
        queue, priority = random.choice(QUEUES), random.choice([0, 5])
        region = random.choice(REGIONS)
        if random.random() < 0.7:
            Turn.add_job(queue_name=queue, priority=priority, account=random.choice(ACCOUNTS), region=region)
        else:
            Visit.add_job(queue_name=queue, priority=priority, region=region)


OPTIONS: dict[str, Any] = {
    "callback": None,
    "max_loops": 10**6,
    "max_duration": 600,
    "max_rescues": 1000,
    "timeout": 5,
    "logger_level": 60,
}


class Crew:
    """Worker processes of several kinds, of which any may be killed."""

    KINDS: tuple[dict[str, Any], ...] = (
        {}, {}, {}, {}, {"concurrency": 4}, {"concurrency": 4}, {"prefetch": 5}, {"prefetch": 5},
    )  # fmt: skip

    def __init__(self, client: redis.Redis, lease: float) -> None:
        self._client, self._lease = client, lease
        self._pids: dict[int, dict[str, Any]] = {}
        self.kills = 0

    def begin(self, kind: dict[str, Any]) -> None:
        pid = os.fork()
        if not pid:
            with suppress(BaseException):
                worker_of(
                    ",".join(QUEUES),
                    **{**OPTIONS, "lease": self._lease, **kind},
                ).run()
            os._exit(0)
        self._pids[pid] = kind

    def kill_one(self) -> None:
        pid, kind = random.choice([*self._pids.items()])
        self.end(pid)
        self.kills += 1
        self.begin(kind)

    def end(self, pid: int) -> None:
        os.kill(pid, signal.SIGKILL)
        os.waitpid(pid, 0)
        del self._pids[pid]
        with suppress(redis.ConnectionError):  # to a server of a cluster that is not there
            self._forget(pid)

    def _forget(self, pid: int) -> None:
        for key in self._client.scan_iter("*running:*", count=10_000):
            for member in self._client.smembers(key):
                if member.startswith(f"{pid} "):
                    self._client.srem(key, member)

    def end_all(self) -> None:
        for pid in [*self._pids]:
            self.end(pid)


@contextmanager
def crew(client: redis.Redis, lease: float) -> Iterator[Crew]:
    found = Crew(client, lease)
    try:
        for kind in Crew.KINDS:
            found.begin(kind)
        yield found
    finally:
        found.end_all()


def slots_over(client: redis.Redis) -> list[str]:
    """Return which limits have more slots than they may, at this moment."""
    now, found = client.time(), []
    for key in client.scan_iter("*:slots", count=10_000):
        name = "account" if ":account:" in key else "region"
        number = client.zcount(key, f"({now[0] + now[1] / 1e6}", "+inf")
        if number > MOST[name]:
            found.append(f"{key}: {number}")
    return found


def any_job() -> Turn | None:
    pks = Turn.get_connection().srandmember(f"{Turn._name}:collection", 1)
    return Turn(pks[0]) if pks else None


def _move(job: Turn) -> None:
    job.enqueue_or_delay(random.choice(QUEUES))


def _delay(job: Turn) -> None:
    job.enqueue_or_delay(random.choice(QUEUES), delayed_for=0.05)


VERBS: dict[str, Callable[[Turn], Any]] = {
    "cancel": lambda job: job.cancel(),
    "delete": lambda job: job.delete() if job.status.hget() != "r" else None,
    "delay": lambda job: (
        job.enqueue_or_delay(random.choice(QUEUES), delayed_for=0.05) if job.status.hget() == "w" else None
    ),
    "move": lambda job: _move(job) if job.status.hget() == "w" else None,
    "edit": lambda job: edit_job(job.ident, {"account": random.choice(ACCOUNTS)}),
    "claim": lambda job: job.claim(owner="me").release(),
    "pause": lambda job: (Queue.pause("one", unaudited=True), Queue.resume("one", unaudited=True)),
    "requeue": lambda job: job.requeue(random.choice(QUEUES)),
    "add": lambda job: add_some(3),
}


def do_any_verb() -> None:
    job = any_job()
    if job:
        with suppress(Exception):  # most are refused, in the state that it has
            random.choice([*VERBS.values()])(job)
