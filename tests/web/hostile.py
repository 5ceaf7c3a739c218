"""A database in which each text that a page may show is an attack."""

from __future__ import annotations

import json
from contextlib import suppress
from typing import Any

import redis
from limpyd import fields

from limpyd_jobs import Flow, Job, LimpydJobsException, Queue, Schedule, WorkerPresence, job
from limpyd_jobs.records import metrics, presences
from limpyd_jobs.records.metrics import Metrics

# What runs sets `canary`, or says the product of these two numbers.
PRODUCT = (7919, 104729)

_PRODUCT = f"{PRODUCT[0]}*{PRODUCT[1]}"

PAYLOADS = {
    "script": "</script><script>canary=1</script>",
    "image": "<img src=x onerror=canary=1>",
    "svg": "<svg/onload=canary=1><animate onbegin=canary=1>",
    "double quotes": '" autofocus onfocus="canary=1" x="',
    "single quotes": "' autofocus onfocus='canary=1' x='",
    "no quotes": " autofocus onfocus=canary=1 x=`",
    "htmx": '" hx-get="/queues" hx-trigger="load" hx-on:load="canary=1" data-hx-on::load="canary=1" x="',
    "address": "javascript:canary=1//",
    "other host": "//evil.example/..%2f..%2f?#<b>",
    "data": "data:text/html,<script>canary=1</script>",
    "templates": "{{ " + _PRODUCT + " }}{% include 'x' %}${" + _PRODUCT + "}#{" + _PRODUCT + "}<%= " + _PRODUCT + " %>",
    "ends of elements": "--></title></textarea></option></select></style></noscript><script>canary=1</script>",
    "references": "&lt;script&gt;canary=1&lt;/script&gt;&#x202e;&NewLine;&#0;",
    "json": '{"a": "</script><script>canary=1</script>", "password": "x", "__proto__": {"canary": 1}}',
    "bidi": "abc\u202egnp.exe\u2066\u2069\u200f\u061c",
    "controls": "a\x01\x07\x1b[31m\x7f\x9b31m\u2028\u200b\ufeff\u00ad",
    "lines": "a\r\nSet-Cookie: canary=1\n\tb\v\f",
    "null": "a\x00b<script>canary=1</script>",
    "right to left": "\u05e9\u05dc\u05d5\u05dd \u0639\u0627\u0644\u0645",
    "combining": "Z" + "\u0301" * 60,
    "format": "%s%n{0}{0.__class__}$(canary)`canary`",
    "number": "99999999999999999999999999999999999999",
    "nothing": " ",
    "long": "w" * 5_000,
    "many characters": "\U0001f9ea\ufffe\U000e0041\ue000",
}

# No text, but some bytes.
BYTES = b"\xff<script>canary=1</script>\xed\xa0\x80\xfe"

HUGE = 20_000_000

MODEL = "web-hostile:attack"


class Attack(Job):
    namespace = "web-hostile"
    to = fields.InstanceHashField(indexable=True)
    text = fields.InstanceHashField()
    keep_history = 10
    keep_result = True


PATH = Attack.get_model_repr()

# Stands in values that are masked.
SECRET = "s3cr3t-value"


@job(queue="functions", unique=True, keep_result=True, start_within=3600)
def attack(to: str, api_token: str = "", more: Any = None) -> None:
    """A function whose jobs have identifiers that are made of their arguments."""


def fill(client: redis.Redis) -> None:
    """Write each payload wherever a text can stand: by the library where it takes it, else as another program."""
    for number, text in enumerate(PAYLOADS.values()):
        queue = _queue_of(client, number, text)
        _add_jobs(client, number, text, queue)
        _add_jobs_of_functions(client, text)
        _write_the_rest(client, number, text)
    _make_flows(client)
    _write_bytes(client)
    _write_much(client)


def _make_flows(client: redis.Redis) -> None:
    """Make flows whose names, and those of their nodes, are attacks."""
    for text in PAYLOADS.values():
        with Flow() as flow:
            flow.add(Attack.prepare(queue_name="attacks"))
        node = client.hget(f"limpyd-jobs:flow:{flow.id}:nodes", "1").partition(" ")[0]
        client.hset(f"limpyd-jobs:flow:{flow.id}:nodes", "1", f"{node} {text}")
        client.hset(f"limpyd-jobs:flow:{flow.id}", mapping={"name": text, "canceled": text})


def _queue_of(client: redis.Redis, number: int, text: str) -> str:
    try:
        queue = Queue.get_queue(text, priority=number % 3)
    except (LimpydJobsException, ValueError, TypeError):
        queue = Queue.get_queue(f"queue{number}")
        client.hset(f"jobs:queue:{queue.pk.get()}:hash", "name", text)
    pk = queue.pk.get()
    client.rpush(f"jobs:queue:{pk}:_quarantine", text, f"{text}:1", f"{PATH}:{text}")
    client.rpush(f"jobs:queue:{pk}:waiting", f"{text}:1", f"{PATH}:{text}")
    client.sadd("jobs:queue:paused", text)
    return f"jobs:queue:{pk}"


