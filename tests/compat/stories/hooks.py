"""Workers and jobs with hooks of their own, and what a worker is."""

import os
import signal

import teller

from limpyd_jobs import STATUSES, Job, Queue, Worker

from .models import FAR, SOON, Told, fail, set_while_running, succeed, wait_until_due
from .registry import story, worker_story

OWN_WORDS = "What version 2 logs at a signal depends on its `timeout`, and it has a line for a second signal."
LOST = "Version 2 loses the job that was taken from the list."
BLOCKED = "Version 2 leaves the identifier of a failed job blocked."


def worker_with(base, **hooks):
    return type("WorkerWithHooks", (base,), hooks)


def raising(name):
    def hook(self, *args, **kwargs):
        teller.current.say("raising in", name)
        raise RuntimeError(f"in {name}")

    return hook


def raising_after(name):
    def hook(self, *args, **kwargs):
        getattr(Worker, name)(self, *args, **kwargs)
        raise RuntimeError(f"after {name}")

    return hook


@story(not_copied={"state/on_error/jobs:job:1:hash/queued": BLOCKED, "state/on_error/jobs:job:queued:1/1": BLOCKED})
def raise_in_hooks_of_jobs(tell):
    for name, callback, status in (
        ("on_started", succeed, None),
        ("on_success", succeed, None),
        ("on_error", fail, None),
        ("on_requeued", fail, None),
        ("on_skipped", succeed, STATUSES.CANCELED),
        ("on_delayed", succeed, STATUSES.DELAYED),
    ):
        tell.client.flushdb()
        setattr(Job, name, raising(name))
        try:
            job = Job.add_job(name, "q", priority=2)
            if status:
                job.status.hset(status)
            tell.work("q", callback, requeue_times=1)
        finally:
            delattr(Job, name)
        tell.state(name)


@story
def raise_after_hooks_of_workers(tell):
    for name, callback, status in (
        ("job_started", succeed, None),
        ("job_success", succeed, None),
        ("job_error", fail, None),
        ("requeue_job", fail, None),
        ("job_skipped", succeed, STATUSES.CANCELED),
        ("job_delayed", succeed, STATUSES.DELAYED),
    ):
        tell.client.flushdb()
        job = Job.add_job(name, "q", priority=2)
        if status:
            job.status.hset(status)
        worker_class = worker_with(Worker, **{name: raising_after(name)})
        tell.work("q", callback, worker_class, requeue_times=1)
        tell.state(name)


@story
def other_messages(tell):
    def message(name):
        return lambda self, *args, **kwargs: getattr(Worker, name)(self, *args, **kwargs) + f" and {name}"

    messages = ("job_started", "job_success", "job_error", "job_requeue", "job_skipped", "job_delayed")
    worker_class = worker_with(Worker, **{f"{name}_message": message(f"{name}_message") for name in messages})
    for what, callback in (
        ("succeeds", succeed),
        ("fails", fail),
        ("delays itself", set_while_running(STATUSES.DELAYED, delayed_until=str(FAR))),
        ("cancels itself", set_while_running(STATUSES.CANCELED)),
    ):
        Job.add_job(what, "q")
        tell.work("q", callback, worker_class, requeue_times=1)


class LoopingWorker(Worker):
    """Says each call of the methods of the loop."""

    def run_started(self):
        teller.current.say("run_started", self.status, self.num_loops, len(self.keys))
        super().run_started()

    def run_ended(self):
        teller.current.say("run_ended", self.status, self.num_loops, self.end_date is not None)
        super().run_ended()

    def wait_for_job(self):
        teller.current.say("wait_for_job", self.status)
        answer = super().wait_for_job()
        teller.current.say("waited", answer)
        return answer

    def get_job(self, job_ident):
        job = super().get_job(job_ident)
        teller.current.say("get_job", job_ident, job)
        return job

    def get_queue(self, queue_redis_key):
        queue = super().get_queue(queue_redis_key)
        teller.current.say("get_queue", queue_redis_key, queue)
        return queue

    def execute(self, job, queue):
        teller.current.say("execute", self.status, self.num_loops)
        return super().execute(job, queue)

    def catch_end_signal(self, signum, frame):
        teller.current.say("catch_end_signal", signum)
        super().catch_end_signal(signum, frame)

    def handle_end_signal(self):
        teller.current.say("handle_end_signal")
        super().handle_end_signal()

    def stop_handling_end_signal(self):
        teller.current.say("stop_handling_end_signal")
        super().stop_handling_end_signal()


