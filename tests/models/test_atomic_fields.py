"""The fields of the models: as those of limpyd to whoever uses them, but changed in one step with their indexes."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from random import Random
from threading import Thread
from typing import Any

import pytest
import redis
from cases import each
from invariants import contents, violations
from limpyd import fields
from limpyd.exceptions import DoesNotExist, UniquenessError
from limpyd.indexes import EqualIndex, TextRangeIndex
from limpyd.model import RedisModel
from limpyd_extensions import related

from limpyd_jobs import Error, Job, LimpydJobsException, Queue, transitions
from limpyd_jobs.fields.atomic_fields import AtomicHashField
from limpyd_jobs.models import BaseJobsModel, job_classes
from limpyd_jobs.records import records
from limpyd_jobs.transitions import ClaimRequest

pytestmark = pytest.mark.usefixtures("redis_client")

HARD_TEXT = "né\"'\\\n\0\t{}[]:,😀 %s %d"


class Atomic(BaseJobsModel):
    namespace = "atomic"
    name = fields.InstanceHashField(indexable=True)
    size = fields.InstanceHashField(indexable=True, default=0)
    note = fields.InstanceHashField()
    both = fields.InstanceHashField(indexable=True, indexes=[EqualIndex, EqualIndex.configure(key="k", prefix="p")])
    title = fields.InstanceHashField(indexable=True, indexes=[EqualIndex, TextRangeIndex])
    serial = fields.InstanceHashField(unique=True)
    lines = fields.ListField()


class OfLimpyd(RedisModel):
    """The same, without us."""

    database = BaseJobsModel.database
    namespace = "oflimpyd"
    cacheable = False
    name = fields.InstanceHashField(indexable=True)
    size = fields.InstanceHashField(indexable=True, default=0)
    note = fields.InstanceHashField()
    both = fields.InstanceHashField(indexable=True, indexes=[EqualIndex, EqualIndex.configure(key="k", prefix="p")])
    title = fields.InstanceHashField(indexable=True, indexes=[EqualIndex, TextRangeIndex])
    serial = fields.InstanceHashField(unique=True)
    lines = fields.ListField()


class Narrower(Atomic):
    """Redefines fields, and has some of its own."""

    name = fields.InstanceHashField()
    note = fields.InstanceHashField(indexable=True)
    size = fields.InstanceHashField(indexable=True, default=7)
    more = fields.InstanceHashField(indexable=True)


class Related(BaseJobsModel):
    namespace = "atomic"
    other = related.FKInstanceHashField(Atomic)


@pytest.fixture
def record(redis_client: redis.Redis) -> Iterator[Any]:
    """A record, whose indexes are as they should be when the test ends."""
    yield Atomic(name="a", size=5)
    assert of_the_indexes(redis_client, Atomic) == []


class TestTheFields:
    @pytest.mark.parametrize("model", [Job, Queue, Error, Atomic, Narrower])
    def test_of_all_models_are_atomic(self, model: Any) -> None:
        hash_fields = [model.get_field(name) for name in model._instancehash_fields]
        assert {type(field) for field in hash_fields} == {AtomicHashField}
        assert all(isinstance(field, fields.InstanceHashField) for field in hash_fields)
        assert {type(getattr(model.lazy_connect("1"), field.name)) for field in hash_fields} == {AtomicHashField}

    def test_of_other_kinds_are_left_alone(self) -> None:
        assert type(Related.get_field("other")) is related.FKInstanceHashField
        assert type(OfLimpyd.get_field("name")) is fields.InstanceHashField

    def test_of_a_subclass_have_the_indexes_it_says(self, redis_client: redis.Redis) -> None:
        record = Narrower(name="n", note="x", more="y")
        record.note.hset("z")
        assert (set(Narrower.collection(note="z")), set(Narrower.collection(more="y"))) == ({"1"}, {"1"})
        assert redis_client.hgetall(record.key) == {"name": "n", "note": "z", "size": "7", "more": "y"}
        assert redis_client.keys("atomic:narrower:name:*") == []


# -- As limpyd's own

ACTS: dict[str, Callable[[Any], Any]] = {
    "hset, new": lambda it: it.note.hset("x"),
    "hset, again": lambda it: (it.name.hset("b"), it.name.hset("c")),
    "hset, the same": lambda it: it.name.hset("a"),
    "hset, by name": lambda it: it.name.hset(value="b"),
    "hset, no text": lambda it: (it.name.hset(3), it.size.hset(2.5), it.note.hset(b"b")),
    "hset, hard text": lambda it: it.name.hset(HARD_TEXT),
    "hset, nothing": lambda it: it.name.hset(""),
    "hset, two indexes": lambda it: (it.both.hset("x"), it.both.hset("y")),
    "hset, special": lambda it: (it.title.hset("x"), it.title.hset("y")),
    "hset, unique": lambda it: (it.serial.hset("1"), it.serial.hset("1"), it.serial.hset("2")),
    "hset, no value": lambda it: it.name.hset(None),
    "hset, wrong type": lambda it: it.name.hset(object()),
    "hset, no argument": lambda it: it.note.hset(),
    "hsetnx": lambda it: (it.note.hsetnx("x"), it.note.hsetnx("y")),
    "hsetnx, has one": lambda it: it.name.hsetnx("x"),
    "hincrby": lambda it: (it.note.hincrby(), it.note.hincrby(3), it.note.hincrby(amount=-5)),
    "hincrby, big": lambda it: (it.note.hset(2**62), it.note.hincrby(5)),
    "hincrby, too big": lambda it: (it.note.hset(2**63 - 1), it.note.hincrby(1)),
    "hincrby, text": lambda it: (it.note.hset("x"), it.note.hincrby()),
    "hincrbyfloat": lambda it: (it.note.hincrbyfloat(), it.note.hincrbyfloat(1.5), it.note.hincrbyfloat(-3)),
    "hincrbyfloat, text": lambda it: (it.note.hset("x"), it.note.hincrbyfloat()),
    "delete": lambda it: (it.name.delete(), it.name.delete(), it.note.delete()),
    "hdel": lambda it: (it.name.hdel(), it.name.hdel()),
    "proxy_set": lambda it: (it.name.proxy_set("x"), it.name.proxy_get()),
    "hmset": lambda it: it.hmset(name="x", size=8, note="n"),
    "hmset, two indexes": lambda it: (it.hmset(name="x", both="y"), it.hmset(both="z")),
    "hmset, special": lambda it: it.hmset(name="x", title="y"),
    "hmset, no value": lambda it: it.hmset(note="x", name=None),
    "hmset, nothing": lambda it: it.hmset(),
    "hmset, of no hash": lambda it: it.hmset(lines="x"),
    "hmset, no field": lambda it: it.hmset(nothing="x"),
    "model hdel": lambda it: it.hdel("name", "name", "note", "size"),
    "model hdel, special": lambda it: (it.title.hset("x"), it.hdel("name", "title")),
    "model hdel, nothing": lambda it: it.hdel(),
    "model hdel, of no hash": lambda it: it.hdel("lines"),
    "record deleted": lambda it: it.delete(),
    "record deleted, then changed": lambda it: (it.delete(), it.name.hset("x")),
    "hset, of none": lambda it: type(it).lazy_connect("99").name.hset("x"),
    "delete, of none": lambda it: type(it).lazy_connect("99").delete(),
    "hdel, of none": lambda it: type(it).lazy_connect("99").hdel("name"),
    "hset, of a new one": lambda it: type(it)().name.hset("x"),
    "hmset, of a new one": lambda it: type(it)().hmset(name="x"),
    "unique already": lambda it: (type(it)(serial="1"), it.serial.hset("1")),
    "unique already, new": lambda it: (type(it)(serial="1"), type(it)(serial="1")),
    "unique already, set once": lambda it: (type(it)(serial="1"), it.hmset(note="x", serial="1")),
}


def outcome(model: Any, act: Callable[[Any], Any], client: redis.Redis) -> Any:
    """What a call returns or raises, and all that is stored afterwards, without the names of the models."""
    client.flushall()
    try:
        reply = act(model(name="a", size=5))
        said: Any = [each for each in (reply if isinstance(reply, tuple) else [reply]) if type(each) is not model]
        said = [(each, type(each)) for each in said]
    except Exception as error:
        said = type(error)
    stored = {key.replace(model._name, "model"): value for key, value in contents(client).items()}
    return said, stored


class TestAsLimpyd:
    @pytest.mark.filterwarnings("ignore:Call to deprecated hmset:DeprecationWarning")
    @each("act", ACTS.values())
    def test_a_command_returns_raises_and_stores_the_same(self, redis_client: redis.Redis, act: Any) -> None:
        assert outcome(Atomic, act, redis_client) == outcome(OfLimpyd, act, redis_client)

    @pytest.mark.filterwarnings("ignore:Call to deprecated hmset:DeprecationWarning")
    def test_the_hook_after_a_command_is_called_the_same(self, monkeypatch: pytest.MonkeyPatch) -> None:
        calls: list[Any] = []

        def post_command(self: Any, sender: Any, name: str, result: Any, args: Any, kwargs: Any) -> Any:
            calls.append((sender if sender is self else sender.name, name, result, args, kwargs))
            return result

        for model in (Atomic, OfLimpyd):
            record: Any = model(name="a")
            with monkeypatch.context() as patch:
                patch.setattr(model, "post_command", post_command)
                record.note.hset("x")
                record.note.hsetnx("x")
                record.note.delete()
                record.note.hincrby(2)
                record.hmset(note="y")
                record.hdel("note")
            calls = [("record" if call[0] is record else call[0], *call[1:]) for call in calls]
        half = len(calls) // 2
        assert calls[:half] == calls[half:]
        assert half == 6

    def test_collections_find_what_was_written(self, record: Any) -> None:
        record.name.hset("x")
        record.both.hset("y")
        assert [set(Atomic.collection(**filters)) for filters in ({"name": "x"}, {"both": "y"}, {"both__p": "y"})] == [
            {"1"},
            {"1"},
            {"1"},
        ]
        assert set(Atomic.collection(name="a")) == set()


# -- Better than limpyd's own


class TestTheIndex:
    """limpyd forgets it, or leaves the old value in it."""

    def test_follows_hsetnx(self, record: Any) -> None:
        assert record.both.hsetnx("x") == 1
        assert set(Atomic.collection(both="x")) == {"1"}
        assert record.name.hsetnx("x") == 0
        assert set(Atomic.collection(name="x")) == set()

    @pytest.mark.parametrize("amount", [1, -3, 2**62])
    def test_follows_hincrby(self, record: Any, amount: int) -> None:
        assert record.size.hincrby(amount) == 5 + amount
        assert set(Atomic.collection(size=5 + amount)) == {"1"}
        assert set(Atomic.collection(size=5)) == set()

    def test_follows_hincrbyfloat(self, record: Any) -> None:
        assert record.size.hincrbyfloat(0.5) == 5.5
        assert set(Atomic.collection(size="5.5")) == {"1"}

    def test_follows_from_nothing(self, record: Any) -> None:
        assert record.both.hincrby() == 1
        assert set(Atomic.collection(both=1)) == {"1"}

    def test_is_that_of_the_old_value_if_the_number_is_none(self, record: Any) -> None:
        with pytest.raises(redis.ResponseError, match="not an integer"):
            record.name.hincrby()
        assert record.name.hget() == "a"


class TestUniqueness:
    @pytest.mark.parametrize(
        "act",
        [
            lambda it: it.serial.hset("1"),
            lambda it: it.serial.hsetnx("1"),
            lambda it: it.serial.hincrby(1),
            lambda it: it.serial.hincrbyfloat(1),
            lambda it: it.hmset(name="x", serial="1"),
        ],
    )
    def test_a_value_that_another_has_is_refused_and_nothing_changes(self, redis_client: redis.Redis, act: Any) -> None:
        Atomic(serial="1")
        other = Atomic(name="b")
        before = contents(redis_client)
        with pytest.raises(UniquenessError, match=r"Atomic\.serial \(for instance 1\)"):
            act(other)
        assert contents(redis_client) == before


CHANGES: dict[str, Callable[[Any], Any]] = {
    "hset": lambda it: it.name.hset("x"),
    "hset, not indexed": lambda it: it.note.hset("x"),
    "hsetnx": lambda it: it.both.hsetnx("x"),
    "hincrby": lambda it: it.size.hincrby(),
    "hincrbyfloat": lambda it: it.size.hincrbyfloat(),
    "hmset": lambda it: it.hmset(name="x", note="y"),
}


class TestADeletedRecord:
    @pytest.mark.parametrize("act", CHANGES.values(), ids=CHANGES)
    def test_is_not_made_again_by_who_still_has_it(self, redis_client: redis.Redis, record: Any, act: Any) -> None:
        Atomic.get("1").delete()
        before = contents(redis_client)
        for _ in range(2):
            with pytest.raises(DoesNotExist):
                act(record)
        assert contents(redis_client) == before

    def test_is_not_made_by_who_only_knows_its_pk(self, redis_client: redis.Redis) -> None:
        """limpyd makes another one."""
        with pytest.raises(DoesNotExist):
            Atomic.lazy_connect("99").hmset(name="x")
        assert contents(redis_client) == {}

    def test_has_nothing_to_delete(self, redis_client: redis.Redis, record: Any) -> None:
        Atomic.get("1").delete()
        before = contents(redis_client)
        assert (record.name.delete(), record.hdel("name", "size")) == (0, 0)
        assert contents(redis_client) == before

    def test_leaves_nothing(self, redis_client: redis.Redis) -> None:
        Atomic(name="a", note="b", both="c", title="d", serial="e").delete()
        assert contents(redis_client) == {"atomic:atomic:max_pk": "1"}


class TestWrongTypes:
    """What is broken already is not made worse: no half of a change."""

    @pytest.mark.parametrize(
        ("key", "act"),
        [
            ("atomic:atomic:name:x", lambda it: it.name.hset("x")),
            ("atomic:atomic:name:x", lambda it: it.hmset(note="n", name="x")),
            ("atomic:atomic:size:6", lambda it: it.size.hincrby()),
        ],
    )
    def test_nothing_changes(self, redis_client: redis.Redis, record: Any, key: str, act: Any) -> None:
        redis_client.set(key, "text")
        before = contents(redis_client)
        with pytest.raises(redis.ResponseError, match="WRONGTYPE"):
            act(record)
        assert contents(redis_client) == before
        redis_client.delete(key)


class TestPipelines:
    """The commands of limpyd fail to keep the index there."""

    @pytest.mark.parametrize("transaction", [True, False])
    def test_a_change_is_one_command_with_the_usual_result(self, record: Any, transaction: bool) -> None:
        with Atomic.database.pipeline(transaction=transaction) as pipe:
            assert record.name.hset("x") is pipe
            assert record.hmset(name="y", note="z") is pipe
            record.both.hsetnx("b")
            record.size.hincrby(3)
            record.note.delete()
            record.hdel("both", "note")
            assert pipe.execute() == [0, 1, 1, 8, 1, 1]
        assert record.hmget("name", "size", "note", "both") == ["y", "8", None, None]
        assert set(Atomic.collection(name="y", size="8")) == {"1"}
        assert set(Atomic.collection(name="x")) == set()

    def test_a_script_that_the_server_forgot_is_no_hindrance(self, redis_client: redis.Redis, record: Any) -> None:
        redis_client.script_flush()
        with Atomic.database.pipeline() as pipe:
            record.name.hset("x")
            assert pipe.execute() == [0]

    def test_a_refusal_stands_among_the_results(self, record: Any) -> None:
        Atomic(serial="1")
        with Atomic.database.pipeline() as pipe:
            record.serial.hset("1")
            assert [json.loads(reply) for reply in pipe.execute()] == [
                {"outcome": "not unique", "field": "serial", "value": "1", "pk": "2"}
            ]

    def test_a_transaction_that_watches_reads_and_then_writes(self, record: Any) -> None:
        def double(pipe: Any) -> None:
            size = record.size.hget()
            pipe.multi()
            record.size.hset(int(size) * 2)

        assert Atomic.database.transaction(double, record.key) == [0]
        assert set(Atomic.collection(size="10")) == {"1"}

    def test_a_change_while_it_watches_is_made_at_once(self, record: Any) -> None:
        with Atomic.database.pipeline() as pipe:
            pipe.watch("something")
            assert record.name.hset("x") == 0
            Atomic(serial="1")
            with pytest.raises(UniquenessError):
                record.serial.hset("1")


# -- At the same time as others

ROUNDS = 250
IDENTIFIERS = "ab"


def until_done(*actions: Callable[[], Any]) -> None:
    """Call functions, each in a thread of its own, `ROUNDS` times."""
    failures: list[BaseException] = []

    def repeat(action: Callable[[], Any]) -> None:
        for _ in range(ROUNDS):
            try:
                action()
            except (LimpydJobsException, DoesNotExist):
                pass
            except BaseException as error:
                failures.append(error)
                raise

    threads = [Thread(target=repeat, args=[action]) for action in actions]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert failures == []


def of_the_indexes(client: redis.Redis, *models: Any) -> list[str]:
    return [problem for problem in violations(client, *models) if problem.split()[0] in ("I1", "I2")]


class Raced(Job):
    namespace = "raced"
    queue_name = "raced"


@pytest.mark.proof
class TestAtTheSameTime:
    def test_transitions_and_changes_by_hand_leave_no_job_in_two_indexes(self, redis_client: redis.Redis) -> None:
        random, claims = Random(1), iter(range(10**9))
        queue = Queue.get_queue("raced")
        job_classes.resolve(Raced.get_model_repr())
        for identifier in IDENTIFIERS:
            Raced.add_job(identifier)

        def any_job() -> Any:
            return records.attached(Raced, random.choice(sorted(redis_client.smembers("raced:raced:collection"))))

        def work() -> None:
            request = ClaimRequest([queue.waiting.key], f"t{next(claims)}", 60, {Raced.get_model_repr(): Raced})
            fetched, _ = transitions.claim(Queue, request)
            if fetched and fetched.token:
                transitions.succeed(records.attached(Raced, fetched.pk), queue, fetched.token)

        def produce() -> None:
            if len(Raced.collection()) < 4:
                Raced.add_job(random.choice(IDENTIFIERS), priority=0)
            any_job().enqueue_or_delay()

        def set_by_hand() -> None:
            any_job().status.hset(random.choice("wc"))
            any_job().priority.hset(random.choice("01"))
            any_job().queued.delete()

        def set_several() -> None:
            any_job().hmset(status=random.choice("ec"), priority=random.choice("01"))

        until_done(work, produce, set_by_hand, set_by_hand, set_several)
        assert of_the_indexes(redis_client, Raced, Queue) == []

    def test_changes_by_many_leave_a_record_in_one_index_each(self, redis_client: redis.Redis) -> None:
        Atomic(name="a", size=0)

        def change(letter: str) -> Callable[[], Any]:
            record = Atomic.get("1")
            return lambda: (
                record.name.hset(letter),
                record.size.hincrby(),
                record.hmset(name=letter * 2, both=letter),
                record.hdel("both"),
            )

        until_done(*map(change, "abcd"))
        assert redis_client.hget("atomic:atomic:1:hash", "size") == str(4 * ROUNDS)
        assert of_the_indexes(redis_client, Atomic) == []

    def test_late_changes_leave_nothing_of_a_record_that_is_being_deleted(self, redis_client: redis.Redis) -> None:
        records = [Atomic(name="a", both="b", note="c") for _ in range(40)]

        def change(record: Any) -> None:
            copy = Atomic.lazy_connect(record.pk.get())
            copy._connected = True
            while True:
                copy.name.hset("x")
                copy.hmset(note="y", both="z")

        def change_until_it_is_gone(record: Any) -> None:
            with pytest.raises(DoesNotExist):
                change(record)

        for record in records:
            thread = Thread(target=change_until_it_is_gone, args=[Atomic.get(record.pk.get())])
            thread.start()
            record.delete()
            thread.join()
        assert contents(redis_client) == {"atomic:atomic:max_pk": "40"}
