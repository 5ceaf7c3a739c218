"""A job: how it is added, moved, canceled and run."""

from __future__ import annotations

from collections.abc import AsyncIterable, Callable, Coroutine, Iterable, Mapping, Sequence
from datetime import datetime, timedelta
from functools import partial
from time import monotonic
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Literal, NoReturn, ParamSpec, Protocol, Self, TypeVar, Unpack, overload

from redis.exceptions import RedisError

from limpyd_jobs import transitions
from limpyd_jobs.arguments import stored_queue_name
from limpyd_jobs.classes.awaitable import awaitable, awaited, finished, in_thread
from limpyd_jobs.classes.binding import bound_like
from limpyd_jobs.classes.job_classes import check_durations, job_classes
from limpyd_jobs.classes.roots import roots
from limpyd_jobs.exceptions import LimpydJobsException, naming
from limpyd_jobs.fields.argument import ArgumentsOfJob
from limpyd_jobs.limiting.limit import check_declared
from limpyd_jobs.models import adding, moving
from limpyd_jobs.models.adding import OutcomeOfAdding
from limpyd_jobs.models.calls.prepared import (
    AddingJobs,
    OptionsOfAdding,
    Prepared,
    PreparedJob,
    arguments_for,
    options_of,
    prepared,
)
from limpyd_jobs.models.claims.claim import Claim
from limpyd_jobs.models.continuing.cursors import AttemptToken, checked_name, cursors_of
from limpyd_jobs.models.continuing.iterating import Iteration
from limpyd_jobs.models.continuing.signals import waiting
from limpyd_jobs.models.continuing.steps import Step
from limpyd_jobs.models.error import Error
from limpyd_jobs.models.following.history import StatusChange, read_history
from limpyd_jobs.models.following.progress import Progress, append_line, read_lines, read_progress, write_progress
from limpyd_jobs.models.following.results import result_of
from limpyd_jobs.models.following.waiting import wait_for_end
from limpyd_jobs.models.identifying import LEFT_OUT
from limpyd_jobs.models.job_record import JobRecord
from limpyd_jobs.models.limited import resting, settling
from limpyd_jobs.models.queue import Queue
from limpyd_jobs.redis.calls import Steps, finish
from limpyd_jobs.statuses import STATUSES
from limpyd_jobs.texts import one_line

if TYPE_CHECKING:
    from limpyd_jobs.models.explaining.jobs import Explanation
    from limpyd_jobs.models.following.awaited_output import AwaitedOutput
    from limpyd_jobs.models.following.nodes import FlowNode
    from limpyd_jobs.models.following.output import Output

T = TypeVar("T")
P = ParamSpec("P")
Made = TypeVar("Made")
Result = TypeVar("Result")
Returned = TypeVar("Returned", covariant=True)

# How long `Job.is_cancelled` relies on its last answer, in seconds.
QUESTION_INTERVAL = 1


class Returning(Protocol[Returned]):
    """A job whose code returns something."""

    def run(self, queue: Any, /) -> Returned: ...


class ReturningLater(Protocol[Returned]):
    """A job whose code is a coroutine function."""

    def run(self, queue: Any, /) -> Coroutine[Any, Any, Returned]: ...


