"""One job in the hands of a worker."""

from __future__ import annotations

from time import monotonic
from typing import Any

from limpyd_jobs.models import Queue, attached_queue
from limpyd_jobs.store.argument import know_arguments
from limpyd_jobs.transitions import IN_HAND, NOTHING, Delivery, Success

# An outcome beside those of `transitions.Ending`: it ran, and its success is to be recorded with others.
BUFFERED = "buffered"


class Execution:
    """All that a worker knows of one job, from its claim until its end is recorded.

    Parameters
    ----------
    delivery: Delivery
        What came out of the list.

    Attributes
    ----------
    job, queue
        None until the objects are made.
    token: str
        The name of the claim; empty once it is ended, or if there is none.
    outcome: str
        Empty until the worker records something; then what `transitions.Ending` says, or `BUFFERED`.
    is_lost: bool
        Whether somebody else holds the claim, or the job was deleted, as it turned out when the lease was renewed.
    result: object
        What its code returned.
    began, ended: float
        When its code did so, by the clock of `monotonic`.
    """

    __slots__ = ("began", "delivery", "ended", "is_lost", "job", "outcome", "queue", "result", "token")

    def __init__(self, delivery: Delivery = NOTHING, job: Any = None, queue: Any = None) -> None:
        self.job: Any = job
        self.queue: Any = queue
        self.outcome = ""
        self.is_lost = False
        self.result: Any = None
        self.claimed(delivery)

    def claimed(self, delivery: Delivery) -> None:
        """The job came out of its list, and maybe is claimed."""
        self.delivery = delivery
        self.token = delivery.token
        self.began = self.ended = monotonic()

    @property
    def is_in_hand(self) -> bool:
        """Whether the job is out of its list for the application to look at, and not claimed to be run yet."""
        return self.token.startswith(IN_HAND)

    @property
    def is_open(self) -> bool:
        """Whether there is a claim that somebody has to end."""
        return bool(self.token) and self.outcome != BUFFERED

    @property
    def began_late(self) -> float | None:
        """When its code began, if the job was one of several that were claimed at once, and waited for others."""
        return self.began if self.delivery.is_one_of_several else None

    @property
    def success(self) -> Success:
        """What is recorded of it if it is a success, with others."""
        return Success(self.job, self.queue, self.delivery, self.result, self.began, self.ended)

    def remember(self) -> None:
        """Keep on the objects what the hooks may read."""
        delivery = self.delivery
        self.job.__dict__.update(  # at once, as an assignment asks whether it is one to a field
            _cached_identifier=delivery.identifier,
            _cached_status=delivery.status,
            _cached_start=delivery.start,
            _held_token=self.token,
            _execution=self,
        )
        know_arguments(self.job, delivery.arguments)
        self.queue._cached_name = delivery.queue_name

    def forget(self) -> None:
        """Let the job no longer refer to this, which refers to it: the garbage collector would have to find both."""
        self.job.__dict__.pop("_execution", None)

    def living_queue(self) -> Queue:
        """The queue, even if the job deleted it: it is where the claim is."""
        queue: Queue = self.queue
        return queue if "_pk" in vars(queue) else queue_of(type(queue), self.delivery)


def queue_of(queue_model: type[Queue], delivery: Delivery) -> Queue:
    """Return the object of the queue that a job came from."""
    return attached_queue(queue_model, delivery.queue_pk, delivery.queue_name, delivery.queue_priority)
