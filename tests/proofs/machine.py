"""The life of jobs: all that producers, workers and operators do to them, in any order, by hypothesis.

WorkerPool die here by doing nothing more: a claim that is not used, a job that was popped and is not claimed. They come
back late, too, as no claim is ever forgotten. After each step, what is stored is compared with the `Reference`, and
checked against the invariants; at the end all calms down, and each job must have ended.
"""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from itertools import count
from math import inf
from typing import Any

import pytest
import redis
from errands import Claim, Counterdesk, Errand, Mishap, Popped, all_of, delay_of, job_of, pk_of, queue_of, text_of
from hypothesis import strategies as st
from hypothesis.stateful import (
    Bundle,
    RuleBasedStateMachine,
    consumes,
    initialize,
    invariant,
    multiple,
    precondition,
    rule,
)
from invariants import contents, violations, violations_in
from limpyd.exceptions import DoesNotExist
from reference import QueueState, Reference
from rewritten import Replacement
from version_2 import Version2

from limpyd_jobs import LimpydJobsException, transitions
from limpyd_jobs.exceptions import ClaimLost, JobGone, NotClaimable, NotEditable
from limpyd_jobs.records import records
from limpyd_jobs.records.layout import layout_of
from limpyd_jobs.redis.calls import listed
from limpyd_jobs.transitions import UNCLAIMED_LEASE, ClaimRequest, Delivery, Ending, Room, many

LEASE = 60
WAIT = 30
MAX_DEFERRALS = 1
INTERVAL = 20  # from one job of a spread to the next
NOON = 1_800_000_000
LONG = 2 * UNCLAIMED_LEASE  # after which whatever lapses did so

# Scripts take the time from a key, so that it stands still, and moves on as the machine says.
CLOCK = Replacement("redis.call('TIME')", "{redis.call('GET', 'clock'), 0}")


Place = tuple[str, str]  # the name and the priority of a queue

PATH = Errand.get_model_repr()
KNOWN = {PATH: Errand}
QUEUES = [(name, priority) for priority in ("1", "0") for name in ("q", "p")]

identifiers = st.sampled_from("abc")
queues = st.sampled_from(QUEUES)
delays = st.sampled_from([None, 30, -1])
limits = st.sampled_from([0, 0, 40])
sometimes = st.booleans()
rooms = st.sampled_from([None, (0, inf), (1, 1), (1, 2)])  # how many suspects run, and how many may run at once


# Named functions, as older versions of hypothesis parse this file anew to describe a lambda.
def something_waits(life: Life) -> bool:
    return life.expected.first_waiting() is not None


def nothing_waits(life: Life) -> bool:
    return not something_waits(life)


def something_is_delayed(life: Life) -> bool:
    return any(queue.delayed for queue in life.expected.queues.values())


def a_process_may_be_dead(life: Life) -> bool:
    return any(queue.running for queue in life.expected.queues.values())


def something_stands_nowhere(life: Life) -> bool:
    return bool(life.expected.orphans())


def something_ended(life: Life) -> bool:
    return any(queue.success or queue.errors for queue in life.expected.queues.values())


def some_are(*statuses: str) -> Callable[[Life], bool]:
    def are_some(life: Life) -> bool:
        return any(job.status in statuses for job in life.expected.jobs.values())

    return are_some


