"""A worker of a shard takes jobs of the others while it is idle."""

from __future__ import annotations

import logging
import os
import socket
import tempfile
from collections.abc import Iterator
from typing import Any

import pytest
import redis
from cases import each
from running import messages, worker_of, working
from servers import wait_until

from limpyd_jobs import STATUSES, ConfigurationException, Error, Job, Worker
from limpyd_jobs.models import BaseJobsModel
from limpyd_jobs.redis.database import JobsDatabase
from limpyd_jobs.shards import Shards, placing
from limpyd_jobs.workers.claiming import claimer, visits, waiter
from limpyd_jobs.workers.config import WorkerConfig


class Parcel(Job):
    namespace = "visits"
    queue_name = "parcels"
    seen: list[str] = []

    def run(self, queue: Any) -> Any:
        identifier = self.identifier.hget()
        self.seen.append(identifier)
        if identifier.startswith("bad"):
            raise OSError("it is broken")
        return "done"


class Tracked(Parcel):
    keep_result = True


@pytest.fixture
def shards(redis_client: redis.Redis, monkeypatch: pytest.MonkeyPatch) -> Iterator[Shards]:
    """Three databases of the server of the test; all are asked soon."""
    monkeypatch.setattr(visits, "ROUND", 0.1)
    for module in (claimer, waiter):
        monkeypatch.setattr(module, "MAX_WAIT", 0.05)
    Parcel.seen.clear()
    path = redis_client.connection_pool.connection_kwargs["path"]
    before = BaseJobsModel.database.connection_settings
    yield Shards(JobsDatabase(unix_socket_path=path, db=number) for number in (4, 5, 6))
    BaseJobsModel.database.reset(**before)
    for number in (4, 5, 6):
        redis.Redis(unix_socket_path=path, db=number).flushdb()


def in_shard(shards: Shards, number: int, beginning: str = "parcel") -> str:
    """Return an identifier that belongs to a shard."""
    names = (f"{beginning}:{each}" for each in range(1000))
    return next(name for name in names if shards.place_of(name) == number)


def at_home(shards: Shards, home: int, jobs: int, **options: Any) -> Worker:
    return worker_of("parcels", callback=None, max_loops=jobs, shards=shards, home=home, **options)


@pytest.mark.matrix(1)
@pytest.mark.parametrize("options", [{}, {"prefetch": 10}, {"concurrency": 5}], ids=str)
def test_it_runs_them_all(shards: Shards, options: dict[str, Any]) -> None:
    added = shards.add_jobs(Parcel, [f"parcel:{number}" for number in range(30)])
    at_home(shards, 1, 30, **options).run()
    assert {job.status.hget() for job in added} == {STATUSES.SUCCESS}
    assert sorted(Parcel.seen) == sorted(job.identifier.hget() for job in added)


def test_its_own_come_first(shards: Shards) -> None:
    mine, others = in_shard(shards, 1), in_shard(shards, 2)
    shards.add_job(Parcel, others)
    shards.add_job(Parcel, mine)
    at_home(shards, 1, 2).run()
    assert Parcel.seen == [mine, others]


def test_its_log_names_the_shard_of_a_job_unless_it_is_its_own(
    shards: Shards, caplog: pytest.LogCaptureFixture
) -> None:
    own, other = (in_shard(shards, number) for number in (0, 2))
    shards.add_jobs(Parcel, [own, other])
    at_home(shards, 0, 2).run()
    told = [message for message in messages(caplog) if "|parcel:" in message]
    assert [(own in message, message.endswith(" (shard 2)")) for message in told] == 2 * [(True, False)] + 2 * [
        (False, True)
    ]


def test_a_result_is_found_by_the_identifier_alone(shards: Shards) -> None:
    identifier = in_shard(shards, 2)
    shards.add_job(Tracked, identifier)
    at_home(shards, 0, 1).run()
    [found] = shards.on(Tracked, shards.place_of(identifier)).collection(identifier=identifier).instances()
    assert found.result(timeout=0) == "done"


def test_what_fails_there_is_recorded_there(shards: Shards) -> None:
    job = shards.add_job(Parcel, in_shard(shards, 2, "bad"))
    at_home(shards, 0, 2, requeue_times=1, requeue_delay_delta=0).run()
    assert (job.status.hget(), job.tries.hget()) == (STATUSES.ERROR, "2")
    assert [len(shards.on(Error, number).collection()) for number in range(3)] == [0, 0, 2]


def test_the_lease_is_renewed_there(shards: Shards, monkeypatch: pytest.MonkeyPatch) -> None:
    renewed: list[bool] = []

    def run(job: Parcel, queue: Any) -> None:
        client = type(job).database.connection
        key = f"{queue.key.removesuffix(':hash')}:_running"
        before = client.zscore(key, job.ident)
        wait_until(lambda: client.zscore(key, job.ident) > before)
        renewed.append(True)

    shards.add_job(Parcel, in_shard(shards, 2))
    worker_of("parcels", callback=run, shards=shards, home=0, lease=0.4).run()
    assert renewed == [True]