@story
def methods_of_the_loop(tell):
    Told.add_job("a", priority=2)
    Told.add_job("b", priority=2)
    tell.work("told", worker_class=LoopingWorker, max_loops=2)


@story
def wait_in_vain(tell):
    class Impatient(LoopingWorker):
        def wait_for_job(self):
            answer = super().wait_for_job()
            self.end_forced = True
            return answer

    Queue.get_queue("told", 2)
    tell.work("told", worker_class=Impatient)


@story
def wait_for_jobs_of_ones_own(tell):
    class Own(Worker):
        def wait_for_job(self):
            queue = Queue.get_queue("told", 2)
            return queue, Told.get_from_ident(queue.waiting.lpop())

    Told.add_job("a", priority=2)
    Told.add_job("b", priority=2).status.hset(STATUSES.CANCELED)
    Told.add_job("c", priority=2)
    tell.work("told", worker_class=Own, max_loops=3)


@story(not_copied={"state/*told:2:*": LOST, "state/*/2": LOST, "state/*:told@2:delayed/*": LOST})
def get_another_job(tell):
    class Another(Worker):
        def get_job(self, job_ident):
            teller.current.say("asked for", job_ident)
            return other

    other = Told.add_job("other", "elsewhere")
    Told.add_job("a", priority=2)
    tell.work("told", worker_class=Another)


@story
def find_keys_of_ones_own(tell):
    class Reversing(Worker):
        def update_keys(self):
            super().update_keys()
            self.keys = self.keys[::-1]

    for priority in (1, 3, 2):
        Told.add_job(f"{priority}", priority=priority)
    worker = tell.work("told", worker_class=Reversing, max_loops=3)
    tell.say("keys", worker.keys)


@story
def raise_while_waiting(tell):
    class Unlucky(Worker):
        waited = 0

        def wait_for_job(self):
            self.waited += 1
            if self.waited == 1:
                raise RuntimeError("no luck")
            return super().wait_for_job()

    Told.add_job("a")
    tell.work("told", worker_class=Unlucky)


def end_after(loops):
    """Return a worker class whose run ends after so many jobs whatever its limits are."""

    class Ending(Worker):
        def set_status(self, status):
            super().set_status(status)
            self.end_forced = self.num_loops >= loops

    return Ending


@story
def run_no_job(tell):
    Told.add_job("a")
    tell.work("told", worker_class=end_after(2), max_loops=0)


@story
def run_without_limit_of_time(tell):
    for name in "abc":
        Told.add_job(name)
    tell.work("told", worker_class=end_after(2), max_loops=10, max_duration=0)


@story
def run_for_a_while(tell):
    Told.add_job("a")
    worker = tell.work("told", max_loops=10, max_duration=1)
    tell.say("end", worker.end_date >= worker.wanted_end_date)


@story
def stop_from_a_hook(tell):
    class Stopping(Worker):
        def job_success(self, job, queue, job_result):
            super().job_success(job, queue, job_result)
            self.end_forced = True

    for name in "abc":
        Told.add_job(name)
    tell.work("told", worker_class=Stopping, max_loops=3)


@story
def stop_by_must_stop(tell):
    class Stopping(Worker):
        def must_stop(self):
            return super().must_stop() or self.num_loops >= 2

    for name in "abc":
        Told.add_job(name)
    tell.work("told", worker_class=Stopping, max_loops=10)


