"""Whatever stands in Redis in place of a job: the worker lives, runs the good jobs beside it, and says so once.

Each row of what is promised about stored data is a row here: for jobs that wait, that are delayed, and whose worker
died. What can be repaired is, by the check.
"""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any, NamedTuple

import pytest
import redis
from invariants import violations
from limpyd import fields
from parts import calls_of, with_part
from running import worker_of, working
from servers import wait_until

import limpyd_jobs.workers.running.recorder
from limpyd_jobs import STATUSES, Error, Job, Queue, Worker
from limpyd_jobs.check import Report, check
from limpyd_jobs.workers.claiming.claimer import Claimer
from limpyd_jobs.workers.maintenance.rescue import Rescuer

pytestmark = pytest.mark.usefixtures("redis_client")

QUEUE_KEY = "jobs:queue:1"
PLACES = {"waiting": STATUSES.WAITING, "delayed": STATUSES.DELAYED, "_running": STATUSES.RUNNING}
NOT_UTF8 = b"\xff\xfe"


class Note(Job):
    namespace = "bad-data"
    queue_name = "queue"
    text = fields.InstanceHashField()


HASH = "bad-data:note:1:hash"
IDENT = "test_bad_stored_data.Note:1"


@pytest.fixture(autouse=True)
def _short_waits(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limpyd_jobs.workers.running.recorder, "WAIT_SLICE", 0.1)


class Stage:
    """Good jobs, run by a worker beside what is broken."""

    def __init__(self, client: redis.Redis, log: pytest.LogCaptureFixture) -> None:
        self.client = client
        self.runs: Counter[str] = Counter()
        self.jobs: list[Note] = []
        self._log = log

    def put(self, ident: str | bytes, place: str) -> None:
        """Put an ident where those of jobs stand; it is due, or its lease has lapsed."""
        if place == "waiting":
            self.client.rpush(f"{QUEUE_KEY}:waiting", ident)
        else:
            self.client.zadd(f"{QUEUE_KEY}:{place}", {ident: 1})

    def add_job_that_is(self, place: str) -> Note:
        """Add the first job; it is due, or its lease has lapsed."""
        job = Note.add_job("bad", delayed_for=0.001 if place == "delayed" else None)
        if place == "_running":
            delivery = Claimer(Queue, lease=0.001).next([f"{QUEUE_KEY}:waiting"])
            assert delivery is not None
            assert delivery.ident == job.ident == IDENT
        return job

    def add(self, identifier: str) -> Note:
        self.jobs.append(Note.add_job(identifier))
        return self.jobs[-1]

    def callback(self, job: Job, queue: Queue) -> None:
        self.runs[job._cached_identifier] += 1
        if job._cached_identifier.startswith("fails"):
            raise ValueError

    @contextmanager
    def working(self) -> Iterator[tuple[Worker, list[Any]]]:
        """Let a worker run; note its looks for lapsed leases."""
        options = {"lease": 0.4, "fetch_delayed_delay": 0.05, "fetch_priorities_delay": 0.05, "max_loops": 1000}
        make = partial(worker_of, callback=self.callback, max_duration=60, **options)
        worker, rescuer = with_part(Rescuer, make)
        with working(worker):
            try:
                yield worker, calls_of(rescuer, "run")
            finally:
                worker.end_forced = True

    def play(self) -> None:
        """Let a worker run the good jobs, before and after it met what is broken, and make its rounds again."""
        self.add("good")
        with self.working() as (worker, rescues):
            wait_until(lambda: self.runs["good"], "a good job")
            before = len(rescues)
            wait_until(lambda: len(rescues) > before + 1, "two more looks at the leases")
            self.add("late")
            wait_until(lambda: self.runs["late"], "a job that was added later")
        assert worker.status == "terminated"
        assert [job.status.hget() for job in self.jobs] == [STATUSES.SUCCESS] * 2
        assert (self.runs["good"], self.runs["late"]) == (1, 1)
        assert [job.identifier.hget() for job in self.jobs] == ["good", "late"]

    @property
    def lines(self) -> list[str]:
        """The first lines of the warnings and errors."""
        records = [record for record in self._log.records if record.levelno > logging.INFO]
        return [record.getMessage().split("] ", 1)[1].splitlines()[0] for record in records]

    def records(self) -> dict[str, dict[str, str]]:
        """The hashes of all jobs, queues and errors."""
        return {key: self.client.hgetall(key) for key in self.client.scan_iter("*:hash")}

    def repair(self, **choices: str) -> Report:
        """Repair, what comes to light by it too, and return what is left."""
        self._check(repair=True, **choices)
        self._check(repair=True, **choices)
        return self._check(**choices)

    @staticmethod
    def _check(repair: bool = False, **choices: str) -> Report:
        return check(repair, queue_models=[Queue], error_models=[Error], lease=0, pause=0, **choices)


@pytest.fixture
def stage(redis_client: redis.Redis, caplog: pytest.LogCaptureFixture) -> Iterator[Stage]:
    Queue.get_queue("queue")
    return Stage(redis_client, caplog)


# Jobs


class Row(NamedTuple):
    """Commands that break a job, and what becomes of it."""

    commands: list[tuple[Any, ...]]
    then: str
    # kinds of findings that only a person can decide on
    left: tuple[str, ...] = ()


