"""What the queues of RQ and of arq have in common, seen from here."""

from __future__ import annotations

import json
import pickle
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timezone
from typing import Any, NamedTuple

PICKLED = (
    "is a pickle, and reading one runs whatever code it names: give --unpickle if only programs that you trust "
    "have written to that Redis"
)

LATEST = 32_472_144_000  # the moment, in seconds, that stands for all later ones: 2999


@dataclass(frozen=True)
class OldJob:
    """A job as the old queue has it.

    Attributes
    ----------
    id: str
    function: str
        The path, or the name, of its function.
    args, kwargs
        With which it is called.
    """

    id: str
    function: str
    args: Sequence[Any]
    kwargs: Mapping[str, Any]


class Left(NamedTuple):
    """A job that stays where it is, and why."""

    id: str
    why: str


class Place(NamedTuple):
    """Where a job stands: a list or a sorted set, and its id there."""

    key: str
    is_list: bool
    id: str


class OldQueues:
    """The queues of another library, in a Redis whose client reads text that is not UTF-8 as surrogate escapes.

    Parameters
    ----------
    client: redis.Redis
    queues: list of str
        Their names; by default all.
    unpickle: bool
        Whether to read pickles, which runs the code that they name.
    """

    name = ""
    running = ""  # what the names of keys begin with that say of a job, by its id, that it runs
    per_second = 1  # what the scores of its sorted sets count

    def __init__(self, client: Any, queues: Sequence[str] = (), *, unpickle: bool = False) -> None:
        self.client = client
        self.queues = list(queues) or self.found_queues()
        self._unpickle = unpickle

    def found_queues(self) -> list[str]:
        """Return the names of all queues."""
        raise NotImplementedError

    def unknown_queues(self) -> list[str]:
        """Return the names of the given queues that are not there, as far as that can be seen."""
        return []

    def queue_of(self, key: str) -> str:
        """Return the name of the queue of a place."""
        raise NotImplementedError

    def places(self) -> Iterator[Place]:
        """Yield the jobs that wait, and those that are due later, in the order in which the old workers take them."""
        raise NotImplementedError

    def read(self, id: str) -> OldJob | Left:
        """Return what is stored of a job, or why that cannot be taken over."""
        raise NotImplementedError

    def data_keys(self, id: str) -> list[str]:
        """Return the keys of what is stored of a job, the first one the job itself."""
        raise NotImplementedError

    def others(self) -> Iterator[tuple[int, str]]:
        """Yield how many jobs there are that do not wait, and what is to be done about them."""
        raise NotImplementedError

    def due_of(self, score: float | str) -> datetime | None:
        """Return the moment of a score; None for a job that was in a list, and has none."""
        if score == "":
            return None
        return datetime.fromtimestamp(min(max(float(score) / self.per_second, 0), LATEST), timezone.utc)

    def loaded(self, data: bytes) -> Any:
        """Return what some stored bytes hold; raise `ValueError` with the reason why not."""
        try:
            return json.loads(data)
        except (ValueError, RecursionError):
            pass
        if not data.startswith(b"\x80"):
            raise ValueError("is neither JSON nor a pickle")
        if not self._unpickle:
            raise ValueError(PICKLED)
        try:
            return pickle.loads(data)
        except Exception as error:  # whatever the code of a pickle raises
            raise ValueError(f"cannot be unpickled: {type(error).__name__}: {error}") from None


def as_bytes(text: str) -> bytes:
    """Return what Redis holds, of the text that the client made of it."""
    return text.encode("utf-8", "surrogateescape")
