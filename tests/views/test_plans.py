"""A verb that is counted and then done asks once where to look, and does what was counted."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import Any

import pytest
import redis
from reading import limpyd_jobs

from limpyd_jobs import Job
from limpyd_jobs.idents import Ident
from limpyd_jobs.query import ErrorFilter, JobFilter
from limpyd_jobs.views import Change, filter_of_job

pytestmark = pytest.mark.usefixtures("redis_client")


class Bill(Job):
    namespace = "plans"
    queue_name = "bills"

    def run(self, queue: Any) -> None: ...


class Later(Bill):
    abstract = False


def fail(*identifiers: str, job_class: type[Job] = Bill) -> None:
    for identifier in identifiers:
        job_class.add_job(identifier).claim("a test").fail(KeyError("customer"))


def calls_of(client: redis.Redis, command: str) -> int:
    return int(client.info("commandstats").get(f"cmdstat_{command}", {"calls": 0})["calls"])


def test_what_was_counted_is_done_and_what_was_added_meanwhile_is_left_alone(redis_client: redis.Redis) -> None:
    fail("one", "two")
    change = Change("requeue", [JobFilter("status=error")])
    assert change.count() == (2, 0, 0, {})
    fail("of another class", job_class=Later)
    assert change.do() == (2, 0, 0, {})
    assert [job.identifier for job in JobFilter("status=error")] == ["of another class"]


def test_a_spread_that_was_counted_ends_when_it_said() -> None:
    fail("one", "two", "three")
    change = Change("requeue", [JobFilter("status=error")], spread=600)
    would, done = change.count().until, change.do().until
    assert would
    assert done
    assert abs((done - would).total_seconds()) < 60


def test_errors_are_counted_and_deleted_in_the_same_way() -> None:
    fail("one", "two")
    change = Change("delete", [ErrorFilter("type=KeyError")])
    assert (change.count().done, change.do().done, ErrorFilter().count().number) == (2, 2, 0)


def test_with_yes_a_command_looks_at_the_jobs_once(redis_client: redis.Redis) -> None:
    fail("one", "two")
    words = ("jobs", "requeue", "class=Bill", "status=error")
    limpyd_jobs(*words, "--dry-run")  # all classes and scripts are known from now on
    redis_client.config_resetstat()
    assert limpyd_jobs(*words, "--dry-run")[0] == 0
    once = calls_of(redis_client, "sscan")
    redis_client.config_resetstat()
    assert limpyd_jobs(*words, "--yes")[:2] == (0, "jobs\n2     requeued\n")
    assert calls_of(redis_client, "sscan") == once


def test_a_verb_on_several_jobs_asks_once_which_classes_there_are(
    commands: Callable[[], AbstractContextManager[Any]],
) -> None:
    fail("one", "two", "three")
    change = Change("delete", [filter_of_job(Ident.of(job.ident)) for job in JobFilter("class=Bill")])
    with commands() as sent:
        assert change.count().done == 3
    assert len([command for command in sent if command.split()[3:4] == ["limpyd-jobs:classes"]]) == 1
