"""A job as its timeline: what it did from when it was added until it ended, or until now, try by try."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from datetime import datetime
from typing import NamedTuple

from limpyd_jobs.dates import parse_datetime, utcnow
from limpyd_jobs.models.explaining.details import MAX_ERRORS
from limpyd_jobs.models.following.history import StatusChange
from limpyd_jobs.query import JobDetails
from limpyd_jobs.texts import count_of
from limpyd_jobs.views.jobs import shown_time

WAITED, DELAYED, RAN, BEFORE = "waited", "delayed", "ran", "before"

PUT_BACK, LOST, WAITS = "put back", "lost", "waits"

# What a status is on a timeline.
_KINDS: Mapping[str, str] = {"waiting": WAITED, "delayed": DELAYED, "running": RAN}

# The units of the axis: from which step on, in seconds; and how many seconds each has.
_UNITS = ((86400, 86400, "d"), (3600, 3600, "h"), (60, 60, "min"), (0.1, 1, "s"), (0.0, 0.001, "ms"))

# How many tries are drawn, the last ones; how far an error may be from the end of its try, in seconds; the steps of the
# axis, in seconds; and into how many parts they divide it at most.
MAX_TRIES, NEAR, STEPS, MAX_TICKS = 12, 5.0, (0.001, 0.01, 0.1, 1, 10, 60, 600, 3600, 21600, 86400, 604800), 7


class Segment(NamedTuple):
    """A time in which a job waited, was delayed, or ran.

    Attributes
    ----------
    kind: str
        ``waited``, ``delayed``, ``ran``; or ``before``, if it is not known what it did before its last try.
    start, end: datetime
    at, width: float
        Where it begins on the timeline, and how wide it is, as parts of one: to scale, but at least half a percent.
    """

    kind: str
    start: datetime
    end: datetime
    at: float = 0.0
    width: float = 0.0

    @property
    def seconds(self) -> float:
        return max((self.end - self.start).total_seconds(), 0.0)

    @property
    def text(self) -> str:
        return f"{self.kind} {shown_time(self.seconds)}"


class Try(NamedTuple):
    """A try of a job, with what it did before that.

    Attributes
    ----------
    number: int
    segments: list of Segment
    outcome: str
        ``success``, ``error``, ``canceled``; ``retry``, if it was put back after an error; ``lost``, if its worker
        died: it ran no longer than is shown; ``put back``, if no error of it is known; ``waits``, if it waits since
        then for a signal, or for other jobs; ``running``, or the status of a job that has not begun it yet.
    owner: str
        Who ran it; empty if that is not known.
    error: dict of str to str
        The error that it ended with; empty if there is none, or it is not known.
    """

    number: int
    segments: Sequence[Segment]
    outcome: str
    owner: str
    error: Mapping[str, str]

    @property
    def ran(self) -> Segment | None:
        return next((each for each in self.segments if each.kind == RAN), None)


class Timeline(NamedTuple):
    """The tries of a job, to scale.

    Attributes
    ----------
    start, end: datetime
    tries: list of Try
        The last ones.
    earlier: int
        How many tries before that are not shown.
    ticks: list of tuple of float and str
        Where the axis has a mark, as a part of one, and how long after the start that is.
    is_whole: bool
        False if its class keeps no history: of earlier tries, only the errors are known.
    missing: str
        What is known of runs that are not drawn; empty if there are none.
    """

    start: datetime
    end: datetime
    tries: Sequence[Try]
    earlier: int
    ticks: Sequence[tuple[float, str]]
    is_whole: bool
    missing: str = ""

    @property
    def text(self) -> str:
        """How long it took, and of what that is made."""
        sums = {
            kind: sum(s.seconds for t in self.tries for s in t.segments if s.kind == kind) for kind in _KINDS.values()
        }
        told = [f"{shown_time(seconds)} {kind}" for kind, seconds in sums.items() if seconds > 0]
        whole = shown_time((self.end - self.start).total_seconds())
        return f"{whole}, to scale: {', '.join(told)}" if told else whole


def timeline_of(job: JobDetails) -> Timeline | None:
    """Return the timeline of a job; None if it does not say when it was added or began."""
    tries = _with_lost([*_tries_of_history(job)], job.lost) if job.history else [*_tries_of_fields(job)]
    if not tries:
        return None
    shown = tries[-MAX_TRIES:]
    start = shown[0].segments[0].start
    end = max(each.end for a_try in shown for each in a_try.segments)
    span = max((end - start).total_seconds(), 0.001)
    placed = [each._replace(segments=[_placed(segment, start, span) for segment in each.segments]) for each in shown]
    is_whole = bool(job.history) and job.changes_stored <= len(job.history)
    return Timeline(start, end, placed, len(tries) - len(shown), _ticks(span), is_whole, _missing(job, tries))


def _missing(job: JobDetails, tries: Sequence[Try]) -> str:
    """Say what is known of the runs that are not among the tries."""
    if job.history:
        return ""
    if job.lost:
        return f"{count_of(job.lost, 'run')} {'was' if job.lost == 1 else 'were'} lost: the worker died."
    number = tries[-1].number - 1 - len([each for each in job.errors if each is not tries[-1].error])
    if number <= 0 or len(job.errors) >= MAX_ERRORS:
        return ""
    runs = count_of(number, "earlier try", "earlier tries")
    return f"Of {runs} no error is kept: the worker died, the job was put back, or the error was deleted."


def _placed(segment: Segment, start: datetime, span: float) -> Segment:
    width = max(segment.seconds / span, 0.005)
    return segment._replace(at=min((segment.start - start).total_seconds() / span, 1 - width), width=width)


def _ticks(span: float) -> list[tuple[float, str]]:
    step = next(
        (size * times for size in STEPS for times in (1, 2, 5) if span / (size * times) <= MAX_TICKS), span / MAX_TICKS
    )
    number = int(span / step)
    size, unit = next((size, unit) for least, size, unit in _UNITS if step >= least)  # so that no two ticks are alike
    digits = int(step < size)
    return [
        (each * step / span, f"{each * step / size:,.{digits}f} {unit}" if each else "0") for each in range(number + 1)
    ]


def _tries_of_history(job: JobDetails) -> Iterator[Try]:
    is_over = job.history[-1].status.lower() not in _KINDS
    last = job.history[-1]
    ends = [*job.history[1:], *([] if is_over else [StatusChange(max(utcnow(), last.at), "", None)])]
    segments, number = list[Segment](), 0
    errors = [*job.errors]
    for change, following in zip(job.history, ends, strict=False):
        kind = _KINDS.get(change.status.lower())
        if kind is None:  # it had ended, and was put back: the time in between is of no try
            continue
        segments.append(Segment(kind, change.at, following.at))
        if kind == RAN:
            number += 1
            outcome = following.status.lower() or "running"
            error = _error_at(errors, following.at) if outcome != "success" else {}
            if outcome in _KINDS and following.status:
                waits = job.waits_for and following is last
                outcome = "retry" if error else WAITS if waits else PUT_BACK
            yield Try(number, segments, outcome, _owner(change), error)
            segments = []
    if segments:
        status = last.status.lower()
        yield Try(number + 1, segments, status if status in _KINDS else job.status, "", {})


def _with_lost(tries: list[Try], lost: int) -> list[Try]:
    """Say of tries without an outcome that their worker died, if so many runs were lost."""
    if lost < sum(each.outcome == PUT_BACK for each in tries):
        return tries
    return [each._replace(outcome=LOST) if each.outcome == PUT_BACK else each for each in tries]


def _owner(change: StatusChange) -> str:
    """Return who ran it, without the random part of its name."""
    return ":".join((change.owner or "").rpartition("@")[2].split(":")[:2])


def _error_at(errors: list[dict[str, str]], end: datetime) -> Mapping[str, str]:
    """Take the error that was recorded at some moment."""
    near = [(abs((at - end).total_seconds()), each) for each in errors if (at := parse_datetime(each.get("date_time")))]
    distance, found = min(near, key=lambda pair: pair[0], default=(NEAR, {}))
    return found if distance < NEAR else {}


def _tries_of_fields(job: JobDetails) -> Iterator[Try]:
    """Yield what the fields say, of a class that keeps no history: the last try, and the errors of those before."""
    dates = [parse_datetime(job.fields.get(name)) for name in ("added", "start", "end")]
    added, start, end = dates
    tries = int(text) if (text := job.fields.get("tries", "0")).isdecimal() else 0
    now = utcnow()
    if start is None:
        kind = DELAYED if job.status == "delayed" else WAITED
        if added and job.status in _KINDS:
            yield Try(tries + 1, [Segment(kind, added, max(now, added))], job.status, "", {})
        return
    until = end or (max(now, start) if job.status == "running" else start)
    before = [Segment(WAITED if tries <= 1 else BEFORE, added, start)] if added and added <= start else []
    error = _error_at(job.errors, until) if job.status == "error" else {}
    owner = ":".join((job.owner or "").split(":")[:2])
    outcome = job.status if job.status not in ("waiting", "delayed") else "retry"
    yield Try(max(tries, 1), [*before, Segment(RAN, start, until)], outcome, owner, error)
