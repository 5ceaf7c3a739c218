"""Signals that the code of a job waits for: what it gets, or how it ends here, to go on when one comes."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from datetime import timedelta
from typing import Any

from limpyd_jobs import transitions
from limpyd_jobs.arguments import wait_argument
from limpyd_jobs.exceptions import ClaimLost, JobInterrupted, LimpydJobsException, SignalTimeout
from limpyd_jobs.fields.codecs import load_json
from limpyd_jobs.models.continuing.cursors import cursors_of
from limpyd_jobs.records.lazy_fields import held_token
from limpyd_jobs.redis.calls import Steps
from limpyd_jobs.texts import one_line

MAX_NAME = 100  # characters


def waiting(job: Any, name: str, timeout: float | timedelta | None = None) -> Steps[Any]:
    """Do what `Job.wait_for` says."""
    name, delay = checked_signal(name), wait_argument("timeout", timeout)
    token = held_token(job, "wait for a signal")
    cursors_of(job).check()
    with only_wait(job, token, f"the signal {name!r}"):
        outcome, value = yield transitions.ask_signal.call(job, token, name, delay)
        if outcome == "waits":
            raise JobInterrupted(f"it waits for the signal {name!r}", waits=f"signal {name}")
    if outcome == "done":
        return _loaded(job, name, value)
    if outcome == "in vain":
        raise SignalTimeout(f"The signal {name!r} did not come in time")
    raise ClaimLost(f"The claim on {job.ident} is lost: another worker may run it")


@contextmanager
def only_wait(job: Any, token: str, what: str) -> Iterator[None]:
    """Wait for something, unless this run of the job waits for something else, or is about to: a job is kept until one
    thing is there, and would run again and again for the other one."""
    of_job = vars(job)
    run, other = of_job.get("_held_wait", ("", ""))
    if run == token and other != what:
        raise LimpydJobsException(
            f"{job.ident} cannot wait for {what}, as it waits for {other}: wait for one after the other, not at once, "
            "and do not catch JobInterrupted"
        )
    of_job["_held_wait"] = token, what
    is_over = True
    try:
        yield
    except JobInterrupted:
        is_over = False
        raise
    finally:
        if is_over:
            of_job.pop("_held_wait", None)


def checked_signal(name: Any) -> str:
    """Return the name of a signal."""
    if not isinstance(name, str):
        raise TypeError(f"The name of a signal must be a text, not {name!r}")
    if not 0 < len(name) <= MAX_NAME or not name.isprintable() or name != name.strip():
        raise ValueError(f"The name of a signal is a printable text of 1 to {MAX_NAME} characters, not {name!r:.200}")
    return name


def _loaded(job: Any, name: str, text: str) -> Any:
    try:
        return load_json(text)
    except (ValueError, RecursionError) as error:
        raise LimpydJobsException(
            f"The signal {name!r} of {job.ident} cannot be read, as another program wrote it: {one_line(error)}"
        ) from error
