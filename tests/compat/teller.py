"""Tells the `stories`, with whichever redis-limpyd-jobs this Python has.

``python -c "import teller; teller.main()" SOCKET`` reads names of stories, one per line, and answers each with a line
of JSON: all that was said while the story was told, in order.

Nothing here or in the stories may use a name that redis-limpyd-jobs 2 does not have.
"""

import json
import logging
import os
import sys
import traceback
from contextlib import contextmanager, nullcontext
from datetime import datetime

import redis
from limpyd.contrib.database import PipelineDatabase

from limpyd_jobs import Error, Job, Queue, Worker
from limpyd_jobs.models import BaseJobsModel

READERS = {
    "hash": lambda client, key: client.hgetall(key),
    "set": lambda client, key: client.smembers(key),
    "list": lambda client, key: client.lrange(key, 0, -1),
    "zset": lambda client, key: client.zrange(key, 0, -1, withscores=True),
    "string": lambda client, key: client.get(key),
}
AS_TOLD = {"set": sorted, "zset": lambda pairs: [list(pair) for pair in pairs]}


def whole_database(client):
    """Return the type and the content of each key, but of those that limpyd makes for a query and lets expire."""
    keys = [key for key in sorted(client.keys()) if ":__collection__:" not in key]
    kinds = [(key, kind) for key, kind in zip(keys, at_once(client, keys, "type"), strict=True) if kind in READERS]
    with client.pipeline(transaction=False) as pipeline:
        for key, kind in kinds:
            READERS[kind](pipeline, key)
        values = pipeline.execute()
    return {
        key: [kind, AS_TOLD[kind](value) if kind in AS_TOLD else value]
        for (key, kind), value in zip(kinds, values, strict=True)
    }


def at_once(client, keys, command, *args):
    """Return what a command answers for each key."""
    with client.pipeline(transaction=False) as pipeline:
        for key in keys:
            getattr(pipeline, command)(key, *args)
        return pipeline.execute()


def plain(value):
    """Return a value as something that JSON has and that reads the same under both versions."""
    if isinstance(value, Queue):
        return "queue {}@{}".format(*value.hmget("name", "priority"))
    if isinstance(value, Job):
        return "job " + value.ident
    if isinstance(value, Error):
        return f"error {value.pk.get()} of {value.identifier.hget()}"
    if isinstance(value, BaseException):
        return f"{type(value).__name__}: {value}"
    if isinstance(value, dict):
        return {str(key): plain(item) for key, item in value.items()}
    if isinstance(value, (set, frozenset)):
        return sorted(plain(item) for item in value)
    if isinstance(value, (list, tuple)):
        return [plain(item) for item in value]
    if isinstance(value, bool):
        return int(value)  # version 2 has 0 for False here and there
    if value is None or isinstance(value, (int, float, str)):
        return value
    if hasattr(value, "total_seconds"):
        return f"timedelta {value}"
    if hasattr(value, "isoformat"):
        return f"{type(value).__name__} {value}"
    return f"{type(value).__name__} object"


