"""Workers that run in tests, and end in any case."""

from __future__ import annotations

import signal
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, TypeVar

import pytest
import redis
from servers import wait_until

from limpyd_jobs import Job, Queue, Worker

JobClass = TypeVar("JobClass", bound=Job)


def succeed(job: Job, queue: Queue) -> str:
    return "done"


def fail(job: Job, queue: Queue) -> None:
    raise ValueError("it failed")


def interrupt(job: Job, queue: Queue) -> None:
    """Interrupt a job by a signal, whatever handles that by now."""
    signal.signal(signal.SIGINT, _interrupt)
    signal.raise_signal(signal.SIGINT)


def _interrupt(*_: Any) -> None:
    raise KeyboardInterrupt


def worker_of(queues: Any = "queue", worker_class: type[Worker] = Worker, **options: Any) -> Worker:
    """Return a worker of one job, which ends within a minute even if there is none."""
    defaults = {"callback": succeed, "max_loops": 1, "timeout": 1, "max_duration": 60, "terminate_gracefuly": False}
    return worker_class(queues, **{**defaults, **options})


def work(*args: Any, **options: Any) -> Worker:
    """Run such a worker, and return it."""
    worker = worker_of(*args, **options)
    worker.run()
    return worker


@contextmanager
def working(worker: Worker) -> Iterator[None]:
    """Run a worker in a thread; wait for its end."""
    thread = threading.Thread(target=worker.run)
    thread.start()
    try:
        yield
    finally:
        thread.join()


@contextmanager
def waiting_idly(worker: Worker, client: redis.Redis) -> Iterator[None]:
    """Run a worker in a thread, from the moment on when Redis has nothing for it; wait for its end."""
    with working(worker):
        wait_until(lambda: client.info("clients")["blocked_clients"], "an idle worker")
        yield


class Collector:
    """A callback that keeps the identifiers of the jobs it is called with."""

    def __init__(self) -> None:
        self.identifiers: list[str] = []

    def __call__(self, job: Job, queue: Queue) -> None:
        self.identifiers.append(job.identifier.hget())


def delayed_and_due(job_class: type[JobClass], identifier: str) -> JobClass:
    """Return a job that is delayed until a moment that has come already."""
    job = job_class.add_job(identifier, delayed_for=0.1)
    moment = job_class.queue_model.get_queue(job_class.queue_name).delayed.zscore(job.ident)
    wait_until(lambda: time.time() >= moment)
    return job


def messages(log: pytest.LogCaptureFixture) -> list[str]:
    """Return what workers logged, without their ids."""
    return [record.getMessage().split("] ", 1)[1] for record in log.records if record.name != "asyncio"]
