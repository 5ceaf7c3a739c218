"""Models of every kind, and jobs of them in every state, for the tests of the transitions."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import datetime
from typing import Any, NamedTuple

import redis
from invariants import PLACES, Contents, contents
from limpyd import fields
from limpyd.contrib.indexes import SimpleDateTimeIndex
from limpyd.indexes import EqualIndex, NumberRangeIndex, TextRangeIndex

from limpyd_jobs import Error, Job, Queue, transitions
from limpyd_jobs.arguments import delay_argument
from limpyd_jobs.dates import datetime_to_score, parse_datetime
from limpyd_jobs.records import records
from limpyd_jobs.records.layout import layout_of
from limpyd_jobs.redis.scripting import FOLDER
from limpyd_jobs.transitions import ClaimRequest, Delivery, Ending, KeptResult

LEASE = 1000
TOKEN = "mine"
LATER = datetime(2099, 12, 31, 23, 59, 59, 999_999)
EVERYTHING = [f"I{number}" for number in range(1, 11)]
LISTS = (*PLACES, "success", "errors", "_quarantine")

# What is hard to carry from Python through JSON and Lua to Redis and back.
HARD_TEXT = "né\"'\\\n\0\t{}[]:,😀 %s %d"

IDENTIFIERS = {
    "plain": "job:1",
    "colons": ":a::b:",
    "spaces": "  a b  ",
    "newlines": "a\nb\r\n",
    "NUL": "a\0b",
    "only NUL": "\0",
    "emoji": "😀🏳️‍🌈",
    "pattern": "a*b?[c]%s\\",
    "like an ident": "limpyd_jobs.models.Job:1",
    "like a key": "1:hash",
    "like a number": "007",
    "longest": "é" * 512,
}
QUEUE_NAMES = {label: name.strip() for label, name in IDENTIFIERS.items()}  # those that workers can be told


class Ran(NamedTuple):
    """A job that ran, as `transitions.succeed_many` takes it."""

    job: Any
    delivery: Delivery
    began: float
    ended_at: float
    is_erased: bool = False
    kept: KeptResult | None = None


class Order(Job):
    """With fields of all types, defaults, and every documented field indexed."""

    namespace = "shop"
    added = fields.InstanceHashField(indexable=True)
    start = fields.InstanceHashField(indexable=True)
    end = fields.InstanceHashField(indexable=True)
    tries = fields.InstanceHashField(indexable=True)
    delayed_until = fields.InstanceHashField(indexable=True)
    cancel_on_error = fields.InstanceHashField(indexable=True)
    customer = fields.InstanceHashField(indexable=True)
    colour = fields.InstanceHashField(indexable=True, default="blue")
    amount = fields.InstanceHashField(default=5)
    note = fields.InstanceHashField(default=HARD_TEXT)
    label = fields.StringField(default="none")
    lines = fields.ListField(indexable=True)
    tags = fields.SetField(indexable=True)
    ranks = fields.SortedSetField()
    options = fields.HashField()


class Till(Queue):
    """With defaults, one of a field that a script cannot write."""

    namespace = "shop"
    floor = fields.InstanceHashField(indexable=True, default=0)
    label = fields.StringField(default="open")
    notes = fields.ListField()


class Complaint(Error):
    namespace = "shop"
    mood = fields.InstanceHashField(indexable=True, default="angry")
    words = fields.ListField()


class Probe(Job):
    """With range indexes, indexes that a script cannot maintain, and unique fields."""

    namespace = "lab"
    identifier = fields.InstanceHashField(indexable=True, indexes=[EqualIndex, TextRangeIndex])
    status = fields.InstanceHashField(indexable=True, indexes=[EqualIndex, TextRangeIndex])
    priority = fields.InstanceHashField(indexable=True, indexes=[EqualIndex, NumberRangeIndex], default=0)
    start = fields.InstanceHashField(indexable=True, indexes=[SimpleDateTimeIndex])
    end = fields.InstanceHashField(indexable=True, indexes=[TextRangeIndex])
    tries = fields.InstanceHashField(indexable=True, indexes=[NumberRangeIndex])
    delayed_until = fields.InstanceHashField(indexable=True, indexes=[EqualIndex, SimpleDateTimeIndex])
    serial = fields.InstanceHashField(indexable=True, unique=True)
    slot = fields.StringField(indexable=True, unique=True)
    weight = fields.InstanceHashField(indexable=True, indexes=[NumberRangeIndex], default=1)


class Bench(Queue):
    """With indexes that a script cannot maintain."""

    namespace = "lab"
    name = fields.InstanceHashField(indexable=True, indexes=[EqualIndex, TextRangeIndex])
    priority = fields.InstanceHashField(indexable=True, indexes=[EqualIndex, NumberRangeIndex], default=0)
    since = fields.InstanceHashField(indexable=True, indexes=[SimpleDateTimeIndex], default="2020-02-29 00:00:00")
    room = fields.InstanceHashField(indexable=True, unique=True)


class Mishap(Error):
    namespace = "lab"
    code = fields.InstanceHashField(indexable=True, indexes=[NumberRangeIndex])
    case = fields.InstanceHashField(indexable=True, unique=True)


KINDS = {"documented": (Job, Queue, Error), "rich": (Order, Till, Complaint), "special": (Probe, Bench, Mishap)}
Order.queue_model, Probe.queue_model = Till, Bench
MODELS = [model for models in KINDS.values() for model in models]


@dataclass(frozen=True, eq=False)
class Moment:
    """Equals, as a text or as a score, what the clock says so many seconds after some moment of this test."""

    began: float
    seconds: float = 0

    __hash__ = None  # type: ignore[assignment]

    def __eq__(self, other: object) -> bool:
        if isinstance(other, str):
            moment = parse_datetime(other)
            other = datetime_to_score(moment) if moment and str(moment) == other else None
        if not isinstance(other, float):
            return False
        return self.began - 1 <= other - self.seconds <= time.time() + 1


class World:
    """One job class with its queues: jobs of it can be put in any state, and looked at as stored."""

    def __init__(
        self, client: redis.Redis, job_class: type[Job] = Job, queue_class: type[Queue] = Queue, error: Any = Error
    ) -> None:
        self.client = client
        self.job_class = job_class
        self.queue_class = queue_class
        self.error_class = error
        self.path = job_class.get_model_repr()
        self.jobs = job_class._name
        self.queues = queue_class._name

    # -- Looking

    def contents(self) -> Contents:
        return contents(self.client)

    @contextmanager
    def unchanged(self) -> Iterator[None]:
        """Nothing at all changes in Redis inside the block."""
        before = self.contents()
        yield
        assert self.contents() == before

    def hash(self, job: Any) -> dict[str, str]:
        return self.client.hgetall(f"{self.jobs}:{pk_of(job)}:hash")

    def state(self, job: Any) -> dict[str, str]:
        """The documented fields of a job that transitions change, with their values."""
        names = ("status", "priority", "queued", "start", "end", "tries", "delayed_until", "_claim_token", "_rescues")
        stored = self.hash(job)
        return {name: stored[name] for name in names if name in stored}

    def places(self, job: Any) -> list[str]:
        """Where the ident of a job stands: ``['q/0 waiting']``, once for each time."""
        ident = job if isinstance(job, str) else job.ident
        found: Counter[str] = Counter()
        for pk in self.client.smembers(f"{self.queues}:collection"):
            queue = f"{self.queues}:{pk}"
            name = "/".join(text or "" for text in self.client.hmget(f"{queue}:hash", "name", "priority"))
            for place in LISTS:
                found[f"{name} {place.lstrip('_')}"] += list(self._members(f"{queue}:{place}")).count(ident)
        return sorted(found.elements())

    def _members(self, key: str) -> Any:
        read = {"list": self.client.lrange, "zset": self.client.zrange}.get(self.client.type(key))
        return read(key, 0, -1) if read else ()

    def waiting(self, queue: str = "q", priority: int = 0) -> list[str]:
        """The pks in a waiting list."""
        idents = self.client.lrange(self.waiting_key(queue, priority), 0, -1)
        return [ident.rpartition(":")[2] for ident in idents]

    # -- Queues

    def queue(self, name: str = "q", priority: int | str = 0) -> Queue:
        return self.queue_class.get_queue(name, priority)

    def queue_key(self, name: str = "q", priority: int | str = 0) -> str:
        """The beginning of the keys of a queue: its model's name and its pk."""
        return records.queue_key_of(self.queue(name, priority))

    def waiting_key(self, name: str = "q", priority: int | str = 0) -> str:
        return f"{self.queue_key(name, priority)}:waiting"

    # -- The verbs, with defaults

    def add(self, identifier: str = "a", queue: str = "q", priority: int | str = 0, **options: Any) -> tuple[str, Job]:
        outcome, pk = transitions.add(self.job_class, identifier, self.queue_class, queue, str(priority), **options)
        return outcome, self.job(pk)

    def job(self, pk: str) -> Job:
        job: Job = records.attached(self.job_class, pk)
        return job

    def request(self, *keys: str, token: str = TOKEN, classes: Any = None) -> ClaimRequest:
        known = {self.path: self.job_class} if classes is None else classes
        return ClaimRequest(keys or [self.waiting_key()], token, LEASE, known)

    def claim(self, *keys: str, token: str = TOKEN, ident: str = "", classes: Any = None) -> Delivery | None:
        return transitions.claim(self.queue_class, self.request(*keys, token=token, classes=classes), ident)[0]

    def succeed(self, job: Job, token: str = TOKEN, next_claim: ClaimRequest | None = None) -> Ending:
        return transitions.succeed(job, self.queue(), token, next_claim)

    def finish_canceled(self, job: Job, token: str = TOKEN, next_claim: ClaimRequest | None = None) -> Ending:
        return transitions.finish_canceled(job, self.queue(), token, next_claim)

    def delay(
        self,
        job: Job,
        token: str = TOKEN,
        delay: str = "+500000000",
        queue: str = "q",
        next_claim: ClaimRequest | None = None,
        **options: Any,
    ) -> Ending:
        return transitions.delay(job, self.queue(), token, queue, delay, next_claim, **options)

    def fail(self, job: Job, token: str = TOKEN, times: int | None = 0, **options: Any) -> Ending:
        where = {"queue_name": "q", "priority": "-1", "delay": "", **options}
        return transitions.fail(job, self.queue(), token, times, **where)

    # -- Jobs in every state

    def job_that_is(self, state: str, identifier: str = "a") -> Job:
        """Return a job of queue ``q``, priority 0, in one of the `STATES`; if it is claimed, by the token ``mine``."""
        job: Job = getattr(self, f"_{state.replace(' ', '_')}")(identifier)
        return job

    def _waiting(self, identifier: str) -> Job:
        return self.add(identifier)[1]

    def _delayed(self, identifier: str) -> Job:
        return self.add(identifier, delay=until(LATER))[1]

    def _running(self, identifier: str) -> Job:
        job = self._waiting(identifier)
        fetched = self.claim()
        assert fetched is not None
        assert (fetched.outcome, fetched.ident) == ("claimed", job.ident)
        return job

    def _running_set_to_canceled(self, identifier: str) -> Job:
        job = self._running(identifier)
        job.status.hset("c")
        return job

    def _running_set_to_delayed(self, identifier: str) -> Job:
        job = self._running(identifier)
        job.status.hset("d")
        return job

    def _held(self, identifier: str) -> Job:
        job = self._running(identifier)
        assert self.fail(job, times=1, hold=True).outcome == "held"
        return job

    def _success(self, identifier: str) -> Job:
        job = self._running(identifier)
        assert self.succeed(job).outcome == "done"
        return job

    def _error(self, identifier: str) -> Job:
        job = self._running(identifier)
        assert self.fail(job).outcome == "error"
        return job

    def _canceled(self, identifier: str) -> Job:
        job = self._running(identifier)
        assert self.finish_canceled(job).outcome == "done"
        return job

    def _custom(self, identifier: str) -> Job:
        """Made as any limpyd record, never put in a queue."""
        return self.job_class(identifier=identifier)

    def _deleted(self, identifier: str) -> Job:
        job = self._success(identifier)
        copy = self.job(pk_of(job))
        self.client.delete(f"{self.queue_key()}:success")
        self.job_class(pk_of(job)).delete()
        return copy


STATES = {
    "waiting": "w",
    "delayed": "d",
    "running": "r",
    "running set to canceled": "c",
    "running set to delayed": "d",
    "held": "e",
    "success": "s",
    "error": "e",
    "canceled": "c",
    "custom": None,
    "deleted": None,
}
CLAIMED = ["running", "running set to canceled", "running set to delayed", "held"]
UNCLAIMED = ["waiting", "delayed", "success", "error", "canceled", "custom"]


def pk_of(job: Any) -> str:
    """The pk of a job, be it deleted."""
    return str(job.__dict__.get("_pk") or job.pk.get())


def without_counters(stored: Contents) -> Contents:
    """What is stored but for the last pks: one that was given to nothing is no loss."""
    return {key: value for key, value in stored.items() if not key.endswith(":max_pk")}


def until(moment: datetime) -> str:
    """A delay, as the scripts take it."""
    return delay_argument(delayed_until=moment)


def layout(model: Any) -> str:
    """A model as the scripts take it."""
    return layout_of(model).json


def lua(name: str) -> str:
    """The source of a script, without its includes."""
    return next(FOLDER.glob(f"*/{name}.lua")).read_text("utf-8")
