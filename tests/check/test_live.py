"""A check of a database that is in use, or in a state that is unusual but not wrong, or large."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ExitStack
from typing import Any

import pytest
import redis
from invariants import contents, violations
from looking import check
from running import Collector, worker_of, working
from servers import wait_until

from limpyd_jobs import STATUSES, Error, Job, Queue, Worker, transitions


class Stone(Job):
    namespace = "live"
    queue_name = "q"


class Pebble(Job):
    """Of no queue of its own."""

    namespace = "live"


@pytest.fixture
def look(redis_server: Any, redis_client: redis.Redis) -> Iterator[redis.Redis]:
    with redis_server.client(encoding_errors="surrogateescape") as client:
        yield client


def claimed(identifier: str) -> Any:
    """A job that runs, with its worker's name for the claim."""
    job = Stone.add_job(identifier, prepend=True)
    worker = Worker("q")
    worker.update_keys()
    assert worker.wait_for_job()[1].ident == job.ident
    return job


@pytest.mark.proof
def test_nothing_is_found_while_workers_and_producers_go_on(look: redis.Redis) -> None:
    done = threading.Event()
    numbers = [0, 0]

    def produce(producer: int) -> None:
        while not done.is_set():
            number = numbers[producer] = numbers[producer] + 1
            delay = 0.05 if number % 3 == 0 else None
            Stone.add_job(f"{producer}:{number % 700}", priority=number % 2, delayed_for=delay, prepend=not number % 7)
            done.wait(0.003)  # so that they go on, but do nothing else

    def run(job: Job, queue: Queue) -> None:
        if job._cached_identifier.endswith("5"):
            raise ValueError("on purpose")

    with ExitStack() as stack:
        workers = [
            worker_of("q", callback=run, max_loops=10**6, max_duration=60, requeue_times=1, requeue_delay_delta=0.1)
            for _ in range(2)
        ]
        for worker in workers:
            stack.enter_context(working(worker))
        producers = [threading.Thread(target=produce, args=(number,)) for number in range(2)]
        for producer in producers:
            producer.start()
        try:
            wait_until(lambda: min(numbers) > 200)
            before = sum(numbers)
            assert [finding.problem for _ in range(2) for finding in check(repair=True, pause=1).findings] == []
            assert sum(numbers) > before
        finally:
            done.set()
            for producer in producers:
                producer.join()
            for worker in workers:
                worker.end_forced = True
    assert check(pause=0).findings == []


UNUSUAL: dict[str, Callable[[redis.Redis], Any]] = {
    "a job that was made, but not put in a queue": lambda client: Stone(identifier="a"),
    "a running job that is to be canceled": lambda client: claimed("a").status.hset(STATUSES.CANCELED),
    "a running job that is to be delayed": lambda client: claimed("a").status.hset(STATUSES.DELAYED),
    "a job that version 2 runs, once it was found": lambda client: claimed("a").claim_token.delete(),
    "a lock of version 2": lambda client: client.set("jobs:queue:1:requeue_all_delayed_ready_jobs", 1),
    "the names of waiting workers": lambda client: client.zadd("jobs:queue:idle_workers", {"worker": 1}),
    "what tells a worker of canceled jobs": lambda client: client.rpush("jobs:queue:_canceled:host:1:abc", "x"),
    "a key of somebody else": lambda client: client.set("jobs:other:1:what", "x"),
    "a job in a queue of another name": lambda client: Stone.add_job("a", "elsewhere"),
    "a date far away": lambda client: Stone.add_job("a", delayed_for=86400 * 365 * 500),
    "a deleted job": lambda client: Stone(identifier="a").delete(),
    "identifiers that are hard to store": lambda client: [
        Stone.add_job(text) for text in ("a:b", " ", "\n\0", "é😀", "*")
    ],
}


@pytest.mark.parametrize("make", UNUSUAL.values(), ids=UNUSUAL)
def test_that_is_no_wrong(look: redis.Redis, make: Callable[[redis.Redis], Any]) -> None:
    Stone.add_job("z")
    make(look)
    before = contents(look)
    assert check(repair=True, pause=0).findings == []
    assert contents(look) == before


def test_of_queued_jobs_with_one_identifier_the_running_one_is_kept(look: redis.Redis) -> None:
    running = claimed("a")
    others = [Stone.add_job(identifier, priority=9) for identifier in "bc"]
    for other in others:
        other.identifier.hset("a")
    report = check(repair=True, pause=0)
    assert [(finding.invariant, finding.subject) for finding in report.findings] == [
        ("I4", other.ident) for other in reversed(others)
    ]
    assert running.status.hget() == STATUSES.RUNNING
    assert {other.status.hget() for other in others} == {STATUSES.CANCELED}
    assert violations(look, Stone, Queue, Error) == []


