"""Values of the types that annotations name, and what they are in JSON: numbers, dates, members of an Enum,
dataclasses, and lists and dictionaries of them. What is read back is checked: it may be of another version of the code.
"""

from __future__ import annotations

import dataclasses
import enum
import json
import re
import types
import typing
from base64 import b64decode, b64encode
from collections import abc
from collections.abc import Callable, Iterable
from contextlib import suppress
from datetime import date, datetime, time, timedelta
from decimal import Decimal
from functools import partial
from pathlib import PurePath
from typing import Any
from uuid import UUID

from limpyd_jobs.arguments import is_same
from limpyd_jobs.fields.form import ALL_SHAPES, ARRAY, OBJECT, SHAPES, STRING, Form, dump_json
from limpyd_jobs.fields.models import form_of_model, form_of_typed_dict

# How the values of a type are dumped, and loaded, and their shape, by the exact type.
OF_STRINGS: dict[Any, tuple[Callable[[Any], Any], Callable[[Any], Any]]] = {
    datetime: (datetime.isoformat, datetime.fromisoformat),
    date: (date.isoformat, date.fromisoformat),
    time: (time.isoformat, time.fromisoformat),
    Decimal: (str, Decimal),
    UUID: (str, UUID),
    bytes: (lambda raw: b64encode(raw).decode(), lambda text: b64decode(text, validate=True)),
}


# How the forms of classes of an integration are made, by the base of these.
_registered: dict[type, Callable[[type], Form]] = {}


def register_form(base: type, make: Callable[[type], Form]) -> None:
    """Let values of a class, and of its subclasses, travel as arguments of jobs.

    Parameters
    ----------
    base: type
    make: callable
        Is given a class, and returns the `Form` of its values; or raises `TypeError` if they cannot travel.
    """
    _registered[base] = make


def form_of(annotation: Any) -> Form:
    """Return the form of the values of an annotation.

    Raises
    ------
    TypeError
        If such values cannot travel. The message says which part of the annotation is wrong, and what to write.
    """
    return _Forms().of(annotation)


