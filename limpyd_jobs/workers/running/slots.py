"""The slots in which jobs run at once, and what holds one for too long."""

from __future__ import annotations

import contextvars
from collections.abc import Callable, Coroutine, Iterator
from dataclasses import dataclass
from queue import Empty, SimpleQueue
from time import monotonic
from typing import Any

from limpyd_jobs.exceptions import GracePeriodOver
from limpyd_jobs.observing.instruments import Around
from limpyd_jobs.redis.forks import end_child, this_process
from limpyd_jobs.transitions import Room
from limpyd_jobs.workers.context import Context, Face
from limpyd_jobs.workers.run import Run, Runs
from limpyd_jobs.workers.running.event_loop import Awaited, Awaiting, EventLoop
from limpyd_jobs.workers.running.threads import Bell

NO_SUSPECTS = Room()


class Told:
    """Tells the code of a job in a thread to end. It is true, and knows whether the code has asked."""

    def __init__(self) -> None:
        self.was_seen = False

    def __bool__(self) -> bool:
        self.was_seen = True
        return True


class Slot:
    """One job that runs, and what came of it. `on_end` is called by the thread that ran the code, with the slot.

    A coroutine is canceled to interrupt it. Code in a thread cannot be interrupted: it is told, and may ask.
    """

    def __init__(self, run: Run, context: contextvars.Context, on_end: Callable[[Slot], None]) -> None:
        self.run = run
        self.name = name_of(run)
        self.context = context  # what the instruments and the hook for the start have set (see `contextvars`)
        self.around: Around | None = None
        self.before: list[Coroutine[Any, Any, Any]] = []  # async methods of the job, to be awaited before its code
        self.suspects_beside = run.delivery.suspects_beside
        self.is_interrupted = False  # whether its code was told to end, or is given up
        self.is_over = False  # whether its end was looked at
        self.is_lost = False  # whether its code goes on, though it was given up
        self._on_end = on_end
        self._awaited: Awaited | None = None
        self._loop: EventLoop | None = None
        self._result: Any = None
        self._error: BaseException | None = None
        self._reason: BaseException | None = None  # why it was interrupted
        self._given_up: BaseException | None = None  # the same, if its code did not end
        self._told = Told()
        self._end_limit: Callable[[], None] | None = None
        self._began = 0.0
        self._pid = this_process.pid

    # -- Its code

    def begin_on(self, loop: EventLoop, coroutine: Coroutine[Any, Any, Any], *, later: bool) -> None:
        """Let a coroutine run. For `later` see `EventLoop.start`."""
        self._begin()
        self._loop = loop
        whole = _one_by_one([*self.before, coroutine]) if self.before else coroutine
        try:
            self._awaited = loop.start(whole, lambda _: self._ended(), later=later, reason=self._reason)
        except BaseException:
            coroutine.close()
            raise
        if self._reason is not self._awaited.reason:  # another thread interrupted it before it was there
            self.interrupt_again()

    def begin_in(self, submit: Callable[..., Any], loop: EventLoop, function: Callable[[], Any]) -> None:
        """Let a function run in a thread; what comes before it, on the loop."""
        self._begin()
        submit(self.context.copy().run, self._call, loop, function)

    def _begin(self) -> None:
        self._began, self.run.is_running = monotonic(), True

    def _call(self, loop: EventLoop, function: Callable[[], Any]) -> None:
        try:
            if self._reason is None:
                for coroutine in self.before:
                    Awaiting(loop).run(coroutine)
                self._result = function()
            else:  # another thread interrupted it before it was there
                self._told.was_seen = True
                for coroutine in self.before:
                    coroutine.close()
        except BaseException as error:
            self.end_if_forked()
            self._error = error
        self.end_if_forked()
        self._ended()

    def limit(self, end: Callable[[], None]) -> None:
        """Call a function once its code has ended, which does not count as the end if it was only given up."""
        self._end_limit = end

    def end_if_forked(self) -> None:
        """End this process if the code of the job, or a hook for its start, forked it."""
        if this_process.pid != self._pid:
            end_child()

    def fail(self, error: BaseException) -> None:
        """Its code could not begin."""
        self._error, self.run.is_running = error, False
        if self._end_limit:
            self._end_limit()
        for coroutine in self.before:
            coroutine.close()

    def _ended(self) -> None:
        run = self.run
        run.ended_at, run.is_running = monotonic(), False
        run.ran = run.ended_at - self._began
        if self._end_limit:
            self._end_limit()
        self._on_end(self)

    # -- Interrupting it

    def interrupt(self, reason: BaseException) -> None:
        """Tell its code to end, for a reason, unless it was told before. Any thread may do so."""
        if self._reason is None or (isinstance(reason, GracePeriodOver) and self._reason is not reason):
            self.is_interrupted, self._reason = True, reason
            if self._awaited is not None and self._loop is not None:
                self._loop.cancel(self._awaited, reason)
            elif self.run.is_that_of_job:
                vars(self.run.job)["_is_told_to_end"] = self._told

    def give_up(self, reason: BaseException) -> None:
        """Wait for its code no longer, as if it had ended for that reason. Any thread may do so."""
        if not self.is_over and self.run.is_running:
            self.is_interrupted, self._given_up = True, reason
            self._on_end(self)

    def interrupt_again(self) -> None:
        """Cancel a coroutine once more, which went on."""
        if self._awaited is not None and self._loop is not None and self._reason is not None:
            self._loop.cancel(self._awaited, self._reason)

    @property
    def is_given_up(self) -> bool:
        """Whether its end is recorded, though its code goes on."""
        return self._given_up is not None

    @property
    def is_coroutine(self) -> bool:
        """Whether its code is a coroutine, which can be canceled."""
        return self._awaited is not None

    @property
    def is_released(self) -> bool:
        """Whether it was interrupted because the worker has to end."""
        return isinstance(self._given_up or self._reason, GracePeriodOver)

    @property
    def gave_way(self) -> bool:
        """Whether it ended because it was interrupted for that reason."""
        if not self.is_released:
            return False
        try:
            self.result(self.run)
        except GracePeriodOver:
            return True
        except BaseException:
            return False
        return False

    @property
    def went_on(self) -> bool:
        """Whether it was canceled, and went on to its end all the same."""
        awaited = self._awaited
        return awaited is not None and self._given_up is None and awaited.swallowed

    # -- Its end

    def result(self, _: Run) -> Any:
        """Return what its code returned, or raise what it raised, or why it was interrupted."""
        if self._given_up is not None:
            raise self._given_up
        if self._awaited is not None:
            return self._awaited.result
        if self._reason is not None and self._told.was_seen:
            raise self._reason
        if self._error is not None:
            raise self._error
        return self._result

    def forget(self) -> None:
        """Keep no longer what its code raised, once it is recorded: see `Awaited.forget`."""
        self._error = self._reason = self._given_up = None
        if self._awaited is not None and self._awaited.has_ended:
            self._awaited.forget()

    def leave_instruments(self) -> None:
        """Leave what the instruments have entered."""
        if self.around is not None:
            try:
                self.result(self.run)
            except BaseException as error:
                self.around.__exit__(type(error), error, error.__traceback__)
            else:
                self.around.__exit__(None, None, None)


