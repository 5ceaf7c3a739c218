"""What took long to find out, kept for a while for all viewers of this process."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Hashable
from datetime import datetime, timezone
from threading import Lock
from time import monotonic
from typing import Any, NamedTuple

# For how many seconds a value is kept, and how many values.
KEPT_FOR, MAX_KEPT = 600.0, 16


class KeptValue(NamedTuple):
    """A value, and when it was found out."""

    value: Any
    at: datetime
    until: float


class Kept:
    """The last values."""

    def __init__(self) -> None:
        self._values: OrderedDict[Hashable, KeptValue] = OrderedDict()
        self._lock = Lock()

    def put(self, key: Hashable, value: Any) -> None:
        with self._lock:
            self._values[key] = KeptValue(value, datetime.now(timezone.utc), monotonic() + KEPT_FOR)
            self._values.move_to_end(key)
            while len(self._values) > MAX_KEPT:
                self._values.popitem(last=False)

    def get(self, key: Hashable) -> KeptValue | None:
        """Return a value that is not too old."""
        with self._lock:
            found = self._values.get(key)
            return found if found and found.until > monotonic() else None
