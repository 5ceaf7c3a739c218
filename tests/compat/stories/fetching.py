"""Workers that have their own ways to get a job."""

from limpyd_jobs import STATUSES, Job, Queue, Worker

from .hooks import worker_with
from .models import FAR, Told, succeed
from .registry import story


def delay(queue, job):
    job.enqueue_or_delay("told", delayed_until=FAR)


def delay_with_a_priority(queue, job):
    job.enqueue_or_delay("told", 5, FAR)


def delay_by_fields(queue, job):
    job.status.hset(STATUSES.DELAYED)
    job.delayed_until.hset(str(FAR))
    queue.delay_job(job, FAR)


def requeue(queue, job):
    job.enqueue_or_delay("told")


def requeue_with_a_priority(queue, job):
    job.enqueue_or_delay("told", priority=5)


def requeue_elsewhere(queue, job):
    job.enqueue_or_delay("elsewhere")


def requeue_by_the_queue(queue, job):
    queue.enqueue_job(job)


def requeue_in_front_by_the_queue(queue, job):
    queue.enqueue_job(job, prepend=True)


def push(queue, job):
    queue.waiting.rpush(job.ident)


def tell_of_a_worker_that_puts_jobs_off(tell, way):
    """Let a worker put a job off before it returns it, and then a plain worker run what there is."""

    class Choosy(Worker):
        def wait_for_job(self):
            found = super().wait_for_job()
            if found and found[1].identifier.hget() == "a":
                tell.say("deferred", found[1])
                way(*found)
                self.end_forced = True
                return None
            return found

    job = Told.add_job("a", priority=2)
    tell.work("told", worker_class=Choosy, max_loops=3)
    Told.add_job("b", priority=2)
    tell.state("deferred")
    for queue in Queue.get_all("told"):
        if queue.delayed.zcard():
            queue.delayed.zadd({job.ident: 1})
    tell.work(["told", "elsewhere"], max_loops=2)


for way in (
    *(delay, delay_with_a_priority, delay_by_fields, requeue, requeue_with_a_priority, requeue_elsewhere),
    *(requeue_by_the_queue, requeue_in_front_by_the_queue, push),
):

    def told(tell, way=way):
        tell_of_a_worker_that_puts_jobs_off(tell, way)

    told.__name__ = f"{way.__name__}_while_waiting"
    story(told)


LOST = "Version 2 loses the job that was taken from the list."
OWN_WORDS = "We say what is wrong."
UNKNOWN_CLASS = "Version 2 loses a job whose class it does not know."


@story(not_copied={"log/ERROR": OWN_WORDS, "state/*": LOST})
def return_what_has_no_job(tell):
    for name, answer in (("job", lambda queue, job: (queue, None)), ("both", lambda queue, job: (None, None))):

        class Odd(Worker):
            def wait_for_job(self, answer=answer):
                found = super().wait_for_job()
                self.end_forced = True
                return answer(*found)

        Told.add_job(name)
        tell.ask("work", tell.work, "told", worker_class=Odd, max_loops=3)


def getting(tell, name, answers):
    """Return a worker class that says what `get_job` or `get_queue` is asked for, and answers to some of it."""

    def get(self, asked):
        tell.say(name, asked)
        answer = answers.get(asked)
        if isinstance(answer, Exception):
            raise answer
        return answer or getattr(Worker, name)(self, asked)

    return worker_with(Worker, **{name: get})


DELETED, UNKNOWN = "limpyd_jobs.models.Job:1", "nowhere_at_all.Job:1"


@story(not_copied={"log/*": OWN_WORDS, "state/*:delayed/*": UNKNOWN_CLASS})
def get_jobs_that_are_not_there(tell):
    deleted = Job.add_job("deleted", "q")
    queue = Queue.get_queue("q")
    Job.add_job("good", "q")
    queue.waiting.rpush(UNKNOWN, "garbage", "stories.models.Nothing:1")
    deleted.delete()
    Job.add_job("last", "q")
    tell.work("q", succeed, getting(tell, "get_job", {}), max_loops=2)


@story
def get_other_jobs_for_those_that_are_not_there(tell):
    deleted = Job.add_job("deleted", "q")
    others = [Job.add_job(f"other {number}", "elsewhere") for number in range(3)]
    Queue.get_queue("q").waiting.rpush(UNKNOWN, "garbage")
    deleted.delete()
    answers = {DELETED: others[0], UNKNOWN: others[1], "garbage": others[2]}
    tell.work("q", succeed, getting(tell, "get_job", answers), max_loops=3)


@story(not_copied={"log/*": OWN_WORDS, "state/*:delayed/*": UNKNOWN_CLASS})
def raise_for_jobs_that_are_not_there(tell):
    deleted = Job.add_job("deleted", "q")
    Queue.get_queue("q").waiting.rpush(UNKNOWN, "garbage")
    deleted.delete()
    answers = {ident: RuntimeError(f"no {ident}") for ident in (DELETED, UNKNOWN, "garbage")}
    Job.add_job("last", "q")
    tell.work("q", succeed, getting(tell, "get_job", answers))


@story(not_copied={"log/*": OWN_WORDS, "state/*:delayed/*": UNKNOWN_CLASS})
def get_queues_for_jobs_that_are_not_there(tell):
    deleted = Job.add_job("deleted", "q")
    Queue.get_queue("q").waiting.rpush(UNKNOWN, "garbage")
    deleted.delete()
    Job.add_job("last", "q")
    tell.work("q", succeed, getting(tell, "get_queue", {}))
