"""What the application relies on: each function is run with both versions, on an empty Redis."""

import json
import logging
import os
import sys
import threading
from datetime import datetime, timedelta

import redis
from limpyd.contrib.database import PipelineDatabase

from limpyd_jobs import STATUSES, Job, Queue
from limpyd_jobs.models import BaseJobsModel

from . import workers
from .jobs import (
    CLASSES,
    AppError,
    AppQueue,
    BaseJob,
    Broken,
    Canceling,
    Fetch,
    Limited,
    Repeat,
    Repository,
    RepositoryJob,
)
from .workers import AppWorker, AppWorkerConfig


class Log(logging.Handler):
    """Keeps the messages."""

    def __init__(self):
        super().__init__()
        self.messages = []

    def emit(self, record):
        self.messages.append(record.getMessage())


def work(queues, **options):
    """Let a worker of the application run one job, or `max_loops`; return it with its log."""
    log = Log()
    logger = logging.getLogger("limpyd-jobs")
    logger.handlers, logger.propagate = [log], False
    worker = AppWorker(queues, **{"max_loops": 1, **options})
    worker.run()
    return worker, log.messages


def check_abstract_bases_with_fields_in_a_namespace():
    job = Fetch.add_job("r", gh="secret", force=1)
    assert (BaseJob.abstract, RepositoryJob.abstract, Fetch.abstract) == (True, True, False)
    assert job.ident == "application.jobs.Fetch:1"
    assert job.get_field("status").key == "app:fetch:1:hash"
    assert job.gh_args.hgetall() == {"token": "secret"}
    assert list(Fetch.collection(force=1)) == ["1"]
    assert list(Repeat.collection()) == []
    assert AppQueue.get_queue("fetch", 0).waiting.lmembers() == [job.ident]
    assert Queue.get_all("fetch") == []


def check_a_metaclass_of_ones_own():
    assert CLASSES["fetch"] is Fetch
    assert set(CLASSES) == {"fetch", "repeat", "limited", "broken", "canceling"}
    assert type(Fetch) is type(BaseJob) is not type(Job)


def check_plain_attributes_and_properties_of_jobs():
    Fetch.add_job("r", gh="secret")
    _, messages = work("fetch")
    assert any("Fetch of r with secret" in message for message in messages)
    job = Fetch.get(1)
    assert job.gh is None
    job.gh = job.anything = "set"
    assert (job.gh, job.anything, job.label) == ("set", "set", "Fetch of r")


def check_add_job_that_translates_its_arguments():
    job = Fetch.add_job(Repository(12), priority=3, gh="secret")
    assert job.identifier.hget() == "12"
    assert Fetch.add_job(Repository(12), gh="other").pk.get() == job.pk.get()
    assert job.gh_args.hgetall() == {"token": "secret"}


def check_fields_given_as_dicts_and_lists():
    job = Fetch.add_job("r", gh_args={"a": "b", "c": 1}, steps=["x", "y"])
    assert job.gh_args.hgetall() == {"a": "b", "c": "1"}
    assert job.steps.lmembers() == ["x", "y"]


def check_a_job_that_adds_a_copy_of_itself_on_success():
    Repeat.add_job("r", priority=2, steps=["x"], gh="secret")
    work("repeat")
    first, copy = Repeat.get(1), Repeat.get(2)
    assert (first.status.hget(), first.queued.hget()) == (STATUSES.SUCCESS, None)
    assert (copy.status.hget(), copy.queued.hget(), copy.priority.hget()) == (STATUSES.DELAYED, "1", "2")
    assert (copy.steps.lmembers(), copy.gh_args.hgetall()) == (["x"], {"token": "secret"})
    assert list(Repeat.collection(identifier="r", queued=1)) == ["2"]


def check_the_order_of_keys_of_the_queue_model():
    for name, priority in (("fetch", 1), ("repeat", 9), ("fetch", 5), ("repeat", 2)):
        AppQueue.get_queue(name, priority)
    expected = [AppQueue.get_queue(*queue) for queue in (("fetch", 5), ("fetch", 1), ("repeat", 9), ("repeat", 2))]
    assert AppQueue.get_waiting_keys(["fetch", "repeat"]) == [queue.waiting.key for queue in expected]
    Repeat.add_job("first by priority", priority=9)
    Fetch.add_job("first by name", priority=1)
    worker, _ = work("fetch,repeat")
    assert worker.keys == [queue.waiting.key for queue in expected]
    assert Fetch.get(1).status.hget() == STATUSES.SUCCESS
    assert Repeat.get(1).status.hget() == STATUSES.WAITING