class Job(JobRecord):
    """Something to run. Subclasses, at the top level of a module, add fields and a `run` method.

    Attributes
    ----------
    queue_model: type of Queue
        The model of the queues of its jobs.
    queue_name: str
        The name of the queue for calls that give none; None if each call has to give one.
    schedules: mapping
        The schedules of its jobs: names, each with the arguments of `Schedule.add`. Workers make them when they start.
        They are not those of the jobs of subclasses.
    always_cancel_on_error: bool
        True if none of its jobs may be put back in a queue after an error.
    keep_result: bool, float or timedelta
        Whether to keep what the code of its jobs returns, for `result`: True for a day; or for how long, in seconds or
        as a timedelta.
    keep_output: float or timedelta
        For how long after its end to keep what the code of a job emitted, for `output`, in seconds or as a timedelta;
        an hour by default.
    identify: callable
        Makes the identifier of a job that is added without one, of its arguments: ``identify = lambda arguments:
        f"welcome:{arguments.customer}"``. By default each such job has one of its own.
    keep_history: int
        How many of the last status changes of each job are kept, for `read_history`; 0 for none.
    thread_safe: bool
        False if its jobs must not run beside others in a process, see ``concurrency`` of workers.
    default_job_timeout: float
        After how many seconds of running a job is an error of type `JobTimeout`, unless its field `job_timeout` says
        something else. None to leave it to the worker, 0 for no limit.
    kill_after: float
        With ``--processes`` of workers: how many seconds after its time limit a job that cannot be interrupted, because
        it waits in C for example, is an error of type `JobTimeout`, and its process is killed. None to leave it to the
        worker, 0 for never.
    default_retry_policy: Retry
        When to try a failed job again, unless its field `retry_policy` says something else. None to leave it to the
        worker.
    start_within: float or timedelta
        How long its jobs may wait for their first run, in seconds unless a timedelta, from when they are added, or from
        the end of their delay. A job that was not begun by then is canceled. None or 0 for no limit.
    retry_for: float or timedelta
        For how long after its first failure a job is tried again: no try begins later. Without a retry policy, it is
        tried again after the delays of `Exponential`. None or 0 for no limit.
    max_run_time: float or timedelta
        After how long a job gives way, in seconds unless a timedelta: at its next item of `iterate`, or after its next
        `step`. It goes on later, from the end of its waiting list. None or 0 for no limit.
    unique_for: float or timedelta
        For how long after a job of it ended, as a success or an error, no other one of the same identifier is added, in
        seconds unless a timedelta. None or 0 to add one at once.
    limits: list of Limit
        How many of its jobs run at once, or begin in a time, for each value of a field. Anything else of that name is
        the application's own.
    restart_after_error: bool
        True to let a job that failed begin anew, instead of going on from the cursors of its `iterate` and `step`.
    max_job_bytes: int
        How many bytes the names and values of the fields that `add_job` is given have at most, with the identifier, as
        they are stored. None for no limit.
    """

    __module__ = "limpyd_jobs.models"  # what is stored of a class is its path

    arguments = ArgumentsOfJob()
    attempt_token = AttemptToken()
    add_outcome = OutcomeOfAdding()

    queue_model: type[Queue] = Queue
    queue_name: str | None = None
    start_within: float | timedelta | None = None
    retry_for: float | timedelta | None = None
    unique_for: float | timedelta | None = None
    max_run_time: float | timedelta | None = None
    restart_after_error: bool = False
    schedules: Mapping[str, Mapping[str, Any]] = MappingProxyType({})
    default_job_timeout: float | None = None
    kill_after: float | None = None
    keep_result: bool | float | timedelta = False
    keep_output: float | timedelta = 3600
    max_job_bytes: int | None = None
    keep_history: int = 0
    thread_safe: bool = True
    identify: Callable[[Any], str] | None = None

    def __init_subclass__(cls, **kwargs: Any) -> None:
        """Refuse what the class declares and cannot be; let `run` be given the resources that its parameters name."""
        super().__init_subclass__(**kwargs)
        try:
            check_declared(cls)
            check_durations(cls)
        except Exception:
            cls.abstract = True  # it is only half made, so nothing may take it for a model
            raise
        if roots.prepare_run is not None and "run" in vars(cls):
            roots.prepare_run(cls, vars(cls)["run"])

    @classmethod
    def get_from_ident(cls, ident: str) -> Job:
        """Return the job of an ident.

        Raises
        ------
        ValueError
            If it is not an ident, or not the ident of a job.
        ImportError, AttributeError
            If there is no such module, no such class in it, or jobs may not come from it (see `JobClasses`).
        DoesNotExist
            If the job was deleted.
        """
        if ident.count(":") != 1:
            raise ValueError(f"{one_line(ident)!r} is not the ident of a job, for example myapp.jobs.SendMail:12")
        path, pk = ident.split(":")
        job: Job = job_classes.like(cls).resolve(path).get(pk)
        return job

    @classmethod
    async def aget_from_ident(cls, ident: str) -> Job:
        """Do as `get_from_ident`, in a thread: it may have to import the module of the class."""
        return await in_thread(partial(cls.get_from_ident, ident))

    @classmethod
    def _get_queue_name(cls, queue_name: str | None = None) -> str:
        if queue_name is None:
            queue_name = cls.queue_name
        if queue_name is None:
            name = ("queue_name", "a queue_name")
            raise naming(
                LimpydJobsException, "Queue's name not defined: give ", name, f", or let {cls.__name__} have one"
            )
        return stored_queue_name(queue_name)

    @classmethod
    def add_job(
        cls,
        identifier: str = LEFT_OUT,
        queue_name: str | None = None,
        priority: int | str | None = 0,
        queue_model: type[Queue] | None = None,
        prepend: bool = False,
        delayed_for: float | timedelta | None = None,
        delayed_until: datetime | None = None,
        **fields_if_new: Any,
    ) -> Self:
        """Add a job to a queue, unless one of the same identifier is queued already.

        In that case, the queued job is returned. If the given priority is higher than its own, or with ``prepend``, it
        is moved to the place of the new one, but never while it runs. The attribute ``add_outcome`` of what is returned
        says what was done: ``added``; ``existing`` or ``moved``; to replace it, ``replaced`` or
        ``running``; and ``throttled`` if a job of the identifier ended less than ``unique_for`` ago: that one, which
        may be deleted by now, is returned, and none is added.

        Parameters
        ----------
        identifier: str
            What the job is about; at most 64 kB as UTF-8. Without it, one is made: of its arguments, if the class has
            an `identify`; else one that no other job has, a UUID of which later ones are greater.
        queue_name: str
            By default the one of the class; at most 1 kB.
        priority: int
            The higher, the sooner.
        queue_model: type of Queue
            By default the one of the class.
        prepend: bool
            True for the beginning of the waiting list instead of its end.
        delayed_for: int, float or timedelta
            How long to wait before the job may run, in seconds unless a timedelta.
        delayed_until: datetime
            When the job may run: naive UTC, or aware.
        start_within, retry_for, unique_for: int, float or timedelta
            For a new job only: its own value in place of the attribute of the class; 0 for no limit.
        on_duplicate: str
            ``"replace"`` to let a queued job of the same identifier become the one that would be added, in one step:
            with these fields, defaults for those that are not given, this delay, queue and priority, and no tries. It
            keeps its pk, and its place in a waiting list unless it comes into another one. If it runs, nothing is
            changed: ``running``. ``"replace_or_follow"`` adds the new one then, too, which begins once the other has
            ended; that one is not tried again. ``"keep"``, the default, changes no field of it. If the class has a
            field of that name, this is the value of that field.
        **fields_if_new
            Other fields, for a new job only; indexed ones of at most 64 kB each.

        Raises
        ------
        LimpydJobsException
            If no queue name is given.
        TypeError, ValueError
            If an argument is not one of the above, or all together are larger than `max_job_bytes`.
        AttributeError
            If the model has no such field.
        UniquenessError
            If another job has the value of a unique field.
        NotReplicated
            If the job was added, but not copied in time, and the settings of the database ask for that:
            ``wait_for_replicas``.
        """
        job: Self = finish(
            adding.one(
                *(cls, identifier, cls._get_queue_name(queue_name), priority, queue_model, prepend),
                *(delayed_for, delayed_until, fields_if_new),
            )
        )
        return job

    @classmethod
    @awaitable
    async def aadd_job(
        cls,
        identifier: str = LEFT_OUT,
        queue_name: str | None = None,
        priority: int | str | None = 0,
        queue_model: type[Queue] | None = None,
        prepend: bool = False,
        delayed_for: float | timedelta | None = None,
        delayed_until: datetime | None = None,
        **fields_if_new: Any,
    ) -> Self:
        """Do as `add_job`, under asyncio: see :doc:`/howto/asyncio`. All tasks of a loop share one connection.

        If the task is canceled, the job may be added all the same.
        """
        job: Self = await finished(
            adding.one(
                *(cls, identifier, cls._get_queue_name(queue_name), priority, queue_model, prepend),
                *(delayed_for, delayed_until, fields_if_new),
            )
        )
        return job

    @classmethod
    def add(cls: Callable[P, Made], *args: P.args, **arguments: P.kwargs) -> Made:
        """Add a job with these arguments, and return it: ``SendMail.add(to="ann")``.

        It does as `add_job`, but takes the arguments alone, so that type checkers know them: see
        `limpyd_jobs.typed`. How to add the job is said before, by `configure`.

        Raises
        ------
        TypeError
            If an argument is not given by name, or says how to add the job.

        The other exceptions: see `add_job`.
        """
        job_class: Any = cls
        made: Made = job_class.add_job(**arguments_for(job_class, {}, args, arguments))
        return made

    @classmethod
    async def aadd(cls: Callable[P, Made], *args: P.args, **arguments: P.kwargs) -> Made:
        """Do as `add`, under asyncio: see :doc:`/howto/asyncio`."""
        job_class: Any = cls
        made: Made = await job_class.aadd_job(**arguments_for(job_class, {}, args, arguments))
        return made

    @classmethod
    def configure(cls: Callable[P, Made], **options: Unpack[OptionsOfAdding]) -> AddingJobs[P, Made]:
        """Say how to add jobs: ``SendMail.configure(priority=5, delayed_for=60).add(to="ann")``.

        What it returns has `add`, ``aadd``, and ``prepare``, which returns a call as a value: see `prepare`. The
        options are those of `limpyd_jobs.JobFunction.configure`; None for those of the class.
        """
        return AddingJobs(cls, options_of(options))

    @classmethod
    def prepare(cls: Callable[P, Made], *args: P.args, **arguments: P.kwargs) -> PreparedJob[Made]:
        """Return a call of `add_job` as a value, to be done later: ``SendMail.prepare(to="ann").add()``.

        It can be done several times, with other options: ``prepared.add(queue_name="slow")``, or ``await
        prepared.aadd()``. `add_jobs` takes it as one of its jobs. An identifier that is left out is made each time.

        Parameters
        ----------
        *args, **arguments
            As `add_job` takes them.

        Returns
        -------
        PreparedJob
            Also a mapping of the arguments, by name.

        Raises
        ------
        AttributeError, TypeError, ValueError
            If an argument is wrong, as `add_job` does; unless the class has an `add_job` of its own.
        """
        return prepared(cls, args, arguments)

    @classmethod
    def add_jobs(
        cls,
        jobs: Iterable[str | Mapping[str, Any]],
        queue_name: str | None = None,
        priority: int | str | None = 0,
        queue_model: type[Queue] | None = None,
        prepend: bool = False,
        delayed_for: float | timedelta | None = None,
        delayed_until: datetime | None = None,
        progress: Callable[[int], object] | None = None,
        **fields_if_new: Any,
    ) -> list[Self]:
        """Add many jobs, one after the other, as `add_job` does, in steps of up to 250 jobs. Each step is one round
        trip.

        No process ever sees half of a step. If an argument of one job is wrong, no job of that step is added; the steps
        before it stay. Jobs that follow each other and go to the same queue, with the same delay, share a step. Some
        jobs are added one by one: those of a class with unique fields, with defaults of fields outside of its hash, or
        with its own way to put a job in a queue.

        Parameters
        ----------
        jobs: iterable of str or mapping
            Identifiers; or the arguments of `add_job` that are particular to a job, by name: ``{"identifier": "page:1",
            "priority": 3}``, or what `prepare` returned. An identifier that is left out is made, as `add_job` does. It
            is read while the jobs are added, so it may be endless.
        progress: callable
            Is called after each step with the number of jobs added so far.

        The other parameters are for jobs that do not give their own. For them, and for the exceptions, see `add_job`.

        Returns
        -------
        list of Job
            In the order of the given ones.
        """
        return finish(
            adding.many(
                *(cls, jobs, progress, fields_if_new),
                queue_name=queue_name,
                priority=priority,
                queue_model=queue_model,
                prepend=prepend,
                delayed_for=delayed_for,
                delayed_until=delayed_until,
            )
        )

    @classmethod
    @awaitable
    async def aadd_jobs(
        cls,
        jobs: Iterable[str | Mapping[str, Any]],
        queue_name: str | None = None,
        priority: int | str | None = 0,
        queue_model: type[Queue] | None = None,
        prepend: bool = False,
        delayed_for: float | timedelta | None = None,
        delayed_until: datetime | None = None,
        progress: Callable[[int], object] | None = None,
        **fields_if_new: Any,
    ) -> list[Self]:
        """Do as `add_jobs`, under asyncio: see :doc:`/howto/asyncio`. Between two steps, other tasks go on.

        If the task is canceled, the steps before stay, and the last one may be done.
        """
        return await finished(
            adding.many(
                *(cls, jobs, progress, fields_if_new),
                queue_name=queue_name,
                priority=priority,
                queue_model=queue_model,
                prepend=prepend,
                delayed_for=delayed_for,
                delayed_until=delayed_until,
            )
        )

    def enqueue_or_delay(
        self,
        queue_name: str | None = None,
        priority: int | str | None = None,
        delayed_until: datetime | str | None = None,
        prepend: bool = False,
        queue_model: type[Queue] | None = None,
    ) -> None:
        """Put the job in a queue: delayed if `delayed_until` is in the future, else waiting.

        A job that is in a queue already is moved. A running job is put back once its run ends, unless it ends in an
        error, and in the queue it came from.

        Parameters
        ----------
        priority: int
            None to keep its own.
        delayed_until: datetime or str
            Naive UTC or aware; or its text.

        The other parameters and exceptions: see `add_job`.
        """
        finish(moving.enqueued(self, queue_name, priority, delayed_until, prepend, queue_model))

    aenqueue_or_delay = awaitable(awaited(enqueue_or_delay, moving.enqueued))

    def requeue(
        self,
        queue_name: str | None = None,
        priority: int | str | None = None,
        delayed_for: float | timedelta | None = None,
        delayed_until: datetime | None = None,
        queue_model: type[Queue] | None = None,
        restart: bool = False,
    ) -> None:
        """Put the job back in a queue after an error. Its tries are kept, but its retry policy begins anew.

        Parameters
        ----------
        queue_name: str
            By default the one of the class, or else the one that it was in.
        priority: int
            None for its own priority, or for the one before its retry policy changed it.
        restart: bool
            True to let the loops and steps of the job begin anew, instead of going on where they were. What is left of
            the jobs that it spawned is canceled.

        The other parameters: see `add_job`.

        Raises
        ------
        LimpydJobsException
            If its status is not ERROR, another job of its identifier is queued, or no queue is known.
        TypeError, ValueError
            If an argument is invalid.
        """
        finish(moving.requeued(self, queue_name, priority, delayed_for, delayed_until, queue_model, restart))

    arequeue = awaitable(awaited(requeue, moving.requeued))

    def cancel(self) -> bool:
        """Cancel the job. A job that waits or is delayed is canceled at once, and its identifier is free again.

        A running job is told so: its code is not interrupted, but may ask `is_cancelled`; a coroutine is cancelled. The
        job ends as canceled, or in error if its code raises, and is not run again.

        Returns
        -------
        bool
            False if it ended before, in success or error: nothing was changed.

        Raises
        ------
        DoesNotExist
            If the job was deleted.
        """
        return finish(moving.canceled(self))

    acancel = awaitable(awaited(cancel, moving.canceled))

    def claim(
        self,
        owner: str | None = None,
        lease: float = 60,
        queue_model: type[Queue] | None = None,
        error_model: type[Error] | None = None,
    ) -> Claim[Self]:
        """Begin to run the job, as a worker does: the job is running, its try is counted, no other owner can claim it.

        The job may wait, also in a paused queue; be delayed and due; stand in no queue; or have a holder whose lease
        lapsed. A job that is delayed until later is refused, because its retry policy or your code asked for the
        delay. To run it now, call `enqueue_or_delay` before.

        If Redis did not answer, you may repeat the call on the same object.

        Parameters
        ----------
        owner: str
            Who claims it, up to 1 kB. By default the name of the host and the number of the process.
        lease: float
            For how many seconds the claim holds after each renewal. At most 1,000,000,000.
        queue_model: type of Queue
            By default the one of the class.
        error_model: type of Error
            Where to record that the job failed: `Error` by default.

        Returns
        -------
        Claim

        Raises
        ------
        AlreadyClaimed
            If another owner holds it, a worker or another claim.
        NotClaimable
            If it is finished, or delayed until later.
        JobGone
            If it was deleted.
        LimpydJobsException
            If another job of its identifier is queued; or it stands in no queue, and its class names no queue.
        ConfigurationException
            If it stands in a queue of another model.
        TypeError, ValueError
            If an argument is invalid.
        """
        return Claim.on(
            self,
            queue_model or self.queue_model,
            self.queue_name or "",
            owner,
            lease,
            error_model or bound_like(Error, type(self)),
        )

    def wait(self, timeout: float | None = None) -> bool:
        """Wait until the job has ended: its status is SUCCESS, ERROR or CANCELED, or it was deleted.

        A job that failed and is tried again has not ended. A job that was canceled while it runs has ended, even if its
        code goes on. The class has to say `notify_changes = True`, also in the processes that run the job. While Redis
        does not answer, the call waits on. All threads of a process that wait for jobs of one class share a thread that
        listens, and its connection.

        Parameters
        ----------
        timeout: float
            For how many seconds; None for no limit, 0 to ask Redis once.

        Returns
        -------
        bool
            False if it has not ended by then, or Redis does not answer by then.

        Raises
        ------
        ConfigurationException
            If the class does not notify of its changes.
        LimpydJobsException
            If another program wrote something to the key of the job, or of the changes of its class.
        redis.exceptions.RedisError
            If Redis refuses; or, with a timeout of 0, does not answer.
        TypeError, ValueError
            If the timeout is not None, nor a number of 0 or more.
        """
        return bool(wait_for_end(self, timeout))

    @awaitable
    async def await_end(self, timeout: float | None = None) -> bool:
        """Do as `wait`, under asyncio: see :doc:`/howto/asyncio`. All tasks of a loop that wait for jobs of one class
        share a connection that listens."""
        from limpyd_jobs.models.following import awaiting  # not at the start of each process

        return bool(await awaiting.wait_for_end(self, timeout))

    @overload
    def result(
        self: ReturningLater[Result], timeout: float | None = None, error_model: type[Error] | None = None
    ) -> Result: ...

    @overload
    def result(
        self: Returning[Result], timeout: float | None = None, error_model: type[Error] | None = None
    ) -> Result: ...

    def result(self, timeout: float | None = None, error_model: type[Error] | None = None) -> Any:
        """Wait until the job has ended, as `wait` does, and return what its code returned, as JSON keeps it.

        The class has to say ``keep_result = True``, to keep results for a day, or for how long, in seconds or as a
        timedelta. It has to say so also in the processes that run the job. It then notifies of its changes, too.

        Parameters
        ----------
        timeout: float
            For how many seconds to wait; None for no limit, 0 not to wait.
        error_model: type of Error
            The model in which its error is looked for; None for all models.

        Raises
        ------
        JobFailed
            If it is in error.
        JobCanceled, JobGone
            If it was canceled, or deleted.
        NoResult
            If it succeeded, and its result expired, or could not be kept.
        ResultTimeout
            If it has not ended in time, or Redis does not answer by then.
        ConfigurationException
            If the class keeps no results.
        LimpydJobsException
            If another program wrote something to the key of the job, or of the changes of its class.
        redis.exceptions.RedisError
            If Redis refuses; or, with a timeout of 0, does not answer.
        """
        return result_of(self, timeout, error_model)

    @overload
    async def aresult(
        self: ReturningLater[Result], timeout: float | None = None, error_model: type[Error] | None = None
    ) -> Result: ...

    @overload
    async def aresult(
        self: Returning[Result], timeout: float | None = None, error_model: type[Error] | None = None
    ) -> Result: ...

    @awaitable
    async def aresult(self, timeout: float | None = None, error_model: type[Error] | None = None) -> Any:
        """Do as `result`, under asyncio: see :doc:`/howto/asyncio`."""
        from limpyd_jobs.models.following import awaiting  # not at the start of each process

        return await awaiting.result_of(self, timeout, error_model)

    async def aget(self, name: str) -> Any:
        """Return the value of a field, under asyncio.

        Parameters
        ----------
        name: str
            The name of a field of the hash: its text is returned, or, of an `Argument` or a `ValueField`, its value;
            None if it is not set. The name of any other field, such as a list: all that it has.

        Raises
        ------
        AttributeError
            If the model has no such field.
        ValueError
            If the stored text is not the text of a value.
        """
        return await finished(moving.value_of(self, name))

    async def aset(self, name: str, value: Any) -> None:
        """Set a field, as `set_fields` does, under asyncio.

        Raises
        ------
        AttributeError
            If the model has no such field, or it is an argument.
        DoesNotExist
            If the job was deleted.
        TypeError, ValueError
            If the field cannot hold the value.
        UniquenessError
            If another job has the value of a unique field.
        """
        await finished(moving.value_set(self, name, value))

    async def adelete(self) -> None:
        """Do as `delete`, in a thread."""
        await in_thread(self.delete)

    def progress(self, fraction: float, text: str = "") -> None:
        """Tell how far the code of the job is, for others to see: ``self.progress(0.4, "page 12 of 30")``.

        It is written once a second at most. The first call, and the end (1), are always written. If Redis fails, or
        this run has lost its claim, nothing is written.

        Parameters
        ----------
        fraction: float
            From 0 to 1.
        text: str
            At most 1,000 characters of it are kept.

        Raises
        ------
        TypeError, ValueError
            If the fraction is not a number from 0 to 1.
        """
        finish(write_progress(self, fraction, text))

    aprogress = awaitable(awaited(progress, write_progress))

    def read_progress(self) -> Progress | None:
        """Return how far the job is, as it told last: `fraction`, `text`, and `at`, naive UTC; None if it told
        nothing."""
        return read_progress(self._progress_state.hget())

    @overload
    def iterate(self, source: Sequence[T], key: None = None, name: str = "iterate") -> Iteration[T]: ...

    @overload
    def iterate(
        self,
        source: Iterable[T] | AsyncIterable[T] | Callable[..., Iterable[T]] | Callable[..., AsyncIterable[T]],
        key: Callable[[T], Any],
        name: str = "iterate",
    ) -> Iteration[T]: ...

    def iterate(self, source: Any, key: Any = None, name: str = "iterate") -> Iteration[Any]:
        """Loop over a source so that the job, if it is interrupted, goes on where it was: ``for row in
        self.iterate(rows):``.

        How far the loop is, its *cursor*, is kept with each renewal of the lease, and when a run of the job ends
        without success. If a worker has to end, the job gives way between two items, and goes on elsewhere; the try is
        not counted. After a crash, what was done since the last renewal is done again. An item is done once the next
        one is asked for.

        Parameters
        ----------
        source: sequence, iterable, or callable
            A sequence goes on by its index; with a key, behind the item of that key, for which it is read from its
            beginning. A function is called as ``source(after=cursor)``, with the key of the last item that was done, or
            None, and returns an iterable. For ``async for``, the iterables may be asynchronous ones.
        key: callable
            Returns, for an item, the cursor: what JSON can hold, up to 4 kB.
        name: str
            Of the loop, if the job has several: up to 100 characters.

        Raises
        ------
        TypeError, ValueError
            If an argument is not one of the above; by the loop, if a key is no such cursor.
        RuntimeError
            By the loop, if it begins inside another loop or step, or if its name was used before in this run.
        CursorLost
            By the loop, if the stored cursor does not fit the source: the item of that key is gone, or the sequence is
            shorter now.
        """
        return Iteration(cursors_of(self), source, key, checked_name(name))

    def step(self, name: str) -> Step:
        """Keep that a part of the job is done, and give way after it, if the worker has to end: ``with
        self.step("charge") as step:``. In a coroutine, it is ``async with``.

        Python cannot skip the block of a ``with``, so it asks ``step.is_new`` whether it has to do its work. Once the
        block is left without an exception, it is kept, in one round trip, that the step is done.

        Parameters
        ----------
        name: str
            Up to 100 characters; another one for each step and loop of the job.

        Raises
        ------
        TypeError, ValueError
            If it is not a name.
        RuntimeError
            By the block, if it begins inside a loop or another step, or if its name was used before in this run.
        ClaimLost
            By the end of the block, if another worker has the job by now.
        """
        return Step(cursors_of(self), checked_name(name))

    def wait_for(self, name: str, timeout: float | timedelta | None = None) -> Any:
        """Wait for a signal, and return its value: ``answer = self.wait_for("approval", timeout=timedelta(days=3))``.

        If it was sent already, it is returned at once. Else the code of the job ends here, by a `JobInterrupted`, and
        the job is delayed until `limpyd_jobs.send_signal` sends it, or the time is over: it holds no slot, lease or
        connection meanwhile, and the try does not count. Then it runs again, from its beginning: what is not to be done
        again stands in a `step`. A signal is never used up: each later run gets the same one.

        Parameters
        ----------
        name: str
            Of the signal: a printable text of up to 100 characters. Another name is another signal.
        timeout: float or timedelta
            For how long to wait, in seconds unless a timedelta, from when the job first asks. None for no limit.

        Raises
        ------
        SignalTimeout
            If it did not come in time: now, and whenever the job asks again.
        TypeError, ValueError
            If an argument is not one of the above.
        ClaimLost
            If the job has lost its claim.
        LimpydJobsException
            If the job does not run in this process, another program wrote to its signals, or its code waits for
            something else already: it can wait for one thing after the other, not for two at once.
        """
        return finish(waiting(self, name, timeout))

    await_for = awaitable(awaited(wait_for, waiting))

    def spawn(self, *calls: Prepared, name: str = "spawn", on_error: Literal["fail", "run", "cancel"] = "fail") -> None:
        """Add jobs that are known only now, and whose results the job will read by `children_results`:
        ``self.spawn(*[Page.prepare(number=n) for n in numbers])``.

        It is a step of the job, with a name: if the job is interrupted and runs again, what it has spawned by that name
        is not spawned again. All are added, or none. If the job is canceled, so are they.

        Parameters
        ----------
        *calls: PreparedJob or PreparedCall; or a Flow
            What ``prepare`` of a job class, or of a function with `@job`, returned: 1 to 100,000. Or one
            `limpyd_jobs.Flow` that is not made, if some of them come after others.
        name: str
            Another one for each spawn of the job.
        on_error: str
            What `children_results` does if one of them failed: ``"fail"`` to raise that, ``"run"`` to return what the
            others returned. With ``"cancel"``, the first failure cancels the others, and is raised.

        Raises
        ------
        TypeError, ValueError, ConfigurationException
            As `limpyd_jobs.Flow.add`.
        RuntimeError
            If this run of the job has spawned by that name before.
        LimpydJobsException
            If a job of the identifier of one of them is queued; or the job does not run in this process.
        ClaimLost
            If the job has lost its claim.
        """
        finish(_spawning().spawning(self, calls, name, on_error))

    async def aspawn(
        self, *calls: Prepared, name: str = "spawn", on_error: Literal["fail", "run", "cancel"] = "fail"
    ) -> None:
        """Do as `spawn`, under asyncio."""
        await finished(_spawning().spawning(self, calls, name, on_error))

    def children_results(self, name: str = "spawn") -> dict[str, Any]:
        """Wait for the jobs that this one has spawned; return what they returned, by their names, in their order.

        If one of them has not ended, the code of the job ends here, by a `JobInterrupted`. The job is delayed until the
        last one has ended, and holds no slot, lease or connection meanwhile. Then it runs again, from its beginning. A
        name is the name of the class or function, from the second one on with a number: ``Page``, ``Page 2``.

        Parameters
        ----------
        name: str
            As `spawn` was given it.

        Raises
        ------
        JobFailed, JobCanceled
            If one of them failed, or was canceled, unless `spawn` was given ``on_error="run"``.
        LimpydJobsException
            If nothing was spawned by that name; one that failed was deleted; the code of the job waits for something
            else already; or it spawned a flow that is held until the flow of the job itself has ended.
        ClaimLost
            If the job has lost its claim.
        """
        return finish(_spawning().results_of_children(self, name))

    async def achildren_results(self, name: str = "spawn") -> dict[str, Any]:
        """Do as `children_results`, under asyncio."""
        return await finished(_spawning().results_of_children(self, name))

    def settle(self, limit: str, amount: float) -> None:
        """Tell how much of a rate the job used, once its code knows: ``self.settle("model", response.total_tokens)``.

        It takes the place of the weight that was counted when the job began. What is left of that is given back; if it
        was more, the next jobs wait for longer. The last call counts.

        Parameters
        ----------
        limit: str
            The name of a limit of the class, or its field.
        amount: float
            How much, in all.

        Raises
        ------
        ValueError
            If the class has no such limit, or the job used nothing of its rate.
        ClaimLost
            If the job has lost its claim.
        LimpydJobsException
            If it does not run in this process.
        """
        finish(settling(self, limit, amount))

    asettle = awaitable(awaited(settle, settling))

    def rest(self, limit: str, seconds: float | str | timedelta) -> NoReturn:
        """Give the job back to its place, and let no job of the same key begin for a while, as after a 429 of an API:
        ``self.rest("model", response.headers["Retry-After"])``.

        The code of the job ends here, by a `JobInterrupted`. The try does not count, and what the job used of the rate
        of that limit is given back. Jobs of the key that run already go on.

        Parameters
        ----------
        limit: str
            The name of a limit of the class, or its field.
        seconds: int, float, str or timedelta
            For how long: in seconds unless a timedelta, or the value of a ``Retry-After`` header.

        Raises
        ------
        TypeError, ValueError
            If that is no time, the class has no such limit, or the job has no value for it.
        ClaimLost, LimpydJobsException
            As `settle`.
        """
        finish(resting(self, limit, seconds))

    arest = awaitable(awaited(rest, resting))

    def log(self, message: str) -> None:
        """Write a line to the log of the job, for others to see.

        The last 100 lines are kept, up to 1,000 characters of each, for a week, and no longer than the job. If Redis
        fails, nothing is written.
        """
        finish(append_line(self, message))

    alog = awaitable(awaited(log, append_line))

    def read_log(self) -> list[str]:
        """Return the lines of the log, each with its date, UTC, the oldest first."""
        return read_lines(self)

    def emit(self, *values: Any) -> None:
        """Emit a part of the output of the job, for others to follow while it runs: ``self.emit({"delta": "Hel"})``.

        The parts, *chunks*, are kept in order: the last 1,000 of a job, up to 1 MB of them, until an hour after its
        end, or as long as the class says by `keep_output`. If a run of the job begins anew, its chunks follow those of
        the run before. It is one round trip, also for several values. If Redis fails, what it did not take goes with
        the next call; what is left at the end of the run is lost.

        Parameters
        ----------
        *values
            What JSON can hold, up to 64 kB each.

        Raises
        ------
        TypeError, ValueError
            If a value is not one of the above: then none is emitted.
        ClaimLost
            If another worker has the job by now: then nothing is emitted.
        JobGone
            If the job was deleted.
        LimpydJobsException
            If the job does not run here, or another program wrote something to the key of its output.
        """
        finish(_emitting(self, *values))

    @awaitable
    async def aemit(self, *values: Any) -> None:
        """Do as `emit`, under asyncio: see :doc:`/howto/asyncio`."""
        await finished(_emitting(self, *values))

    def output(self, after: str | None = None, timeout: float | None = None) -> Output:
        """Follow what the code of the job emits, until the job has ended: ``for chunk in job.output():``.

        It begins with what is there, and ends with the job: as a success, in error, canceled or deleted. A job that
        failed and is tried again has not ended. All that follow jobs in a process share one connection that listens.

        Parameters
        ----------
        after: str
            The `id` of the last chunk that is known, to go on after it; None to begin with the first that is kept.
        timeout: float
            After how many seconds without a chunk to end all the same; None for never.

        Returns
        -------
        Output
            An iterator over chunks. Each has its `id`; its `value`; and `run`, the number of the run that emitted it:
            if it is greater than before, the job began anew.

        Raises
        ------
        TypeError, ValueError
            If an argument is not one of the above.
        """
        from limpyd_jobs.models.following.output import Output, place_of  # not at the start of each process

        return Output(place_of(self), after, timeout)

    def aoutput(self, after: str | None = None, timeout: float | None = None) -> AwaitedOutput:
        """Do as `output`, for ``async for``: see :doc:`/howto/asyncio`."""
        from limpyd_jobs.models.following.awaited_output import AwaitedOutput  # not at the start of each process
        from limpyd_jobs.models.following.output import place_of

        return AwaitedOutput(place_of(self), after, timeout)

    def read_history(self) -> list[StatusChange]:
        """Return the last changes of the status, the oldest first, if the class says how many to keep.

        The class says so by ``keep_history = 20``, for example, in all processes. Each change has `at`, naive UTC, the
        name of the `status`, and the `owner` of the claim that began or ended with it.
        """
        return read_history(self)

    def explain(self) -> Explanation:
        """Return why the job does not run yet, or did not run, in sentences: see `limpyd_jobs.query.explain_job`."""
        from limpyd_jobs.models.explaining.jobs import explain_job  # not at the start of each process

        return explain_job(self.ident, type(self).database)

    def children(self) -> list[FlowNode]:
        """Return the jobs of its flow that it comes after, and those that it has spawned, as they are now."""
        return finish(_nodes().nodes_before(self))

    async def achildren(self) -> list[FlowNode]:
        """Do as `children`, under asyncio."""
        return await finished(_nodes().nodes_before(self))

    def parents(self) -> list[FlowNode]:
        """Return the jobs of its flow that come after it, as they are now; none if it is in no flow."""
        return finish(_nodes().nodes_after(self))

    async def aparents(self) -> list[FlowNode]:
        """Do as `parents`, under asyncio."""
        return await finished(_nodes().nodes_after(self))

    def results(self) -> dict[str, Any]:
        """Return what the jobs of its flow that it comes after returned, as JSON keeps it, by their names in the flow.

        Those that failed, or have not ended, are not in it: see `children`. What returned nothing is None. They are
        kept for a day after the end of the flow, whatever ``keep_result`` of their classes says.
        """
        return finish(_nodes().results_before(self))

    async def aresults(self) -> dict[str, Any]:
        """Do as `results`, under asyncio."""
        return await finished(_nodes().results_before(self))

    def is_cancelled(self) -> bool:
        """Return whether the code that runs the job should end: the job is canceled, or its claim is lost.

        It asks Redis once per second at most, so you may call it in every round of a loop; a worker with several slots
        tells it at once. While Redis does not answer, it returns False. Once it was True, it stays True.
        """
        known = vars(self)
        if known.get("_is_told_to_end") or known.get("_claim_lost"):
            return True
        if monotonic() < known.get("_next_question", 0):
            return False
        self._next_question = monotonic() + QUESTION_INTERVAL
        try:
            status, token = transitions.status_and_claim(self)
        except RedisError:
            return False
        claim = known.get("_held_token")
        self._is_told_to_end = status == STATUSES.CANCELED or bool(claim and claim != token)
        return self._is_told_to_end

    def run(self, queue: Any) -> Any:  # a subclass may name its own model of queues
        """Do the work of the job. A subclass must define this method, unless its worker has a callback.

        Parameters
        ----------
        queue: Queue
            Where the job was fetched from.

        Returns
        -------
        object
            Any value: it is passed on to the worker's ``job_success`` and to ``on_success``.
        """
        error = NotImplementedError("You must implement your own action")
        error.add_note(f"{type(self).__name__} has no method run(self, queue), and its worker no callback")
        raise error


job_classes.base = roots.job = Job


def _spawning() -> Any:
    from limpyd_jobs.models.continuing import spawning  # not at the start of each process

    return spawning


def _emitting(job: Any, *values: Any) -> Steps[None]:
    from limpyd_jobs.models.following.emitting import emitted  # not at the start of each process

    return emitted(job, *values)


def _nodes() -> Any:
    from limpyd_jobs.models.following import nodes  # not at the start of each process

    return nodes