class _Forms:
    """Makes forms. It knows the dataclasses on the way, because they may hold themselves."""

    def __init__(self) -> None:
        self._of_classes: dict[type, Form] = {}

    def of(self, annotation: Any) -> Form:
        if hasattr(annotation, "__supertype__"):  # a NewType
            return self.of(annotation.__supertype__)
        if type(annotation).__name__ == "TypeAliasType":  # ``type Sizes = list[int]``
            return self.of(annotation.__value__)
        origin, arguments = typing.get_origin(annotation), typing.get_args(annotation)
        if origin is typing.Annotated:
            return self.of(arguments[0])
        if origin in (typing.Union, types.UnionType):
            return self._union(annotation, arguments)
        if origin is typing.Literal:
            return _literal(annotation, arguments)
        if origin is not None:
            return self._container(annotation, origin, arguments)
        return self._plain(annotation)

    def _plain(self, annotation: Any) -> Form:
        if annotation in (Any, object):
            return Form("JSON", ALL_SHAPES, _dump_any, lambda value: value)
        if annotation is None or annotation is type(None):
            return Form("None", frozenset({"null"}), partial(_exact, type(None)), partial(_exact, type(None)))
        if annotation in OF_STRINGS:
            dump, load = OF_STRINGS[annotation]
            return _of_string(annotation, dump, load)
        if annotation in (str, int, bool):
            shapes = frozenset({SHAPES[annotation]})
            return Form(annotation.__name__, shapes, partial(_exact, annotation), partial(_exact, annotation))
        if annotation is float:
            return Form("float", frozenset({"number"}), _number, _number)
        if annotation is timedelta:
            return Form("timedelta", frozenset({"number"}), _seconds, lambda value: timedelta(seconds=_number(value)))
        if annotation in (list, set, frozenset, tuple, dict):
            return self._container(annotation, annotation, ())
        if isinstance(annotation, type):
            return self._class(annotation)
        raise TypeError(f"values of {_shown(annotation)} cannot travel: give what they are made of or found by")

    def _class(self, cls: type) -> Form:
        if issubclass(cls, PurePath):
            return Form(cls.__name__, STRING, partial(_dump_path, cls), lambda text: cls(_exact(str, text)))
        if issubclass(cls, enum.Flag):
            return Form(cls.__name__, frozenset({"integer"}), lambda flag: _exact(cls, flag).value, cls)
        if issubclass(cls, enum.Enum):
            return Form(cls.__name__, STRING, partial(_dump_member, cls), partial(_load_member, cls))
        if dataclasses.is_dataclass(cls):
            return self._dataclass(cls)
        if typing.is_typeddict(cls):
            return self._typed_dict(cls)
        for base, make in _registered.items():
            if issubclass(cls, base):
                return make(cls)
        model = form_of_model(cls)
        if model is not None:
            return model
        raise TypeError(
            f"values of {_shown(cls)} cannot travel: give what it is made of or found by, such as a key, or make it a "
            "dataclass"
        )

    def _typed_dict(self, cls: type) -> Form:
        if cls not in self._of_classes:
            whole: list[Form] = []  # it may hold itself
            self._of_classes[cls] = Form(cls.__name__, OBJECT, lambda value: whole[0].dump(value),
                                         lambda found: whole[0].load(found))  # fmt: skip
            whole.append(form_of_typed_dict(cls, self.of))
        return self._of_classes[cls]

    def _dataclass(self, cls: type) -> Form:
        if cls not in self._of_classes:
            forms: dict[str, Form] = {}
            self._of_classes[cls] = Form(cls.__name__, OBJECT, partial(_dump_record, cls, forms),
                                         partial(_load_record, cls, forms))  # fmt: skip
            try:
                hints = typing.get_type_hints(cls, include_extras=True)
            except (NameError, TypeError) as error:
                raise TypeError(f"the fields of {_shown(cls)} cannot be read: {error}") from None
            if any(isinstance(hint, dataclasses.InitVar) for hint in hints.values()):
                raise TypeError(f"values of {_shown(cls)} cannot travel: an InitVar is not kept")
            forms.update({each.name: self.of(hints[each.name]) for each in dataclasses.fields(cls) if each.init})
        return self._of_classes[cls]

    def _container(self, annotation: Any, origin: Any, arguments: tuple[Any, ...]) -> Form:
        name = _shown(annotation)
        if origin is tuple and arguments and arguments[-1] is not Ellipsis:
            members = [] if arguments == ((),) else [*map(self.of, arguments)]
            return Form(name, ARRAY, partial(_dump_row, members), partial(_load_row, members))
        for kinds, made in _LISTS:
            if origin in kinds:
                member = self.of(arguments[0] if arguments else Any)
                return Form(name, ARRAY, partial(_dump_list, made, member), partial(_load_list, made, member))
        if origin in (dict, abc.Mapping, abc.MutableMapping):
            key, value = map(self.of, arguments or (str, Any))
            if not (key.shapes <= STRING or key.name == "int"):
                raise TypeError(f"the keys of {name} cannot travel: they must be str, int or what is stored as text")
            return Form(name, OBJECT, partial(_dump_mapping, key, value), partial(_load_mapping, key, value))
        raise TypeError(f"values of {name} cannot travel: give what they are made of or found by")

    def _union(self, annotation: Any, arguments: Iterable[Any]) -> Form:
        name, forms = _shown(annotation), [*map(self.of, arguments)]
        shapes = [shape for form in forms for shape in form.shapes]
        if len(shapes) != len({*shapes}):
            raise TypeError(
                f"values of {name} cannot travel: two of its types look the same in JSON, so use one of them, or a "
                "dataclass"
            )
        return Form(name, frozenset(shapes), partial(_dump_union, name, forms), partial(_load_union, name, forms))


# The kinds of lists by their origins, and what they are made as.
_LISTS: tuple[tuple[tuple[Any, ...], Callable[[Any], Any]], ...] = (
    ((list, abc.Sequence, abc.MutableSequence, abc.Iterable, abc.Collection), list),
    ((tuple,), tuple),
    ((set, abc.MutableSet), set),
    ((frozenset, abc.Set), frozenset),
)


def _shown(annotation: Any) -> str:
    if isinstance(annotation, type) and not typing.get_args(annotation):
        return annotation.__qualname__
    return re.sub(r"\b(?:\w+\.)+(?=\w)", "", str(annotation))


def _exact(kind: Any, value: Any) -> Any:
    if type(value) is not kind and not (isinstance(kind, enum.EnumMeta) and isinstance(value, kind)):
        raise TypeError(f"{value!r} is not {_shown(kind) if kind is not type(None) else 'None'}")
    return value


def _number(value: Any) -> float:
    if type(value) not in (int, float) or value != value:
        raise TypeError(f"{value!r} is not float")
    return float(value)


