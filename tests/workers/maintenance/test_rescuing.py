"""What becomes of jobs whose worker died: their lease lapses, and any worker puts them back."""

from __future__ import annotations

import logging
import os
import signal
import time
import tracemalloc
from typing import Any

import pytest
import redis
from parts import parts_of, run_task
from running import work, worker_of
from servers import RedisServer, wait_until

from limpyd_jobs import STATUSES, Error, Job, Presence, Queue, Worker, transitions
from limpyd_jobs.exceptions import ClaimLost
from limpyd_jobs.models import job_classes
from limpyd_jobs.query import ended_workers
from limpyd_jobs.records import presences
from limpyd_jobs.redis.database import JobsDatabase
from limpyd_jobs.threads import Heartbeat
from limpyd_jobs.transitions import ClaimRequest, Delivery
from limpyd_jobs.transitions.recovering import RESCUE_LIMIT
from limpyd_jobs.workers.running.recorder import RedisRetry

pytestmark = pytest.mark.usefixtures("jobs_database")

QUEUE = "mails"
QUICK = {"max_loops": 1, "max_duration": 10, "timeout": 1, "terminate_gracefuly": False}


class Patient(Job):
    """Remembers its rescues."""

    namespace = "rescue"
    rescued: list[str] = []

    def on_rescued(self, queue: Queue) -> None:
        self.rescued.append(self.identifier.hget())

    def run(self, queue: Queue) -> str:
        return "done"


PATH = f"{__name__}.Patient"


def claim(lease: float = 60, token: str = "token of a dead worker") -> Delivery:
    """Claim the next job, as a worker that dies at once."""
    keys = Queue.get_waiting_keys(QUEUE)
    fetched, _ = transitions.claim(Queue, ClaimRequest(keys, token, lease, {PATH: Patient}))
    assert fetched is not None
    assert fetched.outcome == "claimed"
    return fetched


def lapse(queue: Queue) -> None:
    """Let all leases of a queue lapse."""
    queue.running.zadd(dict.fromkeys(queue.running.zmembers(), 1))


def worker(**parameters: Any) -> Worker:
    return Worker(QUEUE, **{**QUICK, **parameters})


def rescue(rescuer: Worker) -> None:
    rescuer.update_keys()
    run_task(rescuer, "rescuer")


def test_a_job_whose_lease_lapsed_waits_again_at_the_front_of_its_list() -> None:
    job = Patient.add_job("first", QUEUE)
    queue = Queue.get_queue(QUEUE)
    claim()
    Patient.add_job("second", QUEUE)
    lapse(queue)
    rescue(worker())
    assert job.hmget("status", "queued", "tries", "start", "_claim_token", "_rescues") == [
        "w",
        "1",
        "1",
        None,
        None,
        "1",
    ]
    assert queue.waiting.lmembers() == [f"{PATH}:1", f"{PATH}:2"]
    assert queue.running.zmembers() == []
    assert set(Patient.collection(status=STATUSES.WAITING)) == {"1", "2"}


def test_a_job_whose_lease_holds_is_left_alone() -> None:
    job = Patient.add_job("busy", QUEUE)
    claim()
    rescue(worker())
    assert job.status.hget() == STATUSES.RUNNING
    assert job.claim_token.hget() == "token of a dead worker"


@pytest.mark.parametrize(
    ("error", "rescued"),
    [(redis.ConnectionError("gone"), 0), (redis.TimeoutError("gone"), 0), (redis.ResponseError("no"), 1)],
)
def test_after_a_moment_without_redis_its_workers_may_renew_their_leases_before_any_is_taken_for_lapsed(
    error: redis.RedisError, rescued: int
) -> None:
    Patient.add_job("job:1", QUEUE)
    claim()
    lapse(Queue.get_queue(QUEUE))
    errors = [error]

    class Cut(Worker):
        def requeue_delayed_jobs(self) -> None:
            if errors:
                raise errors.pop()

        def wait_for_job(self) -> None:
            self.end_forced = True

    Cut(QUEUE, **QUICK).run()
    assert Queue.count_waiting_jobs(QUEUE) == rescued


def test_a_worker_that_could_not_renew_its_own_lease_takes_no_other_for_lapsed() -> None:
    Patient.add_job("job:1", QUEUE)
    ours, was_away = worker(), list[bool]()
    parts = parts_of(ours)
    retry = RedisRetry(ours, parts.context, lambda: was_away.append(True))
    parts.runs.offer(claim())
    parts.leases.log_not_renewed = retry.log_lease_not_renewed
    parts.leases.renew(redis.Redis(unix_socket_path="/nowhere"))
    assert was_away == [True]


def restart(server: RedisServer) -> None:
    """Begin in another second, of which Redis tells its age, than the one of what was done before.

    Not at its very beginning: the clock that Redis reads as it starts, `time(2)`, is some milliseconds late.
    """
    second = int(time.time())
    server.kill()
    wait_until(lambda: time.time() >= second + 1.2)
    server.start()


