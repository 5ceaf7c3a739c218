"""Instances of models as arguments of jobs."""

from __future__ import annotations

from typing import Any

import pytest
from bookshop.jobs import Reprint, Sell
from bookshop.models import Book, Edition
from django.contrib.auth.models import AbstractUser, User
from django.db import connection
from django.test.utils import CaptureQueriesContext

from limpyd_jobs import Argument, Job, job
from limpyd_jobs.contrib.django.instances import InstanceGone
from limpyd_jobs.query import edit_job
from limpyd_jobs.testing import run_job


@pytest.fixture
def emma() -> Any:
    return Book.objects.create(title="Emma")


class TestAnInstance:
    def test_travels_as_its_primary_key(self, emma: Book) -> None:
        other = Book.objects.create(title="Persuasion")
        job = Sell.add_job("one", book=emma, others=[other])
        assert (job.book.hget(), job.others.hget()) == (str(emma.pk), f'["{other.pk}"]')

    def test_is_fetched_when_it_is_used(self, emma: Book) -> None:
        with CaptureQueriesContext(connection) as queries:
            job = Sell.add_job("one", book=emma)
            book = job.arguments.book
            assert len(queries) == 0
            assert (book.title, book.pk) == ("Emma", emma.pk)
            assert len(queries) == 1

    def test_is_as_it_is_stored_by_then(self, emma: Book) -> None:
        Sell.add_job("one", book=emma)
        Book.objects.update(title="Emma, 2nd edition")
        assert run_job(Sell, book=emma).result == ["Emma, 2nd edition"]

    def test_is_one_of_its_model(self, emma: Book) -> None:
        book = Sell.add_job("one", book=emma).arguments.book
        assert isinstance(book, Book)
        assert book == emma
        assert Sell.add_job("two", book=book).book.hget() == str(emma.pk)

    def test_that_is_gone_is_an_error_that_says_so(self, emma: Book) -> None:
        pk = emma.pk
        Book.objects.all().delete()
        emma.pk = pk
        with pytest.raises(
            InstanceGone, match=rf"^bookshop\.Book {pk} is gone: it was deleted after the job was added"
        ):
            run_job(Sell, book=emma)

    @pytest.mark.parametrize(
        ("given", "message"),
        [
            (Book(title="new"), "is not saved, so it has no primary key"),
            (User(pk=1), "is not an instance of Book"),
            ("1", "is not an instance of Book"),
            (None, "is not an instance of Book"),
        ],
    )
    def test_of_another_model_or_without_a_key_is_refused(self, given: Any, message: str) -> None:
        with pytest.raises(TypeError, match=message):
            Sell.add_job("one", book=given)
        assert not Sell.collection()

    def test_may_be_changed(self, emma: Book) -> None:
        other = Book.objects.create(title="Persuasion")
        job = Sell.add_job("one", book=emma)
        edit_job(job.ident, {"book": other})
        assert Sell.get(job.pk.get()).arguments.book.title == "Persuasion"
        field = Sell.get_class_field("book")
        assert field.read(str(other.pk)) == other  # as a command line names it
        with pytest.raises(ValueError, match="must be Book, not 'seven'"):
            field.read("seven")

    def test_of_an_abstract_model_cannot_travel(self) -> None:
        with pytest.raises(TypeError, match="AbstractUser cannot travel: it is an abstract model"):

            class Greet(Job):
                abstract = True
                user = Argument(AbstractUser)


HOSTILE = [
    "",
    "seven",
    "1 OR 1=1",
    "1.5",
    "9" * 40,
    "-1",
    "\0",
    "[1]",
    '["x"]',
    "[" * 5000,
    '{"a": 1}',
    "null",
    "\u202e",
]


class TestAKeyThatIsChangedInRedis:
    @pytest.mark.parametrize("key", HOSTILE)
    def test_is_refused_or_leads_to_nothing(self, emma: Book, key: str) -> None:
        edition = Edition.objects.create(isbn="x", number=1)
        given = {"book": Sell.add_job("one", book=emma), "edition": Reprint.add_job("two", edition=edition)}
        for name, added in given.items():
            added.get_connection().hset(f"{added._name}:{added.pk.get()}:hash", name, key)
            with pytest.raises((InstanceGone, ValueError), match=r"is gone|is not the primary key"):
                str(getattr(type(added).get(added.pk.get()).arguments, name))

    def test_of_several_fields_travels_as_one(self) -> None:
        edition = Edition.objects.create(isbn='"x",', number=1)
        added = Reprint.add_job("one", edition=edition)
        found = Reprint.get(added.pk.get()).arguments.edition
        assert (found, found.number) == (edition, 1)
        edition.delete()
        with pytest.raises(InstanceGone):
            str(Reprint.get(added.pk.get()).arguments.edition)

    def test_of_several_fields_has_to_be_whole(self) -> None:
        with pytest.raises(TypeError, match="is not saved, so it has no primary key"):
            Reprint.add_job("one", edition=Edition(isbn="x"))


@job(queue="sales")
def wrap(book: Book, ribbon: str | None = None) -> str:
    return f"{book.title}, {ribbon}"


def test_a_function_that_is_a_job_takes_one(emma: Book) -> None:
    added = wrap.add(emma, "red")
    assert added.job.arguments.book == emma
    assert run_job(wrap.job_class, book=emma, ribbon=None).result == "Emma, None"
