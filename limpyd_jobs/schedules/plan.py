"""What to do when a schedule is due, as its record says."""

from __future__ import annotations

import json
from collections.abc import Mapping
from datetime import datetime, timedelta
from typing import Any, NamedTuple

from limpyd_jobs.arguments import read_seconds, stored_priority, stored_queue_name
from limpyd_jobs.fields.argument import as_stored
from limpyd_jobs.fields.new_fields import checked_fields, stored_names
from limpyd_jobs.models import Job
from limpyd_jobs.schedules.misfires import MISFIRE_POLICIES
from limpyd_jobs.schedules.model import aware, identifier_of
from limpyd_jobs.schedules.triggers import Times

MAX_JITTER = 1e10  # seconds: dates with it are still dates


class Plan(NamedTuple):
    """A schedule by its record. Each value is checked, because any program may have written it."""

    stored: Mapping[str, str]
    job_class: type[Job]
    times: Times
    due: datetime | None
    misfire_policy: str
    misfire_grace_time: timedelta | None
    jitter: float
    queue_name: str
    priority: str
    fields: Mapping[str, Any]

    @classmethod
    def read(cls, stored: Mapping[str, str], job_class: type[Job]) -> Plan:
        """Return the plan of a record; raise any of several exceptions if a value cannot be used."""
        due = aware(stored.get("next_run"))
        if stored.get("next_run") and due is None:
            raise ValueError(f"its next_run is not a date: {stored['next_run']!r}")
        fields = json.loads(stored.get("job_fields") or "{}")
        if not isinstance(fields, dict):
            raise ValueError(f"its job_fields are not an object: {fields!r}")
        policy, grace_time = stored.get("misfire_policy"), read_seconds(stored.get("misfire_grace_time"))
        return cls(
            stored,
            job_class,
            Times.of(stored.get("trigger", ""), stored.get("timezone", "")),
            due,
            policy if policy in MISFIRE_POLICIES else MISFIRE_POLICIES[0],
            None if grace_time is None else timedelta(seconds=grace_time),
            min(read_seconds(stored.get("jitter")) or 0.0, MAX_JITTER),
            stored_queue_name(stored.get("queue_name", "")),
            stored_priority(stored.get("priority", "0")),
            stored_names(job_class, checked_fields(job_class, as_stored(job_class, fields))),
        )

    def identifier(self, time: datetime) -> str:
        return identifier_of(self.stored, time)