@pytest.mark.matrix(1)
@pytest.mark.parametrize(("concurrency", "tries"), [(1, "2"), (2, "1")], ids=["alone", "beside others"])
def test_what_a_killed_worker_of_another_shard_ran_is_run_again(shards: Shards, concurrency: int, tries: str) -> None:
    """The try counts only if no other job may have killed it."""
    job = shards.add_job(Parcel, in_shard(shards, 2))
    pid, options = os.fork(), {"shards": shards, "home": 0, "lease": 0.4, "concurrency": concurrency}
    if not pid:
        try:
            worker_of("parcels", callback=lambda *_: os._exit(3), **options).run()
        finally:
            os._exit(0)
    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 3
    assert job.status.hget() == STATUSES.RUNNING
    at_home(shards, 2, 1, lease=0.4).run()
    assert (job.status.hget(), job.tries.hget()) == (STATUSES.SUCCESS, tries)


def test_what_it_cannot_import_waits_for_another_one(shards: Shards) -> None:
    job = shards.add_job(Parcel, in_shard(shards, 2))
    queue = shards.on(Parcel.queue_model, 2).get_queue("parcels")
    queue.waiting.lpush("no.such.module.Class:1", "garbage")
    at_home(shards, 0, 1).run()
    assert job.status.hget() == STATUSES.SUCCESS
    assert queue.waiting.lmembers() == []


def test_one_that_is_down_is_named_and_the_others_are_asked(
    shards: Shards, caplog: pytest.LogCaptureFixture, redis_client: redis.Redis
) -> None:
    path = redis_client.connection_pool.connection_kwargs["path"]
    down = JobsDatabase(unix_socket_path="/nowhere/redis.sock")
    some = Shards([JobsDatabase(unix_socket_path=path, db=4), down, JobsDatabase(unix_socket_path=path, db=6)])
    name = in_shard(some, 2)
    job = some.add_job(Parcel, name)
    at_home(some, 0, 1).run()
    assert job.status.hget() == STATUSES.SUCCESS
    assert any(
        text.startswith("Shard 1 (unix:///nowhere/redis.sock?db=0): cannot be used") for text in messages(caplog)
    )


def test_a_quiet_worker_takes_none(shards: Shards) -> None:
    job = shards.add_job(Parcel, in_shard(shards, 2))
    worker = at_home(shards, 0, 1, max_duration=0.5)
    worker._run_state.is_quiet = True
    with working(worker):
        pass
    assert job.status.hget() == STATUSES.WAITING


@pytest.mark.parametrize("home", [None, 3])
def test_a_home_that_is_not_a_shard_is_refused(shards: Shards, home: Any) -> None:
    with pytest.raises(ConfigurationException, match=f"must be the number of a shard, 0 to 2, not {home}"):
        at_home(shards, home, 1)


def test_shards_may_be_a_text() -> None:
    shards = Shards.of_text("rediss+cluster://u:p@redis-1,redis-2/shop?shards=3")
    assert [each.prefix for each in shards.databases] == ["{shop-0}:", "{shop-1}:", "{shop-2}:"]
    assert (
        f"{shards}" == "<3 shards, from rediss+cluster://redis-1:6379,redis-2:6379/shop-0 to "
        "rediss+cluster://redis-1:6379,redis-2:6379/shop-2>"
    )
    assert len(Shards.of_text(" redis://localhost/1  redis://localhost/2 ")) == 2
    with pytest.raises(ConfigurationException):
        Shards.of_text("http://localhost redis://localhost")


def test_what_was_canceled_or_delayed_in_its_list_ends_as_at_home(shards: Shards) -> None:
    canceled, delayed = (shards.add_job(Parcel, in_shard(shards, 2, name)) for name in ("a", "b"))
    canceled.status.hset(STATUSES.CANCELED)
    delayed.status.hset(STATUSES.DELAYED)
    delayed.delayed_until.hset("2999-01-01 00:00:00")
    at_home(shards, 0, 2).run()
    queue = shards.on(Parcel.queue_model, 2).get_queue("parcels")
    assert (Parcel.seen, canceled.queued.hget(), canceled.status.hget()) == ([], None, STATUSES.CANCELED)
    assert (queue.waiting.lmembers(), queue.delayed.zmembers()) == ([], [delayed.ident])


