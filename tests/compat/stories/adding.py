"""Adding jobs, and putting them in queues by hand."""

from datetime import timedelta

from limpyd_jobs import STATUSES, Job, Queue

from .models import FAR, Album, Careful, Photo, Told, an_hour_ago, fail, succeed
from .registry import story, worker_story

HALF_A_JOB = "Version 2 leaves half a job behind (a pk, a collection entry, a hash without a status)."
PREVIOUS_QUEUE = "Version 2 makes an empty queue of the new name and the previous priority."
STALE_DELAYED = "Version 2 leaves the job in the delayed set that it was in, too."
LEFT_WAITING = "Version 2 leaves the job in the waiting list of the other queue, too."
RUNS_TWICE = "Version 2 puts a running job in a waiting list, where a second worker finds it."


@story
def add_new(tell):
    tell.ask("plain", Job.add_job, "a", "q")
    tell.ask("by keywords", Job.add_job, identifier="b", queue_name="q", priority=2)
    tell.ask("negative", Job.add_job, "c", "q", priority=-3)
    tell.ask("text", Job.add_job, "d", "q", priority="5")
    tell.ask("prepended", Job.add_job, "e", "q", prepend=True)
    tell.ask("number", Job.add_job, 12, "q")
    tell.ask("colons, spaces, lines, NUL, emoji", Job.add_job, "a:b c\nd\0é🎈", "queue name é:x")
    tell.ask("another class", Told.add_job, "a", "q")
    tell.ask("the queue of the class", Told.add_job, "b")
    tell.ask("another queue model", Job.add_job, "f", "q", queue_model=Album)


@story
def add_delayed(tell):
    tell.ask("seconds", Job.add_job, "a", "q", delayed_for=60)
    tell.ask("float", Job.add_job, "b", "q", delayed_for=90.5)
    tell.ask("timedelta", Job.add_job, "c", "q", delayed_for=timedelta(minutes=2))
    tell.ask("datetime", Job.add_job, "d", "q", delayed_until=FAR)
    tell.ask("datetime, whole second", Job.add_job, "e", "q", delayed_until=FAR.replace(microsecond=0))
    tell.ask("with a priority", Job.add_job, "f", "q", priority=4, delayed_until=FAR)
    tell.ask("in the past", Job.add_job, "g", "q", delayed_until=an_hour_ago())
    tell.ask("negative", Job.add_job, "h", "q", delayed_for=-5)
    tell.ask("zero", Job.add_job, "i", "q", delayed_for=0)
    tell.ask("prepended", Job.add_job, "j", "q", delayed_until=FAR, prepend=True)
    tell.ask("how many", Queue.count_delayed_jobs, "q")
    tell.ask("first", lambda: Queue.get_queue("q", 4).first_delayed)
    tell.ask("first time", lambda: Queue.get_queue("q", 4).first_delayed_time)
    tell.ask("none", lambda: (Queue.get_queue("q", 9).first_delayed, Queue.get_queue("q", 9).first_delayed_time))


@story(not_copied={"state/*": HALF_A_JOB})
def add_with_bad_arguments(tell):
    tell.ask("no queue", Job.add_job, "a")
    tell.ask("both delays", Job.add_job, "a", "q", delayed_for=1, delayed_until=FAR)
    tell.ask("delay as text", Job.add_job, "a", "q", delayed_for="5")
    tell.ask("date as text", Job.add_job, "a", "q", delayed_until="2099-01-01")
    tell.ask("date without time", Job.add_job, "a", "q", delayed_until=FAR.date())
    tell.ask("date as number", Job.add_job, "a", "q", delayed_until=5)
    tell.ask("unknown field", Job.add_job, "a", "q", nothing=1)


@story
def add_again_with_lower_or_equal_priority(tell):
    tell.ask("first", Job.add_job, "a", "q", priority=2)
    tell.ask("other", Job.add_job, "b", "q", priority=2)
    tell.ask("equal", Job.add_job, "a", "q", priority=2)
    tell.ask("lower", Job.add_job, "a", "q", priority=1)
    tell.ask("lower, delayed", Job.add_job, "a", "q", priority=1, delayed_for=60)
    tell.ask("lower, in another queue", Job.add_job, "a", "r", priority=1)


@story
def add_again_with_higher_priority(tell):
    tell.ask("first", Job.add_job, "a", "q", priority=2)
    tell.ask("other", Job.add_job, "b", "q", priority=2)
    tell.ask("higher", Job.add_job, "a", "q", priority=10)
    tell.state("moved")
    tell.ask("the other, higher", Job.add_job, "b", "q", priority=3)


