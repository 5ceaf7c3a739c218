"""Checking whether the stored data is whole, and repairing it: ``limpyd-jobs check``, as a function."""

from limpyd_jobs.check.checking import check
from limpyd_jobs.check.integrations import import_used_integrations
from limpyd_jobs.check.repairing import audited_repair
from limpyd_jobs.check.report import Finding, Report

__all__ = ["Finding", "Report", "audited_repair", "check", "import_used_integrations"]
