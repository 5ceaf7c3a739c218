"""What incidents are found by: a database at a glance, what was run lately, the last errors, pauses, versions."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence, Set
from datetime import datetime, timedelta
from types import MappingProxyType
from typing import NamedTuple

from limpyd_jobs.dates import parse_datetime, utcnow
from limpyd_jobs.models.queue import Queue
from limpyd_jobs.query.audit import audit_entries
from limpyd_jobs.query.limits.keys import LimitKey, keys_with_parked
from limpyd_jobs.query.metrics import Period, read_metrics
from limpyd_jobs.query.overview import Overview, overview
from limpyd_jobs.query.series import waited_before
from limpyd_jobs.query.workers import SILENT, EndedWorker, ended_workers
from limpyd_jobs.records.app_versions import AppVersion, read_versions
from limpyd_jobs.redis.database import JobsDatabase
from limpyd_jobs.search.causes import Mask
from limpyd_jobs.search.classes import asking_once, classes_of, connection_to, is_board, replies_to
from limpyd_jobs.search.errors import ErrorFilter, RecentError
from limpyd_jobs.statuses import STATUSES

# Of how much time incidents are found.
SINCE = timedelta(hours=1)

# For how long after its last error a cause is said to fail now.
FAILS_FOR = timedelta(minutes=10)

# How many entries of the audit are read for who paused a queue, if one is paused.
MAX_ENTRIES = 200

# What the conditions of a pause in the audit begin with.
_OF_QUEUE = "queue="


class Pause(NamedTuple):
    """When a queue was paused, naive UTC, and by whom: a user that the dashboard knows, or that of a process."""

    at: datetime | None
    who: str


class RecentErrors(NamedTuple):
    """The last errors, the newest first.

    Attributes
    ----------
    errors: sequence of RecentError
    in_error: set of str
        The idents of their jobs that are in error now.
    is_exact: bool
        Whether these are all errors that there are.
    """

    errors: Sequence[RecentError] = ()
    in_error: frozenset[str] = frozenset()
    is_exact: bool = True

    def failing(self, now: datetime) -> Set[str]:
        """Return the fingerprints of the causes that fail now, at a time, naive UTC."""
        return {each.fingerprint for each in self.errors if fails_now(each.date_time, now)}


def fails_now(date: str, now: datetime) -> bool:
    """Return whether a cause whose last error was then fails now."""
    last = parse_datetime(date)
    return bool(last and now - last < FAILS_FOR)


class Glance(NamedTuple):
    """All that is known of a database at a glance.

    Attributes
    ----------
    overview: Overview
    periods: sequence of Period
        The metrics of the last minutes, of all queues, the oldest first.
    recent: RecentErrors
        Read only if tries failed in these minutes, or the last error was a moment ago.
    pauses: dict of str to Pause
        Of the queues that are paused, by their name, as far as the audit says.
    versions: sequence of AppVersion
        Of the application, the first one first.
    at: datetime
        When it was looked at, naive UTC.
    limits: sequence of LimitKey
        The keys of limits for which jobs wait, those of the job that has waited longest first.
    lost: dict of str to EndedWorker
        The last worker of each queue that none serves, if it did not end in order but died, within a day.
    waited_before: dict of str to int
        How many jobs waited in each queue when the first of the last five minutes began; empty if that is not known.
    """

    overview: Overview
    periods: Sequence[Period] = ()
    recent: RecentErrors = RecentErrors()
    pauses: Mapping[str, Pause] = MappingProxyType({})
    versions: Sequence[AppVersion] = ()
    at: datetime = datetime.min
    limits: Sequence[LimitKey] = ()
    waited_before: Mapping[str, int] = MappingProxyType({})
    lost: Mapping[str, EndedWorker] = MappingProxyType({})


def _as_it_is(_: str | None, value: str) -> str:
    return value


def glance(
    database: JobsDatabase | None = None,
    since: timedelta = SINCE,
    most_running: int = 0,
    queue_model: type[Queue] | None = None,
    mask: Mask = str,
    reader: Callable[..., list[Period]] = read_metrics,
    mask_value: Callable[[str | None, str], str] = _as_it_is,
) -> Glance:
    """Look at a database, in some round trips, whatever the number of jobs and errors.

    Parameters
    ----------
    since: timedelta
        Of how much time the metrics are: at most two days.
    most_running: int
        How many of the jobs that run are read, the newest first.
    queue_model: type of Queue
        Queues and workers may be of one model.
    mask: callable
        Returns what to show instead of the message of an error.
    mask_value: callable
        Is given a field, or None if it is not known, and a value of it; returns what to show instead.
    reader: callable
        A `MetricsReader`, for who looks again and again.
    """
    with asking_once():
        seen = overview(database, most_running, queue_model)
        periods = reader(since, database=database)
        fails = any(period.total.failed for period in periods)
        paused = {state.name for state in seen.queues if state.is_paused}
        return Glance(
            seen,
            periods,
            recent_errors(database, mask) if fails or _fails_uncounted(database) else RecentErrors(),
            _pauses(paused, database) if paused else {},
            app_versions(database),
            utcnow(),
            [_masked(key, mask_value) for key in keys_with_parked(seen.queues, database)],
            waited_before(periods, database),
            _lost(seen, database),
        )


def _lost(seen: Overview, database: JobsDatabase | None) -> dict[str, EndedWorker]:
    """Return the last worker of each queue that none serves, if it died."""
    served = {name for worker in seen.workers for name in worker.queues}
    wanted = {state.name for state in seen.queues if not is_board(state.model)} - served
    last: dict[str, EndedWorker] = {}
    for worker in ended_workers(database) if wanted else ():
        for name in wanted.intersection(worker.queues):
            last.setdefault(name, worker)
    return {name: worker for name, worker in last.items() if worker.how == SILENT}


def _masked(key: LimitKey, mask_value: Callable[[str | None, str], str]) -> LimitKey:
    return key if key.value is None else key._replace(value=mask_value(key.field, key.value))


def _fails_uncounted(database: JobsDatabase | None) -> bool:
    """Return whether a job failed a moment ago, though no worker has counted it: an application had claimed it."""
    return any(fails_now(each.date_time, utcnow()) for each in ErrorFilter(database=database).page(1).found)


def recent_errors(database: JobsDatabase | None = None, mask: Mask = str) -> RecentErrors:
    """Return the last errors: up to 500 of each model of errors."""
    found, is_exact = ErrorFilter(database=database).recent(mask)
    known = classes_of(database)
    keys = {
        each.ident: f"{known[each.path].name}:{each.ident.rpartition(':')[2]}:hash"
        for each in found
        if each.path in known
    }
    statuses = replies_to(connection_to(database), [("HGET", key, "status") for key in keys.values()])
    in_error = {ident for ident, status in zip(keys, statuses, strict=True) if status == STATUSES.ERROR}
    return RecentErrors(found, frozenset(in_error), is_exact)


def app_versions(database: JobsDatabase | None = None) -> list[AppVersion]:
    """Return the last versions of the application that workers said they run, by the environment variable
    LIMPYD_JOBS_APP_VERSION: the one that was seen first is the first one. 50 are kept."""
    return read_versions(connection_to(database))


def _pauses(names: Iterable[str], database: JobsDatabase | None) -> dict[str, Pause]:
    """Return the last pause of each queue, as far as the last entries of the audit say."""
    wanted, found = {*names}, dict[str, Pause]()
    for entry in audit_entries(MAX_ENTRIES, database):
        name = entry.filter.removeprefix(_OF_QUEUE)
        if entry.verb == "pause" and name in wanted and name not in found:
            found[name] = Pause(parse_datetime(entry.at), _shown(entry.who))
    return found


def _shown(who: str) -> str:
    """Return the user, without the process that acted for him, or that he ran."""
    user, by, _ = who.partition(" by ")
    return user if by else who.partition("@")[0]
