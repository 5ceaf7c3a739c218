"""The metrics for Prometheus: true, bounded, and counters never fall."""

from __future__ import annotations

import json
import sys
import threading
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, closing, contextmanager
from datetime import timedelta
from http.client import HTTPConnection
from itertools import pairwise
from pathlib import Path
from typing import Any

import preloaded
import pytest
import redis
from limpyd import fields
from prometheus_client import CollectorRegistry
from prometheus_client.parser import text_string_to_metric_families
from servers import RedisServer

from limpyd_jobs import Job, Limit, Queue, Worker, WorkerPresence
from limpyd_jobs.contrib.prometheus import FleetCollector, exposition
from limpyd_jobs.contrib.prometheus.catalogue import MAX_NAMED, OF_LIMITS, ROWS
from limpyd_jobs.contrib.prometheus.exposition import answering
from limpyd_jobs.dates import utcnow
from limpyd_jobs.integration import JobsDatabase
from limpyd_jobs.observing.responder import Responder
from limpyd_jobs.query import Metrics
from limpyd_jobs.records import metrics as stored
from limpyd_jobs.records import presences
from limpyd_jobs.redis.calls import chunks
from limpyd_jobs.schedules import Schedule
from limpyd_jobs.search.classes import queue_models_of

pytestmark = pytest.mark.usefixtures("redis_client")

HERE = __name__

COMMAND = str(Path(sys.executable).with_name("limpyd-jobs"))


class Parcel(Job):
    namespace = "prometheus"
    queue_name = "parcels"

    def run(self, queue: Any) -> None:
        if self.identifier.hget().startswith("bad"):
            raise ValueError("on purpose")


def work(*identifiers: str) -> None:
    for each in identifiers:
        Parcel.add_job(each)
    Worker("parcels", max_loops=len(identifiers), requeue_times=0, logger_level=60).run()


@pytest.fixture
def read(monkeypatch: pytest.MonkeyPatch) -> Callable[[], dict[tuple[str, ...], float]]:
    """Read all samples: by the name, and the values of the labels in the order of their names."""
    monkeypatch.setattr("limpyd_jobs.contrib.prometheus.collector.SEEN_FOR", -1.0)
    database = JobsDatabase(**Job.database.connection_settings)

    def read() -> dict[tuple[str, ...], float]:
        samples = [each for family in text_string_to_metric_families(text_of(database)) for each in family.samples]
        found = {
            (each.name.removeprefix("limpyd_jobs_"), *(each.labels[name] for name in sorted(each.labels))): each.value
            for each in samples
        }
        assert len(found) == len(samples)  # none comes twice
        return found

    return read


def text_of(database: JobsDatabase) -> str:
    return exposition(database).content.decode()


Read = Callable[[], dict[tuple[str, ...], float]]


def test_it_tells_what_waits_and_what_became_of_jobs(read: Read) -> None:
    work("one", "two", "bad")
    Parcel.add_job("waits")
    Parcel.add_job("later", delayed_for=timedelta(hours=1), priority=3)
    found = read()
    assert found["jobs_total", f"{HERE}.Parcel", "succeeded", "parcels"] == 2
    assert found["jobs_total", f"{HERE}.Parcel", "failed", "parcels"] == 1
    assert found["run_seconds_count", f"{HERE}.Parcel", "parcels"] == 3
    assert found["run_seconds_bucket", f"{HERE}.Parcel", "+Inf", "parcels"] == 3
    assert found["wait_seconds_count", "parcels"] == 3
    assert found["queue_jobs", "0", "parcels", "waiting"] == 1
    assert found["queue_jobs", "3", "parcels", "delayed"] == 1
    assert 0 < found["queue_latency_seconds", "0", "parcels"] < 3600
    assert found["queue_latency_seconds", "3", "parcels"] == 0
    assert found["queues", "by_name"] == 2
    families = {name.split("_bucket")[0] for name, *_ in found}
    for row in {*ROWS} - {*OF_LIMITS}:
        assert any(name.startswith(row.name) for name in families), row.name


