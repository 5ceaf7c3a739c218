"""A stream with the last actions on many jobs at once, and who did them."""

from __future__ import annotations

import getpass
import logging
from collections.abc import Mapping
from contextlib import suppress
from datetime import timedelta
from typing import Any

from redis.exceptions import RedisError

from limpyd_jobs.store.calls import passing_over_wrong_types
from limpyd_jobs.utils import EPOCH, MESSAGE, host_and_pid, one_line

log = logging.getLogger("limpyd-jobs.audit")

KEY = "limpyd-jobs:audit"

# How many entries are kept, at least.
MOST = 10_000


def write_entry(connection: Any, **told: Any) -> None:
    """Write an entry: what was done, by whom. As it is done already, a failure to write is only logged."""
    entry = {name: one_line(value, MESSAGE) for name, value in {"who": user_and_process(), **told}.items()}
    try:
        connection.xadd(KEY, entry, maxlen=MOST, approximate=True)
    except RedisError as error:
        text = " ".join(f"{name}={value}" for name, value in entry.items())
        log.warning("Not written to the audit: %s: %s", text, one_line(error, MESSAGE))


def user_and_process() -> str:
    """Return the name of the user, the host and the pid."""
    return f"{_user()}@{host_and_pid()}"


def last_entries(connection: Any, most: int) -> list[Mapping[str, str]]:
    """Return the last entries, the newest first, each with ``at``: the date, naive UTC, or empty if it has none."""
    found: Any = []
    with passing_over_wrong_types():
        found = connection.xrevrange(KEY, count=most)
    return [{**fields, "at": _date(pk)} for pk, fields in found]


def _date(pk: str) -> str:
    with suppress(OverflowError):
        return str(EPOCH + timedelta(seconds=int(pk.partition("-")[0]) // 1000))
    return ""


def _user() -> str:
    with suppress(Exception):  # there may be no name for the number of a user
        return getpass.getuser()
    return "?"
