"""Limits where the newest job counts: the older ones that wait are canceled, and maybe the one that runs."""

from __future__ import annotations

from typing import Any

import pytest
import redis
from cases import each
from limpyd import fields
from worlds import TOKEN, World, pk_of

from limpyd_jobs import Job, Limit, NotClaimable
from limpyd_jobs.check import check
from limpyd_jobs.query import rest_limit


class Render(Job):
    """Only the newest of a page waits."""

    namespace = "newest"
    queue_name = "q"
    page = fields.InstanceHashField(indexable=True)
    limits = [Limit("page", concurrency=1, on_limit="newest")]


class Preview(Job):
    """Only the newest of a page waits, and takes the place of the one that runs."""

    namespace = "newest"
    queue_name = "q"
    page = fields.InstanceHashField()
    limits = [Limit("page", concurrency=2, on_limit="replace")]


class Fair(Job):
    """Pages take turns; only the newest of a page waits."""

    namespace = "newest"
    queue_name = "q"
    page = fields.InstanceHashField()
    limits = [Limit("page", concurrency=1, fair=True, on_limit="newest")]


class Trailing(Job):
    """One of a page in an hour: the newest."""

    namespace = "newest"
    queue_name = "q"
    page = fields.InstanceHashField()
    limits = [Limit("page", rate="1/h", on_limit="newest")]


class Patient(Job):
    """All of a page wait, though others that share the limit do not."""

    namespace = "newest"
    queue_name = "q"
    page = fields.InstanceHashField()
    limits = [Limit("page", name="shared", concurrency=1)]


class Hasty(Job):
    """Only the newest of a page waits, of this class."""

    namespace = "newest"
    queue_name = "q"
    page = fields.InstanceHashField()
    limits = [Limit("page", name="shared", concurrency=1, on_limit="replace")]


class Picky(Job):
    """None of a page waits, of this class."""

    namespace = "newest"
    queue_name = "q"
    page = fields.InstanceHashField()
    limits = [Limit("page", name="shared", concurrency=1, on_limit="drop")]


class Turning(Job):
    """None of a page waits; pages take turns."""

    namespace = "newest"
    queue_name = "q"
    page = fields.InstanceHashField()
    limits = [Limit("page", concurrency=1, fair=True, on_limit="drop")]


class Rendered(Job):
    """Only the newest of a page waits, or runs; all share a renderer."""

    namespace = "newest"
    queue_name = "q"
    page = fields.InstanceHashField()
    limits = [Limit(name="renderer", concurrency=1), Limit("page", concurrency=1, on_limit="replace")]


CLASSES = {
    cls.get_model_repr(): cls for cls in (Render, Preview, Fair, Trailing, Patient, Hasty, Picky, Turning, Rendered)
}
SUPERSEDED = "a newer job waits for its limit page"


@pytest.fixture
def world(redis_client: redis.Redis) -> World:
    return World(redis_client, Render)


def of(world: World, job_class: type[Job]) -> World:
    return World(world.client, job_class)


def add(world: World, pages: str, **options: Any) -> list[Job]:
    count = len(world.job_class.collection())
    return [world.add(f"{count + i}", fields={"page": page}, **options)[1] for i, page in enumerate(pages)]


def begin(world: World, token: str = TOKEN, *keys: str) -> str | None:
    """Claim the next job; return its pk."""
    delivery = world.claim(*keys, token=token, classes=CLASSES)
    while delivery and delivery.outcome in ("sorted", "found"):
        delivery = world.claim(*keys, token=token, classes=CLASSES)
    assert delivery is None or delivery.outcome == "claimed", delivery
    return delivery and delivery.pk


def statuses(jobs: list[Job]) -> str:
    return "".join(str(job.status.hget()) for job in jobs)


def reason(job: Job) -> str | None:
    return job._cancel_reason.hget()  # type: ignore[no-any-return]


