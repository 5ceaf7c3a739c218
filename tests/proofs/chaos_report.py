"""What a chaos test found: from the marks of its processes, its faults, and what is in Redis at the end.

A worker is *silent* from the moment on when it sent the claim, or the last renewal of it that Redis accepted, be it
killed, stopped, or cut off from Redis. Once that is longer than the lease another worker may run the job, even at the
same time; what the first one has to say then is refused. Anything else of that kind is a violation.

A failover forgets what the new primary was not told. So what was claimed or recorded shortly before, or meanwhile, may
be run again, even at the same time; such runs are counted apart. A job that was acknowledged may not be lost.
"""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from itertools import combinations, pairwise
from math import inf
from typing import Any

from chaos_jobs import Failing, class_of
from chaos_ledger import Ledger

from limpyd_jobs import STATUSES

HARNESS = "harness"  # the name of the marks of the test itself, whose proxy is between workers and Redis
REDIS = "redis"  # the name of the marks of when Redis did not answer: the disk of a busy machine may keep it waiting

# How much clocks may differ: Redis counts leases in wall time, the marks are in monotonic time.
TOLERANCE = 0.05

OF_WORKERS = ("worker killed", "worker stopped", "worker ended", "worker ended itself")

# After these, one renewal of a lease may have failed, of any worker.
OF_RENEWALS = ("client killed", "renew cut", "renew_many cut")

# The longest run of a job that ends when it should, in seconds; and for how many leases more one is not stuck.
LONGEST_RUN, PATIENCE = 6.0, 8

# How many violations of a kind are printed.
EXAMPLES = 5

# The primary had no time to tell its replica all, or took writes while another one was the primary.
OF_FAILOVERS = ("primary restarted", "primary killed", "primary stopped", "network split")

# For how many seconds what was written before a failover may be known to the old primary only.
NOT_COPIED = 1.0


@dataclass(frozen=True)
class Fault:
    """Something that was done to a process (`name`) or a job (`ident`), or to all (neither), at once or for a time."""

    at: float
    kind: str
    name: str = ""
    ident: str = ""
    until: float = 0.0


@dataclass
class Run:
    """One time that a worker ran a job.

    Attributes
    ----------
    claimed: float
        When the claim was sent.
    end: float or None
        When the code of the job came to its end.
    died: float
        When the worker was killed, or gone, if it was.
    left: float
        When an exception left the code of the job, if one did.
    left_by: str
        The name of that exception.
    asked: float
        When the worker asked to record its end: of a job that did not end when it should, that may be long before.
    asked_for: str
        Which end that was.
    units: list of str
        What it did.
    renewed: list of float
        When those renewals of the lease were sent that Redis accepted.
    outcome: str
        What Redis recorded, as far as the worker heard of it; or ``refused``.
    last_mark: float
        When the worker told of it last.
    """

    ident: str
    token: str
    name: str
    start: float
    claimed: float
    died: float = inf
    end: float | None = None
    left: float = inf
    left_by: str = ""
    asked: float = inf
    asked_for: str = ""
    renewed: list[float] = field(default_factory=list)
    units: list[str] = field(default_factory=list)
    outcome: str = ""
    last_mark: float = inf

    def __str__(self) -> str:
        until = f"until {self.over:.3f}" if self.over < inf else "and has not ended"
        how = ", ".join(filter(None, (self.outcome or "no outcome", self.left_by, f"{len(self.units)} units")))
        sign = f"heard of last at {self.last_sign(self.over):.3f}"
        return f"{self.ident} by {self.name} as {self.token}, claimed at {self.claimed:.3f}, {sign}, {until} ({how})"

    @property
    def over(self) -> float:
        return min(self.died, self.left, self.asked, inf if self.end is None else self.end)

    @property
    def is_suspected(self) -> bool:
        """Whether it ran as one of which there may be one at a time, as its token tells, in a worker that runs many."""
        return "/" not in self.token

    def may_have(self, verb: str) -> bool:
        """Whether Redis may have heard that end: one that was refused or died does not know of the call before."""
        return self.outcome in ("", "refused") and self.asked_for == verb

    @property
    def may_have_failed(self) -> bool:
        return self.may_have("fail")

    def last_sign(self, before: float) -> float:
        """When its worker was heard of last before a moment."""
        return max(self.claimed, *(at for at in self.renewed if at < before), self.claimed)


