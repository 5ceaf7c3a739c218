"""Workers as they are shown: with what is said of those that are silent."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

from limpyd_jobs.dates import parse_datetime
from limpyd_jobs.models.explaining.silence import silences
from limpyd_jobs.models.presence import AliveWorker, RunningJob
from limpyd_jobs.texts import one_line


@dataclass(frozen=True)
class ShownWorker(AliveWorker):
    """A worker, as of its last sign of life.

    Attributes
    ----------
    silence: str
        For how long it has been silent, and what comes next; empty if it is not silent.
    running_number: int
        How many jobs it runs, also if `running` has only some of them.
    """

    silence: str = field(default="", kw_only=True)
    running_number: int = field(default=0, kw_only=True)

    def seconds_of(self, job: RunningJob) -> float | None:
        """Return for how many seconds it had run a job then; None if that is not known."""
        began = parse_datetime(job.since)
        return max((self.last_seen - began).total_seconds(), 0.0) if began and not self.silent_for else None


def shown_workers(everyone: Sequence[AliveWorker]) -> list[ShownWorker]:
    """Return all workers that are there as they are shown."""
    silent = silences(everyone)
    return [
        ShownWorker(**vars(each), silence=silent.get(each.pk, ""), running_number=len(each.running))
        for each in everyone
    ]


def lines_of_silent(workers: Sequence[ShownWorker]) -> Iterator[str]:
    """Yield a line about each worker that is silent."""
    return (f"{one_line(each.name)}: {each.silence}" for each in workers if each.silence)
