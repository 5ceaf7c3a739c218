"""Workers that run jobs: what becomes of them."""

import logging

from limpyd_jobs import STATUSES, Error, Job, Queue

from .models import (
    FAR,
    SOON,
    Careful,
    CodedError,
    Photo,
    SelfAdding,
    Told,
    an_hour_ago,
    fail,
    set_while_running,
    succeed,
    wait_until_due,
)
from .registry import story, worker_story

CLASS_NAMES = "Version 2 does not tell jobs of several classes in one queue apart."
PUT_BACK = "Version 2 says: delayed until None."
BROKEN_LINES = "Version 2 lets an identifier break a line of the log in two."


@worker_story
def run_successfully(tell):
    tell.ask("add", Told.add_job, "a", priority=2)
    tell.work("told")


@worker_story
def run_a_callback(tell):
    tell.ask("add", Job.add_job, "a", "q", priority=2)
    tell.work("q", succeed)


@worker_story
def run_several(tell):
    for name, priority in (("a", 1), ("b", 2), ("c", 1), ("d", 0), ("e", 2)):
        Told.add_job(name, priority=priority)
    tell.work("told", max_loops=4)


@worker_story
def run_several_queues(tell):
    for name, queue, priority in (("a", "x", 1), ("b", "y", 1), ("c", "x", 3), ("d", "y", 3), ("e", "z", 2)):
        Told.add_job(name, queue, priority=priority)
    tell.work(["y", "x", "z"], max_loops=5)


@worker_story(not_copied={"log/INFO": CLASS_NAMES, "log/ERROR": CLASS_NAMES})
def run_two_classes_in_one_queue(tell):
    Told.add_job("a", "q")
    Job.add_job("a", "q")
    Careful.add_job("a", "q")
    Photo.add_job("a", "q", queue_model=Queue, size=7)
    tell.work("q", max_loops=4)


@worker_story
def run_a_job_without_run(tell):
    Job.add_job("a", "q")
    tell.work("q")


@worker_story
def run_prepended_first(tell):
    Told.add_job("a")
    Told.add_job("b", prepend=True)
    tell.work("told", max_loops=2)


@worker_story
def fail_for_good(tell):
    Told.add_job("a", priority=2)
    tell.work("told", fail)
    tell.ask("of the job", lambda: Error.collection_for_job(Told.collection().instances()[0]).instances())


@worker_story
def fail_without_saving_errors(tell):
    Told.add_job("a", priority=2)
    tell.work("told", fail, save_errors=False)


@worker_story
def fail_without_saving_tracebacks(tell):
    Told.add_job("a", priority=2)
    tell.work("told", fail, save_tracebacks=False)


@worker_story
def fail_and_be_delayed(tell):
    Told.add_job("a", priority=2)
    tell.work("told", fail, requeue_times=1)


@worker_story
def fail_and_be_delayed_otherwise(tell):
    Told.add_job("a", priority=2)
    tell.work("told", fail, requeue_times=3, requeue_priority_delta=-4, requeue_delay_delta=3600)


@worker_story(
    not_copied={"hash/requeue_job begins": "Version 2 gives the priority as a text, but only if the delta is 0."}
)
def fail_until_it_stops(tell):
    Told.add_job("a", priority=2)
    options = {"requeue_times": 2, "requeue_priority_delta": 0, "requeue_delay_delta": 0}
    tell.work("told", fail, max_loops=3, **options)


@worker_story
def fail_then_succeed(tell):
    def callback(job, queue):
        return succeed(job, queue) if job.tries.hget() == "2" else fail(job, queue)

    Told.add_job("a", priority=2)
    options = {"requeue_times": 5, "requeue_priority_delta": 3, "requeue_delay_delta": -1}
    tell.work("told", callback, **options)
    tell.work("told", callback, **options)


@worker_story
def fail_with_the_priority_changed(tell):
    def callback(job, queue):
        job.priority.hset(9)
        raise ValueError("it failed")

    Told.add_job("a", priority=2)
    tell.work("told", callback, requeue_times=1)


@worker_story
def fail_when_never_requeued(tell):
    tell.ask("add", Careful.add_job, "a")
    tell.work("careful", fail, requeue_times=3)
    job = Told.add_job("b", cancel_on_error="1")
    tell.say("requeue on error", bool(job.must_be_cancelled_on_error), bool(Careful.always_cancel_on_error))
    tell.work("told", fail, requeue_times=3)


@worker_story
def fail_with_a_code(tell):
    for code in (0, 404, "E1", None):

        def callback(job, queue, code=code):
            raise CodedError("coded", code)

        Told.add_job(f"{code}")
        tell.work("told", callback)
    tell.ask("coded", lambda: sorted(Error.collection(code=404)))


@worker_story
def fail_with_odd_messages(tell):
    for error in (ValueError(), ValueError("two\nlines é 🎈"), KeyError("k"), OSError(2, "no file")):

        def callback(job, queue, error=error):
            raise error

        Told.add_job(repr(error))
        tell.work("told", callback)


@worker_story(not_copied={"log/INFO": BROKEN_LINES, "hash/*_message ends": BROKEN_LINES})
def run_an_identifier_of_two_lines(tell):
    Job.add_job("two\nlines", "q")
    tell.work("q", succeed)


@worker_story
def be_canceled_while_waiting(tell):
    Told.add_job("a", priority=2).status.hset(STATUSES.CANCELED)
    tell.work("told")


@worker_story
def be_found_with_any_status(tell):
    for status in (STATUSES.SUCCESS, STATUSES.ERROR, STATUSES.CANCELED):
        Told.add_job(status).status.hset(status)
    tell.work("told", max_loops=3)


