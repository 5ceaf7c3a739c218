"""Where Redis is: texts, settings, and what a connection does."""

from __future__ import annotations

import asyncio
import gc
import os
import threading
from collections.abc import Callable, Iterator
from multiprocessing import get_context
from typing import Any

import pytest
import redis
from cases import each
from limpyd import fields
from limpyd.contrib.database import PipelineDatabase
from limpyd.model import RedisModel
from redis.backoff import NoBackoff
from redis.retry import Retry
from servers import RedisServer, certificate_in, free_port, wait_until

from limpyd_jobs.exceptions import ConfigurationException
from limpyd_jobs.redis import database as database_module
from limpyd_jobs.redis import servers as servers_module
from limpyd_jobs.redis.database import JobsDatabase, hide_passwords, parse_database
from limpyd_jobs.redis.lines import line_to

LOCAL = {"host": "localhost", "port": 6379, "db": 0}


@pytest.fixture
def database(redis_server: RedisServer, redis_client: redis.Redis) -> JobsDatabase:
    return JobsDatabase(unix_socket_path=redis_server.socket)


# Texts


@each(
    ("text", "settings"),
    [
        ("localhost", LOCAL),
        ("localhost:6379", LOCAL),
        (" redis.example.com:6380:15 \n", {"host": "redis.example.com", "port": 6380, "db": 15}),
        ("my_redis-1:6379:2", {"host": "my_redis-1", "port": 6379, "db": 2}),
        ("127.0.0.1:6379:2", {"host": "127.0.0.1", "port": 6379, "db": 2}),
        ("[::1]:6379:2", {"host": "::1", "port": 6379, "db": 2}),
        ("[fe80::1%eth0]", {"host": "fe80::1%eth0", "port": 6379, "db": 0}),
        ("redis://", LOCAL),
        ("redis:///3", {**LOCAL, "db": 3}),
        ("REDIS://[::1]:7000/", {"host": "::1", "port": 7000, "db": 0}),
        ("redis://h?db=3", {"host": "h", "port": 6379, "db": 3}),
        ("redis://:p%40ss%2Fword@h", {"host": "h", "port": 6379, "db": 0, "password": "p@ss/word"}),
        (
            "redis://u:p@h:1/2?socket_timeout=1.5&socket_keepalive=yes&client_name=app&max_connections=9",
            {
                "host": "h",
                "port": 1,
                "db": 2,
                "username": "u",
                "password": "p",
                "socket_timeout": 1.5,
                "socket_keepalive": True,
                "client_name": "app",
                "max_connections": 9,
            },
        ),
        (
            "rediss://h/1?ssl_cert_reqs=none&ssl_check_hostname=false",
            {
                "host": "h",
                "port": 6379,
                "db": 1,
                "ssl": True,
                "ssl_cert_reqs": "none",
                "ssl_check_hostname": False,
            },
        ),
        ("unix:///run/redis.sock", {"unix_socket_path": "/run/redis.sock", "db": 0}),
        ("unix://:p@/a%20b?db=2", {"unix_socket_path": "/a b", "db": 2, "password": "p"}),
        (
            "redis+sentinel://h1,h2:1,[::1]:2/jobs",
            {"sentinels": [("h1", 26379), ("h2", 1), ("::1", 2)], "service_name": "jobs", "db": 0},
        ),
        (
            "rediss+sentinel://u:p@h/jobs/4?sentinel_username=su&sentinel_password=sp",
            {
                "sentinels": [("h", 26379)],
                "service_name": "jobs",
                "db": 4,
                "ssl": True,
                "username": "u",
                "password": "p",
                "sentinel_kwargs": {"username": "su", "password": "sp"},
            },
        ),
        ("embedded://", {"embedded": True, "db": 0}),
        ("embedded:///var/my%20jobs?db=3", {"embedded": "/var/my jobs", "db": 3}),
    ],
)
def test_text_names_a_database(text: str, settings: dict[str, Any]) -> None:
    assert parse_database(text) == settings


