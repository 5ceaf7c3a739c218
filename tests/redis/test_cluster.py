"""Jobs on a Redis Cluster: three real primaries, each with a replica."""

from __future__ import annotations

import asyncio
import re
import threading
from collections.abc import Callable, Iterator
from contextlib import suppress
from datetime import timedelta
from itertools import count
from pathlib import Path
from typing import Any

import pytest
import redis
from running import waiting_idly, worker_of
from servers import Cluster, ClusterOfOne, RedisServer, certificate_in, free_port, wait_until
from split_network import Network

from limpyd_jobs import ConfigurationException, Error, Job, NotReplicated, Queue, Worker
from limpyd_jobs.check import check
from limpyd_jobs.models import BaseJobsModel
from limpyd_jobs.query import JobFilter, queue_states
from limpyd_jobs.redis.cluster.tags import slot_of
from limpyd_jobs.redis.database import JobsDatabase, database_name, parse_database
from limpyd_jobs.redis.servers import VARIABLE
from limpyd_jobs.schedules import Schedule

pytestmark = pytest.mark.proof

_numbers = count()


class Photo(Job):
    namespace = "photos"
    queue_name = "q"

    def run(self, queue: Queue) -> None:
        if self.identifier.hget() == "broken":
            raise ValueError("no photo")


class Film(Photo):
    keep_result = True
    notify_changes = True

    def run(self, queue: Queue) -> str:  # type: ignore[override]
        return "seen"


@pytest.fixture
def tag(cluster: Cluster) -> Iterator[str]:
    """The models are on the cluster, with a new tag."""
    tag = f"shop-{next(_numbers)}"
    database = BaseJobsModel.database
    database.from_url(cluster.url(tag))
    yield tag
    database.connect().connection_pool.disconnect()
    database.reset()


def run_jobs(number: int) -> None:
    Worker(queues="q", max_loops=number, max_duration=30).run()


def statuses() -> list[str]:
    return sorted(f"{job.status.hget()}" for job in Photo.collection().instances())


def keys_of(cluster: Cluster, tag: str) -> list[str]:
    with cluster.owner(slot_of(tag)).client() as client:
        return list(client.scan_iter(f"{{{tag}}}:*", count=1000))


def test_jobs_are_added_run_requeued_and_found(cluster: Cluster, tag: str) -> None:
    for i in range(20):
        Photo.add_job(identifier=f"photo:{i}")
    Photo.add_job(identifier="broken")
    Photo.add_job(identifier="later", delayed_for=timedelta(seconds=0.5))
    assert Photo.add_job(identifier="photo:3").identifier.hget() == "photo:3"
    assert JobFilter("status=waiting").count().number == 21
    run_jobs(22)
    assert statuses() == ["e"] + ["s"] * 21
    (error,) = Error.collection(identifier="broken").instances()
    assert error.message.hget() == "no photo"
    (broken,) = Photo.collection(identifier="broken").instances()
    broken.requeue()
    assert Queue.get_queue("q").waiting.lrange(0, -1) == [broken.ident]
    assert JobFilter("status=waiting").cancel_all().done == 1
    assert [state.name for state in queue_states()] == ["q"]
    assert not check().findings


def test_all_keys_begin_with_the_tag(cluster: Cluster, tag: str) -> None:
    before = [client_keys(server) for server in cluster.servers[:3]]
    with Photo.database.pipeline() as pipe:
        Photo.add_job(identifier="photo:1")
        pipe.execute()
    Photo.add_jobs(f"photo:{i}" for i in range(2, 6))
    JobFilter("status=waiting").cancel_all()
    Photo.add_job(identifier="broken")
    run_jobs(1)
    new = [
        key for server, known in zip(cluster.servers[:3], before, strict=True) for key in client_keys(server) - known
    ]
    assert new
    assert {key.partition(":")[0] for key in new} == {f"{{{tag}}}"}
    assert f"{{{tag}}}:photos:photo:collection" in new  # a namespace of its own stands behind it
    assert f"{{{tag}}}:jobs:queue:collection" in new
    assert f"{{{tag}}}:limpyd-jobs:audit" in new


