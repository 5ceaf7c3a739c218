"""Running our programs inside of another one."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from importlib import import_module


def run_program(name: str, argv: Sequence[str]) -> None:
    """Run ``limpyd-jobs`` or ``limpyd-jobs-worker`` in this process, in its main thread, as its command line.

    Like any program, it may end the process: it raises `SystemExit`, with its exit status.

    Parameters
    ----------
    name: str
        ``jobs``, or ``worker``.
    argv: sequence of str
        The name of the program to show in messages, and the words after it.
    """
    main = import_module(f"limpyd_jobs.scripts.{name}").main  # it imports what other processes do not need
    before, sys.argv = sys.argv, [*argv]
    try:
        main()
    finally:
        sys.argv = before
