"""Jobs that are added without an identifier."""

from __future__ import annotations

from typing import Any
from uuid import UUID

import pytest
from limpyd import fields

from limpyd_jobs import Argument, Job
from limpyd_jobs.models.identifying import sortable_identifier

pytestmark = pytest.mark.usefixtures("redis_client")


class Note(Job):
    namespace = "identifying"
    queue_name = "notes"
    to = Argument()
    size = Argument(int, default=3)


class OncePerReader(Note):
    identify = lambda arguments: f"{arguments.to}/{arguments.size + 1}"  # noqa: E731


class WithANumber(Note):
    identify = staticmethod(lambda arguments: arguments.size)


class WithNothing(Note):
    identify = staticmethod(lambda arguments: None)  # type: ignore[arg-type,return-value]


class WithOwnMethod(Note):
    def identify(self) -> str:  # type: ignore[override]
        raise AssertionError("it is not ours")


class WithOwnField(Note):
    identify = fields.InstanceHashField()


def test_each_job_without_an_identifier_has_one_of_its_own() -> None:
    jobs = [Note.add_job(to="ann"), Note.add_job(to="ann"), *Note.add_jobs([{"to": "ann"}, {"to": "bob"}])]
    identifiers = [job.identifier.hget() for job in jobs]
    assert len({job.pk.get() for job in jobs}) == 4
    assert identifiers == sorted(identifiers)
    assert {UUID(each).version for each in identifiers} == {7}


def test_identifiers_grow_even_within_a_tick_of_the_clock(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("time.time_ns", lambda: 1_000)
    made = [sortable_identifier() for _ in range(5000)]
    assert made == sorted(made)
    assert len({*made}) == 5000


@pytest.mark.parametrize("act", [lambda: Note.add_job(None, to="a"), lambda: Note.add_jobs([{"identifier": None}])])
def test_none_is_refused_as_before(act: Any) -> None:
    with pytest.raises(TypeError, match=r"must be a string or a number, not None|needs the argument 'to'"):
        act()


def test_a_class_may_make_the_identifier_of_its_arguments() -> None:
    job = OncePerReader.add_job(to="ann")
    assert job.identifier.hget() == "ann/4"
    assert OncePerReader.add_job(to="ann").pk.get() == job.pk.get()
    assert OncePerReader.add_jobs([{"to": "ann"}, {"to": "bob"}])[0].pk.get() == job.pk.get()
    assert OncePerReader.add_job("given", to="ann").identifier.hget() == "given"
    assert WithANumber.add_job(to="ann", size=7).identifier.hget() == "7"


def test_what_it_makes_is_checked() -> None:
    with pytest.raises(TypeError, match=r"test_identifying.WithNothing.identify: The identifier of a job must be"):
        WithNothing.add_job(to="ann")
    with pytest.raises(TypeError, match="OncePerReader needs the argument 'to'"):
        OncePerReader.add_job()
    assert not WithNothing.collection()


@pytest.mark.parametrize("job_class", [WithOwnMethod, WithOwnField])
def test_something_else_of_that_name_is_the_applications(job_class: type[Job]) -> None:
    assert UUID(job_class.add_job(to="ann").identifier.hget()).version == 7


def test_an_overridden_add_job_is_given_what_was_given() -> None:
    given: list[Any] = []

    class Translated(Note):
        @classmethod
        def add_job(cls, *args: Any, **kwargs: Any) -> Any:
            given.append((args, kwargs))
            return super().add_job(*args, **kwargs)

    Translated.add_job(to="ann")
    Translated.add_job("a", to="bob")
    assert given == [((), {"to": "ann"}), (("a",), {"to": "bob"})]
