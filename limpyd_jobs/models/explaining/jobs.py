"""Why a job does not run, or did not run, in sentences."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from datetime import timedelta
from shlex import quote
from typing import Any, NamedTuple

from limpyd_jobs.arguments import MAX_DURATION, read_priority, read_seconds
from limpyd_jobs.classes.job_classes import job_classes
from limpyd_jobs.dates import EPOCH, datetime_to_score, parse_datetime, span
from limpyd_jobs.idents import Ident
from limpyd_jobs.models.error import Error
from limpyd_jobs.models.explaining.details import JobDetails, details_of, stored_job
from limpyd_jobs.models.explaining.parked import reasons_of_parked
from limpyd_jobs.models.explaining.silence import silences
from limpyd_jobs.models.explaining.waits import own_wait, what_it_waits_for
from limpyd_jobs.models.presence import SILENT, AliveWorker, WorkerPresence
from limpyd_jobs.records.flows import END_OF_ALL_DATES
from limpyd_jobs.redis.database import JobsDatabase
from limpyd_jobs.retrying import own_policy, read_policy
from limpyd_jobs.search.classes import classes_of, connection_to, is_board, on, replies_to
from limpyd_jobs.statuses import STATUSES
from limpyd_jobs.texts import MESSAGE, one_line
from limpyd_jobs.transitions import is_presumed, owner_of

_NO_QUEUE = (
    "It does not say in which queue it is, and stands in none of the queues that are known. If version 2 added it, a "
    "queue of a model of the application may have it: name its module with --job-modules"
)

# How often in a row the code of a job puts it back at once before it has to wait: see `slowing.lua`.
AT_ONCE = 10

# How many silent workers a sentence names.
MAX_NAMED = 20

# How many bytes of a value are read: sentences have the beginning at most.
MAX_READ = 1_000_000

# Is given the name of a field and its value; returns what to tell instead.
Mask = Callable[[str, str], str]


def _as_it_is(_: str, value: str) -> str:
    return value


class Reason(NamedTuple):
    """One reason why a job does not run, or did not run.

    Attributes
    ----------
    code: str
        For programs: one of the codes that the reference lists.
    text: str
        For people, a sentence.
    command: str
        The command line that the sentence proposes; empty if it proposes none.
    """

    code: str
    text: str
    command: str = ""


class Explanation(NamedTuple):
    """Why a job does not run.

    Attributes
    ----------
    ident: str
    status: str
        The name of the status, such as ``waiting``.
    reasons: list of Reason
    """

    ident: str
    status: str
    reasons: list[Reason]


def explain_job(
    ident: str,
    database: JobsDatabase | None = None,
    error_model: type[Error] | None = None,
    mask: Mask = _as_it_is,
) -> Explanation:
    """Explain why a job does not run yet, or did not run, as things are at this moment.

    Parameters
    ----------
    mask: callable
        Is given ``cursor``, ``message`` of its last error, ``log`` (the last line of its log) or ``cancel_reason``, and
        the text; returns what to show instead.

    The other parameters and exceptions: see `job_details`.
    """
    stored = stored_job(ident, database, MAX_READ)
    for name in ("cursor", "cancel_reason"):
        stored[f"_{name}"] = mask(name, stored.get(f"_{name}", ""))
    details = _masked(details_of(ident, stored, database, error_model, MAX_READ), mask)
    key = stored.get("_queue_key")

    def why_parked(connection: Any) -> Iterator[Reason]:
        return (Reason(*each) for each in reasons_of_parked(connection, ident, key or "", stored, mask))

    place = _Standing.of(database, _idents(ident, database), key, why_parked)
    place = place._replace(waits=what_it_waits_for(connection_to(database), stored))
    return Explanation(ident, details.status, list(_reasons(details, stored, place)))


def _masked(details: JobDetails, mask: Mask) -> JobDetails:
    errors = [{**error, "message": mask("message", error.get("message", ""))} for error in details.errors[:1]]
    return details._replace(errors=errors, log=[mask("log", line) for line in details.log[-1:]])


def _idents(ident: str, database: JobsDatabase | None) -> list[str]:
    """Return the ident of a job, and those by former paths of its class: it may stand in its queue by one of them."""
    path, pk = Ident.of(ident)
    classes = classes_of(database)
    former = [each.path for each in classes.values() if each.name == classes[path].name and each.path != path]
    return [ident, *(f"{each}:{pk}" for each in former)]


class _Standing(NamedTuple):
    """Where a job stands in its queue, and what else is in the queue."""

    ident: str  # by which it stands there, perhaps by a former path of its class
    is_queue: bool
    name: str
    is_board: bool  # of TaskFlow: conductors serve it, which take no notice of a pause
    is_paused: bool
    position: int | None  # in the waiting list
    due: float | None
    lease: float | None
    deferrals: int
    is_quarantined: bool
    parked: Sequence[Reason]  # why, if a limit keeps it from beginning
    idle_workers: int
    now: float
    ahead: int  # jobs that wait in queues of the same name with a higher priority
    running: int  # jobs of that name whose lease has not lapsed
    workers: list[AliveWorker]  # of queues of that model, without workers of version 2, and those that just began
    waits: str = ""  # for which jobs of its flow it waits, as a sentence

    @classmethod
    def of(
        cls,
        database: JobsDatabase | None,
        idents: Sequence[str],
        key: str | None,
        why_parked: Callable[[Any], Iterator[Reason]],
    ) -> _Standing:
        connection, key = connection_to(database), key or ""
        ident = _standing_ident(connection, key, idents)
        model = key.rpartition(":")[0]
        name, priority = _hash(connection, f"{key}:hash", "name", "priority")
        ahead, running = _others(connection, model, name, read_priority(priority) or 0)
        commands = (
            ("SISMEMBER", f"{model}:paused", name or ""),
            ("LPOS", f"{key}:waiting", ident),
            ("ZSCORE", f"{key}:delayed", ident),
            ("ZSCORE", f"{key}:_running", ident),
            ("HGET", f"{key}:_deferrals", ident),
            ("LPOS", f"{key}:_quarantine", ident),
            ("ZSCORE", f"{key}:_parked", ident),
            ("ZCARD", f"{model}:idle_workers"),
            ("TIME",),
        )
        paused, position, due, lease, deferrals, quarantined, parked, idle, now = replies_to(connection, commands)
        return cls(
            ident,
            name is not None,
            name or "",
            is_board(model),
            bool(paused) and not is_board(model),
            position,
            None if due is None else float(due),
            None if lease is None else float(lease),
            read_priority(deferrals) or 0,
            quarantined is not None,
            list(why_parked(connection)) if parked is not None else (),
            int(idle or 0),
            now[0] + now[1] / 1e6,
            ahead,
            running,
            [worker for worker in on(WorkerPresence, database).alive() if worker.queue_model == model],
        )

    @property
    def servers(self) -> list[AliveWorker]:
        return [worker for worker in self.workers if self.name in worker.queues]

    @property
    def has_workers(self) -> bool:
        """Whether the queue has workers: some that are there, or that run a job of it."""
        return bool(self.servers or self.running)


def _standing_ident(connection: Any, key: str, idents: Sequence[str]) -> str:
    """Return by which of the idents of a job it stands in a queue; without others, or if by none, the first one."""
    places = (("LPOS", "waiting"), ("ZSCORE", "delayed"), ("ZSCORE", "_running"), ("LPOS", "_quarantine"))
    for ident in idents if len(idents) > 1 else ():
        found = replies_to(connection, [(command, f"{key}:{place}", ident) for command, place in places])
        if any(each is not None for each in found):
            return ident
    return idents[0]


def _hash(connection: Any, key: str, *names: str) -> list[str | None]:
    found: list[str | None] = replies_to(connection, [("HMGET", key, *names)])[0] or [None] * len(names)
    return found


def _others(connection: Any, model: str, name: str | None, priority: int) -> tuple[int, int]:
    """Return how many jobs wait in the queues of a name with a higher priority, and how many of that name run."""
    pks, now = replies_to(connection, [("SMEMBERS", f"{model}:name:{name}"), ("TIME",)])
    ahead, running = 0, 0
    for pk in sorted(pks or ()):
        commands = (
            ("HGET", f"{model}:{pk}:hash", "priority"),
            ("LLEN", f"{model}:{pk}:waiting"),
            ("ZCOUNT", f"{model}:{pk}:_running", now[0], "+inf"),
        )
        other, waiting, runs = replies_to(connection, commands)
        ahead += (waiting or 0) if (read_priority(other) or 0) > priority else 0
        running += runs or 0
    return ahead, running


def _reasons(details: JobDetails, stored: Mapping[str, str], place: _Standing) -> Iterator[Reason]:
    status, end = stored.get("status"), stored.get("end", "some time")
    if status == STATUSES.SUCCESS:
        yield Reason("success", f"It succeeded, at {end}.")
    elif stored.get("_claim_token") or status == STATUSES.RUNNING:
        yield from _reasons_of_running(details.ident, stored, place, details.silence)
    elif status == STATUSES.ERROR:
        yield from _reasons_of_failed(details, stored, end)
    elif status == STATUSES.CANCELED:
        why = stored.get("_cancel_reason")
        yield Reason("canceled", f"It was canceled{f': {one_line(why, MESSAGE)}' if why else ''}.")
    elif not place.is_queue:
        yield Reason("no_queue", _NO_QUEUE)
    elif place.is_quarantined and place.position is None and place.due is None:
        what = f"It is in the quarantine of the queue {place.name}: once what is wrong with it is mended, "
        yield _proposing("quarantined", what, f"quarantine retry {quote(details.ident)}")
    elif status == STATUSES.DELAYED:
        yield from _reasons_of_delayed(details.ident, stored, place)
    else:
        yield from _reasons_of_waiting(details.ident, place)
    if place.ident != details.ident:
        yield Reason("former_path", f"It stands in its queue as {place.ident}: workers import it by that path.")
    if status in (STATUSES.WAITING, STATUSES.DELAYED) and stored.get("tries") and details.errors:
        yield Reason("retry", f"Try {stored['tries']}{_of_most(details, stored)} failed: {_last_error(details)}.")
    if status in (STATUSES.WAITING, STATUSES.DELAYED) and stored.get("tries") and details.log:
        yield Reason("log", f"The last line of its log: {one_line(details.log[-1], MESSAGE)}")
    if status in (STATUSES.WAITING, STATUSES.DELAYED):
        yield from _deadline(stored, place)
    if details.cursor and status in (STATUSES.WAITING, STATUSES.DELAYED, STATUSES.ERROR):
        yield Reason(
            "cursor", f"Its next run goes on where it was, unless it is put back with --restart: {details.cursor}"
        )
    if place.is_queue and place.is_paused and status in (STATUSES.WAITING, STATUSES.DELAYED):
        yield _proposing("paused", f"The queue {place.name} is paused: ", f"resume {quote(place.name)}")


def _deadline(stored: Mapping[str, str], place: _Standing) -> Iterator[Reason]:
    """Tell until when it has to begin, if it never began."""
    within, tries = read_seconds(stored.get("_start_within")), read_priority(stored.get("tries"))
    since = [date for name in ("added", "delayed_until") if (date := parse_datetime(stored.get(name)))]
    if not within or tries or not since:
        return
    left = datetime_to_score(max(since)) + within - place.now
    if left > 0:
        yield Reason("start_within", f"It is canceled if it has not begun within {span(left)}.")
    else:
        yield Reason("start_within", f"It is too late to begin it, for {span(-left)}: the next worker cancels it.")


def _of_most(details: JobDetails, stored: Mapping[str, str]) -> str:
    """Tell how many tries there are, if the job, or its class, has a retry policy that says so."""
    job_class = job_classes.known.get(Ident.of(details.ident).path)
    policy = read_policy(stored.get("_retry_policy")) or own_policy(getattr(job_class, "default_retry_policy", None))
    tries = read_priority(stored["tries"])
    if policy is None or policy.times is None or tries is None or tries > policy.times:
        return ""
    return f" of {policy.times + 1}"


def _reasons_of_running(ident: str, stored: Mapping[str, str], place: _Standing, silence: str) -> Iterator[Reason]:
    owner = owner_of(stored.get("_claim_token")) or "a worker that does not say who it is"
    has_lapsed = place.lease is not None and place.lease < place.now
    presumed = is_presumed(stored.get("_claim_token"))
    is_canceled = stored.get("status") == STATUSES.CANCELED
    recorded = "It was run" if is_canceled else "It is recorded as running"
    runs = recorded if has_lapsed or silence or presumed else "It runs"
    yield Reason("running", f"{runs}, since {stored.get('start', 'some time')}, by {owner}.")
    if silence:
        verb = "has been" if silence.startswith("silent") else "is"
        yield Reason("worker_silent", f"{owner} {verb} {silence}.")
    if is_canceled:
        yield Reason("cancel_asked", f"It was canceled: {_after_cancel(is_over=has_lapsed, is_silent=bool(silence))}.")
    if place.lease is None:
        yield Reason("no_lease", "It has no lease: a worker of version 2 runs it, or code of an application.")
    elif has_lapsed:
        lapsed = f"The lease of {owner} ended {span(place.now - place.lease)} ago: it died, or was silent."
        if is_canceled:
            yield Reason("lease_lapsed", lapsed)
            return
        if place.is_board:
            yield Reason("lease_lapsed", f"{lapsed} Any conductor of the board {place.name} can claim it.")
            return
        yield Reason("lease_lapsed", f"{lapsed} A worker of the queue {place.name} {_puts_back(place)}.")
        if not place.has_workers:
            yield Reason("no_worker", _no_worker(place))
    elif presumed:
        yield _proposing("presumed", _presumed(place.lease - place.now), f"jobs release --force {quote(ident)}")


def _puts_back(place: _Standing) -> str:
    statuses = {worker.status for worker in place.servers} - {SILENT}
    if statuses == {"busy"} or (not statuses and place.running):
        return "will put the job back, once it has ended its own"
    return "will put the job back" if statuses else "has to put the job back, but none is there"


def _after_cancel(*, is_over: bool, is_silent: bool) -> str:
    if is_over:
        return "it is over, nothing of it runs again, and its identifier is free"
    if is_silent:
        return "it is over once its lease ends, and its identifier is free then"
    return "its code is told if it asks, and goes on until then"


def _presumed(seconds: float) -> str:
    left = f"It is left alone for {span(seconds)} more, unless it ends before."
    sooner = "If no worker does, limpyd-jobs check --repair --lease=0 puts all such jobs back, and this one: "
    return f"No worker has a claim on it: a worker of version 2 may run it, or have left it. {left} {sooner}"


_NO_ERROR = ". No error of it is found: the log of its worker may tell more"


def _reasons_of_failed(details: JobDetails, stored: Mapping[str, str], end: str) -> Iterator[Reason]:
    told = f": {_last_error(details)}" if details.errors else _NO_ERROR
    yield Reason("error", f"It failed, at {end}, in try {stored.get('tries', '0')}{told}")
    yield _proposing("not_requeued", "It is not tried again by itself: ", f"jobs requeue {quote(details.ident)}")


def _proposing(code: str, text: str, words: str) -> Reason:
    command = f"limpyd-jobs {words}"
    return Reason(code, f"{text}{command}", command)


def _last_error(details: JobDetails) -> str:
    error = details.errors[0]
    return f"{error.get('type', '')}: {one_line(error.get('message', ''), MESSAGE)}"


def _moment(text: str) -> str:
    """Return a number of seconds of the epoch as a date; another text as it is."""
    seconds = read_priority(text)
    return one_line(text) if seconds is None else str(EPOCH + timedelta(seconds=min(max(seconds, 0), MAX_DURATION)))


def _reasons_of_delayed(ident: str, stored: Mapping[str, str], place: _Standing) -> Iterator[Reason]:
    until, followed = stored.get("delayed_until", ""), stored.get("_follows", "").partition(" ")[0]
    if followed:
        what = f"It begins once job {followed} has ended, which still runs, and has the same identifier."
        yield Reason("follows", what)
    if place.waits:
        yield Reason("waits_for_jobs", place.waits)
    wait = own_wait(stored)
    if wait.children:
        what = f"It waits for the jobs that it spawned, since {_moment(wait.since)} (UTC): "
        yield _proposing("waits_for_children", what, f"flows show {quote(wait.children)}")
    if wait.signal:
        latest = "" if wait.date == END_OF_ALL_DATES else f" It goes on without it at {wait.date} (UTC)."
        what = (
            f"It waits for the signal {one_line(wait.signal)!r}, since {_moment(wait.since)} (UTC).{latest} Send it: "
        )
        yield _proposing("waits_for_signal", what, f"flows signal {quote(ident)} {quote(wait.signal)} VALUE")
    if place.due is None:
        yield Reason("not_listed", f"It is delayed, but stands in no queue. {_put_back(place)}")
    elif place.due > place.now:
        if not place.waits and not wait.what:
            yield Reason("delayed", f"It is delayed until {until} (UTC), for {span(place.due - place.now)} more.")
        returns = read_priority(stored.get("_quick_returns")) or 0
        if returns > AT_ONCE:
            slowed = f"Its code put it back to be run at once, {returns:,} times in a row: it waits longer each time."
            yield Reason("slowed", f"{slowed} Give Requeue a delay.")
    elif place.is_board:
        due = f"It is due since {until} (UTC), but no worker serves the board {place.name} and puts it there: "
        yield _proposing("due", due, f"jobs promote {quote(ident)}")
    else:
        yield Reason("due", f"It is due since {until} (UTC): a worker of the queue {place.name} lets it wait there.")
        yield from _lack_of_workers(place)


def _reasons_of_waiting(ident: str, place: _Standing) -> Iterator[Reason]:
    yield from _reasons_of_its_class(ident, place)
    if place.deferrals and place.due is not None:
        if not (place.has_workers or place.is_paused):
            yield Reason("no_worker", _no_worker(place))
        return
    if place.position is None and place.parked:
        yield from place.parked
        yield from _lack_of_workers(place)
        return
    if place.position is None:
        yield Reason("not_listed", f"It waits, but stands in no list. {_put_back(place)}")
        return
    before = place.position + place.ahead
    if before:
        higher = f", {place.ahead:,} of them of a higher priority" if place.ahead else ""
        wait = "job waits" if before == 1 else "jobs wait"
        yield Reason("jobs_before", f"{before:,} {wait} before it in the queue {place.name}{higher}.")
    else:
        yield Reason("next", f"It is the next one of the queue {place.name}.")
    yield from _lack_of_workers(place)


def _reasons_of_its_class(ident: str, place: _Standing) -> Iterator[Reason]:
    if place.deferrals:
        times = "once" if place.deferrals == 1 else f"{place.deferrals:,} times"
        what = f"Workers could not import its class, {times}{_next_try(place)}"
        yield Reason("deferred", f"{what}: see --pythonpath and --job-modules.")
    path = Ident.of(place.ident).path
    if place.servers and all(path in worker.unresolved for worker in place.servers):
        yield Reason("class_unknown", f"No worker of the queue {place.name} that is there can import {path}.")


def _next_try(place: _Standing) -> str:
    """Return when workers try again to import the class of a job, if some are there."""
    if place.due is None or not place.has_workers:
        return ""
    return f", and try again {f'in {span(place.due - place.now)}' if place.due > place.now else 'now'}"


def _lack_of_workers(place: _Standing) -> Iterator[Reason]:
    if place.is_paused or place.is_board:
        return
    if place.servers:
        yield from _reasons_of_workers(place)
    elif not place.has_workers:
        yield Reason("no_worker", _no_worker(place))


def _no_worker(place: _Standing) -> str:
    if place.workers:
        number = len(place.workers)
        there = "The one worker that is there serves" if number == 1 else f"All {number:,} workers that are there serve"
        return f"{there} other queues: is one started for the queue {place.name}?"
    idle = "no worker is idle"
    if place.idle_workers:
        idle = f"{place.idle_workers} that are idle serve other queues"
    return f"No job of the queue {place.name} runs, and {idle}: is a worker started for it?"


def _reasons_of_workers(place: _Standing) -> Iterator[Reason]:
    numbers = Counter(worker.status for worker in place.servers)
    told = ", ".join(f"{number:,} {one_line(status)}" for status, number in sorted(numbers.items()))
    if numbers.keys() == {SILENT}:
        yield Reason("workers_silent", f"No worker of the queue {place.name} gives a sign of life: {_silences(place)}.")
    elif numbers.keys() <= {"quiet", "stopping"}:
        what = f"No worker of the queue {place.name} begins jobs ({told})"
        quiet = [quote(worker.name) for worker in place.servers if worker.status == "quiet"]
        if quiet:
            yield _proposing("workers_quiet", f"{what}: ", f"workers resume {' '.join(quiet)}")
        else:
            yield Reason("workers_quiet", f"{what}.")
    elif numbers.keys() <= {"busy", "quiet", "stopping", SILENT}:
        yield Reason("workers_busy", f"No worker of the queue {place.name} is free ({told}).")


def _silences(place: _Standing) -> str:
    silent, servers = silences(place.workers), place.servers
    told = [f"{one_line(worker.name)} has been {silent[worker.pk]}" for worker in servers[:MAX_NAMED]]
    if len(servers) > MAX_NAMED:
        told.append(f"and {len(servers) - MAX_NAMED:,} others")
    return ", ".join(told)


def _put_back(place: _Standing) -> str:
    by_worker = "" if place.is_board else "A worker puts such jobs back within 6 minutes, if one lives. "
    return f"{by_worker}At once: limpyd-jobs check --repair"