def client_keys(server: RedisServer) -> set[str]:
    with server.client() as client:
        return set(client.scan_iter("*", count=1000))


def test_schedules_add_jobs(tag: str) -> None:
    Schedule.add("each second", Photo, interval=1)
    run_jobs(1)
    assert statuses()[-1] == "s"


def test_names_are_plain_again_on_one_server(cluster: Cluster, redis_server: RedisServer) -> None:
    database = JobsDatabase(url=cluster.url("shop-a"))
    original = BaseJobsModel.database
    BaseJobsModel.use_database(database)
    try:
        assert (Photo._name, Queue._name) == ("{shop-a}:photos:photo", "{shop-a}:jobs:queue")
        database.connect(unix_socket_path=redis_server.socket)
        assert (Photo._name, Queue._name) == ("photos:photo", "jobs:queue")
        database.from_url(cluster.url("shop-b"))
        assert Photo._name == "{shop-b}:photos:photo"
    finally:
        BaseJobsModel.use_database(original)
    assert (Photo._name, Queue._name) == ("photos:photo", "jobs:queue")


def test_bound_class_has_its_own_tag(cluster: Cluster, tag: str) -> None:
    other = JobsDatabase(url=cluster.url("other"))
    bound = Photo.bound_to(other)
    assert (bound._name, Photo._name) == ("{other}:photos:photo", f"{{{tag}}}:photos:photo")
    job = bound.add_job(identifier="photo:1")
    with cluster.owner(slot_of("other")).client() as client:
        assert client.hget(f"{{other}}:photos:photo:{job.pk.get()}:hash", "identifier") == "photo:1"
        assert not keys_of(cluster, tag)
        client.delete(*keys_of(cluster, "other"))


def test_models_of_different_tags_are_refused(cluster: Cluster, tag: str) -> None:
    class OtherQueue(Queue):
        database = JobsDatabase(url=cluster.url("others"))

    class OtherError(Error):
        database = JobsDatabase(url=cluster.url("others"))

    with pytest.raises(ConfigurationException, match="Photo and OtherQueue are on different databases"):
        Photo.add_job(identifier="photo:1", queue_model=OtherQueue)
    with pytest.raises(ConfigurationException, match=rf"different tags on a cluster, {{{tag}}}: and {{others}}:"):
        Worker(queues="q", error_model=OtherError, max_loops=1).run()


def test_namespace_with_braces_is_refused(tag: str) -> None:
    odd = Photo.bound_to(JobsDatabase(**BaseJobsModel.database.connection_settings), namespace="ph}otos")
    with pytest.raises(ConfigurationException, match=r"'ph}otos': on a cluster.*as namespace = 'photos'"):
        odd.add_job("photo:1")


def test_collections_are_filtered_and_sorted_or_say_what_to_do_instead(tag: str) -> None:
    Photo.add_jobs(["photo:1", "photo:2"], priority=3)
    assert len(Photo.collection(status="w", priority=3)) == 2
    assert list(Photo.collection(status="w").sort()) == ["1", "2"]
    assert list(Photo.collection(status="w").store()) == ["1", "2"]
    server = Photo.database.connection.info("server")
    if "valkey_version" in server or int(server["redis_version"].partition(".")[0]) >= 8:
        assert list(Photo.collection().sort(by="-priority"))
        assert sorted(Photo.collection().values_list("identifier", flat=True)) == ["photo:1", "photo:2"]
    else:
        with pytest.raises(redis.ResponseError, match=r"sort in Python, by sorted\(\)"):
            list(Photo.collection().sort(by="-priority"))


# Bad input


