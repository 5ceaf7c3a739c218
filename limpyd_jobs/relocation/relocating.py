"""Moving all jobs of a database to another one.

The two may be on two servers, so no step changes both. In each, a note says how far it is (see
`limpyd_jobs.records.relocations`), and lets scripts refuse to add and to claim jobs:

1. The source is noted, then the target. After a minute, all processes have noticed.
2. Each key is copied that is not the same in the target; what is there and no longer in the source, is deleted. This is
   done again until there is no difference: so it also goes on after a break, and it is the check at the end.
3. The source notes that all are copied. From now on, the jobs are those of the target.
4. Each key of the source is deleted that is the same in the target. Others were changed too late: they stay, and are
   told of.
5. The source notes that its jobs are elsewhere.
6. The note of the target is deleted: workers may begin there. The note of the source stays.

The next call goes on with what the notes say. Of several at once, only the last one does: see `sides`.
"""

from __future__ import annotations

import json
import shlex
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from datetime import datetime, timezone
from functools import cached_property
from typing import NamedTuple
from uuid import uuid4

from redis.exceptions import RedisError

from limpyd_jobs.classes.binding import bound, is_same_database
from limpyd_jobs.exceptions import ConfigurationException
from limpyd_jobs.models import AlivePresence, Presence, WorkerPresence
from limpyd_jobs.query.queues import queue_states
from limpyd_jobs.records.audit import audited
from limpyd_jobs.records.known_classes import WRITTEN_FOR
from limpyd_jobs.records.relocations import COPYING, FILLING, KEY, MOVED, REMOVING, Note, line_of
from limpyd_jobs.redis.calls import chunks
from limpyd_jobs.redis.database import JobsDatabase, database_name
from limpyd_jobs.relocation.renaming import Renaming, foreign_name, namespaces_of
from limpyd_jobs.relocation.sides import Command, NotMoved, Side
from limpyd_jobs.relocation.values import Entry, Values
from limpyd_jobs.texts import one_line

# After how many seconds all processes have noticed that jobs are moved: they ask when they write their classes again.
NOTICED_AFTER = WRITTEN_FOR + 2

# How many keys are copied at once, after how many of these steps is noted how far it is, and how often all keys are
# compared at most until there is no difference.
BATCH, KEEP_EVERY, PASSES = 100, 10, 10


