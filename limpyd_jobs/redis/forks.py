"""Which process this is: a forked child has the connections, claims and threads of its parent, and may not use them."""

from __future__ import annotations

import os
import sys
from typing import NoReturn

from limpyd_jobs.texts import traceback_of


class _ThisProcess:
    pid = os.getpid()  # kept, because to ask the system takes as long as a few functions of Python


this_process = _ThisProcess()


def _renew() -> None:
    this_process.pid = os.getpid()


os.register_at_fork(after_in_child=_renew)


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
