"""Moving all jobs of a database to another one: all arrive, whatever breaks, and nothing is added or run meanwhile."""

from __future__ import annotations

import asyncio
import json
import shlex
from collections.abc import Callable, Iterator
from datetime import timedelta
from itertools import count
from typing import Any

import pytest
from reading import limpyd_jobs
from redis.connection import AbstractConnection
from servers import Cluster

from limpyd_jobs import ConfigurationException, DatabaseMoved, Flow, Job, Presence, Queue, Worker, chain
from limpyd_jobs.check import check
from limpyd_jobs.models import BaseJobsModel
from limpyd_jobs.query import JobFilter
from limpyd_jobs.records import audit
from limpyd_jobs.records.relocations import KEY, read_note
from limpyd_jobs.redis.cluster.tags import slot_of
from limpyd_jobs.redis.database import JobsDatabase
from limpyd_jobs.relocation import NotMoved, Relocation, relocating, values
from limpyd_jobs.relocation.renaming import Renaming, namespaces_of
from limpyd_jobs.schedules import Schedule

Stored = dict[str, tuple[Any, bool]]  # by the key: the value, and whether it expires


class Photo(Job):
    namespace = "moved"
    queue_name = "q"
    keep_result = True
    notify_changes = True

    def run(self, queue: Queue) -> str:  # type: ignore[override]
        if self.identifier.hget() == "broken":
            raise ValueError("no photo")
        self.emit("seen", {"n": 2})
        return "seen"


class Film(Job):
    namespace = "films"
    queue_name = "q"


@pytest.fixture
def source(jobs_database: JobsDatabase) -> JobsDatabase:
    return jobs_database


@pytest.fixture
def target(source: JobsDatabase) -> Iterator[JobsDatabase]:
    """Another database of the same server."""
    database = JobsDatabase(**{**source.connection_settings, "db": 5})
    database.connection.flushdb()
    yield database
    database.connection.flushdb()
    database.connection.connection_pool.disconnect()


def fill() -> None:
    """Make some of everything."""
    for identifier in ("one", "two", "broken"):
        Photo.add_job(identifier)
    Worker(queues="q", max_loops=3).run()
    Photo.add_job("waits")
    Photo.add_job("later", delayed_for=timedelta(hours=1))
    Film.add_job("film")
    Schedule.add("daily", Film, interval=timedelta(days=1))


def stored_in(client: Any) -> Stored:
    read = {
        "string": client.get,
        "list": lambda key: client.lrange(key, 0, -1),
        "set": client.smembers,
        "hash": client.hgetall,
        "zset": lambda key: client.zrange(key, 0, -1, withscores=True),
        "stream": client.xrange,
    }
    return {key: (read[client.type(key)](key), client.pttl(key) >= 0) for key in client.scan_iter(count=1000)}


def without_the_move(stored: Stored) -> Stored:
    """Leave out what tells of the move."""
    told = (KEY, audit.KEY, audit.BEGUN)
    return {key: value for key, value in stored.items() if key not in told}


def test_all_is_the_same_in_the_target(source: JobsDatabase, target: JobsDatabase) -> None:
    fill()
    client = source.connection
    client.set("jobs:none", "")
    client.hset("jobs:bytes", "\udcff", "\udcfe\x00")
    before = stored_in(client)
    assert Relocation(source, target, pause=0).run() == (len(before), 0, "")
    assert without_the_move(stored_in(target.connection)) == before
    assert stored_in(client).keys() == {KEY}


