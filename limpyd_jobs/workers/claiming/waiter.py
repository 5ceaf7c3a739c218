"""When a worker asks for its next job, in which lists first, and how long it waits for one."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from time import monotonic
from typing import NamedTuple

from limpyd_jobs.idents import read_pk
from limpyd_jobs.threads import WakeupTimer
from limpyd_jobs.transitions import ClaimRequest, Delivery
from limpyd_jobs.workers.claiming.claimer import MAX_WAIT, Claimer
from limpyd_jobs.workers.claiming.visits import Visits
from limpyd_jobs.workers.context import Context, Face
from limpyd_jobs.workers.maintenance.tasks import Maintenance, Task

# The longest wait before the worker asks for a job, in seconds.
LONGEST_WAIT = 30.0

# The shortest wait, in seconds, even if something else has to be done sooner. Redis 6.2 takes less than a millisecond
# for a wait without end.
SHORTEST_WAIT = 0.05

# After how many seconds a worker that took a job lets another one look at the lanes. Short jobs have ended by then.
LANES_LEFT_AFTER = 0.04


class Share(NamedTuple):
    """What the turn of a waiting list depends on: the priority of its queue, and the weight of its name."""

    priority: str
    weight: int


class QueueSelector:
    """The turns of the waiting lists of one worker: within one priority, each is served by its weight.

    Each job that comes out of a list moves the next turn of the list into the future. The greater the weight of the
    list, the smaller the move ("stride scheduling"). A list that was empty at its turn saves nothing up.
    """

    def __init__(self, places: Mapping[str, Share] | None = None) -> None:
        self._places: Mapping[str, Share] = {}  # by the key of the list. Other lists keep their place in the order
        self._next: defaultdict[str, float] = defaultdict(float)
        self._order: list[str] = []
        self.update(places or {})

    def update(self, places: Mapping[str, Share]) -> None:
        """Take other lists. New lists begin with the next list of their priority."""
        for key in places.keys() - self._places.keys():
            peers = [self._next[peer] for peer in self._peers(key, places) if peer in self._places]
            self._next[key] = min(peers, default=0)
        self._places = places

    def order(self, keys: Sequence[str]) -> list[str]:
        """Return waiting lists, given with the highest priority first, in the order of their turns."""
        groups: defaultdict[str, list[str]] = defaultdict(list)
        for key in keys:
            if key in self._places:
                groups[self._places[key].priority].append(key)
        turns = {priority: iter(sorted(group, key=self._next.__getitem__)) for priority, group in groups.items()}
        self._order = [next(turns[self._places[key].priority]) if key in self._places else key for key in keys]
        return self._order

    def served(self, key: str) -> None:
        """Note that a job came out of a list, and that the lists before it in turn were empty."""
        if key not in self._places:
            return
        moment = self._next[key]
        for peer in self._peers(key, self._places):
            self._next[peer] = max(self._next[peer], moment if self._is_before(peer, key) else 0)
        self._next[key] = moment + 1 / self._places[key].weight

    def _is_before(self, peer: str, key: str) -> bool:
        order = self._order
        return peer in order and key in order and order.index(peer) < order.index(key)

    @staticmethod
    def _peers(key: str, places: Mapping[str, Share]) -> list[str]:
        return [peer for peer, place in places.items() if peer != key and place.priority == places[key].priority]


@dataclass(eq=False)
class Waiter:
    """Gets one delivery after the other, and waits until there is one, or something else has to be done."""

    worker: Face
    context: Context
    claimer: Claimer
    maintenance: Maintenance
    ends_burst: Callable[[], bool]  # whether the worker ends, now that there is no job
    pause: Callable[[float], None]  # what to do for some seconds if there are no queues
    visits: Visits | None  # to other shards, if there are any

    def __post_init__(self) -> None:
        self._state = self.context.state
        self.stock = self.claimer.stock
        self.queue_selector = QueueSelector()
        self.wakeup_timer = WakeupTimer(self.end_wait, self.context.fail)
        self._is_one = self.context.settings.concurrency == 1
        self._is_strict = self.context.settings.queue_strategy == "strict"
        self.known_queue: str | None = None
        self._next_due: float | None = None
        self._sees_lanes = False  # whether there are lanes that wait for a moment
        self._busy_with: Delivery | None = None  # what it took since
        self.looked_until: dict[Task, float] = {}  # up to when tasks have seen what was overdue

    # -- Asking

    @property
    def keys_in_turn(self) -> Sequence[str]:
        """The waiting lists in the order in which to serve them."""
        keys = self.worker.keys
        return keys if self._is_strict else self.queue_selector.order(keys)

    @property
    def may_claim(self) -> bool:
        """Whether to claim another job now, because nothing else has to be done before."""
        is_free = not (self._state.is_quiet or self._state.is_behind or self.stock.releasing)
        return is_free and monotonic() < self.maintenance.next_due and not self.context.must_stop()

    def request(self) -> ClaimRequest:
        """Return what to claim now."""
        return self.claimer.request(self.keys_in_turn)

    def next_request(self) -> ClaimRequest | None:
        """Return what to claim in the step that ends a job, if anything: a worker of several slots claims when the ends
        of others are recorded together."""
        if not self._is_one or self.worker.status != "running" or self.stock.deliveries or not self.may_claim:
            return None
        if self._busy_with:  # it waited for this job to be let out: most likely, there is none behind it
            return None
        if self.visits and self.visits.is_away:
            return None
        return self.claimer.request(self.worker.keys if self._is_strict else self.keys_in_turn)

    def queues_are_known(self) -> None:
        """The queues were looked for."""
        self.known_queue = self.claimer.last_queue

    def may_be_new_queues(self) -> bool:
        """Whether Redis named another last queue than the one it named when the queues were looked for."""
        if self.known_queue is None:
            pks = [key.pk for key in self.context.queue_keys]
            self.known_queue = str(max((read_pk(pk) or 0 for pk in pks), default=0))
        return self.claimer.last_queue not in ("", self.known_queue)

    # -- Waiting

    def wait(self, *, only_take: bool) -> Delivery | None:
        """Wait for a job. With `only_take`, it is not claimed to be run yet."""
        delivery = self.stock.take() or self._ask(only_take)
        until = monotonic() + min(self.worker.timeout or LONGEST_WAIT, LONGEST_WAIT)
        visits = self.visits
        if visits:
            delivery = delivery or visits.next()
        while delivery is None and self._may_wait():
            seconds = max(min(until, self.maintenance.next_due) - monotonic(), SHORTEST_WAIT)
            delivery = self._wait(seconds, only_take=only_take)
            if visits:
                delivery = delivery or visits.next()
            if monotonic() >= min(until, self.maintenance.next_due):
                break
        if delivery and not self._is_strict:
            self.queue_selector.served(delivery.key)
        return delivery

    def _ask(self, only_take: bool) -> Delivery | None:
        """Claim a job at once, unless signals tell of all jobs."""
        if self._busy_with:
            self._busy_with = None
            self.wakeup_timer.set(None)
        keys = self.keys_in_turn
        if self.claimer.may_wait_on(keys):
            return None
        return self._wanted(self.claimer.next(keys, may_wait=True, only_take=only_take))

    def _may_wait(self) -> bool:
        """Look at what Redis said when it had no job; return False if something else has to be done before a wait."""
        wakeups, self._next_due = self.claimer.next_wakeups, None
        if self.context.begins_no_more or self.context.is_over_time:
            return False
        if not self.worker.keys:
            return not self.ends_burst()
        if self.may_be_new_queues():
            return False
        is_late = self._is_late(self.maintenance.finders.promoter, wakeups.overdue, wakeups.due)
        is_late = self._is_late(self.maintenance.finders.scheduler, wakeups.missed, wakeups.scheduled) or is_late
        self._sees_lanes = wakeups.parked is not None
        if wakeups.parked is not None and not wakeups.is_watched:
            self._wake_up(monotonic() + wakeups.parked - wakeups.moment)
        return not is_late and not self.ends_burst()

    def _is_late(self, task: Task, overdue: float | None, due: float | None) -> bool:
        """Let a task run when it has something to do; return whether that is overdue, and the task did not see it."""
        moment = self.claimer.next_wakeups.moment
        if overdue is not None and overdue > self.looked_until.get(task, 0.0):
            self.looked_until[task] = moment
            self.maintenance.postpone(task)
            return True
        if due is not None:
            at = monotonic() + due - moment
            self.maintenance.hasten(task, at)
            self._wake_up(at)
        return False

    def _wake_up(self, at: float) -> None:
        """Let the next wait be over by then."""
        self._next_due = at if self._next_due is None else min(at, self._next_due)

    def _wait(self, seconds: float, *, only_take: bool) -> Delivery | None:
        """Wait for a job, or until there may be one, or until something else has to be done."""
        if not self.worker.keys:
            self.pause(min(seconds, MAX_WAIT) if self.visits else seconds)
            self.maintenance.postpone(self.maintenance.finders.queue_refresh)
            return None
        self._state.has_waited = True
        self.context.repeats.sum_up()
        self.wakeup_timer.set(self._next_due)
        delivery = self.claimer.wait(self.keys_in_turn, seconds, only_take=only_take)
        sees_lanes = self._sees_lanes or self.claimer.next_wakeups.parked is not None  # there may be some only now
        is_to_leave_lanes = delivery and delivery.token and sees_lanes
        self._busy_with = delivery if is_to_leave_lanes else None
        self.wakeup_timer.set(monotonic() + LANES_LEFT_AFTER if is_to_leave_lanes else None)
        return self._wanted(delivery)

    def _wanted(self, delivery: Delivery | None) -> Delivery | None:
        """Return what was claimed; if the worker was meanwhile asked to begin no more, let it be released."""
        if delivery and delivery.token and self.context.begins_no_more:
            self.stock.deliveries.appendleft(delivery)
            return None
        return delivery

    def end_wait(self) -> None:
        """End the wait for a job; or, while this worker runs one, that of another worker. Called by another thread, so
        with a connection that threads share."""
        taken = self._busy_with
        with suppress(Exception):  # a closed connection raises any error; Redis ends it a tenth of a second later
            if taken:
                self.claimer.end_wait_of_another(self.context.connection, taken.queue_key)
            else:
                self.claimer.end_wait(self.context.connection)
