"""The changes in Redis that other processes are notified of: see `BaseJobsModel.changes`."""

from __future__ import annotations

import logging
import random
from collections import defaultdict, deque
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import partial
from math import inf, isnan
from threading import Event, Lock, Thread
from time import monotonic
from typing import TYPE_CHECKING, Any, Generic

from limpyd.model import RedisModel
from redis.exceptions import ConnectionError as RedisConnectionError
from redis.exceptions import ResponseError
from redis.exceptions import TimeoutError as RedisTimeoutError

from limpyd_jobs.arguments import is_number
from limpyd_jobs.exceptions import ConfigurationException, LimpydJobsException
from limpyd_jobs.records.layout import layout_of
from limpyd_jobs.records.records import redis_of
from limpyd_jobs.redis.calls import Steps, commanded, finish, is_of_wrong_type
from limpyd_jobs.redis.connections import PinnedConnection
from limpyd_jobs.texts import OncePer, described, one_line

log = logging.getLogger("limpyd-jobs.changes")

# How many entries to read at once.
COUNT = 500

# For how long one command waits at most, in seconds: less than a connection may be silent.
CHANGES_WAIT = 5.0

# After how many seconds to try again if Redis fails: the first time, and at most.
FIRST_RETRY, MAX_RETRY = 0.1, 5.0

# After how many seconds to log again that entries of a model are not changes.
LOG_AGAIN = 60.0


@dataclass(frozen=True)
class Change:
    """A record was made, changed or deleted.

    Attributes
    ----------
    id: str
        Where it stands in the order of all changes of the model: `since` takes it.
    model: type
        The model of the record.
    pk: str
    what: str
        ``made``, ``changed`` or ``deleted``.
    """

    id: str
    model: Any
    pk: str
    what: str


@dataclass(frozen=True)
class JobChange(Change):
    """A job was made, was deleted, or its status changed.

    Attributes
    ----------
    status: str
        As in `STATUSES`; empty if the job has no status any more.
    status_before: str
        Empty if the job had no status.
    queue_key: str
        The beginning of the keys of the queue that it is, or was, in; empty if that is not known.
    """

    status: str
    status_before: str
    queue_key: str

    @property
    def ident(self) -> str:
        """The class path and pk of the job."""
        return f"{self.model.get_model_repr()}:{self.pk}"


if TYPE_CHECKING:
    from typing import Self

    from typing_extensions import TypeVar

    AChange = TypeVar("AChange", bound=Change, covariant=True, default=Change)
else:
    from typing import TypeVar

    AChange = TypeVar("AChange")

# Asks for what is needed to tell which changes count, before they are looked at.
Prepare = Callable[["Iterable[Any]"], Steps[None]]


class Position:
    """Up to where the changes of some models are read: what to ask, and what the replies mean. It sends nothing."""

    def __init__(self, models: Iterable[type[RedisModel]], since: str | None, wants: Callable[[Any], bool]) -> None:
        self.models = {f"{model._name}:changes": model for model in models}
        for model in self.models.values():
            check_notifies(model)
        self.client = partial(redis_of, next(iter(self.models.values())))
        self._wants = wants
        self._prepare: Prepare | None = getattr(wants, "prepare", None)
        self._ids = dict.fromkeys(self.models, _checked_id(since)) if since is not None else {}

    @property
    def unknown(self) -> list[str]:
        """The keys of which it must be asked where they end now."""
        return [key for key in self.models if key not in self._ids]

    def begin(self, key: str, last: Sequence[Any]) -> None:
        """Begin behind the last entry of a key, by the reply to XREVRANGE."""
        self._ids[key] = last[0][0] if last else "0-0"

    def question(self, milliseconds: int) -> Sequence[Any]:
        """Return the command that waits for changes."""
        waiting = ("XREAD", "COUNT", COUNT, "BLOCK", milliseconds)
        return (*waiting, "STREAMS", *self._ids, *self._ids.values())

    def wanted(self, reply: Any) -> Steps[list[Any]]:
        """Return the changes in the reply that count, and go on behind all of them."""
        entries = list(reply.items() if isinstance(reply, Mapping) else reply or ())
        found = [_change(name, self.models[key], fields) for key, rows in entries for name, fields in rows]
        known = [change for change in found if change]
        if self._prepare:
            yield from self._prepare(known)
        self._ids.update((key, rows[-1][0]) for key, rows in entries)
        return sorted(filter(self._wants, known), key=lambda change: _order(change.id))


