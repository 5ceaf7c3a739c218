"""The scripts of the library with some text of them replaced, as Redis runs them inside a ``with``."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from hashlib import sha1
from typing import NamedTuple

from all_scripts import ALL_SCRIPTS


class Replacement(NamedTuple):
    """A text of the Lua sources, which stands once in each script that has it, and what is there instead."""

    before: str
    after: str


@contextmanager
def rewritten(*replacements: Replacement) -> Iterator[None]:
    """Let the scripts that have these texts have others.

    Raises
    ------
    AssertionError
        If a text stands in no script, or in one of them more than once.
    """
    changed = {}
    for script in ALL_SCRIPTS:
        source = script.source
        for replacement in replacements:
            assert source.count(replacement.before) <= 1, f"more than once in {script.name}: {replacement.before}"
            source = source.replace(*replacement)
        if source != script.source:
            changed[script] = source
    for replacement in replacements:
        assert any(replacement.before in script.source for script in changed), f"in no script: {replacement.before}"
    try:
        for script, source in changed.items():
            vars(script).update(source=source, sha=sha1(source.encode()).hexdigest())
        yield
    finally:
        for script in changed:  # to be read again from their files
            del script.source, script.sha
