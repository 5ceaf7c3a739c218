"""The loop of a worker: it builds the parts, gets jobs, and lets them be run. It is given to no part."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext, suppress
from functools import partial
from math import inf
from time import monotonic
from typing import Any

from redis.exceptions import RedisError

from limpyd_jobs import events, transitions
from limpyd_jobs.commandline.parameters import REFUSE
from limpyd_jobs.dates import get_delta, utcnow
from limpyd_jobs.exceptions import LimpydJobsException, WorkerFailed
from limpyd_jobs.models import Job, Queue
from limpyd_jobs.models.functions.giving import at_end
from limpyd_jobs.observing import worker_tasks
from limpyd_jobs.records import records
from limpyd_jobs.redis.calls import is_of_wrong_type
from limpyd_jobs.redis.cluster.names import check_one_tag
from limpyd_jobs.redis.connections import interrupt_all
from limpyd_jobs.schedules.model import Schedule
from limpyd_jobs.texts import MESSAGE, kind_of, one_line, traceback_of
from limpyd_jobs.threads import Heartbeat
from limpyd_jobs.workers.claiming.claimer import Claimer
from limpyd_jobs.workers.claiming.leases import Leases
from limpyd_jobs.workers.claiming.offers import Offers
from limpyd_jobs.workers.claiming.stock import Stock, log_not_released, size_for
from limpyd_jobs.workers.claiming.unresolved import UnresolvedClasses
from limpyd_jobs.workers.claiming.visits import Visits
from limpyd_jobs.workers.claiming.waiter import SHORTEST_WAIT, Waiter
from limpyd_jobs.workers.context import Context, Face, RunState
from limpyd_jobs.workers.fleet.metrics import WorkerMetrics
from limpyd_jobs.workers.fleet.presence import FIRST_SIGN, Report, WorkerRegistration
from limpyd_jobs.workers.log import label_of
from limpyd_jobs.workers.maintenance.flows import FlowKeeper
from limpyd_jobs.workers.maintenance.rescue import Reconciler, Rescuer
from limpyd_jobs.workers.maintenance.scheduler import Scheduler, is_here
from limpyd_jobs.workers.maintenance.tasks import (
    Finders,
    Maintenance,
    OfIntegration,
    Promoter,
    Pruner,
    QueueRefresh,
    StatusRefresh,
    Task,
)
from limpyd_jobs.workers.overrides import Overrides
from limpyd_jobs.workers.process.hard_limits import held_by_killed
from limpyd_jobs.workers.process.leftovers import Leftovers, MemoryLimit
from limpyd_jobs.workers.run import Run, Runs
from limpyd_jobs.workers.running.announcer import Announcer
from limpyd_jobs.workers.running.by_hooks import ByHooks
from limpyd_jobs.workers.running.code import JobCode, Starter
from limpyd_jobs.workers.running.endings import Endings
from limpyd_jobs.workers.running.event_loop import Awaited, Awaiting, AwaitingBeside, EventLoop, LoopFailed
from limpyd_jobs.workers.running.executor import Executor
from limpyd_jobs.workers.running.interrupting import Canceling, Limits
from limpyd_jobs.workers.running.recorder import Recorder, RedisRetry, nap
from limpyd_jobs.workers.running.slots import Occupied, Slots
from limpyd_jobs.workers.running.straight import Straight
from limpyd_jobs.workers.running.strategies import Strategies
from limpyd_jobs.workers.running.turns import ManyAtOnce, OneAtATime
from limpyd_jobs.workers.start import Start
from limpyd_jobs.workers.stopping import Stopping
from limpyd_jobs.workers.timers import JobTimer

# For how many seconds the status of a worker may not be set, while it runs one job after the other.
STATUS_EVERY = 1.0

# After how many seconds a worker looks again whether it has caught up with its leases.
LONGEST_PAUSE_BEHIND = 1.0


class Loop:
    """Builds the parts of a worker, each with what it uses, and runs jobs one after the other.

    Its methods are called, because the application may have its own version of each; `base` has our versions.
    """

    def __init__(self, worker: Face, base: type[Face], state: RunState) -> None:
        self.worker = worker
        self.context = Context(worker, base, state)
        self.repeats = self.context.repeats
        self.runs = Runs()
        is_guarded = self.context.settings.blocking_calls == REFUSE
        self.event_loop = EventLoop(worker.log, self.context.fail, is_guarded=is_guarded)
        self.slots = Slots(self.context.settings.concurrency)
        self._is_one = self.slots.limit == 1  # whether it runs one job after the other
        ring = self.slots.bell.ring
        self.awaiting: Any = Awaiting(self.event_loop) if self._is_one else AwaitingBeside(self.event_loop, ring)
        self.announcer = Announcer(worker, self.runs, self.repeats.is_among_few, self.awaiting)
        self.overrides = Overrides(worker, base, self.context.settings)
        self.redis_retry = RedisRetry(worker, self.context, self._let_others_renew)
        max_memory = self.context.settings.max_memory
        self.leftovers = Leftovers(worker.log)
        self.memory_limit = MemoryLimit(worker, self.context, max_memory) if max_memory else None
        self._build_claimer()
        self._build_tasks()
        self._build_waiter()
        self._build_hooks()
        self._build_turns()
        self._build_beats()
        state.on_failure.append(self._end_at_once)

    def _let_others_renew(self) -> None:
        """They could not while Redis was away, so look for lapsed leases later."""
        self.maintenance.postpone(self.rescuer, self.context.settings.lease / 2)

    def _build_claimer(self) -> None:
        worker = self.worker
        check_one_tag(worker.queue_model, worker.error_model)
        error_model = worker.error_model if worker.save_errors else None
        self.unresolved = UnresolvedClasses(worker.queue_model, error_model, self.repeats.log)
        self._client = partial(records.redis_of, worker.queue_model)
        settings = self.context.settings
        self.stock = Stock(size_for(settings.concurrency, settings.prefetch, settings.prefetch_time))
        self._room = None if self._is_one else self.slots.room
        self.claimer = Claimer(
            worker.queue_model,
            self.context.settings.lease,
            self.unresolved.defer,
            worker.error_model,
            stock=self.stock,
            room=self._room,
            before_replies=None if self._is_one else lambda connection: self.turns.until_reply(connection),
        )
        self.claimer.listen(worker.queues, records.due_key(Schedule) if is_here(worker.queue_model) else "")
        self.offers = Offers(worker, self.claimer, self.runs)

    def _build_tasks(self) -> None:
        worker, settings, hook = self.worker, self.context.settings, self.overrides.hook
        self.queue_refresh = QueueRefresh(worker)
        self.promoter = Promoter(worker, self.context, self.unresolved.defer)
        self.reconciler = Reconciler(worker.queue_model, settings.lease)
        self.flow_keeper = FlowKeeper(worker.queue_model)
        self.rescuer = Rescuer(
            worker.queue_model,
            settings.lease,
            settings.max_rescues,
            self.claimer.request,
            self._look_on,
            on_rescued=lambda delivery: self.executor.call_hook(delivery, partial(hook, "job_rescued")),
            on_exhausted=lambda delivery, error: self.executor.call_hook(delivery, worker.job_error, error),
        )
        pruner = Pruner(worker.queue_model, worker.error_model, settings.keep_success, settings.keep_errors)
        on_added, on_missed = partial(hook, "job_scheduled"), partial(hook, "schedule_missed")
        self.scheduler = Scheduler(worker.queue_model, worker.fetch_delayed_delay, on_added, on_missed)
        self.others = [OfIntegration(each) for each in worker_tasks.installed]
        own: list[Task] = [self.queue_refresh, self.promoter, self.rescuer, self.reconciler, pruner, self.scheduler]
        own.append(self.flow_keeper)
        finders = Finders(self.queue_refresh, self.promoter, self.scheduler)
        self.maintenance = Maintenance(self.context, [*own, *self.others], finders, self.redis_retry.may_log)
        if not self._is_one:
            self._refresh_status(StatusRefresh(worker))

    def _look_on(self, found: transitions.Rescue) -> None:
        """Do what those who look for lapsed leases found that there is to do."""
        if found.has_to_reconcile:
            self.reconciler.begin()
        if found.has_flows:
            self.flow_keeper.begin()
            self.maintenance.hasten(self.flow_keeper, monotonic())

    def _refresh_status(self, task: StatusRefresh) -> None:
        """Let a task set the status again while it is that of a busy worker. An idle one does not wake up for it."""
        self.maintenance.put_first(task)
        hasten = self.maintenance.hasten
        self.context.state.on_status.append(lambda worker: hasten(task, monotonic() + task.interval))

    def _build_waiter(self) -> None:
        worker, context = self.worker, self.context
        self.timer = JobTimer()
        self.occupied = Occupied(worker, context, self.runs, self.slots, self.event_loop, self._end_wait)
        report = Report(worker, context, self.runs, self.stock, self.occupied.lines)
        self.stopping = Stopping(
            worker,
            context,
            self.timer,
            report,
            end_wait=self._end_wait,
            may_find_jobs=lambda: self.reconciler.has_to_look_again or self.turns.is_busy,
            broken_lists=lambda: self.claimer.next_wakeups.broken,
        )
        shards, pause = context.settings.shards, nap if self._is_one else lambda seconds: self.turns.wait(seconds)
        self.waiter = Waiter(
            worker,
            context,
            self.claimer,
            self.maintenance,
            ends_burst=self.stopping.ends_burst,
            pause=pause,
            visits=Visits(worker, context, self.runs, self._room, self.overrides) if shards else None,
        )

    def _build_hooks(self) -> None:
        worker, context, runs, announcer = self.worker, self.context, self.runs, self.announcer
        self.recorder = recorder = Recorder(self.redis_retry, context, runs, self.waiter)
        policy, offers = context.settings.retry_policy, self.offers
        self.strategies = strategies = Strategies(worker, policy, self.overrides, recorder, announcer)
        self.endings = endings = Endings(worker, context, recorder, runs, self.waiter, self.overrides)
        self.hooks = hooks = ByHooks(worker, runs, strategies, recorder, announcer, endings, offers)
        succeed = endings.succeed
        self.straight = Straight(worker.queue_model, runs, self.overrides, strategies, announcer, hooks, succeed)
        self.metrics = WorkerMetrics(runs, lambda: context.queue_keys)
        note = self.metrics.note if context.settings.metrics else None
        self.code = JobCode(worker, self.overrides, self.redis_retry, self.timer, self.awaiting, context.state)
        self.executor = Executor(context, runs, recorder, self.code, hooks, offers, note)

    def _build_beats(self) -> None:
        worker, context, log_not_renewed = self.worker, self.context, self.redis_retry.log_lease_not_renewed
        self.leases = Leases(context, self.stock, self.runs, log_not_renewed, self.turns.cancel)
        owner, paths, may_log = self.claimer.owner, self.unresolved.paths, self.redis_retry.may_log
        self.registration = WorkerRegistration(worker, context, owner, self.runs, self.stopping, paths, may_log)
        self.start = Start(worker, context, self.redis_retry)

    def _build_turns(self) -> None:
        self.turns: Any
        self._wait_for_job: Callable[[], Run | None]
        self._next_status = -inf
        if self._is_one:
            cancel = self.awaiting.cancel
            self._wait_for_job = self._get
            self.turns = OneAtATime(
                self.worker, self.context.must_stop, self._run_job, self.leftovers, self._is_steady, cancel
            )
            return
        worker, context, slots = self.worker, self.context, self.slots
        limits = Limits(slots, self.timer, self._end_by, self._stop_waiting, context.fail)
        key = self.claimer.canceled_key
        canceling = Canceling(slots, self._client, key, limits.cancel, worker.log, context.fail)
        starter = Starter(worker, slots, self.code, self.awaiting, self.event_loop, limits, canceling)
        self.turns = turns = ManyAtOnce(worker, self.waiter, self.executor, self.endings, starter, self._after_ends)
        self._wait_for_job = partial(turns.wait_for_job, self._get)

    def _end_wait(self) -> None:
        self.waiter.wakeup_timer.set(monotonic())
        self.slots.bell.ring()

    def _end_by(self, moment: float) -> None:
        self.context.state.gives_up_at = moment

    def _end_at_once(self) -> None:
        """Let the worker end, because it has failed; called by any thread."""
        self.event_loop.fail(self.context.state.failure)
        self._end_wait()
        self._stop_waiting()

    def _after_ends(self) -> None:
        if self.memory_limit:
            self.memory_limit.check()
        if not self.slots.taken and monotonic() >= self.leftovers.due:
            self.leftovers.look()

    def _stop_waiting(self) -> None:
        for client in (self.worker.connection, records.redis_of(self.worker.queue_model)):
            interrupt_all(client.connection_pool)

    # -- The run

    def run(self) -> None:
        """Run jobs until the worker has to stop; what `Worker.run` does."""
        if self.worker.status is not None:
            self.worker.set_status("aborted")
            raise LimpydJobsException("This worker run is already terminated, or goes on: create another worker")
        try:
            self.stopping.handle_other_signals()
            with at_end:
                self._run()
                self.event_loop.close()  # which closes the resources of coroutines
            self._check_failure()
        except LoopFailed:
            self._check_failure()
            raise
        finally:
            self.event_loop.close()
            self.claimer.connection.close()
            self.worker.stop_handling_end_signal()

    def _check_failure(self) -> None:
        if self.context.state.failure:
            raise WorkerFailed(self.context.state.failure)

    def _run(self) -> None:
        worker = self.worker
        worker.set_status("starting")
        self.context.connect()
        self.strategies.refresh()
        self._check_visits()
        worker.start_date = utcnow()
        if worker.max_duration:
            worker.wanted_end_date = worker.start_date + get_delta(worker.max_duration)

        every, fail = self.context.settings.lease / 4, self.context.fail
        try:
            heartbeat = Heartbeat(every, self._beat, FIRST_SIGN, fail)
            with self._telling_health(), heartbeat:
                self._start_and_loop(heartbeat)
        finally:
            self.registration.close(self.context.connection)

        worker.set_status("terminated")
        worker.end_date = utcnow()
        events.emit(events.WorkerEnded, worker)
        worker.run_ended()

    def _check_visits(self) -> None:
        """Take no jobs of other shards if the application might mistake them for others."""
        if self.waiter.visits and not self.overrides.may_visit:
            what = "wait_for_job, get_job or get_queue is overridden, where idents and keys are those of one shard"
            self.worker.log(f"Takes no jobs of other shards: {what}", "warning")

    def _telling_health(self) -> AbstractContextManager[None]:
        """Let probes ask whether the worker is healthy, if it is to tell."""
        settings = self.context.settings
        if not (self.context.state.tell_health or settings.health_file or settings.health_port is not None):
            return nullcontext()
        from limpyd_jobs.workers.fleet.monitor import Monitor, Turns

        self.maintenance.put_first(Turns(settings.stalled_after / 4))
        return Monitor(self.worker, self.context, self.runs, self.stock, self.occupied.too_long).telling()

    def _start_and_loop(self, heartbeat: Heartbeat) -> None:
        worker = self.worker
        self.start.find_queues(self._look_for_queues)
        if self.context.state.beaten:  # others were given the sign that it starts, or has no queue
            heartbeat.beat_in(min(FIRST_SIGN, self.context.settings.lease / 4))
        if not self.context.must_stop():
            self._promote()
            events.emit(events.WorkerStarted, worker)
            worker.run_started()
            self.start.log_kept()
            if self.context.state.killed:
                self._record_killed()
            try:
                with self.waiter.wakeup_timer, self.endings:
                    worker._main_loop()
            finally:  # a job may call sys.exit()
                self._write_metrics()

    def _record_killed(self) -> None:
        """Record that the process before was killed because of jobs that ran for too long, and release its others."""
        worker, state = self.worker, self.context.state
        held = self.redis_retry.retry(held_by_killed, worker.queue_model, self.context.queue_keys, state.killed)
        for delivery, error in held.overdue:
            self.executor.call_hook(delivery, worker.job_error, error)
        for claim in held.others:
            self.redis_retry.retry(claim.release, begun=True)
            worker.log(f"[{one_line(claim.delivery.ident)}] released: its process was killed because of another job")
        if state.on_recorded:
            state.on_recorded()

    def _look_for_queues(self) -> None:
        maintenance, worker = self.maintenance, self.worker
        maintenance.run(self.queue_refresh)
        makers: list[Task] = [self.scheduler, *self.others]  # of jobs, and so of queues
        for task in makers:
            if not worker.keys and maintenance.is_due(task):
                maintenance.run(task)
        if not worker.keys and self.context.settings.burst:
            maintenance.run(self.queue_refresh)
            self.stopping.ends_burst()

    def _promote(self) -> None:
        """Move the delayed jobs that are due, before the first job."""
        try:
            self.maintenance.run(self.promoter)
        except RedisError as error:
            self.redis_retry.log("Unable to look for delayed jobs", error)
            self.maintenance.postpone(self.promoter)
        except Exception as error:
            self.maintenance.log_failure(self.promoter, error)

    def _beat(self) -> None:
        """Give a sign of life; called by another thread."""
        if self.context.state.failure:
            return
        self.occupied.check()
        self.leases.renew(self.context.connection)
        self.registration.renew(self.context.connection)
        self._write_metrics()
        if self.context.settings.metrics:
            self.metrics.note_levels(self.context.connection)
        self.context.state.beaten = monotonic()

    def _write_metrics(self) -> None:
        if self.context.settings.metrics and not self.context.is_too_late:
            self.metrics.write(self.context.connection)

    # -- From job to job

    def loop(self) -> None:
        """Get jobs and run them until the worker has to stop; what `Worker._main_loop` does."""
        self.leftovers.begin()
        try:
            self.turns.run(self._next, self._set_status)
        finally:
            self._release()

    def _set_status(self, status: str) -> None:
        self._next_status = monotonic() + STATUS_EVERY
        self.worker.set_status(status)

    def _is_steady(self) -> bool:
        """Whether the next job is there already. To set the status in between would be as costly as a job, so that is
        done once in a while; but each time if the application has its own `set_status`, and no jobs are prefetched."""
        is_seldom = self.overrides.has_our_status or self.context.settings.prefetch != 1
        return is_seldom and bool(self.stock.deliveries) and monotonic() < self._next_status

    def _next(self) -> Run | None:
        """Run the tasks that are due, then get a job; None if there is none, or something failed."""
        self.runs.offered.clear()
        self.context.state.has_waited = False
        if self.repeats.counts:
            self.repeats.sum_up_if_due()
        try:
            self._maintain()
            if self.context.state.is_quiet or self.context.state.is_behind:
                self._claim_none()
                return None
            run = self._wait_for_job()
            if run is None and not self.overrides.waits_as_we_do:
                self.stopping.ends_burst()
        except RedisError as error:
            self.waiter.looked_until.clear()
            with suppress(RedisError):
                if is_of_wrong_type(error):
                    self.maintenance.postpone(self.queue_refresh)  # no reply says that there are new queues
                    self.stopping.ends_burst(is_stuck=True)
            self.redis_retry.wait("Unable to get job", error)
        except Exception as error:
            self._log_unable(error)
        else:
            if self.redis_retry.backoff.failures:
                self.redis_retry.backoff.reset()
            if run:
                return run
        self.offers.release_unwanted()
        return None

    def _get(self) -> Run | None:
        """Wait for a job. Unless the application has a say in that, what is claimed is run."""
        if not self.overrides.is_straight:
            found = self.worker.wait_for_job()
            return self._accept(*found) if found else None
        delivery = self.waiter.wait(only_take=False)
        if delivery is None:
            return None
        if delivery.outcome == "claimed" and delivery.queue_name and not (delivery.error or delivery.database):
            return self.straight.run_of(delivery)
        found = self.offers.objects_of(delivery)
        return self._accept(*found) if found else None

    def _accept(self, queue: Queue | None, job: Job | None) -> Run | None:
        """Return the run of a job that the application chose."""
        if queue is None or job is None:
            self.worker.log("[??] unexpected error: wait_for_job returned no queue, or no job", "error")
            self.worker.num_loops += 1
            return None
        run = self.runs.accept(job, queue)
        if self.runs.offered:
            self.offers.release_unwanted()
        return run

    def _claim_none(self) -> None:
        """Let some time pass, without a job."""
        self._release()
        longest = LONGEST_PAUSE_BEHIND if self.context.state.is_behind else inf
        self.waiter.pause(min(max(self.maintenance.next_due - monotonic(), SHORTEST_WAIT), longest))

    def _maintain(self) -> None:
        is_new = self.claimer.last_queue != self.waiter.known_queue and self.waiter.may_be_new_queues()
        if is_new:
            self.maintenance.postpone(self.queue_refresh)
        classes = self.claimer.classes
        if self.unresolved.known is not classes and self.unresolved.retry_deferred(self.context.queue_keys, classes):
            self.maintenance.postpone(self.promoter)
        if monotonic() >= self.maintenance.next_due:
            self.maintenance.run_due()
        if is_new:
            self.waiter.queues_are_known()
        self.runs.offered.clear()

    def wait(self) -> tuple[Queue, Job] | None:
        """Wait for a job; what `Worker.wait_for_job` does.

        In a run, the loop looks after everything else in between. A loop of the application may not know of that, so
        that is done here, as long as there is no job and time is left.
        """
        until = monotonic() + (self.worker.timeout or inf)
        while True:
            delivery = self.waiter.wait(only_take=not self.overrides.waits_as_we_do)
            found = self.offers.objects_of(delivery) if delivery else None
            if found or self.worker.status is not None or self.context.must_stop() or monotonic() >= until:
                return found
            self._maintain()

    def _log_unable(self, error: Exception) -> None:
        """Log why there is no job: with a traceback, unless the entry of the list was wrong."""
        if error is self.unresolved.last:
            return
        message = f"Unable to get job: {one_line(error, MESSAGE)}"
        if error is not self.claimer.invalid:
            message += f"\n{traceback_of(error)}"
        self.repeats.log(f"Unable to get job ({kind_of(error)})", message)

    def _run_job(self, run: Run) -> None:
        self.executor.run(run)
        if self.endings.keeps:
            self.endings.job_done()
        if self.awaiting.left:
            self._leave_behind(run, self.awaiting.take_left())
        if self.memory_limit:
            self.memory_limit.check()

    def _leave_behind(self, run: Run, code: Awaited) -> None:
        """End if the coroutine of a job, which was given up, still goes on: others would run beside it."""
        if not code.has_ended:
            text = f"{label_of(run.job)} did not end when it was canceled, and its code goes on: ending"
            self.worker.log(text, "error")
            self.worker.end_forced = True

    def _release(self) -> None:
        """Release the next jobs, if some are claimed already, and end the registration of a worker that waits."""
        if self.context.is_too_late:
            return
        self.endings.record()
        try:
            self.claimer.ask_again()
            log_not_released(self.repeats.log, self.stock.release())
            self.claimer.unregister()
        except Exception as error:
            remedy = self.redis_retry.remedy_of(error)
            self.worker.log(f"Unable to give a job back: {one_line(error, MESSAGE)}{remedy}", "error")
        self.repeats.sum_up()
