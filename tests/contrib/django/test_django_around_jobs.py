"""What Django does around each request is done around each job."""

from __future__ import annotations

import os
import sqlite3
from pathlib import Path

import pytest
from bookshop.jobs import Stock
from bookshop.models import Book
from django.db import OperationalError, connection, connections
from django.test import override_settings
from django.utils import timezone, translation

from limpyd_jobs.testing import drain, run_job


def test_a_job_begins_with_the_language_and_time_zone_of_the_settings() -> None:
    first, second = (run_job(Stock, title="Emma").result for _ in range(2))
    assert first["language"] == second["language"] == "fr"
    assert first["zone"] == second["zone"] == "Europe/Paris"


def test_what_a_job_activates_ends_with_it() -> None:
    with translation.override("en"), timezone.override("UTC"):
        run_job(Stock, title="Emma")
        assert translation.get_language() == "en"
        assert timezone.get_current_timezone_name() == "UTC"


def test_the_queries_that_debug_keeps_are_those_of_one_job() -> None:
    with override_settings(DEBUG=True):
        results = [run_job(Stock, title="Emma").result for _ in range(2)]
    assert [each["queries"] for each in results] == [0, 0]


def test_a_job_that_fails_leaves_nothing_activated(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Book.objects, "create", lambda title: translation.activate("de") or 1 / 0)
    before = translation.get_language()
    with pytest.raises(ZeroDivisionError):
        run_job(Stock, title="Emma")
    assert translation.get_language() == before


class TestAConnectionThatIsCut:
    @pytest.fixture
    def cut(self, monkeypatch: pytest.MonkeyPatch) -> list[str]:
        """Let the connection fail until it is made anew; note the latter."""
        made: list[str] = []
        connection.in_atomic_block = False  # that of the test, which no job is in
        monkeypatch.setattr(connection, "close_if_unusable_or_obsolete", lambda: made.append("looked at"))
        yield made
        connection.in_atomic_block = True

    def test_is_looked_at_before_and_after_each_job(self, cut: list[str]) -> None:
        Stock.add_job("one", title="Emma")
        Stock.add_job("two", title="Persuasion")
        assert drain("stock").success == 2
        assert cut == ["looked at"] * 4

    def test_is_looked_at_after_a_job_that_failed_for_it(self, cut: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
        def fail(title: str) -> None:
            raise OperationalError(sqlite3.OperationalError("server closed the connection unexpectedly"))

        monkeypatch.setattr(Book.objects, "create", fail)
        with pytest.raises(OperationalError):
            run_job(Stock, title="Emma")
        assert cut == ["looked at"] * 2


def test_a_process_that_is_forked_makes_connections_of_its_own(tmp_path: Path) -> None:
    Book.objects.create(title="Emma")
    connections.settings["orders"] = {**connections.settings["default"], "NAME": str(tmp_path / "orders.sqlite3")}
    try:
        connections["orders"].ensure_connection()
        inherited = connections["orders"].connection
        pid = os.fork()
        if not pid:
            try:
                is_new = connections["orders"].connection is None
                with connections["orders"].cursor() as cursor:
                    cursor.execute("SELECT 1")
                os._exit(0 if is_new and Book.objects.count() == 1 else 1)  # the books are in memory
            finally:
                os._exit(2)
        assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0
        assert connections["orders"].connection is inherited
    finally:
        connections["orders"].close()
        del connections["orders"], connections.settings["orders"]
