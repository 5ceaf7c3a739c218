"""Moving all jobs while something goes wrong: another run, a database that is emptied, one that has two names, rights
that are missing, what is changed too late."""

from __future__ import annotations

import signal
from collections.abc import Callable, Iterator
from contextlib import suppress
from typing import Any

import pytest
from reading import limpyd_jobs
from redis.exceptions import NoPermissionError, RedisError
from servers import RedisServer, free_port, wait_until

from limpyd_jobs import Job
from limpyd_jobs.records.relocations import KEY, Note, read_note
from limpyd_jobs.redis.database import JobsDatabase
from limpyd_jobs.relocation import NotMoved, Relocation, relocating, sides
from limpyd_jobs.relocation.values import Values


class Song(Job):
    namespace = "songs"
    queue_name = "q"


class BreaksOff(Exception):
    pass


@pytest.fixture
def source(jobs_database: JobsDatabase, monkeypatch: pytest.MonkeyPatch) -> JobsDatabase:
    monkeypatch.setattr(relocating, "BATCH", 5)
    Song.add_jobs([f"{number}" for number in range(10)])
    jobs_database.connection.set("songs:odd", "x")
    return jobs_database


@pytest.fixture
def target(source: JobsDatabase) -> Iterator[JobsDatabase]:
    yield from another(source, 5)


@pytest.fixture
def third(source: JobsDatabase) -> Iterator[JobsDatabase]:
    yield from another(source, 6)


@pytest.fixture
def own_server(redis_binary: str) -> Iterator[RedisServer]:
    with RedisServer(redis_binary) as server:
        yield server


def another(source: JobsDatabase, number: int) -> Iterator[JobsDatabase]:
    database = JobsDatabase(**{**source.connection_settings, "db": number})
    database.connection.flushdb()
    yield database
    database.connection.flushdb()
    database.connection.connection_pool.disconnect()


def keys_in(database: JobsDatabase) -> set[str]:
    """Return the keys without those that tell of the move."""
    return {
        key for key in database.connection.scan_iter() if not key.startswith(("limpyd-jobs:move", "limpyd-jobs:aud"))
    }


def url_of(database: JobsDatabase) -> str:
    return f"unix://{database.connection_settings['unix_socket_path']}?db={database.connection_settings['db']}"


def during(when: str, do: Callable[[], Any]) -> Callable[[str], None]:
    """Return what does something once, when a line that is told has some word."""
    done: list[Any] = []

    def tell(line: str) -> None:
        if when in line and not done:
            done.append(do)
            do()

    return tell


def break_off() -> None:
    raise BreaksOff


def broken_off(source: JobsDatabase, target: JobsDatabase, when: str = "copied") -> None:
    with pytest.raises(BreaksOff):
        Relocation(source, target, pause=0, tell=during(when, break_off)).run()


@pytest.mark.matrix(3)
@pytest.mark.parametrize("when", ["copied", "compared", "removed"])
@pytest.mark.parametrize("until", ["compared", "removed", "the end"])
def test_of_two_runs_only_the_last_one_goes_on(
    when: str, until: str, source: JobsDatabase, target: JobsDatabase
) -> None:
    before = keys_in(source)

    def again() -> None:
        with suppress(BreaksOff):
            Relocation(source, target, pause=0, tell=during(until, break_off)).run()

    with pytest.raises(NotMoved, match=r"Another move-to has gone on|does not know of the move any more"):
        Relocation(source, target, pause=0, tell=during(when, again)).run()
    assert keys_in(source) | keys_in(target) == before
    Relocation(source, target, pause=0).run()
    assert (keys_in(source), keys_in(target)) == (set(), before)


@pytest.mark.parametrize("undo", [False, True], ids=["go on", "undo"])
def test_database_with_two_names_loses_nothing(undo: bool, source: JobsDatabase, target: JobsDatabase) -> None:
    before = keys_in(source)
    same = JobsDatabase(**{**source.connection_settings, "client_name": "x"})
    with pytest.raises(NotMoved, match="has jobs, or has been used for them"):
        Relocation(source, same, pause=0).run()
    broken_off(source, target, "compared")
    relocation = Relocation(source, same, pause=0)
    with pytest.raises(NotMoved, match=r"The line for that move: .*db=5"):
        _ = relocation.undo() if undo else relocation.run()
    assert keys_in(source) == keys_in(target) == before
    same.connection.connection_pool.disconnect()


def test_empty_database_with_two_names_is_not_noted(target: JobsDatabase) -> None:
    same = JobsDatabase(**{**target.connection_settings, "client_name": "x"})
    with pytest.raises(NotMoved, match="two names of the same database"):
        Relocation(target, same, pause=0).run()
    assert read_note(target.connection) is None
    same.connection.connection_pool.disconnect()


