"""Connections to a real PostgreSQL: of jobs in threads, of coroutines, of forked processes, of tests."""

from __future__ import annotations

import asyncio
import gc
import os
import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest
from asgiref.sync import sync_to_async
from django.db import DEFAULT_DB_ALIAS, connections, transaction
from django.utils import timezone, translation
from postgresql import PostgreSQL
from servers import wait_until

from limpyd_jobs import Job, Queue, Worker
from limpyd_jobs.contrib.django.around import close_connections
from limpyd_jobs.contrib.django.management.commands.limpyd_jobs_worker import Command
from limpyd_jobs.contrib.django.outbox.relaying import RelayTask
from limpyd_jobs.testing import drain

pytestmark = pytest.mark.proof  # a server of PostgreSQL is started

psycopg = pytest.importorskip("psycopg")

# It warns of connections that are not closed: those of a thread go with it, a moment after its worker has ended.
psycopg.Connection.__del__ = lambda self: None

ALIAS = "orders"
JOBS = 12


def ask() -> int:
    """Ask the database; return the process of its server that answered."""
    with connections[ALIAS].cursor() as cursor:
        cursor.execute("SELECT pg_backend_pid(), pg_sleep(0.01)")
        return cursor.fetchone()[0]


def around() -> list[str]:
    found = [translation.get_language(), timezone.get_current_timezone_name()]
    translation.activate("de")
    timezone.activate("Asia/Tokyo")
    return found


class Ask(Job):
    """Asks the database."""

    namespace = "on-postgresql"
    queue_name = "asking"
    keep_result = True

    def run(self, queue: Queue) -> list[str]:
        found = around()
        ask()
        return found


class AskInCoroutine(Ask):
    """Does so as the methods of models do whose names begin with an ``a``."""

    namespace = "on-postgresql-async"

    async def run(self, queue: Queue) -> list[str]:
        found = around()
        await sync_to_async(ask)()
        return found


class AskAfterwards(Ask):
    """Does so in a coroutine once it has ended."""

    namespace = "on-postgresql-hook"

    def run(self, queue: Queue) -> None:
        pass

    async def on_success(self, queue: Queue, result: Any) -> None:
        answered.append(await sync_to_async(ask)())


class Read(Job):
    """Reads rows, and lets others run in between."""

    namespace = "on-postgresql-reading"
    queue_name = "asking"
    keep_result = True

    async def run(self, queue: Queue) -> int:
        cursor = await sync_to_async(self.open)()
        while not other_ended.is_set():
            await asyncio.sleep(0.01)
        rows = await sync_to_async(cursor.fetchall)()
        await sync_to_async(cursor.close)()
        return len(rows)

    def open(self) -> Any:
        cursor = connections[ALIAS].chunked_cursor()
        cursor.execute("SELECT generate_series(1, 100)")
        return cursor


answered: list[int] = []
other_ended = threading.Event()


class Books:
    """The server as an administrator sees it."""

    OTHERS = "FROM pg_stat_activity WHERE pid <> pg_backend_pid() AND backend_type = 'client backend'"

    def __init__(self, connection: Any) -> None:
        self._connection = connection

    def count(self) -> int:
        """Return how many connections there are from elsewhere."""
        query = (
            "SELECT count(*) FROM pg_stat_activity WHERE pid <> pg_backend_pid() AND backend_type = 'client backend'"
        )
        return self._connection.execute(query).fetchone()[0]

    def cut(self) -> None:
        """Cut all connections, as a restart of the server does."""
        self._connection.execute(f"SELECT pg_terminate_backend(pid, 5000) {self.OTHERS}")


@pytest.fixture
def books(postgresql: PostgreSQL) -> Iterator[Books]:
    with psycopg.connect(postgresql.dsn, autocommit=True) as connection:
        yield Books(connection)


@contextmanager
def database(postgresql: PostgreSQL, books: Books, **settings: Any) -> Iterator[None]:
    """Let the project have a database there; in the end, no connection is left."""
    place = {"ENGINE": "django.db.backends.postgresql", "NAME": "postgres", "USER": "postgres"}
    before = connections.settings[DEFAULT_DB_ALIAS]
    connections.settings[ALIAS] = {**before, **place, "HOST": str(postgresql.directory), **settings}

    def forget() -> None:
        connections[ALIAS].close()
        close_connections()
        del connections[ALIAS]

    try:
        yield
    finally:
        forget()
        asyncio.run(sync_to_async(forget)())
        del connections.settings[ALIAS]
        wait_until(lambda: (gc.collect(), books.count())[1] == 0)  # those of threads, which end with their worker


