"""What needs attention: each incident with its cause, since when, and what helps; the worst first."""

from __future__ import annotations

import json
from collections.abc import Mapping
from datetime import timedelta
from math import inf
from typing import Any

import pytest
import redis
from limpyd import fields
from servers import wait_until

from limpyd_jobs import Error, Job, Limit, Queue, Worker, WorkerPresence
from limpyd_jobs.dates import utcnow
from limpyd_jobs.query import (
    ErrorFilter,
    Incident,
    JobFilter,
    attention,
    ended_workers,
    glance,
    pause_queue,
    rest_limit,
    set_limit,
    verdict,
)
from limpyd_jobs.records import presences
from limpyd_jobs.records.app_versions import VERSIONS
from limpyd_jobs.records.metrics import KEY, LEVELS, Metrics
from limpyd_jobs.views import queue_rows

pytestmark = pytest.mark.usefixtures("redis_client")


class Payout(Job):
    namespace = "incidents"
    queue_name = "payouts"


PATH = Payout.get_model_repr()


def note(client: redis.Redis, ago: int, tries: Mapping[str, tuple[int, int]]) -> None:
    """Write how many tries of some queues succeeded, and how many failed, some minutes ago."""
    start = (int(client.time()[0]) // 60 - ago) * 60
    for queue, (succeeded, failed) in tries.items():
        each = Metrics()
        for ended in (True,) * succeeded + (False,) * failed:
            each.observe_start(1.0)
            each.observe_end(1.0, is_success=ended)
        client.hset(f"{KEY}minute:{start}", f"{queue}\n{PATH}", " ".join(map(str, each.numbers)))


def fail(identifier: str, queue: str = "payouts", message: str = "no such account", ago: int = 0) -> Job:
    """Add a job that failed some minutes ago, and is in error."""
    job = Payout.add_job(identifier, queue)
    Queue.get_queue(queue).waiting.lrem(0, job.ident)
    job.status.hset("e")
    job.queued.delete()
    Error.add_error(queue, job, ValueError(message), when=utcnow() - timedelta(minutes=ago))
    return job


def serve(client: redis.Redis, *queues: str) -> None:
    details = {"queues": queues, "queue_model": "jobs:queue", "lease": 60, "status": "idle"}
    fields = {"kind": "worker", "name": "web1:1:a", "host": "h", "pid": "1", "details": json.dumps(details)}
    presences.keep(WorkerPresence, "worker-a", fields, 60, client, takes_orders="1")


def see_version(client: redis.Redis, version: str, ago: float) -> None:
    client.zadd(VERSIONS, {version: client.time()[0] - ago * 60})


def found() -> list[Incident]:
    return attention(glance())


def the_only_one() -> Incident:
    (incident,) = found()
    return incident


def test_a_queue_that_fails_is_named_however_many_others_are_busier(redis_client: redis.Redis) -> None:
    note(redis_client, 1, {f"busy{number}": (50, 0) for number in range(20)} | {"payouts": (0, 30)})
    incident = the_only_one()
    assert (incident.code, incident.queue, incident.gravity) == ("failures", "payouts", "error")
    assert incident.text.startswith("30 of 30 tries of payouts failed in the last ")


def test_what_fails_is_to_be_paused_and_says_its_cause_and_the_version_that_began_it(
    redis_client: redis.Redis,
) -> None:
    serve(redis_client, "payouts")
    note(redis_client, 30, {"payouts": (40, 0)})
    for ago in (20, 12, 1):
        note(redis_client, ago, {"payouts": (0, 5)})
    for number in range(4):
        fail(f"{number}", ago=number)
    fail("other", message="of long ago", ago=50)
    see_version(redis_client, "1.0", 3000)
    see_version(redis_client, "1.1", 23)
    incident = the_only_one()
    assert incident.title == "4 jobs of payouts failed, and none succeeded"
    assert (incident.is_failing, incident.job_class, incident.app_version) == (True, PATH, "1.1")
    assert (incident.type, incident.message, incident.causes) == ("ValueError", "no such account", 1)
    assert incident.since is not None
    assert timedelta(minutes=19) < utcnow() - incident.since < timedelta(minutes=22)
    assert incident.remedy is not None
    assert incident.remedy.command == "limpyd-jobs queues pause payouts"
    assert (incident.remedy.verb, incident.remedy.label) == ("pause", "Pause payouts")
    assert incident.remedy.queues == [("jobs:queue", "payouts")]
    assert ("Tries", "all 15 failed") in incident.facts


def test_no_more_jobs_failed_than_tries(redis_client: redis.Redis) -> None:
    note(redis_client, 0, {"payouts": (0, 3)})  # workers write the rest some seconds later
    for number in range(5):
        fail(f"{number}")
    incident = the_only_one()
    assert incident.title == "5 jobs of payouts failed, and none succeeded"
    assert incident.text.startswith("5 of 5 tries of payouts failed in the last ")


def test_failures_that_have_stopped_are_to_be_requeued_as_long_as_jobs_are_in_error(redis_client: redis.Redis) -> None:
    note(redis_client, 20, {"payouts": (5, 5)})
    job = fail("a", ago=20)
    note(redis_client, 3, {"payouts": (5, 0)})
    incident = the_only_one()  # five of five succeed in one of 32 cases if each second one fails
    assert (incident.gravity, incident.is_failing, incident.remedy) == ("warning", False, None)
    note(redis_client, 2, {"payouts": (2, 0)})
    see_version(redis_client, "1.2", 15)
    incident = the_only_one()
    assert (incident.gravity, incident.title, incident.ended_by) == (
        "over",
        "1 job of payouts failed; that is over",
        "1.2",
    )
    assert incident.remedy is not None
    assert (incident.remedy.label, incident.remedy.note) == ("Requeue 1 at 50/s", "none of the last 7 failed")
    assert incident.remedy.command == f"limpyd-jobs errors requeue {incident.fingerprint} queue=payouts --rate=50/s"
    assert verdict(glance(), [incident]).title == "All well"
    job.requeue()
    serve(redis_client, "payouts")
    assert found() == []


def test_a_cause_that_has_stopped_is_apart_from_one_that_goes_on(redis_client: redis.Redis) -> None:
    serve(redis_client, "payouts")
    note(redis_client, 40, {"payouts": (0, 6)})
    note(redis_client, 30, {"payouts": (9, 0)})
    note(redis_client, 2, {"payouts": (4, 4)})
    for number in range(10):
        fail(f"{number}", message="no such file" if number < 6 else "timed out", ago=40 if number < 6 else 2)
    goes_on, over = found()
    assert (goes_on.gravity, goes_on.message, goes_on.numbers["failed"], goes_on.causes) == ("error", "timed out", 4, 1)
    assert goes_on.remedy is not None
    assert goes_on.remedy.verb == "pause"
    assert (over.title, over.message) == ("6 jobs of payouts failed; that is over", "no such file")
    assert over.remedy is not None
    assert (over.remedy.fingerprint, over.remedy.number) == (over.fingerprint, 6)
    assert goes_on.fingerprint != over.fingerprint


def test_two_causes_that_have_stopped_are_to_be_requeued_each(redis_client: redis.Redis) -> None:
    serve(redis_client, "payouts")
    note(redis_client, 20, {"payouts": (1, 8)})
    note(redis_client, 2, {"payouts": (9, 0)})
    for number in range(8):
        fail(f"{number}", message="no such file" if number < 5 else "timed out", ago=20)
    assert [(each.message, each.remedy and each.remedy.number) for each in found()] == [
        ("no such file", 5),
        ("timed out", 3),
    ]
    assert verdict(glance(), found()).title == "All well"


def test_all_is_not_well_as_long_as_a_cause_goes_on_to_fail_a_few_tries(redis_client: redis.Redis) -> None:
    serve(redis_client, "payouts")
    for ago in range(1, 5):
        note(redis_client, ago, {"payouts": (99, 1)})
    jobs = [fail(f"{ago}", ago=ago) for ago in range(1, 5)]
    incident = the_only_one()
    assert (incident.title, incident.gravity) == ("Some tries of payouts still fail, 4 jobs are in error", "warning")
    assert incident.text.startswith("4 of 400 tries of payouts failed in the last ")
    assert (incident.is_failing, incident.remedy, incident.message) == (True, None, "no such account")
    assert verdict(glance(), [incident]).title == "1 problem"
    for job in jobs:  # a retry helps
        job.status.hset("s")
    assert found() == []
    said = verdict(glance(), [])
    assert (said.title, said.gravity, said.problems) == ("Some tries fail", "warning", 0)
    assert said.text == "Tries still fail by 1 cause, but no job is in error by it."
    assert said.since is not None
    assert utcnow() - said.since < timedelta(minutes=1)
    note(redis_client, 0, {"payouts": (400, 0)})
    assert verdict(glance(), []).title == "All well"


def test_failures_are_not_over_while_their_cause_goes_on_at_a_lower_rate(redis_client: redis.Redis) -> None:
    serve(redis_client, "payouts")
    note(redis_client, 30, {"payouts": (0, 20)})
    for ago in range(1, 5):
        note(redis_client, ago, {"payouts": (99, 1)})
    for number in range(24):
        fail(f"{number}", ago=number + 1 if number < 4 else 30)
    incident = the_only_one()
    assert (incident.gravity, incident.remedy) == ("warning", None)
    assert incident.title == "Some tries of payouts still fail, 24 jobs are in error"


def test_what_no_worker_counts_fails_as_well(redis_client: redis.Redis) -> None:
    note(redis_client, 1, {"mails": (5, 0)})
    for number in range(3):
        fail(f"{number}")
    assert the_only_one().title == "3 jobs of payouts failed, and none succeeded"


def test_a_requeue_is_of_the_queues_in_which_failures_have_stopped_alone(redis_client: redis.Redis) -> None:
    note(redis_client, 20, {"one": (0, 4), "two": (0, 4)})
    note(redis_client, 2, {"one": (9, 0), "two": (9, 0), "three": (0, 4)})
    for queue, ago in (("one", 20), ("two", 20), ("three", 2)):
        for number in range(4):
            fail(f"{queue} {number}", queue, ago=ago)
    fails, over = found()
    assert (fails.queues, sorted(over.queues)) == (["three"], ["one", "two"])
    assert over.fingerprint == fails.fingerprint
    assert over.remedy is not None
    assert over.remedy.label == "Requeue 8 of 2 queues at 50/s"
    words = over.remedy.command.split()
    assert words[:4] == ["limpyd-jobs", "errors", "requeue", over.fingerprint]
    assert JobFilter("status=error", words[4]).count().number == 8
    assert ErrorFilter(words[4]).count().number == 8


def test_a_queue_that_fails_and_is_paused_is_one_incident(redis_client: redis.Redis) -> None:
    serve(redis_client, "payouts")
    Payout.add_job("next")
    note(redis_client, 2, {"payouts": (0, 5)})
    pause_queue("jobs:queue", "payouts")
    incident = the_only_one()
    assert incident.code == "failures"
    assert incident.remedy is not None
    assert (incident.remedy.label, incident.remedy.note) == ("Unpause payouts", "once it is repaired")


def test_a_paused_queue_says_since_when_and_who_paused_it(redis_client: redis.Redis) -> None:
    Payout.add_job("next")
    pause_queue("jobs:queue", "payouts")
    incident = the_only_one()
    assert (incident.title, incident.gravity) == ("payouts is paused, 1 job waits", "warning")
    assert incident.since is not None
    assert abs(incident.since - utcnow()) < timedelta(minutes=1)
    assert [fact.name for fact in incident.facts] == ["Waiting", "Oldest", "Paused by"]
    assert incident.remedy is not None
    assert incident.remedy.command == "limpyd-jobs queues resume payouts"


def test_many_of_a_kind_are_one(redis_client: redis.Redis) -> None:
    for number in range(4):
        Payout.add_job(f"{number}", f"queue {number}")
    incident = the_only_one()
    assert incident.title == "No worker is running: 4 jobs wait"
    assert incident.text == "No worker is running: 4 jobs wait in queue 0, queue 1, queue 2 and 1 other."
    assert incident.remedy is not None
    assert incident.remedy.command == "limpyd-jobs-worker --queues='queue 0,queue 1,queue 2,queue 3'"
    serve(redis_client, "queue 0")
    assert the_only_one().title == "No worker serves 3 queues, 3 jobs wait"
    for name in ("queue 1", "queue 2"):
        pause_queue("jobs:queue", name)
    assert [each.code for each in found()] == ["unserved", "paused", "paused"]


def test_queues_that_fail_by_one_cause_are_one(redis_client: redis.Redis) -> None:
    note(redis_client, 1, {"one": (0, 5), "two": (1, 5), "three": (0, 3)})
    for name in ("one", "two"):
        fail(name, name)
    fail("three", "three", "another cause")
    both, other = found()
    assert (both.title, sorted(both.queues)) == ("2 jobs of 2 queues failed", ["one", "two"])
    assert both.remedy is not None
    assert (both.remedy.label, len(both.remedy.queues)) == ("Pause 2 queues", 2)
    assert other.queue == "three"


def test_the_worst_is_first_and_the_verdict_counts_what_is_not_over(redis_client: redis.Redis) -> None:
    assert verdict(glance(), found())[:4] == ("All well", "0 queues and 0 workers are well.", "over", 0)
    serve(redis_client, "payouts", "mails")
    Payout.add_job("a", "mails")
    pause_queue("jobs:queue", "mails")
    Payout.add_job("b", "nobody's")
    note(redis_client, 1, {"payouts": (0, 5)})
    fail("c")
    seen = glance()
    incidents = attention(seen)
    assert [each.code for each in incidents] == ["failures", "unserved", "paused"]
    said = verdict(seen, incidents)
    assert (said.title, said.gravity, said.since) == ("3 problems", "error", incidents[0].since)
    assert said.text == "0 of 3 queues and 1 worker are well."


def test_a_deferred_job_is_told_once(redis_client: redis.Redis) -> None:
    Queue.get_queue("payouts")
    redis_client.zadd("jobs:queue:1:delayed", {"gone.jobs.Payout:1": 5})
    redis_client.hset("jobs:queue:1:_deferrals", "gone.jobs.Payout:1", 1)
    incident = the_only_one()
    assert (incident.code, incident.job_class) == ("deferred", "gone.jobs.Payout")
    assert "Not known here: gone.jobs.Payout." in incident.text


def test_a_glance_costs_the_same_however_many_errors_there_are(redis_client: redis.Redis) -> None:
    note(redis_client, 1, {"payouts": (0, 5)})
    job = fail("a")

    def commands() -> int:
        before = redis_client.info("stats")["total_commands_processed"]
        glance()
        return int(redis_client.info("stats")["total_commands_processed"]) - before

    def fail_again(first: int, last: int) -> None:
        fields: dict[str, Any] = {"job_model_repr": PATH, "job_pk": job.pk.get(), "queue_name": "payouts", "type": "E"}
        pipeline = redis_client.pipeline(transaction=False)
        for pk in range(first, last + 1):
            pipeline.hset(f"jobs:error:{pk}:hash", mapping={**fields, "date_time": f"{utcnow()}"})
            pipeline.sadd("jobs:error:collection", pk)
        pipeline.set("jobs:error:max_pk", last)
        pipeline.execute()

    fail_again(2, 600)
    glance()
    assert commands() <= 1_500  # 500 errors are read, in more steps where a machine is busy
    fail_again(601, 3000)
    assert commands() <= 1_500
    assert glance().recent.is_exact is False
    said = "500 of 500 tries of payouts failed"
    wait_until(lambda: the_only_one().title == said)  # which does not jump as other queues fail


def test_queues_are_rows_the_worst_first_with_what_is_wrong_and_their_rates(redis_client: redis.Redis) -> None:
    serve(redis_client, "payouts", "mails", "quiet")
    for name, queue in zip("wxyz", ("payouts", "mails", "mails", "quiet"), strict=True):
        Payout.add_job(name, queue)
    Payout.add_job("high", "mails", priority=5)
    note(redis_client, 1, {"payouts": (0, 10), "mails": (15, 0)})
    fail("c")
    seen = glance()
    payouts, mails, quiet = queue_rows(seen, attention(seen))
    assert (payouts.name, payouts.state, payouts.why) == ("payouts", "failures", "all 10 tries failed")
    assert (2.0 <= payouts.ended <= 2.5, payouts.failed, payouts.empty_in) == (True, 1.0, inf)
    assert (mails.name, mails.state, mails.waiting, len(mails.priorities)) == ("mails", "well", 3, 2)
    assert (mails.empty_in is not None and 45 < mails.empty_in <= 60, mails.slots) == (True, 1)
    assert (quiet.ended, quiet.failed) == (0.0, None)


@pytest.mark.parametrize(("before", "state", "why"), [(0, "grows", "grows by 1"), (300, "well", "")])
def test_a_queue_in_which_always_more_jobs_wait_is_never_empty(
    redis_client: redis.Redis, before: int, state: str, why: str
) -> None:
    serve(redis_client, "mails")
    Payout.add_jobs([f"{number}" for number in range(50)], "mails")
    minute = redis_client.time()[0] // 60 * 60
    note(redis_client, 1, {"mails": (15, 0)})
    redis_client.hset(f"{LEVELS}{minute - 240}", mapping={"mails": f"{before} 1", "others": "1 1"})
    seen = glance()
    [row] = [row for row in queue_rows(seen, attention(seen)) if row.name == "mails"]
    assert (row.state, row.why[: len(why)]) == (state, why)
    assert (row.empty_in == inf) == (state == "grows")
    assert row.empty_in == inf or (row.empty_in is not None and 45 < row.empty_in <= 65)


def test_a_queue_whose_only_worker_is_busy_with_other_queues_says_so(redis_client: redis.Redis) -> None:
    serve(redis_client, "mails", "payouts")
    key = "jobs:workerpresence:worker-a:hash"
    details = json.loads(redis_client.hget(key, "details"))
    ran = [[f"{PATH}:7", "7", f"{utcnow()}"]]
    redis_client.hset(key, "details", json.dumps({**details, "running": ran, "status": "busy"}))
    job = Payout.add_job("a", "mails")
    job.added.hset(f"{utcnow() - timedelta(hours=1)}")
    incident = the_only_one()
    assert (incident.code, incident.beyond) == ("waiting", "Its worker has no slot left.")
    assert incident.remedy is not None
    assert incident.remedy.label == "Start another worker"


def test_where_no_worker_runs_the_jobs_of_failing_queues_wait_as_well(redis_client: redis.Redis) -> None:
    for queue in ("payouts", "mails"):
        Payout.add_job(queue, queue)
    note(redis_client, 1, {"payouts": (0, 10)})
    fail("c")
    found_now = {each.code: each for each in found()}
    assert found_now["unserved"].title == "No worker is running: 2 jobs wait"
    assert found_now["failures"].queues == ["payouts"]


@pytest.mark.parametrize("is_noted", [False, True])
def test_a_worker_that_died_is_named_if_it_was_the_only_one_of_its_queue(
    redis_client: redis.Redis, is_noted: bool
) -> None:
    Queue.get_queue("payouts")
    serve(redis_client, "payouts")
    assert found() == []
    [leases] = redis_client.keys("jobs:workerpresence:*leases*")
    redis_client.zadd(leases, {"worker-a": redis_client.time()[0] - 5})
    if is_noted:  # as a worker of other queues does
        presences.sweep(WorkerPresence)
    incident = the_only_one()
    assert (incident.code, incident.gravity, incident.queues) == ("worker_lost", "warning", ["payouts"])
    assert incident.text == "No worker serves payouts, the last one died: web1:1:a."
    assert incident.remedy is not None
    assert incident.remedy.command == "limpyd-jobs-worker --queues=payouts"
    assert [each.name for each in ended_workers()] == ["web1:1:a"]
    Payout.add_job("next")
    incident = the_only_one()
    assert incident.code == "unserved"
    assert "web1:1:a died" in incident.text
    serve(redis_client, "payouts")
    assert found() == []


def test_a_worker_that_died_is_one_incident_however_many_queues_it_served(redis_client: redis.Redis) -> None:
    for name in ("mails", "payouts"):
        Queue.get_queue(name)
    serve(redis_client, "mails", "payouts")
    [leases] = redis_client.keys("jobs:workerpresence:*leases*")
    redis_client.zadd(leases, {"worker-a": redis_client.time()[0] - 5})
    incident = the_only_one()
    assert incident.text == "No worker serves 2 queues, whose last one died: mails and payouts."
    assert incident.remedy is not None
    assert incident.remedy.command == "limpyd-jobs-worker --queues=mails,payouts"


def test_a_worker_that_ended_in_order_is_not_missed(redis_client: redis.Redis) -> None:
    Queue.get_queue("payouts")
    serve(redis_client, "payouts")
    presences.leave(redis_client, WorkerPresence, "worker-a")
    assert found() == []


class Errand(Job):
    namespace = "incidents"
    queue_name = "errands"
    customer = fields.InstanceHashField()
    limits = [Limit("customer", concurrency=1)]


def park(client: redis.Redis, *customers: str) -> None:
    """Add two jobs for each customer, of which one is parked, and has waited for two minutes."""
    jobs = [Errand.add_job(customer=customer) for customer in (*customers, *customers)]
    old = (utcnow() - timedelta(minutes=2)).isoformat(" ")
    for job in jobs:
        job.added.hset(old)
    for job in jobs[: len(customers)]:
        job.claim(lease=1000)
    while client.zcard(f"jobs:queue:{Queue.get_queue('errands').pk.get()}:_parked") < len(customers):
        Worker("errands", max_loops=1, timeout=0.1, max_duration=0.3, logger_level=60).run()
    serve(client, "errands")


def limits_of_incidents() -> list[tuple[str, str, str]]:
    return [(each.code, each.title, each.text) for each in attention(glance())]


def test_the_key_whose_jobs_have_waited_longest_for_a_limit_is_named_and_not_the_queue(
    redis_client: redis.Redis,
) -> None:
    park(redis_client, "acme")
    ((code, title, text),) = limits_of_incidents()
    assert (code, title) == ("limit_waits", "A limit keeps jobs of customer=acme waiting for long")
    assert text.startswith(f"{title}: 1 job waiting, the first for 2 min")
    assert [row.why for row in queue_rows(glance(), ()) if row.name == "errands"] == ["1 kept back by limits"]


def test_limits_that_let_no_job_begin_are_named(redis_client: redis.Redis) -> None:
    park(redis_client, "acme", "other", "third")
    rest_limit(Errand, "customer", "acme")
    ((stuck, title, _), (slow, _, text)) = limits_of_incidents()
    assert (stuck, title) == ("limit_stuck", "customer=acme is paused")
    assert slow == "limit_waits"
    assert text.startswith(
        "2 limits keep jobs waiting for long, those of customer=other, customer=third for longest: 2 j"
    )
    set_limit(Errand, "customer", "other", concurrency=0)
    (_, title, text), _ = limits_of_incidents()
    assert title == "2 limits let no job begin"
    assert text.startswith(
        f"{title}: customer=acme is paused, customer=other is 0: 2 jobs waiting, the first for 2 min"
    )


def test_values_of_limits_are_masked_if_asked_for(redis_client: redis.Redis) -> None:
    park(redis_client, "acme")
    seen = glance(mask_value=lambda field, value: f"the {field}")
    assert [each.title for each in attention(seen)] == ["A limit keeps jobs of customer=the customer waiting for long"]
