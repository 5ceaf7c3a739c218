"""How long to wait before Redis is asked again."""

from __future__ import annotations

import random

# The shortest wait in seconds, so that at most one failure is logged each second; and the longest.
FIRST_PAUSE = 1.0
MAX_PAUSE = 10.0


class Backoff:
    """Waits that grow with each failure in a row, and differ from worker to worker.

    Exponential, with half of the wait at random ("equal jitter" in
    https://aws.amazon.com/blogs/architecture/exponential-backoff-and-jitter/).
    """

    def __init__(self) -> None:
        self.failures = 0

    def next(self) -> float:
        """Return the seconds to wait after one more failure."""
        self.failures += 1
        longest: float = min(MAX_PAUSE, FIRST_PAUSE * 2 ** min(self.failures, 10))
        return longest / 2 + random.uniform(0, longest / 2)

    def reset(self) -> None:
        """There was a success."""
        self.failures = 0
