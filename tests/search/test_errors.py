"""A filter of errors: what it counts, lists, and groups by cause; and the jobs of a group."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager
from datetime import timedelta
from typing import Any

import pytest
import redis
from cases import each

from limpyd_jobs import Argument, Error, Job, Worker
from limpyd_jobs.query import ErrorFilter, ErrorGroup, JobFilter, explain_job, job_details
from limpyd_jobs.search import causes, found, walk
from limpyd_jobs.search import look as search

pytestmark = pytest.mark.usefixtures("redis_client")


class Page(Job):
    namespace = "errors"
    queue_name = "pages"

    number = Argument(int, required=True)

    def run(self, queue: Any) -> None:
        if self.arguments.number % 2:
            raise LookupError(f"page {self.arguments.number} is not there")
        self.check()

    def check(self) -> None:
        raise LookupError(f"no page {self.arguments.number}")


class Cover(Job):
    namespace = "errors"
    queue_name = "covers"

    def run(self, queue: Any) -> None:
        raise KeyError(self.identifier.hget())


class ErrorOfPages(Error):
    namespace = "errors"


@pytest.fixture(autouse=True)
def _errors() -> None:
    """Three causes: of four errors, of two, and of one."""
    for number in (1, 3, 5, 7, 2, 4):
        Page.add_job(f"page {number}", number=number)
    Cover.add_job("cover")
    Worker("pages,covers", max_loops=7, logger_level=60).run()


def fingerprints() -> list[str]:
    return [group.fingerprint for group in ErrorFilter().groups().groups]


def without_fingerprint(*pks: str) -> None:
    """Make errors as those that version 2 wrote."""
    for pk in pks:
        Error.get(pk)._fingerprint.delete()


def test_errors_are_grouped_by_what_caused_them() -> None:
    found = ErrorFilter().groups()
    assert (found.others, found.is_exact) == (0, True)
    assert [(group.type, group.message, group.number) for group in found.groups] == [
        ("LookupError", "<identifier> is not there", 4),
        ("LookupError", "no <identifier>", 2),
        ("KeyError", "'cover'", 1),
    ]
    assert [group.raised_in for group in found.groups] == [
        f'{__name__}, in run: raise LookupError(f"page {{self.arguments.number}} is not there")',
        f'{__name__}, in check: raise LookupError(f"no page {{self.arguments.number}}")',
        f"{__name__}, in run: raise KeyError(self.identifier.hget())",
    ]
    assert len(set(fingerprints())) == 3


def test_the_trend_of_a_group_is_by_the_hour() -> None:
    frequent, *_ = ErrorFilter().groups().groups
    (pk, *_) = Error.collection(type="LookupError").instances()
    pk.date_time.hset("\u00e9 is not a date")
    again, *_ = ErrorFilter().groups().groups
    assert len(frequent.trend) == 24
    assert sum(frequent.trend[-2:]) == 4
    assert sum(again.trend) + 1 == sum(frequent.trend) or again.number == frequent.number == sum(again.trend)


def test_a_long_value_is_not_read(redis_client: redis.Redis) -> None:
    [group, *_] = ErrorFilter("type=KeyError").groups().groups
    redis_client.hset(f"{group.model}:{group.last}:hash", "message", "x" * 100_000)
    [group] = ErrorFilter("type=KeyError").groups().groups
    assert group.messages[0].examples == ["(100.0 kB, too long to be read here)"]
    last = ErrorFilter().last_of(group, most=100)
    assert (last["type"], last["message"]) == ("KeyError", "(100.0 kB, too long to be read here)")
    assert len(ErrorFilter().last_of(group)["message"]) == 100_000


def test_one_cause_is_one_group_whatever_its_messages() -> None:
    """The messages contain the identifier, of any length, codes, paths, lists and numbers of things."""
    for identifier in ("7", "667", "9999", "ann", "SKU-12A", "/3f/ab/photo", "[1, 2]", "[]"):
        Cover.add_job(identifier)
    Worker("covers", max_loops=8, logger_level=60).run()
    [group] = ErrorFilter("class=Cover").groups().groups
    assert (group.number, group.message_count) == (9, (1, True))
    [message] = group.messages
    assert (message.pattern, message.number) == ("<text>", 9)
    assert group.message == f"{message}" == "<text>, for example '[]', '[1, 2]', '/3f/ab/photo'"


class Leaflet(Job):
    namespace = "errors"
    queue_name = "leaflets"

    def run(self, queue: Any) -> None:
        raise ValueError(self.identifier.hget())


def test_the_messages_of_a_group_are_told_and_what_is_left_out_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    for number, word in enumerate(("rain", "snow", "snow", "hail", "hail", "hail")):
        job = Leaflet.add_job(f"{number}")
        Error.add_error("leaflets", job, ValueError(word))
    asked = ErrorFilter("class=Leaflet", "message!=no")
    [*groups] = asked.groups().groups
    assert [(group.message, group.number, group.raised_in) for group in groups] == [
        ("hail", 3, ""),
        ("snow", 2, ""),
        ("rain", 1, ""),
    ]
    for pk in Error.collection(job_model_repr=Leaflet.get_model_repr()):
        Error.get(pk)._fingerprint.delete()
    [group] = asked.groups(messages=2).groups
    assert [(each.pattern, each.number) for each in group.messages] == [("hail", 3), ("snow", 2)]
    assert (group.message_count, group.number) == ((3, True), 6)
    monkeypatch.setattr(causes, "MAX_MESSAGES", 2)
    [group] = asked.groups().groups
    assert (group.message_count, len(group.messages)) == ((2, False), 2)


def test_values_of_which_there_are_too_many_are_counted_as_others(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(causes, "MAX_VALUES", 1)
    monkeypatch.setattr(walk, "PER_STEP", 1)
    without_fingerprint("7")
    Error.get("7").type.hset("LookupError")
    for pk in "123456":
        Error.get(pk)._fingerprint.delete()
    [group] = ErrorFilter().groups().groups
    assert group.queues == {"(others)": 6, "covers": 1}


def test_a_group_tells_when_where_and_in_which_version(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LIMPYD_JOBS_APP_VERSION", "2026.11")
    job = Page.add_job("page 9", number=9)
    Worker("pages", max_loops=1, logger_level=60).run()
    group, *_ = ErrorFilter().groups().groups
    recorded = [Error.get(pk).hgetall() for pk in Error.collection(_fingerprint=group.fingerprint)]
    dates = sorted(fields["date_time"] for fields in recorded)
    assert (group.first_seen, group.last_seen) == (dates[0], dates[-1])
    assert Error.get(group.last).job_pk.hget() == job.pk.get()
    assert group.job_classes == {Page.get_model_repr(): 5}
    assert group.queues == {"pages": 5}
    assert group.app_versions == {"2026.11": 1}
    assert isinstance(group, ErrorGroup)


def test_errors_without_a_fingerprint_are_in_the_group_of_their_type() -> None:
    without_fingerprint("1", "2", "5", "7")
    found = {group.fingerprint: group.number for group in ErrorFilter().groups().groups}
    assert len(found) == 4
    assert (found["LookupError"], found["KeyError"]) == (3, 1)
    assert ErrorFilter("fingerprint=LookupError").count() == (3, True)
    assert [error.pk for error in ErrorFilter("fingerprint=LookupError").page().found] == ["5", "2", "1"]
    assert [error.fingerprint for error in ErrorFilter("pk=1").page().found] == ["LookupError"]
    jobs = {job.identifier for job in JobFilter("fingerprint=LookupError").page().found}
    assert jobs == {"page 1", "page 3", "page 2"}
    assert JobFilter("fingerprint!=LookupError").count() == (4, True)
    with pytest.raises(ValueError, match="'LookupError' is not a fingerprint: ask for a type"):
        ErrorFilter("fingerprint!=LookupError")


def test_the_most_frequent_are_told_and_the_others_counted() -> None:
    found = ErrorFilter().groups(most=1)
    assert ([group.number for group in found.groups], found.others) == ([4], 3)


def test_no_more_groups_are_kept_than_there_is_room_for(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(causes, "MAX_GROUPS", 2)
    monkeypatch.setattr(walk, "PER_STEP", 1)
    found = ErrorFilter().groups()
    assert sum(group.number for group in found.groups) + found.others == 7
    assert (len(found.groups), found.is_exact) == (2, True)


def test_groups_are_counted_in_steps_until_there_is_no_time(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(walk, "PER_STEP", 2)
    looked: list[tuple[int, int]] = []
    whole = ErrorFilter().groups(progress=lambda *numbers: looked.append(numbers))
    assert looked == [(2, 7), (4, 7), (6, 7), (7, 7)]
    assert whole.groups[0].number == 4
    cut = ErrorFilter().groups(timeout=0)
    assert sum(group.number for group in cut.groups) == 2
    assert (cut.is_exact, cut.looked, cut.size) == (False, 2, 7)
    monkeypatch.setattr(walk, "PER_STEP", 7)
    assert ErrorFilter().groups(timeout=0).is_exact  # all were looked at


def test_no_errors_make_no_groups() -> None:
    Error.delete_many(Error.collection())
    assert ErrorFilter().groups() == ([], 0, True, 0, 0)
    assert ErrorFilter("type=KeyError").page() == found.Page([], None, True)
    assert ErrorFilter().count() == (0, True)


@pytest.mark.matrix(6)
@pytest.mark.parametrize(
    ("words", "number"),
    [
        ([], 7),
        (["type=KeyError"], 1),
        (["error=LookupError"], 6),
        (["error!=LookupError"], 1),
        (["queue=pages"], 6),
        (["queue=pages", "type=KeyError"], 0),
        (["class=Page"], 6),
        (["class!=Page"], 1),
        (["class=*test_errors.Cov?r"], 1),
        (["class=Pag"], 0),
        ([f"class={__name__}.Page"], 6),
        (["identifier=cover"], 1),
        (["message=page 5 is not there"], 1),
        (["date_time>-1h"], 7),
        (["date_time__gt=now"], 0),
        (["date_time<-1h"], 0),
        (["pk=3"], 1),
        (["pk=99"], 0),
        (["app_version="], 7),
        (["app_version=1"], 0),
    ],
)
def test_errors_are_found_by_what_is_in_them(words: list[str], number: int) -> None:
    asked = ErrorFilter(*words)
    assert asked.count() == (number, True)
    assert len(asked.page().found) == number
    assert sum(group.number for group in asked.groups().groups) == number
    assert str(asked) == " ".join(words).replace("__gt=", ">")


def test_conditions_may_be_written_as_in_python() -> None:
    assert ErrorFilter(date_time__gt=timedelta(hours=-1), type="KeyError").count() == (1, True)
    first = fingerprints()[0]
    assert ErrorFilter(fingerprint=first).count() == (4, True)
    assert ErrorFilter(fingerprint__ne=first).count() == (3, True)
    assert repr(ErrorFilter("type=KeyError")) == "ErrorFilter('type=KeyError')"


def test_the_errors_of_a_fingerprint_are_counted_at_once(
    commands: Callable[[], AbstractContextManager[Any]],
) -> None:
    fingerprint = fingerprints()[0]
    with commands() as sent:
        assert ErrorFilter(fingerprint=fingerprint).count() == (4, True)
    assert {*sent.names} == {"EVALSHA", "GET", "SCARD"}
    assert all("limpyd-jobs:classes" in command for command in sent if command.startswith("EVAL"))


def test_what_is_no_condition_is_refused() -> None:
    for word, message in (
        ("nope", "'nope' is not a condition"),
        ("status=error", "An error has no field 'status'; there are: .*app_version, .*class, code"),
        ("traceback_=x", "An error has no field"),
        ("date_time>soon", "date_time: 'soon' is not a time"),
        ("fingerprint>1", "fingerprint cannot be compared by >"),
    ):
        with pytest.raises(ValueError, match=message):
            ErrorFilter(word)


def test_they_are_listed_the_last_first_page_by_page() -> None:
    first = ErrorFilter().page(limit=3)
    assert [error.identifier for error in first.found] == ["cover", "page 4", "page 2"]
    assert first.is_complete
    second = ErrorFilter().page(limit=4, after=first.following)
    assert [error.identifier for error in second.found] == ["page 7", "page 5", "page 3", "page 1"]
    assert second.following is None
    error = second.found[-1]
    assert (error.type, error.message, error.ident) == (
        "LookupError",
        "page 1 is not there",
        f"{Page.get_model_repr()}:1",
    )
    assert (error.queue, error.app_version) == ("pages", None)
    assert error.fingerprint in fingerprints()
    with pytest.raises(ValueError, match="is not where a page ended"):
        ErrorFilter().page(after="x")


def test_a_page_says_where_to_go_on_if_there_was_no_time(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(walk, "PER_STEP", 2)
    page = ErrorFilter("message=page 1 is not there").page(limit=1, timeout=0)
    assert (page.found, page.is_complete) == ([], False)
    [error] = ErrorFilter("message=page 1 is not there").page(after=page.following).found
    assert error.identifier == "page 1"


def test_the_errors_of_all_models_are_looked_at_unless_one_is_named() -> None:
    assert ErrorFilter(error_model=ErrorOfPages).count() == (0, True)
    Page.add_job("page 11", number=11)
    Worker("pages", error_model=ErrorOfPages, max_loops=1, logger_level=60).run()
    groups = ErrorFilter(error_model=ErrorOfPages).groups().groups
    assert [(group.number, group.fingerprint in fingerprints()) for group in groups] == [(1, True)]
    asked = {"fingerprint": groups[0].fingerprint, "identifier": "page 11"}
    [job] = JobFilter(error_model=ErrorOfPages, **asked)
    assert JobFilter(**asked).count() == (1, True)
    assert JobFilter(**asked, error_model=Error).count() == (0, True)
    assert JobFilter(Page, error_model=ErrorOfPages).facets("error").counts == {"": 6, "LookupError": 1}
    assert JobFilter(Page).facets("error").counts == {"LookupError": 7}
    assert len(job_details(job.ident).errors) == 1
    assert job_details(job.ident, error_model=Error).errors == []
    assert "page 11 is not there" in explain_job(job.ident).reasons[0].text
    assert ErrorFilter().count() == (8, True)
    assert ErrorFilter(error_model=Error).count() == (7, True)
    assert {group.number for group in ErrorFilter(fingerprint=groups[0].fingerprint).groups().groups} == {5}


def test_the_errors_of_several_models_are_listed_page_by_page() -> None:
    for number in (12, 13):
        job = Page.add_job(f"page {number}", number=number)
        (ErrorOfPages if number == 12 else Error).add_error("pages", job, LookupError("x"))
    found, after = list[str](), None
    while not found or after:
        page = ErrorFilter().page(limit=2, after=after)
        found, after = [*found, *(f"{error.identifier}" for error in page.found)], page.following
    newest = ["page 13", "page 12", "cover", "page 4", "page 2"]
    assert found == [*newest, "page 7", "page 5", "page 3", "page 1"]


def test_the_jobs_of_a_group_can_be_requeued() -> None:
    fingerprint = fingerprints()[1]
    asked = JobFilter("status=error", fingerprint=fingerprint)
    assert sorted(job.identifier for job in asked) == ["page 2", "page 4"]
    assert JobFilter(fingerprint__ne=fingerprint).count().number == 5
    assert asked.requeue_all() == (2, 0, 0, {})
    assert JobFilter("status=error").count().number == 5


def test_jobs_are_counted_by_their_last_error() -> None:
    first, second, third = fingerprints()
    JobFilter("identifier=page 4").requeue_all()
    without_fingerprint("1")
    Error.add_error("pages", Page.get("1"), KeyError("the last one"))
    last = Error.collection(type="KeyError", job_model_repr=Page.get_model_repr()).instances()[0].fingerprint.hget()
    failed = JobFilter("status=error")
    assert failed.facets("error").counts == {"LookupError": 4, "KeyError": 2}
    assert failed.facets("fingerprint").counts == {first: 3, second: 1, third: 1, last: 1}
    Error.delete_many(Error.collection())
    assert failed.facets("fingerprint").counts == {"": 6}


@pytest.mark.parametrize("few", [0, 3, 100])
def test_the_jobs_of_errors_are_the_same_if_these_are_read_first(monkeypatch: pytest.MonkeyPatch, few: int) -> None:
    monkeypatch.setattr(search, "FEW_ERRORS", few)
    without_fingerprint("1")
    fingerprint = fingerprints()[0]
    for words, expected in (
        (["error=KeyError"], ["cover"]),
        (["error=LookupError", "identifier=page 4"], ["page 4"]),
        ([f"fingerprint={fingerprint}"], ["page 7", "page 5", "page 3"]),
        (["fingerprint=LookupError"], ["page 1"]),
        (["error=LookupError", f"fingerprint={fingerprint}", "pk=3"], ["page 5"]),
        (["error=ValueError"], []),
    ):
        asked = JobFilter(*words)
        assert [job.identifier for job in asked.page().found] == expected
        assert asked.count() == (len(expected), True)
    assert [job.identifier for job in JobFilter("error=LookupError").page(2, newest_first=False).found] == [
        "page 1",
        "page 3",
    ]


def test_few_errors_are_read_instead_of_all_jobs(commands: Callable[[], AbstractContextManager[Any]]) -> None:
    looked: list[tuple[int, int]] = []
    JobFilter(fingerprint=fingerprints()[1]).count(progress=lambda *numbers: looked.append(numbers))
    assert looked == [(2, 2)]


def test_reading_changes_nothing(redis_client: redis.Redis) -> None:
    def changes() -> int:
        return int(redis_client.info("persistence")["rdb_changes_since_last_save"])

    before = changes()
    ErrorFilter("queue=pages").groups()
    ErrorFilter().page()
    assert changes() == before


@each(
    ("pattern", "is_met"),
    [
        ("*" * 50 + ".", False),
        ("*.*.*.*.*.*x", False),
        ("a.*.a.?.?.?*b", False),
        ("a.*.a.?", True),
        ("*" * 50 + ".a.a.a", True),
    ],
)
def test_no_pattern_takes_long(redis_client: redis.Redis, pattern: str, is_met: bool) -> None:
    """However many ways there are to divide a name among the stars."""
    redis_client.hset("jobs:error:1:hash", "job_model_repr", "a." * 100 + "a")
    assert ErrorFilter(f"class={pattern}").count() == (int(is_met), True)
