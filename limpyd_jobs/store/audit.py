"""Who did what to many jobs at once: the last entries of a stream."""

from __future__ import annotations

import getpass
from collections.abc import Mapping
from contextlib import suppress
from typing import Any

from limpyd_jobs.utils import host_and_pid

KEY = "limpyd-jobs:audit"

# How many entries are kept, at least.
MOST = 10_000


def write_entry(connection: Any, **told: Any) -> None:
    """Write an entry: what was done, by whom."""
    connection.xadd(KEY, {"who": user_and_process(), **told}, maxlen=MOST, approximate=True)


def user_and_process() -> str:
    """Return who does something here: the name of the user, the host and the pid."""
    return f"{_user()}@{host_and_pid()}"


def last_entries(connection: Any, most: int) -> list[Mapping[str, str]]:
    """Return the last entries, the newest first, each with ``at``: the seconds since the epoch."""
    found = connection.xrevrange(KEY, count=most)
    return [{"at": f"{int(pk.partition('-')[0]) / 1000:.3f}", **fields} for pk, fields in found]


def _user() -> str:
    with suppress(Exception):  # there may be no name for the number of a user
        return getpass.getuser()
    return "?"