def test_keys_of_any_size_are_copied_in_parts(
    source: JobsDatabase, target: JobsDatabase, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(values, "PART", 7)
    client, numbers = source.connection, [f"{number}" for number in range(50)]
    client.rpush("jobs:list", *numbers)
    client.sadd("jobs:set", *numbers, "x" * 100)  # not stored in a compact form, of which all is read at once
    client.zadd("jobs:zset", {number: int(number) / 3 for number in numbers})
    client.hset("jobs:hash", mapping=dict.fromkeys([*numbers, "x" * 100], "y"))
    for number in numbers:
        client.xadd("jobs:stream", {"number": number})
    before = stored_in(client)
    relocation = Relocation(source, target, pause=0, tell=lambda line: differ() if "copied" in line else None)

    def differ() -> None:
        """Change an element behind the first part of each key, so that sizes stay the same."""
        target.connection.lset("jobs:list", 40, "z")
        for number in numbers:
            target.connection.zadd("jobs:zset", {number: 1})
            target.connection.hset("jobs:hash", number, "z")
        target.connection.srem("jobs:set", "40")
        target.connection.sadd("jobs:set", "z")

    assert relocation.run().keys == 5
    assert without_the_move(stored_in(target.connection)) == before


class Cut(Exception):
    """The process ended here."""


def cut_after(number: int) -> Callable[..., None]:
    """Return what raises instead of sending anything more to Redis."""
    send, sent = AbstractConnection.send_packed_command, 0

    def cut(self: Any, *args: Any, **kwargs: Any) -> None:
        nonlocal sent
        sent += 1
        if sent > number:
            raise Cut
        send(self, *args, **kwargs)

    return cut


@pytest.mark.proof
def test_it_can_break_off_anywhere_and_be_gone_on_with(
    source: JobsDatabase, target: JobsDatabase, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(relocating, "BATCH", 40)
    monkeypatch.setattr(relocating, "KEEP_EVERY", 1)
    fill()
    before = stored_in(source.connection)
    number, is_done = 0, False
    while not is_done:
        with monkeypatch.context() as patch:
            patch.setattr(AbstractConnection, "send_packed_command", cut_after(number))
            try:
                Relocation(source, target, pause=0).run()
                is_done = True
            except Cut:
                pass
        for database in (source, target):
            database.connection.connection_pool.disconnect()
        here, there = (without_the_move(stored_in(database.connection)) for database in (source, target))
        assert {**there, **here} == before  # nothing is lost at any moment
        assert sum(map(may_be_used, (source, target))) <= 1  # and no job can be run in both
        Relocation(source, target, pause=0).run()
        assert without_the_move(stored_in(target.connection)) == before
        assert stored_in(source.connection).keys() == {KEY}
        Relocation(target, source, pause=0).run()
        for database in (source, target):
            database.connection.delete(KEY, audit.KEY, audit.BEGUN)
        number += 5 if number > 10 else 1
    assert number > 20


def may_be_used(database: JobsDatabase) -> bool:
    """Whether a database has jobs that may be run."""
    return read_note(database.connection) is None and len(stored_in(database.connection)) > 1


def forget_what_is_written() -> None:
    """Do as if a minute had passed: processes ask again whether they may add jobs."""
    BaseJobsModel.database.forget_contents()


@pytest.mark.parametrize("when", ["copied", "compared", "removed"])
def test_nothing_is_added_meanwhile(when: str, source: JobsDatabase, target: JobsDatabase) -> None:
    fill()
    told = []

    def add(line: str) -> None:
        if when in line:
            forget_what_is_written()
            with pytest.raises(DatabaseMoved, match=r"nothing is added.*moved to .*since 20.* \(UTC\)"):
                Photo.add_job("new")
            with pytest.raises(DatabaseMoved):
                Film.bound_to(target).add_job("new")
            told.append(line)

    before = stored_in(source.connection)
    Relocation(source, target, pause=0, tell=add).run()
    assert told
    assert without_the_move(stored_in(target.connection)) == before


ADDING: dict[str, Callable[[], Any]] = {
    "add_jobs": lambda: Photo.add_jobs(["new"]),
    "aadd_job": lambda: asyncio.run(Photo.aadd_job("new")),
    "requeue": lambda: Photo.collection(identifier="broken").instances()[0].requeue(),
    "a worker": lambda: Worker(queues="q", max_loops=1).run(),
}


@pytest.mark.parametrize("add", ADDING.values(), ids=ADDING)
def test_nothing_is_added_or_run_afterwards(add: Callable[[], Any], source: JobsDatabase) -> None:
    fill()
    source.connection.hset(KEY, mapping={"state": "moved", "told": "they are elsewhere"})
    forget_what_is_written()
    with pytest.raises(DatabaseMoved):
        add()


def test_hostile_note_is_told_in_one_line(source: JobsDatabase) -> None:
    source.connection.hset(KEY, mapping={"told": "gone\n\x1b[31m script: x"})
    with pytest.raises(DatabaseMoved) as caught:
        Film.add_job("new")
    assert not {"\n", "\x1b"} & {*str(caught.value)}
    (found,) = check(pause=0).findings
    assert found.kind == "being moved"


def test_it_is_refused_while_someone_is_there(source: JobsDatabase, target: JobsDatabase) -> None:
    fill()
    for database in (source, target):
        with Presence.bound_to(database, "apscheduler").register("scheduler", "main"):
            assert Relocation(source, target).plan().present == [f"scheduler main in {name_of(database)}"]
            with pytest.raises(NotMoved, match="Stop all workers and schedulers first: scheduler main in"):
                Relocation(source, target, pause=0).run()
    assert read_note(source.connection) is None


def test_it_is_refused_while_a_job_runs_whose_worker_is_not_seen_there(
    source: JobsDatabase, target: JobsDatabase
) -> None:
    found = pytest.raises(NotMoved, match="first: what runs a job of q in ")
    with Film.add_job("film").claim("a worker of another shard"), found:
        Relocation(source, target, pause=0).run()
    assert Relocation(source, target, pause=0).run().left == 0


def name_of(database: JobsDatabase) -> str:
    return f"unix://{database.connection_settings['unix_socket_path']}?db={database.connection_settings.get('db', 0)}"


def test_target_with_jobs_is_refused(source: JobsDatabase, target: JobsDatabase) -> None:
    fill()
    Film.bound_to(target).add_job("other")
    with pytest.raises(NotMoved, match="has jobs, or has been used for them: "):
        Relocation(source, target, pause=0).run()
    assert stored_in(source.connection).keys().isdisjoint({KEY})


def test_same_database_is_refused(source: JobsDatabase) -> None:
    with pytest.raises(ConfigurationException, match=r"The jobs are in unix://.* already"):
        Relocation(source, JobsDatabase(**source.connection_settings))


def test_namespace_with_braces_is_not_moved_to_a_cluster(source: JobsDatabase) -> None:
    here = JobsDatabase(**source.connection_settings)  # a process knows what was bound to its own one for ever
    Film.bound_to(here, namespace="fi}lms").add_job("one")
    there = JobsDatabase(url="redis+cluster://localhost:1/shop")
    with pytest.raises(ConfigurationException, match="'fi}lms:' cannot be moved to a cluster"):
        Renaming(here, there, [f"{each}:" for each in namespaces_of(here)])
    here.connection.connection_pool.disconnect()


class BreaksOff(Exception):
    pass


def break_off(source: JobsDatabase, target: JobsDatabase, when: str = "copied") -> None:
    def tell(line: str) -> None:
        if when in line:
            raise BreaksOff

    with pytest.raises(BreaksOff):
        Relocation(source, target, pause=0, tell=tell).run()


def test_move_that_was_broken_off_is_known_and_can_be_given_up(source: JobsDatabase, target: JobsDatabase) -> None:
    fill()
    before = stored_in(source.connection)
    break_off(source, target)
    number = len(before)
    (found,) = check(pause=0).findings
    assert f"being moved to {name_of(target)}" in found.problem
    assert f"0 of {number} keys are copied" in found.problem
    line = found.problem.partition("Go on: ")[2].partition(" (or")[0]
    assert shlex.split(line) == ["limpyd-jobs", "move-to", name_of(target), f"--database={name_of(source)}"]
    assert f"move-to '{name_of(target)}'" in line  # zsh looks for files if it meets a "?" without quotes
    with pytest.raises(NotMoved, match="The line for that move"):
        Relocation(source, JobsDatabase(**{**source.connection_settings, "db": 6}), pause=0).run()
    with pytest.raises(NotMoved, match="The line for that move"):
        Relocation(target, source, pause=0).run()
    Relocation(source, target).undo()
    assert stored_in(source.connection) == before
    assert stored_in(target.connection) == {}
    Film.add_job("again")
    with pytest.raises(NotMoved, match="Nothing is being moved"):
        Relocation(source, target).undo()


def test_move_cannot_be_given_up_once_keys_are_removed(source: JobsDatabase, target: JobsDatabase) -> None:
    fill()
    break_off(source, target, "removed")
    with pytest.raises(NotMoved, match=r"too late to give it up.*Move them back: limpyd-jobs move-to"):
        Relocation(source, target).undo()
    Relocation(source, target, pause=0).run()
    (warning,) = check(pause=0).warnings
    assert f"its jobs were moved to {name_of(target)}" in warning
    assert Relocation(source, target, pause=0).run().left == 0  # nothing more to do


def test_what_changes_meanwhile_is_copied_again(source: JobsDatabase, target: JobsDatabase) -> None:
    fill()
    numbers = count()

    def change(line: str) -> None:
        source.connection.hset("films:film:1:hash", "label", next(numbers))
        source.connection.delete("moved:photo:1:_result")

    with pytest.raises(NotMoved, match="is changed again and again"):
        Relocation(source, target, pause=0, tell=change).run()
    expected = without_the_move(stored_in(source.connection))
    assert Relocation(source, target, pause=0).run().left == 0
    assert without_the_move(stored_in(target.connection)) == expected


def test_key_that_was_written_after_the_check_is_not_deleted(
    source: JobsDatabase, target: JobsDatabase, monkeypatch: pytest.MonkeyPatch
) -> None:
    fill()
    monkeypatch.setattr(relocating, "BATCH", 10_000)
    remove = Relocation._remove

    def remove_late(self: Relocation, note: Any) -> Any:
        source.connection.hset("films:film:1:hash", "label", "late")
        source.connection.rpush("jobs:queue:1:waiting", "late")
        return remove(self, note)

    monkeypatch.setattr(Relocation, "_remove", remove_late)
    assert Relocation(source, target, pause=0).run().left == 2
    assert source.connection.hget("films:film:1:hash", "label") == "late"
    assert target.connection.exists("films:film:1:hash")


def test_the_command(source: JobsDatabase, target: JobsDatabase) -> None:
    fill()
    source.connection.mset({"cache:1": "x", "sessions": "x"})
    line = ("move-to", name_of(target), f"--database={name_of(source)}")
    status, out, error = limpyd_jobs(*line, "--dry-run")
    assert (status, error) == (0, "")
    assert "would be moved" in out
    assert "1     would stay: they begin with 'cache:', which is not known (--also)" in out
    planned = json.loads(limpyd_jobs(*line, "--dry-run", "--json")[1])
    assert planned["left"] == {"cache:": 1, "sessions": 1}
    assert planned["begins"].keys() == {"moved:", "films:", "jobs:", "limpyd-jobs:"}
    assert sum(planned["begins"].values()) == planned["keys"]
    status, _, error = limpyd_jobs(*line)
    assert status == 2  # nobody to ask
    assert f"'moved:' ({planned['begins']['moved:']}), " in error
    status, out, error = limpyd_jobs(*line, "--yes", "--pause=0", "--also=cache:")
    assert (status, error) == (0, "limpyd-jobs move-to: all programs need the new database now\n")
    assert "moved" in out
    assert target.connection.get("cache:1") == "x"
    assert source.connection.get("sessions") == "x"


@pytest.mark.parametrize("words", [[], ["x://y"], ["redis://a", "redis://b"]], ids=" ".join)
def test_command_needs_one_database(words: list[str], source: JobsDatabase) -> None:
    assert limpyd_jobs("move-to", *words, f"--database={name_of(source)}")[0] == 2


@pytest.mark.proof
def test_from_one_server_to_a_cluster_and_back(cluster: Cluster, source: JobsDatabase) -> None:
    fill()
    before = stored_in(source.connection)
    tag = "moved"
    there = JobsDatabase(url=cluster.url(tag))
    assert Relocation(source, there, pause=0).run().keys == len(before)
    with cluster.owner(slot_of(tag)).client() as client:
        keys = {key for key in stored_in(client) if "{moved}" in key}
    assert {key.removeprefix("{moved}:") for key in keys} == {*before, "limpyd-jobs:audit"}
    settings = source.connection_settings
    source.from_url(cluster.url(tag))
    try:
        assert check(pause=0).findings == []
        assert JobFilter("status=waiting").count().number == 2
        assert JobFilter(queue="q").count().number == 6
    finally:
        source.connection.connection_pool.disconnect()
        source.reset(**settings)
    assert Relocation(there, source, pause=0).run().left == 0
    assert without_the_move(stored_in(source.connection)) == before
    assert check(pause=0).findings == []
    Worker(queues="q", max_loops=1).run()
    there.connection.connection_pool.disconnect()


@pytest.mark.proof
def test_flow_goes_on_in_a_cluster(cluster: Cluster, source: JobsDatabase) -> None:
    flow = chain(Film.prepare(identifier="one"), Film.prepare(identifier="two"), name="films")
    there = JobsDatabase(url=cluster.url("flows"))
    Relocation(source, there, pause=0).run()
    settings = source.connection_settings
    source.from_url(cluster.url("flows"))
    try:
        Film.get(identifier="one").claim("me").succeed()
        assert [node.state for node in Flow.find("films").nodes()] == ["success", "waiting"]
        Film.get(identifier="two").claim("me").succeed()
        assert Flow.find("films").state()[:3] == ("ended", 0, 0)
        assert Flow.find("films").id == flow.id
        assert check(pause=0).findings == []
    finally:
        source.connection.connection_pool.disconnect()
        source.reset(**settings)
        there.connection.connection_pool.disconnect()
