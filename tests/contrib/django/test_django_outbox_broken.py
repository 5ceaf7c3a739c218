"""Entries that another program wrote or changed, or that Redis refuses: they are set aside, and hold up no other."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from typing import Any

import pytest
import redis
from bookshop.errands import Errand, Refused
from cases import each
from django.core.management import CommandError
from django.db import OperationalError, connection, connections, transaction
from django.test import override_settings
from relayed import committed, lost, make_due, manage, ran
from visiting import make_user, visit_as

from limpyd_jobs import Worker
from limpyd_jobs.contrib.django.outbox import relaying
from limpyd_jobs.contrib.django.outbox.models import OutboxEntry
from limpyd_jobs.contrib.django.outbox.relaying import RelayTask, relay_due
from limpyd_jobs.contrib.django.transactions import add_job_through_outbox
from limpyd_jobs.observing.worker_tasks import register_worker_task
from limpyd_jobs.redis.database import JobsDatabase


def write(*identifiers: str, job_class: type[Errand] = Errand) -> OutboxEntry:
    with lost():
        for identifier in identifiers:
            add_job_through_outbox(job_class, identifier)
    return OutboxEntry.objects.get(identifier=identifiers[0])


def relayed() -> dict[str, str]:
    """Relay what is due: why not, by the identifiers."""
    make_due()
    return {each.entry.identifier: each.error for each in relay_due("default", 1)[0]}


def set_raw(entry: OutboxEntry, column: str, value: str) -> None:
    """Write what Django would not."""
    with connection.cursor() as cursor:
        cursor.execute(f"UPDATE limpyd_jobs_outbox_outboxentry SET {column} = {value} WHERE id = {entry.pk}")


class TestARowOfAnotherProgram:
    @pytest.mark.parametrize(
        ("column", "value", "error"),
        [
            ("token", "'no token'", "ValueError: badly formed hexadecimal UUID string"),
            ("token", "x'ff00'", "TypeError: a bytes-like object is required"),
            ("arguments", "cast(x'ff00' AS text)", "OperationalError: Could not decode"),
        ],
    )
    def test_that_django_cannot_read_is_set_aside_and_holds_up_no_other(
        self, column: str, value: str, error: str, redis_client: redis.Redis
    ) -> None:
        entry = write("to ann", "to eve")
        set_raw(entry, column, value)
        found, _ = relay_due("default", 1)
        assert [(each.entry.pk == entry.pk, each.error.startswith(error)) for each in found] == [
            (True, True),
            (False, False),
        ]
        assert ran(redis_client) == ["to eve"]
        assert relay_due("default", 1) == ([], False)
        assert f"1 tries: {error}" in manage("list")
        OutboxEntry.objects.update(tries=relaying.MAX_TRIES - 1)
        set_raw(entry, column, value)
        relayed()
        assert "(set aside, 12 tries: " in manage("list", "--set-aside")

    @pytest.mark.parametrize("tries", ["9223372036854775807", "'many'"])
    def test_with_any_number_of_tries_is_set_aside(self, tries: str, redis_client: redis.Redis) -> None:
        entry = write("to ann", "to eve", job_class=Refused)
        with connection.cursor() as cursor:
            cursor.execute("PRAGMA ignore_check_constraints = 1")
            set_raw(entry, "tries", tries)
            cursor.execute("PRAGMA ignore_check_constraints = 0")
        assert len(relay_due("default", 1)[0]) == 2
        assert OutboxEntry.objects.filter(due=None).count() == 2

    @pytest.mark.parametrize(
        "path",
        [
            "os.system",
            "limpyd_jobs.models.Queue",
            "bookshop.models.Book",
            "bookshop",
            "",
            "a\0.b",
            "\x1b[31m<script>\n",
        ],
    )
    def test_of_what_is_not_a_job_class_is_refused_and_shown_as_text(self, path: str) -> None:
        entry = write("to ann")
        OutboxEntry.objects.update(job_class=path)
        assert "is not a job class that this process has imported" in relayed()["to ann"]
        shown = manage("list")
        assert "\x1b" not in shown
        assert "\0" not in shown
        page = visit_as(make_user("admin", is_superuser=True)).get(
            f"/admin/limpyd_jobs_outbox/outboxentry/{entry.pk}/change/"
        )
        assert "<script>\n" not in page.content.decode()

    def test_of_an_abstract_class_or_of_the_job_itself_adds_nothing(self, redis_client: redis.Redis) -> None:
        for path in ("limpyd_jobs.models.Job", "limpyd_jobs.contrib.django.tasks.TaskJob"):
            write("to ann")
            OutboxEntry.objects.update(job_class=path)
            assert relayed()["to ann"].startswith("LimpydJobsException: Queue's name not defined")
            assert OutboxEntry.objects.filter(due=None).delete()[0] == 1
        assert redis_client.keys("*:job:*") == []

    def test_that_is_huge_is_set_aside_with_an_error_that_is_not(self) -> None:
        write("to ann")
        OutboxEntry.objects.update(arguments=f'[["{"x" * 5_000_000}"],{{}}]')
        assert len(relayed()["to ann"]) < 200


class Unprintable(Exception):
    def __str__(self) -> str:
        raise RuntimeError("no text")


class FailsAs(Errand):
    """Its `add_job` raises what a test wants."""

    error: Exception = ValueError()

    @classmethod
    def add_job(cls, *args: Any, **kwargs: Any) -> Any:
        raise cls.error


class TestAnErrorOfAddJob:
    @pytest.mark.parametrize("error", [Unprintable(), ValueError("\ud800\0\n" * 5000), RecursionError(), MemoryError()])
    def test_of_any_kind_sets_the_entry_aside(self, error: Exception, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(FailsAs, "error", error)
        write("to ann", job_class=FailsAs)
        (shown,) = relayed().values()
        assert shown.startswith(type(error).__name__)
        assert len(shown) <= relaying.MAX_ERROR
        assert OutboxEntry.objects.get().is_set_aside

    def test_because_a_database_is_away_is_tried_again(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(FailsAs, "error", OperationalError("database is locked"))
        write("to ann", job_class=FailsAs)
        OutboxEntry.objects.update(tries=100)
        assert relayed() == {"to ann": "OperationalError: database is locked"}
        assert not OutboxEntry.objects.get().is_set_aside


class TestARedisThatRefuses:
    """Once Redis takes it, the entry is relayed; what it refuses for an hour, and will for ever, is set aside."""

    def refused(self, is_for_ever: bool) -> str:
        entry = OutboxEntry.objects.get()
        error = relayed()["to ann"]
        entry.refresh_from_db()
        assert not entry.is_set_aside
        OutboxEntry.objects.update(tries=relaying.MAX_TRIES - 1)
        relayed()
        entry.refresh_from_db()
        assert entry.is_set_aside == is_for_ever
        return error

    def test_a_key_of_another_type(self, redis_client: redis.Redis) -> None:
        write("to ann")
        redis_client.set("errands:errand:collection", "x")
        assert "WRONGTYPE" in self.refused(is_for_ever=True)
        redis_client.delete("errands:errand:collection")
        assert manage("retry") == "1 entries will be relayed again"
        assert manage("relay") == "1 jobs added"
        assert ran(redis_client) == ["to ann"]

    def test_a_user_without_the_right(
        self, redis_client: redis.Redis, jobs_database: JobsDatabase, redis_server: Any
    ) -> None:
        write("to ann")
        redis_client.acl_setuser("narrow", enabled=True, nopass=True, commands=["+@all", "-hset", "-sadd"], keys=["*"])
        jobs_database.connect(unix_socket_path=redis_server.socket, username="narrow", password="x")
        try:
            assert re.search("NOPERM|ACL failure|can't run", self.refused(is_for_ever=True))
        finally:
            jobs_database.connect(unix_socket_path=redis_server.socket)
            redis_client.acl_deluser("narrow")

    @pytest.mark.parametrize(
        ("refuse", "allow", "text"),
        [
            ("CONFIG SET maxmemory 1", "CONFIG SET maxmemory 0", "OOM"),
            ("REPLICAOF 127.0.0.1 1", "REPLICAOF NO ONE", "READONLY"),
            ("CONFIG SET min-replicas-to-write 3", "CONFIG SET min-replicas-to-write 0", "NOREPLICAS"),
        ],
    )
    def test_for_a_time(self, refuse: str, allow: str, text: str, redis_client: redis.Redis) -> None:
        write("to ann")
        redis_client.execute_command(*refuse.split())
        try:
            error = self.refused(is_for_ever=False)
        finally:
            redis_client.execute_command(*allow.split())
        assert text in error or {"OOM": "memory", "READONLY": "read only", "NOREPLICAS": "replicas"}[text] in error
        assert relayed() == {"to ann": ""}
        assert ran(redis_client) == ["to ann"]


@pytest.mark.parametrize(("seconds", "tries"), [(600.0, [1, 0, 0, 0]), (0.0, [1, 1, 1, 1])])
def test_a_process_that_commits_does_not_wait_for_a_silent_redis_again_and_again(
    seconds: float, tries: list[int], jobs_database: JobsDatabase, redis_server: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(relaying, "LEFT_TO_OTHERS", seconds)
    jobs_database.connect(unix_socket_path="/nowhere/redis.sock")
    try:
        with committed(execute=True):
            for number in range(3):
                add_job_through_outbox(Errand, f"to {number}")
        with committed(execute=True):
            add_job_through_outbox(Errand, "to ann")
    finally:
        jobs_database.connect(unix_socket_path=redis_server.socket)
    assert [entry.tries for entry in OutboxEntry.objects.order_by("id")] == tries
    with committed(execute=True):  # by another connection
        later = add_job_through_outbox(Errand, "to eve")
    assert later.job is not None
    assert [*relayed().values()] == [""] * 4


@pytest.fixture
def logged(caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch) -> Callable[[], str]:
    """Let a worker relay; return what it logged."""
    monkeypatch.setattr("limpyd_jobs.observing.worker_tasks.installed", [])
    register_worker_task(RelayTask())

    def run() -> str:
        caplog.clear()
        Worker(["errands"], burst=True).run()
        return caplog.text

    return run


@each(
    "words",
    [
        ("list", "--database=away"),
        ("list", "--limit=-1"),
        ("list", "--limit=many"),
        ("retry", "0"),
        ("discard", "9" * 19),
        ("discard", "9" * 5000),
    ],
)
def test_the_command_refuses_wrong_words_in_one_line(words: Sequence[str]) -> None:
    with pytest.raises(CommandError, match=r"\AError: argument [^\n]{1,200}\Z"):
        manage(*words)


def test_the_command_says_in_one_line_that_a_database_is_away() -> None:
    with transaction.atomic():
        connection.cursor().execute("ALTER TABLE limpyd_jobs_outbox_outboxentry RENAME TO gone")
        with pytest.raises(CommandError, match="The database default cannot be used: OperationalError: no such table"):
            manage("relay")
        transaction.set_rollback(True)


def test_a_database_that_is_away_holds_up_no_other_outbox(logged: Callable[[], str], redis_client: redis.Redis) -> None:
    write("to ann")
    away = {**connections.settings["default"], "NAME": "/nowhere/shop.sqlite3"}
    connections.settings["away"] = away
    try:
        with override_settings(LIMPYD_JOBS={"OUTBOX_DATABASES": ["away", "default"]}):
            text = logged()
    finally:
        connections["away"].close()
        del connections["away"], connections.settings["away"]
    assert "The outbox in the database away cannot be relayed: OperationalError" in text
    assert "1 jobs of the outbox added" in text
    assert redis_client.lrange("errands done", 0, -1) == ["to ann"]
