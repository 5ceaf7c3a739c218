"""Fields that hold values of Python; and arguments, which are given when a job is added, and never change."""

from __future__ import annotations

import json
import pickle
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Generic, TypeVar, dataclass_transform, overload

from limpyd.model import RedisModel

from limpyd_jobs.arguments import check_size
from limpyd_jobs.fields.atomic_fields import AtomicHashField
from limpyd_jobs.fields.codecs import Stored, codec_of
from limpyd_jobs.fields.own_fields import is_own
from limpyd_jobs.functions import memoized
from limpyd_jobs.records.layout import layout_of
from limpyd_jobs.records.lazy_fields import why_fixed
from limpyd_jobs.texts import one_line

if TYPE_CHECKING:
    from typing import Never

# The longest text of one argument. It travels with the claim of the job, so a script has to hold it.
MAX_BYTES = 512 * 1024

_MISSING: Any = object()

Value = TypeVar("Value")
JobClass = TypeVar("JobClass", bound=type)


class ValueField(AtomicHashField, Generic[Value]):
    """A field that holds a value of Python, stored as text that people and other programs can read: ``options =
    ValueField(json)``. It is set like any field, ``record.options.hset({"size": 5})``, and read by ``options.value()``.

    Parameters
    ----------
    kind: type, or the module json or pickle
        The kind of values: ``str``, ``int``, ``float``, ``bool``, ``bytes`` or ``datetime``; with ``json``, anything
        that JSON can hold, and bytes in it; with ``pickle``, any object, but reading it runs any code in it. Also
        what annotations say: ``date``, ``time``, ``timedelta``, ``Decimal``, ``UUID``, a path, an Enum, a dataclass,
        ``Literal``, ``Any`` for JSON; and lists, tuples, sets, dictionaries, unions and ``Optional`` of all these.
    default: object
        The value of a new record, if no value is given.
    **attributes
        As limpyd's fields take them: ``indexable``, ``unique``, ``indexes``. An index holds texts, as they are stored.
    """

    stores_the_same = True

    # limpyd makes the field of an instance with these
    _copy_conf = {**AtomicHashField._copy_conf, "kwargs": [*AtomicHashField._copy_conf["kwargs"], "kind"]}

    _word = "field"

    if TYPE_CHECKING:

        def hset(self, value: Value) -> int: ...
        def hsetnx(self, value: Value) -> int: ...

        # `typed` reads here what to give for the field. It cannot be assigned: there is no such instance.
        def __set__(self, instance: Never, value: Value) -> None: ...

    @overload
    def __init__(self: ValueField[Any], *, default: Any = ..., **attributes: Any) -> None: ...

    @overload
    def __init__(self, kind: type[Value], *, default: Value = ..., **attributes: Any) -> None: ...

    @overload
    def __init__(self: ValueField[Any], kind: Any, *, default: Any = ..., **attributes: Any) -> None: ...

    def __init__(self, kind: Any = json, *, default: Any = _MISSING, **attributes: Any) -> None:
        self.kind, self.codec = kind, codec_of(kind)
        if default is not _MISSING:
            attributes["default"] = self.codec.stored(f"The default of {self._word}", default)
        super().__init__(**attributes)

    def stored(self, value: Value) -> Stored:
        """Return the text that is stored for a value.

        Raises
        ------
        TypeError
            If the value is of another kind.
        ValueError
            If the text is too long.
        """
        what = f"The {self._word.split()[-1]} {self.name!r} of {self._model.__name__}"
        text = self.codec.stored(what, value)
        check_size(what, text, MAX_BYTES)
        return text

    def read(self, text: str) -> Value:
        """Return the value of a text that was written as it is stored.

        Raises
        ------
        ValueError
            If it is not the text of a value, or if reading it could run code.
        """
        what = f"The {self._word.split()[-1]} {self.name!r} of {self._model.__name__}"
        if self.kind is pickle:
            raise ValueError(f"{what} is stored with pickle, so it cannot be given as text")
        known = {"true": True, "1": True, "false": False, "0": False}
        try:
            value: Any = known.get(text.lower()) if self.kind is bool else self.codec.load(text)
            self.codec.stored(what, value)
        except (TypeError, ValueError, RecursionError):
            raise ValueError(f"{what} must be {self.codec.name}, not {one_line(text)!r}") from None
        return value

    def value(self) -> Value | None:
        """Return the value that is stored now; None without a value.

        Raises
        ------
        ValueError
            If the stored text is not the text of a value.
        """
        text = self.hget()
        return None if text is None else self.codec.load(text)

    def proxy_set(self, value: Any) -> Any:
        """Set the value; limpyd would take a list or a dictionary for several arguments."""
        return self.hset(value)

    def _call_command(self, name: str, *args: Any, **kwargs: Any) -> Any:
        if name in ("hset", "hsetnx"):
            args = tuple(map(self.stored, args))
        return super()._call_command(name, *args, **kwargs)


