"""Helpers for the tests of an application: run jobs, see which were added, move the time, and empty the database.

Jobs go through real scripts on a real server. A real worker runs them, in the process of the test.
"""

from limpyd_jobs.testing.added import added_jobs as added_jobs
from limpyd_jobs.testing.added import assert_added as assert_added
from limpyd_jobs.testing.added import refute_added as refute_added
from limpyd_jobs.testing.at_once import jobs_at_once as jobs_at_once
from limpyd_jobs.testing.clock import Clock as Clock
from limpyd_jobs.testing.clock import clock as clock
from limpyd_jobs.testing.emptying import empty_database as empty_database
from limpyd_jobs.testing.running import Drained as Drained
from limpyd_jobs.testing.running import Outcome as Outcome
from limpyd_jobs.testing.running import drain as drain
from limpyd_jobs.testing.running import run_job as run_job