@each("job_class", [Render, Fair])
def test_only_the_newest_of_a_key_waits(job_class: type[Job], redis_client: redis.Redis) -> None:
    redis_client.flushdb()
    world = World(redis_client, job_class)
    jobs = add(world, "aaab")
    assert begin(world, "1") == pk_of(jobs[0])
    assert begin(world, "2") == pk_of(jobs[3])
    assert begin(world, "none") is None
    assert statuses(jobs) == "rcwr"
    assert (reason(jobs[1]), world.places(jobs[1])) == (SUPERSEDED, [])
    jobs += add(world, "a")
    assert begin(world, "none") is None
    assert statuses(jobs) == "rccrw"
    world.succeed(jobs[0], "1")
    assert begin(world, "3") == pk_of(jobs[4])
    assert check(pause=0).findings == []


def test_jobs_that_no_limit_keeps_from_beginning_all_begin(world: World) -> None:
    jobs = add(world, "aa")
    begin(world, "1")
    world.succeed(jobs[0], "1")
    assert begin(world, "2") == pk_of(jobs[1])


def test_a_newest_job_that_was_canceled_takes_no_other_one_along(world: World) -> None:
    jobs = add(world, "aa")
    begin(world, "1")
    assert begin(world, "none") is None
    jobs += add(world, "a")
    jobs[2].cancel()
    assert begin(world, "none") is None
    jobs += add(world, "a")
    jobs[3].cancel()
    assert begin(world, "none") is None
    assert statuses(jobs) == "rwcc"


def test_an_older_job_in_another_queue_is_canceled_too(world: World) -> None:
    low = add(world, "aa", priority=0)
    assert begin(world, "1", world.waiting_key(priority=0)) == pk_of(low[0])
    assert begin(world, "none", world.waiting_key(priority=0)) is None
    high = add(world, "a", priority=5)
    assert begin(world, "none", world.waiting_key(priority=5), world.waiting_key(priority=0)) is None
    assert statuses([*low, *high]) == "rcw"


def test_of_the_jobs_that_a_rate_keeps_only_the_newest_waits(world: World) -> None:
    world = of(world, Trailing)
    jobs = add(world, "aaa")
    assert begin(world, "1") == pk_of(jobs[0])
    assert begin(world, "none") is None
    assert statuses(jobs) == "rcw"


def test_the_job_that_runs_for_longest_is_canceled_for_a_newer_one(world: World) -> None:
    world = of(world, Preview)
    jobs = add(world, "aa")
    begin(world, "1"), begin(world, "2")
    jobs += add(world, "a")
    assert begin(world, "none") is None
    assert statuses(jobs) == "crw"
    assert reason(jobs[0]) == SUPERSEDED
    jobs += add(world, "a")  # one that is canceled makes room for the newest
    assert begin(world, "none") is None
    assert statuses(jobs) == "crcw"
    world.finish_canceled(jobs[0], "1")
    assert begin(world, "3") == pk_of(jobs[3])
    assert world.succeed(jobs[1], "2").outcome == "done"


def test_a_job_that_runs_is_not_canceled_for_an_older_one_that_is_tried_again(world: World) -> None:
    world = of(world, Preview)
    jobs = add(world, "a")
    begin(world, "1")
    jobs += add(world, "aa")
    begin(world, "2")
    world.fail(jobs[0], "1", times=1, priority="0")
    begin(world, "3")
    assert statuses(jobs) == "wrr"
    assert begin(world, "none") is None
    assert statuses(jobs) == "crr"
    assert reason(jobs[0]) == "a newer job runs, of its limit page"


def test_a_job_that_is_tried_again_is_not_the_newest(world: World) -> None:
    (old,) = add(world, "a")
    begin(world, "1")
    jobs = add(world, "aa")
    world.fail(old, "1", times=1, priority="0")  # it comes after both of them now
    begin(world, "2")
    assert begin(world, "none") is None
    assert statuses([old, *jobs]) == "crw"


