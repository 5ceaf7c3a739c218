"""The ledger of effects: which units of its work a job had to do, from its beginning to its success, and did not.

The runs of a job fall into *rounds*. A round begins with the first run, or when a job is put back after its success, or
to begin anew. Within a round, a job whose class says `restart_after_error` begins anew after each error that was
recorded. All that is to be done has to be done by the runs of a round together, after the last such beginning: by the
one that succeeded, or by those before it that were interrupted.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from math import inf
from typing import Any, Protocol

# The exceptions that leave a job between two units of its work, so that the next run does none of them again.
BETWEEN_UNITS = ("JobInterrupted", "ValueError")

PUT_BACK = ("requeued", "released")


class AnyRun(Protocol):
    """What the ledger knows of a run: see `chaos_report.Run`."""

    @property
    def ident(self) -> str: ...
    @property
    def token(self) -> str: ...
    @property
    def claimed(self) -> float: ...
    @property
    def outcome(self) -> str: ...
    @property
    def may_have_failed(self) -> bool: ...
    @property
    def left_by(self) -> str: ...
    @property
    def units(self) -> Sequence[str]: ...


@dataclass
class Round:
    """Some runs of a job, in the order of their claims, that have to do all of its work together."""

    ident: str
    runs: Sequence[AnyRun]
    has_succeeded: bool
    restarts: bool  # whether errors let it begin anew
    beginnings: list[int] = field(default_factory=list)  # the numbers of the runs that had to begin anew
    fresh: set[int] = field(default_factory=set)  # and of those that had to, or did because of an error nobody heard of

    def __post_init__(self) -> None:
        if self.restarts:
            after = {number + 1: run for number, run in enumerate(self.runs)}
            self.beginnings = [0, *(number for number, run in after.items() if _has_failed(run))]
            self.fresh = {*self.beginnings, *(number for number, run in after.items() if run.may_have_failed)}
        else:
            self.beginnings, self.fresh = [0], {0}

    def skipped(self, expected: Sequence[str]) -> list[str]:
        """Return the units that were not done, if the round ended in success."""
        done = {unit for run in self.runs[self.beginnings[-1] :] for unit in run.units}
        return [unit for unit in expected if unit not in done] if self.has_succeeded else []

    def repeated(self) -> list[str]:
        """Return the units that were done again though the run that had done them kept how far it was."""
        found = []
        for number, run in enumerate(self.runs):
            if run.outcome in PUT_BACK and run.left_by in BETWEEN_UNITS and number + 1 not in self.fresh:
                until = min((each for each in self.fresh if each > number), default=len(self.runs))
                later = {unit for other in self.runs[number + 1 : until] for unit in other.units}
                found += [unit for unit in run.units if unit in later]
        return found


def _has_failed(run: AnyRun) -> bool:
    """Whether a run ended in an error that was recorded."""
    return run.outcome in ("requeued", "error")


class Ledger:
    """The rounds of all jobs that have to do units of work.

    Parameters
    ----------
    runs: mapping
        The runs of each job, by its ident.
    marks: sequence of dict
        All marks; those are used that say what was put back.
    statuses: mapping
        The last status of each job, by its ident.
    class_of: callable
        Returns the class of a job, given its ident.
    """

    def __init__(
        self,
        runs: Mapping[str, Sequence[AnyRun]],
        marks: Sequence[Mapping[str, Any]],
        statuses: Mapping[str, str],
        class_of: Callable[[str], Any],
    ) -> None:
        self._runs, self._statuses, self._class_of = runs, statuses, class_of
        self.put_back: dict[str, list[Mapping[str, Any]]] = {}
        for mark in sorted(marks, key=lambda mark: mark["at"]):
            if mark["kind"] == "requeue":
                self.put_back.setdefault(mark["ident"], []).append(mark)

    def rounds(self) -> Iterator[Round]:
        for ident, runs in self._runs.items():
            if hasattr(self._class_of(ident), "units"):
                yield from self._rounds_of(ident, sorted(runs, key=lambda run: run.claimed))

    def _rounds_of(self, ident: str, runs: Sequence[AnyRun]) -> Iterator[Round]:
        restarts = getattr(self._class_of(ident), "restart_after_error", False)
        begun = [mark for mark in self.put_back.get(ident, ()) if mark["success"] or mark["restart"]]
        succeeded = [mark["success"] for mark in begun] + [self._statuses.get(ident) == "s"]
        bounds = pairwise([-inf, *(mark["at"] for mark in begun), inf])
        for (first, last), has_succeeded in zip(bounds, succeeded, strict=True):
            of_round = [run for run in runs if first <= run.claimed < last]
            if of_round:
                yield Round(ident, of_round, has_succeeded, restarts)

    def skipped(self) -> list[str]:
        """Return what jobs have to answer for: the units that no run did, though the job succeeded."""
        return [
            f"{each.ident}, whose runs were {_tokens(each)}: {', '.join(units)}"
            for each in self.rounds()
            if (units := each.skipped(self._class_of(each.ident).units))
        ]

    def repeated(self) -> list[str]:
        """Return the units that were done again though it was kept that they are done."""
        return [
            f"{each.ident}, whose runs were {_tokens(each)}: {', '.join(units)}"
            for each in self.rounds()
            if (units := each.repeated())
        ]

    def forgotten(self) -> set[str]:
        """Return the jobs that were put back, as Redis said, and did not run again."""
        return {
            ident
            for ident, marks in self.put_back.items()
            if marks[-1]["sure"] and not any(run.claimed >= marks[-1]["at"] for run in self._runs.get(ident, ()))
        }

    def was_put_back(self, ident: str, after: float, before: float) -> bool:
        """Whether a job was put back between two moments, or maybe was."""
        return any(after <= mark["at"] <= before for mark in self.put_back.get(ident, ()))


def _tokens(one: Round) -> str:
    return ", ".join(f"{run.token} ({run.outcome or 'unknown'} after {len(run.units)} units)" for run in one.runs)
