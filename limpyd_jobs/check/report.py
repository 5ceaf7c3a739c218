"""The findings of a check, as objects, as a table and as JSON."""

from __future__ import annotations

import json
import sys
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from textwrap import wrap
from typing import Any

from limpyd_jobs.texts import MESSAGE, one_line, table_lines

# The option without which some records are not looked at.
NEEDED = "--job-modules"

# The option that gives up jobs whose class cannot be imported, and what to try before: it may be importable elsewhere.
UNRESOLVED = "--unresolved"
IMPORTING = "try --pythonpath and --job-modules first; else "

# How many findings of a kind a table shows.
ROWS_PER_KIND = 20

# How many characters of a cell the table shows: why a class cannot be imported, and what to do about it, is long.
MAX_CELL = 400


# The invariants of records, of indexes and of other keys.
_MINOR = ("I1", "I2", "I10")


@dataclass(frozen=True)
class Finding:
    """Something that breaks an invariant, ``I1`` to ``I11``; and what a repair does, if there is one."""

    invariant: str
    model: str
    subject: str
    kind: str
    problem: str
    repair: str
    repaired: bool = False
    option: str = ""  # that would repair it, such as ``--unresolved=quarantine|delete``, unless it is given

    @property
    def severity(self) -> str:
        """``grave`` if jobs or schedules do not go on as they should; ``minor`` if records or indexes are wrong."""
        return "minor" if self.invariant in _MINOR else "grave"

    @property
    def repairable(self) -> bool:
        """Whether there is a repair."""
        return bool(self.repair)

    def as_dict(self) -> dict[str, Any]:
        """Return the attributes, and ``repairable``."""
        return {**vars(self), "repairable": self.repairable}


@dataclass
class Report:
    """What a check found."""

    findings: list[Finding] = field(default_factory=list)
    records: dict[str, int] = field(default_factory=dict)  # how many were looked at, by the path of the model
    warnings: list[str] = field(default_factory=list)  # of what is not wrong, but may become so
    unchecked: list[str] = field(default_factory=list)  # what was not looked at
    databases: list[str] = field(default_factory=list)
    seconds: float = 0.0

    @property
    def left(self) -> list[Finding]:
        """The findings that were not repaired."""
        return [finding for finding in self.findings if not finding.repaired]

    def as_json(self) -> str:
        """Return the report as the text of one JSON object, as ``limpyd-jobs check --json`` prints it."""
        return json.dumps(
            {
                "found": len(self.findings),
                "repaired": len(self.findings) - len(self.left),
                "findings": [finding.as_dict() for finding in self.findings],
                "warnings": self.warnings,
                "records": self.records,
                "unchecked": self.unchecked,
                "databases": self.databases,
                "seconds": round(self.seconds, 3),
            }
        )

    def as_table(self, width: int = sys.maxsize) -> str:
        """Return the first findings of each kind as lines of text, and a summary.

        A table that is wider is printed one finding below the other.
        """
        return "\n".join([*self._rows(width), *_wrapped(self._summary(), width)])

    def _rows(self, width: int) -> Iterator[str]:
        kinds = Counter(finding.kind for finding in self.findings)
        shown: Counter[str] = Counter()
        rows = []
        for finding in sorted(self.findings, key=lambda each: (int(each.invariant[1:]), each.kind)):
            shown[finding.kind] += 1
            if shown[finding.kind] <= ROWS_PER_KIND:
                rows.append((finding.invariant, finding.subject, finding.problem, _outcome(finding)))
            elif shown[finding.kind] == kinds[finding.kind]:
                rows.append((finding.invariant, f"… and {kinds[finding.kind] - ROWS_PER_KIND} more", "", ""))
        if rows:
            lines = [*table_lines([("", "what", "what is wrong", "repair"), *rows], MAX_CELL)]
            if max(map(len, lines)) > width:
                texts = ((f"{row[0]:3} {row[1]}", *(f"    {text}" for text in row[2:] if text)) for row in rows)
                lines = [part for row in texts for text in row for part in _wrapped(one_line(text, MAX_CELL), width, 6)]
            yield from (*lines, "")
        notes = [f"Warning: {warning}" for warning in self.warnings]
        notes += [f"Not looked at: {'; '.join(self.unchecked)}"] if self.unchecked else []
        for note in notes:
            yield from _wrapped(one_line(note, MESSAGE), 79)

    def _summary(self) -> str:
        number, where = sum(self.records.values()), ", ".join(self.databases)
        looked_at = f"{number} records looked at in {self.seconds:.1f} s, in {where}"
        if not self.findings:
            return f"Nothing is wrong: {looked_at}."
        repaired = len(self.findings) - len(self.left)
        options = Counter(finding.option for finding in self.findings if not finding.repairable)
        hopeless = options.pop("", 0)
        rest = "".join(f", {number} with {_as_typed(option)} only" for option, number in options.items())
        rest += f", {hopeless} cannot be repaired" if hopeless else ""
        return f"{len(self.findings)} found, {repaired} repaired{rest}: {looked_at}."


def _wrapped(text: str, width: int, hang: int = 2) -> list[str]:
    return wrap(text, width, subsequent_indent=" " * hang, break_long_words=False, break_on_hyphens=False)


def _outcome(finding: Finding) -> str:
    if finding.repairable:
        return f"{'done' if finding.repaired else 'with --repair'}: {finding.repair}"
    if not finding.option or finding.option.startswith(NEEDED):
        return f"with {finding.option}" if finding.option else "none"
    first = IMPORTING if finding.option.startswith(UNRESOLVED) else ""
    return f"{first}with --repair {_as_typed(finding.option)}"


def _as_typed(option: str) -> str:
    """Return each of the choices of an option as it can be typed: a shell takes ``|`` for a pipe."""
    name, _, words = option.partition("=")
    return ", or ".join(f"{name}={word}" for word in words.split("|")) if words else option