class Argument(ValueField[Value]):
    """A field of a job class that is given when a job is added, and never changes: ``size = Argument(int)``. Only
    `limpyd_jobs.query.edit_job` gives it another value, before the job runs.

    Its value comes with the claim of the job. So, inside `run`, ``job.size.hget()``, the stored text, and
    ``job.arguments.size``, the value, cost no round trip. Without a default, `add_job` requires the argument. For the
    parameters see `ValueField`; the kind is ``str`` by default.
    """

    stores_the_same = is_fixed = True

    _word = "an argument"

    if TYPE_CHECKING:
        # None only of a job that was added before its class had the argument
        def value(self) -> Value: ...

    @overload
    def __init__(self: Argument[str], *, default: str = ..., **attributes: Any) -> None: ...

    @overload
    def __init__(self, kind: type[Value], *, default: Value = ..., **attributes: Any) -> None: ...

    @overload
    def __init__(self: Argument[Any], kind: Any, *, default: Any = ..., **attributes: Any) -> None: ...

    def __init__(self, kind: Any = str, *, default: Any = _MISSING, **attributes: Any) -> None:
        self.is_needed = default is _MISSING
        super().__init__(kind, default=default, **attributes)

    def _call_command(self, name: str, *args: Any, **kwargs: Any) -> Any:
        known = vars(self._instance).get("_arguments", {})
        if name == "hget" and self.name in known:
            return known[self.name]
        if name == "hset":
            return self._set_once(*args)
        if name in self.available_modifiers and name != "hsetnx":
            raise AttributeError(why_fixed(self._model, self.name))
        return super()._call_command(name, *args, **kwargs)

    def _set_once(self, value: Any) -> Any:
        """Set the value when a record is made: it has none yet."""
        if not super()._call_command("hsetnx", value):
            raise AttributeError(why_fixed(self._model, self.name))
        return 1

    def delete(self) -> Any:
        """Delete the field, together with its job."""
        return super()._call_command("hdel")

    def __str__(self) -> str:
        """Refuse to be text in place of the value, such as the address of a mail."""
        if getattr(self, "_instance", None) is None:  # the field of a class
            return repr(self)
        raise TypeError(
            f"job.{self.name} is the field of an argument, not its value: write job.arguments.{self.name}, or "
            f"job.{self.name}.hget() for the stored text"
        )

    def __format__(self, how: str) -> str:
        return format(str(self), how)


@dataclass_transform(kw_only_default=True, eq_default=False, field_specifiers=(Argument,))
def typed(job_class: JobClass) -> JobClass:
    """Let type checkers see the arguments of a class of jobs, so that they check each call of `Job.add`.

    >>> @typed
    ... class SendMail(Job):
    ...     queue_name = "mails"
    ...     to: Argument[str] = Argument(str)
    ...     size: Argument[int] = Argument(int, default=3)
    >>> SendMail.add(to="ann")
    >>> SendMail.add(to=5)  # refused by mypy and pyright

    Each argument needs an annotation. So do other fields that `add` is to take. An annotated attribute that is no field
    is a ``ClassVar``. When the code runs, the decorator does nothing.
    """
    return job_class


