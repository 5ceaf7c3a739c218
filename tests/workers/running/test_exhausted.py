"""``on_exhausted`` is called once the last try of a job has failed, at least once, and by a job of its own."""

from __future__ import annotations

import time
from typing import Any

import pytest
import redis
from running import work
from servers import wait_until

from limpyd_jobs import STATUSES, Argument, Error, Job, JobFailed, Limit, Queue, Retry, current_job, job
from limpyd_jobs.check import check
from limpyd_jobs.classes.job_classes import job_classes
from limpyd_jobs.models.claims.exhausted import OnExhausted, OnExhaustedAsync

pytestmark = pytest.mark.usefixtures("redis_client")

called: list[tuple[str, JobFailed]] = []


@pytest.fixture(autouse=True)
def _none_before() -> None:
    called.clear()


class Pay(Job):
    namespace = "exhausted"
    queue_name = "queue"

    def run(self, queue: Queue) -> None:
        raise ValueError(f"no money on try {self.tries.hget()}")

    def on_exhausted(self, error: JobFailed) -> None:
        assert self.status.hget() == STATUSES.ERROR
        called.append((self.ident, error))


class PayLater(Pay):
    default_retry_policy = Retry(times=2, delay=0)


class PayAsync(Pay):
    amount = Argument(int, default=0)

    async def run(self, queue: Queue) -> None:
        raise ValueError("no money")

    async def on_exhausted(self, error: JobFailed) -> None:  # type: ignore[override]
        called.append((f"{await self.aget('identifier')} {self.arguments.amount}", error))


class PayLimited(Pay):
    limits = [Limit("identifier", concurrency=1)]


class PayAnnounced(PayLater):
    def on_error(self, queue: Queue, error: Exception, trace: str | None) -> None:
        called.append(("on_error", JobFailed(self.ident, type(error).__name__, str(error), "")))


class Slow(Pay):
    default_job_timeout = 0.05

    def run(self, queue: Queue) -> None:
        time.sleep(60)


class Other(Pay):
    on_exhausted = 7  # type: ignore[assignment]


class Secret(Pay):
    masked_fields = ("message",)


@job(queue="queue")
def send(to: str) -> None:
    raise ValueError(to)


@send.on_exhausted
def note(failed: Job, error: JobFailed) -> None:
    called.append((failed.ident, error))
    assert type(current_job()) is OnExhausted


def run(number: int, **options: Any) -> None:
    work("queue", callback=None, max_loops=number, **options)


def handlers() -> list[Any]:
    kinds = (OnExhausted, OnExhaustedAsync)
    return [each for kind in kinds for each in kind.collection().instances()]


def test_it_is_called_after_the_last_error_and_no_other() -> None:
    failed = PayLater.add_job("a")
    run(3)
    assert (failed.status.hget(), called) == (STATUSES.ERROR, [])
    run(1)
    [(ident, error)] = called
    assert (ident, error.ident, error.type, error.message) == (
        failed.ident,
        failed.ident,
        "ValueError",
        "no money on try 3",
    )
    assert "raise ValueError" in error.traceback
    assert [each.status.hget() for each in handlers()] == [STATUSES.SUCCESS]
    assert check(pause=0).findings == []


@pytest.mark.parametrize("concurrency", [1, 2])
def test_functions_and_coroutines_have_it_too(concurrency: int) -> None:
    send.add("ann")
    PayAsync.add_job("bob", amount=3)
    run(4, concurrency=concurrency)
    assert {name for name, _ in called} == {"bob 3", f"{__name__}.send:1"}
    assert [error.type for _, error in called] == ["ValueError"] * 2


def test_it_comes_after_on_error_of_each_try_was_called_by_the_worker_that_ran_it() -> None:
    PayAnnounced.add_job("a")
    run(4)
    assert [(name.partition(":")[0], error.message) for name, error in called] == [
        *(("on_error", f"no money on try {number}") for number in (1, 2, 3)),
        (PayAnnounced.get_model_repr(), "no money on try 3"),
    ]


def test_a_worker_that_dies_between_leaves_it_to_another_one() -> None:
    Pay.add_job("a")
    run(1)
    [handler] = handlers()
    handler.claim("one that dies", lease=0.01)
    wait_until(lambda: not handler.claim_state().is_held)
    run(1)
    assert len(called) == 1


