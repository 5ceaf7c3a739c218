"""What is done to jobs, each way of it a `Path`: what is there before, and what the process does that is killed.

Both run against `limpyd_jobs` as an application does; the process that is killed is one of `victims`.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from datetime import datetime, timedelta, timezone
from itertools import count
from typing import Any

from limpyd import fields
from victims import uncounted

from limpyd_jobs import STATUSES, Cancel, Claim, Error, Job, Queue, Requeue, Retry, Schedule, Worker, transitions
from limpyd_jobs.records import records
from limpyd_jobs.transitions import ClaimRequest, claiming
from limpyd_jobs.workers.maintenance.scheduler import Scheduler

QUEUE = "proofs"
ITEMS = 5  # of a long job
LEASE = 60  # seconds, so no heartbeat comes in between; leases are made to lapse


class Task(Job):
    """A job that does what its identifier says."""

    namespace = "proofs"
    queue_name = QUEUE

    def run(self, queue: Queue) -> str:
        identifier = self.identifier.hget()
        if identifier.startswith("fails"):
            raise ValueError("it fails")
        if identifier.startswith("asks to be put back") and self.tries.hget() == "1":
            raise Requeue
        if identifier.startswith("takes a while"):
            threading.Event().wait(0.45)
        if identifier.startswith("goes on"):
            self.go_on()
        if identifier.startswith("gives itself up"):
            raise Cancel
        with uncounted():  # a process that dies within a write of its own by limpyd is beyond our reach
            if identifier.startswith("cancels itself"):
                self.status.hset(STATUSES.CANCELED)
            if identifier.startswith("delays itself") and self.tries.hget() == "1":
                self.status.hset(STATUSES.DELAYED)
                self.delayed_until.hset("2001-01-01 00:00:00")
        return "done"

    def go_on(self) -> None:
        """Do some items, with a renewal at every second one, and a step; note what is done."""
        for number in self.iterate(range(ITEMS)):
            self.note(number)
            if number % 2:
                vars(self)["_run_in_worker"].renew(records.redis_of(self), LEASE)
        with self.step("last") as step:
            if step.is_new:
                self.note("last")

    def note(self, what: int | str) -> None:
        with uncounted():
            self.get_connection().rpush("did", what)


class Told(Task):
    """A job with methods for its events, so that a failure is recorded step by step."""

    namespace = "proofs-told"

    def on_success(self, queue: Queue, result: Any) -> None:
        self.hmget("status")

    def on_error(self, queue: Queue, exception: Exception, trace: str | None) -> None:
        self.hmget("status")


class Waiting(Task):
    """A coroutine, of which a worker may run many at once."""

    namespace = "proofs-waiting"

    async def run(self, queue: Queue) -> str:  # type: ignore[override]
        identifier, tries = await self.aget("identifier"), await self.aget("tries")
        await asyncio.sleep(0.001)
        if identifier.startswith("fails"):
            raise ValueError("it fails")
        if identifier.startswith("asks to be put back") and tries == "1":
            raise Requeue
        if identifier.startswith("gives itself up"):
            raise Cancel
        return "done"


class Detailed(Task):
    """A job with a field that no hash has, which is written before the job is made."""

    namespace = "proofs-detailed"
    detail = fields.StringField()


JOBS = (Task, Told, Waiting, Detailed)
MODELS = (*JOBS, Queue, Error, Schedule)

# What may be left, as limpyd alone can write it, outside of the scripts: an error that is not found by its date, and a
# field of a job that was not made. No job is the worse for it.
LEFTOVERS = ("I2 jobs:error:date_time:", "I10 proofs-detailed:detailed:")

KNOWN = {job_class.get_model_repr(): job_class for job_class in JOBS}


@dataclass(frozen=True)
class Path:
    """What a process does, what is there before, and whether it deletes jobs, so that somebody else has to go on."""

    act: Callable[[], Any]
    prepare: Callable[[], Any] = lambda: None
    deletes: bool = False


def worker(**parameters: Any) -> Worker:
    """A worker of one job, by default."""
    quick = {"max_loops": 1, "timeout": 0.05, "max_duration": 20, "terminate_gracefuly": False, "lease": LEASE}
    return Worker(QUEUE, **{**quick, "requeue_delay_delta": 0, **parameters})


def run(**parameters: Any) -> Callable[[], Any]:
    return lambda: worker(**parameters).run()


def add(identifier: str = "a", job_class: type[Job] = Task, **options: Any) -> Callable[[], Any]:
    return lambda: job_class.add_job(identifier, **options)


def all_of(*acts: Callable[[], Any]) -> Callable[[], Any]:
    return lambda: [act() for act in acts]


_tokens = count()


def claim(job_class: type[Job] = Task) -> Any:
    """Claim the next job, in the name of a worker that does nothing more."""
    request = ClaimRequest(Queue.get_waiting_keys(QUEUE), f"dead worker {next(_tokens)}", LEASE, KNOWN)
    fetched, _ = transitions.claim(Queue, request)
    assert fetched is not None
    return fetched


def lapse() -> None:
    """Let all leases lapse."""
    connection = Queue.get_connection()
    for pk in connection.smembers(f"{Queue._name}:collection"):
        key = f"{Queue._name}:{pk}:_running"
        for member in connection.zrange(key, 0, -1):
            connection.zadd(key, {member: 1})


def make_due() -> None:
    """Let the date of all delayed jobs come."""
    connection = Queue.get_connection()
    for pk in connection.smembers(f"{Queue._name}:collection"):
        key = f"{Queue._name}:{pk}:delayed"
        for ident in connection.zrange(key, 0, -1):
            path, _, job_pk = ident.rpartition(":")
            KNOWN[path].get(job_pk).delayed_until.hset("1970-01-01 00:00:01")
            connection.zadd(key, {ident: 1})


def lose_worker() -> None:
    claim()
    lapse()


def only_job(job_class: type[Job] = Task) -> Job:
    return job_class.get("1")


def wait_and_be_handed(identifier: str) -> Callable[[], None]:
    """Run a worker who finds nothing, so waits; the job is added once it does."""

    def act() -> None:
        wait = claiming.send_after

        def hear_of_what_was_just_added(*args: Any) -> Any:
            claiming.send_after = wait
            with uncounted():
                Task.add_job(identifier)
            return wait(*args)

        claiming.send_after = hear_of_what_was_just_added  # type: ignore[assignment]
        worker().run()

    return act


def release() -> None:
    fetched = claim()
    transitions.release(Task, fetched.ident, fetched.token, fetched.queue_key)


def hold(end: Callable[[Claim[Any]], Any]) -> Callable[[], None]:
    """Claim the only job as an application does, not a worker, and end the claim."""
    return lambda: end(only_job().claim(lease=LEASE))


def fail_inside(claim: Claim[Any]) -> None:
    with suppress(ValueError), claim:
        raise ValueError("it fails")


def end_with_a_job_in_hand(**parameters: Any) -> None:
    """A worker that is asked to end while it records a success, when the next job is claimed already."""

    class Ending(Worker):
        def job_success_message(self, *args: Any) -> str:
            self.end_forced = True
            return super().job_success_message(*args)

    quick = {"timeout": 0.05, "max_duration": 20, "terminate_gracefuly": False, "lease": LEASE}
    Ending(QUEUE, **quick, **parameters).run()


def prune() -> None:
    for queue in Queue.get_all(QUEUE):
        queue.prune(keep_success=0, keep_errors=0)


LATER = {"delayed_for": 3600}


def schedule(job_class: type[Job] = Task, **options: Any) -> Callable[[], Any]:
    """Make a schedule that has been due three times since it was made, if time were counted by hours."""

    def make() -> None:
        Schedule.add("hourly", job_class, cron="@hourly", **options)
        due = datetime.now(timezone.utc).replace(minute=0, second=0, microsecond=0) - timedelta(hours=2)
        score = str(due.timestamp())
        records.set_schedule(Schedule, "1", score, {"next_run": str(due.replace(tzinfo=None))})

    return make


def enqueue_due_schedules() -> None:
    list(Scheduler(Queue, 1, print, print).enqueue_due())


def edit_schedule() -> None:
    Schedule.get_by_name("hourly").edit(cron="@daily", priority=5)


def add_many_kinds() -> None:
    Task.add_job("a")
    Waiting.add_jobs(["a", "fails", "asks to be put back", "gives itself up"])


PATHS = {
    "add, new": Path(add()),
    "add, new, to an existing queue": Path(add("b"), add("a")),
    "add, new, delayed": Path(add(**LATER)),
    "add, new, to a server that knows no script": Path(add(), lambda: Queue.get_connection().script_flush()),
    "add, new, with a field outside of the hash": Path(add(job_class=Detailed, detail="much")),
    "add, existing": Path(add(), add()),
    "add, running": Path(add(priority=5), all_of(add(), claim)),
    "add, after an end": Path(add(), all_of(add(), run())),
    "raise the priority": Path(add(priority=5), add()),
    "raise the priority of a delayed job": Path(add(priority=5), add(**LATER)),
    "prepend": Path(add(prepend=True), all_of(add(), add("b"))),
    "move": Path(lambda: only_job().enqueue_or_delay(priority=3), add()),
    "delay a waiting job": Path(lambda: only_job().enqueue_or_delay(delayed_until="2099-01-01 00:00:00"), add()),
    "claim, succeed": Path(run(), add()),
    "succeed, claim the next": Path(run(max_loops=3), all_of(add("a"), add("b"), add("c"))),
    "succeed many, claim the next": Path(run(max_loops=6, prefetch=2), all_of(*map(add, "abcdef"))),
    "succeed many, fail in their midst": Path(
        run(max_loops=5, prefetch=5), all_of(add("a"), add("b"), add("fails"), add("cancels itself"), add("c"))
    ),
    "succeed many, end with jobs in hand": Path(run(max_loops=3, prefetch=5), all_of(*map(add, "abcdef"))),
    "end with many jobs in hand": Path(lambda: end_with_a_job_in_hand(prefetch=5), all_of(*map(add, "abcdef"))),
    "find the size of batches": Path(
        run(max_loops=8, prefetch="auto", prefetch_time=3600), all_of(*map(add, "abcdefgh"))
    ),
    "give back what waits for too long": Path(
        run(max_loops=7, prefetch="auto", prefetch_time=0.2), all_of(*map(add, [*"abc", "takes a while", *"def"]))
    ),
    "run 10 at once": Path(run(max_loops=6, concurrency=10), add_many_kinds),
    "run 100 at once": Path(run(max_loops=40, concurrency=100), lambda: Waiting.add_jobs(map(str, range(40)))),
    "go on, item by item": Path(run(), add("goes on")),
    "succeed, with methods for the events": Path(run(), add(job_class=Told)),
    "wait, be handed a job, succeed": Path(wait_and_be_handed("a"), lambda: Queue.get_queue(QUEUE)),
    "fail": Path(run(), add("fails")),
    "fail, with methods for the events": Path(run(), add("fails", Told)),
    "fail, requeue": Path(run(requeue_times=1), add("fails")),
    "fail, requeue, fail": Path(run(requeue_times=1, requeue_priority_delta=0, max_loops=2), add("fails")),
    "fail, requeue, with methods for the events": Path(run(requeue_times=1), add("fails", Told)),
    "fail, requeue later": Path(run(requeue_times=1, requeue_delay_delta=3600), add("fails")),
    "fail, requeue by a policy, fail": Path(
        run(retry_policy=Retry(times=1, delay=0, priority_delta=0), max_loops=2), add("fails")
    ),
    "fail, requeue by a policy, with methods for the events": Path(
        run(retry_policy=Retry(times=1, delay=3600)), add("fails", Told)
    ),
    "ask to be put back": Path(run(max_loops=2), add("asks to be put back")),
    "ask to be put back, with methods for the events": Path(run(max_loops=2), add("asks to be put back", Told)),
    "give itself up": Path(run(), add("gives itself up")),
    "cancel while it runs": Path(run(), add("cancels itself")),
    "delay while it runs": Path(run(max_loops=2), add("delays itself")),
    "cancel a waiting job": Path(lambda: only_job().cancel(), add()),
    "cancel a delayed job": Path(lambda: only_job().cancel(), add(**LATER)),
    "cancel a running job": Path(lambda: only_job().cancel(), all_of(add(), claim)),
    "requeue by hand": Path(lambda: only_job().requeue(), all_of(add("fails"), run())),
    "requeue by hand, later": Path(lambda: only_job().requeue(**LATER), all_of(add("fails"), run())),
    "promote": Path(run(max_loops=2), all_of(add(**LATER), add("b", **LATER), make_due)),
    "release": Path(release, add()),
    "claim a job, succeed": Path(hold(lambda claim: claim.succeed()), add()),
    "claim a job, fail": Path(hold(fail_inside), add()),
    "claim a job, fail, requeue by a policy": Path(
        hold(lambda claim: claim.fail(ValueError("it fails"), retry_policy=Retry(times=1, delay=0))), add()
    ),
    "claim a job, cancel": Path(hold(lambda claim: claim.cancel()), add()),
    "claim a job, release": Path(hold(lambda claim: claim.release()), add()),
    "claim a job, delayed and due": Path(hold(lambda claim: claim.succeed()), all_of(add(**LATER), make_due)),
    "claim a job whose worker died": Path(hold(lambda claim: claim.succeed()), all_of(add(), lose_worker)),
    "end with a job in hand": Path(end_with_a_job_in_hand, all_of(add("a"), add("b"))),
    "prune": Path(prune, all_of(add("a"), add("b"), run(max_loops=2)), deletes=True),
    "prune, with errors": Path(prune, all_of(add("fails"), run()), deletes=True),
    "prune, with a field outside of the hash": Path(
        prune, all_of(add(job_class=Detailed, detail="much"), run()), deletes=True
    ),
    "enqueue_due": Path(enqueue_due_schedules, schedule()),
    "enqueue_due, run": Path(run(), schedule()),
    "enqueue_due, to make up for what was missed": Path(enqueue_due_schedules, schedule(misfire_policy="all")),
    "enqueue_due, but it is too late": Path(enqueue_due_schedules, schedule(misfire_grace_time=0)),
    "enqueue_due, with a field outside of the hash": Path(enqueue_due_schedules, schedule(Detailed, detail="much")),
    "make a schedule": Path(schedule()),
    "edit a schedule": Path(edit_schedule, schedule()),
    "pause a schedule": Path(lambda: Schedule.get_by_name("hourly").pause(), schedule()),
    "delete a schedule": Path(lambda: Schedule.get_by_name("hourly").delete(), schedule()),
    "rescue": Path(run(), all_of(add(), lose_worker)),
    "rescue too often": Path(run(max_rescues=0), all_of(add(), lose_worker, add("b"))),
}
