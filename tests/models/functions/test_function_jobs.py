"""Functions that are jobs: how they are called, how their jobs are added, and that workers run them."""

from __future__ import annotations

import asyncio
import pickle
from dataclasses import dataclass
from datetime import date, timedelta
from decimal import Decimal
from enum import Enum
from functools import wraps
from typing import TYPE_CHECKING, Any, cast
from uuid import UUID

import job as odd_names
import pytest
import redis
from cases import each
from invariants import violations
from limpyd import fields
from running import work
from servers import RedisServer

from limpyd_jobs import (
    AddedJob,
    Argument,
    ConfigurationException,
    Error,
    Job,
    JobFunction,
    Queue,
    Requeue,
    Retry,
    Schedule,
    job,
)
from limpyd_jobs.models import job_classes
from limpyd_jobs.query import JobFilter, explain_job
from limpyd_jobs.redis.database import JobsDatabase
from limpyd_jobs.testing import assert_added, drain, refute_added, run_job

if TYPE_CHECKING:
    from missing import Missing

pytestmark = pytest.mark.usefixtures("redis_client")

SENT: list[Any] = []


class Colour(Enum):
    RED = 1
    BLUE = 2


@dataclass
class Item:
    name: str
    price: Decimal


def shouting(function: Any) -> Any:
    @wraps(function)
    def shout(*args: Any, **kwargs: Any) -> Any:
        return f"{function(*args, **kwargs)}!"

    return shout


@job(queue="mails", priority=2, keep_result=True)
def send_mail(to: str, subject: str = "none", cc: list[str] | None = None) -> str:
    """Send a mail."""
    SENT.append((to, subject, cc))
    return f"to {to}: {subject}"


@job(unique=True)
def report(start: date, /, end: date, *, status: Colour = Colour.RED, items: list[Item] = []) -> None:  # noqa: B006
    items.append(Item("more", Decimal(1)))
    SENT.append((start, end, status, items))


@job(unique="user")
def welcome(user: int, text: str = "") -> None: ...


@job(unique=lambda arguments: f"day {arguments.start.day}")
def daily(start: date) -> None: ...


@job(retry=Retry(times=2), timeout=60)
def fragile(times: int) -> Missing:
    raise ValueError(times)


@job
@shouting
def shouted(name: str) -> str:
    return name


@job(queue="async", notify_changes=True)
def waited_for(name: str) -> None: ...


@job(keep_result=timedelta(hours=1))
def _private(run: int, _hidden: int, arg_run: int = 3) -> list[int]:
    return [run, _hidden, arg_run]


class Tracked(Job):
    namespace = "tracked"
    queue_name = "tracked"
    keep_history = 5
    tenant = fields.InstanceHashField(indexable=True)
    note = Argument(default="a note")
    given: tuple[Any, ...] = ()

    @classmethod
    def add_job(cls, *args: Any, **kwargs: Any) -> Any:
        Tracked.given = (args, kwargs)
        return super().add_job(*args, **kwargs)

    def on_success(self, queue: Queue, result: Any) -> None:
        SENT.append((self.arguments.note, result))


@job(queue="async", keep_result=True, start_within=60, retry_for=timedelta(hours=1))
async def double(number: int) -> int:
    await asyncio.sleep(0)
    return number * 2


@job(queue="async", keep_result=True)
async def sizes(one: str, other: str) -> int:
    return len(one + other)


@job(queue="async", keep_result=True)
async def stock(name: str) -> tuple[Item, dict[int, set[date]]]:
    return Item(name, Decimal("1.50")), {1: {date(2026, 1, 31)}}


@job(keep_result=True)
def mistaken(name: str) -> date:
    return cast(date, name)


@job(base=Tracked)
def tracked(number: int, tenant: str = "me") -> int:
    if number < 0:
        raise Requeue()
    return number + 1


@pytest.fixture(autouse=True)
def nothing_was_sent() -> None:
    SENT.clear()


def run_all(*names: str, **options: Any) -> None:
    work(names or ("default", "mails", "tracked"), callback=None, burst=True, max_loops=20, **options)


