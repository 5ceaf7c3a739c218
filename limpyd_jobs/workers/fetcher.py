"""How a worker gets its jobs: it claims them while there is work, and waits for the first one while there is none."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Sequence
from contextlib import suppress
from dataclasses import replace
from itertools import count
from uuid import uuid4

from limpyd.exceptions import DoesNotExist
from redis import Redis
from redis.exceptions import ResponseError

from limpyd_jobs import records, transitions
from limpyd_jobs.layout import layout_of
from limpyd_jobs.models import Error, Queue, job_classes, put_off
from limpyd_jobs.statuses import STATUSES
from limpyd_jobs.transitions import NOTHING, ClaimRequest, Fetched, Outlook

# How long the registration of a worker that waits outlives its wait, in seconds.
MARGIN = 5.0


class Fetcher:
    """Takes jobs out of waiting lists.

    Redis hands a job to a worker that waits before anything is recorded. So the worker is registered while it waits:
    should it die, or the reply be lost, its registration lapses, and somebody reconciles.

    Parameters
    ----------
    queue_model: type of Queue
        The model of the queues.
    lease: float
        For how long a claim holds, in seconds.
    error_model: type of Error
        Where to record that a job is given up, as its class cannot be resolved; None not to.

    Attributes
    ----------
    outlook: Outlook
        What Redis said when there was no job.
    queues: str
        The last pk of a queue, as Redis said with the last job, or as there was none; empty if it did not say so.
    signals: list of str
        The keys of the lists whose tokens end a wait.
    schedules: str
        The key of the schedules that the outlook tells of; empty for none.
    upcoming: deque of Fetched
        What came out of the lists already.
    """

    def __init__(self, queue_model: type[Queue], lease: float, error_model: type[Error] | None = Error) -> None:
        self.queue_model = queue_model
        self.lease = lease
        self.error_model = error_model
        self.upcoming: deque[Fetched] = deque()
        self.outlook = Outlook()
        self.queues = ""
        self.signals: list[str] = []
        self.schedules = ""
        self._heard = ""
        self._name = uuid4().hex[:16]
        self._numbers = count(1)
        self._unanswered: ClaimRequest | None = None
        self._registered = ""
        self._left: set[str] = set()
        self._news: dict[str, str] = {}

    def request(self, keys: Sequence[str]) -> ClaimRequest:
        """Return a request for the next job of these lists, with a token of its own."""
        return ClaimRequest(keys, f"{self._name}:{next(self._numbers)}", self.lease, job_classes.known)

    def next_at_hand(self) -> Fetched | None:
        """Return the next of those that were claimed with the end of a job. For the exceptions see `next`."""
        while self.upcoming:
            fetched = self._next_upcoming()
            if fetched:
                return self._checked(fetched)
        return None

    def next(self, keys: Sequence[str], wait: float | None = None) -> Fetched | None:
        """Claim the next job; None if there is none.

        Parameters
        ----------
        wait: float
            For how many seconds the caller is about to `wait` if there is none; None for not at all.

        Raises
        ------
        DoesNotExist, ValueError
            If there was the ident of a deleted job, which is now off the list; or no ident, or that of a job with
            records of a wrong type, which are now in the quarantine of the queue.
        ImportError, AttributeError, ValueError
            If the class of the job cannot be resolved. The job was put off.
        ClassUnresolved
            If that happened too often: the job was given up.
        """
        return self._claim(keys, wait=wait) if keys else None

    def _next_upcoming(self) -> Fetched | None:
        """The first of those at hand, as it is now: None if its claim is lost."""
        fetched = self.upcoming.popleft()
        news = self._news.pop(fetched.token, "") if self._news else ""
        if news == "canceled":
            return replace(fetched, status=STATUSES.CANCELED)
        return None if news else fetched

    def tell(self, fetched: Fetched, outcome: str) -> None:
        """Note what became of the lease of a job at hand, as `transitions.renew` says. Any thread may do so."""
        if outcome not in ("done", "failed"):
            self._news[fetched.token] = outcome

    def wait(self, keys: list[str], seconds: float) -> Fetched | None:
        """Wait for the first job that is put in these lists, and claim it. For the exceptions see `next`.

        A key that is no list, or not that of a queue, is removed from `keys`. That is an exception the first time.
        Those of paused queues are left alone. A signal ends the wait: then there `has_been_heard` something.
        """
        self._heard = ""
        try:
            popped = self.queue_model.get_connection().blpop(self.open(keys), timeout=seconds)
        except ResponseError as error:
            if "WRONGTYPE" not in str(error):
                raise
            self._leave(self._no_lists([*keys, *self.signals]), keys)
            return None
        if popped and popped[0] in self.signals:
            self._heard = popped[0]
            return None
        fetched = self.take(*popped) if popped else None
        if fetched and fetched.outcome == "no queue":
            self._leave([fetched.key], keys)
            return None
        if fetched and fetched.outcome == "paused":
            self.outlook = self.outlook._replace(paused=self.outlook.paused | {fetched.key})
            return None
        return fetched

    def open(self, keys: Sequence[str]) -> list[str]:
        """Return the keys to wait for: those of some waiting lists that do not belong to paused queues, and signals."""
        return [*(key for key in keys if key not in self.outlook.paused), *self.signals]

    @property
    def has_been_heard(self) -> bool:
        """Whether a signal ended the last wait."""
        return bool(self._heard)

    def _no_lists(self, keys: Sequence[str]) -> list[str]:
        pipe = self.queue_model.get_connection().pipeline(transaction=False)
        for key in keys:
            pipe.type(key)
        return [key for key, kind in zip(keys, pipe.execute(), strict=True) if kind not in ("list", "none")]

    def _leave(self, broken: list[str], keys: list[str]) -> None:
        """Wait for other keys only, until the queues are looked for again."""
        keys[:] = [key for key in keys if key not in broken]
        self.signals = [key for key in self.signals if key not in broken]
        new = [key for key in broken if key not in self._left]
        self._left.update(new)
        if new:
            raise DoesNotExist(f"Unable to get the queue from the key {', '.join(new)}")

    def take(self, key: str, ident: str) -> Fetched:
        """Claim a job that was taken from a list by other means. For the exceptions see `next`."""
        return self._claim([key], ident) or NOTHING

    def keep(self, upcoming: Fetched | None) -> None:
        """Keep what was claimed with the end of a job; one of a class unknown so far is still in its list."""
        if upcoming and upcoming.outcome == "unknown":
            with suppress(Exception):  # for next() to tell
                job_classes.meet(upcoming.path)
        elif upcoming:
            self.upcoming.append(upcoming)
            self.queues = upcoming.queues

    def give_back(self) -> list[Exception]:
        """Put the upcoming jobs, if there are any, back to the front of their lists; return what failed."""
        claims = [(job_classes.meet(fetched.path), fetched) for fetched in self.upcoming if fetched.token]
        self.upcoming.clear()
        return transitions.release_all(claims) if claims else []

    def failed(self) -> None:
        """Redis failed, so that a job may be lost in between: let the registration lapse."""
        self._registered = ""

    def listen(self, names: Iterable[str]) -> None:
        """Let the signals for queues of these names end a wait, and one that is for this worker alone."""
        self.signals = [records.signal_key(self.queue_model, name) for name in (*names, self._own_name)]

    @property
    def _own_name(self) -> str:
        return f",{self._name}"  # no queue has such a name

    def end_wait(self, connection: Redis) -> None:
        """End the wait of this worker, over a connection that any thread may use."""
        records.signal(connection, records.signal_key(self.queue_model, self._own_name))

    def unregister(self) -> None:
        """End the registration, if there is one."""
        if self._registered:
            transitions.unregister(self.queue_model, [self._registered])
            self._registered = ""

    def _claim(self, keys: Sequence[str], ident: str = "", wait: float | None = None) -> Fetched | None:
        fetched = self._ask(keys, ident, wait)
        while fetched and fetched.outcome == "unknown":
            self._meet(fetched)
            fetched = self._ask(keys, ident, wait)
        return self._checked(fetched) if fetched else None

    def _ask(self, keys: Sequence[str], ident: str, wait: float | None) -> Fetched | None:
        """Claim a job; if the last reply was lost, the job that it told of, if any."""
        request = self.request(keys)
        if self._unanswered:
            request = replace(request, token=self._unanswered.token, is_again=True)
        if wait is not None and not self._registered:
            self._registered = request.token
        self._unanswered = request
        until = None if wait is None else wait + MARGIN
        heard, news = self._heard, self.outlook.news
        heard = "" if heard.endswith(self._own_name) else heard
        fetched, self.outlook = transitions.claim(
            self.queue_model, request, ident, self._registered, until, heard, news, self.schedules
        )
        self.queues = fetched.queues if fetched else self.outlook.queues
        self._heard = ""
        self._unanswered = None
        if fetched and fetched.outcome != "unknown":
            self._registered = ""
        return fetched

    def _meet(self, fetched: Fetched) -> None:
        try:
            layout_of(job_classes.meet(fetched.path))
        except Exception as error:
            raise put_off(self.queue_model, fetched.key, fetched.ident, error, self.error_model)  # noqa: B904

    @staticmethod
    def _checked(fetched: Fetched) -> Fetched:
        if fetched.outcome == "gone":
            path, _, pk = fetched.ident.rpartition(":")
            raise DoesNotExist(f"No {path.rpartition('.')[2]} found with pk {pk}")
        if fetched.outcome == "garbage":
            raise ValueError(
                f"Not the ident of a job, so put in the quarantine of {fetched.queue_key}: {fetched.ident!r}"
            )
        if fetched.outcome == "broken":
            raise ValueError(f"{fetched.ident} is put in the quarantine of {fetched.queue_key}: {fetched.status}")
        return fetched
