"""Helpers for the tests of an application: run jobs, see which were added, move the time, and empty the database.

Jobs go through real scripts on a real server. A real worker runs them, in the process of the test.
"""

from limpyd_jobs.testing.added import added_jobs, assert_added, refute_added
from limpyd_jobs.testing.at_once import jobs_at_once
from limpyd_jobs.testing.clock import Clock, clock
from limpyd_jobs.testing.emptying import empty_database
from limpyd_jobs.testing.running import Drained, Outcome, drain, run_job

__all__ = [
    "Clock",
    "Drained",
    "Outcome",
    "added_jobs",
    "assert_added",
    "clock",
    "drain",
    "empty_database",
    "jobs_at_once",
    "refute_added",
    "run_job",
]
