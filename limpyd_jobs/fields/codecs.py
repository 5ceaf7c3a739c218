"""How values of Python are stored as text: in a form that limpyd, version 2 and people can read, and that is read back
as the same value."""

from __future__ import annotations

import json
import pickle
from base64 import b64decode, b64encode
from collections.abc import Callable
from datetime import datetime
from types import ModuleType
from typing import Any, NamedTuple

from limpyd_jobs.arguments import is_same

# The only key of an object that stands for bytes in JSON, which has no bytes.
_BYTES = "$bytes"


class Stored(str):
    """A text that was made from a value, and is stored as it is."""

    __slots__ = ()


class Codec(NamedTuple):
    """How the values of one kind are stored: its name, for messages; the exact types of a value, or none for any value
    that is read back as the same; and whether each value is known to be so."""

    name: str
    types: tuple[type, ...]
    dump: Callable[[Any], str]
    load: Callable[[str], Any]
    is_exact: bool = True

    def stored(self, what: str, value: Any) -> Stored:
        """Return the text of a value, which is described by `what`; a `Stored` text as it is."""
        if type(value) is Stored:  # to ask with `isinstance` would fetch an object that is fetched on use
            return value
        if self.types and type(value) not in self.types:
            raise TypeError(f"{what} must be {self.name}, not {value!r}")
        try:
            text = self.dump(value)
            comes_back = not self.is_exact or is_same(self.load(text), value)
        except (TypeError, ValueError, OverflowError, RecursionError, AttributeError, pickle.PicklingError) as error:
            raise TypeError(f"{what} cannot be stored as {self.name}: {error}") from None
        if not comes_back:
            raise TypeError(f"{what} cannot be stored as {self.name}: it would come back as {self.load(text)!r}")
        return Stored(text)


def _tagged(value: Any) -> Any:
    if isinstance(value, bytes):
        return {_BYTES: b64encode(value).decode()}
    raise TypeError(f"it holds {value!r}")


def _untagged(found: dict[str, Any]) -> Any:
    return b64decode(found[_BYTES], validate=True) if len(found) == 1 and _BYTES in found else found


def _infinity(name: str) -> float:
    if name == "NaN":
        raise ValueError("JSON has no NaN")
    return float(name)


# Made once, because they take longer to make than to use.
_encoder = json.JSONEncoder(default=_tagged, ensure_ascii=False, separators=(",", ":"))
_decoder = json.JSONDecoder(object_hook=_untagged, parse_constant=_infinity)


def dump_compact(value: Any) -> str:
    """Return a value that JSON can hold, bytes included, as text without spaces."""
    return _encoder.encode(value)


def load_json(text: str) -> Any:
    """Do as `JSONDecoder.decode`, which looks for spaces by regular expressions, in two thirds of the time."""
    text = text.strip(" \t\n\r")
    value, end = _decoder.raw_decode(text)
    if end != len(text):
        raise json.JSONDecodeError("Extra data", text, end)
    return value


CODECS: dict[Any, Codec] = {
    str: Codec("a text", (str,), lambda text: text.encode().decode(), str),
    int: Codec("an integer", (int,), str, int),
    float: Codec("a number", (float, int), lambda number: repr(float(number)), float),
    bool: Codec("True or False", (bool,), lambda flag: "1" if flag else "0", lambda text: text == "1"),
    bytes: Codec("bytes", (bytes,), lambda raw: b64encode(raw).decode(), lambda text: b64decode(text, validate=True)),
    datetime: Codec("a datetime", (datetime,), datetime.isoformat, datetime.fromisoformat),
    json: Codec("JSON", (), dump_compact, load_json),
    # Reading a pickle runs any code in it.
    pickle: Codec(
        "a pickle",
        (),
        lambda value: b64encode(pickle.dumps(value)).decode(),
        lambda text: pickle.loads(b64decode(text, validate=True)),
        is_exact=False,
    ),
}


def codec_of(kind: Any) -> Codec:
    """Return the codec of a type, of an annotation as `form_of` takes it, or of the module ``json``, or ``pickle``.

    Raises
    ------
    TypeError
        If there is no such codec.
    """
    try:
        return CODECS[kind]
    except (KeyError, TypeError):
        if isinstance(kind, (str, ModuleType)) or kind is None:
            names = ", ".join(each.__name__ for each in CODECS)
            raise TypeError(f"An argument is one of {names}, not {kind!r}{_without_quotes(kind)}") from None
    from limpyd_jobs.fields.forms import form_of  # not at the start of processes that need no such type

    form = form_of(kind)
    return Codec(form.name, (), form.as_text, form.of_text, is_exact=False)


def _without_quotes(kind: object) -> str:
    """Return what to write for the name of a type or a module; nothing for anything else."""
    for each in CODECS:
        if kind == each.__name__:
            needs = f", after import {kind}" if isinstance(each, ModuleType) else ""
            return f": write {kind} without quotes{needs}"
    return ""
