"""Traces of jobs: who added them, and all that ran them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from datetime import timedelta
from typing import Any

import pytest
import redis
from cases import each
from opentelemetry import context, trace
from opentelemetry.sdk.trace import Event, ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor, SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.sdk.trace.sampling import ALWAYS_OFF
from opentelemetry.semconv._incubating.attributes import messaging_attributes, server_attributes
from opentelemetry.semconv.attributes import error_attributes, exception_attributes
from opentelemetry.trace import SpanKind, StatusCode, TraceFlags
from parts import run_task
from running import fail, succeed, work, worker_of

from limpyd_jobs import Argument, Cancel, Job, Queue, Requeue, Schedule, events
from limpyd_jobs.contrib.opentelemetry import Tracing, conventions
from limpyd_jobs.dates import utcnow
from limpyd_jobs.exceptions import JobInterrupted
from limpyd_jobs.query import job_details
from limpyd_jobs.records import records
from limpyd_jobs.schedules.model import score_of

pytestmark = pytest.mark.usefixtures("redis_client")

PARENT = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"


class Parcel(Job):
    namespace = "traces"
    queue_name = "queue"


class Weighed(Parcel):
    grams = Argument(int)
    note = Argument(default="none")


class Traces:
    """The spans that ended, and the tracers that made them."""

    def __init__(self) -> None:
        self.exporter = InMemorySpanExporter()
        self.provider = TracerProvider()
        self.provider.add_span_processor(SimpleSpanProcessor(self.exporter))
        self.tracer = self.provider.get_tracer("tests")

    @property
    def spans(self) -> tuple[ReadableSpan, ...]:
        return self.exporter.get_finished_spans()

    def named(self, name: str) -> list[ReadableSpan]:
        return [span for span in self.spans if span.name == name]

    def only(self, name: str) -> ReadableSpan:
        [span] = self.named(name)
        return span


def parent_of(span: ReadableSpan) -> int | None:
    return span.parent.span_id if span.parent else None


def told(thing: ReadableSpan | Event) -> Mapping[str, Any]:
    """The attributes of a span, or of an event in it."""
    return thing.attributes or {}


@pytest.fixture
def traces() -> Traces:
    return Traces()


Start = Callable[..., Tracing]


@pytest.fixture
def start(traces: Traces) -> Iterator[Start]:
    """Begin to trace, with the arguments of `Tracing`."""
    begun: list[Tracing] = []

    def begin(*args: Any, **options: Any) -> Tracing:
        begun.append(Tracing(*args, **{"tracer_provider": traces.provider, **options}))
        events.subscribe(begun[-1])
        return begun[-1]

    yield begin
    for some in begun:
        events.unsubscribe(some)


def test_the_names_are_those_of_the_conventions() -> None:
    ours = {value for name, value in vars(conventions).items() if name.isupper() and "." in value}
    known = {
        value
        for module in (messaging_attributes, server_attributes, error_attributes, exception_attributes)
        for value in vars(module).values()
        if isinstance(value, str)
    }
    assert {name for name in ours - known if not name.startswith("messaging.limpyd_jobs.")} == {conventions.SCHEMA_URL}


def test_a_run_is_the_child_of_the_span_that_added_the_job(traces: Traces, start: Start) -> None:
    start()
    with traces.tracer.start_as_current_span("request") as request:
        job = Parcel.add_job("one")
    work()
    added, ran = traces.only("add queue"), traces.only("run queue")
    assert parent_of(added) == request.get_span_context().span_id
    assert parent_of(ran) == added.context.span_id
    assert ran.context.trace_id == request.get_span_context().trace_id
    assert [link.context.span_id for link in ran.links] == [added.context.span_id]
    assert (added.kind, ran.kind) == (SpanKind.PRODUCER, SpanKind.CONSUMER)
    common = {
        "messaging.system": "limpyd_jobs",
        "messaging.destination.name": "queue",
        "messaging.message.id": job.ident,
        "messaging.limpyd_jobs.job.class": f"{__name__}.Parcel",
    }
    as_added = {"messaging.operation.name": "add", "messaging.operation.type": "send"}
    as_run = {"messaging.operation.name": "run", "messaging.operation.type": "process"}
    assert added.attributes == {**common, **as_added}
    worker = {"messaging.client.id": told(ran)["messaging.client.id"]}
    assert ran.attributes == {**common, **as_run, **worker, "messaging.limpyd_jobs.job.attempt": 1}


def test_by_a_setting_a_run_begins_a_trace_that_is_linked(traces: Traces, start: Start) -> None:
    start("link")
    Parcel.add_job("one")
    work()
    added, ran = traces.only("add queue"), traces.only("run queue")
    assert ran.parent is None
    assert ran.context.trace_id != added.context.trace_id
    [link] = ran.links
    assert (link.context.trace_id, link.context.span_id) == (added.context.trace_id, added.context.span_id)
    assert link.context.trace_flags == added.context.trace_flags
    with pytest.raises(ValueError, match="parent, link"):
        Tracing("child")


def test_all_tries_are_in_one_trace_and_a_failure_says_why(traces: Traces, start: Start) -> None:
    start()
    Parcel.add_job("one")
    for callback in (fail, succeed):
        work(callback=callback, requeue_times=1, requeue_delay_delta=0)
    added, failed, succeeded = traces.spans
    assert {span.context.trace_id for span in traces.spans} == {added.context.trace_id}
    assert [told(span)["messaging.limpyd_jobs.job.attempt"] for span in (failed, succeeded)] == [1, 2]
    assert (failed.status.status_code, succeeded.status.status_code) == (StatusCode.ERROR, StatusCode.UNSET)
    assert failed.status.description == "ValueError: it failed"
    assert told(failed)["error.type"] == "ValueError"
    [event] = failed.events
    assert "it failed" in str(told(event)["exception.stacktrace"])


@pytest.mark.parametrize(("ask", "outcome"), [(Requeue, "requeued"), (Cancel, "canceled")])
def test_what_the_code_asks_for_is_no_failure(ask: type[Exception], outcome: str, traces: Traces, start: Start) -> None:
    def callback(job: Job, queue: Queue) -> None:
        raise ask

    start()
    Parcel.add_job("one")
    work(callback=callback)
    ran = traces.only("run queue")
    assert told(ran)["messaging.limpyd_jobs.outcome"] == outcome
    assert ran.status.status_code == StatusCode.UNSET


@each("in_a_group", [False, True])
@each("waits, outcome", [("signal approval", "waits"), ("", "released")])
def test_what_waits_or_gives_way_is_no_failure(
    in_a_group: bool, waits: str, outcome: str, traces: Traces, start: Start
) -> None:
    def callback(job: Job, queue: Queue) -> None:
        wish = JobInterrupted("it goes on later", waits=waits)
        raise BaseExceptionGroup("tasks", [wish]) if in_a_group else wish

    start()
    Parcel.add_job("one")
    work(callback=callback)
    ran = traces.spans[-1]
    assert told(ran)["messaging.limpyd_jobs.outcome"] == outcome
    assert ran.status.status_code == StatusCode.UNSET
    Parcel.collection().delete_all()


def test_jobs_that_are_added_together_have_one_parent(traces: Traces, start: Start) -> None:
    start()
    Parcel.add_jobs(["one", "two", "three"])
    work(max_loops=3, prefetch=3)
    added, *ran = traces.spans
    assert told(added)["messaging.batch.message_count"] == 3
    assert [parent_of(span) for span in ran] == [added.context.span_id] * 3


def test_the_span_of_a_run_is_the_current_one_inside(traces: Traces, start: Start) -> None:
    def callback(job: Job, queue: Queue) -> None:
        with traces.tracer.start_as_current_span("query"):
            Parcel.add_job("another", queue_name="next")

    start()
    Parcel.add_job("one")
    work(callback=callback)
    ran, query, added = (traces.only(name) for name in ("run queue", "query", "add next"))
    assert parent_of(query) == ran.context.span_id
    assert parent_of(added) == query.context.span_id
    assert not trace.get_current_span().get_span_context().is_valid
    assert context.get_current() == {}


def test_each_time_of_a_schedule_begins_a_trace(traces: Traces, start: Start, redis_client: redis.Redis) -> None:
    start()
    schedule = Schedule.add("nightly", Parcel, interval=3600)
    due = utcnow() - timedelta(seconds=5)
    records.set_schedule(Schedule, schedule.pk.get(), score_of(str(due)), {"next_run": str(due)})
    run_task(worker_of(), "scheduler")
    work()
    added, ran = traces.only("add queue"), traces.only("run queue")
    assert added.parent is None
    assert told(added)["messaging.limpyd_jobs.schedule"] == "nightly"
    assert parent_of(ran) == added.context.span_id
    with traces.tracer.start_as_current_span("request") as request:
        schedule.run_now()
    assert traces.named("add queue")[1].context.trace_id == request.get_span_context().trace_id


def test_a_job_that_is_queued_already_stays_in_its_trace(traces: Traces, start: Start) -> None:
    start()
    for _ in range(2):
        Parcel.add_job("one")
    first, second = traces.named("add queue")
    assert told(second)["messaging.limpyd_jobs.outcome"] == "existing"
    work()
    assert traces.only("run queue").context.trace_id == first.context.trace_id


def test_a_claim_that_is_used_as_a_context_manager_is_a_run(traces: Traces, start: Start) -> None:
    start()
    job = Parcel.add_job("one")
    with traces.tracer.start_as_current_span("here") as here, job.claim(owner="ann"):
        pass
    ran = traces.only("run queue")
    assert told(ran)["messaging.client.id"] == "ann"
    assert {link.context.span_id for link in ran.links} == {
        traces.only("add queue").context.span_id,
        here.get_span_context().span_id,
    }


@pytest.mark.parametrize(
    "stored",
    [
        "",
        "garbage",
        PARENT.upper(),
        PARENT.replace("00-", "01-", 1),
        f"{PARENT}\n",
        f"{PARENT} ",
        f"{PARENT} a=\x1b[2J",
        f"{PARENT}-more",
        PARENT.replace("0af7651916cd43dd8448eb211c80319c", "0" * 32),
        PARENT.replace("b7ad6b7169203331", "0" * 16),
        f"{PARENT} {'a' * 600}",
        "x" * 100_000,
        b"\xff\xfe",
    ],
    ids=range(13),
)
def test_a_stored_context_that_is_invalid_is_ignored(
    stored: Any, traces: Traces, start: Start, redis_client: redis.Redis
) -> None:
    start()
    job = Parcel.add_job("one")
    redis_client.hset(job.key, "_trace_context", stored)
    worker = work()
    assert worker.num_loops == 1
    ran = traces.only("run queue")
    assert (ran.parent, ran.links, ran.status.status_code) == (None, (), StatusCode.UNSET)


def test_a_state_travels_and_one_that_means_nothing_is_left_out(
    traces: Traces, start: Start, redis_client: redis.Redis
) -> None:
    start()
    for identifier, state in (("one", "ours=1,theirs=2"), ("two", "no state")):
        job = Parcel.add_job(identifier)
        redis_client.hset(job.key, "_trace_context", f"{PARENT} {state}")
    work(max_loops=2)
    one, two = traces.named("run queue")
    states = [span.parent.trace_state.to_header() for span in (one, two) if span.parent]
    assert states == ["ours=1,theirs=2", ""]


def test_a_trace_that_is_not_sampled_is_passed_on_as_such(start: Start) -> None:
    start(tracer_provider=TracerProvider(sampler=ALWAYS_OFF))
    job = Parcel.add_job("one")
    assert int(str(job.trace_context.hget())[-2:], 16) & TraceFlags.SAMPLED == 0


def test_a_worker_that_ends_leaves_no_span_behind(start: Start) -> None:
    exporter, provider = InMemorySpanExporter(), TracerProvider()
    provider.add_span_processor(BatchSpanProcessor(exporter, schedule_delay_millis=3_600_000))
    start(tracer_provider=provider)
    Parcel.add_job("one")
    work()
    assert [span.name for span in exporter.get_finished_spans()] == ["add queue", "run queue"]
    provider.shutdown()


def test_without_an_sdk_nothing_is_stored(start: Start, redis_client: redis.Redis) -> None:
    start(tracer_provider=trace.NoOpTracerProvider())
    job = Parcel.add_job("one")
    assert "_trace_context" not in redis_client.hgetall(job.key)
    assert work().num_loops == 1


def test_who_does_not_trace_stores_nothing(redis_client: redis.Redis) -> None:
    job = Parcel.add_job("one")
    assert {name for name in redis_client.hgetall(job.key) if "trace" in name} == set()


def test_a_run_asks_redis_for_no_more(traces: Traces, start: Start, redis_client: redis.Redis) -> None:
    """What is stored with a job travels with its claim, and is added with it."""

    def calls() -> Counter[str]:
        return Counter({name: each["calls"] for name, each in redis_client.info("commandstats").items()})

    def commands(number: int) -> int:
        before = calls()
        for identifier in range(number):
            Parcel.add_job(str(identifier))
        work(max_loops=number)
        sent = calls() - before
        assert sent["cmdstat_hget"] == 0 or number == 1
        return sent["cmdstat_evalsha"]

    commands(1)  # so that all scripts and classes are known
    untraced = commands(5)
    start()
    assert commands(5) == untraced
    assert len(traces.spans) == 10


def test_arguments_are_what_they_were_given_as(traces: Traces, start: Start, redis_client: redis.Redis) -> None:
    start()
    read: list[Any] = []
    job = Weighed.add_job("one", grams=200)
    work(callback=lambda job, queue: read.append((job.arguments.grams, job.arguments.note)))
    assert read == [(200, "none")]
    shown = job_details(job.ident)
    assert shown.trace_id == f"{traces.only('add queue').context.trace_id:032x}"
    redis_client.hset(job.key, "_trace_context", f"{PARENT}\x1b[2J")
    assert job_details(job.ident).trace_id == ""


def test_a_posting_of_an_integration_is_traced_as_any_job(traces: Traces, start: Start, board: Any) -> None:
    start()
    with traces.tracer.start_as_current_span("request") as request:
        posted = board.post("a flow")
    assert traces.only("add flows").context.trace_id == request.get_span_context().trace_id
    stored = posted.posting.trace_context.hget()
    assert stored.split("-")[1] == f"{request.get_span_context().trace_id:032x}"


def test_an_instrument_that_fails_changes_nothing_for_the_job(start: Start, caplog: pytest.LogCaptureFixture) -> None:
    class Broken(Tracing):
        def log_fields(self, running: Any) -> Any:
            raise OSError("no fields")

        def adding(self, adding: Any) -> Any:
            raise OSError("no span")

        def running(self, running: Any) -> Any:
            raise OSError("no span")

    broken = Broken()
    events.subscribe(broken)
    try:
        job = Parcel.add_job("one")
        work()
    finally:
        events.unsubscribe(broken)
    assert job.status.hget() == "s"
    assert caplog.text.count("no span\n") >= 2
