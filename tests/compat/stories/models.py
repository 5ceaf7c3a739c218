"""The models of the stories, and what their jobs do when they run."""

import time
from datetime import datetime, timedelta

import teller
from limpyd import fields
from limpyd.contrib.indexes import SimpleDateTimeIndex
from limpyd.indexes import NumberRangeIndex, TextRangeIndex

from limpyd_jobs import Error, Job, Queue, Worker

FAR = datetime(2099, 1, 2, 3, 4, 5, 678)
SOON = 0.25  # seconds: enough to be in the future still when the job is added


def now():
    return datetime.utcnow()


def an_hour_ago():
    return now() - timedelta(hours=1)


def wait_until_due(queue, jobs=1):
    """Wait until so many delayed jobs of a queue are due."""
    ((_, moment),) = queue.delayed.zrange(jobs - 1, jobs - 1, withscores=True)
    time.sleep(max(0, moment - time.time()) + 0.005)


class Told(Job):
    """A job that says what is called on it, and what its hash holds then."""

    namespace = "stories"
    queue_name = "told"

    def on_started(self, queue):
        teller.current.job("on_started", self, queue)

    def on_success(self, queue, result):
        teller.current.job("on_success", self, queue, result)

    def on_error(self, queue, exception, traceback):
        teller.current.job("on_error", self, queue, exception, teller.shorten(traceback))

    def on_skipped(self, queue):
        teller.current.job("on_skipped", self, queue)

    def on_requeued(self, queue):
        teller.current.job("on_requeued", self, queue)

    def on_delayed(self, queue):
        teller.current.job("on_delayed", self, queue)

    def run(self, queue):
        teller.current.job("run", self, queue)
        return f"{self.identifier.hget()} done"


class Album(Queue):
    """A queue with fields of its own."""

    namespace = "stories"
    curator = fields.InstanceHashField(indexable=True)
    tags = fields.SetField(indexable=True)
    visits = fields.ListField()
    settings = fields.HashField()


class PhotoError(Error):
    """An error with fields of its own."""

    namespace = "stories"
    severity = fields.InstanceHashField(indexable=True)
    context = fields.HashField()
    hints = fields.ListField()


class Photo(Job):
    """A job with fields of every type, and of every kind of index."""

    namespace = "stories"
    queue_model = Album
    queue_name = "photos"
    start = fields.InstanceHashField(indexable=True)
    camera = fields.InstanceHashField(indexable=True)
    quality = fields.InstanceHashField(indexable=True, default="raw")
    size = fields.InstanceHashField(indexable=True, indexes=[NumberRangeIndex])
    title = fields.InstanceHashField(indexable=True, indexes=[TextRangeIndex])
    taken = fields.InstanceHashField(indexable=True, indexes=[SimpleDateTimeIndex])
    serial = fields.InstanceHashField(unique=True)
    note = fields.StringField(indexable=True)
    license = fields.StringField(default="CC0")
    exif = fields.HashField()
    people = fields.SetField(indexable=True)
    steps = fields.ListField()
    scores = fields.SortedSetField(indexable=True)

    def run(self, queue):
        teller.current.say("run", self.hmget("camera", "size"), self.note.get(), self.exif.hgetall())
        return self.size.hget()


class Careful(Told):
    """A job that is never put back after an error."""

    queue_name = "careful"
    always_cancel_on_error = True


class SelfAdding(Job):
    """A job that adds another one with its own identifier when it succeeds."""

    namespace = "stories"
    queue_name = "again"

    def run(self, queue):
        return None

    def on_success(self, queue, result):
        other = type(self).add_job(self.identifier.hget(), priority=1)
        teller.current.say("added", other, other.pk.get() == self.pk.get())


PHOTO_FIELDS = {
    "camera": "Leica",
    "size": 1024,
    "title": "sunset",
    "taken": "2020-02-03 04:05:06",
    "serial": "no 1",
    "note": "from the roof",
    "exif": {"iso": "100", "f": "2.8"},
    "people": {"ann", "bob"},
    "steps": ["crop", "rotate"],
    "scores": {"light": 3, "focus": 1.5},
}


class CodedError(Exception):
    """An exception with a code, as those of operating systems and HTTP clients have."""

    def __init__(self, message, code):
        super().__init__(message)
        self.code = code


def succeed(job, queue):
    teller.current.job("run", job, queue)
    return "the result"


def fail(job, queue):
    teller.current.job("run", job, queue)
    raise ValueError("it failed")


def set_while_running(status=None, **values):
    """Return a callback that changes fields of its job."""

    def callback(job, queue):
        for name, value in values.items():
            getattr(job, name).hset(value)
        if status:
            job.status.hset(status)
        teller.current.job("changed", job)

    return callback


class PhotoWorker(Worker):
    """A worker of albums, which gives errors more fields."""

    queues = "photos"
    queue_model = Album
    error_model = PhotoError

    def additional_error_fields(self, job, queue, exception, trace=None):
        return {
            "severity": "high",
            "context": {"camera": job.camera.hget() or "none", "queue": queue._cached_name},
            "hints": ["look", "again"],
        }
