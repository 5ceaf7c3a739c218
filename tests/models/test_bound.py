"""Models on another database, and in another namespace, without being moved."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Iterator
from threading import Event, Thread
from typing import Any

import pytest
import redis
import redis.asyncio
from limpyd import fields
from limpyd_extensions.related import FKInstanceHashField
from servers import RedisServer

from limpyd_jobs import Argument, ConfigurationException, Error, Job, Queue, Schedule, Worker
from limpyd_jobs.models import BaseJobsModel, job_classes
from limpyd_jobs.records.known_classes import KEY as CLASSES
from limpyd_jobs.redis.database import JobsDatabase, databases_lock

pytestmark = pytest.mark.usefixtures("redis_client")


class Crate(Job):
    namespace = "harbour"
    queue_name = "crates"
    size = Argument(int)
    colour = fields.InstanceHashField(indexable=True)


class Barrel(BaseJobsModel):
    namespace = "harbour"


class OtherHarbour:
    class Barrel(BaseJobsModel):
        namespace = "another_harbour"


class Harbour(BaseJobsModel):
    namespace = "harbour"


class Ship(BaseJobsModel):
    namespace = "harbour"
    home = FKInstanceHashField("Harbour", related_name="ships")


@pytest.fixture
def other(redis_server: RedisServer) -> Iterator[JobsDatabase]:
    database = JobsDatabase(unix_socket_path=redis_server.socket, db=5)
    database.connection.flushdb()
    yield database
    database.connection.flushdb()


def keys_of(database: Any) -> list[str]:
    return sorted(key for key in database.connection.keys("*") if not key.endswith("max_pk") and key != CLASSES)


class TestABoundModel:
    def test_is_on_its_database_and_the_class_stays_where_it_was(self, other: JobsDatabase) -> None:
        bound = Crate.bound_to(other)
        bound.add_job("a", size=5, colour="red")
        assert list(bound.collection(colour="red")) == ["1"]
        assert list(Crate.collection()) == keys_of(Crate.database) == []
        assert issubclass(bound, Crate)
        assert bound is not Crate

    def test_has_the_ident_the_path_and_the_arguments_of_the_class(self, other: JobsDatabase) -> None:
        job = Crate.bound_to(other).add_job("a", size=5)
        assert job.ident == f"{__name__}.Crate:1"
        assert job.arguments.size == 5
        assert isinstance(job, Crate)

    def test_is_the_same_each_time(self, other: JobsDatabase) -> None:
        bound = Crate.bound_to(other)
        assert Crate.bound_to(other) is Crate.bound_to(other, "harbour") is bound.bound_to(other) is bound
        assert Crate.bound_to(other, "x") is not bound
        assert bound.bound_to(Crate.database) is Crate is Crate.bound_to(Crate.database)

    def test_is_one_class_for_all_threads(self, other: JobsDatabase) -> None:
        found: list[Any] = []
        threads = [Thread(target=lambda: found.append(Crate.bound_to(other, "threads"))) for _ in range(20)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert len(found) == 20
        assert len(set(found)) == 1

    def test_may_have_a_namespace_of_its_own(self, other: JobsDatabase) -> None:
        for name in ("one", "two"):
            Crate.bound_to(other, name).add_job("a", size=5)
        assert {key.split(":")[0] for key in keys_of(other)} == {"one", "two"}
        assert Crate.bound_to(Crate.database, "three").add_job("a", size=1).pk.get() == "1"
        assert {key.split(":")[0] for key in keys_of(Crate.database)} == {"three"}

    def test_has_the_queues_of_its_database_and_namespace(self, other: JobsDatabase) -> None:
        bound = Crate.bound_to(other)
        bound.add_job("a", size=5)
        assert bound.queue_model is Queue.bound_to(other)
        assert bound.queue_model.count_waiting_jobs("crates") == 1
        assert Crate.bound_to(other, "x").queue_model is Queue.bound_to(other, "x")
        assert Queue.count_waiting_jobs("crates") == 0

    def test_leaves_its_jobs_to_the_workers_of_a_process_whose_classes_are_moved_there(
        self, other: JobsDatabase, jobs_database: JobsDatabase
    ) -> None:
        Crate.bound_to(other).add_job("there", size=1)
        done: list[str] = []
        jobs_database.connect(**other.connection_settings)
        Worker(queues="crates", callback=lambda job, queue: done.append(job.identifier.hget()), burst=True).run()
        assert done == ["there"]

    @pytest.mark.parametrize("namespace", [None, "x"])
    def test_has_queues_that_promote_and_prune_its_jobs(self, other: JobsDatabase, namespace: str | None) -> None:
        bound = Crate.bound_to(other, namespace)
        job = bound.add_job("a", size=5, delayed_for=60)
        queue = bound.queue_model.get_queue("crates")
        queue.delayed.zadd({job.ident: 1})
        assert queue.requeue_delayed_jobs() == []
        job.claim().succeed()
        failed = bound.add_job("b", size=5)
        with pytest.raises(LookupError), failed.claim():
            raise LookupError("no such crate")
        errors = Error.bound_to(other, namespace)
        assert [error.message.hget() for error in errors.collection().instances()] == ["no such crate"]
        assert queue.prune(keep_success=0, keep_errors=0) == 2
        assert list(bound.collection()) == list(errors.collection()) == []

    def test_is_found_by_its_ident(self, other: JobsDatabase) -> None:
        ident = Crate.bound_to(other).add_job("a", size=5).ident
        assert type(Job.bound_to(other).get_from_ident(ident)) is Crate.bound_to(other)

    def test_is_what_a_schedule_of_its_database_adds(self, other: JobsDatabase) -> None:
        pytest.importorskip("apscheduler")
        for job_class in (Crate, f"{__name__}.Crate"):
            schedule = Schedule.bound_to(other).add(f"{job_class}", job_class, interval=60, size=5)
            assert type(schedule.run_now()) is Crate.bound_to(other)
        assert not Crate.database.connection.keys("*")

    def test_is_made_in_a_forked_process_while_another_thread_makes_one(self, other: JobsDatabase) -> None:
        held, release = Event(), Event()

        def hold() -> None:
            with databases_lock():
                held.set()
                release.wait(60)

        thread = Thread(target=hold)
        thread.start()
        held.wait(60)
        pid = os.fork()
        if pid == 0:
            os._exit(0 if issubclass(Crate.bound_to(other, "forked"), Crate) else 1)
        assert os.waitpid(pid, 0)[1] == 0
        release.set()
        thread.join()

    def test_is_refused_where_another_class_has_its_name(self, other: JobsDatabase) -> None:
        Barrel.bound_to(other, "x")
        with pytest.raises(ConfigurationException, match=r"'x:barrel' is .*Barrel"):
            OtherHarbour.Barrel.bound_to(other, "x")

    @pytest.mark.parametrize("model", [Harbour, Ship])
    def test_has_no_relations(self, other: JobsDatabase, model: type[BaseJobsModel]) -> None:
        with pytest.raises(ConfigurationException, match="relations"):
            model.bound_to(other)

    def test_is_not_abstract(self, other: JobsDatabase) -> None:
        with pytest.raises(ConfigurationException, match="abstract"):
            BaseJobsModel.bound_to(other)

    @pytest.mark.parametrize("model", [Queue, Error, Schedule])
    def test_may_be_any_model(self, other: JobsDatabase, model: Any) -> None:
        bound = model.bound_to(other)
        assert bound.database is other
        assert bound._name == model._name
        assert list(bound.collection()) == []

    def test_can_be_claimed_and_ends(self, other: JobsDatabase) -> None:
        bound = Crate.bound_to(other)
        with pytest.raises(LookupError), bound.add_job("a", size=5).claim(error_model=Error.bound_to(other)):
            raise LookupError("no such crate")
        assert [error.message.hget() for error in Error.bound_to(other).collection().instances()] == ["no such crate"]

    def test_is_not_what_a_path_stands_for(self, other: JobsDatabase) -> None:
        Crate.bound_to(other)
        assert job_classes.resolve(f"{__name__}.Crate") is Crate
        assert all("_bound_from" not in vars(cls) for cls in job_classes.all())

    def test_leaves_the_class_to_its_workers(self, other: JobsDatabase) -> None:
        Crate.bound_to(other).add_job("there", size=1)
        Crate.add_job("here", size=1, queue_model=Queue)
        done: list[str] = []
        Worker(queues="crates", callback=lambda job, queue: done.append(job.identifier.hget()), burst=True).run()
        assert done == ["here"]

    @pytest.mark.parametrize(
        ("arguments", "error"),
        [((None,), TypeError), (("redis://localhost",), TypeError), ((..., ""), ValueError), ((..., 5), ValueError)],
    )
    def test_needs_a_database_and_a_text(self, other: JobsDatabase, arguments: Any, error: Any) -> None:
        with pytest.raises(error):
            Crate.bound_to(*(other if each is ... else each for each in arguments))


# It looks for the host of a connection to a socket, which has none.
over_tcp_only = pytest.mark.skipif(redis.__version__.startswith("7."), reason="redis-py 7 speaks it over TCP only")


class TestTheDatabaseOfAClient:
    @pytest.mark.parametrize(
        "options",
        [{}, {"decode_responses": True}, pytest.param({"protocol": 3}, marks=over_tcp_only), {"encoding": "latin-1"}],
        ids=lambda each: str(each),
    )
    def test_is_where_the_client_is(self, redis_server: RedisServer, options: Any) -> None:
        client = redis.Redis(unix_socket_path=redis_server.socket, db=5, **options)
        client.set("é".encode(), "ü".encode())
        assert JobsDatabase.of_client(client).connection.get("é".encode()) == "ü"
        client.flushdb()

    def test_has_what_is_to_be_known_of_it(self) -> None:
        client = redis.Redis(host="example.com", port=7000, db=3, username="u", password="p", socket_timeout=4)
        settings = JobsDatabase.of_client(client).connection_settings
        assert settings.items() >= {"host": "example.com", "port": 7000, "db": 3, "password": "p"}.items()
        assert settings["socket_timeout"] == 4
        assert JobsDatabase.of_client(redis.Redis.from_url("rediss://x:1/2?ssl_cert_reqs=none")).connection_settings[
            "ssl"
        ]

    def test_may_be_that_of_another_of_our_databases(self, jobs_database: JobsDatabase) -> None:
        jobs_database.connection.set("x", "1")
        assert JobsDatabase.of_client(jobs_database.connection).connection.get("x") == "1"

    def test_of_sentinel_is_known_by_sentinel(self) -> None:
        sentinel = redis.Sentinel([("127.0.0.1", 1), ("127.0.0.1", 2)], sentinel_kwargs={"password": "s"})
        settings = JobsDatabase.of_client(sentinel.master_for("shop", db=4, password="p")).connection_settings
        assert settings == {
            "db": 4,
            "password": "p",
            "sentinels": [("127.0.0.1", 1), ("127.0.0.1", 2)],
            "service_name": "shop",
            "sentinel_kwargs": {"password": "s"},
        } | {name: value for name, value in settings.items() if name.startswith("socket_")}

    def test_has_connections_of_its_own(self, redis_server: RedisServer) -> None:
        client = redis.Redis(unix_socket_path=redis_server.socket, db=5)
        database = JobsDatabase.of_client(client)
        assert database.connection.connection_pool is not client.connection_pool
        assert database.connection.ping()
        pid = os.fork()
        if pid == 0:
            os._exit(0 if database.connection.ping() else 1)
        assert os.waitpid(pid, 0)[1] == 0

    def test_cannot_be_that_of_connections_of_another_kind_or_to_replicas(self) -> None:
        class Tunnel(redis.Connection):
            pass

        client = redis.Redis(connection_pool=redis.ConnectionPool(connection_class=Tunnel))
        replicas = redis.Sentinel([("127.0.0.1", 1)]).slave_for("shop")
        for wrong, message in ((client, "Tunnel"), (replicas, "replicas")):
            with pytest.raises(ConfigurationException, match=message):
                JobsDatabase.of_client(wrong)

    def test_needs_a_client(self, redis_server: RedisServer) -> None:
        ours = redis.Redis(unix_socket_path=redis_server.socket)
        theirs = redis.asyncio.Redis(unix_socket_path=redis_server.socket)
        for wrong in (None, "redis://x", ours.pipeline(), theirs, JobsDatabase()):
            with pytest.raises(TypeError, match=r"redis\.Redis"):
                JobsDatabase.of_client(wrong)  # type: ignore[arg-type]
        asyncio.run(theirs.aclose())