class Life(RuleBasedStateMachine):
    """All that may happen to jobs.

    Parameters
    ----------
    client: redis.Redis
        One that decodes, of an own database.
    story: Counter
        Counts what happened.
    """

    jobs = Bundle("jobs")
    claims = Bundle("claims")
    popped = Bundle("popped")
    begun = Bundle("begun")

    def __init__(self, client: redis.Redis, story: Counter[str]) -> None:
        super().__init__()
        self.client = client
        self.story = story
        client.flushall()
        states = {records.queue_key_of(Counterdesk.get_queue(*queue)): QueueState(*queue) for queue in QUEUES}
        self.expected = Reference(NOON, LEASE, UNCLAIMED_LEASE, states, home="q")
        self.version_2 = Version2(client, Errand._name, PATH)
        self.numbers = count(1)
        self._error_before = sys.exc_info()[1]
        self._set_clock(0)

    # -- Producers

    @initialize(target=jobs)
    def some_jobs_are_there(self) -> Any:
        return multiple(*(self.a_job_is_added(each, QUEUES[0], None, False, False) for each in "ab"))

    @rule(
        target=jobs, identifier=identifiers, to=queues, delay=delays, prepend=sometimes, again=sometimes, within=limits
    )
    def a_job_is_added(
        self, identifier: str, to: Place, delay: int | None, prepend: bool, again: bool, within: int = 0
    ) -> Any:
        """A queued job of that identifier is the job, and moves up, unless it runs."""
        fields = {"_start_within": str(within)} if within else {}
        options: Any = {"prepend": prepend, "delay": text_of(delay), "fields": fields}
        add = partial(transitions.add, Errand, identifier, Counterdesk, *to, **options)
        outcomes = []
        for _ in range(1 + again):
            outcome, pk = add()
            outcomes.append(outcome)
            assert outcome == self._add(f"{PATH}:{pk}", identifier, to, delay, prepend, within)
        self._tell(*outcomes)
        return multiple() if outcomes[0] != "added" else f"{PATH}:{pk}"

    @rule(target=jobs, token=st.sampled_from("xyz"), identifier=identifiers, to=queues, delay=delays)
    def a_job_is_added_once(self, token: str, identifier: str, to: Place, delay: int | None) -> Any:
        """For each token, whatever became of the job."""
        key = f"{Counterdesk._name}:_once:{token}"
        outcome, pk = transitions.add(Errand, identifier, Counterdesk, *to, delay=text_of(delay), once=key)
        ident, known = f"{PATH}:{pk}", self.expected.tokens.get(token)
        if known:
            assert (outcome, ident) == ("existing", known)
        else:
            assert outcome == self._add(ident, identifier, to, delay, False, 0)
            self.expected.tokens[token] = ident
        self._tell(outcome)
        return ident if outcome == "added" else multiple()

    def _add(self, ident: str, identifier: str, to: Place, delay: int | None, prepend: bool, within: int) -> str:
        queued, queue = self.expected.queued_now(identifier), self.expected.queue_of(*to)
        if queued is None:
            self.expected.new(ident, identifier, queue, delay, prepend, within)
            return "added"
        job = self.expected.jobs[queued]
        if job.status == "c" and job.token:
            self.expected.follow(ident, identifier, queue, delay, prepend, within)
            return "added"
        assert ident == queued, f"{ident} is added, though {queued}, of the same identifier, is {job.status}"
        if job.token or job.status == "r" or not (prepend or to[1] > job.priority):
            return "existing"
        self.expected.unplace(queued, to[0])
        self.expected.place(queued, queue, delay, prepend)
        return "moved"

    @precondition(some_are("w", "d"))
    @rule(ident=jobs, to=queues, delay=delays, prepend=sometimes)
    def a_waiting_job_is_moved(self, ident: str, to: Place, delay: int | None, prepend: bool) -> None:
        """To another queue, to another place, or to wait for longer or shorter."""
        job = self.expected.jobs.get(ident)
        if job and not (job.status in ("w", "d") and job.is_queued and not job.token):
            return
        with self._refused_if(job is None, DoesNotExist):
            transitions.move(job_of(ident), Counterdesk, *to, prepend=prepend, delay=text_of(delay))
        if job:
            self.expected.unplace(ident, to[0])
            job.rescues, job.ended_claim = "", ""
            self.expected.place(ident, self.expected.queue_of(*to), delay, prepend)

    @precondition(some_are("w", "d"))
    @rule(ident=jobs, priority=st.sampled_from(["", "0", "1"]), delay=st.sampled_from([None, "", "+30000000"]))
    def a_job_is_edited(self, ident: str, priority: str, delay: str | None) -> None:
        """Once as somebody read it, which may be long ago, and as it is now."""
        job = self.expected.jobs.get(ident)
        can = job and job.status in ("w", "d") and job.is_queued and not job.token
        edit = partial(
            transitions.edit, job_of(ident), Counterdesk, {}, priority=priority, delay=delay, default_name="q"
        )
        with self._refused_if(True, NotEditable if job else DoesNotExist):
            transitions.edit(job_of(ident), Counterdesk, {"start": "never"}, seen={"status": "of another day"})
        with self._refused_if(not can, NotEditable if job else DoesNotExist):
            edit()
        if can:
            self.expected.edit(ident, "q", priority, None if delay is None else 30 if delay else 0)
            self._tell("edited")

    @precondition(some_are("w", "d"))
    @rule(ident=jobs, name=st.sampled_from("qp"), again=sometimes, by_hand=sometimes)
    def a_job_is_canceled(self, ident: str, name: str, again: bool, by_hand: bool) -> None:
        """It leaves its queue at once. An application written for version 2 just sets the status: whoever finds the
        job in its list sees to the rest."""
        job = self.expected.jobs.get(ident)
        if job and job.is_live and by_hand:
            self.version_2.cancel(pk_of(ident))
            job.status = "c"
            self._tell("canceled by hand")
            return
        for _ in range(1 + again):
            with self._refused_if(job is None, DoesNotExist):
                assert transitions.cancel(job_of(ident), Counterdesk, name) == self.expected.cancel(ident, name)
        self._tell("told" if job and job.token else "canceled")

    @rule(claim=claims, again=sometimes, by_hand=sometimes)
    def a_running_job_is_canceled(self, claim: Claim, again: bool, by_hand: bool) -> None:
        """It is told so, and ends as canceled if its code comes to an end."""
        self.a_job_is_canceled(claim.ident, "q", again, by_hand)

    @precondition(some_are("e"))
    @rule(ident=jobs, to=queues, delay=delays, again=sometimes, restart=sometimes)
    def a_job_in_error_is_requeued(self, ident: str, to: Place, delay: int | None, again: bool, restart: bool) -> None:
        """By anybody once it rests in error, by the hook of its worker while that holds it."""
        for _ in range(1 + again):
            job = self.expected.jobs.get(ident)
            is_free = job and job.status == "e" and not self.expected.queued_now(job.identifier, but=ident)
            with self._refused_if(not is_free, LimpydJobsException if job else DoesNotExist):
                transitions.requeue(job_of(ident), Counterdesk, *to, delay=text_of(delay), restart=restart)
            if job and is_free:
                if job.token:
                    self.expected.unplace(ident, to[0])
                else:
                    job.within = 0
                job.cursor = "" if restart else job.cursor
                job.ended_claim = ""
                self.expected.place(ident, self.expected.queue_of(*to), delay)
                self._tell("requeued by hand")

    @precondition(something_waits)
    @rule(to=queues, most=st.sampled_from([1, 3]))
    def jobs_that_failed_are_spread(self, to: Place, most: int) -> None:
        """One is due after the other. Who was interrupted, or did not get the reply, does the same once more: the rest
        is due behind the last one that waits for its moment, also of an earlier spread."""
        while self.expected.first_waiting():
            for claim in all_of(self.a_worker_claims_a_job(again=False, dies=False)):
                self.a_job_fails(claim, QUEUES[0], None, 0, again=False)
        failed = sorted(ident for ident, job in self.expected.jobs.items() if job.status == "e")
        request = {"conditions": "[]", "within": "", "queue_name": to[0], "priority": to[1], "unaudited": "1"}
        request |= {"queue_model": layout_of(Counterdesk).json, "turns": "turns", "spread": "3600"}
        for idents in filter(None, (failed[:most], failed)):
            pks = {"pks": listed(map(pk_of, idents)), "interval": f"{INTERVAL * 1_000_000}"}
            outcomes = self.expected.spread(idents, self.expected.queue_of(*to), INTERVAL)
            assert many.requeue_many(Errand, {**request, **pks}).outcomes == outcomes
            self._tell(*["spread"] * outcomes["done"])
        self._tell(*["spread on"] * (self.expected.turn > self.expected.now + INTERVAL))

    # -- Workers get jobs

    @precondition(something_waits)
    @rule(target=claims, again=sometimes, dies=sometimes)
    def a_worker_claims_a_job(self, again: bool, dies: bool) -> Any:
        """The first one that waits. It is registered no more."""
        request = self._request()
        claim = partial(transitions.claim, Counterdesk, worker="a worker")
        claims = self._next(claim(request)[0], request, again, lambda: claim(replace(request, is_again=True))[0])
        return self._lost(claims) if dies else claims

    @precondition(some_are("w"))
    @rule(ident=jobs, rescues=st.sampled_from(["0", "among 2", "among 3"]))
    def a_job_was_lost_with_others_twice(self, ident: str, rescues: str) -> None:
        """Which happens too rarely by itself."""
        job = self.expected.jobs.get(ident)
        if job and job.status == "w" and not job.token:
            job.rescues = rescues
            self.client.hset(f"{Errand._name}:{pk_of(ident)}:hash", "_rescues", job.rescues)

    @precondition(something_waits)
    @rule(
        target=claims,
        limit=st.sampled_from([2, 9]),
        room=rooms,
        again=sometimes,
    )
    def a_worker_claims_several_jobs(self, limit: int, room: tuple[int, float] | None, again: bool) -> Any:
        """To run them one after the other, or at once. One that may kill its workers comes alone, or is passed over."""
        most: Any = "" if room is None or room[1] == inf else int(room[1])
        request = replace(self._request(), room=None if room is None else Room(room[0], most))
        claim = partial(transitions.succeed_many, self.client, [])
        found = claim(request, limit)[1]
        expected = self.expected.claim_several(limit, request.token, room)
        assert [(each.outcome, each.ident, each.queue_key, each.token) for each in found] == expected
        claims = [Claim(each.ident, each.queue_key, each.token) for each in found if each.outcome == "claimed"]
        if claims and again:
            once_more = claim(replace(request, is_again=True), limit)[1]
            assert [(each.ident, each.token) for each in once_more] == [(each.ident, each.token) for each in claims]
        for each in found:
            self._see_to(each)
        self._tell(*["a suspect" if each.suspects_beside else "one of several" for each in found if each.token])
        return multiple(*claims)

    @rule(target=claims, ident=jobs, name=st.sampled_from("qp"), again=sometimes)
    def an_application_claims_a_job(self, ident: str, name: str, again: bool) -> Any:
        """Wherever it stands. If it is another's, or not to be run, nothing happens; if too late, it is canceled."""
        token = f"token {next(self.numbers)}"
        claim = partial(transitions.claim_job, job_of(ident), Counterdesk, name, token, LEASE)
        delivery = None
        is_refused = not self.expected.can_be_claimed(ident)
        is_late = not is_refused and self.expected.jobs[ident].is_too_late(self.expected.now)
        if is_late and not self.expected.has_to_follow(ident):
            with pytest.raises(NotClaimable, match="not begun"):
                claim()
            self.expected.claim_job(ident, name, token)
            self._tell("too late")
            return multiple()
        if not is_refused and self.expected.has_to_follow(ident):
            with pytest.raises(NotClaimable, match=r"DELAYED: job .* has not ended"):
                claim()
            self.expected.claim_job(ident, name, token)
            return multiple()
        with self._refused_if(is_refused, LimpydJobsException if ident in self.expected.jobs else DoesNotExist):
            delivery = claim()
        if delivery is None:
            return multiple()
        queue = self.expected.claim_job(ident, name, token)
        assert (delivery.outcome, delivery.ident, delivery.queue_key) == ("claimed", ident, queue)
        if again:
            assert claim() == delivery
            self.expected.jobs[ident].within = 0  # it has begun in time
        self._tell("claimed by an application")
        return Claim(ident, queue, token)

    @precondition(nothing_waits)
    @rule()
    def a_worker_waits(self) -> None:
        """As there is no job, it is registered, for those who add one to tell it."""
        assert transitions.claim(Counterdesk, self._request(), worker="a worker", wait=WAIT)[0] is None
        self._tell("registered")

    @precondition(something_waits)
    @rule(target=popped, dies=sometimes)
    def a_job_is_popped(self, dies: bool) -> Any:
        """As workers do that fetch by themselves: it stands nowhere until they claim it. If one dies then, or the
        reply is lost, nobody does."""
        popped = self._pop()
        return self._lost(popped) if dies else popped

    def _pop(self) -> Popped:
        expected = self.expected.first_waiting()
        key, ident = self.client.blpop(self._waiting_keys(), timeout=1)
        popped = Popped(ident, key.removesuffix(":waiting"))
        assert (popped.queue, popped.ident) == expected
        self.expected.queues[popped.queue].waiting.pop(0)
        self._tell("popped")
        return popped

    def _lost(self, what: Any) -> Any:
        if isinstance(what, Claim | Popped):
            self._tell(f"{type(what).__name__.lower()} and lost")
        return multiple()

    @rule(target=claims, popped=consumes(popped))
    def what_was_popped_is_claimed(self, popped: Popped) -> Any:
        """At once, or late, when it may be in its list again, or in other hands."""
        request = self._request(f"{popped.queue}:waiting")
        fetched, _ = transitions.claim(Counterdesk, request, popped.ident)
        outcome = self.expected.claim(popped.ident, popped.queue, request.token)
        assert (fetched.outcome, fetched.ident) == (outcome, popped.ident)
        self._see_to(fetched)
        return Claim(popped.ident, popped.queue, request.token) if outcome == "claimed" else multiple()

    @precondition(something_waits)
    @rule(seconds=st.sampled_from([10, 60]))
    def a_job_is_deferred(self, seconds: int) -> None:
        """A worker does not know its class."""
        fetched, _ = transitions.claim(Counterdesk, replace(self._request(), classes={}))
        assert fetched
        assert (fetched.outcome, fetched.queue_key, fetched.ident) == ("unknown", *self.expected.first_waiting())
        outcome, _ = transitions.defer_unresolved(Counterdesk, fetched.key, fetched.ident, seconds, MAX_DEFERRALS)
        assert outcome == self.expected.defer_unresolved(fetched.ident, fetched.queue_key, seconds, MAX_DEFERRALS)
        self._tell(outcome)

    # -- Workers end jobs

    @rule(target=claims, claim=claims, again=sometimes, goes_on=sometimes)
    def a_job_succeeds(self, claim: Claim, again: bool, goes_on: bool) -> Any:
        """Unless it was canceled or delayed while it ran, and has to end so."""
        job = self.expected.jobs.get(claim.ident)
        if job and job.status in ("c", "d"):
            ending = transitions.succeed(job_of(claim.ident), queue_of(claim.queue), claim.token)
            assert ending == Ending("canceled" if job.status == "c" else "delayed")
        if job and job.status == "c":
            effect = partial(self.expected.end, claim.ident, claim.queue, claim.token, "c")
            return self._end(claim, transitions.finish_canceled, effect, again, goes_on)
        if job and job.status == "d":
            name = self.expected.queues[claim.queue].name
            effect = partial(self._delay, claim, name)
            return self._end(claim, transitions.delay, effect, again, goes_on, name, delay_of(claim.ident))
        return self._end(claim, transitions.succeed, partial(self._succeed, claim), again, goes_on)

    def _delay(self, claim: Claim, name: str) -> None:
        job = self.expected.jobs[claim.ident]
        to = self.expected.queue_of(name, job.priority)
        self.expected.put_back(claim.ident, claim.queue, claim.token, to, job.due - self.expected.now)

    def _succeed(self, claim: Claim) -> None:
        self.expected.end(claim.ident, claim.queue, claim.token, "s")
        self.expected.queues[claim.queue].success.append(claim.ident)

    @rule(target=claims, claim=claims, to=queues, delay=delays, times=st.sampled_from([0, 1, 9]), again=sometimes)
    def a_job_fails(self, claim: Claim, to: Place, delay: int | None, times: int, again: bool) -> Any:
        """It is put back while its tries allow it, unless it was canceled."""
        effect = partial(self._fail, claim, self.expected.queue_of(*to), delay, times)
        return self._end(claim, transitions.fail, effect, again, True, times, *to, text_of(delay))

    def _fail(self, claim: Claim, to: str, delay: int | None, times: int) -> None:
        job = self.expected.jobs[claim.ident]
        if job.tries <= times and not (job.is_told or job.followed_by):
            self.expected.put_back(claim.ident, claim.queue, claim.token, to, delay)
        else:
            self.expected.end(claim.ident, claim.queue, claim.token, "e")
        self.expected.queues[claim.queue].errors.append(claim.ident)

    @rule(claim=claims)
    def a_job_fails_and_is_held(self, claim: Claim) -> None:
        """Its hooks are to see it in error, and put it back themselves, if it may run again."""
        job = self.expected.jobs.get(claim.ident)
        if job and job.token == claim.token and job.tries <= 9 and not (job.is_told or job.followed_by):
            ending = transitions.fail(job_of(claim.ident), queue_of(claim.queue), claim.token, 9, hold=True)
            assert ending.outcome == "held"
            job.status = "e"
            self.expected.queues[claim.queue].errors.append(claim.ident)
            self._tell("held")

    @rule(claim=claims)
    def a_worker_lets_go(self, claim: Claim) -> None:
        """The state of the job is what its hooks made of it, unless it has to be put in a delayed set."""
        job = self.expected.jobs.get(claim.ident)
        is_held = job and job.token == claim.token
        if is_held and job.status == "r":
            return
        is_done = transitions.abandon(Errand, claim.ident, claim.token, claim.queue)
        assert is_done == (not is_held or job.status != "d")
        if is_held and is_done:
            self.expected.end(claim.ident, claim.queue, "", job.status)
        elif not job or not job.token:
            self.expected.queues[claim.queue].running.pop(claim.ident, None)

    @precondition(some_are("r"))
    @rule(claim=claims, to=queues, delay=delays)
    def a_running_job_asks_to_be_delayed(self, claim: Claim, to: Place, delay: int | None) -> None:
        """Its code marks it, and its worker delays it afterwards."""
        job = self.expected.jobs.get(claim.ident)
        if job and job.token and job.status != "e":
            placed = transitions.move(job_of(claim.ident), Counterdesk, *to, delay=text_of(delay))
            assert placed.status == "r"
            job.status, job.priority, job.due = "d", to[1], self.expected.now + (delay or 0)
            self._tell("marked as delayed")

    @rule(claim=claims, delay=delays, again=sometimes, begun=sometimes)
    def a_worker_gives_its_job_back(self, claim: Claim, delay: int | None, again: bool, begun: bool) -> None:
        """It has to end: the job goes to the front of its list, and the try is not counted."""
        held = Errand, claim.ident, claim.token, claim.queue
        release = partial(transitions.release, *held, text_of(delay), begun=begun)
        if claim.ident not in self.expected.jobs:
            release()
            return
        for _ in range(1 + again):
            with self._fenced(claim) as is_held:
                release()
            if is_held:
                self.expected.release(claim.ident, claim.queue, claim.token, delay, begun)
                self._tell("released")

    @rule(claim=claims, cursor=st.sampled_from(["", "a", "b"]))
    def a_worker_is_alive(self, claim: Claim, cursor: str) -> None:
        """Its heartbeat extends the lease, and keeps how far the job is; or it tells that the claim is lost, unless it
        ended that itself."""
        job = self.expected.jobs.get(claim.ident)
        is_held = bool(job and job.token == claim.token)
        is_lost = not (is_held or (job and job.ended_claim == claim.token))
        try:
            held, kept = (claim.ident, claim.token, claim.queue), {"cursor": cursor} if cursor else {}
            is_renewed = bool(transitions.renew(self.client, Errand, *held, LEASE, kept))
        except (ClaimLost, JobGone):
            is_renewed = False
        assert is_renewed != is_lost, f"the lease of {claim} is renewed: {is_renewed}"
        if is_held:
            self.expected.renew(claim.ident, claim.queue, cursor)
            self._tell("renewed", *["further"] * bool(cursor))

    # -- Time, and those who see to what is due

    @rule(seconds=st.sampled_from([1, 31, 61, 301, LONG, -61]))
    def the_clock_goes_on(self, seconds: int) -> None:
        """Leases lapse, delays pass; a clock that is put right may jump back."""
        self._set_clock(seconds)

    @precondition(something_is_delayed)
    @rule(again=sometimes)
    def delayed_jobs_wake(self, again: bool) -> None:
        for _ in range(1 + again):
            more, _failures, unknown, _ready = transitions.promote(Counterdesk, list(self.expected.queues), KNOWN)
            assert (more, unknown) == (False, [])
            self.expected.promote()

    @precondition(a_process_may_be_dead)
    @rule(target=claims, limit=st.sampled_from([0, 1, 3]), again=sometimes)
    def a_worker_looks_for_dead_ones(self, limit: int, again: bool) -> Any:
        """What they ran waits again. A job that was rescued too often is claimed, to be put in error."""
        claims = []
        for _ in range(1 + again):
            request = self._request()
            found = transitions.rescue(Counterdesk, list(self.expected.queues), limit, request)
            rescued, exhausted = self.expected.rescue(limit, request.token)
            assert [each.ident for each in found.rescued] == rescued
            assert (found.exhausted.ident if found.exhausted else "") == exhausted
            if found.exhausted:
                claims.append(Claim(exhausted, found.exhausted.queue_key, request.token))
            self._tell(*["rescued"] * len(rescued), *["rescued too often"] * len(claims))
        return multiple(*claims)

    @precondition(something_stands_nowhere)
    @rule(again=sometimes)
    def a_worker_looks_for_orphans(self, again: bool) -> None:
        """Live jobs that stand nowhere are put back: those that were popped are in their lists again."""
        orphans = self.expected.orphans()
        for _ in range(1 + again):
            _repaired, unplaceable = transitions.reconcile(Counterdesk, Errand, orphans, LEASE)
            assert unplaceable == []
        for ident in orphans:
            self.expected.reconcile(ident)
            self._tell("orphan")

    @precondition(something_ended)
    @rule(queue=queues, name=st.sampled_from(["success", "errors"]), keep=st.sampled_from([0, 1]), again=sometimes)
    def finished_jobs_are_deleted(self, queue: Place, name: str, keep: int, again: bool) -> None:
        """The oldest first, and none that lives again."""
        key = self.expected.queue_of(*queue)
        for _ in range(1 + again):
            pruning = transitions.prune(Counterdesk, f"{key}:{name}", keep, Mishap, KNOWN)
            assert pruning.deleted == self.expected.prune(key, name, keep)
            self._tell(*["deleted"] * pruning.deleted)

    # -- WorkerPool of version 2

    @rule(target=jobs, identifier=identifiers, to=queues)
    def version_2_adds_a_job(self, identifier: str, to: Place) -> Any:
        if self.expected.queued(identifier):
            return multiple()
        queue = self.expected.queue_of(*to)
        ident = f"{PATH}:{self.version_2.add(identifier, queue, to[1])}"
        self.expected.new(ident, identifier, queue)
        self.expected.jobs[ident].queue = ""
        return ident

    @precondition(some_are("w"))
    @rule(ident=jobs, name=st.sampled_from("qp"))
    def version_2_raises_a_priority(self, ident: str, name: str) -> None:
        job = self.expected.jobs.get(ident)
        if job and job.status == "w" and not job.token and job.priority == "0":
            before, after = (self.expected.queue_of(name, priority) for priority in "01")
            self.version_2.raise_priority(pk_of(ident), before, after, "1")
            waiting = self.expected.queues[before].waiting
            self.expected.queues[before].waiting = [each for each in waiting if each != ident]
            self.expected.queues[after].waiting.append(ident)
            job.priority = "1"

    @precondition(something_waits)
    @rule(target=begun)
    def version_2_begins_a_job(self) -> Any:
        """It runs without a claim: should its worker die, it is left alone for a day."""
        popped = self._pop()
        job = self.expected.jobs.get(popped.ident)
        if not job or job.status != "w":
            return multiple()
        self.version_2.begin(pk_of(popped.ident), job.tries + 1)
        job.status, job.tries = "r", job.tries + 1
        self._tell("begun by version 2")
        return popped

    @rule(begun=consumes(begun), outcome=st.sampled_from(["success", "error", "put back"]))
    def version_2_ends_a_job(self, begun: Popped, outcome: str) -> None:
        """Which nobody else may have begun since: version 2 would not notice."""
        job, queue = self.expected.jobs.get(begun.ident), self.expected.queues[begun.queue]
        if not job or job.status != "r" or job.token:
            return
        if outcome == "success":
            self.version_2.succeed(pk_of(begun.ident), begun.queue)
            job.status, job.is_queued = "s", False
            queue.success.append(begun.ident)
        elif outcome == "error":
            self.version_2.fail(pk_of(begun.ident), begun.queue)
            job.status, job.is_queued = "e", False
            queue.errors.append(begun.ident)
        else:
            self.version_2.put_back(pk_of(begun.ident), begun.queue)
            job.status = "w"
            queue.errors.append(begun.ident)
            queue.waiting.append(begun.ident)
        self._tell("ended by version 2")

    # -- What must hold

    @invariant()
    def what_is_stored_is_what_should_be(self) -> None:
        """The invariants hold but for jobs that are in the hands of a process, or were left behind by one; where these
        are is known, too."""
        in_between = tuple(f"{ident}, of status" for ident in self.expected.jobs if not self.expected.rests(ident))
        stored = contents(self.client)
        found = violations_in(stored, Errand, Counterdesk, Mishap)
        assert [problem for problem in found if not problem.partition(" ")[2].startswith(in_between)] == []
        keys = {ident: f"{Errand._name}:{pk_of(ident)}:hash" for ident in self.expected.jobs}
        assert [*self.expected.differences(stored, keys)] == []
        self.story["steps"] += 1

    def teardown(self) -> None:
        """At last all who did something die, and healthy workers go on: each job ends, none is left anywhere."""
        if sys.exc_info()[1] is self._error_before:  # else the story failed
            self._calm_down()

    def _calm_down(self) -> None:
        for _ in range(20):
            self.the_clock_goes_on(LONG)
            for claim in all_of(self.a_worker_looks_for_dead_ones(limit=3, again=True)):
                self.a_job_fails(claim, QUEUES[0], None, 0, again=False)
            self.a_worker_looks_for_orphans(again=False)
            self.delayed_jobs_wake(again=False)
            while self.expected.first_waiting():
                for claim in all_of(self.a_worker_claims_a_job(again=False, dies=False)):
                    self.a_job_succeeds(claim, again=False, goes_on=False)
            if not self.expected.unfinished():
                break
        assert self.expected.unfinished() == []
        self.what_is_stored_is_what_should_be()
        assert violations(self.client, Errand, Counterdesk, Mishap) == []
        self.story["stories"] += 1

    # -- How it is done

    def _tell(self, *events: str) -> None:
        self.story.update(events)

    def _set_clock(self, seconds: int) -> None:
        self.expected.now += seconds
        self.client.set("clock", self.expected.now)

    def _waiting_keys(self) -> list[str]:
        return [f"{key}:waiting" for key in self.expected.queues]

    def _request(self, *keys: str) -> ClaimRequest:
        return ClaimRequest(keys or self._waiting_keys(), f"token {next(self.numbers)}", LEASE, KNOWN)

    @contextmanager
    def _refused_if(self, condition: object, error: type[Exception]) -> Iterator[None]:
        """What is refused changes nothing."""
        if not condition:
            yield
            return
        before = contents(self.client)
        with pytest.raises(error):
            yield
        assert contents(self.client) == before

    @contextmanager
    def _fenced(self, claim: Claim) -> Iterator[bool]:
        """Only the holder of a claim ends it, and gets the same answer when it asks again. Yields whether it is so."""
        job = self.expected.jobs.get(claim.ident)
        is_held = bool(job and job.token == claim.token)
        is_refused = not is_held and not (job and job.ended_claim == claim.token)
        self._tell(*["refused"] * is_refused)
        with self._refused_if(is_refused, ClaimLost if job else DoesNotExist):
            yield is_held

    def _end(
        self,
        claim: Claim,
        verb: Callable[..., Ending],
        effect: Callable[[], None],
        again: bool,
        goes_on: bool,
        *arguments: Any,
    ) -> Any:
        """End a claim, and claim the next job in the same step if the worker goes on."""
        request = self._request() if goes_on else None
        call = partial(verb, job_of(claim.ident), queue_of(claim.queue), claim.token, *arguments, next_claim=request)
        ending = None
        with self._fenced(claim) as is_held:
            ending = call()
        if ending is None:
            return multiple()
        if is_held:
            effect()
            self._tell(f"{verb.__name__}: {ending.outcome}")
        return self._next(ending.prefetched, request, again, lambda: self._same(ending, call()))

    @staticmethod
    def _same(ending: Ending, once_more: Ending) -> Delivery | None:
        assert once_more.outcome == ending.outcome, f"the same call again ended the job as {once_more.outcome}"
        return once_more.prefetched

    def _next(
        self, fetched: Delivery | None, request: ClaimRequest | None, again: bool, ask: Callable[[], Delivery | None]
    ) -> Any:
        """The claim on what was fetched; the reply may be lost, so that the worker asks once more."""
        claim = self._taken(fetched, request)
        if again:
            once_more = ask()
            if claim:
                assert once_more == fetched, f"the same call again fetched {once_more}"
            else:
                fetched, claim = once_more, self._taken(once_more, request)
        self._see_to(fetched)
        return claim or multiple()

    def _taken(self, fetched: Delivery | None, request: ClaimRequest | None) -> Claim | None:
        """The claim on a job that was taken from the first list that had one, if it waited indeed."""
        first = self.expected.first_waiting() if request else None
        if not (first and request):
            assert fetched is None
            return None
        queue, ident = first
        self.expected.queues[queue].waiting.pop(0)
        outcome = self.expected.claim(ident, queue, request.token)
        assert fetched
        assert (fetched.outcome, fetched.ident, fetched.queue_key) == (outcome, ident, queue)
        self._tell(outcome, *["too late"] * (outcome == "found" and self.expected.jobs[ident].within > 0))
        return Claim(ident, queue, request.token) if outcome == "claimed" else None

    def _see_to(self, fetched: Delivery | None) -> None:
        """A job that was found in a list, but did not wait, is delayed as it says, or no longer queued if it ended."""
        job = self.expected.jobs.get(fetched.ident) if fetched and fetched.outcome == "found" else None
        if not job or not fetched:
            return
        if job.status == "d":
            claim = Claim(fetched.ident, fetched.queue_key, "")
            name = self.expected.queues[claim.queue].name
            with self._refused_if(job.token, ClaimLost):
                unclaimed = job_of(claim.ident), queue_of(claim.queue), transitions.UNCLAIMED
                transitions.delay(*unclaimed, name, delay_of(claim.ident))
            if not job.token:
                self._delay(claim, name)
            return
        if job.status == "r" and not job.token:
            self.expected.found_running(fetched.ident, fetched.queue_key)
        if transitions.skip(job_of(fetched.ident), queue_of(fetched.queue_key), LEASE):
            job.is_queued = False
            if job.followed_by:
                self.expected.unfollow(fetched.ident)
