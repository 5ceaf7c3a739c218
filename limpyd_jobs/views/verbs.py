"""The verbs that a job can have: by its status, and by whether a worker holds it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

# What each verb is called where people press it, and the key that presses it.
NAMES_OF_VERBS: Mapping[str, str] = {
    "requeue": "Run again",
    "duplicate": "Run again",
    "cancel": "Cancel",
    "promote": "Run now",
    "move": "Move",
    "delay": "Delay",
    "edit": "Edit",
    "release": "Release",
    "delete": "Delete",
}

# The verbs for one job of each status, the one that helps most often first.
_BY_STATUS: Mapping[str, tuple[str, ...]] = {
    "waiting": ("cancel", "edit", "move", "delay", "delete"),
    "delayed": ("promote", "cancel", "edit", "move", "delay", "delete"),
    "running": ("cancel", "release"),
    "success": ("duplicate", "delete"),
    "error": ("requeue", "duplicate", "delete"),
    "canceled": ("duplicate", "delete"),
}

# What cannot be done with a job that a worker holds, whatever its status.
_NOT_IF_CLAIMED = frozenset({"requeue", "edit", "move", "delay", "promote", "delete"})


def verbs_for(status: str, *, is_claimed: bool = False, waits: bool = False) -> tuple[str, ...]:
    """Return the verbs that can work for a job now; `waits` says whether it waits for other jobs, or for a signal: it
    then runs no sooner, whoever asks."""
    found = tuple(verb for verb in _BY_STATUS.get(status, ("delete",)) if not (waits and verb == "promote"))
    if not is_claimed:
        return found
    return tuple(verb for verb in dict.fromkeys((*found, "release")) if verb not in _NOT_IF_CLAIMED)


def verbs_for_many(jobs: Iterable[tuple[str, bool]]) -> tuple[str, ...]:
    """Return the verbs that can work for some of several jobs, given the status of each and whether it waits for other
    jobs, or for a signal: those that there are for many at once."""
    able = {verb for status, waits in jobs for verb in verbs_for(status, waits=waits)}
    return tuple(verb for verb in ("requeue", "promote", "cancel", "move", "delay", "delete") if verb in able)