class Courier(Job):
    namespace = "prometheus"
    queue_name = "couriers"
    city = fields.InstanceHashField()
    limits = [Limit("city", concurrency=2), Limit(name="api", rate="1/h")]


def test_it_tells_of_limits_but_of_no_key(read: Read, redis_client: redis.Redis) -> None:
    assert not {key[0] for key in read()} & {"limit_taken", "limit_allowed", "parked"}
    jobs = [Courier.add_job(city=city) for city in ("secret", "secret", "other")]
    with jobs[0].claim():
        while redis_client.zcard("jobs:queue:1:_parked") < 2:
            Worker("couriers", max_loops=1, timeout=0.1, max_duration=0.3, logger_level=60).run()
        found = {key: value for key, value in read().items() if key[0] in ("limit_taken", "limit_allowed", "parked")}
    assert found == {
        ("limit_taken", "city", "prometheus:courier"): 1,
        ("limit_allowed", "city", "prometheus:courier"): 4,
        ("parked", "city", "prometheus:courier"): 2,
        ("limit_taken", "api", "jobs:queue"): 0,
        ("parked", "api", "jobs:queue"): 2,
    }


def test_it_tells_how_many_jobs_dead_workers_left(read: Read, redis_client: redis.Redis) -> None:
    job = Parcel.add_job("one")
    job.claim(owner="web1:12")
    assert read()["lapsed_jobs", "parcels"] == 0
    redis_client.zadd("jobs:queue:1:_running", {job.ident: 1})
    assert read()["lapsed_jobs", "parcels"] == 1


def test_no_value_of_a_field_is_a_label(read: Read) -> None:
    work("secret-1", "bad-secret-2")
    Parcel.add_job("secret-3")
    assert not any("secret" in part for key in read() for part in key)


def test_an_application_can_register_it_beside_its_own() -> None:
    work("one")
    registry = CollectorRegistry()
    registry.register(FleetCollector())
    labels = {"queue": "parcels", "job_class": f"{HERE}.Parcel", "outcome": "succeeded"}
    assert registry.get_sample_value("limpyd_jobs_jobs_total", labels) == 1


def test_counters_never_fall(redis_client: redis.Redis, read: Read) -> None:
    succeeded = ("jobs_total", f"{HERE}.Parcel", "succeeded", "parcels")
    work("one", "two")
    seen = [read()]
    work("three")  # by another worker
    for key in redis_client.keys(f"{stored.KEY}minute:*"):  # type: ignore[union-attr]
        redis_client.delete(key)
    seen.append(read())
    redis_client.delete(stored.TOTAL)
    seen.append(read())
    work("four")
    seen.append(read())
    redis_client.flushall()
    seen.append(read())
    work("five", "six", "seven", "eight")  # more than had been run when the sums began anew
    seen.append(read())
    assert [each[succeeded] for each in seen] == [2, 3, 3, 4, 4, 8]
    counters = {key for key in seen[0] if key[0].endswith(("_total", "_count", "_sum", "_bucket"))}
    for before, after in pairwise(seen):
        assert all(after[key] >= before[key] for key in counters)


def test_the_sums_of_all_time_are_bounded_and_last(redis_client: redis.Redis) -> None:
    numbers = Metrics([1, 1, 0, *[0] * (stored.LENGTH - 3)])
    for part in stored.parts_of({(f"q{number}", "a.B"): numbers for number in range(600)}):
        stored.write(redis_client, part, {})
    text = text_of(Job.database)
    named = text.count('limpyd_jobs_jobs_total{job_class="a.B",outcome="succeeded"')
    assert named == MAX_NAMED
    others = f'limpyd_jobs_jobs_total{{job_class="other",outcome="succeeded",queue="other"}} {600 - MAX_NAMED}.0\n'
    assert others in text
    assert redis_client.hlen(stored.TOTAL) == MAX_NAMED + 1
    assert redis_client.ttl(stored.TOTAL) > 365 * 86400  # type: ignore[operator]