@worker_story(not_copied={"log/CRITICAL": OWN_WORDS, "log/INFO": OWN_WORDS})
def stop_at_a_signal(tell):
    def callback(job, queue):
        os.kill(os.getpid(), signal.SIGTERM)
        os.kill(os.getpid(), signal.SIGINT)
        return "still done"

    Told.add_job("a")
    Told.add_job("b")
    worker = tell.work("told", callback, max_loops=5)
    tell.say("caught", worker.end_signal_caught)


@story
def read_a_worker(tell):
    worker = Worker(queues="a,b", timeout=3)
    for name in (
        *("queues", "keys", "status", "num_loops", "end_forced", "end_signal_caught", "start_date", "end_date"),
        *("wanted_end_date", "elapsed", "logger_name", "logger_level", "save_errors", "save_tracebacks"),
        *("max_loops", "max_duration", "terminate_gracefuly", "timeout", "fetch_priorities_delay"),
        *("fetch_delayed_delay", "requeue_times", "requeue_priority_delta", "requeue_delay_delta"),
    ):
        tell.ask(name, getattr, worker, name)
    tell.say("id", len(worker.id), worker.id.isdigit(), worker.id == worker.id)
    tell.say("must stop", worker.must_stop())
    tell.ask("status", worker.set_status, "other")
    tell.say("status", worker.status)
    tell.ask("log", worker.log, "a message")
    tell.ask("log", worker.log, "a warning", level="warning")
    Told.add_job("a", "a")
    worker = tell.work("a", max_duration=60)
    tell.say("dates", worker.end_date - worker.start_date == worker.elapsed)
    tell.say("dates", worker.wanted_end_date - worker.start_date)
    tell.ask("run again", worker.run)
    for queues in (None, "", [], 1, {"a"}):
        tell.ask(f"queues {queues}", Worker, queues)
    tell.ask("queue model", Worker, "a", queue_model=Job)
    tell.ask("error model", Worker, "a", error_model=Queue)
    for queues in ("a", "a,b", ["a", "b"], ("a", "b")):
        tell.ask("queues", lambda queues=queues: list(Worker(queues).queues))


@story
def requeue_delayed_jobs_of_a_worker(tell):
    Told.add_job("a", priority=1, delayed_for=SOON)
    Told.add_job("b", priority=2, delayed_for=SOON)
    Told.add_job("c", priority=2, delayed_for=60)
    wait_until_due(Queue.get_queue("told", 1))
    wait_until_due(Queue.get_queue("told", 2))
    worker = Worker(queues="told")
    worker.update_keys()
    tell.ask("requeue", worker.requeue_delayed_jobs)


@worker_story
def do_work_around_success(tell):
    def job_success(self, job, queue, job_result):
        tell.say("before", job.hmget("status", "queued", "tries"), job.start.hget() is not None, job.end.hget())
        tell.say("cached", job._cached_identifier, job._cached_status, queue._cached_name)
        super(worker_class, self).job_success(job, queue, job_result)
        tell.say("after", job.hmget("status", "queued", "tries"), job.end.hget() is not None, job.duration is not None)
        tell.say("where", queue.success.lmembers(), queue.waiting.lmembers())
        job.status.hset(STATUSES.SUCCESS)

    worker_class = worker_with(tell.worker_class, job_success=job_success)
    Told.add_job("a", priority=2)
    Told.add_job("b", priority=2)
    tell.work("told", worker_class=worker_class, max_loops=2)


CLAIMED_AT_ONCE = "A job is running from the very moment when it is taken from its list."


@story(not_copied={"log/INFO": CLAIMED_AT_ONCE, "hash/run/*": CLAIMED_AT_ONCE, "state/*": CLAIMED_AT_ONCE})
def job_started_without_super(tell):
    Job.add_job("a", "q", priority=2)
    tell.work("q", succeed, worker_with(Worker, job_started=lambda self, job, queue: None))


