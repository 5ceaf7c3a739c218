"""An index of dates."""

from __future__ import annotations

from datetime import datetime
from typing import Any

from limpyd.indexes import NumberRangeIndex

from limpyd_jobs.dates import datetime_to_score, parse_datetime


class DateTimeRangeIndex(NumberRangeIndex):
    """An index of a field that holds dates: it finds dates before or after a moment, however many there are.

    A date is a text as Python's ``str`` or ``isoformat`` make it from a datetime or a date, in UTC unless it names
    another offset. A record whose value is not a date is not in the index. Field and index change in one step.

    >>> class Delivery(Job):
    ...     added = fields.InstanceHashField(indexable=True, indexes=[DateTimeRangeIndex])
    >>> Delivery.collection(added__gte=datetime(2026, 11, 20))
    """

    key = "datetime-range"

    def normalize_value(self, value: Any, transform: bool = True) -> float | None:
        """Return a moment in seconds since the epoch, to the microsecond; None for a value that is not a date."""
        if transform:
            value = self.transform_value(value)
        moment = value if isinstance(value, datetime) else parse_datetime(str(value))
        return None if moment is None else datetime_to_score(moment)

    def get_boundaries(self, filter_type: str | None, value: float | None) -> tuple[Any, Any, Any]:
        """Return the range of scores of the records that a filter asks for.

        Raises
        ------
        ValueError
            If it compares with a value that is not a date.
        """
        if value is None:
            raise ValueError(f"{self.model.__name__}.{self.field.name} is compared with a date, as 2026-11-20T10:30")
        boundaries: tuple[Any, Any, Any] = super().get_boundaries(filter_type, value)
        return boundaries
