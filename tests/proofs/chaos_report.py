"""What a chaos test found: from the marks of its processes, its faults, and what is in Redis at the end.

A worker is *silent* from the moment on when it sent the claim, or the last renewal of it that Redis accepted, be it
killed, stopped, or cut off from Redis. Once that is longer than the lease another worker may run the job, even at the
same time; what the first one has to say then is refused. Anything else of that kind is a violation.

A failover forgets what the new primary was not told. So what was claimed or recorded shortly before, or meanwhile, may
be run again, even at the same time; such runs are counted apart. A job that was acknowledged may not be lost.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from itertools import combinations, pairwise
from math import inf
from typing import Any

from chaos_jobs import Failing

from limpyd_jobs import STATUSES

# How much clocks may differ: Redis counts leases in wall time, the marks are in monotonic time.
TOLERANCE = 0.05

OF_WORKERS = ("worker killed", "worker stopped")

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
        When the worker was killed, if it was.
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
    renewed: list[float] = field(default_factory=list)
    outcome: str = ""
    last_mark: float = inf

    @property
    def over(self) -> float:
        return self.died if self.end is None else self.end

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


class Report:
    """The figures of a test, and in `violations` all that must not be."""

    def __init__(self, observed: Observed) -> None:
        self.seen = observed
        self.runs = list(self._runs())
        self.by_ident = _grouped((run.ident, run) for run in self.runs)
        self.by_worker = _grouped((run.name, run) for run in self.runs)
        self.faults = Counter(fault.kind for fault in observed.faults)

    def _runs(self) -> Iterator[Run]:
        of_token = _grouped((mark["token"], mark) for mark in self.seen.marks if "token" in mark)
        claimed = {token: _claimed(marks) for token, marks in of_token.items()}
        died = {fault.name: fault.at for fault in self.seen.faults if fault.kind == "worker killed"}
        for token, marks in of_token.items():
            at = {mark["kind"]: mark["at"] for mark in marks}
            start = next((mark for mark in marks if mark["kind"] == "start"), None)
            if start:
                yield Run(
                    ident=start["ident"],
                    token=token,
                    name=start["name"],
                    start=start["at"],
                    claimed=claimed[token.partition("/")[0]],  # one of several has the token of all, and a number
                    died=died.get(start["name"], inf),
                    end=at.get("end"),
                    renewed=[mark["at"] for mark in marks if mark["kind"] == "renewed"],
                    last_mark=max(at.values()),
                    outcome="refused" if "refused" in at else next((m["outcome"] for m in marks if "outcome" in m), ""),
                )

    # -- Lost

    @cached_property
    def acknowledged(self) -> set[tuple[str, str]]:
        """The idents that `add_job` returned, each with the identifier."""
        return {(mark["ident"], mark["identifier"]) for mark in self.seen.marks if mark["kind"] == "added"}

    @cached_property
    def lost(self) -> set[str]:
        """The idents that were acknowledged, but did not run to a recorded end."""
        return {ident for ident, identifier in self.acknowledged if not self._ran(ident, identifier)}

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
        """Two runs of a job, claimed one after the other, of which the first did not put it back in a queue itself."""
        rows = [sorted(runs, key=lambda run: run.claimed) for runs in self.by_ident.values()]
        pairs = (self._in_order(*pair) for runs in rows for pair in pairwise(runs))
        return [pair for pair in pairs if not self._may_have_requeued(pair[0])]

    @staticmethod
    def _may_have_requeued(run: Run) -> bool:
        """One that ended, and was refused or died, may not know that the call before was heard."""
        may_not_know = run.end is not None and run.outcome in ("", "refused")
        return run.outcome == "requeued" or (may_not_know and _expected(run.ident) == STATUSES.ERROR)

    @property
    def bound(self) -> int:
        """How many runs the faults may cost: those of each worker that was killed or stopped, or those of all."""
        dead = self.faults["worker killed"] + self.faults["worker stopped"]
        of_all = self.faults["Redis killed"] + sum(self.faults[kind] for kind in OF_FAILOVERS)
        return (dead + of_all * self.seen.workers) * self.seen.prefetch + sum(self.forgotten.values())

    @property
    def unexplained(self) -> list[tuple[Run, Run]]:
        """Again, though nothing was done to the first: its worker had no time on a slow machine."""
        return [pair for pair in self.again if not any(self._explains(fault, *pair) for fault in self.seen.faults)]

    @staticmethod
    def _explains(fault: Fault, first: Run, second: Run) -> bool:
        is_of_worker = fault.kind in OF_WORKERS and fault.name == first.name
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
        is_under_way = run.start <= fault.at and (run.end is None or run.end > fault.at)
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
            *self.seen.broken,
            *self.seen.wrong,
        ]
        if len(self.again) > self.bound + len(self.unexplained):
            found.append(f"{len(self.again)} runs again, more than the faults explain: {self.bound}")
        return found

    def __str__(self) -> str:
        return "\n".join(
            [*(f"{name:32} {value}" for name, value in self._rows()), *(each[:1000] for each in self.violations[:50])]
        )

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
        yield "refused to record", sum(run.outcome == "refused" for run in self.runs)
        yield "two jobs, one after the other", len(self.doubled)
        for percent in (50, 99):
            yield f"recovery p{percent}, of {len(self.recovery)}", f"{_percentile(self.recovery, percent):.1f} s"
        for kind, seconds in sorted(self._outages.items()):
            yield f"no job added, {kind}", f"p50 {_percentile(seconds, 50):.1f} s, at most {seconds[-1]:.1f} s"
        yield "invariants broken", len(self.seen.broken)
        yield "VIOLATIONS", len(self.violations)


def _claimed(marks: Sequence[dict[str, Any]]) -> float:
    """When a claim was made, as Redis said; else when it was asked for."""
    return next((mark["at"] for mark in marks if mark["kind"] == "claimed"), min(mark["at"] for mark in marks))


def _expected(ident: str) -> str:
    """The status in which a job has to end."""
    status: str = STATUSES.ERROR if ident.startswith(f"{Failing.get_model_repr()}:") else STATUSES.SUCCESS
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
