"""After any sequence of transitions, be they asked for in time or too late, the invariants hold."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from random import Random
from typing import Any

import pytest
import redis
from invariants import violations
from limpyd.exceptions import DoesNotExist
from worlds import KINDS, MODELS, World

from limpyd_jobs import LimpydJobsException, transitions
from limpyd_jobs.records import records

STEPS = 50
QUEUES = [(name, priority) for name in "qp" for priority in (1, 0, -1)]
IDENTIFIERS = "abc"
DELAYS = ["", "+500000000", "+-1000000"]


class Story:
    """Producers and workers that do one thing after the other, by chance. A worker forgets no claim it ever had."""

    def __init__(self, world: World, random: Random) -> None:
        self.world = world
        self.random = random
        self.queue_keys = [world.queue_key(*queue) for queue in QUEUES]
        self.waiting_keys = [f"{key}:waiting" for key in self.queue_keys]
        self.claims: list[Any] = []
        self.told: list[str] = []
        self.acts: list[Callable[[], Any]] = [self.add, self.add, self.claim, self.claim, self.promote, self.rescue]
        self.acts += [
            self.succeed,
            self.finish_canceled,
            self.delay,
            self.fail,
            self.hold,
            self.release,
            self.move,
            self.requeue,
            self.cancel,
            self.claim_job,
        ]

    def go_on(self) -> None:
        act = self.random.choice(self.acts)
        self.told.append(act.__name__)
        with suppress(LimpydJobsException, DoesNotExist, IndexError):
            act()

    def place(self) -> dict[str, Any]:
        name, priority = self.random.choice(QUEUES)
        return {"queue_name": name, "priority": str(priority), "delay": self.random.choice(DELAYS)}

    def add(self) -> None:
        name, priority = self.random.choice(QUEUES)
        delay, prepend = self.random.choice(DELAYS), self.random.choice([True, False])
        self.world.add(self.random.choice(IDENTIFIERS), name, priority, prepend=prepend, delay=delay)

    def claim(self) -> None:
        self.keep(self.world.claim(*self.waiting_keys, token=self.token()))

    def claim_job(self) -> None:
        place = self.world.queue_class, self.random.choice(["q", "p", ""])
        self.keep(transitions.claim_job(self.any_job(), *place, self.token(), 60))

    def token(self) -> str:
        return f"{len(self.told)}"

    def keep(self, fetched: Any) -> None:
        if fetched and fetched.token:
            self.claims.append(fetched)
        elif fetched:
            transitions.skip(self.world.job(fetched.pk), self.world.queue(), 60)

    def of_a_claim(self) -> tuple[Any, Any, str]:
        """A job that was claimed once, the queue it came from, and the token of that claim."""
        fetched = self.random.choice(self.claims)
        queue = records.attached(self.world.queue_class, fetched.queue_pk)
        return self.world.job(fetched.pk), queue, fetched.token

    def any_job(self) -> Any:
        return self.world.job(self.random.choice(sorted(self.world.client.smembers(f"{self.world.jobs}:collection"))))

    def succeed(self) -> None:
        next_claim = self.world.request(*self.waiting_keys, token=self.token())
        self.keep(transitions.succeed(*self.of_a_claim(), next_claim).prefetched)

    def finish_canceled(self) -> None:
        transitions.finish_canceled(*self.of_a_claim())

    def delay(self) -> None:
        transitions.delay(*self.of_a_claim(), self.random.choice("qp"), self.random.choice(DELAYS))

    def fail(self) -> None:
        transitions.fail(*self.of_a_claim(), self.random.choice([0, 2]), **self.place())

    def hold(self) -> None:
        job, queue, token = self.of_a_claim()
        if transitions.fail(job, queue, token, 5, hold=True).outcome == "held":
            self.put_back(transitions.requeue, job)

    def release(self) -> None:
        job, queue, token = self.of_a_claim()
        transitions.release(self.world.job_class, job.ident, token, records.queue_key_of(queue))

    def move(self) -> None:
        job = self.any_job()
        if job.status.hget() != "r":
            self.put_back(transitions.move, job)

    def requeue(self) -> None:
        self.put_back(transitions.requeue, self.any_job())

    def cancel(self) -> None:
        job = self.any_job()
        transitions.cancel(job, self.world.queue_class, self.random.choice("qp"))
        token, queue_key = job.hmget("_claim_token", "_queue_key")
        if token:
            queue = records.attached(self.world.queue_class, queue_key.rpartition(":")[2])
            transitions.finish_canceled(job, queue, token)

    def put_back(self, verb: Callable[..., Any], job: Any) -> None:
        verb(job, self.world.queue_class, **self.place())

    def promote(self) -> None:
        for ident in self.make_due("delayed"):
            self.world.job(ident.rpartition(":")[2]).delayed_until.hset("1970-01-01 00:00:01")
        transitions.promote(self.world.queue_class, self.queue_keys, {self.world.path: self.world.job_class})

    def rescue(self) -> None:
        self.make_due("running")
        request = self.world.request("no list", token=self.token())
        self.keep(transitions.rescue(self.world.queue_class, self.queue_keys, 1, request).exhausted)

    def make_due(self, place: str) -> list[str]:
        """Set the date of some jobs in the delayed or running sets to the first second of time."""
        chosen = []
        for key in self.queue_keys:
            for ident in self.world.client.zrange(f"{key}:{place}", 0, -1):
                if self.random.choice([True, False]):
                    self.world.client.zadd(f"{key}:{place}", {ident: 1})
                    chosen.append(ident)
        return chosen


@pytest.mark.matrix
@pytest.mark.parametrize(
    "seed", [*range(6), *(pytest.param(seed, marks=pytest.mark.only_long) for seed in range(6, 12))]
)
@pytest.mark.parametrize("kind", KINDS)
def test_the_invariants_hold_after_each_step_of_any_story(
    redis_client: redis.Redis, look: redis.Redis, kind: str, seed: int
) -> None:
    story = Story(World(redis_client, *KINDS[kind]), Random(seed))
    for _ in range(STEPS):
        story.go_on()
        assert violations(look, *MODELS) == [], f"after {story.told}"
