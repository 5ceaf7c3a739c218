"""Whether what is stored in Redis is whole, and how to make it so: ``limpyd-jobs check``, as a function."""

from limpyd_jobs.check.checking import check
from limpyd_jobs.check.report import Finding, Report

__all__ = ["Finding", "Report", "check"]
