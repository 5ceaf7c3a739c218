"""Processes that the code of a job forks."""

from __future__ import annotations

import os
import sys
from typing import NoReturn

from limpyd_jobs.texts import traceback_of


def end_child() -> NoReturn:
    """End this process, which was forked by the code of a job that has ended, or raises an exception.

    The child has what the worker has: the jobs, its claims, its connections. Only the parent may go on with them. The
    exit status is as of a program that ends like the code did.
    """
    status = 1
    try:
        status = _status_of(sys.exc_info()[1])
        for stream in (sys.stdout, sys.stderr):
            stream.flush()
    finally:
        os._exit(status)  # so that no ``finally`` of the worker, or exit handler of the application, is run twice


def _status_of(error: BaseException | None) -> int:
    if error is None:
        return 0
    if isinstance(error, SystemExit) and (error.code is None or isinstance(error.code, int)):
        return error.code or 0
    print(traceback_of(error), file=sys.stderr)
    return 1