@story(
    not_copied={
        "said/*": "Version 2 cannot compare a priority given as text with that of an existing job.",
        "state/*": "Version 2 then forgets that the job is queued.",
    }
)
def add_again_with_priority_as_text(tell):
    Job.add_job("a", "q", priority=10)
    Job.add_job("b", "q", priority=2)
    tell.ask("higher as a number only", Job.add_job, "b", "q", priority="9")
    tell.ask("lower as a number only", Job.add_job, "a", "q", priority="9")


@story
def add_again_with_higher_priority_and_delay(tell):
    tell.ask("first", Job.add_job, "a", "q", priority=2)
    tell.ask("higher", Job.add_job, "a", "q", priority=3, delayed_for=60)
    tell.ask("higher, in the past", Job.add_job, "b", "q", priority=3, delayed_until=an_hour_ago())


@story
def add_again_prepended(tell):
    for name in "abc":
        tell.ask("add", Job.add_job, name, "q", priority=2)
    tell.ask("equal", Job.add_job, "c", "q", priority=2, prepend=True)
    tell.state("first of its queue")
    tell.ask("higher", Job.add_job, "b", "q", priority=3, prepend=True)
    tell.ask("higher again", Job.add_job, "a", "q", priority=3, prepend=True)
    tell.state("first of the higher queue")
    tell.ask("lower", Job.add_job, "a", "q", priority=1, prepend=True)
    tell.ask("default", Job.add_job, "b", "q", prepend=True)
    tell.ask("delayed", Job.add_job, "c", "q", priority=2, prepend=True, delayed_for=60)


@story(not_copied={"state/*/jobs:queue:q@?:delayed/*": STALE_DELAYED})
def add_again_when_delayed(tell):
    tell.ask("first", Job.add_job, "a", "q", priority=2, delayed_for=60)
    tell.ask("equal", Job.add_job, "a", "q", priority=2)
    tell.ask("lower, delayed otherwise", Job.add_job, "a", "q", priority=1, delayed_for=3600)
    tell.state("unchanged")
    tell.ask("higher", Job.add_job, "a", "q", priority=3)
    tell.state("waiting")
    tell.ask("higher, delayed", Job.add_job, "a", "q", priority=4, delayed_for=60)
    tell.ask("prepended, lower", Job.add_job, "a", "q", priority=1, prepend=True)
    tell.state("waiting again")
    tell.ask("delayed", Job.add_job, "b", "q", delayed_for=60)
    tell.ask("prepended, delayed otherwise", Job.add_job, "b", "q", prepend=True, delayed_for=3600)


@story(
    not_copied={
        "state/*/jobs:queue:other@2:*": PREVIOUS_QUEUE,
        "state/*/jobs:queue:*/other@2": PREVIOUS_QUEUE,
        "state/*/jobs:queue:max_pk": PREVIOUS_QUEUE,
        "state/*/jobs:queue:q@2:waiting": LEFT_WAITING,
    }
)
def add_again_in_another_queue(tell):
    tell.ask("first", Job.add_job, "a", "q", priority=2)
    tell.ask("equal", Job.add_job, "a", "other", priority=2)
    tell.state("unchanged")
    tell.ask("higher", Job.add_job, "a", "other", priority=3)


@story
def add_again_with_fields(tell):
    tell.ask("first", Photo.add_job, "a", priority=2, camera="Leica", people={"ann"})
    tell.ask("equal", Photo.add_job, "a", priority=2, camera="Canon", people={"bob"})
    tell.ask("higher", Photo.add_job, "a", priority=3, camera="Canon", people={"bob"}, size=5)


@story
def add_again_when_canceled(tell):
    job = Job.add_job("a", "q", priority=2)
    job.status.hset(STATUSES.CANCELED)
    tell.ask("equal", Job.add_job, "a", "q", priority=2)
    tell.state("still canceled")
    tell.ask("higher", Job.add_job, "a", "q", priority=3)


@worker_story
def add_again_when_done(tell):
    tell.ask("first", Job.add_job, "a", "q", priority=2)
    tell.work("q", succeed)
    tell.ask("after success", Job.add_job, "a", "q", priority=1)
    tell.work("q", fail)
    tell.ask("after error", Job.add_job, "a", "q", priority=1)


@worker_story
def add_again_while_running(tell):
    def callback(job, queue):
        for what, options in (
            ("equal", {"priority": 2}),
            ("lower", {"priority": 1}),
            ("delayed", {"priority": 2, "delayed_for": 60}),
        ):
            tell.ask(what, Job.add_job, "a", "q", **options)
            tell.job(what, job)

    Job.add_job("a", "q", priority=2)
    tell.work("q", callback)


