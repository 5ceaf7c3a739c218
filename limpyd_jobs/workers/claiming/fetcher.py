"""How a worker gets its jobs: it claims them at once while there is work, else as soon as a signal tells of one."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from functools import partial
from itertools import count
from math import inf
from threading import Lock
from time import monotonic
from typing import Any
from uuid import uuid4

from limpyd.exceptions import DoesNotExist
from redis import Redis
from redis.exceptions import ResponseError

from limpyd_jobs import transitions
from limpyd_jobs.classes.binding import is_same_database
from limpyd_jobs.idents import Ident
from limpyd_jobs.models import Error, Job, Queue, defer_unresolved, job_classes
from limpyd_jobs.records import records
from limpyd_jobs.records.known_classes import unwritten, was_written
from limpyd_jobs.records.layout import layout_of
from limpyd_jobs.redis.connections import PinnedConnection
from limpyd_jobs.statuses import STATUSES
from limpyd_jobs.texts import MESSAGE, host_and_pid, one_line
from limpyd_jobs.transitions import IN_HAND, NOTHING, ClaimRequest, Delivery, NextWakeups
from limpyd_jobs.workers.backoff import is_denied, is_transient

# How long the registration of a worker that waits outlives its wait, in seconds.
MARGIN = 5.0

# The longest wait of a worker before it looks for a job without a signal, in seconds.
SLICE = 1.5

# For how many seconds it looks into no list if no job has the status waiting. It has to look now and then: a job may
# have been pushed by hand. To look into ten thousand lists takes Redis as long as hundreds of jobs.
LOOK_EVERY = 12.0

# The longest wait after a job was found without a signal: then a program, such as version 2, sends none.
SHORT_SLICE = 0.1

# For how long it expects more such jobs, in seconds.
VIGILANCE = 60.0

Models = tuple[tuple[type[Job], ...], type[Queue], type[Error] | None]


class Fetcher:
    """Takes jobs out of waiting lists.

    A worker that waits is registered. A signal tells it when there may be a job: Redis ends its `BLPOP`, then runs the
    claim that was sent with it. So each job is in a list until it is claimed, and one round trip is enough.

    Parameters
    ----------
    queue_model: type of Queue
        The model of the queues.
    lease: float
        For how long a claim holds, in seconds.
    defer: callable
        Defers a job whose class cannot be resolved. It takes the waiting list, the ident, and the exception.
    error_model: type of Error
        The model of the errors of the jobs: it is made known, with the others; None for none.

    Attributes
    ----------
    owner: str
        The owner of the claims.
    next_wakeups: NextWakeups
        What Redis said when there was no job.
    queues: str
        The last pk of a queue, as Redis said with its last answer to a claim; empty if it did not say so.
    signals: list of str
        The keys of the lists whose tokens end a wait.
    schedules: str
        The key of the schedules that `next_wakeups` tells of; empty for none.
    hands_over: bool
        Whether code of the application decides about a job before it runs. Then the job is only taken out of its list.
    prefetched: deque of Delivery
        What came out of the lists already. The thread that takes a job out of it has to run it or release it: nothing
        else can.
    leaving: deque of Delivery
        Prefetched jobs that are on their way back to their lists. Before they are back, no other job is claimed.
    give_back_at: float
        When the prefetched jobs will have waited for too long, by the clock of `monotonic`.
    connection: PinnedConnection
        The connection for claims and for the ends of jobs.
    unfit: Exception
        The last exception about an entry of a list that cannot be run. No code is at fault, so no traceback helps.
    """

    def __init__(
        self,
        queue_model: type[Queue],
        lease: float,
        defer: Callable[[str, str, Exception], Any] | None = None,
        error_model: type[Error] | None = None,
    ) -> None:
        self.queue_model = queue_model
        self.lease = lease
        self._defer = defer or partial(defer_unresolved, queue_model)
        self._error_model = (
            error_model if error_model and is_same_database(error_model.database, queue_model.database) else None
        )
        self.prefetched: deque[Delivery] = deque()
        self.leaving: deque[Delivery] = deque()
        self.give_back_at = inf
        self._giving_back = Lock()
        self.connection = PinnedConnection(partial(records.redis_of, queue_model))
        self.next_wakeups = NextWakeups()
        self.queues = ""
        self.signals: list[str] = []
        self.schedules = ""
        self.hands_over = False
        self.unfit: Exception | None = None
        self._vigilant_until = 0.0
        self._classes: Mapping[str, type[Job]] = {}
        self._models: Models
        self._name = uuid4().hex[:12]
        self._numbers = count(1)
        self.owner = f"{host_and_pid()}:{self._name}"
        self._mark = transitions.mark_of(self.owner)
        self._unanswered: ClaimRequest | None = None
        self._registration = self._name
        self._is_registered = False
        self._looked_into: Sequence[str] = ()
        self._looked_at = -inf
        self._told: set[str] = set()
        self._news: dict[str, str] = {}

    def request(self, keys: Sequence[str], *, in_hand: bool = False) -> ClaimRequest:
        """Return a request for the next job of these lists, with a new token."""
        token = f"{IN_HAND if in_hand else ''}{next(self._numbers)}{self._mark}"
        classes, registry = job_classes.known, ""
        if keys:
            if classes is not self._classes:
                self._classes, self._models = classes, self._models_of(classes)
            registry = unwritten(*self._models, if_used=True)
            if registry:
                was_written(*self._models)
        return ClaimRequest(keys, token, self.lease, classes, connection=self.connection, registry=registry)

    def _models_of(self, classes: Mapping[str, type[Job]]) -> Models:
        """Return those of the database of the queues, which this worker makes known."""
        mine = (each for each in classes.values() if is_same_database(each.database, self.queue_model.database))
        return tuple(dict.fromkeys(mine)), self.queue_model, self._error_model

    def next_at_hand(self) -> Delivery | None:
        """Return the next job that was claimed with the end of another one; see `next`."""
        fetched = None
        try:
            while fetched is None:
                fetched = self._as_it_is_now(self.prefetched.popleft())
        except IndexError:
            with self._giving_back:  # no job may overtake those that the thread gives back
                return None
        return fetched

    def next(self, keys: Sequence[str], *, may_wait: bool = False) -> Delivery | None:
        """Claim the next job; return None if there is none. `check` tells whether it can be run.

        Parameters
        ----------
        may_wait: bool
            Whether the caller will `wait` if there is no job.

        Raises
        ------
        DoesNotExist
            If a key is not a list, or the list of no queue: the first time only.
        """
        return self._claim(keys, may_wait=may_wait) if keys else None

    def _as_it_is_now(self, fetched: Delivery) -> Delivery | None:
        """Return a job at hand as it is now; None if its claim is lost."""
        news = self._news.pop(fetched.token, "") if self._news else ""
        if news == "canceled":
            return replace(fetched, status=STATUSES.CANCELED)
        return None if news else fetched

    def tell(self, fetched: Delivery, outcome: str) -> None:
        """Note the outcome of renewing the lease of a job at hand, as of `transitions.renew`. Any thread may do so."""
        if outcome not in ("done", "failed"):
            self._news[fetched.token] = outcome

    def holds(self, fetched: Delivery) -> bool:
        """Whether the claim on a job at hand is not known to be lost. Any thread may ask."""
        return bool(fetched.token) and self._news.get(fetched.token, "canceled") == "canceled"

    def wait(self, keys: Sequence[str], seconds: float) -> Delivery | None:
        """Wait for a signal, or for some seconds, then claim the next job; return None if there is none.

        The wait may be shorter. See `next`. Errors that Redis answers to a wait are raised, too.
        """
        if self._unanswered or not self._is_registered:
            return self.next(keys, may_wait=True)
        return self._claim(keys, may_wait=True, after=min(seconds, self._longest_wait())) if keys else None

    def _longest_wait(self) -> float:
        """Return for how many seconds to wait: less than the timeout of the connection."""
        longest = SHORT_SLICE if monotonic() < self._vigilant_until else SLICE
        timeout = records.redis_of(self.queue_model).connection_pool.connection_kwargs.get("socket_timeout")
        return min(longest, timeout / 2) if timeout else longest

    def take(self, key: str, ident: str) -> Delivery:
        """Claim a job that was taken from a list by other means. For the exceptions see `check`."""
        fetched = self._claim([key], ident) or NOTHING
        if fetched.error:
            self.defer(fetched, fetched.error)
        self.check(fetched)
        return fetched

    def check(self, fetched: Delivery) -> None:
        """Raise an exception if the entry that came out of a list is not a job that can be run.

        Raises
        ------
        DoesNotExist, ValueError
            If it is the ident of a deleted job: it is now off the list. Or if it is not an ident, or the ident of a job
            with records of a wrong type: it is now in the quarantine of the queue.
        ImportError, AttributeError, ValueError
            If the class of the job cannot be resolved.
        """
        ident, queue = one_line(fetched.ident), fetched.queue_key
        if fetched.error:
            raise fetched.error
        if fetched.outcome == "gone":
            path, pk = Ident.of(ident)
            raise self._unfit(DoesNotExist, f"No {path.rpartition('.')[2]} found with pk {pk}")
        if fetched.outcome == "garbage":
            raise self._unfit(ValueError, f"Not the ident of a job, so put in the quarantine of {queue}: {ident!r}")
        if fetched.outcome == "broken":
            reason = one_line(fetched.status, MESSAGE)
            raise self._unfit(ValueError, f"{ident} is put in the quarantine of {queue}: {reason}")

    def defer(self, fetched: Delivery, error: Exception) -> None:
        """Defer a job whose class cannot be resolved."""
        self._defer(fetched.key, fetched.ident, error)

    def keep(self, prefetched: Delivery | None) -> None:
        """Keep the job that was claimed with the end of another one; if its class is unknown, it is still listed."""
        if prefetched and prefetched.outcome == "unknown":
            with suppress(Exception):  # for next() to tell
                job_classes.resolve(prefetched.path)
        elif prefetched:
            self.prefetched.append(prefetched)
            self.queues = prefetched.queues

    def ask_again(self) -> None:
        """If the last reply was lost, put the job that it told of among the prefetched ones. Not for other threads."""
        if self._unanswered:
            self.keep(self._ask(self._unanswered.keys, "", may_wait=False))

    def give_back(self) -> list[Exception]:
        """Put the prefetched jobs, if there are any, back to the front of their lists; return what failed.

        Any thread may do so.

        Raises
        ------
        redis.exceptions.RedisError
            If Redis may accept it later: the next call tries again.
        """
        with self._giving_back:
            return self._give_back()

    def give_back_late(self) -> list[Exception]:
        """Give the prefetched jobs back if they have waited for too long, or if that failed before."""
        with self._giving_back:
            return self._give_back() if self.are_late else []

    @property
    def are_late(self) -> bool:
        """Whether prefetched jobs have waited for too long, or are on their way back."""
        return monotonic() >= self.give_back_at or bool(self.leaving)

    def _give_back(self) -> list[Exception]:
        self._withdraw()
        if monotonic() >= self.give_back_at:  # else there is a new batch by now
            self.give_back_at = inf
        claims = [(job_classes.resolve(fetched.path), fetched) for fetched in self.leaving]
        failures = transitions.release_all(claims) if claims else []
        for failure in failures:
            if is_transient(failure) or is_denied(failure):
                raise failure
        self.leaving.clear()
        return failures

    def _withdraw(self) -> None:
        """Move the prefetched jobs to `leaving`. Entries that are not jobs to run stay, to be told."""
        others: list[Delivery] = []
        with suppress(IndexError):
            while True:
                fetched = self.prefetched.pop()
                (self.leaving.appendleft if fetched.token else others.append)(fetched)
        self.prefetched.extend(others)

    def listen(self, names: Iterable[str]) -> None:
        """Let the signals for queues of these names end a wait, and the signal for this worker alone."""
        self.signals = [records.signal_key(self.queue_model, name) for name in (*names, self._own_name)]

    @property
    def _own_name(self) -> str:
        return f",{self._name}"  # no queue has such a name

    def end_wait(self, connection: Redis) -> None:
        """End the wait of this worker, or its next one, over a connection that any thread may use."""
        records.notify_next(connection, records.signal_key(self.queue_model, self._own_name))

    def unregister(self) -> None:
        """End the registration, if there is one."""
        if self._is_registered:
            transitions.unregister(self.queue_model, self._registration)
            self._is_registered = False

    def _claim(
        self, keys: Sequence[str], ident: str = "", *, may_wait: bool = False, after: float | None = None
    ) -> Delivery | None:
        fetched = self._ask(keys, ident, may_wait, after)
        while fetched and fetched.outcome == "unknown":
            try:
                layout_of(job_classes.resolve(fetched.path))
            except Exception as error:
                return replace(fetched, error=error)
            fetched = self._ask(keys, ident, may_wait)
        if fetched is None:
            self._tell_of_broken_lists()
        return fetched

    def _ask(self, keys: Sequence[str], ident: str, may_wait: bool, after: float | None = None) -> Delivery | None:
        """Claim a job, after a number of seconds or a signal. If the last reply was lost, return the job it told of."""
        request = self.request(keys, in_hand=self.hands_over and not ident)
        if self._unanswered:
            self._leave_wait()
            registry = request.registry or self._unanswered.registry
            request = replace(request, token=self._unanswered.token, is_again=True, registry=registry)
        self._unanswered = request
        known = self._known(keys) if may_wait else ""
        self._is_registered = may_wait
        next_wakeups: NextWakeups | None
        if after is None:
            worker, wait = (self._registration, SLICE + MARGIN) if may_wait else ("", 0)
            fetched, next_wakeups = transitions.claim(
                self.queue_model, request, ident, worker, wait, self.schedules, known
            )
        else:
            fetched, next_wakeups = self._wait_and_ask(request, after, known)
        self._unanswered = None
        self._is_registered = may_wait and fetched is None and next_wakeups is not None
        if next_wakeups and not next_wakeups.is_quiet:
            self._looked_into, self._looked_at = keys, monotonic()
        self.next_wakeups = next_wakeups or self.next_wakeups
        self.queues = fetched.queues if fetched else self.next_wakeups.queues
        return fetched

    def _known(self, keys: Sequence[str]) -> str:
        """Return what Redis needs to look into all lists only if there may be a new job since the last time."""
        is_enough = self._is_registered and keys == self._looked_into and monotonic() < self._looked_at + LOOK_EVERY
        return transitions.known_of(job_classes.all(), self.next_wakeups if is_enough else None)

    def _wait_and_ask(
        self, request: ClaimRequest, seconds: float, known: str
    ) -> tuple[Delivery | None, NextWakeups | None]:
        registration = self._registration, SLICE + MARGIN, self.schedules
        heard, fetched, next_wakeups = transitions.wait_and_claim(
            self.connection, self.signals, seconds, request, *registration, known
        )
        if isinstance(heard, str) and next_wakeups and next_wakeups.is_quiet:  # its job may be in no index
            known = transitions.known_of(job_classes.all())
            fetched, next_wakeups = transitions.claim(self.queue_model, request, "", *registration, known)
        if fetched and heard is None:
            self._vigilant_until = monotonic() + VIGILANCE
        elif not fetched and isinstance(heard, ResponseError):
            self._unable_to_wait(heard)
        return fetched, next_wakeups

    def _leave_wait(self) -> None:
        """Make sure that a wait whose connection was lost claims nothing any more."""
        self.unregister()
        self._registration = f"{self._name}:{next(self._numbers)}"

    def _unable_to_wait(self, error: ResponseError) -> None:
        """Wait no more for keys of signals that are not lists: another program wrote them."""
        if "WRONGTYPE" not in str(error):
            raise error
        pipe = self.queue_model.get_connection().pipeline(transaction=False)
        for key in self.signals:
            pipe.type(key)
        kinds = zip(self.signals, pipe.execute(), strict=True)
        self.signals = [key for key, kind in kinds if kind in ("list", "none")]

    def _tell_of_broken_lists(self) -> None:
        new = [key for key in self.next_wakeups.broken if key not in self._told]
        self._told.update(new)
        if new:
            raise self._unfit(DoesNotExist, f"Unable to get the queue from the key {one_line(', '.join(new))}")

    def _unfit(self, kind: type[Exception], message: str) -> Exception:
        self.unfit = kind(message)
        return self.unfit
