"""A jobboard of TaskFlow: each posting is a job of a queue, of one of five priorities.

>>> board = taskflow.jobs.backends.fetch("flows", {"board": "limpyd", "url": "redis://localhost/0"})
>>> board.connect()
"""

from __future__ import annotations

import json
import logging
import os
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from datetime import datetime, timezone
from threading import Event, RLock, Thread
from time import monotonic, sleep
from typing import Any

from oslo_utils import strutils, uuidutils
from redis.exceptions import ConnectionError as RedisConnectionError
from redis.exceptions import RedisError
from redis.exceptions import TimeoutError as RedisTimeoutError
from taskflow import exceptions, states
from taskflow.conductors.base import Conductor
from taskflow.jobs import base
from taskflow.types.notifier import Notifier
from taskflow.types.timing import Timeout

from limpyd_jobs import (
    STATUSES,
    AlreadyClaimed,
    Argument,
    Claim,
    ClaimLost,
    Error,
    Job,
    JobGone,
    LimpydJobsException,
    NotRecorded,
    Presence,
    Queue,
)
from limpyd_jobs.heartbeat import Heartbeat
from limpyd_jobs.store.database import JobsDatabase

LOG = logging.getLogger(__name__)

# The priorities of the queues, the highest first, as they are served.
PRIORITIES = dict(zip(base.JobPriority, range(2, -3, -1), strict=True))

BY_NUMBER = {f"{number}": priority for priority, number in PRIORITIES.items()}

# How long to wait, in seconds, before changes are read again: the first time, and at the most.
FIRST_PAUSE, LONGEST_PAUSE = 0.1, 5.0

# For how long, in seconds, a claim without an expiry outlives its process.
SESSION = 30.0

# What of the configuration is of the database, and what it is, as it may come as text.
SETTINGS: dict[str, Callable[[Any], Any]] = {
    **dict.fromkeys(("url", "host", "username", "password", "unix_socket_path", "client_name"), str),
    **dict.fromkeys(("ssl_keyfile", "ssl_certfile", "ssl_cert_reqs", "ssl_ca_certs"), str),
    **dict.fromkeys(("port", "db"), int),
    **dict.fromkeys(("socket_timeout", "socket_connect_timeout"), float),
    "ssl": strutils.bool_from_string,
}

# What else may be in the configuration. The last ones are of TaskFlow's own board for Redis, and mean nothing here.
OTHER_SETTINGS = {
    *("board", "namespace", "lease", "sentinel"),
    *("encoding", "encoding_errors", "retry_on_timeout", "health_check_interval"),
    *("sentinel_fallbacks", "sentinel_kwargs"),
}


class Board(Queue):
    """The postings of a board, of one priority. One that is consumed is gone; what was trashed is in `errors`."""

    namespace = "taskflow"
    keep_success = 0


class Posting(Job):
    """What is posted on a board. Its identifier is the uuid of TaskFlow's job, its queue the board."""

    namespace = "taskflow"
    queue_model = Board
    tells_changes = True

    title = Argument()
    details = Argument(json, default={})
    book = Argument(json, default=None)


FIELDS = ("identifier", "title", "details", "book", "added", "status")


class LimpydJob(base.Job):
    """A posting, as TaskFlow sees it."""

    def __init__(self, board: LimpydJobBoard, posting: Posting, priority: base.JobPriority, **known: Any) -> None:
        self.created: datetime | None = known.pop("created", None)
        super().__init__(board, **known)
        self.posting = posting
        self._priority = priority

    @property
    def priority(self) -> base.JobPriority:
        """Its priority."""
        return self._priority

    @property
    def state(self) -> str:
        """UNCLAIMED, CLAIMED, or COMPLETE if it is gone."""
        found: str = self.board.look(self)[0]
        return found

    @property
    def created_on(self) -> datetime | None:
        """When it was posted, in UTC."""
        if self.created is None:
            with self.board.failures():
                self.created = _date(self.posting.added.hget())
        return self.created

    @property
    def last_modified(self) -> datetime | None:
        """When it was claimed last, in UTC; None if it was not."""
        with self.board.failures():
            return _date(self.posting.start.hget())

    def expires_in(self) -> float | None:
        """Return in how many seconds the claim lapses; None if there is none."""
        left: float | None = self.board.look(self)[2]
        return left

    def extend_expiry(self, expiry: float) -> bool:
        """Let the claim, which this board holds, last for so many seconds from now; return whether it does."""
        return bool(self.board.extend(self, expiry))

    def wait(self, timeout: float | None = None, *args: Any, **kwargs: Any) -> bool:
        """Wait until it is complete; return False if that takes longer than so many seconds."""
        with self.board.failures():
            return bool(self.posting.wait(timeout))

    def __lt__(self, other: Any) -> Any:
        if not isinstance(other, LimpydJob):
            return NotImplemented
        return _rank(self) < _rank(other)


