"""Observers are told what happens to jobs and workers, and can do them no harm."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
import redis
from invariants import violations
from parts import run_task
from running import fail, interrupt, messages, succeed, work, worker_of

from limpyd_jobs import STATUSES, Cancel, Error, Job, Queue, Requeue, Schedule, Worker, events
from limpyd_jobs.dates import datetime_to_score, utcnow
from limpyd_jobs.events import Event
from limpyd_jobs.records import records

pytestmark = pytest.mark.usefixtures("redis_client")

PAGE = Path(__file__).parents[3] / "docs" / "howto" / "observing.rst"
WORKER = ["WorkerStarted", "WorkerEnded"]


class Task(Job):
    namespace = "events"
    queue_name = "queue"


class Observer:
    """Keeps the events, but those of the status."""

    def __init__(self) -> None:
        self.events: list[Any] = []

    def __call__(self, event: Event) -> None:
        if not isinstance(event, events.WorkerStatusChanged):
            self.events.append(event)

    @property
    def names(self) -> list[str]:
        return [type(event).__name__ for event in self.events]

    @property
    def of_jobs(self) -> list[str]:
        return [name for name in self.names if name not in WORKER]


@pytest.fixture
def observer() -> Iterator[Observer]:
    observer = Observer()
    events.subscribe(observer)
    yield observer
    events.unsubscribe(observer)


def ask(job: Job, queue: Queue) -> None:
    raise Requeue(delayed_for=1000)


def give_up(job: Job, queue: Queue) -> None:
    raise Cancel("no more")


def delay(job: Job, queue: Queue) -> None:
    job.status.hset(STATUSES.DELAYED)


@pytest.mark.parametrize(
    ("callback", "requeue_times", "told"),
    [
        (succeed, 0, ["JobStarted", "JobSucceeded"]),
        (fail, 0, ["JobStarted", "JobFailed"]),
        (fail, 1, ["JobStarted", "JobFailed", "JobRequeued"]),
        (ask, 0, ["JobStarted", "JobRequeued"]),
        (give_up, 0, ["JobStarted", "JobSkipped"]),
        (delay, 0, ["JobStarted", "JobDelayed"]),
        (interrupt, 0, ["JobStarted", "JobReleased"]),
    ],
)
@pytest.mark.parametrize("prefetch", [1, 10, "auto"])
def test_an_observer_is_told_each_step_of_a_job(
    observer: Observer, callback: Callable[..., Any], requeue_times: int, told: list[str], prefetch: int | str
) -> None:
    job = Task.add_job("a")
    worker = worker_of(callback=callback, requeue_times=requeue_times, prefetch=prefetch)
    try:
        worker.run()
    except KeyboardInterrupt:
        assert callback is interrupt
    assert observer.of_jobs == told
    jobs = [event for event in observer.events if isinstance(event, events.JobEvent)]
    assert {(event.worker, event.job.ident, event.queue.name.hget()) for event in jobs} == {
        (worker, job.ident, "queue")
    }


def test_it_is_told_what_each_step_came_to(observer: Observer) -> None:
    for name in "ab":
        Task.add_job(name)
    work(max_loops=1)
    work(callback=fail)
    succeeded = next(event for event in observer.events if isinstance(event, events.JobSucceeded))
    failed = next(event for event in observer.events if isinstance(event, events.JobFailed))
    assert succeeded.result == "done"
    assert (repr(failed.exception), failed.requeued) == ("ValueError('it failed')", False)
    assert failed.trace.startswith("Traceback")
    with pytest.raises(dataclasses.FrozenInstanceError):
        failed.requeued = True


def test_it_is_told_of_the_worker_even_if_its_hooks_are_overridden(observer: Observer) -> None:
    class Silent(Worker):
        def run_started(self) -> None: ...
        def run_ended(self) -> None: ...

    Queue.get_queue("queue")
    work(worker_class=Silent, max_loops=0)
    work(worker_class=Silent, max_loops=1, burst=True)
    assert observer.names[-2:] == WORKER


def test_it_is_told_each_status() -> None:
    statuses: list[Any] = []

    def observer(event: Event) -> None:
        if isinstance(event, events.WorkerStatusChanged):
            statuses.append(event.status)

    Task.add_job("a")
    events.subscribe(observer)
    work()
    events.unsubscribe(observer)
    assert statuses == ["starting", "waiting", "running", "terminated"]


def test_it_is_told_of_schedules(observer: Observer) -> None:
    due = utcnow() - timedelta(seconds=600)
    for name, grace_time in (("due", None), ("missed", 0)):
        schedule = Schedule.add(name, Task, interval=3600, misfire_grace_time=grace_time)
        records.set_schedule(Schedule, schedule.pk.get(), datetime_to_score(due), {"next_run": str(due)})
    worker = worker_of()
    run_task(worker, "scheduler")
    told = {type(event): (event.worker, event.schedule.name.hget()) for event in observer.events}
    assert told == {events.JobScheduled: (worker, "due"), events.ScheduleMissed: (worker, "missed")}


def test_one_that_fails_is_logged_once_and_breaks_no_job(
    redis_client: redis.Redis, log: pytest.LogCaptureFixture
) -> None:
    def observer(event: Event) -> None:
        raise RuntimeError("cannot count")

    jobs = [Task.add_job(name) for name in "abc"]
    events.subscribe(observer)
    work(max_loops=3)
    events.unsubscribe(observer)
    assert [job.status.hget() for job in jobs] == [STATUSES.SUCCESS] * 3
    failures = [record.getMessage() for record in log.records if "cannot count" in record.getMessage()]
    assert len([text for text in failures if "of JobStarted failed" in text]) == 1
    assert violations(redis_client, Task, Queue, Error) == []


def test_the_log_is_an_observer_that_may_be_left_out(log: pytest.LogCaptureFixture) -> None:
    Task.add_job("a")
    events.unsubscribe(events.write_log_line)
    work()
    events.subscribe(events.write_log_line)
    assert [text.split(",")[0] for text in messages(log)] == ["Run started.", "Run terminated"]


def test_the_manual_names_each_event() -> None:
    kinds = [value for value in vars(events).values() if isinstance(value, type) and issubclass(value, Event)]
    names = {kind.__name__ for kind in kinds if kind not in (Event, events.JobEvent)}
    assert [name for name in names if f"``{name}``" not in PAGE.read_text()] == []
