"""Checking whether the stored data is whole, and repairing it: ``limpyd-jobs check``, as a function."""

from limpyd_jobs.check.catalogue import import_used_integrations
from limpyd_jobs.check.checking import audited_repair, check
from limpyd_jobs.check.report import Finding, Report

__all__ = ["Finding", "Report", "audited_repair", "check", "import_used_integrations"]