class Postings(Iterator[LimpydJob]):
    """The postings of a board, by priority, then the oldest first. They are read a page at a time."""

    def __init__(self, board: LimpydJobBoard, only_unclaimed: bool, ensure_fresh: bool) -> None:
        self.board, self.only_unclaimed, self.ensure_fresh = board, only_unclaimed, ensure_fresh
        self._found: Iterator[LimpydJob] | None = None

    def __next__(self) -> LimpydJob:
        if self._found is None:
            self._found = self.board._fetch_jobs(self.only_unclaimed)
        return next(self._found)


class BoardNotifier(Notifier):
    """Tells who registers what is posted and removed."""

    def __init__(self, board: LimpydJobBoard) -> None:
        super().__init__()
        self._board = board

    def register(self, *args: Any, **kwargs: Any) -> None:
        """Register a callback: see TaskFlow."""
        super().register(*args, **kwargs)
        if self._board.connected:
            self._board.listen()


class BoardTimeout(Timeout):
    """How long a conductor waits when it found nothing: until something is posted."""

    def __init__(self, board: LimpydJobBoard, value: float) -> None:
        super().__init__(value)
        self._board = board
        self._news = Event()  # also what came before the wait began
        board.wakes.append(self._news.set)

    def wait(self) -> None:
        """Wait until something is posted, or the conductor is stopped."""
        has_begun = self._board.connected and self._board.listen()
        if not (has_begun or self.is_stopped()):  # of what was posted before it began, only another look tells
            self._news.wait(self.value)
            self._news.clear()

    def interrupt(self) -> None:
        """Stop the conductor."""
        super().interrupt()
        self._news.set()