class Teller(logging.Handler):
    """What a story is told with: it runs things, and keeps what was said."""

    def __init__(self, client, worker_class):
        super().__init__()
        self.client = client
        self.worker_class = worker_class
        self.said = []

    def say(self, what, *values):
        self.said.append(["said", what, *map(plain, values)])

    def emit(self, record):
        self.said.append(["log", record.levelname, record.name, record.getMessage()])

    def ask(self, what, function, *args, **kwargs):
        """Say what a function returns, or the class of the exception it raises; return what it returned."""
        try:
            answer = function(*args, **kwargs)
        except Exception as error:
            self.say(what, "raised", type(error).__name__)
            return None
        self.say(what, answer)
        return answer

    def state(self, what):
        """Say the whole content of the database."""
        self.said.append(["state", what, whole_database(self.client)])

    def job(self, what, job, *values):
        """Say what the hash of a job holds, and which lists and sorted sets its ident is in, beside other values."""
        hash_key, ident = job.get_field("status").key, job.ident
        places = self.places(ident)
        self.said.append(["hash", what, [hash_key, *map(plain, values)], self.client.hgetall(hash_key), places])

    def places(self, ident):
        """Return the keys of the lists and sorted sets that hold an ident."""
        keys = sorted(self.client.keys())
        kinds = dict(zip(keys, at_once(self.client, keys, "type"), strict=True))
        lists, sets = ([key for key in keys if kinds[key] == kind] for kind in ("list", "zset"))
        contents = zip(lists, at_once(self.client, lists, "lrange", 0, -1), strict=True)
        scores = zip(sets, at_once(self.client, sets, "zscore", ident), strict=True)
        found = [key for key, idents in contents if ident in idents]
        return sorted(found + [key for key, score in scores if score is not None])

    def work(self, queues, callback=None, worker_class=None, **options):
        """Let a worker run one job (or `max_loops`), and say how it ended; return it."""
        settings = {"max_loops": 1, "timeout": 1, "fetch_priorities_delay": 1, "fetch_delayed_delay": 1}
        settings.update(options)
        if callback is not None:
            settings["callback"] = callback
        worker = (worker_class or self.worker_class)(queues=queues, **settings)
        try:
            worker.run()
        except BaseException as error:
            self.say("run", "raised", type(error).__name__)
        self.say("worker", worker.status, worker.num_loops, worker.end_forced)
        return worker


current = None  # the teller of the story that is being told, for the classes of the stories


class WatchedWorker(Worker):
    """Says when each hook begins and ends, with what, and what the job looks like then."""


def watched(name):
    documented = getattr(Worker, name)

    def hook(self, job, queue, *args, **kwargs):
        current.job(name + " begins", job, job._cached_status, queue, [*map(shorten, args)], kwargs)
        answer = documented(self, job, queue, *args, **kwargs)
        current.job(name + " ends", job, answer)
        return answer

    hook.__name__ = name
    return hook


def shorten(value):
    return "a traceback" if isinstance(value, str) and value.startswith("Traceback ") else value


for hook_name in (
    *("job_started", "job_success", "job_error", "job_skipped", "job_delayed", "requeue_job"),
    *("job_started_message", "job_success_message", "job_error_message", "job_requeue_message"),
    *("job_skipped_message", "job_delayed_message", "additional_error_fields", "execute"),
):
    setattr(WatchedWorker, hook_name, watched(hook_name))


class HookedWorker(Worker):
    """Overrides a hook, and does the same: so its jobs go by the hooks."""

    def job_started(self, job, queue):
        super().job_started(job, queue)


WORKERS = {"plain": Worker, "watched": WatchedWorker, "hooked": HookedWorker}


def tell(client, name):
    """Tell one story, and return what was said. A failing story says its traceback."""
    global current
    import stories

    function, _, mode = name.partition("-")
    mode, _, events = mode.partition("-")
    client.flushdb()
    current = teller = Teller(client, WORKERS[mode or "plain"])
    teller.said.append(["began", str(datetime.utcnow())])
    logger = logging.getLogger("limpyd-jobs")
    logger.handlers, logger.propagate = [teller], False
    with observed(teller) if events else nullcontext():
        try:
            stories.STORIES[function].tell(teller)
        except BaseException:
            teller.say("the story failed", traceback.format_exc())
    teller.state("in the end")
    return teller.said


@contextmanager
def observed(teller):
    """Say all events, which version 2 does not have, but those of the status of a worker: that is set less often if
    the next job is there already."""
    from limpyd_jobs import events

    def say(event):
        if not isinstance(event, events.WorkerStatusChanged):
            known = {name: value for name, value in vars(event).items() if name not in ("worker", "trace")}
            teller.say(f"event {type(event).__name__}", known)

    events.subscribe(say)
    try:
        yield
    finally:
        events.unsubscribe(say)


def main():
    """Tell the stories that are asked for on standard input, with the Redis of the unix socket that is the argument."""
    socket = sys.argv[1]
    BaseJobsModel.use_database(PipelineDatabase(unix_socket_path=socket, db=0))
    client = redis.Redis(unix_socket_path=socket, decode_responses=True)
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # what a story prints must not stand between the answers
    for line in sys.stdin:
        answers.write(json.dumps(tell(client, line.strip())) + "\n")
        answers.flush()
