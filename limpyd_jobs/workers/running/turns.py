"""The turns of a worker: one job after the other, or several at once."""

from __future__ import annotations

from _signal import getsignal  # type: ignore[import-not-found]  # ten times as fast as the one of `signal`
from collections.abc import Callable
from contextlib import suppress
from contextvars import copy_context
from functools import partial
from math import inf
from signal import SIGTERM
from time import monotonic
from typing import Any, NoReturn

from redis.exceptions import RedisError

from limpyd_jobs.exceptions import GracePeriodOver, NotRecorded
from limpyd_jobs.functions import is_unrun, memoized
from limpyd_jobs.models import Job
from limpyd_jobs.texts import MESSAGE, one_line
from limpyd_jobs.workers.claiming.claimer import Claimer
from limpyd_jobs.workers.claiming.stock import log_not_released
from limpyd_jobs.workers.claiming.waiter import Waiter
from limpyd_jobs.workers.context import Face
from limpyd_jobs.workers.log import label_of
from limpyd_jobs.workers.process.leftovers import Leftovers
from limpyd_jobs.workers.run import Run
from limpyd_jobs.workers.running.code import Starter
from limpyd_jobs.workers.running.endings import MAX_ACK_DELAY, Endings
from limpyd_jobs.workers.running.executor import Executor
from limpyd_jobs.workers.running.slots import Slot
from limpyd_jobs.workers.running.threads import BrokenBell, can_read

# How many ends are recorded in one step, at most: with more, jobs run in lockstep.
MAX_ENDS = 64

# How many jobs are released in one round trip, at most.
MAX_RELEASES = 250

UNRELEASED = "Unable to release jobs together"

# How many jobs are claimed and not begun, at most.
MAX_CLAIMS = 128

# For how many seconds a coroutine may wait for the next ones, to begin with them.
MAX_BEGIN_DELAY = 0.001

# For how many seconds the worker waits for the end of a job before it looks at what else is to be done.
MAX_WAIT = 1.0


class OneAtATime:
    """Gets a job, runs it, and so on. `ManyAtOnce` does the same with several.

    Each job runs in a context of its own (see `contextvars`): what it sets there, no later job finds.
    """

    is_busy = False  # whether jobs run while it looks for others

    def __init__(
        self,
        worker: Face,
        must_stop: Callable[[], bool],
        run_job: Callable[[Run], None],
        leftovers: Leftovers,
        is_steady: Callable[[], bool],
        cancel: Callable[[Run], None],
    ) -> None:
        self._worker, self._must_stop = worker, must_stop
        self._run_job = run_job
        self._leftovers = leftovers
        self.cancel = cancel  # called by any thread with a run whose job was canceled
        self._is_steady = is_steady  # whether the next job is there, and its status need not be set

    def run(self, next_job: Callable[[], Run | None], set_status: Callable[[str], None]) -> None:
        """Get jobs and run them until the worker has to stop."""
        worker, leftovers = self._worker, self._leftovers
        while not self._must_stop():
            if not self._is_steady():
                set_status("waiting")
            run = next_job()
            if run:
                worker.num_loops += 1
                if worker.status != "running":
                    set_status("running")
                copy_context().run(self._run_job, run)
                if getsignal(SIGTERM) is not leftovers.terminate or monotonic() >= leftovers.due:
                    leftovers.look(run.job)


