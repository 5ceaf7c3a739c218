"""What a limit keeps from beginning is parked, and begins as soon as it may: slots, lanes, rates, and all verbs."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
import redis
from cases import each
from limpyd import fields
from servers import wait_until
from worlds import LATER, TOKEN, World, pk_of, until

from limpyd_jobs import Error, Job, Limit, LimpydJobsException, NotClaimable, Queue, transitions
from limpyd_jobs.check import check, scripts
from limpyd_jobs.query import delete_queue, edit_job, queue_states, set_limit
from limpyd_jobs.records import audit
from limpyd_jobs.search.jobs import JobFilter
from limpyd_jobs.transitions.claiming import Room

NEW_KEYS = ("_limit", "_lane\n", "_parked", "_later", "_blocked")


class Call(Job):
    """One at a time for each account."""

    namespace = "limited"
    queue_name = "q"
    account = fields.InstanceHashField(indexable=True)
    limits = [Limit("account", concurrency=1)]


class Ask(Job):
    """A rate by the model, by the number of tokens."""

    namespace = "limited"
    queue_name = "q"
    model = fields.InstanceHashField()
    tokens = fields.InstanceHashField()
    limits = [Limit("model", rate="100/100h", weight="tokens", burst=10)]


class Quick(Job):
    """A rate by the model, which is soon free again."""

    namespace = "limited"
    queue_name = "q"
    model = fields.InstanceHashField()
    limits = [Limit("model", rate="50/s")]


class Both(Job):
    """Two limits, one of which other classes share."""

    namespace = "limited"
    queue_name = "q"
    account, region = fields.InstanceHashField(), fields.InstanceHashField()
    limits = [Limit("account", concurrency=1), Limit("region", name="region", concurrency=1)]


class Tenant(Job):
    """Tenants take turns."""

    namespace = "limited"
    queue_name = "q"
    tenant = fields.InstanceHashField()
    limits = [Limit("tenant", concurrency=5, fair=True)]


class Renter(Job):
    """Tenants take turns, whatever region their jobs are in."""

    namespace = "limited"
    queue_name = "q"
    tenant, region = fields.InstanceHashField(), fields.InstanceHashField()
    limits = [Limit("tenant", concurrency=50, fair=True), Limit("region", concurrency=50)]


class Free(Job):
    """Without limits."""

    namespace = "limited"
    queue_name = "q"


class Refresh(Job):
    """One too many is dropped."""

    namespace = "limited"
    queue_name = "q"
    page = fields.InstanceHashField()
    limits = [Limit("page", concurrency=1, on_limit="drop")]


CLASSES = {cls.get_model_repr(): cls for cls in (Call, Ask, Quick, Both, Tenant, Renter, Free, Refresh)}


@pytest.fixture
def limited(redis_client: redis.Redis) -> World:
    return World(redis_client, Call)


def of(world: World, job_class: type[Job]) -> World:
    return World(world.client, job_class)


def add(world: World, *values: str, **options: Any) -> list[Job]:
    """Add a job for each value of the first field of the class."""
    (field, *_) = world.job_class.limits[0].field, None
    return [world.add(f"{value}:{i}", **{"fields": {field: value}, **options})[1] for i, value in enumerate(values)]


def begin(world: World, token: str = TOKEN, *keys: str) -> str | None:
    """Claim the next job; return its pk."""
    delivery = world.claim(*keys, token=token, classes=CLASSES)
    while delivery and delivery.outcome == "sorted":
        delivery = world.claim(*keys, token=token, classes=CLASSES)
    assert delivery is None or delivery.outcome == "claimed", delivery
    return delivery and delivery.pk


def slots(world: World, account: str = "a") -> list[str]:
    return world.client.zrange(f"{world.jobs}:_limit:account:{account}:slots", 0, -1)


def keys_left(world: World) -> list[str]:
    return [key for key in world.contents() if any(part in key for part in NEW_KEYS)]


def test_one_too_many_waits_and_the_next_of_another_key_begins(limited: World) -> None:
    first, second, other = add(limited, "a", "a", "b")
    assert [begin(limited, token) for token in "123"] == [pk_of(first), pk_of(other), None]
    assert limited.state(second)["status"] == "w"
    assert limited.succeed(first, "1").outcome == "done"
    assert begin(limited, "4") == pk_of(second)
    assert slots(limited) == [second.ident]


def test_jobs_keep_their_sequence_and_leave_nothing_behind(limited: World) -> None:
    jobs = add(limited, *"aaaaa")
    begun: list[str | None] = []
    for number in range(5):
        begun.append(begin(limited, str(number)))
        assert begin(limited, "none") is None
        limited.succeed(limited.job(str(begun[-1])), str(number))
    assert begun == [pk_of(job) for job in jobs]
    assert begin(limited, "none") is None
    assert keys_left(limited) == []


def test_a_job_without_a_value_is_not_limited(limited: World) -> None:
    jobs = [limited.add(f"{i}")[1] for i in range(3)]
    assert [begin(limited, str(i)) for i in range(3)] == [pk_of(job) for job in jobs]


def test_any_text_is_a_key(limited: World) -> None:
    for number, value in enumerate(("a:b", "a\nb", "\0", "é" * 30_000, "#x", "slots", " ", "%d")):
        first, second = (limited.add(f"{number}{i}", fields={"account": value})[1] for i in range(2))
        assert [begin(limited, f"{number}"), begin(limited, "none")] == [pk_of(first), None]
        limited.succeed(first, str(number))
        assert begin(limited, "last") == pk_of(second)
        limited.succeed(second, "last")
    assert begin(limited, "none") is None
    assert keys_left(limited) == []


# -- Every verb on a parked job


def in_vain(verb: Callable[[], Any]) -> None:
    with pytest.raises(LimpydJobsException):
        verb()


PARKED: dict[
    str, tuple[Callable[[World, Job], Any], str | None, bool]
] = {  # the verb, the status after it, whether it begins in turn
    "cancel": (lambda world, job: job.cancel(), "c", False),
    "cancel many": (lambda world, job: Call.collection(account="a", status="w").cancel_all(), "c", False),
    "delete": (lambda world, job: job.delete(), None, False),
    "delete many": (lambda world, job: Call.collection(account="a", status="w").delete_all(), None, False),
    "delay": (lambda world, job: job.enqueue_or_delay("q", delayed_until=LATER), "d", False),
    "move": (lambda world, job: job.enqueue_or_delay("other"), "w", False),
    "move many": (lambda world, job: Call.collection(account="a", status="w").move_all("other"), "w", False),
    "edit": (lambda world, job: edit_job(job.ident, {"account": "b"}), "w", True),
    "edit its place": (lambda world, job: edit_job(job.ident, priority=3), "w", False),
    "add again": (lambda world, job: Call.add_job(job.identifier.hget(), account="x"), "w", True),
    "replace": (lambda world, job: Call.add_job(job.identifier.hget(), account="b", on_duplicate="replace"), "w", True),
    "replace, as it has not begun": (
        lambda world, job: Call.add_job(job.identifier.hget(), account="b", on_duplicate="replace_or_follow"),
        "w",
        True,
    ),
    "pause its queue": (lambda world, job: (Queue.pause("q"), Queue.resume("q")), "w", True),
    "claim it, in vain": (lambda world, job: in_vain(lambda: job.claim(owner="me")), "w", True),
    "requeue it, in vain": (lambda world, job: in_vain(job.requeue), "w", True),
    "prune what has ended": (
        lambda world, job: transitions.prune(Queue, f"{world.queue_key()}:success", 0, Error, CLASSES),
        "w",
        True,
    ),
}


@each("name", PARKED)
def test_each_verb_on_a_parked_job(name: str, redis_client: redis.Redis) -> None:
    verb, status, begins = PARKED[name]
    world = World(redis_client, Call)
    redis_client.flushdb()
    holder, job = add(world, "a", "a")
    assert begin(world, "holder") == pk_of(holder)
    assert begin(world, "none") is None
    assert world.places(job) == ["q/0 parked"]
    verb(world, job)
    assert world.client.hget(f"{world.jobs}:2:hash", "status") == status
    moves_on = name.startswith("replace") or name == "edit"
    assert (begin(world, "moved on") == "2") == moves_on
    world.succeed(holder, "holder")
    if begins and not moves_on:
        assert begin(world, "next") == pk_of(job)
    assert "parked" not in " ".join(world.places(f"{world.path}:2"))
    while begin(world, "last", *(key for key in world.contents() if key.endswith(":waiting"))):
        pass
    assert check(pause=0).findings == []
    assert not [key for key in keys_left(world) if not key.endswith((":slots", ":queues"))]  # of jobs that run


def test_many_parked_jobs_are_found_counted_and_listed_as_waiting(limited: World) -> None:
    add(limited, *"aaab")
    begin(limited, "holder")
    assert begin(limited, "b")
    assert JobFilter(Call, status="waiting", account="a").count() == (2, True)
    assert JobFilter(Call, status="waiting", queue="q").count() == (2, True)
    assert Queue.count_waiting_jobs("q") == 2
    (state,) = queue_states("q")
    assert (state.waiting, state.running) == (2, 2)
    assert state.latency is not None
    (contents,) = Queue.read_all("q")
    assert len(contents.waiting) == 2
    assert check(pause=0).findings == []


def test_parked_jobs_of_a_merged_queue_are_parked_in_the_other(limited: World) -> None:
    jobs = add(limited, *"aaa")
    begin(limited, "holder")
    assert begin(limited, "none") is None
    twin = Queue(name="q", priority=0)
    while scripts.merge_queues(limited.client, limited.queue_key(), f"{limited.queues}:{pk_of(twin)}", CLASSES, 1):
        pass
    limited.queue().delete()
    limited.succeed(jobs[0], "holder")
    assert begin(limited, "next") == pk_of(jobs[1])
    assert begin(limited, "none") is None
    assert limited.places(jobs[2]) == ["q/0 parked"]


def test_a_queue_with_parked_jobs_is_not_deleted(limited: World) -> None:
    add(limited, *"aa")
    begin(limited, "holder")
    begin(limited, "none")
    limited.succeed(limited.job("1"), "holder")
    (state,) = queue_states("q")
    assert delete_queue(state) == "used"


def test_an_explicit_claim_takes_part(limited: World) -> None:
    holder, job = add(limited, "a", "a")
    begin(limited, "holder")
    begin(limited, "none")
    with limited.unchanged(), pytest.raises(NotClaimable, match="limit account=a is reached"):
        job.claim(owner="me")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Call, "masked_fields", ["account"], raising=False)
        with pytest.raises(NotClaimable, match=r"limit account=\(masked\) is reached"):
            job.claim(owner="me")
    limited.succeed(holder, "holder")
    with job.claim(owner="me"):
        assert slots(limited) == [job.ident]
    assert slots(limited) == []
    assert begin(limited, "none") is None
    assert keys_left(limited) == []


# -- Every end of the holder

HELD: dict[str, Callable[[World, Job], Any]] = {
    "succeed": lambda world, job: world.succeed(job),
    "succeed, keep nothing": lambda world, job: transitions.succeed(job, world.queue(), TOKEN, erase="1"),
    "fail": lambda world, job: world.fail(job),
    "fail, try again": lambda world, job: world.fail(job, times=3, priority="0", delay=until(LATER)),
    "delay": lambda world, job: world.delay(job),
    "cancel": lambda world, job: (job.cancel(), world.finish_canceled(job)),
    "abandon": lambda world, job: (
        job.status.hset("e"),
        transitions.abandon(Call, job.ident, TOKEN, world.queue_key()),
    ),
    "release for later": lambda world, job: transitions.release(
        Call, job.ident, TOKEN, world.queue_key(), until(LATER)
    ),
    "held, then moved": lambda world, job: (world.fail(job, times=1, hold=True), job.requeue("other")),
}


@each("name", HELD)
def test_each_end_of_the_holder_lets_the_next_one_begin(name: str, redis_client: redis.Redis) -> None:
    redis_client.flushdb()
    world = World(redis_client, Call)
    holder, job = add(world, "a", "a")
    begin(world)
    assert begin(world, "none") is None
    HELD[name](world, holder)
    assert begin(world, "next") == pk_of(job)
    assert slots(world) == [job.ident]


GIVEN_BACK: dict[str, Callable[[World, Job], Any]] = {
    "release": lambda world, job: transitions.release(Call, job.ident, TOKEN, world.queue_key()),
    "force release": lambda world, job: transitions.force_release(
        Call, job.ident, TOKEN, world.queue_key(), audit.entry_request(verb="release", filter=job.ident)
    ),
    "rescue": lambda world, job: rescue(world, job),
}


def rescue(world: World, job: Job) -> None:
    world.client.set(f"{world.queues}:reconcile_lock", 1, ex=300)
    world.client.zadd(f"{world.queue_key()}:_running", {job.ident: 1})
    transitions.rescue(Queue, [world.queue_key()], 3, world.request(token="rescuer", classes=CLASSES))


@each("name", GIVEN_BACK)
def test_a_job_that_is_given_back_keeps_its_place(name: str, redis_client: redis.Redis) -> None:
    redis_client.flushdb()
    world = World(redis_client, Call)
    holder, _ = add(world, "a", "a")
    begin(world)
    assert begin(world, "none") is None
    GIVEN_BACK[name](world, holder)
    assert begin(world, "next") == pk_of(holder)
    assert begin(world, "none") is None


def test_the_slot_of_a_running_job_that_is_deleted_lapses(limited: World) -> None:
    holder, job = add(limited, "a", "a")
    begin(limited)
    begin(limited, "none")
    holder.delete()
    assert begin(limited, "none") is None
    limited.client.zadd(f"{limited.jobs}:_limit:account:a:slots", {f"{limited.path}:1": 1})
    limited.client.zadd(f"{limited.queue_key()}:_later", {f"{limited.jobs}:_limit:account:a": 1})
    assert begin(limited, "next") == pk_of(job)


def test_where_tenants_take_turns_jobs_without_a_tenant_and_those_without_limits_begin(
    redis_client: redis.Redis,
) -> None:
    world, other = World(redis_client, Tenant), World(redis_client, Free)
    jobs = [world.add("none")[1], other.add("free")[1], *add(world, "a", "a")]
    *begun, nothing = [begin(world, str(number)) for number in range(5)]
    assert sorted(begun) == sorted(map(pk_of, jobs))
    assert nothing is None


def test_a_parked_job_that_is_edited_is_sorted_anew(limited: World) -> None:
    of_a, of_b, parked, first, second = add(limited, "a", "b", "a", "b", "b")
    assert [begin(limited, token) for token in "123"] == [pk_of(of_a), pk_of(of_b), None]
    edit_job(parked.ident, {"account": "b"})
    for token in "12":
        assert limited.succeed(of_a if token == "1" else of_b, token).outcome == "done"
    begun = []
    while pk := begin(limited, "next"):
        begun.append(pk)
        limited.succeed(Call(pk), "next")
    assert sorted(begun) == sorted(map(pk_of, (parked, first, second)))
    assert keys_left(limited) == []


def test_a_parked_job_whose_key_is_edited_stands_in_its_new_lane_by_when_it_came(limited: World) -> None:
    holder_a, holder_b, a, b, c = add(limited, *"ababa")
    assert [begin(limited, token) for token in "123"] == [pk_of(holder_a), pk_of(holder_b), None]
    for job, account in ((a, "b"), (b, "a")):
        edit_job(job.ident, {"account": account})
    assert begin(limited, "none") is None
    limited.succeed(holder_a, "1")
    limited.succeed(holder_b, "2")
    assert {begin(limited, token) for token in "45"} == {pk_of(a), pk_of(b)}
    assert begin(limited, "none") is None
    assert limited.places(c) == ["q/0 parked"]


def test_a_parked_job_whose_key_is_written_as_a_field_begins(limited: World) -> None:
    holder, parked = add(limited, "a", "a")
    assert [begin(limited, token) for token in "12"] == [pk_of(holder), None]
    parked.account.hset("b")
    limited.succeed(holder, "1")
    assert begin(limited, "3") == pk_of(parked)
    assert slots(limited, "b") == [parked.ident]


@each("key", ["_turns", "_later", "_lane\n{limit}"])
@each("place", ["", "nan", "-1e999", "-5 "])
def test_broken_lanes_keep_only_their_own_jobs(key: str, place: str, redis_client: redis.Redis) -> None:
    redis_client.flushdb()
    world, other = World(redis_client, Call), World(redis_client, Free)
    holder, parked, _ = add(world, "a", "a", "a")
    assert begin(world) == pk_of(holder)
    if place:
        parked.get_connection().hset(parked.key, "_place", place)
    assert begin(world, "none") is None
    if not place:
        broken = f"{world.queue_key()}:{key.format(limit=f'{world.jobs}:_limit:account:a')}"
        redis_client.delete(broken)
        redis_client.set(broken, "x")
    free = other.add("free")[1]
    assert begin(world, "free") == pk_of(free)
    assert transitions.release(Call, holder.ident, TOKEN, world.queue_key())["outcome"] == "done"


@each("key", ["_turns", "_later"])
def test_a_list_beside_broken_lanes_is_named_and_all_else_is_as_usual(key: str, redis_client: redis.Redis) -> None:
    redis_client.flushdb()
    world = World(redis_client, Call)
    add(world, *"aaa")
    assert [begin(world, token) for token in "12"] == ["1", None]
    add(world, "b", "c")
    redis_client.delete(f"{world.queue_key()}:{key}")
    redis_client.set(f"{world.queue_key()}:{key}", "x")
    room = Room(0, 2)  # of a worker of several jobs
    for token in "345":
        found, next_wakeups = transitions.claim(Queue, replace(world.request(classes=CLASSES, token=token), room=room))
    assert found is None
    assert (next_wakeups.broken, next_wakeups.queues) == ([world.waiting_key()], "1")


def test_broken_lanes_of_a_queue_keep_no_job_of_another_one_that_shares_the_limit(limited: World) -> None:
    holder, *_ = [limited.add(name, name, fields={"account": "a"})[1] for name in "qrs"]
    keys = [limited.waiting_key(name) for name in "qrs"]
    assert [begin(limited, token, *keys) for token in "12"] == ["1", None]
    limited.client.delete(f"{limited.queue_key('r')}:_later")
    limited.client.set(f"{limited.queue_key('r')}:_later", "x")
    limited.succeed(holder, "1")
    assert begin(limited, "3", *keys) == "3"


def test_a_worker_that_knows_no_class_with_limits_learns_of_those_that_are_parked(limited: World) -> None:
    _, parked = add(limited, "a", "a")
    assert begin(limited)
    assert begin(limited, "none") is None
    found = [
        transitions.rescue(Queue, [limited.queue_key()], 3, limited.request(token="new", classes=known)).unknown
        for known in ({}, CLASSES)
    ]
    assert found == [[parked.ident], []]


def test_a_renewal_keeps_the_slot_and_is_refused_once_another_job_has_it(limited: World) -> None:
    holder, job = add(limited, "a", "a")
    begin(limited)
    key = f"{limited.jobs}:_limit:account:a:slots"
    limited.client.zadd(key, {holder.ident: limited.client.time()[0] + 1})
    renewing = (limited.client, Call, holder.ident, TOKEN, limited.queue_key(), 1000)
    assert transitions.renew(*renewing)["outcome"] == "done"
    assert limited.client.zscore(key, holder.ident) > limited.client.time()[0] + 1200
    limited.client.zadd(key, {holder.ident: 1})
    assert begin(limited, "next") == pk_of(job)
    with pytest.raises(Exception, match="claim"):
        transitions.renew(*renewing)


# -- Rates


def test_a_rate_is_used_by_weight_and_a_debt_is_paid(limited: World) -> None:
    world = of(limited, Ask)
    jobs = [world.add(f"{i}", fields={"model": "m", "tokens": tokens})[1] for i, tokens in enumerate(("4", "30", "1"))]
    assert [begin(world, str(i)) for i in range(3)] == [pk_of(jobs[0]), pk_of(jobs[1]), None]
    key = f"{world.jobs}:_limit:model:m"
    assert (
        24 * 3600
        < int(world.client.get(f"{key}:rate").split()[0]) / 1e6 - world.client.time()[0] - 9 * 3600 + 1
        < 26 * 3600
    )
    world.client.delete(f"{key}:rate")
    world.client.zadd(f"{world.queue_key()}:_later", {key: 1})
    assert begin(world, "last") == pk_of(jobs[2])


def test_a_job_whose_weight_is_no_number_is_claimed_to_be_an_error(limited: World) -> None:
    world = of(limited, Ask)
    job = world.add("a", fields={"model": "m", "tokens": "many"})[1]
    delivery = world.claim(classes=CLASSES)
    assert delivery
    assert delivery.outcome == "claimed"
    assert delivery.reason == "its weight for the limit model is not a number of units from 0"
    assert world.hash(job)["status"] == "r"
    assert not world.client.keys("*slots*")


def test_so_is_one_whose_weight_is_above_all_that_is_allowed(limited: World) -> None:
    world = of(limited, Ask)
    heavy, light = (world.add(tokens, fields={"model": "m", "tokens": tokens})[1] for tokens in ("101", "100"))
    delivery = world.claim(classes=CLASSES)
    assert delivery
    assert (delivery.pk, delivery.outcome) == (pk_of(heavy), "claimed")
    above = "its weight of 101 is above the 100 that its limit model allows in the time of its rate"
    assert delivery.reason == above
    assert begin(world, "1") == pk_of(light)
    set_limit(Ask, "model", "n", rate="500/h")
    raised = world.add("raised", fields={"model": "n", "tokens": "101"})[1]
    assert begin(world, "2") == pk_of(raised)


# -- Several limits


def wakeups(world: World, worker: str) -> transitions.NextWakeups:
    """What an idle worker is answered."""
    request = world.request(token=f"1@{worker}", classes=CLASSES)
    found, answered = transitions.claim(Queue, request, "", worker, 60)
    while found and found.outcome == "sorted":
        found, answered = transitions.claim(Queue, request, "", worker, 60)
    assert found is None
    return answered


def test_one_of_the_idle_workers_looks_at_the_lanes_and_the_next_one_if_that_waits_no_more(limited: World) -> None:
    world = of(limited, Ask)
    for number in range(12):
        world.add(f"{number}", fields={"model": "m", "tokens": "1"})
    while world.claim(token="1", classes=CLASSES).outcome != "sorted":  # type: ignore[union-attr]
        pass
    first = wakeups(world, "one")
    assert (first.parked is not None, first.is_watched) == (True, False)
    assert [wakeups(world, each).is_watched for each in ("two", "one", "two")] == [True, False, True]
    transitions.unregister(Queue, "one")
    assert [wakeups(world, each).is_watched for each in ("two", "one")] == [False, True]


def test_jobs_that_wait_for_a_rate_go_on_if_the_clock_is_put_back(limited: World) -> None:
    world = of(limited, Ask)
    for number in range(3):
        world.add(f"{number}", fields={"model": "m", "tokens": "10"})
    assert begin(world, "1")
    assert wakeups(world, "one").parked
    rate, later, looks = f"{world.jobs}:_limit:model:m:rate", f"{world.queue_key()}:_later", f"{world.queue_key()}:hash"
    ahead = world.client.time()[0] + 1000
    used_until = (ahead + 9 * 3600) * 10**6 + 20_000  # soon enough for the next one
    world.client.set(rate, f"{used_until} {ahead * 10**6}")  # as all would be with a clock that is ahead
    world.client.zadd(later, dict.fromkeys(world.client.zrange(later, 0, -1), ahead))
    world.client.hset(looks, "_looks", f"{ahead} {ahead} one")
    world.client.zadd(f"{world.queues}:idle_workers", {"one": ahead})
    answered = wakeups(world, "two")
    assert (answered.is_watched, answered.parked) == (False, pytest.approx(answered.moment))
    wait_until(lambda: begin(world, "2"), "the next one begins")


def test_a_worker_looks_at_the_lanes_whatever_else_another_program_wrote_about_who_does(limited: World) -> None:
    add(limited, "a", "a")
    assert begin(limited, "1")
    assert begin(limited, "2") is None
    wakeups(limited, "one")
    for text in ("x 1 two", "1 x two", "x x two", "nan nan two", "1e999 -1e999 two", "two", ""):
        limited.client.hset(f"{limited.queue_key()}:hash", "_looks", text)
        assert [wakeups(limited, each).is_watched for each in ("one", "two")] == [False, True], text


def both(world: World, identifier: str, account: str, region: str) -> Job:
    return world.add(identifier, fields={"account": account, "region": region})[1]


def test_a_job_holds_nothing_while_it_waits_for_another_limit(limited: World) -> None:
    world = of(limited, Both)
    first, second, third = both(world, "1", "a", "x"), both(world, "2", "b", "x"), both(world, "3", "b", "y")
    assert [begin(world, token) for token in "123"] == [pk_of(first), pk_of(third), None]
    world.succeed(third, "2")
    assert begin(world, "none") is None
    world.succeed(first, "1")
    assert begin(world, "next") == pk_of(second)


def test_a_job_that_needs_two_limits_is_not_passed_over_for_ever(limited: World) -> None:
    """Each of its limits is used again and again by jobs that need that one only."""
    world = of(limited, Both)
    wanted = both(world, "both", "a", "x")
    singles = [both(world, f"{i}", "a", "") if i % 2 else both(world, f"{i}", "", "x") for i in range(200)]
    world.client.lrem(world.waiting_key(), 0, wanted.ident)
    world.client.linsert(world.waiting_key(), "after", singles[3].ident, wanted.ident)
    running = [begin(world, "0"), begin(world, "1")]
    for number in range(2, 150):
        began = begin(world, str(number))
        if number == 20:  # its patience is over
            out_of_patience(world)
        if began == pk_of(wanted) or pk_of(wanted) in running:
            break
        if began:
            running.append(began)
        ended = running.pop(0)
        world.succeed(world.job(str(ended)), next(token for token in tokens_of(world, str(ended))))
    assert world.state(wanted)["status"] == "r"


def out_of_patience(world: World) -> None:
    """Let the lane that was passed over be so for long."""
    stored = world.client.hgetall(f"{world.queues}:_limits")
    (field,) = [name for name in stored if "passed" in name]
    world.client.hset(f"{world.queues}:_limits", field, 10**15)  # since 2001


def test_no_slot_is_left_to_a_job_that_another_limit_keeps_for_long(limited: World) -> None:
    """Nobody came before it there: it waits for one job that runs for long."""
    world = of(limited, Both)
    long = both(world, "long", "a", "")
    assert begin(world, "long")
    long.start.hset("2000-01-01 00:00:00")
    wanted = both(world, "both", "a", "x")
    others = [both(world, f"{number}", "", "x") for number in range(4)]
    lane = f"{world.jobs}:_limit:account:a\n{world.jobs}:_limit:region:x"
    for number, other in enumerate(others):
        assert begin(world, f"{number}") == pk_of(other)
        world.client.zadd(f"{world.queue_key()}:_later", {lane: 1})  # so that it is looked at
        assert begin(world, "none") is None
        if number == 1:
            out_of_patience(world)
        world.succeed(other, f"{number}")
    assert world.client.hget(f"{world.queues}:_limits", "\nelder")
    world.succeed(long, "long")
    assert begin(world, "both") == pk_of(wanted)


def test_no_slot_is_left_to_a_job_that_no_worker_looks_at(limited: World) -> None:
    world = of(limited, Both)
    job = both(world, "gone", "a", "x")
    elder = f"{world.queue_key('other')}\n{world.jobs}:_limit:account:a\n{world.jobs}:_limit:region:x"
    world.client.hset(f"{world.queues}:_limits", "\nelder", f"{2**53 - 1} 0 1 {2**53 - 1} {elder}")
    assert [begin(world, token) for token in "12"] == [None, None]
    assert "is left to a job" in "".join(reason.text for reason in world.job(pk_of(job)).explain().reasons)
    world.client.hset(
        f"{world.queues}:_limits", "\nelder", f"{2**53 - 1} 1 1 {2**53 - 1} {elder}"
    )  # it was called long ago
    world.client.zadd(f"{world.queue_key()}:_turns", {elder.partition("\n")[2]: 1})
    assert begin(world, "3") == pk_of(job)


def tokens_of(world: World, pk: str) -> list[str]:
    return [world.hash(world.job(pk))["_claim_token"]]


# -- Turns


def test_tenants_take_turns(limited: World) -> None:
    world = of(limited, Tenant)
    add(world, *["large"] * 50, *["small"] * 2, *["tiny"])
    begun = [world.job(str(begin(world, str(i)))).tenant.hget() for i in range(6)]
    assert sorted(begun[:3]) == ["large", "small", "tiny"]
    assert begun.count("small") == 2


def test_a_tenant_has_one_turn_for_all_its_lanes(limited: World) -> None:
    world = of(limited, Renter)
    for number in range(20):
        world.add(f"large {number}", fields={"tenant": "large", "region": f"{number % 5}"})
    for number in range(4):
        world.add(f"small {number}", fields={"tenant": "small", "region": "0"})
    begun = [world.job(str(begin(world, str(i)))).tenant.hget() for i in range(8)]
    assert begun.count("small") == 4


def test_one_too_many_may_be_dropped_instead(limited: World) -> None:
    world = of(limited, Refresh)
    first, second, other = add(world, "a", "a", "b")
    assert begin(world, "1") == pk_of(first)
    dropped = world.claim(token="2", classes=CLASSES)
    assert dropped
    assert (dropped.status, dropped.reason) == ("c", "its limit page was reached")
    assert world.places(second) == []
    assert begin(world, "3") == pk_of(other)
    world.succeed(first, "1")
    assert world.add("a:1", fields={"page": "a"})[0] == "added"
    assert begin(world, "4") == "4"


def test_a_lane_that_a_rate_let_go_leaves_nothing_once_it_is_empty(redis_client: redis.Redis) -> None:
    world = World(redis_client, Quick)
    add(world, *"aabb")
    wait_until(lambda: begin(world, f"{len(redis_client.zrange(f'{world.queue_key()}:_running', 0, -1))}") == "4")
    begin(world, "none")
    keys = [key for key in redis_client.scan_iter() if "_blocked" in key or ":queues" in key or "_lane" in key]
    assert keys == []


# -- What is broken


def test_hostile_keys_keep_only_their_own_jobs(limited: World) -> None:
    jobs = add(limited, "a", "b")
    limited.client.set(f"{limited.jobs}:_limit:account:a:slots", "x")
    assert begin(limited, "1") == pk_of(jobs[1])
    assert begin(limited, "none") is None
    assert [each.kind for each in check(repair=True, pause=0).findings] == ["wrong type of a model"]
    limited.client.zadd(f"{limited.queue_key()}:_later", {f"{limited.jobs}:_limit:account:a": 1})
    assert begin(limited, "2") == pk_of(jobs[0])


def test_the_check_puts_a_parked_job_back_that_is_in_no_lane(limited: World) -> None:
    jobs = add(limited, *"aa")
    begin(limited)
    begin(limited, "none")
    limited.client.zrem(f"{limited.queue_key()}:_parked", jobs[1].ident)
    assert [each.kind for each in check(repair=True, pause=0).findings] == ["in no list"]
    limited.succeed(jobs[0])
    assert begin(limited, "next") == pk_of(jobs[1])


@each("key", ["_turns", "_later", "_passes", "_parked", "_blocked\n{limit}", "_lane\n{limit}"])
def test_the_check_deletes_a_key_of_lanes_of_another_type_and_their_jobs_are_put_back(
    key: str, redis_client: redis.Redis
) -> None:
    redis_client.flushdb()
    world = World(redis_client, Call)
    holder, parked = add(world, *"aa")
    assert [begin(world, token) for token in "12"] == [pk_of(holder), None]
    broken = f"{world.queue_key()}:{key.format(limit=f'{world.jobs}:_limit:account:a')}"
    redis_client.delete(broken)
    redis_client.set(broken, "x")
    assert (broken, "wrong type") in [(each.subject, each.kind) for each in check(repair=True, pause=0).findings]
    check(repair=True, pause=0)
    assert check(pause=0).findings == []
    world.succeed(holder, "1")
    assert begin(world, "3") == pk_of(parked)


def test_prefetched_jobs_hold_slots_too(limited: World) -> None:
    add(limited, *"aabbc")
    ran = transitions.succeed_many(limited.client, [], limited.request(classes=CLASSES), 10)
    assert [delivery.pk for delivery in ran[1]] == ["1", "3", "5"]
    assert Error.collection().sort().instances() is not None
