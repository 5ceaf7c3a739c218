"""A user of Redis who may not read all keys: the check looks at the others, and says which it left out."""

from __future__ import annotations

import pytest
import redis
from servers import RedisServer

from limpyd_jobs import STATUSES, Job, Queue
from limpyd_jobs.check import Report, check
from limpyd_jobs.redis.database import JobsDatabase


class Wine(Job):
    """A job that stands in a queue that the user may read."""

    namespace = "cellar"
    queue_name = "q"


class Safe(Queue):
    namespace = "cellar"


class Coin(Job):
    """A job that the user may read, in a queue that the user may not read."""

    namespace = "shop"
    queue_model = Safe
    queue_name = "coins"


@pytest.fixture(autouse=True)
def _limited(redis_client: redis.Redis) -> None:
    keys = ("~jobs:*", "~shop:*", "~limpyd-jobs:*")
    redis_client.execute_command("ACL", "SETUSER", "limited", "reset", "on", ">secret", *keys, "+@all")


@pytest.fixture
def checked(redis_server: RedisServer, jobs_database: JobsDatabase) -> Report:
    """What this user finds and repairs, who gives up all jobs of classes that cannot be imported."""
    jobs_database.reset(unix_socket_path=redis_server.socket, username="limited", password="secret")
    report = check(pause=0, repair=True, unresolved="delete")
    jobs_database.reset(unix_socket_path=redis_server.socket)
    return report


class TestSomeKeysMayNotBeRead:
    @pytest.fixture(autouse=True)
    def _jobs(self, redis_client: redis.Redis, _limited: None) -> None:
        self.lost, self.wine, self.coin = Job.add_job("lost", "q"), Wine.add_job("wine"), Coin.add_job("coin")
        redis_client.lrem(Queue.get_queue("q").waiting.key, 0, str(self.lost.ident))
        redis_client.sadd("attic:thing:status:w", "1")  # of a class that is not imported

    def test_the_others_are_repaired_and_these_are_named(self, checked: Report) -> None:
        assert [(found.subject, found.repaired) for found in checked.findings] == [(str(self.lost.ident), True)]
        for name in ("cellar:wine", "cellar:safe", "attic:thing"):
            assert f"{name}:*, which this user of Redis may not read" in checked.unchecked
        assert f"jobs of {Coin.get_model_repr()}, whose queues this user of Redis may not read" in checked.unchecked

    def test_their_jobs_stay_where_they_are(self, checked: Report) -> None:
        assert Queue.get_queue("q").waiting.lmembers() == [str(self.lost.ident), str(self.wine.ident)]
        assert Safe.get_queue("coins").waiting.lmembers() == [str(self.coin.ident)]
        assert {each.status.hget() for each in (self.lost, self.wine, self.coin)} == {STATUSES.WAITING}


def test_a_user_who_may_not_ask_for_keys_at_all_is_refused(
    redis_server: RedisServer, redis_client: redis.Redis, jobs_database: JobsDatabase
) -> None:
    redis_client.execute_command("ACL", "SETUSER", "limited", "-exists")
    jobs_database.reset(unix_socket_path=redis_server.socket, username="limited", password="secret")
    with pytest.raises(redis.exceptions.NoPermissionError, match="exists"):
        check(pause=0)
    jobs_database.reset(unix_socket_path=redis_server.socket)
