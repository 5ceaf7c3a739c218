"""Long jobs go on where they were: `iterate`, `step`, `max_run_time`, `attempt_token`."""

from __future__ import annotations

import asyncio
import json
import logging
from collections.abc import AsyncIterator, Callable, Iterator
from datetime import timedelta
from typing import Any, NamedTuple

import pytest
import redis
from cases import each
from invariants import violations
from parts import run_task
from running import messages, work, worker_of

from limpyd_jobs import STATUSES, ClaimLost, ConfigurationException, Error, Job, Queue, Requeue, Retry, Worker
from limpyd_jobs.models.continuing.cursors import MAX_BYTES, MAX_CURSOR_BYTES
from limpyd_jobs.query import JobFilter, job_details
from limpyd_jobs.records.records import redis_of


class Long(Job):
    """Its code is given by each test."""

    namespace = "continuing"
    queue_name = "queue"


class Brief(Long):
    """Gives way after each item."""

    max_run_time = timedelta(microseconds=1)


class Anew(Long):
    """Begins anew after an error."""

    restart_after_error = True


@pytest.fixture(autouse=True)
def _consistent(redis_client: redis.Redis) -> Iterator[None]:
    yield
    assert violations(redis_client, Long, Brief, Anew, Queue, Error) == []


class Row(NamedTuple):
    id: int
    name: str


ROWS = [Row(number, f"row {number}") for number in (2, 3, 5, 7, 11, 13)]


def key_of(row: Row) -> int:
    return row.id


def rows_after(after: int | None = None) -> Iterator[Row]:
    return (row for row in ROWS if after is None or row.id > after)


async def rows_in_time(after: int | None = None) -> AsyncIterator[Row]:
    for row in rows_after(after):
        await asyncio.sleep(0)
        yield row


class Source(NamedTuple):
    """A source of rows, and the key of its loop."""

    make: Callable[[], Any]
    key: Any


SOURCES = {
    "a sequence": Source(lambda: ROWS, None),
    "a sequence by key": Source(lambda: ROWS, key_of),
    "an iterable by key": Source(lambda: iter(ROWS), key_of),
    "a function": Source(lambda: rows_after, key_of),
    "an async function": Source(lambda: rows_in_time, key_of),
    "an async iterable by key": Source(lambda: rows_in_time(), key_of),
}


class Worked:
    """The code of a job: it notes the rows that it does, and may do something with one of them."""

    def __init__(self, source: Source = SOURCES["a sequence"], **at: Callable[[Any], Any]) -> None:
        self.source = source
        self.at = at
        self.done: list[int] = []

    def __call__(self, job: Any, queue: Queue) -> None:
        made = self.source.make()
        is_async = "async" in type(made).__name__ or made is rows_in_time
        if is_async:
            asyncio.run(self.run_async(job, made))
            return
        for row in job.iterate(made, key=self.source.key):
            self.work(job, row)

    async def run_async(self, job: Any, source: Any) -> None:
        async for row in job.iterate(source, key=self.source.key):
            self.work(job, row)

    def work(self, job: Any, row: Row) -> None:
        self.done.append(row.id)
        self.at.get(f"row_{row.id}", lambda _: None)(job)


def fail(_: Any) -> None:
    raise ValueError("no")


def status(job: Any) -> str:
    return STATUSES.by_value(job.status.hget())


def cursor(job: Any) -> Any:
    text = job.cursor.hget()
    return json.loads(text) if text else None


def runs(code: Any, *, jobs: int = 1, **options: Any) -> Worker:
    return work(callback=code, max_loops=jobs, **options)


def ids(*numbers: int) -> list[int]:
    return list(numbers)


ALL = [row.id for row in ROWS]