class Changes(Generic[AChange]):
    """An iterator over the changes from the moment at which it is made.

    It ends if no change comes for some time. You may iterate over it again: it goes on where it was, also if Redis
    failed meanwhile. Only one thread may iterate at a time. Any thread may call `close`. `follow` and `follow_many`
    let a thread of their own call a function with the changes.

    Attributes
    ----------
    failure: Exception
        Why Redis could not be asked the last time; None if it answered.

    Parameters
    ----------
    models: iterable of type
        The models whose changes to wait for, on one database.
    timeout: float
        After how many seconds without a change it ends; None for never.
    since: str
        The id of the last change that is known, to go on after it, as far as changes are kept; ``"0"`` for all.
    wants: callable
        Takes a change, and returns whether it counts.

    Raises
    ------
    ConfigurationException
        If a model does not notify of its changes.
    LimpydJobsException
        If something else is stored at the key of the changes.
    TypeError, ValueError
        If an argument is not one of the above.
    """

    def __init__(
        self,
        models: Iterable[type[RedisModel]],
        timeout: float | None = None,
        since: str | None = None,
        wants: Callable[[Any], bool] = lambda change: True,
    ) -> None:
        self._position = Position(models, since, wants)
        self._timeout = checked_timeout(timeout)
        self._line = PinnedConnection(self._position.client)
        self._slice = slice_of(self._position.client())
        self._waiting: deque[Any] = deque()
        self._closed, self._lock, self._is_reading = Event(), Lock(), False
        self._delay, self._is_followed = FIRST_RETRY, False
        self.failure: Exception | None = None
        for key in self._position.unknown:
            with refusing_other_keys("a stream", key):
                self._position.begin(key, self._line.execute_command("XREVRANGE", key, "+", "-", "COUNT", 1))

    def __iter__(self) -> Self:
        return self

    def __next__(self) -> AChange:
        if not self._waiting:
            self._waiting.extend(self.read())
        if not self._waiting:
            raise StopIteration
        return self._waiting.popleft()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc_info: object) -> None:
        self.close()

    def read(self, timeout: float | None = None) -> list[AChange]:
        """Wait for changes and return them. The result is empty if none came in time, or after `close`.

        Parameters
        ----------
        timeout: float
            For how many seconds to wait; None for the timeout with which it was made.
        """
        timeout = self._timeout if timeout is None else checked_timeout(timeout)
        end = monotonic() + (inf if timeout is None else timeout)
        while not self._closed.is_set():
            left = end - monotonic()
            found = self._read_once(left)
            if found or left <= 0:
                return found
        return []

    def follow(self, notify: Callable[[AChange], object], name: str = "limpyd-jobs-changes") -> None:
        """Call a function with each change, in a thread of its own, until `close`.

        An exception of the function is logged, and the next change follows. If Redis failed, the same change comes
        once more, after a while.

        Parameters
        ----------
        notify: callable
            Takes a change.
        name: str
            The name of the thread.

        Raises
        ------
        TypeError
            If `notify` is not a function.
        LimpydJobsException
            If they are closed, or followed already.
        """
        self._follow(self._await_one, notify, 0, name)

    def follow_many(
        self, notify: Callable[[list[AChange]], object], pause: float = 0.02, name: str = "limpyd-jobs-changes"
    ) -> None:
        """Do as `follow`, with a list of all changes that came together, so that many changes are few calls.

        Parameters
        ----------
        notify: callable
            Takes a list of changes.
        pause: float
            For how many seconds to gather changes after each call.
        name: str
            The name of the thread.

        Raises
        ------
        TypeError, ValueError
            If an argument is invalid.
        LimpydJobsException
            If they are closed, or followed already.
        """
        self._follow(self._await_all, notify, pause, name)

    def _await(self) -> deque[Any]:
        """Return the next changes: one at least, unless it is closed."""
        if not self._waiting:
            self._waiting.extend(self.read(inf))
        return self._waiting

    def _await_one(self) -> Any:
        return self._waiting.popleft() if self._await() else None

    def _await_all(self) -> list[Change]:
        found = [*self._await()]
        self._waiting.clear()
        return found

    def _follow(self, ask: Callable[[], Any], notify: Callable[[Any], object], pause: float, name: str) -> None:
        if not callable(notify):
            raise TypeError(f"What is notified of changes must be a function, not {notify!r}")
        pause = checked_timeout(pause) or 0
        if self._closed.is_set() or self._is_followed:
            raise LimpydJobsException("These changes are closed, or another thread follows them: make others")
        self._is_followed = True

        def follow() -> None:
            changes = None
            while not self._closed.wait(pause):
                try:
                    changes = changes or ask()
                    if changes:
                        notify(changes)
                    changes = None
                except BaseException as error:
                    called = getattr(notify, "__qualname__", notify)
                    log.warning("The function %s, which is notified of changes, failed: %s", called, described(error))
                    if is_interruption(error):
                        self._pause()
                    else:
                        changes = None

        Thread(target=follow, name=name, daemon=True).start()

    def close(self) -> None:
        """End the iteration, also in another thread, and give the connection back."""
        self._closed.set()
        with self._lock:
            if self._is_reading:
                self._line.interrupt()
            else:
                self._line.close()

    def _read_once(self, seconds: float) -> list[Any]:
        """Wait for one slice; if Redis fails, wait before the next one."""
        try:
            reply = self._ask(max(1, int(1000 * min(self._slice, seconds))))
            found = finish(self._position.wanted(reply))
        except Exception as error:  # a connection that another thread closes raises other errors, too
            if self._closed.is_set():
                return []
            if not is_interruption(error):
                raise
            log.warning("Changes cannot be read, trying again: %s", described(error))
            self.failure = error
            self._pause(seconds)
            return []
        self._delay, self.failure = FIRST_RETRY, None
        return found

    def _pause(self, most: float = inf) -> None:
        """Wait before the next try, longer after each failure, and `most` seconds at most."""
        self._closed.wait(max(0, min(self._delay * random.uniform(0.5, 1), most)))
        self._delay = min(2 * self._delay, MAX_RETRY)

    def _ask(self, milliseconds: int) -> Any:
        with self._lock:
            self._is_reading = not self._closed.is_set()
        if not self._is_reading:
            return []
        try:
            with refusing_other_keys("a stream", *self._position.models):
                return self._line.execute_command(*self._position.question(milliseconds))
        finally:
            with self._lock:
                self._is_reading = False
                if self._closed.is_set():
                    self._line.close()


