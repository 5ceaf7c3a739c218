"""Arguments: the fields of a job that are given when it is added, and never change."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from types import ModuleType
from typing import Any

from limpyd.model import RedisModel

from limpyd_jobs.arguments import check_size
from limpyd_jobs.store.atomic_fields import AtomicHashField
from limpyd_jobs.store.codecs import Stored, codec_of
from limpyd_jobs.store.layout import layout_of
from limpyd_jobs.store.lazy_fields import why_fixed
from limpyd_jobs.utils import memoized

# The text of one argument. It travels with the claim of the job, so a script has to hold it.
MAX_BYTES = 512 * 1024

_MISSING: Any = object()


class Argument(AtomicHashField):
    """A field of a job class that is given when a job is added, and never changes: ``size = Argument(int)``.

    Its value comes along when a worker claims the job: inside `run`, ``job.size.hget()``, the text that is stored, and
    ``job.arguments.size``, the value, cost no round trip.

    Parameters
    ----------
    kind: type, or the module json
        What a value has to be: ``str``, ``int``, ``float``, ``bool``, ``bytes`` or ``datetime``; with ``json``,
        anything that JSON can hold, and bytes in it.
    default: object
        The value if none is given; without one, `add_job` wants the argument.
    **attributes
        What limpyd's fields take: ``indexable``, ``unique``, ``indexes``.
    """

    stores_the_same = is_fixed = True

    # limpyd makes the field of an instance with these
    _copy_conf = {**AtomicHashField._copy_conf, "kwargs": [*AtomicHashField._copy_conf["kwargs"], "kind"]}

    def __init__(self, kind: type | ModuleType = str, *, default: Any = _MISSING, **attributes: Any) -> None:
        self.kind, self.codec = kind, codec_of(kind)
        self.is_needed = default is _MISSING
        if not self.is_needed:
            attributes["default"] = self.codec.stored("The default of an argument", default)
        super().__init__(**attributes)

    def stored(self, value: Any) -> Stored:
        """Return the text that is stored for a value.

        Raises
        ------
        TypeError
            If the value is of another kind.
        ValueError
            If it is too long.
        """
        what = f"The argument {self.name!r} of {self._model.__name__}"
        text = self.codec.stored(what, value)
        check_size(what, text, MAX_BYTES)
        return text

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
        """Set it as a record is made; it has no value then."""
        if not super()._call_command("hsetnx", self.stored(value)):
            raise AttributeError(why_fixed(self._model, self.name))
        return 1

    def delete(self) -> Any:
        """Delete it, as its job is."""
        return super()._call_command("hdel")


class Arguments:
    """The arguments of a job, as the values they were given: ``job.arguments.size``. They are read at once, if need be.

    Raises
    ------
    AttributeError
        If the class has no such argument, or if one is set.
    """

    def __init__(self, job: RedisModel) -> None:
        vars(self)["_job"] = job

    def __setattr__(self, name: str, value: Any) -> None:
        raise AttributeError(why_fixed(type(self._job), name), name=name, obj=self)

    def __getattr__(self, name: str) -> Any:
        fields = arguments_of(type(self._job))
        if name not in fields:
            raise AttributeError(f"{type(self._job).__name__} has no argument {name!r}", name=name, obj=self)
        text = self._texts(fields).get(name)
        return None if text is None else fields[name].codec.load(text)

    def _texts(self, fields: Mapping[str, Argument]) -> dict[str, str | None]:
        known: dict[str, str | None] = vars(self._job).setdefault("_arguments", {})
        missing = [name for name in fields if name not in known]
        if missing:
            known.update(zip(missing, self._job.hmget(*missing), strict=True))
        return known

    def __dir__(self) -> list[str]:
        return [*arguments_of(type(self._job))]

    def __repr__(self) -> str:
        return f"<{', '.join(f'{name}={getattr(self, name)!r}' for name in dir(self))}>"


class ArgumentsOfJob:
    """What gives a job its `Arguments`, and gives way to a field or method of that name of an application."""

    def __get__(self, job: Any, owner: type) -> Any:
        return self if job is None else Arguments(job)


def stored_arguments(job_class: type[RedisModel], given: Mapping[str, Any]) -> dict[str, Stored]:
    """Return the arguments among the fields of a new job, as they are stored.

    Raises
    ------
    TypeError, ValueError
        If one is missing, of another kind, or too long.
    """
    fields = arguments_of(job_class)
    missing = [name for name, field in fields.items() if field.is_needed and name not in given]
    if missing:
        raise TypeError(f"{job_class.__name__} needs the argument {', '.join(map(repr, missing))}")
    return {name: field.stored(given[name]) for name, field in fields.items() if name in given}


def know_arguments(job: RedisModel, texts: Sequence[Any]) -> None:
    """Let a job know its arguments, as they came with its claim, in the order of its layout."""
    if texts:
        known = zip(layout_of(type(job)).description["arguments"], texts, strict=True)
        vars(job)["_arguments"] = {name: None if text is False else text for name, text in known}


def as_stored(job_class: type[RedisModel], texts: Mapping[str, Any]) -> dict[str, Any]:
    """Say of the arguments among fields that were stored before that they are texts, not values."""
    arguments = arguments_of(job_class)
    return {name: Stored(text) if name in arguments else text for name, text in texts.items()}


@memoized
def arguments_of(model: type[RedisModel]) -> dict[str, Argument]:
    """Return the arguments of a model by their names."""
    fields = {name: model.get_class_field(name) for name in model._fields}
    return {name: field for name, field in fields.items() if isinstance(field, Argument)}
