"""Claims on jobs: to make, renew and give them back."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import timedelta
from functools import lru_cache, partial
from os import urandom
from typing import Any, Literal, NamedTuple, cast
from urllib.parse import quote, unquote

from limpyd.model import RedisModel
from redis import Redis

from limpyd_jobs.classes.binding import check_database
from limpyd_jobs.dates import EPOCH
from limpyd_jobs.exceptions import (
    AlreadyClaimed,
    ConfigurationException,
    JobGone,
    LimpydJobsException,
    NotClaimable,
)
from limpyd_jobs.limiting.limit import limits_of_class
from limpyd_jobs.records.known_classes import HIDDEN, is_secret_in, unwritten, was_written
from limpyd_jobs.records.layout import classes_argument, layout_of
from limpyd_jobs.records.lazy_fields import pk_of
from limpyd_jobs.records.records import redis_of, sender_of
from limpyd_jobs.redis.calls import Call, Verb, given, listed, send_after, send_all
from limpyd_jobs.redis.connections import PinnedConnection
from limpyd_jobs.redis.scripting import Script
from limpyd_jobs.retrying import History
from limpyd_jobs.statuses import STATUSES
from limpyd_jobs.texts import one_line
from limpyd_jobs.transitions.placing import accept, preparing, where_to

# The lease of a running job without a claim, in seconds: its worker may be of version 2, and alive.
UNCLAIMED_LEASE = 86400

# The beginning of the tokens of jobs that are only in the hand of a worker.
ONLY_TAKEN = "hand:"

# The beginning of the tokens of a worker that listens which of its jobs are canceled: see ``canceling.lua``.
LISTENING = "slot:"

# Instead of a token, from a caller that acts on a job only if no one has claimed it.
UNCLAIMED = "(not claimed)"

# How many leases `renew_all` renews in one step at most, how many of them with a cursor, and how long their cursors may
# be together: so that Redis can do something else in between.
MAX_RENEWED, MAX_KEPT, MAX_KEPT_TEXT = 1000, 250, 500_000

# The characters of an owner that are not escaped in a token, so that people can read it.
_SAFE = ":@+,;=()[] "

_claim = Script("claiming/claim")
_claim_job = Script("claiming/claim_job")
_claim_state = Script("claiming/claim_state")
_release = Script("claiming/release")
_renew = Script("claiming/renew")
_renew_many = Script("claiming/renew_many")


class Room(NamedTuple):
    """How many suspects, which may kill it, a worker of several slots runs, and how many it may run at once; nothing if
    it runs none."""

    suspects: int = 0
    most_suspects: int | Literal[""] = ""

    @property
    def is_left(self) -> bool:
        """Whether it may run another one."""
        return self.most_suspects == "" or self.suspects < self.most_suspects

    def has_one_for(self, beside: int) -> bool:
        """Whether it may run a suspect that allows so many at once, itself included."""
        return self.suspects < min(beside, self.most_suspects or beside)


@dataclass(slots=True)  # not frozen, because that takes three times as long to make
class ClaimRequest:
    """What a worker asks for: see ``claiming/claim.lua``. It is sent over its connection, or by the client of the
    database."""

    keys: Sequence[str]
    token: str
    lease: float
    classes: Mapping[str, type[RedisModel]]
    is_again: bool = False
    connection: Any = field(default=None, compare=False, repr=False)
    registry: str = field(default="", compare=False, repr=False)
    room: Room | None = None  # of a worker that runs several jobs at once
    described: str = field(default="", compare=False, repr=False)  # the classes as scripts take them, if that is known

    def words(self) -> list[Any]:
        """Return the lists, the token, the lease, the classes and the registry as scripts take them. Hundreds of
        waiting lists are one text, which travels much faster."""
        described = self.described or classes_argument(self.classes)
        return ["\n".join(self.keys), self.token, self.lease, described, self.registry]

    @property
    def words_of_room(self) -> list[Any]:
        """Whether the worker runs several jobs at once, and its suspects, as scripts take them."""
        return ["1", *self.room] if self.room else ["", "", ""]

    @property
    def models(self) -> Sequence[type[RedisModel]]:
        """The classes of the jobs that may be claimed."""
        return tuple(self.classes.values())


@dataclass(slots=True)  # not frozen, as above
class Delivery:
    """An entry that came out of a waiting list, as scripts give it: see ``claiming/claim.lua``, and for the rescues
    ``recovering/rescue.lua``. The error says why an unknown class cannot be resolved."""

    outcome: str
    key: str
    ident: str
    status: str = ""
    identifier: str = ""
    queue_name: str = ""
    queue_priority: str = ""
    start: str = ""
    tries: str = ""
    job_timeout: str = ""
    queues: str = field(default="", compare=False)
    token: str = ""
    rescues: int = 0
    retry: Sequence[str] = ("", "", "")
    arguments: Sequence[Any] = ()
    delayed_until: str = ""
    reason: str = ""  # why it was canceled, or delayed, instead
    cursor: str = ""  # how far it was, as JSON
    beside: int = 0  # of a suspect that may have others beside it: how many of them may run at once, itself included
    flow: str = ""  # whether it is a node of a flow
    error: Exception | None = field(default=None, compare=False)
    database: Any = field(default=None, compare=False)  # where it is, if it is in another shard than that of its worker

    # The class path and the pk of the job, and the beginning of the keys of the queue: its model's name and its pk. As
    # `Ident` and `QueueKey` read them, but once, because they are read ten times for each job.
    path: str = field(init=False, repr=False, compare=False)
    pk: str = field(init=False, repr=False, compare=False)
    queue_key: str = field(init=False, repr=False, compare=False)

    queue_pk: str = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        self.path, _, self.pk = self.ident.rpartition(":")
        self.queue_key = self.key.removesuffix(":waiting")
        self.queue_pk = self.queue_key.rpartition(":")[2]

    @property
    def history(self) -> History:
        """What a retry policy needs if the job fails."""
        policy, uncounted, since, *limit = self.retry
        return History(policy, self.tries, uncounted, self.start, since, *limit)

    @property
    def suspects_beside(self) -> int:
        """How many suspects a worker that runs several jobs may run at once, given this one; 0 if it is none."""
        return self.beside or int("/" not in self.token)  # not `is_one_of_several`

    @property
    def is_one_of_several(self) -> bool:
        """Whether it was claimed together with others: then tokens have numbers (``one_of_several`` in claims.lua)."""
        return "/" in self.token


NOTHING = Delivery("nothing", "", "")


class NextWakeups(NamedTuple):
    """What a worker that found no job needs to know to wait for one: see ``nothing`` in ``claiming/claim.lua``. None,
    or a negative number, is what is not known."""

    broken: Sequence[str] = ()
    queues: str = ""
    moment: float = 0
    overdue: float | None = None
    due: float | None = None
    missed: float | None = None
    scheduled: float | None = None
    delayed: int = -1
    is_quiet: bool = False
    parked: float | None = None
    is_watched: bool = False
    lanes_of: str = ""


_NO_WAKEUPS = NextWakeups()
_MOMENTS = ("moment", "overdue", "due", "missed", "scheduled", "parked")


@Verb
def claim(
    queue_model: type[RedisModel],
    request: ClaimRequest,
    ident: str = "",
    worker: str = "",
    wait: float = 0,
    schedules: str = "",
    known: str = "",
) -> Call[tuple[Delivery | None, NextWakeups]]:
    """Claim the first job of the lists, or the given one. Without a job (None), return what to know to wait."""
    sender = request.connection or redis_of(queue_model)
    return Call(sender, _claim, _claiming(request, ident, worker, wait, schedules, known), _claimed, request.models)


def wait_and_claim(
    connection: PinnedConnection,
    signals: Sequence[str],
    seconds: float,
    request: ClaimRequest,
    worker: str,
    wait: float,
    schedules: str = "",
    known: str = "",
) -> tuple[Any, Delivery | None, NextWakeups | None]:
    """Wait for one of some signals, then claim as `claim` does, in one round trip. Redis claims only if the worker is
    registered then: else its connection may be lost, and it may have asked again.

    Return the key of the signal, None without a signal, or the error if the wait was impossible; and what `claim`
    returns, but None instead of the `NextWakeups` if the worker is not registered.
    """

    def read(reply: dict[str, Any]) -> tuple[Delivery | None, NextWakeups | None]:
        return (None, None) if reply["outcome"] == "unregistered" else _claimed(reply)

    call = Call(
        connection, _claim, _claiming(request, "", worker, wait, schedules, known, is_late="1"), read, request.models
    )
    heard, (delivery, next_wakeups) = send_after(connection, ["BLPOP", *signals, seconds], call)
    return heard[0] if isinstance(heard, list) else heard, delivery, next_wakeups


@Verb
def claim_job(
    job: RedisModel, queue_model: type[RedisModel], queue_name: str, token: str, lease: float
) -> Call[Delivery]:
    """Claim a given job, wherever it stands, also in a paused queue. Exceptions: as `Job.claim`."""
    check_database(type(job), queue_model)

    def read(reply: dict[str, Any]) -> Delivery:
        if reply["outcome"] == "found":
            found = Delivery(*reply["delivery"])
            raise NotClaimable(job.ident, found.status, reason=found.reason)
        if reply["outcome"] != "claimed":
            raise _refusal(job, **reply)
        if registry:
            was_written(*models)
        return Delivery(*reply["delivery"])

    models = (type(job),), queue_model
    registry = unwritten(*models)
    claim = {"job_model": layout_of(type(job)).json, "ident": job.ident, "token": token, "lease": lease}
    request = {**claim, "registry": registry, **where_to(queue_model, queue_name)}
    before = preparing(queue_model, queue_name, "", job) if queue_name else None
    return Call(sender_of(type(job)), _claim_job, request, read, [type(job)], before=before)


def _refusal(job: RedisModel, outcome: str, **known: str) -> Exception:
    """Return the exception for the reply of a script that did not claim a job."""
    if outcome == "taken":
        until = EPOCH + timedelta(seconds=float(known["until"])) if "until" in known else None
        return AlreadyClaimed(job.ident, owner_of(known.get("token")), until)
    if outcome == "not to be run":
        return NotClaimable(job.ident, known["status"], known.get("delayed_until", ""))
    if outcome == "already queued":
        return LimpydJobsException(
            f"{job.ident} cannot be claimed: job {known['pk']}, of the same identifier, is queued"
        )
    if outcome == "limited":
        label = label_of_key(type(job), known["limit"])
        return NotClaimable(job.ident, STATUSES.WAITING, reason=f"the limit {one_line(label)} is reached")
    if outcome == "other queue model":
        return ConfigurationException(
            f"{job.ident} is in {known['queue_key']}: give claim() the queue_model of that queue"
        )
    return JobGone(job.ident) if outcome == "gone" else LimpydJobsException("Queue's name not defined")


def claim_token(owner: str) -> str:
    """Return the name of a claim, with a random part. It tells the owner: see `owner_of`."""
    return urandom(8).hex() + mark_of(owner)


@lru_cache(100)
def mark_of(owner: str) -> str:
    """Return the end of the names of all claims of an owner. Scripts give a meaning to ``/``."""
    return f"@{quote(owner, safe=_SAFE)}"


class ClaimState(NamedTuple):
    """Whether a job is claimed.

    Attributes
    ----------
    status: str
        The status of the job, a value of `STATUSES`; None if the job is gone.
    owner: str
        The owner of the claim, or of the claim that lapsed; None without a claim, or for a worker of version 2.
    left: float
        In how many seconds the lease ends, by the clock of Redis; less than 0 if it has lapsed. None without a lease.
    """

    status: str | None
    owner: str | None
    left: float | None

    @property
    def is_held(self) -> bool:
        """Whether a claim holds."""
        return self.status == STATUSES.RUNNING and self.left is not None and self.left > 0


@Verb
def claim_state(job: RedisModel) -> Call[ClaimState]:
    """Return whether a job is claimed, and for how long."""

    def read(reply: dict[str, Any]) -> ClaimState:
        if reply["outcome"] == "gone":
            return ClaimState(None, None, None)
        return ClaimState(reply["status"], owner_of(reply["token"]), reply.get("left"))

    request = {"model": layout_of(type(job)).json, "pk": pk_of(job)}
    return Call(sender_of(type(job)), _claim_state, request, read)


def label_of_key(job_class: Any, key: str) -> str:
    """Return how a key of a limit of a class is shown: ``customer=acme``, without the value of a secret field."""
    name, has_value, value = key.partition(":_limit:")[2].partition(":")
    fields = [limit.field for limit in limits_of_class(job_class) if limit.label == name]
    is_secret = any(field and is_secret_in(job_class, field) for field in fields)
    return f"{name}={HIDDEN if is_secret else value}" if has_value else name


def owner_of(token: str | None) -> str | None:
    """Return the owner of a claim, given its token; None if the token does not tell it."""
    return unquote(token.partition("@")[2].partition("/")[0]) or None if token else None


def is_presumed(token: str | None) -> bool:
    """Whether a job that is RUNNING is only presumed to run: no worker claimed it, but perhaps the check did."""
    return not token or token.startswith("check:")


def _claiming(
    request: ClaimRequest, ident: str, worker: str, wait: float, schedules: str, known: str, is_late: str = ""
) -> list[Any]:
    """Return the words of ``claiming/claim.lua``, in the order of its header."""
    is_again = "1" if request.is_again else ""
    how = [*request.words_of_room, ident, is_again, worker, wait or "", schedules, is_late, known]
    return request.words() + how


def _claimed(reply: dict[str, Any]) -> tuple[Delivery | None, NextWakeups]:
    if "delivery" not in reply:
        return None, _next_wakeups(reply)
    looks_on = "parked" in reply and NextWakeups(moment=float(reply["moment"]), parked=float(reply["parked"]))
    return Delivery(*reply["delivery"]), looks_on or _NO_WAKEUPS


def _next_wakeups(reply: dict[str, Any]) -> NextWakeups:
    moments: dict[str, Any] = {name: float(reply[name]) for name in _MOMENTS if name in reply}
    moments |= {"delayed": reply["delayed"], "is_quiet": reply["is_quiet"], "is_watched": "is_watched" in reply}
    return NextWakeups(list(reply["broken"]), reply["queues"], **moments, lanes_of=reply.get("lanes_of", ""))


def known_of(classes: Iterable[type[RedisModel]], next_wakeups: NextWakeups | None = None) -> str:
    """Return what a worker that is about to wait tells `claim`: the classes whose jobs may come without a signal, and
    what it was told before. Without that, or if it is not enough, all lists are looked into."""
    prefixes = sorted({prefix for job_class in classes for prefix in _prefixes_of_status(job_class)})
    known: dict[str, Any] = {
        "waiting": [prefix + STATUSES.WAITING for prefix in prefixes],
        "delayed": [prefix + STATUSES.DELAYED for prefix in prefixes],
    }
    if next_wakeups and next_wakeups.delayed >= 0:
        known["number"] = next_wakeups.delayed
        if next_wakeups.due is not None:
            known["due"] = f"{next_wakeups.due:.6f}"
    return json.dumps(known, separators=(",", ":"))


def _prefixes_of_status(job_class: type[RedisModel]) -> Sequence[str]:
    try:
        return cast("Sequence[str]", layout_of(job_class).description["indexes"].get("status", ())[:1])
    except ConfigurationException:  # a class that no script can work with
        return ()


def unregister(queue_model: type[RedisModel], worker: str) -> None:
    """End the registration of a worker as blocked."""
    redis_of(queue_model).zrem(f"{queue_model._name}:idle_workers", worker)


@Verb
def renew(
    connection: Redis,
    job_class: type[RedisModel],
    ident: str,
    token: str,
    queue_key: str,
    lease: float | None = None,
    kept: Mapping[str, Any] | None = None,
) -> Call[Mapping[str, Any]]:
    """Extend the lease of a claim, unless none is given, over a connection that any thread may use; keep the cursors of
    the job, see ``lua/includes/claims.lua``."""
    request = {**held(job_class, ident, token, queue_key), **given(lease=lease), **(kept or {})}
    return Call(connection, _renew, request, partial(accept, ident))


class Renewal(NamedTuple):
    """A claim whose lease is to be extended, and the cursors to keep with it, as of `Cursors.pending`."""

    job_class: type[RedisModel]
    delivery: Delivery
    kept: Mapping[str, Any] = {}

    def row(self) -> Sequence[str]:
        """Return it as the script takes it."""
        delivery, kept = self.delivery, self.kept
        row = delivery.ident, delivery.token, delivery.queue_key
        return (*row, kept["cursor"], kept.get("progress", "")) if kept else row


@Verb
def renew_all(connection: Redis, claims: Sequence[Renewal], lease: float) -> Call[list[str]]:
    """Extend the leases of some claims in one step; return the outcome of each, ``failed`` if its record is broken."""
    request = {
        "claims": listed(each.row() for each in claims),
        "lease": lease,
        "classes": classes_argument({each.delivery.path: each.job_class for each in claims}),
    }
    return Call(connection, _renew_many, request, lambda reply: list(reply["outcomes"]))


def held(job_class: type[RedisModel], ident: str, token: str, queue_key: str) -> dict[str, Any]:
    """Return the names of a request that describe a claim; raise `ValueError` without a token."""
    return held_or_unclaimed(job_class, ident, "" if token == UNCLAIMED else token, queue_key)


def held_or_unclaimed(job_class: type[RedisModel], ident: str, token: str, queue_key: str) -> dict[str, Any]:
    """Do the same; or describe a job without a claim, if the token is `UNCLAIMED`."""
    if not token:
        raise ValueError(f"The token of the claim on {ident} is missing")
    claim = {"unclaimed": True} if token == UNCLAIMED else {"token": token}
    return {"job_model": layout_of(job_class).json, "ident": ident, "queue_key": queue_key, **claim}


@Verb
def release(
    job_class: type[RedisModel],
    ident: str,
    token: str,
    queue_key: str,
    delay: str = "",
    *,
    heeds_status: bool = False,
    begun: bool = False,
    goes_last: bool = False,
    waits: str = "",
    kept: Mapping[str, Any] | None = None,
) -> Call[Mapping[str, Any]]:
    """Give a claimed job back, unharmed, to the front of its waiting list, or to its end; or with a delay, for later;
    or until what it waits for is there.

    Only a caller that heeds the status hears that the job was deleted, by `JobGone`. One whose code was `begun` has
    begun in time.
    """

    def read(reply: dict[str, Any]) -> Mapping[str, Any]:
        return accept(ident, reply) if heeds_status or reply["outcome"] != "gone" else reply

    request = {**held(job_class, ident, token, queue_key), "delay": delay, "heeds_status": heeds_status, "begun": begun}
    request |= {"goes_last": goes_last, "waits": waits, **(kept or {})}
    return Call(sender_of(job_class), _release, request, read, [job_class])


def release_all(claims: Sequence[tuple[type[RedisModel], Delivery]]) -> list[Exception]:
    """Give claimed jobs back in one round trip, so that they are run in this order; return the failures."""
    calls = [release.call(cls, job.ident, job.token, job.queue_key) for cls, job in reversed(claims)]
    return [outcome for outcome in send_all(redis_of(claims[0][0]), calls) if isinstance(outcome, Exception)]
