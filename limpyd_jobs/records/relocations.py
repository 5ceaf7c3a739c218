"""The note in a database that its jobs are being moved to another one, or were moved there.

While it is there, scripts refuse to add and to claim jobs: see ``registry.lua``.
"""

from __future__ import annotations

import shlex
from collections.abc import Mapping
from typing import Any, NamedTuple

from limpyd_jobs.exceptions import DatabaseMoved
from limpyd_jobs.redis.calls import passing_over_wrong_types
from limpyd_jobs.redis.cluster.tags import at
from limpyd_jobs.texts import MESSAGE, one_line

# A hash: what `Note` says, and `told`, the text of the exceptions.
KEY = "limpyd-jobs:move"

# What the source says while keys are copied, and while they are removed because all are copied; and once it is empty.
# What the target says while keys are copied; then it has no note.
COPYING, REMOVING, MOVED, FILLING = "copying", "removing", "moved", "filling"


class Note(NamedTuple):
    """What a database says of the move of its jobs. Another program may have written anything there, so each is text.

    Attributes
    ----------
    id: str
        Of the move, the same in both databases.
    state: str
        ``copying``, ``removing``, or ``moved``, in the source; ``filling`` in the target.
    source, target: str
        The names of the databases, without passwords.
    begun: str
        A date, UTC.
    done, number: str
        How many keys are done in this state, and of how many.
    run: str
        Of the run of the command that may change the database: the last one.
    begins: str
        The JSON of a list: how the keys begin that are moved, without the tag.
    """

    id: str
    state: str
    source: str
    target: str
    begun: str
    done: str = "0"
    number: str = "0"
    run: str = ""
    begins: str = ""

    @property
    def which(self) -> tuple[str, str, str]:
        """What tells it from others."""
        return self.id, self.state, self.run

    @property
    def total(self) -> int:
        """How many keys there were."""
        return int(self.number) if self.number.isdecimal() else 0

    @property
    def line(self) -> str:
        """The line to type to go on."""
        return line_of(self.target, self.source)

    @property
    def how_far(self) -> str:
        """What to tell of it."""
        if self.state == MOVED:
            return f"its jobs were moved to {self.target}, since {self.begun} (UTC)"
        where = f"here from {self.source}" if self.state == FILLING else f"to {self.target}"
        done = "copied, and removed here" if self.state == REMOVING else "copied"
        told = f"its jobs are being moved {where}, since {self.begun} (UTC)"
        return f"{told}: {self.done} of {self.number} keys are {done}"

    @property
    def refusal(self) -> str:
        """What those are told who add or claim jobs."""
        return f"nothing is added, and no job is run, in this database: {self.how_far.partition(': ')[0]}"

    def as_hash(self) -> Mapping[str, str]:
        """Return the note as it is stored."""
        return {**self._asdict(), "told": self.refusal}


def line_of(target: str, source: str) -> str:
    """Return the line to type to move the jobs of a source to a target."""
    return shlex.join(["limpyd-jobs", "move-to", target, f"--database={source}"])


def read_note(connection: Any) -> Note | None:
    """Return the note of a database; None without one."""
    found: Mapping[str, str] = {}
    with passing_over_wrong_types():
        found = connection.hgetall(at(connection, KEY))
    if not found:
        return None
    told = {name: one_line(found.get(name, ""), MESSAGE) for name in Note._fields}
    return Note(**{**told, "begins": found.get("begins", "")})


def refuse_moved(connection: Any) -> None:
    """Raise `DatabaseMoved` if the jobs of a database are being moved, or were moved."""
    note = read_note(connection)
    if note:
        raise DatabaseMoved(one_line(note.refusal, MESSAGE))
