"""How a worker gets its jobs: it claims them at once while there is work, else as soon as a signal comes."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from functools import partial
from itertools import count
from math import inf
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
from limpyd_jobs.observing import instruments
from limpyd_jobs.records import records
from limpyd_jobs.records.known_classes import unwritten, was_written
from limpyd_jobs.records.layout import classes_argument, layout_of
from limpyd_jobs.redis.connections import PinnedConnection, shorter_than_timeout
from limpyd_jobs.texts import MESSAGE, host_and_pid, one_line
from limpyd_jobs.transitions import LISTENING, NOTHING, ONLY_TAKEN, ClaimRequest, Delivery, NextWakeups, Room
from limpyd_jobs.workers.claiming.stock import Stock

# How long the registration of a worker that waits outlives its wait, in seconds.
REGISTRATION_MARGIN = 5.0

# The longest wait of a worker before it looks for a job without a signal, in seconds.
MAX_WAIT = 1.5

# For how many seconds it looks into no list if no job has the status waiting. It has to look now and then: a job may
# have been pushed by hand. To look into ten thousand lists takes Redis as long as hundreds of jobs.
LOOK_EVERY = 12.0

# The longest wait after a job was found without a signal: then a program, such as version 2, sends none.
MAX_WAIT_WITHOUT_SIGNALS = 0.1

# For how long it expects more such jobs, in seconds.
WITHOUT_SIGNALS_FOR = 60.0

# For how many seconds after a look into all lists it waits without another one, once it has run a job that its own look
# let out of a lane: meanwhile it counts as one that waits, so that it gets signals of all other jobs.
LOOKS_ON_FOR = 1.0

# After how many seconds it looks again whether its classes have to be written.
LOOK_AT_CLASSES_EVERY = 1.0

Models = tuple[tuple[type[Job], ...], type[Queue], type[Error] | None]


class Claimer:
    """Claims jobs in waiting lists.

    A worker that waits is registered. A signal ends its `BLPOP` when there may be a job; then Redis runs the claim that
    was sent with it. So each job is in a list until it is claimed, and one round trip is enough.
    """

    def __init__(
        self,
        queue_model: type[Queue],
        lease: float,
        defer: Callable[[str, str, Exception], Any] | None = None,
        error_model: type[Error] | None = None,
        *,
        stock: Stock | None = None,
        room: Callable[[], Room] | None = None,
        before_replies: Callable[[Any], None] | None = None,
    ) -> None:
        self.queue_model = queue_model
        self.lease = lease
        self._defer = defer or partial(defer_unresolved, queue_model)
        self._error_model = (
            error_model if error_model and is_same_database(error_model.database, queue_model.database) else None
        )
        self.stock = stock or Stock()
        client = partial(records.redis_of, queue_model)
        self.connection = PinnedConnection(client)  # also for the ends of jobs
        # For claims that wait; another one if jobs may end meanwhile.
        self.waiting_connection = (
            PinnedConnection(client, before_replies=before_replies) if before_replies else self.connection
        )
        self._are_parked = False  # whether jobs were parked at the last look that found none
        self._found_none_in: Sequence[str] = ()  # the lists of that look
        self._found_none_at, self._looks_on_until, self._was_own_signal = -inf, -inf, False
        self._took_at = 0.0  # when Redis said of what moment its last answer is
        self._room = room  # for a worker that runs several jobs at once: which ones it may run beside them
        self.next_wakeups = NextWakeups()  # what Redis said when there was no job
        # The last pk of a queue, as Redis said with its last answer to a claim; empty if it did not say so.
        self.last_queue = ""
        self.signal_keys: list[str] = []  # the keys of the lists whose tokens end a wait
        self._schedules = ""  # the key of the schedules that `next_wakeups` tells of; empty for none
        # The last exception about an entry of a list that cannot be run. No code is at fault, so no traceback helps.
        self.invalid: Exception | None = None
        self._no_signals_until = 0.0
        self.classes: Mapping[str, type[Job]] = {}  # those that scripts were last told of
        self._models: Models
        self._described, self._described_for = "", instruments.installed
        self._written_until = -inf  # up to when these classes need not be written
        self._job_classes = job_classes.like(queue_model)
        self._name = uuid4().hex[:12]
        self._numbers = count(1)
        self.owner = f"{host_and_pid()}:{self._name}"
        self._mark = transitions.mark_of(self.owner)
        self._unanswered: ClaimRequest | None = None
        self._registration = self._name
        self._is_registered = False
        self._asked_with: Room | None = None  # the room at the last request
        self._looked_into: Sequence[str] = ()
        self._looked_at = -inf
        self._logged: set[str] = set()

    def request(self, keys: Sequence[str] = (), *, only_taken: bool = False) -> ClaimRequest:
        """Return a request for the next job of these lists, with a new token."""
        kind = f"{ONLY_TAKEN if only_taken else ''}{LISTENING if self._room else ''}"
        token = f"{kind}{next(self._numbers)}{self._mark}"
        if self._job_classes.known is not self.classes or instruments.installed is not self._described_for:
            self._describe(self._job_classes.known)
        return ClaimRequest(
            keys,
            token,
            self.lease,
            self.classes,
            connection=self.connection,
            registry=self._unwritten() if keys and monotonic() >= self._written_until else "",
            room=self._room() if self._room else None,
            described=self._described,
        )

    def _describe(self, classes: Mapping[str, type[Job]]) -> None:
        """Keep what scripts take of the classes, as that is the same for thousands of requests. The thread that records
        late ends asks as well: it must not see the new classes before their text is there."""
        installed = instruments.installed
        self._described, self._models, self._written_until = classes_argument(classes), self._models_of(classes), -inf
        self._described_for = installed
        self.classes = classes

    def _unwritten(self) -> str:
        """Return which classes and models a script has to write, if it is time for that."""
        registry = unwritten(*self._models, if_used=True)
        if registry:
            was_written(*self._models)
        self._written_until = monotonic() + LOOK_AT_CLASSES_EVERY
        return registry

    def _models_of(self, classes: Mapping[str, type[Job]]) -> Models:
        """Return those of the database of the queues, which this worker makes known."""
        mine = (each for each in classes.values() if is_same_database(each.database, self.queue_model.database))
        return tuple(dict.fromkeys(mine)), self.queue_model, self._error_model

    def next(self, keys: Sequence[str], *, may_wait: bool = False, only_take: bool = False) -> Delivery | None:
        """Claim the next job; return None if there is none. `check` tells whether it can be run.

        With `only_take`, code of the application decides about it before it runs.

        It raises `DoesNotExist` if a key is not a list, or the list of no queue: the first time only.
        """
        return self._claim(keys, may_wait=may_wait, only_take=only_take) if keys else None

    def wait(self, keys: Sequence[str], seconds: float, *, only_take: bool = False) -> Delivery | None:
        """Wait for a signal, or for some seconds, then claim the next job; return None if there is none.

        The wait may be shorter. See `next`. Errors that Redis answers to a wait are raised, too.
        """
        if self._unanswered or not self._is_registered or (self._room and self._asked_with != self._room()):
            return self.next(keys, may_wait=True, only_take=only_take)
        longest = min(seconds, self._longest_wait())
        return self._claim(keys, may_wait=True, after=longest, only_take=only_take) if keys else None

    def may_wait_on(self, keys: Sequence[str]) -> bool:
        """Return whether it may wait for jobs of these lists without a look: it counts as a worker that waits, although
        it has run a job."""
        now = monotonic()
        if not self._is_registered or now >= self._looks_on_until or sorted(keys) != sorted(self._found_none_in):
            return False
        known = self.next_wakeups
        self.next_wakeups, self._took_at = known._replace(moment=known.moment + now - self._took_at), now
        return True

    def _longest_wait(self) -> float:
        """Return for how many seconds to wait: less than the timeout of the connection."""
        longest = MAX_WAIT_WITHOUT_SIGNALS if monotonic() < self._no_signals_until else MAX_WAIT
        return shorter_than_timeout(records.redis_of(self.queue_model), longest)

    def take(self, key: str, ident: str) -> Delivery:
        """Claim a job that was taken from a list by other means. For the exceptions see `check`."""
        delivery = self._claim([key], ident) or NOTHING
        if delivery.error:
            self.defer(delivery, delivery.error)
        self.check(delivery)
        return delivery

    def check(self, delivery: Delivery) -> None:
        """Raise an exception if the entry that came out of a list is not a job that can be run.

        A deleted job is now off the list; what is not an ident, or has records of a wrong type, is in the quarantine.
        """
        ident, queue = one_line(delivery.ident), delivery.queue_key
        if delivery.error:
            raise delivery.error
        if delivery.outcome == "gone":
            path, pk = Ident.of(ident)
            raise self._invalid(DoesNotExist, f"No {path.rpartition('.')[2]} found with pk {pk}")
        if delivery.outcome == "garbage":
            raise self._invalid(ValueError, f"Not the ident of a job, so put in the quarantine of {queue}: {ident!r}")
        if delivery.outcome == "broken":
            reason = one_line(delivery.status, MESSAGE)
            raise self._invalid(ValueError, f"{ident} is put in the quarantine of {queue}: {reason}")

    def defer(self, delivery: Delivery, error: Exception) -> None:
        """Defer a job whose class cannot be resolved."""
        self._defer(delivery.key, delivery.ident, error)

    def keep(self, delivery: Delivery | None) -> None:
        """Keep the job that was claimed with the end of another one; if its class is unknown, it is still listed."""
        if delivery and delivery.outcome == "unknown":
            with suppress(Exception):  # for next() to raise
                job_classes.resolve(delivery.path)
        elif delivery:
            self.stock.deliveries.append(delivery)
            self.last_queue = delivery.queues

    def ask_again(self) -> None:
        """If the last reply was lost, put the job that it had in stock. Not for other threads."""
        if self._unanswered:
            self.keep(self._ask(self._unanswered.keys, "", may_wait=False))

    def listen(self, names: Iterable[str], schedules: str = "") -> None:
        """Let the signals for queues of these names end a wait, and the signal for this worker alone. If a key of
        schedules is given, `next_wakeups` tells when they are due."""
        self._schedules = schedules
        self.signal_keys = [records.signal_key(self.queue_model, name) for name in (*names, self._own_name)]

    def say_that_it_ends(self) -> None:
        """Let the jobs that this worker runs be no suspects if it is killed before they have ended."""
        records.say_that_it_ends(self.queue_model, self._mark.removeprefix("@"))

    def has_ended(self) -> None:
        """This worker has ended, and leaves no job."""
        records.has_ended(self.queue_model, self._mark.removeprefix("@"))

    @property
    def canceled_key(self) -> str:
        """The key of the list that tells which jobs of this worker were canceled."""
        return records.canceled_key(self.queue_model, self._mark.removeprefix("@"))

    @property
    def _own_name(self) -> str:
        return f",{self._name}"  # no queue has such a name

    def end_wait(self, connection: Redis) -> None:
        """End the wait of this worker, or its next one, over a connection that any thread may use."""
        records.notify_next(connection, records.signal_key(self.queue_model, self._own_name))

    def end_wait_of_another(self, connection: Redis, queue_key: str) -> None:
        """End the wait of a worker that waits for jobs of a queue, over a connection that any thread may use."""
        records.notify_one(connection, queue_key, leaves_lanes=self._is_registered)

    def unregister(self) -> None:
        """End the registration, if there is one."""
        if self._is_registered:
            transitions.unregister(self.queue_model, self._registration)
            self._is_registered = False

    def _claim(
        self,
        keys: Sequence[str],
        ident: str = "",
        *,
        may_wait: bool = False,
        after: float | None = None,
        only_take: bool = False,
    ) -> Delivery | None:
        delivery = self._ask(keys, ident, may_wait, after, only_take=only_take)
        while delivery and delivery.outcome in ("unknown", "sorted"):
            try:
                if delivery.outcome == "unknown":
                    layout_of(self._job_classes.resolve(delivery.path))
            except Exception as error:
                return replace(delivery, error=error)
            delivery = self._ask(keys, ident, may_wait, only_take=only_take)
        if delivery is None:
            self._raise_if_lists_are_broken()
        return delivery

    def _ask(
        self,
        keys: Sequence[str],
        ident: str,
        may_wait: bool,
        after: float | None = None,
        *,
        only_take: bool = False,
    ) -> Delivery | None:
        """Claim a job, after a number of seconds or a signal. If the last reply was lost, return its job."""
        request = self.request(keys, only_taken=only_take)
        if self._unanswered:
            self._leave_wait()
            registry = request.registry or self._unanswered.registry
            request = replace(request, token=self._unanswered.token, is_again=True, registry=registry)
        self._unanswered, self._asked_with = request, request.room
        known = self._known(keys) if may_wait else ""
        self._is_registered = may_wait
        next_wakeups: NextWakeups | None
        if after is None:
            worker, wait = (self._registration, MAX_WAIT + REGISTRATION_MARGIN) if may_wait else ("", 0)
            delivery, next_wakeups = transitions.claim(
                self.queue_model, request, ident, worker, wait, self._schedules, known
            )
        else:
            delivery, next_wakeups = self._wait_and_ask(request, after, known)
        self._unanswered = None
        self._is_registered = may_wait and delivery is None and next_wakeups is not None
        if delivery and next_wakeups and next_wakeups.parked is not None:
            next_wakeups = self._look_on(delivery, next_wakeups)
        elif delivery is None and next_wakeups:
            self._are_parked = next_wakeups.parked is not None
            self._found_none_in, self._found_none_at = keys, monotonic()
        if next_wakeups and not next_wakeups.is_quiet:
            self._looked_into, self._looked_at = keys, monotonic()
        self.next_wakeups = next_wakeups or self.next_wakeups
        self.last_queue = delivery.queues if delivery else self.next_wakeups.queues
        return delivery

    def _look_on(self, delivery: Delivery, next_wakeups: NextWakeups) -> NextWakeups:
        """Keep what Redis said when there was no job, but for when to look at the lanes again: it still expects this
        worker to do that."""
        self._is_registered, self._took_at = True, monotonic()
        known = self.next_wakeups
        is_enough = self._was_own_signal and delivery.queue_key == known.lanes_of
        self._looks_on_until = self._found_none_at + LOOKS_ON_FOR if is_enough else -inf
        return known._replace(moment=next_wakeups.moment, parked=next_wakeups.parked, is_watched=False)

    def _known(self, keys: Sequence[str]) -> str:
        """Return what Redis needs to look into all lists only if there may be a new job since the last time; nothing if
        jobs are parked: one of them may begin at any time."""
        if self._are_parked:
            return ""
        is_enough = self._is_registered and keys == self._looked_into and monotonic() < self._looked_at + LOOK_EVERY
        return transitions.known_of(job_classes.all(), self.next_wakeups if is_enough else None)

    def _wait_and_ask(
        self, request: ClaimRequest, seconds: float, known: str
    ) -> tuple[Delivery | None, NextWakeups | None]:
        registration = self._registration, MAX_WAIT + REGISTRATION_MARGIN, self._schedules
        signal, delivery, next_wakeups = transitions.wait_and_claim(
            self.waiting_connection, self.signal_keys, seconds, request, *registration, known
        )
        self._was_own_signal = signal == self.signal_keys[-1]
        if isinstance(signal, str) and next_wakeups and next_wakeups.is_quiet:  # its job may be in no index
            known = transitions.known_of(job_classes.all())
            delivery, next_wakeups = transitions.claim(self.queue_model, request, "", *registration, known)
        if delivery and signal is None:
            self._no_signals_until = monotonic() + WITHOUT_SIGNALS_FOR
        elif not delivery and isinstance(signal, ResponseError):
            self._unable_to_wait(signal)
        return delivery, next_wakeups

    def _leave_wait(self) -> None:
        """Make sure that a wait whose connection was lost claims nothing any more."""
        self.unregister()
        self._registration = f"{self._name}:{next(self._numbers)}"

    def _unable_to_wait(self, error: ResponseError) -> None:
        """Wait no more for keys of signals that are not lists: another program wrote them."""
        if "WRONGTYPE" not in str(error):
            raise error
        pipe = self.queue_model.get_connection().pipeline(transaction=False)
        for key in self.signal_keys:
            pipe.type(key)
        kinds = zip(self.signal_keys, pipe.execute(), strict=True)
        self.signal_keys = [key for key, kind in kinds if kind in ("list", "none")]

    def _raise_if_lists_are_broken(self) -> None:
        new = [key for key in self.next_wakeups.broken if key not in self._logged]
        self._logged.update(new)
        if new:
            raise self._invalid(DoesNotExist, f"Unable to get the queue from the key {one_line(', '.join(new))}")

    def _invalid(self, kind: type[Exception], message: str) -> Exception:
        self.invalid = kind(message)
        return self.invalid
