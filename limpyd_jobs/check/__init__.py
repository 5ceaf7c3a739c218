"""Checking whether the stored data is whole, and repairing it: ``limpyd-jobs check``, as a function."""

from limpyd_jobs.check.checking import check
from limpyd_jobs.check.report import Finding, Report

__all__ = ["Finding", "Report", "check"]
