"""What the record of a schedule says is to be done when it is due."""

from __future__ import annotations

import json
from collections.abc import Mapping
from datetime import datetime, timedelta
from typing import Any, NamedTuple

from limpyd_jobs.arguments import read_seconds, stored_priority, stored_queue_name
from limpyd_jobs.models import Job
from limpyd_jobs.new_fields import checked_fields, stored_names
from limpyd_jobs.schedules.catching_up import CATCH_UP
from limpyd_jobs.schedules.model import aware, identifier_of
from limpyd_jobs.schedules.triggers import Times


class Plan(NamedTuple):
    """A schedule as its record has it, each value checked: anybody may have written it.

    Attributes
    ----------
    stored: mapping of str to str
        The record.
    job_class: type of Job
    times: Times
    due: datetime
        The next time, aware; None for never.
    catch_up: str
    grace: timedelta
        None for any.
    queue_name, priority: str
    fields: mapping
        The fields of its jobs.
    """

    stored: Mapping[str, str]
    job_class: type[Job]
    times: Times
    due: datetime | None
    catch_up: str
    grace: timedelta | None
    queue_name: str
    priority: str
    fields: Mapping[str, Any]

    @classmethod
    def read(cls, stored: Mapping[str, str], job_class: type[Job]) -> Plan:
        """Return what a record says.

        Raises
        ------
        ConfigurationException
            If APScheduler is not installed.
        ValueError, TypeError, LookupError, AttributeError
            If something in it cannot be used: the last one if the class has no such field.
        """
        due = aware(stored.get("next_run"))
        if stored.get("next_run") and due is None:
            raise ValueError(f"its next_run is no date: {stored['next_run']!r}")
        fields = json.loads(stored.get("job_fields") or "{}")
        if not isinstance(fields, dict):
            raise ValueError(f"its job_fields are no object: {fields!r}")
        catch_up, grace = stored.get("catch_up"), read_seconds(stored.get("grace"))
        return cls(
            stored,
            job_class,
            Times(json.loads(stored.get("trigger", "")), stored.get("timezone", "")),
            due,
            catch_up if catch_up in CATCH_UP else CATCH_UP[0],
            None if grace is None else timedelta(seconds=grace),
            stored_queue_name(stored.get("queue_name", "")),
            stored_priority(stored.get("priority", "0")),
            stored_names(job_class, checked_fields(job_class, fields)),
        )

    def identifier(self, time: datetime) -> str:
        """Return the identifier of the job of one of its times."""
        return identifier_of(self.stored, time)
