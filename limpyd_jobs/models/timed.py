"""Records that are due at a time, and that several processes look after together."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, Self

from limpyd import fields

from limpyd_jobs.arguments import checked_lease, stored_owner
from limpyd_jobs.dates import datetime_to_score, utcnow
from limpyd_jobs.models.base import BaseJobsModel
from limpyd_jobs.records import records
from limpyd_jobs.records.layout import layout_of
from limpyd_jobs.transitions import timed
from limpyd_jobs.transitions.timed import NextDue


class TimedRecord(BaseJobsModel):
    """A record that is due at a time. The process that looks after it leases it, so that no other one does.

    A subclass has a field for the moment, in seconds since the epoch, with a `NumberRangeIndex`. A record without a
    value of this field is never due. All fields must be hash fields with no index but `EqualIndex`,
    `NumberRangeIndex` and `DateTimeRangeIndex`.

    >>> class Reminder(TimedRecord):
    ...     due_field = "at"
    ...     at = fields.InstanceHashField(indexable=True, indexes=[NumberRangeIndex])
    ...     text = fields.InstanceHashField()
    >>> Reminder.make("tea", {"at": time.time() + 180, "text": "Take the bag out"})
    >>> for pk, stored in Reminder.lease_due(owner="kitchen 1"):
    ...     print(stored["text"])
    ...     Reminder.remove(pk, expected={"at": stored["at"]})

    A lease ends when its owner changes the record with its name, removes it, or gives it back by `next_due`. It also
    ends by itself, so that no record is lost with a process. Leases go by the clock of Redis. An owner renews its
    leases by calling `lease_due` again.

    Attributes
    ----------
    due_field: str
        The name of the field that says when a record is due.
    """

    abstract = True
    due_field = ""

    leased_by = fields.InstanceHashField(indexable=True)

    @classmethod
    def make(cls, pk: str, values: Mapping[str, Any], replaced: tuple[str, str] | None = None) -> Self:
        """Make a record, in one step.

        Parameters
        ----------
        values: mapping
            The values of fields, by their names.
        replaced: tuple of str
            The key of a hash, and a field of it that the record takes the place of: it is deleted in the same step. So
            several processes can take over other data together.

        Raises
        ------
        ValueError
            If no field has a value, or the moment when it is due is not a number. A record needs a value.
        UniquenessError
            If there is a record of that pk already, or one with the value of a unique field.
        DoesNotExist
            If the field that is to be replaced is gone.
        ConfigurationException
            If the fields of the class are not as described above.
        """
        timed.due_key(cls)
        if not any(value is not None for value in [*values.values(), *layout_of(cls).description["defaults"].values()]):
            raise ValueError(f"A {cls.__name__} needs a field with a value")
        timed.make(cls, pk, values, replaced)
        made: Self = records.attached(cls, pk)
        return made

    @classmethod
    def change(
        cls, pk: str, values: Mapping[str, Any], expected: Mapping[str, Any] | None = None, owner: str = ""
    ) -> bool:
        """Change some fields of a record, in one step, if it still is as it was read.

        Parameters
        ----------
        values: mapping
            None unsets a field.
        expected: mapping
            The values that fields must have; None for a field that must have no value.
        owner: str
            Who leases the record. That lease ends. It goes on only if False is returned, and `expected` has the moment
            when the record is due, which is not changed.

        Returns
        -------
        bool
            False if one of the fields has another value: then nothing is changed.

        Raises
        ------
        DoesNotExist
            If there is no such record.
        UniquenessError
            If another record has the value of a unique field.
        AttributeError
            If there is no such field.
        TypeError, ValueError
            If the moment when it is due is not a number, or no field would have a value any more, or an argument is
            invalid.
        """
        return timed.change(cls, pk, values, expected, owner)

    @classmethod
    def remove(cls, pk: str, expected: Mapping[str, Any] | None = None, owner: str = "") -> bool:
        """Delete a record, in one step, if it still is as it was read: see `change`."""
        return timed.remove(cls, pk, expected, owner)

    @classmethod
    def lease_due(
        cls,
        owner: str,
        lease: float = 30,
        moment: float | None = None,
        limit: int = 1000,
        skipped: Iterable[str] = (),
    ) -> list[tuple[str, dict[str, str]]]:
        """Lease the records that are due, the earliest first, including those that the owner leases already.

        Parameters
        ----------
        owner: str
            Who looks after them, up to 1 kB.
        lease: float
            For how long, in seconds.
        moment: float
            Records that are due at this moment are leased, in seconds since the epoch; by default now, by the clock of
            this machine.
        limit: int
            How many records at most.
        skipped: iterable of str
            The pks of records to pass over.

        Returns
        -------
        list of tuple
            The pk, and the stored texts by the names of the fields, of each.

        Raises
        ------
        TypeError, ValueError
            If an argument is invalid.
        """
        moment = datetime_to_score(utcnow()) if moment is None else moment
        return timed.lease_due(cls, stored_owner(owner), checked_lease(lease), moment, limit, skipped)

    @classmethod
    def next_due(cls, owner: str = "", returned: Iterable[str] = (), skipped: Iterable[str] = ()) -> NextDue:
        """Return when to look again.

        Parameters
        ----------
        owner: str
            The owner whose leases are given back.
        returned: iterable of str
            The pks of the records of these leases.
        skipped: iterable of str
            The pks of records that do not count.
        """
        return timed.next_due(cls, owner, returned, skipped)
