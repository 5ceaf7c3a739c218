"""Several databases for the jobs of one application."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import redis
from limpyd import fields
from running import work

from limpyd_jobs import ConfigurationException, Flow, Job, LimpydJobsException, job
from limpyd_jobs.models import BaseJobsModel
from limpyd_jobs.query import overview
from limpyd_jobs.redis.database import JobsDatabase
from limpyd_jobs.shards import Shards, placing


class Photo(Job):
    namespace = "shards"
    queue_name = "photos"
    album = fields.InstanceHashField(indexable=True)

    def run(self, queue: Any) -> None:
        if self.identifier.hget() == "bad":
            raise OSError("no such photo")


@job(queue="shards-mails")
def send_mail(to: str) -> None: ...


Make = Callable[..., JobsDatabase]


@pytest.fixture
def database_at(redis_client: redis.Redis) -> Iterator[Make]:
    """Make a database of the server of the test, by its number."""
    path = redis_client.connection_pool.connection_kwargs["path"]
    used = set[int]()

    def make(number: int) -> JobsDatabase:
        used.add(number)
        return JobsDatabase(unix_socket_path=path, db=number)

    yield make
    for number in used:
        redis.Redis(unix_socket_path=path, db=number).flushdb()


@pytest.fixture
def shards(database_at: Make) -> Shards:
    return Shards(map(database_at, (1, 2, 3)))


@pytest.fixture
def with_one_down(database_at: Make) -> Shards:
    return Shards([database_at(1), JobsDatabase(unix_socket_path="/nowhere/redis.sock"), database_at(3)])


def numbers(shards: Shards) -> list[int]:
    """Return how many photos there are in each shard."""
    return [len(shards.on(Photo, number).collection()) for number in range(len(shards))]


class TestAdding:
    def test_puts_each_job_into_the_shard_of_its_identifier(self, shards: Shards) -> None:
        added = [shards.add_job(Photo, f"photo:{number}", album="a") for number in range(30)]
        assert sum(numbers(shards)) == 30
        assert min(numbers(shards)) > 3
        for each in added:
            place = shards.place_of(each.identifier.hget())
            assert type(each).database is shards.databases[place]
            assert each.ident.startswith("test_shards.Photo:")

    def test_places_them_by_a_hash_that_does_not_change(self, shards: Shards) -> None:
        assert [shards.place_of(name) for name in ("photo:1", "photo:2", "é", "")] == [0, 2, 2, 0]

    def test_adds_none_twice(self, shards: Shards) -> None:
        first, second = shards.add_job(Photo, "photo:7"), shards.add_job(Photo, "photo:7", priority=5)
        assert (first.ident, sum(numbers(shards)), second.priority.hget()) == (second.ident, 1, "5")

    def test_makes_an_identifier_that_is_left_out(self, shards: Shards) -> None:
        made = shards.add_job(Photo)
        assert type(made).database is shards.databases[shards.place_of(made.identifier.hget())]

    def test_of_many_keeps_their_order(self, shards: Shards) -> None:
        names = [f"photo:{number}" for number in range(800)]
        added = shards.add_jobs(Photo, [*names[:-1], {"identifier": names[-1], "album": "b"}], album="a")
        assert [each.identifier.hget() for each in added[:5]] == names[:5]
        assert (sum(numbers(shards)), added[-1].album.hget(), added[0].album.hget()) == (800, "b", "a")
        with pytest.raises(TypeError, match="Give a list of jobs"):
            shards.add_jobs(Photo, "photo:1")

    def test_of_many_under_asyncio_keeps_their_order(self, shards: Shards) -> None:
        names = [f"photo:{number}" for number in range(800)]
        added = asyncio.run(shards.aadd_jobs(Photo, names, album="a"))
        assert [each.identifier.hget() for each in added[:20]] == names[:20]
        assert [type(each).database for each in added[-20:]] == [
            shards.databases[shards.place_of(name)] for name in names[-20:]
        ]
        assert sum(numbers(shards)) == 800
        with pytest.raises(TypeError, match="Give a list of jobs"):
            asyncio.run(shards.aadd_jobs(Photo, "photo:1"))

    def test_takes_functions_and_works_under_asyncio(self, shards: Shards) -> None:
        added = asyncio.run(shards.aadd_job(send_mail, "mail:1", to="ann"))
        assert type(added).database is shards.databases[shards.place_of("mail:1")]


class TestAWorkerOfAShard:
    def test_runs_what_is_there(self, shards: Shards, jobs_database: Any) -> None:
        added = [shards.add_job(Photo, f"photo:{number}") for number in range(10)]
        settings = BaseJobsModel.database.connection_settings
        mine = [each for each in added if type(each).database is shards.databases[1]]
        try:
            BaseJobsModel.database.reset(**shards.databases[1].connection_settings)
            work("photos", callback=None, max_loops=len(mine))
        finally:
            BaseJobsModel.database.reset(**settings)
        assert {each.status.hget() for each in mine} == {"s"}
        assert {each.status.hget() for each in added if each not in mine} == {"w"}


class TestAllOfThem:
    def test_are_counted_and_listed_together(self, shards: Shards) -> None:
        shards.add_jobs(Photo, [f"photo:{number}" for number in range(30)], album="a")
        shards.add_job(Photo, "other", album="b")
        assert shards.filter(Photo).count().value == (31, True)
        assert shards.filter(Photo, album="b").count() == ((1, True), {})
        facets, unseen = shards.filter(Photo).facets("album")
        assert (dict(facets.counts), facets.is_exact, unseen) == ({"a": 30, "b": 1}, True, {})
        assert len(shards.filter(Photo).jobs().value) == 31
        assert [each.identifier for each in shards.filter(Photo).jobs(1).value] == ["other"]
        waiting = shards.each(lambda database: overview(database).totals.waiting)
        assert sum(waiting.value.values()) == 31

    def test_are_changed_together(self, shards: Shards) -> None:
        shards.add_jobs(Photo, [f"photo:{number}" for number in range(30)])
        assert shards.filter(Photo).cancel_all(dry_run=True).value.done == 30
        assert shards.filter(Photo).move_all("others").value.done == 30
        assert shards.filter(Photo).delay_all(delayed_for=3600).value.done == 30
        assert shards.filter(Photo, status="delayed").promote_all().value.done == 30
        assert shards.filter(Photo, queue="others").cancel_all().value.done == 30
        assert shards.filter(Photo, status="canceled").delete_all() == ((30, 0, 0, {}), {})

    def test_are_requeued_at_a_rate_of_all(self, shards: Shards) -> None:
        added = shards.add_jobs(Photo, [f"photo:{number}" for number in range(30)])
        for each in added:
            with each.claim() as claim:
                claim.fail(OSError("it failed"))
        tally = shards.filter(Photo, status="error").requeue_all(rate=300).value
        assert tally.done == 30
        assert len(shards.filter(Photo, status="delayed").jobs().value) == 27  # the first of each waits at once

    def test_are_told_of_soon_though_one_hangs_that_failed_before(
        self, database_at: Make, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        path = str(tmp_path / "s")
        monkeypatch.setattr(placing, "ANSWER_TIMEOUT", 0.05)
        some = Shards([database_at(1), JobsDatabase(unix_socket_path=path, socket_timeout=3600)])
        assert [*some.filter(Photo).count().unseen] == [1]  # there is no such socket
        with socket.socket(socket.AF_UNIX) as hanging:
            hanging.bind(path)
            hanging.listen()
            assert [*some.filter(Photo).count().unseen] == [1]  # it does not wait for an hour

    def test_are_none_where_no_class_has_the_field(self, shards: Shards) -> None:
        shards.on(Photo, 1).add_job("x", album="sea")
        assert shards.filter(album="sea").count().value == (1, True)
        assert shards.filter(album="sea").cancel_all().value.done == 1
        with pytest.raises(ValueError, match="colour"):
            shards.filter(colour="red").count()

    def test_are_told_of_as_far_as_they_are_seen(self, with_one_down: Shards) -> None:
        names = [name for name in map(str, range(20)) if with_one_down.place_of(name) != 1]
        with_one_down.add_jobs(Photo, names)
        count, unseen = with_one_down.filter(Photo).count()
        assert (count, list(unseen)) == ((len(names), True), [1])
        assert unseen[1].startswith("unix:///nowhere/redis.sock?db=0: ")
        assert with_one_down.filter(Photo).cancel_all().value.done == len(names)
        with pytest.raises(redis.ConnectionError):
            with_one_down.add_job(Photo, next(name for name in map(str, range(20)) if name not in names))


class TestWrongOnes:
    def test_arguments_are_told(self, shards: Shards) -> None:
        with pytest.raises(TypeError, match="The job class comes first, or a function that is a job, not 'photo:7'"):
            shards.add_job("photo:7")
        with pytest.raises(TypeError, match="The job class comes first"):
            shards.on(int, 0)
        for number in (3, -1, "0"):
            with pytest.raises(ConfigurationException, match=f"There is no shard {number!r}: there are 0 to 2"):
                shards.on(Photo, number)  # type: ignore[arg-type]
        assert shards.place_of(7) == shards.place_of("7")  # type: ignore[arg-type]

    def test_are_refused_in_one_line(self, database_at: Make) -> None:
        with pytest.raises(ConfigurationException, match="There must be 2 to 1,000 shards, not 1"):
            Shards([database_at(1)])
        with pytest.raises(ConfigurationException, match=r"Two shards are the same database: unix://.*db=1"):
            Shards(map(database_at, (1, 2, 1)))
        with pytest.raises(TypeError, match="A shard is a JobsDatabase"):
            Shards(["redis://localhost", "redis://localhost/1"])  # type: ignore[list-item]
        with pytest.raises(ConfigurationException, match="not 1"):
            Shards.of_cluster("localhost", "shop", 1)
        with pytest.raises(TypeError, match="must be a whole number"):
            Shards.of_cluster("localhost", "shop", True)
        with pytest.raises(ConfigurationException, match="the name after the hosts"):
            Shards.of_cluster("localhost", "{shop}", 2)

    @pytest.mark.parametrize("order", [(2, 1, 3), (1, 2)])
    def test_another_number_or_order_is_refused(
        self, order: tuple[int, ...], shards: Shards, database_at: Make
    ) -> None:
        shards.add_jobs(Photo, map(str, range(20)))
        others = Shards(map(database_at, order))
        with pytest.raises(
            ConfigurationException, match=r"is given as shard \d of \d, but it is shard \d of 3: give all"
        ):
            others.filter(Photo).count()
        with pytest.raises(ConfigurationException, match="in the order in which they were first used"):
            others.add_jobs(Photo, map(str, range(20)))

    def test_what_another_program_wrote_forges_no_line(self, shards: Shards, redis_client: redis.Redis) -> None:
        path = redis_client.connection_pool.connection_kwargs["path"]
        for number, value in ((1, "0 of 3\nERROR \x1b[2J"), (2, None)):
            with redis.Redis(unix_socket_path=path, db=number) as client:
                client.set("limpyd-jobs:shard", value) if value else client.rpush("limpyd-jobs:shard", "text")
        with pytest.raises(ConfigurationException) as refused:
            shards.filter(Photo).count()
        assert f"{refused.value}".isprintable()


def test_tags_of_a_cluster_are_the_shards_of_it() -> None:
    shards = Shards.of_cluster("user:secret@redis-1,redis-2:7000", "shop", number=3)
    assert [each.prefix for each in shards.databases] == ["{shop-0}:", "{shop-1}:", "{shop-2}:"]
    assert "secret" not in shards.name_of(2)


def test_a_flow_is_in_the_shard_of_its_name_with_all_its_jobs(shards: Shards) -> None:
    with shards.flow("album:7") as flow:
        photos = [flow.add(Photo.prepare(identifier=f"photo:{number}")) for number in range(3)]
        flow.add(send_mail.prepare("ann"), after=photos)
    number = shards.place_of("album:7")
    assert {type(node.job).database for node in flow._nodes} == {shards.databases[number]}
    assert len(shards.on(Photo, number).collection()) == 3
    assert len(Photo.collection()) == 0
    assert [node.state for node in shards.find_flow("album:7").nodes()] == ["waiting"] * 3 + ["waiting for others"]
    with pytest.raises(LimpydJobsException, match="runs already"), shards.flow("album:7") as flow:
        flow.add(Photo.prepare())
    assert shards.find_flow("album:7").cancel()


def test_a_flow_that_a_job_spawned_is_found_in_the_shard_of_that_job(shards: Shards) -> None:
    name = next(name for name in map("album:{}".format, range(99)) if shards.place_of(name) != shards.place_of("ann"))
    job = shards.add_job(Photo, "ann")
    flow = Flow(name)
    flow.add(shards.on(Photo, shards.place_of("ann")).prepare())
    with job.claim("me"):
        job.spawn(flow)
    found = shards.find_flow(name)
    assert found._database is shards.databases[shards.place_of("ann")]
    assert found.cancel()
    with pytest.raises(LimpydJobsException, match="There is no flow 'album'"):
        shards.find_flow("album")
