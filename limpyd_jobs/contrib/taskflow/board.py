"""The board: what TaskFlow calls."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from math import inf
from threading import TIMEOUT_MAX, Event, Lock
from time import monotonic
from typing import Any

from oslo_utils import uuidutils
from redis.exceptions import RedisError
from taskflow import exceptions, states
from taskflow.conductors.base import Conductor
from taskflow.jobs import base
from taskflow.persistence.models import LogBook
from taskflow.types.entity import Entity

from limpyd_jobs import (
    STATUSES,
    AlreadyClaimed,
    Claim,
    ClaimLost,
    JobGone,
    LimpydJobsException,
    NotClaimable,
    NotRecorded,
    Presence,
    Session,
)
from limpyd_jobs.contrib.settings import checked_seconds
from limpyd_jobs.contrib.taskflow.events import BoardEvents, BoardNotifier, BoardTimeout
from limpyd_jobs.contrib.taskflow.job import LimpydJob
from limpyd_jobs.contrib.taskflow.reading import PostingReader, Postings
from limpyd_jobs.contrib.taskflow.records import PRIORITIES, Posting, PostingError
from limpyd_jobs.contrib.taskflow.settings import of_board

OPEN = (STATUSES.WAITING, STATUSES.DELAYED, STATUSES.RUNNING)

# For how many seconds to wait for the end of a job before a look whether the board is still open.
END_WAIT = 1.0

# Why a posting is not on the board, by its status.
OFF_THE_BOARD = {
    STATUSES.SUCCESS: "any more: it was consumed",
    STATUSES.ERROR: "any more: it was trashed",
    STATUSES.CANCELED: "any more: it was canceled",
    STATUSES.DELAYED: "yet: it is delayed",
}

# The least time for which a conductor waits by default, in seconds.
SHORTEST_WAIT = 0.5


class LimpydJobBoard(base.NotifyingJobBoard):
    """Postings in Redis, as jobs of a queue.

    A claim without an expiry is renewed as long as the board is open, and lapses with its process. A claim with an
    expiry lapses after that time. A conductor that lost its claim cannot end the job, even if the new owner has the
    same name.

    Parameters
    ----------
    name: str
        The name of the board for its conductors.
    conf: mapping
        ``url``, or ``host``, ``port``, ``db``, ``username``, ``password``, ``unix_socket_path``, ``ssl`` and the
        ``ssl_…`` of TaskFlow's own board for Redis; ``namespace``, the name of the queue, by default the one of the
        board; ``lease``, for how many seconds a claim without an expiry outlives its process, 30 by default.
    client: redis.Redis
        A client whose settings to take, instead of those of `conf`.
    persistence: object
        The backend of TaskFlow that stores the books.

    Attributes
    ----------
    model: type of Posting
        The postings, in the database of this board: ``board.model.collection(status=STATUSES.ERROR)`` are the trashed
        ones.
    errors: type of PostingError
        The reasons why postings were trashed.
    presences: type of Presence
        ``board.presences.alive("conductor")`` are the conductors of all boards there.

    Raises
    ------
    ValueError
        If a setting in `conf` is wrong.
    """

    def __init__(self, name: str, conf: Mapping[str, Any], client: Any = None, persistence: Any = None) -> None:
        super().__init__(name, conf)
        self.notifier = BoardNotifier(self._notify)
        self.persistence = persistence
        self.queue_name, lease, database = of_board(name, conf, client)
        self.model = Posting.bound_to(database)
        self.errors = PostingError.bound_to(database)
        self.presences = Presence.bound_to(database, "taskflow")
        self.wakes: list[Callable[[], None]] = []  # called if a job is posted
        self.at_ends: list[Callable[[], None]] = []  # called if a claim of this board ends
        self._reader = PostingReader(self.model, self.queue_name, self._job)
        self._session = Session[Posting](lease)
        self._begin()

    def _begin(self) -> None:
        self._pid, self._lock = os.getpid(), Lock()
        self._events = BoardEvents(self.name, self._reader, self.notifier, self._wake)

    # -- Connecting

    @property
    def connected(self) -> bool:
        """Whether the board is open."""
        return self._session.is_open

    def connect(self) -> None:
        """Open the board."""
        self._be_of_this_process()
        with self._lock:
            if not self.connected:
                with _failures():
                    self.model.get_connection().ping()
                self._session.open()
        if len(self.notifier):
            self._notify()

    def close(self) -> None:
        """Close the board, and release claims without an expiry. May be called twice."""
        self._be_of_this_process()
        with self._lock:
            if not self.connected:
                return
            self._events.close()
            self._session.close()
        self._begin()
        self._wake()  # those who wait see that it is closed
        self.model.database.close_idle()

    def _be_of_this_process(self) -> None:
        if self._pid != os.getpid():
            self._begin()

    @contextmanager
    def failures(self) -> Iterator[None]:
        """Raise the exception that TaskFlow expects if Redis fails, or the board is closed."""
        self._check_is_open()
        with _failures():
            yield

    def _check_is_open(self) -> None:
        self._be_of_this_process()
        if not self.connected:
            raise exceptions.JobFailure(f"The board {self.name!r} is not connected: call connect() before")

    # -- Reading

    def iterjobs(self, only_unclaimed: bool = False, ensure_fresh: bool = False) -> Postings:
        """Return an iterator over the postings, by priority, then the oldest first. It always reads anew."""
        return Postings(self, self._fetch_jobs(only_unclaimed), only_unclaimed, ensure_fresh)

    def _fetch_jobs(self, only_unclaimed: bool) -> Iterator[LimpydJob]:
        """Read the postings. Other boards of TaskFlow have a method of this name."""
        with self.failures():
            yield from self._reader.all(only_unclaimed)

    def _job(self, record: str | Posting, priority: base.JobPriority, **known: Any) -> LimpydJob:
        return LimpydJob(self, record, priority, backend=self.persistence, **known)

    @property
    def job_count(self) -> int:
        """How many postings there are, claimed or not. To count 10,000 takes some 100 ms."""
        with self.failures():
            return self._reader.count()

    def look(self, job: LimpydJob) -> tuple[str, str | None, float | None]:
        """Return the state of a posting; and, if it is claimed, who holds the claim, and in how many seconds it
        lapses."""
        _check_job(job)
        with self.failures():
            found = job.posting.claim_state()
        if found.is_held:
            return states.CLAIMED, found.owner, found.left
        return states.UNCLAIMED if found.status in OPEN else states.COMPLETE, None, None

    def find_owner(self, job: LimpydJob) -> str | None:
        """Return who holds the claim; None if it is not claimed."""
        return self.look(job)[1]

    def wait(self, timeout: float | None = None) -> Postings:
        """Wait for postings; return an iterator over them, or raise `NotFound` after `timeout` seconds."""
        posted, end = Event(), monotonic() + _time_to_wait(timeout)
        self.listen()
        self.wakes.append(posted.set)
        try:
            while next(self.iterjobs(), None) is None:
                left = end - monotonic()
                if left <= 0:
                    raise exceptions.NotFound(f"Nothing was posted on {self.name!r} within {timeout} seconds")
                posted.wait(min(left, TIMEOUT_MAX))
                posted.clear()
        finally:
            self.wakes.remove(posted.set)
        return self.iterjobs()

    def listen(self) -> bool:
        """Begin to listen to changes by others, in a thread; return False if that was done before."""
        with self.failures():
            return self._events.listen()

    def _notify(self, anew: bool = False) -> None:
        """Begin to notify of what is posted and removed, if the board is open. Read anew what is posted, if asked."""
        if self.connected:
            with self.failures():
                self._events.listen()
                self._events.learn(anew)

    def _wake(self) -> None:
        for wake in [*self.wakes]:
            wake()

    def wait_for_end(self, job: LimpydJob, timeout: float | None = None) -> bool:
        """Wait until a job is complete: see `LimpydJob.wait`."""
        end = monotonic() + _time_to_wait(timeout)
        while True:
            left = max(0, end - monotonic())
            with self.failures():  # the board may be closed meanwhile
                if job.posting.wait(min(left, END_WAIT)):
                    return True
            if left <= END_WAIT:
                return False

    def timeout(self, seconds: float | None = None) -> BoardTimeout:
        """Return a `wait_timeout` for a conductor, so that a posting reaches it at once.

        Parameters
        ----------
        seconds: float
            How often to look all the same: it is not notified of a claim that lapsed. By default each quarter of the
            ``lease`` of the board, but not more often than twice a second.

        Raises
        ------
        ValueError
            If it is not a number of seconds, more than 0.
        """
        usual = max(SHORTEST_WAIT, self._session.lease / 4)
        value = usual if seconds is None else checked_seconds("The timeout", seconds)
        made = BoardTimeout(value, lambda: self.connected and self.listen())
        self.wakes.append(made.look)
        self.at_ends.append(made.look_soon_again)
        return made

    # -- Changing

    def post(
        self, name: str, book: Any = None, details: Any = None, priority: Any = base.JobPriority.NORMAL
    ) -> LimpydJob:
        """Post a job: see TaskFlow."""
        if details and not isinstance(details, Mapping):
            raise exceptions.JobFailure(f"{name!r} cannot be posted: its details must be a mapping, not {details!r}")
        if book is not None and not isinstance(book, LogBook):
            raise TypeError(f"{name!r} cannot be posted: its book must be a LogBook, not {book!r}")
        priority = base.JobPriority.convert(priority)
        book_data = None if book is None else {"name": book.name, "uuid": book.uuid}
        values: dict[str, Any] = {"title": name, "details": details or {}, "book": book_data}
        known = {"name": name, "uuid": uuidutils.generate_uuid(), "details": details, "book": book}

        def add() -> LimpydJob:
            posting = self.model.add_job(known["uuid"], self.queue_name, PRIORITIES[priority], **values)
            return self._job(posting, priority, book_data=book_data, **known)

        with self.failures():
            try:
                return self._events.post(add)
            except (TypeError, ValueError) as error:
                raise exceptions.JobFailure(f"{name!r} cannot be posted: {error}") from error

    def claim(self, job: LimpydJob, who: str, expiry: float | None = None) -> None:
        """Claim a posting. `UnclaimableJob` says who has claimed it, `NotFound` why it is not on the board.

        If this board claimed it for the same name, the claim lasts for `expiry` seconds from now on, if given.
        """
        _check(job, who)
        lease = None if expiry is None else checked_seconds("expiry", expiry)
        with self.failures():
            try:
                self._session.claim(job.posting, who, lease, error_model=self.errors)
            except AlreadyClaimed as error:
                if error.owner == who and lease is not None:
                    self.extend(job, lease)
                raise exceptions.UnclaimableJob(f"Job {job.uuid} is claimed already by {error.owner!r}") from error
            except NotClaimable as error:
                why = OFF_THE_BOARD.get(error.status, "any more")
                raise exceptions.NotFound(f"Job {job.uuid} is not on the board {why}") from error
            except (JobGone, LimpydJobsException) as error:
                self._check_is_open()  # it may be closed meanwhile
                raise exceptions.NotFound(f"Job {job.uuid} is gone: {error}") from error

    def extend(self, job: LimpydJob, expiry: float) -> bool:
        """Let a claim of this board last for that many seconds from now; return whether this worked."""
        claim = self._session.held(job.posting)
        with suppress(ClaimLost, JobGone), self.failures():
            if claim is not None:
                claim.renew(checked_seconds("expiry", expiry))
                return True
        return False

    def consume(self, job: LimpydJob, who: str) -> None:
        """Remove a posting that is done. `JobFailure`: another owner holds the claim; `NotFound`: no owner does."""
        self._end(job, who, "consume", lambda claim: claim.succeed())

    def abandon(self, job: LimpydJob, who: str) -> None:
        """Let others claim a posting."""
        self._end(job, who, "abandon", lambda claim: claim.release())

    def trash(self, job: LimpydJob, who: str) -> None:
        """Put a posting in the `errors` of its queue. It may be requeued from there."""
        self._end(job, who, "trash", lambda claim: claim.fail(exceptions.JobFailure(f"trashed by {who}")))

    def _end(self, job: LimpydJob, who: str, what: str, verb: Callable[[Claim[Posting]], None]) -> None:
        try:
            self._end_claim(job, who, what, verb)
        finally:
            for look in [*self.at_ends]:
                look()

    def _end_claim(self, job: LimpydJob, who: str, what: str, verb: Callable[[Claim[Posting]], None]) -> None:
        _check(job, who)
        claim = self._session.held(job.posting)
        if claim is None:  # a conductor does not ask again: one that was silent for too long must not keep the claim
            self._session.let_lapse(job.posting)
        if claim is None or claim.owner != who:
            raise self._refusal(job, who, what)
        with self.failures():
            try:
                verb(claim)
            except (ClaimLost, JobGone):
                raise self._refusal(job, who, what) from None
            except NotRecorded:
                self._session.let_lapse(job.posting)
                raise

    def _refusal(self, job: LimpydJob, who: str, what: str) -> Exception:
        owner = self.find_owner(job)
        if owner is None:
            return exceptions.NotFound(f"Cannot {what} job {job.uuid}: it is not claimed, or it is gone")
        why = f"it is not owned by {who!r}, but by {owner!r}"
        if owner == who:
            why = f"the claim of this board lapsed, or it has none. Another claim of {who!r} may hold it"
        return exceptions.JobFailure(f"Cannot {what} job {job.uuid}: {why}")

    def register_entity(self, entity: Any) -> None:
        """Register a conductor, as long as this board is open: it is among ``board.presences.alive("conductor")``."""
        if not isinstance(entity, Entity):
            raise TypeError(f"What is registered must be an Entity of TaskFlow, of a conductor, not {entity!r}")
        if entity.kind != Conductor.ENTITY_KIND:
            raise exceptions.NotImplementedError(f"Only conductors can be registered, not a {entity.kind!r}")
        about = {"board": self.queue_name, "metadata": entity.metadata}
        with self.failures():
            try:
                self._session.register(self.presences, entity.kind, entity.name, **about)
            except (TypeError, ValueError) as error:
                raise exceptions.JobFailure(f"{entity.name!r} cannot be registered: {error}") from error


@contextmanager
def _failures() -> Iterator[None]:
    try:
        yield
    except (RedisError, NotRecorded) as error:
        raise exceptions.JobFailure(f"Redis failed: {error}") from error


def _time_to_wait(timeout: Any) -> float:
    if timeout is None:
        return inf
    if isinstance(timeout, bool) or not isinstance(timeout, (int, float)):
        raise TypeError(f"The timeout must be a number of seconds, or None, not {timeout!r}")
    if not timeout >= 0:
        raise ValueError(f"The timeout must be 0 seconds or more, not {timeout!r}")
    return timeout


def _check_job(job: Any) -> None:
    if not isinstance(job, LimpydJob):
        raise TypeError(f"The job must be one of this board, not {job!r}")


def _check(job: Any, who: Any) -> None:
    _check_job(job)
    if not isinstance(who, str):
        raise TypeError(f"Who claims a job must be a string, not {who!r}")
    if not who:
        raise ValueError("Who claims a job must not be empty")
