"""A connection that a thread keeps to itself."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from multiprocessing import get_context
from types import SimpleNamespace
from typing import Any

import pytest
import redis
from servers import RedisServer, wait_until

from limpyd_jobs import Job
from limpyd_jobs.redis import connections as module
from limpyd_jobs.redis.calls import Call, outcome_of, run, send_after
from limpyd_jobs.redis.connections import PinnedConnection, SharedConnection
from limpyd_jobs.redis.database import JobsDatabase
from limpyd_jobs.redis.scripting import Script


@pytest.fixture
def database(jobs_database: JobsDatabase) -> JobsDatabase:
    return jobs_database


@pytest.fixture
def line(database: JobsDatabase) -> Iterator[PinnedConnection]:
    line = PinnedConnection(lambda: database.connection)
    yield line
    line.close()


def kill(client: redis.Redis, line: PinnedConnection) -> None:
    client.client_kill_filter(_id=line.execute_command("CLIENT", "ID"))


def test_all_commands_go_over_one_connection(line: PinnedConnection) -> None:
    assert len({line.execute_command("CLIENT", "ID") for _ in range(3)}) == 1


def test_nothing_is_asked_of_the_client_before_the_first_command() -> None:
    PinnedConnection(lambda: pytest.fail("asked"))


def test_an_error_of_the_server_is_raised_and_the_line_goes_on(line: PinnedConnection) -> None:
    before = line.execute_command("CLIENT", "ID")
    with pytest.raises(redis.ResponseError, match="wrong number"):
        line.execute_command("GET")
    assert line.execute_command("CLIENT", "ID") == before


def test_the_errors_among_several_replies_are_among_what_it_returns(line: PinnedConnection) -> None:
    first, second, third = line.execute_commands(["SET", "a", 1], ["LPOP", "a"], ["GET", "a"])
    assert (first, third) == ("OK", "1")
    assert isinstance(second, redis.ResponseError)
    line.execute_command("DEL", "a")


def test_it_connects_anew_after_a_failure(line: PinnedConnection, redis_client: redis.Redis) -> None:
    kill(redis_client, line)
    with pytest.raises(redis.ConnectionError):
        line.execute_command("PING")
    assert line.execute_command("PING") == "PONG"


def test_a_connection_that_rested_is_taken_anew(
    line: PinnedConnection, redis_client: redis.Redis, monkeypatch: pytest.MonkeyPatch
) -> None:
    kill(redis_client, line)
    monkeypatch.setattr(module, "IDLE", -1.0)
    assert line.execute_command("PING") == "PONG"


def test_a_connection_that_is_used_again_soon_is_not_given_back(
    line: PinnedConnection, monkeypatch: pytest.MonkeyPatch
) -> None:
    line.execute_command("PING")
    monkeypatch.setattr(redis.ConnectionPool, "get_connection", lambda *args: pytest.fail("taken anew"))
    monkeypatch.setattr(module, "IDLE", 60.0)
    assert line.execute_command("PING") == "PONG"


def test_a_forked_child_has_a_connection_of_its_own(line: PinnedConnection) -> None:
    own = line.execute_command("CLIENT", "ID")
    context = get_context("fork")
    answers = context.SimpleQueue()
    child = context.Process(target=lambda: answers.put(line.execute_command("CLIENT", "ID")))
    child.start()
    assert answers.get() != own
    child.join()
    assert line.execute_command("CLIENT", "ID") == own


def test_after_its_end_the_connection_is_that_of_others(database: JobsDatabase) -> None:
    line = PinnedConnection(lambda: database.connection)
    own = line.execute_command("CLIENT", "ID")
    assert database.connection.client_id() != own
    line.close()
    line.close()
    assert database.connection.client_id() == own
    assert line.execute_command("PING") == "PONG"
    line.close()


def test_a_script_is_sent_whole_if_the_server_does_not_know_it(
    line: PinnedConnection, redis_client: redis.Redis
) -> None:
    script = Script("queues/notify_all")
    redis_client.script_flush()
    for _ in range(2):
        assert run(script, line, ["jobs:queue:_signal:q"]) == '{"outcome":"done"}'


def test_a_script_after_a_command_is_so_too(line: PinnedConnection, redis_client: redis.Redis) -> None:
    script = Script("queues/notify_all")
    script.__dict__["source"] = "return cjson.encode({outcome = 'said'})"
    call = Call(line, script, {}, outcome_of)
    redis_client.script_flush()
    for _ in range(2):
        assert send_after(line, ["ECHO", "hello"], call) == ("hello", "said")
    first, reply = send_after(line, ["LPOP"], call)
    assert (type(first), reply) == (redis.ResponseError, "said")
    script.__dict__["source"] = "return redis.error_reply('it failed')"
    del script.__dict__["sha"]
    with pytest.raises(redis.ResponseError, match="it failed"):
        send_after(line, ["ECHO", "hello"], call)


def test_a_server_that_is_away_is_an_error_until_it_is_back(redis_binary: str) -> None:
    database = JobsDatabase()
    with RedisServer(redis_binary) as server:
        database.connect(unix_socket_path=server.socket)
        line = PinnedConnection(lambda: database.connection)
        server.stop()
        for _ in range(2):
            with pytest.raises(redis.ConnectionError):
                line.execute_command("PING")
        server.start()
        assert line.execute_command("PING") == "PONG"
        line.close()
        database.reset()


def blocked(client: redis.Redis) -> set[str]:
    """The ids of the clients that wait in a command."""
    return {each["id"] for each in client.client_list() if "b" in each["flags"]}


class TestSharedLine:
    @pytest.fixture
    def shared(self, database: JobsDatabase) -> SharedConnection:
        return SharedConnection(database.connection)

    def test_what_is_sent_one_after_another_goes_over_one_connection(self, shared: SharedConnection) -> None:
        assert len({shared.execute_command("CLIENT", "ID") for _ in range(3)}) == 1

    def test_a_thread_that_finds_it_in_use_does_not_wait(
        self, shared: SharedConnection, redis_client: redis.Redis
    ) -> None:
        own = shared.execute_command("CLIENT", "ID")
        waiting = threading.Thread(target=shared.execute_command, args=["BLPOP", "never", 0])
        waiting.start()
        wait_until(lambda: str(own) in blocked(redis_client))
        assert shared.execute_command("CLIENT", "ID") != own
        redis_client.rpush("never", "now")
        waiting.join()
        assert shared.execute_command("CLIENT", "ID") == own

    @pytest.mark.parametrize("has_poll", [True, False])  # some platforms, and some green threads, have none
    def test_a_connection_that_was_cut_is_taken_anew(
        self, shared: SharedConnection, redis_client: redis.Redis, monkeypatch: pytest.MonkeyPatch, has_poll: bool
    ) -> None:
        monkeypatch.setattr(module, "IDLE", 60.0)
        if not has_poll:
            monkeypatch.setattr(module, "select", SimpleNamespace())
        before = shared.execute_command("CLIENT", "ID")
        redis_client.client_kill_filter(_id=before)
        assert shared.execute_command("CLIENT", "ID") != before

    def test_a_connection_that_was_closed_here_is_opened_anew(
        self, shared: SharedConnection, database: JobsDatabase, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(module, "IDLE", 60.0)
        before = shared.execute_command("CLIENT", "ID")
        database.connection.connection_pool.disconnect()
        assert shared.execute_command("CLIENT", "ID") != before

    def test_a_child_that_was_forked_while_it_was_in_use_has_one_of_its_own(
        self,
        shared: SharedConnection,
        database: JobsDatabase,
        redis_client: redis.Redis,
        monkeypatch: pytest.MonkeyPatch,
    ) -> None:
        own = str(shared.execute_command("CLIENT", "ID"))
        waiting = threading.Thread(target=shared.execute_command, args=["BLPOP", "never", 0])
        waiting.start()
        wait_until(lambda: own in blocked(redis_client))
        monkeypatch.setattr(database.connection, "execute_command", lambda *words: "by the client")
        context = get_context("fork")
        answers = context.SimpleQueue()
        child = context.Process(target=lambda: answers.put(shared.execute_command("ECHO", "by the line")))
        child.start()
        assert shared.execute_command("ECHO", "by the line") == "by the client"
        assert answers.get() == "by the line"
        child.join()
        assert own in blocked(redis_client)
        redis_client.rpush("never", "now")
        waiting.join()

    def test_it_goes_on_after_a_failure(self, shared: SharedConnection) -> None:
        with pytest.raises(redis.DataError):
            shared.execute_command("ECHO", object())
        with pytest.raises(redis.ResponseError, match="wrong number"):
            shared.execute_command("GET")
        assert len({shared.execute_command("CLIENT", "ID") for _ in range(2)}) == 1


class TestInstrumentation:
    """That wraps the method of redis-py: the page on databases says what it sees."""

    @pytest.fixture
    def seen(self, monkeypatch: pytest.MonkeyPatch) -> list[str]:
        seen: list[str] = []
        execute = redis.Redis.execute_command

        def wrapped(client: redis.Redis, *words: Any, **options: Any) -> Any:
            seen.append(words[0])
            return execute(client, *words, **options)

        monkeypatch.setattr(redis.Redis, "execute_command", wrapped)
        return seen

    def test_does_not_see_what_goes_over_the_kept_connection(self, jobs_database: Any, seen: list[str]) -> None:
        Job.add_job("a", "q")
        assert seen == []

    def test_sees_all_if_the_settings_say_how_to_use_connections(
        self, jobs_database: Any, redis_server: RedisServer, seen: list[str]
    ) -> None:
        jobs_database.connect(unix_socket_path=redis_server.socket, db=0, max_connections=100)
        Job.add_job("a", "q")
        assert set(seen) <= {"EVALSHA", "EVAL"}
        assert seen
