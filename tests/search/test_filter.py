"""A filter of jobs: what it counts, lists and counts by a field, over all classes of a database."""

from __future__ import annotations

import subprocess
import sys
from base64 import urlsafe_b64encode
from collections.abc import Callable
from contextlib import AbstractContextManager
from datetime import datetime, timedelta, timezone
from pathlib import Path
from typing import Any

import pytest
import redis
from cases import each
from limpyd import fields
from limpyd.indexes import NumberRangeIndex
from servers import RedisServer

from limpyd_jobs import Argument, DateTimeRangeIndex, Error, Job, Worker
from limpyd_jobs.models import BaseJobsModel
from limpyd_jobs.query import Count, Facets, FoundJob, JobFilter, job_details, queue_states
from limpyd_jobs.records.known_classes import KEY
from limpyd_jobs.redis.database import JobsDatabase
from limpyd_jobs.search import walk

pytestmark = pytest.mark.usefixtures("redis_client")


class Letter(Job):
    namespace = "query"
    queue_name = "letters"

    to = Argument(indexable=True)
    pages = Argument(int)
    weight = fields.InstanceHashField(indexable=True, indexes=[NumberRangeIndex])
    note = fields.InstanceHashField()

    def run(self, queue: Any) -> None:
        if int(self.arguments.pages) % 2:
            raise KeyError(f"page {self.arguments.pages}")


class Impossible(Job):
    """No script can work with it."""

    namespace = "query"
    status = fields.InstanceHashField(indexable=True, indexes=[NumberRangeIndex])


class Parcel(Job):
    namespace = "query"
    queue_name = "parcels"


@pytest.fixture(autouse=True)
def _jobs() -> None:
    for number in range(8):
        Letter.add_job(f"letter {number}", to="ann" if number < 5 else "bob", pages=number, weight=number)
    Worker("letters", max_loops=4, logger_level=50).run()
    Parcel.add_jobs([f"parcel {number}" for number in range(3)], priority=2)


def identifiers(jobs: Any) -> list[str]:
    return [job.identifier for job in jobs]


def test_jobs_of_all_classes_are_counted() -> None:
    assert JobFilter().count() == Count(11, True)
    assert JobFilter("class=Letter").count() == (8, True)
    assert JobFilter(Parcel).count() == (3, True)
    assert JobFilter("status=error").count() == (2, True)
    assert JobFilter(status="success", to="ann").count() == (2, True)
    assert JobFilter("to=eve").count() == (0, True)
    assert str(JobFilter().count()) == "11"


def looks(sent: list[str]) -> list[str]:
    """The scripts that look at jobs; another one reads which classes there are."""
    return [command for command in sent if command.startswith("EVAL") and "limpyd-jobs:classes" not in command]


def test_one_indexed_field_is_counted_without_looking_at_the_jobs(
    commands: Callable[[], AbstractContextManager[Any]],
) -> None:
    JobFilter().count()  # so that the server knows the script
    with commands() as sent:
        JobFilter("status=error").count()
    assert {*sent.names} == {"EVALSHA", "GET", "SCARD"}
    assert not looks(sent)


def test_jobs_of_a_status_are_counted_by_their_status_without_looking_at_them(
    commands: Callable[[], AbstractContextManager[Any]],
) -> None:
    with commands() as sent:
        assert JobFilter("status=error").facets("status") == Facets({"error": 2}, 0, True)
    assert not looks(sent)


