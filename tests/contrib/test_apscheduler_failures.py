"""Redis that fails, forks, and what others do in the midst of a round of APScheduler."""

from __future__ import annotations

import os
from collections.abc import Iterator
from datetime import timedelta
from typing import Any

import pytest
import redis
from servers import RedisServer, wait_until

pytest.importorskip("apscheduler")
from appointments import (
    FUTURE,
    NOW,
    PAST,
    note,
    ran,
    round_of,
    store_of,
    stored,
)
from apscheduler.executors.debug import DebugExecutor
from apscheduler.jobstores.base import JobLookupError
from apscheduler.jobstores.redis import RedisJobStore as TheirStore
from apscheduler.schedulers.background import BackgroundScheduler

from limpyd_jobs.contrib.apscheduler import LimpydJobStore, RedisJobStore

pytestmark = pytest.mark.usefixtures("redis_client")


class TestWhenRedisFails:
    def test_the_scheduler_begins_and_works_later(self, scheduler: Any, redis_binary: str) -> None:
        with RedisServer(redis_binary) as server:
            server.stop()
            made = scheduler(LimpydJobStore(server.url, allowed=[__name__, "appointments"], look_again=1e6))
            assert round_of(made) is not None
            server.start()
            made.add_job(note, "date", run_date=PAST, id="a")
            round_of(made)
            assert len(ran) == 1

    def test_the_scheduler_goes_on_and_records_later_what_it_did(self, scheduler: Any, redis_binary: str) -> None:
        with RedisServer(redis_binary, "--appendonly", "yes") as server:
            made = scheduler(LimpydJobStore(server.url, allowed=[__name__, "appointments"], look_again=1e6))
            made.add_job(note, "date", run_date=PAST, id="a")
            made.add_job(note, "interval", hours=1, next_run_time=PAST, id="b")

            class Executor(DebugExecutor):
                def submit_job(self, job: Any, run_times: Any) -> None:
                    super().submit_job(job, run_times)
                    server.stop()

            made._executors["default"] = Executor()
            made._executors["default"].start(made, "default")
            assert round_of(made) is not None
            assert round_of(made) is not None
            server.start()
            assert (round_of(made) or 0) > 3000
            assert len(ran) == 2
            assert [job.id for job in made.get_jobs()] == ["b"]

    def test_the_scheduler_goes_on_beside_a_foreign_key(self, scheduler: Any, redis_client: redis.Redis) -> None:
        made = scheduler()
        for name in "ab":
            made.add_job(note, "interval", hours=1, next_run_time=PAST, id=name)
        store = store_of(made)
        (first, second) = store.get_due_jobs(NOW)
        redis_client.delete("apscheduler:scheduledjob:a:hash")
        redis_client.set("apscheduler:scheduledjob:a:hash", "foreign")
        for job in (first, second):
            job._modify(next_run_time=FUTURE)
            store.update_job(job)
        for _ in range(2):
            assert store.get_due_jobs(NOW) == []
            store.get_next_run_time()
        assert [job.id for job in store.get_all_jobs()] == ["b"]

    def test_the_jobs_of_the_other_store_are_taken_over_later(self, scheduler: Any, redis_binary: str) -> None:
        with RedisServer(redis_binary) as server:
            theirs = BackgroundScheduler(timezone="UTC")
            theirs.add_jobstore(TheirStore(unix_socket_path=server.socket))
            theirs.add_job(note, "date", run_date=FUTURE, id="a")
            theirs.start(paused=True)
            theirs.shutdown()
            server.client().save()
            server.stop()
            made = scheduler(RedisJobStore(unix_socket_path=server.socket))
            server.start()
            round_of(made)
            assert [job.id for job in made.get_jobs()] == ["a"]


def test_a_scheduler_that_started_while_redis_was_down_hears_of_changes_later(
    scheduler: Any, redis_binary: str
) -> None:
    with RedisServer(redis_binary) as server:
        server.stop()
        made = scheduler(LimpydJobStore(server.url, allowed=[__name__, "appointments"], look_again=0.01))
        server.start()
        wait_until(lambda: round_of(made) is not None and store_of(made).events._changes is not None)
        made._event.clear()
        scheduler(LimpydJobStore(server.url, allowed=[__name__, "appointments"])).add_job(
            note, "date", run_date=PAST, id="a"
        )
        wait_until(made._event.is_set)


def test_a_job_may_remove_itself_and_the_scheduler_goes_on(scheduler: Any) -> None:
    made = scheduler()
    for trigger in ({"trigger": "interval", "hours": 1, "next_run_time": PAST}, {"trigger": "date", "run_date": PAST}):
        made.add_job(lambda_of(made, "a"), id="a", **trigger)
        made.add_job(note, "interval", hours=1, next_run_time=PAST, id="b")
        assert (round_of(made) or 0) > 20
        assert [job.id for job in made.get_jobs()] == ["b"]
        made.remove_job("b")
    assert len(ran) == 2
    with pytest.raises(JobLookupError):
        made.remove_job("a")