@each(
    "text",
    [
        *("", " ", ":", ":6379", "localhost:", "localhost:6379:", "a b", "6379", "15:2", "/run/redis.sock"),
        *("localhost:port", "localhost:0", "localhost:65536", "localhost:-1", "localhost:6379.0", "localhost:٣"),
        *("localhost:6379:db", "localhost:6379:-1", "localhost:6379:1.0", "localhost:6379:99999999999"),
        *("localhost:6379:0:more", "::1:6379:0", "[::1", "[local]:6379", "redis:/localhost", "local\0host"),
        *("http://localhost", "://localhost", "redis://h:port", "redis://h:0", "redis://h:65536", "redis://[::1"),
        *("redis://h/db", "redis://h/1/2", "redis://h/-1", "redis://h?db=x", "redis://h?db=", "redis://h?db"),
        *("redis://h?unknown=1", "redis://h?ssl=true", "redis://h?ssl_ca_certs=f", "redis://h?retry=3"),
        *("redis://h?socket_timeout=nan", "redis://h?socket_timeout=0", "redis://h?socket_timeout=-1"),
        *("redis://h?socket_timeout=1.2.3", "redis://h?protocol=4", "redis://h?socket_keepalive=perhaps"),
        *("redis://h1,h2", "redis://h/\n1", "rediss://h?ssl_cert_reqs=perhaps", "redis://h#1"),
        *("redis://h?sentinel_username=u", "unix://", "unix:///", "unix://relative/path", "unix:///a%00b"),
        *("redis+sentinel://h", "redis+sentinel://h/", "redis+sentinel:///jobs", "redis+sentinel://h,/jobs"),
        *("redis+sentinel://h/jobs/db", "redis+sentinel://h:x/jobs", "embedded:///", "embedded://relative"),
        *("embedded://?socket_timeout=1", "embedded:///path?db=x", "embedded:///a%00b", "\udcff", "redis://\udcff"),
    ],
)
def test_any_other_text_is_refused_with_a_message_of_one_line(text: str) -> None:
    with pytest.raises(ConfigurationException) as refusal:
        parse_database(text)
    message = str(refusal.value)
    assert message.startswith(repr(text.strip()))
    assert "; accepted are host:port" in message
    assert message.isprintable()


@each(
    "text",
    [
        *("redis://user:secret@h:port", "redis://user:se/cret@h", "redis://:se#cret@h", "redis://:se?cret@h"),
        *("redis://:se@cret@h:x", "redis://user:[secret@h", "redis://:secret\u2100@h", "user:secret@h:6379"),
        *("http://:secret@h", "redis+sentinel://:secret@h", "redis+sentinel://h?sentinel_password=secret"),
        *("unix:///s?password=secret&unknown=1", "redis://h?password=x&secret", "redis://h/x?PASSWORD=x@secret"),
    ],
)
def test_no_password_shows_in_a_message(text: str) -> None:
    with pytest.raises(ConfigurationException) as refusal:
        parse_database(text)
    assert "cret" not in str(refusal.value)
    assert refusal.value.__suppress_context__


def test_name_of_a_database_can_be_shown_without_its_password() -> None:
    assert hide_passwords("localhost:6379:2") == "localhost:6379:2"
    assert hide_passwords("redis://user:secret@h/2") == "redis://***@h/2"
    assert hide_passwords("unix:///s?db=2&password=secret") == "unix:///s?db=2&password=***"


# Which database


def pool_settings(database: JobsDatabase) -> dict[str, Any]:
    """Return what the connections of the database are made with."""
    return dict(database.connection.connection_pool.connection_kwargs)


def test_default_is_localhost() -> None:
    database = JobsDatabase()
    assert LOCAL.items() <= pool_settings(database).items()
    assert database.connection_settings == LOCAL


def test_environment_variable_names_the_default(monkeypatch: pytest.MonkeyPatch) -> None:
    database = JobsDatabase()
    monkeypatch.setenv("LIMPYD_JOBS_DATABASE", "redis.example.com:6380:15")
    assert pool_settings(database)["host"] == "redis.example.com"
    assert pool_settings(JobsDatabase(host="other.example.com"))["host"] == "other.example.com"