class ChangesOf:
    """Whether a change is the change of a job in the queues of some names; None for all."""

    def __init__(self, queue_model: type[RedisModel], names: Collection[str] | None) -> None:
        self._model = queue_model
        self._names = names
        self._known: dict[str, Any] = {}

    def _is_ours(self, change: JobChange) -> bool:
        return change.queue_key.startswith(f"{self._model._name}:")

    def prepare(self, changes: Iterable[JobChange]) -> Steps[None]:
        """Ask for the names of the queues that are not known."""
        if self._names is not None:
            for key in {change.queue_key for change in changes if self._is_ours(change)} - self._known.keys():
                self._known[key] = yield from commanded(redis_of(self._model), "HGET", f"{key}:hash", "name")

    def __call__(self, change: JobChange) -> bool:
        return self._is_ours(change) and (self._names is None or self._known[change.queue_key] in self._names)


def does_notify(model: type[RedisModel]) -> bool:
    """Whether a model notifies of its changes: one that no script can work with does not."""
    with suppress(ConfigurationException):
        return bool(layout_of(model).description["tells"])
    return False


def check_notifies(model: type[RedisModel]) -> None:
    """Raise `ConfigurationException` if a model does not notify of its changes."""
    if not layout_of(model).description["tells"]:
        raise ConfigurationException(
            f"{model.__name__} does not notify of its changes: {remedy_of(model, 'notify_changes')}"
        )


def remedy_of(model: type[RedisModel], option: str) -> str:
    """Say how to switch on an option of a job class, or of the function that it is made of."""
    return f"write @job({option}=True)" if hasattr(model, "_function") else f"set {option} = True on the class"


def checked_timeout(timeout: Any) -> float | None:
    """Return a time to wait, in seconds, None for no limit."""
    if timeout is None:
        return None
    if not is_number(timeout):
        raise TypeError(f"The timeout must be a number of seconds, or None, not {timeout!r}")
    if isnan(timeout) or timeout < 0:
        raise ValueError(f"The timeout must be 0 seconds or more, not {timeout!r}")
    return timeout


def _checked_id(since: Any) -> str:
    if not isinstance(since, str):
        raise TypeError(f"The since of changes must be the id of one, or '0', not {since!r}")
    if not all(part.isdecimal() for part in since.split("-", 1)):
        raise ValueError(f"The since of changes must be the id of one, or '0', not {since!r}")
    return since


def slice_of(client: Any) -> float:
    """Return how long one command may wait, so that the connection does not time out."""
    timeout: float | None = client.connection_pool.connection_kwargs.get("socket_timeout")
    return min(CHANGES_WAIT, timeout / 2) if timeout else CHANGES_WAIT


@contextmanager
def refusing_other_keys(kind: str, *keys: str) -> Iterator[None]:
    """Say clearly, by a `LimpydJobsException`, if Redis finds something at a key that this library did not write."""
    try:
        yield
    except ResponseError as error:
        if not is_of_wrong_type(error):
            raise
        names = ", or ".join(keys)
        raise LimpydJobsException(f"{names} is not {kind}: another program wrote it; rename or delete it") from error


def is_interruption(error: BaseException) -> bool:
    """Whether Redis may answer if it is asked once more."""
    lost = (RedisConnectionError, RedisTimeoutError)
    return isinstance(error, lost) or (
        isinstance(error, ResponseError) and str(error).startswith(("UNBLOCKED", "BUSY "))
    )


# Whether to log another entry of a model that holds no change.
_may_log: dict[str, OncePer] = defaultdict(lambda: OncePer(LOG_AGAIN))


def _change(name: str, model: Any, flat: Any) -> Change | None:
    """Return the change that an entry holds; None if another program wrote it."""
    fields = flat if isinstance(flat, Mapping) else dict(zip(flat[::2], flat[1::2], strict=True))
    of_job = (fields.get(each) for each in ("status", "before", "queue")) if hasattr(model, "get_model_repr") else ()
    stored = (fields.get("pk"), fields.get("what"), *of_job)
    if None in stored:
        if _may_log[model._name]():
            log.warning("The entry %s of %s:changes is not a change, and is passed over", one_line(name), model._name)
        return None
    return (JobChange if of_job else Change)(name, model, *stored)  # type: ignore[arg-type]


def _order(name: str) -> tuple[int, ...]:
    return tuple(map(int, name.split("-")))
