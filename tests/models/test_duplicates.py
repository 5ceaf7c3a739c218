"""Adding a job whose identifier is queued already: by default it is kept, and it may be replaced."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterator
from datetime import datetime
from typing import Any

import pytest
import redis
from invariants import contents, violations
from limpyd import fields
from limpyd.exceptions import UniquenessError
from running import work, worker_of, working
from servers import wait_until

from limpyd_jobs import Argument, Error, Job, Queue, Retry, job
from limpyd_jobs.integration import adding_once
from limpyd_jobs.models.outbox import read_call, write_call

LATER, MUCH_LATER = datetime(2099, 1, 1), datetime(2099, 1, 2)


class Draft(Job):
    namespace = "again"
    queue_name = "queue"
    text = Argument(str)
    author = Argument(str, default="anonymous")
    colour = fields.InstanceHashField(indexable=True)
    size = fields.InstanceHashField(default="A4")

    def run(self, queue: Queue) -> None:
        ran.append(self.arguments.text)
        if self.arguments.text == "fails":
            raise ValueError("no")


class Numbered(Job):
    namespace = "again"
    queue_name = "queue"
    number = fields.InstanceHashField(unique=True)
    lines = fields.ListField()


class Placing(Job):
    namespace = "again"
    queue_name = "queue"

    def enqueue_or_delay(self, *args: Any, **kwargs: Any) -> None:
        super().enqueue_or_delay(*args, **kwargs)


class WithTheField(Job):
    namespace = "again"
    queue_name = "queue"
    on_duplicate = fields.InstanceHashField()
    add_outcome = fields.InstanceHashField()


@job(queue="queue", unique="to")
def send(to: str, text: str, on_duplicate: str = "theirs") -> None: ...


ran: list[str] = []


@pytest.fixture(autouse=True)
def _whole(redis_client: redis.Redis) -> Iterator[None]:
    """All invariants hold after each test."""
    ran.clear()
    yield
    models = (Draft, Numbered, Placing, WithTheField, send.job_class)
    assert violations(redis_client, *models, Queue, Error) == []


def replace(text: str, identifier: str = "a", **options: Any) -> Draft:
    return Draft.add_job(identifier, text=text, on_duplicate="replace", **options)


class TestAReplacedJob:
    def test_has_the_fields_of_the_last_call_the_defaults_and_no_others(self) -> None:
        first = replace("one", author="ann", colour="red", size="A5", job_timeout=5, retry_policy=Retry(times=2))
        second = replace("two")
        assert (first.add_outcome, second.add_outcome, second == first) == ("added", "replaced", True)
        found = Draft.get(first.pk.get())
        assert (found.arguments.text, found.arguments.author, found.size.hget()) == ("two", "anonymous", "A4")
        assert found.hmget("colour", "_job_timeout", "_retry_policy") == [None, None, None]
        assert list(Draft.collection(colour="red")) == []
        assert replace("three", colour="blue") == first
        assert list(Draft.collection(colour="blue")) == [first.pk.get()]

    def test_keeps_its_place_in_its_waiting_list(self) -> None:
        jobs = [replace("one", identifier) for identifier in "abc"]
        replace("two", "a")
        assert Queue.get_queue("queue").waiting.lmembers() == [each.ident for each in jobs]
        replace("two", "c", prepend=True)
        assert Queue.get_queue("queue").waiting.lmembers() == [jobs[number].ident for number in (2, 0, 1)]

    def test_has_the_delay_the_queue_and_the_priority_of_the_last_call(self) -> None:
        found = replace("one", delayed_until=LATER)
        for options, place in (
            ({"delayed_until": MUCH_LATER}, ("queue", 0, "delayed")),
            ({"priority": -3, "delayed_until": LATER}, ("queue", -3, "delayed")),
            ({}, ("queue", 0, "waiting")),
            ({"queue_name": "other"}, ("other", 0, "waiting")),
            ({"queue_name": "other", "delayed_until": LATER}, ("other", 0, "delayed")),
        ):
            assert replace("two", **options).add_outcome == "replaced"
            until = options.get("delayed_until")
            assert found.hmget("delayed_until", "priority") == [str(until) if until else None, str(place[1])]
            assert [place] == [
                (*queue.hmget("name")[:1], int(queue.hmget("priority")[0]), name)
                for queue in Queue.collection().instances()
                for name in ("waiting", "delayed")
                if found.ident in (queue.waiting.lmembers() if name == "waiting" else queue.delayed.zrange(0, -1))
            ]

    def test_that_version_2_added_is_found_in_its_list(self, redis_client: redis.Redis) -> None:
        found = replace("one")
        redis_client.hdel(found.key, "_queue_key")
        replace("two", delayed_until=LATER)
        assert Queue.get_queue("queue").waiting.lmembers() == []
        assert redis_client.hget(found.key, "_queue_key") == "jobs:queue:1"

    def test_begins_anew_though_it_was_tried(self) -> None:
        found = replace("fails", retry_policy=Retry(times=3, delay=1000))
        work(callback=None)
        found.cursor.hset('{"rows": 7}')
        assert found.hmget("tries", "status") == ["1", "d"]
        assert replace("two").add_outcome == "replaced"
        assert found.hmget("tries", "status", "start", "end", "_cursor", "_failing_since") == [None, "w", *[None] * 4]
        work(callback=None)
        assert (ran, found.hmget("tries", "status")) == (["fails", "two"], ["1", "s"])

    def test_may_wait_for_its_begin_as_long_as_a_new_one(self, redis_client: redis.Redis) -> None:
        found = replace("one", start_within=60)
        redis_client.hset(found.key, "added", "2020-01-01 00:00:00")
        replace("two", start_within=60)
        work(callback=None)
        assert (ran, found.status.hget()) == (["two"], "s")

    def test_that_follows_a_canceled_one_which_still_runs_follows_it_as_before(self) -> None:
        claim = replace("one").claim(owner="me", lease=1000)
        claim.job.cancel()
        follower = replace("two")
        assert (follower.add_outcome, follower.status.hget()) == ("added", "d")
        assert (replace("three").add_outcome, follower.status.hget()) == ("replaced", "d")
        claim.succeed()
        assert follower.hmget("status", "_follows", "delayed_until") == ["w", None, None]
        work(callback=None)
        assert ran == ["three"]


@pytest.mark.parametrize("runs", ["claimed", "by version 2"])
def test_a_job_that_runs_is_not_replaced(redis_client: redis.Redis, runs: str) -> None:
    found = replace("one")
    if runs == "claimed":
        found.claim(owner="me", lease=1000)
    else:
        redis_client.lrem("jobs:queue:1:waiting", 0, found.ident)
        found.status.hset("r")
    before = contents(redis_client)
    again = replace("two", priority=7, delayed_until=LATER)
    assert (again.add_outcome, again == found) == ("running", True)
    after = contents(redis_client)
    assert {key: value for key, value in after.items() if before.get(key) != value} == {}
    if runs == "by version 2":
        found.status.hset("c")
        found.queued.delete()


def test_a_job_is_kept_unless_the_call_says_otherwise() -> None:
    first = Draft.add_job("a", text="one")
    assert (first.add_outcome, Draft.get(first.pk.get()).add_outcome) == ("added", None)
    for options, outcome in (({}, "existing"), ({"priority": 1}, "moved"), ({"on_duplicate": None}, "existing")):
        assert Draft.add_job("a", text="two", **options).add_outcome == outcome
    assert Draft.add_job("a", text="two", on_duplicate="keep").add_outcome == "existing"
    assert Draft.get(first.pk.get()).arguments.text == "one"


def test_many_are_replaced_in_one_step() -> None:
    replace("one", "b")
    options: Any = {"on_duplicate": "replace", "delayed_until": LATER}
    jobs = Draft.add_jobs([{"identifier": each, "text": f"{each} 2"} for each in "abcb"], **options)
    assert [each.add_outcome for each in jobs] == ["added", "replaced", "added", "replaced"]
    assert [each.status.hget() for each in jobs] == ["d"] * 4
    kept = Draft.add_jobs([{"identifier": "a", "text": "3"}, {"identifier": "b", "text": "3", **options}])
    assert [(each.add_outcome, each.arguments.text) for each in kept] == [("existing", "a 2"), ("replaced", "3")]


def test_it_is_awaited_as_well() -> None:
    async def twice() -> list[Any]:
        first = await Draft.aadd_job("a", text="one")
        second = await Draft.aadd_job("a", text="two", on_duplicate="replace")
        (third,) = await Draft.aadd_jobs([{"identifier": "a", "text": "three"}], on_duplicate="replace")
        return [first, second, third]

    assert [each.add_outcome for each in asyncio.run(twice())] == ["added", "replaced", "replaced"]


def test_a_function_replaces_its_job_and_may_have_a_parameter_of_that_name() -> None:
    adding = send.configure(on_duplicate="replace", delayed_for=60)
    first, second = adding.add("ann", "one", on_duplicate="mine"), adding.add("ann", "two")
    assert (first.outcome, second.outcome, second.added) == ("added", "replaced", False)
    found = send.job_class.get(first.job.pk.get())
    assert (found.arguments.text, found.arguments.arg_on_duplicate) == ("two", "theirs")
    assert repr(second) == f"<{first.ident}, replaced>"


def test_a_field_of_the_application_with_that_name_is_given_its_value() -> None:
    for _ in range(2):
        found = WithTheField.add_job("a", on_duplicate="replace", add_outcome="x")
    assert found.hmget("on_duplicate", "add_outcome") == ["replace", "x"]
    assert WithTheField.add_jobs([{"identifier": "b", "on_duplicate": "?"}])[0].on_duplicate.hget() == "?"


def test_what_was_added_once_is_replaced_once() -> None:
    replace("one")
    for _ in range(2):
        with adding_once("token"):
            replace("two")
        Draft.add_job("a", on_duplicate="replace", text="three", size="A1")
    assert Draft.get("1").arguments.text == "three"
    with adding_once("token"):
        assert replace("four").add_outcome == "existing"


def test_an_outbox_writes_it_down() -> None:
    replace("one")
    written = write_call(Draft, ("a",), {"text": "two", "on_duplicate": "replace"})
    args, kwargs = read_call(Draft, written.text)
    assert json.loads(written.text)[1]["on_duplicate"] == "replace"
    assert Draft.add_job(*args, **kwargs).add_outcome == "replaced"
    with pytest.raises(ValueError, match="on_duplicate is"):
        write_call(Draft, ("a",), {"text": "two", "on_duplicate": "drop"})


class TestItIsRefused:
    def test_if_it_is_another_word(self, redis_client: redis.Redis) -> None:
        for way in (Draft.add_job, lambda name, **options: Draft.add_jobs([name], **options)):
            with pytest.raises(ValueError, match='on_duplicate is "keep", "replace" or "replace_or_follow", not'):
                way("a", text="x", on_duplicate="drop")
        assert contents(redis_client) == {}

    def test_for_what_no_script_can_write(self, redis_client: redis.Redis) -> None:
        with pytest.raises(ValueError, match=r"Numbered.add_job .* the field 'lines', which no script can write"):
            Numbered.add_job("a", number=1, lines=["x"], on_duplicate="replace")
        with pytest.raises(ValueError, match=r"Placing.add_job .* own way to put a job in a queue"):
            Placing.add_job("a", on_duplicate="replace")
        assert contents(redis_client) == {}

    def test_for_the_value_of_a_unique_field_of_another_job(self) -> None:
        mine, _ = (Numbered.add_job(name, number=number, on_duplicate="replace") for number, name in enumerate("ab"))
        with pytest.raises(UniquenessError, match="number"):
            Numbered.add_job("a", number=1, on_duplicate="replace")
        assert Numbered.add_job("a", number=0, on_duplicate="replace").add_outcome == "replaced"
        assert mine.number.hget() == "0"

    def test_if_a_key_is_of_another_type_and_then_nothing_is_changed(self, redis_client: redis.Redis) -> None:
        replace("one", colour="red")
        for key in ("again:draft:colour:blue", "jobs:queue:1:delayed"):
            redis_client.set(key, "x")
            before = contents(redis_client)
            with pytest.raises(redis.ResponseError, match="WRONGTYPE"):
                replace("two", colour="blue", delayed_until=LATER)
            assert contents(redis_client) == before
            redis_client.delete(key)


def test_what_runs_is_the_last_call_before_it_was_claimed(redis_client: redis.Redis) -> None:
    expected: list[str] = []
    worker = worker_of(callback=None, max_loops=10_000)
    with working(worker):
        for number in range(150):
            outcome = replace(str(number)).add_outcome
            if outcome == "added":
                expected.append(str(number))
            elif outcome == "replaced":
                expected[-1] = str(number)
        wait_until(lambda: redis_client.scard("again:draft:queued:1") == 0, "the end of all jobs")
        worker.end_forced = True
    assert ran == expected