class TestALoop:
    @pytest.mark.parametrize("source", SOURCES.values(), ids=SOURCES)
    def test_goes_on_where_it_was_and_leaves_nothing(self, source: Source) -> None:
        job, code = Long.add_job("1", retry_policy=Retry(1, delay=0)), Worked(source, row_5=fail)
        runs(code)
        assert (code.done, status(job)) == (ids(2, 3, 5), "WAITING")
        assert cursor(job) == {"iterate": {"index": 2} if source.key is None else {"key": 3, "count": 2}}
        code.at.clear()
        runs(code)
        assert (code.done, status(job), cursor(job)) == (ids(2, 3, 5, 5, 7, 11, 13), "SUCCESS", None)

    @pytest.mark.parametrize("source", SOURCES.values(), ids=SOURCES)
    def test_gives_way_between_two_items_if_the_worker_has_to_end(self, source: Source) -> None:
        worker = worker_of(max_loops=9)
        code = Worked(source, row_5=lambda _: setattr(worker, "end_forced", True))
        worker.callback = code
        job = Long.add_job("1")
        worker.run()
        assert (code.done, status(job), job.tries.hget()) == (ids(2, 3, 5), "WAITING", None)
        runs(code)
        assert (code.done, status(job), job.tries.hget()) == (ALL, "SUCCESS", "1")

    def test_gives_way_as_the_log_and_the_place_in_the_list_tell(self, caplog: pytest.LogCaptureFixture) -> None:
        code = Worked()
        first, second = Brief.add_job("1"), Brief.add_job("2")
        runs(code)
        assert (code.done, first.tries.hget()) == (ids(2), None)
        assert Queue.get_queue("queue").waiting.lmembers() == [second.ident, first.ident]
        assert "[queue|1|1] released, because it ran for more than 1e-06 s, and goes on later" in messages(caplog)
        runs(code, jobs=10)
        assert sorted(code.done) == sorted([*ALL, *ALL][:11])
        runs(code, jobs=3)
        assert [status(job) for job in (first, second)] == ["SUCCESS", "SUCCESS"]

    def test_has_no_limit_if_its_class_has_none(self) -> None:
        Brief.max_run_time = 0  # type: ignore[assignment]
        try:
            code = Worked()
            Brief.add_job("1")
            runs(code)
        finally:
            Brief.max_run_time = timedelta(microseconds=1)
        assert code.done == ALL

    def test_that_was_left_by_break_goes_on_there(self) -> None:
        seen: list[int] = []

        def code(job: Any, queue: Queue) -> None:
            for row in job.iterate(ROWS):
                seen.append(row.id)
                if row.id == 5 and len(seen) == 3:
                    break
            for row in job.iterate(ROWS, name="second"):
                seen.append(-row.id)
                fail(job) if len(seen) == 5 else None

        job = Long.add_job("1", retry_policy=Retry(1, delay=0))
        runs(code, jobs=2)
        assert seen == [2, 3, 5, -2, -3, 5, 7, 11, 13, -3, -5, -7, -11, -13]
        assert status(job) == "SUCCESS"

    def test_that_is_done_is_not_done_again(self) -> None:
        seen: list[Any] = []

        def code(job: Any, queue: Queue) -> None:
            seen.extend(job.iterate("ab".join(["x", "y"]).split("a"), name="first"))
            seen.extend(job.iterate(ROWS[:1], name="second"))
            if len(seen) < 4:
                raise ValueError

        job = Long.add_job("1", retry_policy=Retry(1, delay=0))
        runs(code)
        assert cursor(job) == {"first": {"done": True}, "second": {"done": True}}
        runs(code)
        assert len(seen) == 3
        assert status(job) == "ERROR"

    def test_begins_anew_after_an_error_if_the_class_says_so(self) -> None:
        job, code = Anew.add_job("1", retry_policy=Retry(1, delay=0)), Worked(row_5=fail)
        runs(code)
        assert cursor(job) is None
        code.at.clear()
        runs(code)
        assert code.done == [2, 3, 5, *ALL]

    @pytest.mark.parametrize("restart", [False, True])
    @pytest.mark.parametrize("many", [False, True])
    def test_of_a_job_that_is_put_back_by_hand_goes_on_unless_it_is_to_restart(self, restart: bool, many: bool) -> None:
        job, code = Long.add_job("1"), Worked(row_5=fail)
        runs(code)
        assert status(job) == "ERROR"
        code.at.clear()
        if many:
            JobFilter("status=error").requeue_all(restart=restart)
        else:
            job.requeue(restart=restart)
        code.done.clear()
        runs(code)
        assert code.done == (ALL if restart else ALL[2:])

    def test_goes_on_after_the_job_put_itself_back(self) -> None:
        def put_back(job: Any) -> None:
            code.at.clear()
            raise Requeue

        code = Worked(row_5=put_back)
        Long.add_job("1")
        runs(code, jobs=2)
        assert code.done == [2, 3, 5, 5, 7, 11, 13]

    def test_goes_on_in_a_claim_of_an_application(self) -> None:
        code = Worked(row_5=fail)
        job = Long.add_job("1", retry_policy=Retry(1, delay=0))
        with pytest.raises(ValueError, match="no"), job.claim():
            code(job, Queue.get_queue("queue"))
        code.at.clear()
        with job.claim():
            code(job, Queue.get_queue("queue"))
        assert (code.done, status(job)) == ([2, 3, 5, *ALL[2:]], "SUCCESS")

    def test_in_a_claim_gives_way_without_an_exception(self) -> None:
        code, job = Worked(), Brief.add_job("1")
        for _ in ALL:
            with job.claim():
                code(job, Queue.get_queue("queue"))
        with job.claim():
            code(job, Queue.get_queue("queue"))
        assert (code.done, status(job)) == (ALL, "SUCCESS")

    def test_of_a_job_that_no_one_claimed_is_an_ordinary_loop(self) -> None:
        job, code = Brief.add_job("1"), Worked()
        code(job, Queue.get_queue("queue"))
        assert (code.done, cursor(job), job.attempt_token) == (ALL, None, None)


