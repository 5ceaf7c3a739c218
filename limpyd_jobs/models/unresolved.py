"""Jobs of a class that cannot be resolved: deferred, and after too often dead-lettered."""

from __future__ import annotations

from limpyd.model import RedisModel

from limpyd_jobs import transitions
from limpyd_jobs.exceptions import ClassUnresolved
from limpyd_jobs.models.error import Error, add_unresolved_error
from limpyd_jobs.utils import one_line, printable


def defer_unresolved(
    queue_model: type[RedisModel], key: str, ident: str, error: Exception, error_model: type[Error] | None = Error
) -> Exception:
    """Send a job whose class cannot be resolved back to its queue for a while, or, after too often, give it up.

    Parameters
    ----------
    key: str
        The waiting list of the queue.
    error: exception
        Why the class cannot be resolved.
    error_model: type of Error
        Where to record that the job is dead-lettered; None not to.

    Returns
    -------
    exception
        What to report: the given one, or a `ClassUnresolved` if the job is dead-lettered.
    """
    outcome, queue_name = transitions.defer_unresolved(queue_model, key, ident)
    if outcome == "deferred":
        return error
    if error_model:
        add_unresolved_error(error_model, queue_name, ident, error)
    return ClassUnresolved(
        f"{one_line(ident)} is dead-lettered, after {transitions.MAX_DEFERRALS} tries: {printable(error)}"
    )