@dataclass
class Observed:
    """All that is known of a test.

    Attributes
    ----------
    marks: list of dict
        As `chaos_jobs.read_marks` yields them.
    records: dict
        The hash of each job, by its ident.
    broken: list of str
        The invariants that do not hold.
    wrong: list of str
        What else is wrong: processes that ended by themselves, or not when they were asked to.
    prefetch: int
        How many jobs a worker claims at once, whose ends it records together.
    gone: dict
        When workers ended, by their names.
    is_concurrent: bool
        Whether workers run several jobs at once.
    ended_themselves: int
        How many workers ended by themselves, in good order, because of their jobs.
    """

    seed: int
    seconds: float
    lease: float
    workers: int
    marks: list[dict[str, Any]]
    faults: list[Fault]
    records: dict[str, dict[str, str]]
    broken: list[str]
    wrong: list[str]
    prefetch: int = 1
    gone: dict[str, float] = field(default_factory=dict)
    is_concurrent: bool = False
    ended_themselves: int = 0


class Report:
    """The figures of a test, and in `violations` all that must not be."""

    def __init__(self, observed: Observed) -> None:
        self.seen = observed
        self.runs = list(self._runs())
        self.by_ident = _grouped((run.ident, run) for run in self.runs)
        self.by_worker = _grouped((run.name, run) for run in self.runs)
        self.faults = Counter(fault.kind for fault in observed.faults)
        self.hiccups = _grouped((mark["name"], mark) for mark in observed.marks if mark["kind"] == "hiccup")
        statuses = {ident: record.get("status", "") for ident, record in observed.records.items()}
        self.ledger = Ledger(self.by_ident, observed.marks, statuses, class_of)
        self.skipped, self.repeated = self.ledger.skipped(), self.ledger.repeated()

    def _runs(self) -> Iterator[Run]:
        of_token = _grouped((mark["token"], mark) for mark in self.seen.marks if "token" in mark)
        claimed = {token: _claimed(marks) for token, marks in of_token.items()}
        died = {fault.name: fault.at for fault in self.seen.faults if fault.kind == "worker killed"}
        for token, marks in of_token.items():
            start = next((mark for mark in marks if mark["kind"] == "start"), None)
            if start:
                name = start["name"]
                of_all = claimed.get(token.partition("/")[0], start["at"])  # one of several has it with a number
                gone = self.seen.gone.get(_parent(name), inf)
                yield _run_of(token, start, marks, start.get("claimed", of_all), min(died.get(name, inf), gone))

    @property
    def put_back(self) -> int:
        """How many jobs were put back after their success."""
        return sum(mark["kind"] == "requeue" and mark["success"] for mark in self.seen.marks)

    # -- Lost

    @cached_property
    def acknowledged(self) -> set[tuple[str, str]]:
        """The idents that `add_job` returned, each with the identifier."""
        return {(mark["ident"], mark["identifier"]) for mark in self.seen.marks if mark["kind"] == "added"}

    @cached_property
    def lost(self) -> set[str]:
        """The idents that were acknowledged, but did not run to a recorded end."""
        lost = {ident for ident, identifier in self.acknowledged if not self._ran(ident, identifier)}
        return lost | self.ledger.forgotten()

    def _ran(self, ident: str, identifier: str) -> bool:
        record = self.seen.records.get(ident, {})
        is_recorded = record.get("status") == _expected(ident) and record.get("identifier") == identifier
        return is_recorded and any(run.end for run in self.by_ident.get(ident, ()))

    @property
    def doubled(self) -> set[str]:
        """The identifiers of which there is more than one job."""
        numbers = Counter(record.get("identifier", "") for record in self.seen.records.values())
        return {identifier for identifier, number in numbers.items() if number > 1}

    def _wrong_doubles(self) -> set[str]:
        """Without the producer having asked twice."""
        asked = Counter(mark["identifier"] for mark in self.seen.marks if mark["kind"] in ("added", "not added"))
        return {identifier for identifier in self.doubled if asked[identifier] < 2}

    # -- Run again

    @cached_property
    def again(self) -> list[tuple[Run, Run]]:
        """Two runs of a job, claimed one after the other, of which the first did not put it back in a queue itself, nor
        did anybody else, once it had ended."""
        rows = [sorted(runs, key=lambda run: run.claimed) for runs in self.by_ident.values()]
        pairs = (self._in_order(*pair) for runs in rows for pair in pairwise(runs))
        return [pair for pair in pairs if not self._was_put_back(*pair)]

    def _was_put_back(self, first: Run, second: Run) -> bool:
        is_known = first.outcome in ("requeued", "released")
        by_others = self.ledger.was_put_back(first.ident, first.claimed, second.claimed)
        return is_known or by_others or self._may_have_put_back(first)

    @staticmethod
    def _may_have_put_back(run: Run) -> bool:
        has_failed = run.end is not None and _expected(run.ident) == STATUSES.ERROR and run.outcome in ("", "refused")
        return has_failed or run.may_have("fail") or run.may_have("release")

    @property
    def bound(self) -> int:
        """How many runs the faults may cost: those of each worker that was killed or stopped, or those of all."""
        dead = sum(self.faults[kind] for kind in OF_WORKERS)
        of_all = self.faults["Redis killed"] + sum(self.faults[kind] for kind in OF_FAILOVERS)
        return (dead + of_all * self.seen.workers) * self.seen.prefetch + sum(self.forgotten.values())

    @property
    def unexplained(self) -> list[tuple[Run, Run]]:
        """Again, though nothing was done to the first: its worker had no time on a slow machine."""
        return [pair for pair in self.again if not any(self._explains(fault, *pair) for fault in self.seen.faults)]

    @cached_property
    def let_lapse(self) -> list[tuple[Run, Run]]:
        """Again, though nothing was done to the first, to its connections, nor to Redis, and both had time."""
        silent = [pair for pair in self.unexplained if self._was_silent(*pair)]
        return [pair for pair in silent if not self._has_excuse(*pair)]

    def _has_excuse(self, first: Run, second: Run) -> bool:
        since = first.last_sign(second.start) - TOLERANCE
        is_cut = any(fault.kind in OF_RENEWALS and since <= fault.at <= second.start for fault in self.seen.faults)
        lost = self._lost_by((first.name, HARNESS, REDIS), since, second.start)
        return is_cut or lost > self.seen.lease / 4 or bool(self._forgot(first, second))

    def _lost_by(self, names: Iterable[str], since: float, until: float) -> float:
        """For how many seconds in that time these had no time to do anything, or there was no answer."""
        hiccups = (mark for name in names for mark in self.hiccups.get(name, ()))
        return sum(mark["seconds"] for mark in hiccups if since <= mark["at"] <= until + mark["seconds"])

    @property
    def _silences(self) -> list[float]:
        return [mark["seconds"] for mark in self.hiccups.get(REDIS, ())]

    @cached_property
    def suspected(self) -> list[Run]:
        """The runs as a suspect of jobs since whose beginning no worker died or stopped, and Redis was there.

        It need not have been a worker that ran the job: one may die with what it has claimed, before any mark.
        """
        if not self.seen.is_concurrent:
            return []
        deaths = [fault.at for fault in self.seen.faults if _is_deadly(fault)]
        first = {ident: min(run.claimed for run in runs) for ident, runs in self.by_ident.items()}
        added = {mark["ident"]: mark["at"] for mark in self.seen.marks if mark["kind"] == "added"}
        since = {ident: min(at, added.get(ident, at)) for ident, at in first.items()}
        return [
            run
            for run in self.runs
            if run.is_suspected
            and not any(since[run.ident] <= at <= run.start for at in deaths)
            and self._lost_by((HARNESS, REDIS), since[run.ident], run.start) < self.seen.lease / 2
        ]

    @cached_property
    def stuck(self) -> list[Run]:
        """The runs that went on for much longer than they may, of workers to which nothing was done meanwhile."""
        return [run for run in self.runs if run.over > run.start + self._patience and not self._was_hit(run)]

    @property
    def _patience(self) -> float:
        return LONGEST_RUN + PATIENCE * self.seen.lease

    def _was_hit(self, run: Run) -> bool:
        """Whether something was done to its worker, or to Redis, before it was stuck."""
        faults = (fault for fault in self.seen.faults if run.start <= fault.at <= run.start + self._patience)
        of_all = ("Redis killed", *OF_FAILOVERS)
        return any(fault.kind in of_all or fault.name in (run.name, _parent(run.name)) for fault in faults)

    @staticmethod
    def _explains(fault: Fault, first: Run, second: Run) -> bool:
        is_of_worker = fault.kind in OF_WORKERS and fault.name in (first.name, _parent(first.name))
        is_of_all = fault.kind in ("Redis killed", *OF_FAILOVERS)
        is_between = first.claimed <= (fault.until or fault.at) and fault.at <= second.start
        return (is_of_worker or is_of_all) and is_between

    def _too_soon(self) -> list[tuple[Run, Run]]:
        """Again before the lease was over."""
        return [(first, second) for first, second in self.again if not self._was_silent(first, second)]

    def _in_order(self, one: Run, other: Run) -> tuple[Run, Run]:
        """Two runs in the order of their first requests, unless that of the first was lost, and sent again later.

        Where both orders are possible, one that recorded nothing came before one that started after it. One that put
        the job back, and ended before the other one started, had the claim: it came first.
        """
        came_to_nothing = other.outcome in ("", "refused") and other.start < one.start
        was_lost = self._was_silent(other, one) and (came_to_nothing or not self._was_silent(one, other))
        was_put_back = other.outcome == "requeued" and other.end is not None and other.end < one.start
        return (other, one) if was_lost or was_put_back else (one, other)

    def _was_silent(self, first: Run, second: Run) -> bool:
        return second.start >= first.last_sign(second.start) + self.seen.lease - TOLERANCE

    # -- At once

    @cached_property
    def at_once(self) -> list[tuple[Run, Run]]:
        """Two runs of one identifier at the same time, the one that was claimed first before the other one."""
        by_identifier = _grouped((self._identifier(run), run) for run in self.runs)
        rows = [sorted(runs, key=lambda run: run.claimed) for runs in by_identifier.values()]
        pairs = (self._in_order(*pair) for runs in rows for pair in combinations(runs, 2))
        return [(first, second) for first, second in pairs if second.start < first.over and first.start < second.over]

    @property
    def _rude(self) -> list[tuple[Run, Run]]:
        """Two at the same time though the lease of the first was not over."""
        return [pair for pair in self.at_once if not self._was_silent(*pair)]

    def _identifier(self, run: Run) -> str:
        return self.seen.records.get(run.ident, {}).get("identifier", run.ident)

    # -- Recovery

    @cached_property
    def recovery(self) -> list[float]:
        """The seconds from a fault to the next end of each job that it hit, if another run was needed."""
        return sorted(seconds for fault in self.seen.faults for seconds in self._recovered(fault))

    def _recovered(self, fault: Fault) -> Iterator[float]:
        hit = {run.token: run.ident for run in self._runs_of(fault) if self._hits(fault, run)}
        for ident in {fault.ident, *hit.values()}:
            ends = [run.end for run in self.by_ident.get(ident, ()) if run.end and run.token not in hit]
            if later := [end for end in ends if end > fault.at]:
                yield min(later) - fault.at

    def _runs_of(self, fault: Fault) -> list[Run]:
        return self.by_worker.get(fault.name, []) if fault.name else self.runs

    @staticmethod
    def _hits(fault: Fault, run: Run) -> bool:
        is_of_worker = fault.kind in OF_WORKERS and fault.name == run.name
        is_under_way = run.start <= fault.at < run.over or run.over == run.died == fault.at
        return (is_of_worker or fault.kind == "Redis killed") and is_under_way

    @cached_property
    def _outages(self) -> dict[str, list[float]]:
        """For how many seconds no job was acknowledged, for each fault that lasted, by its kind."""
        added = sorted(mark["at"] for mark in self.seen.marks if mark["kind"] == "added")
        lasting = [fault for fault in self.seen.faults if fault.until]
        longest = _grouped((fault.kind, max(_gaps(added, fault), default=0.0)) for fault in lasting)
        return {kind: sorted(seconds) for kind, seconds in longest.items()}

    # -- All

    @cached_property
    def _not_allowed(self) -> dict[str, list[tuple[Run, Run]]]:
        """Two runs of which the second one must not be, but after a failover."""
        return {
            "run again after its recorded end": [pair for pair in self.again if pair[0].outcome in ("done", "error")],
            "run again though the lease was renewed": self._too_soon(),
            "run twice at once though the lease was renewed": self._rude,
            "a healthy worker let its lease lapse": self.let_lapse,
            "recorded though another worker had the job": [
                pair for pair in self.at_once if pair[0].outcome not in ("", "refused")
            ],
        }

    @cached_property
    def forgotten(self) -> dict[str, int]:
        """How many second runs there were because a failover forgot the first one, by the kind of fault."""
        pairs = {
            (first.token, second.token): (first, second)
            for found in self._not_allowed.values()
            for first, second in found
        }
        return Counter(fault.kind for pair in pairs.values() if (fault := self._forgot(*pair)))

    def _forgot(self, first: Run, second: Run) -> Fault | None:
        """Return the failover that may have forgotten what the first run wrote, if there is one."""
        return next(
            (
                fault
                for fault in self.seen.faults
                if fault.kind in OF_FAILOVERS
                and first.claimed <= fault.until
                and first.last_mark >= fault.at - NOT_COPIED
                and second.start >= fault.at
            ),
            None,
        )

    @cached_property
    def violations(self) -> list[str]:
        found = [
            *(f"lost: {each} {self.seen.records.get(each)}" for each in sorted(self.lost)),
            *(f"two jobs, though it was added once: {each}" for each in sorted(self._wrong_doubles())),
            *(
                f"{what}: {_said(pair)}"
                for what, pairs in self._not_allowed.items()
                for pair in pairs
                if not self._forgot(*pair)
            ),
            *(f"skipped: {each}" for each in self.skipped),
            *(f"done again though it was kept: {each}" for each in self.repeated),
            *(f"stuck: {run}" for run in self.stuck),
            *(f"suspected without a death: {run}" for run in self.suspected),
            *self.seen.broken,
            *self.seen.wrong,
        ]
        if len(self.again) > self.bound + len(self.unexplained):
            found.append(f"{len(self.again)} runs again, more than the faults explain: {self.bound}")
        return found

    def __str__(self) -> str:
        return "\n".join([*(f"{name:32} {value}" for name, value in self._rows()), *self._examples()])

    def _examples(self) -> Iterator[str]:
        """Yield some violations of each kind, and how many more there are."""
        for kind, found in _grouped((_kind_of(each), each) for each in self.violations).items():
            yield from (each[:1500] for each in found[:EXAMPLES])
            if len(found) > EXAMPLES:
                yield f"{kind}: {len(found) - EXAMPLES} more"

    def _rows(self) -> Iterator[tuple[str, Any]]:
        yield "seed", self.seen.seed
        yield "jobs claimed at once", self.seen.prefetch
        yield "seconds under faults", f"{self.seen.seconds:g}"
        yield "acknowledged", len(self.acknowledged)
        yield "run", len(self.runs)
        for kind, number in sorted(self.faults.items()):
            yield f"  {kind}", number
        yield "LOST", len(self.lost)
        yield "run again", f"{len(self.again)}, at most {self.bound}"
        yield "  of workers without a fault", len(self.unexplained)
        for kind, number in sorted(self.forgotten.items()):
            yield f"  forgotten: {kind}", number
        yield "run twice at once", len(self._rude)
        yield "  after a silence of a lease", len(self.at_once) - len(self._rude)
        yield "  let lapse by healthy workers", len(self.let_lapse)
        yield "longest silence of Redis", f"{max(self._silences, default=0):.1f} s"
        yield "rounds of work", sum(1 for _ in self.ledger.rounds())
        yield "  put back after a success", self.put_back
        yield "  SKIPPED", len(self.skipped)
        yield "  done again though it was kept", len(self.repeated)
        yield "stuck", len(self.stuck)
        yield "suspected without a death", len(self.suspected)
        yield "workers that ended themselves", self.seen.ended_themselves
        yield "refused to record", sum(run.outcome == "refused" for run in self.runs)
        yield "two jobs, one after the other", len(self.doubled)
        for percent in (50, 99):
            yield f"recovery p{percent}, of {len(self.recovery)}", f"{_percentile(self.recovery, percent):.1f} s"
        for kind, seconds in sorted(self._outages.items()):
            yield f"no job added, {kind}", f"p50 {_percentile(seconds, 50):.1f} s, at most {seconds[-1]:.1f} s"
        yield "invariants broken", len(self.seen.broken)
        yield "VIOLATIONS", len(self.violations)


