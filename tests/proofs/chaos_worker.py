"""The worker of the chaos test, which tells what Redis accepted of it. For processes of their own only: importing this
changes the library.

- A lost job is looked for after a second or two, instead of ten.
- With `NO_RESCUE` in the environment, none is looked for at all.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from functools import wraps
from time import monotonic
from typing import Any

from chaos_marks import Pulse, marks

from limpyd_jobs import Worker, transitions
from limpyd_jobs.dates import parse_datetime, utcnow
from limpyd_jobs.exceptions import ClaimLost
from limpyd_jobs.models.claims.job_claim import JobClaim
from limpyd_jobs.transitions import ClaimRequest, Delivery, Ending
from limpyd_jobs.workers.claiming.claimer import Claimer
from limpyd_jobs.workers.maintenance import rescue
from limpyd_jobs.workers.maintenance.rescue import Rescuer
from limpyd_jobs.workers.running import executor

NO_RESCUE = "CHAOS_NO_RESCUE"

# What Redis says of a claim whose lease begins anew.
RENEWED = ("done", "canceled")

# What it says, whoever has the claim, if the status of the job has to be heeded first: nothing is recorded yet.
NOT_YET = ("canceled", "delayed")

rescue.ORPHAN_SEEN_FOR = 1.0


class ChaosWorker(Worker):
    """A worker that marks that it began, and when it had no time to do anything."""

    def run_started(self) -> None:
        super().run_started()
        marks().write("begun")
        Pulse(marks())


def _nothing(*args: Any) -> None: ...


if NO_RESCUE in os.environ:
    Rescuer.run = rescue.Reconciler.run = _nothing  # type: ignore[method-assign]


def _mark_requests() -> None:
    request = Claimer.request

    @wraps(request)
    def marked(*args: Any, **options: Any) -> ClaimRequest:
        made = request(*args, **options)
        marks().write("claim", token=made.token)
        return made

    Claimer.request = marked  # type: ignore[method-assign]


def _mark_claims() -> None:
    """With the moment when it was made, which Redis tells: after the request, if the worker had to wait."""
    ask = Claimer._ask

    @wraps(ask)
    def marked(*args: Any, **options: Any) -> Any:
        fetched = ask(*args, **options)
        if fetched and fetched.token:
            age = utcnow() - parse_datetime(fetched.start)
            marks().write("claimed", token=fetched.token, at=monotonic() - age.total_seconds())
        return fetched

    Claimer._ask = marked  # type: ignore[method-assign]


def _mark_renewals() -> None:
    renew = transitions.renew

    @wraps(renew)
    def marked(
        connection: Any, job_class: Any, ident: str, token: str, queue_key: str, lease: Any = None, **options: Any
    ) -> Any:
        sent = monotonic()
        reply = renew(connection, job_class, ident, token, queue_key, lease, **options)
        if lease is not None and reply["outcome"] in RENEWED:
            marks().write("renewed", token=token, at=sent)
        return reply

    transitions.renew = marked


def _mark_endings(verb: str) -> None:
    end = getattr(transitions, verb)

    @wraps(end)
    def marked(job: Any, queue: Any, token: str, *args: Any, **options: Any) -> Ending:
        marks().write("asked", token=token, verb=verb)
        try:
            ending: Ending = end(job, queue, token, *args, **options)
        except ClaimLost:
            marks().write("refused", token=token)
            raise
        if ending.outcome not in NOT_YET:
            marks().write("recorded", token=token, outcome=ending.outcome)
        return ending

    setattr(transitions, verb, marked)


def _mark_releases() -> None:
    release = transitions.release

    @wraps(release)
    def marked(job_class: Any, ident: str, token: str, *args: Any, **options: Any) -> Any:
        marks().write("asked", token=token, verb="release")
        try:
            reply = release(job_class, ident, token, *args, **options)
        except ClaimLost:
            marks().write("refused", token=token)
            raise
        if reply["outcome"] not in NOT_YET:
            marks().write("recorded", token=token, outcome="released")
        return reply

    transitions.release = marked


def _mark_releases_together() -> None:
    release_all = executor.release_all

    @wraps(release_all)
    def marked(claims: Sequence[JobClaim]) -> None:
        tokens = {claim: claim.token for claim in claims}
        for token in tokens.values():
            marks().write("asked", token=token, verb="release")
        release_all(claims)
        for claim, token in tokens.items():
            if claim.outcome == "released":
                marks().write("recorded", token=token, outcome="released")

    executor.release_all = marked


def _mark_batches() -> None:
    renew_all, succeed_many = transitions.renew_all, transitions.succeed_many

    @wraps(renew_all)
    def marked_renewals(connection: Any, claims: Any, *args: Any, **options: Any) -> list[Any]:
        sent, renewed = monotonic(), list(claims)
        outcomes = renew_all(connection, renewed, *args, **options)
        for claim, outcome in zip(renewed, outcomes, strict=False):
            if outcome in RENEWED:
                delivery = next(each for each in claim if isinstance(each, Delivery))
                marks().write("renewed", token=delivery.token, at=sent)
        return outcomes

    @wraps(succeed_many)
    def marked_endings(connection: Any, successes: Any, *args: Any, **options: Any) -> Any:
        ended = list(successes)
        endings, upcoming = succeed_many(connection, ended, *args, **options)
        for success, (outcome, *_) in zip(ended, endings, strict=True):
            if outcome not in NOT_YET:
                kind = "refused" if outcome == "refused" else "recorded"
                marks().write(kind, token=success.delivery.token, outcome=outcome)
        return endings, upcoming

    transitions.renew_all, transitions.succeed_many = marked_renewals, marked_endings


_mark_requests()
_mark_claims()
_mark_renewals()
for _verb in ("succeed", "fail"):
    _mark_endings(_verb)
_mark_releases()
_mark_releases_together()
_mark_batches()