def make_queues(client: redis.Redis, names: list[str]) -> None:
    for some in chunks(enumerate(names, 1000), 1000):
        pipe = client.pipeline(transaction=False)
        for pk, name in some:
            pipe.sadd("jobs:queue:collection", pk)
            pipe.sadd(f"jobs:queue:name:{name}", pk)
            pipe.hset(f"jobs:queue:{pk}:hash", mapping={"name": name, "priority": "0"})
            pipe.rpush(f"jobs:queue:{pk}:waiting", f"{HERE}.Parcel:{pk}")
        pipe.execute()


def test_hostile_names_of_queues_make_no_more_labels(redis_client: redis.Redis, read: Read) -> None:
    work("one")
    hostile = ['a"}\nlimpyd_jobs_workers 666\n', "\u202e\x1b[31m", "x" * 900, "x" * 901, "\\"]
    make_queues(redis_client, [*hostile, "other", *(f"a{number}" for number in range(2_000))])
    found = read()
    labels = {key[1:3] for key in found if key[0] == "queue_jobs"}
    assert len(labels) <= MAX_NAMED + 1
    assert sum(value for key, value in found.items() if key[0] == "queue_jobs") == 2_006
    assert ("queue_jobs", "0", "parcels", "waiting") in found  # its jobs were run, so it has its name
    assert (found["queues", "by_name"], found["queues", "as_other"]) == (MAX_NAMED, 2_007 - MAX_NAMED)
    assert found["queue_jobs", "other", "other", "waiting"] == 2_007 - MAX_NAMED
    assert all(part.isprintable() and len(part) < 250 for key in found for part in key)
    assert ("workers",) not in found


def test_a_look_costs_a_step_for_a_hundred_queues(
    redis_client: redis.Redis, commands: Callable[[], AbstractContextManager[Any]]
) -> None:
    work("one")
    make_queues(redis_client, [f"a{number}" for number in range(250)])
    FleetCollector().collect()  # so that Redis knows the scripts
    collector = FleetCollector()
    with commands() as sent:
        collector.collect()
        collector.collect()  # within the same second
    steps = [command for command in sent if "EVAL" in command and " limpyd-jobs:classes " not in command]
    assert len(steps) == 4  # the workers, and three for 251 queues
    assert len(sent) - len(steps) <= 7 + 2 * len(queue_models_of(None))


