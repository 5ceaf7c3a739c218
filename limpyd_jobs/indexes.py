"""An index of dates, and which indexes of fields the scripts maintain."""

from __future__ import annotations

from datetime import datetime
from typing import Any

from limpyd.indexes import BaseIndex, EqualIndex, NumberRangeIndex

from limpyd_jobs.dates import datetime_to_score, parse_datetime
from limpyd_jobs.functions import overrides


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


def special_indexes(field: Any) -> list[Any]:
    """Return the indexes of a field that only limpyd can maintain: all but plain ones of `EqualIndex`, and of
    ranges if the field is not unique."""
    return [index for index in field._indexes if not _is_plain(index) and (field.unique or not _is_plain_range(index))]


def prefixes(field: Any) -> list[str]:
    """Return the beginnings of the keys of the plain indexes of `EqualIndex` of a field."""
    return [index.get_storage_key("") for index in field._indexes if _is_plain(index)]


def range_keys(field: Any, kind: type[BaseIndex] = NumberRangeIndex) -> list[str]:
    """Return the keys of the plain range indexes of a field."""
    ranges = [] if field.unique else [index for index in field._indexes if _is_plain_range(index)]
    return [index.get_storage_key("") for index in ranges if isinstance(index, kind)]


_OF_INDEXES = ("add", "remove", "store", "unstore", "get_storage_key", "normalize_value", "transform")


def _is_plain(index: BaseIndex) -> bool:
    """Whether an index keeps the pks of a value in a set whose key ends with that value."""
    return isinstance(index, EqualIndex) and not overrides(type(index), EqualIndex, *_OF_INDEXES)


def _is_plain_range(index: BaseIndex) -> bool:
    """Whether an index keeps all pks in one sorted set, with the value as a number, or as a date."""
    base = DateTimeRangeIndex if isinstance(index, DateTimeRangeIndex) else NumberRangeIndex
    names = (*_OF_INDEXES, "prepare_data_to_store", "raise_if_not_float")
    return isinstance(index, base) and not overrides(type(index), base, *names)
