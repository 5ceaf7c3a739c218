"""A function that is a job: it is called like any function, and its jobs are added with the same arguments."""

from __future__ import annotations

import inspect
import sys
from collections.abc import Callable, Collection, Mapping
from functools import update_wrapper
from typing import Any, Generic, ParamSpec, TypeVar, Unpack, cast

from limpyd_jobs.classes.roots import roots
from limpyd_jobs.exceptions import ConfigurationException
from limpyd_jobs.models.adding import AddOutcome
from limpyd_jobs.models.calls.prepared import OptionsOfAdding, Prepared, default_priority_of, options_of, prepared
from limpyd_jobs.models.following.results import result_of
from limpyd_jobs.models.following.waiting import wait_for_end
from limpyd_jobs.models.functions.declaring import declared
from limpyd_jobs.models.functions.refusing import path_of_function, refuse
from limpyd_jobs.models.job import Job

P = ParamSpec("P")
Hook = TypeVar("Hook", bound=Callable[..., Any])
Returned = TypeVar("Returned", covariant=True)
Result = TypeVar("Result", covariant=True)


# How an outcome is shown that is not clear by itself.
_SHOWN = {"existing": "queued already", "moved": "queued already"}


class AddedJob(Generic[Result]):
    """What adding a job of a function returns.

    Attributes
    ----------
    job: Job
        The job: the new one, or the one that is queued already.
    added: bool
        Whether it is new.
    outcome: str
        What was done, as `Job.add_job` says: ``added``, or why it was not.
    """

    def __init__(self, job: Job, outcome: AddOutcome) -> None:
        self.job = job
        self.outcome = outcome
        self.added = outcome == "added"

    @property
    def ident(self) -> str:
        """The path of the function, and the pk of the job: ``'myapp.jobs.send_mail:12'``."""
        return self.job.ident

    @property
    def identifier(self) -> str:
        """What the job is about, or the identifier that was made for it."""
        return str(self.job.identifier.hget())

    def result(self, timeout: float | None = None) -> Result:
        """Wait until the job has ended, and return what the function returned, as the type that it is annotated to
        return: see `Job.result`."""
        return cast(Result, result_of(self.job, timeout, None))

    def wait(self, timeout: float | None = None) -> bool:
        """Wait until the job has ended; return whether it has: see `Job.wait`."""
        return bool(wait_for_end(self.job, timeout))

    async def aresult(self, timeout: float | None = None) -> Result:
        """Do as `result`, under asyncio: see `Job.aresult`."""
        from limpyd_jobs.models.following import awaiting  # not at the start of each process

        return cast(Result, await awaiting.result_of(self.job, timeout, None))

    async def await_end(self, timeout: float | None = None) -> bool:
        """Do as `wait`, under asyncio: see `Job.await_end`."""
        from limpyd_jobs.models.following import awaiting  # not at the start of each process

        return bool(await awaiting.wait_for_end(self.job, timeout))

    def cancel(self) -> bool:
        """Cancel the job; return False if it has ended before: see `Job.cancel`."""
        return self.job.cancel()

    def __repr__(self) -> str:
        return f"<{self.ident}, {_SHOWN.get(self.outcome, self.outcome)}>"


class PreparedCall(Prepared, Generic[Result]):
    """A call of a function that is a job, as a value: see `JobFunction.prepare`. It can be added several times."""

    __slots__ = ("_function",)

    def __init__(self, function: JobFunction[..., Any, Result], arguments: Mapping[str, Any]) -> None:
        super().__init__(function.job_class, arguments)
        self._function = function

    def add(self, **options: Any) -> AddedJob[Result]:
        """Add a job.

        Parameters
        ----------
        **options
            As `JobFunction.configure` takes them; they take the place of those that were given before.
        """
        return _as_added(self.job_class.add_job(**self._with(options)))

    async def aadd(self, **options: Any) -> AddedJob[Result]:
        """Do as `add`, under asyncio."""
        return _as_added(await self.job_class.aadd_job(**self._with(options)))

    def _with(self, options: Mapping[str, Any]) -> dict[str, Any]:
        return {**self._arguments, **(self._function.configure(**options)._options if options else {})}


def _as_added(job: Job) -> AddedJob[Any]:
    return AddedJob(job, vars(job).get("_add_outcome", "added"))