def test_queues_beyond_the_limit_are_told(
    redis_client: redis.Redis, read: Read, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("limpyd_jobs.query.fleet.MAX_QUEUES", 50)
    work("one")
    make_queues(redis_client, [f"a{number}" for number in range(2_000)])
    found = read()
    assert (found["queues", "by_name"], found["queues", "not_at_all"]) == (50, 1_951)
    assert ("queue_paused", "0", "parcels") in found


def a_worker(client: redis.Redis, status: str, pk: str, **details: Any) -> None:
    told = {"status": status, "queues": ["parcels"], "queue_model": Queue._name, "lease": 60, **details}
    fields = {"kind": "worker", "name": f"host:1:{pk}", "host": "host", "pid": "1", "details": json.dumps(told)}
    presences.keep(WorkerPresence, pk, fields, 60, client, takes_orders="1")


def test_idle_workers_whose_jobs_wait_are_stalled(redis_client: redis.Redis, read: Read) -> None:
    job = Parcel.add_job("waits")
    a_worker(redis_client, "idle", "one", idle_for=15.0)
    a_worker(redis_client, "idle", "between-two-jobs", idle_for=0.0)
    a_worker(redis_client, "busy", "two")
    a_worker(redis_client, "quiet", "three", idle_for=50.0)
    a_worker(redis_client, "dancing\n", "hostile", queues=["parcels"] * 3, idle_for="x")
    assert read()["claims_stalled",] == 0  # the job has just been added
    job.added.hset(str(utcnow() - timedelta(minutes=2)))
    found = read()
    assert found["claims_stalled",] == 1
    assert [found["workers", status] for status in ("idle", "busy", "quiet", "other")] == [2, 1, 1, 1]
    assert found["queue_workers", "parcels"] == 3
    Queue.pause("parcels")
    found = read()
    assert (found["claims_stalled",], found["queue_paused", "0", "parcels"]) == (0, 1)


def test_the_latest_schedule_is_told(redis_client: redis.Redis, read: Read) -> None:
    assert read()["schedule_lateness_seconds",] == 0
    schedule = Schedule.add("daily", Parcel, interval=86400)
    assert read()["schedule_lateness_seconds",] == 0
    redis_client.zadd("jobs:schedule:due", {str(schedule.pk.get()): redis_client.time()[0] - 100})  # type: ignore[index]
    assert 100 <= read()["schedule_lateness_seconds",] < 3600


def test_what_another_program_wrote_counts_as_nothing(redis_client: redis.Redis, read: Read) -> None:
    work("one")
    redis_client.hset(stored.TOTAL, "x\ny", "1 2 x")
    redis_client.hset(stored.TOTAL, b"\xff\n\xfe", " ".join(["9" * 30] * stored.LENGTH))
    make_queues(redis_client, ["odd"])
    redis_client.hset("jobs:queue:1000:hash", "priority", 'x"\n')
    redis_client.zadd("jobs:schedule:due", {"1": "-inf"})
    found = read()
    assert found["jobs_total", "\\udcfe", "succeeded", "\\udcff"] == 1e30
    assert found["queue_jobs", "not a number", "odd", "waiting"] == 1
    for key in (stored.TOTAL, "jobs:schedule:due"):
        redis_client.set(key, "text")
    assert read()["jobs_total", f"{HERE}.Parcel", "succeeded", "parcels"] == 1


# -- Over HTTP


@contextmanager
def serving(database: JobsDatabase | None = None) -> Iterator[int]:
    with closing(Responder("127.0.0.1", 0, answering(database))) as responder:
        thread = threading.Thread(target=responder.serve_until_ended)
        thread.start()
        try:
            yield int(responder.address.rpartition(":")[2])
        finally:
            responder.end()
            thread.join()


def ask(port: int, path: str = "/metrics", **headers: str) -> tuple[int, str]:
    connection = HTTPConnection("127.0.0.1", port, timeout=30)
    connection.request("GET", path, headers=headers)
    response = connection.getresponse()
    text = response.read().decode()
    connection.close()
    return response.status, text


def test_it_is_served_to_this_machine() -> None:
    work("one")
    with serving() as port:
        with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics") as response:
            assert response.headers["Content-Type"] == "text/plain; version=0.0.4; charset=utf-8"
            assert b"limpyd_jobs_jobs_total{" in response.read()
        assert ask(port, "/") == (404, "The metrics are at /metrics\n")
        assert ask(port, Host=f"localhost:{port}")[0] == ask(port, Host="[::1]")[0] == 200
        for host in (f"evil.example:{port}", "127.0.0.1.evil.example", "[bad", ""):
            assert ask(port, Host=host)[0] == 403


def test_it_says_that_redis_is_away(redis_binary: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("limpyd_jobs.contrib.prometheus.collector.SEEN_FOR", -1.0)
    with RedisServer(redis_binary) as server:
        database = JobsDatabase(unix_socket_path=server.socket)
        with serving(database) as port:
            assert ask(port)[0] == 200
            server.stop()
            status, text = ask(port)
    assert status == 503
    assert text.startswith("Redis cannot be used: ConnectionError: ")


def test_a_port_that_is_taken_is_told_in_one_line(redis_server: RedisServer) -> None:
    with serving() as port:
        done = preloaded.run([COMMAND, "metrics", f"--port={port}", f"--database={redis_server.url}"])
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr == f"limpyd-jobs metrics: error: Cannot listen on 127.0.0.1:{port}: Address already in use\n"