def renewing(worker: Worker) -> Callable[[Any], None]:
    """Return a function that renews the leases of a worker, as its thread does."""
    return lambda job: worker._loop.leases.renew(redis_of(job))


class TestWhatIsKept:
    def test_is_kept_with_the_renewal_of_the_lease_and_a_kill_repeats_what_came_after(
        self, redis_client: redis.Redis
    ) -> None:
        """The holder dies: here, it just does nothing more."""
        job, code = Long.add_job("1"), Worked(row_11=fail)
        claim = job.claim()
        code.at["row_5"] = lambda _: claim.renew()
        with pytest.raises(ValueError, match="no"):
            code(job, claim.queue)
        assert (cursor(job), status(job)) == ({"iterate": {"index": 2}}, "RUNNING")
        redis_client.zadd(f"{job.queue_key.hget()}:_running", {job.ident: 1})
        rescuer = worker_of()
        rescuer.update_keys()
        run_task(rescuer, "rescuer")
        assert job.rescues.hget() == "1"
        alive, rescues = worker_of(), list[Any]()
        code.at = {"row_7": lambda job: renewing(alive)(job) or rescues.append(job.rescues.hget())}
        code.done.clear()
        alive.callback = code
        alive.run()
        assert (code.done, rescues, status(job)) == (ids(5, 7, 11, 13), [None], "SUCCESS")

    def test_nothing_is_sent_for_it_in_between(self, redis_client: redis.Redis) -> None:
        """A loop of many items costs no command more than one of none."""
        counts = []
        for number in (1, 500):
            job = Long.add_job(str(number))
            before = redis_client.info("stats")["total_commands_processed"]
            runs(lambda job, queue, n=number: list(job.iterate(range(n))))
            counts.append(redis_client.info("stats")["total_commands_processed"] - before)
            assert status(job) == "SUCCESS"
        assert abs(counts[1] - counts[0]) < 200

    def test_progress_follows_if_the_length_is_known(self) -> None:
        worker = worker_of()
        worker.callback = Worked(row_7=renewing(worker))
        job = Long.add_job("1")
        told: list[Any] = []
        worker.callback.at["row_11"] = lambda job: told.append(job.read_progress())
        worker.run()
        assert [(each.fraction, each.text) for each in told] == [(0.5, "3 of 6")]
        assert job.read_progress().fraction == 1

    def test_own_progress_counts_instead(self) -> None:
        worker = worker_of()
        worker.callback = Worked(row_2=lambda job: job.progress(0.1, "mine"), row_7=renewing(worker))
        job = Long.add_job("1")
        worker.run()
        assert job.read_progress().text == "mine"

    @pytest.mark.parametrize(("job_class", "at"), [(Long, {}), (Anew, {"row_11": fail})])
    def test_a_renewal_that_comes_late_brings_back_nothing(self, job_class: type[Long], at: dict[str, Any]) -> None:
        """The thread that renews the lease may have begun before the end of the job, and come after it."""
        claims: list[Any] = []
        code = Worked(row_2=lambda job: claims.append(vars(job)["_run_in_worker"]), **at)
        job = job_class.add_job("1")
        runs(code)
        assert status(job) == ("ERROR" if at else "SUCCESS")
        for claim in claims:
            assert claim.renew(redis_of(job), 60) is False
        assert cursor(job) is None
        code.at.clear()
        code.done.clear()
        job.requeue() if at else job.enqueue_or_delay("queue")
        runs(code)
        assert code.done == ALL

    def test_is_shown(self, capsys: pytest.CaptureFixture[str]) -> None:
        job = Long.add_job("1")
        runs(Worked(row_5=fail))
        assert job_details(job.ident).cursor == '{"iterate":{"index":2}}'
        assert [reason.text for reason in job.explain().reasons if reason.code == "cursor"] == [
            'Its next run goes on where it was, unless it is put back with --restart: {"iterate":{"index":2}}'
        ]

    def test_a_job_that_lost_its_claim_ends_at_its_next_item(self, redis_client: redis.Redis) -> None:
        worker = worker_of()
        job = Long.add_job("1")

        def lose(running: Any) -> None:
            redis_client.hset(job.key, "_claim_token", "another")
            renewing(worker)(running)

        worker.callback = code = Worked(row_5=lose)
        worker.run()
        assert (code.done, cursor(job), status(job)) == (ids(2, 3, 5), None, "RUNNING")
        redis_client.hdel(job.key, "_claim_token")
        job.enqueue_or_delay()
        job.status.hset("c")
        job.queued.delete()
        redis_client.delete(f"{job.queue_key.hget()}:_running", f"{job.queue_key.hget()}:waiting")

    def test_a_job_that_is_canceled_ends_at_its_next_item(self) -> None:
        worker = worker_of()
        job = Long.add_job("1")
        worker.callback = code = Worked(row_5=lambda _: job.cancel() and renewing(worker)(job))
        worker.run()
        assert (code.done, status(job)) == (ids(2, 3, 5), "CANCELED")


