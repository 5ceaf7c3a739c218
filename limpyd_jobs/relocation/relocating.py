"""Moving all jobs of a database to another one.

The two may be on two servers, so no step changes both. In each, a note says how far it is (see
`limpyd_jobs.records.relocations`), and lets scripts refuse to add and to claim jobs:

1. The source is noted, then the target. After a minute, all processes have noticed.
2. Each key is copied that is not the same in the target; what is there and no longer in the source, is deleted. This is
   done again until there is no difference: so it also goes on after a break, and it is the check at the end.
3. The source notes that all are copied. From now on, the jobs are those of the target.
4. Each key of the source is deleted that is the same in the target. Others were changed too late: they stay, and are
   told of.
5. The note of the target is deleted: workers may begin there. The note of the source stays.

The next call goes on with what the notes say.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from datetime import datetime, timezone
from typing import Any, NamedTuple
from uuid import uuid4

from limpyd_jobs.check.reader import Reader
from limpyd_jobs.classes.binding import bound, is_same_database
from limpyd_jobs.exceptions import ConfigurationException, LimpydJobsException
from limpyd_jobs.models import AlivePresence, Presence, WorkerPresence
from limpyd_jobs.records.audit import audited
from limpyd_jobs.records.known_classes import WRITTEN_FOR
from limpyd_jobs.records.relocations import COPYING, FILLING, KEY, MOVED, REMOVING, Note, read_note, write_note
from limpyd_jobs.redis.calls import chunks
from limpyd_jobs.redis.cluster.tags import at
from limpyd_jobs.redis.database import JobsDatabase, database_name
from limpyd_jobs.relocation.renaming import Renaming, foreign_name, namespaces_of
from limpyd_jobs.relocation.values import Values
from limpyd_jobs.search.classes import connection_to
from limpyd_jobs.texts import one_line

# After how many seconds all processes have noticed that jobs are moved: they ask when they write their classes again.
NOTICED_AFTER = WRITTEN_FOR + 2

# How many keys are copied at once, after how many of these steps is noted how far it is, and how often all keys are
# compared at most until there is no difference.
BATCH, KEEP_EVERY, PASSES = 100, 10, 10


class NotMoved(LimpydJobsException):
    """The jobs of a database are not moved to another one, for a reason that this says."""


class Plan(NamedTuple):
    """What would be moved.

    Attributes
    ----------
    keys: int
        How many keys.
    left: dict of str to int
        How many other keys stay in the source, by how they begin: up to the first colon.
    present: list of str
        The names of the workers, schedulers and others that are there, in the source or in the target.
    note: Note or None
        What the source says of a move that was begun.
    """

    keys: int
    left: dict[str, int]
    present: list[str]
    note: Note | None


class Moved(NamedTuple):
    """What was moved.

    Attributes
    ----------
    keys: int
        How many keys.
    left: int
        How many keys are in the source that were written after they were copied.
    """

    keys: int
    left: int


class Relocation:
    """Moves all jobs of a database to another one, with all that belongs to them.

    Parameters
    ----------
    source, target: JobsDatabase
    also: sequence of str
        How other keys begin that are to be moved, too.
    pause: float
        For how many seconds to wait until all processes have noticed: 0 if none uses the source.
    tell: callable
        Called with a line of text now and then.

    Attributes
    ----------
    names: list of str
        Those of the two databases, without passwords.

    Raises
    ------
    ConfigurationException
        If the two are the same database.
    """

    def __init__(
        self,
        source: JobsDatabase,
        target: JobsDatabase,
        *,
        also: Sequence[str] = (),
        pause: float = NOTICED_AFTER,
        tell: Callable[[str], object] = lambda line: None,
    ) -> None:
        if is_same_database(source, target):
            raise ConfigurationException(f"The jobs are in {database_name(source.connection_settings)} already")
        self._databases, self._pause, self._tell = (source, target), pause, tell
        self.names = [database_name(each.connection_settings) for each in self._databases]
        self._source, self._target = map(connection_to, self._databases)
        self._notes = [at(connection, KEY) for connection in (self._source, self._target)]
        namespaces = namespaces_of(source) | namespaces_of(target)
        self.namespaces = sorted(namespaces)
        self._renaming = Renaming(source, target, [*(f"{each}:" for each in namespaces), *also])

    def plan(self) -> Plan:
        """Return what would be moved. Nothing is changed."""
        number, left = 0, Counter[str]()
        for key in _keys_of(self._source):
            if self._renaming.is_meant(key):
                number += key != self._notes[0]
            else:
                left[foreign_name(self._renaming.plain(key))] += 1
        return Plan(number, dict(left.most_common()), [*self._present()], read_note(self._source))

    def run(self) -> Moved:
        """Move them, or go on with that.

        Raises
        ------
        NotMoved
            If workers, schedulers or others are there; if the target has jobs, or is part of another move; or if the
            source changes again and again. What was done stays, and can be gone on with.
        redis.RedisError
            If one of the databases cannot be used.
        """
        note = self._begin()
        if note.state == COPYING:
            self._wait()
            self._refuse_present()
            note = self._copy(note)
        if note.state == REMOVING:
            self._remove(note)
            self._switch(note)
        return Moved(note.total, sum(1 for _ in self._meant()))

    def undo(self) -> None:
        """Give a move up that was broken off: the source is used again, and what was copied is deleted.

        Raises
        ------
        NotMoved
            If there is nothing to give up, or the jobs are those of the target already.
        """
        note, filling = read_note(self._source), read_note(self._target)
        if note and note.state != COPYING:
            raise NotMoved(f"It is too late to give it up: {note.how_far}. Move them back: {self._line_back}")
        if note is None and (filling is None or filling.state != FILLING):
            raise NotMoved("Nothing is being moved there")
        if note and filling and note.id != filling.id:
            raise NotMoved(f"{self.names[1]}: {filling.how_far}")
        self._source.delete(self._notes[0])
        if filling:
            self._delete(self._target, self._copied())
            self._target.delete(self._notes[1])

    @property
    def _line_back(self) -> str:
        return f"limpyd-jobs move-to {self.names[0]} --database={self.names[1]}"

    # -- Whether it can be done

    def _present(self) -> Iterator[str]:
        for database, name in zip(self._databases, self.names, strict=True):
            for namespace in self.namespaces:
                for model in (WorkerPresence, Presence):
                    there: list[AlivePresence] = bound(model, database, namespace).alive()
                    yield from (f"{one_line(each.kind or 'worker')} {one_line(each.name)} in {name}" for each in there)

    def _refuse_present(self) -> None:
        present = [*self._present()]
        if present:
            others = f" and {len(present) - 1} more" if len(present) > 1 else ""
            raise NotMoved(
                f"Stop all workers and schedulers first: {present[0]}{others}. One that was killed counts as there for "
                "a minute"
            )

    def _begin(self) -> Note:
        """Return the note of the source, a new one if there is none, after it is written in both."""
        note, filling = read_note(self._source), read_note(self._target)
        if note and (note.state == FILLING or not self._is_to_here(note, filling)):
            raise NotMoved(f"{self.names[0]}: {note.how_far}. The line for that move: {note.line}")
        if note and note.state != COPYING:
            return note
        self._refuse_present()
        if filling and filling.state != MOVED and (note is None or filling.id != note.id):
            raise NotMoved(f"{self.names[1]} is part of another move: {filling.how_far}")
        is_new = filling is None or filling.state == MOVED
        if is_new and (found := next(self._copied(), "")):
            raise NotMoved(f"{self.names[1]} has jobs, or has been used for them: {one_line(found)} is there")
        if note is None:
            begun = datetime.now(timezone.utc).strftime("%Y-%m-%d %H:%M:%S")
            number = sum(1 for _ in self._meant())
            note = Note(uuid4().hex, COPYING, self.names[0], self.names[1], begun, number=f"{number}")
            write_note(self._source, note)
        if is_new:
            write_note(self._target, note._replace(state=FILLING))
        return note

    def _is_to_here(self, note: Note, filling: Note | None) -> bool:
        """Whether the source has a note of a move to this target, of which there may be several names."""
        return note.target == self.names[1] or bool(filling and filling.id == note.id)

    def _copied(self) -> Iterator[str]:
        """Return the keys of the target that are, or could be, those of the jobs."""
        return (key for key in _keys_of(self._target) if self._renaming.is_moved(key) and key != self._notes[1])

    def _wait(self) -> None:
        until = time.monotonic() + self._pause
        while (left := until - time.monotonic()) > 0:
            self._tell(f"waits for {max(left, 1):.0f} s, until all processes have noticed that nothing can be added")
            time.sleep(min(left, 0.5))

    # -- Copying

    def _meant(self) -> Iterator[str]:
        """Return the keys of the source that are to be moved."""
        return (key for key in _keys_of(self._source) if self._renaming.is_meant(key) and key != self._notes[0])

    def _copy(self, note: Note) -> Note:
        for number in range(PASSES):
            if not self._pass(note, number) and number:  # at least two: the second one is the check
                note = note._replace(state=REMOVING, done="0")
                write_note(self._source, note)
                return note
        raise NotMoved(
            f"{self.names[0]} is changed again and again, so it is not known to be copied: stop all that uses it, "
            f"such as the dashboard, and type the line again: {note.line}"
        )

    def _pass(self, note: Note, number: int) -> int:
        """Copy each key that is not the same in the target; return how many were not."""
        values = Values(self._source, self._target, self._renaming)
        changed = 0
        for seen, batch in enumerate(chunks(self._meant(), BATCH), 1):
            entries = values.differing(values.entries(batch))
            values.copy(entries)
            changed += len(entries)
            if not number and seen % KEEP_EVERY == 0:
                self._keep(note, seen * BATCH)
            self._tell(f"{'compared' if number else 'copied'} {seen * BATCH:,} of {note.total:,} keys")
        if values.odd:
            key, kind = min(values.odd.items())
            raise NotMoved(f"{one_line(key)} is a {one_line(kind)}, which cannot be copied: delete it, or give up")
        return changed + (self._delete_ended() if number else 0)

    def _keep(self, note: Note, done: int) -> None:
        """Note in both how far it is."""
        done = min(done, note.total)
        for connection, key in zip((self._source, self._target), self._notes, strict=True):
            connection.hset(key, "done", done)

    def _delete_ended(self) -> int:
        """Delete what the target has, and the source has no longer; return how many keys that were."""
        number, source = 0, Reader(self._source)
        for batch in chunks(self._copied(), BATCH):
            are_there = source.all(("EXISTS", self._renaming.old(key)) for key in batch)
            gone = [key for key, is_there in zip(batch, are_there, strict=True) if not is_there]
            self._delete(self._target, gone)
            number += len(gone)
        return number

    # -- Changing over

    def _remove(self, note: Note) -> None:
        """Delete each key of the source that is the same in the target."""
        values = Values(self._source, self._target, self._renaming)
        for seen, batch in enumerate(chunks(self._meant(), BATCH), 1):
            entries = values.entries(batch)
            late = {entry.key for entry in values.differing(entries)}
            self._delete(self._source, (entry.key for entry in entries if entry.key not in late))
            if seen % KEEP_EVERY == 0:
                self._keep(note, seen * BATCH)
            self._tell(f"removed {seen * BATCH:,} of {note.total:,} keys")

    def _switch(self, note: Note) -> None:
        """Let workers begin in the target, and write to its audit that all is moved."""
        self._target.delete(self._notes[1])
        with audited(self._target, unaudited=True, verb="move-to", filter=f"{self.names[0]} to here") as entry:
            entry.numbers = {"done": note.total}
        write_note(self._source, note._replace(state=MOVED))

    @staticmethod
    def _delete(connection: Any, keys: Iterable[str]) -> None:
        for batch in chunks(keys, BATCH):
            connection.unlink(*batch)


def _keys_of(connection: Any) -> Iterator[str]:
    return (key for keys in Reader(connection).all_keys() for key in keys)