def test_the_newest_counts_while_another_limit_is_full_too(world: World) -> None:
    world = of(world, Rendered)
    jobs = add(world, "aaa")
    begin(world, "1")
    assert begin(world, "none") is None
    jobs += add(world, "a")
    assert begin(world, "none") is None
    assert statuses(jobs) == "cccw"
    world.finish_canceled(jobs[0], "1")
    assert begin(world, "2") == pk_of(jobs[3])
    jobs += add(world, "a")
    assert begin(world, "none") is None
    assert statuses(jobs) == "ccccw"


def test_no_job_that_runs_is_canceled_for_one_that_could_not_begin(world: World) -> None:
    world = of(world, Preview)
    jobs = add(world, "a")
    begin(world, "1")
    rest_limit(Preview, "page", "a")
    jobs += add(world, "aa")
    assert begin(world, "none") is None
    assert statuses(jobs) == "rcw"


def test_jobs_of_a_class_that_lets_them_wait_are_left_to_classes_that_share_its_limit(world: World) -> None:
    patient, hasty = of(world, Patient), of(world, Hasty)
    jobs = [*add(patient, "a"), *add(hasty, "a"), *add(patient, "a"), *add(hasty, "a")]
    begin(world, "1")
    assert begin(world, "none") is None
    assert statuses(jobs) == "rcww"


@each("first, second", [(Patient, Hasty), (Patient, Picky), (Hasty, Patient), (Picky, Hasty), (Hasty, Picky)])
def test_each_class_that_shares_a_limit_says_what_becomes_of_its_own_jobs(
    first: type[Job], second: type[Job], redis_client: redis.Redis
) -> None:
    redis_client.flushdb()
    world = World(redis_client, Render)
    holder = add(of(world, Patient), "a")
    assert begin(world, "1") == pk_of(holder[0])
    jobs = [job for job_class in (first, first, second, second) for job in add(of(world, job_class), "a")]
    assert begin(world, "none") is None
    left = {Patient: "ww", Hasty: "cw", Picky: "cc"}
    assert statuses([*holder, *jobs]) == "r" + left[first] + left[second]
    assert check(pause=0).findings == []
    waiting, running = {job.ident: job for job in jobs if job.status.hget() == "w"}, holder[0]
    while waiting:
        world.succeed(running, "1")
        delivery = world.claim(token="1", classes=CLASSES)
        assert delivery is not None
        assert delivery.outcome == "claimed"
        running = waiting.pop(delivery.ident)


def test_a_job_that_runs_is_replaced_by_its_own_class_only(world: World) -> None:
    patient, hasty = add(of(world, Patient), "a"), of(world, Hasty)
    begin(world, "1")
    jobs = add(hasty, "a")
    assert begin(world, "none") is None
    assert statuses([*patient, *jobs]) == "rw"
    world.succeed(patient[0], "1")
    assert begin(world, "2") == pk_of(jobs[0])
    patient += add(of(world, Patient), "aa")
    jobs += add(hasty, "a")
    assert begin(world, "none") is None
    assert statuses([*patient, *jobs]) == "swwcw"
    assert check(pause=0).findings == []


def test_jobs_that_take_turns_are_dropped_too(world: World) -> None:
    jobs = add(of(world, Turning), "aaab")
    assert {begin(world, "1"), begin(world, "2")} == {pk_of(jobs[0]), pk_of(jobs[3])}
    assert begin(world, "none") is None
    assert statuses(jobs) == "rccr"


def test_an_explicit_claim_is_refused_and_cancels_nothing(world: World) -> None:
    world = of(world, Preview)
    jobs = add(world, "aaa")
    begin(world, "1"), begin(world, "2")
    with pytest.raises(NotClaimable, match="limit"):
        jobs[2].claim(owner="me", lease=60)
    assert statuses(jobs) == "rrw"
