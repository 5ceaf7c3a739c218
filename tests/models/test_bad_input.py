"""A wrong argument is refused by name, before anything is written; a merely unusual one works."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from datetime import date, datetime, timedelta, timezone
from enum import Enum
from functools import partial
from typing import Any

import pytest
import redis
from cases import each
from limpyd import fields
from limpyd.contrib.indexes import SimpleDateTimeIndex
from limpyd.exceptions import DoesNotExist

from limpyd_jobs import STATUSES, ConfigurationException, Error, Job, LimpydJobsException, Queue, Schedule, Worker
from limpyd_jobs.dates import datetime_to_score, utcnow
from limpyd_jobs.records.known_classes import KEY as CLASSES

Preparation = Callable[[], Callable[..., Any]]
Refusal = Callable[..., AbstractContextManager[None]]
Exceptions = type[Exception] | tuple[type[Exception], ...]

WRONG_ARGUMENT = (ValueError, TypeError)
LONE_SURROGATE = "job:\ud800"

IDENTIFIERS = {
    "None": None,
    "empty": "",
    "bytes": b"job:1",
    "dict": {"id": 1},
    "empty dict": {},
    "bool": True,
    "lone surrogate": LONE_SURROGATE,
    "over 64 kB": "x" * 65537,
    "over 64 kB as UTF-8": "é" * 32769,
}
PRIORITIES = {
    "fraction": 1.5,
    "text": "high",
    "fraction as text": "1.5",
    "empty": "",
    "NaN": float("nan"),
    "infinite": float("inf"),
    "bool": True,
    "list": [1],
    "beyond 64 bits": 2**63,
    "below 64 bits": -(2**63) - 1,
    "beyond 64 bits as text": str(2**63),
}
QUEUE_NAMES = {
    "empty": "",
    "comma": "a,b",
    "bytes": b"a",
    "bool": True,
    "dict": {"name": "a"},
    "list": ["a"],
    "lone surrogate": LONE_SURROGATE,
    "over 1 kB": "x" * 1025,
    "over 1 kB as UTF-8": "é" * 513,
}
LENGTHS_OF_DELAY = {
    "NaN": float("nan"),
    "infinite": float("inf"),
    "bool": True,
    "text": "60",
    "date": date(2030, 1, 1),
    "datetime": datetime(2030, 1, 1),
    "beyond year 9999": 1e12,
    "longest timedelta": timedelta.max,
}
ENDS_OF_DELAY = {
    "NaN": float("nan"),
    "infinite": float("inf"),
    "bool": True,
    "text": "soon",
    "date": date(2030, 1, 1),
    "number": 1893456000,
    "timedelta": timedelta(60),
    "beyond year 9999": datetime(9999, 12, 31, 23, 0, tzinfo=timezone(timedelta(hours=-5))),
}
ENDED_DELAYS = {
    "negative": {"delayed_for": -5},
    "negative timedelta": {"delayed_for": timedelta(days=-1)},
    "before the first year": {"delayed_for": -1e12},
    "past": {"delayed_until": datetime(2001, 1, 1)},
    "aware past": {"delayed_until": datetime(2001, 1, 1, tzinfo=timezone(timedelta(hours=5)))},
}


def adding() -> Callable[..., Any]:
    return partial(Job.add_job, identifier="new", queue_name="new")


def requeuing() -> Callable[..., Any]:
    job = Job(identifier="failed", status=STATUSES.ERROR)
    return partial(job.requeue, queue_name="new")


def enqueuing() -> Callable[..., Any]:
    job = Job(identifier="custom")
    return partial(job.enqueue_or_delay, queue_name="new")


def getting_a_queue() -> Callable[..., Any]:
    return partial(Queue.get_queue, name="new")


def pausing() -> Callable[..., Any]:
    return Queue.pause


def adding_an_error() -> Callable[..., Any]:
    job = Job(identifier="failed", status=STATUSES.ERROR)
    return partial(Error.add_error, queue_name="new", job=job, error=ValueError("failed"))


TABLE = [
    (adding, "identifier", IDENTIFIERS),
    (adding, "queue_name", QUEUE_NAMES),
    (adding, "priority", PRIORITIES),
    (adding, "delayed_for", LENGTHS_OF_DELAY),
    (adding, "delayed_until", ENDS_OF_DELAY),
    (requeuing, "queue_name", QUEUE_NAMES),
    (requeuing, "priority", PRIORITIES),
    (requeuing, "delayed_for", LENGTHS_OF_DELAY),
    (requeuing, "delayed_until", ENDS_OF_DELAY),
    (enqueuing, "queue_name", QUEUE_NAMES),
    (enqueuing, "priority", PRIORITIES),
    (enqueuing, "delayed_until", ENDS_OF_DELAY),
    (getting_a_queue, "name", {"None": None, **QUEUE_NAMES}),
    (getting_a_queue, "priority", PRIORITIES),
    (pausing, "name", QUEUE_NAMES),
    (adding_an_error, "queue_name", {"None": None, "bool": True, "dict": {"name": "a"}}),
    (adding_an_error, "job", {"None": None, "text": "limpyd_jobs.models.Job:1"}),
    (adding_an_error, "when", {"text": "2030-01-01", "date": date(2030, 1, 1), "number": 1893456000}),
]
UNKNOWN_FIELDS = ["foo", "collection", "namespace"]
FIELD_ROWS = [
    *(pytest.param(adding, name, AttributeError, id=f"adding-{name}") for name in [*UNKNOWN_FIELDS, "ident", "run"]),
    *(pytest.param(adding, name, WRONG_ARGUMENT, id=f"adding-{name}") for name in ["pk", "status", "queued", "added"]),
    *(pytest.param(getting_a_queue, name, AttributeError, id=f"getting_a_queue-{name}") for name in UNKNOWN_FIELDS),
    pytest.param(getting_a_queue, "pk", WRONG_ARGUMENT, id="getting_a_queue-pk"),
    *(pytest.param(adding_an_error, name, AttributeError, id=f"adding_an_error-{name}") for name in UNKNOWN_FIELDS),
    pytest.param(adding_an_error, "pk", WRONG_ARGUMENT, id="adding_an_error-pk"),
]

FIELD_VALUES = {
    "object": ("note", object(), "note"),
    "None": ("note", None, "note"),
    "bool": ("note", True, "note"),
    "lone surrogate": ("note", LONE_SURROGATE, "note"),
    "bytes that are no text": ("note", b"\xff", "note"),
}


class Colour(str, Enum):
    RED = "red"


class TaggedJob(Job):
    namespace = "bad-input"
    note = fields.InstanceHashField()
    tags = fields.ListField()


def snapshot(client: redis.Redis) -> dict[str, Any]:
    """Return all that the database holds."""
    readers: dict[str, Callable[[str], Any]] = {
        "hash": client.hgetall,
        "list": lambda key: client.lrange(key, 0, -1),
        "set": client.smembers,
        "string": client.get,
        "zset": lambda key: client.zrange(key, 0, -1, withscores=True),
    }
    return {key: readers[client.type(key)](key) for key in client.scan_iter()}


@pytest.fixture
def refused(redis_client: redis.Redis) -> Refusal:
    """Check that a block raises what it should, with a word in its message, and writes nothing."""

    @contextmanager
    def check(exceptions: Exceptions, word: str) -> Iterator[None]:
        before = snapshot(redis_client)
        with pytest.raises(exceptions, match=f"(?i){word}"):
            yield
        assert snapshot(redis_client) == before

    Job.add_job("present", "present", priority=3)
    return check


@pytest.mark.parametrize(("prepare", "argument", "values"), TABLE)
def test_a_wrong_argument_is_refused_and_nothing_is_written(
    refused: Refusal, prepare: Preparation, argument: str, values: dict[str, Any]
) -> None:
    call = prepare()
    contract = ValueError if argument.startswith("delayed") else WRONG_ARGUMENT
    for name, value in values.items():
        print(name)  # pytest shows the last one if it is not refused
        with refused(contract, word=argument.replace("queue_name", "name")):
            call(**{argument: value})


@pytest.mark.parametrize("prepare", [adding, requeuing, enqueuing])
def test_a_queue_named_nowhere_is_refused(refused: Refusal, prepare: Preparation) -> None:
    call = prepare()
    with refused(LimpydJobsException, word="queue's name not defined: give a queue_name"):
        call(queue_name=None)


@pytest.mark.parametrize("prepare", [adding, requeuing])
def test_a_delay_given_twice_is_refused(refused: Refusal, prepare: Preparation) -> None:
    call = prepare()
    with refused(ValueError, word="delayed_until and delayed_for"):
        call(delayed_for=60, delayed_until=datetime(2030, 1, 1))


@each(("prepare", "field", "exceptions"), FIELD_ROWS)
def test_an_unknown_or_reserved_field_is_refused_and_nothing_is_written(
    refused: Refusal, prepare: Preparation, field: str, exceptions: Exceptions
) -> None:
    call = prepare()
    with refused(exceptions, word=field):
        call(**{field: "1"})


@each(("field", "value", "word"), FIELD_VALUES.values())
def test_a_field_value_that_cannot_be_stored_is_refused_and_nothing_is_written(
    refused: Refusal, field: str, value: Any, word: str
) -> None:
    with refused((*WRONG_ARGUMENT, redis.DataError), word=word):
        TaggedJob.add_job("new", "new", **{field: value})


def test_a_list_that_cannot_be_stored_leaves_no_half_job(redis_client: redis.Redis) -> None:
    with pytest.raises((*WRONG_ARGUMENT, redis.DataError), match="object"):
        TaggedJob.add_job("new", "new", tags=["fine", object()])
    keys = {key for key in redis_client.scan_iter() if not key.endswith(":max_pk")}
    assert keys <= {CLASSES}


class IndexedJob(Job):
    namespace = "bad-input"
    colour = fields.InstanceHashField(indexable=True)
    day = fields.InstanceHashField(indexable=True, indexes=[SimpleDateTimeIndex])
    tags = fields.SetField(indexable=True)
    traits = fields.HashField(indexable=True)
    note = fields.InstanceHashField()


class IndexedQueue(Queue):
    namespace = "bad-input"
    colour = fields.InstanceHashField(indexable=True)


class IndexedError(Error):
    namespace = "bad-input"
    colour = fields.InstanceHashField(indexable=True)


LONG = "x" * 65537
TOO_LONG = {
    "add_job": lambda: IndexedJob.add_job("new", "new", colour=LONG),
    "add_job, as UTF-8": lambda: IndexedJob.add_job("new", "new", colour="é" * 32769),
    "add_job, as bytes": lambda: IndexedJob.add_job("new", "new", colour=LONG.encode()),
    "add_job, with an index of its own": lambda: IndexedJob.add_job("new", "new", day=LONG),
    "add_job, in a set": lambda: IndexedJob.add_job("new", "new", tags=["short", LONG]),
    "add_job, in a hash": lambda: IndexedJob.add_job("new", "new", traits={"short": LONG}),
    "add_job, as a name in a hash": lambda: IndexedJob.add_job("new", "new", traits={LONG: "short"}),
    "add_jobs": lambda: IndexedJob.add_jobs(["new"], "new", colour=LONG),
    "add_jobs, of one": lambda: IndexedJob.add_jobs([{"identifier": "new", "colour": LONG}], "new"),
    "get_queue": lambda: IndexedQueue.get_queue("new", colour=LONG),
    "add_error": lambda: IndexedError.add_error("q", Job(), ValueError("no"), colour=LONG),
    "schedule": lambda: Schedule.add("new", IndexedJob, interval=60, queue_name="new", colour=LONG),
}


@each("call", TOO_LONG.values())
def test_a_value_that_is_too_long_for_the_key_of_an_index_is_refused(refused: Refusal, call: Callable[[], Any]) -> None:
    with refused(ValueError, word=r"the indexed field '(colour|day|tags|traits)' is at most 65,536 bytes long, not 65"):
        call()


CHANGES: dict[str, Callable[[IndexedJob], Any]] = {
    "hset": lambda job: job.colour.hset(LONG),
    "hsetnx": lambda job: job.colour.hsetnx(LONG),
    "hmset": lambda job: job.hmset(note="short", colour=LONG),
    "set_fields": lambda job: job.set_fields(note="short", colour=LONG),
    "set_fields of a set": lambda job: job.set_fields(note="short", tags=[LONG]),
    "hset with an index of its own": lambda job: job.day.hset(LONG),
    "hset of the identifier": lambda job: job.identifier.hset(LONG),
}


@pytest.mark.parametrize("change", CHANGES.values(), ids=CHANGES.keys())
def test_so_it_is_when_a_field_is_changed(refused: Refusal, change: Callable[[IndexedJob], Any]) -> None:
    job = IndexedJob.add_job("new", "new")
    with refused(ValueError, word="is at most 65,536 bytes long, not 65,537"):
        change(job)


def test_a_name_of_a_schedule_or_of_its_queue_that_is_too_long_is_refused(refused: Refusal) -> None:
    with refused(ValueError, word="at most 65,536 bytes"):
        Schedule.add(LONG, IndexedJob, interval=60, queue_name="new")
    with refused(ValueError, word="name of a queue is at most 1,024 bytes long, not 65,537"):
        Schedule.add("new", IndexedJob, interval=60, queue_name=LONG)


@pytest.mark.usefixtures("redis_client")
def test_a_field_without_an_index_may_be_longer() -> None:
    job = IndexedJob.add_job("new", "new", colour="x" * 65536, note=LONG)
    job.note.hset(LONG * 2)
    assert job.hmget("colour", "note") == ["x" * 65536, LONG * 2]


def test_an_error_is_recorded_whatever_it_is_of(redis_client: redis.Redis) -> None:
    """What version 2 stored is not refused, but does not make the names of more keys that are too long."""

    class Failure(Exception):
        code = LONG

    job = Job.add_job("old", "q")
    redis_client.hset(f"jobs:job:{job.pk.get()}:hash", "identifier", LONG)
    error = Error.add_error(LONG, job, Failure(LONG))
    assert error.hmget("identifier", "queue_name") == ["x" * 65536] * 2
    for text in error.hmget("code", "message"):
        assert len(text) < len(LONG)
        assert "left out" in text
    assert set(Error.collection_for_job(job)) == {error.pk.get()}
    assert max(map(len, redis_client.scan_iter())) < 66000


@pytest.mark.parametrize("status", [status for status in STATUSES if status != "ERROR"])
def test_a_job_that_is_not_in_error_is_not_requeued(refused: Refusal, status: str) -> None:
    job = Job(identifier="other", status=STATUSES[status])
    with refused(LimpydJobsException, word="status"):
        job.requeue(queue_name="new")


@each(
    ("ident", "exception"),
    [
        ("", ValueError),
        ("1", ValueError),
        ("Job:1", ValueError),
        ("limpyd_jobs.models.Missing:1", AttributeError),
        ("limpyd_jobs.models.Job:99", DoesNotExist),
    ],
)
@each("asker", ["Job", "Worker"])
def test_an_ident_of_no_job_is_refused(refused: Refusal, asker: str, ident: str, exception: type[Exception]) -> None:
    get = Job.get_from_ident if asker == "Job" else Worker("present", terminate_gracefuly=False).get_job
    with refused(exception, word=""):
        get(ident)


@each(
    "key",
    ["", "x", "jobs:queue:99:waiting", "jobs:queue:1:success", "jobs:queue:1:hash", "jobs:job:1:waiting"],
)
def test_a_key_that_is_no_waiting_list_is_refused(refused: Refusal, key: str) -> None:
    worker = Worker("present", terminate_gracefuly=False)
    with refused(DoesNotExist, word=""):
        worker.get_queue(key)


@pytest.mark.usefixtures("redis_client")
class TestUnusualInputThatWorks:
    @each(
        "identifier",
        ["a:b", "a b", " a ", "a\nb", "a\0b", "🐝", "{a}*[b]?", "x" * 65536, "é" * 32768],
    )
    def test_an_identifier_is_stored_as_given(self, identifier: str) -> None:
        job = Job.add_job(identifier, "queue")
        assert job.identifier.hget() == identifier
        assert set(Job.collection(identifier=identifier)) == {job.pk.get()}
        assert Job.add_job(identifier, "queue").pk.get() == job.pk.get()

    def test_a_number_as_identifier_is_the_same_as_its_text(self) -> None:
        job = Job.add_job(5, "queue")
        assert job.identifier.hget() == "5"
        assert Job.add_job("5", "queue").pk.get() == job.pk.get()

    @pytest.mark.parametrize(
        ("priority", "stored"),
        [
            ("5", "5"),
            ("-3", "-3"),
            (0, "0"),
            (None, "0"),
            (2**63 - 1, "9223372036854775807"),
            (-(2**63), "-9223372036854775808"),
        ],
    )
    def test_a_priority_is_an_integer_of_64_bits(self, priority: Any, stored: str) -> None:
        job = Job.add_job("job", "queue", priority=priority)
        queue = Queue.get_queue("queue", priority)
        assert job.priority.hget() == stored
        assert queue.priority.hget() == stored
        assert queue.waiting.lmembers() == [job.ident]

    def test_the_highest_priority_is_higher_than_the_one_below(self) -> None:
        job = Job.add_job("job", "queue", priority=2**63 - 2)
        Job.add_job("job", "queue", priority=2**63 - 1)
        assert job.priority.hget() == "9223372036854775807"
        assert Queue.get_queue("queue", 2**63 - 1).waiting.lmembers() == [job.ident]

    @pytest.mark.parametrize("prepare", [requeuing, enqueuing])
    def test_no_priority_keeps_that_of_the_job(self, prepare: Preparation) -> None:
        call = prepare()
        job = call.func.__self__
        job.priority.hset(4)
        call(priority=None)
        assert Queue.get_queue("new", 4).waiting.lmembers() == [job.ident]

    @pytest.mark.parametrize("delay", ENDED_DELAYS.values(), ids=ENDED_DELAYS.keys())
    @pytest.mark.parametrize("prepare", [adding, requeuing])
    def test_a_delay_that_has_ended_is_none(self, prepare: Preparation, delay: dict[str, Any]) -> None:
        call = prepare()
        job = call(**delay) or call.func.__self__
        queue = Queue.get_queue("new")
        assert job.status.hget() == STATUSES.WAITING
        assert queue.waiting.lmembers() == [job.ident]
        assert queue.delayed.zcard() == 0

    @pytest.mark.parametrize("prepare", [adding, requeuing, enqueuing])
    def test_an_aware_end_of_a_delay_is_converted_to_utc(self, prepare: Preparation) -> None:
        call = prepare()
        job = call(delayed_until=datetime(2130, 6, 1, 12, 0, tzinfo=timezone(timedelta(hours=-7))))
        job = job or call.func.__self__
        assert job.delayed_until.hget() == "2130-06-01 19:00:00"
        assert Queue.get_queue("new").first_delayed == (
            job.ident,
            datetime_to_score(datetime(2130, 6, 1, 19)),
        )

    def test_enqueue_or_delay_takes_the_date_as_text_too(self) -> None:
        job = Job(identifier="custom")
        job.enqueue_or_delay("queue", delayed_until="2130-06-01 12:00:00")
        assert job.status.hget() == STATUSES.DELAYED
        assert job.delayed_until.hget() == "2130-06-01 12:00:00"

    def test_a_member_of_a_text_enum_is_stored_as_its_text(self) -> None:
        job = TaggedJob.add_job(Colour.RED, "queue", note=Colour.RED)
        assert job.hmget("identifier", "note") == ["red", "red"]
        assert TaggedJob.add_job("red", "queue").pk.get() == job.pk.get()

    def test_fields_that_are_documented_for_users_are_not_reserved(self) -> None:
        job = Job.add_job("job", "queue", cancel_on_error=1)
        assert job.must_be_cancelled_on_error == "1"

    def test_a_queue_name_may_be_a_number(self) -> None:
        job = Job.add_job("job", 12)
        assert Job.add_job("job", "12", prepend=True).pk.get() == job.pk.get()
        assert Queue.get_queue(12).name.hget() == "12"
        assert Queue.count_waiting_jobs([12]) == Queue.count_waiting_jobs("12") == 1
        assert Queue.pause(12)
        assert Queue.get_paused_names() == {"12"}

    def test_a_delay_of_nothing_leaves_the_date(self) -> None:
        for number, nothing in enumerate((0, 0.0, timedelta(0), None)):
            job = Job.add_job(f"job {number}", "queue", delayed_for=nothing, delayed_until=datetime(2099, 1, 1))
            assert job.hmget("status", "delayed_until") == ["d", "2099-01-01 00:00:00"]

    def test_an_aware_date_of_an_error_is_converted_to_utc(self) -> None:
        when = datetime(2026, 1, 1, 1, 30, tzinfo=timezone(timedelta(hours=2)))
        error = adding_an_error()(when=when)
        assert error.hmget("date_time", "date", "time") == ["2025-12-31 23:30:00", "2025-12-31", "23:30:00"]

    def test_an_error_without_a_date_is_of_now(self) -> None:
        before = utcnow()
        error = adding_an_error()(when=None)
        assert before <= error.datetime <= utcnow()


class TestWorkerConstructor:
    @each(
        "queues",
        [
            None,
            "",
            " ",
            ",",
            " , ",
            [],
            (),
            [""],
            ["a", 5],
            ["a", None],
            5,
            True,
            b"a",
            {"a"},
            {"a": 1},
            Queue,
        ],
    )
    def test_queues_must_be_names(self, queues: Any) -> None:
        with pytest.raises(ConfigurationException, match=r"(?i)queue"):
            Worker(queues=queues, terminate_gracefuly=False)

    @each("model", [Job, Error, object, "limpyd_jobs.models.Queue", None, 5])
    def test_queue_model_must_be_a_queue_class(self, model: Any) -> None:
        with pytest.raises(ConfigurationException, match=r"(?i)queue.model"):
            Worker("a", queue_model=model, terminate_gracefuly=False)

    @each("model", [Job, Queue, object, "limpyd_jobs.models.Error", None, 5])
    def test_error_model_must_be_an_error_class(self, model: Any) -> None:
        with pytest.raises(ConfigurationException, match=r"(?i)error.model"):
            Worker("a", error_model=model, terminate_gracefuly=False)

    @each(
        ("queues", "names"),
        [
            ("a", ["a"]),
            ("a,b", ["a", "b"]),
            (" a , b", ["a", "b"]),
            ("b,a,b", ["b", "a"]),
            (["a", "b"], ["a", "b"]),
            (("a", "b"), ["a", "b"]),
        ],
    )
    def test_names_are_stripped_and_taken_once(self, queues: Any, names: list[str]) -> None:
        assert Worker(queues, terminate_gracefuly=False).queues == names

    def test_none_is_an_argument_too_and_replaces_what_the_class_says(self) -> None:
        class ShortWorker(Worker):
            max_duration = 60
            callback = print

        worker = ShortWorker("a", terminate_gracefuly=False, max_duration=None, callback=None)
        assert worker.max_duration is None
        assert worker.callback == worker.execute

    def test_an_argument_that_the_worker_does_not_know_is_left_to_subclasses(self) -> None:
        with pytest.warns(UserWarning, match="Worker has no parameter flavour, so it is ignored"):
            assert Worker("a", terminate_gracefuly=False, flavour="sweet").queues == ["a"]