@pytest.mark.parametrize(
    ("url", "told"),
    [
        ("redis+cluster://host:6379", "begins all keys"),
        ("redis+cluster://host:6379/{shop}", "no braces"),
        ("redis+cluster://host:6379/sh}op", "no braces"),
        ("redis+cluster://host:6379/shop/2", "begins all keys"),
        ("redis+cluster://host:6379/shop?db=2", "a cluster has no other databases"),
        ("redis+cluster:///shop", "there is no host"),
        ("redis+cluster://host/shop?shards=8", "shards are named by --shards; the first of them alone is …/shop-0"),
    ],
)
def test_url_that_names_no_tag_is_refused(url: str, told: str) -> None:
    with pytest.raises(ConfigurationException, match=told):
        parse_database(url)


def test_settings_without_a_tag_or_with_a_database_are_refused() -> None:
    with pytest.raises(ConfigurationException, match="needs both"):
        JobsDatabase(cluster=[("host", 6379)])
    with pytest.raises(ConfigurationException, match="no database but 0"):
        JobsDatabase(cluster=[("host", 6379)], tag="shop", db=2)
    with pytest.raises(ConfigurationException, match="no braces"):
        JobsDatabase(cluster=[("host", 6379)], tag="{shop}")
    with pytest.raises(ConfigurationException, match="give one of cluster and sentinels"):
        JobsDatabase(cluster=[("host", 6379)], tag="shop", sentinels=[("host", 26379)], service_name="main")
    for servers in ("host:6379", ["host"], [("host", "6379")], [(5, 6379)], 7):
        with pytest.raises(ConfigurationException, match=r"cluster must be a list of \(host, port\)"):
            JobsDatabase(cluster=servers, tag="shop")
    with pytest.raises(ConfigurationException, match="must be a text, not a int"):
        JobsDatabase(url=5)


def test_name_of_the_database_is_its_url() -> None:
    url = "redis+cluster://one:6379,two:6380/shop"
    assert database_name(parse_database(url.replace("one", "user:password@one"))) == url
    assert database_name(parse_database("rediss+cluster://one/shop")) == "rediss+cluster://one:6379/shop"


def test_one_server_given_as_a_cluster_is_refused(redis_binary: str) -> None:
    with RedisServer(redis_binary, port=free_port()) as server:
        database = JobsDatabase(url=f"redis+cluster://127.0.0.1:{server.port}/shop")
        with pytest.raises(ConfigurationException, match=f"write redis://127.0.0.1:{server.port}/0"):
            database.connection.ping()


def test_cluster_given_as_one_server_is_refused(cluster: Cluster) -> None:
    address = f"127.0.0.1:{cluster.servers[0].port}"
    with pytest.raises(ConfigurationException, match=re.escape(f"write redis+cluster://{address}/name")):
        JobsDatabase(url=f"redis://{address}/0").connection.ping()
    with pytest.raises(ConfigurationException, match=re.escape(f"write redis+cluster://{address}/name")):
        JobsDatabase(url=f"redis://{address}/3").connection.ping()


def test_seeds_that_are_down_are_passed_over(cluster: Cluster) -> None:
    url = f"redis+cluster://127.0.0.1:{free_port()},127.0.0.1:{cluster.servers[4].port}/shop"
    assert JobsDatabase(url=url).connection.ping()
    with pytest.raises(redis.ConnectionError, match="No server of the cluster tells who has the keys"):
        JobsDatabase(url=f"redis+cluster://127.0.0.1:{free_port()}/shop").connection.ping()


def test_environment_that_names_a_cluster_too_late_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    database = JobsDatabase()
    monkeypatch.setenv(VARIABLE, "redis+cluster://host/shop")
    with pytest.raises(ConfigurationException, match="since limpyd_jobs was imported"):
        database.connect()
    assert JobsDatabase().prefix == "{shop}:"


# A cluster of one server


