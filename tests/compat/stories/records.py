"""Jobs, errors and small things: making them, reading them, finding them."""

from datetime import datetime, timedelta

from limpyd_jobs import STATUSES, Error, Job, Worker
from limpyd_jobs.models import datetime_to_score
from limpyd_jobs.utils import compute_delayed_until, import_class

from .models import FAR, PHOTO_FIELDS, Album, CodedError, Photo, PhotoError, PhotoWorker, Told, fail, now
from .registry import story

HALF_A_JOB = "Version 2 leaves half a job behind (a pk, a collection entry, a hash without a status)."


@story
def idents(tell):
    job = Photo.add_job("a")
    tell.say("names", Job.get_model_repr(), Photo.get_model_repr(), job.ident)
    tell.ask("found", Job.get_from_ident, job.ident)
    tell.ask("its class", lambda: type(Job.get_from_ident(job.ident)).__name__)
    for ident in ("garbage", "nothing:1", "os.Nothing:1", "stories.models.Photo:99", "nowhere_at_all.Job:1"):
        tell.ask(ident, Job.get_from_ident, ident)
        tell.ask(ident, Worker(queues="q").get_job, ident)
    tell.ask("queue", Worker(queues="photos", queue_model=Album).get_queue, Album.get_waiting_keys("photos")[0])
    tell.ask("no queue", Worker(queues="photos").get_queue, "garbage")
    tell.ask("no queue", Worker(queues="photos").get_queue, "jobs:queue:99:waiting")


@story
def read_jobs(tell):
    job = Photo.add_job("a", priority=3, **PHOTO_FIELDS)
    tell.say("fields", job.identifier.hget(), job.status.hget(), job.priority.hget(), job.queued.hget())
    tell.say("none yet", job.start.hget(), job.end.hget(), job.tries.hget(), job.duration)
    tell.say("extra", job.camera.hget(), job.note.get(), job.people.smembers(), job.steps.lmembers())
    tell.say("extra", job.exif.hgetall(), job.scores.zmembers(), job.license.get(), job.quality.hget())
    tell.say("requeue on error", bool(job.must_be_cancelled_on_error))
    job.start.hset("2020-01-01 00:00:00")
    job.end.hset("2020-01-01 00:01:00.500000")
    tell.say("duration", job.duration)
    tell.ask("not implemented", Job.add_job("b", "q").run, None)
    job.set_fields(camera="Nikon", note="other", steps=["more"])
    tell.ask("no field", lambda: job.set_fields(nothing=1))
    job.delete()


@story
def find_jobs(tell):
    for name, priority, options in (
        ("a", 1, {"camera": "Leica", "size": 10, "title": "alpha", "people": ["ann"]}),
        ("b", 1, {"camera": "Canon", "size": 200, "title": "beta", "people": ["ann", "bob"]}),
        ("c", 2, {"camera": "Leica", "size": 30, "title": "gamma", "note": "x", "taken": "2021-05-06 07:08:09"}),
        ("d", 2, {"delayed_for": 60, "serial": "s"}),
    ):
        Photo.add_job(name, priority=priority, **options)
    for filters in (
        {"identifier": "a"},
        {"status": STATUSES.WAITING},
        {"status": STATUSES.DELAYED, "priority": 2},
        {"queued": 1},
        {"priority": 1, "camera": "Leica"},
        {"quality": "raw"},
        {"size__gte": 30},
        {"size__lt": 30},
        {"title__startswith": "b"},
        {"title__gt": "alpha"},
        {"people": "ann"},
        {"note": "x"},
        {"serial": "s"},
        {"taken__date": "2021-05-06"},
        {"taken__gt": "2021"},
        {"status": "nothing"},
    ):
        tell.ask(f"{filters}", lambda filters=filters: sorted(Photo.collection(**filters)))
    tell.ask("sorted", lambda: list(Photo.collection(priority=1).sort(by="title", alpha=True)))
    tell.ask("values", lambda: list(Photo.collection(camera="Leica").sort().values("identifier", "size")))
    tell.ask("how many", lambda: len(Photo.collection(camera="Leica")))
    tell.work("photos", worker_class=PhotoWorker, max_loops=3)
    tell.ask("done", lambda: sorted(Photo.collection(status=STATUSES.SUCCESS)))
    tell.ask("queued", lambda: sorted(Photo.collection(queued=1)))
    (first,) = Photo.collection(identifier="a").instances()
    tell.ask("by start", lambda: sorted(Photo.collection(start=first.start.hget())) == [first.pk.get()])


@story
def add_photos(tell):
    tell.ask("all fields", Photo.add_job, "a", priority=3, **PHOTO_FIELDS)
    tell.ask("no field", Photo.add_job, "b")
    tell.ask("delayed", Photo.add_job, "c", camera="Leica", size=2.5, delayed_for=60)
    tell.ask("a list as a tuple", Photo.add_job, "d", steps=("one", "two"), people=["zoe"])
    tell.ask("default replaced", Photo.add_job, "e", quality="jpeg", license="MIT")
    tell.ask("tries", Photo.add_job, "f", tries=3, cancel_on_error="1")


