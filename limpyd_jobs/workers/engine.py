"""The parts of a worker, and its run."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING

from redis import Redis

from limpyd_jobs import events
from limpyd_jobs.dates import get_delta, utcnow
from limpyd_jobs.exceptions import LimpydJobsException
from limpyd_jobs.heartbeat import Heartbeat
from limpyd_jobs.idents import QueueKey
from limpyd_jobs.records import records
from limpyd_jobs.schedules.model import Schedule
from limpyd_jobs.texts import MESSAGE, one_line
from limpyd_jobs.workers.claiming.fetcher import Fetcher
from limpyd_jobs.workers.claiming.intake import Intake
from limpyd_jobs.workers.claiming.unresolved import UnresolvedClasses
from limpyd_jobs.workers.fleet.metrics import WorkerMetrics
from limpyd_jobs.workers.fleet.registration import FIRST_SIGN, WorkerRegistration
from limpyd_jobs.workers.maintenance.promoter import Promoter
from limpyd_jobs.workers.maintenance.pruner import Pruner
from limpyd_jobs.workers.maintenance.queue_refresh import QueueRefresh
from limpyd_jobs.workers.maintenance.reconciler import Reconciler
from limpyd_jobs.workers.maintenance.rescuer import Rescuer
from limpyd_jobs.workers.maintenance.runner import Maintenance
from limpyd_jobs.workers.maintenance.scheduler import Scheduler
from limpyd_jobs.workers.redis_retry import RedisRetry
from limpyd_jobs.workers.repeats import Repeats
from limpyd_jobs.workers.running.acknowledging import AckAtOnce, AckInBatches
from limpyd_jobs.workers.running.executor import Executor
from limpyd_jobs.workers.running.hooks import Hooks
from limpyd_jobs.workers.running.leases import Leases
from limpyd_jobs.workers.running.overrides import Overrides
from limpyd_jobs.workers.running.strategies import OwnPlacement
from limpyd_jobs.workers.start import Start
from limpyd_jobs.workers.stopping import Stopping

if TYPE_CHECKING:
    from limpyd_jobs.workers.worker import Worker


class Engine:
    """The parts of a worker, which find each other here, and the loop that fetches jobs and lets them be run.

    Parameters
    ----------
    worker: Worker
        Its methods are called, because the application may have its own version of each.
    base: type of Worker
        The class with our own versions.
    """

    def __init__(self, worker: Worker, base: type[Worker]) -> None:
        self.worker = worker
        self.base = base
        self.settings = settings = worker._settings
        self.connection: Redis  # of the threads of the worker, once it runs
        self.repeats = Repeats(worker.log)
        error_model = worker.error_model if worker.save_errors else None
        self.unresolved = UnresolvedClasses(worker.queue_model, error_model, self.repeats.log)
        self.fetcher = Fetcher(worker.queue_model, settings.lease, self.unresolved.defer, worker.error_model)
        self.fetcher.listen(worker.queues)

        self.find_overrides()
        self.redis_retry = RedisRetry(self)
        self.hooks = Hooks(self)
        self.placement = OwnPlacement(self)
        self.executor = Executor(self)
        self.metrics = WorkerMetrics(self.executor.running)
        self.acknowledger = AckAtOnce(self)
        self.intake = Intake(self)
        self.leases = Leases(self)
        self.stopping = Stopping(self)
        self.registration = WorkerRegistration(self)
        self.parent = 0  # the pid of the parent of its pool
        self.lacks_queues = False  # it looked, and none of its queues exists yet

        self.queue_refresh = QueueRefresh(worker)
        self.promoter = Promoter(worker)
        self.reconciler = Reconciler(worker.queue_model, settings.lease)
        self.rescuer = Rescuer(settings.lease, settings.max_rescues, self.reconciler)
        keep = settings.keep_success, settings.keep_errors
        self.pruner = Pruner(worker.queue_model, worker.error_model, *keep)
        self.scheduler = Scheduler(worker.queue_model, worker.fetch_delayed_delay)
        if self.scheduler.is_here:
            self.fetcher.schedules = records.due_key(Schedule)
        tasks = self.queue_refresh, self.promoter, self.rescuer, self.reconciler, self.pruner, self.scheduler
        self.maintenance = Maintenance(self, tasks)

        self.status_callbacks: list[Callable[[Worker], None]] = []
        self.ready_callbacks: list[Callable[[], None]] = []

    @property
    def queue_keys(self) -> list[QueueKey]:
        """The beginnings of the keys of the queues of the worker."""
        return [QueueKey.of_list(key) for key in self.worker.keys]

    def find_overrides(self) -> None:
        """Find out which methods the application overrides."""
        self.overrides = Overrides(self, self.base)

    # -- The run

    def run(self) -> None:
        """Run jobs until the worker has to stop; what `Worker.run` does."""
        if self.worker.status is not None:
            self.worker.set_status("aborted")
            raise LimpydJobsException("This worker run is already terminated, or goes on: create another worker")
        try:
            self.stopping.handle_other_signals()
            self._run()
        finally:
            self.fetcher.connection.close()
            self.worker.stop_handling_end_signal()

    def _run(self) -> None:
        worker = self.worker
        worker.set_status("starting")
        self.connection = worker.connection
        self.find_overrides()
        if self.settings.prefetch != 1 and self.overrides.may_buffer:
            self.acknowledger = AckInBatches(self)
        worker.start_date = utcnow()
        if worker.max_duration:
            worker.wanted_end_date = worker.start_date + get_delta(worker.max_duration)

        try:
            with Heartbeat(self.settings.lease / 4, self._beat, FIRST_SIGN):
                self._start_and_loop()
        finally:
            self.registration.close(self.connection)

        worker.set_status("terminated")
        worker.end_date = utcnow()
        events.emit(events.WorkerEnded, worker)
        worker.run_ended()

    def _start_and_loop(self) -> None:
        worker, start = self.worker, Start(self)
        start.find_queues()
        if not worker.must_stop():
            start.promote()
            events.emit(events.WorkerStarted, worker)
            worker.run_started()
            try:
                with self.intake.wakeup_timer, self.acknowledger:
                    worker._main_loop()
            finally:  # a job may call sys.exit()
                self._write_metrics()

    def _beat(self) -> None:
        """Give a sign of life; called by another thread."""
        self.leases.renew(self.connection)
        self.registration.renew(self.connection)
        self._write_metrics()

    def _write_metrics(self) -> None:
        if self.settings.metrics:
            self.metrics.write(self.connection)

    def loop(self) -> None:
        """Get jobs and run them until the worker has to stop; what `Worker._main_loop` does."""
        worker = self.worker
        try:
            while not worker.must_stop():
                self._set_status("waiting")
                found = self.intake.next()
                if found:
                    worker.num_loops += 1
                    self._set_status("running")
                    self.executor.run(*found)
        finally:
            self.give_back()

    def give_back(self) -> None:
        """Give back the next jobs, if some are claimed already, and end the registration of a worker that waits."""
        self.acknowledger.flush()
        try:
            self.fetcher.ask_again()
            self.tell_not_given_back(self.fetcher.give_back())
            self.fetcher.unregister()
        except Exception as error:
            remedy = self.redis_retry.remedy_of(error)
            self.worker.log(f"Unable to give a job back: {one_line(error, MESSAGE)}{remedy}", "error")
        self.repeats.sum_up()

    def tell_not_given_back(self, failures: Iterable[Exception], repeats: Repeats | None = None) -> None:
        """Log why jobs could not be given back. Another thread has `repeats` of its own."""
        repeats, what = repeats or self.repeats, "Unable to give a job back"
        for failure in failures:
            repeats.log(what, f"{what}: {one_line(failure, MESSAGE)}")

    # -- The status

    def _set_status(self, status: str) -> None:
        if not self.acknowledger.is_transient_status(status):
            self.worker.set_status(status)

    def tell_status(self) -> None:
        """Tell that the status changed, or that the worker is asked to end."""
        for callback in self.status_callbacks:
            callback(self.worker)
        events.emit(events.WorkerStatusChanged, self.worker, "", self.worker.status)

    @property
    def is_between_jobs(self) -> bool:
        """Whether its status is too short to be seen, because the next job is there already."""
        return self.worker.status == "waiting" and bool(self.fetcher.prefetched)

    @property
    def has_its_first_job(self) -> bool:
        """Whether it has the job that it waited for. That job has to begin at once."""
        return self.worker.status == "running" and self.intake.has_waited