class Adding(Generic[P, Result]):
    """Adds jobs of a function in a way that was configured: see `JobFunction.configure`."""

    def __init__(self, function: JobFunction[..., Any, Result], options: Mapping[str, Any]) -> None:
        self._function = function
        self._options = options

    def add(self, *args: P.args, **kwargs: P.kwargs) -> AddedJob[Result]:
        """Add a job: see `JobFunction.add`."""
        return self._function._added(self._options, args, kwargs)

    async def aadd(self, *args: P.args, **kwargs: P.kwargs) -> AddedJob[Result]:
        """Add a job under asyncio: see `JobFunction.aadd`."""
        return await self._function._aadded(self._options, args, kwargs)

    def prepare(self, *args: P.args, **kwargs: P.kwargs) -> PreparedCall[Result]:
        """Return a call as a value: see `JobFunction.prepare`."""
        return self._function._prepared(self._options, args, kwargs)


class JobFunction(Generic[P, Returned, Result]):
    """A function that is a job. To call it runs the function. Made by the decorator `job`.

    Attributes
    ----------
    job_class: type of Job
        The class of its jobs.
    """

    def __init__(self, function: Any, options: dict[str, Any]) -> None:
        update_wrapper(self, function)
        self._is_checked = False
        self.job_class, self._parameters, given = declared(function, self, options)
        self._signature = _signature_of_calls(function, {each.name for each in given})
        self._fields = {each.name: each.field for each in self._parameters}
        self._defaults = {"priority": default_priority_of(self.job_class)}
        if not self._defaults["priority"]:
            self._defaults = {}

    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> Returned:
        return cast(Returned, self.__wrapped__(*args, **kwargs))  # type: ignore[attr-defined]

    def prepare(self, *args: P.args, **kwargs: P.kwargs) -> PreparedCall[Result]:
        """Return a call as a value, to be added later: ``send_mail.prepare("ann").add(delayed_for=60)``.

        ``send_mail.job_class.add_jobs`` takes several of them. For the exceptions see `add`.
        """
        return self._prepared({}, args, kwargs)

    def add(self, *args: P.args, **kwargs: P.kwargs) -> AddedJob[Result]:
        """Add a job that calls the function with these arguments.

        Returns
        -------
        AddedJob

        Raises
        ------
        TypeError, ValueError
            If the function does not take such arguments, or one of them is not as its annotation says.
        ConfigurationException
            If its module has something else under its name.
        LimpydJobsException, UniquenessError, NotReplicated
            As `Job.add_job` does.
        """
        return self._added({}, args, kwargs)

    async def aadd(self, *args: P.args, **kwargs: P.kwargs) -> AddedJob[Result]:
        """Do as `add`, under asyncio, without blocking the loop: see `Job.aadd_job`."""
        return await self._aadded({}, args, kwargs)

    def configure(self, **options: Unpack[OptionsOfAdding]) -> Adding[P, Result]:
        """Say how to add jobs: ``send_mail.configure(priority=5, delayed_for=60).add("ann")``.

        Parameters
        ----------
        identifier: str
            What the job is about. As long as a job of the function that has it is queued, no other one is added.
        queue: str
        priority: int
        prepend: bool
        delayed_for: float or timedelta
        delayed_until: datetime
            As `Job.add_job` takes them; None for those of the function.
        retry: Retry or str
            When to try it again after an error.
        timeout: float
            After how many seconds of running it is an error.
        start_within, retry_for, unique_for: float or timedelta
            As `Job.add_job` takes them.
        on_duplicate: str
            ``"replace"`` to let a queued job of the identifier become this one; ``"replace_or_follow"`` to let this
            one begin once it has ended, if that one runs.
        """
        return Adding(self, options_of(options))

    def arguments_of(self, *args: P.args, **kwargs: P.kwargs) -> dict[str, Any]:
        """Return what ``job_class.add_job`` takes to add a job that calls the function with these arguments.

        Raises
        ------
        TypeError, ConfigurationException
            As `add` does.
        """
        return self._arguments({}, args, kwargs)

    def on_started(self, hook: Hook) -> Hook:
        """Let a function be called before each of its jobs runs, with the job and its queue. As a decorator:

        >>> @send_mail.on_error
        ... def note(job: Job, queue: Queue, error: Exception, trace: str | None) -> None: ...

        Such a hook is a method of `job_class`, and takes the place of that of its base.

        Raises
        ------
        ConfigurationException
            If there is such a hook of the function already, or it is no function.
        """
        return self._hook("on_started", hook)

    def on_success(self, hook: Hook) -> Hook:
        """Let a function be called with each job that succeeded, its queue and its result: see `on_started`."""
        return self._hook("on_success", hook)

    def on_error(self, hook: Hook) -> Hook:
        """Let a function be called with each job that failed, its queue, the exception, and the text of its traceback,
        or None: see `on_started`."""
        return self._hook("on_error", hook)

    def on_exhausted(self, hook: Hook) -> Hook:
        """Let a function be called with each job whose last try failed, and the error, a `JobFailed`: once at least,
        even if its worker dies meanwhile. It is called by a job of its own: see :ref:`The last failure`, and
        `on_started`."""
        return self._hook("on_exhausted", hook)

    def on_requeued(self, hook: Hook) -> Hook:
        """Let a function be called with each job that failed and is tried again, and its queue: see `on_started`."""
        return self._hook("on_requeued", hook)

    def on_skipped(self, hook: Hook) -> Hook:
        """Let a function be called with each job that was canceled, or otherwise not run, and its queue: see
        `on_started`."""
        return self._hook("on_skipped", hook)

    def on_delayed(self, hook: Hook) -> Hook:
        """Let a function be called with each job that was delayed while it ran, and its queue: see `on_started`."""
        return self._hook("on_delayed", hook)

    def on_rescued(self, hook: Hook) -> Hook:
        """Let a function be called with each job whose worker died, and its queue: see `on_started`."""
        return self._hook("on_rescued", hook)

    def on_released(self, hook: Hook) -> Hook:
        """Let a function be called with each job that gave way to the end of its worker, and its queue: see
        `on_started`."""
        return self._hook("on_released", hook)

    def on_scheduled(self, hook: Hook) -> Hook:
        """Let a function be called with each job that a schedule added, the schedule, and when it was due, naive UTC:
        see `on_started`."""
        return self._hook("on_scheduled", hook)

    def _hook(self, name: str, hook: Hook) -> Hook:
        if not inspect.isfunction(hook):
            refuse(self, f"{name} is a decorator of a function, not of {hook!r}")
        if name in vars(self.job_class):
            refuse(self, f"it has {name} already: call the one from the other")
        setattr(self.job_class, name, hook)
        return hook

    def _added(self, options: Mapping[str, Any], args: Any, kwargs: Any) -> AddedJob[Result]:
        job = self.job_class.add_job(**self._arguments(options, args, kwargs))
        return AddedJob(job, vars(job).get("_add_outcome", "added"))

    async def _aadded(self, options: Mapping[str, Any], args: Any, kwargs: Any) -> AddedJob[Result]:
        job = await self.job_class.aadd_job(**self._arguments(options, args, kwargs))
        return AddedJob(job, vars(job).get("_add_outcome", "added"))

    def _prepared(self, options: Mapping[str, Any], args: Any, kwargs: Any) -> PreparedCall[Result]:
        arguments = self._arguments(options, args, kwargs)
        prepared(self.job_class, (), arguments)  # which checks them
        return PreparedCall(self, arguments)

    def _arguments(self, options: Mapping[str, Any], args: Any, kwargs: Any) -> dict[str, Any]:
        """Return what `Job.add_job` is given."""
        if not self._is_checked:
            self._check_place()
        try:
            given = self._signature.bind(*args, **kwargs).arguments
        except TypeError as error:
            option = next((name for name in kwargs if name in OptionsOfAdding.__annotations__), "")
            hint = option and f": an option is given by {self.__name__}.configure({option}=…)"  # type: ignore[attr-defined]
            raise TypeError(f"{path_of_function(self)}.add: {error}{hint}") from None
        fields = {self._fields[name]: value for name, value in given.items()}
        return {**self._defaults, **options, **fields}

    def _check_place(self) -> None:
        """Raise `ConfigurationException` if workers would find something else under the path of the function."""
        name, module = self.__name__, sys.modules.get(self.__module__)  # type: ignore[attr-defined]
        if vars(module).get(name) is not self if module else False:
            refuse(
                self,
                f"{self.__module__} has something else under the name {name!r}, so workers would not find it: write "
                "@job above its definition, above all other decorators",
            )
        self._is_checked = True

    def __reduce__(self) -> str:
        return str(self.__qualname__)  # type: ignore[attr-defined]

    def __repr__(self) -> str:
        return f"<job {path_of_function(self)}>"


def _signature_of_calls(function: Any, given: Collection[str]) -> inspect.Signature:
    """Return the signature of `JobFunction.add`: without what a worker gives."""
    signature = inspect.signature(function)
    if not given:
        return signature
    return signature.replace(parameters=[each for each in signature.parameters.values() if each.name not in given])


roots.job_function = JobFunction


def check_not_a_job(function: Any) -> None:
    """Refuse a function that is a job already."""
    if isinstance(function, JobFunction):
        raise ConfigurationException(f"{path_of_function(function)} is a job already: write @job once")