def _run_of(token: str, start: dict[str, Any], marks: Sequence[dict[str, Any]], claimed: float, died: float) -> Run:
    by_kind = {mark["kind"]: mark for mark in marks}
    at = {kind: mark["at"] for kind, mark in by_kind.items()}
    asked = next((mark for mark in marks if mark["kind"] == "asked"), None)
    return Run(
        ident=start["ident"],
        token=token,
        name=start["name"],
        start=start["at"],
        claimed=claimed,
        died=died,
        end=at.get("end"),
        left=at.get("left", inf),
        left_by=by_kind["left"]["by"] if "left" in by_kind else "",
        asked=asked["at"] if asked else at.get("recorded", inf),
        asked_for=asked["verb"] if asked else "",
        renewed=[mark["at"] for mark in marks if mark["kind"] == "renewed"],
        units=[mark["unit"] for mark in marks if mark["kind"] == "unit"],
        last_mark=max(at.values()),
        outcome="refused" if "refused" in at else by_kind.get("recorded", {}).get("outcome", ""),
    )


def _parent(name: str) -> str:
    """Return the name of a process, given that of a child, or its own."""
    return name.partition(".")[0]


def _kind_of(violation: str) -> str:
    """Return what the violations of one kind have in common: the text before the colon, or the name of an invariant."""
    return violation.split()[0] if re.match(r"I\d+ ", violation) else violation.partition(":")[0]


