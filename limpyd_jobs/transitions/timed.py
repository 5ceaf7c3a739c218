"""Making, changing, leasing and removing timed records, in one step each."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from math import isfinite
from typing import Any, NamedTuple, TypeVar

from limpyd.exceptions import DoesNotExist, UniquenessError
from limpyd.model import RedisModel

from limpyd_jobs.arguments import is_number, stored_value
from limpyd_jobs.exceptions import ConfigurationException
from limpyd_jobs.fields.argument import with_stored_values
from limpyd_jobs.fields.codecs import dump_compact
from limpyd_jobs.fields.new_fields import check_fields
from limpyd_jobs.functions import memoized
from limpyd_jobs.records.layout import layout_of
from limpyd_jobs.records.records import Reply, sender_of, unique
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


def make(model: Model, pk: str, fields: Fields, replaced: tuple[str, str] | None = None) -> None:
    """Do what `TimedRecord.make` says."""

    def read(reply: Reply) -> None:
        if reply["outcome"] == "existing":
            raise UniquenessError(f"There is a {model.__name__} with pk {pk} already")
        if unique(model, reply)["outcome"] == "gone" and replaced:
            raise DoesNotExist("The hash {} has no field {!r}".format(*replaced))

    if not _checked_pk(model, pk):
        raise ValueError(f"The pk of a {model.__name__} must not be empty")
    send(_put(model, pk, fields, read, is_new="1", **_checked_place(replaced)))


def change(model: Model, pk: str, fields: Fields, expected: Fields | None = None, owner: str = "") -> bool:
    """Do what `TimedRecord.change` says."""

    def read(reply: Reply) -> bool:
        if reply["outcome"] == "empty":
            raise ValueError(f"The {model.__name__} {pk} needs a field with a value: remove it instead")
        return _is_done(model, pk, unique(model, reply))

    _check_is_named(model, pk)
    return send(_put(model, pk, fields, read, **_condition(model, expected, owner)))


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


def remove(model: Model, pk: str, expected: Fields | None = None, owner: str = "") -> bool:
    """Do what `TimedRecord.remove` says."""
    due_key(model)
    _check_is_named(model, pk)
    request = {"model": layout_of(model).json, "pk": pk, **_condition(model, expected, owner)}
    keys = [leases_key(model)]
    return send(Call(sender_of(model), _remove_record, request, lambda reply: _is_done(model, pk, reply), keys=keys))


def lease_due(
    model: Model, owner: str, lease: float, moment: float, limit: int, skipped: Iterable[str] = ()
) -> list[tuple[str, dict[str, str]]]:
    """Do what `TimedRecord.lease_due` says."""

    def read(reply: Reply) -> list[tuple[str, dict[str, str]]]:
        return list(zip(reply["pks"], reply["records"], strict=True))

    if not is_number(moment) or not -LATEST <= moment <= LATEST:
        raise ValueError(f"The moment must be in seconds since the epoch, not {moment!r}")
    if isinstance(limit, bool) or not isinstance(limit, int) or limit < 1:
        raise ValueError(f"The limit must be an integer of 1 or more, not {limit!r}")
    request = {
        **given(model=layout_of(model).json, field=model.due_field, owner=owner, lease=lease, limit=limit),
        **_pks(skipped=skipped),
        "moment": f"{moment:.6f}",
    }
    return send(Call(sender_of(model), _lease_due, request, read, keys=[due_key(model), leases_key(model)]))


def next_due(model: Model, owner: str = "", returned: Iterable[str] = (), skipped: Iterable[str] = ()) -> NextDue:
    """Do what `TimedRecord.next_due` says."""

    def read(reply: Reply) -> NextDue:
        return NextDue(*(float(reply[name]) if name in reply else None for name in NextDue._fields))

    named = given(model=layout_of(model).json, field=model.due_field, owner=owner)
    request = {**named, **_pks(returned=returned, skipped=skipped)}
    return send(Call(sender_of(model), _next_due, request, read, keys=[due_key(model), leases_key(model)]))


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
