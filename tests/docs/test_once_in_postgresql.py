"""What "Long jobs" says of `attempt_token`, with the code of that page and a real PostgreSQL."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType

import pytest
import redis
from pages import FILES, ROOT, RUN_COMMAND
from postgresql import PostgreSQL
from servers import RedisServer, wait_until

psycopg = pytest.importorskip("psycopg")

CUSTOMERS = 999
(CODE,) = (block.text for block in FILES if block.file == "myapp/payments.py")


@pytest.fixture
def page() -> ModuleType:
    module = ModuleType("payments")
    exec(CODE, vars(module))
    return module


@pytest.fixture
def books(postgresql: PostgreSQL, page: ModuleType) -> Iterator[psycopg.Connection]:
    with psycopg.connect(postgresql.dsn, autocommit=True) as books:
        books.execute("DROP TABLE IF EXISTS attempts, payments")
        books.execute(page.TABLES)
        yield books


def test_an_earlier_run_writes_nothing_once_a_later_one_has_begun(books: psycopg.Connection, page: ModuleType) -> None:
    def begin(token: str) -> None:
        books.execute(page.BEGIN, ["job", token])

    def pay(customer: int, token: str) -> int:
        return books.execute(page.PAY, [customer, 500, "job", token]).rowcount

    begin("first")
    assert pay(1, "first") == 1
    begin("second")
    assert pay(2, "first") == 0
    assert [pay(1, "second"), pay(2, "second")] == [0, 1]


def test_a_later_run_waits_for_what_an_earlier_one_is_writing(
    books: psycopg.Connection, page: ModuleType, postgresql: PostgreSQL
) -> None:
    books.execute(page.BEGIN, ["job", "first"])
    with psycopg.connect(postgresql.dsn) as slow:
        slow.execute(page.PAY, [1, 500, "job", "first"])
        books.execute("SET lock_timeout = '50ms'")
        with pytest.raises(psycopg.errors.LockNotAvailable):
            books.execute(page.BEGIN, ["job", "second"])
        slow.commit()
    books.execute(page.BEGIN, ["job", "second"])


def test_a_worker_is_killed_in_the_midst_and_each_customer_is_paid_for_once(
    books: psycopg.Connection,
    postgresql: PostgreSQL,
    redis_server: RedisServer,
    redis_client: redis.Redis,
    tmp_path: Path,
) -> None:
    (tmp_path / "myapp").mkdir()
    (tmp_path / "myapp" / "payments.py").write_text(CODE.replace("dbname=books", postgresql.dsn))
    path = os.pathsep.join(map(str, (tmp_path, ROOT)))
    environment = {**os.environ, "PYTHONPATH": path, "LIMPYD_JOBS_DATABASE": redis_server.url}

    def worker() -> subprocess.Popen[bytes]:
        words = ("--queues=payments", "--job-modules=myapp.payments", "--lease=0.5", "--max-loops=1", "--no-title")
        return subprocess.Popen([sys.executable, "-c", RUN_COMMAND, *words], env=environment, cwd=tmp_path)

    def paid() -> int:
        row = books.execute("SELECT count(*), sum(cents) FROM payments").fetchone()
        assert row is not None
        assert row[1] == (500 * row[0] or None)
        return int(row[0])

    add = "from myapp.payments import PayAll; PayAll.add_job('all')"
    subprocess.run([sys.executable, "-c", add], env=environment, cwd=tmp_path, check=True)
    first = worker()
    wait_until(paid)
    first.send_signal(signal.SIGKILL)
    first.wait()
    before = paid()
    assert before < CUSTOMERS, "the worker was not killed in the midst"
    tokens = [books.execute("SELECT token FROM attempts").fetchone()]
    assert worker().wait(60) == 0
    tokens.append(books.execute("SELECT token FROM attempts").fetchone())
    assert (paid(), len({*tokens})) == (CUSTOMERS, 2)
