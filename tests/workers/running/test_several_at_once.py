"""Two jobs of one worker, at the same time in each step: nothing that is known of a job is on the worker."""

from __future__ import annotations

from threading import Barrier, Thread
from typing import Any

import pytest
import redis
from hooking import Task
from parts import parts_of

from limpyd_jobs import Job, Queue, Worker

pytestmark = pytest.mark.usefixtures("redis_client")


class Assembled(Worker):
    """Lets two jobs meet at each step. Its parts are those that a test has built."""

    def __init__(self) -> None:
        self.barrier = Barrier(2, timeout=60)
        super().__init__("queue", callback=self.call, terminate_gracefuly=False)
        self.parts = parts_of(self)
        self.steps: list[tuple[str, list[str]]] = []
        self.status = "running"

    def meet(self, step: str) -> None:
        if self.barrier.wait() == 0:
            running = self.parts.runs.now_running()
            self.steps.append((step, sorted(each.delivery.identifier for each in running)))
        self.barrier.wait()

    def get_queue(self, queue_redis_key: str) -> Queue:
        return self.parts.offers.get_queue(queue_redis_key)

    def get_job(self, job_ident: str) -> Job:
        return self.parts.offers.get_job(job_ident)

    def job_started(self, job: Job, queue: Queue) -> None:
        self.meet("start")
        self.parts.hooks.job_started(job, queue)

    def call(self, job: Job, queue: Queue) -> str:
        self.meet("run")
        if job.identifier.hget() == "fails":
            raise ValueError(vars(job)["_run_in_worker"].token)
        return vars(job)["_run_in_worker"].token

    def job_success(self, job: Job, queue: Queue, job_result: Any) -> None:
        self.meet("end")
        self.parts.hooks.job_success(job, queue, job_result)
        self.meet("told")

    def job_error(self, job: Job, queue: Queue, exception: BaseException, trace: str | None = None) -> None:
        self.meet("end")
        self.parts.hooks.job_error(job, queue, exception, trace)
        self.meet("told")


def test_two_jobs_go_through_all_steps_at_the_same_time(redis_client: redis.Redis, consistent: None) -> None:
    Task.add_jobs(["succeeds", "fails"])
    worker = Assembled()
    parts, keys, runs = worker.parts, Queue.get_waiting_keys("queue"), []
    found = [parts.offers.objects_of(delivery) for _ in "ab" if (delivery := parts.claimer.next(keys))]
    assert len(parts.runs.offered) == 2
    queue = Queue.get_queue("queue")
    queue.running.zadd(dict.fromkeys(queue.running.zmembers(), 1))
    parts.leases.renew(redis_client)  # also of those that do not run yet
    assert all(score > 1 for _, score in queue.running.zrange(0, -1, withscores=True))

    for each in found:
        assert each
        runs.append(parts.runs.accept(each[1], each[0]))
    parts.offers.release_unwanted()
    threads = [Thread(target=parts.executor.run, args=[run]) for run in runs]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()

    both = ["fails", "succeeds"]
    assert worker.steps == [("start", both), ("run", both), ("end", both), ("told", both)]
    assert [job.status.hget() for _, job in filter(None, found)] == ["s", "e"]
    assert runs[0].result == runs[0].delivery.token
    assert not any(each.is_held for each in runs)
    assert (parts.runs.running, parts.runs.offered) == ({}, {})