class Plan(NamedTuple):
    """What would be moved.

    Attributes
    ----------
    keys: int
        How many keys.
    begins: dict of str to int
        How many of them begin with which text: those in the namespaces of jobs, and those that `also` names.
    left: dict of str to int
        How many other keys stay in the source, by how they begin: up to the first colon.
    present: list of str
        The names of the workers, schedulers and others that are there, in the source or in the target.
    note: Note or None
        What the source says of a move that was begun.
    """

    keys: int
    begins: dict[str, int]
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
    example: str
        One of them.
    """

    keys: int
    left: int
    example: str = ""


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
        self._databases, self._also, self._pause, self._tell = (source, target), also, pause, tell
        self._source, self._target = map(Side, self._databases)
        self._is_new = False  # whether the target has nothing yet
        self.names = [self._source.name, self._target.name]

    @cached_property
    def _namespaces(self) -> list[str]:
        return sorted(set().union(*map(namespaces_of, self._databases)))

    @cached_property
    def _renaming(self) -> Renaming:
        """What is moved: that with which the move was begun. What a note says is not enough to move a key, as other
        programs may have written it."""
        note, filling = self._source.note(), self._target.note()
        begun = note or (filling if filling and filling.state == FILLING else None)
        known = [*(f"{each}:" for each in self._namespaces), *self._also]
        begins = _begins_of(begun) if begun else known
        more, unknown = set(self._also).difference(begins), set(begins).difference(known)
        if more:
            raise NotMoved(f"The move was begun without --also={min(more)}: type the line without it, or --undo first")
        if unknown:
            name = one_line(min(unknown))
            option = shlex.quote(f"--also={name}")
            raise NotMoved(
                f"{one_line(KEY)} says that keys that begin with {name!r} are moved, too, which are of no jobs that "
                f"are known. If they are yours, type the line with {option}; else another program wrote it: delete it"
            )
        return Renaming(*self._databases, begins)

    def plan(self) -> Plan:
        """Return what would be moved. Nothing is changed."""
        begins, left = Counter[str](), Counter[str]()
        for key in self._source.all_keys():
            name = self._renaming.plain(key)
            if not self._renaming.is_meant(key):
                left[foreign_name(name)] += 1
            elif key != self._source.key:
                begins[next(filter(name.startswith, self._renaming.prefixes))] += 1
        present = [*self._present()]
        return Plan(begins.total(), dict(begins.most_common()), dict(left.most_common()), present, self._source.note())

    def run(self) -> Moved:
        """Move them, or go on with that.

        Raises
        ------
        NotMoved
            If workers, schedulers or others are there; if the target has jobs, or is part of another move; if another
            run goes on with the move; or if the source changes again and again. What was done stays, and can be gone
            on with.
        redis.RedisError
            If one of the databases cannot be used.
        """
        note = self._begin()
        if note.state == COPYING:
            self._wait()
            self._refuse_present()
            note = self._copy(note)
        if note.state == REMOVING:
            note = self._remove(note)
        self._open(note)
        left = [*self._meant()]
        return Moved(note.total, len(left), min(left, default=""))

    def undo(self) -> None:
        """Give a move up that was broken off: the source is used again, and what was copied is deleted.

        Raises
        ------
        NotMoved
            If there is nothing to give up, or the jobs are those of the target already; or if the target cannot be
            used, so that what was copied stays.
        """
        note, failure, filling = self._source.note(), None, None
        try:
            filling = self._target.note()
        except RedisError as error:
            if note is None:
                raise
            failure = error
        if filling and filling.state != FILLING:
            filling = None
        self._refuse_to_give_up(note, filling)
        if filling:
            _ = self._renaming  # as the notes say, while they are there
            filling = self._target.take(filling, filling)  # so no other run copies any more
        if note:
            self._source.take(note, note)
            self._source.change([("UNLINK", self._source.key)])
        if failure:
            raise NotMoved(
                f"{self.names[0]} is used again. But {self.names[1]} cannot be used, so what was copied there is not "
                f"deleted: {failure}. Type the line again for that"
            )
        if filling:
            self._target.change(_deletions(self._copied()))
            self._target.change([("UNLINK", self._target.key)])

    def _refuse_to_give_up(self, note: Note | None, filling: Note | None) -> None:
        if note is None and filling is None:
            raise NotMoved("Nothing is being moved there")
        if note and (note.state == FILLING or not self._is_to_here(note, filling)):
            raise NotMoved(f"{self.names[0]}: {note.how_far}. The line for that move: {note.line}")
        if note and note.state != COPYING:
            raise NotMoved(f"It is too late to give it up: {note.how_far}. Move them back: {line_of(*self.names)}")
        if note and filling and note.id != filling.id:
            raise NotMoved(f"{self.names[1]}: {filling.how_far}")
        if note is None and next(self._copied(), "") and not next(self._meant(), ""):
            raise NotMoved(
                f"{self.names[0]} has no jobs, so those that were copied to {self.names[1]} are all that there are. To "
                f"use them, delete {self._target.key} there"
            )

    # -- Whether it can be done

    def _present(self) -> Iterator[str]:
        for database, name in zip(self._databases, self.names, strict=True):
            for namespace in self._namespaces:
                for model in (WorkerPresence, Presence):
                    there: list[AlivePresence] = bound(model, database, namespace).alive()
                    yield from (f"{one_line(each.kind or 'worker')} {one_line(each.name)} in {name}" for each in there)
        for queue in queue_states(database=self._databases[0]):  # by a worker of another shard, for example
            if running := queue.running - queue.lapsed:
                jobs = "a job" if running == 1 else f"{running:,} jobs"
                yield f"what runs {jobs} of {one_line(queue.name)} in {self.names[0]}"

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
        note, filling = self._source.note(), self._target.note()
        self._refuse_other_moves(note, filling)
        if note and note.state == MOVED:
            return note
        is_filled = bool(note and filling and filling.id == note.id)
        if note and note.state == REMOVING:
            if not is_filled:
                raise NotMoved(
                    f"{self.names[1]} does not know of the move: it was emptied, or is another one. So nothing more is "
                    f"removed. To use what {self.names[0]} has, delete {self._source.key} there"
                )
        else:
            self._refuse_present()
            if not is_filled and (found := next(self._copied(), "")):
                raise NotMoved(
                    f"{self.names[1]} has jobs, or has been used for them: {one_line(found)} is there. Name "
                    "another one, which is empty"
                )
        taken = self._source.take(note, note or self._new_note())
        if self._target.note() == taken:
            self._source.change([("UNLINK", self._source.key)])
            raise NotMoved(f"{self.names[0]} and {self.names[1]} are two names of the same database")
        self._target.take(filling, taken._replace(state=FILLING))
        self._is_new = not is_filled
        return taken

    def _new_note(self) -> Note:
        begun = datetime.now(timezone.utc).strftime("%Y-%m-%d %H:%M:%S")
        number, begins = sum(1 for _ in self._meant()), json.dumps(self._renaming.prefixes)
        return Note(
            uuid4().hex, COPYING, self._source.name, self._target.name, begun, number=f"{number}", begins=begins
        )

    def _refuse_other_moves(self, note: Note | None, filling: Note | None) -> None:
        if note and (note.state == FILLING or not self._is_to_here(note, filling)):
            raise NotMoved(f"{self.names[0]}: {note.how_far}. The line for that move: {note.line}")
        if filling and filling.state != MOVED and (note is None or filling.id != note.id):
            raise NotMoved(f"{self.names[1]} is part of another move: {filling.how_far}")

    def _is_to_here(self, note: Note, filling: Note | None) -> bool:
        """Whether the source has a note of a move to this target, of which there may be several names."""
        is_filled = filling and (filling.id, filling.state) == (note.id, FILLING)
        return bool(note.target == self.names[1] or is_filled)

    def _copied(self) -> Iterator[str]:
        """Return the keys of the target that are, or could be, those of the jobs."""
        return (key for key in self._target.all_keys() if self._renaming.is_moved(key) and key != self._target.key)

    def _wait(self) -> None:
        until = time.monotonic() + self._pause
        while (left := until - time.monotonic()) > 0:
            self._tell(f"waits for {max(left, 1):.0f} s, until all processes have noticed that nothing can be added")
            time.sleep(min(left, 0.5))

    # -- Copying

    def _meant(self) -> Iterator[str]:
        """Return the keys of the source that are to be moved."""
        return (key for key in self._source.all_keys() if self._renaming.is_meant(key) and key != self._source.key)

    def _copy(self, note: Note) -> Note:
        for number in range(PASSES):
            if not self._pass(note, number) and number:  # at least two: the second one is the check
                self._target.wait_for_a_replica()
                note = note._replace(state=REMOVING, done="0")
                self._source.write(note)
                return note
        raise NotMoved(
            f"{self.names[0]} is changed again and again, so it is not known to be copied: stop all that uses it, "
            f"such as the dashboard and programs of version 2, and type the line again: {note.line}"
        )

    def _pass(self, note: Note, number: int) -> int:
        """Copy each key that is not the same in the target; return how many were not."""
        values = Values(self._source, self._target, self._renaming)
        changed = 0
        for seen, batch in enumerate(chunks(self._meant(), BATCH), 1):
            entries = values.entries(batch)
            if number or not self._is_new:
                entries = values.differing(entries)
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
        for side in (self._source, self._target):
            side.change([("HSET", side.key, "done", min(done, note.total))])

    def _delete_ended(self) -> int:
        """Delete what the target has, and the source has no longer; return how many keys that were."""
        number = 0
        for batch in chunks(self._copied(), BATCH):
            are_there = self._source.ask(("EXISTS", self._renaming.old(key)) for key in batch)
            gone = [key for key, is_there in zip(batch, are_there, strict=True) if not is_there]
            if gone:
                self._source.check()  # it was not emptied
                self._target.change(_deletions(gone))
            number += len(gone)
        return number

    # -- Changing over

    def _remove(self, note: Note) -> Note:
        """Delete each key of the source that is the same in the target; copy those that it has not. Return the note of
        a source whose jobs are elsewhere."""
        while self._remove_once(note):
            pass
        note = note._replace(state=MOVED)
        self._source.write(note)
        return note

    def _remove_once(self, note: Note) -> int:
        """Do so with all keys; return how many were removed, or copied. While a slot of a cluster moves, some are not
        seen."""
        values = Values(self._source, self._target, self._renaming)
        number = 0
        for seen, batch in enumerate(chunks(self._meant(), BATCH), 1):
            late: list[Entry] = []
            self._source.change_by(lambda batch=batch, late=late: self._removing(values, batch, late), *batch)  # type: ignore[misc]
            missing = values.missing(late)
            values.copy(missing)
            number += len(batch) - len(late) + len(missing)
            if seen % KEEP_EVERY == 0:
                self._keep(note, seen * BATCH)
            self._tell(f"removed {seen * BATCH:,} of {note.total:,} keys")
        return number

    def _removing(self, values: Values, keys: Sequence[str], late: list[Entry]) -> Iterable[Command]:
        """Return what deletes those of some keys that are the same in the target, and list the others."""
        self._target.check()
        entries = values.entries(keys)
        late[:] = values.differing(entries)
        different = {entry.key for entry in late}
        return _deletions(entry.key for entry in entries if entry.key not in different)

    def _open(self, note: Note) -> None:
        """Let workers begin in the target, and write to its audit that all is moved."""
        filling = self._target.note()
        if filling and (filling.id, filling.state) == (note.id, FILLING):
            with audited(
                self._target.connection, unaudited=True, verb="move-to", filter=f"{self.names[0]} to here"
            ) as entry:
                entry.numbers = {"done": note.total}
            self._target.take(filling, filling)
            self._target.change([("UNLINK", self._target.key)])


def _begins_of(note: Note) -> list[str]:
    with suppress(RecursionError, ValueError):
        begins = json.loads(note.begins)
        if isinstance(begins, list) and all(isinstance(each, str) and each for each in begins):
            return begins
    raise NotMoved(f"What {one_line(KEY)} says cannot be read: another program wrote it. Delete it")


def _deletions(keys: Iterable[str]) -> Iterator[Command]:
    return (("UNLINK", *batch) for batch in chunks(keys, BATCH))