class ManyAtOnce:
    """The turns of a worker of several slots.

    All but the code of jobs, and their async methods, is done by the thread of the worker: it claims jobs, calls hooks,
    records ends. It also records ends while it waits for a job; for that, the wait has a connection of its own.
    """

    def __init__(
        self,
        worker: Face,
        waiter: Waiter,
        executor: Executor,
        endings: Endings,
        starter: Starter,
        after_ends: Callable[[], None],
    ) -> None:
        self._worker, self._waiter, self._executor, self._endings = worker, waiter, executor, endings
        self._starter, self._after_ends = starter, after_ends
        self._context, self._runs = executor.context, executor.runs
        self._slots, self._awaiting, self._event_loop = starter.slots, starter.awaiting, starter.event_loop
        self._claimer, self._stock, self._size = waiter.claimer, waiter.stock, waiter.stock.size
        self._postponed: Run | None = None  # the job that begins once others have ended
        self._runs_alone = False  # whether a job runs that must not run beside others
        self._may_be_more = True  # whether the last claim brought all that was asked for
        self._woken = 0.0  # when the loop was woken for a coroutine
        self._has_given_up = False  # whether code of a job goes on, though its end is recorded
        self._unrecorded = 0  # how many ends were not recorded, because it was too late
        self._ending: list[Claimer] = []  # those that said that it ends: that of its own shard first
        self._exit: SystemExit | None = None

    def cancel(self, run: Run) -> None:
        """Interrupt a job that was canceled. Any thread may do so."""
        self._starter.cancel(run)

    @property
    def is_busy(self) -> bool:
        """Whether jobs run, or their methods."""
        return bool(self._slots.taken or self._awaiting.running or self._postponed)

    # -- The run

    def run(self, next_job: Callable[[], Run | None], set_status: Callable[[str], None]) -> None:
        """Get jobs and run them until the worker has to stop, and all of them have ended."""
        with self._starter:
            try:
                while not self._context.must_stop():
                    self.record_ended(may_claim=True)
                    status = "running" if self.is_busy else "waiting"
                    if status != self._worker.status:
                        set_status(status)
                    run = next_job()
                    if run:
                        self._worker.num_loops += 1
                        self._take(run)
                self._drain()
            except BaseException:
                if not self._context.state.failure:
                    self._abort()
                raise
            finally:
                self._end()
        if self._exit:
            raise self._exit

    def _drain(self) -> None:
        """Wait for the jobs that run, and record their ends."""
        self._release_ahead()
        while self.is_busy and not self._context.is_too_late:
            self._say_that_it_ends()
            if self._context.begins_no_more:
                self._give_back_postponed()
            if self._postponed:
                self._begin_postponed(self._postponed)
            else:
                self.wait(MAX_WAIT)
            self.record_ended()
        if self._context.state.failure:
            with suppress(RedisError, NotRecorded):  # those that have succeeded need not run again
                self._record(0)
        left = len(self._slots.taken) + self._unrecorded
        if left:
            self._context.log(f"{left} jobs run on, and are rescued when their leases have lapsed", "error")
        elif not self._context.is_too_late:
            for claimer in self._ending:
                with suppress(RedisError):
                    claimer.has_ended()

    def _say_that_it_ends(self) -> None:
        """Say so, once, if it was asked to end. Else its jobs or its limits make it end: if it dies then, one of its
        jobs may have killed it, and would kill the next one, too."""
        if self._worker.end_signal_caught and not self._ending:
            self._ending = [self._claimer, *(self._waiter.visits.claimers if self._waiter.visits else ())]
            for claimer in self._ending:
                with suppress(RedisError):
                    claimer.say_that_it_ends()

    def _abort(self) -> None:
        """Release what runs: an exception ends the worker."""
        self._worker.end_forced = True
        reason = GracePeriodOver()
        for slot in list(self._slots.taken):
            slot.interrupt(reason)
        until = monotonic() + 1
        while self._slots.taken and monotonic() < until:
            self.wait(until - monotonic())
            self.record_ended()
        for slot in list(self._slots.taken):
            slot.give_up(reason)
        self._give_back_postponed()
        self.record_ended()

    def _give_back_postponed(self) -> None:
        """Let a job that has not begun be released with those that are claimed already."""
        if self._postponed:
            run, self._postponed = self._postponed, None
            self._runs.running.pop(run, None)
            if run.delivery.database:  # those of the own shard are released together
                self._executor.offers.release(run)
            else:
                self._stock.deliveries.appendleft(run.delivery)

    def _end(self) -> None:
        self._starter.close(is_hurried=self._context.is_too_late or self._has_given_up)
        self._claimer.waiting_connection.close()

    # -- Getting jobs

    @property
    def _claimable(self) -> int:
        """How many jobs to claim now: as many as there are free slots, and some ahead."""
        worker, claimed = self._worker, self._stock.deliveries
        if self._postponed or self._runs_alone or not self._waiter.may_claim:
            return 0
        if any(each.suspects_beside for each in claimed):  # no other suspect may be claimed before they run
            return 0
        ahead = self._size.jobs
        most = max(MAX_CLAIMS, ahead)
        wanted = min(self._slots.free + ahead, worker.max_loops - worker.num_loops, most)
        return int(max(0, min(wanted - len(claimed), MAX_CLAIMS)))

    def _record(self, limit: int) -> None:
        """Record the successes that are kept, and claim jobs."""
        self._event_loop.begin()
        claimed = self._endings.record(limit)
        if limit:
            self._may_be_more = claimed >= limit
        if claimed:
            self._stock.late_after(self._size.bound)

    def _release_ahead(self) -> None:
        """Release the jobs that are claimed, but not begun."""
        self._event_loop.begin()
        try:
            log_not_released(self._context.log_repeated, self._stock.release())
        except RedisError:  # it is tried again soon, at the latest when the worker ends
            self._stock.late_after(self._size.bound)

    def wait_for_job(self, get: Callable[[], Run | None]) -> Run | None:
        """Return a job that may begin now; None if a job has ended, or something else is to be done."""
        is_full = self._runs_alone or self._slots.free < 1
        if self._stock.releasing or ((is_full or self._postponed) and self._stock.are_late):
            self._release_ahead()
        if self._postponed:
            self._begin_postponed(self._postponed)
            return None
        if is_full:
            until_late = self._stock.late_at - monotonic()
            self.wait(MAX_ACK_DELAY if self._runs.unrecorded else min(MAX_WAIT, until_late))
            return None
        if self._may_be_more and not self._stock.deliveries:
            self._claim(self._claimable)
        is_claimed = bool(self._stock.deliveries)
        if not is_claimed:
            self._event_loop.begin()
        found = get()
        self._may_be_more = self._may_be_more or bool(found and not is_claimed)
        return found

    def _claim(self, limit: int) -> None:
        if limit > 1:
            self._record(limit)

    def wait(self, seconds: float) -> None:
        """Wait until a job has ended, or something else happens, but not for longer than some seconds."""
        self._event_loop.begin()
        try:
            self._slots.bell.wait(max(seconds, 0.0))
        except BrokenBell as error:
            self._context.fail(str(error))

    def until_reply(self, connection: Any) -> None:
        """Record ends until there is a reply to read."""
        descriptor = getattr(connection, "_sock", None)
        timeout = getattr(connection, "socket_timeout", None)
        until = inf if timeout is None else monotonic() + timeout
        while descriptor is not None and monotonic() < until and not can_read(descriptor):
            try:
                has_rung = self._slots.bell.wait(min(MAX_WAIT, max(until - monotonic(), 0.0)), descriptor)
            except BrokenBell as error:
                self._context.fail(str(error))
                return
            if has_rung:
                self.record_ended()

    # -- Beginning one

    def _take(self, run: Run) -> None:
        self._stock.late_after(self._size.bound)
        try:
            is_to_run = self._executor.take_up(run)
        except BaseException as error:
            self._end_by(run, partial(_raise, [error]))
        else:
            if not is_to_run:
                self._end_by(run, _nothing)
            elif self._slots.taken and self._has_to_wait(run):
                self._postponed = run
            else:
                self._begin(run)

    def _begin_postponed(self, run: Run) -> None:
        """Begin the job that waits for others to end, if they have."""
        if self._slots.taken and self._has_to_wait(run):
            self.wait(MAX_WAIT)
        else:
            self._postponed = None
            self._begin(run)

    def _has_to_wait(self, run: Run) -> bool:
        """Whether a job must not begin yet: it runs alone, or may kill its worker, as another one that runs."""
        if self._slots.suspects and (beside := run.delivery.suspects_beside):
            return _runs_alone(type(run.job)) or not self._slots.room().has_one_for(beside)
        return _runs_alone(type(run.job))

    def _begin(self, run: Run) -> None:
        run.began = monotonic()
        self._runs_alone = _runs_alone(type(run.job))
        self._starter.begin(run, later=self._may_begin_later(run.began))

    def _may_begin_later(self, moment: float) -> bool:
        """Whether another job begins right after this one, so that the loop need be woken once for both."""
        if moment > self._woken + MAX_BEGIN_DELAY:
            self._woken = moment
            return False
        is_next_there = bool(self._stock.deliveries) and not self._runs_alone
        return is_next_there and self._slots.free > 1 and self._waiter.may_claim

    # -- Ending them

    def record_ended(self, *, may_claim: bool = False) -> None:
        """Record how jobs ended whose code has ended, and claim in the same step as many as there are free slots."""
        while self._awaiting.running and (found := self._awaiting.pop_ended()) is not None:
            self._end_method(*found)
        most = MAX_ENDS - len(self._runs.unrecorded) if may_claim else MAX_RELEASES  # to begin others in between
        had_room = self._has_room
        ended = self._slots.pop_ended(most)
        if ended:
            self._event_loop.begin()
            self._runs_alone = self._runs_alone and bool(self._slots.taken)
            if not had_room and self._has_room:
                self._waiter.end_wait()  # which passes over the suspects that may be claimed now
        given_back = [slot.run for slot in ended if slot.is_interrupted and slot.gave_way]
        if given_back and not self._context.is_too_late:
            self._release_together(given_back)
        # Those that are released come last, and the last one of them first: each goes to the front of its list.
        for slot in sorted(ended, key=_turn_of):
            if self._context.is_too_late:
                self._unrecorded += slot.run.outcome != "released"
            else:
                self._finish(slot)
        if ended:
            self._awaiting.are_of(None)
            self._size.observe(len(ended), 0.0)
            self._after_ends()
        if (ended or self._runs.unrecorded) and not (may_claim and self._may_record_later()):
            self._record(self._claimable if may_claim else 0)
        if self._slots.lost >= self._slots.limit and not self._worker.end_forced:
            text = f"{self._slots.lost} jobs did not end when their time was over, and hold all slots: ending"
            self._context.log(text, "error")
            self._worker.end_forced = True
        if len(ended) == most:
            self._slots.bell.ring()

    @property
    def _has_room(self) -> bool:
        """Whether another suspect may begin."""
        return not self._slots.suspects or self._slots.room().is_left

    def _release_together(self, runs: list[Run]) -> None:
        """Release the jobs that were interrupted because the worker ends: one by one, it might take too long."""
        runs.sort(key=lambda run: run.began)
        for database in {run.delivery.database for run in runs}:
            own = [each for each in runs if each.delivery.database is database]
            try:
                self._executor.release_together(own)
            except Exception as error:  # each is tried again
                self._context.log_repeated(UNRELEASED, f"{UNRELEASED}: {one_line(error, MESSAGE)}", "warning")

    def _may_record_later(self) -> bool:
        """Whether ends may wait for others: there are jobs to begin first, or enough to be begun meanwhile."""
        unrecorded, stock = self._runs.unrecorded, len(self._stock.deliveries)
        if self._postponed:
            return False
        if stock and self._slots.free > 0 and not self._runs_alone:
            return True
        is_late = unrecorded and monotonic() > unrecorded[0].ended_at + MAX_ACK_DELAY
        return stock > self._size.jobs // 2 and len(unrecorded) < MAX_ENDS and not is_late

    def _finish(self, slot: Slot) -> None:
        run = slot.run
        if slot.is_interrupted:
            self._look_at_interrupted(slot)
        if slot.around is not None:
            slot.context.run(slot.leave_instruments)
        self._awaiting.are_of(run)
        try:
            self._executor.finish(run, partial(self._result_of, slot))
        except SystemExit as error:
            self._exit, self._worker.end_forced = error, True
            self._context.notify_status()
        finally:
            if not run.is_success:
                slot.forget()

    def _look_at_interrupted(self, slot: Slot) -> None:
        """Log a job whose code went on, though it was told to end."""
        self._has_given_up = self._has_given_up or slot.is_given_up
        if slot.is_given_up:
            text = f"{label_of(slot.run.job)} did not end when it was to, and is given up: its code goes on"
            self._context.log(text, "warning" if slot.is_released else "error")
        elif slot.went_on:
            self._context.log(f"{label_of(slot.run.job)} went on after it was canceled", "warning")

    def _result_of(self, slot: Slot, run: Run) -> Any:
        result = slot.result(run)
        if result is not None and is_unrun(result):
            self._executor.code.check_has_run(run.job, self._worker.callback or self._worker.execute, result)
        return result

    def _end_method(self, awaited: Any, run: Run | None) -> None:
        """An async method of a job has ended."""
        try:
            _ = awaited.result
        except BaseException as error:
            if run is None:
                self._context.log(f"A method of a job failed: {error!r}", "error")
            else:
                self._end_by(run, partial(_raise, [error]))
        finally:
            awaited.forget()

    def _end_by(self, run: Run, step: Callable[[], None]) -> None:
        try:
            self._executor.recorder.guard(run, step)
        except SystemExit as error:
            self._exit, self._worker.end_forced = error, True


def _raise(errors: list[BaseException]) -> NoReturn:
    """Raise the one in the list, and keep it nowhere: its traceback leads to the frames through which it goes."""
    raise errors.pop()


def _nothing() -> None: ...


def _turn_of(slot: Slot) -> float:
    """Return by what the ends of jobs are sorted."""
    return -slot.run.began if slot.is_interrupted and slot.is_released else -inf


@memoized
def _runs_alone(job_class: type[Job]) -> bool:
    """Whether the jobs of a class must not run beside others."""
    return getattr(job_class, "thread_safe", True) is False