@story(
    not_copied={
        "state/requeue_job/jobs:job:1:hash/queued": BLOCKED,
        "state/requeue_job/jobs:job:queued:1/1": BLOCKED,
    }
)
def hooks_without_super(tell):
    for name, callback, status in (
        ("job_success", succeed, None),
        ("job_error", fail, None),
        ("requeue_job", fail, None),
        ("job_skipped", succeed, STATUSES.CANCELED),
        ("job_delayed", succeed, STATUSES.DELAYED),
    ):
        tell.client.flushdb()
        job = Job.add_job(name, "q", priority=2)
        if status:
            job.status.hset(status)

        def hook(self, *args, name=name, **kwargs):
            tell.say("instead of", name)

        tell.work("q", callback, worker_with(Worker, **{name: hook}), requeue_times=1)
        tell.state(name)


class OwnQueue(Queue):
    """A queue that says how it is used."""

    namespace = "stories"

    @classmethod
    def get_queue(cls, name, priority=0, **fields_if_new):
        queue = super().get_queue(name, priority, **fields_if_new)
        teller.current.say("get_queue", name, str(priority))
        return queue

    def enqueue_job(self, job, prepend=False):
        teller.current.job("enqueue_job", job, prepend)
        super().enqueue_job(job, prepend)

    def delay_job(self, job, delayed_until):
        teller.current.job("delay_job", job, delayed_until)
        super().delay_job(job, delayed_until)

    def requeue_delayed_jobs(self):
        failures = super().requeue_delayed_jobs()
        teller.current.say("requeue_delayed_jobs", failures)
        return failures


class OwnQueueWorker(Worker):
    """A worker of such queues."""

    queue_model = OwnQueue


class QueuedOwnWay(Job):
    """A job in queues that have their own ways."""

    namespace = "stories"
    queue_model = OwnQueue
    queue_name = "own"


class QueuedItself(Job):
    """A job that says how it is put in queues."""

    namespace = "stories"
    queue_name = "own"

    def enqueue_or_delay(self, queue_name=None, priority=None, delayed_until=None, prepend=False, queue_model=None):
        teller.current.say("enqueue_or_delay", queue_name, delayed_until, prepend)
        super().enqueue_or_delay(queue_name, priority, delayed_until, prepend, queue_model)

    def requeue(self, queue_name=None, priority=None, delayed_for=None, delayed_until=None, queue_model=None):
        teller.current.say("requeue", queue_name, str(priority), delayed_for, delayed_until)
        super().requeue(queue_name, priority, delayed_for, delayed_until, queue_model)


def live_in_a_queue(tell, job_class, worker_class):
    """Let a job be added, moved up, delayed, woken, run, put back, canceled."""
    job = tell.ask("add", job_class.add_job, "a", priority=2)
    tell.ask("again", job_class.add_job, "a", priority=2)
    tell.ask("higher", job_class.add_job, "a", priority=3, prepend=True)
    tell.work("own", set_while_running(STATUSES.DELAYED, delayed_until=str(FAR)), worker_class)
    tell.job("delayed", job)
    queue = job_class.queue_model.get_queue("own", 3)
    queue.delayed.zadd({job.ident: 1})
    tell.work("own", fail, worker_class, requeue_times=1)
    tell.job("requeued", job)
    tell.ask("delayed", job_class.add_job, "b", priority=2, delayed_until=FAR)
    tell.ask("by hand", job.enqueue_or_delay, "own", 4)
    tell.work("own", succeed, worker_class)


@story(
    not_copied={
        "said/get_queue": "Version 2 gets the queue that a job leaves, too.",
    }
)
def queues_with_their_own_ways(tell):
    live_in_a_queue(tell, QueuedOwnWay, OwnQueueWorker)


@story
def jobs_with_their_own_ways_to_queues(tell):
    live_in_a_queue(tell, QueuedItself, Worker)