def test_of_queued_jobs_with_one_identifier_the_one_of_the_highest_priority_is_kept_then_the_oldest(
    look: redis.Redis,
) -> None:
    jobs = [Stone.add_job(identifier, priority=priority) for identifier, priority in zip("abc", (1, 5, 5), strict=True)]
    for job in jobs:
        job.identifier.hset("x")
    check(repair=True, pause=0)
    assert [job.status.hget() for job in jobs] == [STATUSES.CANCELED, STATUSES.WAITING, STATUSES.CANCELED]
    assert violations(look, Stone, Queue, Error) == []


def test_orphans_go_to_the_beginning_of_the_list_in_their_order_and_run(look: redis.Redis) -> None:
    for number in range(1, 13):
        Stone.add_job(str(number))
    look.lpop("jobs:queue:1:waiting", 11)
    assert len(check(repair=True, pause=0).findings) == 11
    collector = Collector()
    worker_of("q", callback=collector, max_loops=12).run()
    assert collector.identifiers == [str(number) for number in range(1, 13)]


def test_an_orphan_of_a_class_without_a_queue_goes_to_the_only_queue_of_its_priority(look: redis.Redis) -> None:
    job = Pebble.add_job("a", "q")
    look.delete("jobs:queue:1:waiting")
    look.hdel("live:pebble:1:hash", "_queue_key")
    assert check(repair=True, pause=0).left == []
    assert look.lrange("jobs:queue:1:waiting", 0, -1) == [job.ident]


def test_an_orphan_that_could_belong_in_several_queues_is_told_and_left(look: redis.Redis) -> None:
    Pebble.add_job("a", "q")
    Queue.get_queue("other")
    look.delete("jobs:queue:1:waiting")
    look.hdel("live:pebble:1:hash", "_queue_key")
    before = contents(look)
    (finding,) = check(repair=True, pause=0).left
    assert (finding.invariant, finding.repairable) == ("I5", False)
    assert contents(look) == before


def test_an_orphan_whose_queue_is_gone_gets_a_new_one_of_the_name_its_class_has(look: redis.Redis) -> None:
    job = Stone.add_job("a", priority=3)
    look.delete("jobs:queue:1:waiting")
    Queue.get_queue("q", 3).delete()
    assert check(repair=True, pause=0).left == []
    assert Queue.get_queue("q", 3).waiting.lmembers() == [job.ident]
    assert violations(look, Stone, Queue, Error) == []


@pytest.mark.parametrize("lease", [0, 500])
def test_a_job_that_version_2_left_running_gets_a_lease(look: redis.Redis, lease: int) -> None:
    job = claimed("a")
    look.delete("jobs:queue:1:_running")
    look.hdel("live:stone:1:hash", "_claim_token", "_queue_key")
    check(repair=True, lease=lease, pause=0)
    assert 0 <= look.zscore("jobs:queue:1:_running", job.ident) - float(".".join(map(str, look.time()))) - lease + 5 < 6
    collector = Collector()
    worker_of("q", callback=collector, burst=True).run()
    assert collector.identifiers == (["a"] if lease == 0 else [])


@pytest.mark.parametrize("by_check", [True, False], ids=["by an earlier check", "by a worker"])
def test_a_lease_that_no_process_renews_is_shortened(look: redis.Redis, by_check: bool) -> None:
    job = claimed("a")
    look.hdel("live:stone:1:hash", "_claim_token")
    look.zadd("jobs:queue:1:_running", {job.ident: float(look.time()[0] + 86400)})
    if by_check:
        look.delete("jobs:queue:1:_running")
        assert len(check(repair=True, pause=0).findings) == 2
    report = check(pause=0)
    assert report.findings == []
    assert "1 job is RUNNING without the claim of a worker" in report.warnings[0]
    assert [found.kind for found in check(repair=True, lease=0, pause=0).findings] == ["presumed to run"]
    assert look.zscore("jobs:queue:1:_running", job.ident) <= look.time()[0] + 1
    report = check(lease=0, pause=0)
    assert (report.findings, report.warnings) == ([], [])


def test_queues_of_one_name_and_priority_are_merged_into_the_oldest(look: redis.Redis) -> None:
    Stone.add_job("a")
    second = Queue(name="q", priority=0)
    for number in range(300):
        Stone.add_job(f"b{number}", "other")
    look.rename("jobs:queue:3:waiting", f"jobs:queue:{second.pk.get()}:waiting")
    look.hset("live:stone:9:hash", "_queue_key", "jobs:queue:2")
    Stone.add_job("c", "other", delayed_for=1000)
    look.rename("jobs:queue:3:delayed", "jobs:queue:2:delayed")
    report = check(repair=True, pause=0)
    assert "I9" in {finding.invariant for finding in report.findings}
    assert report.left == []
    assert Queue.get_queue("q").waiting.llen() == 301
    assert look.zcard("jobs:queue:1:delayed") == 1
    assert look.hget("live:stone:9:hash", "_queue_key") == "jobs:queue:1"
    assert not look.exists("jobs:queue:2:hash")
    assert violations(look, Stone, Queue, Error) == []