class TestAFunction:
    def test_runs_when_it_is_called(self) -> None:
        assert send_mail("ann", cc=["bob"]) == "to ann: none"
        assert SENT == [("ann", "none", ["bob"])]
        assert not send_mail.job_class.collection()

    def test_looks_like_itself(self) -> None:
        assert (send_mail.__name__, send_mail.__doc__) == ("send_mail", "Send a mail.")
        assert repr(send_mail) == "<job test_function_jobs.send_mail>"
        assert pickle.loads(pickle.dumps(send_mail)) is send_mail
        assert isinstance(send_mail, JobFunction)

    def test_has_a_job_class_of_its_path(self) -> None:
        job_class = send_mail.job_class
        assert issubclass(job_class, Job)
        assert job_class.__name__ == "send_mail"
        assert job_class.get_model_repr() == "test_function_jobs.send_mail"
        assert job_classes.resolve("test_function_jobs.send_mail") is job_class
        assert job_class.queue_name == "mails"


class TestAddingAJob:
    def test_stores_the_arguments_and_a_worker_calls_the_function(self) -> None:
        added = send_mail.add("ann", subject="hello")
        assert added.added
        assert added.ident == "test_function_jobs.send_mail:1"
        assert UUID(added.identifier).version == 7
        assert added.job.hmget("to", "subject", "cc", "priority") == ["ann", "hello", "null", "2"]
        run_all()
        assert SENT == [("ann", "hello", None)]
        assert added.result(10) == "to ann: hello"
        assert added.wait(0)
        assert not added.cancel()

    def test_of_any_arguments_brings_them_as_they_were(self) -> None:
        items = [Item("a", Decimal("1.50"))]
        report.add(date(2020, 1, 2), date(2020, 1, 3), status=Colour.BLUE, items=items)
        report.add(date(2020, 1, 2), date(2020, 1, 4))
        run_all()
        more = Item("more", Decimal(1))
        assert [
            (date(2020, 1, 2), date(2020, 1, 3), Colour.BLUE, [*items, more]),
            (date(2020, 1, 2), date(2020, 1, 4), Colour.RED, [more]),
        ] == SENT

    def test_is_configured_before(self) -> None:
        added = send_mail.configure(
            identifier="a", queue="other", priority=7, delayed_for=60, retry="times=3", timeout=5
        ).add("ann")
        stored = added.job.hmget("identifier", "priority", "status", "_retry_policy", "_job_timeout")
        assert stored == ["a", "7", "d", "base=1,cap=600,times=3", "5"]
        assert Queue.get_queue("other", 7).delayed.zcard() == 1
        assert not send_mail.configure(identifier="a").add("bob").added

    def test_in_front_of_others_lets_it_run_first(self) -> None:
        send_mail.add("ann")
        send_mail.configure(prepend=True).add("bob")
        run_all()
        assert [each[0] for each in SENT] == ["bob", "ann"]

    @each(
        ("act", "why"),
        [
            (lambda: send_mail.add(), r"send_mail.add: missing a required argument: 'to'"),  # type: ignore[call-arg]
            (lambda: send_mail.add("a", too="b"), r"unexpected keyword argument 'too'"),  # type: ignore[call-arg]
            (lambda: send_mail.add("a", delayed_for=5), r"'delayed_for': an option is given by send_mail.configure"),  # type: ignore[call-arg]
            (lambda: send_mail.add(5), r"The argument 'to' of send_mail must be a text, not 5"),  # type: ignore[arg-type]
            (lambda: send_mail.add("a", cc="b"), r"cannot be stored as list\[str\] \| None: 'b' is not list"),  # type: ignore[arg-type]
            (lambda: report.add(start=1, end=2), r"report.add: "),  # type: ignore[call-arg,arg-type]
        ],
    )
    def test_with_other_arguments_is_refused(self, act: Any, why: str) -> None:
        with pytest.raises(TypeError, match=why):
            act()
        assert not send_mail.job_class.collection()

    def test_is_possible_by_its_class_as_well(self) -> None:
        send_mail.job_class.add_job("a", to="ann", priority=None)
        send_mail.job_class.add_jobs([{"to": "bob"}, {"to": "eve"}])
        run_all()
        assert [each[0] for each in SENT] == ["ann", "bob", "eve"]

    def test_of_one_path_under_another_name_is_refused(self) -> None:
        other = job(_plain)
        with pytest.raises(ConfigurationException, match=r"has something else under the name '_plain'.*@job above its"):
            other.add(1)


def _plain(number: int) -> None: ...


