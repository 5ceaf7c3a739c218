"""Commands of ``limpyd-jobs``, in the process of the tests, on the database of the models."""

from __future__ import annotations

import io
from contextlib import redirect_stderr, redirect_stdout

from limpyd_jobs.scripts.jobs import COMMANDS


def limpyd_jobs(name: str, *arguments: str) -> tuple[int, str, str]:
    """Run a command; return its exit status, and what it printed. An exception of its own is raised."""
    out, error = io.StringIO(), io.StringIO()
    with redirect_stdout(out), redirect_stderr(error):
        try:
            status = COMMANDS[name](f"limpyd-jobs {name}", arguments).execute()
        except SystemExit as end:
            status = end.code if isinstance(end.code, int) else 1
    return status, out.getvalue(), error.getvalue()