@worker_story(
    not_copied={
        "hash/higher*": RUNS_TWICE,
        "hash/prepended*": RUNS_TWICE,
        "hash/job_success*": RUNS_TWICE,
        "state/*": RUNS_TWICE,
    }
)
def add_again_while_running_with_higher_priority(tell):
    def callback(job, queue):
        tell.ask("higher", Job.add_job, "a", "q", priority=3)
        tell.job("higher", job)
        tell.ask("prepended", Job.add_job, "a", "q", priority=2, prepend=True)
        tell.job("prepended", job)

    Job.add_job("a", "q", priority=2)
    tell.work("q", callback)


@story
def add_many(tell):
    for number in range(12):
        Job.add_job(f"job {number}", "q", priority=number % 3)
    tell.ask("keys", Queue.get_waiting_keys, "q")
    tell.ask("how many", Queue.count_waiting_jobs, "q")


@story
def add_the_same_twice_by_two_classes(tell):
    tell.ask("a job", Job.add_job, "a", "q")
    tell.ask("told", Told.add_job, "a", "q")
    tell.ask("careful", Careful.add_job, "a", "q")
    tell.ask("told again", Told.add_job, "a", "q", priority=4)


@story
def enqueue_or_delay_by_hand(tell):
    for what, options in (
        ("no date", {}),
        ("in the future", {"delayed_until": FAR}),
        ("in the past", {"delayed_until": an_hour_ago()}),
        ("None", {"delayed_until": None}),
        ("empty", {"delayed_until": ""}),
        ("with a priority", {"priority": 7}),
        ("with priority 0", {"priority": 0}),
        ("another queue model", {"queue_model": Album}),
        ("prepended", {"prepend": True}),
        ("prepended, delayed", {"prepend": True, "delayed_until": FAR}),
    ):
        job = Job(identifier=what, priority=1)
        tell.ask(what, job.enqueue_or_delay, "q", **options)
        tell.job(what, job)
    tell.ask("no queue", Job(identifier="x").enqueue_or_delay)
    tell.ask("the queue of the class", Told(identifier="x").enqueue_or_delay)


@story
def enqueue_or_delay_a_finished_job(tell):
    for status in (STATUSES.SUCCESS, STATUSES.ERROR, STATUSES.CANCELED):
        job = Job(identifier=status, status=status, start="x", end="y", tries=2)
        tell.ask(status, job.enqueue_or_delay, "q", priority=3)
        tell.job(status, job)


@story
def requeue_by_hand(tell):
    for what, args, options in (
        ("same queue", ("q",), {}),
        ("another queue and priority", ("r", 7), {}),
        ("another queue model", ("q",), {"queue_model": Album}),
        ("priority 0", ("q",), {"priority": 0}),
        ("delayed for", ("q",), {"delayed_for": 60}),
        ("delayed until", ("q",), {"delayed_until": FAR}),
        ("delayed until the past", ("q",), {"delayed_until": an_hour_ago()}),
        ("delayed for less than nothing", ("q",), {"delayed_for": -4}),
    ):
        Job.add_job(what, "q", priority=2)
        tell.work("q", fail)
        job = Job.collection(identifier=what).instances()[0]
        tell.ask(what, job.requeue, *args, **options)
        tell.job(what, job)
        job.delete()
    tell.ask("no queue", lambda: Job(identifier="x", status=STATUSES.ERROR).requeue())
    tell.ask("the queue of the class", lambda: Told(identifier="x", status=STATUSES.ERROR).requeue())
    for status in (STATUSES.WAITING, STATUSES.DELAYED, STATUSES.RUNNING, STATUSES.SUCCESS, STATUSES.CANCELED):
        tell.ask(status, lambda status=status: Job(identifier=status, status=status).requeue("q"))


@story(
    not_copied={
        f"{where}/{field}": "Version 2 removes `start` and `end` before it looks at the other arguments."
        for where in ("hash/unchanged", "state/*/jobs:job:1:hash")
        for field in ("start", "end")
    }
)
def requeue_with_bad_arguments(tell):
    Job.add_job("a", "q", priority=2)
    tell.work("q", fail)
    (job,) = Job.collection(identifier="a").instances()
    tell.ask("both delays", job.requeue, "q", delayed_for=1, delayed_until=FAR)
    tell.ask("date as text", job.requeue, "q", delayed_until="2099-01-01")
    tell.job("unchanged", job)


@worker_story
def requeued_by_hand_and_run(tell):
    Told.add_job("a", priority=2)
    tell.work("told", fail)
    (job,) = Told.collection(identifier="a").instances()
    tell.ask("requeue", job.requeue, priority=2)
    tell.work("told")
