"""Sending signals to jobs that wait for them, or will."""

from __future__ import annotations

import json
from typing import Any, NamedTuple

from limpyd_jobs import transitions
from limpyd_jobs.arguments import check_size, stored_value
from limpyd_jobs.classes.awaitable import awaited, by_steps
from limpyd_jobs.classes.job_classes import job_classes
from limpyd_jobs.exceptions import JobGone, LimpydJobsException
from limpyd_jobs.fields.codecs import CODECS, load_json
from limpyd_jobs.flows.flow import Flow
from limpyd_jobs.idents import Ident, read_pk
from limpyd_jobs.models import Job
from limpyd_jobs.models.continuing.signals import checked_signal
from limpyd_jobs.models.following.results import checked_json
from limpyd_jobs.models.functions.function import AddedJob
from limpyd_jobs.records import flows
from limpyd_jobs.records.flows import checked, readable
from limpyd_jobs.records.records import redis_of
from limpyd_jobs.redis.calls import Commands, Steps
from limpyd_jobs.redis.cluster.tags import at
from limpyd_jobs.search.classes import connection_to, on
from limpyd_jobs.texts import one_line

# The longest value of a signal, as JSON, in bytes.
LONGEST_VALUE = 64 * 1024

# What stands before the value of a stored signal that no job has asked for yet; in place of one that did not come in
# time, and of one that a job got from its flow.
UNASKED, IN_VAIN, OF_FLOW = "?", "!", "^"


class SignalOutcome(str):
    """What became of a signal, a text: see `send_signal`.

    Attributes
    ----------
    waits_for: str
        Of one that is ``"kept"``, the name of another signal that the job, or one of the flow, waits for; else empty.
        Maybe one of the two names is misspelt: then take this one back.
    """

    waits_for: str = ""


class SentSignal(NamedTuple):
    """A signal that was sent to a job or a flow.

    Attributes
    ----------
    name: str
    value: object
    is_asked_for: bool
        Whether a job has asked for it, and has it, or is in its queue to get it. Else it can be taken back.
    """

    name: str
    value: Any
    is_asked_for: bool


class _Receiver(NamedTuple):
    """Whom a signal is for: a job, by its class and its ident; or a flow, by its name or its id."""

    text: str
    job_class: Any
    client: Any
    flow: str

    def missing(self) -> Exception:
        if not self.flow:
            return JobGone(self.text)
        return LimpydJobsException(f"There is no {self.text}, or no longer; for a job, give its ident")