def test_after_an_outage_a_worker_that_just_began_spares_those_who_could_not_renew_their_leases(
    redis_binary: str, jobs_database: JobsDatabase
) -> None:
    """It has not seen that Redis was away. A job that was claimed since Redis is back was lost by its worker."""
    with RedisServer(redis_binary, "--appendonly", "yes", "--appendfsync", "always") as server:
        jobs_database.connect(unix_socket_path=server.socket)
        before, after = Patient.add_job("before", QUEUE), Patient.add_job("after", QUEUE)
        claim(token="of one that lives")
        restart(server)
        with server.client() as client:
            claim(token="of one that died")
            lapse(Queue.get_queue(QUEUE))
            rescue(worker())
            assert (before.status.hget(), after.status.hget()) == (STATUSES.RUNNING, STATUSES.WAITING)
            half_a_lease = Queue.get_queue(QUEUE).running.zscore(before.ident) - client.time()[0]
        assert 20 < half_a_lease < 31
        lapse(Queue.get_queue(QUEUE))
        ours = worker()
        rescue(ours)
        rescue(ours)
        assert before.status.hget() == STATUSES.RUNNING
        lapse(Queue.get_queue(QUEUE))
        rescue(ours)
        assert before.status.hget() == STATUSES.WAITING
        jobs_database.connection.close()


def test_it_spares_however_many(
    redis_binary: str, jobs_database: JobsDatabase, monkeypatch: pytest.MonkeyPatch
) -> None:
    with RedisServer(redis_binary, "--appendonly", "yes", "--appendfsync", "always") as server:
        jobs_database.connect(unix_socket_path=server.socket)
        number = 2 * RESCUE_LIMIT + 1
        Patient.add_jobs((f"{number}" for number in range(number)), queue_name=QUEUE)
        for token in range(number):
            claim(token=f"{token}")
        restart(server)
        lapse(Queue.get_queue(QUEUE))
        ours = worker()
        monkeypatch.setattr(job_classes, "_resolved", {"other.Job": Job})  # a worker that began knows none of theirs
        rescue(ours)
        rescue(ours)
        assert len(Patient.collection(status=STATUSES.RUNNING)) == number
        jobs_database.connection.close()


def test_a_rescued_job_is_run_and_its_method_and_the_log_tell_of_it(caplog: pytest.LogCaptureFixture) -> None:
    job = Patient.add_job("again", QUEUE)
    claim()
    lapse(Queue.get_queue(QUEUE))
    Patient.rescued.clear()
    with caplog.at_level(logging.INFO, "limpyd-jobs"):
        worker().run()
    assert Patient.rescued == ["again"]
    assert any(f"[{QUEUE}|1|again] rescued, because its worker died" in message for message in caplog.messages)
    assert job.hmget("status", "queued", "tries", "_rescues") == ["s", None, "2", None]


def test_a_worker_whose_job_was_rescued_can_report_nothing() -> None:
    job = Patient.add_job("late", QUEUE)
    queue = Queue.get_queue(QUEUE)
    fetched = claim()
    lapse(queue)
    rescue(worker())
    with pytest.raises(ClaimLost):
        transitions.succeed(job, queue, fetched.token)
    assert job.status.hget() == STATUSES.WAITING
    assert queue.success.lmembers() == []


def test_a_job_that_kills_its_workers_becomes_an_error(caplog: pytest.LogCaptureFixture) -> None:
    job = Patient.add_job("killer", QUEUE)
    queue = Queue.get_queue(QUEUE)
    for number in range(4):
        claim(token=f"worker {number}")
        lapse(queue)
        rescue(worker(max_rescues=3))
    assert job.hmget("status", "queued", "_claim_token", "_rescues") == ["e", None, None, None]
    assert queue.errors.lmembers() == [job.ident]
    assert [error.type.hget() for error in Error.collection_for_job(job).instances()] == ["WorkerLost"]
    assert queue.waiting.lmembers() == queue.running.zmembers() == []


def test_a_job_that_lost_too_many_workers_is_never_put_back_by_requeue_times() -> None:
    job = Patient.add_job("killer", QUEUE)
    claim()
    lapse(Queue.get_queue(QUEUE))
    rescue(worker(max_rescues=0, requeue_times=100))
    assert job.status.hget() == STATUSES.ERROR


