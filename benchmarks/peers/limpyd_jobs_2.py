"""redis-limpyd-jobs 2: the version before ours."""

from __future__ import annotations

from inside import HOST, PORT, mark
from limpyd import fields
from limpyd.database import RedisDatabase

from limpyd_jobs.models import Error, Job, Queue
from limpyd_jobs.workers import Worker

TITLE = "redis-limpyd-jobs 2"
REQUIREMENTS = ["redis-limpyd-jobs==2", "setuptools<82"]
PACKAGE = "redis-limpyd-jobs"
ADDING = "`add_job` with an identifier and a field; none for many"
WORKERS = {"default": "defaults: at most once, one queue, log level INFO"}

database = RedisDatabase(host=HOST, port=PORT, db=0)


class BenchmarkQueue(Queue):
    database = database
    namespace = "bench"


class BenchmarkError(Error):
    database = database
    namespace = "bench"


class Nothing(Job):
    database = database
    namespace = "bench"
    queue_model = BenchmarkQueue
    queue_name = "bench"

    number = fields.InstanceHashField()

    def run(self, queue: Queue) -> None:
        mark(int(self.number.hget()))


def setup() -> None:
    BenchmarkQueue.get_queue("bench")


def add(number: int) -> None:
    Nothing.add_job(f"job:{number}", number=number)


def work(variant: str) -> None:
    Worker("bench", queue_model=BenchmarkQueue, error_model=BenchmarkError, max_loops=10**9).run()