@story(not_copied={"state/*": HALF_A_JOB})
def add_photos_with_a_value_that_must_be_unique(tell):
    tell.ask("first", Photo.add_job, "a", serial="no 1")
    tell.ask("another", Photo.add_job, "b", serial="no 1")
    tell.ask("the same job", Photo.add_job, "a", serial="no 1")


@story
def run_photos(tell):
    for number, name in enumerate("ab"):
        Photo.add_job(name, priority=3, **{**PHOTO_FIELDS, "serial": name, "size": number})
    tell.work("photos", worker_class=PhotoWorker)
    tell.work("photos", fail, worker_class=PhotoWorker)
    tell.ask("severe", lambda: sorted(PhotoError.collection(severity="high", identifier="b")))
    tell.ask("its context", lambda: PhotoError.collection(severity="high").instances()[0].context.hgetall())


@story
def requeue_photos(tell):
    Photo.add_job("a", priority=3, **PHOTO_FIELDS)
    options = {"requeue_times": 1, "requeue_delay_delta": 0, "requeue_priority_delta": 0}
    tell.work("photos", fail, worker_class=PhotoWorker, **options)
    tell.state("requeued")
    tell.work("photos", worker_class=PhotoWorker, **options)


@story
def add_errors(tell):
    job = Job.add_job("a", "q")
    when = datetime(2020, 1, 2, 3, 4, 5)
    tell.ask("now", Error.add_error, "q", job, ValueError("m"))
    tell.ask("then", Error.add_error, "q", job, KeyError("k"), when=when, trace="Traceback\n the trace")
    tell.ask("by keywords", Error.add_error, queue_name="q", job=job, error=OSError(2, "no file"), when=when)
    for code in (0, 404, "E1", None, ""):
        tell.ask("coded", Error.add_error, "q", job, CodedError("coded", code), when=when)
    tell.ask("no error", Error.add_error, "q", job, None, when=when)
    tell.ask("with microseconds", Error.add_error, "q", job, ValueError("é\n"), when=when.replace(microsecond=7))
    tell.ask("of another class", Error.add_error, "q", Told.add_job("a"), ValueError(""), when=when)
    extra = {"severity": "low", "context": {"a": "b"}, "hints": ["x"]}
    tell.ask("with fields", PhotoError.add_error, "q", job, ValueError("m"), when=when, **extra)
    for filters in (
        {"date": "2020-01-02"},
        {"date_time__gt": "2021"},
        {"date_time": "2020-01-02 03:04:05"},
        {"date_time__date": "2020-01-02"},
        {"code": 404},
        {"type": "KeyError"},
        {"queue_name": "q", "identifier": "a", "job_model_repr": "limpyd_jobs.models.Job", "job_pk": job.pk.get()},
    ):
        tell.ask(f"{filters}", lambda filters=filters: sorted(Error.collection(**filters)))
    tell.ask("its datetime", lambda: Error.get(2).datetime)
    tell.ask("its datetime", lambda: Error.get(10).datetime)
    tell.ask("of the job", lambda: sorted(Error.collection_for_job(job)))
    tell.ask("of the job", lambda: sorted(Error.collection_for_job(job).filter(type="KeyError")))
    tell.ask("of the other job", lambda: Error.collection_for_job(Told.add_job("a")).instances())


@story
def dates(tell):
    tell.ask("score", datetime_to_score, FAR)
    tell.ask("score", datetime_to_score, datetime(1970, 1, 1))
    tell.ask("score", datetime_to_score, datetime(2001, 2, 3, 4, 5, 6, 789012))
    tell.ask("none", compute_delayed_until)
    tell.ask("until", compute_delayed_until, delayed_until=FAR)
    tell.ask("for", lambda: compute_delayed_until(60) - now() <= timedelta(seconds=60))
    tell.ask("both", compute_delayed_until, 1, FAR)
    tell.ask("text", compute_delayed_until, "1")
    tell.ask("text", compute_delayed_until, None, "2099-01-01")
    tell.ask("class", lambda: import_class("stories.models.Photo") is Photo)
    tell.ask("no class", import_class, "stories.models.Nothing")
    tell.ask("no module", import_class, "nowhere_at_all.Nothing")


@story
def statuses(tell):
    tell.say("all", dict(STATUSES))
    for name in sorted(STATUSES):
        tell.say(name, getattr(STATUSES, name), STATUSES[name], STATUSES.by_value(STATUSES[name]))
    tell.ask("unknown", lambda: STATUSES.NOTHING)
    tell.ask("unknown", lambda: STATUSES["NOTHING"])
    tell.ask("unknown", STATUSES.by_value, "z")
    tell.ask("unknown", STATUSES.by_value, "z", "default")
