"""What looks right and does nothing is refused, or warned of."""

from __future__ import annotations

import warnings
from collections.abc import Callable

import pytest
from cases import each
from limpyd import fields

from limpyd_jobs import STATUSES, Argument, Error, Job, Queue, Schedule
from limpyd_jobs.models import BaseJobsModel
from limpyd_jobs.retrying import own_policy

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
    @each(
        ("name", "hint"),
        [
            ("notes", "is 'note' meant?"),
            ("job_timout", "is 'job_timeout' meant?"),
            ("delay", "is 'delayed_for' meant?"),
            ("eta", "is 'delayed_until' meant?"),
            ("queue", "is 'queue_name' meant?"),
            ("prio", "is 'priority' meant?"),
            ("retries", "is 'retry_policy' meant?"),
            (
                "x",
                "the fields to be given are 'tries', 'cancel_on_error', 'note', 'lines', 'job_timeout', "
                "'retry_policy', 'start_within', 'retry_for', 'unique_for'",
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


class Letter(Job):
    namespace = "mistakes"
    queue_name = "letters"

    to = Argument(str, required=True)


def refusal(act: Callable[[], object]) -> str:
    with pytest.raises((AttributeError, NotImplementedError, TypeError, ValueError)) as caught:
        act()
    return str(caught.value)


class TestAMessageSaysWhatToWrite:
    def test_if_the_name_of_an_argument_is_misspelt(self) -> None:
        assert refusal(lambda: Letter.add_job("a", too="ann")).endswith("no attribute 'too': is 'to' meant?")
        assert refusal(lambda: Letter.add_job("a")) == "Letter needs the argument 'to'"

    def test_if_the_kind_of_an_argument_is_in_quotes(self) -> None:
        kinds = "An argument is one of str, int, float, bool, bytes, datetime, json, pickle, not"
        assert refusal(lambda: Argument("json")) == f"{kinds} 'json': write json without quotes, after import json"
        assert refusal(lambda: Argument("int")) == f"{kinds} 'int': write int without quotes"
        assert refusal(lambda: Argument(complex)).startswith("values of complex cannot travel")

    def test_if_a_job_has_no_run(self) -> None:
        job = Letter.add_job("a", to="ann")
        with pytest.raises(NotImplementedError) as caught:
            job.run(Queue.get_queue("letters"))
        assert str(caught.value) == "You must implement your own action"  # as in version 2, where Errors keep it
        assert caught.value.__notes__ == ["Letter has no method run(self, queue), and its worker no callback"]

    def test_if_a_delay_is_a_text(self) -> None:
        told = refusal(lambda: Letter.add_job("a", to="ann", delayed_for="10m"))  # type: ignore[arg-type]
        assert told.endswith("not '10m': give a number of seconds, such as 600, or timedelta(minutes=10)")

    @pytest.mark.parametrize("ident", ["12", "a:b:c", ""])
    def test_if_an_ident_is_none(self, ident: str) -> None:
        told = refusal(lambda: Job.get_from_ident(ident))
        assert told == f"{ident!r} is not the ident of a job, for example myapp.jobs.SendMail:12"

    def test_if_one_text_is_given_for_many_jobs(self) -> None:
        assert refusal(lambda: Noted.add_jobs("abc")) == "Give a list of jobs, as ['abc'], not 'abc'"

    def test_if_a_policy_of_a_class_is_a_number(self, caplog: pytest.LogCaptureFixture) -> None:
        for _ in range(2):
            assert own_policy(3) is None
        (record,) = caplog.records
        assert record.message == (
            "A default_retry_policy is not used: A retry policy must be a Retry, or the text of one, not 3"
        )

    def test_if_an_interval_is_a_text(self) -> None:
        told = refusal(lambda: Schedule.add("often", Letter, interval="10m", to="ann"))
        assert told.startswith("An interval must be a number of seconds, a timedelta, or a mapping")


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
