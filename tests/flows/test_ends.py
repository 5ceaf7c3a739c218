"""Each kind of end, by what the job after it does on failure, and by where it stands: what becomes of that job."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import redis
from cases import each
from flow_kinds import Exclusive, Page, Report, Stubborn
from parts import run_task
from running import work, worker_of

from limpyd_jobs import STATUSES, Flow, Queue, chain, transitions
from limpyd_jobs.check import check
from limpyd_jobs.flows import NewNode
from limpyd_jobs.query import release_job
from limpyd_jobs.redis.calls import run, send
from limpyd_jobs.redis.scripting import Script
from limpyd_jobs.transitions import ClaimRequest


def succeed(page: Page) -> None:
    page.claim("me").succeed()


def succeed_and_be_erased(page: Page) -> None:
    work("pages", keep_success=0)
    assert not page.exists(pk=page.pk.get())


def succeed_in_a_batch(page: Page) -> None:
    work("pages", prefetch=2)
    assert page.status.hget() == STATUSES.SUCCESS


def fail_for_good(page: Page) -> None:
    page.claim("me").fail(ValueError("no paper"))


def be_canceled(page: Page) -> None:
    page.cancel()


def be_canceled_by_a_filter(page: Page) -> None:
    assert Page.collection(pk=page.pk.get()).cancel_all().done == 1


def be_canceled_by_its_own_code(page: Page) -> None:
    page.claim("me").cancel()


def be_canceled_and_taken_from_its_worker(page: Page) -> None:
    page.claim("me")
    page.cancel()
    release_job(page.ident, force=True)


def be_left_to_one_that_follows(page: Page) -> None:
    claim = page.claim("me")
    follower = Page.add_job(page.identifier.hget(), on_duplicate="replace_or_follow")
    assert follower.pk.get() != page.pk.get()
    claim.release()
    assert page.status.hget() == STATUSES.CANCELED
    follower.cancel()


def be_one_too_many_for_its_limit(page: Page) -> None:
    with Exclusive.add_job().claim("me"):
        claim_next(page)
    assert page.status.hget() == STATUSES.CANCELED


def be_set_to_error_by_hand_and_abandoned(page: Page) -> None:
    page.claim("me")
    page.status.hset(STATUSES.ERROR)
    transitions.abandon(Page, page.ident, vars(page)["_held_token"], page._queue_key.hget())


def be_set_to_error_by_hand_and_repaired(page: Page) -> None:
    page.status.hset(STATUSES.ERROR)
    Queue.get_queue("pages").waiting.lrem(0, page.ident)
    check(pause=0, repair=True)


def be_given_up_as_no_worker_knows_it(page: Page) -> None:
    transitions.defer_unresolved(Queue, Queue.get_queue("pages").waiting.key, page.ident, 60, 0)


def be_canceled_while_running(page: Page) -> None:
    claim = page.claim("me")
    page.cancel()
    claim.cancel()


def be_canceled_and_its_worker_die(page: Page) -> None:
    page.claim("me", lease=60)
    page.cancel()
    let_lapse(page)
    rescue(page)


def be_lost_too_often(page: Page) -> None:
    page.claim("me", lease=60)
    let_lapse(page)
    worker = worker_of("pages", max_rescues=0)
    worker.update_keys()
    run_task(worker, "rescuer")


def be_deleted(page: Page) -> None:
    page.delete()


def be_deleted_by_a_filter(page: Page) -> None:
    assert Page.collection(pk=page.pk.get()).delete_all().done == 1


def be_too_late(page: Page) -> None:
    page.hmset(_start_within=1, added="2020-01-01 00:00:00")
    claim_next(page)


def be_set_to_canceled_by_hand_and_skipped(page: Page) -> None:
    page.status.hset(STATUSES.CANCELED)
    queue = Queue.get_queue("pages")
    queue.waiting.lrem(0, page.ident)
    transitions.skip(page, queue, 60)


def be_set_to_error_by_hand_and_reconciled(page: Page) -> None:
    page.status.hset(STATUSES.ERROR)
    Queue.get_queue("pages").waiting.lrem(0, page.ident)
    transitions.reconcile(Queue, Page, [page.ident], 60)


SUCCESSES = [succeed, succeed_in_a_batch, succeed_and_be_erased]
FAILURES = [
    *(fail_for_good, be_canceled, be_canceled_while_running, be_canceled_and_its_worker_die, be_lost_too_often),
    *(be_deleted, be_deleted_by_a_filter, be_too_late),
    *(be_canceled_by_a_filter, be_canceled_by_its_own_code, be_canceled_and_taken_from_its_worker),
    *(be_left_to_one_that_follows, be_one_too_many_for_its_limit, be_given_up_as_no_worker_knows_it),
    *(be_set_to_canceled_by_hand_and_skipped, be_set_to_error_by_hand_and_reconciled),
    *(be_set_to_error_by_hand_and_abandoned, be_set_to_error_by_hand_and_repaired),
]


def let_lapse(page: Page) -> None:
    Queue.get_queue("pages").running.zadd({page.ident: 1})


def request() -> ClaimRequest:
    return ClaimRequest([], "rescuer", 60, {"flow_kinds.Page": Page, "flow_kinds.Report": Report})


def rescue(page: Page) -> None:
    queue = Queue.get_queue("pages")
    transitions.rescue(Queue, [f"{Queue._name}:{queue.pk.get()}"], 3, request())


def claim_next(page: Page) -> None:
    keys = [Queue.get_queue("pages").waiting.key]
    transitions.claim(
        Queue, ClaimRequest(keys, "next", 60, {"flow_kinds.Page": Page, "flow_kinds.Exclusive": Exclusive})
    )


def retry(page: Page) -> None:
    Stubborn.get(page.pk.get()).claim("me").fail(ValueError("again"))


def be_released(page: Page) -> None:
    page.claim("me").release()


def be_rescued(page: Page) -> None:
    page.claim("me", lease=60)
    let_lapse(page)
    rescue(page)


def be_moved(page: Page) -> None:
    page.enqueue_or_delay("other", 3)


def state_of(node: NewNode) -> str:
    (found,) = [each for each in node.flow.nodes() if each.number == node.number]
    return found.state


class Shape:
    """A report after some pages of which one is about to end, and a report after that report."""

    def __init__(self, policy: str, pages: int, done: int, kind: type[Page] = Page) -> None:
        with Flow() as self.flow:
            nodes = [self.flow.add(kind.prepare(number=number)) for number in range(pages)]
            self.report = self.flow.add(Report.prepare(), after=nodes, on_error=policy)
            self.last = self.flow.add(Report.prepare(), after=self.report)
        for node in nodes[:done]:
            succeed(node.job)
        self.next: Page = nodes[done].job
        self.others = [node.job for node in nodes[done + 1 :]]

    @property
    def states(self) -> list[str]:
        return [state_of(self.report), state_of(self.last)]

    def finish(self) -> None:
        """Let all that is left succeed, or fail for want of it."""
        for page in self.others:
            if page.status.hget() == STATUSES.WAITING:
                succeed(page)
        for node in (self.report, self.last):
            if node.job.status.hget() == STATUSES.WAITING:
                node.job.claim("me").succeed()


# How many pages there are, and how many have ended before: the only one, the last one, one in between, the first one.
POSITIONS = {"only": (1, 0), "last": (3, 2), "middle": (3, 1), "first": (3, 0)}
PARKED = ["waiting for others", "waiting for others"]


@each("policy", ["fail", "run", "cancel"])
@each("position", POSITIONS)
@pytest.mark.parametrize("end", SUCCESSES)
def test_a_job_begins_with_the_last_success_before_it(
    end: Callable[[Page], None], position: str, policy: str, redis_client: redis.Redis
) -> None:
    shape = Shape(policy, *POSITIONS[position])
    end(shape.next)
    assert shape.states == (PARKED if shape.others else ["waiting", "waiting for others"])
    shape.finish()
    assert shape.states == ["success", "success"]
    assert shape.flow.state()[:3] == ("ended", 0, 0)


@each("policy", ["fail", "run", "cancel"])
@each("position", POSITIONS)
@pytest.mark.parametrize("end", FAILURES)
def test_a_failure_cancels_what_comes_after_it_or_lets_it_run(
    end: Callable[[Page], None], position: str, policy: str, redis_client: redis.Redis
) -> None:
    shape = Shape(policy, *POSITIONS[position], Exclusive if end is be_one_too_many_for_its_limit else Page)
    end(shape.next)
    if policy == "run":
        assert shape.states == (PARKED if shape.others else ["waiting", "waiting for others"])
    else:
        assert shape.states == ["canceled", "canceled"]
    are_canceled = {page.status.hget() == STATUSES.CANCELED for page in shape.others}
    assert are_canceled == ({policy == "cancel"} if shape.others else set())
    shape.finish()
    assert shape.states == (["success", "success"] if policy == "run" else ["canceled", "canceled"])
    assert shape.flow.state()[:2] == ("ended", 0)
    assert shape.flow.state().failed > 0
    if end is be_given_up_as_no_worker_knows_it:
        shape.next.delete()  # it stands in no list


@each("policy", ["fail", "run", "cancel"])
@pytest.mark.parametrize("step", [retry, be_released, be_rescued, be_moved])
def test_what_runs_again_has_not_ended(step: Callable[[Page], None], policy: str, redis_client: redis.Redis) -> None:
    shape = Shape(policy, 1, 0, Stubborn if step is retry else Page)
    step(shape.next)
    assert shape.states == PARKED
    succeed(type(shape.next).get(shape.next.pk.get()))
    assert shape.states == ["waiting", "waiting for others"]
    shape.finish()


def test_a_job_that_no_worker_knows_has_ended_once_it_is_given_up(redis_client: redis.Redis) -> None:
    shape = Shape("run", 1, 0)
    key = Queue.get_queue("pages").waiting.key
    transitions.defer_unresolved(Queue, key, shape.next.ident, 60, 0)
    assert shape.states == ["waiting", "waiting for others"]
    succeed(shape.next)  # once a worker knows it
    assert shape.flow.state().failed == 0


NO_FLOWS = ["x", "", "a 1", "a 1 fail 2;3", "a 1 fail 2-99999999999", "a 1 fail 2"]


@each("text", NO_FLOWS)
@each("end", [succeed, fail_for_good, be_canceled, be_deleted])
def test_a_job_ends_whatever_another_program_wrote_to_its_field(
    text: str, end: Callable[[Page], None], redis_client: redis.Redis
) -> None:
    redis_client.flushall()
    page = Page.add_job(number=1)
    key = page.key
    redis_client.hset(key, "_flow", text)
    assert page.parents() == page.children() == []
    end(page)
    assert redis_client.hget(key, "queued") is None
    assert redis_client.keys("limpyd-jobs:flow:*") == []


def test_numbers_beyond_the_size_of_a_flow_are_those_of_no_node(redis_client: redis.Redis) -> None:
    shape = Shape("fail", 2, 0)
    page = shape.next
    text = f"{shape.flow.id} 1 fail 3-99999999999,99999999999999999999-{10**400}"
    redis_client.hset(page.key, "_flow", text)
    assert len(page.parents()) == 2
    succeed(page)
    for other in shape.others:
        succeed(other)
    assert shape.states[0] == "waiting"
    assert not redis_client.exists("limpyd-jobs:flows:todo")


@each("entry, left", [("cancel", "cancel 99950"), ("requeue", None), ("tend", None)])
def test_no_number_that_another_program_wrote_keeps_redis_busy(
    entry: str, left: str | None, redis_client: redis.Redis
) -> None:
    redis_client.flushall()
    key = f"limpyd-jobs:flow:{chain(Page.prepare()).id}"
    for number in ("200000", f"1{'0' * 19}", f"1{'0' * 400}"):  # the last ones would be counted without end
        redis_client.hset(key, "size", f"{number}9")
        redis_client.rpush(f"{key}:todo", f"{entry} {number}")
        run(Script("flows/step_flow"), redis_client, (), [key.rpartition(":")[2]])
        assert redis_client.lpop(f"{key}:todo") == left


def test_a_size_that_another_program_wrote_is_bounded(redis_client: redis.Redis) -> None:
    flow = chain(Page.prepare(number=1), Page.prepare(number=2))
    for size in ("999999", "1e6", "inf", "nan", "x"):
        redis_client.hset(f"limpyd-jobs:flow:{flow.id}", "size", size)
        assert flow.state().size <= 100_000
    flow.cancel()
    assert [node.state for node in flow.nodes()] == ["canceled", "canceled"]


@each("which", ["page", "report"])
def test_a_flow_goes_on_if_another_program_wrote_to_the_field_of_one_of_its_jobs(
    which: str, redis_client: redis.Redis
) -> None:
    redis_client.flushall()
    shape = Shape("fail", 1, 0)
    report = shape.report.job
    redis_client.hset((shape.next if which == "page" else report).key, "_flow", "x")
    succeed(shape.next)
    if which == "page":
        assert send(transitions.tend_flow(redis_client, shape.flow.id)) == ("0", ["1", "2"])
    succeed(report)
    if which == "report":
        assert send(transitions.tend_flow(redis_client, shape.flow.id)) == ("0", ["2", "3"])
    assert shape.states == ["success", "waiting"]
    assert shape.flow.state()[:3] == ("running", 1, 0)


@each("prefetch", [1, 5])
def test_results_of_another_type_keep_no_end_from_being_recorded(prefetch: int, redis_client: redis.Redis) -> None:
    with Flow() as flow:
        flow.add(Report.prepare(), after=[flow.add(Page.prepare(number=number)) for number in range(3)])
    redis_client.set(f"limpyd-jobs:flow:{flow.id}:results", "text")
    work("pages", max_loops=3, callback=None, prefetch=prefetch)
    assert [node.state for node in flow.nodes()] == [*["success"] * 3, "waiting"]
    flow.cancel()


@each("waits", ["", "x", "x\nafter\n", "9999-12-31 23:59:59", "9999-12-31 23:59:59\n\n\n\n\n", "\n" * 100])
def test_a_job_whose_wait_cannot_be_read_runs_after_the_others(waits: str) -> None:
    flow = chain(Page.prepare(number=1), Report.prepare())
    flow._nodes[1].job.waits.hset(waits)
    work("pages,reports", max_loops=2, callback=None)
    assert [node.state for node in flow.nodes()] == ["success", "success"]