@pytest.fixture
def only_server(redis_binary: str) -> Iterator[ClusterOfOne]:
    original = BaseJobsModel.database
    with ClusterOfOne(redis_binary) as server:
        yield server
    if BaseJobsModel.database is not original:
        BaseJobsModel.use_database(original)


def test_user_with_rights_to_the_keys_of_the_tag_alone_can_do_all(only_server: ClusterOfOne) -> None:
    with only_server.client() as client:
        client.execute_command("ACL", "SETUSER", "shop", "on", ">secret", "~{shop}:*", "+@all")
    address = f"127.0.0.1:{only_server.port}"
    BaseJobsModel.use_database(JobsDatabase(url=f"redis+cluster://shop:secret@{address}/shop"))
    Photo.add_jobs(["photo:1", "photo:2"])
    Photo.add_job(identifier="broken")
    Schedule.add("each second", Photo, interval=1)
    run_jobs(4)
    assert statuses() == ["e", "s", "s", "s"]
    assert JobFilter("status=error").requeue_all().done == 1
    assert not check().findings
    with pytest.raises(redis.ConnectionError, match="No server of the cluster tells"):
        JobsDatabase(url=f"redis+cluster://shop:wrong@{address}/shop").connection.ping()


def test_cluster_is_reached_over_tls(redis_binary: str, tmp_path: Path) -> None:
    trusted = tmp_path / "server.pem"
    more = (*certificate_in(tmp_path), "--tls-ca-cert-file", str(trusted), "--tls-cluster", "yes")
    server = ClusterOfOne(redis_binary, *more, is_tls=True)
    try:
        server.start()
    except AssertionError:
        server.remove()
        pytest.skip("this Redis server is built without TLS")
    try:
        url = f"rediss+cluster://localhost:{server.port}/shop?ssl_ca_certs={trusted}"
        assert Photo.bound_to(JobsDatabase(url=url)).add_job(identifier="photo:1").identifier.hget() == "photo:1"
    finally:
        server.kill()
        server.remove()


@pytest.fixture
def server_on_a_host(redis_binary: str) -> Iterator[tuple[Network, ClusterOfOne]]:
    """A cluster of one server, on the host ``server`` of a network."""
    if not Network.is_possible():
        pytest.skip("a network of its own needs Linux, and root")
    with Network() as network:
        address = network.add("server")
        server = ClusterOfOne(redis_binary, "--bind", address, "--protected-mode", "no")
        server.host, server._command[:0] = address, network.command_on("server")
        with server:
            yield network, server


def test_calls_to_a_host_that_is_gone_end_though_no_time_was_set(
    server_on_a_host: tuple[Network, ClusterOfOne],
) -> None:
    network, server = server_on_a_host
    pool: Any = JobsDatabase(cluster=[server.address], tag="shop", socket_timeout=None).connection.connection_pool
    waiting, other = pool.make_connection(), pool.make_connection()
    other.connect()
    waiting.send_command("BLPOP", "{shop}:list", 0)
    with server.client() as client:
        wait_until(lambda: client.info("clients")["blocked_clients"], "it waits")
    network.cut_off(["server"])
    other.send_command("INCR", "{shop}:number")
    for connection in (waiting, other):
        with pytest.raises((redis.ConnectionError, redis.TimeoutError)):
            connection.read_response()


# While a slot moves


def test_commands_follow_the_slot(cluster: Cluster, tag: str) -> None:
    Photo.add_job(identifier="photo:1")
    client = Photo.database.connection
    cluster.move(slot_of(tag))
    assert JobFilter("status=waiting").count().number == 1  # a script
    cluster.move(slot_of(tag))
    assert Photo.collection().instances()[0].status.hget() == "w"  # a command
    cluster.move(slot_of(tag))
    pipe = client.pipeline(transaction=False)
    assert pipe.hget(f"{Photo._name}:1:hash", "status").time().scard(f"{Photo._name}:collection").execute()[::2] == [
        "w",
        1,
    ]
    cluster.move(slot_of(tag))
    with Photo.database.pipeline() as pipe:
        Photo.collection().instances()
        pipe.incr(f"{{{tag}}}:number")
        assert pipe.execute()[-1] == 1
    cluster.move(slot_of(tag))
    assert client.transaction(lambda pipe: pipe.multi() or pipe.incr(f"{{{tag}}}:number"), f"{{{tag}}}:number") == [2]


