"""How many jobs a worker of several slots claims ahead, so that the next one is there when another one ends."""

from __future__ import annotations

from time import monotonic

# What will end within that many seconds is claimed ahead.
AHEAD = 0.03

# Over about how many seconds it is counted how many jobs end.
COUNTED = 0.1

# For how many seconds jobs that are claimed ahead may wait without any of them being begun. Then they are released.
MAX_WAIT_AHEAD = 1.0


class Ahead:
    """Tells how many jobs will end within `AHEAD` seconds, by how many ended lately.

    No more are claimed ahead: other workers may run them, and what comes meanwhile with a higher priority begins first.
    """

    def __init__(self) -> None:
        self._rate = 0.0  # jobs a second
        self._since, self._ended = monotonic(), 0

    def note(self, ended: int) -> None:
        """Some jobs have ended."""
        self._ended += ended

    @property
    def jobs(self) -> int:
        """How many jobs should be claimed beside those that run."""
        now = monotonic()
        seconds = now - self._since
        if seconds > COUNTED:
            self._rate += (self._ended / seconds - self._rate) * seconds / (seconds + COUNTED)
            self._since, self._ended = now, 0
        return int(self._rate * AHEAD)