class TestAnAsyncFunction:
    def test_is_awaited_when_it_is_called(self) -> None:
        assert asyncio.run(double(2)) == 4

    def test_is_awaited_by_a_worker(self) -> None:
        async def add() -> list[bool]:
            added = [await double.aadd(3), await double.configure(identifier="a", retry_for=5).aadd(4)]
            again = await double.configure(identifier="a").aadd(5)
            return [each.added for each in (*added, again)]

        assert asyncio.run(add()) == [True, True, False]
        run_all("async")

        async def wait() -> tuple[bool, int]:
            added = AddedJob[int](double.job_class.get("1"), True)
            return await added.await_end(60), await added.aresult(60)

        assert asyncio.run(wait()) == (True, 6)
        jobs = [double.job_class.get(pk) for pk in ("1", "2")]
        assert [each.result(10) for each in jobs] == [6, 8]
        assert jobs[1].hmget("_retry_for", "_start_within") == ["5", "60"]

    def test_of_many_arguments_reads_them_beside_its_loop(self) -> None:
        async_added = sizes.add("x" * 70_000, "é")
        run_all("async")
        assert async_added.result(10) == 70_001

    def test_is_added_by_an_overridden_add_job_as_well(self) -> None:
        assert asyncio.run(tracked.aadd(1)).added
        assert Tracked.given == ((), {"number": 1})


class TestAResult:
    def test_comes_back_as_the_function_is_annotated_to_return_it(self) -> None:
        added = stock.add("apple")
        run_all("async", concurrency=2)
        assert added.result() == (Item("apple", Decimal("1.50")), {1: {date(2026, 1, 31)}})

    def test_or_a_change_that_is_not_kept_names_the_option_of_the_decorator(self) -> None:
        with pytest.raises(ConfigurationException, match=r"keeps no results: write @job\(keep_result=True\)"):
            shouted.add("a").result()
        with pytest.raises(ConfigurationException, match=r"write @job\(notify_changes=True\)"):
            shouted.add("b").wait()
        added = waited_for.add("c")
        assert not added.wait(0)
        assert added.cancel()
        assert added.wait(0)

    def test_of_another_type_than_annotated_comes_back_as_json_keeps_it(self) -> None:
        added = mistaken.add("soon")
        run_all()
        assert added.result() == cast(date, "soon")


class TestUniqueness:
    def test_is_by_all_arguments(self) -> None:
        one, other = report.add(date(2020, 1, 1), date(2020, 1, 2)), report.add(date(2020, 1, 1), end=date(2020, 1, 2))
        assert (one.added, other.added) == (True, False)
        assert one.job == other.job
        assert repr(other) == "<test_function_jobs.report:1, queued already>"
        assert one.identifier == '{"start":"2020-01-01","end":"2020-01-02","status":"RED","items":"[]"}'
        assert report.add(date(2020, 1, 1), date(2020, 1, 3)).added

    def test_of_long_arguments_is_by_their_digest(self) -> None:
        items = [Item("x" * 300, Decimal(1))]
        added = report.add(date(2020, 1, 1), date(2020, 1, 2), items=items)
        assert added.identifier.startswith("sha256:")
        assert len(added.identifier) == 71
        assert not report.add(date(2020, 1, 1), date(2020, 1, 2), items=items).added

    def test_is_by_some_arguments_or_by_what_is_made_of_them(self) -> None:
        assert welcome.add(1, "a").added
        assert not welcome.add(1, "b").added
        assert welcome.add(2, "a").identifier == '{"user":"2"}'
        assert daily.add(date(2020, 1, 7)).identifier == "day 7"

    def test_ends_with_the_job(self) -> None:
        welcome.add(1)
        run_all()
        assert welcome.add(1).added


class TestNames:
    def test_of_functions_share_no_key_with_those_of_models(self, redis_client: redis.Redis) -> None:
        functions = [odd_names.job, odd_names.queue, odd_names.error, odd_names.Job]
        for function in functions:
            function.add("x")
        plain = Job.add_job("x", "default")
        assert {function.job_class._name for function in functions} == {
            "jobs:job.job",
            "jobs:job.queue",
            "jobs:job.error",
            "jobs:job.Job",
        }
        assert [len(function.job_class.collection()) for function in functions] == [1, 1, 1, 1]
        assert plain.ident == "limpyd_jobs.models.Job:1"
        work("default", callback=None, burst=True, max_loops=9, save_errors=False)
        assert {function.job_class.get("1").status.hget() for function in functions} == {"s"}
        classes = [function.job_class for function in functions]
        assert violations(redis_client, Job, Queue, Error, *classes) == []

    def test_of_parameters_that_jobs_have_are_stored_under_another_one(self) -> None:
        added = _private.add(1, 2)
        assert added.job.hmget("arg_run", "arg__hidden", "arg_arg_run") == ["1", "2", "3"]
        run_all()
        assert added.result(10) == [1, 2, 3]