def test_jobs_of_two_shards_with_the_same_ident_run_at_once(shards: Shards) -> None:
    away, mine = shards.add_job(Parcel, in_shard(shards, 2, "away")), in_shard(shards, 0, "mine")
    client, added, renewed = shards.databases[2].connection, list[Any](), list[bool]()

    def run(job: Parcel, queue: Any) -> None:
        if job.identifier.hget() == mine:
            return
        added.append(shards.add_job(Parcel, mine))
        wait_until(lambda: added[0].status.hget() == STATUSES.SUCCESS)
        key = f"{queue.key.removesuffix(':hash')}:_running"
        before = client.zscore(key, job.ident)
        wait_until(lambda: client.zscore(key, job.ident) > before)
        renewed.append(True)

    worker_of("parcels", callback=run, max_loops=2, shards=shards, home=0, lease=0.8, concurrency=3).run()
    assert (away.ident, renewed) == (added[0].ident, [True])
    assert (away.status.hget(), away.tries.hget()) == (STATUSES.SUCCESS, "1")


@pytest.mark.proof
def test_its_own_are_run_though_the_end_of_one_of_another_shard_cannot_be_recorded(
    shards: Shards, redis_client: redis.Redis, caplog: pytest.LogCaptureFixture
) -> None:
    redis_client.acl_setuser("visitor", enabled=True, nopass=True, keys="*", commands=["+@all"])
    settings = {**shards.databases[2].connection_settings, "username": "visitor", "password": "any"}
    some = Shards([*shards.databases[:2], JobsDatabase(**settings)])
    away, mine = some.add_job(Parcel, in_shard(some, 2)), in_shard(some, 0)
    added: list[Any] = []

    def run(job: Parcel, queue: Any) -> None:
        if not added:
            added.append(some.add_job(Parcel, mine))
            redis_client.acl_setuser("visitor", enabled=True, nopass=True, keys="*", commands=["-@all"])

    try:
        worker_of("parcels", callback=run, max_loops=2, shards=some, home=0, lease=0.6).run()
    finally:
        redis_client.acl_deluser("visitor")
    assert added[0].status.hget() == STATUSES.SUCCESS
    assert shards.on(Parcel, 2)(away.pk.get()).status.hget() == STATUSES.RUNNING
    assert any("of a shard that cannot be used, and is rescued there" in text for text in messages(caplog))


def test_a_connection_to_another_shard_is_dropped_if_its_job_was_interrupted(shards: Shards) -> None:
    clients: list[int] = []

    def run(job: Parcel, queue: Any) -> None:
        clients.append(type(job).database.connection.client_id())
        while len(clients) == 1:
            pass

    shards.add_job(Parcel, in_shard(shards, 2, "a"))
    shards.add_job(Parcel, in_shard(shards, 2, "b"))
    worker_of("parcels", callback=run, max_loops=2, shards=shards, home=0, job_timeout=0.1).run()
    assert clients[0] != clients[1]


@each(
    ("text", "told"),
    [
        ("redis+cluster://u:hidden@h/shop", "must tell the number of shards, as redis"),
        ("redis+cluster://h/shop?shards=2&shards=3", "must tell the number of shards, as redis"),
        ("redis+cluster://h/shop?shards=1e9", "There must be 2 to 1,000 shards, not 1e9"),
        ("redis+cluster://h/shop?shards=-3", "There must be 2 to 1,000 shards, not -3"),
        ("redis+cluster://u:hidden@h/shop?shards=3&db=2", "a cluster has no other databases"),
        ("redis://u:hidden@a,redis://u:hidden@b", "there must be spaces between the URLs"),
        ("redis://u:hidden one@a redis://b", "must be written as %20"),
        ("", "There must be 2 to 1,000 shards, not 0"),
        (("redis://u:hidden@a", "redis://b"), "shards must be a Shards, or a text that names one, not a tuple"),
    ],
)
def test_what_does_not_name_shards_is_told_without_passwords(text: Any, told: str) -> None:
    with pytest.raises(ConfigurationException) as refused:
        Worker("parcels", shards=text, home=0)
    assert f"{refused.value}".startswith("shards")
    assert told in f"{refused.value}"
    assert "hidden" not in f"{refused.value}"


def test_a_url_of_a_cluster_may_have_other_options() -> None:
    shards = Shards.of_text("redis+cluster://h/shop?socket_timeout=3&shards=2")
    assert [each.connection_settings["socket_timeout"] for each in shards.databases] == [3, 3]


def test_a_home_without_shards_is_refused() -> None:
    with pytest.raises(ConfigurationException, match="home=1 is the number of a shard, so it needs shards"):
        Worker("parcels", home=1)