@pytest.mark.parametrize(("status", "hooks"), [("c", []), ("d", ["on_delayed"])])
def test_a_job_that_was_canceled_or_delayed_before_its_worker_died_is_seen_to(
    status: str, hooks: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    told = []
    for hook in ("on_skipped", "on_delayed"):
        monkeypatch.setattr(Patient, hook, lambda self, queue, hook=hook: told.append(hook), raising=False)
    job = Patient.add_job("changed", QUEUE)
    claim()
    job.status.hset(status)
    lapse(Queue.get_queue(QUEUE))
    worker(burst=True).run()
    assert told == hooks
    assert job.hmget("status", "_claim_token") == [status, None]


def test_an_entry_of_a_job_that_is_not_claimed_is_dropped(redis_client: redis.Redis) -> None:
    queue = Queue.get_queue(QUEUE)
    job = Patient.add_job("waits", QUEUE)
    queue.running.zadd({job.ident: 1, f"{PATH}:99": 1, "garbage": 1})
    rescue(worker())
    assert queue.running.zmembers() == []
    assert queue.waiting.lmembers() == [job.ident]


def test_a_job_of_a_class_that_cannot_be_imported_is_left_to_others() -> None:
    queue = Queue.get_queue(QUEUE)
    queue.running.zadd({"no.such.module.Task:1": 1})
    rescue(worker())
    assert queue.running.zmembers() == ["no.such.module.Task:1"]


@pytest.mark.proof
def test_many_jobs_of_such_a_class_do_not_hide_others() -> None:
    queue = Queue.get_queue(QUEUE)
    others = [Patient.add_job(str(number), QUEUE) for number in range(3)]
    for number in range(3):
        claim(token=str(number))
    queue.running.zadd({f"no.such.module.Task:{number}": 1 for number in range(250)})
    queue.running.zadd({job.ident: 2 for job in others})
    rescuer = worker()
    for _ in range(8):  # three are enough, unless the process knows many other classes
        rescue(rescuer)
    assert sorted(queue.waiting.lmembers()) == [job.ident for job in others]
    assert queue.running.zcard() == 250


def test_a_job_that_runs_longer_than_the_lease_keeps_it() -> None:
    job = Patient.add_job("long", QUEUE)
    queue = Queue.get_queue(QUEUE)
    deadlines = set()

    def callback(job: Job, queue: Queue) -> None:
        wait_until(lambda: deadlines.add(queue.running.zscore(job.ident)) or len(deadlines) > 3)

    worker(callback=callback, lease=0.4).run()
    assert job.status.hget() == STATUSES.SUCCESS
    assert queue.running.zmembers() == []


def test_a_job_of_a_killed_worker_process_is_run_by_another() -> None:
    job = Patient.add_job("orphan", QUEUE)
    child = os.fork()
    if not child:
        worker(callback=lambda job, queue: os.kill(os.getpid(), signal.SIGKILL), lease=0.4).run()
        os._exit(1)
    assert os.WTERMSIG(os.waitpid(child, 0)[1]) == signal.SIGKILL
    assert job.status.hget() == STATUSES.RUNNING
    worker(lease=0.4).run()
    assert job.status.hget() == STATUSES.SUCCESS
    assert job.tries.hget() == "2"


def test_a_heartbeat_ends_with_its_context() -> None:
    beats: list[float] = []
    with Heartbeat(0.01, lambda: beats.append(time.monotonic())):
        wait_until(lambda: len(beats) > 2)


def test_a_heartbeat_that_does_not_go_on_takes_no_memory_however_often_it_is_set() -> None:
    stopped = Heartbeat(60, lambda: None)
    with stopped:
        pass
    tracemalloc.start()
    try:
        for heartbeat in (Heartbeat(60, lambda: None), stopped):
            for _ in range(10_000):
                heartbeat.begin_anew(60)
        assert tracemalloc.get_traced_memory()[0] < 100_000
    finally:
        tracemalloc.stop()


def test_a_lease_that_cannot_be_renewed_is_logged_and_the_job_goes_on(
    caplog: pytest.LogCaptureFixture, redis_client: redis.Redis
) -> None:
    job = Patient.add_job("stolen", QUEUE)

    def callback(job: Job, queue: Queue) -> None:
        job.claim_token.hset("somebody else")
        wait_until(lambda: "lost its claim" in caplog.text)

    with caplog.at_level(logging.INFO, "limpyd-jobs"):
        worker(callback=callback, lease=0.2).run()
    assert job.status.hget() == STATUSES.RUNNING
    assert any("[stolen] The claim on" in message for message in caplog.messages)


def test_what_is_left_of_who_died_goes_though_no_process_looks(redis_client: redis.Redis) -> None:
    presences.keep(Presence, "", {"name": "dead", "kind": "importer"}, 60)
    redis_client.zadd("jobs:presence:leases", {"1": 1})
    worker = worker_of()
    run_task(worker, "rescuer")
    assert redis_client.exists("jobs:presence:1:hash")  # a worker that begins has jobs to run first
    run_task(worker, "rescuer")
    assert redis_client.keys("jobs:presence:*") == ["jobs:presence:max_pk"]


def test_a_job_is_put_back_when_its_lease_ends_not_at_the_next_look() -> None:
    job = Job.add_job("a", QUEUE)
    job.claim("dead", lease=0.5)
    work(QUEUE, lease=60, max_duration=10)  # it looks every 15 seconds
    assert job.status.hget() == STATUSES.SUCCESS


def test_a_worker_that_died_in_its_first_second_is_among_those_that_ended() -> None:
    for number in range(3):
        Patient.add_job(f"{number}", queue_name=QUEUE)
    owner = "web1:7:0123456789ab"
    for token in (f"1@{owner}", f"2@{owner}", transitions.claim_token("an application")):
        claim(token=token)
    lapse(Queue.get_queue(QUEUE))
    work(QUEUE, **{**QUICK, "max_loops": 3})
    lost = [worker for worker in ended_workers() if worker.how == "silent"]
    assert [(worker.name, worker.queues, worker.running) for worker in lost] == [(owner, [QUEUE], 2)]
