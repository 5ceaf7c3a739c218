"""Each way by which a job comes to be makes its class known, with the models of its queue and of its errors."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager, suppress
from datetime import datetime, timezone
from typing import Any

import pytest
import redis
from limpyd import fields
from parts import run_task
from running import worker_of
from servers import RedisServer

from limpyd_jobs import Error, Job, Limit, Queue, Schedule
from limpyd_jobs.check import check
from limpyd_jobs.models import BaseJobsModel, job_classes
from limpyd_jobs.query import queue_states
from limpyd_jobs.records import known_classes, records
from limpyd_jobs.schedules.model import score_of

NEVER = datetime(2099, 1, 1, tzinfo=timezone.utc)
DUE = "2020-01-01 00:00:00"


class OwnQueue(Queue):
    namespace = "own"


class OtherQueue(Queue):
    namespace = "own"


class OwnError(Error):
    namespace = "own"


class Resize(Job):
    namespace = "own"
    queue_name = "resize"
    queue_model = OwnQueue

    def run(self, queue: Queue) -> None:
        pass


class PlacedByItself(Resize):
    def enqueue_or_delay(self, *args: Any, **kwargs: Any) -> None:
        super().enqueue_or_delay(*args, **kwargs)


PATH = f"{__name__}.Resize"


@pytest.fixture
def known(redis_client: redis.Redis) -> Callable[[], set[str]]:
    """Returns what is known, in a database where nothing was, by a process that wrote nothing."""
    forget(BaseJobsModel)
    return lambda: set(redis_client.hkeys(known_classes.KEY))


def note() -> None:
    pass


def forget(model: type[BaseJobsModel]) -> None:
    vars(model.database).pop("_written_classes", None)


def added_by_version_2(client: redis.Redis, identifier: str = "a", **fields: str) -> None:
    """Add a job as version 2 does: all its keys, and none of ours."""
    values = {"identifier": identifier, "status": "w", "priority": "0", "queued": "1", "added": DUE, **fields}
    client.sadd("own:resize:collection", "1")
    client.set("own:resize:max_pk", 1)
    client.hset("own:resize:1:hash", mapping=values)
    for name in ("identifier", "status", "priority", "queued"):
        client.sadd(f"own:resize:{name}:{values[name]}", "1")
    client.sadd("own:ownqueue:collection", "1")
    client.hset("own:ownqueue:1:hash", mapping={"name": "resize", "priority": "0"})
    for name, value in (("name", "resize"), ("priority", "0")):
        client.sadd(f"own:ownqueue:{name}:{value}", "1")


def add_by_schedule(client: redis.Redis) -> None:
    schedule = Schedule.add("nightly", Resize, cron="@daily")
    records.set_schedule(Schedule, schedule.pk.get(), score_of(DUE), {"next_run": DUE})
    forget(BaseJobsModel)
    client.delete(known_classes.KEY)  # a worker that serves none of its queues adds it
    run_task(worker_of("others"), "scheduler")


def claim_of_version_2(client: redis.Redis) -> None:
    added_by_version_2(client)
    Resize.get("1").claim(owner="me").succeed()


def requeued_of_version_2(client: redis.Redis) -> None:
    added_by_version_2(client, status="e")
    client.hdel("own:resize:1:hash", "queued")
    client.srem("own:resize:queued:1", "1")
    Resize.get("1").requeue("resize")


def moved_of_version_2(client: redis.Redis) -> None:
    added_by_version_2(client)
    Resize.get("1").enqueue_or_delay("resize")


def run_of_version_2(client: redis.Redis) -> None:
    added_by_version_2(client)
    client.rpush("own:ownqueue:1:waiting", f"{PATH}:1")
    worker_of("resize", queue_model=OwnQueue, callback=None).run()


def run_after_another(client: redis.Redis) -> None:
    """The claim comes with the end of a job of another class."""
    added_by_version_2(client)
    Job.add_job("first", "resize", queue_model=OwnQueue)
    forget(BaseJobsModel)
    client.delete(known_classes.KEY)
    client.rpush("own:ownqueue:1:waiting", f"{PATH}:1")
    job_classes._resolved = {Job.get_model_repr(): Job}
    worker_of("resize", queue_model=OwnQueue, max_loops=2, prefetch=1).run()


WAYS: dict[str, Callable[[redis.Redis], Any]] = {
    "added": lambda client: Resize.add_job("a"),
    "added together": lambda client: Resize.add_jobs(["a", "b"]),
    "scheduled": add_by_schedule,
    "scheduled, and added at once": lambda client: Schedule.add("nightly", Resize, cron="@daily").run_now(),
    "claimed": claim_of_version_2,
    "requeued": requeued_of_version_2,
    "moved": moved_of_version_2,
    "run": run_of_version_2,
    "run after another": run_after_another,
}


@pytest.mark.parametrize("way", WAYS.values(), ids=WAYS)
def test_a_job_makes_its_class_and_queue_model_known(
    redis_client: redis.Redis, known: Callable[[], set[str]], way: Callable[[redis.Redis], Any]
) -> None:
    way(redis_client)
    assert redis_client.exists("own:resize:1:hash")
    assert {PATH, "queues own:ownqueue"} <= known()


def test_a_class_with_its_own_way_to_place_jobs_and_a_given_queue_model(known: Callable[[], set[str]]) -> None:
    PlacedByItself.add_job("a", queue_model=OtherQueue)
    assert {f"{__name__}.PlacedByItself", "queues own:otherqueue"} <= known()


def test_a_queue_that_is_asked_for_makes_its_model_known(known: Callable[[], set[str]]) -> None:
    OtherQueue.get_queue("a")
    assert known() == {"queues own:otherqueue"}


def test_an_error_makes_its_model_known(known: Callable[[], set[str]]) -> None:
    job = Resize.add_job("a")
    OwnError.add_error("resize", job, ValueError("no"))
    assert {"errors own:ownerror"} <= known()


def test_a_worker_makes_the_models_known_that_it_was_given(known: Callable[[], set[str]]) -> None:
    OwnQueue.get_queue("resize")
    worker_of("resize", queue_model=OwnQueue, error_model=OwnError, burst=True).run()
    assert {"queues own:ownqueue", "errors own:ownerror"} <= known()


def test_a_job_of_the_executor_of_apscheduler(redis_client: redis.Redis) -> None:
    pytest.importorskip("apscheduler")
    from apscheduler.schedulers.background import BackgroundScheduler

    from limpyd_jobs.contrib.apscheduler import LimpydExecutor, ScheduledRun

    scheduler, executor = BackgroundScheduler(timezone="UTC"), LimpydExecutor()
    forget(executor.job_class)
    job = scheduler.add_job(f"{__name__}:note", "date", run_date=NEVER, id="a")
    scheduler.start(paused=True)
    executor.start(scheduler, "default")
    executor.submit_job(job, [NEVER])
    scheduler.shutdown()
    assert redis_client.hexists(known_classes.KEY, ScheduledRun.get_model_repr())


def test_a_job_of_the_board_of_taskflow(redis_server: RedisServer, redis_client: redis.Redis) -> None:
    pytest.importorskip("taskflow")
    from limpyd_jobs.contrib.taskflow import LimpydJobBoard, Posting

    board = LimpydJobBoard("flows", {"unix_socket_path": redis_server.socket})
    board.connect()
    forget(board.model)
    board.post("a")
    board.close()
    assert {Posting.get_model_repr(), "queues taskflow:board"} <= set(redis_client.hkeys(known_classes.KEY))


def test_a_worker_says_that_a_queue_is_of_another_model(
    known: Callable[[], set[str]], caplog: pytest.LogCaptureFixture
) -> None:
    Resize.add_job("a")
    worker_of("resize", burst=True).run()
    assert f"there is one of another model: is --queue-model={__name__}.OwnQueue missing?" in caplog.text


def test_a_class_that_is_bound_to_another_namespace_hides_none_of_its_own_jobs(
    redis_client: redis.Redis, known: Callable[[], set[str]]
) -> None:
    bound = Resize.bound_to(Resize.database, "elsewhere")
    bound.add_job("b")
    connection = BaseJobsModel.get_connection()
    assert known_classes.known_classes(connection)[PATH].name == "elsewhere:resize"
    Resize.add_job("a")
    forget(bound)
    bound.add_job("c")
    assert known_classes.known_classes(connection)[PATH].name == "own:resize"
    assert known_classes.known_classes(connection, [Resize, bound])[PATH].name == "own:resize"
    assert known_classes.known_classes(connection, [bound])[PATH].name == "own:resize"
    report = check(database=BaseJobsModel.database, pause=0)
    assert report.left == []
    told = "2 jobs are not looked at, because their class is bound to another namespace: elsewhere:resize:*"
    assert told in report.warnings


def test_what_was_lost_is_written_again(
    redis_client: redis.Redis,
    known: Callable[[], set[str]],
    commands: Callable[[], AbstractContextManager[Any]],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    Resize.add_job("a")
    redis_client.flushall()
    with commands() as sent:
        Resize.add_job("a")
    assert sent.names == ["EVALSHA"]
    assert known() == set()
    monkeypatch.setattr(known_classes, "monotonic", lambda: float("inf"))
    with commands() as sent:
        Resize.add_job("b")
    assert sent.names == ["EVALSHA"]
    assert PATH in known()


def test_the_classes_are_read_twice_however_many_models_of_queues_there_are(
    redis_client: redis.Redis, commands: Callable[[], AbstractContextManager[Any]]
) -> None:
    for model in (Queue, OwnQueue, OtherQueue):
        model.get_queue("resize")
    with commands() as sent:
        states = queue_states()
    assert {state.model for state in states} == {"jobs:queue", "own:ownqueue", "own:otherqueue"}
    assert sum(f" {known_classes.KEY} " in each for each in sent) == 2  # for the models, and for the classes


def test_a_key_of_a_wrong_type_stops_no_job(redis_client: redis.Redis, known: Callable[[], set[str]]) -> None:
    redis_client.set(known_classes.KEY, "x")
    with suppress(redis.ResponseError):
        Resize.add_job("a")
    assert Resize.collection(identifier="a")


class Limited(Job):
    namespace = "own"
    queue_name = "resize"
    account = fields.InstanceHashField()
    limits = [Limit("account", concurrency=2), Limit(name="all-of-them", rate="90000/m", burst=5, on_limit="newest")]


def test_what_a_class_says_of_its_limits_is_known() -> None:
    known = known_classes.KnownClass.of(Limited)
    assert known.limits == tuple(Limited.limits)
    assert known_classes.KnownClass.parse(known.as_json()) == known
    assert "limits" not in known_classes.KnownClass.of(Resize).as_json()


@pytest.mark.parametrize("limits", ['[{"rate":"ten"}]', '[{"colour":1}]', "[7]", '"x"', '{"a":1}'])
def test_limits_that_another_program_wrote_are_no_class(limits: str) -> None:
    text = f'["a.B","a:b",[],{{}},{{}},[],[],[],{limits}]'
    with pytest.raises(known_classes.UNREADABLE):
        known_classes.KnownClass.parse(text)
