"""Instruments stand around jobs, and can do them no harm."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager, suppress
from contextvars import ContextVar
from threading import get_ident
from typing import Any

import pytest
from running import fail, work

from limpyd_jobs import Error, Job, Queue, events
from limpyd_jobs.integration import Adding, Instrument, Running
from limpyd_jobs.observing import instruments

pytestmark = pytest.mark.usefixtures("redis_client")


class Parcel(Job):
    namespace = "instruments"
    queue_name = "queue"


class Kept(Instrument):
    """Keeps what it is told."""

    def __init__(self, name: str = "", told: list[str] | None = None) -> None:
        self.name, self.told = name, [] if told is None else told

    @contextmanager
    def adding(self, adding: Adding) -> Iterator[None]:
        adding.trace_context = f"by {self.name}"
        self.told.append(f"{self.name} before adding {adding.number} to {adding.queue_name}")
        yield
        self.told.append(f"{self.name} after adding {len(adding.idents)} {adding.outcome}".strip())

    @contextmanager
    def running(self, running: Running) -> Iterator[None]:
        self.told.append(f"{self.name} before {running.attempt}, {running.trace_context}")
        try:
            yield
        finally:
            self.told.append(f"{self.name} after {running.identifier}")


@pytest.fixture
def installed() -> Iterator[Callable[[Instrument], None]]:
    """Subscribe instruments until the end of the test."""
    begun: list[Instrument] = []

    def install(instrument: Instrument) -> None:
        begun.append(instrument)
        events.subscribe(instrument)

    yield install
    for each in begun:
        events.unsubscribe(each)


Install = Callable[[Instrument], None]


def test_the_first_one_is_outermost_and_each_is_there_once(installed: Install) -> None:
    told: list[str] = []
    first, second = Kept("first", told), Kept("second", told)
    for each in (first, second, first):
        installed(each)
    Parcel.add_job("one")
    work()
    assert told == [
        "first before adding 1 to queue",
        "second before adding 1 to queue",
        "second after adding 1 added",
        "first after adding 1 added",
        "first before 1, by second",
        "second before 1, by second",
        "second after one",
        "first after one",
    ]


def test_a_failure_has_the_traceback_and_the_cause_that_it_would_have_without(installed: Install) -> None:
    def stored() -> list[Any]:
        Parcel.add_job("one")
        work(callback=fail, save_tracebacks=True)
        [error] = Error.collection().instances()
        found = [error.fingerprint.hget(), error.traceback.hget()]
        error.delete()
        return found

    fingerprint, trace = stored()
    installed(Kept())
    again, other = stored()
    assert (again, __file__ in other) == (fingerprint, __file__ in trace)
    assert "in running" not in other


def test_each_that_fails_is_logged_though_an_earlier_one_is_gone(caplog: pytest.LogCaptureFixture) -> None:
    for _ in range(5):
        instruments.log_failure(Kept(), "Running", OSError("broken"))  # whose memory the next one would take
    assert len(caplog.records) == 5


@pytest.mark.parametrize("when", ["made", "entered", "left"])
def test_one_that_fails_is_logged_once_and_the_others_are_used(
    when: str, installed: Install, caplog: pytest.LogCaptureFixture
) -> None:
    class Broken(Instrument):
        def running(self, running: Running) -> Any:
            if when == "made":
                raise OSError("broken")
            return self._manage()

        adding = running  # type: ignore[assignment]

        @contextmanager
        def _manage(self) -> Iterator[None]:
            if when == "entered":
                raise OSError("broken")
            yield
            raise OSError("broken")

    told: list[str] = []
    installed(Broken())
    installed(Kept("other", told))
    jobs = [Parcel.add_job(identifier) for identifier in ("one", "two")]
    work(max_loops=2)
    assert [job.status.hget() for job in jobs] == ["s", "s"]
    assert len(told) == 8
    failures = [record.getMessage() for record in caplog.records if "broken" in record.getMessage()]
    assert [text.split(" failed: ")[0].rpartition(" ")[2] for text in failures] == ["Adding", "Running"]


def test_one_that_would_hide_an_exception_does_not(installed: Install) -> None:
    class Hiding(Instrument):
        @contextmanager
        def running(self, running: Running) -> Iterator[None]:
            with suppress(ValueError):
                yield

    installed(Hiding())
    job = Parcel.add_job("one")
    work(callback=fail)
    assert job.status.hget() == "e"


def test_what_is_too_long_is_not_stored(installed: Install) -> None:
    class Long(Instrument):
        def adding(self, adding: Adding) -> Any:
            adding.trace_context = "x" * 1001
            return super().adding(adding)

    installed(Long())
    assert Parcel.add_job("one").trace_context.hget() is None


def test_one_that_is_subscribed_after_a_job_was_claimed_is_told_of_it_all_the_same(installed: Install) -> None:
    def callback(job: Job, queue: Queue) -> None:
        installed(Kept("late", told))

    told: list[str] = []
    installed(early := Kept("early"))
    Parcel.add_jobs(["one", "two"])
    events.unsubscribe(early)
    work(callback=callback, max_loops=2, prefetch=2)
    assert told[0] == "late before 1, by early"


class Bound(Instrument):
    """Notes in which thread it stands around the code of jobs, and in which its code runs."""

    def __init__(self) -> None:
        self.entered: list[int] = []
        self.left: list[int] = []
        self.ran: list[int] = []

    @contextmanager
    def in_thread(self, job: Any) -> Iterator[None]:
        self.entered.append(get_ident())
        yield
        self.left.append(get_ident())

    @asynccontextmanager
    async def in_task(self, job: Any) -> AsyncIterator[None]:
        mark.set("around")
        with self.in_thread(job):
            yield


class Unbound(Instrument):
    """Fails wherever it is called."""

    def in_thread(self, job: Any) -> Any:
        raise OSError("no thread")

    def in_task(self, job: Any) -> Any:
        raise OSError("no task")


mark: ContextVar[str] = ContextVar("mark", default="")


class Slow(Job):
    namespace = "instruments-slow"
    queue_name = "queue"

    async def run(self, queue: Queue) -> None:
        bound.ran.append(get_ident())
        assert mark.get() == "around"


bound = Bound()


@pytest.mark.parametrize(("job_class", "concurrency"), [(Parcel, 3), (Slow, 1), (Slow, 3)])
def test_an_instrument_stands_around_code_in_the_thread_that_runs_it(
    job_class: type[Job], concurrency: int, installed: Install, monkeypatch: pytest.MonkeyPatch
) -> None:
    bound.__init__()
    monkeypatch.setattr(Parcel, "run", lambda *_: bound.ran.append(get_ident()))
    for each in (Unbound(), bound):
        installed(each)
    jobs = [job_class.add_job(name) for name in ("a", "b")]
    work(max_loops=2, concurrency=concurrency, callback=None)
    assert {job.status.hget() for job in jobs} == {"s"}
    assert len(bound.ran) == 2
    assert sorted(bound.entered) == sorted(bound.ran) == sorted(bound.left)
    assert get_ident() not in bound.ran


def test_an_instrument_needs_no_second_place_where_the_worker_runs_the_code_itself(installed: Install) -> None:
    bound.__init__()
    installed(bound)
    Parcel.add_job("a")
    work(callback=lambda job, queue: None)
    assert bound.entered == []
