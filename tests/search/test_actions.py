"""What is done with all the jobs that a filter finds."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from contextlib import AbstractContextManager
from datetime import datetime, timedelta
from typing import Any, ClassVar

import pytest
import redis
from cases import each

from limpyd_jobs import STATUSES, Argument, Job, LimpydJobsException, NotAudited, Queue, Worker
from limpyd_jobs.models import BaseJobsModel
from limpyd_jobs.models.job_record import JobCollection
from limpyd_jobs.query import Enough, ErrorFilter, JobFilter
from limpyd_jobs.records.audit import last_entries
from limpyd_jobs.records.known_classes import KnownClass
from limpyd_jobs.search import walk
from limpyd_jobs.search.actions import ACTIONS
from limpyd_jobs.shards import ShardsFilter

pytestmark = pytest.mark.usefixtures("redis_client")


class Letter(Job):
    namespace = "actions"
    queue_name = "letters"

    to = Argument(indexable=True)

    def run(self, queue: Any) -> None:
        raise KeyError(self.arguments.to)


class Registered(Job):
    """With a way of its own to be put in a queue."""

    namespace = "actions"
    queue_name = "registered"

    def enqueue_or_delay(self, *arguments: Any, **options: Any) -> None:
        if self.identifier.hget() == "bad":
            raise LimpydJobsException("not this one")
        super().enqueue_or_delay(*arguments, **options)
        CALLED.append(self.identifier.hget())


CALLED: list[str | None] = []


def fail(queue: str, number: int) -> None:
    worker = Worker(queue, callback=lambda job, queue: 1 / 0, max_loops=number, logger_level=60)
    worker.run()


@pytest.fixture
def letters() -> list[Letter]:
    made = [Letter.add_job(f"{number}", to="ann" if number % 2 else "bob") for number in range(6)]
    fail("letters", 4)
    return made


def test_jobs_go_back_to_the_queue_in_which_they_were(letters: list[Letter]) -> None:
    Letter.add_job("elsewhere", "parcels", to="ann")
    fail("parcels", 1)
    assert JobFilter("status=error", "to=ann").requeue_all() == (3, 0, 0, {})
    assert [queue.waiting.llen() for queue in Queue.get_all(["letters", "parcels"])] == [4, 1]
    assert JobFilter("status=error").count().number == 2


def test_what_has_another_status_is_skipped_with_the_reason(letters: list[Letter]) -> None:
    assert JobFilter(Letter).requeue_all() == (4, 2, 0, {"not in error": 2})
    assert JobFilter(Letter).promote_all() == (0, 6, 0, {"not delayed": 6})


def test_what_is_claimed_is_refused(letters: list[Letter]) -> None:
    with letters[5].claim("me"):
        assert JobFilter(Letter).delete_all() == (5, 0, 1, {"claimed": 1})
        assert JobFilter(Letter).move_all("x") == (0, 0, 1, {"claimed": 1})
    assert JobFilter(Letter).count().number == 1


def test_a_dry_run_counts_and_changes_nothing(letters: list[Letter], redis_client: redis.Redis) -> None:
    Letter.add_job("0", to="again")
    before = {key: redis_client.dump(key) for key in redis_client.scan_iter()}
    assert JobFilter(Letter).requeue_all(dry_run=True) == (3, 3, 1, {"already queued": 1, "not in error": 3})
    assert {key: redis_client.dump(key) for key in redis_client.scan_iter()} == before


def test_a_job_of_an_identifier_that_is_queued_is_refused(letters: list[Letter]) -> None:
    Letter.add_job("0", to="again")
    assert JobFilter("status=error").requeue_all() == (3, 0, 1, {"already queued": 1})


def test_jobs_are_moved_delayed_promoted_canceled_and_deleted(letters: list[Letter]) -> None:
    waiting = JobFilter(Letter, "status=waiting")
    assert waiting.move_all("parcels", 7).done == 2
    assert JobFilter("queue=parcels", "priority=7").count().number == 2
    assert waiting.delay_all(timedelta(hours=1)).done == 2
    assert JobFilter("status=delayed", "delayed_until>+59m", "delayed_until<+61m", "queue=parcels").count().number == 2
    assert JobFilter("status=delayed").promote_all().done == 2
    assert waiting.cancel_all().done == 2
    assert Queue.get_queue("parcels", 7).waiting.llen() == 0
    assert JobFilter(Letter).delete_all().done == 6
    assert JobFilter().count().number == 0


@pytest.mark.parametrize("verb", ACTIONS)
def test_each_verb_is_one_of_filters_of_collections_of_all_shards_and_under_asyncio(verb: str) -> None:
    for kind in (JobFilter, JobCollection, ShardsFilter):
        assert callable(getattr(kind, f"{verb}_all"))


@pytest.mark.parametrize("kind", [JobFilter, ErrorFilter])
def test_each_method_that_asks_redis_has_a_twin_under_asyncio_with_the_same_arguments(kind: type) -> None:
    methods = {name: each for name in dir(kind) if name[0] != "_" and callable(each := getattr(kind, name))}
    twins = {name for name, each in methods.items() if inspect.iscoroutinefunction(each)}
    steps = {"counting", "jobs", "planning"}
    of_commands_and_pages = {"last_of", "listed", "missing_indexes", "of_jobs", "recent", "records"}
    assert {name[1:] for name in twins} == methods.keys() - twins - steps - of_commands_and_pages
    for name in twins:
        assert inspect.signature(methods[name]) == inspect.signature(methods[name[1:]])


def test_the_oldest_go_first(letters: list[Letter]) -> None:
    JobFilter("status=error").requeue_all("again")
    waiting = [Job.get_from_ident(ident) for ident in Queue.get_queue("again").waiting.lmembers()]
    assert [job.identifier.hget() for job in waiting] == ["0", "1", "2", "3"]


def test_it_goes_in_steps_a_round_trip_each(
    monkeypatch: pytest.MonkeyPatch, letters: list[Letter], commands: Callable[[], AbstractContextManager[Any]]
) -> None:
    monkeypatch.setattr(walk, "CHANGES_PER_STEP", 2)
    told: list[tuple[int, int]] = []
    asked = JobFilter("status=error")
    asked.requeue_all(dry_run=True)
    with commands() as sent:
        asked.requeue_all(progress=lambda *numbers: told.append(numbers))
    scripts = [command for command in sent if command.startswith("EVALSHA") and "limpyd-jobs:classes" not in command]
    assert len(scripts) == 4  # with the beginning and the end of the entry in the audit
    assert told == [(2, 4), (4, 4)]


def test_if_it_is_interrupted_what_was_done_stays(monkeypatch: pytest.MonkeyPatch, letters: list[Letter]) -> None:
    monkeypatch.setattr(walk, "CHANGES_PER_STEP", 2)

    def interrupt(*numbers: int) -> None:
        raise KeyboardInterrupt

    asked = JobFilter("status=error")
    with pytest.raises(KeyboardInterrupt):
        asked.requeue_all(progress=interrupt)
    assert asked.count().number == 2
    (entry,) = last_entries(BaseJobsModel.database.connection, 10)
    assert (entry["done"], entry["outcome"]) == ("2", "interrupted by KeyboardInterrupt")
    assert asked.requeue_all().done == 2


def test_the_way_of_a_class_to_queues_is_taken() -> None:
    for identifier in ("good", "bad"):
        Registered(identifier=identifier, status="e")
    CALLED.clear()
    assert JobFilter(Registered).requeue_all() == (1, 0, 1, {"LimpydJobsException: not this one": 1})
    assert CALLED == ["good"]
    assert JobFilter(Registered, "identifier=good").move_all(priority=3).done == 1
    assert JobFilter(Registered, "identifier=good").delay_all(60).done == 1
    assert JobFilter(Registered, "identifier=good").promote_all().done == 1
    assert CALLED == ["good"] * 4
    assert JobFilter(Registered, "status=waiting", "identifier=good").count().number == 1


def test_jobs_of_a_class_that_cannot_be_imported_are_refused(redis_client: redis.Redis) -> None:
    known = KnownClass(
        "no.such.Class", "no:such", frozenset({"status"}), {"status": "no:such:status:"}, {}, frozenset()
    )
    redis_client.hset("limpyd-jobs:classes", "no.such.Class", known.as_json())
    redis_client.sadd("no:such:collection", "1")
    redis_client.hset("no:such:1:hash", "status", "e")
    tally = JobFilter().cancel_all()
    assert (tally.done, tally.skipped, tally.refused) == (0, 0, 1)
    (reason,) = tally.reasons
    assert reason.startswith("no.such.Class cannot be imported: ModuleNotFoundError")


def test_who_did_what_is_written_down(letters: list[Letter]) -> None:
    JobFilter("status=error", to="ann").requeue_all("urgent", 5, delayed_for=60)
    JobFilter(Letter).cancel_all(dry_run=True)
    (entry,) = last_entries(BaseJobsModel.database.connection, 10)
    assert (entry["verb"], entry["how"]) == ("requeue", "queue_name=urgent priority=5 delay=+60 s")
    assert entry["filter"] == "status=error to=ann"
    assert (entry["done"], entry["skipped"], entry["refused"]) == ("2", "0", "0")
    assert "@" in entry["who"]
    JobFilter(Letter).promote_all()
    JobFilter(Letter).delay_all(delayed_until=datetime(2100, 1, 2))
    told = [entry["how"] for entry in last_entries(BaseJobsModel.database.connection, 2)]
    assert told == ["delay=2100-01-02 00:00:00", ""]


@each(
    "call",
    [
        lambda asked: asked.move_all(),
        lambda asked: asked.delay_all(),
        lambda asked: asked.delay_all(-5),
        lambda asked: asked.requeue_all(priority="high"),
        lambda asked: asked.move_all(""),
        lambda asked: asked.delay_all(float("nan")),
    ],
)
def test_what_cannot_be_done_is_refused_before_anything_is(letters: list[Letter], call: Any) -> None:
    with pytest.raises((TypeError, ValueError)):
        call(JobFilter())
    assert JobFilter("status=waiting").count().number == 2


@pytest.mark.parametrize("index", ["status:w", "status:d", "priority:0", "priority:3", "queued:1"])
@pytest.mark.parametrize("verb", ["move", "delay", "promote", "delete", "cancel"])
def test_a_job_that_cannot_be_changed_stays_where_it_stands(redis_client: redis.Redis, verb: str, index: str) -> None:
    waits, late = Letter.add_job("waits", to="ann"), Letter.add_job("late", to="ann", delayed_for=3600)
    redis_client.delete(f"actions:letter:{index}")
    redis_client.set(f"actions:letter:{index}", "x")
    arguments: Any = {"move": (None, 3), "delay": (60,)}.get(verb, ())
    getattr(JobFilter(Letter), f"{verb}_all")(*arguments)
    for job in (waits, late):
        status = redis_client.hget(f"actions:letter:{job.pk.get()}:hash", "status")
        in_list = sum(redis_client.lrange(f"jobs:queue:{pk}:waiting", 0, -1).count(job.ident) for pk in (1, 2))
        in_set = sum(redis_client.zscore(f"jobs:queue:{pk}:delayed", job.ident) is not None for pk in (1, 2))
        assert (in_list, in_set) == {"w": (1, 0), "d": (0, 1)}.get(status or "", (0, 0))


def test_one_that_is_moved_alone_does_so_too(redis_client: redis.Redis) -> None:
    job = Letter.add_job("waits", to="ann")
    redis_client.set("actions:letter:status:d", "x")
    with pytest.raises(redis.ResponseError):
        job.enqueue_or_delay("letters", delayed_until=datetime(2100, 1, 1))
    assert redis_client.lrange("jobs:queue:1:waiting", 0, -1) == [job.ident]


def test_what_redis_has_no_room_for_is_not_called_broken(redis_client: redis.Redis) -> None:
    Letter.add_job("waits", to="ann")
    redis_client.config_set("maxmemory", 1)
    try:
        with pytest.raises(NotAudited, match=r"OOM.* give unaudited=True, but a new queue needs room in Redis, too$"):
            JobFilter(Letter).move_all("other")
        with pytest.raises(NotAudited, match=r"OOM.* give unaudited=True$"):
            JobFilter(Letter).cancel_all()
        tally = JobFilter(Letter).move_all("other", unaudited=True)
        assert JobFilter(Letter).delete_all(dry_run=True).done == 1
    finally:
        redis_client.config_set("maxmemory", 0)
    assert (tally.done, tally.reasons) == (0, {"refused by Redis": 1})
    assert redis_client.llen("jobs:queue:1:waiting") == 1


def test_once_some_are_done_the_rest_is_said_not_to_be(redis_client: redis.Redis) -> None:
    Letter.add_jobs((f"{number}" for number in range(150)), to="ann")
    try:
        with pytest.raises(NotAudited, match=r"^the rest is not done, because .* OOM"):
            JobFilter(Letter).delete_all(progress=lambda *_: redis_client.config_set("maxmemory", 1))
    finally:
        redis_client.config_set("maxmemory", 0)
    assert 0 < len(Letter.collection()) < 150


class Slow(Job):
    """A class with its own ways, as of an application that looks at each job."""

    namespace = "acting"
    queue_name = "slow"
    looks: ClassVar[list[Any]] = []  # called once, right before a job is changed

    def enqueue_or_delay(self, *args: Any, **kwargs: Any) -> None:
        self.look()
        super().enqueue_or_delay(*args, **kwargs)

    def cancel(self) -> Any:
        self.look()
        return super().cancel()

    def delete(self) -> Any:
        return super().delete()

    def look(self) -> None:
        if self.looks:
            self.looks.pop()(self)


@pytest.mark.parametrize(
    "verb", [lambda jobs: jobs.move_all(priority=3), lambda jobs: jobs.delay_all(60), lambda jobs: jobs.delete_all()]
)
def test_a_job_that_is_claimed_at_the_last_moment_is_left_alone_by_the_ways_of_a_class(verb: Any) -> None:
    claims: list[Any] = []
    for number in range(3):
        Slow.add_job(f"{number}")
    Slow.looks.append(lambda job: claims.append(Slow.get(job.pk.get()).claim("somebody")))
    assert verb(JobFilter(Slow)) == (2, 0, 1, {"claimed": 1})
    [claim] = claims
    assert claim.job.status.hget() == STATUSES.RUNNING
    claim.succeed()
    assert claim.status == STATUSES.SUCCESS


def test_jobs_that_are_deleted_leave_the_lists_of_jobs_that_ended() -> None:
    for identifier in ("good", "bad", "worse", "kept"):
        Job.add_job(identifier, "ended")
    Worker("ended", callback=_fails_if_bad, max_loops=4, logger_level=60).run()
    assert JobFilter("status=error", Job).requeue_all().done == 2
    Worker("ended", callback=_fails_if_bad, max_loops=2, logger_level=60).run()
    queue = Queue.get_queue("ended")
    assert (len(queue.success.lmembers()), len(queue.errors.lmembers())) == (2, 4)
    assert JobFilter("identifier!=kept", Job).delete_all().done == 3
    assert [Job.get_from_ident(ident).identifier.hget() for ident in queue.success.lmembers()] == ["kept"]
    assert queue.errors.lmembers() == []


def _fails_if_bad(job: Any, queue: Any) -> None:
    if job.identifier.hget() in ("bad", "worse"):
        raise ValueError("on purpose")


class Order(Job):
    """With a method of an application of version 2."""

    namespace = "acting"
    queue_name = "orders"

    def cancel(self) -> Any:
        raise RuntimeError("called, but it is about something else")


class Stubborn(Job):
    """With ways of its own that fail, or do nothing."""

    namespace = "acting"
    queue_name = "stubborn"

    def _may(self) -> bool:
        name = self.identifier.hget()
        if name == "raises":
            raise RuntimeError("no\x1b\n" * 5000)
        if name == "exits":
            raise SystemExit(3)
        return name == "good"

    def cancel(self) -> Any:
        return self._may() and super().cancel()

    def requeue(self, *args: Any, **kwargs: Any) -> None:
        if self._may():
            super().requeue(*args, **kwargs)

    def enqueue_or_delay(self, *args: Any, **kwargs: Any) -> None:
        if not self.priority.hget() or self._may():
            super().enqueue_or_delay(*args, **kwargs)

    def delete(self) -> Any:
        return self._may() and super().delete()


def test_a_method_of_the_name_of_ours_that_is_something_else_is_not_called() -> None:
    for number in range(3):
        Order.add_job(f"{number}")
    assert JobFilter(Order).cancel_all() == (3, 0, 0, {})
    assert JobFilter(Order, "status=canceled").count().number == 3
    assert Queue.get_queue("orders").waiting.llen() == 0


@pytest.mark.parametrize("verb", ["requeue", "cancel", "move", "delay", "promote", "delete"])
def test_what_the_ways_of_a_class_raise_or_leave_undone_is_told_and_the_others_go_on(verb: str) -> None:
    status = {"requeue": "e", "promote": "d", "delete": "s"}.get(verb, "w")
    for identifier in ("raises", "idle", "exits", "good"):
        Stubborn(identifier=identifier, status=status, priority=1)
    other = Letter.add_job("other", to="ann")
    arguments: Any = {"move": (None, 3), "delay": (60,)}.get(verb, ())
    tally = getattr(JobFilter("class=Stubborn"), f"{verb}_all")(*arguments)
    assert (tally.done, tally.skipped, tally.refused) == (1, 0, 3)
    raises, exits, idle = sorted(tally.reasons)
    assert raises.startswith("RuntimeError: no\\x1b\\nno")
    assert raises.isprintable()
    assert len(raises) < 20_000
    assert (exits, idle.split(" by ")[0]) == ("SystemExit: 3", "unchanged")
    assert other.status.hget() == "w"
    (entry,) = last_entries(BaseJobsModel.database.connection, 1)
    assert (entry["done"], entry["refused"], entry["outcome"]) == ("1", "3", "complete")


def test_a_progress_may_end_it_with_what_was_done(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("PER_STEP", "CHANGES_PER_STEP"):
        monkeypatch.setattr(walk, name, 2)
    for number in range(3):
        Letter.add_job(f"{number}", to="ann")

    def enough(*numbers: int) -> None:
        raise Enough

    for dry_run in (True, False):
        tally = JobFilter("status=waiting").cancel_all(progress=enough, dry_run=dry_run)
        assert (tally.done, tally.is_exact) == (2, False)
    assert JobFilter("status=waiting").cancel_all().is_exact
