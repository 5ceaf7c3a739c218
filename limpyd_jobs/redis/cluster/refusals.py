"""What a cluster refuses while a slot moves, or has no server: nothing of it was done, so it may be sent again."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from time import monotonic, sleep
from typing import Any, NamedTuple

import redis
from redis.exceptions import AskError, ClusterDownError, MovedError, ResponseError, TryAgainError

# For how many seconds to wait before a command is sent again, and in all, unless connections have a time-out.
PAUSE, PATIENCE = 0.03, 10.0

# These have no key, but make sense only after the commands before them.
_WITH_OTHERS = ("PUBLISH", "WAIT")


class Refusal(NamedTuple):
    """Why a server did not do a command, and where the cluster has the slot now, if it says so."""

    reason: str
    host: str = ""
    port: int = 0


def refusal_of(error: object) -> Refusal | None:
    """Return why a cluster refused a command; None if it did not, or for another reason."""
    if not isinstance(error, ResponseError):
        return None
    known: Refusal | None = getattr(error, "refusal", None)
    return known or _read(error)


def _read(error: ResponseError) -> Refusal | None:
    kinds = {MovedError: "MOVED", AskError: "ASK", TryAgainError: "TRYAGAIN", ClusterDownError: "CLUSTERDOWN"}
    reason, _, rest = str(error).partition(" ")
    found = next((name for kind, name in kinds.items() if isinstance(error, kind)), None)
    if found:  # redis-py has taken the reason off
        reason, rest = found, str(error)
    if reason not in kinds.values():
        return None
    host, _, port = rest.rpartition(" ")[2].rpartition(":")
    return Refusal(reason, host, int(port)) if reason == "MOVED" and port.isdecimal() else Refusal(reason)


def refused_among(replies: Sequence[Any]) -> list[int]:
    """Return the positions of the replies that are refusals."""
    return [position for position, reply in enumerate(replies) if refusal_of(reply)]


class Patience:
    """How long to go on sending what a cluster refuses."""

    def __init__(self, pool: Any) -> None:
        self._pool = pool
        self._end = monotonic() + (pool.connection_kwargs.get("socket_timeout") or PATIENCE)
        self._is_first = True

    def pause(self, error: Any) -> float:
        """Turn to the server that a refusal names; return for how many seconds to wait before the next try. It raises
        `redis.ConnectionError` if it takes too long."""
        refusal = refusal_of(error)
        if monotonic() >= self._end:
            raise redis.ConnectionError(f"The slot of the keys is not served: {error}") from error
        self._pool.follow(refusal)
        is_first, self._is_first = self._is_first, False
        return 0.0 if is_first and refusal and refusal.reason == "MOVED" else PAUSE


def places_to_resend(commands: Sequence[Sequence[Any]], replies: Sequence[Any]) -> list[int]:
    """Return the positions of the commands to send again: those refused, and those that only go with others."""
    refused = refused_among(replies)
    if not refused:
        return []
    others = (i for i, words in enumerate(commands) if i > refused[0] and words[0] in _WITH_OTHERS)
    return sorted({*refused, *others})


def resent(
    pool: Any,
    commands: Sequence[Any],
    replies: Sequence[Any],
    send: Callable[[list[Any]], Sequence[Any]],
) -> list[Any]:
    """Return the replies to some commands, after those that were refused have been sent again, until none is."""
    replies, patience = list(replies), Patience(pool)
    places = places_to_resend(commands, replies)
    while places:
        sleep(patience.pause(replies[places[0]]))
        for place, reply in zip(places, send([commands[place] for place in places]), strict=True):
            replies[place] = reply
        places = places_to_resend(commands, replies)
    return replies
