"""What a worker has in its hands."""

from __future__ import annotations

from time import monotonic

from limpyd_jobs.models import Job
from limpyd_jobs.transitions import IN_HAND, NOTHING, Delivery


class Claim:
    """A job that came out of a waiting list, from then on until its end is recorded.

    Parameters
    ----------
    fetched: Delivery
        What came out of the list.

    Attributes
    ----------
    job: Job
        None until the object is made.
    token: str
        The name of the claim; empty once it is ended, or if there is none.
    is_held: bool
        Whether the job is held in error, for hooks to see it before it is put back in a queue.
    is_ended: bool
        Whether the worker recorded how it ended.
    is_lost: bool
        Whether somebody else holds it, or the job was deleted, as it turned out when the lease was renewed.
    began: float
        When it was made, by the clock of `monotonic`.
    """

    def __init__(self, fetched: Delivery = NOTHING) -> None:
        self.fetched = fetched
        self.job: Job | None = None
        self.token = fetched.token
        self.is_held = False
        self.is_ended = False
        self.is_lost = False
        self.began = monotonic()

    @property
    def is_in_hand(self) -> bool:
        """Whether the job is out of its list for the application to look at, and not claimed to be run yet."""
        return self.token.startswith(IN_HAND)

    @property
    def began_late(self) -> float | None:
        """When it was made, if the job was one of several that were claimed at once, and waited for others."""
        return self.began if self.fetched.is_one_of_several else None

    def is_on(self, job: Job) -> bool:
        """Whether it is about that job."""
        is_of_class = job is self.job or job.get_model_repr() == self.fetched.path
        return is_of_class and vars(job).get("_pk") == self.fetched.pk

    def end(self) -> None:
        """The worker has no claim any more."""
        self.token = ""
        self.is_ended = True
