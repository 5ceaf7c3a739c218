"""Models of pydantic, Structs of msgspec and TypedDicts as values of arguments. Neither library is imported here: an
application that has such a class has imported it."""

from __future__ import annotations

import sys
import typing
from collections.abc import Callable
from functools import partial
from typing import Any

from limpyd_jobs.fields.form import ALL_SHAPES, ARRAY, OBJECT, Form, dump_json


def form_of_model(cls: type) -> Form | None:
    """Return the form of a model of pydantic, or of a Struct of msgspec; None for any other class.

    Raises
    ------
    TypeError
        If its values cannot travel.
    """
    pydantic, msgspec = sys.modules.get("pydantic"), sys.modules.get("msgspec")
    if pydantic and issubclass(cls, getattr(pydantic, "BaseModel", ())):
        return _of_pydantic(cls)
    if msgspec and issubclass(cls, getattr(msgspec, "Struct", ())):
        return _of_msgspec(cls, msgspec)
    return None


def _of_pydantic(cls: Any) -> Form:
    if not hasattr(cls, "model_validate_json"):
        raise TypeError(f"values of {cls.__qualname__} cannot travel: it needs pydantic 2")
    shapes = _shapes_of_root(cls) if "root" in cls.model_fields else OBJECT
    return Form(cls.__name__, shapes, partial(_dump_pydantic, cls), partial(_load_pydantic, cls))


def _shapes_of_root(cls: Any) -> frozenset[str]:
    """Return what a RootModel looks like in JSON: anything, unless its schema says so."""
    shape = cls.model_json_schema(mode="serialization").get("type")
    return frozenset({shape}) if shape in ALL_SHAPES else ALL_SHAPES


def _dump_pydantic(cls: Any, value: Any) -> Any:
    """Return a model as JSON has it, by its aliases: else a model that is read by aliases only could not be read."""
    return _exactly(cls, value).model_dump(mode="json", by_alias=True, warnings=False)


def _load_pydantic(cls: Any, found: Any) -> Any:
    return cls.model_validate_json(dump_json(found))  # as JSON, in which a strict model knows a date


def _of_msgspec(cls: Any, msgspec: Any) -> Form:
    shapes = ARRAY if cls.__struct_config__.array_like else OBJECT

    def dump(value: Any) -> Any:
        return msgspec.to_builtins(_exactly(cls, value), str_keys=True)

    def load(found: Any) -> Any:
        try:
            return msgspec.convert(found, cls, str_keys=True)
        except msgspec.MsgspecError as error:
            raise ValueError(str(error)) from error

    return Form(cls.__name__, shapes, dump, load)


def _exactly(cls: type, value: Any) -> Any:
    """Refuse a value of a subclass, which would come back without what that adds."""
    if type(value) is not cls:
        raise TypeError(f"{value!r} is not {cls.__qualname__}")
    return value


def form_of_typed_dict(cls: Any, form_of: Callable[[Any], Form]) -> Form:
    """Return the form of a TypedDict, given how to find those of its values."""
    try:
        hints = typing.get_type_hints(cls, include_extras=True)
    except (NameError, TypeError) as error:
        raise TypeError(f"the keys of {cls.__qualname__} cannot be read: {error}") from None
    forms: dict[str, Form] = {}
    needed: set[str] = set()
    for name, hint in hints.items():
        kind, is_needed = _without_marks(hint, name in cls.__required_keys__)
        forms[name] = form_of(kind)
        if is_needed:
            needed.add(name)
    change = partial(_changed, cls.__qualname__, forms, needed)
    return Form(
        cls.__name__,
        OBJECT,
        lambda value: change(value, lambda form, each: form.dump(each)),
        lambda found: change(found, lambda form, each: form.load(each)),
    )


def _without_marks(hint: Any, is_needed: bool) -> tuple[Any, bool]:
    """Return the type of a key without ``Required`` and the like, and whether a dictionary needs the key."""
    while (origin := typing.get_origin(hint)) in _MARKS:
        said = _MARKS[origin]
        is_needed = is_needed if said is None else said
        hint = typing.get_args(hint)[0]
    return hint, is_needed


# What an annotation of a key may say beside its type: whether it is needed.
_MARKS: dict[Any, bool | None] = {typing.Required: True, typing.NotRequired: False}
if hasattr(typing, "ReadOnly"):
    _MARKS[typing.ReadOnly] = None


def _changed(
    name: str, forms: dict[str, Form], needed: set[str], found: Any, change: Callable[[Form, Any], Any]
) -> dict[str, Any]:
    if type(found) is not dict:
        raise TypeError(f"{found!r} is not {name}")
    missing, unknown = sorted(needed - found.keys()), sorted(found.keys() - forms.keys(), key=str)
    if missing or unknown:
        what = f"needs {', '.join(missing)}" if missing else f"has no {', '.join(map(str, unknown))}"
        raise ValueError(f"{name} {what}")
    changed = {}
    for key, value in found.items():
        try:
            changed[key] = change(forms[key], value)
        except (TypeError, ValueError) as error:
            raise ValueError(f"{key} of {name}: {error}") from None
    return changed
