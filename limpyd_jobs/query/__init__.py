"""Find jobs by what is in them."""

from limpyd_jobs.query.actions import Tally
from limpyd_jobs.query.conditions import Condition
from limpyd_jobs.query.details import JobDetails, job_details
from limpyd_jobs.query.explaining import Explanation, Reason, explain_job
from limpyd_jobs.query.filter import JobFilter
from limpyd_jobs.query.found import Count, Facets, FoundJob, Page

__all__ = [
    "Condition",
    "Count",
    "Explanation",
    "Facets",
    "FoundJob",
    "JobDetails",
    "JobFilter",
    "Page",
    "Reason",
    "Tally",
    "explain_job",
    "job_details",
]