def _add_jobs(client: redis.Redis, number: int, text: str, queue: str) -> None:
    waiting, failed, running, succeeded = Attack.add_jobs([f"{number}-{each}" for each in range(4)], "attacks")
    with suppress(ValueError), failed.claim(owner=f"o{number}") as claim:
        claim.fail(type("Attacked", (Exception,), {})(text), trace=f"Traceback\n  {text}\n{text}")
    claim = running.claim(owner=text[:200].replace("\x00", "") + "x", lease=3600)
    running.log(text)
    running.progress(0.5, text)
    with succeeded.claim(owner="o"):
        pass
    client.set(f"{MODEL}:{succeeded.pk.get()}:_result", json.dumps(text))
    client.rpush(f"{MODEL}:{succeeded.pk.get()}:_history", text)
    client.rpush(f"{MODEL}:{succeeded.pk.get()}:_log", text)
    for each in (waiting, failed, running, succeeded):
        pk = each.pk.get()
        client.hset(f"{MODEL}:{pk}:hash", mapping={"identifier": text, "to": text, "text": text, text: text})
        client.sadd(f"{MODEL}:to:{text}", pk)
        client.sadd(f"{MODEL}:identifier:{text}", pk)
    client.hset(f"{MODEL}:{waiting.pk.get()}:hash", mapping={"priority": text, "tries": text, "added": text})
    client.hset(f"{MODEL}:{succeeded.pk.get()}:hash", mapping={"start": text, "end": text, "_queue_key": queue})
    [pk] = client.smembers(f"jobs:error:job_pk:{failed.pk.get()}")
    named = {"identifier": text, "queue_name": text, "code": text, "type": text, "app_version": text, text: text}
    client.hset(f"jobs:error:{pk}:hash", mapping={**named, "_raised_in": text, "_app_version": text})


def _add_jobs_of_functions(client: redis.Redis, text: str) -> None:
    """Write what long jobs, jobs of functions, and late ones have: each has a cursor, a progress and a reason."""
    secret = {"password": SECRET, text: text}
    late, gone = (attack.add(to, api_token=SECRET, more={text: [text, secret]}).job for to in (text, f"{text}2"))
    gone.cancel()
    for added, cursor, reason in ((late, text, text), (gone, json.dumps({text: [3, secret]}), json.dumps(secret))):
        kept = {"_cursor": cursor, "_cancel_reason": reason, "_start_within": "1" if added is late else text}
        progress = json.dumps([0.5, cursor, "2026-11-25 12:00:00"])
        key = f"{attack.job_class._name}:{added.pk.get()}:hash"
        client.hset(key, mapping={**kept, "_progress_state": progress, "_retry_for": text})
        client.rpush(f"{attack.job_class._name}:{added.pk.get()}:_log", f"2026-11-25 12:00:00 {json.dumps(secret)}")
    client.hset(f"{attack.job_class._name}:{late.pk.get()}:hash", "added", "2026-11-25 12:00:00")


def _write_the_rest(client: redis.Redis, number: int, text: str) -> None:
    running = [[f"{PATH}:{text}", text, text], [text, text, text]]
    told = {"queues": [text], "queue_model": text, "running": running, "options": {text: text, "lease": text}}
    details = json.dumps({**told, "versions": {text: text}, "dump": text, "unresolved": [text], "id": text})
    worker = {"kind": "worker", "name": text, "host": text, "pid": f"{number}", "details": details}
    presences.keep(WorkerPresence, f"{number}", worker, 3600, takes_orders="1")
    client.set(f"jobs:workerpresence:{number}:_dump", f"2026-11-25 12:00:00\n{text}")
    with suppress(Exception):
        Schedule.add(text, Attack, interval=3600, queue_name="attacks", text=text)
    schedule = Schedule.add(f"plan{number}", Attack, interval=3600, queue_name="attacks")
    stored = {"name": text, "queue_name": text, "identifier": text, "job_class": text, "misfire_policy": text}
    client.hset(f"jobs:schedule:{schedule.pk.get()}:hash", mapping={**stored, "job_fields": json.dumps({text: text})})
    entry = {"who": text, "verb": text, "filter": text, "how": text, "outcome": text, "claimed": text, "done": text}
    client.xadd("limpyd-jobs:audit", entry)
    client.hset("limpyd-jobs:audit:begun", text, json.dumps({**entry, "begun": text, "last": text}))
    row = Metrics()
    row.observe_start(1.0)
    row.observe_end(1.0, is_success=False)
    now = client.time()[0]
    for period, size in (("minute", 60), ("day", 86400)):
        client.hset(f"{metrics.KEY}{period}:{now // size * size}", f"{text}\n{text}", " ".join(map(str, row.numbers)))
    client.hset("limpyd-jobs:classes", text, json.dumps([text, f"x:{number}", [text], {text: text}, {}, []]))


def _write_bytes(client: redis.Redis) -> None:
    """Write bytes that are no text, as a program in another language may."""
    queue, job = Queue.get_queue("bytes"), Attack.add_job("bytes", "bytes")
    values: dict[Any, Any] = {"text": BYTES, BYTES: BYTES, "identifier": BYTES, "to": BYTES}
    client.hset(f"{MODEL}:{job.pk.get()}:hash", mapping=values)
    client.hset(f"jobs:queue:{queue.pk.get()}:hash", "name", BYTES)
    client.rpush(f"jobs:queue:{queue.pk.get()}:_quarantine", BYTES)
    client.rpush(f"{MODEL}:{job.pk.get()}:_log", BYTES)
    client.sadd("jobs:queue:paused", BYTES)
    client.xadd("limpyd-jobs:audit", {"who": BYTES, "verb": BYTES, BYTES: BYTES})


def _write_much(client: redis.Redis) -> None:
    job = Attack.add_job("huge", "huge", text="y" * HUGE)
    with job.claim(owner="o") as claim:
        claim.fail(ValueError("short"), trace="short")
    [pk] = client.smembers(f"jobs:error:job_pk:{job.pk.get()}")
    client.hset(f"jobs:error:{pk}:hash", mapping={"message": "<b>" * (HUGE // 3), "traceback": "<b>" * (HUGE // 3)})
    client.rpush(f"{MODEL}:{job.pk.get()}:_log", *["z" * 1_000_000] * 5)
