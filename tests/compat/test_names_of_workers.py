"""A worker written for version 2 may have any name that version 3 added for something else, and runs as before."""

from __future__ import annotations

import json
import logging
from collections.abc import Callable, Iterator
from datetime import timedelta
from functools import partial
from typing import Any

import pytest
import redis
from limpyd import fields
from versions import Version

from limpyd_jobs import STATUSES, Job, Queue, Requeue, Schedule, Worker
from limpyd_jobs.dates import datetime_to_score, utcnow
from limpyd_jobs.models import job_classes
from limpyd_jobs.records import records
from limpyd_jobs.transitions import ClaimRequest, claim
from limpyd_jobs.workers import WorkerConfig

NAMES_OF_VERSION_2 = """
import json
from limpyd_jobs import Worker
from limpyd_jobs.workers import WorkerConfig
instances = Worker("q", terminate_gracefuly=False), WorkerConfig(["worker", "--queues=q", "--no-title"])
print(json.dumps([dir(each) for each in instances]))
"""

# Those that it gives to a worker that runs, and to a configuration that makes one.
LATER_NAMES_OF_VERSION_2 = {"last_update_keys", "worker"}


class Task(Job):
    """A job that succeeds, fails once, or asks to be put back once."""

    namespace = "names"
    queue_name = "q"
    how = fields.InstanceHashField()

    def run(self, queue: Queue) -> None:
        is_first = self.tries.hget() == "1"
        if is_first and self.how.hget() == "fail":
            raise ValueError("the first time")
        if is_first and self.how.hget() == "ask":
            raise Requeue


@pytest.fixture(scope="module")
def new_names(version_2: Version) -> tuple[list[str], list[str]]:
    """The public names of workers, and of their configurations, that version 2 does not have."""
    process = version_2.start(NAMES_OF_VERSION_2)
    output, errors = process.communicate()
    assert process.returncode == 0, errors
    of_workers, of_configurations = json.loads(output)
    return (
        public({*dir(Worker("q", terminate_gracefuly=False))} - {*of_workers} - LATER_NAMES_OF_VERSION_2),
        public(
            {*dir(WorkerConfig(["worker", "--queues=q", "--no-title"]))}
            - {*of_configurations}
            - LATER_NAMES_OF_VERSION_2
        ),
    )


def public(names: set[str]) -> list[str]:
    return sorted(name for name in names if not name.startswith("_"))


def as_attribute_of_the_class(name: str, value: Any) -> type[Worker]:
    return type("OwnWorker", (Worker,), {name: value})


def as_attribute_before(name: str, value: Any) -> type[Worker]:
    def __init__(self: Worker, *args: Any, **kwargs: Any) -> None:  # noqa: N807
        setattr(self, name, value)
        Worker.__init__(self, *args, **kwargs)

    return type("OwnWorker", (Worker,), {"__init__": __init__})


def as_attribute_after(name: str, value: Any) -> type[Worker]:
    def __init__(self: Worker, *args: Any, **kwargs: Any) -> None:  # noqa: N807
        Worker.__init__(self, *args, **kwargs)
        setattr(self, name, value)

    return type("OwnWorker", (Worker,), {"__init__": __init__})


def as_parameter(name: str, value: Any) -> type[Worker]:
    """A parameter of its own, given to the constructor."""

    def __init__(self: Worker, *args: Any, **kwargs: Any) -> None:  # noqa: N807
        Worker.__init__(self, *args, **{name: value}, **kwargs)

    return type("OwnWorker", (Worker,), {name: {}, "parameters": (*Worker.parameters, name), "__init__": __init__})


def no_argument(self: Worker) -> str:
    return f"mine, in {self.id}"


def other_arguments(self: Worker, one: Any, two: Any, three: Any, four: Any) -> str:
    return f"mine, in {self.id}"


def needs_attribute(self: Worker) -> Any:
    return self.no_such_attribute  # type: ignore[attr-defined]


