"""The two databases of a move, each changed only as long as its note says that this run of the command moves the jobs.

So of several runs, only the last one that began changes anything; and nothing is changed in a database that lost its
note, because it was emptied.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any
from uuid import uuid4

from redis.exceptions import RedisError, ResponseError, WatchError

from limpyd_jobs.check.reader import Reader
from limpyd_jobs.exceptions import LimpydJobsException
from limpyd_jobs.records.relocations import KEY, Note, read_note
from limpyd_jobs.redis.calls import chunks, is_of_wrong_type
from limpyd_jobs.redis.cluster.tags import at
from limpyd_jobs.redis.database import JobsDatabase, database_name
from limpyd_jobs.redis.replication import PUBLISHED
from limpyd_jobs.search.classes import connection_to

Command = Sequence[Any]

# How many commands are in a transaction.
AT_ONCE = 500

# For how many seconds to wait until a replica has all.
REPLICATED_WITHIN = 5.0


class NotMoved(LimpydJobsException):
    """The jobs of a database are not moved to another one, for a reason that this says."""


class Side:
    """A database that jobs are moved from, or to.

    Attributes
    ----------
    connection: redis.Redis
    name: str
        Without passwords.
    key: str
        Where its note is.
    """

    def __init__(self, database: JobsDatabase) -> None:
        self.connection: Any = connection_to(database)
        self.name = database_name(database.connection_settings)
        self.key = at(self.connection, KEY)
        self._run = uuid4().hex

    def note(self) -> Note | None:
        """Return its note."""
        return read_note(self.connection)

    def all_keys(self) -> Iterator[str]:
        """Yield all keys."""
        return (key for keys in Reader(self.connection).all_keys() for key in keys)

    def ask(self, commands: Iterable[Command]) -> Iterator[Any]:
        """Yield the replies to commands that change nothing: an exception only if a key is of another type by now."""
        for reply in Reader(self.connection).all(commands):
            if isinstance(reply, Exception) and not is_of_wrong_type(reply):
                raise reply
            yield reply

    def take(self, found: Note | None, note: Note) -> Note:
        """Write its note, as one of this run, unless it is another one than the one that was found; return it."""
        taken = note._replace(run=self._run)

        def commands(now: Note | None) -> Iterable[Command]:
            if (now and now.which) != (found and found.which):
                raise self._refusal(now)
            return [_written(self.key, taken)]

        self._execute(commands)
        return taken

    def write(self, note: Note) -> None:
        """Write its note."""
        self.change([_written(self.key, note._replace(run=self._run))])

    def change(self, commands: Iterable[Command]) -> None:
        """Send commands, some at once.

        Raises
        ------
        NotMoved
            If its note is not one of this run.
        """
        for chunk in chunks(commands, AT_ONCE):
            self.change_by(lambda chunk=chunk: chunk)  # type: ignore[misc]

    def change_by(self, commands: Callable[[], Iterable[Command]], *watched: str) -> None:
        """Send the commands that a function returns, all at once. If some keys change meanwhile, it is called again."""

        def checked(now: Note | None) -> Iterable[Command]:
            self._check(now)
            return commands()

        self._execute(checked, *watched)

    def wait_for_a_replica(self) -> None:
        """Return as soon as one replica, if there are any, has all that was written.

        Raises
        ------
        NotMoved
            If none has.
        """
        if not self.connection.info("replication").get("connected_slaves"):
            return
        pipeline = self.connection.pipeline(transaction=False)
        pipeline.execute_command(*PUBLISHED)
        pipeline.execute_command("WAIT", 1, int(1000 * REPLICATED_WITHIN))
        if not pipeline.execute()[-1]:
            raise NotMoved(f"No replica of {self.name} has what was copied, so a failover would lose it: see to it")

    def check(self) -> None:
        """Raise `NotMoved` if its note is not one of this run."""
        self._check(self.note())

    def _check(self, note: Note | None) -> None:
        if note is None or note.run != self._run:
            raise self._refusal(note)

    def _refusal(self, note: Note | None) -> NotMoved:
        if note is None:
            return NotMoved(f"{self.name} does not know of the move any more: it was given up, or the database emptied")
        return NotMoved(f"Another move-to has gone on with it, or has begun, at {self.name}: let that one end")

    def _execute(self, commands: Callable[[Note | None], Iterable[Command]], *watched: str) -> None:
        is_done = False
        while not is_done:
            with self.connection.pipeline() as pipeline:
                try:
                    pipeline.watch(self.key, *watched)
                    found = commands(read_note(pipeline))
                    pipeline.multi()
                    for command in found:
                        pipeline.execute_command(*command)
                    pipeline.execute()
                    is_done = True
                except WatchError as error:  # redis-py says so, too, if the connection broke
                    broken = error.__context__
                    if isinstance(broken, RedisError) and not isinstance(broken, ResponseError):
                        raise broken from None


def _written(key: str, note: Note) -> Command:
    return ("HSET", key, *(word for pair in note.as_hash().items() for word in pair))