def test_target_that_is_emptied_while_keys_are_removed(source: JobsDatabase, target: JobsDatabase) -> None:
    there: list[set[str]] = []

    def empty() -> None:
        target.connection.flushdb()
        there.append(keys_in(source))

    with pytest.raises(NotMoved, match="does not know of the move any more: it was given up, or the database emptied"):
        Relocation(source, target, pause=0, tell=during("removed", empty)).run()
    with pytest.raises(NotMoved, match=f"nothing more is removed. To use what .* has, delete {KEY} there"):
        Relocation(source, target, pause=0).run()
    assert [keys_in(source)] == there


def test_source_that_is_emptied_takes_no_copies_with_it(source: JobsDatabase, target: JobsDatabase) -> None:
    before = keys_in(source)
    with pytest.raises(NotMoved, match="does not know of the move any more"):
        Relocation(source, target, pause=0, tell=during("compared", source.connection.flushdb)).run()
    with pytest.raises(NotMoved, match="is part of another move"):
        Relocation(source, target, pause=0).run()
    with pytest.raises(NotMoved, match=f"are all that there are. To use them, delete {KEY} there"):
        Relocation(source, target).undo()
    assert keys_in(target) == before


def test_it_goes_on_with_the_keys_that_it_was_begun_with(source: JobsDatabase, target: JobsDatabase) -> None:
    source.connection.set("cache:1", "x")
    target.connection.set("cache:2", "not ours")
    broken_off(source, target)
    for do in (Relocation.run, Relocation.undo):
        with pytest.raises(NotMoved, match="begun without --also=cache:"):
            do(Relocation(source, target, also=["cache:"], pause=0))
    Relocation(source, target).undo()
    target.connection.delete("cache:2")
    with pytest.raises(BreaksOff):
        Relocation(source, target, also=["cache:"], pause=0, tell=during("copied", break_off)).run()
    for do in (Relocation.run, Relocation.undo):
        with pytest.raises(
            NotMoved, match=r"'cache:' are moved, too.*If they are yours, type the line with --also=cache:"
        ):
            do(Relocation(source, target, pause=0))
    Relocation(source, target, also=["cache:"], pause=0).run()
    assert keys_in(source) == set()
    assert target.connection.get("cache:1") == "x"


def test_missing_rights_are_no_reason_to_pass_keys_over(source: JobsDatabase, target: JobsDatabase) -> None:
    before = keys_in(source)
    client = source.connection
    rights = ["+@all", "-hscan", "-hmget"]
    client.acl_setuser("few", enabled=True, nopass=True, keys=["*"], channels=["*"], commands=rights)
    try:
        few = JobsDatabase(**{**source.connection_settings, "username": "few", "password": "x"})
        for databases in ((few, target), (source, JobsDatabase(**{**few.connection_settings, "db": 5}))):
            with pytest.raises(NoPermissionError, match=r"hscan|hmget"):
                Relocation(*databases, pause=0).run()
            assert keys_in(source) == before
            Relocation(source, target).undo()
        few.connection.connection_pool.disconnect()
    finally:
        client.acl_deluser("few")


@pytest.mark.parametrize("writable", ["source", "target"])
def test_database_that_refuses_all_changes_is_no_reason_to_wait(
    writable: str, source: JobsDatabase, own_server: RedisServer
) -> None:
    own = JobsDatabase(url=own_server.url)
    with own_server.client() as client:
        if writable == "target":
            Song.bound_to(own).add_job("1")
        client.replicaof("127.0.0.1", f"{free_port()}")
    relocation = Relocation(source, own, pause=0) if writable == "source" else Relocation(own, source, pause=0)
    if writable == "target":
        source.connection.flushdb()
    with pytest.raises(RedisError, match=r"(?i)read.?only"):
        relocation.run()
    own.connection.connection_pool.disconnect()


@pytest.mark.parametrize("text", ["", "[" * 100_000, "{}", "[1]", '[""]'], ids=lambda text: text[:4])
def test_note_of_another_program_moves_nothing(text: str, source: JobsDatabase, target: JobsDatabase) -> None:
    before = keys_in(source)
    broken_off(source, target)
    source.connection.hset(KEY, "begins", text)
    for do in (Relocation.run, Relocation.undo):
        with pytest.raises(NotMoved, match=f"What {KEY} says cannot be read: another program wrote it. Delete it"):
            do(Relocation(source, target, pause=0))
    assert keys_in(source) == before