JOBS = {
    "a hash that is gone": Row([("DEL", HASH)], "dropped"),
    "a hash that is a list": Row([("DEL", HASH), ("RPUSH", HASH, "x")], "quarantine"),
    "a hash that is a string": Row([("SET", HASH, "x")], "quarantine"),
    "an identifier that is not UTF-8": Row([("HSET", HASH, "identifier", NOT_UTF8)], "run"),
    "a field that is not UTF-8": Row([("HSET", HASH, "text", NOT_UTF8)], "run"),
    "a status that is not UTF-8": Row([("HSET", HASH, "status", NOT_UTF8)], "skipped", ("unknown status",)),
    "a status outside the six": Row([("HSET", HASH, "status", "z")], "skipped", ("unknown status",)),
    "a status that is gone": Row([("HDEL", HASH, "status")], "skipped"),
    "a priority that is no integer": Row([("HSET", HASH, "priority", "high")], "run"),
    "a priority that is no number at all": Row([("HSET", HASH, "priority", NOT_UTF8)], "run"),
    "tries that are no integer": Row([("HSET", HASH, "tries", "many")], "run"),
    "tries that are no number at all": Row([("HSET", HASH, "tries", NOT_UTF8)], "run"),
    "dates that are none": Row([("HSET", HASH, "added", "x", "start", "x", "delayed_until", "x")], "run"),
}


@pytest.mark.parametrize("place", PLACES)
@pytest.mark.parametrize("broken", JOBS)
def test_a_broken_job(stage: Stage, broken: str, place: str) -> None:
    row = JOBS[broken]
    stage.add_job_that_is(place)
    for command in row.commands:
        stage.client.execute_command(*command)
    stage.play()
    bad_runs = sum(stage.runs.values()) - 2
    assert bad_runs == (row.then == "run")
    assert stage.client.lrange(f"{QUEUE_KEY}:_quarantine", 0, -1) == [IDENT] * (row.then == "quarantine")
    for name in PLACES:
        assert stage.client.exists(f"{QUEUE_KEY}:{name}") == 0
    assert len(stage.lines) == number_of_lines(row.then, place), stage.lines
    assert tuple(finding.kind for finding in stage.repair().left) == row.left
    assert stage.repair(unknown_status="requeue").left == []
    assert violations(stage.client, Note, Queue, Error) == []


def number_of_lines(then: str, place: str) -> int:
    """One for what is set aside or skipped, and one for a job whose worker died."""
    if then == "dropped" and place == "_running":
        return 0  # an application may delete a job that runs
    return (then != "run") + (place == "_running" and then in ("run", "skipped"))


# Idents

IDENTS: dict[str, str | bytes] = {
    "garbage": "garbage",
    "nothing": "",
    "bytes that are not UTF-8": NOT_UTF8,
    "an unknown class": "nowhere_at_all.Task:1",
    "an unknown class of a module that is there": "test_bad_stored_data.Missing:1",
    "no job class": "os.system:1",
    "a job that never was": "test_bad_stored_data.Note:99",
}


@pytest.mark.parametrize("place", PLACES)
@pytest.mark.parametrize("kind", IDENTS)
def test_an_ident_that_is_none(stage: Stage, kind: str, place: str) -> None:
    stage.put(IDENTS[kind], place)
    stage.play()
    assert sum(stage.runs.values()) == 2
    assert len(stage.lines) == (place != "_running"), stage.lines
    unknown = {finding.kind for finding in stage.repair().left}
    assert unknown <= {"unknown class"}
    assert bool(unknown) == (kind.startswith(("an unknown", "no job class"))), unknown
    assert stage.repair(unresolved="delete").left == []


# Keys


# of another queue of the same name, in which a job waits; what the worker says of it; whether the job runs all the same
KEYS = {
    "waiting": (1, False),
    "delayed": (0, True),
    "_running": (1, False),
    "_quarantine": (0, True),
    "_deferrals": (0, True),
    "success": (None, True),  # one for each try
    "hash": (0, False),
}


@pytest.mark.parametrize("name", KEYS)
def test_a_key_of_a_wrong_type(stage: Stage, name: str) -> None:
    lines, is_run = KEYS[name]
    odd = Note.add_job("odd", priority=5)
    key = f"jobs:queue:2:{name}"
    stage.client.delete(key)
    stage.client.set(key, "of a wrong type")
    stage.play()
    assert bool(stage.runs["odd"]) == is_run
    if lines is not None:
        assert len(stage.lines) == lines, stage.lines
    assert stage.repair().left == []
    with stage.working():
        wait_until(lambda: odd.status.hget() == STATUSES.SUCCESS, "the job that was repaired")
    assert violations(stage.client, Note, Queue, Error) == []


COUNTERS = ["bad-data:note:max_pk", "jobs:queue:max_pk", "jobs:error:max_pk"]


@pytest.mark.parametrize("counter", COUNTERS)
@pytest.mark.parametrize(
    "value", ["", "1", "none", "9223372036854775807"], ids=["lost", "behind", "none", "at its end"]
)
def test_a_counter_that_is_wrong_lets_no_record_be_overwritten(stage: Stage, counter: str, value: str) -> None:
    for number in range(3):
        Note.add_job(f"fails {number}")
    with stage.working():
        wait_until(lambda: sum(stage.runs.values()) == 3)
    before = stage.records()
    stage.client.set(counter, value) if value else stage.client.delete(counter)
    Note.add_job("fails again", priority=7)
    stage.play()
    after = stage.records()
    assert {key: after[key] for key in before} == before
    assert len(after) == len(before) + 5  # three jobs, a queue, an error
    assert stage.repair().left == []
    assert violations(stage.client, Note, Queue, Error) == []
