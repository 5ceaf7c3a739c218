"""How jobs and queues are named in Redis. Only this module reads these names."""

from __future__ import annotations

import re
from typing import NamedTuple

_IDENT = re.compile(r"([^:]+\.[^:.]+):([^:]+)")
_WAITING = ":waiting"

# The most bytes of an ident: see ``idents.lua``.
MAX_IDENT = 64 * 1024

# The most digits of a pk that counts as a number; and up to which scripts count exactly.
PK_DIGITS, EXACT_DIGITS = 18, 15


def read_pk(text: str) -> int | None:
    """Return the number of a pk; None if a text is not a pk as this library makes them."""
    is_number = text.isascii() and text.isdecimal() and len(text) <= PK_DIGITS and (text[0] != "0" or text == "0")
    return int(text) if is_number else None


class Ident(NamedTuple):
    """The name of a job in the lists of queues: the path of its class, and its pk.

    >>> Ident.of("myapp.jobs.MyJob:12")
    Ident(path='myapp.jobs.MyJob', pk='12')
    """

    path: str
    pk: str

    @classmethod
    def of(cls, text: str) -> Ident:
        """Read a text that is known to be an ident. For another text, the path may be empty."""
        path, _, pk = text.rpartition(":")
        return cls(path, pk)

    @classmethod
    def parse(cls, text: str) -> Ident | None:
        """Read a text that may be an ident; return None if it is not."""
        if len(text) * 4 > MAX_IDENT and len(text.encode(errors="surrogateescape")) > MAX_IDENT:
            return None
        match = _IDENT.fullmatch(text)
        return cls(match[1], match[2]) if match else None


class QueueKey(str):
    """The beginning of the keys of a queue: the name of its model, and its pk.

    >>> QueueKey.of_list("limpyd_jobs:queue:7:waiting").pk
    '7'
    """

    __slots__ = ()

    @classmethod
    def of_list(cls, key: str) -> QueueKey:
        """Return the key of the queue of a waiting list."""
        return cls(key.removesuffix(_WAITING))

    @property
    def pk(self) -> str:
        """The pk of the queue."""
        return self.rpartition(":")[2]

    @property
    def waiting(self) -> str:
        """The key of the waiting list."""
        return f"{self}{_WAITING}"
