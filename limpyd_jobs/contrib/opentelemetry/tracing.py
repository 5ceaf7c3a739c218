"""Spans for the adding and the running of jobs."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from opentelemetry import trace
from opentelemetry.context import Context
from opentelemetry.trace import (
    Link,
    NonRecordingSpan,
    Span,
    SpanContext,
    SpanKind,
    Status,
    StatusCode,
    TraceFlags,
    TracerProvider,
    TraceState,
)

from limpyd_jobs import EXACT_VERSION, Cancel, Requeue
from limpyd_jobs.contrib.opentelemetry import conventions as names
from limpyd_jobs.integration import (
    Adding,
    GracePeriodOver,
    Instrument,
    JobInterrupted,
    Running,
    described,
    events,
    one_line,
    traceback_of,
    wish_among,
)

FLUSH_TIMEOUT = 5000  # milliseconds

STYLES = ("parent", "link")

KNOWN_FLAGS = 0b11  # whether it is sampled, and whether its id is random
MAX_STATE = 512  # in characters, as W3C demands of those who pass it on

_STORED = re.compile(r"00-(?!0{32})([0-9a-f]{32})-(?!0{16})([0-9a-f]{16})-([0-9a-f]{2})(?: ([!-~ ]{1,512}))?", re.ASCII)

# What leaves the code of a job and is not a failure, with the outcome that the span tells.
OUTCOMES: Mapping[type[BaseException], str] = {
    Requeue: "requeued",
    Cancel: "canceled",
    GracePeriodOver: "released",
    KeyboardInterrupt: "released",
    JobInterrupted: "released",
}


class Tracing(Instrument):
    """Makes a span when jobs are added, and one each time a job is run: ``events.subscribe(Tracing())``.

    The context of the first is stored with each new job, so the second finds it, in whatever process, after whatever
    time. All tries of a job find the same one. Without an SDK of OpenTelemetry nothing is made, and nothing is stored.

    Parameters
    ----------
    style: str
        ``parent`` lets the span of a run be a child of the span that added the job, in the same trace. ``link`` lets it
        begin a trace of its own, which is linked to the other one.
    tracer_provider: opentelemetry.trace.TracerProvider
        By default the global one.

    Raises
    ------
    ValueError
        If there is no such style.
    """

    def __init__(self, style: str = "parent", tracer_provider: TracerProvider | None = None) -> None:
        if style not in STYLES:
            raise ValueError(f"The style must be one of {', '.join(STYLES)}, not {style!r}")
        self.style = style
        self._provider = tracer_provider
        self._tracer = trace.get_tracer("limpyd_jobs", EXACT_VERSION, tracer_provider, names.SCHEMA_URL)

    @contextmanager
    def adding(self, adding: Adding) -> Iterator[None]:
        """Make the span of those who add, and store its context with the jobs."""
        attributes = _attributes(adding.job_class, adding.queue_name, names.ADD, names.SEND)
        if adding.number > 1:
            attributes[names.BATCH_SIZE] = adding.number
        if adding.schedule:
            attributes[names.SCHEDULE] = one_line(adding.schedule)
        # each time of a schedule begins a trace: what the worker does meanwhile is not its cause
        context = Context() if adding.schedule else None
        span = self._start(SpanKind.PRODUCER, attributes, context)
        adding.trace_context = stored_context(span.get_span_context())
        with _current(span):
            yield
        if adding.outcome == "not due":
            return  # another worker was faster: a span that does not end is not exported
        if adding.outcome not in ("", "added"):
            span.set_attribute(names.OUTCOME, adding.outcome)
        if len(adding.idents) == 1:
            span.set_attribute(names.MESSAGE_ID, adding.idents[0])
        span.end()

    @contextmanager
    def running(self, running: Running) -> Iterator[None]:
        """Make the span of a run."""
        attributes = _attributes(type(running.job), running.queue_name, names.RUN, names.PROCESS)
        attributes |= {names.MESSAGE_ID: one_line(running.ident), names.CLIENT_ID: one_line(running.worker)}
        if running.attempt:
            attributes[names.ATTEMPT] = running.attempt
        context, links = self._origin(running)
        span = self._start(SpanKind.CONSUMER, attributes, context, links)
        running.notes[self] = span.get_span_context()
        with _current(span):
            yield
        span.end()

    def __call__(self, event: events.Event) -> None:
        """Send the spans that a provider still has when a worker ends: its process may end without exit handlers, as
        those of several processes do."""
        if isinstance(event, events.WorkerEnded):
            flush = getattr(self._provider or trace.get_tracer_provider(), "force_flush", None)
            if flush:
                flush(FLUSH_TIMEOUT)

    def _origin(self, running: Running) -> tuple[Context | None, list[Link]]:
        """Return the parent of a run, and the spans it is linked to: the one that added it, and the current one."""
        origin = read_context(running.trace_context)
        if origin is None:
            return None, []
        here = trace.get_current_span().get_span_context()
        if self.style == "link":
            return None, [Link(origin)]
        parent = trace.set_span_in_context(NonRecordingSpan(origin))
        return parent, [Link(each) for each in (origin, here) if each.is_valid]

    def _start(
        self, kind: SpanKind, attributes: dict[str, Any], context: Context | None, links: list[Link] | None = None
    ) -> Span:
        name = f"{attributes[names.OPERATION_NAME]} {attributes[names.DESTINATION]}"
        return self._tracer.start_span(name, context, kind, attributes, links)

    def log_fields(self, running: Running | None) -> Mapping[str, str]:
        """Return the ids of the current span; without one, of the span of the last run of a job."""
        context: SpanContext | None = trace.get_current_span().get_span_context()
        if running and context and not context.is_valid:
            context = running.notes.get(self)
        if context is None or not context.is_valid:
            return {}
        return {"trace_id": f"{context.trace_id:032x}", "span_id": f"{context.span_id:016x}"}


@contextmanager
def _current(span: Span) -> Iterator[None]:
    """Let a span be the current one. If an exception leaves the block, the span tells it, and ends."""
    try:
        with trace.use_span(span, record_exception=False, set_status_on_exception=False):
            yield
    except BaseException as error:
        outcome = _outcome_of(error)
        if outcome:
            span.set_attribute(names.OUTCOME, outcome)
        else:
            _record(span, error)
        span.end()
        raise


def _outcome_of(error: BaseException) -> str | None:
    """Return what the code asks for; None if it failed."""
    wish = wish_among(error) if isinstance(error, BaseExceptionGroup) else error
    if isinstance(wish, JobInterrupted) and wish.waits:
        return "waits"
    return next((outcome for kind, outcome in OUTCOMES.items() if isinstance(wish, kind)), None)


def _record(span: Span, error: BaseException) -> None:
    """Let a span be a failure. All texts are bounded."""
    kind = type(error)
    path = kind.__qualname__ if kind.__module__ == "builtins" else f"{kind.__module__}.{kind.__qualname__}"
    told = {
        names.EXCEPTION_TYPE: one_line(path),
        names.EXCEPTION_MESSAGE: described(error),
        names.EXCEPTION_STACKTRACE: traceback_of(error),
    }
    span.add_event(names.EXCEPTION, told)
    span.set_attribute(names.ERROR_TYPE, one_line(path))
    span.set_status(Status(StatusCode.ERROR, described(error)))


def _attributes(job_class: Any, queue_name: str, operation: str, kind: str) -> dict[str, Any]:
    where = job_class.get_connection().connection_pool.connection_kwargs
    attributes = {
        names.SYSTEM: names.LIMPYD_JOBS,
        names.OPERATION_NAME: operation,
        names.OPERATION_TYPE: kind,
        names.DESTINATION: one_line(queue_name),
        names.JOB_CLASS: job_class.get_model_repr(),
    }
    if where.get("host"):
        attributes[names.SERVER_ADDRESS] = str(where["host"])
        attributes[names.SERVER_PORT] = int(where.get("port") or 6379)
    return attributes


def stored_context(context: SpanContext) -> str:
    """Return the context of a span as it is stored with a job: the ``traceparent`` of W3C, and a ``tracestate`` if
    there is one; empty if it is not the context of a span. Baggage is not stored: it may hold what no one should find
    in Redis."""
    if not context.is_valid:
        return ""
    parent = f"00-{context.trace_id:032x}-{context.span_id:016x}-{context.trace_flags:02x}"
    state = context.trace_state.to_header()
    return f"{parent} {state}" if 0 < len(state) <= MAX_STATE else parent


def read_context(text: str) -> SpanContext | None:
    """Return the context of a stored text; None if it is any other text."""
    found = _STORED.fullmatch(text)
    if not found:
        return None
    trace_id, span_id, flags, state = found.groups()
    known = TraceState.from_header([state]) if state else None
    return SpanContext(int(trace_id, 16), int(span_id, 16), True, TraceFlags(int(flags, 16) & KNOWN_FLAGS), known)
