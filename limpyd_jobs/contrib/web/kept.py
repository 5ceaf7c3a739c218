"""What was found out, kept for a while for all viewers of this process."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Hashable
from datetime import datetime, timezone
from threading import Lock
from time import monotonic
from typing import Any, Generic, NamedTuple, TypeVar

T = TypeVar("T")

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


class Recent(Generic[T]):
    """Calls a function, and returns the same again for some seconds. Threads that ask meanwhile wait for it."""

    def __init__(self, look: Callable[[], T], seconds: float) -> None:
        self._look, self._seconds = look, seconds
        self._lock = Lock()
        self._last: tuple[float, T] | None = None

    def __call__(self, seconds: float | None = None) -> T:
        """Return what was found; look again if that is as old as some seconds, by default those it was made with."""
        with self._lock:
            if self._last is None or monotonic() - self._last[0] >= (self._seconds if seconds is None else seconds):
                found = self._look()
                self._last = (monotonic(), found)  # from its end on: a look may take longer than that
            return self._last[1]