def test_tasks_of_asyncio_follow_the_slot(cluster: Cluster, tag: str) -> None:
    async def main() -> None:
        await Photo.aadd_job(identifier="photo:1")
        await asyncio.to_thread(cluster.move, slot_of(tag))
        await asyncio.gather(*(Photo.aadd_job(identifier=f"photo:{i}") for i in range(10)))

    asyncio.run(main())
    assert statuses() == ["w"] * 10


@pytest.mark.parametrize("add", [Photo.add_job, lambda **named: asyncio.run(Photo.aadd_job(**named))])
def test_call_waits_for_the_end_of_a_move_and_is_done_once(add: Callable[..., Any], cluster: Cluster, tag: str) -> None:
    first, slot = Photo.add_job(identifier="photo:1"), slot_of(tag)
    to = cluster.other(cluster.owner(slot))
    source = cluster.begin_move(slot, to)
    adding = threading.Thread(target=lambda: add(identifier="photo:2"))
    adding.start()
    cluster.move_keys(source, to, [f"{Photo._name}:collection"])
    while keys := cluster.keys_in(source, slot):
        cluster.move_keys(source, to, keys)
    cluster.end_move(slot, to)
    adding.join(60)
    assert sorted(Photo.collection()) == [first.pk.get(), "2"]
    assert not check().findings


def test_call_that_waits_too_long_is_a_connection_error(cluster: Cluster, monkeypatch: pytest.MonkeyPatch) -> None:
    slot = slot_of("slow")
    database = JobsDatabase(url=f"{cluster.url('slow')}?socket_timeout=0.3")
    to = cluster.other(cluster.owner(slot))
    source = cluster.begin_move(slot, to)
    try:
        with pytest.raises(redis.ConnectionError, match="The slot of the keys is not served"):
            database.connection.get("{slow}:key")
    finally:
        cluster.end_move(slot, source)


def test_nothing_is_lost_nor_run_twice_while_the_slot_moves_under_load(cluster: Cluster, tag: str) -> None:
    worker = Worker(queues="q", max_loops=300, max_duration=60)
    running = threading.Thread(target=worker.run)
    running.start()
    moving = threading.Thread(target=lambda: [cluster.move(slot_of(tag)) for _ in range(4)])
    moving.start()
    for i in range(300):
        Photo.add_job(identifier=f"photo:{i}")
    moving.join(60)
    running.join(60)
    assert statuses() == ["s"] * 300
    assert {job.tries.hget() for job in Photo.collection().instances()} == {"1"}
    assert not check().findings


def test_idle_worker_hears_of_a_job_after_the_slot_moved(cluster: Cluster, tag: str) -> None:
    Queue.get_queue("q")
    with cluster.owner(slot_of(tag)).client() as client, waiting_idly(worker_of("q"), client):
        cluster.move(slot_of(tag))
        Photo.add_job(identifier="photo:1")
    assert statuses() == ["s"]


def test_changes_are_heard_across_a_move(cluster: Cluster, tag: str) -> None:
    heard = []
    with Film.changes(timeout=30) as changes:
        changes.follow(heard.append)
        Film.add_job(identifier="film:1")
        cluster.move(slot_of(tag))
        Film.add_job(identifier="film:2")
        wait_until(lambda: len(heard) == 2, "both changes")
    assert [change.pk for change in heard] == ["1", "2"]


