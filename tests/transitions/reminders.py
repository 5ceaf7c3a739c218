"""A model of timed records, for the tests of their scripts."""

from __future__ import annotations

from limpyd import fields
from limpyd.indexes import EqualIndex, NumberRangeIndex

from limpyd_jobs import TimedRecord

DUE = "lab:reminder:at:number-range"
LEASES = "lab:reminder:leases"


class Reminder(TimedRecord):
    namespace = "lab"
    due_field = "at"
    at = fields.InstanceHashField(indexable=True, indexes=[EqualIndex, NumberRangeIndex])
    text = fields.InstanceHashField(indexable=True)
    colour = fields.InstanceHashField(default="blue")
    code = fields.InstanceHashField(unique=True)


def stored(pk: str) -> dict[str, str]:
    found: dict[str, str] = Reminder.get_connection().hgetall(f"lab:reminder:{pk}:hash")
    return found
