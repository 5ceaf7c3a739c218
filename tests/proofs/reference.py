"""What a database of jobs should hold after each thing that is done to it, told in plain Python: statuses, claims, and
where each job stands."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from functools import partial
from math import inf
from typing import NamedTuple

from invariants import FINAL, LIVE, Contents

LISTS, SETS = ("waiting", "success", "errors"), ("delayed", "running")
KEYS = {"running": "_running"}  # whose names are other ones in Redis


@dataclass
class JobState:
    """A job. Moments are in seconds; a text that is empty stands for a field that is not set.

    Attributes
    ----------
    queue: str
        Where it was placed last, as far as the job says so: the beginning of the queue's keys.
    ended_claim: str
        The last claim on it, if it was its holder who ended it.
    is_told: bool
        Whether it was canceled while it ran.
    within: int
        For how long it may wait for its first run; 0 for any time.
    cursor: str
        How far it is.
    """

    identifier: str
    priority: str
    status: str = ""
    is_queued: bool = True
    queue: str = ""
    token: str = ""
    ended_claim: str = ""
    tries: int = 0
    rescues: str = ""
    due: int = 0
    is_told: bool = False
    within: int = 0
    added: int = 0
    cursor: str = ""
    follows: str = ""
    asked: int = 0
    followed_by: str = ""

    @property
    def beside(self) -> int:
        """If it may be what kills its workers, how many of those may run at once."""
        return 1 if self.rescues.isdigit() else int(self.rescues.removeprefix("among ")) if self.is_among else 0

    @property
    def is_among(self) -> bool:
        return self.rescues.startswith("among ")

    @property
    def is_with_others(self) -> bool:
        """Whether it is run, and its worker claimed others at once."""
        return "/" in self.token and self.status == "r"

    @property
    def is_live(self) -> bool:
        return self.status in LIVE

    def is_too_late(self, now: int) -> bool:
        """Whether it was not begun in time."""
        return bool(self.within and not self.tries and now > max(self.added, self.due) + self.within)

    def stored(self) -> dict[str, str]:
        """The fields of its hash that tell all this."""
        texts = {
            "identifier": self.identifier,
            "priority": self.priority,
            "status": self.status,
            "queued": "1" if self.is_queued else "",
            "_queue_key": self.queue,
            "_claim_token": self.token,
            "_last_claim": self.ended_claim,
            "tries": str(self.tries or ""),
            "_rescues": self.rescues,
            "cancel_on_error": "1" if self.is_told else "",
            "_start_within": str(self.within or ""),
            "_cursor": self.cursor,
        }
        return {name: text for name, text in texts.items() if text}


FIELDS = set(JobState("x", "0", "w", True, "x", "x", "x", 1, "1", 0, True, 1, 0, "x").stored())


def lost_once_more(job: JobState, lost: int = 1) -> str:
    """The `rescues` of a job whose worker died: with others, of which some may have killed it, or alone."""
    if not job.is_with_others:
        return str(int(job.rescues if job.rescues.isdigit() else 0) + 1)
    if not job.rescues:
        return "once with others"
    half = min(job.beside or lost, lost) // 2
    return f"among {half}" if half > 1 else job.rescues if job.rescues.isdigit() else "0"


class Room(NamedTuple):
    """How many suspects a worker has, and the fewest that one of them allows at once."""

    taken: int
    fewest: float

    def refuses(self, number: int, beside: int) -> bool:
        return self.taken >= min(beside, self.fewest) or (beside == 1 and number > 1)


@dataclass
class QueueState:
    """A queue: idents, in sorted sets with their moments."""

    name: str
    priority: str
    waiting: list[str] = field(default_factory=list)
    delayed: dict[str, int] = field(default_factory=dict)
    running: dict[str, float] = field(default_factory=dict)
    success: list[str] = field(default_factory=list)
    errors: list[str] = field(default_factory=list)
    deferrals: dict[str, int] = field(default_factory=dict)

    def remove(self, ident: str) -> bool:
        """Take a job away from where it stands; return whether it stood here."""
        stood = self.stands(ident)
        self.waiting = [each for each in self.waiting if each != ident]
        self.delayed.pop(ident, None)
        self.running.pop(ident, None)
        return stood

    def stands(self, ident: str) -> bool:
        return ident in self.waiting or ident in self.delayed or ident in self.running

    def is_due(self, name: str, now: int) -> list[str]:
        """What is due in one of the sorted sets, in order."""
        moments = getattr(self, name)
        return sorted((ident for ident in moments if moments[ident] <= now), key=lambda ident: (moments[ident], ident))


class Reference:
    """All jobs and queues.

    Parameters
    ----------
    now: int
        What the clock says, in seconds.
    lease, unclaimed_lease: int
        For how long a claim holds, and for how long a job that runs without one is left alone, in seconds.
    queues: dict of str to QueueState
        By the beginning of their keys, those whose jobs go first first.
    home: str
        The name of the queue of a job that does not say where it is.
    """

    def __init__(self, now: int, lease: int, unclaimed_lease: int, queues: dict[str, QueueState], home: str) -> None:
        self.now = now
        self.lease = lease
        self.unclaimed_lease = unclaimed_lease
        self.queues = queues
        self.home = home
        self.jobs: dict[str, JobState] = {}
        self.tokens: dict[str, str] = {}  # the ident of the job that was added for it
        self.turn, self.last_spread = 0, ""  # when the next job of a spread is due, and which one waits last

    # -- Looking

    def queue_of(self, name: str, priority: str) -> str:
        return next(key for key, queue in self.queues.items() if (queue.name, queue.priority) == (name, priority))

    def first_waiting(self) -> tuple[str, str] | None:
        """The queue and the ident of the job that is next."""
        return next(((key, queue.waiting[0]) for key, queue in self.queues.items() if queue.waiting), None)

    def queued(self, identifier: str) -> str | None:
        """The ident of the job of that identifier that is queued."""
        found = (ident for ident, job in self.jobs.items() if job.is_queued and job.identifier == identifier)
        return next(found, None)

    def queued_now(self, identifier: str, but: str = "") -> str | None:
        """The same, except for one job, once those are ended that were canceled and whose lease has lapsed."""
        live, ending = None, None
        for ident, job in self.jobs.items():
            if job.is_queued and job.identifier == identifier and ident != but:
                if self._is_over(ident, job):
                    follower, job.followed_by = job.followed_by, ""
                    self.end_claim(ident, job.queue)
                    job.is_queued, job.followed_by = False, follower
                elif job.status == "c" and job.token:
                    ending = ident
                else:
                    live = ident
        return live or ending

    def end_of(self, ident: str) -> float:
        """When to look again whether a canceled job has ended; 0 if it has."""
        job = self.jobs[ident]
        if job.status != "c" or not job.is_queued or self._is_over(ident, job):
            return 0
        lease = self.queues[job.queue].running.get(ident) if job.queue else None
        return self.now + 60 if lease is None else lease

    def has_to_follow(self, ident: str) -> bool:
        followed = self.jobs[ident].follows
        return bool(followed and self.end_of(followed))

    def follow(self, ident: str, identifier: str, queue: str, delay: int | None, front: bool, within: int) -> None:
        """A job is added, while another one of its identifier was canceled, but still runs."""
        followed = self.queued_now(identifier)
        assert followed
        self.new(ident, identifier, queue, delay, front, within)
        job, line = self.jobs[ident], self.queues[queue]
        job.asked, job.follows, self.jobs[followed].followed_by = job.due, followed, ident
        if ident in line.waiting:
            line.waiting.remove(ident)
        job.status, job.due = "d", max(job.due, self.end_of(followed))  # type: ignore[assignment]
        line.delayed[ident] = job.due

    def unfollow(self, followed: str) -> None:
        """A job that was canceled while it ran has ended: what was added since may begin."""
        ident, self.jobs[followed].followed_by = self.jobs[followed].followed_by, ""
        job = self.jobs.get(ident)
        if not job or job.status != "d" or job.follows != followed or not job.queue:
            return
        line, job.follows = self.queues[job.queue], ""
        if job.asked > self.now:
            job.due = line.delayed[ident] = job.asked
        else:
            job.status, job.due = "w", 0
            line.delayed.pop(ident, None)
            line.waiting.append(ident)

    def _is_over(self, ident: str, job: JobState) -> bool:
        lease = self.queues[job.queue].running.get(ident) if job.queue else None
        return job.status == "c" and lease is not None and lease <= self.now

    def standing(self, ident: str) -> list[str]:
        """Where a job stands: ``waiting``, ``delayed``, ``running``, once for each time."""
        places: list[str] = []
        for queue in self.queues.values():
            places += ["waiting"] * queue.waiting.count(ident)
            places += [name for name in SETS if ident in getattr(queue, name)]
        return places

    def orphans(self) -> list[str]:
        """The queued jobs that stand nowhere."""
        return [ident for ident, job in self.jobs.items() if job.is_queued and not self.standing(ident)]

    def rests(self, ident: str) -> bool:
        """Whether a job is where its status says: not in the hands of a process, or left behind by one."""
        job = self.jobs[ident]
        place = {"w": ["waiting"], "d": ["delayed"], "r": ["running"]}.get(job.status, [])
        is_due = all(queue.delayed.get(ident, job.due) == job.due for queue in self.queues.values())
        is_claimed_or_not = bool(job.token) == (job.status == "r")
        return self.standing(ident) == place and is_due and is_claimed_or_not and job.is_queued == job.is_live

    def unfinished(self) -> list[str]:
        return [ident for ident, job in self.jobs.items() if job.status not in FINAL or job.is_queued]

    def differences(self, stored: Contents, job_keys: dict[str, str]) -> Iterator[str]:
        """What is stored that should not be, or the other way round; `job_keys` are those of the jobs' hashes."""
        for key, queue in self.queues.items():
            for name in (*LISTS, *SETS):
                expected = getattr(queue, name)
                found = stored.get(f"{key}:{KEYS.get(name, name)}", [] if name in LISTS else {})
                if expected != found:
                    yield f"{key}:{name} holds {found}, which should be {expected}"
        for ident, job in self.jobs.items():
            found = {name: text for name, text in stored.get(job_keys[ident], {}).items() if name in FIELDS}
            if found != job.stored():
                yield f"{ident} is {found}, which should be {job.stored()}"

    # -- The verbs

    def new(
        self, ident: str, identifier: str, queue: str, delay: int | None = None, front: bool = False, within: int = 0
    ) -> None:
        self.jobs[ident] = JobState(identifier, self.queues[queue].priority, within=within, added=self.now)
        self.place(ident, queue, delay, front)

    def place(
        self, ident: str, queue: str, delay: int | None = None, front: bool = False, priority: str | None = None
    ) -> None:
        """Let a job wait in a queue, or be delayed there."""
        job, line = self.jobs[ident], self.queues[queue]
        job.is_queued, job.queue, job.priority, job.token = True, queue, priority or line.priority, ""
        if delay is not None and delay > 0:
            job.status, job.due = "d", self.now + delay
            line.delayed[ident] = job.due
        else:
            job.status, job.due = "w", 0
            line.waiting.insert(0 if front else len(line.waiting), ident)

    def unplace(self, ident: str, name: str) -> str:
        """Take a job away from the first of the queues where it may be; return that one, empty if there is none."""
        job = self.jobs[ident]
        likely = [job.queue, self.queue_of(name, job.priority)]
        likely += [key for key, queue in self.queues.items() if queue.priority == job.priority]
        return next((key for key in [*likely, *self.queues] if key and self.queues[key].remove(ident)), "")

    def spread(self, idents: list[str], to: str, interval: int) -> Counter[str]:
        """Jobs in error are put in a queue, one due after the other; return how many have which outcome."""
        last = self.jobs.get(self.last_spread)
        if self.last_spread and not (last and last.status == "d"):
            self.turn, self.last_spread = 0, ""
        self.turn = max(self.turn, self.now)
        outcomes = Counter[str]()
        for ident in idents:
            job = self.jobs[ident]
            why_not = self._why_not_requeued(ident)
            if why_not:
                outcomes[why_not] += 1
                continue
            job.within, job.ended_claim = 0, ""
            self.place(ident, to, self.turn - self.now)
            self.last_spread = ident if self.turn > self.now else self.last_spread
            self.turn += interval
            outcomes["done"] += 1
        return outcomes

    def _why_not_requeued(self, ident: str) -> str:
        job = self.jobs[ident]
        if job.status != "e":
            return "not in error"
        return "claimed" if job.token else "already queued" if self.queued_now(job.identifier, but=ident) else ""

    def edit(self, ident: str, name: str, priority: str, delay: int | None) -> None:
        """A job gets another priority, unless that is empty, or another delay, unless that is None."""
        job = self.jobs[ident]
        own_due = job.due if job.status == "d" else None
        due = own_due if delay is None else self.now + delay if delay else None
        if priority not in ("", job.priority) or (delay is not None and due != own_due):
            name = self.queues[job.queue].name if job.queue else name
            stood = self.unplace(ident, name)
            to = self.queue_of(self.queues[stood].name if stood else name, priority or job.priority)
            self.place(ident, to, None if due is None else due - self.now)

    def claim(self, ident: str, queue: str, token: str) -> str:
        """A job that was taken from its list is run, if it waits indeed; returns the outcome."""
        self.queues[queue].deferrals.pop(ident, None)
        job = self.jobs.get(ident)
        if job is None:
            return "gone"
        if not job.is_queued:
            self.queued_now(job.identifier, but=ident)
        if job.status != "w":
            return "found"
        assert not job.token, f"{ident} waits, but is in the hands of {job.token}"
        if self.has_to_follow(ident):
            job.status, job.due, job.queue = "d", self.end_of(job.follows), queue  # type: ignore[assignment]
            self.queues[queue].delayed[ident], self.jobs[job.follows].followed_by = job.due, ident
            return "found"
        job.follows = ""
        if job.is_too_late(self.now):
            job.status, job.is_queued, job.rescues, job.ended_claim = "c", False, "", ""
            return "found"
        job.status, job.is_queued, job.queue, job.tries = "r", True, queue, job.tries + 1
        job.token, job.ended_claim = token, ""
        self.queues[queue].running[ident] = self.now + self.lease
        return "claimed"

    def claim_several(self, limit: int, token: str, rooms: tuple[int, float] | None) -> list[tuple[str, str, str, str]]:
        """A worker takes several jobs at once, up to the first entry that is not a job to run: the outcome, the ident,
        the queue and the token of each. `rooms` are those of a worker of several slots."""
        found: list[tuple[str, str, str, str]] = []
        passed: set[str] = set()
        room = Room(*(rooms or (0, inf)))
        while len(found) < limit:
            number = len(found) + 1
            place = self._next_but_suspects(passed, partial(room.refuses, number), rooms is not None)
            if place is None:
                break
            queue, ident = place
            self.queues[queue].waiting.remove(ident)
            job = self.jobs.get(ident)
            own = token if job and job.beside == 1 else f"{token}/{number}"
            outcome = self.claim(ident, queue, own)
            if job and job.beside and outcome == "claimed":
                room = Room(room.taken + 1, min(room.fewest, job.beside))
            found.append((outcome, ident, queue, own if outcome == "claimed" else ""))
            if outcome != "claimed":
                break
            self.queues[queue].running[ident] = ((self.now + self.lease) * 10**6 - number) / 10**6
            if own == token:
                break
        return found

    def _next_but_suspects(
        self, passed: set[str], refuses: Callable[[int], bool], passes_over: bool
    ) -> tuple[str, str] | None:
        """The queue and the ident of the job that is next, if some suspects are refused, and maybe passed over. Behind
        one that is passed over, its mark counts, whatever else is wrong with an entry."""
        for key, queue in self.queues.items():
            for ident in queue.waiting:
                job = self.jobs.get(ident)
                waits = job and job.status == "w" and not job.is_too_late(self.now)
                if not (job and job.beside and (waits or key in passed) and refuses(job.beside)):
                    return key, ident
                if not passes_over:
                    return None
                passed.add(key)
        return None

    def can_be_claimed(self, ident: str) -> bool:
        """Whether an application can claim a job, wherever it stands."""
        job = self.jobs.get(ident)
        if not job:
            return False
        if job.token or job.status == "r":
            lease = self.queues[job.queue].running.get(ident) if job.queue else None
            return job.status == "r" and lease is not None and lease <= self.now
        is_to_run = job.status == "w" or (job.status == "d" and job.due <= self.now)
        return is_to_run and (job.is_queued or not self.queued_now(job.identifier, but=ident))

    def claim_job(self, ident: str, name: str, token: str) -> str:
        """An application claims a job, or finds that it is too late; returns the queue."""
        job = self.jobs[ident]
        if job.status == "w" and job.queue and ident in self.queues[job.queue].waiting:
            queue = job.queue
            self.queues[queue].waiting.remove(ident)
        else:
            standing = self.unplace(ident, name) if job.is_queued else ""
            queue = standing or job.queue or self.queue_of(name, job.priority)
        if job.status == "r":
            job.rescues, job.within = lost_once_more(job), 0
        job.status, job.token = "w", ""
        self.claim(ident, queue, token)
        return queue

    def end_claim(self, ident: str, queue: str, token: str = "") -> None:
        """Nobody has a claim on a job any more; `token` is that of its holder, if it was its holder who ended it."""
        job = self.jobs[ident]
        job.token, job.rescues, job.ended_claim = "", "", token
        self.queues[queue].running.pop(ident, None)
        if job.queue:
            self.queues[job.queue].running.pop(ident, None)
        if job.followed_by:
            self.unfollow(ident)

    def end(self, ident: str, queue: str, token: str, status: str) -> None:
        """A job ends, for good."""
        self.end_claim(ident, queue, token)
        self.jobs[ident].status, self.jobs[ident].is_queued = status, False
        if status == "s":
            self.jobs[ident].cursor = ""

    def put_back(self, ident: str, queue: str, token: str, to: str, delay: int | None = None) -> None:
        """The holder of a claim puts the job in a queue once more, unless another one follows it."""
        if self.jobs[ident].followed_by:
            self.end(ident, queue, token, "c")
            return
        self.end_claim(ident, queue, token)
        self.place(ident, to, delay)

    def release(self, ident: str, queue: str, token: str, delay: int | None, was_begun: bool) -> None:
        job = self.jobs[ident]
        if job.followed_by:
            self.end(ident, queue, token, "c")
            return
        self.end_claim(ident, queue, token)
        if job.status != "r":
            job.is_queued = job.status != "c"
            self.queues[queue].waiting.append(ident)
            return
        job.tries -= 1
        job.within = 0 if was_begun else job.within
        self.place(ident, queue, delay, front=True, priority=job.priority)

    def renew(self, ident: str, queue: str, cursor: str) -> None:
        """The lease of a claim begins anew; if the job is further, so does the number of its rescues."""
        job, running = self.jobs[ident], self.queues[queue].running
        if ident in running:
            running[ident] = self.now + self.lease
        if cursor and job.status not in ("e", "s"):  # else it is held, and has ended
            job.cursor, job.rescues = cursor, ""

    def cancel(self, ident: str, name: str) -> bool:
        job = self.jobs[ident]
        if job.token or job.status == "r":
            job.status, job.is_told = "c", True
        elif job.status in ("s", "e"):
            return False
        else:
            was_queued = job.is_queued
            job.status, job.is_queued, job.rescues = "c", False, ""
            if was_queued:
                self.unplace(ident, name)
        return True

    def defer_unresolved(self, ident: str, queue: str, seconds: int, limit: int) -> str:
        line = self.queues[queue]
        line.deferrals[ident] = line.deferrals.get(ident, 0) + 1
        if ident in line.waiting:
            line.waiting.remove(ident)
        if line.deferrals[ident] > limit:
            del line.deferrals[ident]
            line.delayed.pop(ident, None)
            line.errors.append(ident)
            return "dead lettered"
        line.delayed[ident] = self.now + seconds
        return "deferred"

    def promote(self) -> None:
        for line in self.queues.values():
            for ident in line.is_due("delayed", self.now):
                del line.delayed[ident]
                if ident not in self.jobs:
                    continue
                if self.jobs[ident].status == "d" and not self.jobs[ident].token:
                    self.jobs[ident].status = "w"
                line.waiting.append(ident)

    def rescue(self, max_rescues: int, token: str) -> tuple[list[str], str]:
        """Jobs whose lease lapsed wait again; returns them, and the one that was rescued too often."""
        rescued: list[str] = []
        lost: dict[str, list[bool]] = {}  # of those claimed at once, whether each is a suspect
        for key, line in self.queues.items():
            for ident in line.is_due("running", self.now):
                job = self.jobs.get(ident)
                if not job or (job.queue or key) != key or not (job.token or job.status == "r"):
                    del line.running[ident]
                elif job.token and (job.status == "c" or job.followed_by):
                    self.end(ident, key, "", "c")
                elif job.status in ("r", "e") and not job.is_with_others and int(lost_once_more(job)) > max_rescues:
                    job.status, job.token = "r", token
                    line.running[ident] = self.now + self.lease
                    return rescued, ident
                else:
                    self._rescue(ident, key, job, lost)
                    rescued.append(ident)
        return rescued, ""

    def _lost_with(self, job: JobState, lost: dict[str, list[bool]]) -> int:
        at_once = job.token.partition("/")[0]
        if "/" in job.token and at_once not in lost:
            running = [
                self.jobs[ident] for line in self.queues.values() for ident in line.running if ident in self.jobs
            ]
            lost[at_once] = [bool(each.beside) for each in running if each.token.partition("/")[0] == at_once]
        found = lost.get(at_once, [])
        return sum(found) if job.beside else len(found)

    def _rescue(self, ident: str, queue: str, job: JobState, lost: dict[str, list[bool]]) -> None:
        rescues = lost_once_more(job, self._lost_with(job, lost))
        job.within = 0 if job.is_with_others else job.within
        job.queue, job.tries = queue, job.tries - job.is_with_others
        self.end_claim(ident, queue)
        job.rescues = rescues
        if job.status in ("r", "e"):
            job.status = "w"
        if ident not in self.queues[queue].waiting:
            self.queues[queue].waiting.insert(0, ident)

    def reconcile(self, ident: str) -> None:
        """A job that stands nowhere, though queued, is put where its status says, or is queued no more."""
        job = self.jobs[ident]
        if not job.token and not job.is_live:
            job.is_queued = False
        if not job.is_live or (job.token and job.status != "r"):
            return
        job.queue = job.queue or self.queue_of(self.home, job.priority)
        line = self.queues[job.queue]
        if job.status == "r":
            line.running[ident] = self.now + (self.lease if job.token else self.unclaimed_lease)
        elif job.status == "d":
            line.delayed[ident] = job.due
        else:
            line.waiting.insert(0, ident)

    def found_running(self, ident: str, queue: str) -> None:
        """A job that stands in a list, although a worker of version 2 began it, gets a lease unless it has one."""
        job = self.jobs[ident]
        if ident not in self.queues[job.queue or queue].running:
            self.queues[queue].running[ident] = self.now + self.unclaimed_lease
            job.queue = queue

    def prune(self, key: str, name: str, keep: int) -> int:
        """Delete the oldest jobs of a list of finished ones; return how many."""
        entries, status, position, deleted = getattr(self.queues[key], name), name[0], 0, 0
        while len(entries) - position > keep:
            ident = entries[position]
            job = self.jobs.get(ident)
            if job and job.status == status and (job.is_queued or job.token):
                position += 1
                continue
            entries.remove(ident)
            if job and job.status == status and not self._is_listed_again(ident, key, name, keep):
                del self.jobs[ident]
                deleted += 1
        return deleted

    def _is_listed_again(self, ident: str, key: str, name: str, keep: int) -> bool:
        job = self.jobs[ident]
        if job.queue and job.queue != key and ident in getattr(self.queues[job.queue], name):
            return True
        entries = getattr(self.queues[key], name)
        return job.tries > 1 and keep > 0 and ident in entries[-keep:]