class LimpydJobBoard(base.NotifyingJobBoard):
    """Postings in Redis, as jobs of a queue.

    A claim without an expiry is renewed as long as the board is open, and lapses with its process. One with an expiry
    lapses then. Who was silent for longer can end nothing any more, even under the same name.

    Parameters
    ----------
    name: str
        What conductors of the same board call it.
    conf: mapping
        ``url``, or ``host``, ``port``, ``db``, ``username``, ``password``, ``unix_socket_path``, ``ssl`` and the
        ``ssl_…`` of TaskFlow's own board for Redis; ``namespace``, the name of the queue, by default the one of the
        board; ``lease``, for how many seconds a claim without an expiry outlives its process, 30 by default.
    client: redis.Redis
        Whose settings to take, instead of those of `conf`.
    persistence: object
        The backend of TaskFlow that keeps the books.

    Attributes
    ----------
    model: type of Posting
        The postings, in the database of this board: ``board.model.collection(status=STATUSES.ERROR)`` are the trashed.
    errors: type of Error
        Why they were trashed.
    presences: type of Presence
        ``board.presences.alive("conductor")`` are the conductors of all boards there.

    Raises
    ------
    ValueError
        If something in `conf` is wrong.
    """

    def __init__(self, name: str, conf: Mapping[str, Any], client: Any = None, persistence: Any = None) -> None:
        super().__init__(name, conf)
        self.notifier = BoardNotifier(self)
        self._persistence = persistence
        queue_name = conf.get("namespace", name)
        self.queue_name = queue_name.decode() if isinstance(queue_name, bytes) else str(queue_name)
        if conf.get("sentinel") is not None:
            raise ValueError("Name Sentinels by a url: redis+sentinel://host1:26379,host2:26379/name/0")
        _warn_of_unknown(name, conf)
        self._session = _seconds("lease", conf.get("lease", SESSION))
        settings = {key: convert(conf[key]) for key, convert in SETTINGS.items() if key in conf}
        database = JobsDatabase.of_client(client) if client is not None else JobsDatabase(**settings)
        self.model = Posting.bound_to(database)
        self._board = self.model.queue_model
        self.errors = Error.bound_to(database, "taskflow")
        self.presences = Presence.bound_to(database, "taskflow")
        self.wakes: list[Callable[[], None]] = []
        self._is_open = False
        self._start_anew()

    def _start_anew(self) -> None:
        self._pid = os.getpid()
        self._lock = RLock()
        self._claims: dict[str, Claim[Posting]] = {}
        self._sessions: set[str] = set()
        self._entities: list[Any] = []
        self._posted: dict[str, LimpydJob] = {}
        self._changes: Any = None
        self._heartbeat = Heartbeat(self._session / 4, self._renew_sessions)

    # -- Connecting

    @property
    def connected(self) -> bool:
        """Whether it is open."""
        return self._is_open

    def connect(self) -> None:
        """Open it."""
        self._forget_of_another_process()
        with self._lock:
            if self.connected:
                return
            with _failures():
                self.model.get_connection().ping()
            self._heartbeat.__enter__()
            self._is_open = True
            if len(self.notifier):
                self.listen()

    def close(self) -> None:
        """Close it, and give back what is claimed without an expiry. May be called twice."""
        self._forget_of_another_process()
        with self._lock:
            if not self.connected:
                return
            self._is_open = False
            self._heartbeat.stop()
            if self._changes is not None:
                self._changes.close()
            for entity in self._entities:
                entity.close()
            for uuid in self._sessions:
                with suppress(LimpydJobsException, RedisError):
                    self._claims[uuid].release()
            self._start_anew()
        self.model.database.close_idle()

    def _forget_of_another_process(self) -> None:
        """A process that was forked holds no claims of its parent, and has none of its threads."""
        if self._pid != os.getpid():
            self._start_anew()
            if self.connected:
                self._heartbeat.__enter__()

    @contextmanager
    def failures(self) -> Iterator[None]:
        """Raise what TaskFlow expects if Redis fails, or the board is closed."""
        self._forget_of_another_process()
        if not self.connected:
            raise exceptions.JobFailure(f"The board {self.name!r} is not connected: call connect() before")
        with _failures():
            yield

    # -- Reading

    def iterjobs(self, only_unclaimed: bool = False, ensure_fresh: bool = False) -> Postings:
        """Return an iterator over the postings, by priority, then the oldest first. It is always fresh."""
        return Postings(self, only_unclaimed, ensure_fresh)

    def _fetch_jobs(self, only_unclaimed: bool) -> Iterator[LimpydJob]:
        """Yield the postings of all priorities: as of one moment, as others take the first ones meanwhile."""
        with self.failures():
            found = self._board.read_all(self.queue_name, lapsed=only_unclaimed)
            for queue, _, number, running, waiting in (each for each in found if each.priority in BY_NUMBER):
                claimed = sorted(map(self._pk_of, running), key=_number)
                yield from self._read(claimed, queue, number)
                yield from self._read(map(self._pk_of, waiting), queue, number, only_unclaimed)

    def _pk_of(self, ident: str) -> str:
        """Return the pk of a posting, given its ident; nothing for what is none."""
        path, _, pk = ident.rpartition(":")
        return pk if path == self.model.get_model_repr() else ""

    def _read(
        self, pks: Iterable[str], queue: Board, number: str, without_claimed: bool = False
    ) -> Iterator[LimpydJob]:
        for pk, stored in self.model.read_many(filter(None, pks), *FIELDS):
            if without_claimed and stored.get("status") == STATUSES.RUNNING:
                continue  # since its pk was read
            try:
                yield self._job(self.model.lazy_connect(pk), stored, BY_NUMBER[number])
            except (KeyError, RecursionError, TypeError, ValueError) as error:
                self._set_aside(pk, queue, error)

    def _job(self, posting: Posting, stored: Mapping[str, str], priority: base.JobPriority) -> LimpydJob:
        details, book = (json.loads(stored[name]) for name in ("details", "book"))
        if not isinstance(details, dict) or not isinstance(book, (dict, type(None))):
            raise TypeError("its details, or its book, are no mapping")
        return LimpydJob(
            self,
            posting,
            priority,
            created=_date(stored["added"]),
            name=stored["title"],
            uuid=stored["identifier"],
            details=details,
            book_data=book,
            backend=self._persistence,
        )

    def _set_aside(self, pk: str, queue: Board, error: Exception) -> None:
        """Take a posting that is broken off the board, so that it is told once, and its neighbours are served."""
        ident = f"{self.model.get_model_repr()}:{pk}"
        if queue.waiting.lrem(0, ident):
            queue.quarantine.rpush(ident)
            LOG.error("The posting %s is broken, and set aside in the quarantine of its queue: %r", ident, error)

    def look(self, job: LimpydJob) -> tuple[str, str | None, float | None]:
        """Return the state of a posting; and, if it is claimed, who holds it, and in how many seconds that lapses."""
        with self.failures():
            found = job.posting.claim_state()
        if found.is_held:
            return states.CLAIMED, found.owner, found.left
        is_open = found.status in (STATUSES.WAITING, STATUSES.DELAYED, STATUSES.RUNNING)
        return states.UNCLAIMED if is_open else states.COMPLETE, None, None

    @property
    def job_count(self) -> int:
        """How many postings there are, claimed or not."""
        with self.failures():
            found = self._board.read_all(self.queue_name)
            return sum(len(each.running) + len(each.waiting) for each in found)

    def find_owner(self, job: LimpydJob) -> str | None:
        """Return who holds the claim; None if nobody does."""
        return self.look(job)[1]

    def wait(self, timeout: float | None = None) -> Postings:
        """Wait for postings; return an iterator over them.

        Raises
        ------
        NotFound
            If there is none within so many seconds.
        """
        posted = Event()
        end = None if timeout is None else monotonic() + timeout
        self.listen()
        self.wakes.append(posted.set)
        try:
            while not self.job_count:
                left = None if end is None else end - monotonic()
                if left is not None and left <= 0:
                    raise exceptions.NotFound(f"Nothing was posted on {self.name!r} within {timeout} seconds")
                posted.wait(left)
                posted.clear()
        finally:
            self.wakes.remove(posted.set)
        return self.iterjobs()

    def timeout(self, seconds: float = 30) -> BoardTimeout:
        """Return what a conductor takes as its `wait_timeout`, so that a posting reaches it at once."""
        return BoardTimeout(self, seconds)

    # -- Changing

    def post(
        self, name: str, book: Any = None, details: Any = None, priority: Any = base.JobPriority.NORMAL
    ) -> LimpydJob:
        """Post a job: see TaskFlow.

        Raises
        ------
        ValueError
            If the priority is none.
        JobFailure
            If the details are no mapping, or cannot be stored as JSON, or Redis fails.
        """
        if details and not isinstance(details, Mapping):
            raise exceptions.JobFailure(f"{name!r} cannot be posted: its details must be a mapping, not {details!r}")
        priority = base.JobPriority.convert(priority)
        book_data = None if book is None else {"name": book.name, "uuid": book.uuid}
        values: dict[str, Any] = {"title": name, "details": details or {}, "book": book_data}
        uuid = uuidutils.generate_uuid()
        with self.failures():
            try:
                posting = self.model.add_job(uuid, self.queue_name, PRIORITIES[priority], **values)
            except (TypeError, ValueError) as error:
                raise exceptions.JobFailure(f"{name!r} cannot be posted: {error}") from error
        known = {"name": name, "uuid": uuid, "details": details, "book": book, "book_data": book_data}
        return LimpydJob(self, posting, priority, backend=self._persistence, **known)

    def claim(self, job: LimpydJob, who: str, expiry: float | None = None) -> None:
        """Claim a posting.

        Raises
        ------
        UnclaimableJob
            If it is claimed already, by whom.
        NotFound
            If it is gone.
        """
        _check_who(who)
        lease = self._session if expiry is None else _seconds("expiry", expiry)
        with self.failures():
            try:
                claim = job.posting.claim(who, lease, error_model=self.errors)
            except AlreadyClaimed as error:
                if error.owner == who:
                    self.extend(job, lease)
                raise exceptions.UnclaimableJob(f"Job {job.uuid} is claimed already by {error.owner!r}") from error
            except (JobGone, LimpydJobsException) as error:
                raise exceptions.NotFound(f"Job {job.uuid} is gone: {error}") from error
        with self._lock:
            self._claims[job.uuid] = claim
            (self._sessions.discard if expiry else self._sessions.add)(job.uuid)

    def extend(self, job: LimpydJob, expiry: float) -> bool:
        """Let a claim of this board last for so many seconds from now; return whether it does."""
        claim = self._claims.get(job.uuid)
        with suppress(ClaimLost, JobGone), self.failures():
            if claim is not None and not claim.is_lost:
                claim.renew(_seconds("expiry", expiry))
                return True
        return False

    def consume(self, job: LimpydJob, who: str) -> None:
        """Remove a posting that is done.

        Raises
        ------
        JobFailure
            If somebody else holds the claim.
        NotFound
            If nobody does, or it is gone.
        """
        self._end(job, who, "consume", lambda claim: claim.succeed())

    def abandon(self, job: LimpydJob, who: str) -> None:
        """Let others claim a posting. Exceptions: see `consume`."""
        self._end(job, who, "abandon", lambda claim: claim.release())

    def trash(self, job: LimpydJob, who: str) -> None:
        """Put a posting in the `errors` of its queue, from where it may be requeued. Exceptions: see `consume`."""
        self._end(job, who, "trash", lambda claim: claim.fail(exceptions.JobFailure(f"trashed by {who}")))

    def _end(self, job: LimpydJob, who: str, what: str, verb: Callable[[Claim[Posting]], None]) -> None:
        _check_who(who)
        self._forget_of_another_process()
        claim = self._claims.get(job.uuid)
        if claim is None or claim.owner != who or claim.is_lost:
            raise self._refusal(job, who, what)
        with self.failures():
            try:
                verb(claim)
            except (ClaimLost, JobGone):
                raise self._refusal(job, who, what) from None
        self._forget(job.uuid)

    def _refusal(self, job: LimpydJob, who: str, what: str) -> Exception:
        owner = self.find_owner(job)
        if owner is None:
            self._forget(job.uuid)
            return exceptions.NotFound(f"Cannot {what} job {job.uuid}: nobody holds a claim on it, or it is gone")
        held = "by another claim of that name" if owner == who else f"by {owner!r}"
        return exceptions.JobFailure(f"Cannot {what} job {job.uuid}: it is not owned by {who!r}, but {held}")

    def _forget(self, uuid: str) -> None:
        with self._lock:
            self._claims.pop(uuid, None)
            self._sessions.discard(uuid)

    def register_entity(self, entity: Any) -> None:
        """Register a conductor, as long as this board is open: it is among ``board.presences.alive("conductor")``.

        Raises
        ------
        NotImplementedError
            If it is something else.
        """
        if entity.kind != Conductor.ENTITY_KIND:
            raise exceptions.NotImplementedError(f"Only conductors can be registered, not a {entity.kind!r}")
        about = {"board": self.queue_name, "metadata": entity.metadata}
        with self.failures():
            self._entities.append(self.presences.register(entity.kind, entity.name, self._session, **about))

    # -- Beside

    def _renew_sessions(self) -> None:
        """Renew the claims without an expiry. Called by a thread."""
        for uuid in [*self._sessions]:
            claim = self._claims.get(uuid)
            try:
                if claim is not None:
                    claim.renew()
            except (ClaimLost, JobGone):
                self._forget(uuid)
            except Exception as error:
                LOG.warning("The claim on the job %s is not renewed yet: %s", uuid, error)

    def listen(self) -> bool:
        """Begin to hear of what others do, by a thread; return False if that was done before."""
        with self._lock, self.failures():
            has_begun = self._changes is None
            if has_begun:
                self._changes = self.model.changes()
                Thread(target=self._listen, args=(self._changes,), name=f"board {self.name}", daemon=True).start()
            return has_begun

    def _listen(self, changes: Any) -> None:
        """Tell what is posted and removed, whatever fails, until the board is closed. Called by a thread."""
        pause, change = FIRST_PAUSE, None
        while self._changes is changes:
            try:
                change = change or next(changes)
                self._tell(change)
                change, pause = None, FIRST_PAUSE
            except StopIteration:  # as the board is being closed
                break
            except Exception as error:
                if not isinstance(error, (RedisConnectionError, RedisTimeoutError)):
                    change = None  # what fails for good must not hold up the others
                LOG.warning("What changes on the board %s cannot be told right now, trying again: %s", self.name, error)
                sleep(pause)
                pause = min(2 * pause, LONGEST_PAUSE)
        self.model.database.close_idle()

    def _tell(self, change: Any) -> None:
        """Tell of a change those who wait, and those who are registered, if it is one of this board."""
        if change.status == STATUSES.WAITING:
            for wake in [*self.wakes]:
                wake()
        if len(self.notifier):
            if change.what == "made":
                self._tell_of_posted(change)
            elif _is_removal(change) and change.pk in self._posted:
                self.notifier.notify(base.REMOVAL, {"job": self._posted.pop(change.pk)})

    def _tell_of_posted(self, change: Any) -> None:
        queue = self._board.lazy_connect(change.queue_key.rpartition(":")[2])
        name, number = queue.hmget("name", "priority")
        is_ours = name == self.queue_name and number in BY_NUMBER
        for job in self._read([change.pk], queue, number) if is_ours else ():
            self._posted[change.pk] = job
            self.notifier.notify(base.POSTED, {"job": job})


