"""Whatever stands in Redis beside good jobs: who asks is told of these."""

from __future__ import annotations

import json
from typing import Any

import pytest
import redis

from limpyd_jobs import Job, Queue, Worker
from limpyd_jobs.models import BaseJobsModel, WorkerPresence
from limpyd_jobs.query import (
    ErrorFilter,
    JobFilter,
    explain_job,
    job_details,
    overview,
    quarantine_entries,
    queue_states,
    read_metrics,
)
from limpyd_jobs.records import audit
from limpyd_jobs.search import walk

pytestmark = pytest.mark.usefixtures("redis_client")


class Note(Job):
    namespace = "broken"
    queue_name = "notes"
    keep_history = 5
    keep_result = True

    def run(self, queue: Any) -> str:
        self.log("a line")
        if self.identifier.hget() == "bad":
            raise ValueError
        return "done"


@pytest.fixture(autouse=True)
def _jobs() -> None:
    Note.add_jobs(["good", "bad", "next"])
    Worker("notes", max_loops=2, logger_level=60).run()


def asked() -> list[Any]:
    """What all that asks tells, as far as it is about the good ones."""
    seen = overview(most_running=5)
    explained = explain_job("test_broken_data.Note:3")
    read_metrics()
    quarantine_entries()
    WorkerPresence.alive()
    Queue.get_paused_names()
    audit.last_entries(BaseJobsModel.get_connection(), 5)
    return [
        seen.totals.jobs,
        JobFilter("status=waiting").page().found[0].identifier,
        job_details("test_broken_data.Note:3").fields["identifier"],
        explained.status,
        sum(group.number for group in ErrorFilter().groups().groups),
    ]


KEYS = [
    *("jobs:queue:collection", "jobs:queue:name:notes", "jobs:queue:paused", "jobs:queue:1:_quarantine"),
    *("jobs:workerpresence:leases", "limpyd-jobs:audit", "limpyd-jobs:classes", "jobs:error:job_pk:3"),
    *("broken:note:3:_log", "broken:note:3:_history", "broken:note:3:_result", "jobs:queue:1:_deferrals"),
]


@pytest.mark.matrix
@pytest.mark.parametrize("key", KEYS)
@pytest.mark.parametrize("kind", ["string", "list", "zset"])
def test_a_key_of_a_wrong_type_counts_as_empty(redis_client: redis.Redis, key: str, kind: str) -> None:
    redis_client.delete(key)
    put: Any = {"string": ("set", "x"), "list": ("rpush", "x"), "zset": ("zadd", {"x": 1})}[kind]
    getattr(redis_client, put[0])(key, put[1])
    assert asked() == [3, "next", "next", "waiting", 1]
    assert [state.waiting for state in queue_states("notes")] in ([1], [])


@pytest.mark.parametrize("name", ["_log", "_history"])
def test_what_is_kept_beside_a_job_is_empty_if_it_is_none(redis_client: redis.Redis, name: str) -> None:
    redis_client.set(f"broken:note:3:{name}", "x")
    job = Note.get("3")
    assert {"_log": job.read_log(), "_history": job.read_history()}[name] == []


@pytest.mark.parametrize("text", [b"\xff", b"", b"x", b"-inf", b"9" * 5000, "\u0663".encode()])
def test_a_number_of_deferrals_that_is_none_counts_as_none(redis_client: redis.Redis, text: bytes) -> None:
    redis_client.hset("jobs:queue:1:_deferrals", "test_broken_data.Note:3", text)
    assert "deferred" not in [reason.code for reason in explain_job("test_broken_data.Note:3").reasons]


@pytest.mark.parametrize(
    "text", ['[1e999, "", "2026-11-24"]', '[NaN, "", "2026-11-24"]', f'[{"9" * 400}, 1, "2026-11-24"]']
)
def test_a_progress_that_is_no_number_counts_as_none(redis_client: redis.Redis, text: str) -> None:
    redis_client.hset("broken:note:3:hash", "_progress_state", text)
    assert job_details("test_broken_data.Note:3").progress is None


class TestAudit:
    def test_what_was_done_is_told_even_if_it_cannot_be_written_down(
        self, redis_client: redis.Redis, caplog: pytest.LogCaptureFixture
    ) -> None:
        caplog.set_level("WARNING", "limpyd-jobs")
        redis_client.delete(audit.KEY)
        redis_client.set(audit.KEY, "x")
        assert JobFilter("status=error").requeue_all(unaudited=True).done == 1
        assert "Not written to the audit: " in caplog.text

    def test_a_date_beyond_all_is_left_out(self, redis_client: redis.Redis) -> None:
        redis_client.xadd(audit.KEY, {"who": "x"}, id="18446744073709551614-1")
        (entry,) = audit.last_entries(redis_client, 1)
        assert entry == {"who": "x", "at": ""}

    def test_a_long_filter_is_cut(self, redis_client: redis.Redis) -> None:
        JobFilter("status=error", identifier="x" * 100_000).requeue_all()
        JobFilter("status=error", identifier__ne="x" * 100_000).requeue_all()
        (entry,) = audit.last_entries(redis_client, 1)
        assert len(entry["filter"]) < 3000


@pytest.mark.parametrize("number", ["--5", "+-5", "-", "1" * 400])
def test_what_is_no_number_is_shown_as_it_is(redis_client: redis.Redis, number: str) -> None:
    redis_client.hset("jobs:queue:1:hash", "priority", number)
    redis_client.hset("broken:note:3:hash", mapping={"priority": number, "tries": number})
    assert [state.priority for state in overview().queues] == [number]
    job = JobFilter("identifier=next").page().found[0]
    assert (job.priority, job.tries) == (number, number)


LONG_LEASE = '{"lease": 1' + "0" * 400 + "}"
DEEP_OPTIONS = '{"options": ' + '{"a": ' * 900 + "1" + "}" * 901


@pytest.mark.parametrize("details", [LONG_LEASE, DEEP_OPTIONS])
def test_a_worker_that_tells_what_no_process_can_read_is_listed(redis_client: redis.Redis, details: str) -> None:
    with WorkerPresence.register("worker", "far") as presence:
        redis_client.hset(f"jobs:workerpresence:{presence.pk}:hash", "details", details)
        [worker] = WorkerPresence.alive()
    assert worker.name == "far"
    assert json.dumps(worker.options)


def test_the_jobs_of_a_class_that_no_process_can_have_are_not_looked_for(redis_client: redis.Redis) -> None:
    names = [f"field{number}" for number in range(5_000)]
    redis_client.hset("limpyd-jobs:classes", "big.C", json.dumps(["big.C", "big:c", names, {}, {}, []]))
    redis_client.sadd("big:c:collection", 1, 2)
    assert len([*JobFilter().records()]) == 3


@pytest.mark.parametrize("highest", [10**14, 10**17])
def test_a_counter_far_beyond_all_jobs_makes_no_search_longer(
    redis_client: redis.Redis, monkeypatch: pytest.MonkeyPatch, highest: int
) -> None:
    monkeypatch.setattr(walk, "SMALL_SET", 1)
    monkeypatch.setattr(walk, "MEDIUM_SET", 1)
    redis_client.set("broken:note:max_pk", highest)
    assert JobFilter(Note, "identifier!=x").count() == (3, True)
