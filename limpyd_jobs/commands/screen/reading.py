"""What the pages of the screen show, as it was when it was read, and what they do."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

from limpyd_jobs.exceptions import as_written
from limpyd_jobs.models.following.progress import Progress
from limpyd_jobs.query import (
    EndedWorker,
    ErrorFilter,
    ErrorGroup,
    Explanation,
    FoundError,
    FoundJob,
    Glance,
    Incident,
    JobDetails,
    JobFilter,
    Tally,
    Verdict,
    attention,
    explain_job,
    job_details,
    pause_queue,
    progress_of,
    verdict,
)
from limpyd_jobs.texts import MESSAGE, count_of, one_line
from limpyd_jobs.views.following import Following
from limpyd_jobs.views.queues import QueueRow, queue_rows
from limpyd_jobs.views.verbs import Change, filter_of_failed
from limpyd_jobs.views.workers import ShownWorker, shown_workers

# For how many seconds the causes of a queue are counted; how many causes and jobs a page lists.
TIMEOUT, MOST = 0.5, 20


class Sample(NamedTuple):
    """A database, as it was when it was looked at."""

    seen: Glance
    incidents: Sequence[Incident]
    verdict: Verdict
    queues: Sequence[QueueRow]
    workers: Sequence[ShownWorker]
    ended: Sequence[EndedWorker]
    notes: Sequence[str] = ()  # on what could not be looked at

    @classmethod
    def of(cls, seen: Glance, ended: Sequence[EndedWorker], notes: Sequence[str] = ()) -> Sample:
        """Make it of what was read."""
        incidents = attention(seen)
        workers = sorted(shown_workers(seen.overview.workers), key=lambda it: (not it.silence, it.status, it.name))
        return cls(seen, incidents, verdict(seen, incidents), queue_rows(seen, incidents), workers, ended, notes)

    def row(self, name: str) -> QueueRow | None:
        return next((row for row in self.queues if row.name == name), None)


class QueueRead(NamedTuple):
    """What is read of a queue that is opened."""

    causes: Sequence[ErrorGroup]
    jobs: Sequence[FoundJob]  # those that run, then those that wait for longest
    progress: Mapping[str, Progress]


class CauseRead(NamedTuple):
    group: ErrorGroup | None
    errors: Sequence[FoundError]
    in_error: int
    is_exact: bool


class JobRead(NamedTuple):
    details: JobDetails
    explanation: Explanation


def read_queue(name: str) -> QueueRead:
    causes = ErrorFilter(queue=name).groups(MOST, TIMEOUT, messages=1).groups
    jobs: list[FoundJob] = []
    for status in ("running", "waiting"):
        few = JobFilter(queue=name, status=status).listed(newest_first=False)
        if few:
            jobs += few.page(MOST, newest_first=False, timeout=TIMEOUT).found
    return QueueRead(causes, jobs, progress_of(job.ident for job in jobs if job.status == "running"))


def read_cause(fingerprint: str) -> CauseRead:
    errors = ErrorFilter(fingerprint=fingerprint)
    groups = errors.groups(1, TIMEOUT, messages=MOST).groups
    jobs = filter_of_failed(fingerprint).count(TIMEOUT)
    return CauseRead(groups[0] if groups else None, errors.page(MOST, timeout=TIMEOUT).found, *jobs)


def read_job(ident: str) -> JobRead:
    return JobRead(job_details(ident, most=10_000), explain_job(ident))


def change_pause(queues: Sequence[tuple[str, str]], *, pauses: bool) -> str:
    """Pause queues, or resume them; return what was done."""
    done = sum(pause_queue(model, name, pauses=pauses) for model, name in queues)
    return f"{count_of(done, 'queue')} {'paused' if pauses else 'resumed'}"


class Requeue:
    """Jobs in error, to be put back in their queues at a rate: counted first. They are followed, and no more are put
    back if too many fail again, unless that is not wanted."""

    def __init__(self, fingerprint: str = "", queues: Sequence[str] = ()) -> None:
        self._fingerprint, self._queues = fingerprint, queues
        self.rate = 50.0
        self.stops = True

    def _change(self, **how: Any) -> Change:
        names = self._queues
        words = [f"queue={names[0]}" if len(names) == 1 else f"queue__in={','.join(names)}"] if names else []
        asked = filter_of_failed(self._fingerprint, *words) if self._fingerprint else JobFilter("status=error", *words)
        return Change("requeue", [asked], **how)

    def count(self) -> Tally:
        return self._change().count()

    def do(self, say: Callable[[str], object]) -> str:
        """Do it; return what was done. Meanwhile, say what became of the jobs so far."""
        if self.stops:
            return self._followed(say)
        tally = self._change(rate=self.rate).do()
        until = f", the last one due at {tally.until:%H:%M:%S} (UTC)" if tally.until else ""
        reasons = "".join(f"; {number:,} {reason}" for reason, number in tally.reasons.items())
        return f"{count_of(tally.done, 'job')} requeued{until}{reasons}"

    def _followed(self, say: Callable[[str], object]) -> str:
        def tell(looked: int, size: int, told: str) -> None:
            to_come = f", {size - looked:,} to come" if size > looked else ""
            say(f"requeue: {told}{to_come}")

        following = Following(tell, rate=self.rate)
        tally = self._change(told=True).follow(following)
        stopped = f"; {following.why_stopped}" if following.why_stopped else ""
        return f"{count_of(tally.done, 'job')} requeued: {following.outcomes}{stopped}"


def reason_of(error: BaseException) -> str:
    return one_line(as_written(error, {}) if isinstance(error, Exception) else error, MESSAGE) or type(error).__name__