def test_a_count_that_has_no_time_is_a_lower_bound(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(walk, "PER_STEP", 2)
    found = JobFilter("pages>=0").count(timeout=0)
    assert found == (2, False)
    assert (str(found), str(Count(0, False))) == ("≥ 2", "0 so far")


def test_progress_is_told_after_each_step(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(walk, "PER_STEP", 3)
    told: list[tuple[int, int]] = []
    JobFilter("pages>=0").count(progress=lambda *numbers: told.append(numbers))
    assert told == [(3, 8), (6, 8), (8, 8)]


@pytest.mark.parametrize("newest_first", [True, False])
def test_pages_together_have_each_job_once_in_the_order_of_adding(newest_first: bool) -> None:
    seen: list[FoundJob] = []
    after = None
    while True:
        page = JobFilter().page(4, after, newest_first=newest_first)
        seen += page.found
        if page.following is None:
            break
        assert len(page.found) == 4
        after = page.following
    assert len({job.ident for job in seen}) == len(seen) == 11
    added = [job.added or "" for job in seen]
    assert added == sorted(added, reverse=newest_first)


def test_a_page_that_had_no_time_tells_where_to_go_on(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(walk, "PER_STEP", 2)
    asked = JobFilter("to=ann", "pages=0")
    page = asked.page(timeout=0)
    assert (page.found, page.is_complete) == ([], False)
    for _ in range(10):
        page = asked.page(after=page.following, timeout=0)
        if page.found or not page.following:
            break
    assert identifiers(page.found) == ["letter 0"]


def test_a_job_is_told_with_what_it_is() -> None:
    (job,) = JobFilter("identifier=letter 1").page().found
    assert job.ident == f"{Letter.get_model_repr()}:2"
    assert (job.status, job.queue, job.priority, job.tries) == ("error", "letters", 0, 1)
    assert (job.added or "") < (job.start or "") <= (job.end or "")
    assert Job.get_from_ident(job.ident).identifier.hget() == "letter 1"


def test_all_jobs_can_be_iterated_over(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(walk, "PER_STEP", 3)
    assert identifiers(JobFilter(Letter, "pages__lt=4")) == ["letter 3", "letter 2", "letter 1", "letter 0"]


def test_jobs_are_counted_by_a_field() -> None:
    assert JobFilter().facets("status") == Facets({"waiting": 7, "success": 2, "error": 2}, 0, True)
    assert JobFilter("to=ann").facets("status").counts == {"success": 2, "error": 2, "waiting": 1}
    assert JobFilter().facets("class").counts == {Letter.get_model_repr(): 8, Parcel.get_model_repr(): 3}
    assert JobFilter().facets("queue").counts == {"letters": 8, "parcels": 3}
    assert JobFilter().facets("to") == Facets({"ann": 5, "bob": 3}, 0, True)
    assert JobFilter("queue=parcels").facets("queue") == Facets({"parcels": 3}, 0, True)
    assert JobFilter("queue=none").facets("queue") == Facets({}, 0, True)
    assert JobFilter("to=ann", "status=error").facets("status") == Facets({"error": 2}, 0, True)
    assert JobFilter().facets("to", most=1) == Facets({"ann": 5}, 3, True)
    assert JobFilter("status=error").facets("error").counts == {"KeyError": 2}
    for field in ("owner", "pk"):
        with pytest.raises(ValueError, match=f"{field} is not a field of a job"):
            JobFilter().facets(field)


def test_jobs_are_found_by_the_type_of_an_error() -> None:
    assert identifiers(JobFilter("error=KeyError").page().found) == ["letter 3", "letter 1"]
    assert JobFilter("error!=KeyError").count().number == 9
    assert JobFilter("error=ValueError").count().number == 0


def test_times_are_compared_with_now() -> None:
    assert JobFilter(added__gt=timedelta(hours=-1)).count().number == 11
    assert JobFilter("end<now", "end__gt=-1h").count().number == 4
    assert JobFilter("end=").count().number == 7


def test_a_field_that_no_class_has_is_refused_with_those_there_are() -> None:
    for ask in (lambda: JobFilter("too=ann").count(), lambda: JobFilter().facets("too")):
        with pytest.raises(ValueError, match=r"has a field 'too': is to meant\? There are: .*to, tries"):
            ask()
    with pytest.raises(ValueError, match="has a field 'to'"):
        JobFilter("class=Parcel", "to=ann").count()
    assert JobFilter("class=None", "too=ann").count() == (0, True)


def test_what_is_no_end_of_a_page_is_refused() -> None:
    for after in ("x", "e30x", "W10", "é"):
        with pytest.raises(ValueError, match="is not where a page ended"):
            JobFilter().page(after=after)
    with pytest.raises(ValueError, match="is not where a page ended"):
        JobFilter().page(after=urlsafe_b64encode(b'{"a": Infinity}').decode())


@pytest.mark.proof
def test_a_class_that_cannot_be_imported_here_is_found(redis_server: RedisServer, tmp_path: Path) -> None:
    (tmp_path / "elsewhere.py").write_text(
        """
from limpyd_jobs import Argument, Job
from limpyd_jobs.models import BaseJobsModel

class Task(Job):
    namespace = "far"
    colour = Argument(indexable=True)
"""
    )
    program = f"""
import elsewhere
elsewhere.BaseJobsModel.database.connect(unix_socket_path={redis_server.socket!r})
elsewhere.Task.add_job("a", "q", colour="red")
elsewhere.Task.add_jobs([dict(identifier="b", colour="blue")], queue_name="q")
"""
    subprocess.run([sys.executable, "-c", program], cwd=tmp_path, check=True, timeout=60)
    assert identifiers(JobFilter("class=elsewhere.*", "colour=red").page().found) == ["a"]
    details = job_details("elsewhere.Task:1")
    assert (details.status, details.queue, details.fields["colour"]) == ("waiting", "q", "red")


def test_each_process_writes_a_class_once_with_a_job(commands: Callable[[], AbstractContextManager[Any]]) -> None:
    BaseJobsModel.database.connection.delete(KEY)
    Parcel.add_job("more")
    assert BaseJobsModel.database.connection.hlen(KEY) == 0
    BaseJobsModel.database.connect(**BaseJobsModel.database.connection_settings)
    with commands() as sent:
        Parcel.add_job("still more")
    assert sent.names == ["EVALSHA"]
    fields = BaseJobsModel.database.connection.hkeys(KEY)
    assert sorted(fields) == ["queues jobs:queue", Parcel.get_model_repr()]


@each(
    "text",
    [
        *("", "x", "[]", "{}", "[" * 100_000, '["a","b",[1],{},{},[]]', '["a","b",[],{"x":[]},{},[]]', "null", b"\xff"),
        *(r'["a","\ud800",[],{},{},[]]', r'["a","b",["\udcff"],{"\udcff":"b"},{},[]]', b'["a","\xff",[],{},{},[]]'),
    ],
)
def test_a_class_that_is_written_wrongly_is_passed_over(redis_client: redis.Redis, text: str) -> None:
    redis_client.hset(KEY, "a", text)
    assert JobFilter().count().number == 11
    assert [state.waiting for state in queue_states()] == [4, 3]


def test_a_class_whose_path_is_not_text_is_passed_over(redis_client: redis.Redis) -> None:
    redis_client.hset(KEY, b"a.\xff", b'["a.\xff","b",[],{},{},[]]')
    assert JobFilter().count().number == 11
    assert [state.waiting for state in queue_states()] == [4, 3]


def test_if_something_else_is_where_the_classes_are_written_those_that_are_imported_are_known(
    redis_client: redis.Redis,
) -> None:
    redis_client.delete(KEY)
    redis_client.rpush(KEY, "x")
    assert JobFilter().count().number == 11
    assert [state.waiting for state in queue_states()] == [4, 3]


def test_many_conditions_keep_no_process_waiting(commands: Callable[[], AbstractContextManager[Any]]) -> None:
    Parcel.add_jobs([f"more {number}" for number in range(450)])
    with commands() as sent:
        assert JobFilter(*(f"identifier!={number}" for number in range(1_000))).count() == (461, True)
    assert sent.names.count("EVALSHA") > 2  # there are two classes
    with pytest.raises(ValueError, match="at most 1,000 conditions, not 1,001"):
        JobFilter(*(f"identifier!={number}" for number in range(1_001)))


@pytest.mark.parametrize("limit", [0, -1])
def test_a_page_of_no_jobs_is_refused(limit: int) -> None:
    with pytest.raises(ValueError, match="A page has 1 record or more"):
        JobFilter().page(limit)


@pytest.mark.parametrize("owner", ["web1:4711:5f0c", "web1:4711", "web1", "web", "web1:47", "4711"])
def test_the_first_parts_of_the_name_of_an_owner_are_enough(owner: str) -> None:
    claim = Parcel.add_job("claimed").claim("web1:4711:5f0c")
    found = JobFilter(f"owner={owner}").count().number
    assert found == (owner in ("web1:4711:5f0c", "web1:4711", "web1"))
    claim.release()


def test_a_database_of_its_own_can_be_asked(redis_server: RedisServer) -> None:
    other = JobsDatabase(unix_socket_path=redis_server.socket, db=3)
    Letter.bound_to(other).add_job("far", to="ann", pages=1)
    assert identifiers(JobFilter("to=ann", database=other).page().found) == ["far"]
    other.connection.flushdb()


class TestDetails:
    def test_are_all_fields_and_the_errors(self) -> None:
        (job,) = JobFilter("identifier=letter 1").page().found
        details = job_details(job.ident)
        assert (details.ident, details.status, details.queue, details.owner) == (job.ident, "error", "letters", None)
        assert details.fields.items() >= {"identifier": "letter 1", "to": "ann", "pages": "1"}.items()
        assert not [name for name in details.fields if name.startswith("_")]
        (error,) = details.errors
        assert (error["type"], error["message"]) == ("KeyError", "'page 1'")

    def test_tell_who_holds_the_claim(self) -> None:
        job = Parcel.get(identifier="parcel 0")
        with job.claim("me"):
            assert job_details(job.ident).owner == "me"

    def test_the_last_errors_come_first(self) -> None:
        job = Parcel.get(identifier="parcel 0")
        for number in range(25):
            Error.add_error("parcels", job, ValueError(f"{number}"))
        found = [error["message"] for error in job_details(job.ident).errors]
        assert found == [f"{number}" for number in range(24, 4, -1)]

    @pytest.mark.parametrize(
        ("ident", "error", "told"),
        [
            ("x", ValueError, "'x' is not the ident of a job"),
            ("no.such.Class:1", LookupError, "no.such.Class is not a job class of this database"),
            (f"{Parcel.get_model_repr()}:99", LookupError, "There is no job"),
        ],
    )
    def test_are_refused_for_what_is_none(self, ident: str, error: type[Exception], told: str) -> None:
        with pytest.raises(error, match=told):
            job_details(ident)


@each(
    ("words", "number"),
    [
        (["weight>5"], 2),
        (["weight>=5"], 3),
        (["weight<2"], 2),
        (["weight<=2.5"], 3),
        (["weight>-1"], 8),
        (["weight>7"], 0),
        (["weight>inf"], 0),
        (["weight>nan"], 0),
        (["weight>=2", "weight<4"], 2),
        (["weight>=2", "to=bob"], 3),
        (["weight>=2", "to=ann", "status=error"], 1),
    ],
)
def test_an_index_of_numbers_is_used(words: list[str], number: int) -> None:
    found = JobFilter("class=Letter", *words)
    assert found.count().number == number
    assert len(list(found)) == number
    assert len(found.page(limit=20).found) == number


class Delivery(Job):
    namespace = "query"
    queue_name = "deliveries"

    added = fields.InstanceHashField(indexable=True, indexes=[DateTimeRangeIndex])
    due = Argument(datetime, default=datetime(2026, 11, 20, 10, 30), indexable=True, indexes=[DateTimeRangeIndex])
    seen = Argument(datetime, default=datetime(2026, 11, 20, 10, 30))


@pytest.mark.matrix(5)
@pytest.mark.parametrize("field", ["due", "seen"])
@pytest.mark.parametrize(
    ("condition", "number"),
    [
        (">2026-11-20", 3),
        (">2026-11-20T10:30", 2),
        (">=2026-11-20T10:30", 3),
        ("<2026-11-20T10:30", 0),
        ("=2026-11-20T10:30", 1),
        ("!=2026-11-20T10:30", 2),
        (">2026-11-20T10:30:00.500000", 1),
        ("<2026-11-20 10:30:00.500001", 2),
        (">-1h", 0),
        ("=", 0),
    ],
)
def test_dates_are_compared_as_dates(field: str, condition: str, number: int) -> None:
    east = datetime(2026, 11, 21, 1, 0, tzinfo=timezone(timedelta(hours=2)))
    for moment in (None, datetime(2026, 11, 20, 10, 30, 0, 500_000), east):
        Delivery.add_job(f"delivery {moment}", **({field: moment} if moment else {}))
    found = JobFilter(Delivery, f"{field}{condition}")
    assert found.count().number == number
    assert len(list(found)) == number


def test_an_index_of_dates_is_used(commands: Any) -> None:
    Delivery.add_jobs([f"delivery {number}" for number in range(3)])
    with commands() as sent:
        assert JobFilter(Delivery, "added>-1h", "added__lt=now").count() == (3, True)
        assert JobFilter(Delivery, added__lt=timedelta(hours=-1)).count() == (0, True)
        assert JobFilter(Delivery, due=datetime(2026, 11, 20, 10, 30)).count() == (3, True)
    assert not looks(sent)
    assert JobFilter(Delivery, "added>-1h", "added>-1d").count() == (3, True)
    assert JobFilter(Delivery, "added>-1h", "due>2026-11-20", "status=waiting").count() == (3, True)


def test_what_is_no_date_is_no_condition_on_dates() -> None:
    Delivery.add_job("delivery")
    with pytest.raises(ValueError, match="due: 'soon' is not a time"):
        JobFilter(Delivery, "due<soon").count()


def test_the_indexes_that_are_missing_are_told() -> None:
    asked = JobFilter("to=ann", "added>-1h", "pages=1", "pages>2", "weight>1", "owner=x", "tries!=1", "start=")
    (source,) = {missing.path for missing in asked.missing_indexes()}
    assert source == Letter.get_model_repr()
    assert {missing[1:] for missing in asked.missing_indexes()} == {
        ("added", "DateTimeRangeIndex"),
        ("pages", "NumberRangeIndex"),
    }
    assert JobFilter(Letter, "to=ann", "status=waiting", "weight>1").missing_indexes() == []
    Delivery.add_job("delivery")
    (missing,) = JobFilter(Delivery, "added>-1h", "seen<now").missing_indexes()
    assert str(missing) == f"seen of {Delivery.get_model_repr()} has no DateTimeRangeIndex"


@each(("word", "number"), [("weight<=0", 1), ("weight>=0", 8), ("weight<0", 0), ("weight>0", 7), ("weight>=1", 7)])
def test_what_is_no_number_is_not_counted_as_nothing(word: str, number: int) -> None:
    Letter.add_job("letter of no weight", to="ann", pages=2, weight="heavy")
    assert JobFilter(Letter, word).count() == (number, True)
    assert len(list(JobFilter(Letter, word))) == number


@pytest.mark.parametrize("field", ["weight", "note"])
def test_numbers_are_read_as_python_reads_them(field: str) -> None:
    for text in ("1_000", "2_000", "0x7d0", " 1500 "):
        Letter.add_job(f"letter of {text}", to="ann", pages=2, **{field: text})
    assert JobFilter(Letter, f"{field}>=1000").count() == (3, True)
    assert len(list(JobFilter(Letter, f"{field}>=1000"))) == 3


def test_a_range_of_numbers_is_counted_without_looking_at_the_jobs(commands: Any) -> None:
    with commands() as sent:
        assert JobFilter(Letter, weight__gte=5).count().number == 3
    assert not looks(sent)
    with commands() as sent:
        assert JobFilter(Letter, weight__gte=7, to="bob").count().number == 1
    assert len(looks(sent)) == 1


def test_the_models_of_queues_are_read_once_however_many_classes_there_are(redis_client: redis.Redis) -> None:
    def reads_of(*conditions: str) -> int:
        redis_client.config_resetstat()
        assert JobFilter(*conditions).page().found
        return redis_client.info("commandstats")["cmdstat_hkeys"]["calls"]

    assert reads_of("class=*", "status!=canceled") == reads_of("class=Letter", "status!=canceled")
