"""What the values of a type are in JSON."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any, NamedTuple

# What a value of JSON looks like. Members of a union are told apart by it.
SHAPES = {
    type(None): "null", bool: "boolean", int: "integer", float: "number", str: "string", list: "array", dict: "object",
}  # fmt: skip
ALL_SHAPES = frozenset(SHAPES.values())
STRING, ARRAY, OBJECT = frozenset({"string"}), frozenset({"array"}), frozenset({"object"})


def dump_json(value: Any) -> str:
    """Return a value that JSON can hold, without spaces."""
    text = json.dumps(value, ensure_ascii=False, separators=(",", ":"), allow_nan=True)
    text.encode()  # no lone surrogates
    return text


class Form(NamedTuple):
    """What the values of a type are in JSON.

    `dump` and `load` raise `TypeError` or `ValueError` for another value. `name` is for messages.
    """

    name: str
    shapes: frozenset[str]
    dump: Callable[[Any], Any]
    load: Callable[[Any], Any]

    def as_text(self, value: Any) -> str:
        """Return the text of a value: a string of JSON stands for itself. `TypeError` if it could not be read back."""
        dumped = self.dump(value)
        if self.dump(self.load(dumped)) != dumped:
            raise TypeError(f"{value!r} would come back as {self.load(dumped)!r}")
        return dumped if self.shapes == STRING else dump_json(dumped)

    def of_text(self, text: str) -> Any:
        """Return the value of a text."""
        return self.load(str(text) if self.shapes == STRING else json.loads(text))
