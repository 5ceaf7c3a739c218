"""Claims that last as long as the process that holds them."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Iterator, Sequence
from contextlib import ExitStack, suppress
from threading import Lock
from time import monotonic
from typing import Any, Generic, Self, TypeVar, cast

from limpyd.exceptions import DoesNotExist
from redis.exceptions import RedisError

from limpyd_jobs import transitions
from limpyd_jobs.arguments import checked_lease
from limpyd_jobs.classes.binding import origin_of
from limpyd_jobs.exceptions import JobGone, LimpydJobsException
from limpyd_jobs.models.claims.claim import Claim
from limpyd_jobs.models.claims.job_claim import Renewing, next_step
from limpyd_jobs.models.job_record import JobRecord
from limpyd_jobs.models.presence import Presence, Registration
from limpyd_jobs.records.records import redis_of
from limpyd_jobs.redis.forks import this_process
from limpyd_jobs.texts import MESSAGE, one_line
from limpyd_jobs.threads import Heartbeat
from limpyd_jobs.transitions import Renewal

AJob = TypeVar("AJob", bound=JobRecord)

Key = tuple[type[JobRecord], str]

logger = logging.getLogger("limpyd-jobs")


class Session(Generic[AJob]):
    """Claims on any number of jobs. One thread renews each claim until it is ended, or until the session ends.

    >>> with Session(lease=30) as session:
    ...     claim = session.claim(job, owner="ann")
    ...     claim.succeed()

    Jobs that are still claimed at the end go back to the front of their queues, the oldest first. If the process dies,
    the claims lapse with their leases. A forked process has no part in them, and begins a session of its own.

    Parameters
    ----------
    lease: float
        For how many seconds a claim outlives its process.

    Raises
    ------
    ValueError
        If the lease is not a number of seconds, more than 0.
    """

    def __init__(self, lease: float = 30) -> None:
        self.lease = checked_lease(lease)
        self._is_open = False
        self._begin()

    def _begin(self) -> None:
        self._pid, self._lock = this_process.pid, Lock()
        self._forget_all()

    def _forget_all(self) -> None:
        self._claims: dict[Key, Claim[AJob]] = {}
        self._renewed: set[Key] = set()
        self._presences: list[Registration] = []
        self._heartbeat = Heartbeat(self.lease / 4, self._beat)

    @property
    def is_open(self) -> bool:
        """Whether claims are renewed."""
        return self._is_open

    def open(self) -> None:
        """Begin to renew. Nothing happens if the session is open."""
        self._be_of_this_process()
        if not self._is_open:
            self._heartbeat.__enter__()
            self._is_open = True

    def close(self) -> None:
        """Release the claims that are renewed, and end the presences. Nothing happens if the session is closed."""
        self._be_of_this_process()
        with self._lock:
            if not self._is_open:
                return
            self._is_open = False
            self._heartbeat.stop()
            renewed = sorted(self._renewed, key=_age, reverse=True)  # each goes to the front of its queue
            presences, claims = self._presences, [self._claims[key] for key in renewed]
            self._forget_all()
        for presence in presences:
            presence.close()
        for claim in claims:
            _release(claim)

    def __enter__(self) -> Self:
        self.open()
        return self

    def __exit__(self, *exc_info: object) -> None:
        self.close()

    def claim(self, job: AJob, owner: str | None = None, lease: float | None = None, **options: Any) -> Claim[AJob]:
        """Claim a job, as `Job.claim` does.

        Parameters
        ----------
        lease: float
            For how many seconds to hold the claim, without renewing it. None to renew it as long as the session is
            open.

        Raises
        ------
        LimpydJobsException
            If the session is not open, or is closed meanwhile, or the job cannot be claimed.
        TypeError
            If it is not a job.
        """
        if not isinstance(job, JobRecord):
            raise TypeError(f"Only a job can be claimed, not {job!r}")
        claims = self._claims_if_open()
        claim: Claim[AJob] = cast(Any, job).claim(owner, self.lease if lease is None else lease, **options)
        with self._lock:
            if self._claims is claims:
                claims[_key(job)] = claim
                (self._renewed.add if lease is None else self._renewed.discard)(_key(job))
                return claim
        _release(claim)
        raise LimpydJobsException(f"The session was closed, so {job.ident} is released")

    def held(self, job: AJob) -> Claim[AJob] | None:
        """Return the claim on a job; None if this session has none, or it was ended or lost."""
        self._be_of_this_process()
        claim = None
        with suppress(DoesNotExist):  # it was deleted through this object
            claim = self._claims.get(_key(job))
        return None if claim is None or claim.status is not None or claim.is_lost else claim

    def let_lapse(self, job: AJob) -> None:
        """Stop renewing the claim on a job, if there is one. It can still be ended until its lease lapses."""
        self._be_of_this_process()
        with self._lock, suppress(DoesNotExist):  # it was deleted through this object
            self._renewed.discard(_key(job))

    def register(self, presence_model: type[Presence], kind: str, name: str | None = None, **details: Any) -> None:
        """Register a presence, see `Presence.register`, until the end of the session.

        Raises
        ------
        LimpydJobsException
            If the session is not open, or is closed meanwhile.
        """
        claims = self._claims_if_open()
        presence = presence_model.register(kind, name, self.lease, **details)
        with self._lock:
            if self._claims is claims:
                self._presences.append(presence)
                return
        presence.close()
        raise LimpydJobsException(f"The session was closed, so the presence of the {kind} is ended")

    def _claims_if_open(self) -> dict[Key, Claim[AJob]]:
        """Return the claims of the session, as long as it is open. Once it was closed, it has other ones."""
        self._be_of_this_process()
        if not self._is_open:
            raise LimpydJobsException("The session is not open: call open(), or use it in a with statement")
        return self._claims

    def _be_of_this_process(self) -> None:
        if self._pid != this_process.pid:
            is_open, self._is_open = self._is_open, False
            self._begin()
            if is_open:
                self.open()

    def _beat(self) -> None:
        """Renew the claims, and forget those that ended. Called by another thread."""
        claims, until = self._claims.copy(), monotonic() + self.lease
        renewed = [claims[key] for key in self._renewed.copy() if key in claims]
        _renew_together([claim for claim in renewed if claim.status is None and claim._holds_until < until], self.lease)
        for key, claim in claims.items():
            is_over = claim._claim.is_lost or (key not in self._renewed and claim.is_lost)
            if claim.status is not None or is_over:
                self._forget(key, claim)

    def _forget(self, key: Key, claim: Claim[AJob]) -> None:
        with self._lock:
            if self._claims.get(key) is claim:
                del self._claims[key]
                self._renewed.discard(key)


def _renew_together(claims: Iterable[Claim[Any]], lease: float) -> None:
    """Renew claims for as many seconds, those that end first before the others, in as few steps as may be. Each knows
    what became of it; nothing is raised."""
    databases: dict[Any, list[Claim[Any]]] = {}
    for claim in sorted(claims, key=_end):
        databases.setdefault(_database(claim), []).append(claim)
    for found in map(iter, databases.values()):
        while _renew_some(found, lease):
            pass


def _renew_some(waiting: Iterator[Claim[Any]], lease: float) -> bool:
    """Renew the next claims; return False if there are none."""
    with ExitStack() as stack:
        found = next_step(waiting, lambda claim: claim._claim, stack)
        step = [each for each in found if each[0]._begins_renewal(lease, stack)]
        if step:
            _renew_step(step, lease)
        return bool(found)


def _renew_step(step: Sequence[Renewing[Claim[Any]]], lease: float) -> None:
    first, sent = step[0][0], monotonic()
    try:
        renewals = [Renewal(type(claim.job), claim._claim.delivery, keeping.request) for claim, keeping in step]
        outcomes = transitions.renew_all(redis_of(first.job), renewals, lease)
    except Exception as error:
        others = f" (and {len(step) - 1} more)" if len(step) > 1 else ""
        logger.warning(f"{first!r} is not renewed yet{others}: {one_line(error, MESSAGE)}")
        return
    for (claim, keeping), outcome in zip(step, outcomes, strict=True):
        keeping.is_done = outcome in ("done", "canceled")
        if outcome == "failed":
            logger.warning(f"{claim!r} is not renewed yet: its record is broken")
        claim._was_renewed(sent, lease, outcome)


def _end(claim: Claim[Any]) -> float:
    return claim._holds_until


def _database(claim: Claim[Any]) -> tuple[Any, str]:
    """The database of a job; and its namespace, if its class is bound to that: then another one has the same path."""
    job_class = type(claim.job)
    return job_class.database, "" if origin_of(job_class) is job_class else job_class.namespace


def _release(claim: Claim[Any]) -> None:
    with suppress(JobGone, LimpydJobsException, RedisError):  # then it lapses, if it is there
        claim.release()


def _key(job: JobRecord) -> Key:
    """The key of a job here: a class may be bound to several databases."""
    return type(job), job.ident


def _age(key: Key) -> tuple[int, str]:
    """Sort jobs of a class by their age: older ones have lower pks."""
    return len(key[1]), key[1]