def test_changes_are_awaited_across_a_move(cluster: Cluster, tag: str) -> None:
    async def main() -> list[str]:
        async with Film.achanges(timeout=30) as changes:
            await Film.aadd_job(identifier="film:1")
            heard = [(await anext_of(changes)).pk]
            await asyncio.to_thread(cluster.move, slot_of(tag))
            await Film.aadd_job(identifier="film:2")
            return [*heard, (await anext_of(changes)).pk]

    assert asyncio.run(main()) == ["1", "2"]


async def anext_of(changes: Any) -> Any:
    return await changes.__anext__()


def test_result_is_waited_for_across_a_move(cluster: Cluster, tag: str) -> None:
    job = Film.add_job(identifier="film:1")
    results: list[Any] = []
    waiting = threading.Thread(target=lambda: results.append(job.result(timeout=30)))
    waiting.start()
    cluster.move(slot_of(tag))
    run_jobs(1)
    waiting.join(60)
    assert results == ["seen"]


def test_database_of_a_client_is_the_same_keys_of_the_cluster(cluster: Cluster, tag: str) -> None:
    Photo.add_job(identifier="photo:1")
    database = JobsDatabase.of_client(Photo.database.connection)
    assert database.prefix == f"{{{tag}}}:"
    assert database.connection.hget(f"{Photo._name}:1:hash", "identifier") == "photo:1"


# With a cluster of its own, which is not the same afterwards


@pytest.fixture
def own_cluster(redis_binary: str) -> Iterator[Cluster]:
    """A cluster that finds a dead server within a second; the models are on it, with the tag ``shop``."""
    original = BaseJobsModel.database
    with Cluster(redis_binary, node_timeout=1000) as cluster:
        BaseJobsModel.use_database(JobsDatabase(url=f"{cluster.url('shop')}?wait_for_replicas=1&replica_timeout=5"))
        yield cluster
        BaseJobsModel.use_database(original)


def test_planned_failover_loses_nothing(own_cluster: Cluster) -> None:
    owner = own_cluster.owner(slot_of("shop"))
    running = threading.Thread(target=worker_of("q", max_loops=200).run)
    running.start()
    for i in range(200):
        if i == 100:
            own_cluster.fail_over(owner)
        Photo.add_job(identifier=f"photo:{i}")
    running.join(60)
    assert own_cluster.owner(slot_of("shop")) is not owner
    assert statuses() == ["s"] * 200
    assert not check().findings


def test_death_of_the_owner_loses_nothing_that_was_copied(own_cluster: Cluster) -> None:
    database: Any = BaseJobsModel.database
    for i in range(100):
        if i == 50:
            own_cluster.owner(slot_of("shop")).kill()
            database.copies = database.copies._replace(replicas=0)  # the new primary has no replica
        add_at_last(f"photo:{i}")
    run_jobs(100)
    assert sorted(job.identifier.hget() for job in Photo.collection().instances()) == sorted(
        f"photo:{i}" for i in range(100)
    )
    assert {job.tries.hget() for job in Photo.collection().instances()} == {"1"}


def test_tasks_of_asyncio_find_the_new_owner_after_the_old_one_died(own_cluster: Cluster) -> None:
    async def add_at_last(identifier: str) -> None:
        while True:
            with suppress(redis.RedisError, NotReplicated):
                await Photo.aadd_job(identifier=identifier)
                return
            await asyncio.sleep(0.05)

    async def main() -> None:
        await add_at_last("photo:1")
        own_cluster.owner(slot_of("shop")).kill()
        BaseJobsModel.database.copies = BaseJobsModel.database.copies._replace(replicas=0)
        await asyncio.wait_for(asyncio.gather(*(add_at_last(f"photo:{i}") for i in range(5))), 60)

    asyncio.run(main())
    assert statuses() == ["w"] * 5


def add_at_last(identifier: str) -> None:
    """Add a job as an application that tries again."""

    def is_added() -> bool:
        with suppress(redis.RedisError):
            Photo.add_job(identifier=identifier)
            return True
        return False

    wait_until(is_added, "a new primary takes the job")
