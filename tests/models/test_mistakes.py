"""What looks right and does nothing is refused, or warned of."""

from __future__ import annotations

import warnings

import pytest
from limpyd import fields

from limpyd_jobs import STATUSES, Error, Job, Queue
from limpyd_jobs.models import BaseJobsModel

pytestmark = pytest.mark.usefixtures("redis_client")


class Noted(Job):
    namespace = "mistakes"
    queue_name = "queue"
    note = fields.InstanceHashField()
    lines = fields.ListField()
    colour = "red"

    @property
    def title(self) -> str:
        return self._title

    @title.setter
    def title(self, value: str) -> None:
        self._title = value


class TestAFieldThatThereIsNot:
    @pytest.mark.parametrize(
        ("name", "hint"),
        [
            ("notes", "is 'note' meant?"),
            ("job_timout", "is 'job_timeout' meant?"),
            (
                "x",
                "the fields to be given are 'tries', 'cancel_on_error', 'note', 'lines', 'job_timeout', 'retry_policy'",
            ),
        ],
    )
    def test_is_refused_and_says_which_there_are(self, name: str, hint: str) -> None:
        for add in (
            lambda: Noted.add_job("a", **{name: "x"}),
            lambda: Noted.add_jobs([{"identifier": "a", name: "x"}]),
        ):
            with pytest.raises(AttributeError) as caught:
                add()
            assert str(caught.value) == f"'Noted' object has no attribute {name!r}: {hint}"
        assert len(Noted.collection()) == 0


class TestAnAssignmentToAField:
    @pytest.mark.parametrize(
        ("name", "remedy"),
        [("status", ".status.hset("), ("note", ".note.hset("), ("lines", ".lines.rpush("), ("pk", ".pk.set(")],
    )
    def test_is_refused_and_says_what_to_write(self, name: str, remedy: str) -> None:
        for job in (Noted.add_job("a"), Noted()):
            with pytest.raises(AttributeError) as caught:
                setattr(job, name, "x")
            assert f"{name!r} is a field of Noted" in str(caught.value)
            assert remedy in str(caught.value)
        assert Noted.add_job("a").hmget("status", "note") == [STATUSES.WAITING, None]

    @pytest.mark.parametrize(
        ("record", "name"), [(Queue, "name"), (Queue, "waiting"), (Error, "message"), (Error, "date_time")]
    )
    def test_so_it_is_in_all_models(self, record: type[BaseJobsModel], name: str) -> None:
        with pytest.raises(AttributeError, match=name):
            setattr(record(), name, "x")

    def test_is_refused_however_the_record_was_made(self) -> None:
        pk = Noted.add_job("a").pk.get()
        for job in (Noted(pk), Noted.get(identifier="a"), Noted.lazy_connect(pk), *Noted.collection().instances()):
            with pytest.raises(AttributeError, match="hset"):
                job.status = "x"

    def test_is_not_one_to_another_attribute(self) -> None:
        job = Noted.add_job("a")
        job.anything, job.title, job.colour, job.rescues, job.run = 1, "mine", "blue", 2, print
        assert (job.anything, job.title, job.colour, job.rescues, job.run) == (1, "mine", "blue", 2, print)


class TestACollectionByStatus:
    @pytest.mark.parametrize("name", ["WAITING", "waiting", "Error"])
    def test_warns_of_the_name_of_a_status(self, name: str) -> None:
        Noted.add_job("a")
        with pytest.warns(UserWarning, match=rf"STATUSES\.{name.upper()}") as caught:
            assert list(Noted.collection(status=name)) == []
        assert caught[0].filename == __file__

    @pytest.mark.parametrize("status", [*STATUSES.values(), "an application's own", None])
    def test_does_not_warn_of_a_value(self, status: str | None) -> None:
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            Noted.collection(status=status)
            Noted.collection()