@contextmanager
def working(**options: Any) -> Iterator[Worker]:
    """Let a worker run in a thread."""
    worker = Worker("asking", terminate_gracefuly=False, **options)
    thread = threading.Thread(target=worker.run)
    thread.start()
    try:
        yield worker
    finally:
        worker.end_forced = True
        Ask.add_job("that wakes it")
        thread.join(20)


KINDS = pytest.mark.parametrize(
    ("job_class", "concurrency"), [(Ask, 1), (Ask, 4), (AskInCoroutine, 1), (AskInCoroutine, 4)]
)


def run_some(job_class: type[Job], prefix: str) -> list[Job]:
    """Add jobs; return them once they have ended."""
    jobs = [job_class.add_job(f"{prefix}:{number}") for number in range(JOBS)]
    for job in jobs:
        job.wait(20)
    return jobs


@KINDS
def test_connections_that_are_cut_fail_no_job_that_begins_later(
    job_class: type[Job], concurrency: int, postgresql: PostgreSQL, books: Books
) -> None:
    with database(postgresql, books, CONN_MAX_AGE=600), working(concurrency=concurrency):
        run_some(job_class, "before")
        assert books.count() > 0
        books.cut()
        run_some(job_class, "cut")
        jobs = run_some(job_class, "later")
        assert {job.status.hget() for job in jobs} == {"s"}
        assert books.count() > 0


@KINDS
def test_no_connection_stays_without_a_maximum_age(
    job_class: type[Job], concurrency: int, postgresql: PostgreSQL, books: Books
) -> None:
    with database(postgresql, books, CONN_MAX_AGE=0), working(concurrency=concurrency):
        jobs = run_some(job_class, "one")
        wait_until(lambda: books.count() == 0)
        assert {job.status.hget() for job in jobs} == {"s"}


@KINDS
def test_each_job_begins_with_the_language_and_time_zone_of_the_settings(
    job_class: type[Job], concurrency: int, postgresql: PostgreSQL, books: Books
) -> None:
    with database(postgresql, books), working(concurrency=concurrency):
        assert {tuple(job.result()) for job in run_some(job_class, "one")} == {("fr", "Europe/Paris")}


def test_an_async_hook_has_a_connection_that_works(postgresql: PostgreSQL, books: Books) -> None:
    answered.clear()
    with database(postgresql, books, CONN_MAX_AGE=600), working():
        run_some(AskAfterwards, "before")
        wait_until(lambda: len(answered) == JOBS)
        books.cut()
        run_some(AskAfterwards, "later")
        wait_until(lambda: len(answered) == 2 * JOBS - 1)


def test_a_coroutine_that_ends_does_not_close_what_another_one_reads_from(postgresql: PostgreSQL, books: Books) -> None:
    other_ended.clear()
    with database(postgresql, books, CONN_MAX_AGE=0), working(concurrency=4):
        reader = Read.add_job("reads")
        wait_until(books.count)
        run_some(AskInCoroutine, "other")
        other_ended.set()
        assert reader.result(timeout=20) == 100


class TestAProcessThatIsForked:
    def test_has_a_pool_of_its_own(self, postgresql: PostgreSQL, books: Books) -> None:
        pytest.importorskip("psycopg_pool")
        with database(postgresql, books, OPTIONS={"pool": {"min_size": 1, "max_size": 2, "timeout": 5}}):
            before = ask()
            pid = os.fork()
            if not pid:
                try:
                    signal.alarm(30)
                    os._exit(0 if ask() != before and ask() else 1)
                finally:
                    os._exit(2)
            assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0
            assert ask() == before

    @pytest.mark.parametrize("options", [{}, {"pool": {"min_size": 1, "max_size": 2}}])
    def test_inherits_no_connection_from_the_command_that_starts_workers(
        self, options: dict[str, Any], postgresql: PostgreSQL, books: Books
    ) -> None:
        pytest.importorskip("psycopg_pool")
        with database(postgresql, books, OPTIONS=options):
            ask()
            with pytest.raises(SystemExit):
                Command().handle("--version")
            wait_until(lambda: books.count() == 0)


def test_a_job_that_is_run_by_a_test_leaves_the_transaction_of_the_test_alone(
    postgresql: PostgreSQL, books: Books
) -> None:
    with database(postgresql, books), transaction.atomic(using=ALIAS):
        with connections[ALIAS].cursor() as cursor:
            cursor.execute("CREATE TABLE written (book text)")
        Ask.add_job("one")
        assert drain("asking").success == 1
        RelayTask().run(lambda message, level: None)
        with connections[ALIAS].cursor() as cursor:
            cursor.execute("SELECT count(*) FROM written")
            assert cursor.fetchone() == (0,)
        transaction.set_rollback(True, using=ALIAS)
