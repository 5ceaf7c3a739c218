"""Incidents: what is wrong, since when, where, and what helps."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime
from types import MappingProxyType
from typing import NamedTuple

# The gravities, the worst first: jobs are not run, or fail; a person has to look; it is over, but leaves something to
# do.
ERROR, WARNING, OVER = "error", "warning", "over"
GRAVITIES = (ERROR, WARNING, OVER)


class Fact(NamedTuple):
    """A fact about an incident, for people: ``Tries``, ``all 1,731 failed``."""

    name: str
    text: str


class Remedy(NamedTuple):
    """What helps now.

    Attributes
    ----------
    verb: str
        ``pause``, ``resume`` or ``requeue``; ``start`` if a worker has to be started, which no page can do.
    label: str
        For a button: ``Pause payouts``, ``Requeue 46 at 50/s``.
    command: str
        What to type instead.
    queues: sequence of (str, str)
        What the keys of its model begin with, and the name, of each queue that is paused or resumed.
    fingerprint: str
        The cause of the jobs to requeue.
    number: int
        How many jobs that are, as far as they were looked at.
    is_exact: bool
        False if there may be more.
    rate: float
        How many to requeue in a second.
    note: str
        What to know before: ``none of the last 188 tries failed``.
    """

    verb: str
    label: str
    command: str
    queues: Sequence[tuple[str, str]] = ()
    fingerprint: str = ""
    number: int = 0
    is_exact: bool = True
    rate: float | None = None
    note: str = ""


class Incident(NamedTuple):
    """Something that needs attention.

    Attributes
    ----------
    code: str
        For programs: ``memory``, ``failures``, ``unserved``, ``no_home``, ``lapsed``, ``late_schedule``, ``waiting``,
        ``worker_silent``, ``worker_lost``, ``paused``, ``quarantine``, ``deferred``, ``unread``, ``unknown_class``,
        ``limit_stuck`` or ``limit_waits``.
    gravity: str
        ``error`` if jobs are not run, or fail, because of it; ``warning``; ``over`` if it has ended, and jobs are left
        to requeue.
    title: str
        A few words for people, without a date.
    text: str
        A sentence for people, without a date.
    queues: sequence of str
        The names of the queues that it is about.
    since: datetime
        When it began, naive UTC; None if that is not known.
    is_older: bool
        Whether it may have begun before `since`: what was before is not read.
    last: datetime
        When the last failure was, naive UTC; None if it is not about failures.
    is_failing: bool
        Whether tries fail now.
    job_class: str
        The path of the class of the jobs, if it is about one.
    app_version: str
        The version of the application that it began with, or in which it occurs.
    ended_by: str
        The version of the application since which it is over.
    fingerprint, type, raised_in, message: str
        The most frequent cause, and the message of its last error.
    causes: int
        How many causes there are, as far as they were looked at.
    numbers: dict of str to float
        For programs, with the unit in the name if it is not a number of jobs or tries: ``waiting``, ``latency_s``,
        ``began``, ``failed``, ``succeeded``, ``jobs`` in error…
    facts: sequence of Fact
        The same for people.
    remedy: Remedy
        None if nothing helps that a command could do.
    """

    code: str
    gravity: str
    title: str
    text: str
    queues: Sequence[str] = ()
    since: datetime | None = None
    is_older: bool = False
    last: datetime | None = None
    is_failing: bool = False
    job_class: str = ""
    app_version: str = ""
    ended_by: str = ""
    fingerprint: str = ""
    type: str = ""
    raised_in: str = ""
    message: str = ""
    causes: int = 0
    numbers: Mapping[str, float] = MappingProxyType({})
    facts: Sequence[Fact] = ()
    remedy: Remedy | None = None

    @property
    def is_grave(self) -> bool:
        """Whether jobs are not run, or fail, because of it."""
        return self.gravity == ERROR

    @property
    def beyond(self) -> str:
        """What the text says beyond the title, for who shows both; empty if that is nothing."""
        told = self.text.removeprefix(self.title).lstrip(":,. ")
        is_name = any(told.startswith(name) for name in self.queues)
        return told if is_name else told[:1].upper() + told[1:]

    @property
    def queue(self) -> str:
        """The queue that it is about; empty if it is about none, or several."""
        return self.queues[0] if len(self.queues) == 1 else ""


class Verdict(NamedTuple):
    """How a database is, in a few words.

    Attributes
    ----------
    title: str
        ``3 problems``, or ``All well``; ``Some tries fail`` if there is no problem, but a cause goes on: retries helped
        its jobs.
    text: str
        ``9 of 12 queues and 11 of 12 workers are well.``
    gravity: str
        That of the worst problem; ``over`` if there is none, ``warning`` if some tries fail all the same.
    problems: int
        How many incidents are not over.
    since: datetime
        When the worst began, or the last minute with a failed try ended, naive UTC; None if that is
        not known.
    queues, queues_well, workers, workers_well: int
        How many there are, and how many no problem is about.
    """

    title: str
    text: str
    gravity: str
    problems: int
    since: datetime | None
    queues: int
    queues_well: int
    workers: int
    workers_well: int
