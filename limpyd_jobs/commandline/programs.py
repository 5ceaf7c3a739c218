"""Running our programs inside of another one."""

from __future__ import annotations

import re
import sys
from collections.abc import Mapping, Sequence
from importlib import import_module

# What is typed in this process for the names of our programs, if it is something else.
_names: dict[str, str] = {}


def as_typed(text: str) -> str:
    """Return a text for a terminal with what a user can type here for ``limpyd-jobs`` and ``limpyd-jobs-worker``."""
    if not _names:
        return text
    return re.sub(r"(?<![\w./-])limpyd-jobs(-worker)?(?![\w./-])", lambda found: _names.get(found[0], found[0]), text)


def run_program(name: str, argv: Sequence[str], typed: Mapping[str, str] | None = None) -> None:
    """Run ``limpyd-jobs`` or ``limpyd-jobs-worker`` in this process, in its main thread, as its command line.

    Like any program, it may end the process: it raises `SystemExit`, with its exit status.

    Parameters
    ----------
    name: str
        ``jobs``, or ``worker``.
    argv: sequence of str
        The name of the program to show in messages, and the words after it.
    typed: mapping
        What users type for ``limpyd-jobs`` and ``limpyd-jobs-worker``, to be shown by ``limpyd-jobs``.
    """
    main = import_module(f"limpyd_jobs.scripts.{name}").main  # it imports what other processes do not need
    before, sys.argv = (sys.argv, {**_names}), [*argv]
    _names.update(typed or {})
    try:
        main()
    finally:
        sys.argv, names = before
        _names.clear()
        _names.update(names)
