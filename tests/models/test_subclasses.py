"""Models of applications: more fields, more indexes, other methods, other namespaces and databases."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
import redis
from cases import each
from invariants import violations
from limpyd import fields
from limpyd.contrib.database import PipelineDatabase
from limpyd.contrib.indexes import EqualIndexWith, SimpleDateTimeIndex
from limpyd.exceptions import DoesNotExist, UniquenessError
from limpyd.indexes import EqualIndex, NumberRangeIndex, TextRangeIndex
from limpyd.model import MetaRedisModel
from limpyd_extensions import related
from running import Collector, delayed_and_due, fail, succeed, work
from servers import RedisServer

from limpyd_jobs import STATUSES, ConfigurationException, Error, Job, Queue, Worker
from limpyd_jobs.models import BaseJobsModel

pytestmark = [
    pytest.mark.usefixtures("redis_client"),
    pytest.mark.filterwarnings("ignore:.*hmset:DeprecationWarning"),  # limpyd calls it for a HashField
]

FAR = datetime(2099, 1, 2, 3, 4, 5, 678)
SPACE = "subclasses"


# -- More fields


class Owner(BaseJobsModel):
    namespace = SPACE
    name = fields.InstanceHashField(indexable=True)


class RichQueue(Queue):
    namespace = SPACE
    curator = fields.InstanceHashField(indexable=True)
    note = fields.StringField(default="empty")
    tags = fields.SetField(indexable=True)
    visits = fields.ListField()
    settings = fields.HashField()
    scores = fields.SortedSetField()
    owner = related.FKInstanceHashField(Owner, related_name="queues")


class RichError(Error):
    namespace = SPACE
    severity = fields.InstanceHashField(indexable=True, default="low")
    note = fields.StringField(indexable=True)
    tags = fields.SetField(indexable=True)
    hints = fields.ListField()
    context = fields.HashField()
    scores = fields.SortedSetField()
    owner = related.FKInstanceHashField(Owner, related_name="errors_of")


class RichJob(Job):
    namespace = SPACE
    queue_name = "queue"
    queue_model = RichQueue
    plain = fields.InstanceHashField()
    indexed = fields.InstanceHashField(indexable=True)
    with_default = fields.InstanceHashField(indexable=True, default="raw")
    serial = fields.InstanceHashField(unique=True)
    size = fields.InstanceHashField(indexable=True, indexes=[NumberRangeIndex])
    title = fields.InstanceHashField(indexable=True, indexes=[TextRangeIndex])
    taken = fields.InstanceHashField(indexable=True, indexes=[SimpleDateTimeIndex])
    initial = fields.InstanceHashField(
        indexable=True,
        indexes=[EqualIndex, EqualIndex.configure(prefix="first", key="first", transform=lambda value: value[:1])],
    )
    note = fields.StringField(indexable=True, default="none")
    ticket = fields.StringField(unique=True)
    steps = fields.ListField()
    people = fields.SetField(indexable=True)
    scores = fields.SortedSetField(indexable=True)
    exif = fields.HashField(indexable=True)
    owner = related.FKInstanceHashField(Owner, related_name="jobs")
    chief = related.FKStringField(Owner, related_name="led_jobs")
    readers = related.M2MSetField(Owner, related_name="read_jobs")
    writers = related.M2MListField(Owner, related_name="written_jobs")
    ranked = related.M2MSortedSetField(Owner, related_name="ranked_jobs")


HASH_VALUES = {
    "plain": "é🎈\n",
    "indexed": "a:b",
    "serial": "no 1",
    "size": "1024",
    "title": "sunset",
    "taken": "2020-02-03 04:05:06",
    "initial": "Leica",
}
OTHER_VALUES: dict[str, Any] = {
    "note": "from the roof",
    "ticket": "T1",
    "steps": ["crop", "rotate", "crop"],
    "people": {"ann", "bob"},
    "scores": {"light": 3, "focus": 1.5},
    "exif": {"iso": "100", "f": "2.8"},
}
FINDABLE: dict[str, Any] = {
    "indexed": "a:b",
    "with_default": "raw",
    "serial": "no 1",
    "size__gte": 1000,
    "title__startswith": "sun",
    "taken__date": "2020-02-03",
    "initial": "Leica",
    "initial__first": "L",
    "note": "from the roof",
    "ticket": "T1",
    "people": "ann",
    "scores": "light",
    "exif__iso": "100",
}


def add_rich_job(identifier: str = "a", **more: Any) -> RichJob:
    return RichJob.add_job(identifier, **{**HASH_VALUES, **OTHER_VALUES, **more})


class TestFieldsOfJobs:
    def test_fields_of_every_type_are_stored(self, redis_client: redis.Redis) -> None:
        job = add_rich_job()
        assert dict(zip(HASH_VALUES, job.hmget(*HASH_VALUES), strict=True)) == HASH_VALUES
        assert job.with_default.hget() == "raw"
        assert job.note.get() == "from the roof"
        assert job.steps.lmembers() == ["crop", "rotate", "crop"]
        assert job.people.smembers() == {"ann", "bob"}
        assert job.scores.zrange(0, -1, withscores=True) in (
            [("focus", 1.5), ("light", 3.0)],
            [["focus", 1.5], ["light", 3.0]],
        )
        assert job.exif.hgetall() == {"iso": "100", "f": "2.8"}
        assert violations(redis_client, RichJob, RichQueue) == []

    @each(("name", "value"), FINDABLE.items())
    def test_a_job_is_found_by_each_indexed_field(self, name: str, value: Any) -> None:
        job = add_rich_job()
        RichJob.add_job("another")
        filters = {name: value, "identifier": "a"}
        assert list(RichJob.collection(**filters)) == [job.pk.get()]

    def test_defaults_are_stored_unless_a_value_is_given(self, redis_client: redis.Redis) -> None:
        job, other = RichJob.add_job("a"), RichJob.add_job("b", with_default="jpeg", note="mine")
        assert [job.with_default.hget(), job.note.get()] == ["raw", "none"]
        assert [other.with_default.hget(), other.note.get()] == ["jpeg", "mine"]
        assert list(RichJob.collection(note="none")) == [job.pk.get()]
        assert violations(redis_client, RichJob, RichQueue) == []

    def test_fields_of_a_queued_job_are_left_alone(self) -> None:
        add_rich_job()
        job = add_rich_job(priority=5, plain="other", steps=["other"], exif={"iso": "other"}, serial="no 2")
        assert job.priority.hget() == "5"
        assert job.plain.hget() == HASH_VALUES["plain"]
        assert job.steps.lmembers() == OTHER_VALUES["steps"]
        assert job.exif.hgetall() == OTHER_VALUES["exif"]
        assert list(RichJob.collection(serial="no 2")) == []

    @pytest.mark.parametrize("by", ["instance", "pk"])
    def test_related_fields_lead_both_ways(self, redis_client: redis.Redis, by: str) -> None:
        ann, bob = Owner(name="ann"), Owner(name="bob")
        one, two = (ann, bob) if by == "instance" else (ann.pk.get(), bob.pk.get())
        job = RichJob.add_job("a", owner=one, chief=two, readers=[one, two], writers=[two, one])
        assert job.owner.instance() == ann
        assert job.chief.instance() == bob
        assert set(ann.jobs()) == set(bob.led_jobs()) == {job.pk.get()}
        assert set(ann.read_jobs()) == set(bob.written_jobs()) == {job.pk.get()}
        assert job.writers.lmembers() == [bob.pk.get(), ann.pk.get()]
        assert set(RichJob.collection(owner=ann.pk.get())) == {job.pk.get()}
        assert violations(redis_client, RichQueue) == []

    @pytest.mark.parametrize("field", ["serial", "ticket"])
    def test_a_value_that_must_be_unique_is_refused_the_second_time(
        self, redis_client: redis.Redis, field: str
    ) -> None:
        job = RichJob.add_job("a", **{field: "X", "steps": ["mine"]})
        with pytest.raises(UniquenessError):
            RichJob.add_job("b", **{field: "X", "steps": ["other"], "people": {"ann"}})
        assert set(RichJob.collection()) == {job.pk.get()}
        assert list(RichJob.collection(identifier="b")) == []
        assert RichQueue.get_queue("queue").waiting.lmembers() == [job.ident]
        assert violations(redis_client, RichJob, RichQueue) == []
        assert RichJob.add_job("b", **{field: "Y"}).identifier.hget() == "b"

    def test_an_identifier_that_must_be_unique_is_so_for_ever(self, redis_client: redis.Redis) -> None:
        job = UniqueJob.add_job("a")
        assert UniqueJob.add_job("a").pk.get() == job.pk.get()
        work()
        with pytest.raises((UniquenessError, DoesNotExist)):
            UniqueJob.add_job("a")
        assert set(UniqueJob.collection()) == {job.pk.get()}
        assert violations(redis_client, UniqueJob, Queue) == []

    def test_priority_none_is_the_default_of_the_class(self) -> None:
        assert UrgentJob.add_job("a", priority=None).priority.hget() == "7"
        assert UrgentJob.add_job("b").priority.hget() == "0"
        assert Queue.get_queue("queue", 7).waiting.llen() == 1


class UniqueJob(Job):
    namespace = SPACE
    queue_name = "queue"
    identifier = fields.InstanceHashField(unique=True)


class UrgentJob(Job):
    namespace = SPACE
    queue_name = "queue"
    priority = fields.InstanceHashField(indexable=True, default=7)


class TestFieldsOfQueuesAndErrors:
    def test_a_queue_gets_its_fields_when_it_is_made(self, redis_client: redis.Redis) -> None:
        ann = Owner(name="ann")
        options = {"curator": "ann", "tags": {"x", "y"}, "visits": ["1"], "settings": {"a": "b"}, "owner": ann}
        queue = RichQueue.get_queue("queue", 3, scores={"m": 2}, **options)
        assert (queue.curator.hget(), queue.tags.smembers(), queue.visits.lmembers()) == ("ann", {"x", "y"}, ["1"])
        assert (queue.settings.hgetall(), queue.note.get(), queue.scores.zscore("m")) == ({"a": "b"}, "empty", 2)
        assert set(ann.queues()) == set(RichQueue.collection(curator="ann", tags="x")) == {queue.pk.get()}
        again = RichQueue.get_queue("queue", 3, curator="bob", note="full", visits=["2"])
        assert (again, again.curator.hget()) == (queue, "ann")
        assert (again.note.get(), again.visits.lmembers()) == ("empty", ["1"])
        assert violations(redis_client, RichQueue) == []

    @pytest.mark.parametrize("way", ["add", "requeue", "enqueue", "fail", "delay"])
    def test_a_queue_that_a_job_makes_gets_its_defaults(self, redis_client: redis.Redis, way: str) -> None:
        job = RichJob.add_job("a", priority=2)
        if way == "requeue":
            job.status.hset(STATUSES.ERROR)
            job.queued.delete()
            RichQueue.get_queue("queue", 2).waiting.delete()
            job.requeue(priority=5)
        elif way == "enqueue":
            job.enqueue_or_delay(priority=5)
        elif way == "fail":
            work(queue_model=RichQueue, callback=fail, requeue_times=1, requeue_priority_delta=3)
        elif way == "delay":

            def callback(job: Job, queue: Queue) -> None:
                job.priority.hset(5)
                job.status.hset(STATUSES.DELAYED)

            work(queue_model=RichQueue, callback=callback)
        else:
            RichJob.add_job("b", priority=5)
        (pk,) = RichQueue.collection(name="queue", priority="5")
        assert RichQueue.get(pk).note.get() == "empty"
        assert violations(redis_client, RichJob, RichQueue) == []

    def test_an_error_gets_its_fields(self, redis_client: redis.Redis) -> None:
        ann = Owner(name="ann")
        more: dict[str, Any] = {
            "hints": ["look"],
            "context": {"a": "b"},
            "tags": {"x"},
            "scores": {"m": 2},
            "note": "n",
        }
        error = RichError.add_error("queue", RichJob.add_job("a"), ValueError("v"), owner=ann, **more)
        assert (error.severity.hget(), error.note.get(), error.hints.lmembers()) == ("low", "n", ["look"])
        assert (error.context.hgetall(), error.tags.smembers(), error.scores.zscore("m")) == ({"a": "b"}, {"x"}, 2)
        found = RichError.collection(severity="low", tags="x", note="n", identifier="a", date_time__gt="2020")
        assert set(found) == set(ann.errors_of()) == {error.pk.get()}
        assert violations(redis_client, RichError) == []


# -- More indexes


class IndexedJob(Job):
    """All that a transition changes is indexed."""

    namespace = SPACE
    queue_name = "queue"
    added = fields.InstanceHashField(indexable=True)
    start = fields.InstanceHashField(indexable=True)
    end = fields.InstanceHashField(indexable=True)
    tries = fields.InstanceHashField(indexable=True)
    delayed_until = fields.InstanceHashField(indexable=True)


class RangedJob(Job):
    """With indexes that no script can maintain."""

    namespace = SPACE
    queue_name = "queue"
    status = fields.InstanceHashField(indexable=True, indexes=[EqualIndex, TextRangeIndex])
    priority = fields.InstanceHashField(indexable=True, indexes=[NumberRangeIndex], default=0)
    added = fields.InstanceHashField(indexable=True, indexes=[SimpleDateTimeIndex])
    start = fields.InstanceHashField(indexable=True, indexes=[SimpleDateTimeIndex])
    end = fields.InstanceHashField(indexable=True, indexes=[TextRangeIndex])
    tries = fields.InstanceHashField(indexable=True, indexes=[NumberRangeIndex])
    delayed_until = fields.InstanceHashField(
        indexable=True, indexes=[EqualIndex.configure(prefix="day", key="day", transform=lambda value: value[:10])]
    )


class OwnField(fields.InstanceHashField):
    """A field class of the application."""


class OwnFieldsJob(Job):
    namespace = SPACE
    queue_name = "queue"
    identifier = OwnField(indexable=True)
    status = OwnField(indexable=True)
    priority = OwnField(indexable=True, default=0)
    start = OwnField(indexable=True)
    tries = OwnField(indexable=True)


class TogetherJob(Job):
    """With an index of two fields, one of which a transition changes."""

    namespace = SPACE
    queue_name = "queue"
    status = fields.InstanceHashField(indexable=True)
    kind = fields.InstanceHashField(
        indexable=True, indexes=[EqualIndex, EqualIndexWith.configure(other_fields=["status"])]
    )


INDEXED = [IndexedJob, RangedJob, OwnFieldsJob]
each_indexed = pytest.mark.parametrize("job_class", INDEXED)


def values_of(job: Job) -> dict[str, str]:
    """Return the fields of a job that have a plain look-up, with their values."""
    names = [name for name in ("status", "priority", "added", "start", "end", "tries") if job.get_field(name).indexable]
    return {name: value for name, value in zip(names, job.hmget(*names), strict=True) if value is not None}


class Life:
    """Follows a job, and looks after each step whether it is found by its values, and no more by those before."""

    def __init__(self, client: redis.Redis, job: Any) -> None:
        self.client, self.job = client, job
        self.seen: set[tuple[str, str]] = set()

    def step(self, status: str) -> None:
        now = values_of(self.job)
        assert now["status"] == status
        self.seen |= set(now.items())
        for name, value in self.seen:
            found = set(type(self.job).collection(**{name: self._shortened(name, value)}))
            same = self._shortened(name, now.get(name)) == self._shortened(name, value)
            assert found == ({self.job.pk.get()} if same else set()), (name, value, now.get(name))
        assert violations(self.client, type(self.job), Queue) == []

    def _shortened(self, name: str, value: str | None) -> str | None:
        """Return what a date is indexed as: some indexes know no more than its second."""
        indexes = type(self.job).get_field(name)._indexes
        return value[:19] if value and any(isinstance(index, SimpleDateTimeIndex) for index in indexes) else value


class TestIndexes:
    @each_indexed
    @pytest.mark.parametrize("hooked", [False, True], ids=["plain worker", "own hooks"])
    def test_a_job_is_found_by_what_it_is_now(
        self, redis_client: redis.Redis, job_class: type[Job], hooked: bool
    ) -> None:
        class Hooked(Worker):
            def job_success(self, job: Job, queue: Queue, job_result: Any) -> None:
                super().job_success(job, queue, job_result)

            def requeue_job(self, job: Job, queue: Queue, priority: int, delayed_for: Any = None) -> None:
                super().requeue_job(job, queue, priority, delayed_for)

        def looking(then: Callable[[Job, Queue], Any]) -> Callable[[Job, Queue], Any]:
            def callback(job: Job, queue: Queue) -> Any:
                life.step(STATUSES.RUNNING)
                return then(job, queue)

            return callback

        def delay(job: Job, queue: Queue) -> None:
            job.delayed_until.hset("2001-01-01 00:00:00")
            job.status.hset(STATUSES.DELAYED)

        worker_class = Hooked if hooked else Worker
        job = job_class.add_job("a", priority=1)
        life = Life(redis_client, job)
        life.step(STATUSES.WAITING)
        job_class.add_job("a", priority=3)
        life.step(STATUSES.WAITING)
        work(worker_class=worker_class, callback=looking(fail), requeue_times=1, requeue_delay_delta=0)
        life.step(STATUSES.WAITING)
        work(worker_class=worker_class, callback=looking(delay))
        life.step(STATUSES.WAITING)
        work(worker_class=worker_class, callback=looking(fail))
        life.step(STATUSES.ERROR)
        job.requeue(priority=5, delayed_until=FAR)
        life.step(STATUSES.DELAYED)
        job.enqueue_or_delay(priority=6)
        life.step(STATUSES.WAITING)
        work(worker_class=worker_class, callback=looking(succeed))
        life.step(STATUSES.SUCCESS)

    @each_indexed
    def test_a_delayed_job_that_is_due_is_found_waiting(self, redis_client: redis.Redis, job_class: type[Job]) -> None:
        job = delayed_and_due(job_class, "a")
        life = Life(redis_client, job)
        life.step(STATUSES.DELAYED)
        assert Queue.get_queue("queue").requeue_delayed_jobs() == []
        assert job.status.hget() == STATUSES.WAITING
        assert list(job_class.collection(status=STATUSES.DELAYED)) == []
        assert list(job_class.collection(status=STATUSES.WAITING)) == [job.pk.get()]

    @each_indexed
    def test_a_job_that_cancels_itself_is_found_canceled(self, redis_client: redis.Redis, job_class: type[Job]) -> None:
        job = job_class.add_job("a")
        life = Life(redis_client, job)
        life.step(STATUSES.WAITING)
        work(callback=lambda job, queue: job.status.hset(STATUSES.CANCELED))
        life.step(STATUSES.CANCELED)

    @each_indexed
    def test_a_deleted_job_is_found_no_more(self, redis_client: redis.Redis, job_class: type[Job]) -> None:
        job = job_class.add_job("a")
        work()
        job.delete()
        assert violations(redis_client, job_class, Queue) == []
        assert not [key for key in redis_client.keys(f"{job_class._name}:*") if not key.endswith(":max_pk")]

    def test_ranges_find_jobs(self) -> None:
        jobs = [RangedJob.add_job(name, priority=priority) for name, priority in (("a", 1), ("b", 5))]
        work(callback=succeed)
        one, five = (job.pk.get() for job in jobs)
        assert list(RangedJob.collection(priority__gt=2)) == [five]
        assert list(RangedJob.collection(priority__lte=2)) == [one]
        assert set(RangedJob.collection(added__gt="2020")) == {one, five}
        assert list(RangedJob.collection(start__gt="2020", end__gt="2020", tries__gte=1)) == [five]
        assert list(RangedJob.collection(status__in=["w", "d"])) == [one]

    def test_fields_indexed_together_find_jobs(self, redis_client: redis.Redis) -> None:
        job = TogetherJob.add_job("a", kind="K")
        for callback, status in ((fail, "e"), (succeed, "s")):
            assert list(TogetherJob.collection(kind="K", status="w")) == [job.pk.get()]
            work(callback=callback)
            assert list(TogetherJob.collection(kind="K", status=status)) == [job.pk.get()]
            assert list(TogetherJob.collection(kind="K", status="w")) == []
            assert list(TogetherJob.collection(kind="K", status="r")) == []
            if status == "e":
                job.requeue()

    def test_a_failing_change_by_hand_leaves_the_indexes_as_they_were(self, redis_client: redis.Redis) -> None:
        job = RangedJob.add_job("a", priority=3)
        work()
        with pytest.raises(redis.DataError):
            job.status.hset(object())
        assert list(RangedJob.collection(status="s")) == [job.pk.get()]
        assert [list(RangedJob.collection(status=status)) for status in "wrde"] == [[]] * 4
        assert violations(redis_client, RangedJob, Queue) == []

    def test_indexes_remember_nothing_of_the_jobs_that_ran(self) -> None:
        for number in range(3):
            RangedJob.add_job(f"{number}")
        work(max_loops=3)
        indexes = [index for name in ("status", "end", "tries") for index in RangedJob.get_field(name)._indexes]
        assert [sum(map(len, index._rollback_cache.values())) for index in indexes] == [0] * len(indexes)

    def test_indexes_that_a_script_cannot_look_jobs_up_by_are_refused_by_name(self) -> None:
        class TextOnlyJob(Job):
            namespace = SPACE
            identifier = fields.InstanceHashField(indexable=True, indexes=[TextRangeIndex])

        class NumberOnlyQueue(Queue):
            namespace = SPACE
            priority = fields.InstanceHashField(indexable=True, indexes=[NumberRangeIndex], default=0)

        with pytest.raises(ConfigurationException, match="identifier"):
            TextOnlyJob.add_job("a", "queue")
        with pytest.raises(ConfigurationException, match="priority"):
            NumberOnlyQueue.get_queue("queue", 1)

    @pytest.mark.proof
    def test_a_class_that_is_refused_keeps_no_worker_from_other_jobs(self, redis_server: RedisServer) -> None:
        code = (
            "from limpyd import fields; from limpyd.indexes import TextRangeIndex\n"
            "from limpyd_jobs import Job, Worker\n"
            "class Refused(Job):\n"
            "    identifier = fields.InstanceHashField(indexable=True, indexes=[TextRangeIndex])\n"
            "class Good(Job):\n"
            "    def run(self, queue): pass\n"
            "job = Good.add_job('a', 'queue'); Worker('queue', max_loops=1, max_duration=60).run()\n"
            "print(job.status.hget())"
        )
        environment = {
            **os.environ,
            "PYTHONPATH": str(Path(__file__).resolve().parents[2]),
            "PYTHONWARNINGS": "ignore",
            "LIMPYD_JOBS_DATABASE": redis_server.url,
        }
        done = subprocess.run([sys.executable, "-c", code], env=environment, capture_output=True, text=True)
        assert (done.stdout, done.returncode) == ("s\n", 0), done.stderr


# -- Classes


REGISTERED: list[str] = []


class RegisteringMeta(MetaRedisModel):
    def __new__(cls, name: str, bases: Any, attributes: Any) -> Any:
        model = super().__new__(cls, name, bases, attributes)
        if not model.abstract:
            REGISTERED.append(name)
        return model


class AbstractJob(Job, metaclass=RegisteringMeta):
    abstract = True
    namespace = "subclasses-of-abstract"
    queue_name = "queue"
    queue_model = RichQueue
    flavour = fields.InstanceHashField(indexable=True, default="sour")
    sizes: tuple[int, ...] = ()

    @property
    def label(self) -> str:
        return f"{self.flavour.hget()} {self.identifier.hget()}"


class MoreAbstractJob(AbstractJob):
    abstract = True
    colours = fields.SetField()

    @classmethod
    def add_job(cls, identifier: Any, *args: Any, **kwargs: Any) -> Any:
        if isinstance(identifier, Owner):
            identifier = f"owner:{identifier.pk.get()}"
        if "hue" in kwargs:
            kwargs["colours"] = {kwargs.pop("hue")}
        return super().add_job(identifier, *args, **kwargs)


class ConcreteJob(MoreAbstractJob):
    def run(self, queue: Queue) -> str:
        return self.label


class OtherConcreteJob(MoreAbstractJob):
    queue_model = Queue
    flavour = fields.InstanceHashField(default="sweet")


class TestClasses:
    def test_abstract_bases_give_fields_and_attributes(self, redis_client: redis.Redis) -> None:
        job = ConcreteJob.add_job(Owner(name="ann"), hue="red", flavour="salty")
        assert job.ident == "test_subclasses.ConcreteJob:1"
        assert job.identifier.hget() == "owner:1"
        assert job.colours.smembers() == {"red"}
        assert job.label == "salty owner:1"
        assert list(ConcreteJob.collection(flavour="salty")) == ["1"]
        assert work(queue_model=RichQueue, callback=None).num_loops == 1
        assert job.status.hget() == STATUSES.SUCCESS
        assert redis_client.exists("subclasses-of-abstract:concretejob:1:hash") == 1
        assert violations(redis_client, ConcreteJob, RichQueue) == []

    def test_a_concrete_class_may_change_what_it_inherits(self) -> None:
        job = OtherConcreteJob.add_job("a")
        assert job.flavour.hget() == "sweet"
        assert Queue.get_queue("queue").waiting.lmembers() == [job.ident]

    def test_a_metaclass_may_extend_that_of_limpyd(self) -> None:
        assert REGISTERED == ["ConcreteJob", "OtherConcreteJob"]

    def test_classes_with_the_same_identifier_do_not_meet(self) -> None:
        jobs = [job_class.add_job("a", "queue", queue_model=Queue) for job_class in (ConcreteJob, UrgentJob, Job)]
        assert len({job.ident for job in jobs}) == 3
        assert Queue.get_queue("queue").waiting.lmembers() == [job.ident for job in jobs]

    def test_jobs_of_several_modules_in_one_queue(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, redis_client: redis.Redis
    ) -> None:
        source = "from limpyd_jobs import Job\nclass FarJob(Job):\n    namespace = 'far'\n    def run(self, queue):\n"
        (tmp_path / "far_module.py").write_text(source + "        return 'far'\n")
        monkeypatch.syspath_prepend(str(tmp_path))
        ConcreteJob.add_job("a", queue_model=Queue)
        redis_client.hset("far:farjob:1:hash", mapping={"identifier": "b", "status": "w", "queued": "1"})
        Queue.get_queue("queue").waiting.rpush("far_module.FarJob:1")
        ConcreteJob.add_job("c", queue_model=Queue)
        assert work(callback=None, max_loops=3).num_loops == 3
        assert redis_client.hmget("far:farjob:1:hash", "status", "tries", "identifier") == ["s", "1", "b"]

    @pytest.mark.proof
    def test_more_classes_in_one_queue_than_a_worker_remembers(self, collector: Collector) -> None:
        for number in range(2):
            for job_class in MANY:
                job_class.add_job(f"{number}")
        work(callback=collector, max_loops=2 * len(MANY))
        assert collector.identifiers == ["0"] * len(MANY) + ["1"] * len(MANY)


MANY: list[type[Job]] = []
for _number in range(20):
    _class = type(f"Many{_number}", (Job,), {"namespace": SPACE, "queue_name": "queue", "__module__": __name__})
    globals()[f"Many{_number}"] = _class
    MANY.append(_class)


# -- Databases


AWAY = PipelineDatabase(unix_socket_path=os.devnull)


class AwayQueue(Queue):
    namespace = "away"
    database = AWAY


class AwayJob(Job):
    namespace = "away"
    database = AWAY
    queue_name = "queue"
    queue_model = AwayQueue
    steps = fields.ListField()
    size = fields.InstanceHashField(indexable=True, indexes=[NumberRangeIndex])


class TestDatabases:
    @pytest.fixture
    def away(self, redis_server: RedisServer) -> Iterator[redis.Redis]:
        """A client of the database, one of limpyd itself, of the two models above."""
        AWAY.reset(unix_socket_path=redis_server.socket, db=15)
        with redis_server.client(db=15) as client:
            client.flushdb()
            yield client
        AWAY.connection.close()
        AWAY.reset(unix_socket_path=os.devnull)

    def test_some_models_may_be_on_another_database(
        self, redis_client: redis.Redis, away: redis.Redis, collector: Collector
    ) -> None:
        job = AwayJob.add_job("a", steps=["x"], size=7, priority=3)
        near = Job.add_job("near", "queue")
        Queue.get_queue("queue")
        due = delayed_and_due(AwayJob, "due")
        worker = work(queue_model=AwayQueue, callback=collector, max_loops=2)
        assert collector.identifiers == ["a", "due"]
        assert [job.status.hget(), due.status.hget(), near.status.hget()] == ["s", "s", "w"]
        assert list(AwayJob.collection(size__gt=5)) == [job.pk.get()]
        assert worker.connection.connection_pool.connection_kwargs["db"] == 15
        assert redis_client.keys("away:*") == []
        assert away.keys("jobs:*") == []
        assert violations(away, AwayJob, AwayQueue) == []

    def test_errors_may_be_elsewhere_than_jobs(self, away: redis.Redis, redis_client: redis.Redis) -> None:
        job = AwayJob.add_job("a")
        work(queue_model=AwayQueue, callback=fail)
        assert len(Error.collection(identifier="a")) == 1
        assert job.status.hget() == STATUSES.ERROR
        assert away.keys("*:error:*") == []

    def test_a_job_and_its_queue_may_not_be_apart(self, away: redis.Redis) -> None:
        with pytest.raises(ConfigurationException, match="database"):
            AwayJob.add_job("a", queue_model=Queue)
        assert away.keys("*") == []

    def test_threads_may_add_and_run_jobs_at_the_same_time(self, redis_client: redis.Redis) -> None:
        def add_and_run(name: str) -> None:
            try:
                for number in range(10):
                    RichJob.add_job(f"{name}{number}", name, steps=["x"])
                done.append(work(name, queue_model=RichQueue, max_loops=10).num_loops)
            except BaseException as error:
                done.append(error)

        done: list[Any] = []
        threads = [threading.Thread(target=add_and_run, args=(name,)) for name in "abc"]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert done == [10, 10, 10]
        assert len(RichJob.collection(status=STATUSES.SUCCESS)) == 30
        assert violations(redis_client, RichJob, RichQueue) == []

    @pytest.mark.parametrize("transaction", [True, False])
    def test_jobs_may_be_added_inside_a_pipeline(self, redis_client: redis.Redis, transaction: bool) -> None:
        with BaseJobsModel.database.pipeline(transaction=transaction) as pipe:
            job = IndexedJob.add_job("a")
            IndexedJob.add_job("a", priority=3)
            later = IndexedJob.add_job("b", delayed_for=timedelta(hours=1))
            pipe.execute()
        assert job.hmget("status", "priority") == ["w", "3"]
        assert later.status.hget() == STATUSES.DELAYED
        assert violations(redis_client, IndexedJob, Queue) == []

    def test_jobs_may_be_added_inside_a_transaction(self, redis_client: redis.Redis) -> None:
        ann = Owner(name="ann")

        def rename(pipe: Any) -> None:
            pipe.multi()
            ann.name.hset("bob")
            IndexedJob.add_job("a")

        BaseJobsModel.database.transaction(rename)
        assert ann.name.hget() == "bob"
        assert list(IndexedJob.collection(identifier="a")) == ["1"]
        assert violations(redis_client, IndexedJob, Queue) == []