async def _one_by_one(coroutines: list[Coroutine[Any, Any, Any]]) -> Any:
    """Await some coroutines; return the result of the last one."""
    result = None
    try:
        for coroutine in coroutines:
            result = await coroutine
    finally:
        for coroutine in coroutines:
            coroutine.close()
    return result


def name_of(run: Run) -> str:
    """Return the name of a run of a job, by which others tell that it is canceled: see ``canceling.lua``."""
    delivery = run.delivery
    return f"{delivery.ident} {delivery.token}"


class Slots:
    """All slots of a worker, and those whose code has ended. The thread of the worker has them, others only ring."""

    def __init__(self, limit: int) -> None:
        self.limit = limit
        self.taken: set[Slot] = set()
        self.named: dict[str, Slot] = {}  # the same by their names; any thread may read both
        self.lost = 0  # those whose code was given up, and goes on
        # Those that run that may kill the worker: for each, how many of them may run at once.
        self.suspects: list[int] = []
        self.bell = Bell()
        self._ended: SimpleQueue[Slot] = SimpleQueue()

    @property
    def free(self) -> int:
        """How many more jobs may run."""
        return self.limit - len(self.taken) - self.lost

    def room(self) -> Room:
        """Return which suspects may run beside those that do, so that it is found out which one kills the worker."""
        return Room(len(self.suspects), min(self.suspects)) if self.suspects else NO_SUSPECTS

    def take(self, slot: Slot) -> None:
        """A job begins to run."""
        self.taken.add(slot)
        self.named[slot.name] = slot
        if slot.suspects_beside:
            self.suspects.append(slot.suspects_beside)

    def ended(self, slot: Slot) -> None:
        """The code of a job has ended, or is given up. Any thread may say so."""
        self._ended.put(slot)
        self.bell.ring()

    def pop_ended(self, most: int) -> list[Slot]:
        """Take those whose code has ended; those that are there first."""
        found: list[Slot] = []
        while len(found) < most:
            try:
                slot = self._ended.get_nowait()
            except Empty:
                break
            if slot.is_over:  # it was given up before
                self.lost -= slot.is_lost
                slot.is_lost = False
                continue
            slot.is_over, slot.is_lost = True, slot.run.is_running
            self.lost += slot.is_lost
            self.taken.discard(slot)
            if slot.suspects_beside:
                self.suspects.remove(slot.suspects_beside)
            self.named.pop(slot.name, None)
            found.append(slot)
        return found