def lambda_of(scheduler: BackgroundScheduler, job_id: str) -> Any:
    TO_REMOVE[:] = [(scheduler, job_id)]
    return remove_itself


TO_REMOVE: list[tuple[BackgroundScheduler, str]] = []


def remove_itself() -> None:
    scheduler, job_id = TO_REMOVE[0]
    scheduler.remove_job(job_id)


def test_a_forked_process_that_ends_keeps_the_leases_of_its_parent(scheduler: Any) -> None:
    made = scheduler()
    made.add_job(note, "date", run_date=PAST, id="a")
    store = store_of(made)
    assert len(store.get_due_jobs(NOW)) == 1
    pid = os.fork()
    if pid == 0:
        store.shutdown()
        os._exit(0)
    assert os.waitpid(pid, 0)[1] == 0
    assert scheduler() is not None
    assert LimpydJobStore(allowed=[__name__, "appointments"]).get_due_jobs(NOW) == []


def test_a_forked_process_holds_no_leases(scheduler: Any) -> None:
    made = scheduler()
    made.add_job(note, "date", run_date=PAST, id="a")
    store = store_of(made)
    assert len(store.get_due_jobs(NOW)) == 1
    pid = os.fork()
    if pid == 0:
        os._exit(len(store.get_due_jobs(NOW)))
    assert os.waitpid(pid, 0)[1] == 0


def test_changes_are_not_looked_at_during_a_round_which_looks_itself_at_its_end(scheduler: Any) -> None:
    made = scheduler()
    store = store_of(made)
    store.get_due_jobs(NOW)
    scheduler().add_job(note, "date", run_date=PAST, id="a")
    assert not store._is_early({"a"})
    assert store.get_next_run_time() == PAST
    assert not store._is_early({"a"})  # as it is planned
    scheduler().add_job(note, "date", run_date=PAST - timedelta(seconds=1), id="b")
    assert store._is_early({"b"})


@pytest.mark.parametrize("call", ["get_next_run_time", "update_job", "remove_job"])
def test_a_forked_process_does_not_end_the_round_of_its_parent(scheduler: Any, call: str) -> None:
    made = scheduler()
    made.add_job(note, "interval", hours=1, next_run_time=PAST, id="a")
    made.add_job(note, "interval", hours=1, next_run_time=PAST, id="b")
    store = store_of(made)
    job, _ = store.get_due_jobs(NOW)
    pid = os.fork()
    if pid == 0:
        arguments = {"get_next_run_time": [], "update_job": [job], "remove_job": ["a"]}[call]
        job._modify(name="new")
        getattr(store, call)(*arguments)
        os._exit(len(store.round._jobs))
    assert os.waitpid(pid, 0)[1] == 0
    assert [*store.round._jobs] == ["a", "b"]
    assert stored("b")["leased_by"] == store.context.owner
    assert stored("a").get("leased_by") == (None if call == "remove_job" else store.context.owner)
    if call == "update_job":
        assert stored("a")["name"] == "new"


class TestAJobOfAnotherProcess:
    @pytest.fixture
    def running(self) -> Iterator[BackgroundScheduler]:
        """A scheduler that plans to look again in ten seconds at the earliest."""
        store = LimpydJobStore(allowed=[__name__, "appointments"])
        made = BackgroundScheduler(timezone="UTC", job_defaults={"misfire_grace_time": None})
        made.add_jobstore(store)
        made.add_executor(DebugExecutor())
        made.start()
        wait_until(lambda: store._planned)
        yield made
        made.shutdown()

    def test_is_run_as_soon_as_its_executor_is_added_here(self, running: Any, scheduler: Any) -> None:
        scheduler().add_job(note, "date", run_date=PAST, id="a", executor="other")
        wait_until(lambda: store_of(running).reader.left_to_others == ["a"] and store_of(running)._planned)
        assert ran == []
        running.add_executor(DebugExecutor(), "other")
        wait_until(lambda: len(ran) == 1)

    def test_that_is_added_or_brought_forward_is_run_in_time(self, running: Any, scheduler: Any) -> None:
        other = scheduler()
        other.add_job(note, "date", run_date=FUTURE, id="later")
        other.add_job(note, "date", run_date=PAST, id="now", args=["now"])
        wait_until(lambda: ran == [(("now",), {})])
        other.modify_job("later", next_run_time=PAST, args=["later"])
        wait_until(lambda: len(ran) == 2)
        assert other.get_jobs() == []