WAYS: dict[str, Callable[[str], type[Worker]]] = {
    "a list of the class": partial(as_attribute_of_the_class, value=[{"mine": 1}]),
    "a dict of the class": partial(as_attribute_of_the_class, value={"mine": 1}),
    "an object of the class": partial(as_attribute_of_the_class, value=object()),
    "a list made before the constructor": partial(as_attribute_before, value=[]),
    "a list made after the constructor": partial(as_attribute_after, value=[]),
    "a list given as a parameter": partial(as_parameter, value=[{"mine": 1}]),
    "a method": partial(as_attribute_of_the_class, value=no_argument),
    "a method with other arguments": partial(as_attribute_of_the_class, value=other_arguments),
    "a property": partial(as_attribute_of_the_class, value=property(lambda self: [{"mine": 1}])),
    "a property that cannot be read yet": partial(as_attribute_of_the_class, value=property(needs_attribute)),
}


@pytest.fixture
def log() -> Iterator[list[str]]:
    """The messages of warnings and errors."""
    messages: list[str] = []

    class Log(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            messages.append(record.getMessage())

    logger, handler = logging.getLogger("limpyd-jobs"), Log(logging.WARNING)
    logger.addHandler(handler)
    yield messages
    logger.removeHandler(handler)


def let_things_happen() -> dict[str, Job]:
    """Add jobs that succeed, fail, and ask to be put back, one whose worker died, and schedules, due and missed."""
    job_classes.resolve(f"{__name__}.Task")
    lost = Task.add_job("lost")
    queue = Queue.get_queue("q")
    request = ClaimRequest([queue.waiting.key], "dead", 0.000_001, job_classes.known)
    assert claim(Queue, request)[0]
    jobs = {how: Task.add_job(how, how=how) for how in ("succeed", "fail", "ask")}
    for name, grace_time in (("due", None), ("missed", 0)):
        schedule = Schedule.add(name, Task, interval=3600, misfire_grace_time=grace_time)
        due = utcnow() - timedelta(seconds=600)
        records.set_schedule(Schedule, schedule.pk.get(), datetime_to_score(due), {"next_run": str(due)})
    return {**jobs, "lost": lost}


def works(worker_class: type[Worker]) -> tuple[dict[str, Any], int]:
    """Let a worker do all there is; return what became of the jobs."""
    jobs = let_things_happen()
    options = {"requeue_times": 1, "requeue_delay_delta": 0, "requeue_priority_delta": 0, "terminate_gracefuly": False}
    worker = worker_class("q", max_loops=7, max_duration=20, **options)
    worker.run()
    jobs["due"] = Task.get(identifier="due")
    return {name: job.hmget("status", "queued", "tries") for name, job in jobs.items()}, worker.num_loops


def check(name: str, way: str, client: redis.Redis, messages: list[str]) -> str:
    """Return what is wrong, if anything."""
    client.flushdb()
    messages.clear()
    try:
        outcome = works(WAYS[way](name))
    except Exception as error:
        return f"{name}: {type(error).__name__}: {error}"
    surprises = [text for text in messages if "failed: " in text or "unexpected" in text or "Unable" in text]
    return "" if outcome == EXPECTED and not surprises else f"{name}: {outcome} {surprises}"


TRIES = {"succeed": "1", "fail": "2", "ask": "2", "lost": "2", "due": "1"}
EXPECTED = {how: [STATUSES.SUCCESS, None, tries] for how, tries in TRIES.items()}, 7


@pytest.mark.matrix(1)
@pytest.mark.usefixtures("jobs_database")
@pytest.mark.parametrize("way", WAYS)
def test_a_name_that_version_2_does_not_have_may_be_that_of_something_else(
    way: str,
    new_names: tuple[list[str], list[str]],
    redis_client: redis.Redis,
    log: list[str],
    pytestconfig: pytest.Config,
) -> None:
    """Each name in several ways; with ``--long`` in each."""
    names = new_names[0]
    assert {"processes", "lease", "job_released", "job_modules"} <= set(names)
    chosen = names if pytestconfig.getoption("--long") else names[[*WAYS].index(way) % 3 :: 3]
    wrong = [found for name in chosen if (found := check(name, way, redis_client, log))]
    assert wrong == []


def test_a_configuration_has_no_public_name_that_version_2_does_not_have(
    new_names: tuple[list[str], list[str]],
) -> None:
    assert new_names[1] == []
