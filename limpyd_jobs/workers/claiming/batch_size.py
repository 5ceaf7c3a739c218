"""How many jobs a worker claims at once."""

from __future__ import annotations

from math import inf

# The most jobs of a measured batch: with more, jobs that do nothing are run no faster, and scripts take longer.
MAX_BATCH = 200

# The part of the bound that a batch should take. The rest is for jobs that take longer than the last ones did.
BATCH_SHARE = 0.5

# How much the last batch counts in the mean.
LAST_BATCH_WEIGHT = 0.3


class BatchSize:
    """Always the same number."""

    bound = inf  # for how long a claimed job may wait for the jobs before it, in seconds

    def __init__(self, jobs: int) -> None:
        self.jobs = jobs  # how many to claim at once

    def observe(self, jobs: int, seconds: float) -> None:
        """Note how many jobs were run in how many seconds."""


class MeasuredBatchSize(BatchSize):
    """As many as are run well within the bound, if they take as long as the last ones did on average.

    It begins with one, and never more than doubles: the first jobs of another kind tell how long they take.
    """

    def __init__(self, bound: float) -> None:
        super().__init__(1)
        self.bound = bound
        self._mean = 0.0

    def observe(self, jobs: int, seconds: float) -> None:
        each = max(seconds, 1e-6) / jobs
        self._mean += LAST_BATCH_WEIGHT * (each - self._mean) if self._mean else each
        fitting = int(min(BATCH_SHARE * self.bound / self._mean, MAX_BATCH))
        self.jobs = max(1, min(fitting, 2 * self.jobs))
