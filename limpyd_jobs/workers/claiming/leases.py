"""Renewing the leases of all jobs that a worker has claimed."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from operator import attrgetter
from time import monotonic

from redis import Redis

from limpyd_jobs import transitions
from limpyd_jobs.exceptions import LimpydJobsException
from limpyd_jobs.models import job_classes
from limpyd_jobs.models.claims.job_claim import Renewing, job_class_of, next_step
from limpyd_jobs.redis.calls import chunks
from limpyd_jobs.search.classes import connection_to
from limpyd_jobs.texts import one_line
from limpyd_jobs.transitions import MAX_RENEWED, Delivery, Renewal
from limpyd_jobs.workers.claiming.stock import Stock
from limpyd_jobs.workers.context import Context
from limpyd_jobs.workers.run import Run, Runs

# Which part of the lease all renewals together may take: the next ones begin a quarter of the lease later. A worker for
# which they took longer has caught up once they take half of that.
MAX_PART = 1 / 2


@dataclass(eq=False)
class Leases:
    """The leases of one worker. A thread renews them, so it uses a connection that threads share."""

    context: Context
    stock: Stock
    runs: Runs
    log_not_renewed: Callable[[str, Exception], None]  # for an identifier
    on_canceled: Callable[[Run], None] = lambda _: None  # called with a running job that was canceled

    def __post_init__(self) -> None:
        self._lease: float = self.context.settings.lease
        self._began = 0.0
        self._number = 0  # how many leases are renewed
        self._fails = self._failed_before = False  # whether Redis failed, this time and the last time
        self._lapsed = ""  # the identifier of a job whose lease had lapsed before it was renewed

    def renew(self, connection: Redis) -> None:
        """Renew all leases, those that end first before the others. Nothing is raised."""
        self._began, self._number, self._lapsed = monotonic(), 0, ""
        self._failed_before, self._fails = self._fails, False
        # Looked at in the order in which a job goes from one to the next: none is missed that does so meanwhile.
        prefetched = [delivery for delivery in self.stock.deliveries.copy() if self.stock.holds(delivery)]
        releasing = self.stock.releasing.copy()
        running = [*self.runs.offered.copy().values(), *self.runs.now_running()]
        known = set(running)
        unrecorded = [each.delivery for each in self.runs.unrecorded.copy() if each not in known]
        self._renew_others(connection, prefetched, [*releasing, *unrecorded])
        self._renew_running(connection, running)
        self._note_pace(is_over=True)

    def _note_pace(self, *, is_over: bool = False) -> None:
        """Note whether the worker keeps up with its leases: else it must not claim more jobs."""
        state, longest, seconds = self.context.state, self._lease * MAX_PART, monotonic() - self._began
        if self._fails:  # which is logged, and says nothing of this worker
            return
        if not state.is_behind and (self._lapsed or seconds > longest):
            state.is_behind = True
            why = f"that of [{one_line(self._lapsed)}] had lapsed" if self._lapsed else f"it took {seconds:.1f} s"
            leases = f"{self._number:,} leases of {self._lease:g} s"
            self.context.log(f"{leases} are not renewed in time ({why}): no more jobs are claimed", "warning")
        elif is_over and state.is_behind and not self._lapsed and seconds <= longest / 2:
            state.is_behind = False
            self.context.log("Leases are renewed in time again: jobs are claimed")

    def _failed(self, delivery: Delivery, error: Exception) -> None:
        self._fails = True
        self.log_not_renewed(delivery.identifier, error)

    # -- The jobs that run

    def _renew_running(self, connection: Redis, running: Sequence[Run]) -> None:
        """Renew the leases of the jobs that run, and keep their cursors: of those whose leases end first, then of the
        last one first, so that they would be rescued in their order."""
        runs = [each for each in running if each.is_held and not each.is_lost]
        self._number += len(runs)
        databases = {each.delivery.database for each in runs}
        for database in sorted(databases, key=bool):  # the own one first: another one may not answer
            here = [each for each in runs[::-1] if each.delivery.database is database]
            shard: Redis = connection_to(database) if database else connection
            self._renew_all(shard, sorted(here, key=attrgetter("renewed")))

    def _renew_all(self, connection: Redis, runs: Iterable[Run]) -> None:
        """Renew some leases in order, in as few steps as may be."""
        waiting = iter(runs)
        is_more = True
        while is_more:
            with ExitStack() as stack:
                some = next_step(waiting, lambda run: run, stack)
                is_more = bool(some)
                if some:
                    self._renew_some(connection, some)
            self._note_pace()

    def _renew_some(self, connection: Redis, some: Sequence[Renewing[Run]]) -> None:
        sent = monotonic()
        try:
            claims = [Renewal(job_class_of(each.delivery), each.delivery, keeping.request) for each, keeping in some]
            outcomes = transitions.renew_all(connection, claims, self._lease)
        except Exception as error:
            self._failed(some[0][0].delivery, error)
            return
        for (run, keeping), outcome in zip(some, outcomes, strict=True):
            keeping.is_done = outcome in ("done", "canceled")
            self._was_answered(run, outcome, sent)

    def _was_answered(self, run: Run, outcome: str, sent: float) -> None:
        if outcome in ("refused", "gone") and run.lose():
            self._log_lost(run.delivery)
        elif outcome == "failed":
            self.log_not_renewed(run.delivery.identifier, LimpydJobsException("its record is broken"))
        elif outcome in ("done", "canceled"):
            if run.is_held and sent - run.renewed > self._lease and not self._failed_before:
                self._lapsed = run.delivery.identifier
            if run.was_renewed(sent, outcome):
                self.on_canceled(run)

    # -- The other ones

    def _renew_others(self, connection: Redis, prefetched: Sequence[Delivery], others: Sequence[Delivery]) -> None:
        """Renew the leases of the jobs that are run next; of others, that are released, or whose end is not recorded
        yet."""
        following = self.stock
        claims = [*prefetched[::-1], *others[::-1]]  # so that they would be rescued in their order
        if not claims:
            return
        self._number += len(claims)
        try:
            found = [Renewal(job_classes.resolve(delivery.path), delivery) for delivery in claims]
            outcomes = [
                outcome
                for some in chunks(found, MAX_RENEWED)
                for outcome in transitions.renew_all(connection, some, self._lease)
            ]
            waiting = {delivery.token for delivery in following.deliveries.copy()}  # another thread may release them
            for delivery, outcome in zip(prefetched[::-1], outcomes, strict=False):
                if delivery.token in waiting:
                    following.note(delivery, outcome)
            lost = [delivery for delivery in prefetched if not following.holds(delivery)]
            if lost:
                self._log_lost(lost[0], others=len(lost) - 1)
        except Exception as error:
            self._failed(claims[0], error)

    def _log_lost(self, delivery: Delivery, others: int = 0) -> None:
        more = f" (and {others} more that are next)" if others else ""
        text = f"[{one_line(delivery.identifier)}] lost its claim: another worker may run it{more}"
        self.context.log(text, "error")