def test_another_order_of_the_shards_is_refused(shards: Shards) -> None:
    shards.add_job(Parcel, in_shard(shards, 2))
    others = Shards([shards.databases[number] for number in (2, 0, 1)])
    with pytest.raises(ConfigurationException, match="is given as shard 0 of 3, but it is shard 2 of 3"):
        at_home(others, 0, 1).run()


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (["--database=redis://localhost/3"], "the databases are those of --shards: leave --database out"),
        ([], "error: shard 0, unix:///nowhere/redis.sock?db=0: cannot use Redis: "),
    ],
)
def test_the_command_line_names_what_is_wrong(
    words: list[str], told: str, shards: Shards, capsys: pytest.CaptureFixture[str]
) -> None:
    logger = logging.getLogger("limpyd-jobs")
    handlers = list(logger.handlers)
    names = " ".join(["unix:///nowhere/redis.sock", *map(shards.name_of, (1, 2))])
    options = ["--no-title", "--no-terminate-gracefuly", "--wait-for-redis=0", "--queues=parcels", "--home=0"]
    try:
        with pytest.raises(SystemExit):
            WorkerConfig(["worker", *options, f"--shards={names}", *words]).execute()
    finally:
        logger.handlers[:] = handlers
    assert told in capsys.readouterr().err


@pytest.mark.parametrize("name", ["wait_for_job", "get_job", "get_queue"])
def test_code_that_finds_jobs_by_their_idents_gets_none_of_other_shards(
    name: str, shards: Shards, caplog: pytest.LogCaptureFixture
) -> None:
    class Finding(Worker):
        def get_job(self, job_ident: str) -> Job:
            return Job.get_from_ident(job_ident)

    if name != "get_job":
        del Finding.get_job
        setattr(Finding, name, lambda *args: getattr(super(Finding, args[0]), name)(*args[1:]))
    away, mine = shards.add_job(Parcel, in_shard(shards, 2)), shards.add_job(Parcel, in_shard(shards, 0))
    worker = at_home(shards, 0, 1, worker_class=Finding)
    worker.run()
    assert (mine.status.hget(), away.status.hget()) == (STATUSES.SUCCESS, STATUSES.WAITING)
    assert any(text.startswith("Takes no jobs of other shards: ") for text in messages(caplog))


@pytest.fixture
def at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Shards that failed are asked again soon."""
    monkeypatch.setattr(visits, "RETRY", 0.05)
    monkeypatch.setattr(placing, "ANSWER_TIMEOUT", 0.05)


@pytest.mark.usefixtures("at_once")
def test_one_that_failed_is_asked_again(shards: Shards, redis_client: redis.Redis) -> None:
    redis_client.acl_setuser("visitor", enabled=True, nopass=True, keys="*", commands=["+@all", "-@scripting"])
    redis_client.acl_log_reset()
    settings = {**shards.databases[2].connection_settings, "username": "visitor", "password": "any"}
    some = Shards([*shards.databases[:2], JobsDatabase(**settings)])
    job = shards.add_job(Parcel, in_shard(some, 2))
    try:
        with working(at_home(some, 0, 1)):
            wait_until(lambda: "visitor" in {each["username"] for each in redis_client.acl_log()})
            redis_client.acl_setuser("visitor", enabled=True, nopass=True, keys="*", commands=["+@all"])
    finally:
        redis_client.acl_deluser("visitor")
    assert job.status.hget() == STATUSES.SUCCESS


@pytest.mark.usefixtures("at_once")
def test_one_that_hangs_does_not_hold_the_worker_for_its_timeout_again(shards: Shards) -> None:
    with tempfile.TemporaryDirectory() as directory, socket.socket(socket.AF_UNIX) as hanging:
        path = f"{directory}/hanging.sock"
        hanging.settimeout(60)
        some = Shards([shards.databases[0], JobsDatabase(unix_socket_path=path, socket_timeout=3600)])
        worker = at_home(some, 0, 1)
        with working(worker):
            wait_until(lambda: worker.status == "waiting")
            hanging.bind(path)
            hanging.listen()
            hanging.accept()
            job = some.add_job(Parcel, in_shard(some, 0))
    assert job.status.hget() == STATUSES.SUCCESS


def test_a_coroutine_adds_jobs_to_all_shards_and_holds_no_event_loop(shards: Shards) -> None:
    async def run(job: Parcel, queue: Any) -> None:
        for number in range(3):
            await shards.aadd_job(Parcel, in_shard(shards, number, "added"), "others")

    first = shards.on(Parcel, 0).add_job("first")
    fresh = Shards(shards.databases)
    worker_of("parcels", callback=run, shards=fresh, home=0, concurrency=2).run()
    assert first.status.hget() == STATUSES.SUCCESS
    assert shards.filter(Parcel, queue="others").count().value == (3, True)


def test_the_first_job_of_another_shard_is_found_soon(
    shards: Shards, redis_client: redis.Redis, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(visits, "REFRESH", 3600)
    with working(at_home(shards, 0, 1)):
        wait_until(lambda: {"5", "6"} <= {each["db"] for each in redis_client.client_list()})
        job = shards.add_job(Parcel, in_shard(shards, 2))
    assert job.status.hget() == STATUSES.SUCCESS
