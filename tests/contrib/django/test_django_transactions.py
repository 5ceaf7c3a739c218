"""Jobs that are added once a transaction is committed: in each shape that transactions of Django have."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from contextlib import nullcontext, suppress
from decimal import Decimal
from pathlib import Path
from threading import Thread
from typing import Any

import pytest
from asgiref.sync import sync_to_async
from bookshop import tasks
from bookshop.errands import Errand, Refused, fetch
from bookshop.jobs import Sell
from bookshop.models import Book
from django.core.exceptions import SynchronousOnlyOperation
from django.db import connections, transaction
from django.db.transaction import TransactionManagementError
from django.test import TestCase, override_settings

from limpyd_jobs.contrib.django.outbox.models import OutboxEntry
from limpyd_jobs.contrib.django.outbox.relaying import relay_due
from limpyd_jobs.contrib.django.tasks import TaskJob
from limpyd_jobs.contrib.django.transactions import add_job_on_commit, add_job_through_outbox

TASKS = {
    "default": {"BACKEND": "limpyd_jobs.contrib.django.tasks.LimpydBackend", "OPTIONS": {"DATABASE": "orders"}},
    "outbox": {
        "BACKEND": "limpyd_jobs.contrib.django.tasks.LimpydBackend",
        "OPTIONS": {"DATABASE": "orders", "ENQUEUE_ON_COMMIT": "outbox"},
    },
}


@pytest.fixture
def orders(tmp_path: Path) -> Iterator[Any]:
    """A second database, "orders", with an outbox. What is committed there is committed."""
    connections.settings["orders"] = {**connections.settings["default"], "NAME": str(tmp_path / "orders.sqlite3")}
    try:
        with connections["orders"].schema_editor() as editor:
            editor.create_model(OutboxEntry)
        with override_settings(LIMPYD_JOBS={"OUTBOX_DATABASES": ["default", "orders"]}, TASKS=TASKS):
            yield connections["orders"]
    finally:
        connections["orders"].close()
        del connections["orders"], connections.settings["orders"]


WAYS: dict[str, Callable[[str], Any]] = {
    "on commit": lambda name: add_job_on_commit(Errand, name, using="orders"),
    "through the outbox": lambda name: add_job_through_outbox(Errand, name, using="orders"),
    "as a task": lambda name: tasks.noop_task.enqueue(name),
    "as a task through the outbox": lambda name: tasks.noop_task.using(backend="outbox").enqueue(name),
}


@pytest.fixture(params=WAYS)
def add(request: pytest.FixtureRequest, orders: Any) -> Callable[[str], Any]:
    return WAYS[request.param]


def added() -> set[str]:
    """Return the names of the jobs that were added."""
    names = {str(job.arguments.parameters[0][0]) for job in TaskJob.collection().instances()}
    return names | {job.identifier.hget() for job in Errand.collection().instances()}


def left() -> int:
    return int(OutboxEntry.objects.using("orders").count())


class TestAJob:
    def test_is_added_by_the_outermost_commit(self, add: Callable[[str], Any]) -> None:
        with transaction.atomic(using="orders"):
            with transaction.atomic(using="orders"):
                add("inner")
            assert added() == set()
        assert (added(), left()) == ({"inner"}, 0)

    def test_of_an_inner_block_that_is_rolled_back_is_not_added(self, add: Callable[[str], Any]) -> None:
        with transaction.atomic(using="orders"):
            add("outer")
            with suppress(KeyError), transaction.atomic(using="orders"):
                add("inner")
                raise KeyError
            add("after")
        assert (added(), left()) == ({"outer", "after"}, 0)

    def test_of_an_outer_block_that_is_rolled_back_is_not_added(self, add: Callable[[str], Any]) -> None:
        with suppress(KeyError), transaction.atomic(using="orders"):
            with transaction.atomic(using="orders"):
                add("inner")
            raise KeyError
        assert (added(), left()) == (set(), 0)

    def test_may_be_of_a_durable_block(self, add: Callable[[str], Any]) -> None:
        with transaction.atomic(using="orders", durable=True):
            add("ann")
        assert (added(), left()) == ({"ann"}, 0)

    def test_without_a_transaction_is_added_at_once(self, add: Callable[[str], Any]) -> None:
        add("ann")
        assert (added(), left()) == ({"ann"}, 0)

    def test_does_not_depend_on_another_database(self, add: Callable[[str], Any]) -> None:
        with suppress(KeyError), transaction.atomic():  # of the default one
            add("ann")
            raise KeyError
        assert added() == {"ann"}

    def test_is_refused_in_a_transaction_whose_commit_django_does_not_see(
        self, add: Callable[[str], Any], orders: Any
    ) -> None:
        transaction.set_autocommit(False, using="orders")
        with pytest.raises(TransactionManagementError, match="manual transaction management"):
            add("ann")
        transaction.rollback(using="orders")
        transaction.set_autocommit(True, using="orders")
        assert (added(), left()) == (set(), 0)

    def test_may_be_added_by_a_callback_of_a_commit(self, add: Callable[[str], Any]) -> None:
        with transaction.atomic(using="orders"):
            transaction.on_commit(lambda: add("later"), using="orders")
            add("first")
        assert (added(), left()) == ({"first", "later"}, 0)

    def test_of_an_async_view_is_added_by_the_thread_that_commits(self, add: Callable[[str], Any]) -> None:
        def place_order() -> None:
            with transaction.atomic(using="orders"):
                add("ann")

        async def view() -> None:
            await sync_to_async(place_order, thread_sensitive=True)()

        asyncio.run(view())
        assert (added(), left()) == ({"ann"}, 0)


@pytest.mark.parametrize("way", ["on commit", "as a task"])
def test_without_a_transaction_no_database_is_asked(way: str, orders: Any) -> None:
    orders.close()
    WAYS[way]("ann")
    assert added() == {"ann"}
    assert orders.connection is None


def test_a_coroutine_cannot_write_to_the_outbox(orders: Any) -> None:
    async def view() -> None:
        add_job_through_outbox(Errand, "ann", using="orders")

    with pytest.raises(SynchronousOnlyOperation):
        asyncio.run(view())
    assert (added(), left()) == (set(), 0)


def test_threads_that_commit_and_relay_at_the_same_time_add_each_job_once(orders: Any) -> None:
    orders.settings_dict["OPTIONS"] = {"timeout": 60}
    failures: list[Exception] = []

    def work(number: int) -> None:
        try:
            for each in range(5):
                with transaction.atomic(using="orders"):
                    add_job_through_outbox(Errand, f"{number} {each}", using="orders")
                relay_due("orders", 1)
        except Exception as error:
            failures.append(error)
        finally:
            connections["orders"].close()

    threads = [Thread(target=work, args=(number,)) for number in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert failures == []
    jobs = [job.identifier.hget() for job in Errand.collection().instances()]
    assert sorted(jobs) == [f"{number} {each}" for number in range(4) for each in range(5)]
    assert left() == 0


class TestATest(TestCase):
    """What `TestCase` does, which is in a transaction all the time."""

    def test_sees_the_job_of_a_commit(self) -> None:
        with self.captureOnCommitCallbacks(execute=True):
            book = Book.objects.create(title="Emma")
            later = add_job_on_commit(Sell, "one", book=book)
            assert later.job is None
            assert not Sell.collection()
        assert later.job is not None
        assert later.job.identifier.hget() == "one"

    def test_sees_no_job_of_a_transaction_that_is_rolled_back(self) -> None:
        with self.captureOnCommitCallbacks(execute=True), transaction.atomic():
            later = add_job_on_commit(Sell, "one", book=Book(pk=1))
            transaction.set_rollback(True)
        assert (later.job, len(Sell.collection())) == (None, 0)

    def test_may_look_at_the_callbacks_instead(self) -> None:
        with self.captureOnCommitCallbacks() as callbacks:
            add_job_on_commit(Errand, "on commit")
            add_job_through_outbox(Errand, "through the outbox")
        assert len(callbacks) == 2
        assert added() == set()
        for callback in callbacks:
            callback()
        assert added() == {"on commit", "through the outbox"}


def test_a_function_that_is_a_job_is_added_with_its_own_arguments() -> None:
    with TestCase.captureOnCommitCallbacks(execute=True):
        later = add_job_on_commit(fetch, "the mill", price=Decimal(3))
        assert later.job is None
    assert (later.job.arguments.place, later.job.arguments.price) == ("the mill", 3)
    assert add_job_on_commit(fetch, "the mill", using="default").job is None  # in the transaction of the test


def test_what_adding_raises_is_logged_if_that_is_wanted(orders: Any, caplog: pytest.LogCaptureFixture) -> None:
    for robust, ends in ((False, pytest.raises(ValueError, match="no such errand")), (True, nullcontext())):
        with ends, transaction.atomic(using="orders"):
            add_job_on_commit(Refused, using="orders", robust=robust)
    assert "no such errand" in caplog.text