def _is_deadly(fault: Fault) -> bool:
    """Whether a fault may cost a worker its leases."""
    return fault.kind in ("worker killed", "worker stopped", "worker ended itself", "Redis killed", *OF_FAILOVERS)


def _claimed(marks: Sequence[dict[str, Any]]) -> float:
    """When a claim was made, as Redis said; else when it was asked for."""
    return next((mark["at"] for mark in marks if mark["kind"] == "claimed"), min(mark["at"] for mark in marks))


def _expected(ident: str) -> str:
    """The status in which a job has to end."""
    status: str = STATUSES.ERROR if class_of(ident) is Failing else STATUSES.SUCCESS
    return status


def _grouped(pairs: Iterable[tuple[str, Any]]) -> dict[str, list[Any]]:
    groups: defaultdict[str, list[Any]] = defaultdict(list)
    for key, value in pairs:
        groups[key].append(value)
    return groups


def _gaps(moments: list[float], fault: Fault) -> Iterator[float]:
    """Yield the seconds between two moments, one after the other, if the fault falls in between."""
    return (after - before for before, after in pairwise(moments) if before <= fault.until and after >= fault.at)


def _percentile(values: list[float], percent: int) -> float:
    return values[min(len(values) * percent // 100, len(values) - 1)] if values else 0.0


def _said(pair: tuple[Run, Run]) -> str:
    return " and ".join(map(str, pair))
