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

# For how many times as long as it took to find something out, it is shown again; and how many of these are kept.
TIMES, MAX_COSTLY = 25, 64


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


class Costly:
    """What took long to find out. Pages that ask again by themselves show the same for a time that grows with what it
    took, so that Redis and this process have little to do for them, however many watch."""

    def __init__(self) -> None:
        self._values: OrderedDict[Hashable, tuple[float, Any]] = OrderedDict()
        self._lock = Lock()

    def __call__(self, key: Hashable, look: Callable[[], T], *, is_new: bool) -> T:
        """Return what was found for a key; look again if that is too old, or if it is asked for what is new."""
        with self._lock:
            until, value = self._values.get(key, (0.0, None))
        if not is_new and until > monotonic():
            found: T = value
            return found
        began = monotonic()
        found = look()
        self.keep(key, found, monotonic() - began)
        return found

    def keep(self, key: Hashable, value: Any, took: float) -> None:
        """Keep what took some seconds to find out."""
        with self._lock:
            self._values[key] = monotonic() + took * TIMES, value
            self._values.move_to_end(key)
            while len(self._values) > MAX_COSTLY:
                self._values.popitem(last=False)

    def known(self, key: Hashable) -> Any:
        """Return what was found for a key, if that is not too old; else None."""
        with self._lock:
            until, value = self._values.get(key, (0.0, None))
            return value if until > monotonic() else None

    def clear(self) -> None:
        """Forget all: something was done."""
        with self._lock:
            self._values.clear()


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