@worker_story
def be_found_with_an_unknown_status(tell):
    Told.add_job("a").status.hset("z")
    tell.work("told")


@worker_story
def be_found_delayed_while_waiting(tell):
    Told.add_job("a", priority=2).status.hset(STATUSES.DELAYED)
    tell.work("told")
    job = Told.add_job("b", priority=2)
    job.status.hset(STATUSES.DELAYED)
    job.delayed_until.hset(str(FAR))
    tell.work("told")


@worker_story
def be_twice_in_a_list(tell):
    job = Told.add_job("a")
    Queue.get_queue("told").waiting.rpush(job.ident)
    tell.work("told", max_loops=2)


@worker_story
def be_canceled_while_running(tell):
    Told.add_job("a", priority=2)
    tell.work("told", set_while_running(STATUSES.CANCELED), requeue_times=1)


@worker_story
def be_delayed_while_running(tell):
    Told.add_job("a", priority=2)
    tell.work("told", set_while_running(STATUSES.DELAYED))


@worker_story
def be_delayed_while_running_until_a_date(tell):
    for name, until in (
        ("a", str(FAR)),
        ("b", "2099-01-01"),
        ("c", "garbage"),
        ("d", ""),
        ("e", "2099-01-01T02:03:04"),
    ):
        Told.add_job(name, priority=2)
        tell.work("told", set_while_running(STATUSES.DELAYED, delayed_until=until))


@worker_story(not_copied={"log/INFO": PUT_BACK, "log/WARNING": PUT_BACK, "hash/job_delayed_message ends": PUT_BACK})
def be_delayed_while_running_until_the_past(tell):
    Told.add_job("a", priority=2)
    tell.work("told", set_while_running(STATUSES.DELAYED, delayed_until=str(an_hour_ago())))
    tell.state("waiting")
    tell.work("told", succeed)


@worker_story
def be_delayed_while_running_with_the_priority_changed(tell):
    Told.add_job("a", priority=2)
    tell.work("told", set_while_running(STATUSES.DELAYED, priority=9))


@worker_story
def be_given_a_final_status_while_running(tell):
    for status in (STATUSES.SUCCESS, STATUSES.ERROR, STATUSES.WAITING):
        Told.add_job(status, priority=2)
        tell.work("told", set_while_running(status))


@worker_story
def be_canceled_while_running_then_fail(tell):
    def callback(job, queue):
        job.status.hset(STATUSES.CANCELED)
        raise ValueError("it failed")

    Told.add_job("a", priority=2)
    tell.work("told", callback)
    Told.add_job("a", priority=2)
    tell.work("told", callback, requeue_times=1)


@worker_story
def change_tries_while_running(tell):
    Told.add_job("a", priority=2)
    tell.work("told", set_while_running(tries=7))
    Told.add_job("b", priority=2, tries=4)
    tell.work("told", fail, requeue_times=4)


@worker_story
def delayed_jobs_are_run_when_due(tell):
    Told.add_job("a", priority=2, delayed_for=SOON)
    wait_until_due(Queue.get_queue("told", 2))
    tell.work("told")


@worker_story
def delayed_jobs_canceled_before_are_skipped(tell):
    Told.add_job("a", priority=2, delayed_for=SOON).status.hset(STATUSES.CANCELED)
    wait_until_due(Queue.get_queue("told", 2))
    tell.work("told")


@worker_story
def jobs_that_cannot_be_had_do_not_stop_a_worker(tell):
    deleted = Job.add_job("deleted", "q")
    Job.add_job("good", "q")
    deleted.delete()
    tell.work("q", succeed)


@worker_story(not_copied={"log/ERROR": "Version 2 logs a second traceback of the same exception."})
def delete_a_job_while_it_runs(tell):
    def callback(job, queue):
        job.delete()

    Job.add_job("a", "q")
    Job.add_job("b", "q")
    worker = tell.work("q", callback)
    tell.ask("the next", worker.count_waiting_jobs)


@worker_story
def add_a_copy_of_itself(tell):
    SelfAdding.add_job("a", priority=1)
    tell.work("again", max_loops=2)


@worker_story
def add_another_while_running(tell):
    def callback(job, queue):
        if job.identifier.hget() == "a":
            tell.ask("added", Told.add_job, "b", priority=2, prepend=True)

    Told.add_job("a", priority=2)
    Told.add_job("c", priority=2)
    tell.work("told", callback, max_loops=2)


@worker_story(not_copied={"log/WARNING": "Version 2 does not say where it looked, and what is there."})
def wait_for_the_first_queue(tell):
    class Early(tell.worker_class):
        def update_keys(self):
            super().update_keys()
            if not self.keys:
                Told.add_job("a")

    tell.work("told", worker_class=Early)


@worker_story
def run_a_job_of_a_new_priority(tell):
    def callback(job, queue):
        if job.identifier.hget() == "a":
            tell.ask("added", Told.add_job, "b", priority=9)

    Told.add_job("a", priority=2)
    tell.work("told", callback, max_loops=2)


@story
def log_elsewhere(tell):
    Told.add_job("a")
    tell.work("told", fail, logger_name="limpyd-jobs.told", logger_level=logging.WARNING)


UNKNOWN_CLASS = "Version 2 loses a job whose class it does not know."


@story(not_copied={"log/ERROR": UNKNOWN_CLASS, "log/WARNING": UNKNOWN_CLASS, "state/*:delayed/*": UNKNOWN_CLASS})
def jobs_of_unknown_classes_do_not_stop_a_worker(tell):
    queue = Queue.get_queue("told")
    queue.waiting.rpush("nowhere_at_all.Job:1", "garbage", "stories.models.Nothing:1")
    Told.add_job("a")
    tell.work("told")