@pytest.mark.parametrize("how", ["rescue", "timeout", "claim", "cancel_on_error", "requeue_times"])
def test_each_way_in_which_the_last_try_fails(how: str) -> None:
    kind = "ValueError"
    if how == "rescue":
        Pay.add_job("a").claim("one that dies", lease=0.01)
        time.sleep(0.02)
        run(1, max_rescues=0)
        kind = "WorkerLost"
    elif how == "timeout":
        Slow.add_job("a")
        run(1)
        kind = "JobTimeout"
    elif how == "claim":
        Pay.add_job("a").claim("ann").fail(ValueError("it failed"))
    elif how == "cancel_on_error":
        PayLater.add_job("a", cancel_on_error=1)
        run(1)
    else:
        Pay.add_job("a")
        run(2, requeue_times=1, requeue_delay_delta=0)
    if how != "rescue":  # that worker has handled it
        run(1)
    assert [error.type for _, error in called] == [kind]


def test_what_is_canceled_or_released_or_deleted_has_no_last_error() -> None:
    PayLater.add_job("a").cancel()
    with_claim = PayLater.add_job("b").claim("ann")
    with_claim.release()
    PayLater.get("2").cancel()
    failed = Pay.add_job("c")
    run(1)
    failed.delete()
    run(1)
    assert called == []
    assert [each.status.hget() for each in handlers()] == [STATUSES.SUCCESS]
    assert "the job is deleted" in handlers()[0].read_log()[0]


def test_a_job_that_is_put_back_and_fails_again_is_handled_again() -> None:
    failed = Pay.add_job("a")
    run(2)
    failed.requeue()
    run(2)
    assert [error.message for _, error in called] == ["no money on try 1", "no money on try 2"]


def test_one_that_fails_is_an_error_of_its_own_and_can_be_put_back(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Pay, "on_exhausted", lambda self, error: 1 / 0)
    failed = Pay.add_job("a")
    run(2)
    [handler] = handlers()
    assert handler.status.hget() == STATUSES.ERROR
    assert handler.identifier.hget().startswith(failed.ident)
    monkeypatch.undo()
    handler.requeue()
    run(1)
    assert len(called) == 1


def test_it_works_without_records_of_errors_and_in_modules_that_are_allowed_only() -> None:
    job_classes.allow(__name__)
    try:
        Pay.add_job("a")
        run(2, save_errors=False)
    finally:
        job_classes.allow(None)
    [(_, error)] = called
    assert (error.type, error.message, error.traceback) == ("ValueError", "no money on try 1", "")
    assert len(Error.collection()) == 0


def test_a_message_that_is_secret_is_not_kept_with_it() -> None:
    Secret.add_job("a")
    run(1)
    assert handlers()[0].error_message.value() == ""
    run(1)
    assert called[0][1].message == "no money on try 1"


def test_something_else_of_that_name_is_left_alone() -> None:
    Other.add_job("a")
    run(1)
    assert handlers() == []


def test_a_job_fails_also_if_it_cannot_be_handled(redis_client: redis.Redis, caplog: pytest.LogCaptureFixture) -> None:
    redis_client.set("jobs:onexhausted:collection", "no set")
    failed = Pay.add_job("a")
    run(1)
    assert failed.status.hget() == STATUSES.ERROR
    assert f"[{failed.ident}] its on_exhausted will not be called" in caplog.text


def test_a_job_with_limits_has_it_too() -> None:
    PayLimited.add_job("a")
    run(2)
    assert [error.type for _, error in called] == ["ValueError"]


class Otherwise(Job):
    namespace = "exhausted"
    queue_name = "queue"

    def run(self, queue: Any) -> None:
        raise ValueError("on purpose")

    def on_exhausted(self) -> None:
        raise AssertionError


def test_one_that_does_not_take_the_error_is_warned_of_once(caplog: pytest.LogCaptureFixture) -> None:
    for _ in range(2):
        Otherwise.add_job()
        work(callback=None, max_loops=1, logger_level=30)
    warnings = [message for message in caplog.messages if "Otherwise.on_exhausted is not called" in message]
    assert len(warnings) == 1
