"""What a worker calls, and when, is what the manual says."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import redis
from actions import let_its_worker_die
from pages import literals, read_table
from running import interrupt

from limpyd_jobs import STATUSES, Cancel, Job, Requeue, Worker

EVENTS = {when: literals(called) for when, called in read_table("The order of events").items()}

seen: list[str] = []


def watched(cls: type, names: set[str], prefix: str = "") -> dict[str, Callable[..., Any]]:
    """Methods that do what those of the class do, and note that they were called."""

    def watch(name: str) -> Callable[..., Any]:
        def method(self: Any, *args: Any, **kwargs: Any) -> Any:
            seen.append(prefix + name)
            return getattr(cls, name, lambda *_: None)(self, *args, **kwargs)

        return method

    return {name: watch(name) for name in names}


class Obedient(Job):
    """Does what its identifier says."""

    namespace = "readme"
    queue_name = "readme"

    def run(self, queue):
        deed = self.identifier.hget()
        if deed == "raise":
            raise ValueError("as told")
        if deed == "Requeue":
            raise Requeue
        if deed == "Cancel":
            raise Cancel
        if deed in STATUSES:
            self.status.hset(STATUSES[deed])


NAMES = {name for names in EVENTS.values() for name in names}

WatchedWorker = type("WatchedWorker", (Worker,), watched(Worker, {name for name in NAMES if "." not in name}))


class WatchedJob(Obedient):
    namespace = "readme"
    locals().update(watched(Obedient, {name[4:] for name in NAMES if name.startswith("job.")}, "job."))


@pytest.mark.parametrize(
    ("identifier", "found", "requeue_times", "moments"),
    [
        ("return", "WAITING", 0, ["a job is to be run", "it returns"]),
        ("raise", "WAITING", 0, ["a job is to be run", "it raises"]),
        ("raise", "WAITING", 1, ["a job is to be run", "it raises", "and may be run again"]),
        ("Requeue", "WAITING", 0, ["a job is to be run", "it raises Requeue"]),
        ("Cancel", "WAITING", 0, ["a job is to be run", "it is canceled, or does not wait, or raises Cancel"]),
        ("CANCELED", "WAITING", 0, ["a job is to be run", "it is canceled, or does not wait, or raises Cancel"]),
        ("DELAYED", "WAITING", 0, ["a job is to be run", "it is delayed"]),
        ("return", "CANCELED", 0, ["it is canceled, or does not wait, or raises Cancel"]),
        ("return", "SUCCESS", 0, ["it is canceled, or does not wait, or raises Cancel"]),
        ("return", "DELAYED", 0, ["it is delayed"]),
    ],
)
def test_events_come_in_the_order_of_the_manual(
    identifier: str, found: str, requeue_times: int, moments: list[str], redis_client: redis.Redis
):
    job = WatchedJob.add_job(identifier)
    if found != "WAITING":
        job.status.hset(STATUSES[found])
    seen.clear()

    WatchedWorker("readme", max_loops=1, requeue_times=requeue_times, terminate_gracefuly=False).run()

    moments = ["the worker starts", "until must_stop says so", *moments, "the worker ends"]
    assert seen == [name for moment in moments for name in EVENTS[moment] if name != "must_stop"]


def test_events_of_jobs_that_were_not_finished_come_in_the_order_of_the_manual(redis_client: redis.Redis):
    let_its_worker_die("return", "readme", WatchedJob)
    seen.clear()
    WatchedWorker("readme", max_loops=1, terminate_gracefuly=False).run()
    assert_contains(seen, EVENTS["its worker died, and another one found it"])

    WatchedJob.add_job("released")
    seen.clear()
    with pytest.raises(KeyboardInterrupt):
        WatchedWorker("readme", callback=interrupt, terminate_gracefuly=False).run()
    assert_contains(seen, EVENTS["it is interrupted, because the worker has to end"])


def assert_contains(events: list[str], expected: list[str]) -> None:
    """Find the expected events of one job in a row, up to those that come only the last time."""
    expected = [name for name in expected if name != "job_error"]
    assert expected in [events[start : start + len(expected)] for start in range(len(events))], events
