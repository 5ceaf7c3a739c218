"""A user of Redis who may not read all keys: what may be read is shown, and the rest is named."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
import redis
from servers import RedisServer

from limpyd_jobs import Error, Job, Queue
from limpyd_jobs.contrib.web.pages.overview import overview_of
from limpyd_jobs.contrib.web.pictures.looks import Looks
from limpyd_jobs.contrib.web.settings import Settings
from limpyd_jobs.query import JobFilter, attention, glance, job_details, queue_states
from limpyd_jobs.records.known_classes import KEY
from limpyd_jobs.redis.database import JobsDatabase
from limpyd_jobs.search.classes import models_of
from limpyd_jobs.search.errors import ErrorFilter


class Ledger(Job):
    """A job that the user may not read, in a queue that the user may read."""

    namespace = "vault"
    queue_name = "queue"


class Shelf(Queue):
    namespace = "vault"


class Slip(Error):
    namespace = "vault"


HIDDEN = {"vault:ledger", "vault:shelf", "vault:slip", "attic:thing"}


@pytest.fixture(autouse=True)
def _limited(redis_server: RedisServer, redis_client: redis.Redis, jobs_database: JobsDatabase) -> Iterator[None]:
    Job.add_job("seen", "queue")
    Ledger.add_job("hidden")
    Shelf.get_queue("hidden")
    Slip.add_error("hidden", Job.add_job("failed", "queue"), ValueError("hidden"))
    redis_client.hset(KEY, "attic.Thing", '["attic.Thing","attic:thing",[],{},{},[]]')  # of another process
    redis_client.execute_command(
        "ACL", "SETUSER", "limited", "reset", "on", ">secret", "~jobs:*", "~limpyd-jobs:*", "+@all"
    )
    jobs_database.reset(unix_socket_path=redis_server.socket, username="limited", password="secret")
    yield
    jobs_database.reset(unix_socket_path=redis_server.socket)


def test_jobs_queues_and_errors_that_may_be_read_are_found() -> None:
    assert {job.identifier for job in JobFilter()} == {"seen", "failed"}
    assert [(state.name, state.waiting, state.unknown_classes) for state in queue_states()] == [("queue", 3, [])]
    assert ErrorFilter().count().number == 0
    assert {*models_of(None).unread} >= HIDDEN


def test_the_overview_names_what_may_not_be_read() -> None:
    seen = glance()
    assert seen.overview.totals.jobs == 2
    (said,) = [each.text for each in attention(seen) if each.code == "unread"]
    assert said.startswith("Not looked at: ")
    assert said.endswith(", which this user of Redis may not read.")


def test_the_first_page_of_the_dashboard_is_shown() -> None:
    shown = overview_of(Looks(Settings()))
    assert "unread" in {each.code for each in shown.attention}


def test_who_asks_for_a_job_that_may_not_be_read_learns_so() -> None:
    with pytest.raises(LookupError, match=r"vault:ledger:\*, which this user of Redis may not read"):
        job_details(f"{Ledger.get_model_repr()}:1")


def test_a_user_who_may_not_ask_for_keys_at_all_is_refused(redis_client: redis.Redis) -> None:
    redis_client.execute_command("ACL", "SETUSER", "limited", "-exists", "-sscan")
    assert models_of(None).unread == []