@by_steps
def send_signal(
    to: Job | AddedJob[Any] | Flow | str, name: str, value: Any = None, database: Any = None
) -> Steps[SignalOutcome]:
    """Send a signal to a job, or to all jobs of a flow: see `Job.wait_for`.

    >>> send_signal(job, "approval", {"by": "ann"})
    'received'

    Parameters
    ----------
    to: Job, AddedJob, Flow or str
        A job, or what adding one returned, or its ident, such as ``"myapp.jobs.Payout:12"``; a flow, or its name, or
        its id. A text is an ident if it looks like one: give a flow of such a name as ``Flow.find(name)``.
    name: str
        Of the signal: a printable text of up to 100 characters.
    value: object
        What JSON can hold, up to 64 kB.
    database: JobsDatabase
        Where to look for what a text names; by default the database of ``BaseJobsModel``.

    Returns
    -------
    SignalOutcome
        ``"received"``: the job waited for it, and is in its queue now; of a flow, at least one did. ``"kept"``: it is
        there for when the job asks for it; if a job waits for one of another name, `waits_for` has this name. In all
        other cases, nothing is changed. ``"already"``: another one of that name was sent before, which counts.
        ``"late"``: the job waited for it in vain. ``"ended"``: the job has succeeded, or was canceled; the flow has
        ended. The same signal with the same value, sent once more, is no other one.

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
    whom = _receiver(to, database)
    if whom.flow:
        with readable(f"The {whom.text}"):
            outcome, other = yield transitions.signal_flow(whom.client, whom.flow, name, text)
    else:
        outcome, other = yield transitions.send_signal(whom.job_class, whom.text, name, text)
    if outcome == "gone":
        raise whom.missing()
    if outcome == "full":
        raise LimpydJobsException(f"The signal {name!r} is not kept: {one_line(to)} has too many")
    answer = SignalOutcome(outcome)
    answer.waits_for = other
    return answer


asend_signal = awaited(send_signal)


@by_steps
def take_back_signal(to: Job | AddedJob[Any] | Flow | str, name: str, database: Any = None) -> Steps[bool]:
    """Take a signal back that no job has asked for yet, as if it had not been sent.

    Parameters
    ----------
    to, name, database
        As of `send_signal`.

    Returns
    -------
    bool
        False if a job has asked for it, and has it, or is in its queue to get it: then it stays.

    Raises
    ------
    LimpydJobsException
        If there is no signal of that name, or no such flow. For the others see `send_signal`.
    """
    name, whom = checked_signal(name), _receiver(to, database)
    if whom.flow:
        with readable(f"The {whom.text}"):
            outcome = yield transitions.take_back_from_flow(whom.client, whom.flow, name)
    else:
        outcome = yield transitions.take_back_signal(whom.job_class, whom.text, name)
    if outcome == "gone":
        raise whom.missing()
    if outcome == "none":
        raise LimpydJobsException(f"There is no signal {name!r} of {whom.text}")
    return bool(outcome == "done")


atake_back_signal = awaited(take_back_signal)


@by_steps
def sent_signals(to: Job | AddedJob[Any] | Flow | str, database: Any = None) -> Steps[list[SentSignal]]:
    """Return the signals that were sent to a job, or to a flow, by their names. A job may have some of its flow, too:
    they are those of the flow. For the arguments and the exceptions see `send_signal`."""
    whom = _receiver(to, database)
    if whom.flow:
        with readable(f"The {whom.text}"):
            key = at(whom.client, f"{flows.NAMES}{whom.flow}")
            flow = checked((yield Commands(whom.client, [("GET", key)])))[0] or whom.flow
            keys = flows.key_of(whom.client, flow), flows.key_of(whom.client, flow, ":signals")
            state, stored = checked((yield Commands(whom.client, [("HGET", keys[0], "state"), ("HGETALL", keys[1])])))
    else:
        key = f"{whom.job_class._name}:{Ident.of(whom.text).pk}:hash"
        command = ("HMGET", key, "status", "_signals")
        ((state, text),) = checked((yield Commands(redis_of(whom.job_class), [command])))
        stored = _readable(text)
    if state is None:
        raise whom.missing()
    return [_sent(*each) for each in sorted(stored.items()) if each[1] not in (IN_VAIN, OF_FLOW)]


asent_signals = awaited(sent_signals)


def _readable(text: str | None) -> dict[str, str]:
    """Return the signals of a job by their names. Another program may have written anything there."""
    try:
        found = load_json(text or "{}")
    except (ValueError, RecursionError):
        return {}
    return {name: value for name, value in found.items() if isinstance(value, str)} if isinstance(found, dict) else {}


def _sent(name: str, stored: str) -> SentSignal:
    text = stored.removeprefix(UNASKED)
    try:
        value = load_json(text)
    except (ValueError, RecursionError):
        value = text
    return SentSignal(name, value, text == stored)


def _checked_value(value: Any) -> str:
    text = CODECS[json].stored("The value of a signal", value)
    try:
        checked_json(text)
    except ValueError as error:
        raise TypeError(f"The value of a signal cannot be stored as JSON: {error}") from None
    check_size("The value of a signal", text, LONGEST_VALUE)
    return stored_value("value", text)


def _receiver(to: Job | AddedJob[Any] | Flow | str, database: Any) -> _Receiver:
    to = to.job if isinstance(to, AddedJob) else to
    if isinstance(to, Job):
        return _Receiver(str(to.ident), type(to), None, "")
    if isinstance(to, Flow):
        return _Receiver(f"flow {one_line(to.name or to.id)!r}", None, to._client, to.id)
    if not isinstance(to, str):
        raise TypeError(f"A signal is sent to a job, its ident, a flow or its name, not to {to!r}")
    ident = Ident.parse(to)
    if ident and read_pk(ident.pk) is not None and all(map(str.isidentifier, ident.path.split("."))):
        return _Receiver(":".join(ident), on(job_classes.resolve(ident.path), database), None, "")
    return _Receiver(f"flow {one_line(to)!r}", None, connection_to(database), to)