class Arguments:
    """The arguments of a job, as values: ``job.arguments.size``. If need be, all are read in one step.

    Raises
    ------
    AttributeError
        If the class has no such argument, or if code tries to set one.
    """

    def __init__(self, job: RedisModel) -> None:
        vars(self)["_job"] = job

    def __setattr__(self, name: str, value: Any) -> None:
        raise AttributeError(why_fixed(type(self._job), name), name=name, obj=self)

    def __getattr__(self, name: str) -> Any:
        fields = arguments_of(type(self._job))
        if name not in fields:
            raise AttributeError(f"{type(self._job).__name__} has no argument {name!r}", name=name, obj=self)
        text = texts_of(self._job, fields).get(name)
        return None if text is None else fields[name].codec.load(text)

    def __dir__(self) -> list[str]:
        return [*arguments_of(type(self._job))]

    def __repr__(self) -> str:
        return f"<{', '.join(f'{name}={getattr(self, name)!r}' for name in dir(self))}>"


class ArgumentsOfJob:
    """Gives a job its `Arguments`, unless the application has a field or method of that name."""

    def __get__(self, job: Any, owner: type) -> Any:
        return self if job is None else Arguments(job)


def texts_of(job: RedisModel, names: Iterable[str]) -> dict[str, str | None]:
    """Return the stored arguments of a job. Those that are not known yet are read, in one step."""
    known: dict[str, str | None] = vars(job).setdefault("_arguments", {})
    missing = [name for name in names if name not in known]
    if missing:
        known.update(zip(missing, job.hmget(*missing), strict=True))
    return known


def stored_arguments(job_class: type[RedisModel], given: Mapping[str, Any], *, is_new: bool) -> dict[str, Stored]:
    """Return the arguments among some fields, as they are stored. None may be missing of a new job."""
    fields = arguments_of(job_class)
    missing = [name for name, field in fields.items() if is_new and field.is_needed and name not in given]
    if missing:
        raise TypeError(f"{job_class.__name__} needs the argument {', '.join(map(repr, missing))}")
    return {name: field.stored(given[name]) for name, field in fields.items() if name in given}


def know_arguments(job: RedisModel, texts: Sequence[Any]) -> None:
    """Keep what came with the claim of a job, in the order of its layout, on its object."""
    known = zip(layout_of(type(job)).travelling, texts, strict=False)
    vars(job)["_arguments"] = {name: None if text is False else text for name, text in known}


def as_stored(job_class: type[RedisModel], texts: Mapping[str, Any]) -> dict[str, Any]:
    """Mark the arguments, and the fields of this library, among fields that were stored before as texts, not values."""
    arguments = arguments_of(job_class)
    return {
        name: Stored(text) if name in arguments or is_own(job_class, name) else text for name, text in texts.items()
    }


def know_all_arguments(job: RedisModel) -> None:
    """Read the arguments of a job that are not known yet, so that they can be had without a question to Redis."""
    texts_of(job, arguments_of(type(job)))


@memoized
def arguments_of(model: type[RedisModel]) -> dict[str, Argument[Any]]:
    """Return the arguments of a model by their names."""
    fields = {name: model.get_class_field(name) for name in model._fields}
    return {name: field for name, field in fields.items() if isinstance(field, Argument)}


@memoized
def value_fields_of(model: type[RedisModel]) -> dict[str, ValueField[Any]]:
    """Return the fields of a model that hold values, without the arguments, by their names."""
    fields = {name: model.get_class_field(name) for name in model._fields}
    return {name: each for name, each in fields.items() if isinstance(each, ValueField) and not each.is_fixed}


def with_stored_values(model: type[RedisModel], fields: Mapping[str, Any]) -> dict[str, Any]:
    """Return fields with the stored texts of their values; None stays."""
    given = {name: field for name, field in value_fields_of(model).items() if fields.get(name) is not None}
    return {**fields, **{name: field.stored(fields[name]) for name, field in given.items()}}