class TestAStoredCursor:
    @pytest.mark.parametrize(
        "text",
        [
            *("", "{", "[]", "5", "null", '"x"', "\0", "NaN", '{"iterate":5}', '{"iterate":{"index":-1}}'),
            *('{"iterate":{"index":true}}', '{"iterate":{"index":1e400}}', '{"iterate":{"key":1}}', "[" * 50_000),
            *('{"iterate":{"index":1,"more":2}}', '{"iterate":{"$bytes":"?"}}', "1" * 5000, "{" + " " * 70_000 + "}"),
            '{"iterate":{"index":99999999999999999999999}}',
        ],
    )
    def test_that_is_foreign_lets_it_begin_anew(self, text: str, caplog: pytest.LogCaptureFixture) -> None:
        job, code = Long.add_job("1"), Worked()
        job.cursor.hset(text)
        job.explain()
        runs(code)
        assert (code.done, status(job)) == (ALL, "SUCCESS")
        warned = [each.getMessage() for each in caplog.records if each.levelno == logging.WARNING]
        assert len(warned) == (text not in ("", "{" + " " * 70_000 + "}") or len(text) > 65536)
        assert all(each.startswith("[1] its cursor cannot be read, so it begins anew: ") for each in warned)

    @pytest.mark.parametrize(
        ("stored", "source", "why"),
        [
            ({"index": 7}, ROWS, "7 items are done, and its source has 6"),
            ({"key": 5, "count": 3}, ROWS, "it is a cursor by key, and the loop goes by index now"),
        ],
    )
    def test_that_does_not_fit_by_index_is_an_error_that_says_what_to_do(
        self, stored: Any, source: Any, why: str
    ) -> None:
        job = Long.add_job("1")
        job.cursor.hset(json.dumps({"iterate": stored}))
        runs(lambda job, queue: list(job.iterate(source)))
        (error,) = Error.collection_for_job(job).instances()
        assert error.type.hget() == "CursorLost"
        assert error.message.hget().startswith(f"The loop 'iterate' cannot go on from its cursor: {why}; to begin anew")
        job.requeue(restart=True)
        runs(lambda job, queue: list(job.iterate(source)))
        assert status(job) == "SUCCESS"

    @pytest.mark.parametrize("is_async", [False, True])
    def test_whose_item_is_gone_is_an_error(self, is_async: bool) -> None:
        job = Long.add_job("1")
        job.cursor.hset('{"iterate":{"key":4,"count":2}}')
        source = SOURCES["an async iterable by key" if is_async else "a sequence by key"]
        runs(Worked(source))
        (error,) = Error.collection_for_job(job).instances()
        assert "its source has no item of the key 4;" in error.message.hget()

    def test_of_a_step_that_was_a_loop_is_an_error(self) -> None:
        job = Long.add_job("1")
        job.cursor.hset('{"charge":{"index":4}}')
        runs(stepping(("charge",), []))
        assert [error.type.hget() for error in Error.collection_for_job(job).instances()] == ["CursorLost"]

    @pytest.mark.proof
    def test_of_100_mb_is_not_sent_to_the_worker(self, redis_client: redis.Redis) -> None:
        job, code = Long.add_job("1"), Worked()
        redis_client.hset(job.key, "_cursor", "x" * 10**8)
        before = redis_client.info("stats")["total_net_output_bytes"]
        runs(code)
        assert (code.done, status(job)) == (ALL, "SUCCESS")
        assert redis_client.info("stats")["total_net_output_bytes"] - before < 10**6


