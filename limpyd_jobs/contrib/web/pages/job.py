"""One job: all that is stored of it, why it does not run, and what can be done with it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from limpyd_jobs.contrib.web.protocol import Asked, Page
from limpyd_jobs.integration import Ident
from limpyd_jobs.query import JobDetails, Reason, explain_job, job_details

# The fields that are shown above the others, and so not once more.
ABOVE = ("status", "queued", "identifier", "priority", "added", "start", "end", "tries", "delayed_until")


@dataclass(frozen=True)
class JobShown:
    """A job, as it was when it was read, with masked secrets; and why it does not run yet, or did not."""

    job: JobDetails
    job_class: str
    reasons: Sequence[Reason]

    @property
    def arguments(self) -> Mapping[str, str]:
        """The fields that are not in the summary."""
        return {name: value for name, value in self.job.fields.items() if name not in ABOVE}

    @property
    def is_over(self) -> bool:
        return self.job.status in ("success", "error", "canceled")


def show(asked: Asked) -> JobShown:
    ident = asked.path["ident"]
    path = Ident.of(ident).path
    details = job_details(ident, asked.database)
    masked = details._replace(
        fields=asked.masking.fields(details.fields, path),
        result=None if details.result is None else asked.masking.text(details.result),
    )
    return JobShown(masked, path, explain_job(ident, asked.database).reasons)


PAGE = Page("/jobs/{ident:path}", "Job", show, "job.html")
