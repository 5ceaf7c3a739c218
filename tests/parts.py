"""The parts of a worker, built for tests of one of them, or of a few."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any, TypeVar
from unittest.mock import patch
from weakref import WeakKeyDictionary

from limpyd_jobs import Worker
from limpyd_jobs.workers.claiming.claimer import Claimer
from limpyd_jobs.workers.claiming.offers import Offers
from limpyd_jobs.workers.concurrent.awaiting import Awaiting
from limpyd_jobs.workers.concurrent.event_loop import EventLoop
from limpyd_jobs.workers.context import Context, RunState
from limpyd_jobs.workers.log import Repeats
from limpyd_jobs.workers.maintenance.reconciler import Reconciler
from limpyd_jobs.workers.maintenance.rescuer import Rescuer
from limpyd_jobs.workers.maintenance.scheduler import Scheduler
from limpyd_jobs.workers.overrides import Overrides
from limpyd_jobs.workers.redis_retry import RedisRetry
from limpyd_jobs.workers.run import Runs
from limpyd_jobs.workers.running.acknowledging import AckAtOnce
from limpyd_jobs.workers.running.announcer import Announcer
from limpyd_jobs.workers.running.by_hooks import ByHooks
from limpyd_jobs.workers.running.executor import Executor
from limpyd_jobs.workers.running.leases import Leases
from limpyd_jobs.workers.running.recorder import Guard, Recorder
from limpyd_jobs.workers.running.strategies import Strategies
from limpyd_jobs.workers.timers import JobTimer

Part = TypeVar("Part")


def with_part(kind: type[Part], make: Callable[[], Worker]) -> tuple[Worker, Part]:
    """Make a worker; return it, and its part of that kind."""
    made: list[Part] = []
    init = kind.__init__

    def note(self: Part, *args: Any, **options: Any) -> None:
        made.append(self)
        init(self, *args, **options)

    with patch.object(kind, "__init__", note):
        worker = make()
    (part,) = made
    return worker, part


def calls_of(part: Any, name: str) -> list[Any]:
    """Note the end of each call of a method of a part."""
    calls: list[Any] = []
    method = getattr(part, name)
    setattr(part, name, lambda *args: (method(*args), calls.append(args))[0])
    return calls


class Parts:
    """Those that claim a job, run it and record how it ends, one by one, without a loop; and some tasks."""

    def __init__(self, worker: Worker) -> None:
        settings = worker._settings
        self.context = context = Context(worker, RunState(), (repeats := Repeats(worker.log)).log)
        self.runs = runs = Runs()
        self.claimer = claimer = Claimer(worker.queue_model, settings.lease, error_model=worker.error_model)
        self.offers = Offers(worker, claimer, runs)
        self.redis_retry = RedisRetry(worker, context, lambda: None)
        self.recorder = recorder = Recorder(self.redis_retry, lambda: None, claimer.keep)
        self.guard = guard = Guard(context, runs, recorder)
        awaiting = Awaiting(EventLoop(worker.log, context.fail))
        self.announcer = announcer = Announcer(worker, repeats.is_among_few, awaiting)
        overrides = Overrides(worker, Worker, settings)
        self.strategies = Strategies(worker, None, overrides, recorder, announcer, guard.abandon)
        self.acknowledger = AckAtOnce(worker, context, recorder)
        parts = overrides, self.strategies, recorder, announcer, self.acknowledger.succeed
        self.hooks = ByHooks(worker, context, runs, *parts, claimer.take)
        others = runs, guard, recorder, overrides, announcer, JobTimer(), awaiting
        claiming = self.hooks, claimer.take, self.offers.abandon
        self.executor = executor = Executor(worker, context, *others, Worker.execute, *claiming, None, lambda: False)
        self.leases = Leases(context, claimer.prefetched, runs, self.redis_retry.log_lease_not_renewed)
        self.reconciler = Reconciler(worker.queue_model, settings.lease)
        self.rescuer = Rescuer(
            worker.queue_model,
            settings.lease,
            settings.max_rescues,
            claimer.request,
            self.reconciler.begin,
            on_rescued=lambda delivery: executor.call_hook(delivery, worker.job_rescued),
            on_exhausted=lambda delivery, error: executor.call_hook(delivery, worker.job_error, error),
        )
        hooks = partial(overrides.hook, "job_scheduled"), partial(overrides.hook, "schedule_missed")
        self.scheduler = Scheduler(worker.queue_model, worker.fetch_delayed_delay, *hooks)


_parts: WeakKeyDictionary[Worker, Parts] = WeakKeyDictionary()


def run_task(worker: Worker, name: str) -> float | None:
    """Run a maintenance task, built for a worker; return after how many seconds to run it again."""
    parts = _parts.setdefault(worker, _parts.get(worker) or Parts(worker))
    seconds: float | None = getattr(parts, name).run(parts.context)
    return seconds