class TestWrongUse:
    @each(
        ("source", "key", "message"),
        [
            ("text", None, "A loop needs a sequence"),
            (5, None, "A loop needs a sequence"),
            ({1, 2}, key_of, "A set has no order"),
            (iter(ROWS), None, "Only a sequence can go on by its index"),
            ({1: 2}, None, "Only a sequence can go on by its index"),
            (rows_after, None, "Only a sequence can go on by its index"),
            (ROWS, "id", "The key must be a function"),
            (lambda: ROWS, key_of, r"The source is called as source\(after=cursor\), and cannot be"),
        ],
    )
    def test_of_a_source_is_refused_at_once(self, source: Any, key: Any, message: str) -> None:
        with pytest.raises(TypeError, match=message):
            Long.add_job("1").iterate(source, key=key)

    @each("name", [None, "", "x" * 101, 5, b"x"])
    def test_of_a_name_is_refused(self, name: Any) -> None:
        for begin in (lambda job: job.iterate(ROWS, name=name), lambda job: job.step(name)):
            with pytest.raises((TypeError, ValueError), match="The name of a loop or a step"):
                begin(Long.add_job("1"))

    @pytest.mark.parametrize(
        ("key", "message"),
        [
            (lambda row: row, "it would come back as"),
            (lambda row: object(), "cannot be stored as JSON"),
            (lambda row: float("nan"), "cannot be stored as JSON"),
            (lambda row: "x" * MAX_CURSOR_BYTES, "is at most 4,096 bytes long"),
            (lambda row: "\ud800", "must be valid text"),
        ],
    )
    def test_of_a_key_is_an_error_of_the_job(self, key: Any, message: str) -> None:
        job = Long.add_job("1")
        runs(lambda job, queue: list(job.iterate(ROWS, key=key)))
        (error,) = Error.collection_for_job(job).instances()
        assert "'iterate'" in error.message.hget()
        assert message in error.message.hget()

    @pytest.mark.parametrize("wrong", [object(), "\ud800", "x" * MAX_BYTES], ids=["object", "surrogate", "long"])
    def test_of_a_later_key_is_an_error_once_it_is_to_be_kept_and_the_lease_is_renewed(self, wrong: Any) -> None:
        worker, job = worker_of(), Long.add_job("1")
        worker.callback = code = Worked(Source(lambda: ROWS, lambda row: row.id if row.id < 5 else wrong))
        code.at["row_7"] = renewing(worker)
        worker.run()
        assert (code.done, status(job), cursor(job)) == (ids(2, 3, 5, 7), "ERROR", None)

    @pytest.mark.proof
    def test_of_too_many_names_is_an_error(self) -> None:
        def code(job: Any, queue: Queue) -> None:
            for number in range(MAX_BYTES):
                with job.step(f"{number:0100}"):
                    pass

        job = Long.add_job("1")
        job.cursor.hset(json.dumps({f"{number:0100}": {"done": True} for number in range(560)}))
        runs(code)
        (error,) = Error.collection_for_job(job).instances()
        assert error.message.hget().startswith("The text of all cursors of a job is at most 65,536 bytes long")

    def test_of_loops_is_refused(self) -> None:
        def nested(job: Any, queue: Queue) -> None:
            for _ in job.iterate(ROWS, name="outer"):
                list(job.iterate(ROWS, name="inner"))

        def stepped(job: Any, queue: Queue) -> None:
            for _ in job.iterate(ROWS, name="outer"):
                with job.step("inner"):
                    pass

        def again(job: Any, queue: Queue) -> None:
            list(job.iterate(ROWS))
            list(job.iterate(ROWS))

        job = Long.add_job("1")
        for code, message in (
            (nested, "'inner' begins inside 'outer'"),
            (stepped, "'inner' begins inside 'outer'"),
            (again, "'iterate' was used before in this run"),
        ):
            runs(code)
            (error,) = Error.collection_for_job(job).instances()
            assert message in error.message.hget()
            error.delete()
            job.requeue(restart=True)

    def test_of_an_async_source_in_an_ordinary_loop_says_so(self) -> None:
        with pytest.raises(TypeError, match="needs an 'async for'"):
            list(Long.add_job("1").iterate(rows_in_time, key=key_of))

    @pytest.mark.parametrize("value", [-1, float("inf"), timedelta(days=-1)])
    def test_of_the_limit_is_refused(self, value: Any) -> None:
        with pytest.raises(ConfigurationException, match=r"Wrong\.max_run_time must be from 0 to"):
            type("Wrong", (Long,), {"__module__": __name__, "abstract": True, "max_run_time": value})


