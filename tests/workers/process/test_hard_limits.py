"""Jobs that nothing in their process can interrupt: the parent of several processes kills it."""

from __future__ import annotations

import pytest
from invariants import violations
from parents import QUEUE, all_succeeded, runners
from running import work, worker_of
from servers import wait_until

from limpyd_jobs import STATUSES, Error, Job, Queue
from limpyd_jobs.transitions import Delivery
from limpyd_jobs.workers.process.hard_limits import PLACE_SIZE, Board, HardLimits, Overdue, held_by_killed
from limpyd_jobs.workers.run import Run

pytestmark = pytest.mark.usefixtures("jobs_database")

LIMITS = ("--callback=shop.hang", "--kill-after=0.5")


def is_error(job: Job) -> bool:
    return job.status.hget() == STATUSES.ERROR


@pytest.mark.proof
@pytest.mark.parametrize("lock", ["", "1"], ids=["in C", "with the lock of Python"])
@pytest.mark.parametrize("more", [(), ("--prefetch=5",), ("--concurrency=5",)], ids=["alone", "stock", "at once"])
def test_such_a_job_is_a_timeout_and_its_neighbours_run_as_if_nothing_had_been(start, redis_client, lock, more):
    hanging = Job.add_job("0", QUEUE, job_timeout=0.3)
    others = [Job.add_job(str(each), QUEUE) for each in range(1, 4)]
    parent = start(*LIMITS, *more, HOLDS_THE_LOCK=lock)
    parent.wait_for("process .* is killed: a job could not be interrupted")
    redis_client.rpush("open", *range(10))  # those who died may take some
    wait_until(lambda: is_error(hanging) and all_succeeded(others), "the end of all jobs")
    errors = [Error.get(pk) for pk in Error.collection()]
    assert [(each.type.hget(), each.identifier.hget()) for each in errors] == [("JobTimeout", "0")]
    assert "killed after 0.5 more" in errors[0].message.hget()
    assert [job.tries.hget() for job in (hanging, *others)] == ["1"] * 4
    assert [job.rescues.hget() for job in (hanging, *others)] == [None] * 4
    assert len(set(runners(redis_client))) == 2
    assert parent.end() == 0
    assert violations(redis_client, Job, Queue, Error) == []


class Impatient(Job):
    namespace = "hard_limits"
    kill_after = 0.0001


class Patient(Job):
    namespace = "hard_limits"
    kill_after = 0


class OfTheirOwn(Job):
    namespace = "hard_limits"
    kill_after = "midnight"  # type: ignore[assignment]


class Told:
    """What a child tells its parent."""

    def __init__(self) -> None:
        self.board, self.notified = Board(), 0
        self.limits = HardLimits(self.board, self._notify)

    def _notify(self) -> None:
        self.notified += 1

    def begin(self, job_class: type[Job], token: str = "1@here:1:a", seconds: float = 0.0001, of_worker=None):
        delivery = Delivery("claimed", "jobs:queue:1:waiting", "some.Job:1", token=token)
        return self.limits.begin(Run(delivery, job_class()), seconds, of_worker)


def test_the_parent_learns_which_jobs_run_for_too_long_and_no_others() -> None:
    told = Told()
    first, second = told.begin(Impatient, "1@here:1:a"), told.begin(Impatient, "2@here:1:a", seconds=600)
    wait_until(told.board.overdue)
    assert [each.token for each in told.board.overdue()] == ["1@here:1:a"]
    told.limits.end(first)
    assert told.board.overdue() == []
    assert told.begin(Impatient, "3@here:1:a") == first
    told.limits.end(second)
    assert told.notified == 1


def test_the_limit_is_that_of_the_class_or_else_of_the_worker() -> None:
    told = Told()
    assert told.begin(Job) is told.begin(Patient, of_worker=5) is told.begin(OfTheirOwn) is None
    assert (told.begin(Impatient), told.begin(Job, of_worker=5), told.begin(OfTheirOwn, of_worker=5)) == (0, 1, 2)


def test_a_worker_without_a_parent_warns_once_of_each_class_that_asks_for_one(caplog) -> None:
    for kind in (Impatient, Impatient, Patient, OfTheirOwn):
        kind.add_job(queue_name="queue")
    work("queue", max_loops=4)
    warnings = [each.getMessage() for each in caplog.records if "has no parent" in each.getMessage()]
    assert len(warnings) == 1
    assert f"{Impatient.get_model_repr()} has kill_after = 0.0001" in warnings[0]


def test_a_worker_warns_once_of_a_class_whose_jobs_have_no_time_limit_that_could_end(caplog) -> None:
    for each in (Impatient, Impatient, Patient):
        each.add_job(queue_name="queue")
    worker = worker_of("queue", max_loops=3)
    worker._run_state.hard_limits = HardLimits(Board(), lambda: None)  # as the parent of several processes gives it
    worker.run()
    (warning,) = [each.getMessage() for each in caplog.records if "no time limit" in each.getMessage()]
    assert f"{Impatient.get_model_repr()} has kill_after = 0.0001" in warning


def test_it_warns_not_if_the_jobs_bring_their_own_time_limit(caplog) -> None:
    Impatient.add_job(queue_name="queue", job_timeout=5)
    worker = worker_of("queue", max_loops=1)
    worker._run_state.hard_limits = HardLimits(Board(), lambda: None)
    worker.run()
    assert not [each for each in caplog.records if "no time limit" in each.getMessage()]


def test_a_job_of_which_too_much_would_have_to_be_said_has_none() -> None:
    assert Told().begin(Impatient, "x" * PLACE_SIZE) is None


def test_a_process_that_begins_has_nothing_of_the_one_before() -> None:
    told = Told()
    told.begin(Impatient)
    told.board.recorded()
    wait_until(told.board.overdue)
    told.board.clear()
    assert (told.board.overdue(), told.board.is_recorded) == ([], False)


def test_what_others_hold_is_left_alone(redis_client) -> None:
    mine, other = Job.add_job("mine", QUEUE), Job.add_job("other", QUEUE)
    claims = mine.claim(owner="here:1:a"), other.claim(owner="here:2:b")
    tokens = [str(job.claim_token.hget()) for job in (mine, other)]
    queue_key = f"{Queue._name}:{Queue.get_queue(QUEUE).pk.get()}"
    held = held_by_killed(Queue, [queue_key], [Overdue(tokens[0], queue_key, "5", "30")])
    assert [(delivery.ident, delivery.identifier) for delivery, _ in held.overdue] == [(mine.ident, "mine")]
    assert str(held.overdue[0][1]).startswith("It ran for more than 5 seconds")
    assert held.others == []
    assert len(claims) == 2
