"""Queues, and the delayed jobs in them."""

from datetime import timedelta

import teller

from limpyd_jobs import STATUSES, Job, Queue, Worker

from .models import FAR, SOON, Album, Told, succeed, wait_until_due
from .registry import story


@story
def get_queues(tell):
    tell.ask("new", Queue.get_queue, "a")
    tell.ask("again", Queue.get_queue, "a", 0)
    tell.ask("as text", Queue.get_queue, "a", "0")
    for name, priority in (("b", 1), ("a", 3), ("b", 3), ("a", 1), ("b", 10), ("a", -2)):
        tell.ask("new", Queue.get_queue, name, priority)
    for finder in (Queue.get_all, Queue.get_all_by_priority, Queue.get_waiting_keys):
        tell.ask("of a name", lambda finder=finder: sorted(map(str, map(teller.plain, finder("a")))))
        tell.ask("of no queue", finder, "nothing")
        tell.ask("of no name", finder, [])
    tell.ask("by priority", Queue.get_all_by_priority, "a")
    tell.ask("by priority", Queue.get_all_by_priority, ["b", "a"])
    tell.ask("by priority", Queue.get_all_by_priority, ("a", "b"))
    tell.ask("keys", Queue.get_waiting_keys, ["b", "a"])
    tell.ask("one name with a comma", Queue.get_all, "a,b")
    tell.ask("names", Queue._get_iterable_for_names, "a")
    tell.ask("names", Queue._get_iterable_for_names, ["a", "b"])


@story
def get_queues_with_fields(tell):
    options = {"curator": "eve", "tags": {"x", "y"}, "visits": ["1", "2"], "settings": {"a": "b"}}
    tell.ask("new", Album.get_queue, "photos", 2, **options)
    tell.ask("existing", Album.get_queue, "photos", 2, curator="adam", tags={"z"})
    tell.ask("unlike the base", Queue.get_queue, "photos", 2)
    tell.ask("found", lambda: Album.collection(curator="eve", tags="x").instances())


@story
def count_jobs(tell):
    for name, queue, options in (
        ("a", "q", {}),
        ("b", "q", {"priority": 3}),
        ("c", "r", {}),
        ("d", "q", {"delayed_for": 60}),
        ("e", "r", {"delayed_for": 60, "priority": 2}),
    ):
        Job.add_job(name, queue, **options)
    for queues in ("q", "r", ["q", "r"], ("q",), "nothing", []):
        tell.ask(f"waiting in {queues}", Queue.count_waiting_jobs, queues)
        tell.ask(f"delayed in {queues}", Queue.count_delayed_jobs, queues)
    worker = Worker(queues="q,r")
    tell.say("of a worker", worker.count_waiting_jobs(), worker.count_delayed_jobs(), worker.keys)
    worker.update_keys()
    tell.say("keys", worker.keys)


@story
def put_jobs_in_queues_by_hand(tell):
    queue, job = Queue.get_queue("q", 4), Job(identifier="a")
    tell.ask("enqueue", queue.enqueue_job, job)
    tell.ask("enqueue first", queue.enqueue_job, Job(identifier="b"), prepend=True)
    tell.ask("delay", queue.delay_job, job, FAR)
    tell.ask("delay by name", queue.delay_job, job=job, delayed_until=FAR + timedelta(days=1))


@story
def delayed_jobs_become_due(tell):
    Job.add_job("now", "q", priority=3, delayed_for=SOON)
    Job.add_job("later", "q", priority=3, delayed_for=60)
    queue = Queue.get_queue("q", 3)
    wait_until_due(queue)
    tell.ask("requeue", queue.requeue_delayed_jobs)
    tell.state("one is waiting")
    tell.ask("again", queue.requeue_delayed_jobs)
    tell.ask("none", Queue.get_queue("q", 9).requeue_delayed_jobs)


@story
def delayed_jobs_of_other_statuses_become_due(tell):
    for status in (STATUSES.CANCELED, STATUSES.SUCCESS, STATUSES.ERROR, STATUSES.WAITING):
        Told.add_job(status, "q", delayed_for=SOON).status.hset(status)
    queue = Queue.get_queue("q", 0)
    wait_until_due(queue, jobs=4)
    tell.ask("requeue", queue.requeue_delayed_jobs)
    tell.state("all are waiting")
    tell.work("q", succeed, max_loops=4)


@story
def delayed_jobs_that_cannot_run_become_due(tell):
    Job.add_job("good", "q", delayed_for=SOON)
    deleted = Job.add_job("deleted", "q", delayed_for=SOON)
    queue = Queue.get_queue("q", 0)
    wait_until_due(queue, jobs=2)
    queue.delayed.zadd({"garbage": 1, deleted.ident + "9": 2})
    deleted.delete()
    failures = queue.requeue_delayed_jobs()
    tell.say("failures", sorted(ident for ident, _ in failures), {type(message).__name__ for _, message in failures})
    tell.work("q", succeed)


@story
def delayed_jobs_of_a_locked_queue_stay(tell):
    Job.add_job("a", "q", delayed_for=SOON)
    queue = Queue.get_queue("q", 0)
    wait_until_due(queue)
    tell.client.set(queue.make_key("jobs", "queue", queue.pk.get(), "requeue_all_delayed_ready_jobs"), "x")
    tell.ask("locked", queue.requeue_delayed_jobs)
