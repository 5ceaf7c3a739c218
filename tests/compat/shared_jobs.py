"""The jobs of an application whose processes do not all have the same version of redis-limpyd-jobs yet.

``python -c "import shared_jobs; shared_jobs.main()" WHO SOCKET`` reads lines of JSON, each the name of a function
below and its arguments, and answers each with a line of JSON: what that function returned.
"""

import json
import sys

import redis
from limpyd import fields
from limpyd.contrib.database import PipelineDatabase
from limpyd.contrib.indexes import SimpleDateTimeIndex
from limpyd.indexes import NumberRangeIndex, TextRangeIndex

from limpyd_jobs import STATUSES, Error, Job, Queue, Worker
from limpyd_jobs.models import BaseJobsModel

NAME = "shared"  # of the queues
LIMITS = {"max_loops": 1, "timeout": 1, "fetch_priorities_delay": 1, "fetch_delayed_delay": 1}

notes: redis.Redis  # where jobs note what happens to them
who: str  # is running this process


class SharedJob(Job):
    """A job that notes when it starts and ends, and fails as often as it was told to."""

    namespace = "app"
    queue_name = NAME
    failures = fields.InstanceHashField()  # so many
    until = fields.InstanceHashField()  # something is pushed to that list
    start = fields.InstanceHashField(indexable=True)
    size = fields.InstanceHashField(indexable=True, indexes=[NumberRangeIndex])
    title = fields.InstanceHashField(indexable=True, indexes=[TextRangeIndex])
    taken = fields.InstanceHashField(indexable=True, indexes=[SimpleDateTimeIndex])
    people = fields.SetField(indexable=True)
    steps = fields.ListField()

    def run(self, queue):
        note("starts", self)
        if until := self.until.hget():
            notes.blpop(until, timeout=60)
        if int(self.tries.hget()) <= int(self.failures.hget() or 0):
            raise ValueError("told to fail")
        note("ends", self)


def note(event, job):
    """Keep what happened to a job, and in whose process."""
    notes.rpush(event, f"{job.identifier.hget()} in {who}")


def add(identifier, **options):
    """Add a job, and return its pk."""
    return SharedJob.add_job(identifier, **options).pk.get()


def add_many(prefix, count, **options):
    for number in range(count):
        SharedJob.add_job(f"{prefix} {number}", priority=number % 2, **options)


def job(pk):
    """Return the fields of a job, read through limpyd."""
    found = SharedJob.get(pk)
    names = ("identifier", "status", "priority", "queued", "tries", "delayed_until", "start", "end", "size")
    values = dict(zip(names, found.hmget(*names), strict=True))
    return {**values, "people": sorted(found.people.smembers()), "steps": found.steps.lmembers()}


def find(**filters):
    """Return the pks of the jobs of a collection."""
    return sorted(SharedJob.collection(**filters))


def errors_of(pk):
    """Return the errors of a job: type, message, last line of the traceback."""
    found = Error.collection_for_job(SharedJob.get(pk)).instances()
    return [
        [error.type.hget(), error.message.hget(), error.traceback.hget().splitlines()[-1], error.datetime is not None]
        for error in found
    ]


def places(priority=0):
    """Return what is in the lists and the sorted set of a queue."""
    queue = Queue.get_queue(NAME, priority)
    lists = {name: getattr(queue, name).lmembers() for name in ("waiting", "success", "errors")}
    return {**lists, "delayed": queue.delayed.zmembers()}


def requeue(pk, **options):
    SharedJob.get(pk).requeue(**options)


def cancel(pk):
    SharedJob.get(pk).status.hset(STATUSES.CANCELED)


def wake(priority=0):
    """Move the delayed jobs that are due, and return the failures."""
    return Queue.get_queue(NAME, priority).requeue_delayed_jobs()


def work(**options):
    """Let a worker run one job, or `max_loops`; return how many it had."""
    worker = Worker(NAME, **{**LIMITS, **options})
    worker.run()
    return worker.num_loops


def work_until_all_is_done(count, **options):
    """Let a worker run jobs until so many have ended well, whoever ran them; begin when ``go`` is pushed."""

    class Finishing(Worker):
        def must_stop(self):
            return super().must_stop() or notes.llen("ends") >= count

    worker = Finishing(NAME, **{**LIMITS, "max_loops": 10000, **options})
    notes.rpush("ready", who)
    notes.blpop("go", timeout=30)
    worker.run()
    return worker.num_loops


def main():
    """Call the functions that are asked for on standard input."""
    global notes, who
    _, who, socket = sys.argv
    BaseJobsModel.use_database(PipelineDatabase(unix_socket_path=socket, db=0))
    notes = redis.Redis(unix_socket_path=socket, decode_responses=True)
    for line in sys.stdin:
        function, arguments = json.loads(line)
        print(json.dumps(globals()[function](**arguments)), flush=True)
