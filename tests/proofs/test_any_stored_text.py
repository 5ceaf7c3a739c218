"""Whatever text stands anywhere in Redis: who looks gets an answer, and never a traceback."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Any

import pytest
import redis
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from reading import limpyd_jobs

from limpyd_jobs import Argument, Job, Presence, Queue, Retry, Worker, WorkerPresence
from limpyd_jobs.query import ErrorFilter, JobFilter
from limpyd_jobs.records import metrics, presences
from limpyd_jobs.records.metrics import LENGTH, Metrics
from limpyd_jobs.schedules import Schedule

EXAMPLES = int(os.environ.get("LIMPYD_JOBS_EXAMPLES", "4"))

PATH = f"{__name__}.Note"

COMMANDS = [
    ["check", "--pause=0"],
    ["check", "--pause=0", "--repair"],
    ["info"],
    ["info", "--json"],
    ["jobs", "list"],
    ["jobs", "count", "--by=status"],
    ["jobs", "count", "tries>0", "added>-1d", "number>1", "owner=x"],
    ["jobs", "count", "--by=error"],
    ["jobs", "export", "--all"],
    *(["jobs", verb, f"{PATH}:{pk}"] for pk in range(1, 7) for verb in ("show", "explain")),
    ["errors", "groups"],
    ["errors", "list"],
    ["errors", "show"],
    ["workers"],
    ["workers", "show", "--all"],
    ["workers", "list", "--json"],
    ["stats"],
    ["schedules", "list"],
    ["quarantine", "list"],
    ["queues", "list"],
    ["audit"],
]

# Texts that a reader may take for a number, a date, an ident or JSON, and stumble over.
DATES = [
    "9999-12-31 23:59:59.999999",
    "9999-12-31T23:59:59-14:00",
    "0001-01-01T00:00:00+14:00",
    "0000-00-00",
    "2026-01-01",
]
NUMBERS = [
    "9" * 5000,
    "-" + "9" * 400,
    "1e400",
    "nan",
    "-inf",
    "1_0",
    "²",
    "٣",
    "-1",
    "0x10",
    "1.5",
    " 1",
    "99999999999999999999",
]
IDENTS = [
    f"{PATH}:{'9' * 5000}",
    f"{PATH}:²",
    f"{PATH}:",
    ":1",
    "a:1",
    "x.Y:1",
    f"{'a.' * 500}B:1",
    "os:system",
    f"{PATH}:1:2",
]
JSON = [
    "[" * 30000,
    "{}",
    "[]",
    "null",
    '{"queues": {"a": 1}, "lease": 1e308, "running": [["a", 1, null]]}',
    "[1e999]",
    '"\\ud800"',
]
OTHERS = [
    "",
    "\0",
    "\x1b[2J",
    "a\nb\r\u202e",
    "x" * 100_000,
    b"\xff\xfe",
    b"\x00\xed\xa0\x80",
    "w",
    "r",
    "s",
    "1",
    "q\nx",
]
VALUES = [*DATES, *NUMBERS, *IDENTS, *JSON, *OTHERS]
SCORES = ["inf", "-inf", "1e308", "-1e308", "0", "1e15"]


class Note(Job):
    namespace = "any-text"
    queue_name = "notes"
    keep_history = 5
    keep_result = True

    number = Argument(int, default=1)

    def run(self, queue: Any) -> int:
        self.log("a line")
        self.progress(0.5, "half")
        if self.identifier.hget() == "bad":
            raise ValueError("on purpose")
        return 1


def make(client: redis.Redis) -> None:
    """Write something that each command has to read."""
    for each in ("good", "bad", "first", "next"):
        Note.add_job(each)
    Worker("notes", max_loops=2, logger_level=60).run()
    Note.add_job("later", delayed_for=3600, retry_policy=Retry(times=2, delay=5))
    owner = "web1:17:aaaaaaaaaaaa"
    Note.collection(identifier="first").instances()[0].claim(owner, lease=60)
    Note.add_job("canceled").cancel()
    client.rpush("any-text:queue", "")
    queue = Queue.get_queue("notes")
    client.rpush(f"jobs:queue:{queue.pk.get()}:_quarantine", "no ident")
    JobFilter(f"class={PATH}", "identifier=nobody").promote_all()
    JobFilter("identifier=later").move_all(priority=1)
    Schedule.add("nightly", Note, cron="0 3 * * *")
    fields = {"kind": "worker", "name": owner, "host": "web1", "pid": "17"}
    details = '{"queues": ["notes"], "queue_model": "jobs:queue", "lease": 60, "status": "busy"}'
    presences.keep(WorkerPresence, "worker-a", {**fields, "details": details}, 60, client, takes_orders="1")
    presences.keep(Presence, "", {**fields, "kind": "x", "details": "{}"}, 60)
    metrics.write(client, {("notes", PATH): Metrics([1] * LENGTH)}, {PATH: Note._name})


@pytest.fixture
def stored(redis_client: redis.Redis) -> dict[bytes, bytes]:
    make(redis_client)
    raw = redis.Redis(unix_socket_path=redis_client.get_connection_kwargs()["path"])
    return {key: raw.dump(key) for key in sorted(raw.keys())}


def restore(raw: Any, stored: Mapping[bytes, bytes]) -> None:
    pipeline = raw.pipeline()
    pipeline.flushall()
    for key, value in stored.items():
        pipeline.restore(key, 0, value)
    pipeline.execute()


def damage(raw: Any, data: st.DataObject) -> list[Any]:
    """Write some texts over others, whatever is there."""
    values = st.sampled_from(VALUES) | st.text(max_size=20).filter(_can_be_encoded) | st.binary(max_size=20)
    keys = sorted(raw.keys())
    done: list[Any] = []
    for _ in range(data.draw(st.integers(1, 6))):
        key, value = data.draw(st.sampled_from(keys)), data.draw(values)
        kind = raw.type(key)
        done.append((key, value if len(value) < 100 else (value[:20], len(value))))
        if kind == b"hash":
            name = data.draw(st.sampled_from(sorted(raw.hkeys(key))))
            raw.hset(key, name, value)
            done.append(name)
        elif kind == b"string":
            raw.set(key, value)
        elif kind == b"list":
            raw.lpush(key, value)
        elif kind == b"set":
            raw.sadd(key, value)
        elif kind == b"zset":
            raw.zadd(key, {value: data.draw(st.sampled_from(SCORES))})
        elif kind == b"stream":
            raw.xadd(key, {value or b"x": value})
    return done


def _can_be_encoded(text: str) -> bool:
    return text.encode(errors="ignore").decode() == text


def test_no_command_ends_in_a_traceback(redis_client: redis.Redis, stored: Mapping[bytes, bytes]) -> None:
    raw = redis.Redis(unix_socket_path=redis_client.get_connection_kwargs()["path"])
    fingerprint = ErrorFilter().groups().groups[0].fingerprint

    answers = {" ".join(command): limpyd_jobs(*command) for command in COMMANDS if command != ["errors", "show"]}
    assert {command: answer for command, answer in answers.items() if answer[0] or not answer[1]} == {}

    @settings(
        max_examples=EXAMPLES, deadline=None, database=None, suppress_health_check=list(HealthCheck), derandomize=False
    )
    @given(st.data())
    def look(data: st.DataObject) -> None:
        restore(raw, stored)
        done = damage(raw, data)
        for command in COMMANDS:
            words = [*command, fingerprint] if command == ["errors", "show"] else command
            try:
                status, _, error = limpyd_jobs(*words)
            except Exception as failure:
                raise AssertionError(f"{words}: {failure!r:.300} after {done}") from failure
            assert status in (0, 1, 2), (words, error[:500], done)

    look()