def test_empty_environment_variable_names_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LIMPYD_JOBS_DATABASE", "")
    assert LOCAL.items() <= pool_settings(JobsDatabase()).items()


def test_default_server_that_is_not_there_is_answered_with_how_to_name_another(monkeypatch: pytest.MonkeyPatch) -> None:
    port = free_port()
    database = JobsDatabase(host="localhost", port=port)
    with pytest.raises(redis.ConnectionError) as of_another:
        database.connection.ping()
    assert not hasattr(of_another.value, "__notes__")
    monkeypatch.setattr(servers_module, "DEFAULT", ("localhost", port))  # a server may be there on the real one
    with pytest.raises(redis.ConnectionError) as of_thread:
        database.connection.ping()
    with pytest.raises(redis.ConnectionError) as of_loop:
        asyncio.run(ping_by_asyncio(database))
    for refused in (of_thread.value, of_loop.value):
        assert "set LIMPYD_JOBS_DATABASE, or call " in refused.__notes__[0]


def test_bad_environment_variable_is_named_in_the_message(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LIMPYD_JOBS_DATABASE", "localhost:port")
    with pytest.raises(ConfigurationException, match="LIMPYD_JOBS_DATABASE: 'localhost:port'"):
        _ = JobsDatabase().connection


def test_nothing_connects_before_the_first_command() -> None:
    database = JobsDatabase(host="127.0.0.1", port=free_port())
    database.connect(host="127.0.0.1", port=free_port(), db=2)
    with pytest.raises(redis.ConnectionError):
        database.connection.ping()


def test_connect_moves_the_models(database: JobsDatabase, redis_server: RedisServer) -> None:
    class Note(RedisModel):
        database = JobsDatabase()
        text = fields.StringField()

    client = Note.database.connect(unix_socket_path=redis_server.socket, db=1)
    Note(text="one")
    assert client is Note.database.connection
    assert client.get(Note(1).text.key) == "one"
    Note.database.from_url(f"{redis_server.url}?db=2")
    assert Note.collection() == []
    Note.database.reset(unix_socket_path=redis_server.socket, db=1)
    assert list(Note.collection()) == ["1"]


def test_connect_and_reset_move_the_models_of_jobs(jobs_database: JobsDatabase, redis_server: RedisServer) -> None:
    from limpyd_jobs.models import BaseJobsModel, Job, Queue

    assert BaseJobsModel.database is Job.database is Queue.database is jobs_database
    BaseJobsModel.database.connect(unix_socket_path=redis_server.socket, db=3)
    Queue(name="test", priority=1)
    with redis_server.client(db=3) as client:
        assert client.exists("jobs:queue:collection")
    BaseJobsModel.database.reset(unix_socket_path=redis_server.socket, db=4)
    assert not Queue.collection()


def test_models_can_use_a_plain_database_of_limpyd(jobs_database: JobsDatabase, redis_server: RedisServer) -> None:
    from limpyd_jobs.models import BaseJobsModel, Queue

    BaseJobsModel.use_database(PipelineDatabase(unix_socket_path=redis_server.socket, db=5))
    Queue(name="test", priority=1)
    with redis_server.client(db=5) as client:
        assert client.exists("jobs:queue:collection")


def test_a_class_that_was_refused_is_not_moved(jobs_database: JobsDatabase, redis_server: RedisServer) -> None:
    from limpyd_jobs.models import BaseJobsModel, Job, Queue

    with pytest.raises(ConfigurationException) as caught:
        type("Refused", (Job,), {"__module__": __name__, "namespace": "refused", "unique_for": -1})
    assert any(each.__name__ == "Refused" for each in Job.__subclasses__()), caught  # the traceback keeps it
    BaseJobsModel.use_database(PipelineDatabase(unix_socket_path=redis_server.socket, db=5))
    Queue(name="test", priority=1)


def test_a_class_with_a_default_database_of_its_own_goes_with_the_queues_of_the_other_default_one(
    jobs_database: JobsDatabase, redis_server: RedisServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    from limpyd_jobs.models import Job

    monkeypatch.setenv("LIMPYD_JOBS_DATABASE", redis_server.url)
    jobs_database.reset()

    class Photo(Job):
        namespace = "default-of-its-own"
        queue_name = "photos"
        database = JobsDatabase()

    before, after = Photo.add_job("1"), Photo.add_job("2")  # its database knows its settings only now
    assert Photo.queue_model.get_queue("photos").waiting.lmembers() == [before.ident, after.ident]


@pytest.mark.parametrize("settings", [{}, {"service_name": ""}, {"service_name": None}])
def test_sentinels_without_the_name_of_a_service_are_refused(database: JobsDatabase, settings: dict[str, Any]) -> None:
    before = database.connection
    for use in (database.connect, database.reset, JobsDatabase):
        with pytest.raises(ConfigurationException, match="sentinels need a service_name"):
            use(sentinels=[("localhost", 26379)], **settings)
    assert database.connection is before


def test_connect_that_fails_changes_nothing(database: JobsDatabase) -> None:
    before = database.connection
    with pytest.raises(TypeError):
        database.connect(hostname="localhost")
    with pytest.raises(ConfigurationException):
        database.from_url("localhost:port")
    assert database.connection is before


def test_settings_add_to_a_url() -> None:
    settings = pool_settings(JobsDatabase(url="redis://h:1/2", db=3, socket_timeout=4))
    assert {"host": "h", "port": 1, "db": 3, "socket_timeout": 4}.items() <= settings.items()


def test_databases_do_not_share_a_connection(database: JobsDatabase, redis_server: RedisServer) -> None:
    other = JobsDatabase(unix_socket_path=redis_server.socket)
    assert other.connection is not database.connection


# What sends scripts


def test_jobs_are_added_over_one_connection(jobs_database: JobsDatabase, redis_client: redis.Redis) -> None:
    from limpyd_jobs import Job

    Job.add_job("first", queue_name="test")
    own = jobs_database.sender.execute_command("CLIENT", "ID")
    Job.add_job("second", queue_name="test")
    (last,) = [client["cmd"] for client in redis_client.client_list() if int(client["id"]) == own]
    assert last in ("evalsha", "eval")


def test_it_moves_with_the_database(database: JobsDatabase, redis_server: RedisServer) -> None:
    database.sender.execute_command("SET", "here", 0)
    database.connect(unix_socket_path=redis_server.socket, db=6)
    database.sender.execute_command("SET", "here", 6)
    database.reset(unix_socket_path=redis_server.socket, db=7)
    database.sender.execute_command("SET", "here", 7)
    for db in (6, 7):
        with redis_server.client(db=db) as client:
            assert client.get("here") == str(db)


@pytest.mark.parametrize(
    "settings",
    [
        {"max_connections": 1},
        {"retry": Retry(NoBackoff(), 1)},
        {"retry_on_timeout": True},
        {"retry_on_error": [redis.TimeoutError]},
        {"credential_provider": redis.CredentialProvider()},
    ],
    ids=lambda settings: next(iter(settings)),
)
@pytest.mark.filterwarnings("ignore:Call to '__init__':DeprecationWarning")
def test_it_is_the_client_if_that_is_to_do_more(settings: dict[str, Any], redis_server: RedisServer) -> None:
    database = JobsDatabase(unix_socket_path=redis_server.socket, **settings)
    assert database.connection is database.sender


def test_one_connection_is_enough_for_an_application(jobs_database: JobsDatabase, redis_server: RedisServer) -> None:
    from limpyd_jobs import Job

    jobs_database.connect(url=f"{redis_server.url}?max_connections=1")
    assert Job.add_job("one", queue_name="test").identifier.hget() == "one"


def test_threads_share_one_client(redis_server: RedisServer) -> None:
    database = JobsDatabase(unix_socket_path=redis_server.socket)
    start = threading.Barrier(8)
    clients = []

    def use() -> None:
        start.wait()
        clients.append(database.connection)

    run_in_threads(*[use] * 8)
    assert len(set(map(id, clients))) == 1


def run_in_threads(*functions: Callable[[], None]) -> None:
    threads = [threading.Thread(target=function) for function in functions]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()


def test_forked_child_has_connections_of_its_own(database: JobsDatabase) -> None:
    def report(answers: Any) -> None:
        answers.put([database.connection.client_id(), database.connection.echo("child")])

    own = database.connection.client_id()
    context = get_context("fork")
    answers = context.SimpleQueue()
    child = context.Process(target=report, args=[answers])
    child.start()
    childs, echo = answers.get()
    child.join()
    assert (childs != own, echo) == (True, "child")
    assert (database.connection.client_id(), database.connection.echo("parent")) == (own, "parent")


def test_fork_while_another_thread_connects_does_not_block_the_child(redis_server: RedisServer) -> None:
    database = JobsDatabase(unix_socket_path=redis_server.socket)
    held, done = threading.Event(), threading.Event()

    def hold() -> None:
        with database_module._lock:
            held.set()
            done.wait()

    thread = threading.Thread(target=hold)
    thread.start()
    held.wait()
    child = get_context("fork").Process(target=lambda: database.connection.ping())
    child.start()
    child.join(20)
    done.set()
    thread.join()
    assert child.exitcode == 0


# What a connection does


def test_time_outs_have_defaults_of_our_own() -> None:
    settings = pool_settings(JobsDatabase(host="h"))
    assert (settings["socket_timeout"], settings["socket_connect_timeout"]) == (10, 5)


def test_time_outs_of_the_user_win_even_none() -> None:
    settings = pool_settings(JobsDatabase(host="h", socket_timeout=None, socket_connect_timeout=1))
    assert (settings["socket_timeout"], settings["socket_connect_timeout"]) == (None, 1)


def test_answers_that_do_not_come_are_a_time_out(redis_server: RedisServer, redis_client: redis.Redis) -> None:
    database = JobsDatabase(unix_socket_path=redis_server.socket, socket_timeout=0.1)
    with pytest.raises(redis.TimeoutError):
        database.connection.blpop("empty", 60)
    assert database.connection.ping()


def wait(database: JobsDatabase) -> None:
    database.connection.blpop("empty", 60)


def wait_in_pipeline(database: JobsDatabase) -> None:
    with database.pipeline(transaction=False) as pipe:
        pipe.blpop("empty", 60)
        pipe.execute()


@pytest.mark.parametrize("wait", [wait, wait_in_pipeline])
def test_command_whose_answer_is_lost_is_not_sent_again(
    wait: Callable[[JobsDatabase], None], database: JobsDatabase, redis_client: redis.Redis, commands: Any
) -> None:
    identity = database.connection.client_id()

    def kill() -> None:
        wait_until(lambda: is_blocked(redis_client, identity))
        redis_client.client_kill_filter(_id=identity)

    def wait_in_vain() -> None:
        with pytest.raises(redis.ConnectionError):
            wait(database)

    with commands() as sent:
        run_in_threads(kill, wait_in_vain)
    assert sent.names.count("BLPOP") == 1


def test_a_connection_that_another_thread_closes_is_lost(database: JobsDatabase, redis_client: redis.Redis) -> None:
    client = database.connection
    identity = client.client_id()

    def close() -> None:
        wait_until(lambda: is_blocked(redis_client, identity))
        client.connection_pool.disconnect()

    def wait_in_vain() -> None:
        with pytest.raises(redis.ConnectionError):
            client.blpop("empty", 60)

    run_in_threads(close, wait_in_vain)


def is_blocked(client: redis.Redis, identity: int) -> bool:
    return any(int(each["id"]) == identity and each["cmd"] == "blpop" for each in client.client_list())


def test_bytes_that_are_not_utf_8_can_be_read_and_written_back(
    database: JobsDatabase, redis_server: RedisServer
) -> None:
    with redis_server.client(decode_responses=False) as raw:
        raw.rpush(b"list \xff", b"\xfe\xed", "żółw")
        (key,) = database.connection.keys("list*")
        broken, good = database.connection.lrange(key, 0, -1)
        assert good == "żółw"
        assert database.connection.lrem(key, 0, broken) == 1
        assert raw.lrange(b"list \xff", 0, -1) == ["żółw".encode()]


def test_server_that_is_too_old_is_refused(
    database: JobsDatabase, monkeypatch: pytest.MonkeyPatch, redis_client: redis.Redis
) -> None:
    monkeypatch.setattr("limpyd_jobs.redis.servers.OLDEST_REDIS", (99, 1))
    version = redis_client.info("server")["redis_version"]
    expected = rf"Redis 99\.1 or newer is needed, this server is Redis {version}"
    for _ in range(2):
        with pytest.raises(ConfigurationException, match=expected):
            database.connection.ping()


def test_version_is_asked_once_per_connection(database: JobsDatabase, redis_client: redis.Redis) -> None:
    redis_client.config_resetstat()
    for _ in range(3):
        database.connection.ping()
    assert redis_client.info("commandstats")["cmdstat_info"]["calls"] == 1


def test_user_who_may_not_ask_for_the_version_is_served(redis_server: RedisServer, redis_client: redis.Redis) -> None:
    redis_client.acl_setuser("app", enabled=True, passwords=["+s"], keys=["*"], commands=["+@all", "-info"])
    database = JobsDatabase(url=redis_server.url.replace("://", "://app:s@"))
    assert database.connection.acl_whoami() == "app"
    assert database.connection.set("key", "value")


def test_wrong_password_is_an_error_of_redis(redis_server: RedisServer) -> None:
    with pytest.raises(redis.AuthenticationError):
        JobsDatabase(url=redis_server.url.replace("://", "://app:wrong@")).connection.ping()


@pytest.fixture
def demoted(redis_binary: str) -> Iterator[RedisServer]:
    """A server that is no primary any more."""
    with RedisServer(redis_binary, "--replicaof", "127.0.0.1", "1") as server:
        yield server


def write(database: JobsDatabase) -> None:
    database.connection.set("key", "value")


def write_in_script(database: JobsDatabase) -> None:
    database.connection.eval("redis.call('SET', KEYS[1], 1)", 1, "key")


def write_in_pipeline(database: JobsDatabase) -> None:
    with database.pipeline() as pipe:
        pipe.set("key", "value")
        pipe.execute()


@pytest.mark.parametrize("write", [write, write_in_script, write_in_pipeline])
def test_connection_to_a_replica_is_dropped_by_the_first_write(
    write: Callable[[JobsDatabase], None], demoted: RedisServer
) -> None:
    database = JobsDatabase(unix_socket_path=demoted.socket)
    before = database.connection.client_id()
    with pytest.raises(redis.ConnectionError, match="READONLY"):
        write(database)
    assert database.connection.client_id() != before
    with demoted.client() as client:
        client.replicaof("NO", "ONE")
    write(database)


# Pipelines, as limpyd has them


def test_pipeline_may_be_the_first_use(database: JobsDatabase) -> None:
    with database.pipeline() as pipe:
        database.connection.set("key", "value")
        assert pipe.execute() == [True]
    assert database.connection.get("key") == "value"


def test_commands_of_models_go_into_the_pipeline(redis_server: RedisServer, redis_client: redis.Redis) -> None:
    class Sheet(RedisModel):
        database = JobsDatabase(unix_socket_path=redis_server.socket)
        text = fields.StringField()

    sheet = Sheet(text="one")
    key = sheet.text.key
    with Sheet.database.pipeline() as pipe:
        sheet.text.set("two")
        assert redis_client.get(key) == "one"
        pipe.execute()
    assert sheet.text.get() == "two"


def test_transaction_is_repeated_when_a_watched_key_changed(database: JobsDatabase, redis_client: redis.Redis) -> None:
    seen = []

    def add_one(pipe: Any) -> None:
        seen.append(int(pipe.get("key") or 0))
        if len(seen) == 1:
            redis_client.set("key", 5)
        pipe.multi()
        pipe.set("key", seen[-1] + 1)

    assert database.transaction(add_one, "key") == [True]
    assert (seen, redis_client.get("key")) == ([0, 5], "6")


def test_pipelines_of_two_threads_do_not_mix(database: JobsDatabase) -> None:
    both_open = threading.Barrier(2)
    results = {}

    def fill(name: str) -> None:
        with database.pipeline() as pipe:
            both_open.wait()
            database.connection.echo(name)
            both_open.wait()
            results[name] = pipe.execute()
            both_open.wait()

    run_in_threads(lambda: fill("one"), lambda: fill("two"))
    assert results == {"one": ["one"], "two": ["two"]}


def test_shared_pipeline_takes_the_commands_of_all_threads(database: JobsDatabase) -> None:
    with database.pipeline(share_in_threads=True) as pipe:
        run_in_threads(lambda: database.connection.echo("other"))
        assert pipe.execute() == ["other"]
    assert database.connection.echo("direct") == "direct"


# TLS


@pytest.fixture
def tls_server(redis_binary: str, tmp_path: Any) -> Iterator[RedisServer]:
    """A server with a TLS port and a certificate of its own making, which is `server.pem`."""
    files = certificate_in(tmp_path)
    tls_port = free_port()
    try:
        with RedisServer(redis_binary, "--tls-port", str(tls_port), *files) as server:
            server.port = tls_port
            yield server
    except AssertionError:
        pytest.skip("this Redis server is built without TLS")


def test_rediss_url_connects_with_tls(tls_server: RedisServer, tmp_path: Any) -> None:
    url = f"rediss://localhost:{tls_server.port}?ssl_ca_certs={tmp_path / 'server.pem'}"
    assert JobsDatabase(url=url).connection.ping()


@pytest.mark.filterwarnings("ignore:unclosed:ResourceWarning")  # redis-py 5.0 forgets the socket
def test_rediss_url_does_not_trust_an_unknown_certificate(tls_server: RedisServer) -> None:
    with pytest.raises(redis.ConnectionError):
        JobsDatabase(url=f"rediss://localhost:{tls_server.port}").connection.ping()
    gc.collect()


def test_redis_url_of_a_server_with_tls_says_which_to_use(tls_server: RedisServer) -> None:
    with pytest.raises(redis.ConnectionError, match=r"localhost:\d+ speaks TLS: use rediss:// instead of redis://"):
        JobsDatabase(url=f"redis://localhost:{tls_server.port}").connection.ping()


def test_rediss_url_of_a_server_without_tls_says_which_to_use(redis_binary: str) -> None:
    told = r"localhost:\d+ speaks no TLS: use redis:// instead of rediss://"
    with RedisServer(redis_binary, port=free_port()) as server:
        database = JobsDatabase(url=f"rediss://localhost:{server.port}?socket_timeout=0.2&socket_connect_timeout=0.2")
        with pytest.raises(redis.ConnectionError, match=told):
            database.connection.ping()
        with pytest.raises(redis.ConnectionError, match=told):
            asyncio.run(ping_by_asyncio(database))


async def ping_by_asyncio(database: JobsDatabase) -> None:
    await line_to(database.connection).execute(("PING",))


def test_environment_of_the_developer_is_kept_out_of_the_tests() -> None:
    assert "LIMPYD_JOBS_DATABASE" not in os.environ


@each(
    ("name", "shown"),
    [
        ("localhost:6379:2", "<client of localhost:6379:2>"),
        ("redis://user:secret@[::1]/0", "<client of [::1]:6379:0>"),
        ("rediss://:secret@example.com/1", "<client of rediss://example.com:6379/1>"),
        ("unix://:secret@/run/redis.sock?db=3", "<client of unix:///run/redis.sock?db=3>"),
        ("redis+sentinel://:secret@a,b/jobs/2", "<client of the primary of 'jobs', database 2>"),
    ],
)
def test_a_client_is_short_to_look_at(name: str, shown: str) -> None:
    assert repr(JobsDatabase().from_url(name)) == shown
