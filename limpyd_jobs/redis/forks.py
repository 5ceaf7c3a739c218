"""Which process this is: a forked child has the connections, claims and threads of its parent, and may not use them."""

from __future__ import annotations

import os


class _ThisProcess:
    pid = os.getpid()  # kept, because to ask the system takes as long as a few functions of Python


this_process = _ThisProcess()


def _renew() -> None:
    this_process.pid = os.getpid()


os.register_at_fork(after_in_child=_renew)
