"""Records whose fields are made when they are used. limpyd copies all fields for each instance, which takes longer than
everything else that adds a job, and most fields are never used."""

from __future__ import annotations

from collections.abc import Callable
from copy import copy
from typing import TYPE_CHECKING, Any, cast

from limpyd.fields import RedisField

from limpyd_jobs.classes.roots import roots
from limpyd_jobs.exceptions import LimpydJobsException
from limpyd_jobs.functions import memoized
from limpyd_jobs.records.limpyd_types import RedisModel


class _OfBoth:
    """A method that does one thing for the class, and another one for an instance.

    limpyd puts the latter into each instance, which then refers to itself: the garbage collector has to find each.
    """

    def __init__(self, of_class: str, of_instance: str) -> None:
        self._of_class = of_class
        self._of_instance = of_instance

    def __get__(self, instance: Any, owner: type) -> Any:
        return getattr(owner, self._of_class) if instance is None else getattr(instance, self._of_instance)


class LazyModel(RedisModel):
    """A model whose instances make each of their fields when it is first used."""

    abstract = True

    # what limpyd gives each instance
    _connected = False
    _init_fields: Any = frozenset()

    get_field = _OfBoth("get_class_field", "get_instance_field")
    get_fields = _OfBoth("get_class_fields", "get_instance_fields")

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        cls: Any = type(self)
        if args or kwargs or cls.__getattr__ is not _GETATTR:
            super().__init__(*args, **kwargs)
            return
        self.__dict__["_pk"] = None
        for name in _hidden_fields(cls):
            cls.__getattr__(self, name)

    @classmethod
    def lazy_connect(cls, pk: Any) -> Any:
        """Return the instance of a record that may not exist, as limpyd does, but without an object for its pk."""
        instance = cls()
        instance.__dict__.update(_pk=cls.get_class_field("pk").normalize(pk))
        return instance

    def __setattr__(self, name: str, value: Any) -> None:
        """Refuse to replace a field by a value, because that would store nothing. Any other attribute may be set."""
        if name[0] != "_" and name in _field_names(type(self)) and not isinstance(value, RedisField):
            raise AttributeError(_why_not_assigned(type(self), name), name=name, obj=self)
        object.__setattr__(self, name, value)

    def _made_field(self, name: str) -> Any:
        cls = type(self)
        if name not in cls._fields and name != "pk":
            raise AttributeError(f"{cls.__name__!r} object has no attribute {name!r}", name=name, obj=self)
        original = cls.get_class_field(name)
        if original.name != name:  # `pk`, if the model has another name for it
            return getattr(self, original.name)
        field = copy(original)
        field._attach_to_instance(self)
        self.__dict__[name] = field
        return field

    if not TYPE_CHECKING:  # else type checkers would take any name for one that exists
        __getattr__ = _made_field


_GETATTR: Any = LazyModel._made_field


def is_plain(model: type[LazyModel]) -> bool:
    """Whether a new instance, without arguments, is nothing but the fields that it makes when they are used: no class
    of an application stands between our bases, and no other model is related to this one."""
    if not _comes_from_ours(model):
        return False
    relations = getattr(model.database, "_relations", None)
    return not relations or model._name.lower() not in relations


@memoized
def _comes_from_ours(model: Any) -> bool:
    ours = roots.base.__mro__
    return model.__mro__[-len(ours) :] == ours and model.__getattr__ is _GETATTR


def attached(model: Any, pk: str, **known: Any) -> Any:
    """Return the instance of a record that is known to exist, with some attributes, without asking Redis."""
    relations = getattr(model.database, "_relations", None)
    if _is_bare(model, model.__init__) and not (relations and model._name.lower() in relations):
        instance = model.__new__(model)
        instance.__dict__["related_collections"] = []
    else:
        instance = model()
    vars(instance).update(_pk=_normalizer(model)(pk), _connected=True, **known)
    return instance


@memoized
def _is_bare(model: type[LazyModel], init: object) -> bool:
    """Whether a new instance without arguments is nothing but its fields, as `is_plain`, and none is made at once."""
    return init is roots.base.__init__ and _comes_from_ours(model) and not _hidden_fields(model)


@memoized
def _normalizer(model: type[RedisModel]) -> Callable[[str], str]:
    return cast("Callable[[str], str]", model.get_field("pk").normalize)


def _why_not_assigned(model: type[LazyModel], name: str) -> str:
    field = model.get_class_field(name)
    if getattr(field, "is_fixed", False):
        return why_fixed(model, name)
    return (
        f"{name!r} is a field of {model.__name__}, and is not set by an assignment, which would store nothing: "
        f"use .{name}.{field.proxy_setter}(…)"
    )


def why_fixed(model: type[RedisModel], name: str) -> str:
    """Return the message for a field that must not be changed."""
    return f"{name!r} is an argument of {model.__name__}, given when a job is added: it never changes"


@memoized
def _field_names(model: type[LazyModel]) -> frozenset[str]:
    return frozenset(model._fields)


@memoized
def _hidden_fields(model: type[LazyModel]) -> tuple[str, ...]:
    """Return the fields whose names a class uses otherwise: made at once, so that their names lead to them."""
    return tuple(name for name in model._fields if hasattr(model, name))


def has_method(record: LazyModel, name: str) -> bool:
    """Whether a record has a method, or another callable, of a name. It is fast if nothing has that name."""
    cls: Any = type(record)
    may_have = name in vars(record) or cls.__getattr__ is not _GETATTR or hasattr(cls, name)
    return may_have and callable(getattr(record, name, None))


def pk_of(record: RedisModel) -> Any:
    """Return the pk of a record, without making its field. If the record has no pk, it gets one; if it was deleted
    through this instance, `DoesNotExist` is raised."""
    return vars(record).get("_pk") or record.pk.get()


def hash_key_of(record: RedisModel) -> str:
    """Return the key of the hash of a record."""
    return f"{record._name}:{pk_of(record)}:hash"


def queue_key_of(queue: RedisModel) -> str:
    """Return the beginning of the keys of a queue: its model's name and its pk."""
    return f"{queue._name}:{vars(queue).get('_pk') or pk_of(queue)}"  # most have it


def held_token(job: Any, act: str) -> str:
    """Return the token of the claim that a job holds while its code runs here, for an act that only that may do."""
    token = vars(job).get("_held_token")
    if not token:
        raise LimpydJobsException(f"{job.ident} does not run here: only its own code can {act}")
    return str(token)