def check_a_job_that_execute_delays():
    job = Limited.add_job("r", priority=2)
    _, messages = work("limited")
    assert (job.status.hget(), job.queued.hget(), job.tries.hget()) == (STATUSES.DELAYED, "1", "0")
    assert job.end.hget() is None
    queue = AppQueue.get_queue("limited", 2)
    ident, moment = queue.first_delayed
    until = datetime.fromisoformat(job.delayed_until.hget())
    assert ident == job.ident
    assert abs((until - datetime(1970, 1, 1)).total_seconds() - moment) < 0.001
    assert timedelta(seconds=500) < until - datetime.utcnow() <= timedelta(seconds=600)
    assert any("job delayed until" in message for message in messages)
    assert AppError.collection().instances() == []

    queue.delayed.zadd({job.ident: 1})
    work("limited")
    assert (job.status.hget(), job.tries.hget()) == (STATUSES.SUCCESS, "1")


def check_additional_error_fields_that_end_the_worker():
    job = Broken.add_job("r")
    Broken.add_job("s")
    worker, messages = work("broken", max_loops=10)
    assert (worker.num_loops, worker.end_forced, worker.status) == (1, True, "terminated")
    (error,) = AppError.collection(repository="r").instances()
    assert error.headers.hgetall() == {"retry": "10"}
    assert (job.status.hget(), job.queued.hget(), job.tries.hget()) == (STATUSES.DELAYED, "1", "1")
    assert any(message.endswith("the remote side is down [requeued]") for message in messages)
    assert AppQueue.get_queue("broken", 0).waiting.llen() == 1


def check_a_job_that_is_requeued_a_thousand_times():
    job = Broken.add_job("r", tries=998)
    for tries, status in ((999, STATUSES.WAITING), (1000, STATUSES.WAITING), (1001, STATUSES.ERROR)):
        work("broken", requeue_delay_delta=0)
        assert (job.tries.hget(), job.status.hget()) == (str(tries), status)


def check_a_message_that_appends_to_that_of_the_base():
    Fetch.add_job("r", gh="secret")
    _, messages = work("fetch")
    (message,) = (message for message in messages if "success" in message)
    assert "[fetch|1|r] success, in 0:00:0" in message
    assert message.endswith(", with Fetch of r with secret")


def check_a_job_that_cancels_itself():
    job = Canceling.add_job("r")
    _, messages = work("canceling")
    assert (job.status.hget(), job.queued.hget(), job.end.hget()) == (STATUSES.CANCELED, None, None)
    assert any(message.endswith("job skipped (current status: CANCELED)") for message in messages)


def check_errors_that_find_their_job():
    job = Broken.add_job("r")
    work("broken")
    (error,) = AppError.collection(identifier="r", type="ConnectionError").instances()
    assert type(error.get_job()) is Broken
    assert error.get_job().pk.get() == job.pk.get()
    assert list(AppError.collection_for_job(job)) == [error.pk.get()]
    assert list(AppError.collection(date_time__date=str(error.datetime.date()))) == [error.pk.get()]


def check_a_configuration_that_sets_a_framework_up_first():
    Fetch.add_job("r", gh="secret")
    config = AppWorkerConfig(
        ["worker", "--worker-class=application.workers.AppWorker", "--queues=fetch", "--max-loops=1", "--no-title"]
    )
    assert workers.set_up == ["framework"]
    config.execute()
    assert Fetch.get(1).status.hget() == STATUSES.SUCCESS
    assert type(config.worker) is AppWorker


def check_a_configuration_named_on_the_command_line():
    from limpyd_jobs.scripts.worker import main

    Fetch.add_job("r", gh="secret")
    sys.argv = ["limpyd-jobs-worker", "--worker-config=application.workers.AppWorkerConfig", "--queues=fetch"]
    sys.argv += ["--worker-class=application.workers.AppWorker", "--max-loops=1", "--no-title"]
    sys.argv += ["--queue-model=application.jobs.AppQueue", "--error-model=application.jobs.AppError"]
    main()
    assert workers.set_up == ["framework"]
    assert Fetch.get(1).status.hget() == STATUSES.SUCCESS


def check_a_database_per_thread():
    settings = BaseJobsModel.database.connection_settings
    outcome = []

    def in_a_thread():
        try:
            BaseJobsModel.use_database(PipelineDatabase(**settings))
            Fetch.add_job("in a thread", gh="secret")
            AppWorker("fetch", max_loops=1, terminate_gracefuly=False).run()
            outcome.append(Fetch.get(1).status.hget())
        except BaseException as error:
            outcome.append(error)

    thread = threading.Thread(target=in_a_thread)
    thread.start()
    thread.join()
    assert outcome == [STATUSES.SUCCESS], outcome
    assert Fetch.add_job("after").pk.get() == "2"


def names():
    """Return the names of all checks."""
    return [name for name in globals() if name.startswith("check_")]


def main():
    """Run each check that standard input names, in a fork of its own, on the Redis of the socket in the argument."""
    for line in sys.stdin:
        child = os.fork()
        if child == 0:
            run(sys.argv[1], line.strip())
            return
        status = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
        print(json.dumps("passed" if status == 0 else f"ended with status {status}"), flush=True)


def run(socket, name):
    redis.Redis(unix_socket_path=socket).flushdb()
    BaseJobsModel.use_database(PipelineDatabase(unix_socket_path=socket, db=0))
    globals()[name]()
