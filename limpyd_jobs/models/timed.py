"""Records that are due at a time, and that several processes look after together. Each step is one script."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from functools import partial
from math import isfinite
from typing import Any, NamedTuple, Self, TypeVar

from limpyd import fields
from limpyd.exceptions import DoesNotExist, UniquenessError
from limpyd.model import RedisModel

from limpyd_jobs.arguments import checked_lease, is_number, stored_owner, stored_value
from limpyd_jobs.dates import datetime_to_score, utcnow
from limpyd_jobs.exceptions import ConfigurationException
from limpyd_jobs.fields.argument import with_stored_values
from limpyd_jobs.fields.codecs import dump_compact
from limpyd_jobs.fields.new_fields import check_fields
from limpyd_jobs.functions import memoized
from limpyd_jobs.models.base import BaseJobsModel
from limpyd_jobs.records.layout import layout_of
from limpyd_jobs.records.records import Reply, attached, sender_of, unique
from limpyd_jobs.redis.calls import Call, given, listed, outcome_of, send
from limpyd_jobs.redis.scripting import Script

_lease_due = Script("timed/lease_due")
_next_due = Script("timed/next_due")
_put_record = Script("timed/put_record")
_remove_record = Script("timed/remove_record")

# The furthest moment, in seconds since the epoch: that of the largest date.
LATEST = 253402300799

Model = type[RedisModel]
Fields = Mapping[str, Any]
Result = TypeVar("Result")


class NextDue(NamedTuple):
    """When to look again for timed records that are due.

    Attributes
    ----------
    due: float
        When the first record that is not leased is due, in seconds since the epoch; None if there is none.
    lapse: float
        In how many seconds the first lease ends; None if there is none.
    """

    due: float | None
    lapse: float | None


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
        due_key(cls)
        if not any(value is not None for value in [*values.values(), *layout_of(cls).description["defaults"].values()]):
            raise ValueError(f"A {cls.__name__} needs a field with a value")
        if not _checked_pk(cls, pk):
            raise ValueError(f"The pk of a {cls.__name__} must not be empty")

        def read(reply: Reply) -> None:
            if reply["outcome"] == "existing":
                raise UniquenessError(f"There is a {cls.__name__} with pk {pk} already")
            if unique(cls, reply)["outcome"] == "gone" and replaced:
                raise DoesNotExist("The hash {} has no field {!r}".format(*replaced))

        send(_put(cls, pk, values, read, is_new="1", **_checked_place(replaced)))
        made: Self = attached(cls, pk)
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
        _check_is_named(cls, pk)

        def read(reply: Reply) -> bool:
            if reply["outcome"] == "empty":
                raise ValueError(f"The {cls.__name__} {pk} needs a field with a value: remove it instead")
            return _is_done(cls, pk, unique(cls, reply))

        return send(_put(cls, pk, values, read, **_condition(cls, expected, owner)))

    @classmethod
    def remove(cls, pk: str, expected: Mapping[str, Any] | None = None, owner: str = "") -> bool:
        """Delete a record, in one step, if it still is as it was read: see `change`."""
        due_key(cls)  # the class is checked
        _check_is_named(cls, pk)
        request = {"model": layout_of(cls).json, "pk": pk, **_condition(cls, expected, owner)}
        read, keys = partial(_is_done, cls, pk), [leases_key(cls)]
        return send(Call(sender_of(cls), _remove_record, request, read, keys=keys))

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
        owner, lease = stored_owner(owner), checked_lease(lease)
        if not is_number(moment) or not -LATEST <= moment <= LATEST:
            raise ValueError(f"The moment must be in seconds since the epoch, not {moment!r}")
        if isinstance(limit, bool) or not isinstance(limit, int) or limit < 1:
            raise ValueError(f"The limit must be an integer of 1 or more, not {limit!r}")
        request = {
            **given(model=layout_of(cls).json, field=cls.due_field, owner=owner, lease=lease, limit=limit),
            **_pks(skipped=skipped),
            "moment": f"{moment:.6f}",
        }
        reply = send(Call(sender_of(cls), _lease_due, request, dict, keys=[due_key(cls), leases_key(cls)]))
        return list(zip(reply["pks"], reply["records"], strict=True))

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
        named = given(model=layout_of(cls).json, field=cls.due_field, owner=owner)
        request = {**named, **_pks(returned=returned, skipped=skipped)}
        reply = send(Call(sender_of(cls), _next_due, request, dict, keys=[due_key(cls), leases_key(cls)]))
        return NextDue(*(float(reply[name]) if name in reply else None for name in NextDue._fields))


@memoized
def due_key(model: Model) -> str:
    """Return the key of the range index of the field that says when a record is due. The class is checked."""
    layout, name = layout_of(model), getattr(model, "due_field", "")
    dates = layout.description["dates"]
    ranges: list[str] = [key for key in layout.description["ranges"].get(name, ()) if key not in dates]
    if not ranges:
        raise ConfigurationException(
            f"{model.__name__}.due_field must name a field with a NumberRangeIndex, which {name!r} is not"
        )
    others = {*model._fields} - layout.plain - {model.get_field("pk").name}
    if others:
        raise ConfigurationException(
            f"The fields of {model.__name__}, a TimedRecord, must be hash fields with no index but EqualIndex, "
            f"NumberRangeIndex and DateTimeRangeIndex, unlike {', '.join(sorted(others))}"
        )
    return ranges[0]


def leases_key(model: Model) -> str:
    """Return the key of the sorted set of the leases."""
    key: str = layout_of(model).description["leases"]
    return key


def _put(model: Model, pk: str, fields: Fields, read: Callable[[Reply], Result], **request: str) -> Call[Result]:
    due_key(model)
    fields = with_stored_values(model, fields)
    check_fields(model, fields)
    _check_moment(model, fields)
    stored = {name: _stored(name, value) for name, value in fields.items()}
    request = {"model": layout_of(model).json, "pk": pk, **request}
    return Call(sender_of(model), _put_record, request, read, keys=[leases_key(model)], fields=stored)


def _check_moment(model: Any, fields: Fields) -> None:
    """Raise `ValueError` if the field that says when a record is due gets a value that is not a number."""
    moment = fields.get(model.due_field)
    if not isinstance(moment, (str, bytes, float)) or moment in ("", b""):
        return  # other values are refused, as by any field
    with suppress(ValueError):  # other digits than those of ASCII are a number to Python only
        if isfinite(float(moment)) and (isinstance(moment, float) or moment.isascii()):
            return
    raise ValueError(f"{model.due_field} must be in seconds since the epoch, not {moment!r}")


def _checked_pk(model: Model, pk: Any) -> str:
    if isinstance(pk, bool) or not isinstance(pk, (str, int)):
        raise TypeError(f"The pk of a {model.__name__} must be a text, not {pk!r}")
    return str(pk)


def _check_is_named(model: Model, pk: Any) -> None:
    if not _checked_pk(model, pk):
        raise DoesNotExist(f"No {model.__name__} has an empty pk")


def _checked_place(replaced: Any) -> dict[str, str]:
    if replaced is None:
        return {}
    if not (isinstance(replaced, tuple) and [type(each) for each in replaced] == [str, str]):
        raise TypeError(f"What is replaced must be a tuple of a key and a field, not {replaced!r}")
    return {"replaced_key": replaced[0], "replaced_field": replaced[1]}


def _stored(name: str, value: Any) -> str:
    return "" if value is None else stored_value(name, value)


def _condition(model: Any, expected: Fields | None, owner: str) -> dict[str, str]:
    if not expected:
        return given(owner=owner)
    # another program may have written a text that is too long to be written here
    check_fields(model, {name: "" if isinstance(value, str) else value for name, value in expected.items()})
    known = with_stored_values(model, expected)
    # a text is as it was read, even if it is not UTF-8
    texts = {name: value if isinstance(value, str) else _stored(name, value) for name, value in known.items()}
    return given(expected=dump_compact(texts), owner=owner, due_field=model.due_field)


def _pks(**lists: Iterable[str]) -> dict[str, str]:
    for name, pks in lists.items():
        if isinstance(pks, str):  # each of its letters would be one
            raise TypeError(f"{name} must be a list of pks, as [{pks!r}], not {pks!r}")
    return {name: listed(pks) for name, pks in lists.items() if pks}


def removal_of_schedule(model: Model, pk: str, key: str, expected: Mapping[str, str]) -> Call[str]:
    """Return the call that deletes a schedule if some of its fields are so, but not its place among those that are due,
    which `key` names; it returns ``done``, ``gone`` or ``changed``."""
    request = {"model": layout_of(model).json, "pk": pk, "expected": dump_compact(expected)}
    return Call(sender_of(model), _remove_record, request, outcome_of, keys=[key])


def _is_done(model: Model, pk: str, reply: Reply) -> bool:
    if reply["outcome"] == "gone":
        raise DoesNotExist(f"No {model.__name__} found with pk {pk}")
    return bool(reply["outcome"] != "changed")