@contextmanager
def _failures() -> Iterator[None]:
    try:
        yield
    except (RedisError, NotRecorded) as error:
        raise exceptions.JobFailure(f"Redis failed: {error}") from error


def _warn_of_unknown(name: str, conf: Mapping[str, Any]) -> None:
    """Name what is misspelt in a configuration, or of another board, such as the `hosts` of zookeeper."""
    unknown = [repr(key) for key in conf if key not in SETTINGS and key not in OTHER_SETTINGS]
    if unknown:
        LOG.warning(
            "The board %s ignores what it does not know in its configuration: %s. It knows %s",
            *(name, ", ".join(unknown), ", ".join([*SETTINGS, "namespace", "lease"])),
        )


def _check_who(who: Any) -> None:
    if not isinstance(who, str):
        raise TypeError(f"Who claims a job must be a string, not {who!r}")
    if not who:
        raise ValueError("Who claims a job must not be empty")


def _is_removal(change: Any) -> bool:
    return change.what == "deleted" or change.status in (STATUSES.SUCCESS, STATUSES.ERROR, STATUSES.CANCELED)


def _rank(job: LimpydJob) -> tuple[int, int]:
    return -PRIORITIES[job.priority], _number(job.posting.pk.get())


def _number(pk: str) -> int:
    return int(pk) if pk.isascii() and pk.isdigit() else 0


def _date(text: str | None) -> datetime | None:
    return datetime.fromisoformat(text).replace(tzinfo=timezone.utc) if text else None


def _seconds(what: str, value: Any) -> float:
    try:
        seconds = float("nan") if isinstance(value, bool) else float(value)
    except (TypeError, ValueError):
        seconds = float("nan")
    if not 0 < seconds < 1e9:
        raise ValueError(f"The {what} must be a number of seconds, more than 0, not {value!r}")
    return seconds