def stepping(names: tuple[str, ...], done: list[Any], **at: Callable[[Any], Any]) -> Any:
    """The code of a job of some steps."""

    def code(job: Any, queue: Queue) -> None:
        for name in names:
            with job.step(name) as step:
                if step.is_new:
                    done.append(name)
                    at.get(name, lambda _: None)(job)

    return code


class TestASteps:
    def test_that_are_done_are_kept_at_their_end_and_not_done_again(self) -> None:
        done: list[Any] = []
        seen: list[Any] = []
        job = Long.add_job("1", retry_policy=Retry(1, delay=0))
        runs(stepping(("charge", "mail"), done, mail=lambda job: seen.append(cursor(job)) or fail(job)))
        assert (seen, status(job)) == ([{"charge": {"done": True}}], "WAITING")
        runs(stepping(("charge", "mail"), done))
        assert (done, status(job), cursor(job)) == (["charge", "mail", "mail"], "SUCCESS", None)

    def test_each_of_them_costs_one_round_trip(self, redis_client: redis.Redis) -> None:
        counts = []
        for number in (0, 100):
            Long.add_job(str(number))
            before = redis_client.info("commandstats").get("cmdstat_evalsha", {}).get("calls", 0)
            runs(stepping(tuple(f"step {each}" for each in range(number)), []))
            counts.append(redis_client.info("commandstats")["cmdstat_evalsha"]["calls"] - before)
        assert 90 <= counts[1] - counts[0] <= 180

    def test_the_job_gives_way_after_one(self) -> None:
        worker, done = worker_of(max_loops=9), list[Any]()
        worker.callback = stepping(("a", "b"), done, a=lambda _: setattr(worker, "end_forced", True))
        job = Long.add_job("1")
        worker.run()
        assert (done, cursor(job), job.tries.hget()) == (["a"], {"a": {"done": True}}, None)
        runs(stepping(("a", "b"), done))
        assert (done, status(job)) == (["a", "b"], "SUCCESS")

    def test_a_job_that_is_canceled_ends_with_the_step_that_is_kept(self) -> None:
        done: list[str] = []
        job = Long.add_job("1")
        runs(stepping(("a", "b"), done, a=lambda _: job.cancel()))
        assert (done, status(job), cursor(job)) == (["a"], "CANCELED", {"a": {"done": True}})

    def test_a_block_that_does_not_ask_runs_again_and_is_warned_of(self, caplog: pytest.LogCaptureFixture) -> None:
        done: list[int] = []

        def code(job: Any, queue: Queue) -> None:
            with job.step("charge"):
                done.append(1)
            if len(done) == 1:
                raise ValueError

        Long.add_job("1", retry_policy=Retry(1, delay=0))
        runs(code, jobs=2)
        assert len(done) == 2
        warned = [each.getMessage() for each in caplog.records if each.levelno == logging.WARNING]
        assert warned == ["The step 'charge' was done before, and ran again: ask step.is_new"]

    def test_in_a_coroutine_are_async(self) -> None:
        done: list[str] = []

        async def code(job: Any) -> None:
            for name in ("a", "b"):
                async with job.step(name) as step:
                    if step.is_new:
                        done.append(name)
            if len(done) == 2 and job.tries.hget() == "1":
                raise ValueError

        job = Long.add_job("1", retry_policy=Retry(1, delay=0))
        runs(lambda job, queue: asyncio.run(code(job)))
        assert cursor(job) == {"a": {"done": True}, "b": {"done": True}}
        runs(lambda job, queue: asyncio.run(code(job)))
        assert (done, status(job)) == (["a", "b"], "SUCCESS")

    def test_one_that_ends_without_its_claim_is_an_error(self, redis_client: redis.Redis) -> None:
        raised: list[Exception] = []

        def code(job: Any, queue: Queue) -> None:
            try:
                with job.step("charge"):
                    redis_client.hset(job.key, "_claim_token", "another")
            except ClaimLost as error:
                raised.append(error)
                redis_client.hset(job.key, "_claim_token", job.attempt_token)

        job = Long.add_job("1")
        runs(code)
        assert (len(raised), status(job)) == (1, "SUCCESS")


def test_each_attempt_has_a_token_of_its_own() -> None:
    seen: list[str] = []

    def code(job: Any, queue: Queue) -> None:
        assert job.claim_token.hget() == job.attempt_token
        seen.append(job.attempt_token)
        if len(seen) == 1:
            raise ValueError

    job = Long.add_job("1", retry_policy=Retry(1, delay=0))
    assert job.attempt_token is None
    runs(code, jobs=2)
    assert len(set(seen)) == 2