def test_jobs_of_unknown_classes_are_told_and_left(look: redis.Redis) -> None:
    Stone.add_job("a")
    look.rpush("jobs:queue:1:waiting", "no.such.Thing:1", "no.such.Thing:2")
    before = contents(look)
    (finding,) = check(repair=True, pause=0).left
    assert (finding.kind, finding.subject, finding.repairable) == ("unknown class", "no.such.Thing", False)
    assert "2 jobs" in finding.problem
    assert contents(look) == before


def test_jobs_of_unknown_classes_are_left_even_in_a_list_of_no_queue(look: redis.Redis) -> None:
    look.rpush("jobs:queue:7:waiting", "no.such.Thing:1")
    (finding,) = check(repair=True, pause=0).left
    assert finding.kind == "no queue, but unknown jobs"
    assert look.exists("jobs:queue:7:waiting")


def test_keys_that_may_be_of_a_process_are_told_and_left(look: redis.Redis) -> None:
    Stone.add_job("a")
    look.set("live:stone:1:what", "x")
    look.set("live:stone:what", "x")
    report = check(repair=True, pause=0)
    assert {finding.subject for finding in report.left} == {"live:stone:1:what", "live:stone:what"}
    assert look.exists("live:stone:1:what", "live:stone:what") == 2


def test_what_is_no_ident_is_kept_in_quarantine(look: redis.Redis) -> None:
    Stone.add_job("a")
    look.rpush("jobs:queue:1:waiting", "what")
    check(repair=True, pause=0)
    assert look.lrange("jobs:queue:1:_quarantine", 0, -1) == ["what"]


@pytest.mark.proof
def test_a_large_database_is_read_in_small_bites(
    look: redis.Redis, commands: Callable[[], AbstractContextManager[Any]]
) -> None:
    number = 5_000
    fill(look, number)
    with commands() as sent:
        report = check(pause=0)
    assert report.findings == []
    assert report.records["test_live.Stone"] == number
    assert set(sent.names) <= {
        *(
            "SCAN",
            "XINFO",
            "TYPE",
            "HGETALL",
            "SCARD",
            "SSCAN",
            "ZSCAN",
            "LRANGE",
            "HMGET",
            "EXISTS",
            "SMISMEMBER",
            "EVALSHA",
            "EVAL",
            "TIME",
            "LLEN",
            "MEMORY",
            "SRANDMEMBER",
            "HGET",
        ),
    }
    assert max(len(command.split(" ")) for command in sent if not command.startswith("EVAL ")) < 1100  # a script
    ranges = [command.split(" ")[-2:] for command in sent if command.startswith("LRANGE")]
    assert all(int(last) - int(first) < 1000 for first, last in ranges)
    assert len(ranges) > 2 * number / 1000


def fill(client: redis.Redis, number: int) -> None:
    """Make many jobs like one that waits."""
    Stone.add_job("1")
    client.eval(
        """
        local hash = redis.call('HGETALL', 'live:stone:1:hash')
        for i = 2, tonumber(ARGV[1]) do
          local pk = string.format('%d', i)
          redis.call('HSET', 'live:stone:' .. pk .. ':hash', unpack(hash))
          redis.call('HSET', 'live:stone:' .. pk .. ':hash', 'identifier', pk)
          redis.call('SADD', 'live:stone:identifier:' .. pk, pk)
          for _, key in ipairs({'collection', 'status:w', 'priority:0', 'queued:1'}) do
            redis.call('SADD', 'live:stone:' .. key, pk)
          end
          redis.call('RPUSH', 'jobs:queue:1:waiting', 'test_live.Stone:' .. pk)
        end
        redis.call('SET', 'live:stone:max_pk', ARGV[1])
        """,
        0,
        number,
    )


@pytest.mark.proof
def test_many_problems_are_all_repaired(look: redis.Redis) -> None:
    fill(look, 3000)
    look.delete("jobs:queue:1:waiting", "live:stone:queued:1", "live:stone:collection")
    assert len(check(repair=True, pause=0).findings) >= 9000
    assert check(pause=0).findings == []
    assert violations(look, Stone, Queue, Error) == []


def test_what_limpyd_keeps_of_a_collection_for_a_while_is_no_wrong(look: redis.Redis) -> None:
    Stone.add_job("a")
    assert len(Stone.collection(identifier="a", status="w")) == 1
    assert look.keys("*__collection__*")
    assert check(pause=0).findings == []


def test_what_a_worker_holds_for_a_moment_is_no_wrong(look: redis.Redis) -> None:
    job = Stone.add_job("a")
    look.lpop("jobs:queue:1:waiting")

    def claim_late(line: str) -> None:
        if line.startswith("waits"):
            request = transitions.ClaimRequest(["jobs:queue:1:waiting"], "t", 60, {job.get_model_repr(): Stone})
            told.append(transitions.claim(Queue, request, job.ident)[0])

    told: list[Any] = []
    assert check(repair=True, pause=0.01, progress=claim_late).findings == []
    assert told
    assert told[0].outcome == "claimed"
    assert look.lrange("jobs:queue:1:waiting", 0, -1) == []
