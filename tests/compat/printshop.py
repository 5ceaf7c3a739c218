"""An application as the documents of version 2 show one: queues that count, jobs found by their start, three workers in
threads.

``python -c "import printshop; printshop.main()" SOCKET DATABASE`` runs it, and writes what came of it, as JSON. Nothing
here may use a name that redis-limpyd-jobs 2 does not have.
"""

import json
import logging
import sys
import threading
import time
from datetime import datetime, timedelta

import redis
from limpyd import fields
from limpyd.contrib.database import PipelineDatabase

from limpyd_jobs import STATUSES, Error, Job, Queue, Worker
from limpyd_jobs.models import BaseJobsModel

WORKERS = 3
ORDERS = 12


class PrintQueue(Queue):
    """A queue that counts what was printed, and knows when."""

    namespace = "printshop"
    printed = fields.InstanceHashField()
    pages = fields.InstanceHashField()
    first_printed = fields.InstanceHashField()
    last_printed = fields.InstanceHashField(indexable=True)


class PrintError(Error):
    """What went wrong with an order."""

    namespace = "printshop"
    customer = fields.InstanceHashField(indexable=True)


class Order(Job):
    """Something to print."""

    namespace = "printshop"
    queue_model = PrintQueue
    queue_name = "orders"
    start = fields.InstanceHashField(indexable=True)
    pages = fields.InstanceHashField(indexable=True)
    customer = fields.InstanceHashField()

    def run(self, queue):
        pages = int(self.pages.hget())
        if not pages:
            raise ValueError("nothing to print")
        time.sleep(0.01)
        return pages


class Reprint(Order):
    """Something to print once more; the first time the paper jams."""

    queue_name = "reprints"

    def run(self, queue):
        if self.tries.hget() == "1":
            raise RuntimeError("paper jam")
        return super().run(queue)


class PrintWorker(Worker):
    """Prints, and keeps the books."""

    queues = ["reprints", "orders"]
    queue_model = PrintQueue
    error_model = PrintError
    job_model = Order
    logger_name = "limpyd-jobs.printshop"
    terminate_gracefuly = False
    max_duration = 5
    timeout = 1
    fetch_priorities_delay = 1
    fetch_delayed_delay = 1
    requeue_times = 1
    requeue_delay_delta = 1

    def __init__(self, *args, **kwargs):
        self.jobs = []
        self.failed = []
        super().__init__(*args, **kwargs)
        self.processes = self.lease = self.prefetch = None

    def job_success(self, job, queue, job_result):
        before = job.hmget("status", "queued")
        super().job_success(job, queue, job_result)
        now = str(datetime.utcnow())
        queue.printed.hincrby(1)
        queue.pages.hincrby(job_result)
        queue.first_printed.hsetnx(now)
        queue.last_printed.hset(now)
        found = self.job_model.collection(start=job.start.hget())
        self.jobs.append((job.ident, before, job_result, job.duration > timedelta(0), job.pk.get() in list(found)))

    def job_error(self, job, queue, exception, trace=None):
        super().job_error(job, queue, exception, trace)
        self.failed.append((job.ident, str(exception)))

    def additional_error_fields(self, job, queue, exception, trace=None):
        return {"customer": job.customer.hget()}


def add_orders():
    """Add orders of several priorities, one that cannot be printed, one for later, and some to print once more."""
    for name in ("orders", "reprints"):
        PrintQueue.get_queue(name, -1)  # version 2 makes two of them if two workers put jobs back at once
    for number in range(ORDERS):
        Order.add_job(f"order:{number}", priority=number % 3, pages=number + 1, customer="ann")
    Order.add_job("order:0", priority=5, pages=99)
    Order.add_job("empty", pages=0, customer="bob")
    Order.add_job("later", pages=7, customer="ann", delayed_for=1)
    for number in range(2):
        Reprint.add_job(f"reprint:{number}", pages=3, customer="eve")


def work():
    """Let three workers run in threads, until all of them end by themselves."""
    workers = [PrintWorker() for _ in range(WORKERS)]
    threads = [threading.Thread(target=worker.run) for worker in workers]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return workers


def outcome(workers, client):
    """Return what came of it: all that does not depend on which worker was the fastest."""
    queues = sorted(PrintQueue.collection().instances(), key=lambda queue: queue.hmget("name", "priority"))
    return {
        "workers": [
            [str(worker.max_duration), worker.status, worker.end_forced, worker.elapsed >= timedelta(seconds=5)]
            for worker in workers
        ],
        "loops": sum(worker.num_loops for worker in workers),
        "printed": sorted(printed for worker in workers for printed in worker.jobs),
        "failed": sorted(failed for worker in workers for failed in worker.failed),
        "jobs": sorted(
            [job.ident, *job.hmget("identifier", "status", "queued", "priority", "tries", "pages")]
            for model in (Order, Reprint)
            for job in model.collection().instances()
        ),
        "queues": [
            [
                *queue.hmget("name", "priority", "printed", "pages"),
                sorted(queue.success.lmembers()),
                sorted(queue.errors.lmembers()),
                queue.waiting.llen(),
                queue.delayed.zcard(),
                [date is not None for date in queue.hmget("first_printed", "last_printed")],
            ]
            for queue in queues
        ],
        "errors": sorted(
            error.hmget("identifier", "queue_name", "type", "message", "customer")
            for error in PrintError.collection().instances()
        ),
        "indexes": {
            key: client.scard(key)
            for key in sorted(client.scan_iter("printshop:*:status:*"))
            if client.type(key) == "set"
        },
        "done": len(list(Order.collection(status=STATUSES.SUCCESS))),
    }


def main():
    """Run the application on the Redis of a unix socket, in the database of that number."""
    logging.getLogger("limpyd-jobs.printshop").addHandler(logging.NullHandler())
    settings = {"unix_socket_path": sys.argv[1], "db": int(sys.argv[2])}
    client = redis.Redis(**settings, decode_responses=True)
    client.flushdb()
    BaseJobsModel.use_database(PipelineDatabase(**settings))
    add_orders()
    print(json.dumps(outcome(work(), client)))