@dataclass(eq=False)
class Occupied:
    """Shows what jobs occupy for too long, and ends a worker in which nothing is left that others could use."""

    worker: Face
    context: Context
    runs: Runs
    slots: Slots
    event_loop: EventLoop
    end_wait: Callable[[], None]

    def __post_init__(self) -> None:
        self._lost: set[object] = set()

    def check(self) -> None:
        """End the worker if calls of jobs that have ended hold all threads of ``asyncio.to_thread``, and did so when it
        was called before. The heartbeat calls it."""
        threads, lost = self.event_loop.threads, self._lost_calls()
        is_for_good = threads is not None and len(lost & self._lost) >= threads.most
        self._lost = lost
        if threads is not None and is_for_good and not self.worker.end_forced:
            text = f"calls of jobs that have ended hold all {threads.most} threads of asyncio.to_thread"
            self.context.log(f"{text}: ending", "error")
            self.context.state.why, self.worker.end_forced = text, True
            threads.grow()  # so that the jobs that run can end
            self.end_wait()

    def _lost_calls(self) -> set[object]:
        threads = self.event_loop.threads
        if threads is None or not threads.held:
            return set()
        return threads.held_by_others([each.job for each in self.runs.now_running()])

    def too_long(self, seconds: float) -> str:
        """Return what jobs have held for longer than some seconds, so that others cannot go on; empty if nothing."""
        threads, held_for = self.event_loop.threads, self.event_loop.held_for
        if threads is not None and threads.full_for > seconds:
            full = f"{threads.full_for:.0f} seconds"
            return f"calls of jobs have held all {threads.most} threads of asyncio.to_thread for {full}"
        return f"a job has held the event loop for {held_for:.0f} seconds" if held_for > seconds else ""

    def lines(self) -> Iterator[str]:
        """Return it in words, for a report."""
        threads = self.event_loop.threads
        if self.slots.lost:
            yield f"{self.slots.lost} of {self.slots.limit} slots are held by jobs that were given up"
        if threads is not None and threads.held:
            what = f"{threads.held} of {threads.most} threads of asyncio.to_thread are held"
            yield f"{what}, {len(self._lost_calls())} of them by jobs that have ended"