class TestWhatBelongsToAJob:
    def test_wrappers_below_the_decorator_run(self) -> None:
        shouted.add("ann")
        outcome = run_job(shouted.job_class, name="bob")
        assert outcome.result == "bob!"

    def test_retries_and_errors_go_by_the_path(self) -> None:
        fragile.add(1)
        run_all()
        tries = list(Error.collection().instances())  # the first delay may be next to nothing
        assert {error.job_model_repr.hget() for error in tries} == {"test_function_jobs.fragile"}
        fragile.configure(identifier="x").add(2)
        drained = drain("default", with_delayed=True, raise_errors=False)
        assert drained.requeued == 4 - len(tries)
        assert fragile.job_class.default_job_timeout == 60

    def test_a_base_gives_fields_hooks_and_attributes(self) -> None:
        added = tracked.add(1)
        assert Tracked.given == ((), {"number": 1})
        assert added.job.arguments.note == "a note"
        run_all()
        assert SENT == [("a note", 2)]
        assert [each.status for each in added.job.read_history()][-1] == "SUCCESS"
        assert added.job.hmget("arg_tenant", "tenant") == ["me", None]
        assert tracked.job_class._name == "tracked:test_function_jobs.tracked"

    def test_a_hook_is_set_on_its_class(self, monkeypatch: pytest.MonkeyPatch) -> None:
        ended = []
        monkeypatch.setattr(
            welcome.job_class,
            "on_success",
            lambda self, queue, result: ended.append(self.arguments.user),
            raising=False,
        )
        welcome.add(5)
        run_all()
        assert ended == [5]

    def test_a_schedule_adds_it(self) -> None:
        Schedule.add("nightly", "test_function_jobs.send_mail", cron="0 3 * * *", to="ann")
        by_function = Schedule.add("hourly", send_mail, interval=3600, to="bob")
        assert by_function.priority.hget() == "2"
        Schedule.get_by_name("nightly").run_now()
        run_all()
        assert SENT == [("ann", "none", None)]

    def test_helpers_for_tests_take_the_function(self) -> None:
        send_mail.add("ann")
        assert assert_added(send_mail, to="ann", priority=2).arguments.to == "ann"
        refute_added(send_mail, to="bob")
        assert run_job(report, arg_start=date(2020, 1, 1), arg_end=date(2020, 1, 2)).status == "SUCCESS"
        assert drain(job_class=send_mail).success == 1

    def test_a_filter_finds_its_jobs(self) -> None:
        send_mail.add("ann")
        send_mail.add("bob")
        numbers = [JobFilter(what).count().number for what in (send_mail, "class=test_function_jobs.send_mail")]
        assert numbers == [2, 2]

    def test_it_is_explained(self) -> None:
        assert explain_job(send_mail.add("ann").ident).status == "waiting"

    def test_it_is_bound_to_another_database(self, redis_server: RedisServer) -> None:
        database = JobsDatabase(unix_socket_path=redis_server.socket, db=5)
        database.connection.flushdb()
        bound = send_mail.job_class.bound_to(database)
        assert (bound._name, bound.__name__) == ("jobs:test_function_jobs.send_mail", "send_mail")
        added = bound.add_job(to="ann")
        assert added.ident == "test_function_jobs.send_mail:1"
        assert Job.bound_to(database).get_from_ident(added.ident) == added

    def test_a_job_that_was_added_before_a_parameter_has_its_default(self, redis_client: redis.Redis) -> None:
        added = send_mail.add("ann")
        redis_client.hdel("jobs:test_function_jobs.send_mail:1:hash", "subject")
        run_all()
        assert added.result(10) == "to ann: none"

    @pytest.mark.parametrize(
        ("field", "text", "why"),
        [
            ("to", None, "needs the argument 'to', which its job lacks"),
            ("cc", "[1]", r"The argument 'cc' of test_function_jobs.send_mail is not list\[str\] | None: 1 is not str"),
        ],
    )
    def test_what_another_program_stored_is_an_error_of_the_job(
        self, redis_client: redis.Redis, field: str, text: str | None, why: str
    ) -> None:
        added = send_mail.add("ann")
        key = "jobs:test_function_jobs.send_mail:1:hash"
        redis_client.hdel(key, field) if text is None else redis_client.hset(key, field, text)
        run_all()
        assert added.job.status.hget() == "e"
        (error,) = Error.collection().instances()
        assert why.replace("\\", "") in error.message.hget()
