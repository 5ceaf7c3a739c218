"""Sending signals to jobs that wait for them, or will."""

from __future__ import annotations

import json
from typing import Any, Literal, cast

from limpyd_jobs import transitions
from limpyd_jobs.arguments import check_size, stored_value
from limpyd_jobs.classes.awaitable import awaited, by_steps
from limpyd_jobs.classes.job_classes import job_classes
from limpyd_jobs.exceptions import JobGone, LimpydJobsException
from limpyd_jobs.fields.codecs import CODECS
from limpyd_jobs.flows.flow import Flow, readable
from limpyd_jobs.idents import Ident, read_pk
from limpyd_jobs.models import Job
from limpyd_jobs.models.continuing.signals import checked_signal
from limpyd_jobs.redis.calls import Steps
from limpyd_jobs.search.classes import connection_to, on
from limpyd_jobs.texts import one_line

# The longest value of a signal, as JSON, in bytes.
LONGEST_VALUE = 64 * 1024

SignalOutcome = Literal["received", "kept", "already", "late", "ended"]


@by_steps
def send_signal(to: Job | Flow | str, name: str, value: Any = None, database: Any = None) -> Steps[SignalOutcome]:
    """Send a signal to a job, or to all jobs of a flow: see `Job.wait_for`.

    >>> send_signal(job, "approval", {"by": "ann"})
    'received'

    Parameters
    ----------
    to: Job, Flow or str
        A job, or its ident, such as ``"myapp.jobs.Payout:12"``; a flow, or its name, or its id. A text is an ident if
        it looks like one: give a flow of such a name as ``Flow.find(name)``.
    name: str
        Of the signal: a printable text of up to 100 characters.
    value: object
        What JSON can hold, up to 64 kB.
    database: JobsDatabase
        Where to look for what a text names; by default the database of ``BaseJobsModel``.

    Returns
    -------
    str
        ``"received"``: the job waited for it, and is in its queue now; of a flow, at least one did. ``"kept"``: it is
        there for when the job asks for it. In all other cases, nothing is changed. ``"already"``: another one of that
        name was sent before, which counts. ``"late"``: the job waited for it in vain. ``"ended"``: the job has
        succeeded, or was canceled; the flow has ended. The same signal with the same value, sent once more, is no other
        one.

    Raises
    ------
    JobGone
        If there is no such job.
    LimpydJobsException
        If there is no such flow; or it is full: a job keeps up to 256 kB of signals, a flow up to 1,000 of them.
    ImportError, AttributeError
        If there is no such module, or no such class in it.
    TypeError, ValueError
        If an argument is not one of the above.
    """
    name, text = checked_signal(name), _checked_value(value)
    ident = _ident_of(to)
    if ident:
        job_class = type(to) if isinstance(to, Job) else on(job_classes.resolve(ident.path), database)
        outcome = yield transitions.send_signal(job_class, ":".join(ident), name, text)
    else:
        client = to._client if isinstance(to, Flow) else connection_to(database)
        with readable(f"The flow {one_line(to)!r}"):
            outcome = yield transitions.signal_flow(client, to.id if isinstance(to, Flow) else str(to), name, text)
    if outcome == "gone":
        raise JobGone(":".join(ident)) if ident else LimpydJobsException(f"There is no {one_line(to)!r}, or no longer")
    if outcome == "full":
        raise LimpydJobsException(f"The signal {name!r} is not kept: {one_line(to)} has too many")
    return cast(SignalOutcome, outcome)


asend_signal = awaited(send_signal)


def _checked_value(value: Any) -> str:
    text = CODECS[json].stored("The value of a signal", value)
    check_size("The value of a signal", text, LONGEST_VALUE)
    return stored_value("value", text)


def _ident_of(to: Job | Flow | str) -> Ident | None:
    """Return the ident of the job that a signal is for; None if it is for a flow."""
    if isinstance(to, Job):
        return Ident.of(to.ident)
    if isinstance(to, Flow):
        return None
    if not isinstance(to, str):
        raise TypeError(f"A signal is sent to a job, its ident, a flow or its name, not to {to!r}")
    ident = Ident.parse(to)
    is_one = ident and read_pk(ident.pk) is not None and all(map(str.isidentifier, ident.path.split(".")))
    return ident if is_one else None