@pytest.mark.parametrize("state", [relocating.COPYING, relocating.REMOVING, relocating.MOVED])
def test_note_that_another_program_wrote_moves_no_keys_of_others(
    state: str, source: JobsDatabase, target: JobsDatabase
) -> None:
    for database in (source, target):
        database.connection.set("victim:session", "x")
    note = Note("1", state, url_of(source), url_of(target), "2026-01-01", begins='["jobs:", "victim:"]')
    source.connection.hset(KEY, mapping=dict(note.as_hash()))
    target.connection.hset(KEY, mapping=dict(note._replace(state=relocating.FILLING).as_hash()))
    before = keys_in(source), keys_in(target)
    for do in (Relocation.plan, Relocation.run, Relocation.undo):
        with pytest.raises(NotMoved, match=f"{KEY} says that keys that begin with 'victim:'|It is too late"):
            do(Relocation(source, target, pause=0))
    assert (keys_in(source), keys_in(target)) == before


def test_what_is_changed_between_the_look_and_the_removal_stays(
    source: JobsDatabase, target: JobsDatabase, monkeypatch: pytest.MonkeyPatch
) -> None:
    changed: list[str] = []
    differing = Values.differing

    def change_behind(self: Values, entries: Any) -> Any:
        found = differing(self, entries)
        if (note := read_note(source.connection)) and note.state == relocating.REMOVING and not changed:
            changed.append(entries[0].key)
            source.connection.delete(changed[0])
            source.connection.rpush(changed[0], "late")
        return found

    monkeypatch.setattr(Values, "differing", change_behind)
    moved = Relocation(source, target, pause=0).run()
    assert (moved.left, moved.example) == (1, *changed)
    status, out, _ = limpyd_jobs("move-to", url_of(target), f"--database={url_of(source)}", "--yes", "--pause=0")
    assert status == 1
    assert f"left: changed after they were copied, such as {changed[0]} in {url_of(source)}" in out
    assert source.connection.lrange(changed[0], 0, -1) == ["late"]


def test_key_that_was_not_seen_before_is_moved_while_keys_are_removed(
    source: JobsDatabase, target: JobsDatabase
) -> None:
    tell = during("removed", lambda: source.connection.rpush("songs:late", "x"))
    assert Relocation(source, target, pause=0, tell=tell).run().left == 0
    assert target.connection.lrange("songs:late", 0, -1) == ["x"]
    assert keys_in(source) == set()


def test_move_is_given_up_though_the_target_is_dead(source: JobsDatabase, target: JobsDatabase) -> None:
    before = keys_in(source)
    broken_off(source, target)
    settings = target.connection_settings
    path = settings["unix_socket_path"]
    name = f"unix://{path}?db=5"
    source.connection.hset(KEY, "target", name.replace("redis.sock", "gone.sock"))
    gone = JobsDatabase(**{**settings, "unix_socket_path": path.replace("redis.sock", "gone.sock")})
    with pytest.raises(NotMoved, match=r"is used again. But .*gone.sock.* cannot be used, so what was copied there"):
        Relocation(source, gone).undo()
    Song.add_job("again")
    assert keys_in(source) > before
    Relocation(source, target).undo()  # the rest of it
    assert keys_in(target) == set()
    assert read_note(target.connection) is None


@pytest.mark.proof
def test_nothing_is_removed_before_a_replica_of_the_target_has_it(
    source: JobsDatabase, redis_binary: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sides, "REPLICATED_WITHIN", 0.2)
    before, port = keys_in(source), free_port()
    with (
        RedisServer(redis_binary, "--repl-diskless-sync-delay", "0", port=port) as primary,
        RedisServer(redis_binary, "--replicaof", "127.0.0.1", str(port)) as replica,
    ):
        wait_until(lambda: replica.client().info("replication")["master_link_status"] == "up")
        target = JobsDatabase(url=primary.url)
        assert replica.process
        replica.process.send_signal(signal.SIGSTOP)
        with pytest.raises(NotMoved, match=r"No replica of .* has what was copied, so a failover would lose it"):
            Relocation(source, target, pause=0).run()
        assert keys_in(source) == before
        replica.process.send_signal(signal.SIGCONT)
        monkeypatch.setattr(sides, "REPLICATED_WITHIN", 60.0)
        Relocation(source, target, pause=0).run()
        assert keys_in(target) == before
        target.connection.connection_pool.disconnect()


def test_end_that_was_broken_off_is_done_by_the_next_run(
    source: JobsDatabase, target: JobsDatabase, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as patch:
        patch.setattr(Relocation, "_open", lambda self, note: break_off())
        with pytest.raises(BreaksOff):
            Relocation(source, target, pause=0).run()
    assert read_note(target.connection) is not None
    Relocation(source, target, pause=0).run()
    assert read_note(target.connection) is None
