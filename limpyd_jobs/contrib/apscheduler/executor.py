"""An executor of APScheduler that adds the jobs that are due to a queue, for workers to run them."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Container, Iterable, Mapping
from datetime import datetime, timezone
from inspect import iscoroutine
from typing import Any

from apscheduler.events import EVENT_JOB_MISSED, JobExecutionEvent
from apscheduler.executors.base import BaseExecutor, MaxInstancesReachedError
from apscheduler.job import Job as TheirJob
from apscheduler.util import ref_to_obj
from limpyd import fields
from limpyd.exceptions import UniquenessError
from redis.exceptions import RedisError

from limpyd_jobs import Argument, Job, Queue
from limpyd_jobs.contrib.apscheduler.functions import AllowedFunctions
from limpyd_jobs.contrib.apscheduler.records import ScheduledJob, StoredJob
from limpyd_jobs.contrib.apscheduler.serializing import Serializer
from limpyd_jobs.contrib.settings import database_of
from limpyd_jobs.integration import JobsDatabase, one_line, stored_queue_name


class ScheduledRun(Job):
    """One run of a job of APScheduler. Its identifier is the id of that job and the time it was due.

    Attributes
    ----------
    allowed: iterable of str
        The modules, or packages, in which functions have to be defined to be called. If it is None, as here, they are
        those of ``--job-modules`` of the worker; without that, each run fails.
    """

    namespace = "apscheduler"
    queue_name = "apscheduler"
    allowed: Iterable[str] | None = None
    serializer = Serializer("json")

    scheduled = Argument(indexable=True)
    slot = fields.InstanceHashField(unique=True)
    run_time = Argument(datetime)
    func = Argument()
    call = Argument()

    def run(self, queue: Queue) -> Any:
        """Call the function, however late it is: what was added is done. A coroutine is run to its end."""
        self.functions().check(self.arguments.func)
        call = self.serializer.load_call(self.arguments.call)
        result = ref_to_obj(self.arguments.func)(*call["args"], **call["kwargs"])
        return asyncio.run(result) if iscoroutine(result) else result

    @classmethod
    def functions(cls) -> AllowedFunctions:
        return AllowedFunctions(cls.allowed, f"the class {cls.get_model_repr()}")


class PickledRun(ScheduledRun):
    """A `ScheduledRun` whose arguments may be pickles: for a Redis that no one else can write to.

    It is abstract: define a subclass of it where the workers find it. So it is your code, and not a record, that lets
    them read pickles.
    """

    abstract = True
    serializer = Serializer("pickle")


class LimpydExecutor(BaseExecutor):
    """Lets workers run the jobs that are due. Each run is a job of a queue, and is added once, whatever scheduler dies.

    The workers are those of any queue: ``limpyd-jobs-worker --queues=apscheduler --pythonpath=…``. `max_instances` is
    counted in Redis, so for all schedulers together. Keep the jobs that ended for longer than the lease of the job
    store, so that a run is not added again: ``--keep-success=1d``. Events of APScheduler say that a job was submitted,
    not how it ended. The queue shows that, as for any job.

    A run that is submitted later than the `misfire_grace_time` of its job allows is not added: it is missed, as with
    any executor. What was added is run, however long it waits for a worker.

    Parameters
    ----------
    url, database, client, **settings
        Where Redis is: see `LimpydJobStore`.
    job_class: type of ScheduledRun
        A class of your own, with the modules that are `allowed`, or a subclass of `PickledRun`.
    queue_name: str
        By default the one of the class.
    priority: int
        By default the one of the class.

    Raises
    ------
    TypeError, ValueError
        If an argument is invalid.
    """

    def __init__(
        self,
        url: str | None = None,
        *,
        database: JobsDatabase | None = None,
        client: Any = None,
        job_class: type[ScheduledRun] = ScheduledRun,
        queue_name: str | None = None,
        priority: int | None = None,
        **settings: Any,
    ) -> None:
        super().__init__()
        if not (isinstance(job_class, type) and issubclass(job_class, ScheduledRun)):
            raise TypeError(f"job_class must be a subclass of ScheduledRun, not {job_class!r}")
        if job_class.abstract:
            raise TypeError(f"{job_class.__name__} is abstract: define a subclass of it in a module of your workers")
        if priority is not None and not re.fullmatch(r"-?[0-9]{1,18}", str(priority)):
            raise ValueError(f"priority must be an integer, not {priority!r}")
        self._functions = job_class.functions()
        self.job_class = job_class.bound_to(database_of(url, database, client, settings, ScheduledJob.database))
        self._place: dict[str, Any] = {
            "queue_name": None if queue_name is None else stored_queue_name(queue_name),
            "priority": priority,
        }

    def submit_job(self, job: TheirJob, run_times: list[datetime]) -> None:
        """Add a job for each of some run times, unless it was added before.

        If that fails, APScheduler goes on. With `LimpydJobStore`, the jobs stay due; with another store they are lost.
        """
        slots = {_slot_of(job, run_time): run_time.astimezone(timezone.utc) for run_time in run_times}
        try:
            if self._is_full(job, slots):
                raise MaxInstancesReachedError(job)
            self._do_submit_job(job, slots)
        except (RedisError, TypeError, ValueError):
            if isinstance(job, StoredJob):
                job.is_refused = True
            raise

    def _is_full(self, job: TheirJob, slots: Container[str | None]) -> bool:
        """Whether enough other runs are queued: those given may be, if Redis failed or a scheduler died."""
        queued = self.job_class.collection(scheduled=job.id, queued="1")
        if len(queued) < job.max_instances:
            return False
        return sum(run.slot.hget() not in slots for run in queued.instances()) >= job.max_instances

    def _do_submit_job(self, job: TheirJob, slots: Mapping[str, datetime]) -> None:
        state = job.__getstate__()
        if self.job_class.allowed is not None:  # else the workers say what they run
            self._functions.check(state["func"])
        call = self.job_class.serializer.dump_call(job)
        for slot, moment in slots.items():
            if self._is_missed(job, moment):
                continue
            values = {"scheduled": job.id, "slot": slot, "run_time": moment, "func": state["func"], "call": call}
            try:
                self.job_class.add_job(slot, **self._place, **values)
            except UniquenessError:  # a scheduler that died before it could say so has added it
                self._logger.info("The run %s was added before", one_line(slot))

    def _is_missed(self, job: TheirJob, run_time: datetime) -> bool:
        """Whether it is too late to run a job for some run time. If so, tell it as the executors of APScheduler do."""
        late = datetime.now(timezone.utc) - run_time
        if job.misfire_grace_time is None or late.total_seconds() <= job.misfire_grace_time:
            return False
        self._logger.warning("The run time of the job %r was missed by %s", one_line(job.id), late)
        if self._scheduler is not None:
            event = JobExecutionEvent(EVENT_JOB_MISSED, job.id, job._jobstore_alias, run_time)
            self._scheduler._dispatch_event(event)
        return True


def _slot_of(job: TheirJob, run_time: datetime) -> str:
    return f"{job.id}:{run_time.astimezone(timezone.utc):%Y-%m-%dT%H:%M:%S.%fZ}"
