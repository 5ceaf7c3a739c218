"""The context of a span as it is stored with a job: the ``traceparent`` of W3C, and a ``tracestate`` if there is one.

Baggage is not stored: it may hold what no one should find in Redis.
"""

from __future__ import annotations

import re

from opentelemetry.trace import SpanContext, TraceFlags, TraceState

KNOWN_FLAGS = 0b11  # whether it is sampled, and whether its id is random
MAX_STATE = 512  # in characters, as W3C demands of those who pass it on

_STORED = re.compile(r"00-(?!0{32})([0-9a-f]{32})-(?!0{16})([0-9a-f]{16})-([0-9a-f]{2})(?: ([!-~ ]{1,512}))?", re.ASCII)


def stored(context: SpanContext) -> str:
    """Return the text to store for a context; empty if it is not the context of a span."""
    if not context.is_valid:
        return ""
    parent = f"00-{context.trace_id:032x}-{context.span_id:016x}-{context.trace_flags:02x}"
    state = context.trace_state.to_header()
    return f"{parent} {state}" if 0 < len(state) <= MAX_STATE else parent


def read(text: str) -> SpanContext | None:
    """Return the context of a stored text; None if it is any other text."""
    found = _STORED.fullmatch(text)
    if not found:
        return None
    trace_id, span_id, flags, state = found.groups()
    known = TraceState.from_header([state]) if state else None
    return SpanContext(int(trace_id, 16), int(span_id, 16), True, TraceFlags(int(flags, 16) & KNOWN_FLAGS), known)