def _seconds(value: Any) -> float:
    seconds: float = _exact(timedelta, value).total_seconds()
    if timedelta(seconds=seconds) != value:
        raise ValueError(f"{value!r} is too long to be kept exactly")
    return seconds


def _dump_any(value: Any) -> Any:
    loaded = json.loads(dump_json(value))
    if not is_same(loaded, value):
        raise TypeError(f"{value!r} would come back as {loaded!r}")
    return value


def _of_string(kind: type, dump: Callable[[Any], str], load: Callable[[str], Any]) -> Form:
    def dumped(value: Any) -> str:
        return dump(_exact(kind, value))

    def loaded(text: Any) -> Any:
        try:
            return load(_exact(str, text))
        except (ValueError, ArithmeticError):
            raise ValueError(f"{text!r} is not {kind.__name__}") from None

    return Form(kind.__name__, STRING, dumped, loaded)


def _dump_path(kind: type, path: Any) -> str:
    if not isinstance(path, kind):
        raise TypeError(f"{path!r} is not {kind.__name__}")
    return str(path)


def _dump_member(kind: Any, member: Any) -> str:
    name: str = _exact(kind, member).name
    return name


def _load_member(kind: Any, name: Any) -> Any:
    try:
        return kind[_exact(str, name)]
    except KeyError:
        raise ValueError(f"{name!r} is not one of {', '.join(kind.__members__)}") from None


def _literal(annotation: Any, values: tuple[Any, ...]) -> Form:
    if any(type(value) not in SHAPES for value in values):
        raise TypeError(f"values of {_shown(annotation)} cannot travel: give the values that JSON has")

    def checked(value: Any) -> Any:
        if not any(type(value) is type(each) and value == each for each in values):
            raise TypeError(f"{value!r} is not one of {', '.join(map(repr, values))}")
        return value

    return Form(_shown(annotation), frozenset(SHAPES[type(value)] for value in values), checked, checked)


def _dump_list(kind: Any, member: Form, values: Any) -> list[Any]:
    dumped = [member.dump(value) for value in _exact(kind, values)]
    return sorted(dumped, key=dump_json) if kind in (set, frozenset) else dumped


def _load_list(kind: Any, member: Form, values: Any) -> Any:
    return kind(map(member.load, _exact(list, values)))


def _dump_row(members: list[Form], values: Any) -> list[Any]:
    return [form.dump(value) for form, value in _pairs(members, _exact(tuple, values))]


def _load_row(members: list[Form], values: Any) -> Any:
    return tuple(form.load(value) for form, value in _pairs(members, _exact(list, values)))


def _pairs(members: list[Form], values: Any) -> Any:
    if len(members) != len(values):
        raise TypeError(f"{values!r} has not {len(members)} values")
    return zip(members, values, strict=True)


def _dump_mapping(key: Form, value: Form, found: Any) -> dict[str, Any]:
    return {str(key.dump(name)): value.dump(each) for name, each in _exact(dict, found).items()}


def _load_mapping(key: Form, value: Form, found: Any) -> dict[Any, Any]:
    read = int if key.name == "int" else key.load
    return {read(name): value.load(each) for name, each in _exact(dict, found).items()}


def _dump_record(cls: Any, forms: dict[str, Form], record: Any) -> dict[str, Any]:
    return {name: form.dump(getattr(_exact(cls, record), name)) for name, form in forms.items()}


def _load_record(cls: Any, forms: dict[str, Form], found: Any) -> Any:
    unknown = _exact(dict, found).keys() - forms.keys()
    if unknown:
        raise ValueError(f"{cls.__name__} has no {', '.join(sorted(unknown))}")
    return cls(**{name: forms[name].load(value) for name, value in found.items()})


def _dump_union(name: str, forms: list[Form], value: Any) -> Any:
    others = [form for form in forms if "null" not in form.shapes]
    if value is not None and len(others) == 1:  # Optional, whose message is that of the other type
        return others[0].dump(value)
    for form in sorted(forms, key=lambda each: each.name == "float"):  # an integer is a float, too
        with suppress(TypeError, ValueError):
            return form.dump(value)
    raise TypeError(f"{value!r} is not {name}")


def _load_union(name: str, forms: list[Form], value: Any) -> Any:
    shape = SHAPES[type(value)]
    for form in forms:
        if shape in form.shapes:
            return form.load(value)
    if shape == "integer":  # of another version of the code
        return _load_union(name, forms, float(value))
    raise ValueError(f"{value!r} is not {name}")
